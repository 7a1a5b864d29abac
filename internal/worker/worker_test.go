package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// book is a store of one executor's tasks. The real stores cannot run where
// time is simulated; what they promise is held by storetest.
type book struct {
	Store
	mu       sync.Mutex
	log      []string
	down     bool // heartbeats fail
	lost     map[string]bool
	ended    map[string]bool
	canceled map[string]bool
	left     bool
	holds    map[string]int64 // epochs of what the store holds behind an error
	failing  bool             // the write of an attempt's end comes back with an error
	claims   time.Duration    // what a claim takes

	claiming, mostClaims int                      // claims asked for at once
	slow                 chan struct{}            // completions wait until it is closed; nil for none
	told                 []string                 // what the latest heartbeat said is running
	waits                map[string]time.Duration // how long the end of a task may be put off
}

func (b *book) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf(format, args...))
}

func (b *book) entries() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

func (b *book) Claim(_ context.Context, id, worker string, _ time.Duration) (*sheaf.Task, error) {
	b.mu.Lock()
	b.claiming++
	b.mostClaims = max(b.mostClaims, b.claiming)
	b.mu.Unlock()
	time.Sleep(b.claims)
	b.mu.Lock()
	b.claiming--
	b.mu.Unlock()
	if id == "gone" {
		return nil, &taskstore.NotClaimable{TaskID: id, State: sheaf.TaskCanceled}
	}
	if id == "theirs" {
		return nil, &taskstore.NotClaimable{TaskID: id, State: sheaf.TaskRunning}
	}
	if id == "unclear" {
		return nil, fmt.Errorf("connection lost: %w", sheaf.ErrUnavailable)
	}
	if b.behindAnError(id) {
		return nil, fmt.Errorf("connection lost: %w", sheaf.ErrUnavailable)
	}
	return &sheaf.Task{ID: id, Kind: sheaf.TaskKind(id), Epoch: 1, Attempts: 1, State: sheaf.TaskRunning, WorkerID: worker, RunAt: time.Now()}, nil
}

// behindAnError makes the claim of "unanswered" happen although its caller is
// told of an error, and lets every later one find the task running.
func (b *book) behindAnError(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id != "unanswered" {
		return false
	}
	b.holds[id] = 7
	return true
}

func (b *book) Held(_ context.Context, _ string, ids []string) (held []sheaf.Claim, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return nil, sheaf.ErrUnavailable
	}
	for _, id := range ids {
		if epoch, ok := b.holds[id]; ok {
			held = append(held, sheaf.Claim{TaskID: id, Epoch: epoch})
		}
	}
	return held, nil
}

func (b *book) Heartbeat(_ context.Context, w taskstore.WorkerStatus, _ time.Duration, held []sheaf.Claim) (r taskstore.HeartbeatReply, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = w.Running
	if b.down {
		return r, sheaf.ErrUnavailable
	}
	for _, c := range held {
		if b.lost[c.TaskID] {
			r.Lost = append(r.Lost, c)
		} else if b.ended[c.TaskID] {
			r.Ended = append(r.Ended, c)
		} else if b.canceled[c.TaskID] {
			r.Canceled = append(r.Canceled, c)
		}
	}
	return r, nil
}

func (b *book) Complete(_ context.Context, c sheaf.Claim, done taskstore.Completion) error {
	if b.slow != nil {
		<-b.slow
	}
	b.mu.Lock()
	b.waits[c.TaskID] = done.CanWait
	b.mu.Unlock()
	if c.TaskID == "called off" {
		return sheaf.ErrStale
	}
	b.note("complete %s", c.TaskID)
	return nil
}

func (b *book) FailTask(_ context.Context, c sheaf.Claim, r taskstore.FailReport) (sheaf.TaskState, error) {
	if b.failing {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.holds[c.TaskID] = c.Epoch
		return "", sheaf.ErrUnavailable
	}
	b.note("fail %s %s retryable=%v", c.TaskID, r.Failure.Code, r.Failure.Retryable)
	return sheaf.TaskRetryWait, nil
}

