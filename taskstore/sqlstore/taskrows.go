package sqlstore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
)

// isOpen holds for tasks that are not terminal. It lists the others, so that
// no planner takes an index that begins with the state: a backlog of a million
// pending tasks would be searched for those of one document.
const isOpen = "state NOT IN ('done','dead','canceled','superseded')"

// stopped is what stopTasks did.
type stopped struct {
	queued  int // tasks that were not running
	running []string
}

// stopTasks ends every open task of the documents, whose rows the transaction
// has locked, under a new epoch: whoever runs one finds all its writes refused
// from then on, and what the attempt has written so far goes to the collector.
func (s *handle) stopTasks(tx *gorm.DB, documentIDs []string, state sheaf.TaskState, event, text string) (stopped, error) {
	var out stopped
	var rows []taskRow
	if err := tx.Raw(`SELECT id, tenant_id, dataset_id, doc_id, job_id, gen, kind, state, epoch, worker_id FROM tasks
		WHERE doc_id IN ? AND `+isOpen+" ORDER BY id"+s.d.lock, documentIDs).Scan(&rows).Error; err != nil {
		return out, err
	}
	ids := make([]string, len(rows))
	events := make([]eventRow, len(rows))
	var garbage [][]any
	due := raw(fmt.Sprintf("%s+%d", s.now(), s.grace.Milliseconds()))
	for i := range rows {
		r := &rows[i]
		ids[i] = r.ID
		events[i] = r.event(event, r.Epoch+1)
		events[i].Text = text
		if r.State != string(sheaf.TaskRunning) {
			out.queued++
			continue
		}
		out.running = append(out.running, r.ID)
		if r.hasRange() {
			id := sheaf.RangeID(r.ID, r.Epoch)
			garbage = append(garbage, []any{r.TenantID, r.DocID, id, sheaf.ArtifactKey(r.TenantID, r.DocID, id), due})
		}
	}
	for batch := range chunks(ids) {
		if err := tx.Exec(s.sql(`UPDATE tasks SET state=?, epoch=epoch+1, lease_until=0, enqueued_at=0, finished_at=@now
			WHERE id IN ? AND `+isOpen), string(state), batch).Error; err != nil {
			return out, err
		}
	}
	if err := insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "range_id", "artifact_key", "not_before"}, garbage, ""); err != nil {
		return out, err
	}
	return out, s.insertEvents(tx, events...)
}

