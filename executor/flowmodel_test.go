package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/embed/static"
	"sheaf/internal/flow"
	"sheaf/internal/index/embedded"
	"sheaf/internal/queue"
	"sheaf/internal/queue/redisstream"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/pdf"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// words are what pages speak of, and what the filters of drawn flows look for.
var words = []string{"amber", "basalt", "cobalt", "dolomite", "emerald"}

// errDied is what a process meets that the model lets die between two statements.
var errDied = fmt.Errorf("%w: the process is dead", sheaf.ErrUnavailable)

// fuse lets the process that is at work die after so many statements and writes;
// negative for never.
type fuse struct {
	left  int
	blown bool
	calm  bool // nobody dies
}

func (f *fuse) burn() error {
	switch {
	case f.blown:
		return errDied
	case f.left == 0:
		f.blown = true
		return errDied
	case f.left > 0:
		f.left--
	}
	return nil
}

type fusedBlobs struct {
	blob.Store
	fuse *fuse
}

func (b fusedBlobs) Put(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if err := b.fuse.burn(); err != nil {
		return blob.Info{}, err
	}
	return b.Store.Put(ctx, key, r, size)
}

// library is the documents of a run: it plans and parses them by their name.
type library map[string]*modelDocument

func (l library) of(src child.Source) *modelDocument {
	id, _, _ := strings.Cut(src.Key, "/")
	return l[id]
}

func (l library) Plan(_ context.Context, src child.Source) (*parser.Plan, string, func(), error) {
	d := l.of(src)
	p := &parser.Plan{Unit: sheaf.UnitPage, Units: len(d.pages), RangeSize: 12}
	if d.outlined {
		p.Outline = []sheaf.Heading{{Level: 1, Title: "Stones", Page: 1}}
	}
	for n, text := range d.pages {
		print := uint64(n + 1)
		for _, r := range text {
			print = print*31 + uint64(r)
		}
		p.Fingerprints = append(p.Fingerprints, print)
	}
	return p, "", func() {}, nil
}

func (library) Unpack(context.Context, child.Source, int) (*parser.Unpacked, string, func(), error) {
	return nil, "", nil, errors.New("there are no archives")
}

func (l library) ParseIsolating(_ context.Context, src child.Source, r sheaf.Range, _ func(int) time.Duration, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		u := sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Kind: sheaf.BlockParagraph, Page: n, Text: l.of(src).pages[n-1]}}}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

// modelDocument is a document that goes through a drawn flow.
type modelDocument struct {
	id, job  string
	pages    []string
	outlined bool
	config   sheaf.ParseConfig
	flow     *flow.Flow   // of the newest generation
	canceled map[int]bool // generations that a cancel was asked for
}

// attempt is a claim of a worker, with what its processor answered.
type attempt struct {
	task   *sheaf.Task
	ran    bool
	done   taskstore.Completion
	failed error
}

// modelWorker is one executor process. When it dies, all of it is gone.
type modelWorker struct {
	id    string
	hints []sheaf.Hint
	held  []*attempt
}

// flowModel is documents that go through random flows on the real store, queue
// and executor, while processes die, and what must come of it.
type flowModel struct {
	*storetest.Fixture
	queue  queue.Queue
	feeds  bool
	fuse   *fuse
	blobs  blob.Store // without the fuse
	exec   *Executor
	plan   *Planner
	shelf  library
	tenant string

	docs    []*modelDocument
	workers []*modelWorker
	stalled []*attempt        // of processes that others took for dead, and that come back
	born    int               // workers so far
	ends    map[string]string // of nodes by task: "ok", "skip", "default", "dead" or "skipped"
	reads   map[string]string // what each attempt of a task must read
	made    map[string]string // task that made an output, by document, node and name
	deaths  int
}

// TestFlowsAgainstAModel lets flows of any shape meet failures, repeated hints,
// cancels, re-parses and processes that die between any two statements. Each node
// takes effect once at most, nothing stays behind, and what can be found in the
// end is what the nodes' ends say.
func TestFlowsAgainstAModel(t *testing.T) {
	// A fifth of these under -short.
	checks := map[string]string{"sqlite/sql": "40", "sqlite/redis": "10", "mysql/redis": "6", "mysql/sql": "5", "postgres/sql": "6", "postgres/redis": "5"}
	before, steps := flag.Lookup("rapid.checks").Value.String(), flag.Lookup("rapid.steps").Value.String()
	defer flag.Set("rapid.checks", before)
	if steps == "30" {
		defer flag.Set("rapid.steps", steps)
		if err := flag.Set("rapid.steps", "40"); err != nil {
			t.Fatal(err)
		}
	}
	model := static.Default()
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		t.Run(name, func(t *testing.T) {
			if before == "100" { // the default: nobody asked for another number
				if err := flag.Set("rapid.checks", checks[name]); err != nil {
					t.Fatal(err)
				}
			}
			engine, kind, _ := strings.Cut(name, "/")
			f := storetest.New(t, engine)
			fuse := &fuse{left: -1}
			f.OK(f.Store.BreakBefore(fuse.burn))
			blobs, err := file.Open(t.TempDir())
			f.OK(err)
			ix, err := embedded.Open(t.Context(), embedded.Config{Path: t.TempDir() + "/index.db", ModelID: model.Model().ID, Dim: model.Model().Dim})
			f.OK(err)
			t.Cleanup(func() { _ = ix.Close() })
			open, run, deaths := queues(f, kind), 0, 0
			rapid.Check(t, func(t *rapid.T) {
				run++
				fuse.left, fuse.blown = -1, false
				m := &flowModel{Fixture: f, fuse: fuse, blobs: blobs, shelf: library{}, tenant: fmt.Sprintf("t%d", run), feeds: kind == "redis",
					ends: map[string]string{}, reads: map[string]string{}, made: map[string]string{}}
				var err error
				m.queue, err = open()
				ok(t, err)
				defer m.queue.Close()
				held := fusedBlobs{blobs, fuse}
				m.exec = New(Config{Store: f.Store, Blobs: held, Files: here{}, Parser: m.shelf, Index: ix, Embedder: model, RunStore: f.Store,
					Runs: map[sheaf.TaskKind]RunKind{sheaf.KindRaptor: Raptor{Sentences: model}, sheaf.KindMindmap: Mindmap{}}})
				m.plan = &Planner{Store: f.Store, Files: here{}, Blobs: held, Parser: m.shelf, Formats: parser.NewRegistry(pdf.New(pdf.Config{}))}
				for range 3 {
					m.spawnWorker()
				}
				ok(t, m.tenantOf())
				m.upload(t)
				t.Repeat(map[string]func(*rapid.T){
					"upload": m.upload, "feed": m.feed, "feed2": m.feed, "take": m.take, "take2": m.take, "recover": m.recover, "repeat": m.repeat,
					"claim": m.claim, "claim2": m.claim, "claim3": m.claim, "process": m.process, "process2": m.process, "process3": m.process, "end": m.end, "end2": m.end, "end3": m.end,
					"keep": m.keep, "fold": m.fold, "fold2": m.fold, "advance": m.advance, "cancel": m.cancel, "reparse": m.reparse, "retry": m.retry, "kill": m.kill, "wakes": m.wakes,
					"": m.check,
				})
				m.settle(t)
				m.verify(t)
				// Again, with what the first time left.
				for range rapid.IntRange(0, 2).Draw(t, "more versions") {
					m.again(t)
					m.settle(t)
					m.verify(t)
				}
				deaths += m.deaths
			})
			if run >= 10 && deaths == 0 {
				t.Error("no process died: the test tests little")
			}
			t.Logf("%d runs, in which %d processes died", run, deaths)
		})
	}
}

