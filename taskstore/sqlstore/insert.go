package sqlstore

import (
	"cmp"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"sheaf"
)

// taskBase is what tasks of one insert have in common.
type taskBase struct {
	TenantID   string
	DatasetID  string
	DocumentID string
	JobID      string
	Generation int
	Lane       sheaf.Lane
	Place      int64       // of the task that they follow, or of the document's plan
	Within     sheaf.Phase // of the task that they follow, if it is a piece of the document: they are parts of it
	Trace      string
	// Canceled inserts what would have to run as canceled: the work was
	// called off between being asked for and being written.
	Canceled bool
}

func (r *taskRow) base() taskBase {
	base := taskBase{TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.DocID, JobID: r.JobID, Generation: r.Gen,
		Lane: sheaf.Lane(r.Lane), Place: cmp.Or(r.Place, r.CreatedAt), Trace: r.Trace}
	if piece(sheaf.TaskKind(r.Kind)) {
		base.Within = sheaf.Phase(r.Phase)
	}
	return base
}

// piece reports whether tasks of the kind do a part of a document's work.
func piece(kind sheaf.TaskKind) bool {
	switch kind {
	case sheaf.KindParse, sheaf.KindIndex, sheaf.KindDataflow:
		return true
	}
	return false
}

// order is the phase and place of a task that is inserted with so many pieces
// of work.
func (b taskBase) order(kind sheaf.TaskKind, pieces int) (sheaf.Phase, int64) {
	switch {
	case kind == sheaf.KindFinalize:
		return sheaf.PhaseFinish, b.Place
	case !piece(kind):
		return sheaf.PhaseBegin, b.Place
	case b.Within != sheaf.PhaseFinish:
		return b.Within, b.Place
	case pieces > sheaf.BulkRanges:
		return sheaf.PhaseBulk, b.Place + int64(pieces)*sheaf.PieceDelay.Milliseconds()
	default:
		return sheaf.PhaseRanges, b.Place + int64(pieces)*sheaf.PieceDelay.Milliseconds()
	}
}

var taskColumns = []string{"id", "tenant_id", "dataset_id", "doc_id", "job_id", "gen", "kind", "node", "unit", "from_unit", "to_unit",
	"cost", "lane", "state", "paused", "run_at", "phase", "place", "unmet", "reuse_key", "digest", "range_id", "artifact_key", "chunk_count", "token_count",
	"reused", "payload", "result", "trace", "created_at", "finished_at"}

// insertTasks writes tasks; one whose (document, generation, kind, node,
// range) exists is left out, so that splitting twice is splitting once. Tasks
// that wait for others are parked, tasks with a result are done, and all are
// paused when their job, dataset or tenant is.
func (s *Store) insertTasks(tx *gorm.DB, base taskBase, tasks []sheaf.NewTask) error {
	if len(tasks) == 0 {
		return nil
	}
	paused, err := s.inheritPaused(tx, base)
	if err != nil {
		return err
	}
	inBatch := make(map[string]*sheaf.NewTask, len(tasks))
	for i := range tasks {
		inBatch[tasks[i].ID] = &tasks[i]
	}
	unmet, deps, err := s.resolveDeps(tx, base, tasks, inBatch)
	if err != nil {
		return err
	}

	pieces := 0
	for _, t := range tasks {
		if t.Done == nil && piece(t.Kind) {
			pieces++
		}
	}
	now := raw(s.now())
	rows := make([][]any, 0, len(tasks))
	for _, t := range tasks {
		state, finished := sheaf.TaskPending, any(0)
		var res sheaf.TaskResult
		result, reused := "", 0
		switch {
		case t.Done != nil:
			state, finished, res, result = sheaf.TaskDone, now, *t.Done, encode(t.Done)
			if res.Reused {
				reused = 1
			}
		case base.Canceled:
			state, finished = sheaf.TaskCanceled, now
		case unmet[t.ID] > 0:
			state = sheaf.TaskParked
		}
		phase, place := base.order(t.Kind, pieces)
		rows = append(rows, []any{t.ID, base.TenantID, base.DatasetID, base.DocumentID, base.JobID, base.Generation, string(t.Kind), t.Node,
			string(t.Unit), t.Range.From, t.Range.To, max(t.Cost, 1), int(base.Lane), string(state), paused, now, int(phase), place, unmet[t.ID], t.ReuseKey, t.Digest,
			res.RangeID, res.ArtifactKey, res.Chunks, res.Tokens, reused, s.vault.hide(base.TenantID, string(t.Payload)), result, clip(base.Trace, 128), now, finished})
	}
	if err := insertRows(tx, "tasks", taskColumns, rows, s.d.noop("id")); err != nil {
		return fmt.Errorf("insert %d tasks: %w", len(tasks), err)
	}
	if len(deps) > 0 {
		if err := insertRows(tx, "task_deps", []string{"child_id", "parent_id", "done"}, deps, s.d.noop("child_id")); err != nil {
			return err
		}
	}
	if base.Canceled {
		return s.logCanceled(tx, tasks)
	}
	return nil
}

