package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

type runRow struct {
	DatasetID string
	Kind      string
	Number    int
	ID        string
	TenantID  string
	TaskID    string
	Options   string // JSON
	Outcome   string // "" while the task has the run's state
	Cause     string
	Progress  string // JSON
	Result    string // JSON
	Documents int
	CreatedAt int64 `gorm:"autoCreateTime:false"`
	EndedAt   int64

	TaskState    string // "" if the task is gone
	TaskStarted  int64
	TaskFinished int64
	TaskFailure  string
}

// runQuery reads runs with the state of their tasks.
const runQuery = `SELECT r.*, COALESCE(t.state, '') AS task_state, COALESCE(t.started_at, 0) AS task_started, COALESCE(t.finished_at, 0) AS task_finished,
	COALESCE(t.failure, '') AS task_failure FROM dataset_runs r LEFT JOIN tasks t ON t.id=r.task_id`

func (r runRow) toDomain() taskstore.DatasetRun {
	d := taskstore.DatasetRun{ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, Kind: sheaf.TaskKind(r.Kind), Number: r.Number, TaskID: r.TaskID,
		State: r.state(), Cause: r.Cause, Documents: r.Documents, Failure: decodeFailure(r.TaskFailure),
		CreatedAt: toTime(r.CreatedAt), StartedAt: toTime(r.TaskStarted), FinishedAt: toTime(cmp.Or(r.EndedAt, r.TaskFinished))}
	decode(r.Options, &d.Options)
	decode(r.Progress, &d.Progress)
	if r.Result != "" {
		d.Result = json.RawMessage(r.Result)
	}
	if d.State == taskstore.RunFailed && d.Failure != nil {
		d.Cause = d.Failure.Message
	}
	if d.State.Open() {
		d.FinishedAt = toTime(0)
	}
	return d
}

// state returns the task's state while it is open or if it ended without success.
func (r runRow) state() taskstore.RunState {
	switch sheaf.TaskState(r.TaskState) {
	case sheaf.TaskRunning:
		return taskstore.RunRunning
	case sheaf.TaskDone:
		return taskstore.RunState(cmp.Or(r.Outcome, string(taskstore.RunSucceeded)))
	case sheaf.TaskDead:
		return taskstore.RunFailed
	case "", sheaf.TaskCanceled, sheaf.TaskSuperseded:
		return taskstore.RunCanceled
	}
	return taskstore.RunQueued
}

// lockRuns locks a dataset against other starts, and returns its runs of a kind,
// newest first.
func (s *runs) lockRuns(tx *gorm.DB, tenantID, datasetID string, kind sheaf.TaskKind) ([]runRow, error) {
	if _, err := one[string](tx, "dataset", datasetID, "SELECT id FROM datasets WHERE tenant_id=? AND id=?"+s.d.lock, tenantID, datasetID); err != nil {
		return nil, err
	}
	return all[runRow](tx, runQuery+" WHERE r.dataset_id=? AND r.kind=? ORDER BY r.number DESC LIMIT 100", datasetID, string(kind))
}

// openRun fails if one of the runs is open.
func openRun(rows []runRow) error {
	for _, r := range rows {
		if r.state().Open() {
			return &taskstore.RunOpen{ID: r.ID, Kind: sheaf.TaskKind(r.Kind)}
		}
	}
	return nil
}

