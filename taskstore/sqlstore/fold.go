package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// fold summarizes a generation's tasks for its document.
type fold struct {
	started   bool     // some task was claimed or has ended
	open      int      // tasks not terminal, excluding finalize and extras
	openAll   int      // the same including finalize
	parked    int      // of these, tasks waiting for others
	planned   bool     // the plan is done
	plan      *taskRow // the plan if it ended without being done
	cost      float64  // of all tasks, excluding finalize and extras
	doneCost  float64
	finalizer *taskRow // the finalize task of the latest decision, nil if none
}

// folds derives the state of documents from their tasks.
type folds struct {
	*handle
	sweep struct { // progress of the search for forgotten documents
		sync.Mutex
		at    time.Time
		state int
		after string
	}
}

// extra reports whether a task enriches a generation after it is published, so that
// neither progress nor completion waits for it.
func extra(kind sheaf.TaskKind) bool {
	switch kind {
	case sheaf.KindRaptor, sheaf.KindGraphRAG, sheaf.KindMindmap:
		return true
	}
	return false
}

// notCounted lists, for SQL, the kinds that do not count towards completion.
const notCounted = "('finalize','raptor','graphrag','mindmap')"

// isComplete selects undecided documents of whose newest generation every counted task
// has ended.
//
// guard: finalize guard: every task has ended
const isComplete = "state IN ('unstarted','queued','running') AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.doc_id=documents.id AND t.gen=documents.gen AND t.kind NOT IN " + notCounted + " AND t." + isOpen + ")"

// Fold updates documents whose tasks changed: state, progress, counts, and the
// finalize task of complete ones. A running document with tasks left that was
// updated less than apart ago is deferred; later reports that there is one, or one
// locked by others: the end of its last task matters immediately, its progress only
// to watchers. Executors never write a document's state or progress: they mark it
// dirty, and this derives both from the tasks, which is deterministic and
// idempotent. Deferrable documents come last.
func (s *folds) Fold(ctx context.Context, limit int, apart time.Duration) (n int, later bool, err error) {
	return s.FoldShare(ctx, 0, 1, limit, apart)
}

// foldTogether is how many documents one transaction folds. Measured on MariaDB:
// with 200, a document takes a tenth of the time it takes alone; more saves little.
const foldTogether = 200

// mark is a document to fold, as it was marked.
type mark struct {
	DocID string
	At    int64
	Early bool
}

// FoldShare is Fold for one of several folders' share of the documents, by id: rank
// is in [0, of). If two disagree about their shares, or one thought dead returns,
// the lock on a document decides: the one that does not get it leaves the document
// to the other.
func (s *folds) FoldShare(ctx context.Context, rank, of, limit int, apart time.Duration) (n int, later bool, err error) {
	if err := s.sweepForgotten(ctx, limit); err != nil {
		return 0, false, err
	}
	// guard: fold: the end of the last task is not left for later
	q := `SELECT m.doc_id, m.at, CASE WHEN EXISTS (SELECT 1 FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.gen
			WHERE d.id=m.doc_id AND d.state='running' AND d.updated_at>@now-? AND d.updated_at<=@now
				AND t.` + isOpen + ` AND t.kind NOT IN ` + notCounted + `)
		THEN 1 ELSE 0 END AS early FROM (SELECT doc_id, at FROM doc_dirty ORDER BY at, doc_id LIMIT ?) m ORDER BY early, m.at, m.doc_id`
	of = max(of, 1)
	marks, err := all[mark](s.write(ctx), s.sql(q), apart.Milliseconds(), max(4*limit, foldTogether)*of)
	if err != nil {
		return 0, false, err
	}
	if of > 1 {
		marks = slices.DeleteFunc(marks, func(m mark) bool { return shareOf(m.DocID, of) != rank })
	}
	if early := slices.IndexFunc(marks, func(m mark) bool { return m.Early }); early >= 0 {
		marks, later = marks[:early], true
	}
	for part := range slices.Chunk(marks[:min(len(marks), limit)], foldTogether) {
		changed, held, err := s.foldMarked(ctx, part, limit)
		if err != nil && len(part) > 1 && ctx.Err() == nil {
			// One document's failure must not block the others.
			for i := range part {
				alone, heldToo, failed := s.foldMarked(ctx, part[i:i+1], limit)
				changed, held = changed+alone, held || heldToo
				if failed == nil {
					continue
				}
				if err = failed; ctx.Err() != nil {
					break
				}
			}
		}
		if n, later = n+changed, later || held; err != nil {
			return n, later, err
		}
	}
	return n, later, nil
}

