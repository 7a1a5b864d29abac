package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/executor"
	"sheaf/internal/artifact"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
	"sheaf/internal/raptor"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// trees runs raptor over the documents of runs, with the built-in embedder and
// the embedded index.
type trees struct {
	*runs
	index index.Index
	asks  bool // the model
}

func newTrees(t *testing.T, docs ...[]string) *trees {
	t.Helper()
	return newTreesOn(t, "sqlite", docs...)
}

func newTreesOn(t *testing.T, engine string, docs ...[]string) *trees {
	t.Helper()
	f := &trees{runs: newRunsOn(t, engine, docs...)}
	m := static.Default().Model()
	x, err := embedded.Open(t.Context(), embedded.Config{Path: filepath.Join(t.TempDir(), "index.db"), ModelID: m.ID, Dim: m.Dim})
	f.OK(err)
	t.Cleanup(func() { _ = x.Close() })
	f.index = x
	return f
}

// attempt claims the run's task and processes it once.
func (f *trees) attempt(ctx context.Context, r *taskstore.DatasetRun, store executor.RunStore) error {
	f.T.Helper()
	c := executor.Config{Blobs: f.blobs, Index: f.index, Embedder: static.Default(), RunStore: store, Runs: map[sheaf.TaskKind]executor.RunKind{sheaf.KindRaptor: executor.Raptor{Sentences: static.Default()}, sheaf.KindGraphRAG: executor.GraphRAG{}}}
	if f.asks {
		c.Chat = f.chat
	}
	task := f.Claim(f.read(r.ID).TaskID, "w")
	done, err := executor.New(c).Processors()[task.Kind].Process(ctx, task)
	if err != nil {
		f.OK(f.Store.Release(f.T.Context(), task.Held()))
		return err
	}
	return f.Store.Complete(f.T.Context(), task.Held(), done)
}

// run makes a whole run, and says what it came to.
func (f *trees) run(o taskstore.RunOptions) *taskstore.DatasetRun {
	f.T.Helper()
	r := f.start(o)
	f.OK(f.attempt(f.T.Context(), r, f.Store))
	return f.read(r.ID)
}

// summaries reads what may be seen, by document, and checks what holds for each.
func (f *trees) summaries() map[string][]sheaf.Chunk {
	t := f.T
	t.Helper()
	all, err := f.Store.RunResults(t.Context(), "acme", f.docs[0].Dataset, sheaf.KindRaptor, "", "", 1000)
	f.OK(err)
	out := map[string][]sheaf.Chunk{}
	ids := map[string]bool{}
	var chunks []sheaf.Chunk
	for _, r := range all {
		made, err := artifact.Load(t.Context(), f.blobs, sheaf.ArtifactKey("acme", r.DocumentID, r.RangeID))
		f.OK(err)
		n, err := f.index.Count(t.Context(), "acme", []string{r.RangeID})
		f.OK(err)
		if n[r.RangeID] != len(made.Chunks) || r.Chunks != len(made.Chunks) {
			t.Errorf("%s has %d chunks, %d in the index, and says %d", r.RangeID, len(made.Chunks), n[r.RangeID], r.Chunks)
		}
		out[r.DocumentID] = append(out[r.DocumentID], made.Chunks...)
		chunks = append(chunks, made.Chunks...)
		for _, c := range made.Chunks {
			ids[c.ID] = true
		}
	}
	for _, d := range f.docs {
		for _, task := range f.Tasks(d.ID, 1) {
			if made, err := artifact.Load(t.Context(), f.blobs, task.Result.ArtifactKey); err == nil {
				for _, c := range made.Chunks {
					ids[c.ID] = true
				}
			}
		}
	}
	for _, c := range chunks {
		if c.Kind != sheaf.ChunkSummary || c.Role != sheaf.RoleSummary || c.Layer < 1 || len(c.Children) < 2 || len(c.Pages) == 0 || c.Text == "" || c.Metadata[sheaf.MetadataLayer] != fmt.Sprint(c.Layer) {
			t.Errorf("a summary is %+v", c)
		}
		for _, child := range c.Children {
			if !ids[child] {
				t.Errorf("%s sums up %s, which does not exist", c.ID, child)
			}
		}
	}
	return out
}