func (b *book) Snooze(_ context.Context, c sheaf.Claim, d time.Duration, _ sheaf.Failure) error {
	b.note("snooze %s %s", c.TaskID, d)
	return nil
}

func (b *book) Release(_ context.Context, c sheaf.Claim) error {
	b.note("release %s", c.TaskID)
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch, ok := b.holds[c.TaskID]; ok && epoch != c.Epoch {
		return sheaf.ErrStale
	}
	delete(b.holds, c.TaskID)
	return nil
}

func (b *book) Deregister(context.Context, string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
	return nil
}

// testQueue is a queue that hands out what it is given.
type testQueue struct {
	queue.Queue
	mu    sync.Mutex
	hints []sheaf.Hint
	log   []string
	wake  chan struct{}
	stop  chan string
}

func (q *testQueue) Take(_ context.Context, _ string, slots int, _ []sheaf.TaskKind) ([]sheaf.Hint, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(slots, len(q.hints))
	out := q.hints[:n]
	q.hints = q.hints[n:]
	return out, nil
}

// offer adds a hint and wakes the worker.
func (q *testQueue) offer(id string) {
	q.mu.Lock()
	q.hints = append(q.hints, sheaf.Hint{TaskID: id, TenantID: "t"})
	q.mu.Unlock()
	q.wake <- struct{}{}
}

func (q *testQueue) Ack(_ context.Context, h sheaf.Hint, running bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = append(q.log, fmt.Sprintf("ack %s %v", h.TaskID, running))
	return nil
}

func (q *testQueue) Done(_ context.Context, _, id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = append(q.log, "done "+id)
	return nil
}

func (q *testQueue) Charge(_ context.Context, h sheaf.Hint, cost int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = append(q.log, fmt.Sprintf("charge %s %d", h.TaskID, cost))
	return nil
}

func (q *testQueue) Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-q.wake:
	case <-time.After(d):
	case <-ctx.Done():
	}
	return nil
}

func (q *testQueue) Cancels(ctx context.Context) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		for {
			select {
			case id := <-q.stop:
				select {
				case out <- id:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (q *testQueue) Recover(context.Context, string, time.Duration) ([]sheaf.Hint, error) {
	return nil, nil
}
func (q *testQueue) Leave(context.Context, string) error { return nil }
func (q *testQueue) Wake(context.Context) error          { return nil }

// running is an executor at work inside a bubble of simulated time.
type running struct {
	*Worker
	store  *book
	queue  *testQueue
	finish func() // SIGTERM, and wait for the end
	hard   chan struct{}
}

// start runs an executor on the given tasks; a task's id is its kind, and its
// kind names its processor.
func start(t *testing.T, processors map[sheaf.TaskKind]func(ctx context.Context) error, tasks ...string) *running {
	t.Helper()
	return startWith(t, func(*Config) {}, processors, tasks...)
}

func startWith(t *testing.T, change func(*Config), processors map[sheaf.TaskKind]func(ctx context.Context) error, tasks ...string) *running {
	t.Helper()
	b := &book{lost: map[string]bool{}, ended: map[string]bool{}, canceled: map[string]bool{}, holds: map[string]int64{}, waits: map[string]time.Duration{}}
	q := &testQueue{wake: make(chan struct{}, 1), stop: make(chan string)}
	for _, id := range tasks {
		q.hints = append(q.hints, sheaf.Hint{TaskID: id, TenantID: "t"})
	}
	ps := map[sheaf.TaskKind]Processor{}
	for kind, f := range processors {
		ps[kind] = ProcessorFunc(func(ctx context.Context, _ *sheaf.Task) (taskstore.Completion, error) {
			return taskstore.Completion{}, f(ctx)
		})
	}
	cfg := Config{Store: b, Queue: q, Processors: ps, Workers: 4, Lease: 60 * time.Second, Heartbeat: 15 * time.Second, DrainTimeout: 25 * time.Second}
	change(&cfg)
	w := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r := &running{Worker: w, store: b, queue: q, hard: make(chan struct{})}
	go func() {
		defer close(done)
		if err := w.Run(ctx, r.hard); err != nil {
			t.Error(err)
		}
	}()
	r.finish = func() { cancel(); <-done }
	synctest.Wait()
	return r
}

func untilStopped(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAttemptStopsBeforeItsLeaseMayHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stopped time.Duration
		begun := time.Now()
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{"long": func(ctx context.Context) error {
			<-ctx.Done()
			stopped = time.Since(begun)
			return context.Cause(ctx)
		}}, "long")
		time.Sleep(31 * time.Second) // two heartbeats went through
		r.store.mu.Lock()
		r.store.down = true
		r.store.mu.Unlock()
		time.Sleep(2 * time.Minute)
		r.finish()
		// The last heartbeat that was answered began at 30 s: the lease may end at 90 s.
		if stopped < 80*time.Second || stopped >= 90*time.Second {
			t.Errorf("stopped after %s; the lease may have ended at 90 s", stopped)
		}
		expect(t, r.store.entries()) // nothing was written: it is somebody else's by now
	})
}

