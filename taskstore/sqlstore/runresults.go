package sqlstore

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// visibleRun is the condition that search may show a run's result r, whose document
// is d. Results are dropped with the first source that is deleted or changed; this
// also hides them if an older version of the program, which knows of no results,
// changed the source.
const visibleRun = ` AND d.deleted_at=0 AND NOT EXISTS (SELECT 1 FROM run_result_sources x LEFT JOIN documents o ON o.id=x.doc_id AND o.deleted_at=0 AND o.live_gen=x.gen
	WHERE x.range_id=r.range_id AND o.id IS NULL)`

type resultRow struct {
	RangeID     string
	TenantID    string
	DatasetID   string
	Kind        string
	DocID       string
	Name        string
	Layer       int
	ArtifactKey string
	ChunkCount  int
	TokenCount  int
}

func (r resultRow) toDomain() taskstore.RunResult {
	return taskstore.RunResult{RangeID: r.RangeID, Kind: sheaf.TaskKind(r.Kind), DocumentID: r.DocID, Name: r.Name, Layer: r.Layer, Chunks: r.ChunkCount, Tokens: r.TokenCount}
}

// PutRunResult publishes a written result in place of others, under the claim of the
// run's task. Its range was reserved. ErrStale when the claim has ended, ErrNotFound
// when a source was deleted, parsed again or edited meanwhile: then the range is
// left to the collector.
func (s *runs) PutRunResult(ctx context.Context, c sheaf.Claim, r taskstore.RunResult, instead []string) error {
	if len(r.Sources) == 0 || len(r.Sources) > taskstore.MaxRunSources {
		return fmt.Errorf("%w: a result of a run has 1 to %d sources, not %d", sheaf.ErrInvalid, taskstore.MaxRunSources, len(r.Sources))
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		held, err := s.heldRun(tx, c)
		if err != nil {
			return err
		}
		want := make(map[string]taskstore.RunSource, len(r.Sources))
		sources := make([][]any, len(r.Sources))
		for i, src := range r.Sources {
			want[src.DocumentID], sources[i] = src, []any{r.RangeID, src.DocumentID, src.Generation}
		}
		ids := sortedUnique(mapped(r.Sources, func(s taskstore.RunSource) string { return s.DocumentID }))
		docs, err := byIDs[documentRow](tx, ids, "SELECT id, live_gen FROM documents WHERE id IN ? AND tenant_id=? AND dataset_id=? AND deleted_at=0 ORDER BY id"+s.d.share, held.TenantID, held.DatasetID)
		if err != nil {
			return err
		}
		edits, err := byIDs[struct {
			DocID string
			N     int
		}](tx, ids, "SELECT doc_id, SUM(1+version) AS n FROM chunk_edits WHERE doc_id IN ? GROUP BY doc_id")
		if err != nil {
			return err
		}
		edited := map[string]int{}
		for _, e := range edits {
			edited[e.DocID] = e.N
		}
		there := 0
		for _, d := range docs {
			if want[d.ID].Generation == d.LiveGen && want[d.ID].Version == edited[d.ID] {
				there++
			}
		}
		if _, ok := want[r.DocumentID]; !ok || there < len(ids) {
			return notFound("document", "of the result")
		}
		if err := takeBack(tx, r.DocumentID, []string{r.RangeID}); err != nil {
			return err
		}
		if err := s.insertResult(tx, held.TenantID, held.DatasetID, held.Kind, r); err != nil {
			return err
		}
		if err := insertRows(tx, "run_result_sources", resultSources, sources, ""); err != nil {
			return err
		}
		return s.dropRunRanges(tx, held, instead)
	})
}

