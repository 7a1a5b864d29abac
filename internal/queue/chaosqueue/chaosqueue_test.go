package chaosqueue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/queue/queuetest"
	"sheaf/internal/queue/sqlqueue"
)

func TestEverythingEndsThoughHintsAreLostAndRepeated(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			store := new(queuetest.Store)
			for i := range 5 {
				store.SetTenant(fmt.Sprint("t", i), 1, 3)
				store.Add(fmt.Sprint("t", i), sheaf.LaneNormal, 100)
			}
			q := New(sqlqueue.New(store, sqlqueue.Config{}), Config{Seed: seed})
			refused := 0
			for start := time.Now(); store.Left() > 0; {
				if time.Since(start) > time.Hour {
					t.Fatalf("seed %d: %d tasks are left after an hour", seed, store.Left())
				}
				hints, err := q.Take(t.Context(), "w", 4, nil)
				if err != nil || len(hints) > 4 {
					t.Fatalf("seed %d: took %d, %v", seed, len(hints), err)
				}
				for _, h := range hints {
					won := store.Claim(h.TaskID)
					if err := q.Ack(t.Context(), h, won); err != nil {
						t.Fatal(err)
					}
					if !won {
						refused++
						continue
					}
					store.Finish(h.TaskID, false)
					if err := q.Done(t.Context(), h.TenantID, h.TaskID); err != nil {
						t.Fatal(err)
					}
				}
				if len(hints) == 0 {
					if err := q.Wait(t.Context(), time.Second); err != nil {
						t.Fatal(err)
					}
				}
			}
			c := q.Counts()
			if c.Dropped < 20 || c.Repeated < 20 || c.Delayed < 20 || c.Reordered < 20 || refused < 10 {
				t.Errorf("seed %d: hardly any trouble: %+v, %d claims refused", seed, c, refused)
			}
		})
	}
}

func TestSameSeedMakesTheSameTrouble(t *testing.T) {
	var orders [2]string
	for i := range orders {
		synctest.Test(t, func(t *testing.T) {
			store := new(queuetest.Store)
			store.Add("a", sheaf.LaneNormal, 100)
			q := New(sqlqueue.New(store, sqlqueue.Config{}), Config{Seed: 7})
			for range 40 {
				hints, err := q.Take(t.Context(), "w", 5, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range hints {
					orders[i] += h.TaskID + " "
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	if orders[0] != orders[1] {
		t.Errorf("two runs differ:\n%s\n%s", orders[0], orders[1])
	}
}

func TestPublishCountsFromTheFront(t *testing.T) {
	inner := &window{Queue: sqlqueue.New(new(queuetest.Store), sqlqueue.Config{}), capacity: 10}
	q := New(inner, Config{Seed: 3})
	hints := make([]sheaf.Hint, 30)
	for i := range hints {
		hints[i] = sheaf.Hint{TaskID: fmt.Sprint(i), TenantID: "a"}
	}
	n, err := q.Publish(t.Context(), "a", sheaf.LaneNormal, hints)
	if err != nil || n < 1 || n >= 30 {
		t.Fatalf("accepted %d of 30, %v, into a window of 10", n, err)
	}
	in := make(map[string]bool)
	for _, h := range inner.in {
		in[h.TaskID] = true
	}
	lost := 0
	for _, h := range hints[:n] {
		if !in[h.TaskID] {
			lost++
		}
	}
	if lost > q.Counts().Dropped {
		t.Errorf("%d hints count as accepted and are not in, %d were dropped", lost, q.Counts().Dropped)
	}
}

func TestSignalsAreLostAndRepeated(t *testing.T) {
	q := New(sqlqueue.New(new(queuetest.Store), sqlqueue.Config{}), Config{Seed: 1})
	heard := q.Cancels(t.Context())
	ids := make([]string, 500)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	if err := q.SignalCancel(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := q.Notify(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := q.Counts()
	if c.Dropped < 20 || c.Repeated < 20 || len(heard) < 400 || len(heard) == len(ids) {
		t.Errorf("heard %d of 500 signals, %+v", len(heard), c)
	}
}

func TestChangesAreLost(t *testing.T) {
	q := New(sqlqueue.New(new(queuetest.Store), sqlqueue.Config{}), Config{Seed: 1})
	heard := q.Changes(t.Context())
	lost := 0
	for range 300 {
		if err := q.NotifyChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		default:
			lost++
		}
	}
	if lost < 10 || lost > 100 || lost != q.Counts().Dropped {
		t.Errorf("%d of 300 changes were lost, %+v", lost, q.Counts())
	}
}

// window accepts a few hints and keeps them.
type window struct {
	*sqlqueue.Queue
	capacity int
	in       []sheaf.Hint
}

func (w *window) Publish(ctx context.Context, tenantID string, lane sheaf.Lane, hints []sheaf.Hint) (int, error) {
	n := min(w.capacity, len(hints))
	w.in, w.capacity = append(w.in, hints[:n]...), w.capacity-n
	return n, nil
}
