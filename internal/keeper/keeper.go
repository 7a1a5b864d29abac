// Package keeper runs the loops that keep the pipeline moving between the
// executors' steps: it feeds the queue, promotes what is due, takes tasks from
// executors that are gone, folds progress, and collects what nobody needs. One
// process leads at a time, as an economy: every loop is made of guarded,
// idempotent statements, so two leaders only waste work.
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

// Config holds the keeper's parts and periods; zero means the default named
// beside a field.
type Config struct {
	Store  Store
	Queue  queue.Queue
	Index  index.Index
	Blobs  blob.Store
	Leader queue.Leader
	Log    *slog.Logger

	// Feeds says that the queue holds hints of its own, so that they must be
	// fed to it; a queue that reads the store needs only notifications.
	Feeds bool
	// Sole says that no other process shares the store: what is running when
	// the keeper starts is left over from a process that died.
	Sole bool

	// Shared says that other processes share the store: each keeper folds some of
	// the documents then, whether it leads or not.
	Shared bool

	// Audit goes on for a while with comparing database, index and blobs, or begins
	// where that is due, changes nothing, and says whether there is more to do at
	// once. It runs on the keeper that leads. May be nil.
	Audit func(ctx context.Context) (more bool, err error)
	// Sign signs the receipt of a deletion that is complete. May be nil: then
	// receipts are not signed.
	Sign func(*taskstore.Receipt) error
	// Fill fills the index that is lost or being replaced, for a while, and says
	// whether there is more to do at once. May be nil.
	Fill func(ctx context.Context) (more bool, err error)
	// Copies are the keys of what else is stored of a result. May be nil.
	Copies func(artifactKey string) []string
	// Tell sends messages to webhooks and says how many. May be nil.
	Tell func(ctx context.Context) (int, error)
	// Leads is told when a term begins and ends. May be nil.
	Leads func(leads bool)
	// Evaluate asks saved queries where search may answer otherwise than before,
	// and says whether there is more to look at. May be nil.
	Evaluate func(ctx context.Context) (more bool, err error)
	// Rerun begins the runs over datasets that are due, and says how many. May be
	// nil.
	Rerun func(ctx context.Context) (int, error)
	// Measure exports what waits, and with population what there is. It
	// runs on the keeper that leads, so that one process tells of all. May be nil.
	Measure func(ctx context.Context, population bool) error
	// Promoted is told of each task that had waited for its time, and how long
	// after that time it was promoted. May be nil.
	Promoted func(lane sheaf.Lane, late time.Duration)
	// Ran is told how long each run of a loop took. May be nil.
	Ran func(loop string, took time.Duration)

	FeedEvery     time.Duration // default 500 ms
	Window        int           // hints a tenant and lane may have in the queue, default 256
	RequeueAfter  time.Duration // a hint not claimed for this long is published again, default 5 min
	PromoteEvery  time.Duration // default 500 ms; what is known to be due is promoted in time
	ReapEvery     time.Duration // default 1 s
	WorkerTimeout time.Duration // an executor silent for this long is gone, default 6 s: three missed heartbeats
	MaxLost       int           // default 3
	ReapJitter    time.Duration // default 1 s
	CancelGrace   time.Duration // default 30 s
	FoldEvery     time.Duration // default 1 s
	SlowEvery     time.Duration // parked backstop and reconciliation, default 60 s
	CollectEvery  time.Duration // default 5 s
	FillEvery     time.Duration // how soon what an operator asks of the index is begun; default 2 s
	EvaluateEvery time.Duration // default 30 s
	CleanupEvery  time.Duration // default 1 h
	AuditEvery    time.Duration // 0 means never
	CompactEvery  time.Duration // 0 means never
	MeasureEvery  time.Duration // default 5 s
	Retention     time.Duration // of events, old tasks, idempotency keys; default 7 days
}

// batch is how many rows one statement of a loop may touch: small enough that
// a loop never holds locks for long.
const batch = 100

// sumEvery is how far the sums of minutes are behind the log.
const sumEvery = 5 * time.Second

// tellEvery is how long a message to a webhook may wait for the loop.
const tellEvery = time.Second

// rerunEvery is how long a run that is due may wait for the loop.
const rerunEvery = 10 * time.Second

