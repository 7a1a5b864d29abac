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

// isOpen selects tasks that are not terminal. It lists the terminal states, so that
// no planner picks an index that begins with the state: it would search a backlog of
// a million pending tasks for those of one document.
const isOpen = "state NOT IN ('done','dead','canceled','superseded')"

// stopTasks ends every open task of the documents, whose rows the transaction has
// locked, under a new epoch: later writes of a worker that still runs one are
// rejected, and what the attempt wrote goes to the collector. It returns which tasks
// were running.
func (s *handle) stopTasks(tx *gorm.DB, documentIDs []string, state sheaf.TaskState, event, text string) (running []string, err error) {
	rows, err := s.lockOpen(tx, documentIDs)
	if err != nil {
		return nil, err
	}
	events := make([]eventRow, len(rows))
	var garbage [][]any
	for i := range rows {
		r := &rows[i]
		events[i] = r.event(event, r.Epoch+1)
		events[i].Text = text
		if r.State == string(sheaf.TaskRunning) {
			running = append(running, r.ID)
			garbage = append(garbage, s.attemptGarbage(r, r.Epoch)...)
		}
	}
	if _, err := execByIDs(tx, mapped(rows, taskRow.id), s.sql("UPDATE tasks SET state=?, epoch=epoch+1, lease_until=0, enqueued_at=0, finished_at=@now WHERE "+isOpen+" AND id IN ?"), string(state)); err != nil {
		return nil, err
	}
	if err := insertRows(tx, "garbage", rangeGarbage, garbage, ""); err != nil {
		return nil, err
	}
	return running, s.insertEvents(tx, events...)
}

// lockOpen reads and locks the open tasks of documents in the order of their ids.
func (s *handle) lockOpen(tx *gorm.DB, documentIDs []string) ([]taskRow, error) {
	return all[taskRow](tx, "SELECT "+openColumns+" FROM tasks WHERE doc_id IN ? AND "+isOpen+" ORDER BY id"+s.d.lock, documentIDs)
}

// openColumns are the columns needed to end a task.
const openColumns = "id, tenant_id, dataset_id, doc_id, job_id, gen, kind, state, epoch, worker_id, cancel_requested_at"

// endGenerations cancels the open generations of documents.
func (s *handle) endGenerations(tx *gorm.DB, ids []string, failure string) error {
	return tx.Exec(s.sql(`UPDATE generations SET state='canceled', failure=?, finished_at=@now
		WHERE doc_id IN ? AND state NOT IN ('succeeded','partially_succeeded','failed','canceled')`), failure, ids).Error
}

// taskBase is what the tasks of one insert have in common.
type taskBase struct {
	TenantID   string
	DatasetID  string
	DocumentID string
	JobID      string
	Generation int
	Lane       sheaf.Lane
	Place      int64       // of the task they follow, or of the document's plan
	Within     sheaf.Phase // of the task they follow, if it processes a part of the document
	Trace      string
	// Canceled inserts as canceled what would have to run: the work was canceled after
	// it was requested and before it was written.
	Canceled bool
}

func (r *taskRow) base() taskBase {
	base := taskBase{TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.DocID, JobID: r.JobID, Generation: r.Gen,
		Lane: sheaf.Lane(r.Lane), Place: cmp.Or(r.Place, r.CreatedAt), Trace: r.Trace}
	if isRange(sheaf.TaskKind(r.Kind)) {
		base.Within = sheaf.Phase(r.Phase)
	}
	return base
}

// isRange reports whether tasks of the kind process a part of a document.
func isRange(kind sheaf.TaskKind) bool {
	switch kind {
	case sheaf.KindParse, sheaf.KindIndex, sheaf.KindDataflow:
		return true
	}
	return false
}

// order returns the phase and place of a task inserted with that many ranges.
func (b taskBase) order(kind sheaf.TaskKind, ranges int) (sheaf.Phase, int64) {
	switch {
	case kind == sheaf.KindFinalize:
		return sheaf.PhaseFinish, b.Place
	case !isRange(kind):
		return sheaf.PhaseBegin, b.Place
	case b.Within != sheaf.PhaseFinish:
		return b.Within, b.Place
	// guard: order: many ranges do not delay small documents
	case ranges > sheaf.BulkRanges:
		return sheaf.PhaseBulk, b.Place + int64(ranges)*sheaf.RangeDelay.Milliseconds()
	default:
		// guard: order: what has begun goes before what has not
		return sheaf.PhaseRanges, b.Place + int64(ranges)*sheaf.RangeDelay.Milliseconds()
	}
}

// ofPool is added to the column paused of a task that has a pool, so that only its
// pool feeds it.
const ofPool = 2