// StartRun starts a run of r.Kind over the dataset's currently live documents.
// *RunOpen while another of the kind is open. The oldest runs beyond MaxRuns are
// removed.
func (s *runs) StartRun(ctx context.Context, r taskstore.DatasetRun, trace string) (*taskstore.DatasetRun, error) {
	if len(r.Options.Config) > taskstore.MaxRunResult {
		return nil, fmt.Errorf("%w: the configuration of a run has %d bytes; at most %d are taken", sheaf.ErrInvalid, len(r.Options.Config), taskstore.MaxRunResult)
	}
	r.ID, r.TaskID = sheaf.NewID(), sheaf.NewID()
	err := s.tx(ctx, func(tx *gorm.DB) error {
		have, err := s.lockRuns(tx, r.TenantID, r.DatasetID, r.Kind)
		if err != nil {
			return err
		}
		if err := openRun(have); err != nil {
			return err
		}
		number := 1
		if len(have) > 0 {
			number = have[0].Number + 1
		}
		if err := run(tx, stmt(`INSERT INTO dataset_run_documents (run_id, doc_id, gen)
			SELECT ?, id, live_gen FROM documents WHERE tenant_id=? AND dataset_id=? AND deleted_at=0 AND live_gen>0`, r.ID, r.TenantID, r.DatasetID)); err != nil {
			return err
		}
		documents, err := first[int](tx, "SELECT COUNT(*) FROM dataset_run_documents WHERE run_id=?", r.ID)
		if err != nil {
			return err
		}
		if err := insertRows(tx, "dataset_runs", []string{"dataset_id", "kind", "number", "id", "tenant_id", "task_id", "options", "outcome", "cause", "progress", "result", "documents", "created_at", "ended_at", "auto_update"},
			[][]any{{r.DatasetID, string(r.Kind), number, r.ID, r.TenantID, r.TaskID, encode(r.Options), "", "", encode(r.Progress), "", value(documents), raw(s.now()), 0, r.Options.AutoUpdate.Milliseconds()}}, ""); err != nil {
			return err
		}
		if len(have) >= taskstore.MaxRuns {
			if err := forgetRuns(tx, have[taskstore.MaxRuns-1:]); err != nil {
				return err
			}
		}
		return s.queueRun(tx, r, trace)
	})
	if err != nil {
		return nil, fmt.Errorf("start run: %w", err)
	}
	return s.Run(ctx, r.TenantID, r.DatasetID, r.ID)
}

// queueRun creates the task of a run. It belongs to no document and no job, so it
// cannot affect the progress or state of one.
func (s *runs) queueRun(tx *gorm.DB, r taskstore.DatasetRun, trace string) error {
	now, err := s.clockTime(tx)
	if err != nil {
		return err
	}
	base := taskBase{TenantID: r.TenantID, DatasetID: r.DatasetID, Lane: sheaf.LaneBackfill, Place: now, Trace: trace}
	return s.insertTasks(tx, base, []sheaf.NewTask{{ID: r.TaskID, Kind: r.Kind, Node: r.TaskID, Cost: 1, Payload: json.RawMessage(encode(map[string]string{"run": r.ID}))}})
}

// forgetRuns removes runs that have ended, and the list of documents they read.
func forgetRuns(tx *gorm.DB, rows []runRow) error {
	for _, r := range rows {
		if err := run(tx, stmt("DELETE FROM dataset_run_documents WHERE run_id=?", r.ID), stmt("DELETE FROM dataset_runs WHERE id=?", r.ID),
			stmt("DELETE FROM tasks WHERE id=? AND state IN ('done','dead','canceled','superseded')", r.TaskID)); err != nil {
			return err
		}
	}
	return nil
}

// ResumeRun queues a parked, partial, failed or canceled run again, over the
// documents it started with. ErrConflict if it succeeded, or if there is a newer
// one.
func (s *runs) ResumeRun(ctx context.Context, tenantID, datasetID, id string, options taskstore.RunOptions, trace string) (*taskstore.DatasetRun, error) {
	err := s.tx(ctx, func(tx *gorm.DB) error {
		found, err := one[runRow](tx, "run", id, runQuery+" WHERE r.id=? AND r.tenant_id=? AND r.dataset_id=?", id, tenantID, datasetID)
		if err != nil {
			return err
		}
		have, err := s.lockRuns(tx, tenantID, datasetID, sheaf.TaskKind(found.Kind))
		if err != nil {
			return err
		}
		if err := openRun(have); err != nil {
			return err
		}
		at := slices.IndexFunc(have, func(r runRow) bool { return r.ID == id })
		switch {
		case at != 0:
			return fmt.Errorf("%w: a newer run has followed this one; start another", sheaf.ErrConflict)
		case have[0].state() == taskstore.RunSucceeded:
			return fmt.Errorf("%w: the run has succeeded; start another to take what changed since", sheaf.ErrConflict)
		}
		r := have[0].toDomain()
		r.TaskID = sheaf.NewID()
		if err := run(tx, stmt("UPDATE dataset_runs SET task_id=?, options=?, outcome='', cause='', ended_at=0, auto_update=? WHERE id=?", r.TaskID, encode(options), options.AutoUpdate.Milliseconds(), id),
			stmt("DELETE FROM tasks WHERE id=? AND state IN ('done','dead','canceled','superseded')", have[0].TaskID)); err != nil {
			return err
		}
		return s.queueRun(tx, r, trace)
	})
	if err != nil {
		return nil, fmt.Errorf("resume run: %w", err)
	}
	return s.Run(ctx, tenantID, datasetID, id)
}