// logCanceled writes the events of tasks that were canceled by being inserted.
func (s *Store) logCanceled(tx *gorm.DB, tasks []sheaf.NewTask) error {
	for batch := range chunks(tasks) {
		ids := make([]string, len(batch))
		for i, t := range batch {
			ids[i] = t.ID
		}
		var rows []taskRow
		if err := tx.Raw("SELECT * FROM tasks WHERE id IN ? AND state='canceled' ORDER BY id", ids).Scan(&rows).Error; err != nil {
			return err
		}
		events := make([]eventRow, len(rows))
		for i := range rows {
			events[i] = rows[i].event(sheaf.EventCanceled, 0)
		}
		if err := s.insertEvents(tx, events...); err != nil {
			return err
		}
	}
	return nil
}

// resolveDeps finds, for each task that depends on others, how many of them
// are not done, and the rows of task_deps. The parents are locked, so that
// none ends between being looked at and being waited for.
func (s *Store) resolveDeps(tx *gorm.DB, base taskBase, tasks []sheaf.NewTask, inBatch map[string]*sheaf.NewTask) (unmet map[string]int, deps [][]any, err error) {
	unmet = map[string]int{}
	var outside []string
	for _, t := range tasks {
		for _, p := range t.DependsOn {
			if inBatch[p] == nil {
				outside = append(outside, p)
			}
		}
	}
	state := map[string]string{}
	for ids := range chunks(sortedUnique(outside)) {
		var rows []taskRow
		if err := tx.Raw("SELECT id, state FROM tasks WHERE id IN ? ORDER BY id"+s.d.share, ids).Scan(&rows).Error; err != nil {
			return nil, nil, err
		}
		for _, r := range rows {
			state[r.ID] = r.State
		}
	}
	for _, t := range tasks {
		for _, p := range t.DependsOn {
			id := p
			if parent := inBatch[p]; parent != nil {
				// The parent may exist under the id of an earlier split.
				var old []taskRow
				if err := tx.Raw("SELECT id, state FROM tasks WHERE doc_id=? AND gen=? AND kind=? AND node=? AND from_unit=? AND to_unit=?"+s.d.share,
					base.DocumentID, base.Generation, string(parent.Kind), parent.Node, parent.Range.From, parent.Range.To).Scan(&old).Error; err != nil {
					return nil, nil, err
				}
				if len(old) > 0 {
					id, state[old[0].ID] = old[0].ID, old[0].State
				} else if parent.Done != nil {
					state[id] = string(sheaf.TaskDone)
				} else {
					state[id] = string(sheaf.TaskPending)
				}
			}
			st, ok := state[id]
			if !ok {
				return nil, nil, fmt.Errorf("%w: task %s depends on task %s, which does not exist", sheaf.ErrInvalid, t.ID, p)
			}
			done := 1
			if st != string(sheaf.TaskDone) {
				done = 0
				unmet[t.ID]++
			}
			deps = append(deps, []any{t.ID, id, done})
		}
	}
	return unmet, deps, nil
}

// inheritPaused answers 1 when the job, dataset or tenant is paused. The rows
// are locked against change, so that a pause either is seen here or sees the
// tasks that are being written.
func (s *Store) inheritPaused(tx *gorm.DB, base taskBase) (int, error) {
	for _, q := range []struct{ table, id string }{{"tenants", base.TenantID}, {"datasets", base.DatasetID}, {"jobs", base.JobID}} {
		if q.id == "" {
			continue
		}
		var paused []int
		if err := tx.Raw("SELECT paused FROM "+q.table+" WHERE id=?"+s.d.share, q.id).Scan(&paused).Error; err != nil {
			return 0, err
		}
		if len(paused) > 0 && paused[0] != 0 {
			return 1, nil
		}
	}
	return 0, nil
}