// PutNodeResult publishes a result of a flow's node over the whole document, in
// place of what an earlier attempt left, once its generation is live. The claim is
// that of the node's task. Its range was reserved. ErrStale when the claim has
// ended.
func (s *runs) PutNodeResult(ctx context.Context, c sheaf.Claim, r taskstore.RunResult) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		doc, err := s.lockDocumentOf(tx, c.TaskID)
		if err != nil {
			return err
		}
		// guard: flows: a node over the document leaves its result under the claim's epoch
		t, err := first[taskRow](tx, "SELECT id, doc_id, gen FROM tasks WHERE id=? AND state='running' AND epoch=?"+s.d.lock, c.TaskID, c.Epoch)
		switch {
		case err != nil:
			return err
		case t == nil:
			return notHeld(c)
		case doc == nil || doc.DeletedAt != 0 || doc.Gen != t.Gen || doc.ID != r.DocumentID:
			return notFound("document", r.DocumentID)
		}
		before, err := all[resultRow](tx, "SELECT r.* FROM run_result_sources x JOIN run_results r ON r.range_id=x.range_id WHERE x.doc_id=? AND x.gen=? AND r.kind=? ORDER BY r.range_id", t.DocID, t.Gen, string(r.Kind))
		if err != nil {
			return err
		}
		// guard: flows: a node over the document has one result
		if err := s.dropRows(tx, "", s.grace, before); err != nil {
			return err
		}
		if err := takeBack(tx, r.DocumentID, []string{r.RangeID}); err != nil {
			return err
		}
		if err := s.insertResult(tx, doc.TenantID, doc.DatasetID, string(r.Kind), r); err != nil {
			return err
		}
		return insertRows(tx, "run_result_sources", resultSources, [][]any{{r.RangeID, t.DocID, t.Gen}}, "")
	})
}

var resultSources = []string{"range_id", "doc_id", "gen"}

func (s *handle) insertResult(tx *gorm.DB, tenantID, datasetID, kind string, r taskstore.RunResult) error {
	return insertRows(tx, "run_results", []string{"range_id", "tenant_id", "dataset_id", "kind", "doc_id", "name", "layer", "artifact_key", "chunk_count", "token_count", "created_at"},
		[][]any{{r.RangeID, tenantID, datasetID, kind, r.DocumentID, r.Name, r.Layer, sheaf.ArtifactKey(tenantID, r.DocumentID, r.RangeID), r.Chunks, r.Tokens, raw(s.now())}}, "")
}

// dropRunRanges drops results of a run's kind and dataset.
func (s *handle) dropRunRanges(tx *gorm.DB, held *runRow, rangeIDs []string) error {
	rows, err := byIDs[resultRow](tx, rangeIDs, "SELECT * FROM run_results WHERE range_id IN ? AND dataset_id=? AND kind=? ORDER BY range_id", held.DatasetID, held.Kind)
	if err != nil {
		return err
	}
	return s.dropRows(tx, "", s.grace, rows)
}

// DropRunResults removes results of a run's kind and dataset from search.
func (s *runs) DropRunResults(ctx context.Context, c sheaf.Claim, rangeIDs []string) error {
	for batch := range chunks(rangeIDs) {
		if err := s.tx(ctx, func(tx *gorm.DB) error {
			held, err := s.heldRun(tx, c)
			if err != nil {
				return err
			}
			return s.dropRunRanges(tx, held, batch)
		}); err != nil {
			return err
		}
	}
	return nil
}

// RunResults lists the visible results of a kind over a dataset by range id; if
// documentID is set, only those of that document. Their sources are omitted.
func (s *runs) RunResults(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, documentID, after string, limit int) ([]taskstore.RunResult, error) {
	q, args := "", []any{tenantID, datasetID, string(kind), after}
	if documentID != "" {
		q, args = " AND r.doc_id=? AND r.layer=0", append(args, documentID)
	}
	rows, err := all[resultRow](s.read(ctx), "SELECT r.* FROM run_results r JOIN documents d ON d.id=r.doc_id WHERE r.tenant_id=? AND r.dataset_id=? AND r.kind=? AND r.range_id>?"+q+visibleRun+" ORDER BY r.range_id LIMIT ?", append(args, limit)...)
	return mapped(rows, resultRow.toDomain), err
}