func ok(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// queues makes the queues of a test, one a run.
func queues(f *storetest.Fixture, kind string) func() (queue.Queue, error) {
	if kind == "sql" {
		return func() (queue.Queue, error) { return sqlqueue.New(f.Store, sqlqueue.Config{}), nil }
	}
	addr := os.Getenv("SHEAF_TEST_REDIS_ADDR")
	if addr == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			f.T.Fatal("SHEAF_TEST_REDIS_ADDR is not set and SHEAF_TEST_REQUIRE asks for every engine")
		}
		f.T.Skip("SHEAF_TEST_REDIS_ADDR is not set")
	}
	prefix, ctx := "sheaf-test-"+sheaf.NewID(), context.Background()
	f.T.Cleanup(func() {
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer c.Close()
		keys := c.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for keys.Next(ctx) {
			c.Unlink(ctx, keys.Val())
		}
		if err := keys.Err(); err != nil {
			f.T.Error(err)
		}
	})
	n := 0
	return func() (queue.Queue, error) {
		n++
		return redisstream.New(redisstream.Config{Redis: redisstream.RedisOptions{Addrs: []string{addr}}, Prefix: fmt.Sprintf("%s-%d:", prefix, n), Window: 64})
	}
}

func (m *flowModel) tenantOf() error {
	if _, err := m.Store.CreateTenant(context.Background(), sheaf.Tenant{ID: m.tenant, Name: m.tenant, Weight: 1, Cap: 8}); err != nil {
		return err
	}
	_, err := m.Store.CreateDataset(context.Background(), sheaf.Dataset{ID: "ds-" + m.tenant, TenantID: m.tenant, Name: "ds"})
	return err
}

func (m *flowModel) spawnWorker() *modelWorker {
	m.born++
	w := &modelWorker{id: fmt.Sprintf("%s-w%d", m.tenant, m.born)}
	m.workers = append(m.workers, w)
	return w
}

// arm lets the process that works next die, at times, and says so afterwards.
func (m *flowModel) arm(t *rapid.T) (died func() bool) {
	m.fuse.left, m.fuse.blown = -1, false
	if !m.fuse.calm && rapid.IntRange(0, 4).Draw(t, "dies") == 0 {
		m.fuse.left = rapid.IntRange(0, 12).Draw(t, "after")
	}
	return func() bool {
		blown := m.fuse.blown
		m.fuse.left, m.fuse.blown = -1, false
		if blown {
			m.deaths++
		}
		return blown
	}
}

