package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// testOpenJobs: a job takes files from several requests and does not end before it
// is closed, or its idle timeout passes.
func testOpenJobs(t *testing.T, b *bench) {
	named := func(n int, from int) (docs []taskstore.NewDocument, names []string) {
		for i := range n {
			d := b.newDocument(fmt.Sprintf("%d.pdf", from+i))
			docs, names = append(docs, d), append(names, d.Document.Name)
		}
		return docs, names
	}
	add := func(job sheaf.Job, docs []taskstore.NewDocument, names []string) error {
		job.Files, job.Statistics.Scanned = names, len(docs)
		_, err := b.AddDocuments(b.ctx, job, docs, "")
		return err
	}
	read := func(id string) *sheaf.Job {
		j, err := b.Job(b.ctx, b.tenant, id)
		b.ok(err)
		ended, err := b.JobEnded(b.ctx, b.tenant, id)
		b.ok(err)
		b.same("ended, as the job says", ended, j.State.Terminal())
		given, err := b.JobGiven(b.ctx, b.tenant, id)
		b.ok(err)
		b.same("what it was given", []any{given.ID, given.Name, given.Requester, given.Statistics.Scanned, given.OpenUntil, given.CreatedAt}, []any{j.ID, j.Name, j.Requester, j.Statistics.Scanned, j.OpenUntil, j.CreatedAt})
		return j
	}
	job := b.newJob(sheaf.JobIngest)
	job.Requester = "scanner"
	b.ok(b.OpenJob(b.ctx, job, time.Hour))
	b.ok(b.OpenJob(b.ctx, job, time.Hour)) // repeated
	if j := read(job.ID); j.State != sheaf.DocQueued || j.Name != "" || j.OpenUntil.Sub(j.CreatedAt) != time.Hour || j.Requester != "scanner" {
		t.Fatalf("opened: %+v", j)
	}

	first, names := named(3, 1)
	b.ok(add(job, first, names))
	b.same("called by its first files", read(job.ID).Name, "1.pdf, 2.pdf and 1 more")
	b.ok(add(job, first, names)) // the answer was lost
	b.same("documents after a repeat", read(job.ID).Documents.Total, 3)
	b.same("files after a repeat", read(job.ID).Statistics.Scanned, 3)
	changed := first[0]
	changed.Document.SHA256 = "f" + changed.Document.SHA256[1:]
	b.is(add(job, []taskstore.NewDocument{changed}, nil), sheaf.ErrConflict)

	// Concurrent additions are all in the job, once each.
	var all sync.WaitGroup
	for i := range 4 {
		docs, names := named(2, 10*(i+1))
		all.Go(func() { b.ok(add(job, docs, names)) })
	}
	all.Wait()
	j := read(job.ID)
	b.same("documents", []any{j.Documents.Total, j.Statistics.Scanned, j.Name}, []any{11, 11, "1.pdf, 2.pdf and 9 more"})

	// All documents have ended, but not the job.
	more, names := named(1, 90)
	done := b.newJob(sheaf.JobIngest)
	done.Name = "Scans of May"
	b.ok(b.OpenJob(b.ctx, done, time.Hour))
	b.ok(add(done, more, names))
	_, err := b.CancelDocuments(b.ctx, b.tenant, []string{more[0].Document.ID})
	b.ok(err)
	b.fold()
	b.same("a document has ended", b.doc(more[0].Document.ID).State, sheaf.DocCanceled)
	b.same("its open job", read(done.ID).State, sheaf.DocRunning)
	b.ok(b.CloseJob(b.ctx, b.tenant, done.ID))
	b.ok(b.CloseJob(b.ctx, b.tenant, done.ID))
	if j := read(done.ID); j.State != sheaf.DocCanceled || j.Name != "Scans of May" || !j.OpenUntil.IsZero() {
		t.Fatalf("closed: %+v", j)
	}
	late, names := named(1, 91)
	b.is(add(done, late, names), sheaf.ErrConflict)
	b.ok(add(done, more, names)) // a repeat may come after the end

	// Another tenant, another dataset, and a full job.
	thief := newBench(t, b.Store)
	stolen := job
	stolen.TenantID = thief.tenant
	b.is(add(stolen, late, names), sheaf.ErrNotFound)
	b.is(b.CloseJob(b.ctx, thief.tenant, job.ID), sheaf.ErrNotFound)
	elsewhere := job
	elsewhere.DatasetID = thief.dataset.ID
	b.is(b.JobTakes(b.ctx, b.tenant, elsewhere.DatasetID, job.ID, 1), sheaf.ErrConflict)
	b.ok(b.JobTakes(b.ctx, b.tenant, job.DatasetID, job.ID, sheaf.MaxJobDocuments-11))
	b.is(b.JobTakes(b.ctx, b.tenant, job.DatasetID, job.ID, sheaf.MaxJobDocuments-10), sheaf.ErrConflict)

	// Nothing was added for an hour: it closes automatically.
	n, err := b.CloseIdleJobs(b.ctx, 10)
	b.ok(err)
	b.same("idle", n, 0)
	b.AdvanceClock(time.Hour)
	b.is(add(job, late, names), sheaf.ErrConflict)
	n, err = b.CloseIdleJobs(b.ctx, 10)
	b.ok(err)
	b.same("idle after an hour", []any{n, read(job.ID).OpenUntil.IsZero()}, []any{1, true})

	// Deleted documents are in no job's name.
	_, err = b.DeleteDocuments(b.ctx, b.tenant, []string{first[0].Document.ID})
	b.ok(err)
	b.same("called by what is left", read(job.ID).Name, "2.pdf and 10 more")
}

