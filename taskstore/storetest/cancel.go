package storetest

import (
	"errors"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// cancelOne: a range that waits or waits for a retry is canceled immediately, a
// running one is asked to stop; a dry run changes nothing, and an ended one is a
// conflict. The document ends without them, and a retry brings them back.
func cancelOne(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(4)...)
	pending, waiting, running, done := tasks[0].ID, tasks[1].ID, tasks[2].ID, tasks[3].ID
	_, err := f.Store.FailTask(ctx, f.Claim(waiting, "w").Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable("internal", "x", "x"), Delay: time.Hour})
	f.OK(err)
	held := f.Claim(running, "w").Held()
	f.Done(done)

	for _, dry := range []bool{true, false} {
		for _, id := range []string{pending, waiting} {
			r, err := f.Store.CancelTask(ctx, "t", id, dry)
			f.OK(err)
			want(f, "canceled at once", r.Queued, 1)
			want(f, "asked to stop", r.Running, 0)
		}
		r, err := f.Store.CancelTask(ctx, "t", running, dry)
		f.OK(err)
		want(f, "canceled at once", r.Queued, 0)
		want(f, "asked to stop", r.Running, 1)
		if dry {
			f.InState(pending, sheaf.TaskPending)
			f.InState(waiting, sheaf.TaskRetryWait)
			want(f, "asked to stop by a dry run", f.Task(running).CancelRequestedAt.IsZero(), true)
		} else {
			wantList(f, "to be signaled", r.RunningTasks, running)
		}
	}
	f.InState(pending, sheaf.TaskCanceled)
	f.InState(waiting, sheaf.TaskCanceled)
	f.InState(running, sheaf.TaskRunning)
	wantList(f, "events", f.Events(pending), "canceled")
	state, err := f.Store.FailTask(ctx, held, taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryCanceled, "canceled", "canceled on request")})
	f.OK(err)
	want(f, "state of what was running", state, sheaf.TaskCanceled)
	for _, id := range []string{pending, running, done} {
		if _, err := f.Store.CancelTask(ctx, "t", id, false); !errors.Is(err, sheaf.ErrConflict) {
			f.T.Errorf("cancel of a task that has ended: %v", err)
		}
	}
	for _, other := range []string{"nobody", "t2"} {
		if _, err := f.Store.CancelTask(ctx, other, pending, false); !errors.Is(err, sheaf.ErrNotFound) {
			f.T.Errorf("cancel of another tenant's task: %v", err)
		}
	}

	f.Fold()
	want(f, "state of the document", f.Doc(d.ID).State, sheaf.DocFinalizing)
	ledger, err := f.Store.UnitLedger(ctx, "t", d.ID, 0)
	f.OK(err)
	for _, run := range ledger {
		if run.From <= 36 && (run.Status != sheaf.UnitFailed || run.Code != "canceled" || run.Message == "") {
			f.T.Errorf("units of a canceled range: %+v", run)
		}
	}

	n, err := f.Store.RetryDead(ctx, "t", taskstore.DeadLetterFilter{IDs: []string{pending, running}})
	f.OK(err)
	want(f, "brought back", n, 2)
	f.Claim(pending, "w")
	want(f, "state of the document with a task that is back", f.Doc(d.ID).State, sheaf.DocRunning)
}

// cancelPlan: without its plan a document ends canceled.
func cancelPlan(f *Fixture) {
	d := f.Document("t")
	_, err := f.Store.CancelTask(ctx, "t", d.Plan, false)
	f.OK(err)
	f.Fold()
	want(f, "state of the document", f.Doc(d.ID).State, sheaf.DocCanceled)
}
