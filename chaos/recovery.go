package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// waits records what tasks that were taken back wait for until claimed again, by
// sampling: by task and the epoch under which they were taken back.
type waits map[string]map[string]time.Duration

// Parts of a recovery, in order.
const (
	partNoticed = "noticed" // the keeper has not yet noticed that the executor is gone
	partBackoff = "backoff" // the keeper holds it back for a moment
	partUnfed   = "unfed"   // pending, without a hint in the queue
	partQueued  = "queued"  // hinted, but not claimed
)

const sampleEvery = 200 * time.Millisecond

// watch samples until ctx ends. While the database is down the last state is extended.
func (w waits) watch(ctx context.Context, e *engines) {
	type state struct{ key, part string }
	var last []state
	for ctx.Err() == nil {
		begun := time.Now()
		if rs, err := e.db.QueryContext(ctx, "SELECT id, epoch, state, enqueued_at FROM tasks WHERE lost_count>0 AND state IN ('retry_wait','pending')"); err == nil {
			last = last[:0]
			for rs.Next() {
				var id, st string
				var epoch, enqueued int64
				if rs.Scan(&id, &epoch, &st, &enqueued) != nil {
					break
				}
				part := partQueued
				switch {
				case st == "retry_wait":
					part = partBackoff
				case enqueued == 0:
					part = partUnfed
				}
				last = append(last, state{fmt.Sprintf("%s %d", id, epoch), part})
			}
			_ = rs.Close()
		}
		pause(ctx, sampleEvery)
		for _, s := range last {
			if w[s.key] == nil {
				w[s.key] = map[string]time.Duration{}
			}
			w[s.key][s.part] += time.Since(begun)
		}
	}
}

// recovery is how long tasks of killed executors waited to be claimed again.
type recovery struct {
	Tasks      int                `json:"tasks"`
	P50        float64            `json:"p50_s"` // from the end of the executor to the next claim
	P99        float64            `json:"p99_s"`
	NoticedP50 float64            `json:"noticed_p50_s"` // the first part: until a keeper took the task back
	NoticedP99 float64            `json:"noticed_p99_s"`
	Parts      map[string]float64 `json:"mean_s"` // by what the tasks waited for
}

// recoveryAfter measures the recovery of the tasks of each killed executor.
func (e *engines) recoveryAfter(ctx context.Context, kills []kill, waits waits) (recovery, error) {
	var took, noticed []time.Duration
	parts := map[string]float64{}
	for _, k := range kills {
		rs, err := e.db.QueryContext(ctx, `SELECT l.subject_id, l.epoch, MIN(l.at), MIN(n.at) FROM events l
			JOIN events c ON c.subject_id=l.subject_id AND c.kind='claimed' AND c.epoch=l.epoch-1 AND c.worker_id LIKE ? AND c.at<=?
			JOIN events n ON n.subject_id=l.subject_id AND n.kind='claimed' AND n.epoch>l.epoch
			WHERE l.kind='lost' AND l.at>=? GROUP BY l.subject_id, l.epoch`, fmt.Sprintf("%%-%d-%%", k.pid), k.at.UnixMilli(), k.at.UnixMilli())
		if err != nil {
			return recovery{}, err
		}
		for rs.Next() {
			var id string
			var epoch, lost, claimed int64
			if err := rs.Scan(&id, &epoch, &lost, &claimed); err != nil {
				_ = rs.Close()
				return recovery{}, err
			}
			took = append(took, time.UnixMilli(claimed).Sub(k.at))
			noticed = append(noticed, time.UnixMilli(lost).Sub(k.at))
			parts[partNoticed] += time.UnixMilli(lost).Sub(k.at).Seconds()
			for part, d := range waits[fmt.Sprintf("%s %d", id, epoch)] {
				parts[part] += d.Seconds()
			}
		}
		if err := rs.Close(); err != nil {
			return recovery{}, err
		}
	}
	for part := range parts {
		parts[part] /= float64(len(took))
	}
	return recovery{len(took), quantile(took, 0.5), quantile(took, 0.99), quantile(noticed, 0.5), quantile(noticed, 0.99), parts}, nil
}

func (r recovery) String() string {
	s := fmt.Sprintf("%d tasks, p50 %.1f s, p99 %.1f s; noticed p50 %.1f s, p99 %.1f s; mean seconds in", r.Tasks, r.P50, r.P99, r.NoticedP50, r.NoticedP99)
	for _, part := range []string{partNoticed, partBackoff, partUnfed, partQueued} {
		s += fmt.Sprintf(" %s %.1f", part, r.Parts[part])
	}
	return s
}

// held counts the running tasks of the executor with this process id.
func (e *engines) held(ctx context.Context, pid int) (n int, err error) {
	err = e.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE state='running' AND worker_id LIKE ?", fmt.Sprintf("%%-%d-%%", pid)).Scan(&n)
	return n, err
}

// busy waits until the process, an executor, runs tasks, sending documents of every
// tenant until it does. It returns the process id.
func (t *trial) busy(ctx context.Context, p *process) (pid int, err error) {
	return pid, until(ctx, 60*time.Second, p.name+" at work", func() error {
		for _, tenant := range tenants { // enough for every tenant
			var n int
			if err := t.e.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE tenant_id=? AND state='pending'", tenant).Scan(&n); err != nil {
				return err
			}
			if n < 3 {
				if _, err := t.l.send(ctx, tenant, true); err != nil {
					return err
				}
			}
		}
		pid, _ = p.signal(0) // it may have been restarted in the meantime
		if n, err := t.e.held(ctx, pid); err != nil || n == 0 {
			return fmt.Errorf("it runs %d tasks, %v", n, err)
		}
		return nil
	})
}

// measureRecovery kills each busy executor, one after the other and with nothing
// else broken, and measures when their tasks run again.
func (t *trial) measureRecovery(ctx context.Context) (recovery, error) {
	waits := waits{}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { waits.watch(watching, t.e); close(watched) }()
	defer func() { stop(); <-watched }()
	var kills []kill
	for _, p := range t.f.of("executor") {
		pid, err := t.busy(ctx, p)
		if err != nil {
			return recovery{}, err
		}
		kills = append(kills, kill{pid, time.Now()})
		_, done := p.signal(syscall.SIGKILL)
		<-done
		if err := until(ctx, 3*promised, "recovery of the tasks of "+p.name, func() error {
			var waiting int
			err := t.e.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM tasks WHERE state='running' AND worker_id LIKE ?
				OR state IN ('retry_wait','pending') AND lost_count>0`, fmt.Sprintf("%%-%d-%%", pid)).Scan(&waiting)
			if err == nil && waiting > 0 {
				err = fmt.Errorf("%d tasks wait", waiting)
			}
			return err
		}); err != nil {
			return recovery{}, err
		}
	}
	stop()
	<-watched
	return t.e.recoveryAfter(ctx, kills, waits)
}
