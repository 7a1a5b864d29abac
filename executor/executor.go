// Package executor implements what each task does, in pipeline order: plan.go cuts a
// document (unpack.go turns an archive's files into documents), range.go processes
// one range up to the index, finalize.go publishes it. Claiming, holding and
// completing tasks is the job of package internal/worker.
package executor

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/edits"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/index"
	"sheaf/internal/indexset"
	"sheaf/internal/queue"
	"sheaf/internal/tagset"
	"sheaf/internal/webhook"
	"sheaf/internal/worker"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// Files makes a blob available on this host.
type Files interface {
	// Fetch returns a path to the object's bytes; release must be called when the path
	// is no longer needed. sha256 and size may be empty and 0.
	Fetch(ctx context.Context, key, sha256 string, size int64) (path string, release func(), err error)
	// FetchBlocks is Fetch for readers that need only a few places: when fill is not
	// nil the file has holes, and fill must be called before bytes are read.
	FetchBlocks(ctx context.Context, key, sha256 string, size int64) (path string, fill blob.Fill, release func(), err error)
}

// Parser reads documents in child processes. *child.Pool is one.
type Parser interface {
	ParseIsolating(ctx context.Context, src child.Source, r sheaf.Range, deadline func(units int) time.Duration, emit func(sheaf.UnitResult) error) error
}

// Store is what tasks read, and where they log.
type Store interface {
	DocumentByID(ctx context.Context, documentID string) (*sheaf.Document, error)
	GenerationTasks(ctx context.Context, documentID string, generation int) ([]sheaf.Task, error)
	FinishedRanges(ctx context.Context, documentID string, generation int) ([]taskstore.FinishedRange, error)
	RangeOutlines(ctx context.Context, documentID string, generation int) ([]taskstore.RangeOutline, error)
	// Inputs lists the tasks that a task depends on.
	Inputs(ctx context.Context, taskID string) ([]sheaf.Task, error)
	AppendEvents(ctx context.Context, c sheaf.Claim, events []sheaf.Event) error
	Edits(ctx context.Context, tenantID, documentID string) ([]taskstore.ChunkEdit, error)
	edits.Reserver
}

// Documents lists the documents of which this process holds something in memory. One
// may be listed twice.
func (e *Executor) Documents() []string {
	return append(e.outlines.documents(), e.recent.documents()...)
}

// Forget drops what this process holds in memory for the documents.
func (e *Executor) Forget(documents []string) {
	e.outlines.forget(documents)
	e.recent.forget(documents)
}

// Observer is told how long stages take.
type Observer interface {
	Stage(kind sheaf.TaskKind, stage string, took time.Duration)
}

// Tracer records spans of stages.
type Tracer interface {
	// Stage starts a span within the context's, and returns the new context and a
	// function that ends the span.
	Stage(ctx context.Context, name string) (context.Context, func(error))
}

// Config holds the dependencies and limits of tasks. Zero durations and counts mean
// the default noted beside them.
type Config struct {
	Store    Store
	Blobs    blob.Store
	Files    Files
	Parser   Parser
	Formats  *parser.Registry
	Index    index.Index
	Embedder embed.Embedder
	// Indexes selects the index and model for a task, in place of Index and Embedder,
	// and the index being built beside it. May be nil.
	Indexes *indexset.Set
	Chat    enrich.Asker // a language model; nil for none
	// ChatBatch is how many chunks one request to Chat covers, default 1.
	ChatBatch int
	// Budget caps what documents spend on Chat, as recorded in Spending; with a nil
	// Spending nothing is recorded or capped.
	Budget   Budget
	Spending SpendStore
	// Services calls users' services for flow nodes; nil allows none.
	Services *webhook.Caller
	Planner  *Planner // nil runs no plans
	// Runs are the kinds of dataset runs this executor handles, using RunStore. May be
	// empty.
	Runs     map[sheaf.TaskKind]RunKind
	RunStore RunStore
	// Tenants are asked for the weights by which tenants share the ParseSlots, the
	// EmbedSlots and the ChatSlots. Nil for equal weights.
	Tenants queue.TenantStore
	Observe Observer // nil for none
	Trace   Tracer   // nil for none
	Log     *slog.Logger

	ParseSlots    int           // tasks planning or parsing at once, default CPUs
	EmbedSlots    int           // tasks embedding at once, default CPUs
	EmbedRemote   bool          // the embedder is a server elsewhere
	ChatSlots     int           // questions to Chat at once, default 4
	IndexSlots    int           // default 2 × CPUs: most of them wait for a commit that serves them all
	Tags          tagset.Limits // of tag sets
	UnitTimeout   time.Duration // per page, in the parse deadline, default 5 s
	ParseTimeout  time.Duration // on top of UnitTimeout × pages, default 20 s
	MaxChunksTask int           // a range that yields more chunks fails, default 50,000
}

