package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// updateTask changes one task if where holds, and returns the row as it is
// then, nil when it did not hold. In set, columns that a later expression
// reads must come after it: MySQL evaluates assignments from left to right and
// shows each the new values, the other engines show the old.
func (s *Store) updateTask(tx *gorm.DB, taskID, set, where string, args ...any) (*taskRow, error) {
	q := s.sql("UPDATE tasks SET " + set + " WHERE id=? AND " + where)
	at := strings.Count(set, "?")
	args = slices.Insert(slices.Clone(args), at, any(taskID))
	var rows []taskRow
	if s.d.returning {
		if err := tx.Raw(q+" RETURNING *", args...).Scan(&rows).Error; err != nil {
			return nil, err
		}
	} else {
		res := tx.Exec(q, args...)
		if res.Error != nil {
			return nil, res.Error
		}
		if res.RowsAffected != 1 {
			return nil, nil
		}
		if err := tx.Raw("SELECT * FROM tasks WHERE id=?", taskID).Scan(&rows).Error; err != nil {
			return nil, err
		}
	}
	if len(rows) != 1 {
		return nil, nil
	}
	return &rows[0], nil
}

// updateHeld is updateTask for the holder of a claim.
func (s *Store) updateHeld(tx *gorm.DB, c sheaf.Claim, set string, args ...any) (*taskRow, error) {
	row, err := s.updateTask(tx, c.TaskID, set, "state='running' AND epoch=?", append(args, c.Epoch)...)
	if err == nil && row == nil {
		err = notHeld(c)
	}
	return row, err
}

func notHeld(c sheaf.Claim) error {
	return fmt.Errorf("%w: task %s is not held under epoch %d", sheaf.ErrStale, c.TaskID, c.Epoch)
}

// Heartbeat extends the leases of held and records the worker as alive. It
// answers which of held are no longer the worker's, and which were asked to
// stop.
func (s *Store) Heartbeat(ctx context.Context, w taskstore.WorkerStatus, lease time.Duration, held []sheaf.Claim) (taskstore.HeartbeatReply, error) {
	var reply taskstore.HeartbeatReply
	started := any(toMillis(w.StartedAt))
	if w.StartedAt.IsZero() {
		started = raw(s.now())
	}
	err := insertRows(s.w.WithContext(ctx), "workers", []string{"id", "status", "started_at", "seen_at"},
		[][]any{{w.ID, encode(w), started, raw(s.now())}}, s.d.upsert("id", "status", "seen_at"))
	if err != nil {
		return reply, translate(err)
	}
	// By id, so that two statements that lock the same rows meet in one order.
	held = slices.Clone(held)
	slices.SortFunc(held, func(a, b sheaf.Claim) int { return strings.Compare(a.TaskID, b.TaskID) })
	for batch := range chunks(held) {
		var mine []taskRow
		err := s.tx(ctx, func(tx *gorm.DB) error {
			mine = nil
			ids := make([]string, len(batch))
			for i, c := range batch {
				ids[i] = c.TaskID
			}
			if err := tx.Exec(s.sql("UPDATE tasks SET lease_until=@now+? WHERE id IN ? AND worker_id=? AND state='running'"),
				lease.Milliseconds(), ids, w.ID).Error; err != nil {
				return err
			}
			return tx.Raw("SELECT id, epoch, cancel_requested_at FROM tasks WHERE id IN ? AND worker_id=? AND state='running'", ids, w.ID).Scan(&mine).Error
		})
		if err != nil {
			return reply, err
		}
		byID := make(map[string]taskRow, len(mine))
		for _, r := range mine {
			byID[r.ID] = r
		}
		for _, c := range batch {
			switch r, ok := byID[c.TaskID]; {
			case !ok || r.Epoch != c.Epoch:
				reply.Lost = append(reply.Lost, c)
			case r.CancelRequestedAt != 0:
				reply.Canceled = append(reply.Canceled, c)
			}
		}
	}
	return reply, nil
}

