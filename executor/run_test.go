package executor_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/executor"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/chat"
	"sheaf/internal/chat/chattest"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// headlines is a kind of run for these tests: it asks for a headline of each
// chunk, and then for one of all headlines of a document.
type headlines struct{}

func (headlines) Run(ctx context.Context, r *executor.DatasetRun) (end taskstore.RunEnd, err error) {
	var made []string
	err = r.Documents(ctx, func(d taskstore.RunDocument) error {
		chunks, _, err := r.Chunks(ctx, d)
		if err != nil {
			return err
		}
		var all []string
		for i, c := range chunks {
			answer, err := r.Ask(ctx, executor.Question{Documents: []string{d.ID}, Instruction: "headline", Text: c.Text, MaxTokens: 32})
			if errors.Is(err, executor.ErrDocumentGone) {
				return nil
			}
			if err != nil {
				return err
			}
			all = append(all, answer)
			if err := r.Report(ctx, "headlines", i+1, len(chunks)); err != nil {
				return err
			}
		}
		answer, err := r.Ask(ctx, executor.Question{Documents: []string{d.ID}, Instruction: "headline", Text: strings.Join(all, "\n"), MaxTokens: 32})
		made = append(made, answer)
		return err
	})
	end.Result, _ = json.Marshal(made) // strings always encode
	return end, err
}

// runs is a dataset with documents whose chunks are given, on a real store, real
// files and a real server.
type runs struct {
	*storetest.Fixture
	blobs *file.Store
	model *chattest.Server
	chat  *chat.Client
	docs  []storetest.Doc
	kind  sheaf.TaskKind // of runs; "" for raptor
}

func newRuns(t *testing.T, docs ...[]string) *runs {
	t.Helper()
	return newRunsOn(t, "sqlite", docs...)
}

// newRunsOn is newRuns on a store of that engine.
func newRunsOn(t *testing.T, engine string, docs ...[]string) *runs {
	t.Helper()
	f := &runs{Fixture: storetest.New(t, engine), model: chattest.Start(t)}
	var err error
	f.blobs, err = file.Open(t.TempDir())
	f.OK(err)
	f.chat, err = chat.Open(chat.Config{BaseURL: f.model.URL, Model: chattest.Model})
	f.OK(err)
	for _, texts := range docs {
		d := f.Document("acme")
		for _, task := range f.Plan(d, storetest.Parse(1)...) {
			left := f.Done(task.ID)
			chunks := make([]sheaf.Chunk, len(texts))
			for i, text := range texts {
				chunks[i] = sheaf.Chunk{ID: sheaf.ChunkID(left.RangeID, i), DocumentID: d.ID, Generation: 1, RangeID: left.RangeID, Ordinal: i, Kind: sheaf.ChunkText, Text: text, Pages: []int{1}}
			}
			var buf bytes.Buffer
			f.OK(artifact.Encode(&buf, artifact.Header{DocumentID: d.ID, Generation: 1, RangeID: left.RangeID, Range: task.Range}, chunks, nil))
			_, err := f.blobs.Put(t.Context(), left.ArtifactKey, &buf, int64(buf.Len()))
			f.OK(err)
		}
		f.Publish(d.ID, sheaf.DocSucceeded)
		f.docs = append(f.docs, d)
	}
	return f
}

func (f *runs) start(o taskstore.RunOptions) *taskstore.DatasetRun {
	f.T.Helper()
	r, err := f.Store.StartRun(f.T.Context(), taskstore.DatasetRun{TenantID: "acme", DatasetID: f.docs[0].Dataset, Kind: cmp.Or(f.kind, sheaf.KindRaptor), Options: o}, "")
	f.OK(err)
	return r
}

func (f *runs) read(id string) *taskstore.DatasetRun {
	f.T.Helper()
	r, err := f.Store.Run(f.T.Context(), "acme", f.docs[0].Dataset, id)
	f.OK(err)
	return r
}

// attempt claims the run's task and processes it once, as far as it goes.
func (f *runs) attempt(ctx context.Context, r *taskstore.DatasetRun, store executor.RunStore, blobs blob.Store) error {
	f.T.Helper()
	e := executor.New(executor.Config{Blobs: blobs, Chat: f.chat, Runs: map[sheaf.TaskKind]executor.RunKind{sheaf.KindRaptor: headlines{}}, RunStore: store})
	task := f.Claim(f.read(r.ID).TaskID, "w")
	done, err := e.Processors()[sheaf.KindRaptor].Process(ctx, task)
	if err != nil {
		f.OK(f.Store.Release(f.T.Context(), task.Held())) // as a worker that is stopped
		return err
	}
	return f.Store.Complete(f.T.Context(), task.Held(), done)
}

