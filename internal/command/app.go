package command

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sheaf"
	"sheaf/executor"
	"sheaf/ingest"
	"sheaf/internal/api"
	"sheaf/internal/blob"
	"sheaf/internal/blob/cache"
	"sheaf/internal/blob/file"
	"sheaf/internal/blob/s3"
	"sheaf/internal/buildinfo"
	"sheaf/internal/chat"
	"sheaf/internal/config"
	"sheaf/internal/doctor"
	"sheaf/internal/edits"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	evaluation "sheaf/internal/eval"
	"sheaf/internal/garbage"
	"sheaf/internal/graphs"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
	"sheaf/internal/indexset"
	"sheaf/internal/keeper"
	"sheaf/internal/logctx"
	"sheaf/internal/notify"
	"sheaf/internal/notify/pgnotify"
	"sheaf/internal/queue"
	"sheaf/internal/queue/redisstream"
	"sheaf/internal/queue/sqlleader"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/internal/receipt"
	"sheaf/internal/rerank"
	"sheaf/internal/search"
	"sheaf/internal/tagset"
	"sheaf/internal/telemetry"
	"sheaf/internal/web"
	"sheaf/internal/webhook"
	"sheaf/internal/worker"
	"sheaf/parser"
	"sheaf/parser/archive"
	"sheaf/parser/child"
	"sheaf/parser/formats"
	"sheaf/parser/pdf/pdfium"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// app holds the parts of one process, built from the configuration. Parts that the
// role does not need are not built.
type app struct {
	main      Main
	cfg       config.Config
	log       *slog.Logger
	store     *sqlstore.Store
	queue     queue.Queue
	blobs     blob.Store
	files     *cache.Cache
	index     *indexset.Set
	embedder  embed.Embedder // of the index being searched
	chat      *chat.Client   // nil without chat.url
	previews  int            // how many may run at once
	reranker  *rerank.Client // nil without search.rerank.url
	searches  *queue.Slots   // of the index; see searcher
	graphs    *graphs.Service
	formats   *parser.Registry
	pdf       pdfium.Found // the PDF engine
	pool      *child.Pool
	receipts  *receipt.Signer
	metrics   *telemetry.Metrics
	tracer    *telemetry.Tracer // nil without trace.endpoint
	ingest    *ingest.Service
	keeper    *keeper.Keeper
	leads     atomic.Bool       // the keeper leads
	debouncer *notify.Debouncer // notifies a leading keeper in another process
	planner   *executor.Planner
	executor  *executor.Executor
	worker    *worker.Worker // runs executor
	health    *api.Health
	watchers  notify.Signal // of changes in this process
	stopping  chan struct{} // closed when run is told to stop
	closers   []func() error
	ballast   []byte
}

// ballastBytes are never touched, so they use no memory, but the garbage collector
// counts them and waits until that much more is allocated. The live heap is small
// compared with what each page allocates.
const ballastBytes = 32 << 20

// roles are the jobs of a process.
type roles struct{ api, executor, keeper bool }

// service is the process's name in traces.
func (r roles) service() string {
	switch r {
	case roles{api: true}:
		return "sheaf-api"
	case roles{executor: true}:
		return "sheaf-executor"
	case roles{keeper: true}:
		return "sheaf-keeper"
	}
	return "sheaf"
}

// name is the role as readiness names it.
func (r roles) name() api.Role {
	switch r {
	case roles{api: true}:
		return api.RoleServe
	case roles{executor: true}:
		return api.RoleExecutor
	case roles{keeper: true}:
		return api.RoleKeeper
	}
	return api.RoleAll
}

