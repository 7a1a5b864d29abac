package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// deadWhere selects dead tasks of documents that are not deleted.
func deadWhere(tenantID string, f taskstore.DeadLetterFilter, canceledToo bool) (where, error) {
	var w where
	if len(f.IDs) > maxFilterIDs {
		return w, fmt.Errorf("%w: a filter lists at most %d ids, this one %d; split it", sheaf.ErrInvalid, maxFilterIDs, len(f.IDs))
	}
	w.when(f.None, "1=0")
	w.when(tenantID != "" || !f.AllTenants, "t.tenant_id=?", tenantID)
	w.when(len(f.IDs) > 0, "t.id IN ?", f.IDs)
	if canceledToo && len(f.IDs) > 0 {
		w.add("t.state IN ('dead','canceled')")
	} else {
		// All values of paused: k_feed then finds the tenant's among those of all.
		w.add("t.state='dead' AND t.paused IN (0,1,2,3)")
	}
	w.when(f.Kind != "", "t.kind=?", string(f.Kind))
	w.when(f.Code != "", "t.failure_code=?", f.Code)
	if f.Category != "" {
		// As the encoder writes it; within a message, quotes are escaped.
		w.add("t.failure LIKE ? ESCAPE '!'", `%"category":`+escapeLike.Replace(encode(f.Category))+`%`)
	}
	w.when(f.DocumentID != "", "t.doc_id=?", f.DocumentID)
	w.when(f.JobID != "", "t.job_id=?", f.JobID)
	w.when(f.DatasetID != "", "t.dataset_id=?", f.DatasetID)
	w.add("NOT EXISTS (SELECT 1 FROM documents d WHERE d.id=t.doc_id AND d.deleted_at<>0)")
	return w, nil
}

// DeadLetters lists dead tasks.
func (s *deadLetters) DeadLetters(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter, p taskstore.Page) ([]sheaf.Task, string, error) {
	w, err := deadWhere(tenantID, f, false)
	if err != nil {
		return nil, "", err
	}
	return page(s.read(ctx), "SELECT t.* FROM tasks t", w, "t.id", p, taskRow.id, s.toTask)
}

// RetryDead makes dead tasks pending again under a new epoch, with budgets reset.
// Tasks of a generation that is not the newest or was canceled are left alone: no
// one needs their result, and the results of a canceled generation's other tasks are
// gone. Such a document is re-parsed instead.
func (s *deadLetters) RetryDead(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter) (int, error) {
	return s.eachDead(ctx, tenantID, f, true, func(tx *gorm.DB, tenantID string, found []taskRow) (int, error) {
		docs, err := s.lockDocuments(tx, tenantID, mapped(found, func(t taskRow) string { return t.DocID }))
		if err != nil {
			return 0, err
		}
		doc := make(map[string]*documentRow, len(docs))
		for i := range docs {
			doc[docs[i].ID] = &docs[i]
		}
		rows, err := all[taskRow](tx, `SELECT id, tenant_id, dataset_id, doc_id, job_id, gen, kind, state, epoch, unmet FROM tasks
			WHERE id IN ? AND state IN ('dead','canceled') ORDER BY id`+s.d.lock, mapped(found, taskRow.id))
		if err != nil {
			return 0, err
		}
		var again, finalize []string
		var events []eventRow
		reopen := map[string]bool{}
		for i := range rows {
			t := &rows[i]
			if t.DocID != "" {
				d := doc[t.DocID]
				if d == nil || d.Gen != t.Gen || d.State == string(sheaf.DocCanceling) || d.State == string(sheaf.DocCanceled) {
					continue
				}
				reopen[d.ID] = true
			}
			// A finalize task belongs to one decision that the generation is complete.
			// The document is reopened, and a new decision makes a new task.
			if t.Kind == string(sheaf.KindFinalize) {
				finalize = append(finalize, t.ID)
			} else {
				again = append(again, t.ID)
			}
			events = append(events, t.event(sheaf.EventRetried, t.Epoch+1))
		}
		if _, err := execByIDs(tx, again, s.sql(`UPDATE tasks SET state=CASE WHEN unmet>0 THEN 'parked' ELSE 'pending' END, epoch=epoch+1, fail_count=0, lost_count=0,
			run_at=@now, place=@now, enqueued_at=0, lease_until=0, cancel_requested_at=0, finished_at=0 WHERE id IN ?`)); err != nil {
			return 0, err
		}
		if _, err := execByIDs(tx, finalize, "UPDATE tasks SET state='superseded', epoch=epoch+1 WHERE id IN ?"); err != nil {
			return 0, err
		}
		if err := s.insertEvents(tx, events...); err != nil {
			return 0, err
		}
		var dirty []string
		for i := range docs {
			d := &docs[i]
			if !reopen[d.ID] {
				continue
			}
			dirty = append(dirty, d.ID)
			if d.State != string(sheaf.DocFailed) && d.State != string(sheaf.DocPartiallySucceeded) && d.State != string(sheaf.DocFinalizing) {
				continue
			}
			if err := s.reopen(tx, d); err != nil {
				return 0, err
			}
		}
		return len(events), s.markDirty(tx, dirty...)
	})
}

