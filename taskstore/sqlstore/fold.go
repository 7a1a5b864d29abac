package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// fold is what the tasks of a generation say about their document.
type fold struct {
	started   bool     // some task was claimed or is over
	open      int      // tasks not terminal, without finalize and extras
	openAll   int      // the same with finalize
	parked    int      // of them, those that wait for others
	planned   bool     // the plan is done
	plan      *taskRow // the plan when it ended without being done
	cost      float64  // of all tasks but finalize and extras
	doneCost  float64
	finalizer *taskRow // the finalize task of the latest decision, nil if none
}

// folds derives the state of documents from their tasks.
type folds struct {
	*handle
	sweep struct { // where the search for forgotten documents stands
		sync.Mutex
		at    time.Time
		state int
		after string
	}
}

// extra reports whether a task enriches a generation after it is published, so
// that neither progress nor the end of the generation waits for it.
func extra(kind sheaf.TaskKind) bool {
	switch kind {
	case sheaf.KindRaptor, sheaf.KindGraphRAG, sheaf.KindMindmap:
		return true
	}
	return false
}

// notCounted lists, for SQL, the kinds that a generation is complete without.
const notCounted = "('finalize','raptor','graphrag','mindmap')"

// Fold brings documents whose tasks changed up to date: state, progress,
// counts, and the finalize task of those that are complete. A document that
// runs, has tasks left and was brought up to date less than apart ago is left
// for later, and later says that there is one: the end of its last task matters
// at once, its progress to people who look. Executors never write a document's
// state or progress: they mark it dirty, and this derives both from the tasks,
// which is deterministic and idempotent. Those that may be
// left for later come last.
func (s *folds) Fold(ctx context.Context, limit int, apart time.Duration) (n int, later bool, err error) {
	if err := s.sweepForgotten(ctx, limit); err != nil {
		return 0, false, err
	}
	q := `SELECT m.doc_id, m.at, CASE WHEN EXISTS (SELECT 1 FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.gen
			WHERE d.id=m.doc_id AND d.state='running' AND d.updated_at>@now-? AND d.updated_at<=@now
				AND t.` + isOpen + ` AND t.kind NOT IN ` + notCounted + `)
		THEN 1 ELSE 0 END AS early FROM doc_dirty m ORDER BY early, m.at, m.doc_id LIMIT ?`
	dirty, err := all[struct {
		DocID string
		At    int64
		Early bool
	}](s.write(ctx), s.sql(q), apart.Milliseconds(), limit)
	if err != nil {
		return 0, false, err
	}
	for _, d := range dirty {
		if d.Early {
			return n, true, nil // and so are the rest
		}
		changed, parked := false, 0
		err := s.tx(ctx, func(tx *gorm.DB) (err error) {
			changed, parked, err = s.foldDocument(tx, d.DocID)
			if err != nil {
				return err
			}
			// Last, and only if the mark is the one that was read: what
			// happened since then is looked at next time.
			return tx.Exec("DELETE FROM doc_dirty WHERE doc_id=? AND at=?", d.DocID, d.At).Error
		})
		if err != nil {
			return n, false, err
		}
		if changed {
			n++
		}
		if parked > 0 {
			// A parent that died leaves its children waiting for ever; what
			// ends them marks the document dirty again.
			if _, err := s.settleParked(ctx, d.DocID, limit); err != nil {
				return n, false, err
			}
		}
	}
	return n, false, nil
}