// completeWide takes the document's row first, as a cancel, a re-parse and a
// delete do: either they see the tasks that are spawned here, or this sees that
// the work was called off.
func (s *Store) completeWide(ctx context.Context, c sheaf.Claim, done sheaf.Completion) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		doc, err := s.lockDocumentOf(tx, c.TaskID)
		if err != nil {
			return err
		}
		tasks, err := s.lockTasks(tx, []string{c.TaskID})
		if err != nil {
			return err
		}
		row := tasks[c.TaskID]
		if err := row.end(c, done.Result); err != nil {
			return err
		}
		var end script
		s.saveEnded(&end, []*taskRow{row})
		if err := end.exec(tx); err != nil {
			return err
		}
		if err := s.wakeChildren(tx, []*taskRow{row}); err != nil {
			return err
		}
		if done.Plan != nil {
			if err := s.writePlan(tx, row, done.Plan); err != nil {
				return err
			}
		}
		if len(done.Spawn) > 0 {
			base := row.base()
			base.Canceled = row.CancelRequestedAt != 0 ||
				doc != nil && (doc.State == string(sheaf.DocCanceling) || doc.State == string(sheaf.DocCanceled))
			if err := s.insertTasks(tx, base, done.Spawn); err != nil {
				return err
			}
		}
		if done.Publish != nil {
			if err := s.publish(tx, row, doc, *done.Publish); err != nil {
				return err
			}
		}
		if err := s.insertEvents(tx, row.doneEvent(done.Result)); err != nil {
			return err
		}
		return s.markDirty(tx, row.DocID)
	})
}

func (r *taskRow) doneEvent(result sheaf.TaskResult) eventRow {
	e := r.event(sheaf.EventDone, r.Epoch)
	e.Detail = encode(map[string]int{"chunks": result.Chunks, "tokens": result.Tokens})
	return e
}

// lockDocumentOf locks the row of a task's document against change. It returns
// nil for a task without one.
func (s *Store) lockDocumentOf(tx *gorm.DB, taskID string) (*documentRow, error) {
	var ids []string
	if err := tx.Raw("SELECT doc_id FROM tasks WHERE id=?", taskID).Scan(&ids).Error; err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: task %s does not exist", sheaf.ErrStale, taskID)
	}
	return s.lockDocument(tx, ids[0])
}

// lockDocument reads a document but its outline, and locks its row; nil when
// there is none.
func (s *Store) lockDocument(tx *gorm.DB, id string) (*documentRow, error) {
	var docs []documentRow
	if err := tx.Raw("SELECT "+workColumns()+" FROM documents WHERE id=?"+s.d.lock, id).Scan(&docs).Error; err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, nil
	}
	return &docs[0], nil
}

// parentsQuery finds those of a list of tasks that others wait for.
const parentsQuery = "SELECT DISTINCT parent_id FROM task_deps WHERE parent_id IN ? AND done=0 ORDER BY parent_id"