// maxNodePayload is the maximum payload of a task of a flow's node: ids, digests and
// object keys.
const maxNodePayload = 16 << 10

var taskColumns = []string{"id", "tenant_id", "dataset_id", "doc_id", "job_id", "gen", "kind", "node", "unit", "from_unit", "to_unit",
	"cost", "lane", "state", "paused", "pool", "on_failure", "run_at", "phase", "place", "unmet", "reuse_key", "digest", "range_id", "artifact_key", "chunk_count", "token_count",
	"reused", "payload", "result", "trace", "created_at", "finished_at"}

// insertTasks inserts tasks and skips those whose (document, generation, kind, node,
// range) exists, so that splitting is idempotent. Tasks that depend on others are
// parked, tasks with a result are done, and all are paused if their job, dataset or
// tenant is.
func (s *handle) insertTasks(tx *gorm.DB, base taskBase, tasks []sheaf.NewTask) error {
	if len(tasks) == 0 {
		return nil
	}
	paused, err := s.inheritPaused(tx, base)
	if err != nil {
		return err
	}
	unmet, deps, err := s.resolveDeps(tx, base, tasks)
	if err != nil {
		return err
	}

	ranges := 0
	for _, t := range tasks {
		if t.Done == nil && isRange(t.Kind) {
			ranges++
		}
	}
	rows := make([][]any, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Kind == sheaf.KindDataflow && len(t.Payload) > maxNodePayload {
			return fmt.Errorf("%w: the payload of node %s has %d bytes, more than %d", sheaf.ErrInvalid, t.Node, len(t.Payload), maxNodePayload)
		}
		rows = append(rows, s.taskValues(base, t, paused, unmet[t.ID], ranges))
	}
	if err := insertRows(tx, "tasks", taskColumns, rows, s.d.noop("id")); err != nil {
		return fmt.Errorf("insert %d tasks: %w", len(tasks), err)
	}
	if err := insertRows(tx, "task_deps", []string{"child_id", "parent_id", "done"}, deps, s.d.noop("child_id")); err != nil || !base.Canceled {
		return err
	}
	return s.logCanceled(tx, tasks)
}

// taskValues is the row of a new task, by taskColumns. paused is inherited, unmet is
// the number of its unfinished parents, ranges the number inserted with it.
func (s *handle) taskValues(base taskBase, t *sheaf.NewTask, paused, unmet, ranges int) []any {
	now := raw(s.now())
	state, finished := sheaf.TaskPending, any(0)
	var res sheaf.TaskResult
	result := ""
	switch {
	case t.Done != nil:
		state, finished, res, result = sheaf.TaskDone, now, *t.Done, encode(t.Done)
	case base.Canceled:
		state, finished = sheaf.TaskCanceled, now
	case unmet > 0:
		state = sheaf.TaskParked
	}
	held := paused
	if t.Pool != "" {
		held += ofPool
	}
	phase, place := base.order(t.Kind, ranges)
	return []any{t.ID, base.TenantID, base.DatasetID, base.DocumentID, base.JobID, base.Generation, string(t.Kind), t.Node,
		string(t.Unit), t.Range.From, t.Range.To, max(t.Cost, 1), int(base.Lane), string(state), held, t.Pool, t.OnFailure, now, int(phase), place, unmet, t.ReuseKey, t.Digest,
		res.RangeID, res.ArtifactKey, res.Chunks, res.Tokens, flag(res.Reused), s.vault.hide(base.TenantID, string(t.Payload)), result, clip(base.Trace, 128), now, finished}
}

// logCanceled writes the events of tasks that were inserted as canceled.
func (s *handle) logCanceled(tx *gorm.DB, tasks []sheaf.NewTask) error {
	ids := mapped(tasks, func(t sheaf.NewTask) string { return t.ID })
	rows, err := byIDs[taskRow](tx, ids, "SELECT * FROM tasks WHERE id IN ? AND state='canceled' ORDER BY id")
	if err != nil {
		return err
	}
	return s.insertEvents(tx, mapped(rows, func(r taskRow) eventRow { return r.event(sheaf.EventCanceled, 0) })...)
}