func (c *Config) setDefaults() {
	cpus := runtime.GOMAXPROCS(0)
	c.ParseSlots = cmp.Or(c.ParseSlots, cpus)
	c.EmbedSlots = cmp.Or(c.EmbedSlots, cpus)
	c.ChatSlots = cmp.Or(c.ChatSlots, 4)
	c.IndexSlots = cmp.Or(c.IndexSlots, 2*cpus)
	c.UnitTimeout = cmp.Or(c.UnitTimeout, 5*time.Second)
	c.ParseTimeout = cmp.Or(c.ParseTimeout, 20*time.Second)
	c.MaxChunksTask = cmp.Or(c.MaxChunksTask, 50_000)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = noObserver{}
	}
	if c.Trace == nil {
		c.Trace = noTracer{}
	}
}

// Executor holds the processors of one process. It is safe for concurrent use.
type Executor struct {
	cfg      Config
	breakers breakers
	model    *enrich.Model // nil without Chat
	tags     *tagset.Loader
	live     *indexset.Member // of a pinned executor, like beside, which is nil when there is none
	beside   *indexset.Member
	loaders  *sync.Map // tag sets by model id
	outlines *outlines
	recent   *recent
	services *services    // shared by the copies that tasks are pinned to
	parse    *queue.Slots // tasks in each of these stages
	embed    *queue.Slots
	index    *semaphore.Weighted
	running  *atomic.Int64       // tasks in a processor
	runs     *semaphore.Weighted // runs over datasets
	calls    *semaphore.Weighted
}

// New makes an executor.
func New(cfg Config) *Executor {
	cfg.setDefaults()
	weight := queue.WeightOf(cfg.Tenants)
	e := &Executor{
		breakers: guard(&cfg, cfg.Log, weight), cfg: cfg, loaders: &sync.Map{}, services: &services{breakers: map[string]*serviceBreaker{}}, outlines: newOutlines(cfg.Store), running: &atomic.Int64{},
		recent: &recent{store: cfg.Store, docs: map[string]recentDoc{}},
		parse:  queue.NewSlots(cfg.ParseSlots, weight), embed: queue.NewSlots(cfg.EmbedSlots, weight), index: semaphore.NewWeighted(int64(cfg.IndexSlots)), runs: semaphore.NewWeighted(int64(max(runtime.GOMAXPROCS(0), minRuns))), calls: semaphore.NewWeighted(Calls),
	}
	if cfg.Embedder != nil { // tests of one stage have none
		e.tags = &tagset.Loader{Blobs: cfg.Blobs, Model: cfg.Embedder.Model(), Limits: cfg.Tags}
	}
	if cfg.Chat != nil {
		e.model = enrich.NewModel(cfg.Chat, cfg.ChatBatch)
	}
	return e
}

// minRuns is the least number of runs over datasets that an executor works on at
// once; as many as CPUs if there are more.
const minRuns = 2