// wakeChildren counts done tasks off those that wait for them, and makes those
// pending that waited for nothing else. It comes after the parents are locked,
// so that a child that is written later finds them done. The counter is on the
// child's row, whose lock makes two parents that end at once take turns.
func (s *Store) wakeChildren(tx *gorm.DB, ended []*taskRow) error {
	if len(ended) == 0 {
		return nil
	}
	ids := make([]string, len(ended))
	for i, t := range ended {
		ids[i] = t.ID
	}
	var parents []string // most have no children
	if err := tx.Raw(parentsQuery, ids).Scan(&parents).Error; err != nil {
		return err
	}
	for _, id := range parents {
		if err := s.wakeChildrenOf(tx, id); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) wakeChildrenOf(tx *gorm.DB, parentID string) error {
	var children []string
	if err := tx.Raw("SELECT child_id FROM task_deps WHERE parent_id=? AND done=0 ORDER BY child_id", parentID).Scan(&children).Error; err != nil {
		return err
	}
	if err := tx.Exec("UPDATE task_deps SET done=1 WHERE parent_id=? AND done=0", parentID).Error; err != nil {
		return err
	}
	for ids := range chunks(children) {
		err := tx.Exec(s.sql(`UPDATE tasks SET
			run_at=CASE WHEN state='parked' AND unmet=1 THEN @now ELSE run_at END,
			state=CASE WHEN state='parked' AND unmet=1 THEN 'pending' ELSE state END,
			unmet=unmet-1 WHERE id IN ? AND unmet>0`), ids).Error
		if err != nil {
			return err
		}
	}
	return nil
}

// writePlan puts what planning found out about the document where readers
// look for it.
func (s *Store) writePlan(tx *gorm.DB, t *taskRow, p *sheaf.PlanResult) error {
	metadata := p.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	// What the uploader said of the document stays, over what the file says.
	var given []string
	if err := tx.Raw("SELECT metadata FROM documents WHERE id=?", t.DocID).Scan(&given).Error; err != nil {
		return err
	}
	if len(given) > 0 {
		merged := map[string]string{}
		for k, v := range metadata {
			merged[k] = v
		}
		decode(given[0], &merged)
		metadata = merged
	}
	res := tx.Exec(s.sql(`UPDATE documents SET parser=?, unit=?, units=?, metadata=?, warnings=?, outline=?, updated_at=@now,
		started_at=CASE WHEN started_at=0 THEN @now ELSE started_at END WHERE id=? AND gen=? AND deleted_at=0`),
		p.Parser, string(p.Unit), p.Units, encode(metadata), encodeList(p.Warnings), string(p.Outline), t.DocID, t.Gen)
	if res.Error != nil {
		return res.Error
	}
	if res.RowsAffected != 1 {
		return fmt.Errorf("%w: generation %d of document %s is not the newest any more", sheaf.ErrStale, t.Gen, t.DocID)
	}
	return tx.Exec("UPDATE generations SET parser=?, unit=?, units=? WHERE doc_id=? AND gen=?",
		p.Parser, string(p.Unit), p.Units, t.DocID, t.Gen).Error
}

// FailTask ends the attempt: retry_wait, or dead when the budget is spent or
// the failure is not retryable, or canceled when that was asked. It returns the
// state the task went to. MaxFails 0 means 5.
func (s *Store) FailTask(ctx context.Context, c sheaf.Claim, r taskstore.FailReport) (sheaf.TaskState, error) {
	maxFails := r.MaxFails
	if maxFails <= 0 {
		maxFails = 5
	}
	dead := fmt.Sprintf("fail_count+1>=%d", maxFails)
	if !r.Failure.Retryable {
		dead = "1=1"
	}
	r.Failure.Detail = clip(r.Failure.Detail, 4096)
	var state sheaf.TaskState
	err := s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.updateHeld(tx, c, `finished_at=CASE WHEN cancel_requested_at<>0 OR `+dead+` THEN @now ELSE 0 END,
			state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' WHEN `+dead+` THEN 'dead' ELSE 'retry_wait' END,
			fail_count=CASE WHEN cancel_requested_at<>0 THEN fail_count ELSE fail_count+1 END,
			run_at=@now+?, failure=?, failure_code=?, lease_until=0`,
			max(r.Delay, 0).Milliseconds(), encodeFailure(&r.Failure), clip(r.Failure.Code, 64))
		if err != nil {
			return err
		}
		state = sheaf.TaskState(row.State)
		kind := map[sheaf.TaskState]string{sheaf.TaskRetryWait: sheaf.EventFailed, sheaf.TaskDead: sheaf.EventDead, sheaf.TaskCanceled: sheaf.EventCanceled}[state]
		e := row.event(kind, row.Epoch)
		e.Level, e.Text, e.Detail = "error", r.Failure.Message, row.Failure
		return s.endAttempt(tx, row, c.Epoch, e)
	})
	return state, err
}

// endAttempt writes what follows when an attempt ended without being done.
func (s *Store) endAttempt(tx *gorm.DB, row *taskRow, epoch int64, events ...eventRow) error {
	if err := s.insertGarbage(tx, row, epoch); err != nil {
		return err
	}
	if err := s.insertEvents(tx, events...); err != nil {
		return err
	}
	return s.markDirty(tx, row.DocID)
}

