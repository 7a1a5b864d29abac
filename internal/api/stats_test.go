package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf/taskstore"
)

// TestLongStatsAreReadOnceAMinute: however many look, one reads, and who gives up
// does not end what others wait for.
func TestLongStatsAreReadOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		var fail error
		l := longStats{read: func(ctx context.Context, tenant string, minutes, bucket int) (*taskstore.Stats, error) {
			reads++
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return &taskstore.Stats{BucketMinutes: bucket}, fail
		}}
		ask := func(ctx context.Context) error {
			st, err := l.stats(ctx, "a", 1440, 15)
			if err == nil && st.BucketMinutes != 15 {
				t.Errorf("%+v", st)
			}
			return err
		}
		gone, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := ask(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("who gave up was answered %v", err)
			}
		})
		synctest.Wait()
		for range 20 {
			all.Go(func() {
				if err := ask(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		time.Sleep(longStatsAge - time.Second)
		if err := ask(t.Context()); err != nil || reads != 1 {
			t.Errorf("%d reads in a minute: %v", reads, err)
		}
		if _, err := l.stats(t.Context(), "b", 1440, 15); err != nil || reads != 2 {
			t.Errorf("another tenant has the sums of the first: %d reads, %v", reads, err)
		}
		time.Sleep(2 * time.Second)
		fail = errors.New("the store is away")
		if err := ask(t.Context()); !errors.Is(err, fail) || reads != 3 {
			t.Errorf("%d reads, %v", reads, err)
		}
		fail = nil
		if err := ask(t.Context()); err != nil || reads != 4 {
			t.Errorf("a failure is kept: %d reads, %v", reads, err)
		}
		// As many tenants as there may be, and no more.
		for i := range 3 * maxLongStats {
			l.keep(fmt.Sprint(i), &taskstore.Stats{})
			if len(l.kept) > maxLongStats {
				t.Fatalf("%d sums are kept", len(l.kept))
			}
		}
		if _, err := l.stats(t.Context(), "c", 1440, 15); err != nil || len(l.kept) > maxLongStats {
			t.Errorf("%d sums are kept: %v", len(l.kept), err)
		}
	})
}
