package sqlstore

import (
	"context"
	"slices"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// inventoryBatch is how many rows one page of a table walk reads.
const inventoryBatch = 1000

// walk reads a query page by page. The query must have a condition "… > ?" on the
// last row's cursor, the conditions of args, an ORDER BY on the cursor and a LIMIT.
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

// TenantIDs lists the tenants after one, ordered by id.
func (s *inventory) TenantIDs(ctx context.Context, after string, limit int) ([]string, error) {
	return all[string](s.read(ctx), "SELECT id FROM tenants WHERE id > ? ORDER BY id LIMIT ?", after, limit)
}

// KnownTenants reports which of the tenants exist.
func (s *inventory) KnownTenants(ctx context.Context, ids []string) (map[string]bool, error) {
	known, err := byIDs[string](s.read(ctx), ids, "SELECT id FROM tenants WHERE id IN ?")
	return setOf(known), err
}

// TenantDocuments lists a tenant's undeleted documents after one, ordered by id.
func (s *inventory) TenantDocuments(ctx context.Context, tenantID, after string, limit int) ([]taskstore.InventoryDocument, error) {
	rows, err := all[struct {
		ID, TenantID, DatasetID, Name, MediaType, BlobKey string
		Units, ChunkCount, LiveGen                        int
	}](s.read(ctx), `SELECT id, tenant_id, dataset_id, name, media_type, blob_key, units, chunk_count, live_gen
		FROM documents WHERE tenant_id=? AND id > ? AND deleted_at=0 ORDER BY id LIMIT ?`, tenantID, after, limit)
	out := make([]taskstore.InventoryDocument, len(rows))
	for i, r := range rows {
		out[i] = taskstore.InventoryDocument{TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.ID, Name: r.Name, MediaType: r.MediaType,
			BlobKey: r.BlobKey, Units: r.Units, Chunks: r.ChunkCount, Generation: r.LiveGen}
	}
	return out, err
}

// ResultsOf lists every range result of documents that a done task, an edited chunk
// or a run references, in any generation. A result referenced by several tasks is
// listed for each.
func (s *inventory) ResultsOf(ctx context.Context, documentIDs []string) ([]taskstore.InventoryRange, error) {
	type row struct {
		TenantID, DocID, RangeID, ArtifactKey      string
		FromUnit, ToUnit, ChunkCount, Gen, LiveGen int
	}
	var out []taskstore.InventoryRange
	add := func(rows []row, parsed bool) {
		for _, r := range rows {
			if r.ArtifactKey == "" {
				r.ArtifactKey = sheaf.ArtifactKey(r.TenantID, r.DocID, r.RangeID)
			}
			out = append(out, taskstore.InventoryRange{TenantID: r.TenantID, DocumentID: r.DocID, RangeID: r.RangeID, ArtifactKey: r.ArtifactKey,
				Range: sheaf.Range{From: r.FromUnit, To: r.ToUnit}, Chunks: r.ChunkCount, Live: r.Gen == r.LiveGen, Parsed: parsed})
		}
	}
	db := s.read(ctx)
	rows, err := byIDs[row](db, documentIDs, `SELECT t.tenant_id, t.doc_id, t.range_id, t.artifact_key, t.from_unit, t.to_unit, t.chunk_count, t.gen, d.live_gen
		FROM tasks t JOIN documents d ON d.id=t.doc_id WHERE t.doc_id IN ? AND t.state='done' AND t.range_id<>'' AND d.deleted_at=0`)
	if err != nil {
		return nil, err
	}
	add(rows, true)
	if rows, err = byIDs[row](db, documentIDs, `SELECT e.tenant_id, e.doc_id, e.range_id, 1 AS chunk_count, e.gen, d.live_gen
		FROM chunk_edits e JOIN documents d ON d.id=e.doc_id WHERE e.doc_id IN ? AND e.range_id<>'' AND d.deleted_at=0`); err != nil {
		return nil, err
	}
	add(rows, false)
	if rows, err = byIDs[row](db, documentIDs, `SELECT r.tenant_id, r.doc_id, r.range_id, r.artifact_key, r.chunk_count, CASE WHEN 1=1`+visibleRun+` THEN 0 ELSE 1 END AS gen
		FROM run_results r JOIN documents d ON d.id=r.doc_id WHERE r.doc_id IN ? AND d.deleted_at=0`); err != nil {
		return nil, err
	}
	add(rows, false)
	return out, nil
}

// MemberKeys lists the blobs of archives' members, which are stored with the
// archives.
func (s *inventory) MemberKeys(ctx context.Context, archiveIDs []string) ([]string, error) {
	return byIDs[string](s.read(ctx), archiveIDs, "SELECT blob_key FROM documents WHERE parent_id IN ? AND deleted_at=0")
}

// References reports which range results and documents are referenced now, may be
// being made, or await the collector. A result is looked up wherever it is
// referenced; what is being made or collected must belong to one of the documents.
func (s *inventory) References(ctx context.Context, rangeIDs, documentIDs []string) (*taskstore.References, error) {
	rangeIDs, documentIDs = sortedUnique(rangeIDs), sortedUnique(documentIDs)
	db := s.read(ctx)
	out := &taskstore.References{Ranges: map[string]bool{}, Documents: map[string]bool{}, Dying: map[string]bool{}, Keys: map[string]bool{}}
	// In the order in which a result moves, so that none is missed on its way: reserved
	// with the collector, being made, referenced, collected.
	garbage, err := byIDs[garbageRow](db, documentIDs, "SELECT * FROM garbage WHERE doc_id IN ?")
	if err != nil {
		return nil, err
	}
	running, err := byIDs[struct {
		ID    string
		Epoch int64
	}](db, documentIDs, "SELECT id, epoch FROM tasks WHERE doc_id IN ? AND state='running'")
	if err != nil {
		return nil, err
	}
	for _, t := range running {
		out.Ranges[sheaf.RangeID(t.ID, t.Epoch)] = true
	}
	for _, q := range []string{
		"SELECT t.range_id FROM tasks t JOIN documents d ON d.id=t.doc_id WHERE t.range_id IN ? AND t.state='done' AND d.deleted_at=0",
		"SELECT e.range_id FROM chunk_edits e JOIN documents d ON d.id=e.doc_id WHERE e.range_id IN ? AND d.deleted_at=0",
		"SELECT r.range_id FROM run_results r JOIN documents d ON d.id=r.doc_id WHERE r.range_id IN ? AND d.deleted_at=0",
	} {
		ids, err := byIDs[string](db, rangeIDs, q)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			out.Ranges[id] = true
		}
	}
	documents, err := byIDs[struct{ ID, BlobKey string }](db, documentIDs, "SELECT id, blob_key FROM documents WHERE id IN ? AND deleted_at=0")
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		out.Documents[d.ID], out.Keys[d.BlobKey] = true, true
	}
	later, err := byIDs[garbageRow](db, documentIDs, "SELECT * FROM garbage WHERE doc_id IN ?")
	if err != nil {
		return nil, err
	}
	for _, g := range append(garbage, later...) {
		switch {
		case g.RangeID != "":
			out.Ranges[g.RangeID] = true
		case g.BlobPrefix != "":
			out.Prefixes = append(out.Prefixes, g.BlobPrefix)
		case g.ArtifactKey != "":
			out.Keys[g.ArtifactKey] = true
		default:
			out.Dying[g.DocID] = true
		}
	}
	return out, nil
}

