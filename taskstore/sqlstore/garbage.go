package sqlstore

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"sheaf/taskstore"
)

// Garbage lists what may be removed from index and blob store now. A range that
// a live or the newest generation lists is never among it, whatever put it
// there.
func (s *garbage) Garbage(ctx context.Context, limit int) ([]taskstore.Garbage, error) {
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
func (s *garbage) GarbageDone(ctx context.Context, ids []int64) error {
	for batch := range chunks(ids) {
		if err := s.w.WithContext(ctx).Exec("DELETE FROM garbage WHERE id IN ?", batch).Error; err != nil {
			return translate(err)
		}
	}
	return nil
}

// Cleanup removes events, terminal tasks of superseded generations, dead
// workers, idempotency records and messages to webhooks older than retention.
// Documents that were deleted that long ago, and of which the collector has
// left nothing, go with their tasks.
func (s *garbage) Cleanup(ctx context.Context, retention time.Duration, limit int, dryRun bool) (taskstore.CleanupReport, error) {
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
func (s *garbage) cleanupTasks(ctx context.Context, old string, limit int, dryRun bool) (int, error) {
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

func (s *garbage) cleanupDocuments(ctx context.Context, old string, limit int) error {
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

// cleanupDeliveries removes old messages, whatever became of them. They are in
// order of time but for a few seconds, so that the oldest are the first.
func (s *garbage) cleanupDeliveries(ctx context.Context, old string, limit int, dryRun bool) (int, error) {
	var seqs []int64
	if err := s.w.WithContext(ctx).Raw(s.sql("SELECT seq FROM (SELECT seq, created_at FROM webhook_deliveries ORDER BY seq LIMIT ?) x WHERE created_at<"+old), limit).Scan(&seqs).Error; err != nil {
		return 0, translate(err)
	}
	for batch := range chunks(seqs) {
		if dryRun {
			break
		}
		if err := s.w.WithContext(ctx).Exec("DELETE FROM webhook_deliveries WHERE seq IN ?", batch).Error; err != nil {
			return 0, translate(err)
		}
	}
	return len(seqs), nil
}
