package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/executor"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	blobfile "sheaf/internal/blob/file"
	"sheaf/internal/embed/static"
	"sheaf/internal/flow"
	"sheaf/internal/graphs"
	"sheaf/internal/index/embedded"
	"sheaf/internal/keeper"
	"sheaf/internal/worker"
	"sheaf/parser"
	"sheaf/parser/child"
	pdfformat "sheaf/parser/pdf"
	"sheaf/taskstore"
)

// flowPages is the number of pages of the documents in these measurements; each
// range has four.
const flowPages = 40

// scripted plans and parses documents that are not files, so that only the tasks of
// a flow are measured.
type scripted struct{}

func (scripted) Plan(context.Context, child.Source) (*parser.Plan, string, func(), error) {
	p := &parser.Plan{Unit: sheaf.UnitPage, Units: flowPages, RangeSize: 4, Outline: []sheaf.Heading{{Level: 1, Title: "Pages", Page: 1}}}
	return p, "", func() {}, nil
}

func (scripted) Unpack(context.Context, child.Source, int) (*parser.Unpacked, string, func(), error) {
	return nil, "", nil, errors.New("there are no archives")
}

func (scripted) ParseIsolating(_ context.Context, src child.Source, r sheaf.Range, _ func(int) time.Duration, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		text := fmt.Sprintf("Page %d of %s. ", n, src.Key) + strings.Repeat("The committee heard the report and adopted it. ", 20)
		if err := emit(sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Kind: sheaf.BlockParagraph, Page: n, Text: text}}}); err != nil {
			return err
		}
	}
	return nil
}

func (scripted) Fetch(context.Context, string, string, int64) (string, func(), error) {
	return os.DevNull, func() {}, nil
}

func (scripted) FetchBlocks(context.Context, string, string, int64) (string, blob.Fill, func(), error) {
	return os.DevNull, nil, func() {}, nil
}

// flowNodes measures the cost of node tasks: documents go through one flow in mode
// whole and in mode nodes.
func (b *bench) flowNodes(ctx context.Context) error {
	const documents, nodes = 20, 4 // cut and three filters have separate tasks in mode nodes
	spent := map[flow.Mode]time.Duration{}
	walls := map[flow.Mode]time.Duration{}
	for _, mode := range []flow.Mode{flow.ModeWhole, flow.ModeNodes} {
		wall, cpu, err := b.flowRun(ctx, mode, documents)
		if err != nil {
			return err
		}
		spent[mode], walls[mode] = cpu, wall
	}
	tasks := documents * flowPages / 4 * nodes
	each := (spent[flow.ModeNodes] - spent[flow.ModeWhole]) / time.Duration(tasks)
	b.atMost("flow.node.cpu", ms(each), "CPU-ms/task", 5, fmt.Sprintf("%d documents through a flow of %d nodes with tasks of their own on SQLite, less the same in the mode whole (%.1f and %.1f CPU-s)", documents, nodes, spent[flow.ModeNodes].Seconds(), spent[flow.ModeWhole].Seconds()))
	b.tell("flow.node.rate", float64(documents*flowPages/4*(nodes+1))/walls[flow.ModeNodes].Seconds(), "tasks/s", "the same, nodes and ranges")
	return nil
}

