package sqlstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

type queryRow struct {
	DatasetID string
	ID        string
	TenantID  string
	Version   int
	Question  string
	Source    string
	Expected  string // JSON list
	CreatedAt int64  `gorm:"autoCreateTime:false"`
	UpdatedAt int64  `gorm:"autoUpdateTime:false"`
}

func (r queryRow) toDomain() taskstore.SavedQuery {
	q := taskstore.SavedQuery{ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, Version: r.Version, Question: r.Question, Source: taskstore.QuerySource(r.Source), Expected: []taskstore.ExpectedAnswer{},
		CreatedAt: toTime(r.CreatedAt), UpdatedAt: toTime(r.UpdatedAt)}
	decode(r.Expected, &q.Expected)
	return q
}

type evaluationRow struct {
	DatasetID string
	ID        string
	TenantID  string
	Model     string
	Stale     int
	Measures  string // JSON
	Results   string // JSON list
	Cause     string
	State     string // JSON
	CreatedAt int64  `gorm:"autoCreateTime:false"`
}

func (r evaluationRow) toDomain() taskstore.Evaluation {
	e := taskstore.Evaluation{ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, Model: r.Model, Stale: r.Stale != 0, Cause: taskstore.EvaluationCause(r.Cause), CreatedAt: toTime(r.CreatedAt)}
	decode(r.State, &e.State)
	decode(r.Measures, &e.Measures)
	decode(r.Results, &e.Results)
	return e
}

// checkQuery rejects a query that not every engine can store.
func checkQuery(q *taskstore.SavedQuery) error {
	if err := checkText("the question", q.Question, taskstore.MaxQuestion); err != nil {
		return err
	}
	for _, e := range q.Expected {
		if err := checkTexts("the expected document", e.DocumentID, 64, "the expected text", e.Text, taskstore.MaxQuestion); err != nil {
			return err
		}
	}
	return nil
}

// SaveQueries adds queries to a dataset. An existing question keeps its id and gets
// the given expected hits, unless the new query is a generated one: then it is
// unchanged. ErrLimit, changing nothing, when the dataset would exceed the maximum.
func (s *evaluations) SaveQueries(ctx context.Context, tenantID, datasetID string, qs []taskstore.SavedQuery) (saved []taskstore.SavedQuery, err error) {
	for i := range qs {
		if err := checkQuery(&qs[i]); err != nil {
			return nil, err
		}
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		have, err := s.lockedQueries(tx, tenantID, datasetID)
		if err != nil {
			return err
		}
		ids, fresh := make([]string, len(qs)), 0
		var c script
		for i, q := range qs {
			was := slices.IndexFunc(have, func(h queryRow) bool { return h.Question == q.Question })
			expected := encodeList(q.Expected)
			switch {
			case was < 0:
				ids[i] = sheaf.NewID()
				fresh++
				have = append(have, queryRow{ID: ids[i], Question: q.Question, Expected: expected})
				c.insert("saved_queries", []string{"dataset_id", "id", "tenant_id", "version", "question", "source", "expected", "created_at", "updated_at"},
					[][]any{{datasetID, ids[i], tenantID, 1, q.Question, string(q.Source), expected, raw(s.now()), raw(s.now())}}, "")
			default:
				ids[i] = have[was].ID
				if q.Source == "" && have[was].Expected != expected {
					have[was].Expected = expected
					c.add(s.sql("UPDATE saved_queries SET expected=?, source='', version=version+1, updated_at=@now WHERE dataset_id=? AND id=?"), expected, datasetID, ids[i])
				}
			}
		}
		if len(have) > taskstore.MaxQueries {
			return limitFailure("saved queries of the dataset", int64(len(have)-fresh), int64(fresh), taskstore.MaxQueries)
		}
		if err := c.exec(tx); err != nil {
			return err
		}
		rows, err := byIDs[queryRow](tx, sortedUnique(ids), "SELECT * FROM saved_queries WHERE id IN ? AND dataset_id=? ORDER BY id", datasetID)
		saved = mapped(rows, queryRow.toDomain)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("save queries: %w", err)
	}
	return saved, nil
}

// lockedQueries returns the queries of a dataset after locking its row: of two
// concurrent saves of the same question, the second sees the first's.
func (s *evaluations) lockedQueries(tx *gorm.DB, tenantID, datasetID string) ([]queryRow, error) {
	if _, err := one[string](tx, "dataset", datasetID, "SELECT id FROM datasets WHERE tenant_id=? AND id=?"+s.d.lock, tenantID, datasetID); err != nil {
		return nil, err
	}
	return all[queryRow](tx, "SELECT id, question, expected FROM saved_queries WHERE dataset_id=? ORDER BY id LIMIT ?", datasetID, taskstore.MaxQueries)
}