// RunForecast counts what a run of a kind over a dataset would find now. If its
// options differ from the previous run's, no document counts as current.
func (s *runs) RunForecast(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, sameOptions bool) (taskstore.RunForecast, error) {
	f, err := one[taskstore.RunForecast](s.read(ctx), "dataset", datasetID, `SELECT COUNT(*) AS documents, COALESCE(SUM(x.has), 0) AS current,
		COALESCE(SUM(CASE WHEN x.has=1 THEN 0 ELSE x.chunk_count END), 0) AS chunks, COALESCE(SUM(CASE WHEN x.has=1 THEN 0 ELSE x.token_count END), 0) AS tokens FROM (
		SELECT d.chunk_count, d.token_count, CASE WHEN EXISTS (SELECT 1 FROM run_results r WHERE r.dataset_id=d.dataset_id AND r.kind=? AND r.doc_id=d.id AND r.layer=0 AND ?=1`+visibleRun+`) THEN 1 ELSE 0 END AS has
		FROM documents d WHERE d.tenant_id=? AND d.dataset_id=? AND d.deleted_at=0 AND d.live_gen>0) x`, string(kind), flag(sameOptions), tenantID, datasetID)
	if err != nil {
		return taskstore.RunForecast{}, err
	}
	return *f, nil
}

// RunsDue lists the newest runs that ended long enough ago for the next to start
// automatically, oldest first. It does not check whether documents changed.
func (s *runs) RunsDue(ctx context.Context, limit int) ([]taskstore.DatasetRun, error) {
	rows, err := all[runRow](s.read(ctx), s.sql(runQuery+` WHERE r.auto_update>0 AND t.state='done' AND r.ended_at>0 AND r.ended_at+r.auto_update<=@now AND r.outcome<>'parked'
		AND NOT EXISTS (SELECT 1 FROM dataset_runs n WHERE n.dataset_id=r.dataset_id AND n.kind=r.kind AND n.number>r.number) ORDER BY r.ended_at, r.id LIMIT ?`), limit)
	return mapped(rows, runRow.toDomain), err
}

// dropResults removes from search, and hands to the collector, results with text of
// documents that changed or, with a receipt, were deleted.
func (s *handle) dropResults(tx *gorm.DB, receiptID string, documentIDs []string) error {
	ids, err := byIDs[string](tx, sortedUnique(documentIDs), "SELECT DISTINCT range_id FROM run_result_sources WHERE doc_id IN ? ORDER BY range_id")
	if err != nil || len(ids) == 0 {
		return err
	}
	rows, err := byIDs[resultRow](tx, sortedUnique(ids), "SELECT * FROM run_results WHERE range_id IN ? ORDER BY range_id")
	if err != nil {
		return err
	}
	grace := s.grace
	if receiptID != "" {
		grace = 0
	}
	return s.dropRows(tx, receiptID, grace, rows)
}

func (s *handle) dropRows(tx *gorm.DB, receiptID string, grace time.Duration, rows []resultRow) error {
	if len(rows) == 0 {
		return nil
	}
	due := s.after(grace)
	garbage := mapped(rows, func(r resultRow) []any { return []any{r.TenantID, r.DocID, r.RangeID, r.ArtifactKey, receiptID, due} })
	if err := insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "range_id", "artifact_key", "receipt_id", "not_before"}, garbage, ""); err != nil {
		return err
	}
	ids := mapped(rows, func(r resultRow) string { return r.RangeID })
	for _, q := range []string{"DELETE FROM run_result_sources WHERE range_id IN ?", "DELETE FROM run_results WHERE range_id IN ?"} {
		if _, err := execByIDs(tx, ids, q); err != nil {
			return err
		}
	}
	return nil
}

// dropSomeResults drops up to a batch of the results of a kind over a dataset, and
// reports whether there may be more.
func (s *handle) dropSomeResults(tx *gorm.DB, datasetID string, kind sheaf.TaskKind) (more bool, err error) {
	rows, err := all[resultRow](tx, "SELECT * FROM run_results WHERE dataset_id=? AND kind=? ORDER BY range_id LIMIT ?", datasetID, string(kind), purgeRows)
	if err != nil {
		return false, err
	}
	return len(rows) == purgeRows, s.dropRows(tx, "", s.grace, rows)
}