func (b *bench) flowRun(ctx context.Context, mode flow.Mode, documents int) (wall, cpu time.Duration, err error) {
	p, err := b.embedded(ctx, "flow-"+string(mode))
	if err != nil {
		return 0, 0, err
	}
	defer p.close()
	dir := filepath.Join(b.tmp, "flow-"+string(mode))
	blobs, err := blobfile.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return 0, 0, err
	}
	model := static.Default()
	ix, err := embedded.Open(ctx, embedded.Config{Path: filepath.Join(dir, "index.db"), ModelID: model.Model().ID, Dim: model.Model().Dim})
	if err != nil {
		return 0, 0, err
	}
	defer ix.Close()
	if err := p.tenant(ctx, "t", 1, 1000); err != nil {
		return 0, 0, err
	}
	text := fmt.Sprintf(`{"name":"bench","mode":%q,"node":[{"id":"read","kind":"parse"},{"id":"cut","kind":"chunk","from":["read"]},
		{"id":"a","kind":"filter","from":["cut"],"config":{"keep":"chunk.tokens > 1"}},{"id":"b","kind":"filter","from":["a"],"config":{"keep":"chunk.tokens > 2"}},
		{"id":"c","kind":"filter","from":["b"],"config":{"keep":"chunk.tokens > 3"}},{"id":"out","kind":"index","from":["c"]}]}`, mode)
	f, err := flow.Read([]byte(text), false)
	if err != nil {
		return 0, 0, err
	}
	digest, err := f.Digest()
	if err != nil {
		return 0, 0, err
	}
	if _, err := p.store.CreateFlow(ctx, taskstore.FlowVersion{TenantID: "t", Name: f.Name, Digest: digest, Body: []byte(text)}, false); err != nil {
		return 0, 0, err
	}
	for range documents {
		id := sheaf.NewID()
		if _, err := p.store.CreateDocuments(ctx, sheaf.Job{ID: sheaf.NewID(), TenantID: "t", DatasetID: "ds-t", Kind: sheaf.JobIngest}, []taskstore.NewDocument{{
			Document: sheaf.Document{ID: id, Name: id + ".pdf", MediaType: pdfType, Size: 1 << 20, SHA256: id + id, BlobKey: sheaf.OriginalPrefix("t", id) + "v1", ParseConfig: sheaf.ParseConfig{Flow: sheaf.Set("bench@1"), TaskPageSize: sheaf.Set(4)}},
			Plan:     taskstore.PlanTask(taskstore.PlanPayload{}),
		}}, ""); err != nil {
			return 0, 0, err
		}
	}
	e := executor.New(executor.Config{Store: p.store, Blobs: blobs, Files: scripted{}, Parser: scripted{}, Index: ix, Embedder: model,
		Planner: &executor.Planner{Store: p.store, Files: scripted{}, Blobs: blobs, Parser: scripted{}, Formats: parser.NewRegistry(pdfformat.New(pdfformat.Config{}))}})
	processors := e.Processors()
	left, over := documents, make(chan struct{})
	var mu sync.Mutex
	publish := processors[sheaf.KindFinalize]
	processors[sheaf.KindFinalize] = processor(func(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
		done, err := publish.Process(ctx, t)
		if done.Publish == nil || err != nil {
			return done, err
		}
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			close(over)
		}
		return done, nil
	})
	k := keeper.New(keeper.Config{Store: p.store, Queue: p.queue})
	w := worker.New(worker.Config{Store: p.store, Queue: p.queue, Workers: p.workers, Processors: processors, Changed: func(bool) { k.Notify() }})
	run, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	begun, before := time.Now(), cpuTime(os.Getpid())
	all.Go(func() { _ = k.Run(run) }) // both end with run
	all.Go(func() { _ = w.Run(run, nil) })
	select {
	case <-over:
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(3 * time.Minute):
		err = errors.New("the documents were not published within 3 minutes")
	}
	wall, cpu = time.Since(begun), cpuTime(os.Getpid())-before
	stop()
	all.Wait()
	return wall, cpu, err
}

// flowFanOut measures a graph of 100 nodes read by 100 others each: the statements
// must scale with the nodes, not the 10,000 edges.
func (b *bench) flowFanOut(ctx context.Context) error {
	const wide = 100
	p, err := b.embedded(ctx, "fanout")
	if err != nil {
		return err
	}
	defer p.close()
	statements := 0
	if err := p.store.BreakBefore(func() error { statements++; return nil }); err != nil {
		return err
	}
	if err := p.tenant(ctx, "t", 1, 1000); err != nil {
		return err
	}
	planID, err := p.document(ctx, "t", 1)
	if err != nil {
		return err
	}
	plan, err := p.store.Claim(ctx, planID, "bench", time.Minute)
	if err != nil {
		return err
	}
	var spawn []sheaf.NewTask
	var sources []string
	for i := range 2 * wide {
		t := sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindDataflow, Node: fmt.Sprint("n", i), Unit: sheaf.UnitPage, Range: sheaf.Range{From: 1, To: 4}, Cost: 1}
		if i < wide {
			sources = append(sources, t.ID)
		} else {
			t.DependsOn = slices.Clone(sources)
		}
		spawn = append(spawn, t)
	}
	count := p.counter(2 * wide)
	statements = 0
	if err := p.store.Complete(ctx, plan.Held(), taskstore.Completion{Plan: &sheaf.PlanResult{Parser: "bench/1", Unit: sheaf.UnitPage, Units: 4}, Spawn: spawn}); err != nil {
		return err
	}
	written := statements
	for _, t := range spawn {
		claimed, err := p.store.Claim(ctx, t.ID, "bench", time.Minute)
		if err != nil {
			return err
		}
		if err := p.store.Complete(ctx, claimed.Held(), taskstore.Completion{Result: sheaf.TaskResult{Output: &sheaf.NodeOutput{Name: t.Node}}}); err != nil {
			return err
		}
	}
	s := count()
	b.tell("flow.fanout", s.rate(), "tasks/s", fmt.Sprintf("%d nodes that %d others read, planned, claimed and ended one after the other on SQLite", wide, wide))
	b.atMost("flow.fanout.statements", float64(statements)/(2*wide), "statements/task", 20, fmt.Sprintf("%d edges; %d statements write the plan", wide*wide, written))
	return nil
}