// build opens everything the roles need. On error it closes what it opened.
func (m Main) build(ctx context.Context, cfg config.Config, r roles, log *slog.Logger) (_ *app, err error) {
	a := &app{main: m, watchers: notify.NewSignal(), cfg: cfg, log: log, stopping: make(chan struct{}), formats: parser.NewRegistry(m.formats(optionalParts(cfg))...), metrics: telemetry.New()}
	if r.executor {
		a.ballast = make([]byte, ballastBytes)
	}
	defer func() {
		if err != nil {
			_ = a.close()
		}
	}()
	if cfg.Trace.Endpoint != "" {
		if a.tracer, err = m.newTracer(ctx, telemetry.TraceConfig{
			Endpoint: cfg.Trace.Endpoint, Headers: cfg.Trace.Headers.Reveal(), SampleRatio: cfg.Trace.SampleRatio, Service: r.service(), Version: buildinfo.Get().String(), Log: log,
		}); err != nil {
			return nil, err
		}
		a.onClose(a.tracer.Close)
	}
	if err := a.openData(ctx, r); err != nil {
		return nil, err
	}
	a.health = api.NewHealth(r.name(), a.checks(), func() []api.Part { return parts(a.formats) }, log)
	a.health.Unserved = a.unserved
	build := buildinfo.Get()
	a.metrics.Build(build.Version, build.Commit, build.Go)
	a.metrics.WatchDependencies(func(ctx context.Context) map[string]bool {
		up := map[string]bool{}
		for name, d := range a.health.Look(ctx, r.name()).Dependencies {
			up[name] = d.OK
		}
		return up
	})
	a.debouncer = notify.NewDebouncer(a.queue.NotifyChange, log)
	if a.pdf, err = a.findPDF(ctx); err != nil {
		return nil, err
	}
	a.onClose(a.pdf.Close)
	parsers := cmp.Or(cfg.Parser.Processes, runtime.GOMAXPROCS(0))
	size := parsers
	a.previews = max(parsers/2, 1)
	if r.api && r.executor {
		size += a.previews + 1 // tasks leave these to previews, and they leave one to images of pages
	} else if r.api {
		size = max(size, a.previews+1)
	}
	if r.executor && cfg.Parser.TranscribeURL != "" {
		size += executor.Calls // these wait, for minutes
	}
	if a.pool, err = child.New(withPDF(child.Config{
		Size: size, DocsPerChild: cfg.Parser.MaxDocs, MaxRSSBytes: cfg.Parser.MemoryBytes, RangeBytes: cfg.Parser.RangeBytes, TempDir: a.path("tmp"),
		EnvNow:  liveParts(cfg, a.pdf),
		Sandbox: cfg.Parser.Sandbox, ReadDirs: []string{a.path("blobs"), a.path("cache")}, Ports: parserPorts(cfg.Parser), Confined: a.tellConfined,
		Noted: func(text string) { log.Warn(text) },
	}, a.pdf)); err != nil {
		return nil, fmt.Errorf("starting the parser pool: %w", err)
	}
	a.onClose(a.pool.Close)
	planner := &executor.Planner{
		Store: a.store, Files: a.files, Blobs: a.blobs, Parser: a.pool, Formats: a.formats, Model: a.embedder.Model, Chat: cfg.Chat.Model,
		Tree: executor.Tree{Depth: cfg.Archive.MaxDepth, Documents: cfg.Archive.MaxDocuments, Bytes: cfg.Archive.MaxDocumentsBytes},
		Tags: tagset.Limits{MinWeight: cfg.Tags.MinWeight, Rows: cfg.Tags.MaxRows},
	}
	a.planner = planner
	a.graphs = &graphs.Service{Store: a.store, Blobs: a.blobs, Log: log}
	a.ingest = &ingest.Service{
		Catalog: a.store, Blobs: a.blobs, Queue: a.queue, Formats: a.formats, Planner: planner, Log: log, MaxUploadBytes: cfg.Server.MaxUploadBytes, UploadLife: time.Duration(cfg.Server.UploadLife),
		Price: ingest.Price(cfg.Price),
		Chat:  a.chat != nil, ChatPrice: a.cfg.Chat.Price, Window: a.embedder.Model().Window,
		Changed: func() { a.changed(true) },
	}
	a.metrics.WatchStore(a.store.Connections)
	a.metrics.WatchValues("parsers", "Parser processes.", "state", map[string]func() float64{
		"running": func() float64 { return float64(a.pool.Stats().Children) }, "busy": func() float64 { return float64(a.pool.Stats().Busy) },
	})
	if r.keeper {
		teller := &webhook.Sender{Store: a.store, Hosts: cfg.Webhooks.Hosts, Timeout: time.Duration(cfg.Webhooks.Timeout), Log: log, Observe: a.metrics.Told}
		kc := keeper.Config{
			Store: a.store, Queue: a.queue, Index: a.index, Blobs: a.blobs, Leader: a.leader(), Log: log,
			Fill: a.index.Step, Copies: a.copies,
			Feeds: cfg.Queue.Driver == "redis", Sole: cfg.Sole(), Shared: !cfg.Sole(), Window: cfg.Queue.Window,
			WorkerTimeout: time.Duration(cfg.Keeper.WorkerTimeout), Retention: time.Duration(cfg.Keeper.Retention), Audit: (&doctor.Auditor{Config: a.doctorConfig(), State: a.store, Every: time.Duration(cfg.Keeper.AuditInterval), Ended: a.audited}).Step, AuditEvery: time.Duration(cfg.Keeper.AuditInterval), CompactEvery: time.Duration(cfg.Keeper.Compact), SlowEvery: time.Duration(cfg.Keeper.Reconcile),
			Tell:    teller.Round,
			Sign:    a.receipts.Sign,
			Leads:   func(leads bool) { a.leads.Store(leads); a.metrics.Leads(leads) },
			Measure: a.measure, Ran: a.metrics.LoopRan, Promoted: a.metrics.Promoted,
		}
		evaluator := &evaluation.Evaluator{Store: a.store, Searcher: a.searcher(), Model: func() string { return a.index.View().State.Live.Model.ID }, Log: log}
		kc.Evaluate = evaluator.Step
		kc.Rerun = a.ingest.StartDueRuns
		if m.KeeperFunc != nil {
			m.KeeperFunc(&kc)
		}
		a.keeper = keeper.New(kc)
		a.metrics.WatchKeeper(a.keeper)
	}
	if r.executor {
		timeouts := map[sheaf.TaskKind]time.Duration{}
		for kind, d := range cfg.Executor.TaskTimeout {
			timeouts[sheaf.TaskKind(kind)] = time.Duration(d)
		}
		retries := map[sheaf.TaskKind]worker.RetryPolicy{}
		for kind, r := range cfg.Executor.Retry {
			retries[sheaf.TaskKind(kind)] = worker.RetryPolicy{MaxFails: r.Attempts, Base: time.Duration(r.Base), Max: time.Duration(r.Max), Jitter: r.Jitter}
		}
		ec := executor.Config{
			Store: a.store, Blobs: a.blobs, Files: a.files, Parser: a.pool, Formats: a.formats, Index: a.index, Embedder: a.embedder, Indexes: a.index, Planner: planner, RunStore: a.store, Tenants: a.store,
			ParseSlots: cmp.Or(cfg.Executor.ParseSlots, parsers), UnitTimeout: time.Duration(cfg.Parser.UnitTimeout), Tags: planner.Tags, Observe: a.metrics, Log: log,
		}
		ec.Spending = a.store
		ec.Budget.Run, ec.Budget.Day = cfg.Tokens()
		if ec.Services, err = webhook.NewCaller(cfg.Flow.AllowHosts, cfg.Flow.Secret.Reveal()); err != nil {
			return nil, fmt.Errorf("flow.allow_hosts and flow.secret: %w", err)
		}
		if cfg.Embed.Driver == "openai" {
			ec.EmbedSlots, ec.EmbedRemote = cfg.Embed.Concurrency, true
		}
		if a.chat != nil {
			ec.Chat, ec.ChatBatch, ec.ChatSlots = a.chat, cfg.Chat.Batch, cfg.Chat.Concurrency
		}
		ec.Runs = map[sheaf.TaskKind]executor.RunKind{sheaf.KindRaptor: executor.Raptor{Sentences: static.Default()}, sheaf.KindMindmap: executor.Mindmap{}, sheaf.KindGraphRAG: executor.GraphRAG{}}
		if a.tracer != nil {
			ec.Trace = a.tracer
		}
		a.executor = executor.New(ec)
		wc := worker.Config{
			Store: a.store, Queue: a.pooled(), Pools: cfg.Executor.Pools, Processors: a.executor.Processors(), Skipped: a.executor.Skipped, Changed: a.changed, Observe: a.metrics, Log: log, Version: buildinfo.Get().String(),
			Workers: cfg.Executor.Workers, Batch: cfg.Executor.Batch, Lease: time.Duration(cfg.Executor.Lease), Heartbeat: time.Duration(cfg.Executor.Heartbeat),
			PollInterval: time.Duration(cfg.Executor.PollInterval), DrainTimeout: time.Duration(cfg.Executor.DrainTimeout), MaxFails: cfg.Executor.MaxFails, TaskTimeout: timeouts,
			BackoffBase: time.Duration(cfg.Executor.BackoffBase), BackoffMax: time.Duration(cfg.Executor.BackoffMax), BackoffJitter: cmp.Or(cfg.Executor.BackoffJitter, -1), Retry: retries, PolicyFunc: a.executor.Policy,
		}
		if a.tracer != nil {
			wc.Trace = a.tracer
		}
		a.worker = worker.New(wc)
		a.metrics.WatchBreakers(slices.Sorted(maps.Keys(a.executor.Breakers())), func(d string) int { return int(a.executor.Breakers()[d]) })
	}
	return a, nil
}