// resolveDeps returns, for each task that depends on others, how many of them are
// not done, and the rows of task_deps. The parents are locked, so that none ends
// between this read and the insert of its children.
func (s *handle) resolveDeps(tx *gorm.DB, base taskBase, tasks []sheaf.NewTask) (unmet map[string]int, deps [][]any, err error) {
	unmet, inBatch := map[string]int{}, make(map[string]*sheaf.NewTask, len(tasks))
	for i := range tasks {
		inBatch[tasks[i].ID] = &tasks[i]
	}
	var outside []string
	for _, t := range tasks {
		for _, p := range t.DependsOn {
			if inBatch[p] == nil {
				outside = append(outside, p)
			}
		}
	}
	parents, err := byIDs[taskRow](tx, sortedUnique(outside), "SELECT id, state FROM tasks WHERE id IN ? ORDER BY id"+s.d.share)
	if err != nil {
		return nil, nil, err
	}
	state := map[string]string{}
	for _, r := range parents {
		state[r.ID] = r.State
	}
	// A parent may exist under the id of an earlier split. All existing ones are read
	// in one query: a graph of a hundred nodes may have ten thousand edges.
	type place struct {
		kind, node string
		from, to   int
	}
	split := map[place]taskRow{}
	if slices.ContainsFunc(tasks, func(t sheaf.NewTask) bool {
		return slices.ContainsFunc(t.DependsOn, func(p string) bool { return inBatch[p] != nil })
	}) {
		rows, err := all[taskRow](tx, "SELECT id, state, kind, node, from_unit, to_unit FROM tasks WHERE doc_id=? AND gen=? AND kind<>'plan' ORDER BY id"+s.d.share, base.DocumentID, base.Generation)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range rows {
			split[place{r.Kind, r.Node, r.FromUnit, r.ToUnit}] = r
		}
	}
	for _, t := range tasks {
		for _, p := range t.DependsOn {
			id := p
			if parent := inBatch[p]; parent != nil {
				old, exists := split[place{string(parent.Kind), parent.Node, parent.Range.From, parent.Range.To}]
				switch {
				case exists:
					id, state[old.ID] = old.ID, old.State
				case parent.Done != nil:
					state[id] = string(sheaf.TaskDone)
				default:
					state[id] = string(sheaf.TaskPending)
				}
			}
			st, ok := state[id]
			if !ok {
				return nil, nil, fmt.Errorf("%w: task %s depends on task %s, which does not exist", sheaf.ErrInvalid, t.ID, p)
			}
			done := st == string(sheaf.TaskDone)
			if !done {
				unmet[t.ID]++
			}
			deps = append(deps, []any{t.ID, id, flag(done)})
		}
	}
	return unmet, deps, nil
}

// rangeGarbage are the columns of a garbage entry for a range result.
var rangeGarbage = []string{"tenant_id", "doc_id", "range_id", "artifact_key", "not_before"}

// attemptGarbage is the garbage entry of the range result that an attempt at a task
// may have begun.
func (s *handle) attemptGarbage(t *taskRow, epoch int64) [][]any {
	if !t.hasRange() && t.Kind != string(sheaf.KindPlan) { // the plan of a small document reads it, too
		return nil
	}
	rangeID := sheaf.RangeID(t.ID, epoch)
	return [][]any{{t.TenantID, t.DocID, rangeID, sheaf.ArtifactKey(t.TenantID, t.DocID, rangeID), s.after(s.grace)}}
}

// dropRanges hands to the collector the range results that the document's
// generations up to gen list and none of the generations in keep does. It clears
// them from the rows, so that nothing lists or copies them from then on. They leave
// the index after the grace, and the blob store after stay, if that is longer. The
// results of runs, and of nodes over the whole document, go with their generation.
func (s *handle) dropRanges(tx *gorm.DB, stay time.Duration, doc *documentRow, gen int, keep ...int) error {
	// Versions before the live one list only ranges that it lists, too: the others were
	// dropped when it was published. They are not read, because otherwise each version
	// would cost more than the one before.
	keep = append(keep, 0) // no version has number 0
	rows, err := all[taskRow](tx, "SELECT range_id, artifact_key FROM tasks WHERE doc_id=? AND gen>=? AND gen<=? AND gen NOT IN ? AND state='done' AND range_id<>'' ORDER BY id",
		doc.ID, doc.LiveGen, gen, keep)
	if err != nil {
		return err
	}
	known := map[string]bool{} // kept, or dropped already: two generations may list one range
	if len(rows) > 0 {
		// Not a subquery: at most publications there is nothing to compare.
		kept, err := all[string](tx, "SELECT range_id FROM tasks WHERE doc_id=? AND gen IN ? AND state='done' AND range_id<>''", doc.ID, keep)
		if err != nil {
			return err
		}
		for _, id := range kept {
			known[id] = true
		}
	}
	var forget []string
	var garbage [][]any
	due, gone := s.after(s.grace), s.after(stay)
	for _, r := range rows {
		if known[r.RangeID] {
			continue
		}
		known[r.RangeID] = true
		forget = append(forget, r.RangeID)
		if stay <= s.grace {
			garbage = append(garbage, []any{doc.TenantID, doc.ID, r.RangeID, r.ArtifactKey, due})
			continue
		}
		// The index first; the artifact stays readable for a while.
		garbage = append(garbage, []any{doc.TenantID, doc.ID, r.RangeID, "", due}, []any{doc.TenantID, doc.ID, r.RangeID, r.ArtifactKey, gone})
	}
	if err := insertRows(tx, "garbage", rangeGarbage, garbage, ""); err != nil {
		return err
	}
	if _, err := execByIDs(tx, forget, "UPDATE tasks SET range_id='', artifact_key='', reuse_key='' WHERE doc_id=? AND range_id IN ?", doc.ID); err != nil {
		return err
	}
	// guard: flows: results of nodes over the document go with their generation
	results, err := all[resultRow](tx, "SELECT r.* FROM run_result_sources x JOIN run_results r ON r.range_id=x.range_id WHERE x.doc_id=? AND x.gen<=? AND x.gen NOT IN ? ORDER BY r.range_id", doc.ID, gen, keep)
	if err != nil {
		return err
	}
	return s.dropRows(tx, "", s.grace, results)
}

