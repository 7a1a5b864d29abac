// Package executor runs tasks: it takes a hint from the queue, claims the task
// in the store, runs it through its stages and completes it under the claim's
// epoch. Nothing an executor does is seen unless the store accepts that last
// step, so it may be killed, paused or cut off at any point.
package executor

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

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/index"
	"sheaf/internal/logctx"
	"sheaf/internal/queue"
	"sheaf/internal/tagset"
	"sheaf/parser"
	"sheaf/parser/child"
)

// Processor runs the tasks of one kind. It returns what completes the task, or
// an error that AsFailure describes; ctx ends when the task was canceled, its
// lease was lost or the executor stops.
type Processor interface {
	Process(ctx context.Context, t *sheaf.Task) (sheaf.Completion, error)
}

// Files brings a blob to this host.
type Files interface {
	// Fetch returns a path of the object's bytes; release must be called when
	// the path is not read any more. sha256 and size may be empty and 0.
	Fetch(ctx context.Context, key, sha256 string, size int64) (path string, release func(), err error)
	// FetchBlocks is Fetch for readers of a few places: where fill is not nil
	// the file has holes, and it must be called before bytes are read.
	FetchBlocks(ctx context.Context, key, sha256 string, size int64) (path string, fill blob.Fill, release func(), err error)
}

// Parser reads documents in child processes. *child.Pool is one.
type Parser interface {
	ParseIsolating(ctx context.Context, src child.Source, r sheaf.Range, deadline func(units int) time.Duration, emit func(sheaf.UnitResult) error) error
}

// Config holds an executor's parts and bounds. Zero durations and counts mean
// the default named beside them.
type Config struct {
	Store    sheaf.TaskStore
	Queue    queue.Queue
	Blobs    blob.Store
	Files    Files
	Parser   Parser
	Formats  *parser.Registry
	Index    index.Index
	Embedder embed.Embedder
	Chat     enrich.Asker // a language model; nil for none
	// ChatBatch is how many chunks one question to Chat is about, default 1.
	ChatBatch int
	// Processors run kinds other than parse, index and finalize: plan at least.
	Processors map[sheaf.TaskKind]Processor
	// Changed is called after a task of this executor changed state, so that the
	// keeper need not wait for its next tick. awaited says that others may wait
	// for it: it was not one of the many ranges of a document. May be nil, and
	// must not block.
	Changed func(awaited bool)
	Observe Observer // nil for none
	Trace   Tracer   // nil for none
	Log     *slog.Logger
	Version string

	Workers       int                              // tasks at once, default 2 × CPUs + 2: some parse while others embed or index
	Batch         int                              // tasks held for each worker, the one at work included, while tasks take no longer than claims; default 4
	ParseSlots    int                              // tasks parsing at once, default CPUs
	EmbedSlots    int                              // default CPUs
	IndexSlots    int                              // default 2 × CPUs: most of them wait for a commit that serves them all
	Lease         time.Duration                    // visibility timeout, default 60 s
	Heartbeat     time.Duration                    // default 2 s
	PollInterval  time.Duration                    // longest wait between takes when no bell rings, default 1 s
	RecoverEvery  time.Duration                    // default Lease / 20, at least 1 s
	RecoverIdle   time.Duration                    // a hint taken and not acked for this long is lost, default Lease / 12, at least 2 s
	DrainTimeout  time.Duration                    // SIGTERM: running tasks may finish for this long, default 25 s
	MaxFails      int                              // default 5
	BackoffBase   time.Duration                    // default 2 s: rand(1-jitter,1)·min(BackoffMax, base·2^fails)
	BackoffMax    time.Duration                    // default 10 min
	BackoffJitter float64                          // default 0.5; negative for none
	Retry         map[sheaf.TaskKind]RetryPolicy   // by kind, or by kind/node of a dataflow, over the four before
	Tags          tagset.Limits                    // of tag sets
	UnitTimeout   time.Duration                    // share of one page in the parse deadline, default 5 s
	ParseTimeout  time.Duration                    // on top of UnitTimeout × pages, default 20 s
	TaskTimeout   map[sheaf.TaskKind]time.Duration // longest processing per kind or kind/node, default 15 min
	MaxChunksTask int                              // more chunks than this from one range is a failure, default 50,000
}

