package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob/file"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	"sheaf/internal/index/embedded"
	"sheaf/internal/settings"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// ledger is a store of one document, which hands out what its tasks left.
type ledger struct {
	doc sheaf.Document

	mu    sync.Mutex
	tasks []sheaf.Task
}

func (l *ledger) DocumentByID(context.Context, string) (*sheaf.Document, error) {
	d := l.doc
	return &d, nil
}

func (l *ledger) Inputs(context.Context, string) ([]sheaf.Task, error) { return nil, nil }

func (l *ledger) GenerationTasks(context.Context, string, int) ([]sheaf.Task, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tasks), nil
}

func (l *ledger) FinishedRanges(context.Context, string, int) (out []taskstore.FinishedRange, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tasks {
		if covers(t) && t.State == sheaf.TaskDone {
			out = append(out, taskstore.FinishedRange{Unit: t.Unit, Range: t.Range, ArtifactKey: t.Result.ArtifactKey})
		}
	}
	return out, nil
}

func (l *ledger) RangeOutlines(context.Context, string, int) (out []taskstore.RangeOutline, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tasks {
		if covers(t) && t.State == sheaf.TaskDone && t.Result.Outline != nil {
			out = append(out, taskstore.RangeOutline{Range: t.Range, Headings: t.Result.Outline.Headings})
		}
	}
	return out, nil
}

func (*ledger) Edits(context.Context, string, string) ([]taskstore.ChunkEdit, error) {
	return nil, nil
}

func (*ledger) ReserveRanges(context.Context, string, string, []string) error { return nil }

func (*ledger) AppendEvents(context.Context, sheaf.Claim, []sheaf.Event) error { return nil }

// scriptedPages reads units that are there already.
type scriptedPages []sheaf.UnitResult