// stored is a dataset of ranges written for this measurement.
type stored []taskstore.LiveResult

func (s stored) DatasetStamp(context.Context, string, string) (string, error) { return "1", nil }

func (s stored) DatasetResults(_ context.Context, _, _, after string, _ int) ([]taskstore.LiveResult, error) {
	if after != "" {
		return nil, nil
	}
	return s, nil
}

func (s stored) Visible(_ context.Context, _ string, ids []string) (map[string]taskstore.VisibleRange, error) {
	out := make(map[string]taskstore.VisibleRange, len(ids))
	for _, id := range ids {
		out[id] = taskstore.VisibleRange{DocumentID: "doc-" + id, DatasetID: "d", Name: id, Generation: 1}
	}
	return out, nil
}

func (s stored) SplitNames(context.Context, string, string) ([][]string, error) { return nil, nil }

func (s stored) RunResults(context.Context, string, string, sheaf.TaskKind, string, string, int) ([]taskstore.RunResult, error) {
	return nil, nil
}

// graph measures the graph of 10,000 chunks without a model, from the stored
// results to the first answer.
func (b *bench) graph(ctx context.Context) error {
	const ranges, each = 200, 50
	blobs, err := blobfile.Open(filepath.Join(b.tmp, "graph"))
	if err != nil {
		return err
	}
	store, err := writeProse(ctx, blobs, ranges, each)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // from earlier measurements
	before := cpuTime(os.Getpid())
	peak := watchMemory(os.Getpid(), false)
	s := &graphs.Service{Store: store, Blobs: blobs, Bounds: graphs.Bounds{Wait: 10 * time.Minute}}
	v, err := s.View(ctx, "t", "d")
	most := peak()
	if err != nil {
		return err
	}
	cpu := cpuTime(os.Getpid()) - before
	debug.FreeOSMemory()
	held := resident(os.Getpid())
	note := fmt.Sprintf("%d chunks of 300 words: %d entities, %d relations, %d communities", ranges*each, len(v.Graph.Entities), len(v.Graph.Relations), len(v.Graph.Communities))
	b.atMost("graph.cpu", cpu.Seconds(), "CPU-s", 60, note)
	b.atMost("graph.memory", megabytes(most), "MB", 600, "peak of the process while it is made")
	b.tell("graph.held", megabytes(held), "MB", "of the process afterwards")
	return nil
}

// raptor has the service summarise 10,000 chunks without a language model: a run
// over an entire dataset, and another after one of its 200 documents has changed.
func (b *bench) raptor(ctx context.Context) error {
	const docs, each = 200, 50
	return b.served(ctx, "raptor", func(s *server) error {
		text := prose()
		written := func(i int) string {
			var out strings.Builder
			fmt.Fprintf(&out, "Document %d.\n\n", i)
			for range each {
				out.WriteString(text(20) + "\n\n")
			}
			return out.String()
		}
		files := make([]file, docs)
		for i := range files {
			body := written(i)
			files[i] = file{name: fmt.Sprintf("d%d.txt", i), open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }}
		}
		job, err := s.upload(ctx, sheaf.ParseConfig{}, files...)
		if err == nil {
			job, err = s.ended(ctx, job.ID)
		}
		if err != nil {
			return err
		}
		if job.State != sheaf.DocSucceeded {
			return fmt.Errorf("the documents ended %s: %s", job.State, s.why(ctx, job.ID))
		}
		run := func() (cpu time.Duration, most int64, came executor.RaptorResult, err error) {
			before, peak := cpuTime(s.pid()), watchMemory(s.pid(), true)
			var r struct {
				ID     string
				State  taskstore.RunState
				Result json.RawMessage
			}
			err = s.call(ctx, http.MethodPost, "/v1/datasets/default/raptor", map[string]any{}, &r)
			for err == nil && r.State.Open() {
				select {
				case <-time.After(200 * time.Millisecond):
				case <-ctx.Done():
					return 0, 0, came, ctx.Err()
				}
				err = s.call(ctx, http.MethodGet, "/v1/datasets/default/runs/"+r.ID, nil, &r)
			}
			most, cpu = peak(), cpuTime(s.pid())-before
			if err == nil && r.State != taskstore.RunSucceeded {
				err = fmt.Errorf("the run ended %s", r.State)
			}
			if err == nil {
				err = json.Unmarshal(r.Result, &came)
			}
			return cpu, most, came, err
		}
		cpu, most, first, err := run()
		if err != nil {
			return err
		}
		body := written(docs)
		if job, err = s.upload(ctx, sheaf.ParseConfig{}, file{name: "d7.txt", open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }}); err == nil {
			_, err = s.ended(ctx, job.ID)
		}
		if err != nil {
			return err
		}
		again, _, second, err := run()
		if err != nil {
			return err
		}
		b.atMost("raptor.cpu", cpu.Seconds(), "CPU-s", 60, fmt.Sprintf("%d documents of %d chunks, %d summaries without a language model", first.Documents, each, first.Summaries))
		b.atMost("raptor.memory", megabytes(most), "MB", 600, "peak of all processes while they are made")
		b.atMost("raptor.changed", 100*float64(second.Made)/float64(first.Made), "% of the summaries", 10, fmt.Sprintf("made anew after one more of %d documents came: %d of %d, %.1f CPU-s", docs, second.Made, first.Made, again.Seconds()))
		return nil
	})
}