func (c *Config) setDefaults() {
	cpus := runtime.GOMAXPROCS(0)
	def := func(p *int, v int) { *p = cmp.Or(*p, v) }
	dur := func(p *time.Duration, v time.Duration) { *p = cmp.Or(*p, v) }
	def(&c.Workers, 2*cpus+2)
	def(&c.Batch, 4)
	def(&c.ParseSlots, cpus)
	def(&c.EmbedSlots, cpus)
	def(&c.IndexSlots, 2*cpus)
	def(&c.MaxFails, 5)
	def(&c.MaxChunksTask, 50_000)
	dur(&c.Lease, 60*time.Second)
	dur(&c.Heartbeat, 2*time.Second)
	dur(&c.PollInterval, time.Second)
	dur(&c.RecoverEvery, max(c.Lease/20, time.Second))
	dur(&c.RecoverIdle, max(c.Lease/12, 2*time.Second))
	dur(&c.DrainTimeout, 25*time.Second)
	dur(&c.BackoffBase, 2*time.Second)
	dur(&c.BackoffMax, 10*time.Minute)
	c.BackoffJitter = cmp.Or(c.BackoffJitter, 0.5)
	dur(&c.UnitTimeout, 5*time.Second)
	dur(&c.ParseTimeout, 20*time.Second)
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
}

// Observer is told what happens, for metrics and traces.
type Observer interface {
	Claimed(kind sheaf.TaskKind, waited time.Duration)
	Refused(kind sheaf.TaskKind, state sheaf.TaskState)
	Finished(kind sheaf.TaskKind, state sheaf.TaskState, took time.Duration)
	// Produced tells what a task that is done has made.
	Produced(kind sheaf.TaskKind, r sheaf.TaskResult)
	Stage(kind sheaf.TaskKind, stage string, took time.Duration)
	StaleWrite(kind sheaf.TaskKind)
	LeaseLost(kind sheaf.TaskKind)
}

// Tracer draws spans of attempts and their stages. Each method returns the
// span's context and what ends it.
type Tracer interface {
	// Task begins the span of an attempt; traceparent (W3C) names the request
	// that caused the task, "" when unknown.
	Task(ctx context.Context, traceparent, name string, attrs ...slog.Attr) (context.Context, func(error))
	// Stage begins a span within the context's.
	Stage(ctx context.Context, name string) (context.Context, func(error))
}

// Executor runs tasks until its context ends.
type Executor struct {
	cfg        Config
	breakers   breakers
	model      *enrich.Model // nil without Chat
	tags       *tagset.Loader
	id         string
	processors map[sheaf.TaskKind]Processor
	parse      semaphore
	embed      semaphore
	index      semaphore
	started    time.Time

	mu      sync.Mutex
	running map[string]*attempt // by task id
	doubts  doubts
	slots   *slots
	workers semaphore // held by the task that is at work
	ends    semaphore // held by a task whose end is being written
	stopped atomic.Bool
	tasks   sync.WaitGroup
}

// attempt is one claim at work.
type attempt struct {
	task   *sheaf.Task
	hint   sheaf.Hint
	cancel context.CancelCauseFunc
	since  time.Time
	began  atomic.Bool  // it has a worker, or had one
	worked atomic.Bool  // only its end is still to be written: it has no slot any more
	fence  atomic.Int64 // monotonic-clock deadline (ns since Executor.started) after which the lease may be gone
}

// Causes of an attempt's end, read back with context.Cause.
var (
	errLost    = fmt.Errorf("the lease was taken over: %w", sheaf.ErrStale)
	errAsked   = fmt.Errorf("a cancel was requested: %w", sheaf.ErrCanceled)
	errRelease = errors.New("the executor is stopping")
	errTooLong = errors.New("the task ran longer than its kind may")
)