// Keeper runs the loops. Its counters may be read at any time.
type Keeper struct {
	cfg      Config
	id       string // among those who fold
	notified notify.Signal
	loops    []*loop
	folding  *loop         // runs without leading; nil where the leader folds
	refold   notify.Signal // of folding

	// What this keeper folds, of the fold loop.
	rank, of int
	rankedAt time.Time

	// What the queue was told of tenants' shares, by its run ids;
	// touched by the feed loop alone.
	shared     map[string]taskstore.TenantLoad
	sharedWith map[sheaf.Lane]string
	fedTo      string // the tenant at which the last run stopped, "" where it reached the end
	fedAt      time.Time
	emptyIn    time.Duration // how soon the fullest window is half empty, 0 for unknown

	measured, populated time.Duration // how long the measure loop took last, without and with the population
	measuredAt          time.Time     // when it began last
	populatedAt         time.Time

	dueIn    time.Duration // of the promote loop: when the next task is due, 0 for unknown
	refoldIn time.Duration // of the fold loop: when to look again at what it left, 0 for nothing

	// Of the reap loop: when it last ran, whether that failed, and since when
	// the store has answered without a gap.
	reaped      time.Time
	reapFailed  bool
	steadySince time.Time

	// The store's clock when it was last read, since when it has gone as fast as
	// time does, and by how much it was seen to jump ahead in all.
	clockMu    sync.Mutex
	clock      time.Time
	clockRead  time.Time
	clockSince time.Time
	clockAhead time.Duration
}

// loop is one periodic duty.
type loop struct {
	name      string
	every     time.Duration
	limit     time.Duration // of one run, against an engine that hangs; 0 means a minute
	late      bool          // waits before its first run too: at every start would be too often
	follows   bool          // also runs when something changed, in this process or in another
	debounced bool          // such runs are debouncePause apart under steady change
	step      func(ctx context.Context) (int, error)
	nextFunc  func() time.Duration // how soon what the last run left is due, 0 for unknown; nil when nothing is left
	counts    Counts
}

