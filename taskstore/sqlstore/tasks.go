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

// updateHeld is updateTask for the holder of a claim.
func (s *tasks) updateHeld(tx *gorm.DB, c sheaf.Claim, set string, args ...any) (*taskRow, error) {
	// guard: fencing: a write needs the claim's epoch
	row, err := s.updateTask(tx, c.TaskID, set, "state='running' AND epoch=?", append(args, c.Epoch)...)
	if err == nil && row == nil {
		err = notHeld(c)
	}
	return row, err
}

func notHeld(c sheaf.Claim) error {
	return fmt.Errorf("%w: task %s is not held under epoch %d", sheaf.ErrStale, c.TaskID, c.Epoch)
}

// Heartbeat extends the leases of held and records the worker as alive. It returns
// which of held the worker no longer holds, which must stop, and which are no longer
// needed.
func (s *tasks) Heartbeat(ctx context.Context, w taskstore.WorkerStatus, lease time.Duration, held []sheaf.Claim) (taskstore.HeartbeatReply, error) {
	var reply taskstore.HeartbeatReply
	started := any(toMillis(w.StartedAt))
	if w.StartedAt.IsZero() {
		started = raw(s.now())
	}
	err := insertRows(s.write(ctx), "workers", []string{"id", "status", "started_at", "seen_at"},
		[][]any{{w.ID, encode(w), started, raw(s.now())}}, s.d.upsert("id", "status", "seen_at"))
	if err != nil {
		return reply, translate(err)
	}
	// Sorted by id, so that concurrent statements lock the same rows in one order.
	held = slices.Clone(held)
	slices.SortFunc(held, func(a, b sheaf.Claim) int { return strings.Compare(a.TaskID, b.TaskID) })
	for batch := range chunks(held) {
		var mine, gone []taskRow
		err := s.tx(ctx, func(tx *gorm.DB) (err error) {
			ids := mapped(batch, func(c sheaf.Claim) string { return c.TaskID })
			if err := run(tx, stmt(s.sql("UPDATE tasks SET lease_until=@now+? WHERE id IN ? AND worker_id=? AND state='running'"), lease.Milliseconds(), ids, w.ID)); err != nil {
				return err
			}
			mine, err = all[taskRow](tx, "SELECT id, epoch, cancel_requested_at FROM tasks WHERE id IN ? AND worker_id=? AND state='running'", ids, w.ID)
			if err != nil || len(mine) == len(ids) {
				return err
			}
			gone, err = all[taskRow](tx, "SELECT id, state FROM tasks WHERE id IN ?", ids)
			return err
		})
		if err != nil {
			return reply, err
		}
		byID := make(map[string]taskRow, len(mine))
		for _, r := range mine {
			byID[r.ID] = r
		}
		there := make(map[string]bool, len(gone)) // still needed
		for _, r := range gone {
			there[r.ID] = r.State != string(sheaf.TaskCanceled) && r.State != string(sheaf.TaskSuperseded)
		}
		for _, c := range batch {
			switch r, ok := byID[c.TaskID]; {
			case !ok && !there[c.TaskID]:
				reply.Ended = append(reply.Ended, c)
			case !ok || r.Epoch != c.Epoch:
				reply.Lost = append(reply.Lost, c)
			case r.CancelRequestedAt != 0:
				reply.Canceled = append(reply.Canceled, c)
			}
		}
	}
	return reply, nil
}

// completeWide is completeIn in a transaction of its own.
func (s *tasks) completeWide(ctx context.Context, c sheaf.Claim, done taskstore.Completion) error {
	return s.tx(ctx, func(tx *gorm.DB) error { return s.completeIn(tx, c, &done) })
}

// completeIn locks the document's row first, as a cancel, a re-parse and a delete do:
// either they see the tasks spawned here, or this sees that the work was canceled.
func (s *tasks) completeIn(tx *gorm.DB, c sheaf.Claim, done *taskstore.Completion) error {
	atOnce := isWhole(done)
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
	events := []eventRow{row.doneEvent(done.Result)}
	if spawn := done.Spawn; len(spawn) > 0 {
		if atOnce {
			if doc == nil {
				return fmt.Errorf("%w: document %s does not exist", sheaf.ErrStale, row.DocID)
			}
			finalizes := finalizeTask(doc)
			finalizes.Done, finalizes.Ran = &sheaf.TaskResult{}, true
			spawn = append(slices.Clone(spawn), finalizes)
		}
		base := row.base()
		base.Canceled = row.CancelRequestedAt != 0 ||
			doc != nil && (doc.State == string(sheaf.DocCanceling) || doc.State == string(sheaf.DocCanceled))
		if err := s.insertTasks(tx, base, spawn); err != nil {
			return err
		}
		ran, err := s.saveRan(tx, row, spawn)
		if err != nil {
			return err
		}
		events = append(events, ran...)
	}
	if done.Remains {
		if err := insertRows(tx, "garbage", rangeGarbage, s.attemptGarbage(row, c.Epoch), ""); err != nil {
			return err
		}
	}
	if atOnce { // before the document's event, as if the tasks had ended one after the other
		if err := s.insertEvents(tx, events...); err != nil {
			return err
		}
	}
	if done.Publish != nil {
		if err := s.publish(tx, row, doc, *done.Publish); err != nil {
			return err
		}
	}
	if len(done.Stitch) > 0 || len(done.Last) > 0 {
		if err := s.stitch(tx, row, doc, done.Stitch, done.Last); err != nil {
			return err
		}
	}
	if done.Run != nil {
		if err := s.endRun(tx, row, done.Run); err != nil {
			return err
		}
	}
	if atOnce {
		return nil // nothing is left to fold
	}
	return s.logAndMark(tx, row.DocID, events...)
}