// New makes an executor with an id of its own. Run starts it.
func New(cfg Config) *Executor {
	cfg.setDefaults()
	away := newBreakers(cfg.Log)
	away.guard(&cfg)
	host, _ := os.Hostname()
	e := &Executor{
		cfg: cfg, breakers: away, id: fmt.Sprintf("%s-%d-%s", cmp.Or(host, "host"), os.Getpid(), sheaf.NewID()[20:]),
		parse: newSemaphore(cfg.ParseSlots), embed: newSemaphore(cfg.EmbedSlots), index: newSemaphore(cfg.IndexSlots),
		started: time.Now(), running: map[string]*attempt{}, doubts: doubts{},
		slots: newSlots(cfg.Workers, cfg.Batch), workers: newSemaphore(cfg.Workers), ends: newSemaphore(cfg.Workers * cfg.Batch),
	}
	if cfg.Embedder != nil { // measurements of the store have none
		e.tags = &tagset.Loader{Blobs: cfg.Blobs, Model: cfg.Embedder.Model(), Limits: cfg.Tags}
	}
	if cfg.Chat != nil {
		e.model = enrich.NewModel(cfg.Chat, cfg.ChatBatch)
	}
	e.processors = map[sheaf.TaskKind]Processor{
		sheaf.KindParse:    processorFunc(e.processParse),
		sheaf.KindIndex:    processorFunc(e.processIndex),
		sheaf.KindFinalize: processorFunc(e.processFinalize),
	}
	for kind, p := range cfg.Processors {
		e.processors[kind] = p
	}
	return e
}

type processorFunc func(ctx context.Context, t *sheaf.Task) (sheaf.Completion, error)

func (f processorFunc) Process(ctx context.Context, t *sheaf.Task) (sheaf.Completion, error) {
	return f(ctx, t)
}

// ID names this executor in claims and in the list of workers.
func (e *Executor) ID() string { return e.id }

// Run takes and runs tasks until ctx ends, then drains: it stops taking, lets
// running tasks finish for DrainTimeout, gives the rest back without touching
// their budgets, and returns. hard ends the drain at once.
func (e *Executor) Run(ctx context.Context, hard <-chan struct{}) error {
	log := e.cfg.Log.With("worker", e.id)
	log.Info("executor started", "workers", e.cfg.Workers, "parse_slots", e.cfg.ParseSlots)

	// The side loops outlive ctx: leases must be kept while the executor drains.
	side, stopSide := context.WithCancel(context.WithoutCancel(ctx))
	var sides sync.WaitGroup
	sides.Go(func() { e.heartbeats(side) })
	sides.Go(func() { e.watchdog(side) })
	sides.Go(func() { e.cancels(side) })
	sides.Go(func() { e.recovers(side) })

	e.take(ctx)
	e.stopped.Store(true)
	e.drain(hard)
	stopSide()
	sides.Wait()

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	e.giveBackDoubtful(last)
	err := errors.Join(e.cfg.Queue.Leave(last, e.id), e.cfg.Store.Deregister(last, e.id))
	log.Info("executor stopped")
	return err
}

// take keeps the slots full. It asks for no more hints than there are free
// slots: a hint waiting here would be one that no other executor can run.
func (e *Executor) take(ctx context.Context) {
	trouble := 0
	for ctx.Err() == nil {
		slots := e.slots.reserve(ctx)
		if slots == 0 {
			return
		}
		hints, err := e.cfg.Queue.Take(ctx, e.id, slots, e.breakers.skipped())
		for _, h := range hints {
			e.start(ctx, h)
		}
		e.slots.free(slots - len(hints))
		switch {
		case err != nil && ctx.Err() == nil:
			trouble = min(trouble+1, 3) // 2 s: who waits longer is missed when the queue is back
			e.cfg.Log.Warn("taking from the queue failed; trying again", "error", err)
			sleep(ctx, jitter(250*time.Millisecond<<trouble))
		case len(hints) == 0:
			trouble = 0
			e.slots.forget()
			if err := e.cfg.Queue.Wait(ctx, jitter(e.cfg.PollInterval)); err != nil && ctx.Err() == nil {
				sleep(ctx, jitter(e.cfg.PollInterval))
			}
		default:
			trouble = 0
		}
	}
}