// pooled is the worker's queue, including the tasks of the pools it serves.
func (a *app) pooled() queue.Queue {
	var pools []string
	only := true
	for _, p := range a.cfg.Executor.Pools {
		if p == taskstore.DefaultPool {
			only = false
		} else if !slices.Contains(pools, p) {
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		return a.queue
	}
	of := sqlqueue.New(a.store.PoolFeed(pools), sqlqueue.Config{Log: a.log})
	a.onClose(of.Close)
	return &queue.Pools{Queue: a.queue, Of: of, Only: only, Look: time.Duration(a.cfg.Executor.PollInterval)}
}

// unserved names the pools with waiting tasks but no executor.
func (a *app) unserved(ctx context.Context) ([]string, error) {
	pools, err := a.store.UnservedPools(ctx, taskstore.UnservedAfter)
	var names []string
	for _, p := range pools {
		names = append(names, p.Pool)
	}
	return names, err
}

// changed notifies the leading keeper, in this process or another, of a change;
// awaited means that a caller is waiting for it.
func (a *app) changed(awaited bool) {
	a.watchers.Notify()
	switch {
	case a.leads.Load():
		a.keeper.Notify()
	case awaited:
		a.debouncer.Urgent()
	default:
		a.debouncer.Routine()
	}
}

// optionalParts names the programs and services that some formats need.
func optionalParts(c config.Config) formats.Config {
	p := c.Parser
	return formats.Config{
		Soffice: p.Soffice, Tesseract: p.Tesseract, OCRLanguages: p.OCRLanguages,
		TranscribeURL: p.TranscribeURL, TranscribeModel: p.TranscribeModel, TranscribeAPIKey: p.TranscribeAPIKey.Reveal(),
		TranscribeLanguage: p.TranscribeLanguage, TranscribeTimeout: time.Duration(p.TranscribeTimeout).String(),
		Remote:  p.RemoteFormats,
		Archive: archive.Limits{Files: c.Archive.MaxFiles, FileBytes: c.Archive.MaxFileBytes, TotalBytes: c.Archive.MaxBytes, Ratio: c.Archive.MaxRatio},
	}
}

// findPDF finds the PDF engine and logs which one it is.
func (a *app) findPDF(ctx context.Context) (pdfium.Found, error) {
	found, err := pdfium.Find(ctx, a.cfg.PDF.Engine, a.cfg.PDF.Helper, child.ProgramPath)
	switch {
	case err != nil:
		return found, fmt.Errorf("%w: %w; build it with make helper, or set pdf.engine = auto", sheaf.ErrInvalid, err)
	case found.Why != "":
		a.log.Warn("PDFs are read by WebAssembly, in twice the time", "reason", found.Why)
	default:
		a.log.Info("PDFs are read by " + found.String())
	}
	return found, nil
}

// withPDF gives parsers access to the PDF program.
func withPDF(c child.Config, found pdfium.Found) child.Config {
	c.Program = found.File
	if found.Run != "" && found.File == nil {
		c.ReadDirs = append(c.ReadDirs, found.Run)
	}
	return c
}

// liveParts is optionalParts for parsers, with the key read from its file each
// time, so that rotating it needs no restart.
func liveParts(c config.Config, found pdfium.Found) func() []string {
	parts, key := optionalParts(c), c.Live("parser.transcribe_api_key")
	// The program may use the half of a parser's memory that the runtime leaves
	// (see package child) and be silent for the time of three pages, so that the
	// same page by WebAssembly still fits the deadline of a range.
	parts.PDF = pdfium.Config{Helper: found.Run, MemoryBytes: c.Parser.MemoryBytes / 2, Patience: 3 * time.Duration(c.Parser.UnitTimeout)}
	return func() []string {
		now := parts
		if key != nil {
			now.TranscribeAPIKey = key()
		}
		return now.Environ()
	}
}

// tellConfined logs and exports how parsers are sandboxed.
func (a *app) tellConfined(all []child.Protection) {
	var in []string
	for _, p := range all {
		a.metrics.Protected(p.Name, p.InForce)
		if p.InForce {
			in = append(in, p.Name)
		} else if a.cfg.Parser.Sandbox != child.SandboxOff {
			a.log.Warn("parsers lack a protection", "protection", p.Name, "reason", p.Detail)
		}
	}
	a.log.Info("parsers are confined", "by", in)
}

// measure exports the backlog and, if asked, the population.
func (a *app) measure(ctx context.Context, population bool) error {
	backlog, err := a.store.Backlog(ctx, telemetry.TopTenants)
	if err != nil {
		return err
	}
	if backlog.Unserved, err = a.store.UnservedPools(ctx, taskstore.UnservedAfter); err != nil {
		return err
	}
	var there *taskstore.Population
	if population {
		if there, err = a.store.Population(ctx); err != nil {
			return err
		}
	}
	a.metrics.Measured(backlog, there)
	fairness, err := a.store.MeasureFairness(ctx, backlog.Tenants)
	a.metrics.Fair(fairness)
	return err
}

// parserPorts lists the TCP ports that a format must reach.
func parserPorts(p config.Parser) []int {
	u, err := url.Parse(p.TranscribeURL)
	if err != nil || p.TranscribeURL == "" {
		return nil
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return []int{port}
	}
	if u.Scheme == "http" {
		return []int{80}
	}
	return []int{443}
}

// parts reports, for each format with an optional part, whether it is installed.
func parts(r *parser.Registry) []api.Part {
	var out []api.Part
	for _, f := range r.Formats() {
		if _, optional := f.(parser.Optional); !optional {
			continue
		}
		p := api.Part{Format: f.ID(), OK: true}
		if err := parser.Available(f); err != nil {
			p.OK, p.Error = false, sheaf.AsFailure(err, "").Message
		}
		out = append(out, p)
	}
	return out
}

// openStore opens the store without migrating it, with at most conns connections.
func (a *app) openStore(ctx context.Context, conns int) (*sqlstore.Store, error) {
	driver, dsn := a.cfg.Store.Driver, a.cfg.Store.DSN.Reveal()
	if driver == "sqlite" {
		dsn = a.path(database)
	}
	roots, err := authorities(a.cfg.Store.CAFile, "store.ca_file")
	if err != nil {
		return nil, err
	}
	s, err := sqlstore.Open(ctx, sqlstore.Config{
		Driver: driver, DSN: dsn, RootCAs: roots, MaxOpenConns: conns, EventLag: time.Duration(a.cfg.Store.EventLag),
		Grace: time.Duration(a.cfg.Keeper.Grace), KeepVersions: time.Duration(a.cfg.Keeper.KeepVersions), KeepHistory: time.Duration(a.cfg.Keeper.KeepHistory),
	})
	switch {
	case err == nil:
		return s, nil
	case driver == "sqlite":
		return nil, fmt.Errorf("opening the sqlite store: %w", err)
	default:
		return nil, fmt.Errorf("opening the %s store: %w; %s", driver, err, storeAdvice(err))
	}
}

// openData opens the store, queue, blobs, index and embedder.
func (a *app) openData(ctx context.Context, r roles) (err error) {
	privateFiles()
	if a.cfg.Sole() || a.cfg.Blob.Driver == "file" {
		if err := makeDataDir(a.cfg.DataDir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(a.path("tmp"), 0o700); err != nil {
		return dataDirError(a.cfg.DataDir, err)
	}
	tighten(a.cfg.DataDir, a.log)
	if a.cfg.Sole() {
		unlock, err := lockDir(a.cfg.DataDir)
		if err != nil {
			return err
		}
		a.onClose(unlock)
	}
	if a.store, err = a.openStore(ctx, a.cfg.Store.MaxConns); err != nil {
		return err
	}
	a.onClose(a.store.Close)
	if err := a.store.Migrate(ctx); err != nil {
		return fmt.Errorf("migrating the %s store: %w", a.cfg.Store.Driver, err)
	}
	if err := a.unlock(ctx); err != nil {
		return err
	}
	if err := a.ensureLocal(ctx); err != nil {
		return err
	}
	if err := a.openQueue(ctx, r); err != nil {
		return fmt.Errorf("opening the queue: %w", err)
	}
	if a.main.QueueFunc != nil {
		a.queue = a.main.QueueFunc(a.queue)
	}
	a.onClose(a.queue.Close)
	if err := a.openBlobs(ctx); err != nil {
		return fmt.Errorf("opening the %s blob store: %w", a.cfg.Blob.Driver, err)
	}
	if err := a.openIndexes(ctx, r); err != nil {
		return err
	}
	if c := a.cfg.Chat; c.URL != "" {
		if a.chat, err = chat.Open(chat.Config{BaseURL: c.URL, APIKey: c.APIKey.Reveal(), Key: a.cfg.Live("chat.api_key"), Model: c.Model, Timeout: time.Duration(c.Timeout), Concurrency: c.Concurrency}); err != nil {
			return fmt.Errorf("opening the chat client: %w", err)
		}
	}
	if c := a.cfg.Search.Rerank; c.URL != "" && r.api {
		if a.reranker, err = rerank.Open(rerank.Config{
			URL: c.URL, Protocol: rerank.Protocol(c.Protocol), Model: c.Model, APIKey: c.APIKey.Reveal(), Key: a.cfg.Live("search.rerank.api_key"),
			Budget: time.Duration(c.Budget), Candidates: c.Candidates,
			Breaker: worker.NewBreaker("rerank server", a.log, nil), Log: a.log, Reranked: a.metrics.Reranked,
		}); err != nil {
			return fmt.Errorf("opening the rerank client: %w", err)
		}
	}
	return nil
}

// ensureLocal creates the tenant and dataset that a new installation needs.
func (a *app) ensureLocal(ctx context.Context) error {
	_, err := a.store.CreateTenant(ctx, sheaf.Tenant{ID: sheaf.LocalTenant, Name: "Local", Weight: 1})
	if err != nil && !errors.Is(err, sheaf.ErrConflict) {
		return fmt.Errorf("creating the local tenant: %w", err)
	}
	_, err = a.store.CreateDataset(ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, Name: defaultDataset})
	if err != nil && !errors.Is(err, sheaf.ErrConflict) {
		return fmt.Errorf("creating the default dataset: %w", err)
	}
	return nil
}

// defaultDataset is where files go when no dataset is named.
const defaultDataset = "default"

// PostgreSQL channels. All processes of a fleet must agree on them, whatever their
// version.
const (
	tasksChannel   = "sheaf_queue"
	changesChannel = "sheaf_keeper"
)

func (a *app) openQueue(ctx context.Context, r roles) (err error) {
	q := a.cfg.Queue
	if q.Driver == "sql" {
		cfg := sqlqueue.Config{Log: a.log}
		if a.cfg.Store.Driver == "postgres" {
			// PostgreSQL notifies the executors of every process and the followers
			// of changes. Elsewhere, changes by another process may go unnoticed
			// until the poll interval or the keeper's next tick.
			roots, err := authorities(a.cfg.Store.CAFile, "store.ca_file")
			if err != nil {
				return err
			}
			listen := []string{tasksChannel}
			if r.keeper || r.api {
				listen = append(listen, changesChannel)
			}
			client, err := pgnotify.Open(a.cfg.Store.DSN.Reveal(), pgnotify.Config{Listen: listen, RootCAs: roots, Log: a.log})
			if err != nil {
				return err
			}
			a.onClose(client.Close)
			cfg.Executors, cfg.Keeper = client.Channel(tasksChannel), client.Channel(changesChannel)
		}
		a.queue = sqlqueue.New(a.store, cfg)
		return nil
	}
	options, err := redisOptions(q.Redis)
	if err != nil {
		return err
	}
	lanes := map[sheaf.Lane]redisstream.RedisOptions{}
	for lane, r := range map[sheaf.Lane]config.Redis{sheaf.LaneInteractive: q.Interactive, sheaf.LaneNormal: q.Normal, sheaf.LaneBackfill: q.Backfill} {
		if len(r.Addrs) > 0 {
			if lanes[lane], err = redisOptions(r); err != nil {
				return err
			}
		}
	}
	redis, err := redisstream.New(redisstream.Config{Redis: options, Lanes: lanes, Prefix: q.Prefix, Window: q.Window, Log: a.log})
	if err != nil {
		return err
	}
	a.queue = redis
	return redis.Ping(ctx)
}

func redisOptions(r config.Redis) (redisstream.RedisOptions, error) {
	o := redisstream.RedisOptions{
		Addrs: r.Addrs, MasterName: r.Master, Cluster: r.Cluster, DB: r.DB, Username: r.Username, Password: r.Password.Reveal(),
		SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword.Reveal(),
	}
	if r.TLS || r.CAFile != "" {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	roots, err := authorities(r.CAFile, "ca_file of the queue")
	if err != nil {
		return o, err
	}
	if roots != nil {
		o.TLS.RootCAs = roots
	}
	return o, nil
}

// authorities reads a PEM file of certificates; nil if no file is set. The error is
// ErrInvalid and names the setting.
func authorities(file, setting string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: reading the authorities: %w; correct %s", sheaf.ErrInvalid, err, setting)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM form; correct %s", sheaf.ErrInvalid, file, setting)
	}
	return pool, nil
}

// storeAdvice suggests a fix for a database that could not be opened.
func storeAdvice(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "name the PEM file of the authority that signed the server's certificate in store.ca_file"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "in store.dsn name the server as its certificate does"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "renew the server's certificate, or correct store.ca_file"
	}
	// Neither driver has distinct error types for these.
	for _, refusal := range []string{"server does not support TLS", "server refused TLS"} {
		if strings.Contains(err.Error(), refusal) {
			return "turn TLS on at the server, or take store.ca_file and what store.dsn says of TLS away"
		}
	}
	return "check host, user, password and database in store.dsn, and that the server runs"
}

