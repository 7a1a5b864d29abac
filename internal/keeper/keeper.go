// Package keeper runs the loops that keep the pipeline moving between the executors'
// steps: it feeds the queue, promotes due tasks, reaps tasks of dead executors,
// rolls up progress, and collects garbage. One process leads at a time, only to save
// work: every loop consists of guarded, idempotent statements, so two leaders do no
// harm.
package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/index"
	"sheaf/internal/notify"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// Config holds the keeper's dependencies and periods; zero means the default noted
// beside a field.
type Config struct {
	Store  Store
	Queue  queue.Queue
	Index  index.Index
	Blobs  blob.Store
	Leader queue.Leader
	Log    *slog.Logger

	// Feeds says that the queue stores hints of its own and must be fed; a queue that
	// reads the store needs only notifications.
	Feeds bool
	// Sole says that no other process shares the store: any task running when the
	// keeper starts is left over from a dead process.
	Sole bool

	// Shared says that other processes share the store: each keeper then folds a share
	// of the documents, whether it leads or not.
	Shared bool

	// Audit continues comparing database, index and blobs for a while, or starts when
	// that is due. It changes nothing, and reports whether there is more to do
	// immediately. It runs on the leading keeper. May be nil.
	Audit func(ctx context.Context) (more bool, err error)
	// Sign signs the receipt of a completed deletion. If nil, receipts are not signed.
	Sign func(*taskstore.Receipt) error
	// Fill fills an index that is lost or being replaced, for a while, and reports
	// whether there is more to do immediately. May be nil.
	Fill func(ctx context.Context) (more bool, err error)
	// Copies returns the keys of other stored copies of a result. May be nil.
	Copies func(artifactKey string) []string
	// Tell sends messages to webhooks and returns their number. May be nil.
	Tell func(ctx context.Context) (int, error)
	// Leads is called when a term starts and ends. May be nil.
	Leads func(leads bool)
	// Evaluate runs saved queries whose results may have changed, and reports whether
	// there are more to check. May be nil.
	Evaluate func(ctx context.Context) (more bool, err error)
	// Rerun starts the runs over datasets that are due, and returns their number. May
	// be nil.
	Rerun func(ctx context.Context) (int, error)
	// Measure exports the backlog, and with population the totals. It runs on the
	// leading keeper, so that one process reports for all. May be nil.
	Measure func(ctx context.Context, population bool) error
	// Promoted is called for each task that waited for its scheduled time, with how
	// late it was promoted. May be nil.
	Promoted func(lane sheaf.Lane, late time.Duration)
	// Ran is called with the duration of each run of a loop. May be nil.
	Ran func(loop string, took time.Duration)

	FeedEvery     time.Duration // default 500 ms
	Window        int           // maximum hints per tenant and lane in the queue, default 256
	RequeueAfter  time.Duration // a hint not claimed for this long is published again, default 5 min
	PromoteEvery  time.Duration // default 500 ms; tasks known to be due are promoted on time
	ReapEvery     time.Duration // default 1 s
	WorkerTimeout time.Duration // an executor silent for this long is dead, default 6 s: three missed heartbeats
	MaxLost       int           // default 3
	ReapJitter    time.Duration // default 1 s
	CancelGrace   time.Duration // default 30 s
	FoldEvery     time.Duration // default 1 s
	SlowEvery     time.Duration // parked backstop and reconciliation, default 60 s
	CollectEvery  time.Duration // default 5 s
	FillEvery     time.Duration // how soon an operator's index request is started; default 2 s
	EvaluateEvery time.Duration // default 30 s
	CleanupEvery  time.Duration // default 1 h
	AuditEvery    time.Duration // 0 means never
	CompactEvery  time.Duration // 0 means never
	MeasureEvery  time.Duration // default 5 s
	Retention     time.Duration // of events, old tasks, idempotency keys; default 7 days
}

// batch is the maximum number of rows per statement of a loop, small enough that a
// loop never holds locks for long.
const batch = 100

// sumEvery is how far the per-minute sums lag behind the log.
const sumEvery = 5 * time.Second

// tellEvery is how long a webhook message may wait for the loop.
const tellEvery = time.Second

// rerunEvery is how long a due run may wait for the loop.
const rerunEvery = 10 * time.Second