// Snooze puts the task back for later without touching any budget.
func (s *Store) Snooze(ctx context.Context, c sheaf.Claim, delay time.Duration, reason string) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.updateHeld(tx, c, `finished_at=CASE WHEN cancel_requested_at<>0 THEN @now ELSE 0 END,
			state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' ELSE 'retry_wait' END,
			run_at=@now+?, lease_until=0`, max(delay, 0).Milliseconds())
		if err != nil {
			return err
		}
		e := row.event(sheaf.EventSnoozed, row.Epoch)
		if row.State == string(sheaf.TaskCanceled) {
			e.Kind = sheaf.EventCanceled
		}
		e.Text = reason
		return s.endAttempt(tx, row, c.Epoch, e)
	})
}

// Held answers which of the tasks the worker holds.
func (s *Store) Held(ctx context.Context, workerID string, taskIDs []string) ([]sheaf.Claim, error) {
	var held []sheaf.Claim
	for ids := range chunks(sortedUnique(taskIDs)) {
		var rows []taskRow
		if err := s.w.WithContext(ctx).Raw("SELECT id, epoch FROM tasks"+s.d.byID+" WHERE id IN ? AND worker_id=? AND state='running' ORDER BY id", ids, workerID).Scan(&rows).Error; err != nil {
			return nil, translate(err)
		}
		for _, r := range rows {
			held = append(held, sheaf.Claim{TaskID: r.ID, Epoch: r.Epoch})
		}
	}
	return held, nil
}

// releaseSet gives a running task back: at once, with no budget touched, and
// with its old place in the line, so that a restart of the executors does not
// send what they ran behind everything that came since.
const releaseSet = `finished_at=CASE WHEN cancel_requested_at<>0 THEN @now ELSE 0 END,
	state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' ELSE 'pending' END,
	epoch=epoch+1, run_at=created_at, lease_until=0, enqueued_at=0`

// Release gives the task back at once without touching any budget.
func (s *Store) Release(ctx context.Context, c sheaf.Claim) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.updateHeld(tx, c, releaseSet)
		if err != nil {
			return err
		}
		return s.released(tx, row, c.Epoch)
	})
}

func (s *Store) released(tx *gorm.DB, row *taskRow, epoch int64) error {
	e := row.event(sheaf.EventReleased, row.Epoch)
	if row.State == string(sheaf.TaskCanceled) {
		e.Kind = sheaf.EventCanceled
	}
	return s.endAttempt(tx, row, epoch, e)
}

// transitions are the events that the store alone writes.
var transitions = map[string]bool{
	sheaf.EventClaimed: true, sheaf.EventDone: true, sheaf.EventFailed: true, sheaf.EventDead: true, sheaf.EventSnoozed: true,
	sheaf.EventReleased: true, sheaf.EventLost: true, sheaf.EventCanceled: true, sheaf.EventSuperseded: true, sheaf.EventRetried: true,
	sheaf.EventDocument: true,
}

// AppendEvents adds lines to the log. Only Kind, Level, Text and Detail are
// read from events. Kinds of transitions are refused with ErrInvalid: the store
// writes them itself.
func (s *Store) AppendEvents(ctx context.Context, c sheaf.Claim, events []sheaf.Event) error {
	if len(events) == 0 {
		return nil
	}
	progress := false
	for _, e := range events {
		if transitions[e.Kind] || e.Kind == "" {
			return fmt.Errorf("%w: event kind %q can not be appended", sheaf.ErrInvalid, e.Kind)
		}
		progress = progress || e.Kind == sheaf.EventProgress
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		var held []taskRow
		// Locked: the claim must hold until the events are committed.
		if err := tx.Raw("SELECT * FROM tasks WHERE id=? AND state='running' AND epoch=?"+s.d.lock, c.TaskID, c.Epoch).Scan(&held).Error; err != nil {
			return err
		}
		if len(held) == 0 {
			return notHeld(c)
		}
		last := map[string]int64{}
		rows := make([]eventRow, len(events))
		for i, e := range events {
			if _, ok := last[e.Kind]; !ok {
				var n []int64
				if err := tx.Raw("SELECT COALESCE(MAX(n), 0) FROM events WHERE subject_id=? AND epoch=? AND kind=?", c.TaskID, c.Epoch, e.Kind).Scan(&n).Error; err != nil {
					return err
				}
				last[e.Kind] = n[0]
			}
			last[e.Kind]++
			rows[i] = held[0].event(e.Kind, c.Epoch)
			rows[i].N, rows[i].Level, rows[i].Text, rows[i].Detail = last[e.Kind], e.Level, e.Text, string(e.Detail)
		}
		if err := s.insertEvents(tx, rows...); err != nil {
			return err
		}
		if !progress {
			return nil
		}
		return s.markDirty(tx, held[0].DocID)
	})
}