func (a *app) leader() queue.Leader {
	if a.cfg.Store.Driver == "sqlite" {
		return queue.Always{}
	}
	campaign := sqlleader.New(a.store, "keeper")
	if q, ok := a.queue.(*redisstream.Queue); ok {
		// Without Redis nothing is fed; the rest of a keeper needs only the store.
		campaign.Lock = queue.Fallback{First: q.Leader("keeper").Lock, Second: campaign.Lock}
	}
	campaign.Log, campaign.TTL = a.log, time.Duration(a.cfg.Keeper.LeaderTTL)
	return campaign
}

func (a *app) openBlobs(ctx context.Context) (err error) {
	b := a.cfg.Blob
	switch b.Driver {
	case "file":
		a.blobs, err = file.Open(a.path("blobs"))
	default:
		a.blobs, err = s3.Open(ctx, s3.Config{
			Endpoint: b.Endpoint, PublicEndpoint: b.PublicEndpoint, Bucket: b.Bucket, Region: b.Region, Prefix: b.Prefix, CreateBucket: b.CreateBucket,
			Credentials: b.Credentials, AccessKey: b.AccessKey.Reveal(), SecretKey: b.SecretKey.Reveal(), CAFile: b.CAFile, Keys: a.liveKeys(),
		})
	}
	if err != nil {
		return err
	}
	if a.files, err = cache.Open(a.blobs, a.path("cache"), b.CacheBytes); err != nil {
		return err
	}
	stop := a.files.Expire(time.Duration(b.CacheAge))
	a.onClose(func() error { stop(); return nil })
	return nil
}

