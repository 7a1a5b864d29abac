package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sheaf"
	"sheaf/taskstore"
)

// The rows of index_state.
const (
	indexKey = "index"
	auditKey = "audit"
)

// IndexState returns the stored state of the search index; version 0 means none.
func (s *handle) IndexState(ctx context.Context) (value string, version int64, err error) {
	return s.versioned(ctx, indexKey)
}

// SwapIndexState replaces the version that was read, and reports whether that was
// still the newest.
func (s *handle) SwapIndexState(ctx context.Context, version int64, value string) (bool, error) {
	return s.swap(ctx, indexKey, version, value)
}

// AuditState returns the audit's progress; version 0 means there was none.
func (s *handle) AuditState(ctx context.Context) (value string, version int64, err error) {
	return s.versioned(ctx, auditKey)
}

// SwapAuditState is SwapIndexState for the audit.
func (s *handle) SwapAuditState(ctx context.Context, version int64, value string) (bool, error) {
	return s.swap(ctx, auditKey, version, value)
}

func (s *handle) versioned(ctx context.Context, key string) (value string, version int64, err error) {
	row, err := first[struct {
		V       string
		Version int64
	}](s.read(ctx), "SELECT v, version FROM index_state WHERE k=?", key)
	if row == nil {
		return "", 0, err
	}
	return row.V, row.Version, err
}

func (s *handle) swap(ctx context.Context, key string, version int64, value string) (bool, error) {
	if version == 0 {
		if err := insertRows(s.write(ctx), "index_state", []string{"k", "version", "v"}, [][]any{{key, 0, ""}}, s.d.noop("k")); err != nil {
			return false, translate(err)
		}
	}
	n, err := exec(s.write(ctx), "UPDATE index_state SET version=version+1, v=? WHERE k=? AND version=?", value, key, version)
	return n == 1, err
}

// liveResults selects the stored results that search may show.
const liveResults = ` FROM tasks t JOIN documents d ON d.id=t.doc_id AND d.live_gen=t.gen
	WHERE t.state='done' AND t.range_id<>'' AND t.chunk_count>0 AND d.deleted_at=0`

// editCursor is the cursor prefix of edited chunks, which follow tasks.
const editCursor = "edit/"

// liveEdits selects the edited chunks that search may show, each a range of its own.
const liveEdits = ` FROM chunk_edits e JOIN documents d ON d.id=e.doc_id AND d.live_gen=e.gen WHERE e.range_id > ? AND d.deleted_at=0`

// runCursor is the cursor prefix of runs' results, which follow edits.
const runCursor = "run/"

// liveRuns selects the results of runs that search may show.
const liveRuns = ` FROM run_results r JOIN documents d ON d.id=r.doc_id WHERE r.range_id > ? AND r.chunk_count>0` + visibleRun

// LiveResults returns, in cursor order, the next results of a tenant ("" for all)
// that search may show, with the data for their index entries.
func (s *inventory) LiveResults(ctx context.Context, tenantID, after string, limit int) ([]taskstore.LiveResult, error) {
	where, args := ofTenant(tenantID)
	return s.liveResults(ctx, where, args, after, limit)
}

// ofTenant is the condition on a tenant's documents, "" for all.
func ofTenant(tenantID string) (where string, args []any) {
	if tenantID == "" {
		return "", nil
	}
	return " AND d.tenant_id=?", []any{tenantID}
}

// DatasetResults is LiveResults for one dataset.
func (s *inventory) DatasetResults(ctx context.Context, tenantID, datasetID, after string, limit int) ([]taskstore.LiveResult, error) {
	return s.liveResults(ctx, " AND d.tenant_id=? AND d.dataset_id=?", []any{tenantID, datasetID}, after, limit)
}

// DatasetStamp changes with every change to what DatasetResults, Visible of its
// ranges, and SplitNames return for a dataset, and sometimes without one. Publishing
// a version raises the sum of versions, a new document is the greatest, a deleted
// one is no longer counted, edits have their own counts, results of runs differ in
// ranges, times and sizes, and an added split is the last.
func (s *inventory) DatasetStamp(ctx context.Context, tenantID, datasetID string) (string, error) {
	row, err := first[struct {
		Docs, Live, Changed     int64
		Newest                  string
		Edits, Versions, Edited int64
	}](s.read(ctx), `SELECT COUNT(*) AS docs, COALESCE(SUM(d.live_gen), 0) AS live, COALESCE(MAX(d.updated_at), 0) AS changed, COALESCE(MAX(d.id), '') AS newest,
			COALESCE(SUM(e.n), 0) AS edits, COALESCE(SUM(e.versions), 0) AS versions, COALESCE(MAX(e.edited), 0) AS edited
		FROM documents d LEFT JOIN (SELECT doc_id, COUNT(*) AS n, SUM(version) AS versions, MAX(updated_at) AS edited FROM chunk_edits WHERE tenant_id=? GROUP BY doc_id) e ON e.doc_id=d.id
		WHERE d.tenant_id=? AND d.dataset_id=? AND d.deleted_at=0`, tenantID, tenantID, datasetID)
	if row == nil {
		return "", err
	}
	runs, err := first[struct {
		Results, Size, Newest int64
		First, Last           string
	}](s.read(ctx), `SELECT COUNT(*) AS results, COALESCE(SUM(chunk_count+token_count), 0) AS size, COALESCE(MAX(created_at), 0) AS newest, COALESCE(MIN(range_id), '') AS first, COALESCE(MAX(range_id), '') AS last
		FROM run_results WHERE tenant_id=? AND dataset_id=?`, tenantID, datasetID)
	if runs == nil {
		return "", err
	}
	splits, err := first[struct {
		Splits, Newest int64
		First, Last    string
	}](s.read(ctx), "SELECT COUNT(*) AS splits, COALESCE(MAX(created_at), 0) AS newest, COALESCE(MIN(id), '') AS first, COALESCE(MAX(id), '') AS last FROM graph_splits WHERE tenant_id=? AND dataset_id=?", tenantID, datasetID)
	if splits == nil {
		return "", err
	}
	return fmt.Sprint(*row, *runs, *splits), err
}