// shareOf returns the share that a document falls to.
func shareOf(documentID string, of int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(documentID)) // never fails
	return int(h.Sum32() % uint32(of))
}

// foldMarked folds documents in one transaction, and reports whether some are locked
// by others; these stay marked.
func (s *folds) foldMarked(ctx context.Context, marks []mark, limit int) (changed int, held bool, err error) {
	var waiting []string // for parents
	err = s.tx(ctx, func(tx *gorm.DB) error {
		changed, held, waiting = 0, false, nil
		ids := mapped(marks, func(m mark) string { return m.DocID })
		docs, err := all[documentRow](tx, "SELECT "+foldColumns+" FROM documents WHERE id IN ? ORDER BY id"+s.d.skip, ids)
		if err != nil {
			return err
		}
		seen := setOf(mapped(docs, documentRow.id))
		if len(docs) < len(ids) {
			var others []string
			for _, id := range ids {
				if !seen[id] {
					others = append(others, id)
				}
			}
			there, err := all[string](tx, "SELECT id FROM documents WHERE id IN ?", others)
			if err != nil {
				return err
			}
			if held = len(there) > 0; held {
				elsewhere := setOf(there)
				ids = slices.DeleteFunc(ids, func(id string) bool { return elsewhere[id] })
			}
		}
		changed, waiting, err = s.foldLocked(tx, docs)
		if err != nil || len(ids) == 0 {
			return err
		}
		// Last, and only the marks that were read: later changes are handled next time.
		gone := setOf(ids)
		args := make([]any, 1, 1+2*len(ids))
		args[0] = ids
		for _, m := range marks {
			if gone[m.DocID] {
				args = append(args, m.DocID, m.At)
			}
		}
		return tx.Exec("DELETE FROM doc_dirty WHERE doc_id IN ? AND CASE doc_id"+strings.Repeat(" WHEN ? THEN at-?", len(args)/2)+" END=0", args...).Error
	})
	if err != nil {
		return 0, false, err
	}
	for _, id := range waiting {
		// A dead parent leaves its children waiting forever; ending them marks the
		// document dirty again.
		if _, err := s.settleParked(ctx, id, limit); err != nil {
			return changed, held, err
		}
	}
	return changed, held, nil
}

// foldColumns are the document columns needed for folding.
const foldColumns = "id, tenant_id, dataset_id, name, state, progress, gen, live_gen, fin_epoch, job_id, lane, deleted_at"

// foldLocked updates documents whose rows are locked. It returns how many changed,
// and which have parked tasks.
func (s *folds) foldLocked(tx *gorm.DB, docs []documentRow) (changed int, parked []string, err error) {
	docs = slices.DeleteFunc(docs, func(d documentRow) bool { return d.DeletedAt != 0 })
	if len(docs) == 0 {
		return 0, nil, nil
	}
	read, err := s.readFolds(tx, docs)
	if err != nil {
		return 0, nil, err
	}
	for i := range docs {
		if read[docs[i].ID].parked > 0 {
			parked = append(parked, docs[i].ID)
		}
	}
	changed, err = s.applyFolds(tx, docs, read)
	return changed, parked, err
}

