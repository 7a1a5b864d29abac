// Package worker executes tasks: it takes a hint from the queue, claims the task in
// the store, has its Processor run it and writes the outcome under the claim's
// epoch. It sits between the queue and package executor, and knows nothing of what a
// task does. Nothing a task does is visible unless the store accepts its outcome, so
// a worker may be killed, paused or cut off at any point.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"sheaf"
	"sheaf/internal/logctx"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// Processor runs the tasks of one kind. It returns what completes the task, or an
// error that AsFailure describes. ctx is canceled when the task is canceled, its
// lease is lost or the executor stops.
type Processor interface {
	Process(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error)
}

// Claims is how a worker obtains tasks from the store and keeps them.
type Claims interface {
	Claim(ctx context.Context, taskID, workerID string, lease time.Duration) (*sheaf.Task, error)
	Heartbeat(ctx context.Context, w taskstore.WorkerStatus, lease time.Duration, held []sheaf.Claim) (taskstore.HeartbeatReply, error)
	Held(ctx context.Context, workerID string, taskIDs []string) ([]sheaf.Claim, error)
	Release(ctx context.Context, c sheaf.Claim) error
	Deregister(ctx context.Context, workerID string) error
}

// Ends is where the outcome of an attempt is written.
type Ends interface {
	Complete(ctx context.Context, c sheaf.Claim, done taskstore.Completion) error
	FailTask(ctx context.Context, c sheaf.Claim, r taskstore.FailReport) (sheaf.TaskState, error)
	Snooze(ctx context.Context, c sheaf.Claim, delay time.Duration, why sheaf.Failure) error
}

// Store is what a worker reads and writes. Writes under a claim change nothing and
// fail with ErrStale when the claim's epoch is no longer the task's.
type Store interface {
	Claims
	Ends
}

// Config holds a worker's dependencies and limits. Zero durations and counts mean
// the default noted beside them.
type Config struct {
	Store      Store
	Queue      queue.Queue
	Processors map[sheaf.TaskKind]Processor
	// Skipped lists the kinds that cannot run now because a dependency is down. May be
	// nil.
	Skipped func() []sheaf.TaskKind
	// Changed is called after a task of this worker changed state, so that the keeper
	// need not wait for its next tick. awaited says that others may be waiting for the
	// change: it was not one of a document's many ranges. May be nil, and must not
	// block.
	Changed func(awaited bool)
	Observe Observer // nil for none
	Trace   Tracer   // nil for none
	Log     *slog.Logger
	Version string
	Pools   []string // pools whose tasks Queue hands out, as reported to others; nil for default

	Workers       int                              // concurrent tasks, default 2 × CPUs + 2: some parse while others embed or index
	Batch         int                              // tasks held per worker, including the one being processed, while tasks take no longer than claims; default 4
	Lease         time.Duration                    // visibility timeout, default 60 s
	Heartbeat     time.Duration                    // default 2 s
	PollInterval  time.Duration                    // maximum wait between takes without a notification, default 1 s
	RecoverEvery  time.Duration                    // default Lease / 20, at least 1 s
	RecoverIdle   time.Duration                    // a hint taken but not acked for this long is lost, default Lease / 12, at least 2 s
	DrainTimeout  time.Duration                    // on SIGTERM, running tasks may finish for this long, default 25 s
	MaxFails      int                              // default 5
	BackoffBase   time.Duration                    // default 2 s: rand(1-jitter,1)·min(BackoffMax, base·2^fails)
	BackoffMax    time.Duration                    // default 10 min
	BackoffJitter float64                          // default 0.5; negative for none
	Retry         map[sheaf.TaskKind]RetryPolicy   // by kind, or by kind/node of a dataflow; overrides the four above
	PolicyFunc    func(t *sheaf.Task) RetryPolicy  // policy of a task that has its own; overrides Retry; nil for none
	TaskTimeout   map[sheaf.TaskKind]time.Duration // maximum processing time per kind or kind/node, default 15 min
}

func (c *Config) setDefaults() {
	cpus := runtime.GOMAXPROCS(0)
	dur := func(p *time.Duration, v time.Duration) { *p = cmp.Or(*p, v) }
	c.Workers = cmp.Or(c.Workers, 2*cpus+2)
	c.Batch = cmp.Or(c.Batch, 4)
	c.MaxFails = cmp.Or(c.MaxFails, 5)
	dur(&c.Lease, 60*time.Second)
	dur(&c.Heartbeat, 2*time.Second)
	dur(&c.PollInterval, time.Second)
	dur(&c.RecoverEvery, max(c.Lease/20, time.Second))
	dur(&c.RecoverIdle, max(c.Lease/12, 2*time.Second))
	dur(&c.DrainTimeout, 25*time.Second)
	dur(&c.BackoffBase, 2*time.Second)
	dur(&c.BackoffMax, 10*time.Minute)
	c.BackoffJitter = cmp.Or(c.BackoffJitter, 0.5)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = noObserver{}
	}
	if c.Trace == nil {
		c.Trace = noTracer{}
	}
	if c.Changed == nil {
		c.Changed = func(bool) {}
	}
	if c.PolicyFunc == nil {
		c.PolicyFunc = func(*sheaf.Task) RetryPolicy { return RetryPolicy{} }
	}
	if c.Skipped == nil {
		c.Skipped = func() []sheaf.TaskKind { return nil }
	}
}