// CancelRun stops a run: immediately while it waits, otherwise as soon as its
// executor is notified. ErrConflict if it has ended.
func (s *runs) CancelRun(ctx context.Context, tenantID, datasetID, id string) (receipt taskstore.CancelReceipt, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		found, err := one[runRow](tx, "run", id, runQuery+" WHERE r.id=? AND r.tenant_id=? AND r.dataset_id=?", id, tenantID, datasetID)
		if err != nil {
			return err
		}
		rows, err := all[taskRow](tx, "SELECT "+openColumns+" FROM tasks WHERE id=? AND "+isOpen+s.d.lock, found.TaskID)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("%w: the run is over; only one that waits or runs can be canceled", sheaf.ErrConflict)
		}
		receipt, err = s.cancelRows(tx, rows)
		return err
	})
	return receipt, err
}

// Runs lists the runs of a kind, or of all for "", over a dataset, newest first.
// Behind is not counted.
func (s *runs) Runs(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, p taskstore.Page) ([]taskstore.DatasetRun, string, error) {
	var w where
	w.add("r.dataset_id=? AND r.tenant_id=?", datasetID, tenantID)
	w.when(kind != "", "r.kind=?", string(kind))
	return page(s.read(ctx), runQuery, w, "r.id", p, func(r runRow) string { return r.ID }, runRow.toDomain)
}

// Run reads a run, and counts how many documents it is behind.
func (s *runs) Run(ctx context.Context, tenantID, datasetID, id string) (*taskstore.DatasetRun, error) {
	row, err := one[runRow](s.write(ctx), "run", id, runQuery+" WHERE r.id=? AND r.tenant_id=? AND r.dataset_id=?", id, tenantID, datasetID)
	if err != nil {
		return nil, err
	}
	d := row.toDomain()
	for _, q := range []struct {
		text string
		args []any
	}{
		// New or changed documents, and deleted ones.
		{`SELECT COUNT(*) FROM documents d LEFT JOIN dataset_run_documents r ON r.run_id=? AND r.doc_id=d.id
			WHERE d.tenant_id=? AND d.dataset_id=? AND d.deleted_at=0 AND d.live_gen>0 AND (r.gen IS NULL OR r.gen<>d.live_gen)`, []any{id, tenantID, datasetID}},
		{`SELECT COUNT(*) FROM dataset_run_documents r LEFT JOIN documents d ON d.id=r.doc_id AND d.deleted_at=0 AND d.live_gen>0 WHERE r.run_id=? AND d.id IS NULL`, []any{id}},
	} {
		n, err := first[int](s.read(ctx), q.text, q.args...)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", id, err)
		}
		d.Behind += value(n)
	}
	return &d, nil
}

// WipeRuns removes the results of a kind's runs over a dataset, and the runs.
// *RunOpen while one is open.
func (s *runs) WipeRuns(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind) (wiped int, err error) {
	for more := true; more && err == nil; {
		wiped, more, err = s.wipeSome(ctx, tenantID, datasetID, kind)
	}
	return wiped, err
}

func (s *runs) wipeSome(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind) (wiped int, more bool, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		have, err := s.lockRuns(tx, tenantID, datasetID, kind)
		if err != nil {
			return err
		}
		if err := openRun(have); err != nil {
			return err
		}
		wiped = len(have)
		if more, err = s.dropSomeResults(tx, datasetID, kind); err != nil || more {
			return err
		}
		return forgetRuns(tx, have)
	})
	return wiped, more, err
}

// dropRuns stops and removes the runs over a deleted dataset.
func (s *datasets) dropRuns(tx *gorm.DB, datasetID string) error {
	// Its documents, and with them the results they were sources of, are gone already.
	if err := run(tx, stmt("DELETE FROM run_result_sources WHERE range_id IN (SELECT range_id FROM run_results WHERE dataset_id=?)", datasetID),
		stmt("DELETE FROM run_results WHERE dataset_id=?", datasetID)); err != nil {
		return err
	}
	rows, err := all[runRow](tx, "SELECT id, task_id FROM dataset_runs WHERE dataset_id=? ORDER BY id", datasetID)
	if err != nil || len(rows) == 0 {
		return err
	}
	open, err := byIDs[taskRow](tx, sortedUnique(mapped(rows, func(r runRow) string { return r.TaskID })), "SELECT "+openColumns+" FROM tasks WHERE id IN ? AND "+isOpen+" ORDER BY id"+s.d.lock)
	if err != nil {
		return err
	}
	if _, err := (&changes{s.handle}).cancelRows(tx, open); err != nil {
		return err
	}
	return forgetRuns(tx, rows)
}