// liveKeys rereads the blob store's keys if they are in files; otherwise it is nil.
func (a *app) liveKeys() func() (access, secret string) {
	access, secret := a.cfg.Live("blob.access_key"), a.cfg.Live("blob.secret_key")
	if access == nil && secret == nil {
		return nil
	}
	return func() (string, string) {
		one, other := a.cfg.Blob.AccessKey.Reveal(), a.cfg.Blob.SecretKey.Reveal()
		if access != nil {
			one = access()
		}
		if secret != nil {
			other = secret()
		}
		return one, other
	}
}

// server is the API server over the parts.
func (a *app) server() *api.Server {
	cfg := api.Config{
		Catalog: a.store, Ingest: a.ingest, Search: a.searcher(), Graphs: a.graphs, Edits: &edits.Service{Store: a.store, Writer: &edits.Writer{Store: a.store, Blobs: a.blobs, PinFunc: a.pinned, TextFunc: executor.EmbeddingText}}, Blobs: a.blobs, Files: a.files, Renderer: a.pool, Queue: a.queue,
		Previewer: &executor.Previewer{Planner: a.planner, Parser: a.pool, Embedder: func() embed.Embedder { _, e := a.pinned(); return e }, Pictures: optionalParts(a.cfg).ReadsPictures},
		Health:    a.health, Receipts: a.receipts, Embedder: a.embedder,
		Doctor: a.doctor, Indexes: a.index, Observe: a.metrics, Confinement: a.pool.Protections, Metrics: a.metrics.Handler(), Page: web.New(), Interfaces: a.interfaces, Log: a.log, Build: buildinfo.Get(),
		Prices: api.Prices{Currency: a.cfg.Price.Currency, PerMillionTokens: a.cfg.Chat.Price},
		Auth:   a.cfg.Server.Auth, AllowURLs: a.cfg.Server.AllowURLs, WebhookHosts: a.cfg.Webhooks.Hosts, MaxUploadBytes: a.cfg.Server.MaxUploadBytes,
		MetricsToken: a.cfg.Server.MetricsToken.Reveal(), BodyIdle: time.Duration(a.cfg.Server.BodyTimeout), MaxUploads: a.cfg.Server.MaxUploads, MaxStreams: a.cfg.Server.MaxStreams, MaxPreviews: a.previews,
		Stopping: a.stopping, Changed: a.watchers, Changes: a.queue.Changes,
	}
	if a.chat != nil {
		cfg.Chat = a.chat
	}
	if a.tracer != nil {
		cfg.Trace = a.tracer
	}
	return api.New(cfg)
}