// A task that waits for others lets another have its worker, as many as may wait
// at once, and ends as every task does.
func TestTaskThatWaitsGivesItsWorkerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		var yielded, kept atomic.Int64
		processors := map[sheaf.TaskKind]func(context.Context) error{}
		var ids []string
		for i := range maxWaiting + 2 {
			id := fmt.Sprint("waits", i)
			ids = append(ids, id)
			processors[sheaf.TaskKind(id)] = func(ctx context.Context) error {
				var did atomic.Bool
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						if Yield(ctx) {
							did.Store(true)
						}
					})
				}
				all.Wait()
				if did.Load() {
					if !Yield(ctx) {
						t.Error("a task that gave its worker back is told that it keeps it")
					}
					yielded.Add(1)
				} else {
					kept.Add(1)
				}
				select {
				case <-over:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		r := startWith(t, func(c *Config) { c.Workers, c.Batch = 1, 1 }, processors, ids...)
		time.Sleep(10 * time.Second)
		if y, k := yielded.Load(), kept.Load(); y != maxWaiting || k != 1 {
			t.Errorf("%d tasks gave their worker back and %d kept it, want %d and 1", y, k, maxWaiting)
		}
		expect(t, r.store.entries())
		time.Sleep(2 * time.Minute) // their leases are renewed
		close(over)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		r.finish()
		var want []string
		for _, id := range ids {
			want = append(want, "complete "+id)
		}
		var got []string
		for _, e := range r.store.entries() {
			if strings.HasPrefix(e, "complete") {
				got = append(got, e)
			}
		}
		expect(t, got, want...)
	})
	if Yield(context.Background()) {
		t.Error("what is no task gave a worker back")
	}
}

// The next task runs while the end of the last is written, and no further one:
// a store that is slow must not gather ends without bound.
func TestSlotIsFreeWhileAnEndIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		var mu sync.Mutex
		var began []string
		processors := map[sheaf.TaskKind]func(context.Context) error{}
		for _, id := range []string{"a", "b", "c"} {
			processors[sheaf.TaskKind(id)] = func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				began = append(began, id)
				return nil
			}
		}
		r := startWith(t, func(c *Config) { c.Workers, c.Batch, c.Store.(*book).slow = 1, 1, slow }, processors, "a", "b", "c")
		time.Sleep(20 * time.Second) // past a heartbeat
		r.store.mu.Lock()
		expect(t, slices.Clone(r.store.told), "b") // the other has no slot any more
		r.store.mu.Unlock()
		mu.Lock()
		if !slices.Equal(began, []string{"a", "b"}) {
			t.Errorf("began %q while no end could be written; want the first, and the next on its slot", began)
		}
		mu.Unlock()
		close(slow)
		time.Sleep(10 * time.Second)
		r.finish()
		expect(t, r.store.entries(), "complete a", "complete b", "complete c")
	})
}