// start claims the hinted task and, if it gets it, runs it, on a slot that the
// caller has reserved and that is given back here. Claims run beside each other:
// one after the other they would take a round trip to the database each.
//
// The slot is free once the task's work is over: its end is written while the
// next task is claimed, and mostly in one transaction with that. No more ends
// than slots wait so; with a store that is slow or away, slots stay taken.
func (e *Executor) start(ctx context.Context, h sheaf.Hint) {
	e.tasks.Go(func() {
		free := sync.OnceFunc(func() { e.slots.free(1) })
		defer free()
		a, run := e.claim(ctx, h)
		if a == nil {
			return
		}
		defer func() {
			e.mu.Lock()
			if e.running[a.task.ID] == a { // else the task has come back, and its new attempt is there
				delete(e.running, a.task.ID)
			}
			e.mu.Unlock()
			a.cancel(nil)
		}()
		begun := e.begin(ctx, run, a)
		e.run(run, a, func() {
			e.ends <- struct{}{}
			if begun {
				e.workers.release()
			}
			a.worked.Store(true)
			free()
		})
		e.ends.release()
	})
}

// aheadMost is how long a task that was claimed ahead waits for a worker, so
// that one behind which there are long tasks goes to another executor.
const aheadMost = 250 * time.Millisecond

// begin waits for a worker and reports whether there is one; else it has stopped
// the attempt.
func (e *Executor) begin(ctx, run context.Context, a *attempt) bool {
	select {
	case e.workers <- struct{}{}: // nearly always: nothing is claimed ahead
	default:
		most := time.NewTimer(aheadMost)
		defer most.Stop()
		select {
		case e.workers <- struct{}{}:
		case <-run.Done():
			return false
		case <-ctx.Done():
			a.cancel(errRelease)
			return false
		case <-most.C:
			e.slots.forget()
			a.cancel(errRelease)
			return false
		}
	}
	a.began.Store(true)
	return true
}

// claim wins the hinted task or spends the hint. It returns nil when there is
// nothing to run, else the attempt and the context that it runs under.
func (e *Executor) claim(ctx context.Context, h sheaf.Hint) (*attempt, context.Context) {
	if ctx.Err() != nil {
		return nil, nil // nothing has been claimed: Leave gives the hint back
	}
	// A claim that has begun is not broken off: whether it happened would be
	// unknown, and the task would wait for its lease to end.
	ctx = context.WithoutCancel(ctx)
	doubted := e.trust(h.TaskID)
	before := time.Now()
	ask, cancelAsk := context.WithTimeout(ctx, e.cfg.Lease/2)
	defer cancelAsk()
	t, err := e.cfg.Store.Claim(ask, h.TaskID, e.id, e.cfg.Lease)
	if refused, ok := errors.AsType[*sheaf.NotClaimable](err); ok {
		// Somebody else's, over, or not due: the hint is spent either way. If
		// the task should run later, the store knows and will hint again.
		e.cfg.Observe.Refused(h.Kind, refused.State)
		if doubted && refused.State == sheaf.TaskRunning {
			e.doubt(h.TaskID) // what runs may be the claim that nobody knows of
		}
		if err := e.cfg.Queue.Ack(ctx, h, refused.State == sheaf.TaskRunning); err != nil {
			e.cfg.Log.Warn("ack failed; the hint will come again", "task", h.TaskID, "tenant", h.TenantID, "error", err)
		}
		return nil, nil
	}
	if err != nil {
		// Nobody knows whether the claim happened. The hint stays unacked and
		// comes again; if the claim did happen, the task is given back.
		e.doubt(h.TaskID)
		e.cfg.Log.Warn("claim failed", "task", h.TaskID, "tenant", h.TenantID, "error", err)
		return nil, nil
	}

	// The attempt outlives ctx: drain decides when it ends.
	run, cancel := context.WithCancelCause(ctx)
	a := &attempt{task: t, hint: h, cancel: cancel, since: before}
	a.fence.Store(int64(before.Add(e.cfg.Lease - e.fenceMargin()).Sub(e.started)))
	e.mu.Lock()
	earlier := e.running[t.ID]
	e.running[t.ID] = a
	delete(e.doubts, t.ID)
	e.mu.Unlock()
	// A task that was taken away can come back before a heartbeat has told of
	// the loss; the attempt at it that still runs here works for nothing.
	if earlier != nil && !earlier.worked.Load() {
		e.loses(earlier)
	}

	// From the claim on the lease in the store is the only lease. The work need
	// not wait for the ack; drain does, so that Leave finds nothing to give back.
	e.tasks.Go(func() {
		if err := e.cfg.Queue.Ack(ctx, h, true); err != nil {
			e.cfg.Log.Warn("ack failed; the hint will come again and be refused", "task", h.TaskID, "tenant", h.TenantID, "error", err)
		}
	})
	e.slots.claimed(time.Since(before))
	e.cfg.Observe.Claimed(t.Kind, before.Sub(t.RunAt))
	return a, run
}

