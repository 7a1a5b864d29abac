package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sheaf"
)

// Whatever is measured, every worker may be kept busy and no more is held than
// the batch allows; and what is prefetched is done within a claim's time.
func TestCapacityIsWhatWorkersCanUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers, batch := rapid.IntRange(1, 20).Draw(t, "workers"), rapid.IntRange(1, 5).Draw(t, "batch")
		s := newCapacity(workers, batch)
		d := rapid.Int64Range(0, int64(time.Second))
		held := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				s.claimed(time.Duration(d.Draw(t, "claim")))
			case 1:
				s.worked(time.Duration(d.Draw(t, "work")))
			case 2:
				s.forget()
			case 3:
				if held < s.limit() {
					held += s.acquire(t.Context())
				}
			case 4:
				n := rapid.IntRange(0, held).Draw(t, "freed")
				s.release(n)
				held -= n
			}
			may := s.limit()
			if may < workers || may > workers*batch || held > workers*batch {
				t.Fatalf("%d held, %d allowed, of %d workers with batches of %d", held, may, workers, batch)
			}
			if prefetched := may - workers; prefetched > 0 && time.Duration(prefetched)*s.work > time.Duration(workers)*s.claim {
				t.Fatalf("%d prefetched where a claim takes %v and a task %v", prefetched, s.claim, s.work)
			}
		}
	})
}

// A single long task ends prefetching at once, and so does an empty queue.
func TestCapacityBeginsAnewAfterAnIdleTime(t *testing.T) {
	s := newCapacity(4, 3)
	quick := func(n int) {
		for range n {
			s.worked(time.Millisecond)
		}
	}
	may := func(want int, when string) {
		t.Helper()
		if n := s.limit(); n != want {
			t.Errorf("%s, %d tasks may be held; want %d", when, n, want)
		}
	}
	s.claimed(5 * time.Millisecond)
	quick(3)
	may(4, "before each worker has ended a task")
	quick(1)
	may(12, "after four quick tasks")
	s.worked(time.Second)
	may(4, "after a long one")
	quick(10)
	may(4, "soon after a long one")
	quick(300)
	may(12, "long after it")
	s.forget()
	may(4, "when there was nothing to take")
}

// hurried is an executor of so many workers that has done many quick tasks and
// whose claims take longer than these. After them come the tasks of more.
func hurried(t *testing.T, workers, batch int, process func(ctx context.Context, id string) error, more ...string) (r *running, atOnce func() (claims, work int)) {
	t.Helper()
	var mu sync.Mutex
	var work, mostWork int
	processors := map[sheaf.TaskKind]func(context.Context) error{}
	var ids []string
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("quick%03d", i))
	}
	ids = append(ids, more...)
	for _, id := range ids {
		processors[sheaf.TaskKind(id)] = func(ctx context.Context) error {
			mu.Lock()
			work++
			mostWork = max(mostWork, work)
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				work--
			}()
			if strings.HasPrefix(id, "quick") {
				time.Sleep(time.Millisecond)
				return nil
			}
			return process(ctx, id)
		}
	}
	r = startWith(t, func(c *Config) { c.Workers, c.Batch, c.Store.(*book).claims = workers, batch, 20*time.Millisecond }, processors, ids...)
	return r, func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		return r.store.mostClaims, mostWork
	}
}

// While a claim takes longer than a task, as many are claimed as keep the
// workers busy; no more of them are at work at once, and with a batch of 1
// nothing is prefetched.
func TestQuickTasksArePrefetched(t *testing.T) {
	for batch, want := range map[int]int{1: 2, 4: 8} {
		synctest.Test(t, func(t *testing.T) {
			r, atOnce := hurried(t, 2, batch, nil)
			time.Sleep(time.Minute)
			r.finish()
			claims, work := atOnce()
			if claims != want || work > 2 {
				t.Errorf("with batches of %d: %d claims at once, want %d, and %d at work on 2 workers", batch, claims, want, work)
			}
			if n := len(r.store.entries()); n != 200 {
				t.Errorf("%d ends of 200 tasks", n)
			}
		})
	}
}

// What was prefetched and finds the workers at long tasks goes back soon, and
// nothing more is claimed until a worker is free.
func TestTaskBehindLongOnesIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var long []string
		for i := range 20 {
			long = append(long, fmt.Sprintf("long%02d", i))
		}
		r, _ := hurried(t, 2, 4, func(ctx context.Context, _ string) error { return fiveMinutes(ctx) }, long...)
		time.Sleep(10 * time.Second)
		given := 0
		for _, e := range r.store.entries() {
			if strings.HasPrefix(e, "release long") {
				given++
			} else if !strings.HasPrefix(e, "complete quick") {
				t.Errorf("%q", e)
			}
		}
		running := r.Running()
		r.queue.mu.Lock()
		left := len(r.queue.hints)
		r.queue.mu.Unlock()
		if len(running) != 2 || given == 0 || given > 6 || left+given+2 != len(long) {
			t.Errorf("%d tasks run, %d were given back, %d wait in the queue, of %d", len(running), given, left, len(long))
		}
		close(r.hard)
		r.finish()
	})
}

// A task that waits for a worker hears of a cancel, and at the end of the
// executor it goes back at once: draining is for what is at work.
func TestTaskThatWaitsForAWorkerCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := []string{"long0", "long1", "long2", "long3"}
		r, _ := hurried(t, 1, 4, func(ctx context.Context, _ string) error { time.Sleep(10 * time.Second); return nil }, long...)
		waiting := func() (ids []string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for id, a := range r.running {
				if strings.HasPrefix(id, "long") && !a.began.Load() {
					ids = append(ids, id)
				}
			}
			return ids
		}
		for len(waiting()) < 2 {
			time.Sleep(time.Millisecond)
		}
		canceled := waiting()[0]
		r.store.mu.Lock()
		r.store.canceled[canceled] = true
		r.store.mu.Unlock()
		r.queue.stop <- canceled
		synctest.Wait()
		if e := r.store.entries(); e[len(e)-1] != "fail "+canceled+" canceled retryable=false" {
			t.Errorf("the last end is %q", e[len(e)-1])
		}
		still := waiting()
		before := time.Now()
		go r.finish()
		synctest.Wait()
		if len(waiting()) != 0 || time.Since(before) != 0 {
			t.Errorf("%d tasks still wait for a worker", len(waiting()))
		}
		time.Sleep(time.Minute)
		entries := strings.Join(r.store.entries(), " ")
		for _, id := range still {
			if !strings.Contains(entries, "release "+id) {
				t.Errorf("%s was not given back", id)
			}
		}
	})
}