// While there is a backlog the end of a task waits for the claim of the next
// one; of a task that has the executor for itself it is written at once.
func TestEndWaitsForAClaimOnlyInABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processors := map[sheaf.TaskKind]func(context.Context) error{}
		var tasks []string
		for i := range 7 {
			id := fmt.Sprintf("t%d", i)
			tasks = append(tasks, id)
			processors[sheaf.TaskKind(id)] = func(context.Context) error {
				time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
				return nil
			}
		}
		r := startWith(t, func(c *Config) { c.Workers = 2 }, processors, tasks[:6]...)
		time.Sleep(time.Minute)
		r.queue.offer("t6")
		time.Sleep(time.Minute)
		r.finish()
		for id, want := range map[string]time.Duration{"t0": 0, "t2": endWait, "t3": endWait, "t6": 0} {
			if got, ended := r.store.waits[id]; !ended || got != want {
				t.Errorf("the end of %s may wait %v, want %v", id, got, want)
			}
		}
	})
}

// fiveMinutes is work that takes so long, unless it is stopped.
func fiveMinutes(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Minute):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestHeartbeatsKeepALongTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{"long": fiveMinutes}, "long")
		time.Sleep(6 * time.Minute)
		r.finish()
		expect(t, r.store.entries(), "complete long")
		if !r.store.left {
			t.Error("the executor is still listed after its end")
		}
	})
}

func TestLostLeaseStopsTheTaskAndWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{"long": untilStopped}, "long")
		r.store.mu.Lock()
		r.store.lost["long"] = true
		r.store.mu.Unlock()
		time.Sleep(16 * time.Second)
		r.finish()
		expect(t, r.store.entries())
		expect(t, r.queue.log, "ack long true", "done long")
	})
}

// A task whose document is deleted, or parsed anew, stops as one that was taken away
// does; no lease is lost by it, and nobody is warned.
func TestTaskThatWasCalledOffIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, said := &losses{}, &strings.Builder{}
		r := startWith(t, func(c *Config) {
			c.Observe, c.Log = seen, slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelInfo}))
		}, map[sheaf.TaskKind]func(context.Context) error{"long": untilStopped}, "long")
		r.store.mu.Lock()
		r.store.ended["long"] = true
		r.store.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if n := seen.count.Load(); n != 0 {
			t.Errorf("%d leases lost, want none", n)
		}
		r.finish()
		expect(t, r.store.entries())
		expect(t, r.queue.log, "ack long true", "done long")
		if strings.Contains(said.String(), "WARN") || strings.Contains(said.String(), "ERROR") {
			t.Errorf("the log says\n%s", said)
		}
	})
}

// losses counts the leases that an executor says it lost.
type losses struct {
	noObserver
	count atomic.Int64
}

func (l *losses) LeaseLost(sheaf.TaskKind) { l.count.Add(1) }

// A heartbeat that overlaps the end of a task finds its claim gone; nothing was
// lost.
func TestTaskWhoseEndIsBeingWrittenHasLostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, slow := &losses{}, make(chan struct{})
		r := startWith(t, func(c *Config) { c.Observe, c.Store.(*book).slow = seen, slow }, map[sheaf.TaskKind]func(context.Context) error{"ok": func(context.Context) error { return nil }}, "ok")
		r.store.mu.Lock()
		r.store.lost["ok"] = true
		r.store.mu.Unlock()
		time.Sleep(2 * time.Minute) // past heartbeats and the lease
		if n := seen.count.Load(); n != 0 {
			t.Errorf("%d leases lost, want none", n)
		}
		close(slow)
		synctest.Wait()
		expect(t, r.store.entries(), "complete ok")
		r.finish()
	})
}