// birds are texts of n documents with as many chunks each.
func birds(n, chunks int) [][]string {
	kinds := []string{"heron", "stork", "duck", "goose", "bittern", "egret", "coot", "swan"}
	does := []string{"wades in shallow water", "nests on high roofs", "dives for small fish", "flies south in autumn", "stands in the reeds", "feeds its young at dawn"}
	out := make([][]string, n)
	for d := range out {
		for c := range chunks {
			kind := kinds[(d+c/4)%len(kinds)]
			out[d] = append(out[d], fmt.Sprintf("The %s of pond %d %s. Number %d of them was counted in year %d.", kind, d, does[(d+c)%len(does)], c, 1900+c))
		}
	}
	return out
}

func config(s string) taskstore.RunOptions { return taskstore.RunOptions{Config: []byte(s)} }

// Without a model a summary is sentences of its text; each cites what it sums up.
func TestSummariesWithoutAModelAreSentencesOfTheText(t *testing.T) {
	docs := birds(3, 12)
	f := newTrees(t, append(docs, []string{"A single swan."})...)
	r := f.run(config(`{"max_token": 64}`))
	if r.State != taskstore.RunSucceeded || r.Progress.Calls != 0 || len(f.model.Asked()) != 0 {
		t.Fatalf("%+v, asked %d", r, len(f.model.Asked()))
	}
	all := f.summaries()
	for i, d := range f.docs[:3] {
		if len(all[d.ID]) == 0 {
			t.Errorf("document %d has no summaries", i)
		}
		text := strings.Join(docs[i], " ")
		top := 0
		for _, c := range all[d.ID] {
			if c.Layer > top {
				top = c.Layer
			}
			for _, s := range raptor.Sentences(c.Text) {
				if !strings.Contains(text, s) {
					t.Errorf("%q is no sentence of the document", s)
				}
			}
		}
		if top < 2 {
			t.Errorf("document %d has %d layers", i, top)
		}
	}
	if n := len(all[f.docs[3].ID]); n != 0 {
		t.Errorf("a document of one chunk has %d summaries", n)
	}
	again := f.run(config(`{"max_token": 64}`))
	if !strings.Contains(string(again.Result), `"made":0,"kept":4`) {
		t.Errorf("a second run: %s", again.Result)
	}
	if other := f.run(config(`{"max_token": 128}`)); strings.Contains(string(other.Result), `"made":0`) || len(f.summaries()) == 0 {
		t.Errorf("with other options: %s", other.Result)
	}
}

// What a node of a flow has left with a document that was published since the run
// began is not the run's to remove.
func TestARunLeavesLaterDocumentsAlone(t *testing.T) {
	f := newTrees(t, birds(3, 12)...)
	f.run(config(`{"max_token": 64}`))
	r := f.start(config(`{"max_token": 128}`))
	f.Exec("DELETE FROM dataset_run_documents WHERE run_id=? AND doc_id=?", r.ID, f.docs[1].ID)
	before := f.summaries()
	f.OK(f.attempt(t.Context(), r, f.Store))
	after := f.summaries()
	if !slices.EqualFunc(before[f.docs[1].ID], after[f.docs[1].ID], func(a, b sheaf.Chunk) bool { return a.ID == b.ID }) {
		t.Error("the summaries of a document that the run does not know are others, or gone")
	}
	if slices.EqualFunc(before[f.docs[0].ID], after[f.docs[0].ID], func(a, b sheaf.Chunk) bool { return a.ID == b.ID }) {
		t.Error("those of a document that it knows are those of other options")
	}
}