// fenceMargin is how long before the lease ends an attempt stops by itself.
func (e *Executor) fenceMargin() time.Duration { return min(2*time.Second, e.cfg.Lease/10) }

// endWait is how long the end of a task waits for the claim of the next one
// while there is a backlog: what it takes to fetch a hint when all is busy.
const endWait = 5 * time.Millisecond

// run processes one claimed task and writes its end. It calls worked in between.
func (e *Executor) run(ctx context.Context, a *attempt, worked func()) {
	t, begun, log := a.task, time.Now(), e.cfg.Log
	about := []slog.Attr{slog.String("task", t.ID), slog.String("kind", string(t.Kind)), slog.String("job", t.JobID), slog.String("document", t.DocumentID), slog.String("tenant", t.TenantID), slog.Int64("epoch", t.Epoch)}
	ctx = logctx.With(ctx, about...)
	about = append(about, slog.Int("attempt", t.Attempts), slog.String("worker", e.id))
	if t.Range.From > 0 {
		about = append(about, slog.String("range", t.Range.String()))
	}
	ctx, endSpan := e.cfg.Trace.Task(ctx, t.Trace, "task "+string(t.Kind), about...)
	done, err := e.process(ctx, a)
	if e.slots.busy() {
		done.CanWait = endWait
	}
	defer endSpan(err) // with the processor's verdict, after its end is written
	worked()

	// What is written now must be written even while the executor stops.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	done.NextFunc = func(h sheaf.Hint) {
		if _, err := e.cfg.Queue.Publish(end, h.TenantID, h.Lane, []sheaf.Hint{h}); err != nil {
			log.DebugContext(ctx, "the end of the document was not published; the keeper will", "document", t.DocumentID, "error", err)
		}
	}
	state, err := e.finish(ctx, end, t, done, err)
	switch {
	case errors.Is(err, sheaf.ErrStale):
		e.cfg.Observe.StaleWrite(t.Kind)
		log.WarnContext(ctx, "the task belongs to somebody else now; its result is dropped")
	case err != nil:
		// The store may still hold the task as run here: it is given back.
		e.doubt(t.ID)
		log.ErrorContext(ctx, "the end of the task could not be written; it will be tried again", "error", err)
	default:
		e.cfg.Observe.Finished(t.Kind, state, time.Since(begun))
		if state == sheaf.TaskDone {
			e.cfg.Observe.Produced(t.Kind, done.Result)
		}
		log.DebugContext(ctx, "task ended", "state", state, "ms", time.Since(begun).Milliseconds())
	}
	if err := e.cfg.Queue.Done(end, t.TenantID, t.ID); err != nil {
		log.WarnContext(ctx, "the queue was not told that the task ended; reconciliation will", "error", err)
	}
	e.cfg.Changed(len(done.Spawn) > 0 || t.Kind != sheaf.KindParse && t.Kind != sheaf.KindIndex)
}