// Keeper runs the loops. Its counters may be read at any time.
type Keeper struct {
	cfg      Config
	id       string // among the folding keepers
	notified notify.Signal
	loops    []*loop
	folding  *loop         // runs without leading; nil when the leader folds
	refold   notify.Signal // of folding

	// This keeper's share of the folding, for the fold loop.
	rank, of int
	rankedAt time.Time

	// Tenants' shares as last sent to the queue, and the queue's run ids at that time;
	// used only by the feed loop.
	shared     map[string]taskstore.TenantLoad
	sharedWith map[sheaf.Lane]string
	knownRuns  map[sheaf.Lane]string // run ids that the store keeps; nil until read in this term
	noted      string                // the same as the store has them
	fedTo      string                // the tenant where the last run stopped, "" if it reached the end
	fedAt      time.Time
	emptyIn    time.Duration // how soon the fullest window will be half empty, 0 if unknown

	measured, populated time.Duration // last duration of the measure loop, without and with the population
	measuredAt          time.Time     // when it last started
	populatedAt         time.Time

	dueIn    time.Duration // for the promote loop: when the next task is due, 0 if unknown
	refoldIn time.Duration // for the fold loop: when to revisit what it left, 0 for nothing

	// For the reap loop: when it last ran, whether that failed, and since when the
	// store has answered without interruption.
	reaped      time.Time
	reapFailed  bool
	steadySince time.Time

	// The store's clock at the last read, since when it has run at normal speed, and
	// the total by which it was seen to jump ahead.
	clockMu    sync.Mutex
	clock      time.Time
	clockRead  time.Time
	clockSince time.Time
	clockAhead time.Duration
}

// loop is one periodic task.
type loop struct {
	name      string
	every     time.Duration
	limit     time.Duration // of one run, in case an engine hangs; 0 means a minute
	late      bool          // waits before its first run too, so as not to run at every start
	follows   bool          // also runs after changes in this or another process
	debounced bool          // such runs are debouncePause apart under steady change
	step      func(ctx context.Context) (int, error)
	nextFunc  func() time.Duration // how soon the next work is due, 0 if unknown; nil if the loop never knows
	counts    Counts
}

// Counts holds a loop's statistics since the process started.
type Counts struct {
	Runs    atomic.Int64
	Changed atomic.Int64
	Scanned atomic.Int64 // rows read by its statements
	Failed  atomic.Int64
	LastMS  atomic.Int64 // duration of the last run
}

