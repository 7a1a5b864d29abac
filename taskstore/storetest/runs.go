package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

func testDatasetRuns(t *testing.T, b *bench) {
	const kind = sheaf.KindRaptor
	live := func(name string) string {
		t.Helper()
		_, id, _ := b.live(name)
		return id
	}
	start := func() *taskstore.DatasetRun {
		t.Helper()
		r, err := b.StartRun(b.ctx, taskstore.DatasetRun{TenantID: b.tenant, DatasetID: b.dataset.ID, Kind: kind, Options: taskstore.RunOptions{MaxTokens: 10}}, "")
		b.ok(err)
		return r
	}
	read := func(id string) *taskstore.DatasetRun {
		t.Helper()
		r, err := b.Run(b.ctx, b.tenant, b.dataset.ID, id)
		b.ok(err)
		return r
	}
	one, two := live("one.txt"), live("two.txt")

	// Only one of several concurrent starts succeeds; the others get its id.
	var wg sync.WaitGroup
	var mu sync.Mutex
	var begun []string
	told := map[string]bool{}
	for range 4 {
		wg.Go(func() {
			r, err := b.StartRun(b.ctx, taskstore.DatasetRun{TenantID: b.tenant, DatasetID: b.dataset.ID, Kind: kind}, "")
			mu.Lock()
			defer mu.Unlock()
			if open, ok := errors.AsType[*taskstore.RunOpen](err); ok && errors.Is(err, sheaf.ErrConflict) {
				told[open.ID] = true
			} else if err != nil {
				t.Error(err)
			} else {
				begun = append(begun, r.ID)
			}
		})
	}
	wg.Wait()
	if len(begun) != 1 || len(told) != 1 || !told[begun[0]] {
		t.Fatalf("%v began, and the others were told %v", begun, told)
	}
	first := read(begun[0])
	b.same("queued", []any{first.State, first.Number, first.Documents, first.Behind, first.FinishedAt.IsZero()}, []any{taskstore.RunQueued, 1, 2, 0, true})
	other, err := b.StartRun(b.ctx, taskstore.DatasetRun{TenantID: b.tenant, DatasetID: b.dataset.ID, Kind: sheaf.KindMindmap}, "")
	b.ok(err)
	b.same("another kind runs beside it", other.State, taskstore.RunQueued)
	_, err = b.CancelRun(b.ctx, b.tenant, b.dataset.ID, other.ID)
	b.ok(err)
	b.same("canceled at once", read(other.ID).State, taskstore.RunCanceled)

	// What a run reads, and what is behind: changed, new and deleted documents.
	docs, err := b.RunDocuments(b.ctx, first.ID, "", 1)
	b.ok(err)
	more, err := b.RunDocuments(b.ctx, first.ID, docs[0].ID, 10)
	b.ok(err)
	b.same("documents", []any{len(docs), len(more), len(docs[0].Ranges) > 0, docs[0].Ranges[0].ArtifactKey != ""}, []any{1, 1, true, true})
	three := live("three.txt")
	b.same("behind a new one", read(first.ID).Behind, 1)

	// Progress and results need the claim, and change no document.
	before, err := b.Document(b.ctx, b.tenant, one)
	b.ok(err)
	task := b.claim(first.TaskID)
	b.same("running", read(first.ID).State, taskstore.RunRunning)
	held, err := b.HeldRun(b.ctx, task.Held())
	b.ok(err)
	b.same("held", held.ID, first.ID)
	stale := task.Held()
	stale.Epoch++
	for what, err := range map[string]error{
		"held":     second(b.HeldRun(b.ctx, stale)),
		"report":   b.ReportRun(b.ctx, stale, taskstore.RunProgress{}),
		"complete": b.Complete(b.ctx, stale, taskstore.Completion{Run: &taskstore.RunEnd{State: taskstore.RunSucceeded}}),
	} {
		if !errors.Is(err, sheaf.ErrStale) {
			t.Errorf("%s under a stale claim: %v", what, err)
		}
	}
	b.ok(b.ReportRun(b.ctx, task.Held(), taskstore.RunProgress{Phase: "summaries", Done: 1, Total: 2, Tokens: 7, Calls: 1}))
	b.same("progress", read(first.ID).Progress, taskstore.RunProgress{Phase: "summaries", Done: 1, Total: 2, Tokens: 7, Calls: 1})
	after, err := b.Document(b.ctx, b.tenant, one)
	b.ok(err)
	b.same("the document", []any{after.State, after.Progress, after.Chunks, after.UpdatedAt}, []any{before.State, before.Progress, before.Chunks, before.UpdatedAt})

	// At its budget it parks, and continues when it is resumed with another.
	b.ok(b.Complete(b.ctx, task.Held(), taskstore.Completion{Run: &taskstore.RunEnd{State: taskstore.RunParked, Cause: "at the cap", Progress: taskstore.RunProgress{Tokens: 10}, Result: json.RawMessage(`{"n":1}`)}}))
	parked := read(first.ID)
	b.same("parked", []any{parked.State, parked.Cause, parked.Progress.Tokens, string(parked.Result), parked.FinishedAt.IsZero()}, []any{taskstore.RunParked, "at the cap", int64(10), `{"n":1}`, false})
	resumed, err := b.ResumeRun(b.ctx, b.tenant, b.dataset.ID, first.ID, taskstore.RunOptions{MaxTokens: 99}, "")
	b.ok(err)
	b.same("resumed", []any{resumed.State, resumed.Options.MaxTokens, resumed.Progress.Tokens, resumed.Documents}, []any{taskstore.RunQueued, int64(99), int64(10), 2})
	if _, err := b.ResumeRun(b.ctx, b.tenant, b.dataset.ID, first.ID, taskstore.RunOptions{}, ""); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("resumed twice: %v", err)
	}
	if _, err := b.WipeRuns(b.ctx, b.tenant, b.dataset.ID, kind); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("wiped while it runs: %v", err)
	}

	// A dead task that is retried after a newer run started may write nothing.
	task = b.claim(resumed.TaskID)
	_, err = b.FailTask(b.ctx, task.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryTarget, "broken", "it broke")})
	b.ok(err)
	b.same("failed", []any{read(first.ID).State, read(first.ID).Cause}, []any{taskstore.RunFailed, "it broke"})
	newer := start()
	b.same("newer", []any{newer.Number, newer.Documents}, []any{2, 3})
	_, err = b.RetryDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{IDs: []string{task.ID}})
	b.ok(err)
	revived := b.claim(task.ID)
	if _, err := b.HeldRun(b.ctx, revived.Held()); !errors.Is(err, sheaf.ErrStale) {
		t.Fatalf("an older run may go on: %v", err)
	}
	_, err = b.CancelRun(b.ctx, b.tenant, b.dataset.ID, first.ID)
	b.ok(err)
	_, err = b.FailTask(b.ctx, revived.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryCanceled, "canceled", "canceled")})
	b.ok(err)
	if _, err := b.ResumeRun(b.ctx, b.tenant, b.dataset.ID, first.ID, taskstore.RunOptions{}, ""); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("an older run was resumed: %v", err)
	}

	// Paid answers are found by their question, the document's first, and are removed
	// with the document, even if others share them.
	keep := func(name, key string, docs ...string) {
		t.Helper()
		b.ok(b.NoteRunItem(b.ctx, b.tenant, name, key, docs))
	}
	item := func(name, doc string) string {
		t.Helper()
		keys, err := b.RunItems(b.ctx, b.tenant, name, doc)
		b.ok(err)
		return strings.Join(keys, " ")
	}
	keep("q", "k/one", one)
	keep("q", "k/two", two)
	keep("shared", "k/shared", one, two)
	b.same("items", []string{item("q", one), item("q", two), item("q", three), item("none", one)}, []string{"k/one k/two", "k/two k/one", item("q", "nobody"), ""})
	if keys, err := b.RunItems(b.ctx, "other", "q", one); err != nil || len(keys) > 0 {
		t.Fatalf("another tenant finds %q, %v", keys, err)
	}
	_, err = b.DeleteDocuments(b.ctx, b.tenant, []string{one})
	b.ok(err)
	b.same("after the deletion", []string{item("q", one), item("shared", two)}, []string{"k/two", ""})
	if err := b.NoteRunItem(b.ctx, b.tenant, "late", "k/late", []string{one}); !errors.Is(err, sheaf.ErrNotFound) {
		t.Fatalf("kept of a deleted document: %v", err)
	}
	docs, err = b.RunDocuments(b.ctx, newer.ID, "", 10)
	b.ok(err)
	b.same("documents that are left, and behind", []int{len(docs), read(newer.ID).Behind}, []int{2, 1})

	// Another tenant sees and changes nothing.
	for what, err := range map[string]error{
		"start":  second(b.StartRun(b.ctx, taskstore.DatasetRun{TenantID: "other", DatasetID: b.dataset.ID, Kind: kind}, "")),
		"read":   second(b.Run(b.ctx, "other", b.dataset.ID, newer.ID)),
		"cancel": second(b.CancelRun(b.ctx, "other", b.dataset.ID, newer.ID)),
		"resume": second(b.ResumeRun(b.ctx, "other", b.dataset.ID, newer.ID, taskstore.RunOptions{}, "")),
		"wipe":   second(b.WipeRuns(b.ctx, "other", b.dataset.ID, kind)),
	} {
		if !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("%s of another tenant: %v", what, err)
		}
	}

	// The oldest runs are removed, a wipe removes all of a kind.
	for range taskstore.MaxRuns + 1 {
		_, err := b.CancelRun(b.ctx, b.tenant, b.dataset.ID, newer.ID)
		b.ok(err)
		newer = start()
	}
	count := func(kind sheaf.TaskKind) int {
		t.Helper()
		rs, _, err := b.Runs(b.ctx, b.tenant, b.dataset.ID, kind, taskstore.Page{Limit: 1000})
		b.ok(err)
		return len(rs)
	}
	b.same("kept", []int{count(kind), count("")}, []int{taskstore.MaxRuns, taskstore.MaxRuns + 1})
	_, err = b.CancelRun(b.ctx, b.tenant, b.dataset.ID, newer.ID)
	b.ok(err)
	wiped, err := b.WipeRuns(b.ctx, b.tenant, b.dataset.ID, kind)
	b.ok(err)
	b.same("wiped", []int{wiped, count(kind), count("")}, []int{taskstore.MaxRuns, 0, 1})

	// A run ends with its dataset.
	last := start()
	b.claim(last.TaskID)
	_, err = b.DeleteDataset(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("runs of a deleted dataset", count(""), 0)
}

