package storetest

import (
	"slices"
	"sync"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// served lists a tenant's tasks in the order of Runnable.
func (f *Fixture) served(tenantID string) []sheaf.Hint {
	f.T.Helper()
	hints, err := f.Store.Runnable(ctx, tenantID, 1000, 0)
	f.OK(err)
	return hints
}

func ids(hints []sheaf.Hint) []string {
	out := make([]string, len(hints))
	for i, h := range hints {
		out[i] = h.TaskID
	}
	return out
}

func idsOf(tasks []sheaf.Task) []string {
	out := make([]string, len(tasks))
	for i, t := range tasks {
		out[i] = t.ID
	}
	slices.Sort(out)
	return out
}

// depthFirst: a finished document's last task precedes ranges of documents in
// progress, the one with the least left first, these precede plans, and the ranges
// of a large document come last.
func depthFirst(f *Fixture) {
	first := f.Document("t")
	f.Store.AdvanceClock(time.Millisecond) // no two jobs were queued at once
	large := f.Document("t")
	f.Store.AdvanceClock(time.Millisecond)
	small := f.Document("t")
	f.Store.AdvanceClock(time.Millisecond)
	done := f.Document("t")
	f.Store.AdvanceClock(time.Millisecond)
	later := f.Document("t")
	f.Store.AdvanceClock(time.Millisecond)
	last := f.Document("t")
	bulk := f.Plan(large, Parse(sheaf.BulkRanges+1)...)
	many := f.Plan(first, Parse(sheaf.BulkRanges)...)
	few := f.Plan(small, Parse(2)...)
	f.Done(f.Plan(done, Parse(1)...)[0].ID)
	f.Fold()

	want := slices.Concat([]string{f.Finalizer(done.ID)}, idsOf(few), idsOf(many), []string{later.Plan, last.Plan}, idsOf(bulk))
	hints := f.served("t")
	wantList(f, "order", ids(hints), want...)
	queued := map[string]int{}
	for _, d := range []Doc{first, large, small, done, later, last} {
		queued[d.ID] = f.Int("SELECT created_at FROM jobs WHERE id=?", d.Job)
	}
	for _, c := range []struct {
		what   string
		hint   sheaf.Hint
		phase  sheaf.Phase
		doc    Doc
		ranges int
	}{
		{"finalize", hints[0], sheaf.PhaseFinish, done, 0},
		{"a range of a small document", hints[1], sheaf.PhaseRanges, small, 2},
		{"a range of a larger one", hints[3], sheaf.PhaseRanges, first, sheaf.BulkRanges},
		{"a plan", hints[len(hints)-1-len(bulk)], sheaf.PhaseBegin, last, 0},
		{"a range of a large document", hints[len(hints)-1], sheaf.PhaseBulk, large, sheaf.BulkRanges + 1},
	} {
		if place := time.UnixMilli(int64(queued[c.doc.ID])).Add(time.Duration(c.ranges) * sheaf.RangeDelay); c.hint.Phase != c.phase || !c.hint.Place.Equal(place) {
			f.T.Errorf("%s is of phase %d at %v, want %d at %v", c.what, c.hint.Phase, c.hint.Place, c.phase, place)
		}
	}
	fed := f.Feedable(1000, time.Minute)
	wantList(f, "order of the feed", ids(fed), want...)
	// The requested number of first tasks, of plans and of the bulk.
	hints, err := f.Store.Runnable(ctx, "t", 1, 0)
	f.OK(err)
	wantList(f, "one of each", ids(hints), want[0], later.Plan, idsOf(bulk)[0])
}

// placeIsKept: a task that is retried, released or lost keeps its place, and so do
// the tasks it spawned; a re-parse and an operator's retry start waiting now.
func placeIsKept(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(4)...)
	f.Store.AdvanceClock(time.Minute)
	other := f.Document("t")
	f.Plan(other, Parse(4)...)
	before := f.served("t")

	_, err := f.Store.FailTask(ctx, f.Claim(tasks[0].ID, "w").Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable("internal", "x", "x"), Delay: time.Second})
	f.OK(err)
	f.OK(f.Store.Snooze(ctx, f.Claim(tasks[1].ID, "w").Held(), time.Second, sheaf.Failure{Message: "x"}))
	f.OK(f.Store.Release(ctx, f.Claim(tasks[2].ID, "w").Held()))
	f.Claim(tasks[3].ID, "w")
	f.Store.AdvanceClock(2 * time.Minute)
	_, err = f.Store.PromoteDue(ctx, 10)
	f.OK(err)
	_, err = f.Store.Reap(ctx, taskstore.ReapPolicy{}, 10)
	f.OK(err)
	wantList(f, "order after four attempts", ids(f.served("t")), ids(before)...)

	parts := Parse(6)[4:]
	f.OK(f.Store.Complete(ctx, f.Claim(tasks[3].ID, "w").Held(), taskstore.Completion{Spawn: parts}))
	hints := f.served("t")
	wantList(f, "order with the parts of a range", ids(hints[:5]), tasks[0].ID, tasks[1].ID, tasks[2].ID, parts[0].ID, parts[1].ID)

	f.Store.AdvanceClock(time.Minute)
	dead := f.Claim(tasks[0].ID, "w")
	_, err = f.Store.FailTask(ctx, dead.Held(), taskstore.FailReport{Failure: *sheaf.Fail("internal", "x", "x")})
	f.OK(err)
	f.Retry(d, dead.ID)
	if hints := f.served("t"); hints[len(hints)-1].TaskID != dead.ID || hints[len(hints)-1].Phase != sheaf.PhaseRanges {
		f.T.Errorf("what an operator tries again waits from now on: %v", hints)
	}
	again := f.Reparse(d)
	if hints := f.served("t"); hints[len(hints)-1].TaskID != again.Plan {
		f.T.Errorf("a re-parse goes to the end: %v", hints)
	}
}