// drawFlow draws a graph: each node reads some of those before it, and what
// nobody reads goes to the index.
func drawFlow(t *rapid.T, name string) *flow.Flow {
	f := &flow.Flow{Name: name, Scope: flow.ScopeDocument, Mode: rapid.SampledFrom([]flow.Mode{flow.ModeNodes, flow.ModeNodes, flow.ModeNodes, flow.ModeWhole}).Draw(t, "mode")}
	f.Nodes = []flow.Node{{ID: "read", Kind: "parse"}, {ID: "cut", Kind: "chunk", From: []string{"read"}}}
	own := f.Mode == flow.ModeNodes
	if own && rapid.Bool().Draw(t, "retries") {
		f.Nodes[1].Retry = &flow.Retry{Attempts: rapid.IntRange(1, 3).Draw(t, "attempts")}
	}
	for i := range rapid.IntRange(0, 7).Draw(t, "nodes") {
		n := flow.Node{ID: fmt.Sprintf("n%d", i), Kind: rapid.SampledFrom([]string{"filter", "filter", "filter", "enrich", "branch", "merge"}).Draw(t, "kind")}
		for _, before := range f.Nodes[1:] {
			if rapid.IntRange(0, 2).Draw(t, "reads") == 0 {
				n.From = append(n.From, before.ID)
			}
		}
		if n.From == nil {
			n.From = []string{f.Nodes[len(f.Nodes)-1].ID}
		}
		if n.Kind == "filter" {
			n.Config = map[string]any{"keep": fmt.Sprintf("!chunk.text.contains('%s')", rapid.SampledFrom(words).Draw(t, "word"))}
		}
		if rapid.IntRange(0, 3).Draw(t, "conditional") == 0 {
			n.When = fmt.Sprintf("document.pages > %d", rapid.IntRange(0, 8).Draw(t, "pages"))
		}
		if own && flow.Works(n.Kind) {
			n.OnFailure = rapid.SampledFrom([]flow.OnFailure{"", flow.SkipNode, flow.UseDefault}).Draw(t, "on failure")
			if rapid.IntRange(0, 2).Draw(t, "retries") == 0 {
				n.Retry = &flow.Retry{Attempts: rapid.IntRange(1, 3).Draw(t, "attempts")}
			}
		}
		f.Nodes = append(f.Nodes, n)
	}
	out := flow.Node{ID: "out", Kind: "index"}
	for _, n := range f.Nodes[1:] {
		if !slices.ContainsFunc(f.Nodes, func(o flow.Node) bool { return slices.Contains(o.From, n.ID) }) {
			out.From = append(out.From, n.ID)
		}
	}
	if rapid.Bool().Draw(t, "embeds") {
		f.Nodes = append(f.Nodes, flow.Node{ID: "vectors", Kind: "embed", From: out.From})
		out.From = []string{"vectors"}
	}
	f.Nodes = append(f.Nodes, out)
	for _, kind := range []string{"raptor", "mindmap"} {
		if rapid.IntRange(0, 2).Draw(t, kind) > 0 {
			continue
		}
		n := flow.Node{ID: "over-" + kind, Kind: kind, From: []string{"out"}, OnFailure: rapid.SampledFrom([]flow.OnFailure{"", flow.SkipNode, flow.UseDefault}).Draw(t, "on failure")}
		if rapid.IntRange(0, 3).Draw(t, "conditional") == 0 {
			n.When = fmt.Sprintf("document.pages > %d", rapid.IntRange(0, 8).Draw(t, "pages"))
		}
		f.Nodes = append(f.Nodes, n)
	}
	return f
}

func (m *flowModel) upload(t *rapid.T) {
	if len(m.docs) == 3 {
		t.Skip("enough documents")
	}
	ctx, d := context.Background(), &modelDocument{id: sheaf.NewID(), job: sheaf.NewID(), outlined: rapid.Bool().Draw(t, "outlined"), canceled: map[int]bool{}}
	var ref string
	d.flow, ref = m.apply(t, drawFlow(t, fmt.Sprintf("f%d", len(m.docs))))
	d.config = sheaf.ParseConfig{Flow: sheaf.Set(ref), TaskPageSize: sheaf.Set(rapid.IntRange(2, 4).Draw(t, "range")), ChunkTokenNum: sheaf.Set(16)}
	for n := range rapid.IntRange(1, 9).Draw(t, "pages") {
		d.pages = append(d.pages, fmt.Sprintf("Page %d holds %s and %s of %s.", n+1, // two pages are more than a chunk
			rapid.SampledFrom(words).Draw(t, "stone"), rapid.SampledFrom(words).Draw(t, "stone"), m.tenant))
	}
	m.shelf[d.id] = d
	died := m.arm(t)
	_, err := m.Store.CreateDocuments(ctx, sheaf.Job{ID: d.job, TenantID: m.tenant, DatasetID: "ds-" + m.tenant, Kind: sheaf.JobIngest}, []taskstore.NewDocument{{
		Document: sheaf.Document{ID: d.id, Name: "stones.pdf", MediaType: "application/pdf", Size: 4096, SHA256: d.id + d.id, BlobKey: sheaf.OriginalPrefix(m.tenant, d.id) + "v1",
			ParseConfig: d.config},
		Plan: taskstore.PlanTask(taskstore.PlanPayload{}),
	}}, "")
	if !died() {
		ok(t, err)
	}
	if _, err := m.Store.DocumentByID(ctx, d.id); err == nil { // else it died before the answer and left nothing
		m.docs = append(m.docs, d)
	} else if m.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=?", d.id) != 0 {
		t.Fatalf("an upload that broke off left tasks and no document")
	}
}

// apply stores a flow, and answers which version of it that is.
func (m *flowModel) apply(t *rapid.T, drawn *flow.Flow) (*flow.Flow, string) {
	text, err := drawn.JSON()
	ok(t, err)
	read, err := flow.Read(text, false)
	ok(t, err)
	digest, err := read.Digest()
	ok(t, err)
	made, err := m.Store.CreateFlow(context.Background(), taskstore.FlowVersion{TenantID: m.tenant, Name: read.Name, Digest: digest, Body: text}, false)
	ok(t, err)
	return read, fmt.Sprintf("%s@%d", made.Name, made.Version)
}

// feed publishes what may run, as the keeper does for a queue with a memory.
func (m *flowModel) feed(t *rapid.T) {
	ctx, died := context.Background(), m.arm(t)
	err := func() error {
		if !m.feeds {
			return m.queue.Notify(ctx)
		}
		for after := ""; ; {
			slice, err := m.Store.Feedable(ctx, after, 64, time.Minute)
			if err != nil {
				return err
			}
			for _, h := range slice.Hints {
				n, err := m.queue.Publish(ctx, h.TenantID, h.Lane, []sheaf.Hint{h})
				if err != nil {
					return err
				}
				if n == 1 {
					if _, err := m.Store.MarkEnqueued(ctx, []sheaf.Hint{h}, ""); err != nil {
						return err
					}
				}
			}
			if after = slice.Next; after == "" {
				return nil
			}
		}
	}()
	if !died() {
		ok(t, err)
	}
}