// twice lists what the server was asked more than once.
func (f *runs) twice() (out []string) {
	asked := f.model.Asked()
	slices.Sort(asked)
	for i := 1; i < len(asked); i++ {
		if asked[i] == asked[i-1] {
			out = append(out, asked[i])
		}
	}
	return out
}

var errCut = errors.New("cut off here")

// cutting fails its nth write or read, and all that follow: as if the process
// ended there.
type cutting struct {
	executor.RunStore
	mu   sync.Mutex // a run asks several questions at once
	left int
}

func (c *cutting) step() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		return errCut
	}
	return nil
}

func (c *cutting) ReportRun(ctx context.Context, claim sheaf.Claim, p taskstore.RunProgress) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.RunStore.ReportRun(ctx, claim, p)
}

func (c *cutting) RunItems(ctx context.Context, tenant, name, doc string) ([]string, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	return c.RunStore.RunItems(ctx, tenant, name, doc)
}

func (c *cutting) PutRunResult(ctx context.Context, claim sheaf.Claim, r taskstore.RunResult, instead []string) error {
	if err := c.step(); err != nil {
		return err
	}
	err := c.RunStore.PutRunResult(ctx, claim, r, instead)
	if cut := c.step(); err == nil {
		err = cut
	}
	return err
}

func (c *cutting) ReserveRanges(ctx context.Context, tenant, doc string, ids []string) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.RunStore.ReserveRanges(ctx, tenant, doc, ids)
}

func (c *cutting) DropRunResults(ctx context.Context, claim sheaf.Claim, ids []string) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.RunStore.DropRunResults(ctx, claim, ids)
}

func (c *cutting) NoteRunItem(ctx context.Context, tenant, name, key string, docs []string) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.RunStore.NoteRunItem(ctx, tenant, name, key, docs)
}

// Wherever a run is cut off, what it paid for is not paid for again.
func TestNoAnswerIsPaidForTwice(t *testing.T) {
	f := newRuns(t, []string{"herons wade", "storks stand", "ducks swim"}, []string{"herons wade", "geese fly"})
	r := f.start(taskstore.RunOptions{})
	cuts := 0
	for n := 0; ; n = n%7 + 1 { // each step of a question, again and again
		err := f.attempt(t.Context(), r, &cutting{RunStore: f.Store, left: n}, f.blobs)
		if err == nil {
			break
		}
		if cuts++; !errors.Is(err, errCut) || cuts > 200 {
			t.Fatalf("after %d cuts: %v", cuts, err)
		}
		if n == 7 { // what is there is read in passing from here on
			if err := f.attempt(t.Context(), r, &cutting{RunStore: f.Store, left: 20}, f.blobs); err == nil {
				break
			}
		}
	}
	if cuts < 7 {
		t.Errorf("only %d cuts", cuts)
	}
	if twice := f.twice(); len(twice) > 0 {
		t.Errorf("asked more than once: %q", twice)
	}
	if n := len(f.model.Asked()); n != 6 { // four texts, one of them in both documents, and two sums
		t.Errorf("%d questions, want 6: %q", n, f.model.Asked())
	}
	got := f.read(r.ID)
	if got.State != taskstore.RunSucceeded || !strings.Contains(string(got.Result), "herons wade") {
		t.Errorf("%s: %s", got.State, got.Result)
	}

	// A second run over the same costs nothing, and deletions ask nothing.
	_, err := f.Store.DeleteDocuments(t.Context(), "acme", []string{f.docs[0].ID})
	f.OK(err)
	again := f.start(taskstore.RunOptions{})
	f.OK(f.attempt(t.Context(), again, f.Store, f.blobs))
	if n := len(f.model.Asked()); n != 6 {
		t.Errorf("%d questions after a deletion, want 6", n)
	}
	if got := f.read(again.ID); got.Progress.Tokens != 0 || got.Progress.Calls != 0 || got.Progress.Cached != 3 || got.Documents != 1 {
		t.Errorf("the second run: %+v", got)
	}
}