// pinned returns the index being searched now, and the embedder of its model.
func (a *app) pinned() (index.Index, embed.Embedder) {
	return a.index.View().Pin("", a.index.Configured())
}

// checks pings every dependency for /readyz.
func (a *app) checks() []api.Check {
	return []api.Check{
		{Name: "store", Ping: a.store.Ping}, {Name: "queue", Ping: a.queue.Ping}, {Name: "blobs", Ping: a.blobs.Ping},
		{Name: "index", Ping: a.index.Ready}, {Name: "embedder", Ping: a.embedder.Ping},
	}
}

func (a *app) doctorConfig() doctor.Config {
	return doctor.Config{
		Store: a.store, Index: a.index, Blobs: a.blobs, Log: a.log, Hints: a.cfg.Queue.Driver == "redis", Queue: a.queue,
		Put: func(ctx context.Context, r taskstore.LiveResult) error {
			return a.index.Put(ctx, a.index.View().Live, r)
		},
	}
}

func (a *app) doctor(ctx context.Context, repair bool) (*doctor.Report, error) {
	return doctor.Run(ctx, a.doctorConfig(), repair)
}

// audited reports the findings of an audit.
func (a *app) audited(ctx context.Context, r *doctor.Report) {
	counts := map[string]int{}
	for _, code := range doctor.Codes() {
		counts[code] = 0
	}
	for _, f := range r.Findings {
		counts[f.Code] = f.Count
		a.log.WarnContext(ctx, "database, index and blob store disagree; `sheaf doctor --repair` cures what can be cured", "code", f.Code, "count", f.Count, "cure", f.Cure)
	}
	a.metrics.Drift(counts)
}