// New makes a keeper; Run starts it.
func New(cfg Config) *Keeper {
	dur := func(p *time.Duration, d time.Duration) { *p = cmp.Or(*p, d) }
	dur(&cfg.FeedEvery, 500*time.Millisecond)
	dur(&cfg.RequeueAfter, 5*time.Minute)
	dur(&cfg.PromoteEvery, 500*time.Millisecond)
	dur(&cfg.ReapEvery, time.Second)
	dur(&cfg.WorkerTimeout, 6*time.Second)
	dur(&cfg.ReapJitter, time.Second)
	dur(&cfg.CancelGrace, 30*time.Second)
	dur(&cfg.FoldEvery, time.Second)
	dur(&cfg.SlowEvery, time.Minute)
	dur(&cfg.CollectEvery, 5*time.Second)
	dur(&cfg.FillEvery, 2*time.Second)
	dur(&cfg.EvaluateEvery, 30*time.Second)
	dur(&cfg.CleanupEvery, time.Hour)
	dur(&cfg.MeasureEvery, 5*time.Second)
	dur(&cfg.Retention, 7*24*time.Hour)
	cfg.Window = cmp.Or(cfg.Window, 256)
	cfg.MaxLost = cmp.Or(cfg.MaxLost, 3)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Leader == nil {
		cfg.Leader = queue.Always{}
	}
	k := &Keeper{cfg: cfg, id: sheaf.NewID(), of: 1, notified: notify.NewSignal(), refold: notify.NewSignal(), shared: map[string]taskstore.TenantLoad{}, sharedWith: map[sheaf.Lane]string{}}
	fold := &loop{name: "fold", every: cfg.FoldEvery, follows: true, debounced: true, limit: 20 * time.Second, step: k.fold, nextFunc: func() time.Duration { return k.refoldIn }}
	k.loops = []*loop{
		{name: "promote", every: cfg.PromoteEvery, limit: 10 * time.Second, step: k.promote, nextFunc: func() time.Duration { return k.dueIn }},
		{name: "reap", every: cfg.ReapEvery, limit: 10 * time.Second, step: k.reap},
		{name: "slow", every: cfg.SlowEvery, step: k.slow},
		{name: "sums", every: sumEvery, step: func(ctx context.Context) (int, error) { return k.cfg.Store.RollUp(ctx) }},
		{name: "collect", every: cfg.CollectEvery, step: k.collect},
		{name: "cleanup", every: cfg.CleanupEvery, limit: 10 * time.Minute, step: k.cleanup},
	}
	if cfg.Shared {
		k.folding = fold
	} else {
		k.loops = append(k.loops, fold)
	}
	if cfg.Feeds {
		k.loops = append(k.loops, &loop{name: "feed", every: cfg.FeedEvery, follows: true, limit: 5 * time.Minute, step: k.feed, nextFunc: func() time.Duration { return k.emptyIn }})
	}
	if cfg.Tell != nil {
		k.loops = append(k.loops, &loop{name: "tell", every: tellEvery, follows: true, debounced: true, step: cfg.Tell})
	}
	again := func(f func(context.Context) (bool, error)) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			if more, err := f(ctx); more || err != nil {
				return batch, err
			}
			return 0, nil
		}
	}
	if cfg.Fill != nil {
		k.loops = append(k.loops, &loop{name: "index", every: cfg.FillEvery, limit: 10 * time.Minute, step: again(cfg.Fill)})
	}
	if cfg.Evaluate != nil {
		k.loops = append(k.loops, &loop{name: "evaluate", every: cfg.EvaluateEvery, limit: time.Hour, late: true, step: again(cfg.Evaluate)})
	}
	if cfg.Rerun != nil {
		k.loops = append(k.loops, &loop{name: "runs", every: rerunEvery, step: func(ctx context.Context) (int, error) {
			n, err := cfg.Rerun(ctx)
			return min(n, batch-1), err // all due runs were considered
		}})
	}
	if cfg.Measure != nil {
		k.loops = append(k.loops, &loop{name: "measure", every: cfg.MeasureEvery, step: k.measure})
	}
	if ix, ok := cfg.Index.(index.Compacter); ok && cfg.CompactEvery > 0 {
		k.loops = append(k.loops, &loop{name: "compact", every: cfg.CompactEvery, late: true, step: func(ctx context.Context) (int, error) { return 0, ix.Compact(ctx) }})
	}
	if cfg.Audit != nil && cfg.AuditEvery > 0 {
		// Audit itself knows when one is due.
		k.loops = append(k.loops, &loop{name: "audit", every: min(cfg.AuditEvery, time.Minute), limit: max(cfg.AuditEvery, time.Hour), step: again(cfg.Audit)})
	}
	return k
}

// Notify asks the loops that follow changes to run now. It never blocks.
func (k *Keeper) Notify() {
	k.notified.Notify()
	k.refold.Notify()
}

// Loops returns the counters by loop name.
func (k *Keeper) Loops() map[string]*Counts {
	out := map[string]*Counts{}
	for _, l := range k.loops {
		out[l.name] = &l.counts
	}
	if k.folding != nil {
		out[k.folding.name] = &k.folding.counts
	}
	return out
}

// Run campaigns for leadership and, while it leads, runs the loops. It returns when
// ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	if k.cfg.Sole {
		if n, err := k.cfg.Store.ReleaseRunning(ctx); err != nil {
			k.cfg.Log.Warn("could not release tasks of the previous run; they are retried when their leases expire", "error", err)
		} else if n > 0 {
			k.cfg.Log.Info("gave back tasks that the previous run had not finished", "tasks", n)
		}
	}
	if k.folding == nil {
		return k.cfg.Leader.Run(ctx, k.lead)
	}
	var folding sync.WaitGroup
	defer folding.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	folding.Go(func() { k.foldAlways(ctx) })
	return k.cfg.Leader.Run(ctx, k.lead)
}

// foldAlways folds this keeper's share, whether or not it leads.
func (k *Keeper) foldAlways(ctx context.Context) {
	changed := notify.NewSignal()
	var loop sync.WaitGroup
	loop.Go(func() { k.run(ctx, k.folding, changed) })
	changes := k.cfg.Queue.Changes(ctx) // in other processes
	for {
		select {
		case <-k.refold:
		case _, open := <-changes:
			if !open {
				changes = nil
				continue
			}
			k.notified.Notify() // for this keeper's loops, if it leads
		case <-ctx.Done():
			loop.Wait()
			leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := k.cfg.Store.LeaveFold(leave, k.id); err != nil {
				k.cfg.Log.Debug("the share of the folding was not given up; it runs out", "error", err)
			}
			return
		}
		changed.Notify()
	}
}