// process runs the task's processor, unless the attempt was stopped before it
// began, and turns a panic into a failure.
func (e *Executor) process(ctx context.Context, a *attempt) (done sheaf.Completion, err error) {
	if !a.began.Load() {
		return done, context.Cause(ctx)
	}
	t, begun := a.task, time.Now()
	defer func() { e.slots.worked(time.Since(begun)) }()
	p, ok := e.processors[t.Kind]
	if !ok {
		// A newer version may know it: it must not be lost to an old executor.
		return done, errUnknownKind
	}
	defer func() {
		if r := recover(); r != nil {
			buf := make([]byte, 4096)
			buf = buf[:runtime.Stack(buf, false)]
			f := sheaf.FailRetryable(sheaf.CategoryInternal, "panic", "the %s task panicked: %v; please report this with the diagnostics (sheaf diagnostics)", t.Kind, r)
			f.Detail = string(buf)
			err = f
		}
	}()
	return p.Process(ctx, t)
}

var errUnknownKind = errors.New("no processor for this kind of task")

// finish writes how the attempt ended: ctx is the attempt's (its cause tells
// why it was stopped), end the one to write with.
func (e *Executor) finish(ctx, end context.Context, t *sheaf.Task, done sheaf.Completion, err error) (sheaf.TaskState, error) {
	claim := t.Held()
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		if err = e.complete(end, claim, done); err == nil || errors.Is(err, sheaf.ErrStale) {
			if err == nil && (len(done.Spawn) > 0) {
				_ = e.cfg.Queue.Notify(end) // a bell: the next poll finds the tasks all the same
			}
			return sheaf.TaskDone, err
		}
		// The work is done and only the write failed: fall through to a retry.
	case errors.Is(cause, errLost):
		return sheaf.TaskRunning, sheaf.ErrStale
	case errors.Is(cause, errRelease):
		return sheaf.TaskPending, e.cfg.Store.Release(end, claim)
	case errors.Is(cause, errTooLong):
		err = sheaf.FailRetryable(sheaf.CategoryTimeout, "task_timeout", "the %s task ran longer than %s; raise executor.task_timeout or split finer", t.Kind, e.taskTimeout(t))
	case errors.Is(cause, errAsked):
		err = sheaf.Fail(sheaf.CategoryCanceled, "canceled", "canceled on request")
	case errors.Is(err, errUnknownKind):
		return sheaf.TaskPending, e.cfg.Store.Snooze(end, claim, 30*time.Second, "no executor here knows tasks of kind "+string(t.Kind))
	}
	f := sheaf.AsFailure(err, string(t.Kind))
	f.Attempt = t.Attempts
	if timedOutTwice(t, f) {
		f.Retryable = false
	}
	if wait, ok := retryAfter(err); ok {
		return sheaf.TaskRetryWait, e.cfg.Store.Snooze(end, claim, wait, f.Message)
	}
	retry := e.retries(t)
	return e.cfg.Store.FailTask(end, claim, sheaf.FailReport{Failure: *f, Delay: retry.wait(t.FailCount), MaxFails: retry.MaxFails})
}

// timedOutTwice reports whether this attempt and the one before it ran out of
// their own time. An attempt begins anew and gets no further than the last: a
// third would hold a worker for as long once more. What others were too slow
// for is not meant: they may be faster next time.
func timedOutTwice(t *sheaf.Task, f *sheaf.Failure) bool {
	own := func(code string) bool { return code == "task_timeout" || code == "parse_timeout" }
	return own(f.Code) && t.FailCount > 0 && t.Failure != nil && own(t.Failure.Code)
}

