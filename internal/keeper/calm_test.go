package keeper

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
)

// folds is a store that counts how often progress is folded.
type folds struct {
	sheaf.KeeperStore
	n atomic.Int64
}

func (f *folds) Fold(context.Context, int) (int, error) {
	f.n.Add(1)
	return 0, nil
}

// Progress follows a change soon, and under load follows at a pace that does not
// grow with the number of changes.
func TestProgressIsFoldedSoonAndNotWithEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &folds{}
		k := New(Config{Store: store, FoldEvery: time.Hour})
		for _, l := range k.loops {
			if l.name != "fold" {
				continue
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			bell := make(chan struct{}, 1)
			go k.run(ctx, l, bell)
			synctest.Wait()
			ring := func() {
				select {
				case bell <- struct{}{}:
				default:
				}
			}
			follows := func(within time.Duration, when string) {
				t.Helper()
				before := store.n.Load()
				ring()
				time.Sleep(within)
				synctest.Wait()
				if store.n.Load() == before {
					t.Errorf("no fold within %v of a change %s", within, when)
				}
			}
			for range calmAfter - 1 {
				follows(2*nudgePause, "of a small document")
			}

			before, begun := store.n.Load(), time.Now()
			for time.Since(begun) < 30*time.Second {
				ring()
				time.Sleep(time.Millisecond)
			}
			if n := store.n.Load() - before; n > int64(30*time.Second/calmPause)+calmAfter {
				t.Errorf("%d folds in 30 s of changes", n)
			}
			follows(calmPause+nudgePause, "among many")
			time.Sleep(time.Minute)
			follows(2*nudgePause, "after a quiet minute")
		}
	})
}