// endGenerations makes the open generations of documents canceled.
func (s *handle) endGenerations(tx *gorm.DB, ids []string, failure string) error {
	return tx.Exec(s.sql(`UPDATE generations SET state='canceled', failure=?, finished_at=@now
		WHERE doc_id IN ? AND state NOT IN ('succeeded','partially_succeeded','failed','canceled')`), failure, ids).Error
}

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
func (s *handle) insertTasks(tx *gorm.DB, base taskBase, tasks []sheaf.NewTask) error {
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
func (s *handle) logCanceled(tx *gorm.DB, tasks []sheaf.NewTask) error {
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
func (s *handle) resolveDeps(tx *gorm.DB, base taskBase, tasks []sheaf.NewTask, inBatch map[string]*sheaf.NewTask) (unmet map[string]int, deps [][]any, err error) {
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

// insertGarbage hands the range result that an attempt at a task may have
// begun to the collector.
func (s *handle) insertGarbage(tx *gorm.DB, t *taskRow, epoch int64) error {
	if !t.hasRange() {
		return nil
	}
	rangeID := sheaf.RangeID(t.ID, epoch)
	return tx.Exec(s.sql("INSERT INTO garbage (tenant_id, doc_id, range_id, artifact_key, not_before) VALUES (?, ?, ?, ?, @now+?)"),
		t.TenantID, t.DocID, rangeID, sheaf.ArtifactKey(t.TenantID, t.DocID, rangeID), s.grace.Milliseconds()).Error
}

// dropRanges hands the range results that the document's generations up to gen
// list, and none of the kept ones does, to the collector. The rows forget them,
// so that nothing lists or copies them from then on. They leave the index after
// the grace, and the blob store after stay, if that is longer.
func (s *handle) dropRanges(tx *gorm.DB, stay time.Duration, tenantID, docID string, gen int, keep ...int) error {
	var rows []taskRow
	if err := tx.Raw(`SELECT id, gen, range_id, artifact_key FROM tasks
		WHERE doc_id=? AND gen<=? AND state='done' AND range_id<>'' ORDER BY id`, docID, gen).Scan(&rows).Error; err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, r := range rows {
		if slices.Contains(keep, r.Gen) {
			kept[r.RangeID] = true
		}
	}
	var forget []string
	var garbage [][]any
	due, gone := s.after(s.grace), s.after(stay)
	dropped := map[string]bool{} // two generations may list one range
	for _, r := range rows {
		if kept[r.RangeID] {
			continue
		}
		forget = append(forget, r.ID)
		if !dropped[r.RangeID] {
			dropped[r.RangeID] = true
			if stay <= s.grace {
				garbage = append(garbage, []any{tenantID, docID, r.RangeID, r.ArtifactKey, due})
				continue
			}
			// The index first; the artifact stays readable for a while.
			garbage = append(garbage, []any{tenantID, docID, r.RangeID, "", due}, []any{tenantID, docID, r.RangeID, r.ArtifactKey, gone})
		}
	}
	if err := insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "range_id", "artifact_key", "not_before"}, garbage, ""); err != nil {
		return err
	}
	for ids := range chunks(forget) {
		if err := tx.Exec("UPDATE tasks SET range_id='', artifact_key='', reuse_key='' WHERE id IN ?", ids).Error; err != nil {
			return err
		}
	}
	return nil
}

// updateTask changes one task if where holds, and returns the row as it is
// then, nil when it did not hold. In set, columns that a later expression
// reads must come after it: MySQL evaluates assignments from left to right and
// shows each the new values, the other engines show the old.
func (s *handle) updateTask(tx *gorm.DB, taskID, set, where string, args ...any) (*taskRow, error) {
	q := s.sql("UPDATE tasks SET " + set + " WHERE id=? AND " + where)
	at := strings.Count(set, "?")
	args = slices.Insert(slices.Clone(args), at, any(taskID))
	var rows []taskRow
	if s.d.returning {
		if err := tx.Raw(q+" RETURNING *", args...).Scan(&rows).Error; err != nil {
			return nil, err
		}
	} else {
		res := tx.Exec(q, args...)
		if res.Error != nil {
			return nil, res.Error
		}
		if res.RowsAffected != 1 {
			return nil, nil
		}
		if err := tx.Raw("SELECT * FROM tasks WHERE id=?", taskID).Scan(&rows).Error; err != nil {
			return nil, err
		}
	}
	if len(rows) != 1 {
		return nil, nil
	}
	return &rows[0], nil
}

// parentsQuery finds those of a list of tasks that others wait for.
const parentsQuery = "SELECT DISTINCT parent_id FROM task_deps WHERE parent_id IN ? AND done=0 ORDER BY parent_id"

// wakeChildren counts done tasks off those that wait for them, and makes those
// pending that waited for nothing else. It comes after the parents are locked,
// so that a child that is written later finds them done. The counter is on the
// child's row, whose lock makes two parents that end at once take turns.
func (s *handle) wakeChildren(tx *gorm.DB, ended []*taskRow) error {
	if len(ended) == 0 {
		return nil
	}
	ids := make([]string, len(ended))
	for i, t := range ended {
		ids[i] = t.ID
	}
	var parents []string // most have no children
	if err := tx.Raw(parentsQuery, ids).Scan(&parents).Error; err != nil {
		return err
	}
	for _, id := range parents {
		if err := s.wakeChildrenOf(tx, id); err != nil {
			return err
		}
	}
	return nil
}

func (s *handle) wakeChildrenOf(tx *gorm.DB, parentID string) error {
	var children []string
	if err := tx.Raw("SELECT child_id FROM task_deps WHERE parent_id=? AND done=0 ORDER BY child_id", parentID).Scan(&children).Error; err != nil {
		return err
	}
	if err := tx.Exec("UPDATE task_deps SET done=1 WHERE parent_id=? AND done=0", parentID).Error; err != nil {
		return err
	}
	for ids := range chunks(children) {
		err := tx.Exec(s.sql(`UPDATE tasks SET
			run_at=CASE WHEN state='parked' AND unmet=1 THEN @now ELSE run_at END,
			state=CASE WHEN state='parked' AND unmet=1 THEN 'pending' ELSE state END,
			unmet=unmet-1 WHERE id IN ? AND unmet>0`), ids).Error
		if err != nil {
			return err
		}
	}
	return nil
}

// endAttempt writes what follows when an attempt ended without being done.
func (s *handle) endAttempt(tx *gorm.DB, row *taskRow, epoch int64, events ...eventRow) error {
	if err := s.insertGarbage(tx, row, epoch); err != nil {
		return err
	}
	if err := s.insertEvents(tx, events...); err != nil {
		return err
	}
	return s.markDirty(tx, row.DocID)
}

// releaseSet gives a running task back: at once, with no budget touched, and
// with its old place in the line, so that a restart of the executors does not
// send what they ran behind everything that came since.
const releaseSet = `finished_at=CASE WHEN cancel_requested_at<>0 THEN @now ELSE 0 END,
	state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' ELSE 'pending' END,
	epoch=epoch+1, run_at=created_at, lease_until=0, enqueued_at=0`

func (s *handle) released(tx *gorm.DB, row *taskRow, epoch int64) error {
	e := row.event(sheaf.EventReleased, row.Epoch)
	if row.State == string(sheaf.TaskCanceled) {
		e.Kind = sheaf.EventCanceled
	}
	return s.endAttempt(tx, row, epoch, e)
}