// finishDocument folds a document whose ranges may all be done, and returns its
// finalize task if that made one. The check before costs a few seeks; the fold's own
// statement decides.
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
		changed, err := s.foldDocument(tx, id)
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

// foldDocument updates one document, and reports whether it changed.
func (s *folds) foldDocument(tx *gorm.DB, id string) (bool, error) {
	doc, err := s.lockDocument(tx, id)
	if err != nil || doc == nil {
		return false, err
	}
	n, _, err := s.foldLocked(tx, []documentRow{*doc})
	return n > 0, err
}

// verdict is the outcome of a fold for its document.
type verdict struct {
	next     sheaf.DocumentState
	progress float64
	failure  *sheaf.Failure
}

// judge is the document's part of the state machine.
func judge(doc *documentRow, f *fold) (v verdict) {
	state := sheaf.DocumentState(doc.State)
	v = verdict{next: state, progress: doc.Progress}
	if f.planned && f.cost > 0 && !state.Terminal() {
		v.progress = max(v.progress, 0.99*f.doneCost/f.cost)
	}
	switch {
	case state == sheaf.DocCanceling:
		if f.openAll == 0 {
			v.next = sheaf.DocCanceled
		}
	case state.Terminal():
		// A retried dead task reopens the generation.
		if state != sheaf.DocCanceled && f.openAll > 0 {
			v.next = sheaf.DocRunning
		}
	case f.plan != nil && f.plan.State == string(sheaf.TaskDead):
		v.next, v.failure = sheaf.DocFailed, decodeFailure(f.plan.Failure)
	case f.plan != nil:
		v.next = sheaf.DocCanceled
	case state == sheaf.DocFinalizing && f.finalizer != nil && f.finalizer.State == string(sheaf.TaskDead):
		v.next, v.failure = sheaf.DocFailed, decodeFailure(f.finalizer.Failure)
	case state == sheaf.DocFinalizing && f.finalizer != nil && f.finalizer.State == string(sheaf.TaskCanceled):
		v.next = sheaf.DocCanceled
	case state == sheaf.DocFinalizing:
	// guard: finalize guard: every task has ended, as counted
	case f.planned && f.open == 0:
		v.next = sheaf.DocFinalizing
	case f.started:
		v.next = sheaf.DocRunning
	}
	return v
}

// applyFolds writes the outcome for documents whose rows are locked, with one
// statement per step, and returns how many documents changed.
func (s *folds) applyFolds(tx *gorm.DB, docs []documentRow, read map[string]*fold) (changed int, err error) {
	var moved, begun, complete []*documentRow
	progress := map[string]float64{}
	for i := range docs {
		doc := &docs[i]
		v := judge(doc, read[doc.ID])
		progress[doc.ID] = v.progress
		switch {
		case v.next == sheaf.DocumentState(doc.State):
			if v.progress != doc.Progress {
				moved = append(moved, doc)
			}
			continue
		case v.next == sheaf.DocFinalizing:
			complete = append(complete, doc)
			continue
		case v.next == sheaf.DocRunning:
			begun = append(begun, doc)
		default: // a terminal state, which is rare here
			if err := s.moveDocument(tx, doc, v.next, v.progress, v.failure); err != nil {
				return 0, err
			}
		}
		changed++
	}
	if len(moved) > 0 {
		set, args := progressOfEach(moved, progress)
		n, err := exec(tx, s.sql("UPDATE documents SET progress="+s.d.greatest+"(progress, "+set+"), updated_at=@now WHERE id IN ?"), append(args, idsOf(moved))...)
		if err != nil {
			return 0, err
		}
		changed += n
	}
	if len(begun) > 0 {
		set, args := progressOfEach(begun, progress)
		err := run(tx, stmt(s.sql("UPDATE documents SET state='running', progress="+set+`, failure='', updated_at=@now, finished_at=0,
			started_at=CASE WHEN started_at=0 THEN @now ELSE started_at END WHERE id IN ?`), append(args, idsOf(begun))...),
			stmt("UPDATE generations SET state='running', failure='', finished_at=0 WHERE doc_id IN ? AND gen="+newestGen, idsOf(begun)))
		if err == nil {
			err = s.logDocuments(tx, begun, sheaf.DocRunning, progress)
		}
		if err != nil {
			return 0, err
		}
	}
	n, err := s.finalize(tx, complete, progress)
	return changed + n, err
}

