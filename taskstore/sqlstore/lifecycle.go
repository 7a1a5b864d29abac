package sqlstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// Running lists the ids of running tasks by tenant.
func (s *lifecycle) Running(ctx context.Context) (map[string][]string, error) {
	rows, err := all[taskRow](s.read(ctx), "SELECT id, tenant_id FROM tasks WHERE state='running' ORDER BY id")
	out := map[string][]string{}
	for _, r := range rows {
		out[r.TenantID] = append(out[r.TenantID], r.ID)
	}
	return out, err
}

// PromoteDue makes due retry_wait and scheduled tasks pending. They keep their
// place: a retry has already waited once, and the end of a long backlog may be hours
// away. Waiting tasks have no lease; stating so lets an index for leases find them
// by time. Without due tasks it only reads.
func (s *lifecycle) PromoteDue(ctx context.Context, limit int) (taskstore.Promotion, error) {
	var p taskstore.Promotion
	for _, state := range []sheaf.TaskState{sheaf.TaskRetryWait, sheaf.TaskScheduled} {
		next, err := s.nextDue(ctx, state)
		if err == nil && next < 0 {
			var due []taskstore.PromotedTask
			if due, err = s.promote(ctx, state, limit); err == nil {
				p.Tasks = append(p.Tasks, due...)
				next, err = s.nextDue(ctx, state)
			}
		}
		if err != nil {
			return p, err
		}
		if next != 0 && (p.NextIn == 0 || next < p.NextIn) {
			p.NextIn = max(next, time.Millisecond)
		}
	}
	return p, nil
}

