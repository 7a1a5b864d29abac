package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"sheaf"
	"sheaf/internal/keeper"
	"sheaf/internal/queue"
	"sheaf/internal/queue/redisstream"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/internal/worker"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// bare is the real store, queue, keeper and executor around tasks that do only what
// a measurement needs.
type bare struct {
	store   *sqlstore.Store
	queue   queue.Queue
	feeds   bool
	workers int
	batch   int // tasks held for each of them, 0 for the executor's default
	// parse is the work of a standard task; it may be nil. It is called with the
	// claim just won.
	parse func(ctx context.Context, t *sheaf.Task)
	// ended is called with each task about to be completed.
	ended func(t *sheaf.Task)
	// promoted is called with how long after its due time each waiting task was
	// queued. It may be nil.
	promoted func(lane sheaf.Lane, late time.Duration)
	pids     []int  // of the engines
	dsn      string // of a server's store
	redis    redisstream.Config
}

// spent is the cost of work on tasks.
type spent struct {
	tasks   int
	wall    time.Duration
	cpu     time.Duration   // of this process: executor, keeper and queue
	engines []time.Duration // CPU of each of bare.pids
}

func (s spent) rate() float64 { return float64(s.tasks) / s.wall.Seconds() }

// each returns CPU-ms per task.
func (s spent) each(cpu time.Duration) float64 { return cpu.Seconds() * 1e3 / float64(s.tasks) }

func (p *bare) close() {
	_ = p.queue.Close()
	_ = p.store.Close()
}

// openStore opens a store with the schema of this version.
func openStore(ctx context.Context, c sqlstore.Config) (*sqlstore.Store, error) {
	store, err := sqlstore.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// embedded returns the parts of the default: SQLite and the queue on it.
func (b *bench) embedded(ctx context.Context, name string) (*bare, error) {
	store, err := openStore(ctx, sqlstore.Config{Driver: "sqlite", DSN: filepath.Join(b.tmp, name, "sheaf.db")})
	if err != nil {
		return nil, err
	}
	return &bare{store: store, queue: sqlqueue.New(store, sqlqueue.Config{}), workers: 6}, nil
}

// tenant creates a tenant with a dataset named after it.
func (p *bare) tenant(ctx context.Context, id string, weight, most int) error {
	if _, err := p.store.CreateTenant(ctx, sheaf.Tenant{ID: id, Name: id, Weight: weight, Cap: most}); err != nil {
		return err
	}
	_, err := p.store.CreateDataset(ctx, sheaf.Dataset{ID: "ds-" + id, TenantID: id, Name: "bench"})
	return err
}

// document creates a document whose plan will yield n tasks of one page each. It
// returns the id of the plan.
func (p *bare) document(ctx context.Context, tenant string, n int) (planID string, err error) {
	return p.later(ctx, tenant, n, time.Time{})
}

// later is document with a plan scheduled for a time, unless that is zero.
func (p *bare) later(ctx context.Context, tenant string, n int, at time.Time) (planID string, err error) {
	id, payload := sheaf.NewID(), json.RawMessage(fmt.Sprint(n))
	planID = sheaf.NewID()
	_, err = p.store.CreateDocuments(ctx, sheaf.Job{ID: sheaf.NewID(), TenantID: tenant, DatasetID: "ds-" + tenant, Kind: sheaf.JobIngest, NotBefore: at}, []taskstore.NewDocument{{
		Document: sheaf.Document{ID: id, Name: id + ".pdf", MediaType: pdfType, Size: 1, SHA256: id + id, BlobKey: "originals/" + id},
		Plan:     sheaf.NewTask{ID: planID, Kind: sheaf.KindPlan, Cost: 1, Payload: payload},
	}}, "")
	return planID, err
}

// planned creates a document and plans it at once.
func (p *bare) planned(ctx context.Context, tenant string, n int) error {
	id, err := p.document(ctx, tenant, n)
	if err != nil {
		return err
	}
	t, err := p.store.Claim(ctx, id, "bench", time.Minute)
	if err != nil {
		return err
	}
	done, err := split(ctx, t)
	if err != nil {
		return err
	}
	return p.store.Complete(ctx, t.Held(), done)
}

func split(_ context.Context, t *sheaf.Task) (done taskstore.Completion, err error) {
	var n int
	if err := json.Unmarshal(t.Payload, &n); err != nil {
		return done, err
	}
	done.Plan = &sheaf.PlanResult{Parser: "bench/1", Unit: sheaf.UnitPage, Units: n}
	done.Spawn = make([]sheaf.NewTask, n)
	for i := range done.Spawn {
		done.Spawn[i] = sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: sheaf.UnitPage, Range: sheaf.Range{From: i + 1, To: i + 1}, Cost: 1,
			ReuseKey: sheaf.NewID(), Digest: "0123456789abcdef", Payload: json.RawMessage(`{"format":"bench"}`)}
	}
	return done, nil
}