// newestGen is the newest generation of a row's document.
const newestGen = "(SELECT d.gen FROM documents d WHERE d.id=doc_id)"

func idsOf(docs []*documentRow) []string {
	return mapped(docs, func(d *documentRow) string { return d.ID })
}

// progressOfEach is an expression for the progress of each of several documents.
// Zero times the column tells the engine the type.
func progressOfEach(docs []*documentRow, progress map[string]float64) (set string, args []any) {
	for _, d := range docs {
		args = append(args, d.ID, progress[d.ID])
	}
	return "CASE id" + strings.Repeat(" WHEN ? THEN progress*0+?", len(docs)) + " ELSE progress END", args
}

// logDocuments logs a non-terminal state of documents whose rows are locked.
func (s *handle) logDocuments(tx *gorm.DB, docs []*documentRow, state sheaf.DocumentState, progress map[string]float64) error {
	// Of the newest generations alone: a document may have had thousands.
	latest, err := all[struct {
		SubjectID string
		N         int64
	}](tx, `SELECT e.subject_id, MAX(e.n) AS n FROM documents d JOIN events e ON e.subject_id=d.id AND e.epoch=d.gen AND e.kind=?
		WHERE d.id IN ? GROUP BY e.subject_id`, sheaf.EventDocument, idsOf(docs))
	if err != nil {
		return err
	}
	next := map[string]int64{}
	for _, l := range latest {
		next[l.SubjectID] = l.N + 1
	}
	events := make([]eventRow, len(docs))
	for i, d := range docs {
		events[i] = eventRow{TenantID: d.TenantID, DatasetID: d.DatasetID, JobID: d.JobID, DocID: d.ID, Gen: d.Gen, SubjectID: d.ID, Epoch: int64(d.Gen),
			Kind: sheaf.EventDocument, N: next[d.ID], Detail: encode(sheaf.DocumentChange{State: state, Progress: progress[d.ID]})}
	}
	return s.insertEvents(tx, events...)
}

// moveDocument changes the state of a locked document and of its newest generation.
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
	// A canceled generation's results are shown to no one. A retry of a failed one may
	// use them.
	switch next {
	case sheaf.DocCanceled:
		err = s.dropRanges(tx, s.grace, doc, doc.Gen, doc.LiveGen)
	case sheaf.DocFailed:
		err = s.dropRanges(tx, s.grace, doc, doc.Gen, doc.Gen, doc.LiveGen)
	}
	if err != nil {
		return err
	}
	return s.insertDocumentEvent(tx, doc, sheaf.DocumentChange{State: next, Progress: progress, Failure: failure})
}