// Observer is notified of events, for metrics and traces.
type Observer interface {
	// Claimed is called with a task that was just claimed.
	Claimed(t *sheaf.Task)
	Refused(kind sheaf.TaskKind, state sheaf.TaskState)
	Finished(kind sheaf.TaskKind, state sheaf.TaskState, took time.Duration)
	// Produced is called with the result of a done task.
	Produced(kind sheaf.TaskKind, r sheaf.TaskResult)
	StaleWrite(kind sheaf.TaskKind)
	LeaseLost(kind sheaf.TaskKind)
}

// Tracer records spans of attempts.
type Tracer interface {
	// Task starts the span of an attempt and returns its context and a function that
	// ends it; traceparent (W3C) names the request that caused the task, "" when
	// unknown.
	Task(ctx context.Context, traceparent, name string, attrs ...slog.Attr) (context.Context, func(error))
}

// Worker runs tasks until its context ends.
type Worker struct {
	cfg     Config
	id      string
	started time.Time

	mu         sync.Mutex
	running    map[string]*attempt // by task id
	owed       map[owing]int       // what is not yet charged
	unresolved unresolved
	capacity   *capacity
	workers    *semaphore.Weighted // held by a task being processed
	ends       *semaphore.Weighted // held by a task whose outcome is being written
	waits      *semaphore.Weighted // held by an unfinished task that gave its worker back
	stopped    atomic.Bool
	tasks      sync.WaitGroup
}

// attempt is one claim being processed.
type attempt struct {
	task   *sheaf.Task
	hint   sheaf.Hint
	cancel context.CancelCauseFunc
	since  time.Time
	began  atomic.Bool // it has or had a worker
	worked atomic.Bool // only its outcome remains to be written: its capacity is released
	waited atomic.Bool // it gave its worker back to wait
	// uncounted says that the queue does not count it towards the cap any more.
	uncounted atomic.Bool
	lost      atomic.Bool  // its lease is gone, which was reported
	spent     atomic.Int64 // processor time it took in other processes, in ns
	fence     atomic.Int64 // monotonic-clock deadline (ns since Worker.started) after which the lease may be gone
}

// Causes of an attempt's cancellation, read back with context.Cause.
var (
	errLost    = fmt.Errorf("the lease was taken over: %w", sheaf.ErrStale)
	errEnded   = fmt.Errorf("the task was called off: %w", sheaf.ErrCanceled)
	errAsked   = fmt.Errorf("a cancel was requested: %w", sheaf.ErrCanceled)
	errRelease = errors.New("the executor is stopping")
	errTooLong = errors.New("the task ran longer than its kind may")
)

// New makes a worker with a unique id. Run starts it.
func New(cfg Config) *Worker {
	cfg.setDefaults()
	host, _ := os.Hostname()
	return &Worker{
		cfg: cfg, id: fmt.Sprintf("%s-%d-%s", cmp.Or(host, "host"), os.Getpid(), sheaf.NewID()[20:]),
		started: time.Now(), running: map[string]*attempt{}, owed: map[owing]int{}, unresolved: unresolved{},
		capacity: newCapacity(cfg.Workers, cfg.Batch),
		workers:  semaphore.NewWeighted(int64(cfg.Workers)), ends: semaphore.NewWeighted(int64(cfg.Workers * cfg.Batch)),
		waits: semaphore.NewWeighted(int64(cfg.Workers * maxWaiting)),
	}
}

// ProcessorFunc adapts a function to a Processor.
type ProcessorFunc func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error)

// Process implements Processor.
func (f ProcessorFunc) Process(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
	return f(ctx, t)
}

// ID names this worker in claims and in the list of workers.
func (w *Worker) ID() string { return w.id }