// Counts says what a loop has done since the process started.
type Counts struct {
	Runs    atomic.Int64
	Changed atomic.Int64
	Scanned atomic.Int64 // rows that its statements read
	Failed  atomic.Int64
	LastMS  atomic.Int64 // how long the last run took
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
			return min(n, batch-1), err // what is due was looked at whole
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

// Loops reports the counters by loop name.
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

// Run campaigns for leadership and, while it leads, runs the loops. It
// returns when ctx ends.
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

// foldAlways folds this keeper's share, whoever leads.
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

// A keeper is believed to fold its share for foldLife after it said so, which it
// does each rankEvery.
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
	var loops sync.WaitGroup
	var followers []notify.Signal
	for _, l := range k.loops {
		changed := notify.NewSignal()
		if l.follows {
			followers = append(followers, changed)
		}
		loops.Go(func() { k.run(ctx, l, changed) })
	}
	changes := k.cfg.Queue.Changes(ctx) // in other processes
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

// followPause is the shortest time between a change and the run that follows it.
const followPause = 10 * time.Millisecond

// Under load there is a change every few milliseconds, and each says of a
// document what the next will say again. A debounced loop follows the first few
// at once, as a small document makes, and then one in debouncePause: what people
// watch is not older than that. Measured, folding was a twentieth of what the
// service does around parsing.
const (
	debouncePause = 60 * time.Millisecond
	debounceBurst = 6 // runs that follow at once after a quiet time
)

// foldsApart is between two folds of a document that only move its progress. On
// a fleet whose tasks took a tenth of a second, half of all folds were such.
const foldsApart = 250 * time.Millisecond

// run repeats one loop. A step that changed a full batch is repeated at once,
// with a short pause, so that a backlog drains without a flood.
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
		wait := jitter(l.every)
		if err != nil && ctx.Err() == nil {
			l.counts.Failed.Add(1)
			k.cfg.Log.Warn("keeper loop failed; retrying", "loop", l.name, "error", err)
		} else if n >= batch {
			wait = 20 * time.Millisecond
		}
		// What runs out is filled up in time, and still for no more than half of
		// the time.
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
		case <-changed:
			timer.Stop()
			took -= min(took, (time.Since(begun)-took)/4) // what was waited already counts: after a quiet time a run follows soon
			// Changes come in bursts; a wait lets one run see them all. It grows
			// with what a run costs, so that under load a loop follows changes
			// for a fifth of the time at most, and soon when there is little.
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

// stepLimit bounds one run of a loop: what hangs is given up and begun again.
const stepLimit = time.Minute

func (k *Keeper) step(ctx context.Context, l *loop) (int, error) {
	ctx, cancel := context.WithTimeout(taskstore.CountRows(ctx, &l.counts.Scanned), cmp.Or(l.limit, stepLimit))
	defer cancel()
	return l.step(ctx)
}

// runIDKey is where the store remembers which run of the queue it fed, by lane,
// as JSON.
const runIDKey = "queue_incarnation"

// notice makes the store forget what it fed to lanes whose memory the queue has
// lost since any keeper looked. Lanes whose engine is away are left as they are.
func (k *Keeper) notice(ctx context.Context) error {
	now, err := k.cfg.Queue.RunIDs(ctx)
	if err != nil {
		return err
	}
	text, err := k.cfg.Store.Meta(ctx, runIDKey)
	if err != nil {
		return err
	}
	known := map[sheaf.Lane]string{}
	_ = json.Unmarshal([]byte(text), &known) // what cannot be read is unknown
	// guard: run id: a queue that lost its memory is fed again
	if lost := unlike(known, now); len(lost) > 0 {
		n, err := k.cfg.Store.ForgetEnqueued(ctx, lost)
		if err != nil {
			return err
		}
		maps.Copy(known, now)
		b, _ := json.Marshal(known) // plain strings always encode
		if err := k.cfg.Store.SetMeta(ctx, runIDKey, string(b)); err != nil {
			return err
		}
		k.cfg.Log.Info("the queue is new or has lost its memory; feeding it again", "lanes", lost, "pending", n)
	}
	if len(unlike(k.sharedWith, now)) > 0 {
		k.shared = map[string]taskstore.TenantLoad{}
	}
	maps.Copy(k.sharedWith, now)
	return nil
}

// unlike are the lanes whose run id is another now, in order.
func unlike(known, now map[sheaf.Lane]string) (lanes []sheaf.Lane) {
	for lane, run := range now {
		if known[lane] != run {
			lanes = append(lanes, lane)
		}
	}
	slices.Sort(lanes)
	return lanes
}

// shares tells the queue the weights and caps of tenants with work, and whether
// it took them.
func (k *Keeper) shares(ctx context.Context, tenants []taskstore.TenantLoad) bool {
	if len(k.shared) > maxShared {
		k.shared = map[string]taskstore.TenantLoad{} // told again, which costs little
	}
	for _, t := range tenants {
		if k.shared[t.TenantID] == t {
			continue
		}
		if err := k.cfg.Queue.SetShare(ctx, t.TenantID, t.Weight, t.Cap); err != nil {
			// Told again at the next look. Until then the queue's default holds,
			// which is no reason to keep the work from it.
			k.cfg.Log.Warn("could not update a tenant's share in the queue", "tenant", t.TenantID, "error", err)
			return false
		}
		k.shared[t.TenantID] = t
	}
	return true
}

// maxShared bounds the memory of the shares that the queue was told.
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
	// While the store was away nobody could report. Silence means something
	// only where the keeper itself was heard for as long: else the end of an
	// outage would take every running task from executors that are well.
	now := time.Now()
	if k.reapFailed || !k.reaped.IsZero() && now.Sub(k.reaped) > k.cfg.WorkerTimeout/2+k.cfg.ReapEvery {
		k.steadySince = now
	}
	if now.Sub(k.steadySince) < k.cfg.WorkerTimeout {
		p.WorkerTimeout = 0
	}
	// A dead executor frees no place under its tenants' caps: a tenant whose
	// cap it filled would wait for the reconciliation.
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

// clockStep is how much the store's clock may gain on time without being said
// to have jumped: more than a slow answer explains.
const clockStep = 5 * time.Second

// watchClock reports whether the store's clock has just jumped ahead, so that
// every lease looks as if it had ended. The executors have then the time to
// renew theirs that a silent one has to show itself. Loops that remove what is
// old call it first, so that nothing goes for an age that it does not have.
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
			return false, err // told again by the next look, which finds the same jump
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

// foldBatch is how many documents a run folds: enough for a thousand a second.
const foldBatch = 2 * batch

func (k *Keeper) foldShare(ctx context.Context) (int, bool, error) {
	if k.of == 1 {
		return k.cfg.Store.Fold(ctx, foldBatch, foldsApart)
	}
	return k.cfg.Store.FoldShare(ctx, k.rank, k.of, foldBatch, foldsApart)
}

// slow runs backstops: what should never be needed and must not be missing.
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

// collect removes from the index and the blob store what no generation lists,
// and brings deletions to their end.
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

// collectGarbage counts what somebody has a receipt for and removes it. An
// entry is forgotten only after everything it names is gone.
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

// count writes what is under entries into their receipts, before it is removed:
// a count that was lost with a process could not be made again.
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
			if !refreshed { // what was written a moment ago counts too
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
	retention := k.cfg.Retention + k.clockAhead // by a clock that jumped ahead all history looks old
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