// finalize decides that all work of some generations is over and gives each a
// finalize task. A single statement decides, so that exactly one concurrent caller
// wins; it is retried with every fold, so that no wake-up is lost.
func (s *folds) finalize(tx *gorm.DB, docs []*documentRow, progress map[string]float64) (won int, err error) {
	if len(docs) == 0 {
		return 0, nil
	}
	set, args := progressOfEach(docs, progress)
	ids := idsOf(docs)
	if won, err = exec(tx, s.sql("UPDATE documents SET state='finalizing', fin_epoch=fin_epoch+1, progress="+set+`, updated_at=@now,
		started_at=CASE WHEN started_at=0 THEN @now ELSE started_at END
		WHERE id IN ? AND deleted_at=0 AND `+isComplete),
		append(args, ids)...); err != nil || won == 0 {
		return 0, err
	}
	if won < len(docs) {
		there, err := all[string](tx, "SELECT id FROM documents WHERE id IN ? AND state='finalizing'", ids)
		if err != nil {
			return 0, err
		}
		mine := setOf(there)
		docs = slices.DeleteFunc(docs, func(d *documentRow) bool { return !mine[d.ID] })
		ids = idsOf(docs)
	}
	if err := run(tx, stmt("UPDATE generations SET state='finalizing' WHERE doc_id IN ? AND gen="+newestGen, ids)); err != nil {
		return 0, err
	}
	plans, err := all[taskRow](tx, `SELECT t.doc_id, t.trace, t.place, t.created_at FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.gen
		WHERE d.id IN ? AND t.kind='plan' ORDER BY t.id DESC`, ids)
	if err != nil {
		return 0, err
	}
	planOf := make(map[string]*taskRow, len(plans))
	for i := range plans { // the first one comes last here, and wins
		planOf[plans[i].DocID] = &plans[i]
	}
	paused, err := s.pausedOf(tx, docs)
	if err != nil {
		return 0, err
	}
	rows := make([][]any, len(docs))
	for i, doc := range docs {
		base := taskBase{TenantID: doc.TenantID, DatasetID: doc.DatasetID, DocumentID: doc.ID, JobID: doc.JobID, Generation: doc.Gen, Lane: sheaf.Lane(doc.Lane)}
		if plan := planOf[doc.ID]; plan != nil {
			// guard: order: what follows has the place of its document
			base.Trace, base.Place = plan.Trace, cmp.Or(plan.Place, plan.CreatedAt)
		}
		task := finalizeTask(doc)
		rows[i] = s.taskValues(base, &task, paused[doc.ID], 0, 0)
	}
	if err := insertRows(tx, "tasks", taskColumns, rows, s.d.noop("id")); err != nil {
		return 0, err
	}
	return won, s.logDocuments(tx, docs, sheaf.DocFinalizing, progress)
}

// finalizeTask is the task of the next decision that a document is complete.
func finalizeTask(doc *documentRow) sheaf.NewTask {
	epoch := doc.FinEpoch + 1
	return sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindFinalize, Node: strconv.FormatInt(epoch, 10), Cost: 1,
		Payload: []byte(encode(taskstore.FinalizePayload{FinalizeEpoch: epoch}))}
}

// pausedOf returns 1 for each document whose job, dataset or tenant is paused, as
// inheritPaused does for one.
func (s *folds) pausedOf(tx *gorm.DB, docs []*documentRow) (map[string]int, error) {
	paused := map[string]int{}
	for _, q := range []struct {
		table string
		of    func(d *documentRow) string
	}{
		{"tenants", func(d *documentRow) string { return d.TenantID }},
		{"datasets", func(d *documentRow) string { return d.DatasetID }},
		{"jobs", func(d *documentRow) string { return d.JobID }},
	} {
		ids := slices.DeleteFunc(sortedUnique(mapped(docs, q.of)), func(id string) bool { return id == "" })
		if len(ids) == 0 {
			continue
		}
		rows, err := all[struct {
			ID     string
			Paused int
		}](tx, "SELECT id, paused FROM "+q.table+" WHERE id IN ? ORDER BY id"+s.d.share, ids)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.Paused == 0 {
				continue
			}
			for _, d := range docs {
				if q.of(d) == r.ID {
					paused[d.ID] = 1
				}
			}
		}
	}
	return paused, nil
}