func (m *flowModel) worker(t *rapid.T) *modelWorker {
	return m.workers[rapid.IntRange(0, len(m.workers)-1).Draw(t, "worker")]
}

// dies takes a worker with all that it knew, and puts another in its place. What
// it had finished it may write later, as a process that was only stopped does.
func (m *flowModel) dies(w *modelWorker) {
	for _, a := range w.held {
		if a.ran {
			m.stalled = append(m.stalled, a)
		}
	}
	m.workers = slices.DeleteFunc(m.workers, func(o *modelWorker) bool { return o == w })
	m.spawnWorker()
}

func (m *flowModel) kill(t *rapid.T) {
	m.deaths++
	m.dies(m.worker(t))
}

// wakes lets a stopped process go on and write what it had finished, under a claim
// that is mostly over.
func (m *flowModel) wakes(t *rapid.T) {
	if len(m.stalled) == 0 {
		t.Skip("nobody is stopped")
	}
	i := rapid.IntRange(0, len(m.stalled)-1).Draw(t, "attempt")
	a := m.stalled[i]
	m.stalled = slices.Delete(m.stalled, i, i+1)
	m.finish(t, nil, a)
}

func (m *flowModel) take(t *rapid.T) {
	ctx, w, died := context.Background(), m.worker(t), m.arm(t)
	_ = m.queue.Notify(ctx)
	hints, err := m.queue.Take(ctx, w.id, rapid.IntRange(1, 3).Draw(t, "slots"), nil)
	w.hints = append(w.hints, hints...)
	if died() {
		m.dies(w)
		return
	}
	ok(t, err)
}

func (m *flowModel) recover(t *rapid.T) {
	w := m.worker(t)
	hints, err := m.queue.Recover(context.Background(), w.id, 0)
	ok(t, err)
	w.hints = append(w.hints, hints...)
}

// repeat gives a worker a hint that another has, or had.
func (m *flowModel) repeat(t *rapid.T) {
	ids := m.Strings("SELECT id FROM tasks WHERE tenant_id=? ORDER BY id", m.tenant)
	if len(ids) == 0 {
		t.Skip("no tasks")
	}
	w := m.worker(t)
	w.hints = append(w.hints, sheaf.Hint{TenantID: m.tenant, TaskID: rapid.SampledFrom(ids).Draw(t, "task")})
}

func (m *flowModel) claim(t *rapid.T) {
	w := m.worker(t)
	if len(w.hints) == 0 {
		m.take(t)
	}
	if len(w.hints) > 0 {
		h := w.hints[0]
		w.hints = w.hints[1:]
		m.claims(t, w, h)
	}
}

func (m *flowModel) claims(t *rapid.T, w *modelWorker, h sheaf.Hint) {
	ctx, died := context.Background(), m.arm(t)
	task, err := m.Store.Claim(ctx, h.TaskID, w.id, time.Minute)
	refused, notNow := errors.AsType[*taskstore.NotClaimable](err)
	if died() {
		m.dies(w)
		return
	}
	if !notNow {
		ok(t, err)
		if open := m.Int("SELECT COUNT(*) FROM task_deps d JOIN tasks p ON p.id=d.parent_id WHERE d.child_id=? AND p.state<>'done'", task.ID); open > 0 {
			t.Fatalf("node %s was claimed while %d of its inputs are not done", task.Node, open)
		}
		w.held = append(w.held, &attempt{task: task})
	}
	if h.Kind != "" {
		ok(t, m.queue.Ack(ctx, h, !notNow || refused.State == sheaf.TaskRunning))
	}
}

// process runs a claimed task by its real processor, or fails in its place.
func (m *flowModel) process(t *rapid.T) {
	w := m.worker(t)
	i := slices.IndexFunc(w.held, func(a *attempt) bool { return !a.ran })
	if i < 0 {
		m.claim(t)
		return
	}
	m.run(t, w, w.held[i], rapid.IntRange(0, 9).Draw(t, "outcome"))
}

func (m *flowModel) run(t *rapid.T, w *modelWorker, a *attempt, outcome int) {
	died := m.arm(t)
	if a.task.Kind == sheaf.KindDataflow || a.task.Kind == sheaf.KindParse {
		m.readsTheSame(t, a.task)
	}
	a.ran = true
	switch {
	case outcome == 0:
		a.failed = sheaf.FailRetryable(sheaf.CategoryTarget, "away", "It is away.")
	case (outcome == 1 || outcome == 4) && a.task.Kind == sheaf.KindDataflow:
		a.failed = sheaf.Fail(sheaf.CategoryBadInput, "broken", "It is broken.")
	case a.task.Kind == sheaf.KindPlan:
		a.done, a.failed = planned(context.Background(), m.plan, a.task)
	default:
		a.done, a.failed = m.exec.Processors()[a.task.Kind].Process(context.Background(), a.task)
	}
	if died() {
		m.dies(w)
	}
}

// readsTheSame checks that each attempt of a task has the inputs of the first.
func (m *flowModel) readsTheSame(t *rapid.T, task *sheaf.Task) {
	if m.fuse.left >= 0 {
		return // the process dies here: the next attempt looks
	}
	in, err := m.Store.Inputs(context.Background(), task.ID)
	ok(t, err)
	var seen strings.Builder
	for _, p := range in {
		fmt.Fprintln(&seen, p.ID, p.State, p.Result.ArtifactKey, p.Result.RangeID)
	}
	if was, known := m.reads[task.ID]; known && was != seen.String() {
		t.Fatalf("an attempt of node %s reads\n%s and the one before read\n%s", task.Node, seen.String(), was)
	}
	m.reads[task.ID] = seen.String()
}