// earlierVersion: rows without a phase and a place precede plans with both, and age
// from the time when they may run.
func earlierVersion(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(2)...)
	f.Exec("UPDATE tasks SET phase=2, place=0 WHERE doc_id=?", d.ID)
	plan := f.Document("t").Plan
	wantList(f, "order", ids(f.served("t")), tasks[0].ID, tasks[1].ID, plan)
	aged := func(d time.Duration) (n int) {
		hints, err := f.Store.Runnable(ctx, "t", 10, d)
		f.OK(err)
		for _, h := range hints {
			if h.Aged {
				n++
			}
		}
		return n
	}
	want(f, "aged", aged(time.Minute), 0)
	f.Exec("UPDATE tasks SET run_at=run_at-62000 WHERE id=?", tasks[1].ID)
	want(f, "aged after their time", aged(time.Minute), 0) // it counts as a plan
	f.Exec("UPDATE tasks SET run_at=run_at-10000 WHERE id=?", tasks[1].ID)
	want(f, "aged well after their time", aged(time.Minute), 1)
	for _, t := range tasks {
		f.Done(t.ID)
	}
	f.Fold()
	if hints := f.served("t"); hints[0].Phase != sheaf.PhaseFinish || hints[0].Place.UnixMilli() == 0 {
		f.T.Errorf("its end is served as %+v", hints[0])
	}
}

// aheadByPhase: the ranges of an earlier document are ahead of a plan, whatever
// their number and place; those of a large one are not.
func aheadByPhase(f *Fixture) {
	early, large, d := f.Document("t"), f.Document("t"), f.Document("t")
	f.Plan(early, Parse(sheaf.BulkRanges)...)
	f.Plan(large, Parse(sheaf.BulkRanges+1)...)
	left, err := f.Store.Remaining(ctx, "t", d.Job)
	f.OK(err)
	want(f, "tasks ahead of a plan", left.AheadOwn, sheaf.BulkRanges)
	left, err = f.Store.Remaining(ctx, "t", large.Job)
	f.OK(err)
	want(f, "tasks ahead of a large document's ranges", left.AheadOwn, sheaf.BulkRanges+1)
}

// aheadAtOnce: tasks that come and go while a job's place is read are in each of the
// counts or in none. With one tenant no other is ever ahead.
func aheadAtOnce(f *Fixture) {
	d := f.Document("t")
	f.Plan(d, Parse(1)...)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				// Of a higher lane, so that they are ahead, and gone immediately.
				id := f.Document("t").Plan
				f.Exec("UPDATE tasks SET lane=1 WHERE id=?", id)
				f.Claim(id, "w")
			}
		}
	})
	for range 60 {
		left, err := f.Store.Remaining(ctx, "t", d.Job)
		if err != nil || left.AheadOthers != 0 || left.AheadOwn < 0 {
			f.T.Errorf("%d of others and %d own tasks are ahead, %v", left.AheadOthers, left.AheadOwn, err)
			break
		}
	}
	close(stop)
	busy.Wait()
}

// lastRange: the end of a document's last range writes the task that finishes it,
// without a keeper: exactly once under concurrent ends, and not before.
func lastRange(f *Fixture) {
	const ranges = 12
	d := f.Document("t")
	tasks := f.Plan(d, Parse(ranges)...)
	var mu sync.Mutex
	var told []sheaf.Hint
	end := func(t *sheaf.Task) error {
		return f.Store.Complete(ctx, t.Held(), taskstore.Completion{Result: Result(t), NextFunc: func(h sheaf.Hint) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, h)
		}})
	}
	f.OK(end(f.Claim(tasks[0].ID, "w")))
	want(f, "told of with ranges left", len(told), 0)
	var all sync.WaitGroup
	for _, t := range tasks[1:] {
		held := f.Claim(t.ID, "w")
		all.Go(func() {
			if err := end(held); err != nil {
				f.T.Error(err)
			}
		})
	}
	all.Wait()
	want(f, "told of", len(told), 1)
	want(f, "finalize tasks", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='finalize'", d.ID), 1)
	if h := told[0]; h.TaskID != f.Finalizer(d.ID) || h.TenantID != "t" || h.Lane != sheaf.LaneNormal || h.Kind != sheaf.KindFinalize || h.Phase != sheaf.PhaseFinish || h.Place.UnixMilli() == 0 {
		f.T.Errorf("told of %+v", h)
	}
	want(f, "state", f.Doc(d.ID).State, sheaf.DocFinalizing)
	f.Publish(d.ID, sheaf.DocSucceeded)
	want(f, "state", f.Doc(d.ID).State, sheaf.DocSucceeded)

	// A canceled document is not finished.
	gone := f.Document("t")
	held := f.Claim(f.Plan(gone, Parse(1)...)[0].ID, "w")
	f.Cancel(gone)
	f.OK(end(held))
	want(f, "told of after a cancel", len(told), 1)
}
