package sqlstore

import (
	"context"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// inventoryBatch is how many rows one page of a walk over a table reads.
const inventoryBatch = 1000

// walk reads a query page by page. The query has a condition "… > ?" on the last
// row's cursor, the conditions of args, an ORDER BY of the cursor and a LIMIT.
func walk[R any](db *gorm.DB, query string, cursor func(R) any, start any, each func(R) error, args ...any) error {
	for at := start; ; {
		rows, err := all[R](db, query, append(append([]any{at}, args...), inventoryBatch)...)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := each(r); err != nil {
				return err
			}
			at = cursor(r)
		}
		if len(rows) < inventoryBatch {
			return nil
		}
	}
}

// Ranges calls each for every range result that some task lists as done,
// ordered by id, and then for those of edited chunks and of runs, until it returns
// an error.
func (s *inventory) Ranges(ctx context.Context, each func(taskstore.InventoryRange) error) error {
	type row struct {
		ID, TenantID, DocID, RangeID, ArtifactKey  string
		FromUnit, ToUnit, ChunkCount, Gen, LiveGen int
	}
	err := walk(s.read(ctx), `SELECT t.id, t.tenant_id, t.doc_id, t.range_id, t.artifact_key, t.from_unit, t.to_unit, t.chunk_count, t.gen, d.live_gen
		FROM tasks t JOIN documents d ON d.id=t.doc_id
		WHERE t.id > ? AND t.state='done' AND t.range_id<>'' AND d.deleted_at=0 ORDER BY t.id LIMIT ?`,
		func(r row) any { return r.ID }, "", func(r row) error {
			return each(taskstore.InventoryRange{TenantID: r.TenantID, DocumentID: r.DocID, RangeID: r.RangeID, ArtifactKey: r.ArtifactKey,
				Range: sheaf.Range{From: r.FromUnit, To: r.ToUnit}, Chunks: r.ChunkCount, Live: r.Gen == r.LiveGen})
		})
	if err != nil {
		return err
	}
	err = walk(s.read(ctx), `SELECT e.range_id, e.tenant_id, e.doc_id, e.gen, d.live_gen FROM chunk_edits e JOIN documents d ON d.id=e.doc_id
		WHERE e.range_id > ? AND d.deleted_at=0 ORDER BY e.range_id LIMIT ?`,
		func(r row) any { return r.RangeID }, "", func(r row) error {
			return each(taskstore.InventoryRange{TenantID: r.TenantID, DocumentID: r.DocID, RangeID: r.RangeID, ArtifactKey: sheaf.ArtifactKey(r.TenantID, r.DocID, r.RangeID), Chunks: 1, Live: r.Gen == r.LiveGen})
		})
	if err != nil {
		return err
	}
	return walk(s.read(ctx), `SELECT r.range_id, r.tenant_id, r.doc_id, r.artifact_key, r.chunk_count, CASE WHEN 1=1`+visibleRun+` THEN 1 ELSE 0 END AS live_gen
		FROM run_results r JOIN documents d ON d.id=r.doc_id WHERE r.range_id > ? AND d.deleted_at=0 ORDER BY r.range_id LIMIT ?`,
		func(r row) any { return r.RangeID }, "", func(r row) error {
			return each(taskstore.InventoryRange{TenantID: r.TenantID, DocumentID: r.DocID, RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.ChunkCount, Live: r.LiveGen == 1})
		})
}

// Originals calls each for every document that is not deleted.
func (s *inventory) Originals(ctx context.Context, each func(taskstore.InventoryDocument) error) error {
	return walk(s.read(ctx), "SELECT * FROM documents WHERE id > ? AND deleted_at=0 ORDER BY id LIMIT ?",
		func(r documentRow) any { return r.ID }, "", func(r documentRow) error {
			d := r.toDomain(s.vault)
			return each(taskstore.InventoryDocument{TenantID: d.TenantID, DatasetID: d.DatasetID, DocumentID: d.ID, Name: d.Name, MediaType: d.MediaType, BlobKey: d.BlobKey, Metadata: d.Metadata})
		})
}