// heldRun locks the run whose task is held under a claim. ErrStale when the claim
// has ended, or if there is a newer run: only the newest may write.
func (s *handle) heldRun(tx *gorm.DB, c sheaf.Claim) (*runRow, error) {
	held, err := first[taskRow](tx, "SELECT id, dataset_id, kind FROM tasks WHERE id=? AND state='running' AND epoch=?"+s.d.lock, c.TaskID, c.Epoch)
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, notHeld(c)
	}
	newest, err := first[runRow](tx, "SELECT * FROM dataset_runs WHERE dataset_id=? AND kind=? ORDER BY number DESC LIMIT 1", held.DatasetID, held.Kind)
	if err != nil {
		return nil, err
	}
	if newest == nil || newest.TaskID != c.TaskID {
		return nil, fmt.Errorf("%w: task %s is not that of the newest run", sheaf.ErrStale, c.TaskID)
	}
	return newest, nil
}

// HeldRun returns the run whose task is held under a claim.
func (s *runs) HeldRun(ctx context.Context, c sheaf.Claim) (out *taskstore.DatasetRun, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.heldRun(tx, c)
		if err == nil {
			d := row.toDomain()
			d.State = taskstore.RunRunning
			out = &d
		}
		return err
	})
	return out, err
}

// ReportRun stores a run's progress.
func (s *runs) ReportRun(ctx context.Context, c sheaf.Claim, p taskstore.RunProgress) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.heldRun(tx, c)
		if err != nil {
			return err
		}
		return run(tx, stmt("UPDATE dataset_runs SET progress=? WHERE id=?", encode(p), row.ID))
	})
}

// endRun stores the outcome of a run whose task was done in this transaction.
func (s *handle) endRun(tx *gorm.DB, t *taskRow, end *taskstore.RunEnd) error {
	if len(end.Result) > taskstore.MaxRunResult {
		return fmt.Errorf("%w: the result of a run has %d bytes, more than %d", sheaf.ErrInvalid, len(end.Result), taskstore.MaxRunResult)
	}
	n, err := exec(tx, s.sql("UPDATE dataset_runs SET outcome=?, cause=?, progress=?, result=?, ended_at=@now WHERE task_id=? AND dataset_id=? AND kind=?"),
		string(end.State), clip(end.Cause, 1000), encode(end.Progress), string(end.Result), t.ID, t.DatasetID, t.Kind)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: task %s is that of no run", sheaf.ErrStale, t.ID)
	}
	return err
}

// RunDocuments lists documents of a run, by id, that are still live in the version
// they had when it started: the others are behind, and the next run reads them.
func (s *runs) RunDocuments(ctx context.Context, runID, after string, limit int) ([]taskstore.RunDocument, error) {
	type row struct {
		DocID, Name, MediaType, RangeID, ArtifactKey string
		Gen, FromUnit, ToUnit, ChunkCount            int
	}
	docs, err := all[row](s.read(ctx), `SELECT r.doc_id, d.name, d.media_type, r.gen FROM dataset_run_documents r JOIN documents d ON d.id=r.doc_id
		WHERE r.run_id=? AND r.doc_id>? AND d.deleted_at=0 AND d.live_gen=r.gen ORDER BY r.doc_id LIMIT ?`, runID, after, limit)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	ranges, err := byIDs[row](s.read(ctx), mapped(docs, func(r row) string { return r.DocID }), `SELECT doc_id, gen, from_unit, to_unit, range_id, artifact_key, chunk_count FROM tasks
		WHERE doc_id IN ? AND state='done' AND range_id<>'' AND chunk_count>0 AND kind<>'dataflow' ORDER BY doc_id, from_unit, id`)
	if err != nil {
		return nil, err
	}
	edits, err := byIDs[editRow](s.read(ctx), mapped(docs, func(r row) string { return r.DocID }), `SELECT doc_id, id, version, added, gen, chunk_id, base_range, range_id, hides FROM chunk_edits
		WHERE doc_id IN ? ORDER BY doc_id, created_at, id`)
	if err != nil {
		return nil, err
	}
	out := make([]taskstore.RunDocument, len(docs))
	for i, d := range docs {
		out[i] = taskstore.RunDocument{ID: d.DocID, Name: d.Name, MediaType: d.MediaType, Generation: d.Gen}
		for _, r := range ranges {
			if r.DocID == d.DocID && r.Gen == d.Gen {
				out[i].Ranges = append(out[i].Ranges, taskstore.RunRange{Range: sheaf.Range{From: r.FromUnit, To: r.ToUnit}, RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.ChunkCount})
			}
		}
		for _, e := range edits {
			if e.DocID != d.DocID {
				continue
			}
			out[i].Version += 1 + e.Version
			if e.Gen == d.Gen && (e.RangeID != "" || e.Hides != 0) {
				out[i].Edited = append(out[i].Edited, taskstore.RunEdit{BaseRange: e.BaseRange, ChunkID: e.ChunkID, RangeID: e.RangeID, Added: e.Added != 0})
			}
		}
	}
	return out, nil
}

