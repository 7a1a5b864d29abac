package keeper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/keeper"
	"sheaf/internal/queue"
	"sheaf/internal/queue/redisstream"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// telling says which caps the queue was told.
type telling struct {
	queue.Queue
	told chan int
}

func (q telling) SetShare(ctx context.Context, tenant string, weight, cap int) error {
	err := q.Queue.SetShare(ctx, tenant, weight, cap)
	q.told <- cap
	return err
}

// changing is a keeper over a queue, with an executor that takes what it is
// given. Tenants are changed in the store alone, as another process does it.
type changing struct {
	*storetest.Fixture
	q       queue.Queue
	running map[string][]sheaf.Hint // by tenant
}

// take takes tasks until done, or until it is plain that nothing more comes.
func (c *changing) take(slots int, done func() bool) {
	c.T.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			c.T.Fatalf("after 20 s these run: alpha %d, beta %d", len(c.running["alpha"]), len(c.running["beta"]))
		}
		if c.once(slots) == 0 {
			_ = c.q.Wait(c.T.Context(), 20*time.Millisecond)
		}
	}
}

// once takes and claims once, and says how many hints it had.
func (c *changing) once(slots int) int {
	c.T.Helper()
	ctx := c.T.Context()
	// An executor that is not heard of for six seconds loses what it runs.
	if _, err := c.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: "w", Slots: 200}, time.Hour, nil); err != nil {
		c.T.Fatal(err)
	}
	hints, err := c.q.Take(ctx, "w", slots, nil)
	if err != nil {
		c.T.Fatal(err)
	}
	for _, h := range hints {
		_, err := c.Store.Claim(ctx, h.TaskID, "w", time.Hour)
		refused, ok := errors.AsType[*taskstore.NotClaimable](err)
		if err != nil && !ok {
			c.T.Fatal(err)
		}
		if ackErr := c.q.Ack(ctx, h, err == nil || refused.State == sheaf.TaskRunning); ackErr != nil {
			c.T.Fatal(ackErr)
		}
		if err == nil {
			c.running[h.TenantID] = append(c.running[h.TenantID], h)
		}
	}
	return len(hints)
}

// A tenant that is changed in the store is served by its new cap, weight and
// pause without anybody telling the queue but the keeper.
func TestChangedTenantIsServedSo(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, f *storetest.Fixture) queue.Queue{
		"sql": func(t *testing.T, f *storetest.Fixture) queue.Queue { return sqlqueue.New(f.Store, sqlqueue.Config{}) },
		"redis": func(t *testing.T, f *storetest.Fixture) queue.Queue {
			q, err := redisstream.New(redisstream.Config{Redis: redisstream.RedisOptions{Addrs: []string{redisAddr(t)}}, Prefix: "keeper" + sheaf.NewID() + ":"})
			if err != nil {
				t.Fatal(err)
			}
			return q
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := storetest.New(t, "sqlite")
			q := telling{open(t, f), make(chan int, 100)}
			defer q.Close()
			for range 60 {
				f.Document("alpha")
				f.Document("beta")
			}
			change := func(tenant string, c taskstore.TenantChange) {
				t.Helper()
				if _, err := f.Store.ChangeTenant(t.Context(), tenant, c); err != nil {
					t.Fatal(err)
				}
			}
			pause := func(paused bool) {
				t.Helper()
				if _, err := f.Store.SetPaused(t.Context(), "alpha", taskstore.PauseScope{Tenant: true}, paused); err != nil {
					t.Fatal(err)
				}
			}
			change("alpha", taskstore.TenantChange{Cap: new(2)})
			change("beta", taskstore.TenantChange{Cap: new(1)})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			k := keeper.New(keeper.Config{Store: f.Store, Queue: q, Feeds: true, FeedEvery: 20 * time.Millisecond, SlowEvery: time.Hour, CollectEvery: time.Hour, CleanupEvery: time.Hour})
			go func() { ended <- k.Run(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			c := &changing{f, q, map[string][]sheaf.Hint{}}
			alpha := func(n int) func() bool { return func() bool { return len(c.running["alpha"]) >= n } }
			holds := func(what string, alpha, beta int) {
				t.Helper()
				for range 5 { // nothing more is handed out
					c.once(8)
				}
				if a, b := len(c.running["alpha"]), len(c.running["beta"]); a != alpha || b != beta {
					t.Fatalf("%s: %d tasks of alpha run and %d of beta, want %d and %d", what, a, b, alpha, beta)
				}
			}
			c.take(8, func() bool { return alpha(2)() && len(c.running["beta"]) == 1 })
			holds("with caps of 2 and 1", 2, 1)

			change("alpha", taskstore.TenantChange{Cap: new(6)})
			c.take(8, alpha(6))
			holds("with a cap raised to 6", 6, 1)

			// On hold nothing is begun; what runs goes on. Freed, it is begun
			// though claims have spent hints meanwhile.
			change("alpha", taskstore.TenantChange{Cap: new(60)})
			for cap := range q.told {
				if cap == 60 {
					break
				}
			}
			pause(true)
			change("beta", taskstore.TenantChange{Cap: new(2)})
			c.take(8, func() bool { return len(c.running["beta"]) == 2 })
			for c.once(8) > 0 { // what the queue still holds of alpha is refused
			}
			holds("on hold", 6, 2)
			pause(false)
			c.take(8, alpha(60))

			// By weight, of 20 that are begun one after the other.
			for range 30 {
				f.Document("alpha")
			}
			change("alpha", taskstore.TenantChange{Weight: new(1), Cap: new(100)})
			change("beta", taskstore.TenantChange{Weight: new(4), Cap: new(60)})
			c.take(1, func() bool { return len(c.running["beta"]) > 2 }) // the keeper has told of it
			before := len(c.running["alpha"])
			first := len(c.running["beta"])
			c.take(1, func() bool { return len(c.running["alpha"])+len(c.running["beta"]) == before+first+20 })
			if n := len(c.running["beta"]) - first; n < 13 {
				t.Errorf("with four times the weight beta has %d of 20", n)
			}
		})
	}
}