func testJobFilters(t *testing.T, b *bench) {
	other := newBench(t, b.Store)
	elsewhere, err := b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: "elsewhere"})
	b.ok(err)
	ids := map[string]string{}
	open := func(b *bench, key string, change func(*sheaf.Job), files ...string) {
		j := b.newJob(sheaf.JobIngest)
		change(&j)
		b.ok(b.OpenJob(b.ctx, j, time.Hour))
		var docs []taskstore.NewDocument
		for _, name := range files {
			docs = append(docs, b.newDocument(name))
		}
		if len(docs) > 0 {
			j.Files = files
			_, err := b.AddDocuments(b.ctx, j, docs, "")
			b.ok(err)
		}
		ids[j.ID] = key
	}
	open(b, "may", func(j *sheaf.Job) { j.Name, j.Requester = "Scans of MAI und Übung", "scanner" })
	open(b, "files", func(j *sheaf.Job) { j.Requester = "importer" }, "ÄRGER 100%.pdf", `it's "quoted".pdf`)
	open(b, "again", func(j *sheaf.Job) { j.Kind, j.Requester = sheaf.JobReparse, "scanner" })
	open(b, "elsewhere", func(j *sheaf.Job) { j.DatasetID, j.Name = elsewhere.ID, "100x" })
	open(other, "theirs", func(j *sheaf.Job) { j.Name, j.Requester = "Übung 100%", "scanner" })
	for _, c := range []struct {
		what string
		f    taskstore.JobFilter
		want []string
	}{
		{"all", taskstore.JobFilter{}, []string{"may", "files", "again", "elsewhere"}},
		{"dataset", taskstore.JobFilter{DatasetID: b.dataset.ID}, []string{"may", "files", "again"}},
		{"kind", taskstore.JobFilter{Kinds: []sheaf.JobKind{sheaf.JobReparse}}, []string{"again"}},
		{"kinds", taskstore.JobFilter{Kinds: []sheaf.JobKind{sheaf.JobReparse, sheaf.JobIngest}}, []string{"may", "files", "again", "elsewhere"}},
		{"requester", taskstore.JobFilter{Requester: "scanner"}, []string{"may", "again"}},
		{"part of a requester", taskstore.JobFilter{Requester: "scan"}, nil},
		{"requester and kind", taskstore.JobFilter{Requester: "scanner", Kinds: []sheaf.JobKind{sheaf.JobIngest}}, []string{"may"}},
		{"name in any case", taskstore.JobFilter{Query: "mai UND üb"}, []string{"may"}},
		{"file in any case", taskstore.JobFilter{Query: "ärger"}, []string{"files"}},
		{"percent is itself", taskstore.JobFilter{Query: "100%"}, []string{"files"}},
		{"quotes", taskstore.JobFilter{Query: `"quoted"`}, []string{"files"}},
		{"marks between files", taskstore.JobFilter{Query: "["}, nil},
		{"comma between files", taskstore.JobFilter{Query: ","}, nil},
		{"what no name holds", taskstore.JobFilter{Query: "a\x00"}, nil},
		{"nothing", taskstore.JobFilter{Query: "100%", DatasetID: elsewhere.ID}, nil},
	} {
		jobs, next, err := b.Jobs(b.ctx, b.tenant, c.f, taskstore.Page{Ascending: true})
		b.ok(err)
		var got []string
		for _, j := range jobs {
			got = append(got, ids[j.ID])
		}
		b.same(c.what, []any{got, next}, []any{c.want, ""})
	}
	testJobStates(b)
	// A page ends where the filter's jobs do.
	jobs, next, err := b.Jobs(b.ctx, b.tenant, taskstore.JobFilter{Requester: "scanner"}, taskstore.Page{Limit: 1})
	b.ok(err)
	b.same("first page", []any{ids[jobs[0].ID], next}, []any{"again", jobs[0].ID})
	jobs, next, err = b.Jobs(b.ctx, b.tenant, taskstore.JobFilter{Requester: "scanner"}, taskstore.Page{Limit: 1, Cursor: next})
	b.ok(err)
	b.same("last page", []any{ids[jobs[0].ID], next}, []any{"may", ""})
}