// end writes how an attempt ended, as a worker does.
func (m *flowModel) end(t *rapid.T) {
	w := m.worker(t)
	i := slices.IndexFunc(w.held, func(a *attempt) bool { return a.ran })
	if i < 0 {
		m.process(t)
		return
	}
	a := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	m.finish(t, w, a)
	if rapid.IntRange(0, 9).Draw(t, "twice") == 0 && slices.Contains(m.workers, w) {
		m.finish(t, w, a) // its answer was lost, and it is sent again
	}
}

func (m *flowModel) finish(t *rapid.T, w *modelWorker, a *attempt) {
	ctx, task := context.Background(), a.task
	row := func() (state string, epoch int) {
		return strings.Join(m.Strings("SELECT state FROM tasks WHERE id=?", task.ID), ""), m.Int("SELECT epoch FROM tasks WHERE id=?", task.ID)
	}
	state, epoch := row()
	held := state == string(sheaf.TaskRunning) && epoch == int(task.Epoch)
	died := m.arm(t)
	err := a.failed
	if err == nil {
		err = m.Store.Complete(ctx, task.Held(), a.done)
		if err == nil || !errors.Is(err, sheaf.ErrStale) {
			goto written
		}
		err = sheaf.FailRetryable(sheaf.CategoryCanceled, "canceled", "the document was changed while the end of the task was written")
	}
	{
		policy := m.exec.Policy(task)
		failure := sheaf.AsFailure(err, string(task.Kind))
		_, err = m.Store.FailTask(ctx, task.Held(), taskstore.FailReport{Failure: *failure, Delay: time.Second, MaxFails: cmp.Or(policy.MaxFails, 3)})
	}
written:
	gone := died()
	if !gone && (err == nil) != held && !errors.Is(err, sheaf.ErrStale) {
		t.Fatalf("the end of node %s under epoch %d: %v, while the row was %s under epoch %d", task.Node, task.Epoch, err, state, epoch)
	}
	if !held && err == nil && !gone {
		t.Fatalf("node %s took effect under an epoch that was over", task.Node)
	}
	m.observe(t, task)
	if gone {
		if w != nil {
			m.dies(w)
		}
		return
	}
	ok(t, m.queue.Done(ctx, task.TenantID, task.ID))
}

// observe notes how a node has ended, and that no output was made twice for a
// version of a document, nor again in a later one.
func (m *flowModel) observe(t *rapid.T, task *sheaf.Task) {
	if task.Kind != sheaf.KindDataflow {
		return
	}
	now := m.Task(task.ID)
	end := ""
	switch out := now.Result.Output; {
	case now.State == sheaf.TaskDead:
		end = "dead"
	case now.State != sheaf.TaskDone:
		return
	case out == nil:
		t.Fatalf("node %s is done and left no output", now.Node)
	case out.Failed && out.Skipped != "":
		end = "skip"
	case out.Failed:
		end = "default"
	case out.Skipped != "":
		end = "skipped"
	default:
		end = "ok"
		if key := now.DocumentID + " " + now.Node + " " + out.Name; !out.Incomplete && !now.Result.Reused {
			if by := m.made[key]; by != "" && by != now.ID {
				earlier := m.Task(by)
				// A version that was asked to be made anew makes all anew, also what the
				// one before has made since it was asked for.
				fresh := m.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND gen=? AND kind='plan' AND payload LIKE '%\"fresh\":true%'", now.DocumentID, now.Generation) > 0
				if earlier.Generation == now.Generation || !fresh && m.Int("SELECT COUNT(*) FROM tasks WHERE id=? AND range_id<>''", by) > 0 && m.Int("SELECT COUNT(*) FROM tasks WHERE id=? AND created_at>?", now.ID, earlier.FinishedAt.UnixMilli()) > 0 {
					t.Fatalf("the output %s of node %s was made by %s of generation %d and again in generation %d", out.Name, now.Node, by, earlier.Generation, now.Generation)
				}
			}
			m.made[key] = now.ID
		}
	}
	if was := m.ends[now.ID]; was != "" && was != "dead" && was != end {
		t.Fatalf("node %s had ended %s and now %s", now.Node, was, end)
	}
	m.ends[now.ID] = end
}

// keep is what the keeper does with what nobody holds.
func (m *flowModel) keep(t *rapid.T) {
	ctx, died := context.Background(), m.arm(t)
	var err error
	switch rapid.IntRange(0, 3).Draw(t, "loop") {
	case 0:
		_, err = m.Store.Reap(ctx, taskstore.ReapPolicy{MaxLost: 3}, 1000)
	case 1:
		_, err = m.Store.PromoteDue(ctx, 1000)
	case 2:
		_, err = m.Store.WakeParked(ctx, 1000)
	case 3:
		err = m.collect(ctx)
	}
	if !died() {
		ok(t, err)
	}
	m.observeAll(t)
}

// collect removes what is garbage, as the keeper does.
func (m *flowModel) collect(ctx context.Context) error {
	items, err := m.Store.Garbage(ctx, 1000)
	if err != nil {
		return err
	}
	var ids []int64
	for _, g := range items {
		if g.ArtifactKey != "" {
			if err := m.blobs.Delete(ctx, g.ArtifactKey); err != nil {
				return err
			}
		}
		ids = append(ids, g.ID)
	}
	return m.Store.GarbageDone(ctx, ids)
}

func (m *flowModel) observeAll(t *rapid.T) {
	for _, d := range m.docs {
		tasks, err := m.Store.GenerationTasks(context.Background(), d.id, m.Doc(d.id).Generation)
		ok(t, err)
		for i := range tasks {
			if end := m.ends[tasks[i].ID]; (end == "" || end == "dead") && tasks[i].State.Terminal() { // what was dead may have been tried again
				m.observe(t, &tasks[i])
			}
		}
	}
}

func (m *flowModel) fold(t *rapid.T) {
	died := m.arm(t)
	_, _, err := m.Store.Fold(context.Background(), 1000, 0)
	if !died() {
		ok(t, err)
	}
}