// Run takes and runs tasks until ctx is done, then drains: it stops taking, lets
// running tasks finish for DrainTimeout, releases the rest without touching their
// budgets, and returns. hard ends the drain immediately.
func (w *Worker) Run(ctx context.Context, hard <-chan struct{}) error {
	log := w.cfg.Log.With("worker", w.id)
	log.Info("executor started", "workers", w.cfg.Workers)

	// The side loops outlive ctx: leases must be renewed while the executor drains.
	side, stopSide := context.WithCancel(context.WithoutCancel(ctx))
	var sides sync.WaitGroup
	sides.Go(func() { w.heartbeats(side) })
	sides.Go(func() { w.watchdog(side) })
	sides.Go(func() { w.cancels(side) })
	sides.Go(func() { w.recovers(side) })

	w.take(ctx)
	w.stopped.Store(true)
	w.drain(hard)
	stopSide()
	sides.Wait()

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	w.releaseUnresolved(last)
	err := errors.Join(w.cfg.Queue.Leave(last, w.id), w.cfg.Store.Deregister(last, w.id))
	log.Info("executor stopped")
	return err
}

// take keeps the worker busy. It asks for no more hints than it has headroom for:
// another executor cannot run a hint that waits here.
func (w *Worker) take(ctx context.Context) {
	trouble := 0
	for ctx.Err() == nil {
		headroom := w.capacity.acquire(ctx)
		if headroom == 0 {
			return
		}
		hints, err := w.cfg.Queue.Take(ctx, w.id, headroom, w.cfg.Skipped())
		for _, h := range hints {
			w.start(ctx, h)
		}
		w.capacity.release(headroom - len(hints))
		switch {
		case err != nil && ctx.Err() == nil:
			trouble = min(trouble+1, 3) // 2 s: a longer wait delays the start once the queue is back
			w.cfg.Log.Warn("take failed; retrying", "error", err)
			sleep(ctx, jitter(250*time.Millisecond<<trouble))
		case len(hints) == 0:
			trouble = 0
			w.capacity.forget()
			if err := w.cfg.Queue.Wait(ctx, jitter(w.cfg.PollInterval)); err != nil && ctx.Err() == nil {
				sleep(ctx, jitter(w.cfg.PollInterval))
			}
		default:
			trouble = 0
		}
	}
}

// start claims the hinted task and, if it gets it, runs it, using capacity that the
// caller acquired and that is released here. Claims run concurrently: sequentially,
// each would take a round trip to the database.
//
// Capacity is released once the task's work is over: its outcome is written while
// the next task is claimed, usually in the same transaction. The number of pending
// outcomes is bounded; with a slow store, capacity stays taken.
func (w *Worker) start(ctx context.Context, h sheaf.Hint) {
	w.tasks.Go(func() {
		release := sync.OnceFunc(func() { w.capacity.release(1) })
		defer release()
		a, run := w.claim(ctx, h)
		if a == nil {
			return
		}
		defer func() {
			w.mu.Lock()
			if w.running[a.task.ID] == a { // otherwise the task has come back, and this is its new attempt
				delete(w.running, a.task.ID)
			}
			w.mu.Unlock()
			a.cancel(nil)
		}()
		begun := w.begin(ctx, run, a)
		leave := sync.OnceFunc(func() {
			if begun {
				w.workers.Release(1)
			}
			release()
		})
		since := time.Now()
		var yield sync.Mutex
		run = context.WithValue(run, yieldKey{}, func(brief bool) bool {
			yield.Lock()
			defer yield.Unlock()
			if !a.waited.Load() {
				if !w.waits.TryAcquire(1) {
					return false
				}
				a.waited.Store(true)
				w.capacity.worked(time.Since(since))
				leave()
			}
			if brief && !a.uncounted.Swap(true) {
				w.uncount(run, a)
			}
			return true
		})
		w.run(run, a, func() {
			_ = w.ends.Acquire(context.Background(), 1) // never fails: the context is never done
			a.worked.Store(true)
			leave()
			if a.waited.Load() {
				w.waits.Release(1)
			}
		})
		w.ends.Release(1)
	})
}

// maxWaiting is how many tasks per worker may have given their worker back: they
// hold their results in memory. It also limits how many small files a second a worker
// ends, each of which waits up to a second for the index's next refresh.
const maxWaiting = 16

type yieldKey struct{}

// Yield gives back the worker of the task that ctx belongs to, and reports whether
// it did. A task calls it before waiting on something that uses no local resources,
// such as another service: others would wait for the worker. The task does not get
// it again, so that what follows must be limited by other means, as stages are. Its
// lease is still renewed. Yield may be called again, by any goroutine, and does
// nothing when too many wait or ctx is not a task's.
func Yield(ctx context.Context) bool {
	f, ok := ctx.Value(yieldKey{}).(func(brief bool) bool)
	return ok && f(false)
}