// nextDue is how soon the first task in the state is due: negative if now, 0 if
// there is none.
func (s *lifecycle) nextDue(ctx context.Context, state sheaf.TaskState) (time.Duration, error) {
	ms, err := first[int64](s.write(ctx), s.sql("SELECT run_at-@now FROM tasks WHERE state=? AND lease_until=0 ORDER BY run_at LIMIT 1"), string(state))
	if err != nil || ms == nil {
		return 0, err
	}
	if *ms <= 0 {
		return -1, nil
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

func (s *lifecycle) promote(ctx context.Context, state sheaf.TaskState, limit int) ([]taskstore.PromotedTask, error) {
	var due []taskRow
	err := s.tx(ctx, func(tx *gorm.DB) (err error) {
		if due, err = all[taskRow](tx, s.sql("SELECT id, lane, run_at, @now AS now FROM tasks WHERE state=? AND lease_until=0 AND run_at<=@now ORDER BY run_at LIMIT ?")+s.d.skip, string(state), limit); err != nil {
			return err
		}
		_, err = execByIDs(tx, sortedUnique(mapped(due, taskRow.id)), s.sql("UPDATE tasks SET state='pending', enqueued_at=0 WHERE state=? AND run_at<=@now AND id IN ?"), string(state))
		return err
	})
	return mapped(due, func(r taskRow) taskstore.PromotedTask {
		return taskstore.PromotedTask{ID: r.ID, Lane: sheaf.Lane(r.Lane), Late: time.Duration(r.Now-r.RunAt) * time.Millisecond}
	}), err
}

// takeAway changes each running task that is still as it was found, one transaction
// each: a worker may be finishing it concurrently, and batches would lock tasks in a
// different order than its transaction.
func (s *lifecycle) takeAway(ctx context.Context, found []taskRow, set, where string, args []any, then func(tx *gorm.DB, row *taskRow, epoch int64) error) (n int, err error) {
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

// Reap takes tasks away from dead workers. They become pending immediately, or after
// a wait from the second loss on.
func (s *lifecycle) Reap(ctx context.Context, p taskstore.ReapPolicy, limit int) (int, error) {
	maxLost := p.MaxLost
	if maxLost <= 0 {
		maxLost = 3
	}
	gone := "lease_until<@now"
	if p.WorkerTimeout > 0 {
		// A claim is a sign of life too: it precedes the first heartbeat.
		ms := p.WorkerTimeout.Milliseconds()
		gone = fmt.Sprintf(`(lease_until<@now OR started_at<@now-%d AND NOT EXISTS
			(SELECT 1 FROM workers w WHERE w.id=tasks.worker_id AND w.seen_at>=@now-%d))`, ms, ms)
	}
	found, err := all[taskRow](s.write(ctx), s.sql("SELECT id, epoch FROM tasks WHERE state='running' AND "+gone+" ORDER BY lease_until LIMIT ?"), limit)
	if err != nil {
		return 0, err
	}
	dead := fmt.Sprintf("lost_count+1>=%d", maxLost)
	lost := sheaf.FailRetryable(sheaf.CategoryCrash, "worker_lost",
		"The executor died or fell silent while it ran this task %d times or more. Look for what it does to memory or time, then retry the task.", maxLost)
	skip, empty := replacements(lost.Message)
	n := 0
	for _, a := range found {
		// A task lost for the first time runs again immediately, in its old place. One
		// lost before may be what kills executors: it comes later, and not in step with
		// others.
		jitter := int64(0)
		if p.MaxJitter > 0 {
			jitter = rand.Int64N(p.MaxJitter.Milliseconds() + 1)
		}
		// The conditions read the old counts, and the final epoch is the claim's, so
		// the columns they read come last.
		// guard: claim guard: nothing is claimed after its cancel
		set := fmt.Sprintf(replaced("cancel_requested_at=0 AND %[2]s")+`, epoch=epoch+1, run_at=CASE WHEN lost_count=0 THEN `+queuedAt+` ELSE @now+%[1]d END, lease_until=0, enqueued_at=0,
			finished_at=CASE WHEN cancel_requested_at<>0 OR %[2]s THEN @now ELSE 0 END,
			failure=CASE WHEN cancel_requested_at=0 AND %[2]s THEN ? ELSE failure END,
			failure_code=CASE WHEN cancel_requested_at=0 AND %[2]s THEN ? ELSE failure_code END,
			state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' WHEN %[2]s THEN `+deadOrReplaced+` WHEN lost_count=0 THEN 'pending' ELSE 'retry_wait' END,
			lost_count=CASE WHEN cancel_requested_at<>0 THEN lost_count ELSE lost_count+1 END`, jitter, dead)
		tenant := ""
		took, err := s.takeAway(ctx, []taskRow{a}, set, gone, []any{skip, empty, encodeFailure(lost), lost.Code}, func(tx *gorm.DB, row *taskRow, epoch int64) error {
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
			if row.State == string(sheaf.TaskDone) {
				d := row.event(sheaf.EventDone, row.Epoch)
				d.Level, d.Text, d.Detail = "error", lost.Message, row.Failure
				events = append(events, d)
				if err := s.wakeChildren(tx, []*taskRow{row}); err != nil {
					return err
				}
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

// HardCancel fences running tasks whose cancellation was requested longer than grace
// ago.
func (s *lifecycle) HardCancel(ctx context.Context, grace time.Duration, limit int) (int, error) {
	// Earliest request first. Ordered by id, MySQL would walk the whole table in key
	// order, every second, to save sorting a few rows.
	late := fmt.Sprintf("cancel_requested_at<>0 AND cancel_requested_at<=@now-%d", grace.Milliseconds())
	found, err := all[taskRow](s.write(ctx), s.sql("SELECT id, epoch FROM tasks WHERE state='running' AND "+late+" ORDER BY cancel_requested_at LIMIT ?"), limit)
	if err != nil {
		return 0, err
	}
	return s.takeAway(ctx, found, "state='canceled', epoch=epoch+1, lease_until=0, finished_at=@now", late, nil,
		func(tx *gorm.DB, row *taskRow, epoch int64) error {
			e := row.event(sheaf.EventCanceled, row.Epoch)
			e.Text = "The executor did not stop in time; what it still writes is ignored."
			return s.endAttempt(tx, row, epoch, e)
		})
}

// ReleaseRunning releases every running task, at the start of a process that knows
// it is the only one.
func (s *lifecycle) ReleaseRunning(ctx context.Context) (int, error) {
	total := 0
	for {
		found, err := all[taskRow](s.write(ctx), "SELECT id, epoch FROM tasks WHERE state='running' ORDER BY id LIMIT 500")
		if err != nil {
			return total, err
		}
		n, err := s.takeAway(ctx, found, releaseSet, "1=1", nil, s.released)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}