// change replaces what a document says, or adds one.
func (f *trees) change(d storetest.Doc, texts []string) storetest.Doc {
	f.T.Helper()
	if d.ID == "" {
		d = f.Document("acme")
	} else {
		d = f.Reparse(d)
	}
	gen := f.Doc(d.ID).Generation
	for _, task := range f.Plan(d, storetest.Parse(1)...) {
		left := f.Done(task.ID)
		chunks := make([]sheaf.Chunk, len(texts))
		for i, text := range texts {
			chunks[i] = sheaf.Chunk{ID: sheaf.ChunkID(left.RangeID, i), DocumentID: d.ID, Generation: gen, RangeID: left.RangeID, Ordinal: i, Kind: sheaf.ChunkText, Text: text, Pages: []int{1}}
		}
		var buf bytes.Buffer
		f.OK(artifact.Encode(&buf, artifact.Header{DocumentID: d.ID, Generation: gen, RangeID: left.RangeID, Range: task.Range}, chunks, nil))
		_, err := f.blobs.Put(f.T.Context(), left.ArtifactKey, &buf, int64(buf.Len()))
		f.OK(err)
	}
	f.Publish(d.ID, sheaf.DocSucceeded)
	return d
}

// result is what a run says of itself.
func result(r *taskstore.DatasetRun) (out executor.RaptorResult) {
	_ = json.Unmarshal(r.Result, &out) // what is missing is zero, and fails the test
	return out
}

// Of 40 documents one changes: at most a tenth of the summaries are made anew.
// With a deleted document what quotes it is gone at once, and no call is made.
func TestSummariesAreIncremental(t *testing.T) {
	f := newTrees(t, birds(40, 6)...)
	f.asks = true
	first := f.run(config(`{"scope": "dataset", "max_token": 64}`))
	all := result(first).Summaries
	if first.State != taskstore.RunSucceeded || first.Progress.Calls != all || all < 80 || len(f.twice()) > 0 {
		t.Fatalf("%d calls for %d summaries, twice %q: %+v", first.Progress.Calls, all, f.twice(), first)
	}
	f.summaries()
	changed := f.docs[7]
	f.change(changed, append(birds(8, 5)[7], "A pelican was seen on the last pond."))
	if left := f.summaries(); len(left[changed.ID]) != 0 {
		t.Errorf("%d summaries of a document that was parsed again are left", len(left[changed.ID]))
	}
	second := f.run(config(`{"scope": "dataset", "max_token": 64}`))
	if made := result(second).Made; second.Progress.Calls > all/10 || made > all/10 || made == 0 {
		t.Errorf("%d of %d summaries were made anew, in %d calls", made, all, second.Progress.Calls)
	}
	t.Logf("one of 40 documents changed: %d of %d summaries anew, %d calls", result(second).Made, all, second.Progress.Calls)

	asked := len(f.model.Asked())
	gone := f.docs[3]
	_, err := f.Store.DeleteDocuments(t.Context(), "acme", []string{gone.ID})
	f.OK(err)
	results, err := f.Store.RunResults(t.Context(), "acme", gone.Dataset, sheaf.KindRaptor, "", "", 1000)
	f.OK(err)
	if n := f.Int("SELECT COUNT(*) FROM run_result_sources WHERE doc_id=?", gone.ID); n != 0 || len(results) == 0 {
		t.Errorf("%d results quote a deleted document, %d are left", n, len(results))
	}
	third := f.run(config(`{"scope": "file", "max_token": 64}`))
	if third.Progress.Calls != 0 || len(f.model.Asked()) != asked || result(third).Documents != 39 {
		t.Errorf("after a deletion: %d calls, %+v", third.Progress.Calls, result(third))
	}
	if n := f.Int("SELECT COUNT(*) FROM run_results WHERE layer>0"); n != 0 {
		t.Errorf("%d summaries above the documents are left where they are not asked for", n)
	}
}