var eventColumns = []string{"tenant_id", "dataset_id", "job_id", "doc_id", "gen", "task_id", "subject_id", "epoch", "kind", "n",
	"worker_id", "level", "text", "detail", "at"}

// insertEvents appends to the log, as logEvents does.
func (s *Store) insertEvents(tx *gorm.DB, events ...eventRow) error {
	var c script
	s.logEvents(&c, events)
	return c.exec(tx)
}

// logEvents appends to the log, under the database's time. Events that are
// there already, by subject, epoch, kind and n, are left as they are.
func (s *Store) logEvents(c *script, events []eventRow) {
	now := raw(s.now())
	rows := make([][]any, len(events))
	for i, e := range events {
		rows[i] = []any{e.TenantID, e.DatasetID, e.JobID, e.DocID, e.Gen, e.TaskID, e.SubjectID, e.Epoch, e.Kind, e.N,
			e.WorkerID, clip(e.Level, 8), clip(e.Text, 1000), e.Detail, now}
	}
	c.insert("events", eventColumns, rows, s.d.noop("seq"))
}

// insertDocumentEvent logs that a document, whose row the transaction has
// locked, changed state, and tells webhooks when that is an end.
func (s *Store) insertDocumentEvent(tx *gorm.DB, d *documentRow, change sheaf.DocumentChange) error {
	var n []int64
	if err := tx.Raw("SELECT COALESCE(MAX(n), -1) FROM events WHERE subject_id=? AND epoch=? AND kind=?", d.ID, d.Gen, sheaf.EventDocument).Scan(&n).Error; err != nil {
		return err
	}
	if change.State.Terminal() {
		if err := s.tellDocument(tx, d, string(change.State), n[0]+1, change.Failure); err != nil {
			return err
		}
	}
	return s.insertEvents(tx, eventRow{TenantID: d.TenantID, DatasetID: d.DatasetID, JobID: d.JobID, DocID: d.ID, Gen: d.Gen,
		SubjectID: d.ID, Epoch: int64(d.Gen), Kind: sheaf.EventDocument, N: n[0] + 1, Detail: encode(change)})
}

// markDirty asks Fold to look at documents, as dirty does.
func (s *Store) markDirty(tx *gorm.DB, documentIDs ...string) error {
	var c script
	s.dirty(&c, documentIDs)
	return c.exec(tx)
}

// dirty asks Fold to look at documents. The marks' time only grows, so that
// Fold can tell whether something happened while it looked. They are made by
// id, so that two that mark the same documents meet in one order.
func (s *Store) dirty(c *script, documentIDs []string) {
	now := raw(s.now())
	var rows [][]any
	for _, id := range sortedUnique(documentIDs) {
		if id != "" {
			rows = append(rows, []any{id, now})
		}
	}
	suffix := " ON CONFLICT (doc_id) DO UPDATE SET at=" + s.d.greatest + "(doc_dirty.at+1, excluded.at)"
	if s.d.name == "mysql" {
		suffix = " ON DUPLICATE KEY UPDATE at=GREATEST(at+1, VALUES(at))"
	}
	c.insert("doc_dirty", []string{"doc_id", "at"}, rows, suffix)
}

// insertGarbage hands the range result that an attempt at a task may have
// begun to the collector.
func (s *Store) insertGarbage(tx *gorm.DB, t *taskRow, epoch int64) error {
	if !t.hasRange() {
		return nil
	}
	rangeID := sheaf.RangeID(t.ID, epoch)
	return tx.Exec(s.sql("INSERT INTO garbage (tenant_id, doc_id, range_id, artifact_key, not_before) VALUES (?, ?, ?, ?, @now+?)"),
		t.TenantID, t.DocID, rangeID, sheaf.ArtifactKey(t.TenantID, t.DocID, rangeID), s.grace.Milliseconds()).Error
}

// chunks cuts ids into lists that a statement can take.
func chunks[T any](ids []T) func(yield func([]T) bool) { return slices.Chunk(ids, 500) }

func sortedUnique(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}
