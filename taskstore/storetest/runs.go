package storetest

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

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

	// Of many at once one begins; the others are told which.
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

	// What a run reads, and what is behind: changed, new and gone documents.
	docs, err := b.RunDocuments(b.ctx, first.ID, "", 1)
	b.ok(err)
	more, err := b.RunDocuments(b.ctx, first.ID, docs[0].ID, 10)
	b.ok(err)
	b.same("documents", []any{len(docs), len(more), len(docs[0].Ranges) > 0, docs[0].Ranges[0].ArtifactKey != ""}, []any{1, 1, true, true})
	three := live("three.txt")
	b.same("behind a new one", read(first.ID).Behind, 1)

	// Progress and results are written under the claim alone, and touch no document.
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

	// At its budget it parks, and goes on when it is resumed with another.
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

	// A dead task that is retried after a newer run began may write nothing.
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

	// Paid answers are found by what was asked, those of the document first, and go
	// with the document, also where others share them.
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

	// The oldest are forgotten, a wipe forgets all of a kind.
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

	// With its dataset a run ends.
	last := start()
	b.claim(last.TaskID)
	_, err = b.DeleteDataset(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("runs of a deleted dataset", count(""), 0)
}