func (m *flowModel) advance(t *rapid.T) {
	m.Store.AdvanceClock(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
}

func (m *flowModel) doc(t *rapid.T) *modelDocument {
	if len(m.docs) == 0 {
		t.Skip("no documents")
	}
	return m.docs[rapid.IntRange(0, len(m.docs)-1).Draw(t, "document")]
}

func (m *flowModel) cancel(t *rapid.T) {
	d := m.doc(t)
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip("most are not canceled")
	}
	now, died := m.Doc(d.id), m.arm(t)
	_, err := m.Store.CancelDocuments(context.Background(), m.tenant, []string{d.id})
	if !died() {
		ok(t, err)
	}
	d.canceled[now.Generation] = true
}

func (m *flowModel) reparse(t *rapid.T) { m.reparses(t, m.doc(t)) }

// again parses documents once more, or gives their dead nodes another try.
func (m *flowModel) again(t *rapid.T) {
	for _, d := range m.docs {
		switch rapid.IntRange(0, 4).Draw(t, "again") {
		case 0:
		case 1:
			m.retries(t, d)
		default:
			m.reparses(t, d)
		}
	}
}

func (m *flowModel) reparses(t *rapid.T, d *modelDocument) {
	before := m.Doc(d.id).Generation
	if before == 6 {
		return // enough
	}
	now := *d.flow
	if rapid.Bool().Draw(t, "changed") { // one filter looks for another word: the others' outputs are there
		now.Nodes = slices.Clone(now.Nodes)
		for i := range now.Nodes {
			if n := &now.Nodes[i]; n.Kind == "filter" && rapid.Bool().Draw(t, "this") {
				n.Config = map[string]any{"keep": fmt.Sprintf("!chunk.text.contains('%s')", rapid.SampledFrom(words).Draw(t, "word"))}
				break
			}
		}
	}
	next, ref := m.apply(t, &now)
	config := d.config
	config.Flow = sheaf.Set(ref)
	fresh, died := rapid.IntRange(0, 3).Draw(t, "fresh") == 0, m.arm(t)
	err := m.Store.Reparse(context.Background(), sheaf.Job{ID: sheaf.NewID(), TenantID: m.tenant, DatasetID: "ds-" + m.tenant, Kind: sheaf.JobReparse},
		[]taskstore.ReparseDocument{{DocumentID: d.id, ParseConfig: config, Plan: taskstore.PlanTask(taskstore.PlanPayload{Fresh: fresh})}}, "")
	if !died() {
		ok(t, err)
	}
	if m.Doc(d.id).Generation > before {
		d.flow = next
	}
	if fresh { // all is made anew, on request
		for key := range m.made {
			if strings.HasPrefix(key, d.id) {
				delete(m.made, key)
			}
		}
	}
}

func (m *flowModel) retry(t *rapid.T) { m.retries(t, m.doc(t)) }

func (m *flowModel) retries(t *rapid.T, d *modelDocument) {
	died := m.arm(t)
	_, err := m.Store.RetryDead(context.Background(), m.tenant, taskstore.DeadLetterFilter{DocumentID: d.id})
	if !died() {
		ok(t, err)
	}
}

// check holds the graph at every moment: nothing waits for what is over, and
// nothing runs before what it reads is done.
func (m *flowModel) check(t *rapid.T) {
	const inputs = "SELECT 1 FROM task_deps d JOIN tasks p ON p.id=d.parent_id WHERE d.child_id=t.id AND p.state<>'done'"
	if ids := m.Strings("SELECT id FROM tasks t WHERE t.tenant_id=? AND t.state='parked' AND NOT EXISTS ("+inputs+")", m.tenant); len(ids) > 0 {
		t.Fatalf("node %s is parked though all that it reads has ended", m.Task(ids[0]).Node)
	}
	if ids := m.Strings("SELECT id FROM tasks t WHERE t.tenant_id=? AND t.state IN ('pending','running','retry_wait') AND EXISTS ("+inputs+")", m.tenant); len(ids) > 0 {
		t.Fatalf("node %s may run though not all that it reads is done", m.Task(ids[0]).Node)
	}
	if n := m.Int("SELECT COUNT(*) FROM tasks t WHERE t.tenant_id=? AND t.unmet<>(SELECT COUNT(*) FROM task_deps d JOIN tasks p ON p.id=d.parent_id WHERE d.child_id=t.id AND p.state<>'done')", m.tenant); n > 0 {
		t.Fatalf("%d tasks count wrongly what they wait for", n)
	}
}

// open is how much is left to do.
func (m *flowModel) open() int {
	return m.Int("SELECT COUNT(*) FROM tasks WHERE tenant_id=? AND state NOT IN ('done','dead','canceled','superseded')", m.tenant) +
		m.Int("SELECT COUNT(*) FROM documents WHERE tenant_id=? AND state NOT IN ('succeeded','partially_succeeded','failed','canceled')", m.tenant)
}

// settle drives what is left to its end: at first among failures and deaths, and
// then without, so that it must come to one.
func (m *flowModel) settle(t *rapid.T) {
	ctx, troubled := context.Background(), rapid.IntRange(0, 12).Draw(t, "troubled rounds")
	for round := range 80 {
		m.fuse.left, m.fuse.blown, m.fuse.calm = -1, false, round >= troubled
		m.Store.AdvanceClock(10 * time.Minute)
		_, err := m.Store.Reap(ctx, taskstore.ReapPolicy{MaxLost: 3}, 1000)
		ok(t, err)
		_, err = m.Store.PromoteDue(ctx, 1000)
		ok(t, err)
		m.Fold()
		m.observeAll(t)
		m.check(t)
		running, err := m.Store.Running(ctx)
		ok(t, err)
		for range 2 {
			ok(t, m.queue.Reconcile(ctx, running))
		}
		if m.open() == 0 {
			m.fuse.calm = false
			return
		}
		m.feed(t)
		w := m.workers[0]
		hints, err := m.queue.Recover(ctx, w.id, 0)
		ok(t, err)
		for range 100 {
			_ = m.queue.Notify(ctx)
			more, err := m.queue.Take(ctx, w.id, 4, nil)
			ok(t, err)
			if hints = append(hints, more...); len(hints) == 0 {
				break
			}
			for _, h := range hints {
				m.goes(t, m.workers[0], h)
			}
			hints = nil
			m.feed(t)
		}
	}
	t.Fatalf("the work does not end: %q are open; documents are %v", m.Strings("SELECT node FROM tasks WHERE tenant_id=? AND state NOT IN ('done','dead','canceled','superseded')", m.tenant),
		m.Strings("SELECT state FROM documents WHERE tenant_id=?", m.tenant))
}