// complete retries an ambiguous completion: the guarded write is idempotent,
// since a second one finds the task no longer running under this epoch.
func (e *Executor) complete(ctx context.Context, c sheaf.Claim, done sheaf.Completion) error {
	var err error
	for try := range 4 {
		if err = e.cfg.Store.Complete(ctx, c, done); !errors.Is(err, sheaf.ErrUnavailable) {
			return err
		}
		sleep(ctx, jitter(200*time.Millisecond<<try))
	}
	return err
}

// retryAfter is how long a dependency is left alone that is away or asked for a
// wait: it costs no budget, since the task did nothing wrong.
func retryAfter(err error) (time.Duration, bool) {
	if b, ok := errors.AsType[*broken](err); ok {
		return b.after, true
	}
	if limited, ok := errors.AsType[*sheaf.RateLimited](err); ok {
		return max(limited.After, time.Second), true
	}
	// A parser's server that refuses this process is met in a child, behind no
	// breaker.
	if f, ok := errors.AsType[*sheaf.Failure](err); ok && (f.Code == "transcription_unauthorized" || f.Code == "transcription_refused") && f.Retryable {
		return spread(refusedRest), true
	}
	return 0, false
}

// refusedRest is how long a task waits whose parser's server refuses the
// configuration.
const refusedRest = 30 * time.Second

// heartbeats renew the leases of all running tasks at once and carry out what
// the store answers: tasks that are lost or canceled stop.
func (e *Executor) heartbeats(ctx context.Context) {
	tick := time.NewTicker(e.cfg.Heartbeat)
	defer tick.Stop()
	for {
		e.heartbeat(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (e *Executor) heartbeat(ctx context.Context) {
	e.mu.Lock()
	held := make([]sheaf.Claim, 0, len(e.running))
	ids := make([]string, 0, len(e.running))
	for _, a := range e.running {
		held = append(held, a.task.Held())
		if a.began.Load() && !a.worked.Load() {
			ids = append(ids, a.task.ID)
		}
	}
	e.mu.Unlock()

	called := time.Now()
	ask, cancel := context.WithTimeout(ctx, e.cfg.Lease/2)
	defer cancel()
	host, _ := os.Hostname()
	reply, err := e.cfg.Store.Heartbeat(ask, sheaf.WorkerStatus{
		ID: e.id, Host: host, PID: os.Getpid(), Version: e.cfg.Version, Slots: e.cfg.Workers, Running: ids,
		RSSBytes: residentBytes(), StartedAt: e.started,
	}, e.cfg.Lease, held)
	if err != nil {
		if ctx.Err() == nil {
			e.cfg.Log.Warn("heartbeat failed; tasks stop when their lease may have ended", "error", err)
		}
		return
	}
	// The lease counts from before the call: the reply may have been slow.
	fence := int64(called.Add(e.cfg.Lease - e.fenceMargin()).Sub(e.started))
	e.mu.Lock()
	for _, c := range held {
		if a := e.running[c.TaskID]; a != nil && a.task.Epoch == c.Epoch && !slices.Contains(reply.Lost, c) {
			a.fence.Store(fence)
		}
	}
	e.mu.Unlock()
	for _, c := range reply.Lost {
		if a := e.attemptUnder(c); a != nil {
			e.loses(a)
		}
	}
	for _, c := range reply.Canceled {
		if a := e.attemptUnder(c); a != nil {
			a.cancel(errAsked)
		}
	}
	e.giveBackDoubtful(ask)
}

// attemptUnder is the attempt that runs here under a claim, nil for none.
func (e *Executor) attemptUnder(c sheaf.Claim) *attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.running[c.TaskID]; a != nil && a.task.Epoch == c.Epoch {
		return a
	}
	return nil
}

// loses stops an attempt whose task was taken away.
func (e *Executor) loses(a *attempt) {
	e.cfg.Observe.LeaseLost(a.task.Kind)
	e.cfg.Log.Warn("lease lost", "task", a.task.ID, "epoch", a.task.Epoch, "worker", e.id)
	a.cancel(errLost)
}

// watchdog stops attempts whose lease may have ended because heartbeats fail,
// and attempts that run longer than their kind may. It stands outside the
// worker goroutines, so a stuck one cannot escape it.
func (e *Executor) watchdog(ctx context.Context) {
	tick := time.NewTicker(min(time.Second, e.cfg.Lease/20))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		e.mu.Lock()
		var over, late []*attempt
		for _, a := range e.running {
			if int64(now.Sub(e.started)) > a.fence.Load() {
				over = append(over, a)
			} else if now.Sub(a.since) > e.taskTimeout(a.task) {
				late = append(late, a)
			}
		}
		e.mu.Unlock()
		for _, a := range over {
			e.cfg.Observe.LeaseLost(a.task.Kind)
			a.cancel(errLost)
		}
		for _, a := range late {
			a.cancel(errTooLong)
		}
	}
}

func (e *Executor) taskTimeout(t *sheaf.Task) time.Duration {
	return cmp.Or(ofTask(e.cfg.TaskTimeout, t), 15*time.Minute)
}

// cancels stops tasks as soon as the queue's signal says so. A signal is a
// hint: the heartbeat asks the store at once whether it is true.
func (e *Executor) cancels(ctx context.Context) {
	for id := range e.cfg.Queue.Cancels(ctx) {
		e.mu.Lock()
		mine := e.running[id] != nil
		e.mu.Unlock()
		if mine {
			e.heartbeat(ctx)
		}
	}
}

// recovers runs hints that some worker took and then forgot.
func (e *Executor) recovers(ctx context.Context) {
	tick := time.NewTicker(e.cfg.RecoverEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if e.stopped.Load() {
			return
		}
		hints, err := e.cfg.Queue.Recover(ctx, e.id, e.cfg.RecoverIdle)
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("recovering hints failed", "error", err)
		}
		for _, h := range hints {
			if !e.slots.reserveOne() {
				continue // no slot: it stays unacked, and comes again when it has been idle
			}
			e.start(ctx, h)
		}
	}
}

