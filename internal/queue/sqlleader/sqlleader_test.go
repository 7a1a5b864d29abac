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
	cut atomic.Bool
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
	return c.Leases.ReleaseLease(ctx, name, holder)
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

		cut := time.Now()
		leases[0].cut.Store(true)
		stopped, led := wait(ended[0], "the first, cut off, stops"), wait(began[1], "the second leads")
		if !stopped.Before(led) {
			t.Errorf("the first led on for %v after the second began", stopped.Sub(led))
		}
		if d := led.Sub(cut); d > 3*ttl {
			t.Errorf("the second led %v after the first was cut off, TTL %v", d, ttl)
		}

		leases[0].cut.Store(false)
		resigned := time.Now()
		stops[1]()
		if d := wait(began[0], "the first leads again").Sub(resigned); d > ttl {
			t.Errorf("after a resignation it took %v, as if the lease had to run out", d)
		}
		stops[0]()
		for range 2 {
			<-over // before the stores close
		}
	})
}