func (p scriptedPages) ParseIsolating(_ context.Context, _ child.Source, r sheaf.Range, _ func(int) time.Duration, emit func(sheaf.UnitResult) error) error {
	for _, u := range p[r.From-1 : r.To] {
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

// Executors that know nothing of each other read ranges in any order. What is
// published has the paths and the vectors of one task over the whole, and what
// was right from the start was not written again.
func TestStitchedResultsAreThoseOfOneTask(t *testing.T) {
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ix, err := embedded.Open(t.Context(), embedded.Config{Path: t.TempDir() + "/index.db", ModelID: static.Default().Model().ID, Dim: static.Default().Model().Dim})
	if err != nil {
		t.Fatal(err)
	}
	defer ix.Close()
	var units scriptedPages
	for n := 1; n <= 24; n++ {
		u := sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK}
		heading := func(level int, title string) {
			u.Blocks = append(u.Blocks, sheaf.Block{Kind: sheaf.BlockHeading, Level: level, Page: n, Text: title})
		}
		if n%8 == 1 {
			heading(1, fmt.Sprintf("Chapter %d", n/8))
		}
		u.Blocks = append(u.Blocks, sheaf.Block{Kind: sheaf.BlockParagraph, Page: n, Text: fmt.Sprintf("Page %d begins with the heron number word%d.", n, 2*n)})
		if n%3 == 0 {
			heading(2+n%2, fmt.Sprintf("Section %d", n))
		}
		u.Blocks = append(u.Blocks, sheaf.Block{Kind: sheaf.BlockParagraph, Page: n, Text: fmt.Sprintf("It ends with the stork number word%d.", 2*n+1)})
		units = append(units, u)
	}
	payload, err := json.Marshal(taskstore.ParsePayload{Format: "pdf", Continues: true, Config: settings.WithDefaults(sheaf.ParseConfig{})})
	if err != nil {
		t.Fatal(err)
	}
	model := static.Default()
	// read runs a document that is cut into ranges of so many pages, and answers
	// what its generation holds in the end.
	read := func(id string, size int, random *rand.Rand) (chunks []sheaf.Chunk, stitched int) {
		t.Helper()
		store := &ledger{doc: sheaf.Document{ID: id, TenantID: "t", DatasetID: "d", Name: "birds.pdf", Units: len(units), Generation: 1}}
		// fresh is an executor of a host that has seen nothing of the document.
		fresh := func(blind bool) *Executor {
			s := Store(store)
			if blind { // it begins before the others have ended
				s = &ledger{doc: store.doc}
			}
			return New(Config{Store: s, Blobs: blobs, Files: here{}, Parser: units, Index: ix, Embedder: model})
		}
		run := func(task sheaf.Task, blind bool) {
			t.Helper()
			task.DocumentID, task.TenantID, task.Generation, task.Epoch = id, "t", 1, 1
			done, err := fresh(blind).Processors()[task.Kind].Process(t.Context(), &task)
			if err != nil {
				t.Fatal(err)
			}
			task.State, task.Result = sheaf.TaskDone, done.Result
			store.tasks = append(store.tasks, task)
		}
		ranges := sheaf.CutRanges([]sheaf.Range{{From: 1, To: len(units)}}, size)
		random.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
		for _, r := range ranges {
			run(sheaf.Task{ID: sheaf.NewID(), Kind: sheaf.KindParse, Range: r, Cost: r.Len(), Payload: payload}, random.IntN(2) == 0)
		}
		for round := 0; ; round++ {
			done, err := fresh(false).processFinalize(t.Context(), &sheaf.Task{Kind: sheaf.KindFinalize, Node: "1", DocumentID: id, TenantID: "t", Generation: 1})
			if err != nil {
				t.Fatal(err)
			}
			if done.Publish != nil {
				if done.Publish.State != sheaf.DocSucceeded || len(reportedBy(store.tasks).headings) == 0 {
					t.Fatalf("published as %+v", done.Publish)
				}
				break
			}
			if round > 0 {
				t.Fatalf("%d ranges are to be stitched again", len(done.Stitch))
			}
			for _, s := range done.Stitch {
				i := slices.IndexFunc(store.tasks, func(old sheaf.Task) bool { return old.ID == s.TaskID })
				store.tasks[i].State = sheaf.TaskSuperseded
				stitched++
				run(sheaf.Task{ID: s.Task.ID, Kind: s.Task.Kind, Node: s.Task.Node, Range: s.Task.Range, Cost: s.Task.Cost, Payload: s.Task.Payload}, true)
			}
		}
		for _, task := range store.tasks {
			if task.State != sheaf.TaskDone {
				continue
			}
			stored, err := artifact.Load(t.Context(), blobs, task.Result.ArtifactKey)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := ix.Count(t.Context(), "t", []string{task.Result.RangeID}); err != nil || n[task.Result.RangeID] != len(stored.Chunks) {
				t.Fatalf("the index has %v chunks of %s, want %d: %v", n, task.Range, len(stored.Chunks), err)
			}
			for i, c := range stored.Chunks {
				want, err := model.Embed(t.Context(), []string{EmbeddingText(store.doc.Name, c)}, embed.Passage)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(stored.Vectors[i], want[0]) {
					t.Fatalf("the vector of chunk %d of %s is not that of its text under %q", i, task.Range, c.HeadingPath)
				}
			}
			chunks = append(chunks, stored.Chunks...)
		}
		return chunks, stitched
	}

	whole, _ := read(sheaf.NewID(), len(units), rand.New(rand.NewPCG(1, 1)))
	want := paths(whole)
	if len(want) != 2*len(units) || !slices.Equal(want["word25"], []string{"Chapter 1", "Section 12"}) {
		t.Fatalf("one task yields %v", want)
	}
	total := 0
	for seed := range uint64(4) {
		chunks, stitched := read(sheaf.NewID(), 2+int(seed)%4, rand.New(rand.NewPCG(seed, 2)))
		total += stitched
		got := paths(chunks)
		for word, path := range want {
			if !slices.Equal(got[word], path) {
				t.Errorf("%s is under %q; in one task it is under %q", word, got[word], path)
			}
		}
		for _, c := range chunks {
			if c.RangeID == "" || !strings.HasPrefix(c.ID, c.RangeID) {
				t.Errorf("chunk %s of range %s", c.ID, c.RangeID)
			}
		}
	}
	if total == 0 {
		t.Error("nothing was stitched: the orders test nothing")
	}
}