// SavedQueries lists the queries of a dataset.
func (s *evaluations) SavedQueries(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.SavedQuery, string, error) {
	var w where
	w.add("dataset_id=? AND tenant_id=?", datasetID, tenantID)
	return page(s.read(ctx), "SELECT * FROM saved_queries", w, "id", p, func(r queryRow) string { return r.ID }, queryRow.toDomain)
}

// ChangeQuery writes a query's question and expected hits, and it no longer counts
// as generated. ErrConflict when another query of the dataset asks the same.
func (s *evaluations) ChangeQuery(ctx context.Context, q taskstore.SavedQuery) (changed *taskstore.SavedQuery, err error) {
	if err := checkQuery(&q); err != nil {
		return nil, err
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		have, err := s.lockedQueries(tx, q.TenantID, q.DatasetID)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(have, func(h queryRow) bool { return h.Question == q.Question && h.ID != q.ID }) {
			return fmt.Errorf("%w: another query of the dataset asks the same; change that one", sheaf.ErrConflict)
		}
		if err := run(tx, stmt(s.sql("UPDATE saved_queries SET question=?, source='', expected=?, version=version+1, updated_at=@now WHERE dataset_id=? AND id=? AND tenant_id=?"),
			q.Question, encodeList(q.Expected), q.DatasetID, q.ID, q.TenantID)); err != nil {
			return err
		}
		row, err := one[queryRow](tx, "query", q.ID, "SELECT * FROM saved_queries WHERE dataset_id=? AND id=? AND tenant_id=?", q.DatasetID, q.ID, q.TenantID)
		if err != nil {
			return err
		}
		d := row.toDomain()
		changed = &d
		return nil
	})
	return changed, err
}

// SampleQueries draws up to n queries with expected hits over all tenants, from the
// first ten thousand.
func (s *evaluations) SampleQueries(ctx context.Context, n int) ([]taskstore.SavedQuery, error) {
	const most = 10_000
	ids, err := all[string](s.read(ctx), "SELECT id FROM saved_queries WHERE expected<>'[]' ORDER BY dataset_id, id LIMIT ?", most)
	if err != nil {
		return nil, fmt.Errorf("sample queries: %w", err)
	}
	rand.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	rows, err := byIDs[queryRow](s.read(ctx), sortedUnique(ids[:min(n, len(ids))]), "SELECT * FROM saved_queries WHERE id IN ? ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("sample queries: %w", err)
	}
	return mapped(rows, queryRow.toDomain), nil
}

// DatasetsWithQueries lists up to limit datasets with saved queries, ordered by id,
// starting after after.
func (s *evaluations) DatasetsWithQueries(ctx context.Context, after string, limit int) ([]taskstore.DatasetRef, error) {
	var out []taskstore.DatasetRef
	for len(out) < limit {
		// One seek each: for a DISTINCT list some engines read every query.
		row, err := all[queryRow](s.read(ctx), "SELECT dataset_id, tenant_id FROM saved_queries WHERE dataset_id>? ORDER BY dataset_id, id LIMIT 1", after)
		if err != nil {
			return nil, fmt.Errorf("datasets with queries: %w", err)
		}
		if len(row) == 0 {
			break
		}
		after = row[0].DatasetID
		out = append(out, taskstore.DatasetRef{TenantID: row[0].TenantID, DatasetID: after})
	}
	return out, nil
}

// LastReparse returns the id of the newest re-parse job among a dataset's last
// hundred jobs; "" for none.
func (s *evaluations) LastReparse(ctx context.Context, tenantID, datasetID string) (string, error) {
	type jobKind struct{ ID, Kind string }
	jobs, err := all[jobKind](s.read(ctx), "SELECT id, kind FROM jobs WHERE tenant_id=? AND dataset_id=? ORDER BY id DESC LIMIT 100", tenantID, datasetID)
	if err != nil {
		return "", fmt.Errorf("last reparse: %w", err)
	}
	for _, j := range jobs {
		if j.Kind == string(sheaf.JobReparse) {
			return j.ID, nil
		}
	}
	return "", nil
}

// DeleteQuery deletes a query. Its results in evaluations stay.
func (s *evaluations) DeleteQuery(ctx context.Context, tenantID, datasetID, id string) error {
	return changed(s.write(ctx).Exec("DELETE FROM saved_queries WHERE dataset_id=? AND id=? AND tenant_id=?", datasetID, id, tenantID), "query", id)
}

