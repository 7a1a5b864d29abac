package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/internal/queue/queuetest"
	"sheaf/taskstore"
)

func TestContract(t *testing.T) {
	queuetest.Run(t, func(t *testing.T) queuetest.Harness {
		store := new(queuetest.Store)
		q := New(store, Config{})
		t.Cleanup(func() { _ = q.Close() })
		return queuetest.Harness{Queue: q, Store: store, Ops: store.Queries.Load}
	})
}

// A worker's queue of pools is a queue like any other, whichever of its two has
// the work.
func TestContractOfPools(t *testing.T) {
	for name, ofPool := range map[string]bool{"tasks of the pool": true, "tasks of none": false} {
		t.Run(name, func(t *testing.T) {
			queuetest.Run(t, func(t *testing.T) queuetest.Harness {
				store := new(queuetest.Store)
				full, empty := New(store, Config{}), New(new(queuetest.Store), Config{})
				t.Cleanup(func() { _, _ = full.Close(), empty.Close() })
				h := queuetest.Harness{Store: store, Ops: store.Queries.Load}
				if ofPool {
					h.Queue, h.IdleOps = &queue.Pools{Queue: empty, Of: full}, 1
				} else {
					h.Queue = &queue.Pools{Queue: full, Of: empty, Look: time.Hour}
				}
				return h
			})
		})
	}
}

// With few slots neither the pools nor the others wait for each other, a queue
// that fails keeps nobody from the other, and a worker of pools alone takes
// nothing else.
func TestPoolsTakeTurns(t *testing.T) {
	common, pooled := new(queuetest.Store), new(queuetest.Store)
	common.Add("a", sheaf.LaneNormal, 20)
	common.Add("c", sheaf.LaneNormal, 20)
	pooled.Add("b", sheaf.LaneNormal, 20)
	q := &queue.Pools{Queue: New(common, Config{}), Of: New(pooled, Config{}), Look: time.Hour}
	take := func(q queue.Queue, slots int) (ofPools, others int) {
		t.Helper()
		hints, err := q.Take(t.Context(), "w", slots, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hints {
			if err := q.Ack(t.Context(), h, true); err != nil {
				t.Fatal(err)
			}
			if h.TenantID == "b" {
				ofPools++
			} else {
				others++
			}
		}
		return ofPools, others
	}
	pools, others := 0, 0
	for range 6 {
		p, o := take(q, 1)
		pools, others = pools+p, others+o
	}
	if pools != 3 || others != 3 {
		t.Errorf("of six slots one after the other %d were for the pools and %d for the others", pools, others)
	}
	only := &queue.Pools{Queue: New(common, Config{}), Of: New(pooled, Config{}), Only: true}
	if p, o := take(only, 4); p != 4 || o != 0 {
		t.Errorf("a worker of pools alone took %d and %d", p, o)
	}
	broken := &queue.Pools{Queue: brokenQueue{New(common, Config{})}, Of: New(pooled, Config{})}
	for range 2 {
		if p, _ := take(broken, 2); p != 2 {
			t.Errorf("beside a queue that fails %d of 2 are taken", p)
		}
	}
}

type brokenQueue struct{ queue.Queue }

func (brokenQueue) Take(context.Context, string, int, []sheaf.TaskKind) ([]sheaf.Hint, error) {
	return nil, sheaf.ErrUnavailable
}

func TestAgedTaskCountsOneLaneHigher(t *testing.T) {
	store := new(queuetest.Store)
	add := func(lane sheaf.Lane, age time.Duration) string {
		return store.AddTask(sheaf.Hint{TenantID: "a", Lane: lane, Cost: 1, Kind: sheaf.KindParse}, time.Now().Add(-age))
	}
	fresh := add(sheaf.LaneNormal, time.Minute)
	aged := add(sheaf.LaneBackfill, 11*time.Minute)
	young := add(sheaf.LaneBackfill, 9*time.Minute)
	q := New(store, Config{})
	for i, want := range []string{aged, fresh, young} {
		hints, err := q.Take(t.Context(), "w", 1, nil)
		if err != nil || len(hints) != 1 || hints[0].TaskID != want {
			t.Fatalf("take %d: %v, %v; want %s", i, hints, err, want)
		}
	}
}

func TestIdleQueueRunsAQueryOnlyAfterARingOrAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(queuetest.Store)
		q := New(store, Config{})
		take := func() []sheaf.Hint {
			t.Helper()
			hints, err := q.Take(t.Context(), "w", 4, nil)
			if err != nil {
				t.Fatal(err)
			}
			return hints
		}
		queries := func(do func()) int64 {
			before := store.Queries.Load()
			do()
			return store.Queries.Load() - before
		}
		take()
		time.Sleep(time.Hour)
		if n := queries(func() { take() }); n != 0 {
			t.Errorf("an idle take ran %d queries", n)
		}
		if err := q.Wait(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if n := queries(func() { take(); take() }); n != 1 {
			t.Errorf("after a wait that ran its time two takes ran %d queries, want 1", n)
		}
		store.Add("a", sheaf.LaneNormal, 1)
		if err := q.Notify(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := take(); len(got) != 1 {
			t.Errorf("after a notification a take found %d hints", len(got))
		}
	})
}

func TestHintThatNobodyAckedComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(queuetest.Store)
		store.SetTenant("a", 1, 1)
		store.Add("a", sheaf.LaneNormal, 1)
		q := New(store, Config{HintTTL: time.Minute})
		for _, want := range []int{1, 0, 1} {
			hints, err := q.Take(t.Context(), "w", 1, nil)
			if err != nil || len(hints) != want {
				t.Fatalf("took %d, %v; want %d", len(hints), err, want)
			}
			if err := q.Wait(t.Context(), 31*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTakenIsBounded(t *testing.T) {
	store := new(queuetest.Store)
	store.Add("a", sheaf.LaneNormal, 50)
	q := New(store, Config{MaxTaken: 10})
	got := 0
	for range 10 {
		hints, err := q.Take(t.Context(), "w", 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		got += len(hints)
	}
	if got != 10 {
		t.Errorf("handed out %d unacked hints, want 10", got)
	}
}

func TestCapCountsWhatOtherProcessesRun(t *testing.T) {
	store := new(queuetest.Store)
	store.SetTenant("a", 1, 3)
	ids := store.Add("a", sheaf.LaneNormal, 6)
	store.Claim(ids[0])
	store.Claim(ids[1])
	q := New(store, Config{})
	hints, err := q.Take(t.Context(), "w", 6, nil)
	if err != nil || len(hints) != 1 {
		t.Fatalf("took %d, %v; the store runs 2 of 3", len(hints), err)
	}
	store.Finish(ids[0], false) // elsewhere: only a wait can tell
	if err := q.Wait(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if hints, err = q.Take(t.Context(), "w", 6, nil); err != nil || len(hints) != 1 {
		t.Fatalf("took %d, %v; one place is free", len(hints), err)
	}
}

// endingFeed lets tasks end while the store is asked what runs next.
type endingFeed struct {
	*queuetest.Store
	during []func() // one for each query
}

func (f *endingFeed) Runnable(ctx context.Context, tenantID string, limit int, ageAfter time.Duration) ([]sheaf.Hint, error) {
	hints, err := f.Store.Runnable(ctx, tenantID, limit, ageAfter)
	if len(f.during) > 0 {
		during := f.during[0]
		f.during = f.during[1:]
		during()
	}
	return hints, err
}

func TestRoomThatIsMadeDuringAQueryIsUsed(t *testing.T) {
	const cap = 8
	for _, test := range []struct {
		name  string
		known bool  // those that run are known from the store alone
		ended []int // tasks that end during each query
		want  []int // hints of the takes that follow each other, of four at most in all
	}{
		{"taken here", false, []int{4}, []int{4}},
		{"known from the store", true, []int{4}, []int{4}},
		{"twice", true, []int{1, 3}, []int{2, 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			feed := &endingFeed{Store: new(queuetest.Store)}
			feed.SetTenant("a", 1, cap)
			feed.Add("a", sheaf.LaneNormal, 50)
			q := New(feed, Config{})
			take := func(slots, want int) []sheaf.Hint {
				t.Helper()
				hints, err := q.Take(t.Context(), "w", slots, nil)
				if err != nil || len(hints) != want {
					t.Fatalf("%d slots were filled with %d, %v; want %d", slots, len(hints), err, want)
				}
				return hints
			}
			running := take(cap-1, cap-1)
			for _, h := range running {
				feed.Claim(h.TaskID)
				if err := q.Ack(t.Context(), h, true); err != nil {
					t.Fatal(err)
				}
			}
			if test.known {
				if err := q.Notify(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range test.ended {
				ends := running[:n]
				running = running[n:]
				feed.during = append(feed.during, func() {
					for _, h := range ends {
						feed.Finish(h.TaskID, false)
						if err := q.Done(t.Context(), h.TenantID, h.TaskID); err != nil {
							t.Error(err)
						}
					}
				})
			}
			slots := 4
			for _, n := range test.want {
				take(slots, n)
				slots -= n
			}
		})
	}
}

func TestMemoryOfTasksThatRunElsewhereIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(queuetest.Store)
		q := New(store, Config{})
		for range 100 {
			id := store.Add("a", sheaf.LaneNormal, 1)[0]
			if err := q.Notify(t.Context()); err != nil {
				t.Fatal(err)
			}
			hints, err := q.Take(t.Context(), "w", 1, nil)
			if err != nil || len(hints) != 1 {
				t.Fatalf("took %d, %v", len(hints), err)
			}
			store.Claim(id) // another process was first; its Done will not come here
			if err := q.Ack(t.Context(), hints[0], true); err != nil {
				t.Fatal(err)
			}
			store.Finish(id, false)
		}
		if len(q.taken) > 1 {
			t.Errorf("%d tasks of others are remembered", len(q.taken))
		}
	})
}

// slowFeed takes a while to list tenants.
type slowFeed struct {
	*queuetest.Store
	lists int
}

func (f *slowFeed) RunnableTenants(ctx context.Context) ([]taskstore.TenantLoad, error) {
	f.lists++
	time.Sleep(100 * time.Millisecond)
	return f.Store.RunnableTenants(ctx)
}

// With many tenants, of which each new task asks for the list, that is read a tenth
// of the time. A tenant that is new has its turn within a second, and nobody waits
// for the list when all that it held has been handed out.
func TestLongListOfTenantsIsReadNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &slowFeed{Store: new(queuetest.Store)}
		for i := range 2 * longList {
			feed.Add(fmt.Sprintf("t%05d", i), sheaf.LaneNormal, 1)
		}
		q := New(feed, Config{})
		took := map[string]time.Time{}
		take := func() int {
			hints, err := q.Take(t.Context(), "w", 4, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hints {
				took[h.TenantID] = time.Now()
				feed.Claim(h.TaskID)
				feed.Finish(h.TaskID, false)
				if err := errors.Join(q.Ack(t.Context(), h, true), q.Done(t.Context(), h.TenantID, h.TaskID)); err != nil {
					t.Fatal(err)
				}
			}
			return len(hints)
		}
		begun := time.Now()
		for n := 0; n < longList; n += take() {
			if err := q.Notify(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := int(time.Since(begun)/time.Second) + 1; feed.lists > most {
			t.Errorf("the list was read %d times in %s, want %d at most", feed.lists, time.Since(begun), most)
		}
		since := time.Now()
		feed.Add("a", sheaf.LaneNormal, 1)
		for len(took) < 2*longList+1 {
			if err := q.Wait(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			if take() > 0 {
				_ = q.Notify(t.Context())
			}
			time.Sleep(10 * time.Millisecond)
		}
		if wait := took["a"].Sub(since); wait > 1200*time.Millisecond {
			t.Errorf("a new tenant waited for %s", wait)
		}
		if time.Since(since) > time.Minute {
			t.Error("what was left in the list waited for a notification")
		}
	})
}

// brokenFeed fails while broken is set.
type brokenFeed struct {
	queuetest.Store
	broken error
}

func (f *brokenFeed) RunnableTenants(ctx context.Context) ([]taskstore.TenantLoad, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	return f.Store.RunnableTenants(ctx)
}

func TestStoreThatFailsIsAskedAgain(t *testing.T) {
	feed := &brokenFeed{broken: sheaf.ErrUnavailable}
	feed.Add("a", sheaf.LaneNormal, 1)
	q := New(feed, Config{})
	for range 2 {
		if _, err := q.Take(t.Context(), "w", 1, nil); !errors.Is(err, sheaf.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	feed.broken = nil
	if hints, err := q.Take(t.Context(), "w", 1, nil); err != nil || len(hints) != 1 {
		t.Fatalf("took %d, %v after the store came back", len(hints), err)
	}
}

// fakeRemote is a notify.Remote driven by hand.
type fakeRemote struct {
	received chan struct{}
	sent     int
}

func (b *fakeRemote) Notify(context.Context) error   { b.sent++; return nil }
func (b *fakeRemote) Notifications() <-chan struct{} { return b.received }

func TestNotificationOfAnotherProcessWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executors := &fakeRemote{received: make(chan struct{})}
		q := New(new(queuetest.Store), Config{Executors: executors})
		defer q.Close()
		woken := make(chan error, 1)
		start := time.Now()
		go func() { woken <- q.Wait(t.Context(), time.Hour) }()
		synctest.Wait()
		executors.received <- struct{}{}
		if err := <-woken; err != nil || time.Since(start) > 0 {
			t.Errorf("woken after %v, %v", time.Since(start), err)
		}
		if err := q.Notify(t.Context()); err != nil || executors.sent != 1 {
			t.Errorf("notified the others %d times, %v", executors.sent, err)
		}
	})
}

func TestChangesCrossProcessesByTheirOwnRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executors, keeper := &fakeRemote{received: make(chan struct{})}, &fakeRemote{received: make(chan struct{})}
		q := New(new(queuetest.Store), Config{Executors: executors, Keeper: keeper})
		defer q.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		heard := q.Changes(ctx)
		executors.received <- struct{}{}
		synctest.Wait()
		if len(heard) != 0 {
			t.Error("a notification for executors reached the keeper")
		}
		keeper.received <- struct{}{}
		synctest.Wait()
		if len(heard) != 1 {
			t.Error("a change in another process was not received")
		}
		if err := q.NotifyChange(ctx); err != nil || keeper.sent != 1 || executors.sent != 0 {
			t.Errorf("a change was sent %d times and to the executors %d times, %v", keeper.sent, executors.sent, err)
		}
	})
}

func BenchmarkTakeWith5000BusyTenants(b *testing.B) {
	store := new(queuetest.Store)
	for i := range 5000 {
		store.Add(string(rune('a'+i%26))+time.Duration(i).String(), sheaf.LaneNormal, 2)
	}
	q := New(store, Config{})
	for b.Loop() {
		hints, err := q.Take(b.Context(), "w", 1, nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, h := range hints {
			if err := q.Ack(b.Context(), h, false); err != nil {
				b.Fatal(err)
			}
		}
	}
}
