package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// refusedAs checks the answer to a claim that must be rejected.
func (f *Fixture) refusedAs(a sqlstore.ClaimAnswer, state sheaf.TaskState) {
	f.T.Helper()
	refusal, ok := errors.AsType[*taskstore.NotClaimable](a.Err)
	if !ok || refusal.State != state || a.Task != nil {
		f.T.Fatalf("claim answers %v, %v; want it refused as %q", a.Task, a.Err, state)
	}
}

func finished(tasks ...*sheaf.Task) []sqlstore.Finished {
	out := make([]sqlstore.Finished, len(tasks))
	for i, t := range tasks {
		out[i] = sqlstore.Finished{Claim: t.Held(), Result: Result(t)}
	}
	return out
}

func asks(ids ...string) []sqlstore.ClaimAsk {
	out := make([]sqlstore.ClaimAsk, len(ids))
	for i, id := range ids {
		out[i] = sqlstore.ClaimAsk{TaskID: id, WorkerID: "w", Lease: time.Minute}
	}
	return out
}

func batchMixed(f *Fixture) {
	d := f.Document("t")
	spawn := Parse(8)
	spawn[7].DependsOn = []string{spawn[0].ID, spawn[1].ID}
	f.Plan(d, spawn...)
	a, b, released, reaped := f.Claim(spawn[0].ID, "w"), f.Claim(spawn[1].ID, "w"), f.Claim(spawn[2].ID, "w"), f.Claim(spawn[3].ID, "w")
	f.OK(f.Store.Release(ctx, released.Held()))
	f.OK(f.Store.Release(ctx, reaped.Held()))
	again := f.Claim(reaped.ID, "other") // runs, under an epoch newer than reaped's
	elsewhere := f.Document("u")
	f.Cancel(elsewhere)

	errs, answers := f.Store.WriteAll(ctx,
		finished(b, released, a, reaped, a, &sheaf.Task{ID: "none", Epoch: 1}),
		asks(spawn[5].ID, released.ID, again.ID, spawn[0].ID, elsewhere.Plan, "none", spawn[5].ID, spawn[7].ID))
	f.OK(errs[0])
	f.Stale(errs[1])
	f.OK(errs[2])
	f.Stale(errs[3])
	f.Stale(errs[4]) // the second completion under one claim
	f.Stale(errs[5])
	for _, t := range []*sheaf.Task{a, b} {
		got, r := f.Task(t.ID), Result(t)
		want(f, "state", got.State, sheaf.TaskDone)
		want(f, "range", got.Result.RangeID, r.RangeID)
		want(f, "artifact", got.Result.ArtifactKey, r.ArtifactKey)
		want(f, "chunks", got.Result.Chunks, r.Chunks)
		want(f, "units", got.Result.Ledger[0].To, t.Range.To)
		want(f, "done epoch", f.Int("SELECT done_epoch FROM tasks WHERE id=?", t.ID), int(t.Epoch))
		want(f, "cost", got.Cost, t.Cost)
		want(f, "run at", got.RunAt, t.RunAt)
		want(f, "created at", got.CreatedAt, t.CreatedAt)
		want(f, "finished", got.FinishedAt.Before(got.StartedAt), false)
		wantList(f, "events", f.Events(t.ID), "claimed", "done")
	}
	want(f, "the new holder's task", f.Task(again.ID).State, sheaf.TaskRunning)

	for i, id := range map[int]string{0: spawn[5].ID, 1: released.ID} {
		f.OK(answers[i].Err)
		got, stored := answers[i].Task, f.Task(id)
		want(f, "id", got.ID, id)
		want(f, "state", got.State, sheaf.TaskRunning)
		want(f, "epoch", got.Epoch, stored.Epoch)
		want(f, "attempts", got.Attempts, stored.Attempts)
		want(f, "worker", got.WorkerID, "w")
		want(f, "started", got.StartedAt, stored.StartedAt)
		want(f, "lease", got.LeaseUntil, stored.LeaseUntil)
		want(f, "lease time", got.LeaseUntil.Sub(got.StartedAt), time.Minute)
	}
	f.refusedAs(answers[2], sheaf.TaskRunning)
	f.refusedAs(answers[3], sheaf.TaskDone)
	f.refusedAs(answers[4], sheaf.TaskCanceled)
	f.refusedAs(answers[5], "")
	f.refusedAs(answers[6], sheaf.TaskRunning) // the second claim of one task
	f.refusedAs(answers[7], sheaf.TaskParked)  // its state before the batch, which woke it
	f.InState(spawn[7].ID, sheaf.TaskPending)
	wantList(f, "events", f.Events(spawn[5].ID), "claimed")
	wantList(f, "events", f.Events(released.ID), "claimed", "released", "claimed")
	want(f, "dirty", f.Int("SELECT COUNT(*) FROM doc_dirty WHERE doc_id=?", d.ID), 1)
}

// batchRace lets two processes claim and complete the same tasks in overlapping,
// unordered batches.
func batchRace(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(40)...)
	stores := []*sqlstore.Store{f.Store, f.Second()}
	var won, done atomic.Int32
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			order := rand.Perm(len(tasks))
			for from := 0; from < len(order); from += 10 {
				var ids []string
				for _, at := range order[from : from+10] {
					ids = append(ids, tasks[at].ID)
				}
				_, answers := stores[i%2].WriteAll(ctx, nil, asks(ids...))
				var mine []*sheaf.Task
				for j, a := range answers {
					if a.Err == nil {
						won.Add(1)
						mine = append(mine, a.Task)
					} else if !errors.Is(a.Err, sheaf.ErrConflict) {
						f.T.Errorf("claim of %s: %v", ids[j], a.Err)
					}
				}
				var both sync.WaitGroup
				for _, s := range stores { // as after a lost answer
					both.Go(func() {
						errs, _ := s.WriteAll(ctx, finished(mine...), nil)
						for _, err := range errs {
							if err == nil {
								done.Add(1)
							} else if !errors.Is(err, sheaf.ErrStale) {
								f.T.Errorf("complete: %v", err)
							}
						}
					})
				}
				both.Wait()
			}
		})
	}
	wg.Wait()
	want(f, "claims won", int(won.Load()), len(tasks))
	want(f, "completions", int(done.Load()), len(tasks))
	for _, t := range tasks {
		wantList(f, "events", f.Events(t.ID), "claimed", "done")
	}
}