// prose returns a generator of texts with the given number of 15-word sentences,
// whose word frequencies follow Zipf's law, with one or two of 4,000 names in each.
func prose() func(sentences int) string {
	random := rand.New(rand.NewPCG(1, 2))
	syllables := []string{"ba", "ro", "ti", "men", "sol", "ka", "ven", "dri", "lo", "pas", "tur", "ne", "gil", "fa", "mo", "ster"}
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(syllables[random.IntN(len(syllables))])
		}
		return b.String()
	}
	words, names := make([]string, 8000), make([]string, 4000)
	for i := range words {
		words[i] = word(2 + random.IntN(3))
	}
	for i := range names {
		first, last := word(2), word(2)
		names[i] = strings.ToUpper(first[:1]) + first[1:] + " " + strings.ToUpper(last[:1]) + last[1:]
	}
	stop := []string{"the", "of", "and", "to", "in", "for", "with", "is", "on", "by"}
	zipf := rand.NewZipf(random, 1.1, 8, uint64(len(words)-1))
	called := rand.NewZipf(random, 1.2, 20, uint64(len(names)-1))
	return func(sentences int) string {
		var b strings.Builder
		for range sentences {
			b.WriteString("So")
			for k := range 14 {
				switch {
				case k == 4 || k == 9 && random.IntN(2) == 0:
					b.WriteString(" " + names[called.Uint64()])
				case random.IntN(5) < 2:
					b.WriteString(" " + stop[random.IntN(len(stop))])
				default:
					b.WriteString(" " + words[zipf.Uint64()])
				}
			}
			b.WriteString(". ")
		}
		return b.String()
	}
}

// writeProse stores ranges of chunks of 300 words.
func writeProse(ctx context.Context, blobs blob.Store, ranges, each int) (stored, error) {
	text := prose()
	var out stored
	for r := range ranges {
		id := fmt.Sprintf("r%04d", r)
		chunks := make([]sheaf.Chunk, each)
		for i := range chunks {
			chunks[i] = sheaf.Chunk{ID: sheaf.ChunkID(id, i), DocumentID: "doc-" + id, Generation: 1, RangeID: id, Ordinal: i, Kind: sheaf.ChunkText, Language: "en", Text: text(20), Pages: []int{i + 1}, Boxes: []sheaf.Box{{Page: i + 1, X1: 500, Y1: 700}}}
		}
		var b bytes.Buffer
		if err := artifact.Encode(&b, artifact.Header{DocumentID: "doc-" + id, Generation: 1, RangeID: id, Range: sheaf.Range{From: 1, To: each}}, chunks, nil); err != nil {
			return nil, err
		}
		key := sheaf.ArtifactKey("t", "doc-"+id, id)
		if _, err := blobs.Put(ctx, key, &b, int64(b.Len())); err != nil {
			return nil, err
		}
		out = append(out, taskstore.LiveResult{RangeID: id, DocumentID: "doc-" + id, ArtifactKey: key, Chunks: each, Cursor: id})
	}
	return out, nil
}