type processor func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error)

func (f processor) Process(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
	return f(ctx, t)
}

// run starts the keeper and one executor and returns a function that stops them and
// waits.
func (p *bare) run(ctx context.Context, withKeeper bool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	note := func(t *sheaf.Task, done taskstore.Completion, err error) (taskstore.Completion, error) {
		if err == nil && p.ended != nil {
			p.ended(t)
		}
		return done, err
	}
	cfg := worker.Config{
		Store: p.store, Queue: p.queue, Workers: p.workers, Batch: p.batch,
		Processors: map[sheaf.TaskKind]worker.Processor{
			sheaf.KindPlan: processor(func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
				done, err := split(ctx, t)
				return note(t, done, err)
			}),
			sheaf.KindParse: processor(func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
				if p.parse != nil {
					p.parse(ctx, t)
				}
				id := sheaf.RangeID(t.ID, t.Epoch)
				return note(t, taskstore.Completion{Result: sheaf.TaskResult{RangeID: id, ArtifactKey: sheaf.ArtifactKey(t.TenantID, t.DocumentID, id), Chunks: 1, Tokens: 100,
					Ledger: sheaf.Ledger{{From: t.Range.From, To: t.Range.To, Status: sheaf.UnitOK}}, Usage: sheaf.Usage{Pages: 1, Tokens: 100, EmbeddedTokens: 100},
					Stages: []sheaf.StageTime{{Name: "parse", MS: 1}, {Name: "chunk", MS: 1}, {Name: "embed", MS: 1}, {Name: "index", MS: 1}}}}, nil)
			}),
			sheaf.KindFinalize: processor(func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
				return note(t, taskstore.Completion{Publish: &taskstore.Publication{State: sheaf.DocSucceeded, Chunks: 1, Tokens: 100, Ledger: sheaf.LedgerCounts{OK: 1}}}, nil)
			}),
		},
	}
	if withKeeper {
		k := keeper.New(keeper.Config{Store: p.store, Queue: p.queue, Feeds: p.feeds, Promoted: p.promoted})
		cfg.Changed = func(bool) { k.Notify() }
		all.Go(func() { _ = k.Run(ctx) }) // ends with ctx
	}
	e := worker.New(cfg)
	all.Go(func() { _ = e.Run(ctx, nil) })
	return func() { cancel(); all.Wait() }
}

// cycles runs documents of no-op tasks from queued to published.
func (p *bare) cycles(ctx context.Context, tenants, documents, each int) (spent, error) {
	return p.work(ctx, tenants, documents, sheaf.KindFinalize, documents, documents*(each+2), func(tenant string) error {
		_, err := p.document(ctx, tenant, each)
		return err
	})
}

// claims runs the no-op tasks of planned documents from hinted to done.
func (p *bare) claims(ctx context.Context, tenants, documents, each int) (spent, error) {
	return p.work(ctx, tenants, documents, sheaf.KindParse, documents*each, documents*each, func(tenant string) error { return p.planned(ctx, tenant, each) })
}

// work creates documents for tenants that share the workers evenly, and works until
// that many tasks of kind last have ended; tasks is the total number of tasks.
func (p *bare) work(ctx context.Context, tenants, documents int, last sheaf.TaskKind, ends, tasks int, document func(tenant string) error) (spent, error) {
	for i := range tenants {
		if err := p.tenant(ctx, fmt.Sprintf("t%d", i), 1, 1000); err != nil {
			return spent{}, err
		}
	}
	for i := range documents {
		if err := document(fmt.Sprintf("t%d", i%tenants)); err != nil {
			return spent{}, err
		}
	}
	var ended atomic.Int64
	over := make(chan struct{})
	p.ended = func(t *sheaf.Task) {
		if t.Kind == last && ended.Add(1) == int64(ends) {
			close(over)
		}
	}
	return p.until(ctx, over, tasks)
}

// until works until over is closed, after that many tasks, and returns the cost. By
// then up to one task per worker has yet to be marked as ended.
func (p *bare) until(ctx context.Context, over <-chan struct{}, tasks int) (spent, error) {
	count := p.counter(tasks)
	stop := p.run(ctx, true)
	defer stop()
	select {
	case <-over:
		return count(), nil
	case <-ctx.Done():
		return spent{}, ctx.Err()
	case <-time.After(3 * time.Minute):
		return spent{}, errors.New("the tasks did not end within 3 minutes")
	}
}

// counter starts counting the cost of work on that many tasks, until count is called.
func (p *bare) counter(tasks int) (count func() spent) {
	cpu := func() []time.Duration {
		used := []time.Duration{cpuTime(os.Getpid())}
		for _, pid := range p.pids {
			used = append(used, cpuTime(pid))
		}
		return used
	}
	begun, before := time.Now(), cpu()
	return func() spent {
		wall, used := time.Since(begun), cpu()
		for i := range used {
			used[i] -= before[i]
		}
		return spent{tasks: tasks, wall: wall, cpu: used[0], engines: used[1:]}
	}
}