// YieldBriefly is Yield before a wait of a second at most, after which little is left
// to do. The task no longer counts towards its tenant's cap: otherwise a tenant could
// end no more small files a second than its cap, on workers that are idle. What waits
// for longer, such as for the answers of a model, must count, so that the tasks of one
// tenant do not take all places to wait.
func YieldBriefly(ctx context.Context) bool {
	f, ok := ctx.Value(yieldKey{}).(func(brief bool) bool)
	return ok && f(true)
}

// queueTime bounds telling the queue that a task waits.
const queueTime = 5 * time.Second

// uncount tells the queue that the task does not count any more.
func (w *Worker) uncount(ctx context.Context, a *attempt) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queueTime)
	defer cancel()
	if err := w.cfg.Queue.Done(ctx, a.task.TenantID, a.task.ID); err != nil {
		w.cfg.Log.WarnContext(ctx, "could not tell the queue that a task only waits; reconciliation will, when it has ended", "task", a.task.ID, "error", err)
	}
}

type spentKey struct{}

// Spend counts processor time of other processes, such as parsers, to the task that
// ctx belongs to. It does nothing if ctx is not a task's.
func Spend(ctx context.Context, d time.Duration) {
	if spent, ok := ctx.Value(spentKey{}).(*atomic.Int64); ok {
		spent.Add(int64(d))
	}
}

// maxPrefetchWait is how long a prefetched task waits for a worker before it is
// released, so that one queued behind long tasks goes to another executor.
const maxPrefetchWait = 250 * time.Millisecond

// begin waits for a worker and reports whether it got one; otherwise it has stopped
// the attempt.
func (w *Worker) begin(ctx, run context.Context, a *attempt) bool {
	if !w.workers.TryAcquire(1) { // rarely: most tasks are not prefetched
		wait, cancel := context.WithTimeout(run, maxPrefetchWait)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		if w.workers.Acquire(wait, 1) != nil {
			if run.Err() == nil {
				if ctx.Err() == nil {
					w.capacity.forget()
				}
				a.cancel(errRelease)
			}
			return false
		}
	}
	a.began.Store(true)
	return true
}

// claim claims the hinted task, or consumes the hint. It returns nil when there is
// nothing to run, otherwise the attempt and its context.
func (w *Worker) claim(ctx context.Context, h sheaf.Hint) (*attempt, context.Context) {
	if ctx.Err() != nil {
		return nil, nil // nothing was claimed: Leave gives the hint back
	}
	// A claim in progress is not canceled: its outcome would be unknown, and the task
	// would wait for its lease to expire.
	ctx = context.WithoutCancel(ctx)
	unresolved := w.resolve(h.TaskID)
	before := time.Now()
	ask, cancelAsk := context.WithTimeout(ctx, w.cfg.Lease/2)
	defer cancelAsk()
	t, err := w.cfg.Store.Claim(ask, h.TaskID, w.id, w.cfg.Lease)
	if refused, ok := errors.AsType[*taskstore.NotClaimable](err); ok {
		// Taken by another worker, finished, or not due: the hint is spent either way.
		// If the task should run later, the store knows and will hint again.
		w.cfg.Observe.Refused(h.Kind, refused.State)
		if unresolved && refused.State == sheaf.TaskRunning {
			w.unresolve(h.TaskID) // the running attempt may be our unconfirmed claim
		}
		if err := w.cfg.Queue.Ack(ctx, h, refused.State == sheaf.TaskRunning); err != nil {
			w.cfg.Log.Warn("ack failed; the hint will be redelivered", "task", h.TaskID, "tenant", h.TenantID, "error", err)
		}
		return nil, nil
	}
	if err != nil {
		// The outcome of the claim is unknown. The hint stays unacked and comes again;
		// if the claim did succeed, the task is released.
		w.unresolve(h.TaskID)
		w.cfg.Log.Warn("claim failed", "task", h.TaskID, "tenant", h.TenantID, "error", err)
		return nil, nil
	}

	// The attempt outlives ctx: drain decides when it ends.
	run, cancel := context.WithCancelCause(ctx)
	a := &attempt{task: t, hint: h, cancel: cancel, since: before}
	a.fence.Store(int64(before.Add(w.cfg.Lease - w.fenceMargin()).Sub(w.started)))
	w.mu.Lock()
	earlier := w.running[t.ID]
	w.running[t.ID] = a
	delete(w.unresolved, t.ID)
	w.mu.Unlock()
	// A task that was taken away can come back before a heartbeat reports the loss; the
	// earlier attempt still running here is then useless.
	if earlier != nil {
		w.loses(earlier)
	}

	// From the claim on, the lease in the store is the only lease. The work need not
	// wait for the ack; drain does, so that Leave finds nothing to give back.
	w.tasks.Go(func() {
		if err := w.cfg.Queue.Ack(ctx, h, true); err != nil {
			w.cfg.Log.Warn("ack failed; the hint will be redelivered and refused", "task", h.TaskID, "tenant", h.TenantID, "error", err)
		}
	})
	w.capacity.claimed(time.Since(before))
	w.cfg.Observe.Claimed(t)
	return a, run
}

