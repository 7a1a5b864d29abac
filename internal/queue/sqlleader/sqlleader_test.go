package sqlleader_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/queue/sqlleader"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

const ttl = 1500 * time.Millisecond

// cuttable is one process's way to the leases, which can be cut.
type cuttable struct {
	sqlleader.Leases
	cut, released atomic.Bool
}

func (c *cuttable) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	if c.cut.Load() {
		return false, sheaf.ErrUnavailable
	}
	return c.Leases.AcquireLease(ctx, name, holder, ttl)
}

func (c *cuttable) ReleaseLease(ctx context.Context, name, holder string) error {
	if c.cut.Load() {
		return sheaf.ErrUnavailable
	}
	err := c.Leases.ReleaseLease(ctx, name, holder)
	c.released.Store(err == nil)
	return err
}

func TestLeadersFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases to end")
	}
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		config := storetest.Config(t, engine)
		leases := make([]*cuttable, 2)
		began, ended := make([]chan time.Time, 2), make([]chan time.Time, 2)
		stops, over := make([]context.CancelFunc, 2), make(chan struct{}, 2)
		campaign := func(i int) {
			store, err := sqlstore.Open(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			leases[i] = &cuttable{Leases: store}
			began[i], ended[i] = make(chan time.Time, 10), make(chan time.Time, 10)
			c := sqlleader.New(leases[i], "keeper")
			c.TTL = ttl
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(context.Background())
			t.Cleanup(stops[i])
			go func() {
				defer func() { over <- struct{}{} }()
				_ = c.Run(ctx, func(ctx context.Context) {
					began[i] <- time.Now()
					<-ctx.Done()
					ended[i] <- time.Now()
				})
			}()
		}
		wait := func(c chan time.Time, what string) time.Time {
			t.Helper()
			select {
			case at := <-c:
				return at
			case <-time.After(20 * time.Second):
				t.Fatal("not within 20 s: ", what)
				return time.Time{}
			}
		}

		campaign(0)
		wait(began[0], "the first leads")
		campaign(1)
		select {
		case <-began[1]:
			t.Fatal("two lead at once")
		case <-time.After(2 * ttl):
		}

		leases[0].cut.Store(true)
		stopped, led := wait(ended[0], "the first, cut off, stops"), wait(began[1], "the second leads")
		if !stopped.Before(led) {
			t.Errorf("the first led on for %v after the second began", stopped.Sub(led))
		}

		leases[0].cut.Store(false)
		stops[1]()
		<-over
		if !leases[1].released.Load() {
			t.Error("after a resignation the lease has to run out")
		}
		wait(began[0], "the first leads again")
		stops[0]()
		<-over // before the stores close
	})
}