// Heartbeats and the watchdog find the loss again for as long as the attempt
// takes to stop; it is one loss.
func TestLostLeaseIsCountedOnce(t *testing.T) {
	for name, lose := range map[string]func(*book){
		"taken away":            func(b *book) { b.lost["long"] = true },
		"heartbeats unanswered": func(b *book) { b.down = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &losses{}
				r := startWith(t, func(c *Config) { c.Observe = seen }, map[sheaf.TaskKind]func(context.Context) error{"long": func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(2 * time.Minute) // a parser that is slow to die
					return context.Cause(ctx)
				}}, "long")
				r.store.mu.Lock()
				lose(r.store)
				r.store.mu.Unlock()
				time.Sleep(4 * time.Minute)
				if n := seen.count.Load(); n != 1 {
					t.Errorf("%d leases lost, want 1", n)
				}
				r.finish()
				expect(t, r.store.entries())
			})
		})
	}
}

// A task that is taken away and comes back to the same executor before a
// heartbeat: the earlier attempt stops, and its end leaves the new one its
// heartbeats.
func TestTaskThatComesBackIsRunOnceAndKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var attempts, stopped atomic.Int64
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{"long": func(ctx context.Context) error {
			if attempts.Add(1) == 1 {
				<-ctx.Done()
				stopped.Store(int64(time.Since(begun)))
				time.Sleep(30 * time.Second) // a parser that is slow to die
				return context.Cause(ctx)
			}
			return fiveMinutes(ctx)
		}}, "long")
		time.Sleep(5 * time.Second)
		r.queue.offer("long")
		time.Sleep(2 * time.Minute)
		if after := time.Duration(stopped.Load()); after != 5*time.Second {
			t.Errorf("the earlier attempt was stopped after %v, want 5s, when the task came back", after)
		}
		r.store.mu.Lock()
		expect(t, slices.Clone(r.store.told), "long")
		r.store.mu.Unlock()
		time.Sleep(4 * time.Minute)
		r.finish()
		expect(t, r.store.entries(), "complete long")
	})
}

func TestCancelSignalStopsATaskWithoutWaitingForTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{"long": untilStopped}, "long")
		time.Sleep(time.Second)
		r.store.mu.Lock()
		r.store.canceled["long"] = true
		r.store.mu.Unlock()
		begun := time.Now()
		r.queue.stop <- "long"
		synctest.Wait()
		if took := time.Since(begun); took > 0 {
			t.Errorf("took %s", took)
		}
		expect(t, r.store.entries(), "fail long canceled retryable=false")
		r.finish()
	})
}

func TestDrainLetsShortWorkFinishAndGivesLongWorkBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{
			"short": func(context.Context) error { time.Sleep(10 * time.Second); return nil },
			"long":  untilStopped,
		}, "short", "long")
		begun := time.Now()
		r.finish()
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("draining took %s", took)
		}
		expect(t, r.store.entries(), "complete short", "release long")
	})
}

func TestSecondSignalGivesEverythingBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{"long": untilStopped}, "long")
		begun := time.Now()
		close(r.hard)
		r.finish()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("stopping at once took %s", took)
		}
		expect(t, r.store.entries(), "release long")
	})
}

func TestEveryEndIsWrittenAsWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{
			"ok":        func(context.Context) error { return nil },
			"panics":    func(context.Context) error { panic("oh") },
			"permanent": func(context.Context) error { return sheaf.Fail(sheaf.CategoryBadInput, "bad", "no") },
			"limited":   func(context.Context) error { return fmt.Errorf("429: %w", &sheaf.RateLimited{After: 8 * time.Second}) },
			"outage":    func(context.Context) error { return fmt.Errorf("gone: %w", sheaf.ErrUnavailable) },
			"stuck":     untilStopped,
			// It is held, and the store takes no such end of it.
			"called off": func(context.Context) error { return nil },
		}, "ok", "panics", "permanent", "limited", "outage", "stuck", "called off", "strange", "gone", "theirs", "unclear")
		time.Sleep(16 * time.Minute) // longer than a task may run
		r.finish()
		expect(t, r.store.entries(),
			"complete ok", "fail panics panic retryable=true", "fail permanent bad retryable=false", "snooze limited 8s",
			"fail outage unavailable retryable=true", "fail stuck task_timeout retryable=true", "fail called off canceled retryable=true", "snooze strange 30s")
		if !slices.Contains(r.queue.log, "ack gone false") || !slices.Contains(r.queue.log, "ack theirs true") {
			t.Errorf("spent hints are not acked: %q", r.queue.log)
		}
		if slices.ContainsFunc(r.queue.log, func(s string) bool { return s == "ack unclear true" || s == "ack unclear false" }) {
			t.Error("a hint whose claim is unclear was acked: it must come again")
		}
	})
}

// TestClaimBehindAnErrorIsGivenBack: the claim happened and its answer was
// lost. The executor finds out with its next heartbeat instead of letting the
// task wait for its lease.
func TestClaimBehindAnErrorIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := func(c *Config) { c.Store.(*book).down = true } // for the first heartbeats
		r := startWith(t, away, map[sheaf.TaskKind]func(context.Context) error{"ok": func(context.Context) error { return nil }}, "unanswered", "unclear", "ok")
		time.Sleep(31 * time.Second)
		expect(t, r.store.entries(), "complete ok")
		r.store.mu.Lock()
		r.store.down = false
		r.store.mu.Unlock()
		time.Sleep(15 * time.Second)
		expect(t, r.store.entries(), "complete ok", "release unanswered") // not what was never claimed
		time.Sleep(time.Minute)
		r.mu.Lock()
		left := len(r.unresolved)
		r.mu.Unlock()
		if left != 0 {
			t.Errorf("%d claims are still unresolved after their lease", left)
		}
		r.finish()
		expect(t, r.store.entries(), "complete ok", "release unanswered")
	})
}

func TestAttemptWhoseEndWasNotWrittenIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWith(t, func(c *Config) { c.Store.(*book).failing = true }, map[sheaf.TaskKind]func(context.Context) error{
			"bad": func(context.Context) error { return sheaf.Fail(sheaf.CategoryBadInput, "bad", "no") }}, "bad")
		time.Sleep(16 * time.Second)
		expect(t, r.store.entries(), "release bad")
		r.finish()
	})
}

// TestUnresolvedClaimEndsWithANewOne: what is being claimed anew is not given back.
func TestUnresolvedClaimEndsWithANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{"long": untilStopped})
		r.unresolve("long")
		r.store.mu.Lock()
		r.store.holds["long"] = 1
		r.store.mu.Unlock()
		r.queue.offer("long")
		time.Sleep(31 * time.Second)
		expect(t, r.store.entries())
		r.finish()
		expect(t, r.store.entries(), "release long") // by the drain
	})
}

func TestCauseIsKeptForErrorsOfTheContext(t *testing.T) {
	if !errors.Is(errAsked, sheaf.ErrCanceled) || !errors.Is(errLost, sheaf.ErrStale) {
		t.Error("causes have lost their kinds")
	}
}

// Tasks are charged the processor time beyond their cost, whatever their end, and
// not for waiting.
func TestTaskIsChargedTheTimeBeyondItsCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, map[sheaf.TaskKind]func(ctx context.Context) error{
			"scan":    func(ctx context.Context) error { Spend(ctx, time.Second); Spend(ctx, 2*time.Second); return nil },
			"text":    func(ctx context.Context) error { Spend(ctx, 8*time.Millisecond); return nil },
			"drawing": func(ctx context.Context) error { Spend(ctx, 75*time.Millisecond); return nil },
			"failure": func(ctx context.Context) error { Spend(ctx, time.Hour); return errors.New("failed") },
			"waits":   func(ctx context.Context) error { time.Sleep(5 * time.Second); return nil },
		}, "text", "waits", "drawing", "text", "text")
		time.Sleep(time.Second)
		for _, id := range []string{"drawing", "scan", "failure"} {
			r.queue.offer(id)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		r.finish()
		var charges []string
		for _, line := range r.queue.log {
			if strings.HasPrefix(line, "charge") {
				charges = append(charges, line)
			}
		}
		expect(t, charges, "charge drawing 12", "charge scan 299", "charge failure 6000") // small sums together
	})
}