// cutOff attempts a run, each time cut off at another statement, until it ends, and
// counts the cuts.
func (f *trees) cutOff(r *taskstore.DatasetRun) (cuts int) {
	f.T.Helper()
	for n := 0; ; n = (n + 3) % 37 {
		err := f.attempt(f.T.Context(), r, &cutting{RunStore: f.Store, left: n})
		if err == nil {
			return cuts
		}
		if cuts++; !errors.Is(err, errCut) || cuts > 300 {
			f.T.Fatalf("after %d cuts: %v", cuts, err)
		}
	}
}

// Wherever a run ends, nothing is paid for twice, and all of it is there in the
// end.
func TestRaptorIsCutOffAnywhere(t *testing.T) {
	f := newTrees(t, birds(3, 6)...)
	f.asks = true
	r := f.start(config(`{"scope": "dataset"}`))
	cuts := f.cutOff(r)
	if twice := f.twice(); len(twice) > 0 || cuts < 5 {
		t.Errorf("after %d cuts asked more than once: %q", cuts, twice)
	}
	if got := f.read(r.ID); got.State != taskstore.RunSucceeded || len(f.summaries()) != 3 {
		t.Errorf("%+v", got)
	}
	other := newTrees(t, birds(3, 6)...)
	other.asks = true
	other.run(config(`{"scope": "dataset"}`))
	if a, b := f.texts(), other.texts(); !slices.Equal(a, b) {
		t.Errorf("a run that was cut off made\n%q\nand one that was not\n%q", a, b)
	}
}

// texts are those of all summaries, sorted.
func (f *trees) texts() (out []string) {
	for _, chunks := range f.summaries() {
		for _, c := range chunks {
			out = append(out, fmt.Sprint(c.Layer, " ", c.Text))
		}
	}
	slices.Sort(out)
	return out
}

// What the model fails at is told, sentences stand in for it, and a resumed run
// asks for that alone.
func TestFailedSummariesAreToldAndTriedAgain(t *testing.T) {
	f := newTrees(t, birds(1, 2)...)
	f.asks = true
	f.model.Next(chattest.Broken, chattest.Broken, chattest.Broken)
	r := f.run(config(``))
	if out := result(r); r.State != taskstore.RunPartial || out.Failed != 1 || len(out.Reasons) != 1 || out.Reasons[0].Code != "chat_bad_answer" || out.Summaries != 1 || r.Cause == "" {
		t.Fatalf("%+v, %+v", r, out)
	}
	f.summaries()
	_, err := f.Store.ResumeRun(t.Context(), "acme", f.docs[0].Dataset, r.ID, r.Options, "")
	f.OK(err)
	f.OK(f.attempt(t.Context(), r, f.Store))
	if got := f.read(r.ID); got.State != taskstore.RunSucceeded || result(got).Failed != 0 || got.Cause != "" {
		t.Errorf("%+v", got)
	}
	if texts := f.texts(); len(texts) != 1 || !strings.Contains(texts[0], "Sum up") {
		t.Errorf("%q", texts)
	}
}

// At its budget a run is parked, and what it has can be found.
func TestParkedRaptorHasWhatItPaidFor(t *testing.T) {
	f := newTrees(t, birds(6, 4)...)
	f.asks = true
	r := f.run(taskstore.RunOptions{MaxTokens: 1200})
	got := len(f.summaries())
	if r.State != taskstore.RunParked || got == 0 || got == 6 {
		t.Fatalf("%s with summaries of %d documents: %+v", r.State, got, r)
	}
	_, err := f.Store.ResumeRun(t.Context(), "acme", f.docs[0].Dataset, r.ID, taskstore.RunOptions{}, "")
	f.OK(err)
	f.OK(f.attempt(t.Context(), r, f.Store))
	if r := f.read(r.ID); r.State != taskstore.RunSucceeded || len(f.summaries()) != 6 || len(f.twice()) > 0 {
		t.Errorf("%+v, twice %q", r, f.twice())
	}
}