func testRunResults(t *testing.T, b *bench) {
	const kind = sheaf.KindRaptor
	_, one, ranges := b.live("one.txt")
	_, two, _ := b.live("two.txt")
	run, err := b.StartRun(b.ctx, taskstore.DatasetRun{TenantID: b.tenant, DatasetID: b.dataset.ID, Kind: kind, Options: taskstore.RunOptions{AutoUpdate: time.Millisecond}}, "")
	b.ok(err)
	claim := b.claim(run.TaskID).Held()
	put := func(id string, layer int, instead []string, docs ...string) error {
		t.Helper()
		rangeID := sheaf.RunRangePrefix + id
		if err := b.ReserveRanges(b.ctx, b.tenant, docs[0], []string{rangeID}); err != nil {
			return err
		}
		r := taskstore.RunResult{RangeID: rangeID, DocumentID: docs[0], Name: "name-" + id, Layer: layer, Chunks: 2, Tokens: 9}
		for _, d := range docs {
			r.Sources = append(r.Sources, taskstore.RunSource{DocumentID: d, Generation: b.doc(d).LiveGeneration})
		}
		return b.PutRunResult(b.ctx, claim, r, instead)
	}
	seen := func(ids ...string) (out []string) {
		t.Helper()
		for i := range ids {
			ids[i] = sheaf.RunRangePrefix + ids[i]
		}
		v, err := b.Visible(b.ctx, b.tenant, append(ids, ranges...))
		b.ok(err)
		for _, id := range ids {
			if r, ok := v[id]; ok {
				out = append(out, strings.TrimPrefix(id, sheaf.RunRangePrefix)+"@"+r.Name)
			}
		}
		return out
	}
	listed := func() (out []string) {
		t.Helper()
		for after := ""; ; {
			some, err := b.LiveResults(b.ctx, "", after, 1)
			b.ok(err)
			if len(some) == 0 {
				return out
			}
			if after = some[0].Cursor; strings.HasPrefix(some[0].RangeID, sheaf.RunRangePrefix) && some[0].TenantID == b.tenant {
				out = append(out, strings.TrimPrefix(some[0].RangeID, sheaf.RunRangePrefix))
			}
		}
	}
	stamp := func() string {
		t.Helper()
		v, err := b.DatasetStamp(b.ctx, b.tenant, b.dataset.ID)
		b.ok(err)
		return v
	}
	before := stamp()
	b.ok(put("a", 0, nil, one))
	if stamp() == before {
		t.Fatal("the stamp of a dataset does not see what a run left")
	}
	b.ok(put("b", 0, nil, two))
	b.ok(put("both", 1, nil, one, two))
	b.same("visible", seen("a", "b", "both", "none"), []string{"a@one.txt", "b@two.txt", "both@one.txt"})
	b.same("to be indexed", listed(), []string{"a", "b", "both"})
	if v, err := b.Visible(b.ctx, "nobody", []string{sheaf.RunRangePrefix + "a"}); err != nil || len(v) > 0 {
		t.Fatalf("another tenant sees %v, %v", v, err)
	}
	totals, err := b.LiveTotals(b.ctx, "")
	b.ok(err)
	found := map[string]bool{}
	all, err := b.ResultsOf(b.ctx, []string{one, two})
	b.ok(err)
	for _, r := range all {
		if strings.HasPrefix(r.RangeID, sheaf.RunRangePrefix) {
			found[r.RangeID] = r.Live
		}
	}
	b.same("inventory", []any{found[sheaf.RunRangePrefix+"a"], found[sheaf.RunRangePrefix+"both"], totals.Chunks >= 6}, []any{true, true, true})
	f, err := b.RunForecast(b.ctx, b.tenant, b.dataset.ID, kind, true)
	b.ok(err)
	b.same("forecast", []any{f.Documents, f.Current, f.Chunks}, []any{2, 2, int64(0)})
	f, err = b.RunForecast(b.ctx, b.tenant, b.dataset.ID, kind, false)
	b.ok(err)
	b.same("forecast with other options", []any{f.Documents, f.Current, f.Chunks > 0}, []any{2, 0, true})
	results, err := b.RunResults(b.ctx, b.tenant, b.dataset.ID, kind, "", "", 2)
	b.ok(err)
	of, err := b.RunResults(b.ctx, b.tenant, b.dataset.ID, kind, one, "", 10)
	b.ok(err)
	b.same("results", []any{len(results), results[0].Name, len(of), of[0].Chunks, of[0].DocumentID}, []any{2, "name-a", 1, 2, one})

	// In place of another, which goes to the collector.
	before = stamp()
	b.ok(put("a2", 0, []string{sheaf.RunRangePrefix + "a"}, one))
	if stamp() == before {
		t.Fatal("the stamp of a dataset does not see that a result was replaced")
	}
	b.same("replaced", seen("a", "a2"), []string{"a2@one.txt"})
	waits := func(doc, id string) (yes bool) {
		t.Helper()
		refs, err := b.References(b.ctx, nil, []string{doc})
		b.ok(err)
		return refs.Ranges[sheaf.RunRangePrefix+id]
	}
	b.same("garbage", []bool{waits(one, "a"), waits(one, "a2")}, []bool{true, false})

	// The sources are no longer what is live: nothing is shown.
	stale := taskstore.RunResult{RangeID: sheaf.RunRangePrefix + "late", DocumentID: two, Name: "x", Chunks: 1}
	for what, src := range map[string]taskstore.RunSource{"generation": {DocumentID: two, Generation: 9}, "edited": {DocumentID: two, Generation: 1, Version: 3}, "unknown": {DocumentID: "nobody", Generation: 1}} {
		r := stale
		r.Sources = []taskstore.RunSource{src}
		if err := b.PutRunResult(b.ctx, claim, r, nil); !errors.Is(err, sheaf.ErrNotFound) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	// Not reserved, or collected meanwhile.
	stale.Sources = []taskstore.RunSource{{DocumentID: two, Generation: 1}}
	if err := b.PutRunResult(b.ctx, claim, stale, nil); !errors.Is(err, sheaf.ErrStale) {
		t.Fatalf("not reserved: %v", err)
	}
	other := claim
	other.Epoch++
	if err := b.PutRunResult(b.ctx, other, stale, nil); !errors.Is(err, sheaf.ErrStale) {
		t.Fatalf("under a stale claim: %v", err)
	}
	if err := b.DropRunResults(b.ctx, other, []string{sheaf.RunRangePrefix + "b"}); !errors.Is(err, sheaf.ErrStale) {
		t.Fatalf("dropped under a stale claim: %v", err)
	}

	// An edit changes the text of a document.
	_, err = b.PutEdit(b.ctx, b.edit(one, ranges[0], 0, "the heron is grey"), 0)
	b.ok(err)
	b.same("after an edit", seen("a2", "b", "both"), []string{"b@two.txt"})
	docs, err := b.RunDocuments(b.ctx, run.ID, "", 10)
	b.ok(err)
	at := slices.IndexFunc(docs, func(d taskstore.RunDocument) bool { return d.ID == one })
	b.same("edits of a document", []any{docs[at].Version > 0, len(docs[at].Edited)}, []any{true, 1})

	// All results that quote a document are removed with it, immediately.
	b.ok(b.ReserveRanges(b.ctx, b.tenant, two, []string{sheaf.RunRangePrefix + "two-one"}))
	b.ok(b.PutRunResult(b.ctx, claim, taskstore.RunResult{RangeID: sheaf.RunRangePrefix + "two-one", DocumentID: two, Name: "x", Layer: 1, Chunks: 1,
		Sources: []taskstore.RunSource{{DocumentID: one, Generation: 1, Version: docs[at].Version}, {DocumentID: two, Generation: 1}}}, nil))
	_, err = b.DeleteDocuments(b.ctx, b.tenant, []string{one})
	b.ok(err)
	b.same("after a deletion", seen("b", "two-one"), []string{"b@two.txt"})
	b.same("its garbage", waits(two, "two-one"), true)

	// The next run is due when its interval has passed since the last one ended.
	due := func() (n int) {
		rs, err := b.RunsDue(b.ctx, 1000)
		b.ok(err)
		for _, r := range rs {
			if r.DatasetID == b.dataset.ID {
				n++
			}
		}
		return n
	}
	b.same("due while it runs", due(), 0)
	b.ok(b.Complete(b.ctx, claim, taskstore.Completion{Run: &taskstore.RunEnd{State: taskstore.RunSucceeded}}))
	for end := time.Now().Add(10 * time.Second); due() != 1; { // its millisecond passes
		if time.Now().After(end) {
			t.Fatal("the next run is not due")
		}
	}

	// A wipe leaves nothing.
	_, err = b.WipeRuns(b.ctx, b.tenant, b.dataset.ID, kind)
	b.ok(err)
	b.same("wiped", len(seen("b"))+len(listed()), 0)
	b.same("wiped garbage", waits(two, "b"), true)
}

// Datasets whose settings ask for runs are found, page after page, and how long their
// documents have been unchanged.
func testDatasetsThatRun(t *testing.T, b *bench) {
	on := func(name, config string) string {
		d := sheaf.Dataset{TenantID: b.tenant, Name: name}
		b.ok(json.Unmarshal([]byte(config), &d.ParseConfig))
		made, err := b.CreateDataset(b.ctx, d)
		b.ok(err)
		return made.ID
	}
	want := []string{on("summaries", `{"chunk_token_num":64,"raptor":{"max_token":128,"use_raptor":true}}`), on("graph", `{"graphrag":{"use_graphrag": true},"password":"sesame"}`)}
	on("none", `{"raptor":{"use_raptor":false},"graphrag":{"method":"light"}}`)
	slices.Sort(want)
	var got []string
	for after := ""; ; {
		some, err := b.DatasetsThatRun(b.ctx, after, 1)
		b.ok(err)
		if len(some) == 0 {
			break
		}
		if after = some[0].ID; some[0].TenantID == b.tenant {
			got = append(got, after)
		}
		if !some[0].ParseConfig.Raptor.IsSet() && !some[0].ParseConfig.GraphRAG.IsSet() {
			t.Errorf("%s asks for nothing: %+v", some[0].Name, some[0].ParseConfig)
		}
	}
	b.same("datasets that run", got, want)
	live, quiet, err := b.DatasetRest(b.ctx, b.tenant, want[0])
	b.ok(err)
	b.same("an empty one", []any{live, quiet}, []any{0, time.Duration(0)})
	b.live("one.txt")
	live, quiet, err = b.DatasetRest(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("one document, just now", []any{live, quiet >= 0 && quiet < time.Minute}, []any{1, true})
}
