package main

import (
	"context"
	"fmt"
	"time"
)

// waits is what tasks that were taken back wait for until they are claimed
// again, sampled: by task and the epoch they were taken back under.
type waits map[string]map[string]time.Duration

// Parts of a recovery, in their order.
const (
	partNoticed = "noticed" // the keeper has not seen yet that the executor is gone
	partBackoff = "backoff" // the keeper keeps it back for a moment
	partUnfed   = "unfed"   // pending, and the queue has no hint of it
	partQueued  = "queued"  // hinted, and nobody has claimed it
)

const sampleEvery = 200 * time.Millisecond

// watch samples until ctx ends. While the database is away what it said last
// goes on.
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

// recoveries measures, for each executor that was killed, how long each of its
// tasks waited for the next claim, and for what.
func (in *injector) recoveries(ctx context.Context, r *record) error {
	var took, noticed []time.Duration
	r.RecoveryIn = map[string]float64{}
	for _, k := range in.kills {
		rs, err := in.e.db.QueryContext(ctx, `SELECT l.subject_id, l.epoch, MIN(l.at), MIN(n.at) FROM events l
			JOIN events c ON c.subject_id=l.subject_id AND c.kind='claimed' AND c.epoch=l.epoch-1 AND c.worker_id LIKE ? AND c.at<=?
			JOIN events n ON n.subject_id=l.subject_id AND n.kind='claimed' AND n.epoch>l.epoch
			WHERE l.kind='lost' AND l.at>=? GROUP BY l.subject_id, l.epoch`, fmt.Sprintf("%%-%d-%%", k.pid), k.at.UnixMilli(), k.at.UnixMilli())
		if err != nil {
			return err
		}
		for rs.Next() {
			var id string
			var epoch, lost, claimed int64
			if err := rs.Scan(&id, &epoch, &lost, &claimed); err != nil {
				_ = rs.Close()
				return err
			}
			took = append(took, time.UnixMilli(claimed).Sub(k.at))
			noticed = append(noticed, time.UnixMilli(lost).Sub(k.at))
			r.RecoveryIn[partNoticed] += time.UnixMilli(lost).Sub(k.at).Seconds()
			for part, d := range in.waits[fmt.Sprintf("%s %d", id, epoch)] {
				r.RecoveryIn[part] += d.Seconds()
			}
		}
		if err := rs.Close(); err != nil {
			return err
		}
	}
	for part := range r.RecoveryIn {
		r.RecoveryIn[part] /= float64(len(took))
	}
	r.Recoveries, r.RecoveryP50, r.RecoveryP99 = len(took), quantile(took, 0.5), quantile(took, 0.99)
	r.NoticedP50, r.NoticedP99 = quantile(noticed, 0.5), quantile(noticed, 0.99)
	return nil
}