// testJobStates brings jobs of a separate tenant into all states, and lists them.
func testJobStates(before *bench) {
	b := newBench(before.t, before.Store)
	ids := map[string]string{}
	// job creates a job with one document per end; "" leaves one in the queue.
	job := func(key string, ends ...sheaf.DocumentState) {
		names := make([]string, len(ends))
		for i := range ends {
			names[i] = fmt.Sprintf("%s %d.txt", key, i)
		}
		id, docs := b.create(names...)
		ids[id] = key
		for i, end := range ends {
			switch end {
			case "":
			case sheaf.DocCanceled:
				_, err := b.CancelDocuments(b.ctx, b.tenant, docs[i:i+1])
				b.ok(err)
				b.fold()
			case sheaf.DocRunning:
				b.plan(docs[i], sheaf.Range{From: 1, To: 2})
				b.fold()
			default:
				b.plan(docs[i], sheaf.Range{From: 1, To: 2})
				b.parse(docs[i])
				b.publish(docs[i], taskstore.Publication{State: end})
			}
		}
	}
	job("done", sheaf.DocSucceeded, sheaf.DocSucceeded)
	job("queued", "")
	job("partial", sheaf.DocSucceeded, sheaf.DocFailed)
	job("failed", sheaf.DocFailed, sheaf.DocCanceled)
	job("canceled", sheaf.DocCanceled)
	job("running", sheaf.DocSucceeded, sheaf.DocRunning)
	job("half", sheaf.DocSucceeded, "")
	open := b.newJob(sheaf.JobIngest)
	b.ok(b.OpenJob(b.ctx, open, time.Hour))
	ids[open.ID] = "open"
	list := func(f taskstore.JobFilter, p taskstore.Page) ([]string, string) {
		b.t.Helper()
		jobs, next, err := b.Jobs(b.ctx, b.tenant, f, p)
		b.ok(err)
		var got []string
		for _, j := range jobs {
			if len(f.States) > 0 && !slices.Contains(f.States, j.State) {
				b.t.Errorf("%s is %s and was asked for as %v", ids[j.ID], j.State, f.States)
			}
			got = append(got, ids[j.ID])
		}
		return got, next
	}
	for state, want := range map[sheaf.DocumentState][]string{
		sheaf.DocSucceeded: {"done"}, sheaf.DocQueued: {"queued", "open"}, sheaf.DocPartiallySucceeded: {"partial"}, sheaf.DocFailed: {"failed"},
		sheaf.DocCanceled: {"canceled"}, sheaf.DocRunning: {"running", "half"}, sheaf.DocCanceling: nil, sheaf.DocUnstarted: nil,
	} {
		got, next := list(taskstore.JobFilter{States: []sheaf.DocumentState{state}}, taskstore.Page{Ascending: true})
		b.same(string(state), []any{got, next}, []any{want, ""})
	}
	// Their pages hold each job once, in both orders, whatever lies between.
	f := taskstore.JobFilter{States: []sheaf.DocumentState{sheaf.DocQueued, sheaf.DocRunning, sheaf.DocFailed}}
	for _, ascending := range []bool{true, false} {
		want := []string{"queued", "failed", "running", "half", "open"}
		if !ascending {
			slices.Reverse(want)
		}
		for limit := 1; limit <= 6; limit++ {
			var all []string
			p := taskstore.Page{Ascending: ascending, Limit: limit}
			for range 20 {
				got, next := list(f, p)
				if all = append(all, got...); next == "" {
					break
				}
				if len(got) != limit {
					b.t.Errorf("a page of %d holds %v and has a next", limit, got)
				}
				p.Cursor = next
			}
			b.same(fmt.Sprintf("pages of %d", limit), all, want)
		}
	}
	// A filter of another kind narrows first.
	got, _ := list(taskstore.JobFilter{States: f.States, Kinds: []sheaf.JobKind{sheaf.JobReparse}}, taskstore.Page{})
	b.same("of another kind", len(got), 0)
}
