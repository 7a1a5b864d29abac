package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// MarkEnqueued notes that a queue holds the hints. A task that was claimed
// since its hint was read (its epoch moved on) is left as it is: its hint is
// spent, and if it is pending again it needs another.
func (s *Store) MarkEnqueued(ctx context.Context, hints []sheaf.Hint) error {
	byEpoch := map[int64][]string{} // nearly all have epoch 0: they were never claimed
	for _, h := range hints {
		byEpoch[h.Epoch] = append(byEpoch[h.Epoch], h.TaskID)
	}
	for epoch, all := range byEpoch {
		for ids := range chunks(sortedUnique(all)) {
			err := s.tx(ctx, func(tx *gorm.DB) error {
				return tx.Exec(s.sql("UPDATE tasks SET enqueued_at=@now WHERE id IN ? AND state='pending' AND epoch=?"), ids, epoch).Error
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Running lists the ids of running tasks by tenant.
func (s *Store) Running(ctx context.Context) (map[string][]string, error) {
	var rows []taskRow
	if err := s.read(ctx).Raw("SELECT id, tenant_id FROM tasks WHERE state='running' ORDER BY id").Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	out := map[string][]string{}
	for _, r := range rows {
		out[r.TenantID] = append(out[r.TenantID], r.ID)
	}
	return out, nil
}

// ForgetEnqueued marks every pending task that is fed to one of the lanes as
// not enqueued: the queue lost its memory of them. It reads the whole backlog
// once; a queue seldom loses its memory.
func (s *Store) ForgetEnqueued(ctx context.Context, lanes []sheaf.Lane) (n int, err error) {
	if len(lanes) == 0 {
		return 0, nil
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		res := tx.Exec("UPDATE tasks SET enqueued_at=0 WHERE state='pending' AND enqueued_at<>0 AND "+fedTo+" IN ?", lanes)
		n = int(res.RowsAffected)
		return res.Error
	})
	return n, err
}

// PromoteDue makes due retry_wait tasks pending. A task that is tried again
// gets its old place in the line: it has waited once, and the end of a long
// backlog may be hours away. What waits for a retry has no lease; saying so
// finds it by its time in an index that leases are found by.
func (s *Store) PromoteDue(ctx context.Context, limit int) (n int, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		n = 0
		var ids []string
		if err := tx.Raw(s.sql("SELECT id FROM tasks WHERE state='retry_wait' AND lease_until=0 AND run_at<=@now ORDER BY run_at LIMIT ?")+s.d.skip, limit).Scan(&ids).Error; err != nil {
			return err
		}
		for batch := range chunks(sortedUnique(ids)) {
			res := tx.Exec(s.sql("UPDATE tasks SET state='pending', enqueued_at=0, run_at=created_at WHERE id IN ? AND state='retry_wait' AND run_at<=@now"), batch)
			if res.Error != nil {
				return res.Error
			}
			n += int(res.RowsAffected)
		}
		return nil
	})
	return n, err
}

// attempt is a running task as a sweep found it.
type attempt struct {
	ID    string
	Epoch int64
}

// takeAway changes each of the running tasks that still is as it was found,
// one transaction each: a worker may be finishing it at the same time, and
// batches would lock tasks in an order that its transaction does not keep.
func (s *Store) takeAway(ctx context.Context, found []attempt, set, where string, args []any, then func(tx *gorm.DB, row *taskRow, epoch int64) error) (n int, err error) {
	for _, a := range found {
		took := false
		err := s.tx(ctx, func(tx *gorm.DB) error {
			took = false
			row, err := s.updateTask(tx, a.ID, set, "state='running' AND epoch=? AND "+where, append(append([]any{}, args...), a.Epoch)...)
			if err != nil || row == nil {
				return err
			}
			took = true
			return then(tx, row, a.Epoch)
		})
		if err != nil {
			return n, err
		}
		if took {
			n++
		}
	}
	return n, nil
}

// Reap takes tasks away from workers that are gone. They are pending again at
// once, and from the second loss on after a wait.
func (s *Store) Reap(ctx context.Context, p taskstore.ReapPolicy, limit int) (int, error) {
	maxLost := p.MaxLost
	if maxLost <= 0 {
		maxLost = 3
	}
	gone := "lease_until<@now"
	if p.WorkerTimeout > 0 {
		// A claim is a sign of life too: it comes before the first heartbeat.
		ms := p.WorkerTimeout.Milliseconds()
		gone = fmt.Sprintf(`(lease_until<@now OR started_at<@now-%d AND NOT EXISTS
			(SELECT 1 FROM workers w WHERE w.id=tasks.worker_id AND w.seen_at>=@now-%d))`, ms, ms)
	}
	var found []attempt
	if err := s.w.WithContext(ctx).Raw(s.sql("SELECT id, epoch FROM tasks WHERE state='running' AND "+gone+" ORDER BY lease_until LIMIT ?"), limit).Scan(&found).Error; err != nil {
		return 0, translate(err)
	}
	dead := fmt.Sprintf("lost_count+1>=%d", maxLost)
	lost := sheaf.FailRetryable(sheaf.CategoryCrash, "worker_lost",
		"The executor died or fell silent while it ran this task %d times or more. Look for what it does to memory or time, then retry the task.", maxLost)
	n := 0
	for _, a := range found {
		// A task that is lost for the first time runs again at once, in its old
		// place. One that was lost before may be what kills executors: it comes
		// later, and not in step with others.
		jitter := int64(0)
		if p.MaxJitter > 0 {
			jitter = rand.Int64N(p.MaxJitter.Milliseconds() + 1)
		}
		// The conditions read the old counts, so the columns they read come last.
		set := fmt.Sprintf(`epoch=epoch+1, run_at=CASE WHEN lost_count=0 THEN created_at ELSE @now+%d END, lease_until=0, enqueued_at=0,
			finished_at=CASE WHEN cancel_requested_at<>0 OR %[2]s THEN @now ELSE 0 END,
			failure=CASE WHEN cancel_requested_at=0 AND %[2]s THEN ? ELSE failure END,
			failure_code=CASE WHEN cancel_requested_at=0 AND %[2]s THEN ? ELSE failure_code END,
			state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' WHEN %[2]s THEN 'dead' WHEN lost_count=0 THEN 'pending' ELSE 'retry_wait' END,
			lost_count=CASE WHEN cancel_requested_at<>0 THEN lost_count ELSE lost_count+1 END`, jitter, dead)
		tenant := ""
		took, err := s.takeAway(ctx, []attempt{a}, set, gone, []any{encodeFailure(lost), lost.Code}, func(tx *gorm.DB, row *taskRow, epoch int64) error {
			tenant = row.TenantID
			if row.State == string(sheaf.TaskCanceled) {
				return s.endAttempt(tx, row, epoch, row.event(sheaf.EventCanceled, row.Epoch))
			}
			e := row.event(sheaf.EventLost, row.Epoch)
			e.Level, e.Text = "warn", "The executor did not renew its lease."
			events := []eventRow{e}
			if row.State == string(sheaf.TaskDead) {
				d := row.event(sheaf.EventDead, row.Epoch)
				d.Level, d.Text, d.Detail = "error", lost.Message, row.Failure
				events = append(events, d)
			}
			return s.endAttempt(tx, row, epoch, events...)
		})
		n += took
		if took > 0 && p.TakenFunc != nil {
			p.TakenFunc(tenant, a.ID)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// HardCancel fences running tasks whose cancel was asked longer than grace ago.
func (s *Store) HardCancel(ctx context.Context, grace time.Duration, limit int) (int, error) {
	// Those asked first come first. By id, MySQL would walk the whole table in
	// the order of its key, every second, to save a sort of a few rows.
	late := fmt.Sprintf("cancel_requested_at<>0 AND cancel_requested_at<=@now-%d", grace.Milliseconds())
	var found []attempt
	if err := s.w.WithContext(ctx).Raw(s.sql("SELECT id, epoch FROM tasks WHERE state='running' AND "+late+" ORDER BY cancel_requested_at LIMIT ?"), limit).Scan(&found).Error; err != nil {
		return 0, translate(err)
	}
	return s.takeAway(ctx, found, "state='canceled', epoch=epoch+1, lease_until=0, finished_at=@now", late, nil,
		func(tx *gorm.DB, row *taskRow, epoch int64) error {
			e := row.event(sheaf.EventCanceled, row.Epoch)
			e.Text = "The executor did not stop in time; what it still writes is ignored."
			return s.endAttempt(tx, row, epoch, e)
		})
}

// ReleaseRunning gives back every running task, for the start of a process that
// knows it is the only one.
func (s *Store) ReleaseRunning(ctx context.Context) (int, error) {
	total := 0
	for {
		var found []attempt
		if err := s.w.WithContext(ctx).Raw("SELECT id, epoch FROM tasks WHERE state='running' ORDER BY id LIMIT 500").Scan(&found).Error; err != nil {
			return total, translate(err)
		}
		n, err := s.takeAway(ctx, found, releaseSet, "1=1", nil, s.released)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}

// WakeParked makes parked tasks pending whose parents are all done. It is the
// backstop of the wake that the completion of the last parent makes. A task
// whose parent ended without being done will never run: it ends too.
func (s *Store) WakeParked(ctx context.Context, limit int) (int, error) {
	return s.settleParked(ctx, "", limit)
}

// settleParked settles the parked tasks of one document, or of all for "".
func (s *Store) settleParked(ctx context.Context, documentID string, limit int) (n int, err error) {
	scope, args := "", []any{}
	if documentID != "" {
		scope, args = " AND t.doc_id=?", []any{documentID}
	}
	var parked []struct {
		ID     string
		DocID  string
		Failed int // parents that ended without being done
		Dead   int
	}
	err = s.w.WithContext(ctx).Raw(`SELECT * FROM (SELECT t.id, t.doc_id,
			SUM(CASE WHEN p.state IN ('dead','canceled','superseded') THEN 1 ELSE 0 END) AS failed,
			SUM(CASE WHEN p.state='dead' THEN 1 ELSE 0 END) AS dead,
			SUM(CASE WHEN p.state IS NOT NULL AND p.state NOT IN ('done','dead','canceled','superseded') THEN 1 ELSE 0 END) AS open
		FROM tasks t LEFT JOIN task_deps d ON d.child_id=t.id LEFT JOIN tasks p ON p.id=d.parent_id
		WHERE t.state='parked'`+scope+` GROUP BY t.id, t.doc_id) x WHERE failed>0 OR open=0 ORDER BY id LIMIT ?`, append(args, limit)...).Scan(&parked).Error
	if err != nil {
		return 0, translate(err)
	}
	orphaned := sheaf.Fail(sheaf.CategoryInternal, "dependency_failed",
		"A task that this one waits for ended without a result. Retry that one first, then this one.")
	for _, t := range parked {
		took := false
		err := s.tx(ctx, func(tx *gorm.DB) error {
			took = false
			if t.Failed == 0 {
				// Parents that are done stay done, so nothing can change between the look and this.
				row, err := s.updateTask(tx, t.ID, "state='pending', unmet=0, run_at=@now, enqueued_at=0", "state='parked'")
				if err != nil || row == nil {
					return err
				}
				took = true
				if err := tx.Exec("UPDATE task_deps SET done=1 WHERE child_id=?", t.ID).Error; err != nil {
					return err
				}
				return s.markDirty(tx, row.DocID)
			}
			state, kind, failure := sheaf.TaskCanceled, sheaf.EventCanceled, (*sheaf.Failure)(nil)
			if t.Dead > 0 {
				state, kind, failure = sheaf.TaskDead, sheaf.EventDead, orphaned
			}
			code := ""
			if failure != nil {
				code = failure.Code
			}
			row, err := s.updateTask(tx, t.ID, "state=?, epoch=epoch+1, finished_at=@now, failure=?, failure_code=?", "state='parked'",
				string(state), encodeFailure(failure), code)
			if err != nil || row == nil {
				return err
			}
			took = true
			e := row.event(kind, row.Epoch)
			e.Detail = row.Failure
			if err := s.insertEvents(tx, e); err != nil {
				return err
			}
			return s.markDirty(tx, row.DocID)
		})
		if err != nil {
			return n, err
		}
		if took {
			n++
		}
	}
	return n, nil
}

// Garbage lists what may be removed from index and blob store now. A range that
// a live or the newest generation lists is never among it, whatever put it
// there.
func (s *Store) Garbage(ctx context.Context, limit int) ([]taskstore.Garbage, error) {
	var rows []garbageRow
	err := s.read(ctx).Raw(s.sql(`SELECT g.* FROM garbage g WHERE g.not_before<=@now AND (g.range_id='' OR NOT EXISTS (
			SELECT 1 FROM tasks t JOIN documents d ON d.id=t.doc_id
			WHERE t.range_id=g.range_id AND t.state='done' AND d.deleted_at=0 AND (t.gen=d.gen OR t.gen=d.live_gen)))
		ORDER BY g.not_before, g.id LIMIT ?`), limit).Scan(&rows).Error
	if err != nil {
		return nil, translate(err)
	}
	out := make([]taskstore.Garbage, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// GarbageDone forgets entries that have been removed.
func (s *Store) GarbageDone(ctx context.Context, ids []int64) error {
	for batch := range chunks(ids) {
		if err := s.w.WithContext(ctx).Exec("DELETE FROM garbage WHERE id IN ?", batch).Error; err != nil {
			return translate(err)
		}
	}
	return nil
}

// Meta reads a value of the queue's own bookkeeping; "" when absent.
func (s *Store) Meta(ctx context.Context, key string) (string, error) {
	var v []string
	if err := s.read(ctx).Raw("SELECT v FROM queue_meta WHERE k=?", key).Scan(&v).Error; err != nil || len(v) == 0 {
		return "", translate(err)
	}
	return v[0], nil
}

// SetMeta writes a value of the queue's own bookkeeping.
func (s *Store) SetMeta(ctx context.Context, key, value string) error {
	return translate(insertRows(s.w.WithContext(ctx), "queue_meta", []string{"k", "v"}, [][]any{{key, value}}, s.d.upsert("k", "v")))
}

// AcquireLease makes holder the owner of the named lease for ttl, if it is
// free, expired or already holder's, and reports whether it did.
func (s *Store) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (got bool, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		got = false
		// A lease that ends later than a new one would was written before the
		// clock went back, and would keep everybody out until it catches up.
		res := tx.Exec(s.sql("UPDATE leases SET holder=?, until_at=@now+? WHERE name=? AND (holder=? OR until_at<=@now OR until_at>@now+?)"),
			holder, ttl.Milliseconds(), name, holder, (ttl + clockStep).Milliseconds())
		if res.Error != nil || res.RowsAffected == 1 {
			got = res.Error == nil
			return res.Error
		}
		err := insertRows(tx, "leases", []string{"name", "holder", "until_at"},
			[][]any{{name, holder, raw(fmt.Sprintf("%s+%d", s.now(), ttl.Milliseconds()))}}, s.d.noop("name"))
		if err != nil {
			return err
		}
		var owner []string
		if err := tx.Raw("SELECT holder FROM leases WHERE name=?", name).Scan(&owner).Error; err != nil {
			return err
		}
		got = len(owner) == 1 && owner[0] == holder
		return nil
	})
	return got, err
}

// ReleaseLease gives the lease up if holder owns it.
func (s *Store) ReleaseLease(ctx context.Context, name, holder string) error {
	return translate(s.w.WithContext(ctx).Exec("DELETE FROM leases WHERE name=? AND holder=?", name, holder).Error)
}

// Cleanup removes events, terminal tasks of superseded generations, dead
// workers, idempotency records and messages to webhooks older than retention.
// Documents that were deleted that long ago, and of which the collector has
// left nothing, go with their tasks.
func (s *Store) Cleanup(ctx context.Context, retention time.Duration, limit int, dryRun bool) (taskstore.CleanupReport, error) {
	var report taskstore.CleanupReport
	old := fmt.Sprintf("@now-%d", retention.Milliseconds())
	// The log is in order of time but for a few seconds, so that the oldest
	// are the first: no index over the time is needed.
	var seqs []int64
	if err := s.w.WithContext(ctx).Raw(s.sql("SELECT seq FROM (SELECT seq, at FROM events ORDER BY seq LIMIT ?) x WHERE at<"+old), limit).Scan(&seqs).Error; err != nil {
		return report, translate(err)
	}
	var workers []string
	if err := s.w.WithContext(ctx).Raw(s.sql("SELECT id FROM workers w WHERE seen_at<"+old+
		" AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.state='running' AND t.worker_id=w.id) ORDER BY id LIMIT ?"), limit).Scan(&workers).Error; err != nil {
		return report, translate(err)
	}
	report.Events, report.Workers = len(seqs), len(workers)
	if !dryRun {
		for batch := range chunks(seqs) {
			if err := s.w.WithContext(ctx).Exec("DELETE FROM events WHERE seq IN ?", batch).Error; err != nil {
				return report, translate(err)
			}
		}
		for batch := range chunks(workers) {
			if err := s.w.WithContext(ctx).Exec(s.sql("DELETE FROM workers WHERE id IN ? AND seen_at<"+old), batch).Error; err != nil {
				return report, translate(err)
			}
		}
	}
	var keys []idempotencyRow
	if err := s.w.WithContext(ctx).Raw(s.sql("SELECT tenant_id, k FROM idempotency WHERE created_at<"+old+" LIMIT ?"), limit).Scan(&keys).Error; err != nil {
		return report, translate(err)
	}
	report.Idempotency = len(keys)
	for _, k := range keys {
		if dryRun {
			break
		}
		if err := s.w.WithContext(ctx).Exec(s.sql("DELETE FROM idempotency WHERE tenant_id=? AND k=? AND created_at<"+old), k.TenantID, k.K).Error; err != nil {
			return report, translate(err)
		}
	}
	n, err := s.cleanupDeliveries(ctx, old, limit, dryRun)
	if report.Deliveries = n; err != nil {
		return report, err
	}
	n, err = s.cleanupTasks(ctx, old, limit, dryRun)
	report.Tasks = n
	if err != nil || dryRun {
		return report, err
	}
	return report, s.cleanupDocuments(ctx, old, limit)
}

// cleanupTasks removes terminal tasks of generations that are neither the
// newest nor live. Ranges that only they list go to the collector.
func (s *Store) cleanupTasks(ctx context.Context, old string, limit int, dryRun bool) (int, error) {
	var rows []taskRow
	err := s.w.WithContext(ctx).Raw(s.sql(`SELECT t.id, t.tenant_id, t.doc_id, t.gen, t.range_id, t.artifact_key
		FROM generations g JOIN documents d ON d.id=g.doc_id JOIN tasks t ON t.doc_id=g.doc_id AND t.gen=g.gen
		WHERE g.created_at<`+old+` AND (d.deleted_at<>0 OR g.gen<d.gen AND g.gen<>d.live_gen)
		  AND t.state IN ('done','dead','canceled','superseded') AND t.finished_at<`+old+` ORDER BY t.id LIMIT ?`), limit).Scan(&rows).Error
	if err != nil || dryRun {
		return len(rows), translate(err)
	}
	n := 0
	for batch := range chunks(rows) {
		removed := 0
		err := s.tx(ctx, func(tx *gorm.DB) error {
			removed = 0
			ids := make([]string, len(batch))
			for i, r := range batch {
				ids[i] = r.ID
				if r.RangeID == "" {
					continue
				}
				err := tx.Exec(s.sql(`INSERT INTO garbage (tenant_id, doc_id, range_id, artifact_key, not_before)
					SELECT t.tenant_id, t.doc_id, t.range_id, t.artifact_key, @now+? FROM tasks t WHERE t.id=? AND NOT EXISTS
					(SELECT 1 FROM tasks o WHERE o.range_id=t.range_id AND o.id<>t.id)`), s.grace.Milliseconds(), r.ID).Error
				if err != nil {
					return err
				}
			}
			if err := tx.Exec("DELETE FROM task_deps WHERE child_id IN ? OR parent_id IN ?", ids, ids).Error; err != nil {
				return err
			}
			res := tx.Exec("DELETE FROM tasks WHERE id IN ? AND state IN ('done','dead','canceled','superseded')", ids)
			removed = int(res.RowsAffected)
			return res.Error
		})
		if err != nil {
			return n, err
		}
		n += removed
	}
	return n, nil
}

func (s *Store) cleanupDocuments(ctx context.Context, old string, limit int) error {
	var ids []string
	if err := s.w.WithContext(ctx).Raw(s.sql(`SELECT d.id FROM documents d WHERE d.deleted_at<>0 AND d.deleted_at<`+old+`
		AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.doc_id=d.id) AND NOT EXISTS (SELECT 1 FROM garbage g WHERE g.doc_id=d.id)
		ORDER BY d.id LIMIT ?`), limit).Scan(&ids).Error; err != nil {
		return translate(err)
	}
	for _, id := range ids {
		err := s.tx(ctx, func(tx *gorm.DB) error {
			for _, q := range []string{"DELETE FROM documents WHERE id=? AND deleted_at<>0", "DELETE FROM generations WHERE doc_id=?", "DELETE FROM doc_dirty WHERE doc_id=?"} {
				if err := tx.Exec(q, id).Error; err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// progressOf is the share of a running task that its latest progress event
// claims, 0 to 1.
func progressOf(detail string) float64 {
	var p sheaf.Progress
	if json.Unmarshal([]byte(detail), &p) != nil || p.Total <= 0 {
		return 0
	}
	return min(max(float64(p.Done)/float64(p.Total), 0), 1)
}