// GenerationTasks lists the tasks of a generation ordered by range.
func (s *Store) GenerationTasks(ctx context.Context, documentID string, generation int) ([]sheaf.Task, error) {
	var rows []taskRow
	err := s.read(ctx).Raw("SELECT * FROM tasks WHERE doc_id=? AND gen=? ORDER BY from_unit, to_unit, id", documentID, generation).Scan(&rows).Error
	return s.toTasks(rows), translate(err)
}

func (s *Store) toTasks(rows []taskRow) []sheaf.Task {
	tasks := make([]sheaf.Task, len(rows))
	for i := range rows {
		tasks[i] = rows[i].toDomain(s.vault)
	}
	return tasks
}

// DocumentByID reads a document of any tenant; ErrNotFound when it is gone or
// being deleted. For executors, which act for all tenants.
func (s *Store) DocumentByID(ctx context.Context, documentID string) (*sheaf.Document, error) {
	var rows []documentRow
	if err := s.read(ctx).Raw("SELECT "+workColumns()+" FROM documents WHERE id=? AND deleted_at=0", documentID).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: document %s", sheaf.ErrNotFound, documentID)
	}
	d := rows[0].toDomain(s.vault)
	return &d, nil
}

// ReusableRanges finds done range results of the tenant by reuse key. At most
// one per key: one of document prefer if there is such a one. Ranges that went
// to the garbage have lost their reuse key.
func (s *Store) ReusableRanges(ctx context.Context, tenantID, prefer string, keys []string) (map[string]taskstore.ReusableRange, error) {
	found := make(map[string]taskstore.ReusableRange)
	keys = slices.DeleteFunc(sortedUnique(keys), func(k string) bool { return k == "" })
	for batch := range chunks(keys) {
		var best []struct{ Own, Newest string }
		err := s.read(ctx).Raw(`SELECT COALESCE(MAX(CASE WHEN t.doc_id=? THEN t.id END), '') AS own, MAX(t.id) AS newest
			FROM tasks t JOIN documents d ON d.id=t.doc_id
			WHERE t.tenant_id=? AND t.reuse_key IN ? AND t.state='done' AND t.range_id<>'' AND d.deleted_at=0
			GROUP BY t.reuse_key`, prefer, tenantID, batch).Scan(&best).Error
		if err != nil {
			return nil, translate(err)
		}
		if len(best) == 0 {
			continue
		}
		ids := make([]string, len(best))
		for i, b := range best {
			if ids[i] = b.Own; b.Own == "" {
				ids[i] = b.Newest
			}
		}
		var rows []taskRow
		if err := s.read(ctx).Raw("SELECT * FROM tasks WHERE id IN ? AND range_id<>''", ids).Scan(&rows).Error; err != nil {
			return nil, translate(err)
		}
		for _, r := range rows {
			t := r.toDomain(s.vault)
			found[r.ReuseKey] = taskstore.ReusableRange{DocumentID: t.DocumentID, TaskID: t.ID, Range: t.Range, Result: t.Result}
		}
	}
	return found, nil
}

// Deregister removes the worker from the list of live executors.
func (s *Store) Deregister(ctx context.Context, workerID string) error {
	return translate(s.w.WithContext(ctx).Exec("DELETE FROM workers WHERE id=?", workerID).Error)
}
