package keeper

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// folds is a store that counts how often progress is folded.
type folds struct {
	Store
	n     atomic.Int64
	later atomic.Bool // a document was left
}

func (f *folds) Fold(context.Context, int, time.Duration) (int, bool, error) {
	f.n.Add(1)
	return 0, f.later.Load(), nil
}

// Progress follows a change soon, and under load follows at a rate that does not
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
			changed := make(chan struct{}, 1)
			go k.run(ctx, l, changed)
			synctest.Wait()
			notify := func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
			follows := func(within time.Duration, when string) {
				t.Helper()
				before := store.n.Load()
				notify()
				time.Sleep(within)
				synctest.Wait()
				if store.n.Load() == before {
					t.Errorf("no fold within %v of a change %s", within, when)
				}
			}
			for range debounceBurst - 1 {
				follows(2*followPause, "of a small document")
			}

			before, begun := store.n.Load(), time.Now()
			for time.Since(begun) < 30*time.Second {
				notify()
				time.Sleep(time.Millisecond)
			}
			if n := store.n.Load() - before; n > int64(30*time.Second/debouncePause)+debounceBurst {
				t.Errorf("%d folds in 30 s of changes", n)
			}
			follows(debouncePause+followPause, "among many")
			time.Sleep(time.Minute)
			follows(2*followPause, "after a quiet minute")
		}
	})
}

// slowFolds is a store for which folding takes a while.
type slowFolds struct {
	folds
	takes time.Duration
}

func (f *slowFolds) Fold(ctx context.Context, n int, apart time.Duration) (int, bool, error) {
	time.Sleep(f.takes)
	return f.folds.Fold(ctx, n, apart)
}

// A loop whose runs take long follows the first change after a quiet time as
// soon as one whose runs are short, and changes that do not end for a fifth of
// the time.
func TestSlowLoopFollowsSoonAfterAQuietTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowFolds{takes: 100 * time.Millisecond}
		k := New(Config{Store: store})
		ctx, stop := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		notify := func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		var ended sync.WaitGroup
		ended.Go(func() { k.run(ctx, &loop{name: "fold", every: time.Hour, step: k.fold}, changed) })
		defer func() { stop(); ended.Wait() }()
		for _, quiet := range []struct{ since, within time.Duration }{
			{time.Minute, followPause}, {400 * time.Millisecond, followPause}, {200 * time.Millisecond, 200 * time.Millisecond}, {0, 400 * time.Millisecond},
		} {
			time.Sleep(time.Minute)
			notify()
			time.Sleep(followPause + store.takes) // a run has just ended
			synctest.Wait()
			before := store.n.Load()
			time.Sleep(quiet.since)
			notify()
			time.Sleep(quiet.within + store.takes - time.Millisecond)
			synctest.Wait()
			if n := store.n.Load() - before; n != 0 {
				t.Errorf("%v after a run %d more have ended sooner than in %v", quiet.since, n, quiet.within)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if n := store.n.Load() - before; n != 1 {
				t.Errorf("%v after a run a change was not followed within %v", quiet.since, quiet.within)
			}
		}

		time.Sleep(time.Minute)
		before := store.n.Load()
		for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(time.Millisecond) {
			notify()
		}
		if n := store.n.Load() - before; n > 61 || n < 55 {
			t.Errorf("%d runs of %v in 30 s of changes, want a fifth of the time", n, store.takes)
		}
	})
}

// What a fold has left is looked at again without a notification, and once nothing is
// left the loop rests.
func TestFoldComesBackForWhatItLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &folds{}
		store.later.Store(true)
		k := New(Config{Store: store, FoldEvery: time.Hour})
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		for _, l := range k.loops {
			if l.name == "fold" {
				ended.Go(func() { k.run(ctx, l, make(chan struct{}, 1)) })
			}
		}
		defer func() { stop(); ended.Wait() }()
		synctest.Wait()
		for range 5 {
			before := store.n.Load()
			time.Sleep(foldsApart)
			synctest.Wait()
			if n := store.n.Load() - before; n != 1 {
				t.Fatalf("%d folds within %v of one that left something", n, foldsApart)
			}
		}
		store.later.Store(false)
		time.Sleep(2 * foldsApart)
		synctest.Wait()
		before := store.n.Load()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := store.n.Load() - before; n != 0 {
			t.Errorf("%d folds in 20 min without a change", n)
		}
	})
}

// A backlog, such as the documents of a large job that was canceled, is folded
// without the pauses with which changes are followed.
func TestBacklogIsFoldedWithoutPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches, takes = 100, 200 * time.Millisecond
		var left atomic.Int64
		left.Store(batches)
		k := New(Config{})
		ctx, stop := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		var ended sync.WaitGroup
		ended.Go(func() {
			k.run(ctx, &loop{name: "fold", every: time.Hour, debounced: true, step: func(context.Context) (int, error) {
				time.Sleep(takes)
				if left.Add(-1) < 0 {
					return 0, nil
				}
				return batch, nil
			}}, changed)
		})
		defer func() { stop(); ended.Wait() }()
		begun := time.Now()
		for left.Load() > 0 && time.Since(begun) < time.Hour {
			select {
			case changed <- struct{}{}:
			default:
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(begun); took > batches*takes*5/4 {
			t.Errorf("%d batches of %v took %v", batches, takes, took)
		}
	})
}