// remoteSearches is how many searches a process asks of Elasticsearch at the same time.
const remoteSearches = 64

// searcher makes a searcher. All of them share the slots.
func (a *app) searcher() *search.Searcher {
	if a.searches == nil {
		most := remoteSearches
		if a.cfg.Index.Driver == "embedded" {
			most = embedded.MaxSearches
		}
		a.searches = queue.NewSlots(most, queue.WeightOf(a.store))
	}
	return &search.Searcher{
		Slots:  a.searches,
		Source: a.index.Source, Verify: a.index.Verify, Visibility: a.store,
		Searched: a.metrics.Searched, Graphs: a.graphs, Reranker: a.reranker,
		Tags: &tagset.Queries{Store: a.store, Loader: &tagset.Loader{Blobs: a.blobs, Now: a.embedder.Model, Limits: a.planner.Tags}},
	}
}

// run runs the roles until ctx ends. The API stops accepting requests first, then
// the executor drains, then the keeper stops: senders stop before receivers. hard
// ends the drain immediately.
func (a *app) run(ctx context.Context, ln net.Listener, hard <-chan struct{}) error {
	garbage.OfService()
	var errs []error
	var mu sync.Mutex
	note := func(err error) {
		if err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
	}
	keeperCtx, stopKeeper := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeper()
	var keepers, executors sync.WaitGroup
	if a.keeper != nil {
		keepers.Go(func() { note(a.keeper.Run(keeperCtx)) })
	}
	keepers.Go(func() { a.debouncer.Run(keeperCtx) })
	keepers.Go(func() { a.forgetDeleted(keeperCtx) })
	keepers.Go(func() { a.index.Run(keeperCtx) })
	if ln != nil && !a.cfg.Sole() {
		keepers.Go(func() { a.sealOld(keeperCtx) })
	}
	if a.worker != nil {
		executors.Go(func() { note(a.worker.Run(ctx, hard)) })
	}
	if ln != nil {
		server := a.server()
		keepers.Go(func() { server.Run(keeperCtx) })
		handler := server.Handler()
		if a.main.HandlerFunc != nil {
			handler = a.main.HandlerFunc(handler)
		}
		srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
		base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
		defer cut(nil)
		srv.BaseContext = func(net.Listener) context.Context { return base }
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-ctx.Done()
			close(a.stopping)
			stopServing(srv, cut, hard)
		}()
		if err := srv.Serve(ln); errors.Is(err, http.ErrServerClosed) {
			<-ended
		} else {
			note(err)
		}
	} else {
		<-ctx.Done()
	}
	executors.Wait()
	stopKeeper()
	keepers.Wait()
	return errors.Join(errs...)
}