// A budget that suffices is enough however many questions are asked at once, though
// what they reserve together is more.
func TestBudgetThatSufficesParksNothing(t *testing.T) {
	f := newTrees(t, birds(6, 4)...)
	f.asks = true
	f.model.Slow(5 * time.Millisecond) // so that several are on their way
	if r := f.run(taskstore.RunOptions{MaxTokens: 2000}); r.State != taskstore.RunSucceeded || r.Progress.Tokens > 2000 {
		t.Errorf("%+v", r)
	}
}

// What people edit is summed up as they have it, and a summary of what they
// removed is gone at once.
func TestSummariesFollowEdits(t *testing.T) {
	f := newTrees(t, []string{"The heron wades.", "The secret is 4711.", "The stork nests."})
	f.run(config(``))
	if !strings.Contains(strings.Join(f.texts(), " "), "4711") {
		t.Fatalf("%q", f.texts())
	}
	d := f.docs[0]
	base := f.Tasks(d.ID, 1)
	at := slices.IndexFunc(base, func(t sheaf.Task) bool { return t.Result.RangeID != "" })
	rangeID := base[at].Result.RangeID
	_, err := f.Store.PutEdit(t.Context(), taskstore.ChunkEdit{ID: sheaf.NewID(), TenantID: "acme", DocumentID: d.ID, Author: "me", Content: taskstore.EditContent{Deleted: true},
		Placement: taskstore.Placement{Generation: 1, ChunkID: sheaf.ChunkID(rangeID, 1), BaseRange: rangeID}}, 0)
	f.OK(err)
	if left := f.texts(); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
	f.run(config(``))
	if got := strings.Join(f.texts(), " "); strings.Contains(got, "4711") || !strings.Contains(got, "stork") {
		t.Errorf("%q", got)
	}
}

// A dataset that is emptied while it is summed up leaves no summary.
func TestDatasetIsEmptiedWhileItIsSummedUp(t *testing.T) {
	f := newTrees(t, birds(3, 4)...)
	f.asks = true
	r := f.start(config(`{"scope": "dataset"}`))
	f.OK(f.attempt(t.Context(), r, &deleting{RunStore: f.Store, now: func() {
		_, err := f.Store.DeleteDocuments(t.Context(), "acme", []string{f.docs[0].ID, f.docs[1].ID, f.docs[2].ID})
		f.OK(err)
	}}))
	if got := f.read(r.ID); got.State != taskstore.RunSucceeded || result(got).Gone != 3 || f.Int("SELECT COUNT(*) FROM run_results")+f.Int("SELECT COUNT(*) FROM run_result_sources") != 0 {
		t.Errorf("%+v", got)
	}
}

// The same documents make the same summaries whatever the store, wherever the run
// is cut off.
func TestRaptorIsTheSameOnEveryEngine(t *testing.T) {
	want := newTrees(t, birds(5, 6)...)
	want.run(config(`{"scope": "dataset", "max_token": 64}`))
	texts := want.texts()
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		f := newTreesOn(t, engine, birds(5, 6)...)
		r := f.start(config(`{"scope": "dataset", "max_token": 64}`))
		for n := 1; ; n += 2 {
			err := f.attempt(t.Context(), r, &cutting{RunStore: f.Store, left: n})
			if err == nil {
				break
			}
			if !errors.Is(err, errCut) || n > 300 {
				t.Fatal(err)
			}
		}
		got := f.texts()
		for i := range min(len(got), len(texts)) {
			if got[i] != texts[i] {
				t.Errorf("summary %d is %q, not %q", i, got[i], texts[i])
			}
		}
		if len(got) != len(texts) || len(got) < 12 {
			t.Errorf("%d summaries, not %d", len(got), len(texts))
		}
	})
}
