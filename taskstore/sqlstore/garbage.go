package sqlstore

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"sheaf/taskstore"
)

// Garbage lists what may be removed from index and blob store now. A range listed by
// a live or the newest generation is never included, however it got there.
func (s *garbage) Garbage(ctx context.Context, limit int) ([]taskstore.Garbage, error) {
	rows, err := all[garbageRow](s.read(ctx), s.sql(`SELECT g.* FROM garbage g WHERE g.not_before<=@now AND (g.range_id='' OR NOT EXISTS (
			SELECT 1 FROM tasks t JOIN documents d ON d.id=t.doc_id
			WHERE t.range_id=g.range_id AND t.state='done' AND d.deleted_at=0 AND (t.gen=d.gen OR t.gen=d.live_gen)))
		ORDER BY g.not_before, g.id LIMIT ?`), limit)
	return mapped(rows, garbageRow.toDomain), err
}

// GarbageDone drops entries that have been removed.
func (s *garbage) GarbageDone(ctx context.Context, ids []int64) error {
	_, err := execByIDs(s.write(ctx), ids, "DELETE FROM garbage WHERE id IN ?")
	return err
}

// Cleanup removes events, terminal tasks of superseded generations, dead workers,
// idempotency records and webhook messages older than retention. Documents deleted
// that long ago, and fully collected, are removed with their tasks. Jobs are
// removed, with the versions they made, when none of these is the newest or live one
// of its document, none has tasks left, and they are older than retention plus
// Config.KeepHistory: on top of it, because retention is extended when the clock
// jumped ahead.
func (s *garbage) Cleanup(ctx context.Context, retention time.Duration, limit int, dryRun bool) (taskstore.CleanupReport, error) {
	var report taskstore.CleanupReport
	db, old := s.write(ctx), fmt.Sprintf("@now-%d", retention.Milliseconds())
	// Events and messages are in time order within a few seconds, so the oldest are the
	// first: no index on time is needed.
	var err error
	if report.Events, err = remove[int64](db, dryRun, "DELETE FROM events WHERE seq IN ?",
		s.sql("SELECT seq FROM (SELECT seq, at FROM events ORDER BY seq LIMIT ?) x WHERE at<"+old), limit); err != nil {
		return report, err
	}
	if report.Deliveries, err = remove[int64](db, dryRun, "DELETE FROM webhook_deliveries WHERE seq IN ?",
		s.sql("SELECT seq FROM (SELECT seq, created_at FROM webhook_deliveries ORDER BY seq LIMIT ?) x WHERE created_at<"+old), limit); err != nil {
		return report, err
	}
	if report.Workers, err = remove[string](db, dryRun, s.sql("DELETE FROM workers WHERE seen_at<"+old+" AND id IN ?"),
		s.sql("SELECT id FROM workers w WHERE seen_at<"+old+" AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.state='running' AND t.worker_id=w.id) ORDER BY id LIMIT ?"), limit); err != nil {
		return report, err
	}
	keys, err := all[idempotencyRow](db, s.sql("SELECT tenant_id, k FROM idempotency WHERE created_at<"+old+" LIMIT ?"), limit)
	report.Idempotency = len(keys)
	for _, k := range keys {
		if err == nil && !dryRun {
			err = run(db, stmt(s.sql("DELETE FROM idempotency WHERE tenant_id=? AND k=? AND created_at<"+old), k.TenantID, k.K))
		}
	}
	if err != nil {
		return report, err
	}
	if report.Tasks, err = s.cleanupTasks(ctx, old, limit, dryRun); err != nil {
		return report, err
	}
	if s.keepHistory > 0 {
		if report.Jobs, err = s.cleanupJobs(ctx, retention+s.keepHistory, limit, dryRun); err != nil {
			return report, err
		}
	}
	if dryRun {
		return report, nil
	}
	return report, s.cleanupDocuments(ctx, old, limit)
}

// remove deletes the rows that a query finds, unless it is a dry run, and counts
// them.
func remove[K any](db *gorm.DB, dryRun bool, deletion, query string, args ...any) (int, error) {
	found, err := all[K](db, query, args...)
	if err == nil && !dryRun {
		_, err = execByIDs(db, found, deletion)
	}
	return len(found), err
}

const (
	cleanupKey  = "cleanup_after" // queue_meta key of the document where the search for old tasks resumes
	cleanupEach = 5000            // documents that one of its statements examines
)

// cleanupTasks removes terminal tasks of generations that are neither the newest nor
// live. Ranges that only they list go to the collector. It examines documents in
// turn and resumes where it stopped: starting over each time, a store of millions
// would be read once per thousand tasks.
func (s *garbage) cleanupTasks(ctx context.Context, old string, limit int, dryRun bool) (n int, err error) {
	after := ""
	if !dryRun {
		if after, err = s.Meta(ctx, cleanupKey); err != nil {
			return 0, err
		}
	}
	for {
		upto, err := first[string](s.read(ctx), "SELECT id FROM documents WHERE id>? ORDER BY id LIMIT 1 OFFSET ?", after, cleanupEach-1)
		if err != nil {
			return n, err
		}
		found, err := s.cleanupSlice(ctx, old, after, upto, limit-n, dryRun)
		n += found
		if err != nil || n >= limit {
			return n, err // the slice may have more
		}
		after = value(upto) // "" after the last one: the next search starts over
		if !dryRun {
			if err := s.SetMeta(ctx, cleanupKey, after); err != nil {
				return n, err
			}
		}
		if upto == nil {
			return n, nil
		}
	}
}