// reopen makes a document's newest generation running again, so that it is decided
// again when complete. An earlier decision is void: the finalize task of that epoch
// no longer finds its state.
func (s *deadLetters) reopen(tx *gorm.DB, d *documentRow) error {
	progress := d.Progress
	if sheaf.DocumentState(d.State).Terminal() {
		progress = min(progress, 0.99)
	}
	if err := run(tx, stmt(s.sql("UPDATE documents SET state='running', progress=?, failure='', finished_at=0, updated_at=@now WHERE id=? AND gen=?"), progress, d.ID, d.Gen),
		stmt("UPDATE generations SET state='running', failure='', finished_at=0 WHERE doc_id=? AND gen=?", d.ID, d.Gen)); err != nil {
		return err
	}
	return s.insertDocumentEvent(tx, d, sheaf.DocumentChange{State: sheaf.DocRunning, Progress: progress})
}

// PurgeDead removes dead tasks of finished generations.
func (s *deadLetters) PurgeDead(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter) (int, error) {
	return s.eachDead(ctx, tenantID, f, false, func(tx *gorm.DB, _ string, found []taskRow) (int, error) {
		// Tasks of an unfinished generation are part of its ledger.
		over, err := all[string](tx, `SELECT t.id FROM tasks t LEFT JOIN documents d ON d.id=t.doc_id
			WHERE t.id IN ? AND t.state='dead' AND (d.id IS NULL OR d.gen<>t.gen OR d.state IN `+terminalDocuments+`) ORDER BY t.id`, mapped(found, taskRow.id))
		if err != nil || len(over) == 0 {
			return 0, err
		}
		if err := run(tx, stmt("DELETE FROM task_deps WHERE child_id IN ?", over)); err != nil {
			return 0, err
		}
		return exec(tx, "DELETE FROM tasks WHERE id IN ? AND state='dead'", over)
	})
}

// errDryRun rolls back a transaction that only measured its effect.
var errDryRun = errors.New("a dry run")

// eachDead passes the tasks selected by f to do, some at a time, each batch in a
// transaction, and sums the results. All tasks of a transaction belong to one
// tenant, passed to do. In a dry run every transaction is rolled back.
func (s *deadLetters) eachDead(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter, canceledToo bool, do func(tx *gorm.DB, tenantID string, found []taskRow) (int, error)) (int, error) {
	sum, after := 0, ""
	if tenantID == "" && f.AllTenants {
		w, err := deadWhere("", f, canceledToo)
		if err != nil {
			return 0, err
		}
		tenants, err := all[string](s.write(ctx), "SELECT DISTINCT t.tenant_id FROM tasks t"+w.String()+" ORDER BY t.tenant_id", w.args...)
		if err != nil {
			return 0, err
		}
		for _, tenant := range tenants {
			n, err := s.eachDead(ctx, tenant, f, canceledToo, do)
			if sum += n; err != nil {
				return sum, err
			}
		}
		return sum, nil
	}
	for {
		w, err := deadWhere(tenantID, f, canceledToo)
		if err != nil {
			return sum, err
		}
		w.add("t.id>?", after)
		found, err := all[taskRow](s.write(ctx), "SELECT t.id, t.doc_id, t.gen FROM tasks t"+w.String()+fmt.Sprintf(" ORDER BY t.id LIMIT %d", changeBatch), w.args...)
		if err != nil || len(found) == 0 {
			return sum, err
		}
		n := 0
		err = s.tx(ctx, func(tx *gorm.DB) (err error) {
			if n, err = do(tx, tenantID, found); err == nil && f.DryRun {
				err = errDryRun
			}
			return err
		})
		if err != nil && !errors.Is(err, errDryRun) {
			return sum, err
		}
		sum += n
		after = found[len(found)-1].ID
	}
}