// updateTask changes one task if where holds, and returns the updated row, nil if it
// did not hold. In set, columns that a later expression reads must come after it:
// MySQL evaluates assignments from left to right and shows each the new values, the
// other engines show the old.
func (s *handle) updateTask(tx *gorm.DB, taskID, set, where string, args ...any) (*taskRow, error) {
	q := s.sql("UPDATE tasks SET " + set + " WHERE id=? AND " + where)
	at := strings.Count(set, "?")
	args = slices.Insert(slices.Clone(args), at, any(taskID))
	if s.d.returning {
		return first[taskRow](tx, q+" RETURNING *", args...)
	}
	if n, err := exec(tx, q, args...); err != nil || n != 1 {
		return nil, err
	}
	return first[taskRow](tx, "SELECT * FROM tasks WHERE id=?", taskID)
}

// parentsQuery selects the tasks of a list that others wait for.
const parentsQuery = "SELECT DISTINCT parent_id FROM task_deps WHERE parent_id IN ? AND done=0 ORDER BY parent_id"

// wakeChildren decrements the counters of tasks that wait for ended ones, and makes
// those pending that wait for nothing else. It runs after the parents are locked, so
// that a child inserted later finds them done. The counter is on the child's row,
// whose lock serializes parents that end concurrently.
func (s *handle) wakeChildren(tx *gorm.DB, ended []*taskRow) error {
	if len(ended) == 0 {
		return nil
	}
	parents, err := all[string](tx, parentsQuery, mapped(ended, func(t *taskRow) string { return t.ID })) // most have no children
	if err != nil {
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
	children, err := all[string](tx, "SELECT child_id FROM task_deps WHERE parent_id=? AND done=0 ORDER BY child_id", parentID)
	if err != nil {
		return err
	}
	if err := run(tx, stmt("UPDATE task_deps SET done=1 WHERE parent_id=? AND done=0", parentID)); err != nil {
		return err
	}
	_, err = execByIDs(tx, children, s.sql(`UPDATE tasks SET
		run_at=CASE WHEN state='parked' AND unmet=1 THEN @now ELSE run_at END,
		state=CASE WHEN state='parked' AND unmet=1 THEN 'pending' ELSE state END,
		unmet=unmet-1 WHERE id IN ? AND unmet>0`))
	return err
}

// endAttempt writes what follows an attempt that ended without being done.
func (s *handle) endAttempt(tx *gorm.DB, row *taskRow, epoch int64, events ...eventRow) error {
	var c script
	c.insert("garbage", rangeGarbage, s.attemptGarbage(row, epoch), "")
	s.logEvents(&c, events)
	s.dirty(&c, []string{row.DocID})
	return c.exec(tx)
}

// releaseSet gives a running task back immediately, without charging a budget and
// with its old place in the queue, so that a restart of the executors does not send
// what they ran behind everything that came since.
const releaseSet = `finished_at=CASE WHEN cancel_requested_at<>0 THEN @now ELSE 0 END,
	state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' ELSE 'pending' END,
	epoch=epoch+1, run_at=` + queuedAt + `, lease_until=0, enqueued_at=0`

// queuedAt is since when a returned task has been waiting. A scheduled plan waits
// since its start time.
const queuedAt = "CASE WHEN kind='plan' AND place>created_at THEN place ELSE created_at END"

func (s *handle) released(tx *gorm.DB, row *taskRow, epoch int64) error {
	e := row.event(sheaf.EventReleased, row.Epoch)
	if row.State == string(sheaf.TaskCanceled) {
		e.Kind = sheaf.EventCanceled
	}
	return s.endAttempt(tx, row, epoch, e)
}
