package sqlstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// rowsPerCall bounds the rows that MariaDB may read for one call of the store,
// whatever the tables hold. A backlog of 10 million rows is two hundred times that.
const rowsPerCall = 50_000

// scaleBound is the time that a call may take among many rows on any engine, while
// other tests keep the machine and its disk busy. Most take a few milliseconds;
// reading ten million rows takes longer.
const scaleBound = 8 * time.Second

// checkCalls sends a few documents their whole way among the rows that are there and
// looks at them as the API, the page and the keeper do. No call may read a table
// through: on MariaDB the engine counts the rows it reads, elsewhere the clock does.
func checkCalls(t *testing.T, f *storetest.Fixture) {
	s := f.Store
	read := func() int {
		if f.Engine != "mysql" {
			return 0
		}
		return f.Int("SELECT CAST(SUM(variable_value) AS SIGNED) FROM information_schema.global_status WHERE variable_name IN ('HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_PREV', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT')")
	}
	ownReads := read()
	ownReads = read() - ownReads
	call := func(name string, do func() error) {
		t.Helper()
		rows, start := read(), time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		took := time.Since(start)
		rows = read() - rows - ownReads
		if took > 20*time.Millisecond {
			t.Logf("%s: %v, %d rows", name, took.Round(time.Millisecond), rows)
		}
		if took > scaleBound || rows > rowsPerCall {
			t.Errorf("%s took %v and read %d rows, want at most %v and %d", name, took, rows, scaleBound, rowsPerCall)
		}
	}

	var docs []storetest.Doc
	call("an upload", func() error {
		for range 5 {
			docs = append(docs, f.Document("t7"))
		}
		return nil
	})
	d, ended := docs[0], docs[1]
	page := taskstore.Page{Limit: 50}
	var held sheaf.Claim
	call("a plan", func() error { f.Plan(d, storetest.Parse(3)...); f.Plan(ended, storetest.Parse(2)...); return nil })
	tasks := f.Tasks(d.ID, 1)
	call("claim", func() error { held = f.Claim(tasks[0].ID, "w").Held(); return nil })
	call("heartbeat", func() error {
		_, err := s.Heartbeat(ctx, taskstore.WorkerStatus{ID: "w", Running: []string{held.TaskID}}, time.Minute, []sheaf.Claim{held})
		return err
	})
	call("progress", func() error {
		return s.AppendEvents(ctx, held, []sheaf.Event{{Kind: sheaf.EventProgress, Detail: []byte(`{"stage":"parse","done":1,"total":12}`)}})
	})
	// A process counts all that waits once, then now and then beside its callers.
	c := f.Config
	c.SampleAge = 0
	counted, err := sqlstore.Open(ctx, c)
	f.OK(err)
	t.Cleanup(func() { _ = counted.Close() })
	start := time.Now()
	_, err = counted.Remaining(ctx, d.Tenant, d.Job)
	f.OK(err)
	t.Logf("all that waits is counted in %v", time.Since(start).Round(time.Millisecond))
	for name, do := range map[string]func() error{
		"job":           func() error { _, err := s.Job(ctx, d.Tenant, d.Job); return err },
		"jobs":          func() error { _, _, err := s.Jobs(ctx, d.Tenant, taskstore.JobFilter{}, page); return err },
		"job documents": func() error { _, _, err := s.JobDocuments(ctx, d.Tenant, d.Job, page); return err },
		"job errors":    func() error { _, _, err := s.JobErrors(ctx, d.Tenant, d.Job, page); return err },
		"job ended":     func() error { _, err := s.JobEnded(ctx, d.Tenant, d.Job); return err },
		"remaining":     func() error { _, err := counted.Remaining(ctx, d.Tenant, d.Job); return err },
		"waits for":     func() error { _, err := s.JobWaitsFor(ctx, d.Job, "", time.Minute); return err },
		"speed":         func() error { _, err := s.Speed(ctx, "parse"); return err },
		"stage times":   func() error { _, err := s.StageTimes(ctx, d.Tenant); return err },
		"documents":     func() error { _, _, err := s.Documents(ctx, d.Tenant, taskstore.DocumentFilter{}, page); return err },
		"facets":        func() error { _, err := s.Facets(ctx, d.Tenant, taskstore.DocumentFilter{}); return err },
		"tasks":         func() error { _, err := s.Tasks(ctx, d.Tenant, d.ID, 1); return err },
		"task":          func() error { _, err := s.Task(ctx, d.Tenant, held.TaskID); return err },
		"task events":   func() error { _, err := s.TaskEvents(ctx, d.Tenant, held.TaskID); return err },
		"events of a document": func() error {
			_, err := s.Events(ctx, d.Tenant, taskstore.EventFilter{DocumentID: d.ID}, 0, 100)
			return err
		},
		"events of a job": func() error {
			_, err := s.Events(ctx, "t7", taskstore.EventFilter{JobID: "j1"}, 0, 100)
			return err
		},
		"events of a tenant": func() error { _, err := s.Events(ctx, "t7", taskstore.EventFilter{}, 0, 100); return err },
		"last event":         func() error { _, err := s.LastEventOf(ctx, "t7", taskstore.EventFilter{JobID: d.Job}); return err },
		"follow": func() error {
			from, err := s.FollowFrom(ctx)
			if err == nil {
				_, err = s.FollowEvents(ctx, max(from-100, 0), 100)
			}
			return err
		},
		"touched": func() error {
			from, err := s.FollowFrom(ctx)
			if err == nil {
				_, _, err = s.Touched(ctx, max(from-100, 0), 100)
			}
			return err
		},
		"roll-up":      func() error { _, err := s.RollUp(ctx); return err },
		"stats":        func() error { _, err := s.Stats(ctx, d.Tenant, 60, 1); return err },
		"running":      func() error { _, err := s.HardCancel(ctx, time.Minute, 100); return err },
		"generations":  func() error { _, err := s.Generations(ctx, d.Tenant, d.ID); return err },
		"ledger":       func() error { _, err := s.UnitLedger(ctx, d.Tenant, d.ID, 1); return err },
		"dead letters": func() error { _, _, err := s.DeadLetters(ctx, "t7", taskstore.DeadLetterFilter{}, page); return err },
		"live results": func() error { _, err := s.LiveResults(ctx, "", "", 100); return err },
		"visible":      func() error { _, err := s.Visible(ctx, d.Tenant, []string{"r1", "r2"}); return err },
		"references":   func() error { _, err := s.References(ctx, []string{"r1"}, []string{d.ID}); return err },
		"results":      func() error { _, err := s.ResultsOf(ctx, []string{d.ID}); return err },
		"garbage":      func() error { _, err := s.Garbage(ctx, 100); return err },
		"receipts":     func() error { _, _, err := s.Receipts(ctx, d.Tenant, "", page); return err },
		"dataset rest": func() error { _, _, err := s.DatasetRest(ctx, d.Tenant, d.Dataset); return err },
		"open tasks":   func() error { _, _, err := s.OpenTasks(ctx, d.Tenant, []string{d.ID}); return err },
		"run forecast": func() error { _, err := s.RunForecast(ctx, d.Tenant, d.Dataset, sheaf.KindRaptor, true); return err },
		"unserved":     func() error { _, err := s.UnservedPools(ctx, time.Minute); return err },
		"promote":      func() error { _, err := s.PromoteDue(ctx, 100); return err },
		"wake":         func() error { _, err := s.WakeParked(ctx, 100); return err },
		"mark enqueued": func() error {
			_, err := s.MarkEnqueued(ctx, []sheaf.Hint{{TaskID: tasks[1].ID}}, "")
			return err
		},
		"pause and resume a job": func() error {
			_, err := s.SetPaused(ctx, d.Tenant, taskstore.PauseScope{JobID: d.Job}, true)
			if err == nil {
				_, err = s.SetPaused(ctx, d.Tenant, taskstore.PauseScope{JobID: d.Job}, false)
			}
			return err
		},
		"add to a closed job": func() error {
			if err := s.JobTakes(ctx, d.Tenant, d.Dataset, d.Job, 1); !errors.Is(err, sheaf.ErrConflict) {
				return fmt.Errorf("got %v, want a conflict", err)
			}
			return nil
		},
	} {
		call(name, do)
	}
	call("complete", func() error { return s.Complete(ctx, held, taskstore.Completion{Result: storetest.Result(&tasks[0])}) })
	call("the other ranges", func() error {
		for _, task := range append(tasks[1:], f.Tasks(ended.ID, 1)...) {
			f.Done(task.ID)
		}
		return nil
	})
	call("fold and publish", func() error { f.Publish(d.ID, sheaf.DocSucceeded); f.Publish(ended.ID, sheaf.DocSucceeded); return nil })
	call("a new version", func() error { f.Publish(again(f, d), sheaf.DocSucceeded); return nil })
	call("fail, snooze and retry", func() error {
		f.Plan(docs[2], storetest.Parse(2)...)
		both := f.Tasks(docs[2].ID, 1)
		one, two := f.Claim(both[0].ID, "w"), f.Claim(both[1].ID, "w")
		if _, err := s.FailTask(ctx, one.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryBadInput, "bad", "it is bad")}); err != nil {
			return err
		}
		if err := s.Snooze(ctx, two.Held(), time.Hour, *sheaf.Fail(sheaf.CategoryPolicy, "later", "later")); err != nil {
			return err
		}
		f.Retry(docs[2], both[0].ID)
		return nil
	})
	call("cancel", func() error { f.Cancel(docs[3]); return nil })
	call("delete and purge", func() error {
		if _, err := s.DeleteDocuments(ctx, d.Tenant, []string{d.ID, docs[4].ID}); err != nil {
			return err
		}
		_, err := s.PurgeDeleted(ctx, 100)
		return err
	})
	call("settle receipts", func() error {
		_, err := s.SettleReceipts(ctx, 100, func(*taskstore.Receipt) error { return nil })
		return err
	})
	call("reap", func() error { _, err := s.Reap(ctx, taskstore.ReapPolicy{}, 100); return err })
	call("cleanup", func() error { _, err := s.Cleanup(ctx, time.Hour, 1000, false); return err })
}

// again makes a new version of a document that is ready to publish.
func again(f *storetest.Fixture, d storetest.Doc) string {
	d = f.Reparse(d)
	for _, task := range f.Plan(d, storetest.Parse(3)...) {
		f.Done(task.ID)
	}
	return d.ID
}