// storeCycles measures the whole path of no-op tasks on SQLite.
func (b *bench) storeCycles(ctx context.Context) error {
	p, err := b.embedded(ctx, "cycles")
	if err != nil {
		return err
	}
	defer p.close()
	s, err := p.cycles(ctx, 1, 20, 500)
	if err != nil {
		return err
	}
	b.noop = s.cpu / time.Duration(s.tasks)
	b.atLeast("store.cycles", s.rate(), "tasks/s", 1000, fmt.Sprintf("%d no-op tasks of 20 documents from queued to published on SQLite, %d workers, load %s", s.tasks, p.workers, load()))
	b.tell("store.cycles.cpu", b.noop.Seconds()*1e3, "CPU-ms/task", "plan, queue, claim, complete, events, fold and publish")
	return nil
}

// fairness measures how long the one-page documents of one tenant wait while
// another has 10,000 tasks queued, and how work is shared by weight.
func (b *bench) fairness(ctx context.Context) error {
	if err := b.fairWait(ctx); err != nil {
		return err
	}
	return b.fairShare(ctx)
}

func (b *bench) fairWait(ctx context.Context) error {
	const taskTime, documents = 50 * time.Millisecond, 20
	p, err := b.embedded(ctx, "wait")
	if err != nil {
		return err
	}
	defer p.close()
	for _, id := range []string{"busy", "small"} {
		if err := p.tenant(ctx, id, 1, 100); err != nil {
			return err
		}
	}
	if err := p.planned(ctx, "busy", 10_000); err != nil {
		return err
	}
	p.parse = func(ctx context.Context, t *sheaf.Task) {
		select {
		case <-time.After(taskTime):
		case <-ctx.Done():
		}
	}
	var busy atomic.Int64
	var mu sync.Mutex
	var longest time.Duration
	started, over := make(chan struct{}), make(chan struct{}, documents)
	p.ended = func(t *sheaf.Task) {
		if t.TenantID == "busy" {
			if busy.Add(1) == 2*int64(p.workers) {
				close(started)
			}
			return
		}
		mu.Lock()
		longest = max(longest, t.StartedAt.Sub(t.RunAt))
		mu.Unlock()
		if t.Kind == sheaf.KindFinalize {
			over <- struct{}{}
		}
	}
	defer p.run(ctx, true)()
	wait := func(c <-chan struct{}) error {
		select {
		case <-c:
			return nil
		case <-time.After(30 * time.Second):
			return errors.New("nothing happened for 30 s")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(started); err != nil {
		return err
	}
	var walls []time.Duration
	for range documents {
		begun := time.Now()
		if _, err := p.document(ctx, "small", 1); err != nil {
			return err
		}
		if err := p.queue.Notify(ctx); err != nil { // as an upload does
			return err
		}
		if err := wait(over); err != nil {
			return err
		}
		walls = append(walls, time.Since(begun))
	}
	mu.Lock()
	defer mu.Unlock()
	b.atMost("fairness.wait", longest.Seconds()/taskTime.Seconds(), "task times", 2, fmt.Sprintf("longest wait of a task of %d one-page documents beside 10,000 queued tasks of %v on %d workers", documents, taskTime, p.workers))
	b.tell("fairness.document", median(walls).Seconds()/taskTime.Seconds(), "task times", "such a document from upload to published: plan, page and end, the median")
	return nil
}

func (b *bench) fairShare(ctx context.Context) error {
	p, err := b.embedded(ctx, "share")
	if err != nil {
		return err
	}
	defer p.close()
	weights := map[string]int{"a": 1, "b": 1, "c": 2}
	const counted = 4000
	for id, w := range weights {
		if err := p.tenant(ctx, id, w, 100); err != nil {
			return err
		}
		if err := p.planned(ctx, id, counted); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	served, total := map[string]int{}, 0
	over := make(chan struct{})
	p.parse = func(_ context.Context, t *sheaf.Task) {
		mu.Lock()
		defer mu.Unlock()
		if total == counted {
			return
		}
		served[t.TenantID]++
		if total++; total == counted {
			close(over)
		}
	}
	defer p.run(ctx, true)()
	select {
	case <-over:
	case <-time.After(2 * time.Minute):
		return errors.New("the tasks were not served within 2 minutes")
	case <-ctx.Done():
		return ctx.Err()
	}
	mu.Lock()
	defer mu.Unlock()
	off := 0.0
	for id, w := range weights {
		off = max(off, math.Abs(100*float64(served[id])/counted-25*float64(w)))
	}
	b.atMost("fairness.share", off, "points off", 2, fmt.Sprintf("of %d tasks served by weights 1:1:2: %d, %d and %d", counted, served["a"], served["b"], served["c"]))
	return nil
}