// fenceMargin is how long before its lease expires an attempt stops itself.
func (w *Worker) fenceMargin() time.Duration { return min(2*time.Second, w.cfg.Lease/10) }

// endWait is how long a task's completion waits for the claim of the next task while
// there is a backlog: about the time to fetch a hint when everything is busy.
const endWait = 5 * time.Millisecond

// run processes one claimed task and writes its outcome. It calls worked in between.
func (w *Worker) run(ctx context.Context, a *attempt, worked func()) {
	t, begun, log := a.task, time.Now(), w.cfg.Log
	about := []slog.Attr{slog.String("task", t.ID), slog.String("kind", string(t.Kind)), slog.String("job", t.JobID), slog.String("document", t.DocumentID), slog.String("tenant", t.TenantID), slog.Int64("epoch", t.Epoch)}
	ctx = logctx.With(ctx, about...)
	about = append(about, slog.Int("attempt", t.Attempts), slog.String("worker", w.id))
	if t.Range.From > 0 {
		about = append(about, slog.String("range", t.Range.String()))
	}
	ctx, endSpan := w.cfg.Trace.Task(ctx, t.Trace, "task "+string(t.Kind), about...)
	done, err := w.process(context.WithValue(ctx, spentKey{}, &a.spent), a)
	spent := time.Duration(a.spent.Load())
	done.Result.CPUMS = spent.Milliseconds()
	if w.capacity.busy() {
		done.CanWait = endWait
	}
	defer endSpan(err) // with the processor's outcome, after it is written

	ran := 0 // cost of the tasks that ran within this one
	for _, s := range done.Spawn {
		if s.Ran {
			ran += s.Cost
		}
	}
	w.charge(ctx, a, ran+sheaf.Beyond(t.Cost+ran, spent))
	worked()

	// This must be written even while the executor stops.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	done.NextFunc = func(h sheaf.Hint) {
		if _, err := w.cfg.Queue.Publish(end, h.TenantID, h.Lane, []sheaf.Hint{h}); err != nil {
			log.DebugContext(ctx, "the end of the document was not published; the keeper will", "document", t.DocumentID, "error", err)
		}
	}
	state, err := w.finish(ctx, end, t, done, err)
	switch {
	case errors.Is(err, errEnded):
		log.DebugContext(ctx, "the task was called off; its result is dropped")
	case errors.Is(err, sheaf.ErrStale):
		w.cfg.Observe.StaleWrite(t.Kind)
		log.WarnContext(ctx, "the task was reassigned; its result is dropped")
	case err != nil:
		// The store may still hold the task as run here: release it.
		w.unresolve(t.ID)
		log.ErrorContext(ctx, "could not write the end of the task; retrying", "error", err)
	default:
		w.cfg.Observe.Finished(t.Kind, state, time.Since(begun))
		if state == sheaf.TaskDone {
			w.cfg.Observe.Produced(t.Kind, done.Result)
			for _, s := range done.Spawn {
				if s.Ran { // within this task
					w.cfg.Observe.Finished(s.Kind, sheaf.TaskDone, s.Done.Took())
					w.cfg.Observe.Produced(s.Kind, *s.Done)
				}
			}
		}
		log.DebugContext(ctx, "task ended", "state", state, "ms", time.Since(begun).Milliseconds())
	}
	if err := w.cfg.Queue.Done(end, t.TenantID, t.ID); err != nil {
		log.WarnContext(ctx, "could not tell the queue that the task ended; reconciliation will", "error", err)
	}
	w.cfg.Changed(len(done.Spawn) > 0 || t.Kind != sheaf.KindParse && t.Kind != sheaf.KindIndex)
}

// leastCharge is the least cost that the queue is told of: most tasks take little
// more than their cost, and telling takes a round trip.
const leastCharge = 10

// maxOwed bounds the sums that are kept until they are worth telling.
const maxOwed = 1000

// owing is what sums are kept by: the queue may have a schedule for each.
type owing struct {
	tenantID, pool string
	lane           sheaf.Lane
}