// In-flight requests may finish for drainRequests after SIGTERM. Those then cut off
// have lastWords to tell their clients.
const (
	drainRequests = 10 * time.Second
	lastWords     = time.Second
)

// stopServing accepts no more connections and waits for in-flight requests; hard
// ends the wait immediately.
func stopServing(srv *http.Server, cut context.CancelCauseFunc, hard <-chan struct{}) {
	drain, cancel := context.WithTimeout(context.Background(), drainRequests)
	defer cancel()
	go func() {
		select {
		case <-hard:
			cancel()
		case <-drain.Done():
		}
	}()
	if srv.Shutdown(drain) == nil {
		return
	}
	cut(api.ErrStopping)
	last, cancelLast := context.WithTimeout(context.Background(), lastWords)
	defer cancelLast()
	if srv.Shutdown(last) != nil {
		_ = srv.Close() // clients that are not reading are cut off
	}
}

func (a *app) path(name string) string { return filepath.Join(a.cfg.DataDir, name) }

func (a *app) onClose(f func() error) { a.closers = append(a.closers, f) }

// close closes the parts in reverse order of opening.
func (a *app) close() error {
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i]())
	}
	a.closers = nil
	return errors.Join(errs...)
}

func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dataDirError(dir, err)
	}
	probe := filepath.Join(dir, ".write-test")
	if err := os.WriteFile(probe, []byte("x"), 0o600); err != nil {
		return dataDirError(dir, err)
	}
	return os.Remove(probe)
}

func dataDirError(dir string, err error) error {
	return fmt.Errorf("the data folder %s cannot be written to (%w); choose another with --data-dir or SHEAF_DATA_DIR, or free some space", dir, errors.Unwrap(err))
}

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // already validated
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // JSON would print nanoseconds without a unit
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	if c.Format == "json" {
		return slog.New(logctx.Handler(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(logctx.Handler(slog.NewTextHandler(w, opts)))
}