// A keeper counts as folding its share for foldLife after it last said so, which it
// does every rankEvery.
const (
	foldLife  = 4 * time.Second
	rankEvery = time.Second
)

// lead runs every loop until the term ends.
func (k *Keeper) lead(ctx context.Context) {
	k.cfg.Log.Info("keeper leads")
	defer k.cfg.Log.Info("keeper leads no more")
	if k.cfg.Leads != nil {
		k.cfg.Leads(true)
		defer k.cfg.Leads(false)
	}
	k.knownRuns = nil // another keeper may have led since
	var loops sync.WaitGroup
	var followers []notify.Signal
	for _, l := range k.loops {
		changed := notify.NewSignal()
		if l.follows {
			followers = append(followers, changed)
		}
		loops.Go(func() { k.run(ctx, l, changed) })
	}
	var changes <-chan struct{} // in other processes
	if k.folding == nil {
		changes = k.cfg.Queue.Changes(ctx) // foldAlways listens otherwise
	}
	for {
		select {
		case <-k.notified:
		case _, open := <-changes:
			if !open {
				changes = nil
				continue
			}
		case <-ctx.Done():
			loops.Wait()
			return
		}
		for _, f := range followers {
			f.Notify()
		}
	}
}

// followPause is the minimum delay between a change and the run that follows it.
const followPause = 10 * time.Millisecond

// Under load there is a change every few milliseconds, and each repeats what the
// next will say about a document. A debounced loop follows the first few
// immediately, as for a small document, and then one per debouncePause: what users
// watch is never older than that. In measurements, folding was a twentieth of the
// service's work around parsing.
const (
	debouncePause = 60 * time.Millisecond
	debounceBurst = 6 // runs that follow immediately after a quiet time
)

// foldsApart is the minimum interval between two folds of a document that only move
// its progress. On a fleet with tasks of a tenth of a second, these were half of all
// folds.
const foldsApart = 250 * time.Millisecond