// liveResults lists the results whose documents meet a condition.
func (s *inventory) liveResults(ctx context.Context, where string, args []any, after string, limit int) ([]taskstore.LiveResult, error) {
	type row struct {
		ID, TenantID, DatasetID, DocID, Name, MediaType, RangeID, ArtifactKey string
		ChunkCount                                                            int
	}
	var out []taskstore.LiveResult
	edit, edits := strings.CutPrefix(after, editCursor)
	left, runs := strings.CutPrefix(after, runCursor)
	if runs {
		edits = true
	}
	if !edits {
		rows, err := all[row](s.read(ctx), `SELECT t.id, t.tenant_id, d.dataset_id, t.doc_id, d.name, d.media_type, t.range_id, t.artifact_key, t.chunk_count`+
			liveResults+where+` AND t.id > ? ORDER BY t.id LIMIT ?`, slices.Concat(args, []any{after, limit})...)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			out = append(out, taskstore.LiveResult{Cursor: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.DocID, Name: r.Name, MediaType: r.MediaType,
				RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.ChunkCount})
		}
	}
	if !edits {
		edit = ""
	}
	if !runs {
		left = ""
	}
	if len(out) == limit {
		return out, nil
	}
	if runs {
		return s.liveRuns(ctx, where, args, left, limit)
	}
	rows, err := all[row](s.read(ctx), `SELECT e.range_id, e.tenant_id, d.dataset_id, e.doc_id, d.name, d.media_type`+
		liveEdits+where+` ORDER BY e.range_id LIMIT ?`, slices.Concat([]any{edit}, args, []any{limit - len(out)})...)
	for _, r := range rows {
		out = append(out, taskstore.LiveResult{Cursor: editCursor + r.RangeID, TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.DocID, Name: r.Name, MediaType: r.MediaType,
			RangeID: r.RangeID, ArtifactKey: sheaf.ArtifactKey(r.TenantID, r.DocID, r.RangeID), Chunks: 1})
	}
	if err != nil || len(out) == limit {
		return out, err
	}
	more, err := s.liveRuns(ctx, where, args, "", limit-len(out))
	return append(out, more...), err
}

func (s *inventory) liveRuns(ctx context.Context, where string, args []any, after string, limit int) ([]taskstore.LiveResult, error) {
	rows, err := all[struct {
		RangeID, TenantID, DatasetID, DocID, Name, MediaType, ArtifactKey string
		ChunkCount                                                        int
	}](s.read(ctx), `SELECT r.range_id, r.tenant_id, r.dataset_id, r.doc_id, d.name, d.media_type, r.artifact_key, r.chunk_count`+liveRuns+where+` ORDER BY r.range_id LIMIT ?`,
		slices.Concat([]any{after}, args, []any{limit})...)
	out := make([]taskstore.LiveResult, len(rows))
	for i, r := range rows {
		out[i] = taskstore.LiveResult{Cursor: runCursor + r.RangeID, TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.DocID, Name: r.Name, MediaType: r.MediaType,
			RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.ChunkCount}
	}
	return out, err
}

// TenantsWith lists the tenants whose live documents have at least that many chunks,
// largest first.
func (s *inventory) TenantsWith(ctx context.Context, chunks int64, limit int) ([]taskstore.TenantChunks, error) {
	return all[taskstore.TenantChunks](s.read(ctx), `SELECT tenant_id, SUM(chunk_count) AS chunks FROM documents WHERE deleted_at=0 AND live_gen>0
		GROUP BY tenant_id HAVING SUM(chunk_count)>=? ORDER BY 2 DESC, tenant_id LIMIT ?`, chunks, limit)
}

// LiveTotals sums what LiveResults returns.
func (s *inventory) LiveTotals(ctx context.Context, tenantID string) (taskstore.LiveTotals, error) {
	where, args := ofTenant(tenantID)
	row, err := first[taskstore.LiveTotals](s.read(ctx), `SELECT COUNT(*) AS results, COALESCE(SUM(t.chunk_count), 0) AS chunks, COALESCE(SUM(t.token_count), 0) AS tokens`+liveResults+where, args...)
	if row == nil {
		return taskstore.LiveTotals{}, err
	}
	edits, err := first[struct{ N int }](s.read(ctx), `SELECT COUNT(*) AS n`+liveEdits+where, append([]any{""}, args...)...)
	if edits != nil {
		row.Results, row.Chunks = row.Results+edits.N, row.Chunks+int64(edits.N)
	}
	if err != nil {
		return *row, err
	}
	runs, err := first[taskstore.LiveTotals](s.read(ctx), `SELECT COUNT(*) AS results, COALESCE(SUM(r.chunk_count), 0) AS chunks, COALESCE(SUM(r.token_count), 0) AS tokens`+liveRuns+where, append([]any{""}, args...)...)
	if runs != nil {
		row.Results, row.Chunks, row.Tokens = row.Results+runs.Results, row.Chunks+runs.Chunks, row.Tokens+runs.Tokens
	}
	return *row, err
}