// cleanupSlice does this for the documents in (after, upto], or all after it if upto
// is nil.
func (s *garbage) cleanupSlice(ctx context.Context, old, after string, upto *string, limit int, dryRun bool) (int, error) {
	within, args := "g.doc_id>?", []any{after}
	if upto != nil {
		within, args = within+" AND g.doc_id<=?", append(args, *upto)
	}
	rows, err := all[taskRow](s.read(ctx), s.sql(`SELECT t.id, t.tenant_id, t.doc_id, t.gen, t.range_id, t.artifact_key
		FROM generations g JOIN documents d ON d.id=g.doc_id JOIN tasks t ON t.doc_id=g.doc_id AND t.gen=g.gen
		WHERE `+within+` AND g.created_at<`+old+` AND (d.deleted_at<>0 OR g.gen<d.gen AND g.gen<>d.live_gen)
		  AND t.state IN ('done','dead','canceled','superseded') AND t.finished_at<`+old+` ORDER BY t.id LIMIT ?`), append(args, limit)...)
	if err != nil || dryRun {
		return len(rows), err
	}
	n := 0
	for batch := range chunks(rows) {
		removed := 0
		err := s.tx(ctx, func(tx *gorm.DB) (err error) {
			var writes script
			for _, r := range batch {
				if r.RangeID != "" {
					writes.add(s.sql(`INSERT INTO garbage (tenant_id, doc_id, range_id, artifact_key, not_before)
						SELECT t.tenant_id, t.doc_id, t.range_id, t.artifact_key, @now+? FROM tasks t WHERE t.id=? AND NOT EXISTS
						(SELECT 1 FROM tasks o WHERE o.range_id=t.range_id AND o.id<>t.id)`), s.grace.Milliseconds(), r.ID)
				}
			}
			ids := mapped(batch, taskRow.id)
			writes.add("DELETE FROM task_deps WHERE child_id IN ? OR parent_id IN ?", ids, ids)
			if err := writes.exec(tx); err != nil {
				return err
			}
			removed, err = exec(tx, "DELETE FROM tasks WHERE id IN ? AND state IN ('done','dead','canceled','superseded')", ids)
			return err
		})
		if err != nil {
			return n, err
		}
		n += removed
	}
	return n, nil
}

const (
	jobsCleanupKey = "cleanup_jobs_after" // queue_meta key of the job after which the search for old ones resumes
	jobsEach       = 500                  // jobs that one of its statements examines
	jobsSlices     = 20                   // maximum statements per call
)

// cleanupJobs removes jobs of which nothing is left. Like cleanupTasks it examines
// them in turn and resumes where it stopped: ids are in time order.
func (s *garbage) cleanupJobs(ctx context.Context, age time.Duration, limit int, dryRun bool) (n int, err error) {
	after, err := s.Meta(ctx, jobsCleanupKey)
	if dryRun {
		after = ""
	}
	for range jobsSlices {
		if err != nil {
			return n, err
		}
		ids, err := all[string](s.read(ctx), s.sql(fmt.Sprintf("SELECT id FROM (SELECT id, created_at FROM jobs WHERE id>? ORDER BY id LIMIT %d) x WHERE created_at<@now-? ORDER BY id", jobsEach)), after, age.Milliseconds())
		if err != nil {
			return n, err
		}
		after = "" // after the last old one the search starts over
		if len(ids) == jobsEach {
			after = ids[len(ids)-1]
		}
		err = s.tx(ctx, func(tx *gorm.DB) error {
			over, err := byIDs[string](tx, ids, `SELECT j.id FROM jobs j WHERE j.id IN ?
				AND NOT EXISTS (SELECT 1 FROM generations g JOIN documents d ON d.id=g.doc_id WHERE g.job_id=j.id AND (g.gen>=d.gen OR g.gen=d.live_gen))
				AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.job_id=j.id)
				AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.tenant_id=j.tenant_id AND u.job_id=j.id)`)
			if err != nil {
				return err
			}
			n += len(over)
			if dryRun || len(over) == 0 {
				return nil
			}
			return run(tx, stmt("DELETE FROM generations WHERE job_id IN ?", over), stmt("DELETE FROM jobs WHERE id IN ?", over))
		})
		if err == nil && !dryRun {
			err = s.SetMeta(ctx, jobsCleanupKey, after)
		}
		if err != nil || after == "" || n >= limit {
			return n, err
		}
	}
	return n, nil
}

func (s *garbage) cleanupDocuments(ctx context.Context, old string, limit int) error {
	ids, err := all[string](s.read(ctx), s.sql(`SELECT d.id FROM documents d WHERE d.deleted_at<>0 AND d.deleted_at<`+old+`
		AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.doc_id=d.id) AND NOT EXISTS (SELECT 1 FROM garbage g WHERE g.doc_id=d.id)
		ORDER BY d.id LIMIT ?`), limit)
	for _, id := range ids {
		if err == nil {
			err = s.tx(ctx, func(tx *gorm.DB) error {
				return run(tx, stmt("DELETE FROM documents WHERE id=? AND deleted_at<>0", id), stmt("DELETE FROM generations WHERE doc_id=?", id), stmt("DELETE FROM doc_dirty WHERE doc_id=?", id))
			})
		}
	}
	return err
}