// charge has the queue count what a task took beyond its cost, before its worker
// takes another.
func (w *Worker) charge(ctx context.Context, a *attempt, beyond int) {
	if beyond <= 0 {
		return
	}
	of := owing{a.task.TenantID, a.task.Pool, a.task.Lane}
	w.mu.Lock()
	beyond += w.owed[of]
	delete(w.owed, of)
	if beyond < leastCharge {
		if len(w.owed) >= maxOwed {
			clear(w.owed)
		}
		w.owed[of] = beyond
	}
	w.mu.Unlock()
	// guard: fairness: what a task takes beyond its cost is charged
	if beyond >= leastCharge {
		ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), chargeTime)
		defer cancel()
		if err := w.cfg.Queue.Charge(ask, a.hint, beyond); err != nil {
			w.cfg.Log.DebugContext(ctx, "the time of a task was not charged to its tenant", "error", err)
		}
	}
}

// chargeTime is how long a queue that does not respond may keep a worker.
const chargeTime = time.Second

// process runs the task's processor, unless the attempt was stopped before it began,
// and turns a panic into a failure.
func (w *Worker) process(ctx context.Context, a *attempt) (done taskstore.Completion, err error) {
	if !a.began.Load() {
		return done, context.Cause(ctx)
	}
	t, begun := a.task, time.Now()
	defer func() {
		if !a.waited.Load() { // otherwise its waiting would count as work
			w.capacity.worked(time.Since(begun))
		}
	}()
	p, ok := w.cfg.Processors[t.Kind]
	if !ok {
		// A newer version may know it: an old executor must not lose it.
		return done, errUnknownKind
	}
	defer func() {
		if r := recover(); r != nil {
			buf := make([]byte, 4096)
			buf = buf[:runtime.Stack(buf, false)]
			f := sheaf.FailRetryable(sheaf.CategoryInternal, "panic", "The %s task panicked: %v; please report this with the diagnostics (sheaf diagnostics).", t.Kind, r)
			f.Detail = string(buf)
			err = f
		}
	}()
	return p.Process(ctx, t)
}

var errUnknownKind = errors.New("no processor for this kind of task")

// finish writes how the attempt ended. ctx is the attempt's (its cause says why it
// was stopped); end is the context to write with.
func (w *Worker) finish(ctx, end context.Context, t *sheaf.Task, done taskstore.Completion, err error) (sheaf.TaskState, error) {
	claim := t.Held()
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errEnded):
		return sheaf.TaskCanceled, errEnded
	case err == nil:
		if err = w.complete(end, claim, done); err == nil {
			open := slices.ContainsFunc(done.Spawn, func(s sheaf.NewTask) bool { return s.Done == nil })
			if open || len(done.Stitch)+len(done.Last) > 0 || t.Kind == sheaf.KindDataflow {
				_ = w.cfg.Queue.Notify(end) // best effort: the next poll finds the tasks anyway
			}
			return sheaf.TaskDone, nil
		}
		if errors.Is(err, sheaf.ErrStale) {
			// The claim may still be valid: a document canceled during this write is
			// not published, and its task would be left without an owner.
			err = sheaf.FailRetryable(sheaf.CategoryCanceled, "canceled", "The document was changed while the end of the task was written.")
		}
		// The work is done and only the write failed: fall through to a retry.
	case errors.Is(cause, errLost):
		return sheaf.TaskRunning, sheaf.ErrStale
	case errors.Is(cause, errRelease):
		return sheaf.TaskPending, w.cfg.Store.Release(end, claim)
	case errors.Is(cause, errTooLong):
		err = sheaf.FailRetryable(sheaf.CategoryTimeout, "task_timeout", "The %s task ran longer than %s; raise executor.task_timeout or split finer.", t.Kind, w.taskTimeout(t))
	case errors.Is(cause, errAsked):
		err = sheaf.Fail(sheaf.CategoryCanceled, "canceled", "Canceled on request.")
	case errors.Is(err, errUnknownKind):
		return sheaf.TaskPending, w.cfg.Store.Snooze(end, claim, 30*time.Second, sheaf.Failure{Message: "No executor here knows tasks of kind " + string(t.Kind) + "."})
	}
	f := w.shown(t, err)
	f.Attempt = t.Attempts
	if timedOutTwice(t, f) {
		f.Retryable = false
	}
	if wait, ok := retryAfter(err); ok {
		return sheaf.TaskRetryWait, w.cfg.Store.Snooze(end, claim, wait, *f)
	}
	retry := w.retries(t)
	return w.cfg.Store.FailTask(end, claim, taskstore.FailReport{Failure: *f, Delay: retry.wait(t.FailCount), MaxFails: retry.MaxFails})
}