// RecordEvaluation stores an evaluation, and deletes the oldest beyond the limit.
func (s *evaluations) RecordEvaluation(ctx context.Context, e taskstore.Evaluation) (*taskstore.Evaluation, error) {
	e.ID = sheaf.NewID()
	err := s.tx(ctx, func(tx *gorm.DB) error {
		if _, err := one[string](tx, "dataset", e.DatasetID, "SELECT id FROM datasets WHERE tenant_id=? AND id=?"+s.d.lock, e.TenantID, e.DatasetID); err != nil {
			return err
		}
		if err := insertRows(tx, "evaluations", []string{"dataset_id", "id", "tenant_id", "model", "stale", "measures", "results", "cause", "state", "created_at"},
			[][]any{{e.DatasetID, e.ID, e.TenantID, e.Model, flag(e.Stale), encode(e.Measures), encodeList(e.Results), string(e.Cause), encode(e.State), raw(s.now())}}, ""); err != nil {
			return err
		}
		old, err := all[string](tx, "SELECT id FROM evaluations WHERE dataset_id=? ORDER BY id DESC LIMIT 100 OFFSET ?", e.DatasetID, taskstore.MaxEvaluations)
		if err != nil || len(old) == 0 {
			return err
		}
		return run(tx, stmt("DELETE FROM evaluations WHERE dataset_id=? AND id IN ?", e.DatasetID, old))
	})
	if err != nil {
		return nil, fmt.Errorf("record evaluation: %w", err)
	}
	return s.Evaluation(ctx, e.TenantID, e.DatasetID, e.ID)
}

// Evaluations lists the evaluations of a dataset, without per-query results.
func (s *evaluations) Evaluations(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Evaluation, string, error) {
	var w where
	w.add("dataset_id=? AND tenant_id=?", datasetID, tenantID)
	return page(s.read(ctx), "SELECT dataset_id, id, tenant_id, model, stale, measures, cause, state, created_at FROM evaluations", w, "id", p, func(r evaluationRow) string { return r.ID }, evaluationRow.toDomain)
}

// Evaluation returns an evaluation with its per-query results.
func (s *evaluations) Evaluation(ctx context.Context, tenantID, datasetID, id string) (*taskstore.Evaluation, error) {
	row, err := one[evaluationRow](s.write(ctx), "evaluation", id, "SELECT * FROM evaluations WHERE dataset_id=? AND id=? AND tenant_id=?", datasetID, id, tenantID)
	if err != nil {
		return nil, err
	}
	e := row.toDomain()
	return &e, nil
}

// dropQueries deletes the queries and evaluations of a deleted dataset.
func dropQueries(tx *gorm.DB, datasetID string) error {
	return run(tx, stmt("DELETE FROM saved_queries WHERE dataset_id=?", datasetID), stmt("DELETE FROM evaluations WHERE dataset_id=?", datasetID))
}

// purgeQueries removes deleted documents from the expected hits of saved queries,
// which quote their text. The questions stay.
func (s *deletions) purgeQueries(ctx context.Context, r *receiptRow, ids []string) error {
	const expecting = "SELECT * FROM saved_queries WHERE dataset_id=? AND expected<>'[]' ORDER BY id LIMIT ?"
	gone := setOf(ids)
	left := func(q taskstore.SavedQuery) ([]taskstore.ExpectedAnswer, bool) {
		kept := slices.DeleteFunc(slices.Clone(q.Expected), func(e taskstore.ExpectedAnswer) bool { return gone[e.DocumentID] })
		return kept, len(kept) < len(q.Expected)
	}
	quotes := func(row queryRow) bool { _, less := left(row.toDomain()); return less }
	// Looked at first without a lock: most documents are in none.
	rows, err := all[queryRow](s.write(ctx), expecting, r.DatasetID, taskstore.MaxQueries)
	if err != nil || !slices.ContainsFunc(rows, quotes) {
		return err
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		rows, err := all[queryRow](tx, expecting+s.d.lock, r.DatasetID, taskstore.MaxQueries)
		if err != nil {
			return err
		}
		var c script
		for _, row := range rows {
			if kept, less := left(row.toDomain()); less {
				c.add("UPDATE saved_queries SET expected=?, version=version+1 WHERE dataset_id=? AND id=?", encodeList(kept), r.DatasetID, row.ID)
			}
		}
		return c.exec(tx)
	})
}