// run repeats one loop. A step that changed a full batch is repeated after a short
// pause, so that a backlog drains without a flood.
func (k *Keeper) run(ctx context.Context, l *loop, changed <-chan struct{}) {
	if l.late {
		if pause(ctx, jitter(l.every)); ctx.Err() != nil {
			return
		}
	}
	var burstOver time.Time // when a debounced loop has its whole burst again
	for {
		begun := time.Now()
		n, err := k.step(ctx, l)
		l.counts.Runs.Add(1)
		l.counts.Changed.Add(int64(n))
		took := time.Since(begun)
		l.counts.LastMS.Store(took.Milliseconds())
		if k.cfg.Ran != nil {
			k.cfg.Ran(l.name, took)
		}
		wait, changes := jitter(l.every), changed
		if err != nil && ctx.Err() == nil {
			l.counts.Failed.Add(1)
			k.cfg.Log.Warn("keeper loop failed; retrying", "loop", l.name, "error", err)
		} else if n >= batch {
			wait, changes = 20*time.Millisecond, nil // a backlog is not drained at the pace of following changes
		}
		// A window that runs empty is refilled in time, but running takes at most half
		// of the time.
		limit := l.every
		if l.nextFunc != nil && err == nil {
			if d := l.nextFunc(); d > 0 {
				limit = max(followPause, took, d)
				wait = min(wait, limit)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changes:
			timer.Stop()
			took -= min(took, (time.Since(begun)-took)/4) // time already waited counts: after a quiet time a run follows soon
			// Changes come in bursts; a short wait lets one run see them all. It grows
			// with a run's cost, so that under load a loop spends at most a fifth of
			// the time following changes, and reacts fast when there is little to do.
			follow := min(max(followPause, 4*took), limit)
			if l.debounced {
				now := time.Now()
				if burstOver.Before(now) {
					burstOver = now
				}
				burstOver = burstOver.Add(debouncePause)
				follow = max(follow, min(burstOver.Sub(now)-debounceBurst*debouncePause, l.every))
			}
			pause(ctx, follow)
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// stepLimit bounds one run of a loop: a hung run is abandoned and restarted.
const stepLimit = time.Minute

func (k *Keeper) step(ctx context.Context, l *loop) (int, error) {
	ctx, cancel := context.WithTimeout(taskstore.CountRows(ctx, &l.counts.Scanned), cmp.Or(l.limit, stepLimit))
	defer cancel()
	return l.step(ctx)
}

// notice makes the store forget what it fed to lanes whose memory the queue has lost
// since the last check by any keeper. Lanes whose engine is down are left alone.
func (k *Keeper) notice(ctx context.Context) error {
	now, err := k.cfg.Queue.RunIDs(ctx)
	if err != nil {
		return err
	}
	known := k.knownRuns
	if known == nil {
		text, err := k.cfg.Store.Meta(ctx, taskstore.QueueRunsKey)
		if err != nil {
			return err
		}
		k.noted, known = text, map[sheaf.Lane]string{}
		_ = json.Unmarshal([]byte(text), &known) // unreadable means unknown
	}
	k.knownRuns = nil // until all below has worked
	// guard: run id: a queue that lost its memory is fed again
	if lost := unlike(known, now); len(lost) > 0 {
		maps.Copy(known, now)
		b, _ := json.Marshal(known) // plain strings always encode
		n, err := k.cfg.Store.ForgetEnqueued(ctx, lost, string(b))
		if err != nil {
			return err
		}
		k.noted = string(b)
		k.cfg.Log.Info("the queue is new or has lost its memory; feeding it again", "lanes", lost, "pending", n)
	}
	k.knownRuns = known
	if len(unlike(k.sharedWith, now)) > 0 {
		k.shared = map[string]taskstore.TenantLoad{}
	}
	maps.Copy(k.sharedWith, now)
	return nil
}

// unlike returns the lanes whose run id has changed, in order.
func unlike(known, now map[sheaf.Lane]string) (lanes []sheaf.Lane) {
	for lane, run := range now {
		if known[lane] != run {
			lanes = append(lanes, lane)
		}
	}
	slices.Sort(lanes)
	return lanes
}

// shares sends the queue the weights and caps of tenants with work, and reports
// whether it accepted them.
func (k *Keeper) shares(ctx context.Context, tenants []taskstore.TenantLoad) bool {
	if len(k.shared) > maxShared {
		k.shared = map[string]taskstore.TenantLoad{} // sent again, which is cheap
	}
	for _, t := range tenants {
		if k.shared[t.TenantID] == t {
			continue
		}
		if err := k.cfg.Queue.SetShare(ctx, t.TenantID, t.Weight, t.Cap); err != nil {
			// Retried at the next run. Until then the queue's default applies, which is
			// no reason to withhold the work.
			k.cfg.Log.Warn("could not update a tenant's share in the queue", "tenant", t.TenantID, "error", err)
			return false
		}
		k.shared[t.TenantID] = t
	}
	return true
}

// maxShared bounds the size of the shared map.
const maxShared = 100_000

func (k *Keeper) promote(ctx context.Context) (int, error) {
	p, err := k.cfg.Store.PromoteDue(ctx, batch)
	k.dueIn = p.NextIn
	if len(p.Tasks) > 0 {
		_ = k.cfg.Queue.Notify(ctx) // only a wake-up
		k.Notify()
	}
	if k.cfg.Promoted != nil {
		for _, t := range p.Tasks {
			k.cfg.Promoted(t.Lane, t.Late)
		}
	}
	return len(p.Tasks), err
}

func (k *Keeper) reap(ctx context.Context) (int, error) {
	p := taskstore.ReapPolicy{MaxLost: k.cfg.MaxLost, MaxJitter: k.cfg.ReapJitter, WorkerTimeout: k.cfg.WorkerTimeout}
	if jumped, err := k.watchClock(ctx); err != nil || jumped {
		k.reapFailed = err != nil
		k.reaped = time.Now()
		return 0, err
	}
	// During a store outage no executor could report. Silence is meaningful only if the
	// keeper itself reached the store for as long: otherwise the end of an outage would
	// take every running task from healthy executors.
	now := time.Now()
	if k.reapFailed || !k.reaped.IsZero() && now.Sub(k.reaped) > k.cfg.WorkerTimeout/2+k.cfg.ReapEvery {
		k.steadySince = now
	}
	if now.Sub(k.steadySince) < k.cfg.WorkerTimeout {
		p.WorkerTimeout = 0
	}
	// A dead executor does not release its tenants' cap slots: a tenant at its cap
	// would otherwise wait for reconciliation.
	p.TakenFunc = func(tenantID, taskID string) {
		if err := k.cfg.Queue.Done(ctx, tenantID, taskID); err != nil {
			k.cfg.Log.Debug("the place of a lost task was not freed; reconciliation will", "task", taskID, "error", err)
		}
	}
	n, err := k.cfg.Store.Reap(ctx, p, batch)
	k.reaped, k.reapFailed = time.Now(), err != nil
	if n > 0 {
		k.cfg.Log.Warn("recovered tasks from executors that are gone", "tasks", n)
		_ = k.cfg.Queue.Notify(ctx) // only a wake-up
		k.Notify()
	}
	if err != nil {
		return n, err
	}
	m, err := k.cfg.Store.HardCancel(ctx, k.cfg.CancelGrace, batch)
	return max(n, m), err
}

// clockStep is how much the store's clock may gain before it counts as a jump: more
// than a slow reply explains.
const clockStep = 5 * time.Second

// watchClock reports whether the store's clock has just jumped ahead, which makes
// every lease look expired. Executors then get WorkerTimeout to renew theirs. Loops
// that remove old data call it first, so that nothing is removed for an age it does
// not have.
func (k *Keeper) watchClock(ctx context.Context) (jumped bool, err error) {
	k.clockMu.Lock()
	defer k.clockMu.Unlock()
	clock, back, err := k.cfg.Store.WatchClock(ctx)
	if err != nil {
		return false, err
	}
	now := time.Now()
	ahead := time.Duration(0)
	if !k.clockRead.IsZero() {
		ahead = clock.Sub(k.clock) - now.Sub(k.clockRead)
	}
	const advice = "let NTP slew the clock of the database's host instead of setting it"
	if ahead > clockStep {
		if err := k.cfg.Store.ClockJumped(ctx, ahead); err != nil {
			return false, err // retried at the next look, which finds the same jump
		}
		k.clockSince = now
		k.clockAhead += ahead
		k.cfg.Log.Warn("the database's clock jumped ahead; running tasks are left to their executors until those could renew their leases, and what would now be removed for its age is kept for as long; "+advice, "by", ahead)
	}
	if back > 0 {
		k.clockAhead = max(k.clockAhead-back, 0)
		k.cfg.Log.Warn("the database's clock went back; what was due later by it was brought back with it; "+advice, "by", back)
	}
	k.clock, k.clockRead = clock, now
	return now.Sub(k.clockSince) < k.cfg.WorkerTimeout, nil
}

func (k *Keeper) fold(ctx context.Context) (int, error) {
	if k.folding != nil && time.Since(k.rankedAt) >= rankEvery {
		rank, of, err := k.cfg.Store.FoldRank(ctx, k.id, foldLife)
		if err != nil {
			return 0, err
		}
		k.rank, k.of, k.rankedAt = rank, of, time.Now()
	}
	n, left, err := k.foldShare(ctx)
	k.refoldIn = 0
	if left {
		k.refoldIn = foldsApart
	}
	if n > 0 {
		_ = k.cfg.Queue.Notify(ctx) // a finalize task may have appeared
		if k.cfg.Feeds {
			k.Notify()
		}
	}
	return n, err
}

// foldBatch is how many documents one run folds: enough for a thousand per second.
const foldBatch = 2 * batch

func (k *Keeper) foldShare(ctx context.Context) (int, bool, error) {
	if k.of == 1 {
		return k.cfg.Store.Fold(ctx, foldBatch, foldsApart)
	}
	return k.cfg.Store.FoldShare(ctx, k.rank, k.of, foldBatch, foldsApart)
}

// slow runs backstops that should never be needed but must exist.
func (k *Keeper) slow(ctx context.Context) (int, error) {
	n, err := k.cfg.Store.WakeParked(ctx, batch)
	if err != nil {
		return n, err
	}
	running, err := k.cfg.Store.Running(ctx)
	if err != nil {
		return n, err
	}
	return n, k.cfg.Queue.Reconcile(ctx, running)
}

// collect removes from the index and the blob store what no generation lists, and
// completes deletions.
func (k *Keeper) collect(ctx context.Context) (int, error) {
	if _, err := k.watchClock(ctx); err != nil {
		return 0, err
	}
	if _, err := k.cfg.Store.ExpireUploads(ctx, batch); err != nil { // what they leave is garbage
		return 0, err
	}
	if _, err := k.cfg.Store.CloseIdleJobs(ctx, batch); err != nil {
		return 0, err
	}
	purged, err := k.cfg.Store.PurgeDeleted(ctx, batch)
	if err != nil {
		return 0, err
	}
	collected, err := k.collectGarbage(ctx)
	if err != nil {
		return 0, err
	}
	settled, err := k.cfg.Store.SettleReceipts(ctx, batch, k.cfg.Sign)
	return max(purged, collected, settled), err
}

// collectGarbage counts what is covered by a receipt, and removes garbage. An entry
// is dropped only after everything it names is gone.
func (k *Keeper) collectGarbage(ctx context.Context) (int, error) {
	entries, err := k.cfg.Store.Garbage(ctx, batch)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	if err := k.count(ctx, entries); err != nil {
		return 0, err
	}
	ranges := map[string][]string{}
	var keys []string
	for _, g := range entries {
		switch {
		case g.RangeID != "":
			ranges[g.TenantID] = append(ranges[g.TenantID], g.RangeID)
			if g.ArtifactKey != "" {
				keys = append(keys, g.ArtifactKey)
			}
		case strings.HasSuffix(g.BlobPrefix, "/"):
			if _, err := k.cfg.Blobs.DeletePrefix(ctx, g.BlobPrefix); err != nil {
				return 0, err
			}
		case g.BlobPrefix != "": // one object
			keys = append(keys, g.BlobPrefix)
		case g.ArtifactKey != "":
			keys = append(keys, g.ArtifactKey)
		default:
			if err := k.cfg.Index.DeleteDocument(ctx, g.TenantID, g.DocumentID); err != nil {
				return 0, err
			}
		}
	}
	for tenant, ids := range ranges {
		if err := k.cfg.Index.DeleteRanges(ctx, tenant, ids); err != nil {
			return 0, err
		}
	}
	if k.cfg.Copies != nil {
		for _, key := range slices.Clone(keys) {
			keys = append(keys, k.cfg.Copies(key)...)
		}
	}
	if err := k.cfg.Blobs.Delete(ctx, keys...); err != nil {
		return 0, err
	}
	done := make([]int64, len(entries))
	for i, g := range entries {
		done[i] = g.ID
	}
	return len(entries), k.cfg.Store.GarbageDone(ctx, done)
}

// count records what is under entries in their receipts before it is removed: a
// count lost with a process could not be repeated.
func (k *Keeper) count(ctx context.Context, entries []taskstore.Garbage) error {
	var found []taskstore.GarbageCount
	refreshed := false
	for _, g := range entries {
		if g.ReceiptID == "" || g.Counted || g.RangeID != "" {
			continue
		}
		c := taskstore.GarbageCount{ID: g.ID}
		switch {
		case strings.HasSuffix(g.BlobPrefix, "/"):
			err := k.cfg.Blobs.List(ctx, g.BlobPrefix, func(o blob.Info) bool {
				c.Objects++
				c.Bytes += o.Size
				return true
			})
			if err != nil {
				return err
			}
		case g.BlobPrefix != "":
			o, err := k.cfg.Blobs.Stat(ctx, g.BlobPrefix)
			switch {
			case err == nil:
				c.Objects, c.Bytes = 1, o.Size
			case !errors.Is(err, sheaf.ErrNotFound):
				return err
			}
		default:
			if !refreshed { // include recent writes
				if err := k.cfg.Index.Refresh(ctx); err != nil {
					return err
				}
				refreshed = true
			}
			var err error
			if c.Chunks, c.Vectors, err = k.cfg.Index.CountDocument(ctx, g.TenantID, g.DocumentID); err != nil {
				return err
			}
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		return nil
	}
	return k.cfg.Store.CountGarbage(ctx, found)
}

func (k *Keeper) cleanup(ctx context.Context) (int, error) {
	if _, err := k.watchClock(ctx); err != nil {
		return 0, err
	}
	k.clockMu.Lock()
	retention := k.cfg.Retention + k.clockAhead // after a jump ahead, all history looks old
	k.clockMu.Unlock()
	r, err := k.cfg.Store.Cleanup(ctx, retention, 1000, false)
	n := r.Events + r.Tasks + r.Workers + r.Idempotency + r.Deliveries + r.Jobs
	if n >= 1000 {
		return batch, err // more may be left: come back soon
	}
	return min(n, batch-1), err
}

func jitter(d time.Duration) time.Duration {
	return time.Duration((0.75 + rand.Float64()/2) * float64(d))
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