// shown is the failure as stored with the task. A driver's error text names hosts,
// addresses and users: it goes to the log, and tenants see a summary.
func (w *Worker) shown(t *sheaf.Task, err error) *sheaf.Failure {
	f := sheaf.AsFailure(err, string(t.Kind))
	if _, ours := errors.AsType[*sheaf.Failure](err); ours {
		return f
	}
	part := "something that Sheaf depends on"
	if b, ok := errors.AsType[*broken](err); ok {
		part = "the " + b.dependency
	}
	said := f.Message
	switch f.Code {
	case "internal":
		f.Message = "Something went wrong inside Sheaf. It is tried again; the log of the executor has the details under the id of the task."
	case "unavailable":
		f.Message = "At the moment " + part + " does not answer. It is tried again; the log of the executor has the details under the id of the task."
	default: // our own words
		return f
	}
	w.cfg.Log.Warn("a task failed", "task", t.ID, "kind", t.Kind, "code", f.Code, "error", said)
	return f
}

// timedOutTwice reports whether this attempt and the previous one exceeded their own
// time limit. An attempt starts over and gets no further than the last; a third
// would only occupy a worker for as long again. Timeouts of other services do not
// count: they may be faster next time.
func timedOutTwice(t *sheaf.Task, f *sheaf.Failure) bool {
	own := func(code string) bool { return code == "task_timeout" || code == "parse_timeout" }
	return own(f.Code) && t.FailCount > 0 && t.Failure != nil && own(t.Failure.Code)
}

// complete retries an ambiguous completion. The guarded write is idempotent: a
// second one finds the task no longer running under this epoch.
func (w *Worker) complete(ctx context.Context, c sheaf.Claim, done taskstore.Completion) error {
	var err error
	for try := range 4 {
		if err = w.cfg.Store.Complete(ctx, c, done); !errors.Is(err, sheaf.ErrUnavailable) {
			return err
		}
		sleep(ctx, jitter(200*time.Millisecond<<try))
	}
	return err
}

// retryAfter is how long to wait for a dependency that is down or asked callers to
// wait. It costs no budget, since the task is not at fault.
func retryAfter(err error) (time.Duration, bool) {
	if b, ok := errors.AsType[*broken](err); ok {
		return b.after, true
	}
	if limited, ok := errors.AsType[*sheaf.RateLimited](err); ok {
		return max(limited.After, time.Second), true
	}
	// A parser's server that refuses this process is called from a child, without a
	// breaker.
	if f, ok := errors.AsType[*sheaf.Failure](err); ok && (f.Code == "transcription_unauthorized" || f.Code == "transcription_refused") && f.Retryable {
		return spread(refusedRest), true
	}
	return 0, false
}

// refusedRest is how long a task waits when its parser's server refuses the
// configuration.
const refusedRest = 30 * time.Second

// heartbeats renews the leases of all running tasks together and acts on the store's
// reply: lost and canceled tasks stop.
func (w *Worker) heartbeats(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Heartbeat)
	defer tick.Stop()
	for {
		w.heartbeat(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Worker) heartbeat(ctx context.Context) {
	w.mu.Lock()
	held := make([]sheaf.Claim, 0, len(w.running))
	ids := make([]string, 0, len(w.running))
	for _, a := range w.running {
		held = append(held, a.task.Held())
		if a.began.Load() && !a.worked.Load() {
			ids = append(ids, a.task.ID)
		}
	}
	w.mu.Unlock()

	called := time.Now()
	ask, cancel := context.WithTimeout(ctx, w.cfg.Lease/2)
	defer cancel()
	host, _ := os.Hostname()
	reply, err := w.cfg.Store.Heartbeat(ask, taskstore.WorkerStatus{
		ID: w.id, Host: host, PID: os.Getpid(), Version: w.cfg.Version, Slots: w.cfg.Workers, Running: ids,
		RSSBytes: residentBytes(), StartedAt: w.started, Pools: w.cfg.Pools, HeartbeatMS: w.cfg.Heartbeat.Milliseconds(),
	}, w.cfg.Lease, held)
	if err != nil {
		if ctx.Err() == nil {
			w.cfg.Log.Warn("heartbeat failed; tasks stop when their leases may have expired", "error", err)
		}
		return
	}
	// The lease counts from before the call: the reply may have been slow.
	fence := int64(called.Add(w.cfg.Lease - w.fenceMargin()).Sub(w.started))
	w.mu.Lock()
	for _, c := range held {
		if a := w.running[c.TaskID]; a != nil && a.task.Epoch == c.Epoch && !slices.Contains(reply.Lost, c) && !slices.Contains(reply.Ended, c) {
			a.fence.Store(fence)
		}
	}
	w.mu.Unlock()
	for _, c := range reply.Lost {
		if a := w.attemptUnder(c); a != nil {
			w.loses(a)
		}
	}
	for _, c := range reply.Ended {
		if a := w.attemptUnder(c); a != nil && !a.worked.Load() && !a.lost.Swap(true) {
			a.cancel(errEnded)
		}
	}
	for _, c := range reply.Canceled {
		if a := w.attemptUnder(c); a != nil {
			a.cancel(errAsked)
		}
	}
	// guard: fencing: a claim behind an error is given back
	w.releaseUnresolved(ask)
}

// attemptUnder returns the attempt running here under a claim, or nil.
func (w *Worker) attemptUnder(c sheaf.Claim) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.running[c.TaskID]; a != nil && a.task.Epoch == c.Epoch {
		return a
	}
	return nil
}