// drain waits for running tasks, then gives back those that do not end.
func (e *Executor) drain(hard <-chan struct{}) {
	idle := make(chan struct{})
	go func() { e.tasks.Wait(); close(idle) }()
	timeout := time.NewTimer(e.cfg.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-idle:
		return
	case <-timeout.C:
	case <-hard:
	}
	e.mu.Lock()
	for _, a := range e.running {
		a.cancel(errRelease)
	}
	e.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(5 * time.Second): // what ignores its context loses its lease
	}
}

// Running reports the ids of the tasks at work.
func (e *Executor) Running() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := make([]string, 0, len(e.running))
	for id := range e.running {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// semaphore bounds how many tasks are in one stage.
type semaphore chan struct{}

func newSemaphore(n int) semaphore { return make(semaphore, n) }

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s semaphore) release() { <-s }

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
func (noTracer) Stage(ctx context.Context, _ string) (context.Context, func(error)) {
	return ctx, func(error) {}
}

type noObserver struct{}

func (noObserver) Claimed(sheaf.TaskKind, time.Duration)                   {}
func (noObserver) Refused(sheaf.TaskKind, sheaf.TaskState)                 {}
func (noObserver) Finished(sheaf.TaskKind, sheaf.TaskState, time.Duration) {}
func (noObserver) Produced(sheaf.TaskKind, sheaf.TaskResult)               {}
func (noObserver) Stage(sheaf.TaskKind, string, time.Duration)             {}
func (noObserver) StaleWrite(sheaf.TaskKind)                               {}
func (noObserver) LeaseLost(sheaf.TaskKind)                                {}

// residentBytes is the memory this process holds, 0 where /proc does not say.
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