// goes takes a hint all its way, as far as its worker lives.
func (m *flowModel) goes(t *rapid.T, w *modelWorker, h sheaf.Hint) {
	outcome := 9
	if !m.fuse.calm {
		if outcome = rapid.IntRange(0, 9).Draw(t, "outcome"); outcome == 2 && len(m.stalled) > 0 {
			m.wakes(t)
		}
	}
	m.claims(t, w, h)
	for len(w.held) > 0 && slices.Contains(m.workers, w) {
		a := w.held[0]
		if !a.ran {
			m.run(t, w, a, outcome)
		}
		if !slices.Contains(m.workers, w) {
			return
		}
		if outcome == 3 {
			m.dies(w) // it is stopped before it writes
			return
		}
		w.held = w.held[1:]
		m.finish(t, w, a)
	}
}

// came is what a node passes on, by the model.
type came struct {
	chunks  map[string]bool // texts
	skipped bool
	dead    bool
	failed  bool   // a node failed and was replaced on the way
	odd     string // a node whose end cannot be
}

// expect says what reaches the index for a range, by how its nodes ended: "" for
// one without a task, which passes on, is skipped by the plan, or need not run.
// What is reused is what the node makes when all before it are well.
func (d *modelDocument) expect(read []string, ends map[string]string) came {
	made, well := map[string]came{}, map[string]came{}
	for _, n := range d.flow.Order() {
		off := d.leavesOut(n)
		well[n.ID] = passes(n, well, read, off, "")
		if made[n.ID] = passes(n, made, read, off, ends[n.ID]); ends[n.ID] == "reused" {
			made[n.ID] = well[n.ID]
		}
	}
	return made["out"]
}

// leavesOut reports whether a condition has the plan leave a node out.
func (d *modelDocument) leavesOut(n *flow.Node) bool {
	var over int
	_, _ = fmt.Sscanf(n.When, "document.pages > %d", &over)
	return n.When != "" && len(d.pages) <= over
}

// passes is what a node makes of what those before it made.
func passes(n *flow.Node, before map[string]came, read []string, off bool, end string) came {
	in := came{chunks: map[string]bool{}, skipped: len(n.From) > 0}
	for _, id := range n.From {
		p := before[id]
		in.dead, in.skipped, in.failed, in.odd = in.dead || p.dead, in.skipped && p.skipped, in.failed || p.failed, cmp.Or(in.odd, p.odd)
		maps.Copy(in.chunks, p.chunks)
	}
	if off { // there is no task, so nothing that it reads counts
		return came{skipped: true, odd: in.odd}
	}
	switch n.Kind {
	case "chunk":
		for _, text := range read {
			in.chunks[text] = true
		}
	case "filter":
		for text := range in.chunks {
			for _, word := range words {
				if strings.Contains(n.Config["keep"].(string), word) && strings.Contains(text, word) {
					delete(in.chunks, text)
				}
			}
		}
	}
	if n.Kind == "parse" {
		in.skipped = false
	}
	if !in.dead {
		if in.skipped && end == "ok" || !in.skipped && end == "skipped" {
			in.odd = fmt.Sprintf("node %s ended %s", n.ID, end)
		}
		switch end {
		case "dead":
			in.dead = true
		case "skip":
			in = came{skipped: true, failed: true, odd: in.odd}
		case "default":
			in = came{failed: true, odd: in.odd}
		}
	}
	if in.dead || in.skipped {
		in.chunks = nil
	}
	return in
}

