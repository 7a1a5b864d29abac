package storetest

import (
	"slices"
	"sync"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// whole is the completion of a plan that has read its document and publishes it.
func whole(plan *sheaf.Task) taskstore.Completion {
	spawn := Parse(1)
	result := Result(plan)
	result.Ledger[0].From, result.Ledger[0].To = 1, 12
	spawn[0].Done, spawn[0].Ran = &result, true
	return taskstore.Completion{
		Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 12, Metadata: map[string]string{"title": "A"}}, Spawn: spawn,
		Publish: &taskstore.Publication{State: sheaf.DocSucceeded, Chunks: 3, Tokens: 30, Ledger: sheaf.LedgerCounts{OK: 12}},
	}
}

// wholeDocument: a plan that has read its document leaves what three tasks would.
// Many such completions at once each have their own outcome.
func wholeDocument(f *Fixture) {
	docs := make([]Doc, 20)
	claims := make([]*sheaf.Task, len(docs))
	for i := range docs {
		docs[i] = f.Document("t")
		claims[i] = f.Claim(docs[i].Plan, "w")
	}
	f.Cancel(docs[7])
	errs := make([]error, len(docs))
	var all sync.WaitGroup
	for i, t := range claims {
		all.Go(func() { errs[i] = f.Store.Complete(ctx, t.Held(), whole(t)) })
	}
	all.Wait()
	f.Stale(errs[7])
	want(f, "tasks of a canceled document", len(f.Tasks(docs[7].ID, 1)), 0)
	for i, d := range docs {
		if i == 7 {
			continue
		}
		f.OK(errs[i])
		doc := f.Doc(d.ID)
		if doc.State != sheaf.DocSucceeded || doc.LiveGeneration != 1 || doc.Progress != 1 || doc.Chunks != 3 || doc.Tokens != 30 ||
			doc.Units != 12 || doc.Metadata["title"] != "A" || doc.FinishedAt.IsZero() || doc.StartedAt.IsZero() {
			f.T.Fatalf("published document: %+v", doc)
		}
		tasks := f.Tasks(d.ID, 1)
		want(f, "tasks beside the plan", len(tasks), 2)
		for _, t := range tasks {
			if t.State != sheaf.TaskDone || t.Attempts != 1 || t.Epoch != 1 || t.WorkerID != "w" || t.StartedAt.IsZero() || t.FinishedAt.IsZero() {
				f.T.Fatalf("task that the plan ran: %+v", t)
			}
			wantList(f, "events of a "+string(t.Kind), f.Events(t.ID), sheaf.EventClaimed, sheaf.EventDone)
		}
		of := slices.IndexFunc(tasks, func(t sheaf.Task) bool { return t.Kind == sheaf.KindParse })
		want(f, "range", tasks[of].Result.RangeID, sheaf.RangeID(d.Plan, claims[i].Epoch))
		f.Stale(f.Store.Complete(ctx, claims[i].Held(), whole(claims[i])))
	}
	f.Fold()
	want(f, "documents after folding", f.Int("SELECT COUNT(*) FROM documents WHERE state='succeeded' AND fin_epoch=1"), len(docs)-1)
	want(f, "open tasks", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id<>? AND state<>'done'", docs[7].ID), 0)
	want(f, "garbage", f.Int("SELECT COUNT(*) FROM garbage"), 0)
	f.Reparse(docs[0])
	live, err := f.Store.LiveRanges(ctx, "t", docs[0].ID)
	f.OK(err)
	want(f, "ranges that the next generation can keep", len(live), 1)
}

// wholeDocumentGuards: a document is not published with work left, and what an
// attempt may have left of a range is collected.
func wholeDocumentGuards(f *Fixture) {
	garbage := func(t *sheaf.Task) int {
		return f.Int("SELECT COUNT(*) FROM garbage WHERE range_id=? AND artifact_key<>''", sheaf.RangeID(t.ID, t.Epoch))
	}
	d := f.Document("t")
	t := f.Claim(d.Plan, "w")
	done := whole(t)
	open := Parse(2)[1]
	done.Spawn = append(done.Spawn, open)
	f.Stale(f.Store.Complete(ctx, t.Held(), done))
	want(f, "tasks of a completion that was refused", len(f.Tasks(d.ID, 1)), 0)

	// Released and claimed again: the former attempt writes nothing.
	f.OK(f.Store.Release(ctx, t.Held()))
	want(f, "garbage of a released plan", garbage(t), 1)
	f.Stale(f.Store.Complete(ctx, t.Held(), whole(t)))
	again := f.Claim(d.Plan, "w")
	_, err := f.Store.FailTask(ctx, again.Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable("internal", "x", "x")})
	f.OK(err)
	want(f, "garbage of a failed plan", garbage(again), 1)

	// It could not read the document: that is left to a task.
	f.Store.AdvanceClock(time.Hour)
	_, err = f.Store.PromoteDue(ctx, 10)
	f.OK(err)
	last := f.Claim(d.Plan, "w")
	done = whole(last)
	done.Publish, done.Remains, done.Spawn[0].Done, done.Spawn[0].Ran = nil, true, nil, false
	f.OK(f.Store.Complete(ctx, last.Held(), done))
	want(f, "garbage of a plan that read in vain", garbage(last), 1)
	f.InState(done.Spawn[0].ID, sheaf.TaskPending)
	f.Done(done.Spawn[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)

	// A newer generation replaces it meanwhile.
	e := f.Document("t")
	old := f.Claim(e.Plan, "w")
	f.Reparse(e)
	f.Stale(f.Store.Complete(ctx, old.Held(), whole(old)))
	want(f, "live generation", f.Doc(e.ID).LiveGeneration, 0)
}
