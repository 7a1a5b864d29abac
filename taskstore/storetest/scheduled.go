package storetest

import (
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// clock is the store's time.
func (f *Fixture) clock() time.Time {
	f.T.Helper()
	now, _, err := f.Store.WatchClock(ctx)
	f.OK(err)
	return now
}

// scheduled: scheduled work is shown with its time, is neither served nor counted as
// waiting for a retry before it, and then has the place and the age of work
// requested at that time.
func scheduled(f *Fixture) {
	at := f.clock().Add(time.Hour).Truncate(time.Second)
	d := f.DocumentAt("t", at)
	waits := func(got time.Time) {
		f.T.Helper()
		want(f, "the time it waits for", got.UTC(), at.UTC())
	}
	doc, err := f.Store.Document(ctx, "t", d.ID)
	f.OK(err)
	want(f, "state of the document", doc.State, sheaf.DocQueued)
	waits(doc.NotBefore)
	docs, _, err := f.Store.Documents(ctx, "t", taskstore.DocumentFilter{}, taskstore.Page{})
	f.OK(err)
	waits(docs[0].NotBefore)
	docs, _, err = f.Store.JobDocuments(ctx, "t", d.Job, taskstore.Page{})
	f.OK(err)
	waits(docs[0].NotBefore)
	job, err := f.Store.Job(ctx, "t", d.Job)
	f.OK(err)
	waits(job.NotBefore)
	want(f, "state of the job", job.State, sheaf.DocQueued)
	waits(f.Task(d.Plan).RunAt)
	queue, err := f.Store.Queue(ctx, "t")
	f.OK(err)
	want(f, "scheduled", queue.Scheduled, 1)
	want(f, "tried again", queue.RetryWait, 0)
	want(f, "age of the oldest", queue.OldestPendingAge, 0)

	served := func() []string {
		f.T.Helper()
		return ids(f.Feedable(100, 0))
	}
	wantList(f, "fed before its time", served())
	f.Refused(d.Plan, sheaf.TaskScheduled)
	p, err := f.Store.PromoteDue(ctx, 10)
	f.OK(err)
	want(f, "promoted before its time", len(p.Tasks), 0)
	want(f, "due within the hour", p.NextIn > 0 && p.NextIn <= time.Hour, true)
	_, err = f.Store.Reap(ctx, taskstore.ReapPolicy{}, 10)
	f.OK(err)
	f.Fold()
	f.InState(d.Plan, sheaf.TaskScheduled)

	// Half an hour later other work arrives; it is served first, and both are as old as
	// their wait.
	f.Store.AdvanceClock(30 * time.Minute)
	other := f.Document("t")
	f.Store.AdvanceClock(31 * time.Minute)
	p, err = f.Store.PromoteDue(ctx, 10)
	f.OK(err)
	want(f, "promoted", len(p.Tasks), 1)
	want(f, "next", p.NextIn, 0)
	wantList(f, "order", served(), other.Plan, d.Plan)
	hints, err := f.Store.Runnable(ctx, "t", 10, 20*time.Minute)
	f.OK(err)
	for _, h := range hints {
		want(f, "aged", h.Aged, h.TaskID == other.Plan)
	}
	doc, err = f.Store.Document(ctx, "t", d.ID)
	f.OK(err)
	want(f, "no time to wait for", doc.NotBefore.IsZero(), true)

	// Released work has waited since its start time, not since it was requested.
	f.OK(f.Store.Release(ctx, f.Claim(d.Plan, "w").Held()))
	waits(f.Task(d.Plan).RunAt)
}

// scheduledEnds: scheduled work can be canceled and replaced while it waits, and
// keeps its time when the clock goes back.
func scheduledEnds(f *Fixture) {
	at := f.clock().Add(2 * time.Hour).Truncate(time.Second)
	canceled, live := f.DocumentAt("t", at), f.Document("t")
	r, err := f.Store.CancelDocuments(ctx, "t", []string{canceled.ID})
	f.OK(err)
	want(f, "queued tasks that were canceled", r.Queued, 1)
	f.InState(canceled.Plan, sheaf.TaskCanceled)
	f.Fold()
	doc, err := f.Store.Document(ctx, "t", canceled.ID)
	f.OK(err)
	want(f, "the canceled document", doc.State, sheaf.DocCanceled)

	job := sheaf.Job{ID: sheaf.NewID(), TenantID: "t", DatasetID: live.Dataset, Kind: sheaf.JobReparse, NotBefore: at}
	first, second := sheaf.NewID(), sheaf.NewID()
	f.OK(f.Store.Reparse(ctx, job, []taskstore.ReparseDocument{{DocumentID: live.ID, Plan: sheaf.NewTask{ID: first, Kind: sheaf.KindPlan}}}, ""))
	f.InState(live.Plan, sheaf.TaskSuperseded)
	f.InState(first, sheaf.TaskScheduled)
	job.ID, job.NotBefore = sheaf.NewID(), time.Time{}
	f.OK(f.Store.Reparse(ctx, job, []taskstore.ReparseDocument{{DocumentID: live.ID, Plan: sheaf.NewTask{ID: second, Kind: sheaf.KindPlan}}}, ""))
	f.InState(first, sheaf.TaskSuperseded)
	f.InState(second, sheaf.TaskPending)

	waits := f.DocumentAt("t", at)
	f.Store.AdvanceClock(-time.Hour)
	_, _, err = f.Store.WatchClock(ctx)
	f.OK(err)
	want(f, "its time after the clock went back", f.Task(waits.Plan).RunAt.UTC(), at.UTC())
}