// KnownUploads reports which uploads are in progress or being removed.
func (s *inventory) KnownUploads(ctx context.Context, tenantID string, uploadIDs []string) (map[string]bool, error) {
	ids, err := byIDs[string](s.read(ctx), uploadIDs, "SELECT id FROM uploads WHERE id IN ? AND tenant_id=?", tenantID)
	if err != nil {
		return nil, err
	}
	known := setOf(ids)
	left := slices.DeleteFunc(slices.Clone(uploadIDs), func(id string) bool { return known[id] })
	prefixes := mapped(left, func(id string) string { return taskstore.UploadPrefix(tenantID, id) })
	going, err := byIDs[string](s.read(ctx), prefixes, "SELECT blob_prefix FROM garbage WHERE blob_prefix IN ?")
	for i, p := range prefixes {
		if slices.Contains(going, p) {
			known[left[i]] = true
		}
	}
	return known, err
}

// liveSums computes documents' counters from their live tasks.
const liveSums = `SELECT d.id, d.tenant_id, d.chunk_count AS has, COALESCE(SUM(t.chunk_count), 0) AS want, COALESCE(SUM(t.token_count), 0) AS tokens
	FROM documents d LEFT JOIN tasks t ON t.doc_id=d.id AND t.gen=d.live_gen AND t.state='done' AND t.range_id<>''
	WHERE d.deleted_at=0 AND d.live_gen>0`

// Drift lists the documents whose counters differ from the sums of their live tasks.
func (s *inventory) Drift(ctx context.Context, documentIDs []string) ([]taskstore.CounterDrift, error) {
	rows, err := byIDs[struct {
		ID, TenantID string
		Has, Want    int
	}](s.read(ctx), documentIDs, liveSums+" AND d.id IN ? GROUP BY d.id, d.tenant_id, d.chunk_count HAVING d.chunk_count<>COALESCE(SUM(t.chunk_count), 0) ORDER BY d.id")
	return mapped(rows, func(r struct {
		ID, TenantID string
		Has, Want    int
	}) taskstore.CounterDrift {
		return taskstore.CounterDrift{TenantID: r.TenantID, DocumentID: r.ID, Has: r.Has, Want: r.Want}
	}), err
}

// FixDrift sets a document's counters to the sums of its live tasks.
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

// Stalled counts anomalies: running tasks whose lease expired more than a minute
// ago, and due pending tasks that no queue was told of for more than ten.
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

// Open reports which of the tasks exist and have not ended.
func (s *inventory) Open(ctx context.Context, taskIDs []string) (map[string]bool, error) {
	ids, err := byIDs[string](s.read(ctx), taskIDs, "SELECT id FROM tasks WHERE id IN ? AND "+isOpen)
	return setOf(ids), err
}
