package keeper

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf/internal/queue"
	"sheaf/internal/queue/queuetest"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/taskstore"
)

// turn is a leader that leads while it is this keeper's turn.
type turn struct{ begin, end chan struct{} }

func (l *turn) Run(ctx context.Context, lead func(context.Context)) error {
	for {
		select {
		case <-l.begin:
			term, end := context.WithCancel(ctx)
			var led sync.WaitGroup
			led.Go(func() { lead(term) })
			select {
			case <-l.end:
			case <-ctx.Done():
			}
			end()
			led.Wait()
		case <-ctx.Done():
			return nil
		}
	}
}

// idle is a store without work, but for progress, which is counted.
type idle struct{ folds }

func (*idle) RollUp(context.Context) (int, error) { return 0, nil }
func (*idle) PromoteDue(context.Context, int) (p taskstore.Promotion, err error) {
	return p, nil
}
func (*idle) WatchClock(context.Context) (time.Time, time.Duration, error) {
	return time.Now(), 0, nil
}
func (*idle) Reap(context.Context, taskstore.ReapPolicy, int) (int, error) { return 0, nil }
func (*idle) HardCancel(context.Context, time.Duration, int) (int, error)  { return 0, nil }
func (*idle) WakeParked(context.Context, int) (int, error)                 { return 0, nil }
func (*idle) Running(context.Context) (map[string][]string, error)         { return nil, nil }
func (*idle) CloseIdleJobs(context.Context, int) (int, error)              { return 0, nil }
func (*idle) ExpireUploads(context.Context, int) (int, error)              { return 0, nil }
func (*idle) Garbage(context.Context, int) ([]taskstore.Garbage, error)    { return nil, nil }
func (*idle) PurgeDeleted(context.Context, int) (int, error)               { return 0, nil }
func (*idle) SettleReceipts(context.Context, int, func(*taskstore.Receipt) error) (int, error) {
	return 0, nil
}
func (*idle) Cleanup(context.Context, time.Duration, int, bool) (r taskstore.CleanupReport, err error) {
	return r, nil
}

// A change in another process is followed at once by the keeper that leads, and
// by no other.
func TestChangeIsFollowedByTheKeeperThatLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := sqlqueue.New(new(queuetest.Store), sqlqueue.Config{})
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		var turns [2]*turn
		var stores [2]*idle
		for i := range turns {
			turns[i], stores[i] = &turn{make(chan struct{}), make(chan struct{})}, &idle{}
			k := New(Config{Store: stores[i], Queue: queue.Queue(q), Leader: turns[i], FoldEvery: time.Hour})
			ended.Go(func() {
				if err := k.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for range 2 { // terms
			for i := range turns {
				turns[i].begin <- struct{}{}
				synctest.Wait()
				for range 3 {
					mine, other := stores[i].n.Load(), stores[1-i].n.Load()
					if err := q.NotifyChange(ctx); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * followPause)
					synctest.Wait()
					if n := stores[i].n.Load() - mine; n != 1 {
						t.Errorf("the keeper that leads folded %d times within %v of a notification", n, 2*followPause)
					}
					if stores[1-i].n.Load() != other {
						t.Error("the other keeper followed too")
					}
				}
				turns[i].end <- struct{}{}
				synctest.Wait()
			}
		}
		stop()
		ended.Wait()
	})
}