// Processors returns the processor of each kind of task.
func (e *Executor) Processors() map[sheaf.TaskKind]worker.Processor {
	processors := map[sheaf.TaskKind]worker.Processor{
		sheaf.KindParse:    e.pinned((*Executor).processParse),
		sheaf.KindDataflow: e.pinned((*Executor).processNode),
		sheaf.KindIndex:    e.pinned((*Executor).processIndex),
		sheaf.KindFinalize: e.pinned((*Executor).processFinalize),
	}
	if e.cfg.Planner != nil {
		processors[sheaf.KindPlan] = worker.ProcessorFunc(e.processPlan)
	}
	for kind := range e.cfg.Runs {
		processors[kind] = e.pinned((*Executor).processRun)
	}
	for kind, p := range processors {
		processors[kind] = e.counted(metered(p))
	}
	return processors
}

// counted counts the tasks in p, all of which may write to the index.
func (e *Executor) counted(p worker.Processor) worker.Processor {
	return worker.ProcessorFunc(func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
		e.running.Add(1)
		defer e.running.Add(-1)
		return p.Process(ctx, t)
	})
}

// metered tells the worker the processor time of p's requests to parsers.
func metered(p worker.Processor) worker.Processor {
	return worker.ProcessorFunc(func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
		var m child.Meter
		defer func() { worker.Spend(ctx, m.Spent()) }()
		return p.Process(child.WithMeter(ctx, &m), t)
	})
}

// pinned runs a task with one index and one model from start to end, whichever are
// live when it starts.
func (e *Executor) pinned(process func(*Executor, context.Context, *sheaf.Task) (taskstore.Completion, error)) worker.Processor {
	return worker.ProcessorFunc(func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
		ctx = ofTask(ctx, t)
		if e.cfg.Indexes == nil {
			return process(e, ctx, t)
		}
		view := e.cfg.Indexes.View()
		if t.Kind == sheaf.KindFinalize { // publishes what both indexes must hold
			var err error
			if view, err = e.cfg.Indexes.Fresh(ctx); err != nil {
				return taskstore.Completion{}, err
			}
		}
		p := *e
		x, embedder := view.Pin(t.TenantID, e.cfg.Indexes.Configured())
		p.cfg.Index, p.cfg.Embedder, p.beside = guardedIndex{x, e.breakers.index}, guardedEmbedder{embedder, e.breakers.embedder}, view.BesideFor(t.TenantID)
		p.live = view.Live
		model := embedder.Model()
		loader, _ := e.loaders.LoadOrStore(model.ID, &tagset.Loader{Blobs: e.cfg.Blobs, Model: model, Limits: e.cfg.Tags})
		p.tags = loader.(*tagset.Loader)
		return process(&p, ctx, t)
	})
}

// writeBeside adds a result to the index being built beside the live one. A failure
// here is harmless: missing results are detected and written before that index goes
// live.
func (e *Executor) writeBeside(ctx context.Context, doc *sheaf.Document, r *sheaf.TaskResult) {
	if e.beside == nil || r.Chunks == 0 {
		return
	}
	if err := e.cfg.Indexes.Put(ctx, e.beside, liveResult(doc, r)); err != nil {
		e.cfg.Log.WarnContext(ctx, "a range was not written to the new index; it is written before that is searched", "document", doc.ID, "range", r.RangeID, "error", err)
	}
}

func liveResult(doc *sheaf.Document, r *sheaf.TaskResult) taskstore.LiveResult {
	return taskstore.LiveResult{TenantID: doc.TenantID, DatasetID: doc.DatasetID, DocumentID: doc.ID, Name: doc.Name, MediaType: doc.MediaType,
		RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.Chunks}
}

// enter waits until a task may enter a stage; its error is the cause of ctx's
// cancellation.
func enter(ctx context.Context, stage *semaphore.Weighted) error {
	if stage.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

type noTracer struct{}

func (noTracer) Stage(ctx context.Context, _ string) (context.Context, func(error)) {
	return ctx, func(error) {}
}

type noObserver struct{}

func (noObserver) Stage(sheaf.TaskKind, string, time.Duration) {}