// Awaited calls each for everything that the collector will remove.
func (s *inventory) Awaited(ctx context.Context, each func(taskstore.Garbage) error) error {
	return walk(s.read(ctx), "SELECT * FROM garbage WHERE id > ? ORDER BY id LIMIT ?",
		func(r garbageRow) any { return r.ID }, int64(0), func(r garbageRow) error { return each(r.toDomain()) })
}

// Unfinished calls each for every task that an executor may be writing results
// of now, with the range id of its attempt.
func (s *inventory) Unfinished(ctx context.Context, each func(rangeID, documentID string) error) error {
	type row struct {
		ID, DocID string
		Epoch     int64
	}
	return walk(s.read(ctx), "SELECT id, doc_id, epoch FROM tasks WHERE id > ? AND state='running' ORDER BY id LIMIT ?",
		func(r row) any { return r.ID }, "", func(r row) error { return each(sheaf.RangeID(r.ID, r.Epoch), r.DocID) })
}

// liveSums are the counters of documents as their live tasks have them.
const liveSums = `SELECT d.id, d.tenant_id, d.chunk_count AS has, COALESCE(SUM(t.chunk_count), 0) AS want, COALESCE(SUM(t.token_count), 0) AS tokens
	FROM documents d LEFT JOIN tasks t ON t.doc_id=d.id AND t.gen=d.live_gen AND t.state='done' AND t.range_id<>''
	WHERE d.deleted_at=0 AND d.live_gen>0`

// Drift lists documents whose counters are not what their live tasks sum to.
func (s *inventory) Drift(ctx context.Context, limit int) ([]taskstore.CounterDrift, error) {
	rows, err := all[struct {
		ID, TenantID string
		Has, Want    int
	}](s.read(ctx), liveSums+" GROUP BY d.id, d.tenant_id, d.chunk_count HAVING d.chunk_count<>COALESCE(SUM(t.chunk_count), 0) ORDER BY d.id LIMIT ?", limit)
	out := make([]taskstore.CounterDrift, len(rows))
	for i, r := range rows {
		out[i] = taskstore.CounterDrift{TenantID: r.TenantID, DocumentID: r.ID, Has: r.Has, Want: r.Want}
	}
	return out, err
}

// FixDrift sets the counters of a document to what its live tasks sum to.
func (s *inventory) FixDrift(ctx context.Context, documentID string) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		doc, err := s.lockDocument(tx, documentID)
		if err != nil || doc == nil {
			return err
		}
		sums, err := first[struct{ Want, Tokens int }](tx, liveSums+" AND d.id=? GROUP BY d.id, d.tenant_id, d.chunk_count", documentID)
		if err != nil || sums == nil {
			return err
		}
		return run(tx, stmt("UPDATE documents SET chunk_count=?, token_count=? WHERE id=? AND live_gen=?", sums.Want, sums.Tokens, documentID, doc.LiveGen))
	})
}

// Stalled counts what should not be: running tasks whose lease ended more than
// a minute ago, and due pending tasks that no queue was told of for more than
// ten.
func (s *inventory) Stalled(ctx context.Context) (deadLeases, unhinted int, err error) {
	count := func(into *int, query string, ago time.Duration) {
		if err == nil {
			err = translate(s.read(ctx).Raw(s.sql(query), ago.Milliseconds()).Scan(into).Error)
		}
	}
	count(&deadLeases, "SELECT COUNT(*) FROM tasks WHERE state='running' AND lease_until<@now-?", time.Minute)
	count(&unhinted, "SELECT COUNT(*) FROM tasks WHERE state='pending' AND paused=0 AND run_at<@now-? AND enqueued_at=0", 10*time.Minute)
	return deadLeases, unhinted, err
}

// Open answers which of the tasks exist and have not ended.
func (s *inventory) Open(ctx context.Context, taskIDs []string) (map[string]bool, error) {
	ids, err := byIDs[string](s.read(ctx), taskIDs, "SELECT id FROM tasks WHERE id IN ? AND "+isOpen)
	return setOf(ids), err
}
