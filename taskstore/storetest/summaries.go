package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// same compares what clients see of two values.
func same(f *Fixture, what string, got, want any) {
	f.T.Helper()
	g, err := json.Marshal(got)
	f.OK(err)
	w, err := json.Marshal(want)
	f.OK(err)
	if !bytes.Equal(g, w) {
		f.T.Fatalf("%s: got\n%s\nwant\n%s", what, g, w)
	}
}

// The sums of a job that ended a while ago are read once, and again when something
// happened to it.
func endedJobSums(f *Fixture) {
	one := f.Document("t") // makes the tenant and its dataset
	f.Cancel(one)
	const n = 25
	job, docs, ids := sheaf.NewID(), make([]taskstore.NewDocument, n), make([]string, n)
	for i := range docs {
		ids[i] = sheaf.NewID()
		docs[i] = taskstore.NewDocument{
			Document: sheaf.Document{ID: ids[i], Name: fmt.Sprintf("%d.pdf", i), MediaType: "application/pdf", Size: 10, SHA256: ids[i] + ids[i], BlobKey: sheaf.OriginalPrefix("t", ids[i]) + "v1"},
			Plan:     sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1},
		}
	}
	_, err := f.Store.CreateDocuments(ctx, sheaf.Job{ID: job, TenantID: "t", DatasetID: one.Dataset, Kind: sheaf.JobIngest}, docs, "")
	f.OK(err)
	dead := docs[0].Plan.ID
	die := func() {
		f.T.Helper()
		state, err := f.Store.FailTask(ctx, f.Claim(dead, "w").Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryEncrypted, "password", "Give the password.")})
		f.OK(err)
		want(f, "the task's state", state, sheaf.TaskDead)
	}
	die()
	_, err = f.Store.CancelDocuments(ctx, "t", ids[1:])
	f.OK(err)
	f.Fold()

	kept := func() int { return f.Int("SELECT COUNT(*) FROM jobs WHERE summary IS NOT NULL") }
	// read reads the job alone, in a list of all, and in one of its state.
	read := func() *sheaf.Job {
		f.T.Helper()
		j, err := f.Store.Job(ctx, "t", job)
		f.OK(err)
		for _, states := range [][]sheaf.DocumentState{nil, {j.State}} {
			list, _, err := f.Store.Jobs(ctx, "t", taskstore.JobFilter{States: states}, taskstore.Page{Limit: 10})
			f.OK(err)
			var found *sheaf.Job
			for i := range list {
				if list[i].ID == job {
					found = &list[i]
				}
			}
			if found == nil {
				f.T.Fatalf("a list of jobs in state %v lacks one that is %s", states, j.State)
			}
			got, want := *found, *j
			got.Usage, want.Usage = sheaf.Usage{}, sheaf.Usage{}
			want.UnservedPools = nil
			if j.State.Terminal() { // others' running tasks are counted for one alone
				same(f, "a job in a list", got, want)
			}
		}
		return j
	}
	fresh := read()
	want(f, "state", fresh.State, sheaf.DocFailed)
	want(f, "sums that are kept while something may still come", kept(), 0)
	settle := func() { f.Exec("UPDATE events SET at=at-?", (2 * time.Minute).Milliseconds()) }
	settle()
	same(f, "the job once it is settled", read(), fresh)
	want(f, "sums that are kept", kept(), 1)
	f.Exec("UPDATE tasks SET cost=cost+1000 WHERE job_id=?", job) // which nothing does
	same(f, "the job, from what is kept", read(), fresh)
	f.Exec("UPDATE tasks SET cost=cost-1000 WHERE job_id=?", job)

	_, err = f.Store.SetPaused(ctx, "t", taskstore.PauseScope{DatasetID: one.Dataset}, true)
	f.OK(err)
	want(f, "paused with its dataset", read().Paused, true)
	_, err = f.Store.SetPaused(ctx, "t", taskstore.PauseScope{DatasetID: one.Dataset}, false)
	f.OK(err)

	f.Retry(Doc{Tenant: "t"}, dead)
	if j := read(); j.State.Terminal() || j.Documents.ByState[sheaf.DocCanceled] != n-1 {
		f.T.Errorf("after a retry the job is %s: %+v", j.State, j.Documents)
	}
	die()
	f.Fold()
	want(f, "state after it failed again", read().State, sheaf.DocFailed)
	settle()
	want(f, "documents", read().Documents.Total, n)

	// One that belongs to a newer job by now leaves both.
	again := f.Reparse(Doc{ID: ids[1], Tenant: "t", Dataset: one.Dataset})
	f.Cancel(again)
	f.Fold()
	settle()
	want(f, "documents after one was parsed again", read().Documents.Total, n)
	want(f, "sums that are kept before deletions", kept(), 1)
	for i := 1; i <= 2; i++ {
		_, err = f.Store.DeleteDocuments(ctx, "t", ids[i:i+1])
		f.OK(err)
		want(f, "documents after one was deleted", read().Documents.Total, n-i)
		settle()
		want(f, "documents once that is settled", read().Documents.Total, n-i)
	}
	want(f, "sums that are kept after deletions", kept(), 1)
}