// readFolds summarizes the tasks of the documents' newest generations.
func (s *folds) readFolds(tx *gorm.DB, docs []documentRow) (map[string]*fold, error) {
	folds := make(map[string]*fold, len(docs))
	for i := range docs {
		folds[docs[i].ID] = &fold{}
	}
	groups, err := all[struct {
		DocID, Kind, State string
		N, Attempts        int
		Cost               float64
	}](tx, `SELECT t.doc_id, t.kind, t.state, COUNT(*) AS n, SUM(t.cost) AS cost, SUM(t.attempts) AS attempts
		FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.gen WHERE d.id IN ? GROUP BY t.doc_id, t.kind, t.state`, mapped(docs, documentRow.id))
	if err != nil {
		return nil, err
	}
	running := map[string]bool{}
	for _, g := range groups {
		kind, state, f := sheaf.TaskKind(g.Kind), sheaf.TaskState(g.State), folds[g.DocID]
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
		if state == sheaf.TaskRunning {
			running[g.DocID] = true
		}
		if kind == sheaf.KindPlan {
			f.planned = f.planned || state == sheaf.TaskDone
		}
	}
	var unplanned, finalizing, working []string
	for i := range docs {
		d, f := &docs[i], folds[docs[i].ID]
		if !f.planned && f.open == 0 {
			unplanned = append(unplanned, d.ID)
		}
		if d.State == string(sheaf.DocFinalizing) {
			finalizing = append(finalizing, d.ID)
		}
		if f.planned && running[d.ID] {
			working = append(working, d.ID)
		}
	}
	// tasksOf reads tasks of the newest generations, each document's first one last.
	tasksOf := func(ids []string, which string) ([]taskRow, error) {
		if len(ids) == 0 {
			return nil, nil
		}
		return all[taskRow](tx, "SELECT t.* FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.gen WHERE d.id IN ? AND "+which+" ORDER BY t.id DESC", ids)
	}
	plans, err := tasksOf(unplanned, "t.kind='plan' AND t.state IN ('dead','canceled','superseded')")
	if err != nil {
		return nil, err
	}
	for i := range plans {
		folds[plans[i].DocID].plan = &plans[i]
	}
	finalizers, err := tasksOf(finalizing, "t.kind='finalize'")
	if err != nil {
		return nil, err
	}
	decision := make(map[string]string, len(docs))
	for i := range docs {
		decision[docs[i].ID] = strconv.FormatInt(docs[i].FinEpoch, 10)
	}
	for i := range finalizers {
		if t := &finalizers[i]; t.Node == decision[t.DocID] {
			folds[t.DocID].finalizer = t
		}
	}
	if len(working) == 0 {
		return folds, nil
	}
	parts, err := all[struct {
		DocID, Detail string
		Cost          float64
	}](tx, `SELECT t.doc_id, t.cost, COALESCE((SELECT e.detail FROM events e WHERE e.subject_id=t.id AND e.epoch=t.epoch AND e.kind='progress'
			ORDER BY e.n DESC LIMIT 1), '') AS detail
		FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.gen WHERE d.id IN ? AND t.state='running' AND t.kind IN ('parse','index')`, working)
	for _, t := range parts {
		folds[t.DocID].doneCost += t.Cost * progressOf(t.Detail)
	}
	return folds, err
}

const (
	sweepEvery = 10 * time.Second
	sweepBatch = 50
)

// sweepStates are the states in which a document waits for its tasks.
var sweepStates = []sheaf.DocumentState{sheaf.DocFinalizing, sheaf.DocCanceling, sheaf.DocRunning, sheaf.DocQueued, sheaf.DocUnstarted}

// sweepForgotten marks documents waiting for their tasks as dirty, a few at a time
// in rotation, in case a mark was ever lost.
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
// backstop for the wake-up on completion of the last parent. A task with a parent
// that ended without being done will never run: it ends too.
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
		Failed, Dead int // parents that ended without being done, and the dead ones among them
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
				// Done parents stay done, so nothing can change between the query and
				// this.
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

// progressOf is the share of a running task completed according to its latest
// progress event, 0 to 1.
func progressOf(detail string) float64 {
	var p sheaf.Progress
	if json.Unmarshal([]byte(detail), &p) != nil || p.Total <= 0 {
		return 0
	}
	return min(max(float64(p.Done)/float64(p.Total), 0), 1)
}