// loses stops an attempt whose task was taken away, and reports it once. An attempt
// whose outcome is being written is left alone: a heartbeat that overlaps a
// successful write also finds the claim gone, and the store refuses writes under a
// stale claim.
func (w *Worker) loses(a *attempt) {
	if a.worked.Load() || a.lost.Swap(true) {
		return
	}
	w.cfg.Observe.LeaseLost(a.task.Kind)
	w.cfg.Log.Warn("lease lost", "task", a.task.ID, "epoch", a.task.Epoch, "worker", w.id)
	a.cancel(errLost)
}

// watchdog stops attempts whose lease may have expired because heartbeats fail, and
// attempts that exceed their kind's time limit. It runs outside the worker
// goroutines, so a stuck one cannot escape it.
func (w *Worker) watchdog(ctx context.Context) {
	tick := time.NewTicker(min(time.Second, w.cfg.Lease/20))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		w.mu.Lock()
		var over, late []*attempt
		for _, a := range w.running {
			// guard: fencing: an executor stops before its lease ends
			if int64(now.Sub(w.started)) > a.fence.Load() {
				over = append(over, a)
			} else if now.Sub(a.since) > w.taskTimeout(a.task) {
				late = append(late, a)
			}
		}
		w.mu.Unlock()
		for _, a := range over {
			w.loses(a)
		}
		for _, a := range late {
			a.cancel(errTooLong)
		}
	}
}

func (w *Worker) taskTimeout(t *sheaf.Task) time.Duration {
	return cmp.Or(ofTask(w.cfg.TaskTimeout, t), 15*time.Minute)
}

// cancels reacts to the queue's cancel signals. A signal is a hint: a heartbeat
// immediately asks the store whether it is true.
func (w *Worker) cancels(ctx context.Context) {
	for id := range w.cfg.Queue.Cancels(ctx) {
		w.mu.Lock()
		mine := w.running[id] != nil
		w.mu.Unlock()
		if mine {
			w.heartbeat(ctx)
		}
	}
}

// recovers runs hints that a worker took and then lost.
func (w *Worker) recovers(ctx context.Context) {
	tick := time.NewTicker(w.cfg.RecoverEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if w.stopped.Load() {
			return
		}
		hints, err := w.cfg.Queue.Recover(ctx, w.id, w.cfg.RecoverIdle)
		if err != nil && ctx.Err() == nil {
			w.cfg.Log.Warn("recovering hints failed", "error", err)
		}
		for _, h := range hints {
			if !w.capacity.acquireOne() {
				continue // no headroom: it stays unacked, and comes again after being idle
			}
			w.start(ctx, h)
		}
	}
}

// drain waits for running tasks, then releases those that do not finish.
func (w *Worker) drain(hard <-chan struct{}) {
	idle := make(chan struct{})
	go func() { w.tasks.Wait(); close(idle) }()
	timeout := time.NewTimer(w.cfg.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-idle:
		return
	case <-timeout.C:
	case <-hard:
	}
	w.mu.Lock()
	for _, a := range w.running {
		a.cancel(errRelease)
	}
	w.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(5 * time.Second): // a task that ignores its context loses its lease
	}
}

// Running returns the ids of the tasks held here.
func (w *Worker) Running() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.running))
	for id := range w.running {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func jitter(d time.Duration) time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(d))
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

type noTracer struct{}

func (noTracer) Task(ctx context.Context, _, _ string, _ ...slog.Attr) (context.Context, func(error)) {
	return ctx, func(error) {}
}

type noObserver struct{}

func (noObserver) Claimed(*sheaf.Task)                                     {}
func (noObserver) Refused(sheaf.TaskKind, sheaf.TaskState)                 {}
func (noObserver) Finished(sheaf.TaskKind, sheaf.TaskState, time.Duration) {}
func (noObserver) Produced(sheaf.TaskKind, sheaf.TaskResult)               {}
func (noObserver) StaleWrite(sheaf.TaskKind)                               {}
func (noObserver) LeaseLost(sheaf.TaskKind)                                {}

// residentBytes is this process's resident memory, 0 if /proc is unavailable.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