// isWhole reports whether a completion plans, reads and publishes a document.
func isWhole(done *taskstore.Completion) bool { return done.Plan != nil && done.Publish != nil }

// saveRan records that the attempt at t has run tasks that it inserted done, and
// returns their events.
func (s *tasks) saveRan(tx *gorm.DB, t *taskRow, inserted []sheaf.NewTask) (events []eventRow, err error) {
	var ids []string
	for _, n := range inserted {
		if !n.Ran {
			continue
		}
		ids = append(ids, n.ID)
		ran := *t
		ran.ID, ran.Epoch = n.ID, 1
		events = append(events, ran.event(sheaf.EventClaimed, 1), ran.doneEvent(*n.Done))
	}
	if len(ids) == 0 {
		return nil, nil
	}
	n, err := exec(tx, "UPDATE tasks SET epoch=1, done_epoch=1, attempts=1, worker_id=?, started_at=? WHERE id IN ?", t.WorkerID, t.StartedAt, ids)
	if err == nil && n != len(ids) { // an equal task existed, with a result of its own
		err = fmt.Errorf("%w: document %s has tasks already", sheaf.ErrStale, t.DocID)
	}
	return events, err
}

// writePlan stores what planning found out about the document on its rows.
func (s *tasks) writePlan(tx *gorm.DB, t *taskRow, p *sheaf.PlanResult) error {
	given, err := first[string](tx, "SELECT metadata FROM documents WHERE id=?", t.DocID)
	if err != nil {
		return err
	}
	var own map[string]string
	decode(value(given), &own)
	metadata := p.MetadataWith(own)
	// The column outline is emptied of what earlier versions kept in it.
	n, err := exec(tx, s.sql(`UPDATE documents SET parser=?, unit=?, units=?, metadata=?, warnings=?, outline='', updated_at=@now,
		started_at=CASE WHEN started_at=0 THEN @now ELSE started_at END WHERE id=? AND gen=? AND deleted_at=0`),
		p.Parser, string(p.Unit), p.Units, encode(metadata), encodeList(p.Warnings), t.DocID, t.Gen)
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("%w: generation %d of document %s is not the newest any more", sheaf.ErrStale, t.Gen, t.DocID)
	}
	flow := any(nil)
	if p.Flow != nil {
		flow = encode(p.Flow)
	}
	return tx.Exec("UPDATE generations SET parser=?, unit=?, units=?, flow=? WHERE doc_id=? AND gen=?",
		p.Parser, string(p.Unit), p.Units, flow, t.DocID, t.Gen).Error
}

// FailTask ends the attempt: the task goes to retry_wait, to dead when the budget is
// spent or the failure is not retryable, or to canceled when that was requested. It
// returns the new state. MaxFails 0 means 5.
func (s *tasks) FailTask(ctx context.Context, c sheaf.Claim, r taskstore.FailReport) (sheaf.TaskState, error) {
	maxFails := r.MaxFails
	if maxFails <= 0 {
		maxFails = 5
	}
	dead := fmt.Sprintf("fail_count+1>=%d", maxFails)
	if !r.Failure.Retryable {
		dead = "1=1"
	}
	r.Failure.Detail = clip(r.Failure.Detail, 4096)
	skip, empty := replacements(r.Failure.Message)
	var state sheaf.TaskState
	err := s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.updateHeld(tx, c, `finished_at=CASE WHEN cancel_requested_at<>0 OR `+dead+` THEN @now ELSE 0 END,
			`+replaced("cancel_requested_at=0 AND "+dead)+`,
			state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' WHEN `+dead+` THEN `+deadOrReplaced+` ELSE 'retry_wait' END,
			fail_count=CASE WHEN cancel_requested_at<>0 THEN fail_count ELSE fail_count+1 END,
			run_at=@now+?, failure=?, failure_code=?, lease_until=0`,
			skip, empty, max(r.Delay, 0).Milliseconds(), encodeFailure(&r.Failure), clip(r.Failure.Code, 64))
		if err != nil {
			return err
		}
		state = sheaf.TaskState(row.State)
		kind := map[sheaf.TaskState]string{sheaf.TaskRetryWait: sheaf.EventFailed, sheaf.TaskDead: sheaf.EventDead, sheaf.TaskCanceled: sheaf.EventCanceled, sheaf.TaskDone: sheaf.EventDone}[state]
		e := row.event(kind, row.Epoch)
		e.Level, e.Text, e.Detail = "error", r.Failure.Message, row.Failure
		// guard: flows: the end of a node that failed and is replaced wakes what reads it
		if state == sheaf.TaskDone {
			if err := s.wakeChildren(tx, []*taskRow{row}); err != nil {
				return err
			}
		}
		return s.endAttempt(tx, row, c.Epoch, e)
	})
	return state, err
}