// finishDocument folds a document whose ranges may all be done, and answers its
// finalize task if that made one. The look before costs a few seeks; the fold's
// own statement decides.
func (s *folds) finishDocument(ctx context.Context, id string) (*sheaf.Hint, error) {
	open, err := first[int](s.write(ctx), `SELECT CASE WHEN EXISTS (SELECT 1 FROM tasks t WHERE t.doc_id=d.id AND t.gen=d.gen
			AND t.kind IN ('plan','parse','index','dataflow') AND t.state IN ('pending','running','parked','retry_wait','scheduled')) THEN 1 ELSE 0 END
		FROM documents d WHERE d.id=? AND d.state IN ('queued','running','unstarted') AND d.deleted_at=0`, id)
	if err != nil || open == nil || *open != 0 {
		return nil, err
	}
	var rows []hintRow
	err = s.tx(ctx, func(tx *gorm.DB) error {
		rows = nil
		changed, _, err := s.foldDocument(tx, id)
		if err != nil || !changed {
			return err
		}
		rows, err = all[hintRow](tx, `SELECT t.id, t.tenant_id, t.lane, t.cost, t.kind, t.phase, t.place, t.epoch FROM tasks t JOIN documents d ON d.id=t.doc_id AND d.gen=t.gen
			WHERE d.id=? AND t.kind='finalize' AND t.state='pending' ORDER BY t.id DESC LIMIT 1`, id)
		return err
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &toHints(rows)[0], nil
}

// foldDocument brings one document up to date. It reports whether that changed
// it and how many of its tasks are parked.
func (s *folds) foldDocument(tx *gorm.DB, id string) (changed bool, parked int, err error) {
	doc, err := s.lockDocument(tx, id)
	if err != nil || doc == nil || doc.DeletedAt != 0 {
		return false, 0, err
	}
	f, err := s.readFold(tx, doc)
	if err != nil {
		return false, 0, err
	}
	changed, err = s.applyFold(tx, doc, f)
	return changed, f.parked, err
}

// applyFold is the document's half of the state machine.
func (s *folds) applyFold(tx *gorm.DB, doc *documentRow, f *fold) (bool, error) {
	state := sheaf.DocumentState(doc.State)
	progress := doc.Progress
	if f.planned && f.cost > 0 && !state.Terminal() {
		progress = max(progress, 0.99*f.doneCost/f.cost)
	}

	next, failure := state, (*sheaf.Failure)(nil)
	switch {
	case state == sheaf.DocCanceling:
		if f.openAll == 0 {
			next = sheaf.DocCanceled
		}
	case state.Terminal():
		// A dead task that somebody gave another try opens the generation again.
		if state != sheaf.DocCanceled && f.openAll > 0 {
			next = sheaf.DocRunning
		}
	case f.plan != nil && f.plan.State == string(sheaf.TaskDead):
		next, failure = sheaf.DocFailed, decodeFailure(f.plan.Failure)
	case f.plan != nil:
		next = sheaf.DocCanceled
	case state == sheaf.DocFinalizing && f.finalizer != nil && f.finalizer.State == string(sheaf.TaskDead):
		next, failure = sheaf.DocFailed, decodeFailure(f.finalizer.Failure)
	case state == sheaf.DocFinalizing && f.finalizer != nil && f.finalizer.State == string(sheaf.TaskCanceled):
		next = sheaf.DocCanceled
	case state == sheaf.DocFinalizing:
	case f.planned && f.open == 0:
		return s.finalize(tx, doc, progress)
	case f.started:
		next = sheaf.DocRunning
	}
	if next == state && progress == doc.Progress {
		return false, nil
	}
	if next == state {
		return true, tx.Exec(s.sql("UPDATE documents SET progress="+s.d.greatest+"(progress, ?), updated_at=@now WHERE id=? AND gen=? AND state=?"),
			progress, doc.ID, doc.Gen, doc.State).Error
	}
	return true, s.moveDocument(tx, doc, next, progress, failure)
}

// moveDocument changes a document's state, of which the transaction holds the
// lock, and that of its newest generation.
func (s *folds) moveDocument(tx *gorm.DB, doc *documentRow, next sheaf.DocumentState, progress float64, failure *sheaf.Failure) error {
	finished := "0"
	if next.Terminal() {
		finished = s.now()
	}
	err := run(tx, stmt(s.sql(`UPDATE documents SET state=?, progress=?, failure=?, updated_at=@now, finished_at=`+finished+`,
		started_at=CASE WHEN started_at=0 THEN @now ELSE started_at END WHERE id=? AND gen=? AND state=?`),
		string(next), progress, encodeFailure(failure), doc.ID, doc.Gen, doc.State),
		stmt(s.sql("UPDATE generations SET state=?, failure=?, finished_at="+finished+" WHERE doc_id=? AND gen=?"),
			string(next), encodeFailure(failure), doc.ID, doc.Gen))
	if err != nil {
		return err
	}
	// What a canceled generation had finished is shown to nobody. A retry of a
	// failed one may use the rest.
	switch next {
	case sheaf.DocCanceled:
		err = s.dropRanges(tx, s.grace, doc.TenantID, doc.ID, doc.Gen, doc.LiveGen)
	case sheaf.DocFailed:
		err = s.dropRanges(tx, s.grace, doc.TenantID, doc.ID, doc.Gen, doc.Gen, doc.LiveGen)
	}
	if err != nil {
		return err
	}
	return s.insertDocumentEvent(tx, doc, sheaf.DocumentChange{State: next, Progress: progress, Failure: failure})
}

// finalize decides that all of a generation's work is over and hands it to a
// finalize task. One statement decides, so that exactly one concurrent
// caller wins; it is tried again with each fold, so that no wake-up can be lost.
func (s *folds) finalize(tx *gorm.DB, doc *documentRow, progress float64) (bool, error) {
	n, err := exec(tx, s.sql(`UPDATE documents SET state='finalizing', fin_epoch=fin_epoch+1, progress=?, updated_at=@now,
		started_at=CASE WHEN started_at=0 THEN @now ELSE started_at END
		WHERE id=? AND gen=? AND fin_epoch=? AND state IN ('unstarted','queued','running') AND deleted_at=0 AND NOT EXISTS (
			SELECT 1 FROM tasks WHERE doc_id=? AND gen=? AND kind NOT IN `+notCounted+` AND `+isOpen+`)`),
		progress, doc.ID, doc.Gen, doc.FinEpoch, doc.ID, doc.Gen)
	if err != nil || n != 1 {
		return false, err
	}
	if err := run(tx, stmt("UPDATE generations SET state='finalizing' WHERE doc_id=? AND gen=?", doc.ID, doc.Gen)); err != nil {
		return false, err
	}
	plan, err := first[taskRow](tx, "SELECT trace, place, created_at FROM tasks WHERE doc_id=? AND gen=? AND kind='plan' ORDER BY id LIMIT 1", doc.ID, doc.Gen)
	if err != nil {
		return false, err
	}
	epoch := doc.FinEpoch + 1
	base := taskBase{TenantID: doc.TenantID, DatasetID: doc.DatasetID, DocumentID: doc.ID, JobID: doc.JobID, Generation: doc.Gen, Lane: sheaf.Lane(doc.Lane)}
	if plan != nil {
		base.Trace, base.Place = plan.Trace, cmp.Or(plan.Place, plan.CreatedAt)
	}
	err = s.insertTasks(tx, base, []sheaf.NewTask{{ID: sheaf.NewID(), Kind: sheaf.KindFinalize, Node: strconv.FormatInt(epoch, 10), Cost: 1,
		Payload: []byte(encode(taskstore.FinalizePayload{FinalizeEpoch: epoch}))}})
	if err != nil {
		return false, err
	}
	return true, s.insertDocumentEvent(tx, doc, sheaf.DocumentChange{State: sheaf.DocFinalizing, Progress: progress})
}

// readFold sums the tasks of the document's newest generation.
func (s *folds) readFold(tx *gorm.DB, doc *documentRow) (*fold, error) {
	groups, err := all[struct {
		Kind, State string
		N, Attempts int
		Cost        float64
	}](tx, "SELECT kind, state, COUNT(*) AS n, SUM(cost) AS cost, SUM(attempts) AS attempts FROM tasks WHERE doc_id=? AND gen=? GROUP BY kind, state",
		doc.ID, doc.Gen)
	if err != nil {
		return nil, err
	}
	f := &fold{}
	running := false
	for _, g := range groups {
		kind, state := sheaf.TaskKind(g.Kind), sheaf.TaskState(g.State)
		if extra(kind) {
			continue
		}
		if g.Attempts > 0 || state == sheaf.TaskDone {
			f.started = true
		}
		if !state.Terminal() {
			f.openAll += g.N
		}
		if kind == sheaf.KindFinalize {
			continue
		}
		if state == sheaf.TaskParked {
			f.parked += g.N
		}
		f.cost += g.Cost
		if state.Terminal() {
			f.doneCost += g.Cost
		} else {
			f.open += g.N
		}
		running = running || state == sheaf.TaskRunning
		if kind == sheaf.KindPlan {
			f.planned = f.planned || state == sheaf.TaskDone
		}
	}
	if !f.planned && f.open == 0 {
		if f.plan, err = first[taskRow](tx, "SELECT * FROM tasks WHERE doc_id=? AND gen=? AND kind='plan' AND state IN ('dead','canceled','superseded') ORDER BY id LIMIT 1", doc.ID, doc.Gen); err != nil {
			return nil, err
		}
	}
	if doc.State == string(sheaf.DocFinalizing) {
		if f.finalizer, err = first[taskRow](tx, "SELECT * FROM tasks WHERE doc_id=? AND gen=? AND kind='finalize' AND node=?", doc.ID, doc.Gen, strconv.FormatInt(doc.FinEpoch, 10)); err != nil {
			return nil, err
		}
	}
	if running && f.planned {
		tasks, err := all[struct {
			Cost   float64
			Detail string
		}](tx, `SELECT t.cost, COALESCE((SELECT e.detail FROM events e WHERE e.subject_id=t.id AND e.epoch=t.epoch AND e.kind='progress'
				ORDER BY e.n DESC LIMIT 1), '') AS detail
			FROM tasks t WHERE t.doc_id=? AND t.gen=? AND t.state='running' AND t.kind IN ('parse','index')`, doc.ID, doc.Gen)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			f.doneCost += t.Cost * progressOf(t.Detail)
		}
	}
	return f, nil
}

const (
	sweepEvery = 10 * time.Second
	sweepBatch = 50
)

// sweepStates are those in which a document waits for its tasks.
var sweepStates = []sheaf.DocumentState{sheaf.DocFinalizing, sheaf.DocCanceling, sheaf.DocRunning, sheaf.DocQueued, sheaf.DocUnstarted}

// sweepForgotten marks documents dirty that wait for their tasks, a few at a
// time and round and round: should ever a mark be missing, this is what finds
// it.
func (s *folds) sweepForgotten(ctx context.Context, limit int) error {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	if time.Since(s.sweep.at) < sweepEvery {
		return nil
	}
	s.sweep.at = time.Now()
	state := sweepStates[s.sweep.state]
	n := min(limit, sweepBatch)
	ids, err := all[string](s.read(ctx), "SELECT d.id FROM documents d WHERE d.state=? AND d.id>? AND d.deleted_at=0 ORDER BY d.id LIMIT ?", string(state), s.sweep.after, n)
	if err != nil {
		return err
	}
	if len(ids) < n {
		s.sweep.state, s.sweep.after = (s.sweep.state+1)%len(sweepStates), ""
	} else {
		s.sweep.after = ids[len(ids)-1]
	}
	for _, id := range ids {
		if err == nil {
			err = run(s.write(ctx), stmt(s.sql("INSERT INTO doc_dirty (doc_id, at) VALUES (?, @now)"+s.d.noop("doc_id")), id))
		}
	}
	return err
}

// WakeParked makes parked tasks pending whose parents are all done. It is the
// backstop of the wake that the completion of the last parent makes. A task
// whose parent ended without being done will never run: it ends too.
func (s *folds) WakeParked(ctx context.Context, limit int) (int, error) {
	return s.settleParked(ctx, "", limit)
}

// settleParked settles the parked tasks of one document, or of all for "".
func (s *folds) settleParked(ctx context.Context, documentID string, limit int) (n int, err error) {
	scope, args := "", []any{}
	if documentID != "" {
		scope, args = " AND t.doc_id=?", []any{documentID}
	}
	parked, err := all[struct {
		ID, DocID    string
		Failed, Dead int // parents that ended without being done, and of them those that were given up
	}](s.write(ctx), `SELECT * FROM (SELECT t.id, t.doc_id,
			SUM(CASE WHEN p.state IN ('dead','canceled','superseded') THEN 1 ELSE 0 END) AS failed,
			SUM(CASE WHEN p.state='dead' THEN 1 ELSE 0 END) AS dead,
			SUM(CASE WHEN p.state IS NOT NULL AND p.state NOT IN ('done','dead','canceled','superseded') THEN 1 ELSE 0 END) AS open
		FROM tasks t LEFT JOIN task_deps d ON d.child_id=t.id LEFT JOIN tasks p ON p.id=d.parent_id
		WHERE t.state='parked'`+scope+` GROUP BY t.id, t.doc_id) x WHERE failed>0 OR open=0 ORDER BY id LIMIT ?`, append(args, limit)...)
	if err != nil {
		return 0, err
	}
	orphaned := sheaf.Fail(sheaf.CategoryInternal, "dependency_failed",
		"A task that this one waits for ended without a result. Retry that one first, then this one.")
	for _, t := range parked {
		took := false
		err := s.tx(ctx, func(tx *gorm.DB) error {
			took = false
			if t.Failed == 0 {
				// Parents that are done stay done, so nothing can change between the look and this.
				row, err := s.updateTask(tx, t.ID, "state='pending', unmet=0, run_at=@now, enqueued_at=0", "state='parked'")
				if err != nil || row == nil {
					return err
				}
				took = true
				var c script
				c.add("UPDATE task_deps SET done=1 WHERE child_id=?", t.ID)
				s.dirty(&c, []string{row.DocID})
				return c.exec(tx)
			}
			state, kind, failure, code := sheaf.TaskCanceled, sheaf.EventCanceled, "", ""
			if t.Dead > 0 {
				state, kind, failure, code = sheaf.TaskDead, sheaf.EventDead, encodeFailure(orphaned), orphaned.Code
			}
			row, err := s.updateTask(tx, t.ID, "state=?, epoch=epoch+1, finished_at=@now, failure=?, failure_code=?", "state='parked'", string(state), failure, code)
			if err != nil || row == nil {
				return err
			}
			took = true
			e := row.event(kind, row.Epoch)
			e.Detail = row.Failure
			return s.logAndMark(tx, row.DocID, e)
		})
		if err != nil {
			return n, err
		}
		if took {
			n++
		}
	}
	return n, nil
}

// progressOf is the share of a running task that its latest progress event
// claims, 0 to 1.
func progressOf(detail string) float64 {
	var p sheaf.Progress
	if json.Unmarshal([]byte(detail), &p) != nil || p.Total <= 0 {
		return 0
	}
	return min(max(float64(p.Done)/float64(p.Total), 0), 1)
}