// RunItems lists the blobs that may hold the answer to a question, by its name: the
// document's first, then a few of other documents of the tenant.
func (s *runs) RunItems(ctx context.Context, tenantID, name, documentID string) ([]string, error) {
	const most = 8
	keys, err := all[string](s.read(ctx), "SELECT blob_key FROM run_items WHERE tenant_id=? AND name=? ORDER BY CASE WHEN doc_id=? THEN 0 ELSE 1 END, doc_id LIMIT ?", tenantID, name, documentID, most)
	if err != nil {
		return nil, fmt.Errorf("run items: %w", err)
	}
	return keys, nil
}

// NoteRunItem records the blob that will hold an answer, for the documents whose
// text it is about: when the first of them is deleted, the collector removes it.
// ErrNotFound if one of them is deleted already.
func (s *runs) NoteRunItem(ctx context.Context, tenantID, name, blobKey string, documentIDs []string) error {
	ids := sortedUnique(documentIDs)
	return s.tx(ctx, func(tx *gorm.DB) error {
		live, err := byIDs[string](tx, ids, "SELECT id FROM documents WHERE id IN ? AND tenant_id=? AND deleted_at=0 ORDER BY id"+s.d.share, tenantID)
		if err != nil {
			return err
		}
		if len(live) < len(ids) {
			return notFound("document", "of the answer")
		}
		return insertRows(tx, "run_items", []string{"tenant_id", "name", "doc_id", "blob_key"},
			mapped(ids, func(id string) []any { return []any{tenantID, name, id, blobKey} }), s.d.upsert("tenant_id, name, doc_id", "blob_key"))
	})
}

// purgeRuns removes every answer that used the text of a deleted document.
func (s *deletions) purgeRuns(ctx context.Context, _ *receiptRow, id string) error {
	for {
		n := 0
		err := s.tx(ctx, func(tx *gorm.DB) error {
			keys, err := all[string](tx, "SELECT blob_key FROM run_items WHERE doc_id=? ORDER BY blob_key LIMIT ?", id, purgeRows)
			if n = len(keys); err != nil || n == 0 {
				return err
			}
			keys = sortedUnique(keys)
			var tenant *string
			if tenant, err = first[string](tx, "SELECT tenant_id FROM documents WHERE id=?", id); err != nil {
				return err
			}
			garbage := mapped(keys, func(key string) []any { return []any{value(tenant), id, "", key, raw(s.now())} })
			if err := insertRows(tx, "garbage", rangeGarbage, garbage, ""); err != nil {
				return err
			}
			// Other documents' rows for a shared answer are deleted with it.
			names, err := byIDs[string](tx, keys, "SELECT DISTINCT name FROM run_items WHERE blob_key IN ? AND doc_id=? ORDER BY name", id)
			if err != nil {
				return err
			}
			return run(tx, stmt("DELETE FROM run_items WHERE tenant_id=? AND name IN ? AND blob_key IN ?", value(tenant), names, keys))
		})
		if err != nil {
			return err
		}
		if n < purgeRows {
			return nil
		}
	}
}