// deadOrReplaced is the state of a task that failed permanently.
const deadOrReplaced = "CASE WHEN on_failure='' THEN 'dead' ELSE 'done' END"

// replaced sets the result of a task that is done instead of dead when it failed
// permanently. Its arguments are what replacements returns.
func replaced(dead string) string {
	dead = "(" + dead + ") AND on_failure"
	return "result=CASE WHEN " + dead + "='skip' THEN ? WHEN " + dead + "<>'' THEN ? ELSE result END, done_epoch=CASE WHEN " + dead + "<>'' THEN epoch ELSE done_epoch END"
}

// replacements returns the results of a skipped task, and of one that passes on an
// empty output.
func replacements(message string) (skip, empty string) {
	return encode(sheaf.TaskResult{Output: &sheaf.NodeOutput{Failed: true, Skipped: "it failed: " + clip(message, 500)}}),
		encode(sheaf.TaskResult{Output: &sheaf.NodeOutput{Failed: true}})
}

// Inputs lists the tasks that a task depends on.
func (s *tasks) Inputs(ctx context.Context, taskID string) ([]sheaf.Task, error) {
	rows, err := all[taskRow](s.read(ctx), "SELECT t.* FROM task_deps d JOIN tasks t ON t.id=d.parent_id WHERE d.child_id=? ORDER BY d.parent_id", taskID)
	return s.toTasks(rows), err
}

// Snooze postpones the task without charging a budget. why has a message, and a code
// if programs need to recognize it.
func (s *tasks) Snooze(ctx context.Context, c sheaf.Claim, delay time.Duration, why sheaf.Failure) error {
	why.Detail = clip(why.Detail, 4096)
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
		if e.Text = why.Message; why.Code != "" {
			e.Detail = encodeFailure(&why)
		}
		return s.endAttempt(tx, row, c.Epoch, e)
	})
}

// Held returns which of the tasks the worker holds.
func (s *tasks) Held(ctx context.Context, workerID string, taskIDs []string) ([]sheaf.Claim, error) {
	rows, err := byIDs[taskRow](s.write(ctx), sortedUnique(taskIDs), "SELECT id, epoch FROM tasks"+s.d.byID+" WHERE id IN ? AND worker_id=? AND state='running' ORDER BY id", workerID)
	return mapped(rows, func(r taskRow) sheaf.Claim { return sheaf.Claim{TaskID: r.ID, Epoch: r.Epoch} }), err
}

// Release gives the task back immediately without charging a budget.
func (s *tasks) Release(ctx context.Context, c sheaf.Claim) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.updateHeld(tx, c, releaseSet)
		if err != nil {
			return err
		}
		return s.released(tx, row, c.Epoch)
	})
}

// transitions are the events that only the store writes.
var transitions = map[string]bool{
	sheaf.EventClaimed: true, sheaf.EventDone: true, sheaf.EventFailed: true, sheaf.EventDead: true, sheaf.EventSnoozed: true,
	sheaf.EventReleased: true, sheaf.EventLost: true, sheaf.EventCanceled: true, sheaf.EventSuperseded: true, sheaf.EventRetried: true,
	sheaf.EventDocument: true,
}

// AppendEvents adds lines to the log. Only Kind, Level, Text and Detail are read
// from events. Kinds of transitions fail with ErrInvalid: only the store writes
// them.
func (s *tasks) AppendEvents(ctx context.Context, c sheaf.Claim, events []sheaf.Event) error {
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
		// Locked: the claim must hold until the events are committed.
		// guard: fencing: an event needs the claim's epoch
		held, err := first[taskRow](tx, "SELECT * FROM tasks WHERE id=? AND state='running' AND epoch=?"+s.d.lock, c.TaskID, c.Epoch)
		if err != nil {
			return err
		}
		if held == nil {
			return notHeld(c)
		}
		last := map[string]int64{}
		rows := make([]eventRow, len(events))
		for i, e := range events {
			if _, ok := last[e.Kind]; !ok {
				n, err := s.lastOf(tx, c.TaskID, c.Epoch, e.Kind)
				if err != nil {
					return err
				}
				last[e.Kind] = max(n, 0)
			}
			last[e.Kind]++
			rows[i] = held.event(e.Kind, c.Epoch)
			rows[i].N, rows[i].Level, rows[i].Text, rows[i].Detail = last[e.Kind], e.Level, e.Text, string(e.Detail)
		}
		if progress {
			return s.logAndMark(tx, held.DocID, rows...)
		}
		return s.insertEvents(tx, rows...)
	})
}

// Deregister removes the worker from the list of live executors.
func (s *tasks) Deregister(ctx context.Context, workerID string) error {
	return run(s.write(ctx), stmt("DELETE FROM workers WHERE id=?", workerID))
}