// verify compares what the newest generation of each document came to with what
// the ends of its nodes say.
func (m *flowModel) verify(t *rapid.T) {
	ctx := context.Background()
	m.observeAll(t) // also what the keeper has ended last
	for _, d := range m.docs {
		now := m.Doc(d.id)
		if m.Int("SELECT COUNT(*) FROM (SELECT 1 AS one FROM tasks WHERE doc_id=? AND kind IN ('dataflow','parse','index') AND state<>'superseded' GROUP BY gen, kind, node, from_unit, to_unit HAVING COUNT(*)>1) x", d.id) > 0 {
			t.Fatalf("a node of a range has two tasks")
		}
		if n := m.Int("SELECT COUNT(*) FROM (SELECT task_id FROM events WHERE tenant_id=? AND kind='done' GROUP BY task_id HAVING COUNT(*)>1) x", m.tenant); n > 0 {
			t.Fatalf("%d tasks took effect twice", n)
		}
		if now.State == sheaf.DocCanceled {
			if !d.canceled[now.Generation] {
				t.Fatalf("a document is canceled that nobody canceled")
			}
			continue
		}
		tasks, err := m.Store.GenerationTasks(ctx, d.id, now.Generation)
		ok(t, err)
		ends := map[sheaf.Range]map[string]string{}
		for _, task := range tasks {
			if task.Kind == sheaf.KindDataflow {
				if ends[task.Range] == nil {
					ends[task.Range] = map[string]string{}
				}
				// A task that ended dead for what it reads has no end of its own.
				// One that was tried again and is done keeps what it had failed of.
				if task.State != sheaf.TaskDead || task.Failure == nil || task.Failure.Code != "dependency_failed" {
					if ends[task.Range][task.Node] = m.ends[task.ID]; task.State == sheaf.TaskDone && task.Result.Reused {
						ends[task.Range][task.Node] = "reused"
					}
				}
			}
		}
		chunks, dead, failed, ranges := 0, 0, false, 0
		for _, task := range tasks {
			if !covers(task) || task.State == sheaf.TaskSuperseded {
				continue
			}
			ranges++
			if task.State == sheaf.TaskDone && task.Result.Reused {
				if ends[task.Range] == nil {
					ends[task.Range] = map[string]string{}
				}
				ends[task.Range]["out"] = "reused"
			}
			want := d.expect(d.pages[task.Range.From-1:task.Range.To], ends[task.Range])
			if want.odd != "" {
				t.Fatalf("units %s: %s, which cannot be: all ended %v of %s", task.Range, want.odd, ends[task.Range], describe(d.flow))
			}
			if task.State != sheaf.TaskDone {
				dead++
				if !want.dead && !want.skipped && (task.Failure == nil || task.Failure.Code != "away" && task.Failure.Code != "worker_lost") {
					t.Fatalf("units %s ended %s (%v) though their nodes ended %v of %s", task.Range, task.State, task.Failure, ends[task.Range], describe(d.flow))
				}
				continue
			}
			if want.dead || want.skipped {
				t.Fatalf("units %s are done though nothing reaches their index: their nodes ended %v of %s", task.Range, ends[task.Range], describe(d.flow))
			}
			failed = failed || want.failed
			chunks += len(want.chunks)
			var got []string
			if task.Result.ArtifactKey != "" {
				stored, err := artifact.Load(ctx, m.blobs, task.Result.ArtifactKey)
				if err != nil {
					t.Fatalf("the result of units %s that generation %d lists: %v", task.Range, now.Generation, err)
				}
				for _, c := range stored.Chunks {
					got = append(got, c.Text)
				}
			}
			var left []string
			for _, text := range d.pages[task.Range.From-1 : task.Range.To] {
				if want.chunks[text] {
					left = append(left, text)
				}
			}
			if !slices.Equal(got, left) {
				t.Fatalf("units %s hold\n%q\nand by the ends of their nodes, %v of %s,\n%q", task.Range, got, ends[task.Range], describe(d.flow), left)
			}
		}
		failed = m.verifyLast(t, d, now, tasks, chunks) || failed
		want := sheaf.DocSucceeded
		switch {
		case slices.ContainsFunc(tasks, func(t sheaf.Task) bool {
			return t.Kind == sheaf.KindFinalize && t.State == sheaf.TaskDead && t.Node == fmt.Sprint(m.Int("SELECT fin_epoch FROM documents WHERE id=?", d.id))
		}):
			want = sheaf.DocFailed // what publishes it was given up
		case chunks == 0:
			want = sheaf.DocFailed
		case dead > 0 || failed:
			want = sheaf.DocPartiallySucceeded
		}
		if now.State != want {
			t.Fatalf("the document of %d ranges, %d of them dead, with %d chunks ended %s and should be %s: %+v", ranges, dead, chunks, now.State, want, now.Failure)
		}
		for _, task := range tasks {
			if task.Kind == sheaf.KindDataflow && task.State == sheaf.TaskDone && task.Result.ArtifactKey != "" {
				if _, err := m.exec.readOutput(ctx, &task.Result); err != nil {
					t.Fatalf("an output of node %s that the generation lists: %v", task.Node, err)
				}
			}
		}
	}
}

// verifyLast checks what the nodes over the whole document have left, and answers
// whether one failed.
func (m *flowModel) verifyLast(t *rapid.T, d *modelDocument, now *sheaf.Document, tasks []sheaf.Task, chunks int) (failed bool) {
	ctx, live := context.Background(), now.LiveGeneration == now.Generation
	for i := range d.flow.Nodes {
		n := &d.flow.Nodes[i]
		over := flow.Over(n.Kind)
		if over == "" {
			continue
		}
		results, err := m.Store.RunResults(ctx, m.tenant, "ds-"+m.tenant, over, d.id, "", 10)
		ok(t, err)
		at := nodeOf(tasks, n.ID)
		if off := chunks == 0 || d.leavesOut(n); off != (at < 0) && (live || off) {
			t.Fatalf("node %s of a document with %d chunks has a task at %d, %s", n.ID, chunks, at, describe(d.flow))
		}
		end := ""
		if at >= 0 {
			end = m.ends[tasks[at].ID]
		}
		failed = failed || end != "" && end != "ok"
		if want := end == "ok"; live && (want && len(results) != 1 || at < 0 && len(results) > 0) {
			t.Fatalf("node %s ended %q and %d of its results are seen", n.ID, end, len(results))
		}
		for _, r := range results {
			stored, err := artifact.Load(ctx, m.blobs, sheaf.ArtifactKey(m.tenant, d.id, r.RangeID))
			if err != nil || stored.Header.Generation != now.LiveGeneration {
				t.Fatalf("a result of node %s that is seen with generation %d: %+v, %v", n.ID, now.LiveGeneration, stored, err)
			}
		}
	}
	if n := m.Int("SELECT COUNT(*) FROM run_result_sources x JOIN documents d ON d.id=x.doc_id WHERE d.id=? AND x.gen NOT IN (d.gen, d.live_gen)", d.id); n > 0 {
		t.Fatalf("%d results of generations that are gone stay", n)
	}
	return failed
}

// describe writes a flow for people.
func describe(f *flow.Flow) string {
	b, _ := json.Marshal(f.Nodes) // it was JSON
	return string(f.Mode) + " " + string(b)
}
