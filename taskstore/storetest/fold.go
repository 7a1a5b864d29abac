package storetest

import (
	"fmt"
	"sync"
	"time"

	"sheaf"
)

// markAll marks every document dirty, and nothing else.
func (f *Fixture) markAll() {
	f.T.Helper()
	f.Exec("DELETE FROM doc_dirty")
	f.Exec("INSERT INTO doc_dirty (doc_id, at) SELECT id, 5 FROM documents")
}

// complete makes a planned document whose tasks ended without a fold.
func (f *Fixture) complete(ranges int) Doc {
	f.T.Helper()
	d := f.Document("t")
	f.Plan(d, Parse(ranges)...)
	f.Exec("UPDATE tasks SET state='done', attempts=1 WHERE doc_id=? AND kind='parse'", d.ID)
	return d
}

// foldMany folds documents in every state together, with the same result as folding
// each alone: nothing is lost, and no event is written twice.
func foldMany(f *Fixture) {
	type expected struct {
		state    sheaf.DocumentState
		progress float64
		final    int // finalize tasks
		paused   int
	}
	expectations := map[string]expected{}
	var finalized []Doc
	for i := range 40 {
		var d Doc
		var e expected
		switch i % 8 {
		case 0: // its plan is running
			d = f.Document("t")
			f.Claim(d.Plan, "w")
			e = expected{state: sheaf.DocRunning}
		case 1: // one of its ranges is done
			d = f.Document("t")
			f.Plan(d, Parse(3)...)
			f.Exec("UPDATE tasks SET state='done', attempts=1 WHERE doc_id=? AND from_unit=1", d.ID)
			plan := 1.0 // what a plan costs
			e = expected{state: sheaf.DocRunning, progress: 0.99 * (plan + 12) / (plan + 36)}
		case 2, 3:
			d = f.complete(1 + i%4)
			e = expected{state: sheaf.DocFinalizing, progress: 0.99, final: 1}
			if i%8 == 3 {
				f.Exec("UPDATE jobs SET paused=1 WHERE id=?", d.Job)
				e.paused = 1
			}
			finalized = append(finalized, d)
		case 4: // its plan is dead
			d = f.Document("t")
			f.Exec(`UPDATE tasks SET state='dead', attempts=1, failure='{"category":"bad_input","code":"broken","message":"it is broken"}' WHERE id=?`, d.Plan)
			e = expected{state: sheaf.DocFailed}
		case 5: // a cancel has nothing left to wait for
			d = f.Document("t")
			f.Exec("UPDATE tasks SET state='canceled' WHERE id=?", d.Plan)
			f.Exec("UPDATE documents SET state='canceling' WHERE id=?", d.ID)
			e = expected{state: sheaf.DocCanceled}
		case 6: // deleted
			d = f.complete(1)
			f.Exec("UPDATE documents SET deleted_at=1 WHERE id=?", d.ID)
			e = expected{state: sheaf.DocQueued}
		case 7: // nothing has happened
			d = f.Document("t")
			e = expected{state: sheaf.DocQueued}
		}
		expectations[d.ID] = e
	}
	f.markAll()
	f.Exec("INSERT INTO doc_dirty (doc_id, at) VALUES ('nobody', 5)")
	n, later, err := f.Store.Fold(ctx, 1000, 0)
	f.OK(err)
	want(f, "changed documents", n, 30)
	want(f, "left for later", later, false)
	want(f, "marks", f.Int("SELECT COUNT(*) FROM doc_dirty"), 0)
	check := func(when string) {
		f.T.Helper()
		for id, e := range expectations {
			want(f, "state of "+id+" "+when, f.Strings("SELECT state FROM documents WHERE id=?", id)[0], string(e.state))
			var progress float64
			f.OK(f.DB.QueryRow(f.sql("SELECT progress FROM documents WHERE id=?"), id).Scan(&progress))
			near(f, "progress of "+id+" "+when, progress, e.progress)
			want(f, "finalize tasks of "+id+" "+when, f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='finalize'", id), e.final)
			want(f, "decisions on "+id+" "+when, f.Int("SELECT fin_epoch FROM documents WHERE id=?", id), e.final)
			want(f, "paused tasks of "+id+" "+when, f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='finalize' AND paused=1", id), e.paused)
			events := 1 // the queued event
			if e.state != sheaf.DocQueued {
				events = 2
				want(f, "generation of "+id+" "+when, f.Strings("SELECT state FROM generations WHERE doc_id=?", id)[0], string(e.state))
			}
			want(f, "events of "+id+" "+when, f.Int("SELECT COUNT(*) FROM events WHERE subject_id=? AND kind='document'", id), events)
		}
	}
	check("after one fold")
	for _, d := range finalized {
		want(f, "place of the end", f.Int("SELECT place FROM tasks WHERE doc_id=? AND kind='finalize'", d.ID), f.Int("SELECT CASE WHEN place=0 THEN created_at ELSE place END FROM tasks WHERE id=?", d.Plan))
	}
	f.markAll()
	n, _, err = f.Store.Fold(ctx, 1000, 0)
	f.OK(err)
	want(f, "changed by the second fold", n, 0)
	check("after the second fold")
}

// foldHeld postpones documents that another transaction has locked, whoever folds
// them, and folds them once it has ended.
func foldHeld(f *Fixture) {
	if f.Engine == "sqlite" {
		return // one writer at a time
	}
	held, other := f.complete(2), f.complete(2)
	f.markAll()
	tx, err := f.DB.Begin()
	f.OK(err)
	var id string
	f.OK(tx.QueryRow(f.sql("SELECT id FROM documents WHERE id=? FOR UPDATE"), held.ID).Scan(&id))
	n, later, err := f.Store.Fold(ctx, 100, 0)
	f.OK(err)
	want(f, "changed beside the held one", n, 1)
	want(f, "left for later", later, true)
	want(f, "state of the other", f.Doc(other.ID).State, sheaf.DocFinalizing)
	n, later, err = f.Second().Fold(ctx, 100, 0)
	f.OK(err)
	want(f, "changed by another process", n, 0)
	want(f, "left for later by it", later, true)
	wantList(f, "marks", f.Strings("SELECT doc_id FROM doc_dirty"), held.ID)
	f.OK(tx.Rollback()) // as the engine does when a process dies
	n, later, err = f.Store.Fold(ctx, 100, 0)
	f.OK(err)
	want(f, "changed once it is free", n, 1)
	want(f, "left for later then", later, false)
	for _, d := range []Doc{held, other} {
		want(f, "finalize tasks", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='finalize'", d.ID), 1)
		want(f, "events", f.Int("SELECT COUNT(*) FROM events WHERE subject_id=? AND kind='document'", d.ID), 2)
	}
}

// foldShares folds shares: each document belongs to one folder, also to the last one
// when the others are gone, and folders that disagree on their number do nothing
// twice.
func foldShares(f *Fixture) {
	const documents, folders = 60, 3
	var docs []Doc
	for range documents {
		docs = append(docs, f.complete(1))
	}
	f.markAll()
	total := 0
	for rank := range folders - 1 {
		n, _, err := f.Store.FoldShare(ctx, rank, folders, 1000, 0)
		f.OK(err)
		if n == 0 || n > documents*2/3 {
			f.T.Fatalf("folder %d of %d has %d of %d documents", rank, folders, n, documents)
		}
		total += n
		again, _, err := f.Store.FoldShare(ctx, rank, folders, 1000, 0)
		f.OK(err)
		want(f, "changed again", again, 0)
		want(f, "marks that are left", f.Int("SELECT COUNT(*) FROM doc_dirty"), documents-total)
	}
	n, _, err := f.Store.FoldShare(ctx, 0, 1, 1000, 0) // the last has died, and one is left
	f.OK(err)
	want(f, "changed by the one that is left", n, documents-total)

	f.Exec("UPDATE documents SET state='running', fin_epoch=0")
	f.Exec("DELETE FROM tasks WHERE kind='finalize'")
	before := f.Int("SELECT COUNT(*) FROM events WHERE kind='document'")
	f.markAll()
	var mu sync.Mutex
	changed := 0
	var all sync.WaitGroup
	for _, share := range [][2]int{{0, 1}, {0, 2}, {1, 2}, {0, 3}, {1, 3}, {2, 3}} {
		store := f.Second()
		all.Go(func() {
			for range 200 {
				n, later, err := store.FoldShare(ctx, share[0], share[1], 20, 0)
				mu.Lock()
				changed += n
				mu.Unlock()
				if err != nil {
					f.T.Error(err)
				}
				if n == 0 && !later {
					return
				}
			}
		})
	}
	all.Wait()
	f.Fold()
	want(f, "changes of all", changed, documents)
	for _, d := range docs {
		want(f, "finalize tasks", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='finalize'", d.ID), 1)
		want(f, "decisions", f.Doc(d.ID).FinalizeEpoch, 1)
	}
	want(f, "events", f.Int("SELECT COUNT(*) FROM events WHERE kind='document'")-before, documents)
}

// foldRanks are the ranks of live folders: they close up when one leaves or is
// silent.
func foldRanks(f *Fixture) {
	const life = time.Minute
	rank := func(who string, wantRank, wantOf int) {
		f.T.Helper()
		r, of, err := f.Store.FoldRank(ctx, who, life)
		f.OK(err)
		want(f, "rank of "+who, fmt.Sprint(r, " of ", of), fmt.Sprint(wantRank, " of ", wantOf))
	}
	rank("b", 0, 1)
	rank("a", 0, 2)
	rank("c", 2, 3)
	rank("b", 1, 3)
	f.OK(f.Store.LeaveFold(ctx, "a"))
	rank("b", 0, 2)
	f.Store.AdvanceClock(life / 2)
	rank("b", 0, 2)
	f.Store.AdvanceClock(life/2 + time.Second) // c is silent
	rank("b", 0, 1)
	rank("c", 1, 2)
}