// A task that ran others within it is charged and counted for these, too.
func TestTasksWithinATaskAreChargedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &ends{}
		spent := map[string]time.Duration{"small": 30 * time.Millisecond, "slow": 500 * time.Millisecond}
		r := startWith(t, func(c *Config) {
			c.Observe, c.Workers = seen, 1
			for name, d := range spent {
				c.Processors[sheaf.TaskKind(name)] = ProcessorFunc(func(ctx context.Context, _ *sheaf.Task) (done taskstore.Completion, err error) {
					Spend(ctx, d)
					result := sheaf.TaskResult{Chunks: 3, Stages: []sheaf.StageTime{{Name: "parse", StartMS: 1, MS: 20}, {Name: "chunk", StartMS: 21, MS: 4}}}
					done.Spawn = []sheaf.NewTask{{Kind: sheaf.KindParse, Cost: 20, Done: &result, Ran: true}, {Kind: sheaf.KindIndex, Cost: 100, Done: &result}}
					return done, nil
				})
			}
		}, map[sheaf.TaskKind]func(ctx context.Context) error{}, "small")
		time.Sleep(time.Second)
		r.queue.offer("slow")
		time.Sleep(time.Second)
		r.finish()
		var charges []string
		for _, line := range r.queue.log {
			if strings.HasPrefix(line, "charge") {
				charges = append(charges, line)
			}
		}
		expect(t, charges, "charge small 20", "charge slow 50")
		expect(t, seen.said, "parse done 25ms 3 chunks", "parse done 25ms 3 chunks", "slow done 0s 0 chunks", "small done 0s 0 chunks")
	})
}

// ends is an Observer of tasks that are done.
type ends struct {
	noObserver
	took map[sheaf.TaskKind]time.Duration
	said []string
}

func (e *ends) Finished(kind sheaf.TaskKind, _ sheaf.TaskState, took time.Duration) {
	if e.took == nil {
		e.took = map[sheaf.TaskKind]time.Duration{}
	}
	e.took[kind] = took
}

func (e *ends) Produced(kind sheaf.TaskKind, r sheaf.TaskResult) {
	e.said = append(e.said, fmt.Sprintf("%s done %v %d chunks", kind, e.took[kind], r.Chunks))
}

// A task that waits briefly for its end does not count towards the cap meanwhile. The
// queue is told again at the end, since it may have counted it anew. One that waits for
// longer counts until it ends.
func TestTaskThatWaitsBrieflyDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		waits := func(yield ...func(context.Context) bool) func(context.Context) error {
			return func(ctx context.Context) error {
				for _, f := range yield {
					if !f(ctx) {
						t.Error("a task kept its worker")
					}
				}
				<-over
				return nil
			}
		}
		r := start(t, map[sheaf.TaskKind]func(context.Context) error{
			"brief": waits(YieldBriefly, YieldBriefly), "long": waits(Yield), "both": waits(Yield, YieldBriefly),
		}, "brief", "long", "both")
		done := func() (ids []string) {
			r.queue.mu.Lock()
			defer r.queue.mu.Unlock()
			for _, e := range r.queue.log {
				if id, is := strings.CutPrefix(e, "done "); is {
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			return ids
		}
		time.Sleep(time.Second)
		expect(t, done(), "both", "brief")
		close(over)
		synctest.Wait()
		time.Sleep(time.Second)
		r.finish()
		expect(t, done(), "both", "both", "brief", "brief", "long")
	})
}