// At its cap a run parks with what it has, never above it, and goes on when the
// cap is raised.
func TestBudgetParksARun(t *testing.T) {
	var texts []string
	for i := range 8 {
		texts = append(texts, fmt.Sprintf("bird number %d stands in the water", i))
	}
	f := newRuns(t, texts)
	const most = 150
	r := f.start(taskstore.RunOptions{MaxTokens: most})
	f.OK(f.attempt(t.Context(), r, f.Store, f.blobs))
	parked := f.read(r.ID)
	if parked.State != taskstore.RunParked || parked.Progress.Tokens > most || parked.Progress.Calls == 0 || parked.Progress.Calls >= 9 || !strings.Contains(parked.Cause, "150 tokens") {
		t.Fatalf("%+v", parked)
	}
	_, err := f.Store.ResumeRun(t.Context(), "acme", f.docs[0].Dataset, r.ID, taskstore.RunOptions{MaxPrice: 1, Price: 2}, "")
	f.OK(err)
	f.OK(f.attempt(t.Context(), r, f.Store, f.blobs))
	got := f.read(r.ID)
	if got.State != taskstore.RunSucceeded || got.Progress.Calls != 9 || got.Progress.Cached != parked.Progress.Calls || got.Cause != "" {
		t.Errorf("%+v", got)
	}
	if twice := f.twice(); len(twice) > 0 {
		t.Errorf("asked more than once: %q", twice)
	}
}

// deleting deletes a document when it is asked about.
type deleting struct {
	executor.RunStore
	mu  sync.Mutex
	now func()
}

func (d *deleting) NoteRunItem(ctx context.Context, tenant, name, key string, docs []string) error {
	err := d.RunStore.NoteRunItem(ctx, tenant, name, key, docs)
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.now; now != nil {
		d.now = nil
		now()
	}
	return err
}

// A dataset that is emptied while a run reads it leaves no answer about what it
// held, and the run ends.
func TestEmptiedDatasetLeavesNoAnswer(t *testing.T) {
	f := newRuns(t, []string{"herons wade", "storks stand"}, []string{"geese fly"})
	r := f.start(taskstore.RunOptions{})
	err := f.attempt(t.Context(), r, &deleting{RunStore: f.Store, now: func() {
		_, err := f.Store.DeleteDocuments(t.Context(), "acme", []string{f.docs[0].ID, f.docs[1].ID})
		f.OK(err)
	}}, f.blobs)
	f.OK(err)
	if got := f.read(r.ID); got.State != taskstore.RunSucceeded || got.Behind != 2 {
		t.Errorf("%+v", got)
	}
	left := 0
	f.OK(f.blobs.List(t.Context(), "artifacts/", func(i blob.Info) bool {
		if strings.Contains(i.Key, "/items/") {
			left++
		}
		return true
	}))
	if n := f.Int("SELECT COUNT(*) FROM run_items"); left+n > 0 {
		t.Errorf("%d answers and %d notes are left", left, n)
	}
}

// A run that is canceled stops within its question, and its state and that of the
// documents are what they should be. One that asks a server in trouble fails as
// any task that asks it, and may be tried again.
func TestRunIsCanceledAndMeetsTrouble(t *testing.T) {
	f := newRuns(t, []string{"herons wade"})
	before := f.Doc(f.docs[0].ID)
	r := f.start(taskstore.RunOptions{})
	f.model.Next(chattest.Limited)
	if _, ok := errors.AsType[*sheaf.RateLimited](f.attempt(t.Context(), r, f.Store, f.blobs)); !ok {
		t.Error("a 429 is not told as such")
	}
	for _, trouble := range []chattest.Trouble{chattest.CutOff, chattest.Broken} {
		f.model.Next(trouble)
		if err := f.attempt(t.Context(), r, f.Store, f.blobs); err == nil {
			t.Errorf("trouble %d passed", trouble)
		}
	}
	stop := errors.New("asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := f.attempt(ctx, r, &deleting{RunStore: f.Store, now: func() { cancel(stop) }}, f.blobs)
	if !errors.Is(err, stop) {
		t.Fatalf("canceled: %v", err)
	}
	_, err = f.Store.CancelRun(t.Context(), "acme", f.docs[0].Dataset, r.ID)
	f.OK(err)
	if got := f.read(r.ID); got.State != taskstore.RunCanceled {
		t.Errorf("%+v", got)
	}
	if after := f.Doc(f.docs[0].ID); after.State != before.State || after.Progress != before.Progress || after.UpdatedAt != before.UpdatedAt {
		t.Errorf("the document was %+v and is %+v", before, after)
	}
}