// batchDeadlock makes a batch the victim of a deadlock: none of it may stay, and its
// second attempt must do all of it once.
func batchDeadlock(f *Fixture) {
	if f.Engine == "sqlite" {
		return // one writer at a time: no deadlock is possible
	}
	// PostgreSQL aborts the session that checks first after the cycle is closed: the
	// rival, if the batch had waited for deadlock_timeout before that.
	for tries := 1; !batchWasVictim(f); tries++ {
		if tries == 20 {
			f.T.Fatalf("the rival was the victim of all %d deadlocks", tries)
		}
	}
}

// batchWasVictim causes one deadlock of a batch with a rival transaction. It reports
// false if the engine aborted the rival.
func batchWasVictim(f *Fixture) bool {
	f.T.Helper()
	d := f.Document("t")
	tasks := f.Plan(d, Parse(40)...)
	low, high := tasks[0].ID, tasks[1].ID
	if low > high {
		low, high = high, low
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tx, err := f.DB.BeginTx(limit, nil)
	f.OK(err)
	defer tx.Rollback()
	exec := func(q string, args ...any) error {
		_, err := tx.ExecContext(limit, f.sql(q), args...)
		return err
	}
	// MySQL aborts the transaction that changed the least.
	f.OK(exec("UPDATE tasks SET trace='x' WHERE doc_id=? AND id<>? AND id<>?", d.ID, low, high))
	f.OK(exec("UPDATE tasks SET trace='x' WHERE id=?", high))

	var answers []sqlstore.ClaimAnswer
	var batch sync.WaitGroup
	batch.Go(func() { _, answers = f.Store.WriteAll(limit, nil, asks(low, high)) })
	for locked := false; !locked; { // until the batch has locked the first row, and so waits for the second
		free := f.Strings("SELECT id FROM tasks WHERE id=? FOR UPDATE SKIP LOCKED", low)
		if locked = len(free) == 0; !locked {
			f.OK(limit.Err())
		}
	}
	err = exec("UPDATE tasks SET trace='x' WHERE id=?", low) // closes the cycle; succeeds once the batch is aborted
	lost, ok := errors.AsType[*pgconn.PgError](err)
	if ok && lost.Code == "40P01" {
		f.OK(tx.Rollback())
		batch.Wait()
		return false
	}
	f.OK(err)
	f.OK(tx.Commit())
	batch.Wait()
	for _, a := range answers {
		f.OK(a.Err)
		want(f, "epoch", a.Task.Epoch, 1)
		want(f, "trace", a.Task.Trace, "x") // read again, not from the first attempt
		wantList(f, "events", f.Events(a.Task.ID), "claimed")
	}
	return true
}

// batchBadItem has one completion that the engine rejects.
func batchBadItem(f *Fixture) {
	d := f.Document("t")
	f.Plan(d, Parse(3)...)
	var held []*sheaf.Task
	for _, t := range f.Tasks(d.ID, 1) {
		held = append(held, f.Claim(t.ID, "w"))
	}
	all := finished(held...)
	all[1].Result.ArtifactKey = map[string]string{"mysql": strings.Repeat("x", 600), "postgres": "a\x00b"}[f.Engine]
	errs, _ := f.Store.WriteAll(ctx, all, nil)
	f.OK(errs[0])
	f.OK(errs[2])
	if f.Engine == "sqlite" { // which accepts anything
		f.OK(errs[1])
		return
	}
	if errs[1] == nil || errors.Is(errs[1], sheaf.ErrStale) {
		f.T.Fatalf("a result that does not fit: %v", errs[1])
	}
	f.InState(held[0].ID, sheaf.TaskDone)
	f.InState(held[1].ID, sheaf.TaskRunning)
	f.InState(held[2].ID, sheaf.TaskDone)
}

// batchBrokenOff has the engine reject the last write of a batch: none of it may
// stay, or be committed by the next statement on the same connection.
func batchBrokenOff(f *Fixture) {
	d := f.Document("t")
	f.Plan(d, Parse(2)...)
	tasks := f.Tasks(d.ID, 1)
	held := f.Claim(tasks[0].ID, "w")
	f.Exec("ALTER TABLE events RENAME TO events_away")
	errs, answers := f.Store.WriteAll(ctx, finished(held), asks(tasks[1].ID))
	f.Exec("ALTER TABLE events_away RENAME TO events")
	if errs[0] == nil || answers[0].Err == nil {
		f.T.Fatalf("without a log: %v, %v; want both refused", errs[0], answers[0].Err)
	}
	f.InState(held.ID, sheaf.TaskRunning)
	f.InState(tasks[1].ID, sheaf.TaskPending)

	errs, answers = f.Store.WriteAll(ctx, finished(held), asks(tasks[1].ID))
	f.OK(errs[0])
	f.OK(answers[0].Err)
	want(f, "epoch", answers[0].Task.Epoch, 1)
	wantList(f, "events of the ended task", f.Events(held.ID), "claimed", "done")
	wantList(f, "events of the claimed task", f.Events(tasks[1].ID), "claimed")
}
