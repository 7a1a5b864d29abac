package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sheaf"
	"sheaf/internal/enrich"
	"sheaf/parser"
	"sheaf/taskstore"
)

// A small document, or the one range that a new version changes, is read by the plan
// task: to store, queue, claim and end two more tasks took longer than to read it. The
// document then has the tasks and results that it would otherwise have, written in one
// transaction and published by it.

// smallBytes is the size up to which a document in one piece is read by its plan, and
// smallSparseBytes the same if only the parts of the file that are needed are read.
const (
	smallBytes       = 256 << 10
	smallSparseBytes = 4 << 20
)

// smallCost is the same for what a piece costs, in pages. A new version of a document
// has a piece of the usual size of which one page has changed.
const (
	smallCost   = 8
	changedCost = 12
)

// smallTime and smallTimePerPage bound its parsing. What takes longer is left to a
// task, which has more time and finds the unit that is to blame.
const (
	smallTime        = 2 * time.Second
	smallTimePerPage = time.Second
)

// processPlan plans a document. It also reads it if it is small, or if only one range of
// a new version is not kept, and publishes it if nothing else is to be done.
func (e *Executor) processPlan(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
	doc, err := e.cfg.Planner.Store.DocumentByID(ctx, t.DocumentID)
	if err != nil {
		return taskstore.Completion{}, fmt.Errorf("reading document %s: %w", t.DocumentID, err)
	}
	done, err := e.cfg.Planner.Process(e.withSlots(ctx, t), t, doc)
	if err != nil {
		return done, err
	}
	e.outlines.planned(t, done.Spawn)
	if of := e.readsItself(t, doc, &done); of != nil {
		result, publish, err := e.readPlanned(ctx, t, doc, &done, of)
		switch {
		case err == nil:
			of.Done, of.Ran, done.Publish = result, true, publish
		case ctx.Err() != nil:
			return done, err
		default:
			// Its own task reads it again and reports what is wrong.
			e.cfg.Log.DebugContext(ctx, "the plan could not read the document; a task of its own does", "document", doc.ID, "error", err)
			done.Remains = true
		}
	}
	return done, nil
}

// readsItself returns the task that the plan t runs itself, nil for none: the only
// range of a small document, or the only one of a new version that is not kept. It
// takes no longer than planning, and needs nothing but this process. After a failed or
// lost attempt, planning and reading are tried apart.
func (e *Executor) readsItself(t *sheaf.Task, doc *sheaf.Document, done *taskstore.Completion) *sheaf.NewTask {
	if t.FailCount+t.LostCount > 0 || done.Plan == nil || done.Plan.Flow != nil || slices.Contains(e.Skipped(), sheaf.KindParse) {
		return nil
	}
	var of *sheaf.NewTask
	for i := range done.Spawn {
		switch n := &done.Spawn[i]; {
		case n.Done != nil:
		case of != nil:
			return nil
		default:
			of = n
		}
	}
	changed := len(done.Spawn) > 1
	most := smallCost
	if changed {
		most = changedCost
	}
	if of == nil || of.Kind != sheaf.KindParse || of.Pool != "" || of.Cost > most || len(of.DependsOn) > 0 {
		return nil
	}
	var payload taskstore.ParsePayload
	if json.Unmarshal(of.Payload, &payload) != nil || payload.Flow != nil || payload.Slow {
		return nil
	}
	switch sparse := e.sparse(&payload); {
	case sparse && changed: // its size says nothing about the range
	case sparse && doc.Size > smallSparseBytes, !sparse && doc.Size > smallBytes:
		return nil
	}
	if e.model != nil && enrich.Fingerprint(payload.Config, e.cfg.Chat.Model()) != "" {
		return nil
	}
	format, ok := e.cfg.Planner.Formats.ByID(payload.Format)
	if !ok {
		return nil
	}
	_, optional := format.(parser.Optional)
	_, caller := format.(parser.Caller)
	if optional || caller {
		return nil
	}
	return of
}

// readPlanned runs of, the only open task of the planned document, and determines how
// the document ends. The range result has the id of the plan's attempt,
// so that it is collected if the attempt is lost. No publication means that a finalize
// task has more to do: to place edits, or to have ranges put under other headings or
// read again.
func (e *Executor) readPlanned(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, done *taskstore.Completion, of *sheaf.NewTask) (*sheaf.TaskResult, *taskstore.Publication, error) {
	planned := *doc
	planned.Parser, planned.Unit, planned.Units = done.Plan.Parser, done.Plan.Unit, done.Plan.Units
	planned.Metadata = done.Plan.MetadataWith(doc.Metadata)
	e.recent.know(t, &planned, time.Now())
	defer e.recent.forget([]string{doc.ID})

	reads := spawned(t, of)
	reads.ID = t.ID
	quick := *e
	quick.cfg.ParseTimeout, quick.cfg.UnitTimeout = min(e.cfg.ParseTimeout, smallTime), min(e.cfg.UnitTimeout, smallTimePerPage)
	parsed, err := quick.pinned((*Executor).processParse).Process(ctx, &reads)
	if err != nil {
		return nil, nil, err
	}
	if i := slices.IndexFunc(parsed.Result.Ledger, func(r sheaf.LedgerRun) bool { return r.Status == sheaf.UnitFailed }); i >= 0 {
		// Perhaps only for want of time: a task of its own has more.
		return nil, nil, fmt.Errorf("unit %d was not read: %s", parsed.Result.Ledger[i].From, parsed.Result.Ledger[i].Message)
	}
	if t.Generation > 1 {
		edits, err := e.cfg.Store.Edits(ctx, t.TenantID, t.DocumentID)
		if err != nil || len(edits) > 0 {
			return &parsed.Result, nil, err
		}
	}
	plan := *t
	plan.State, plan.Result = sheaf.TaskDone, done.Result
	tasks := []sheaf.Task{plan}
	for i := range done.Spawn {
		n := &done.Spawn[i]
		r := spawned(t, n)
		r.State, r.Result = sheaf.TaskDone, *cmp.Or(n.Done, &parsed.Result)
		tasks = append(tasks, r)
	}
	finalizes := *t
	finalizes.Kind = sheaf.KindFinalize
	ended, err := e.pinned(func(e *Executor, ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
		return e.finalize(ctx, t, &planned, tasks)
	}).Process(ctx, &finalizes)
	return &parsed.Result, ended.Publish, err
}

// spawned is a task that the plan t makes, as far as reading and finalizing look at it.
func spawned(t *sheaf.Task, n *sheaf.NewTask) sheaf.Task {
	of := *t
	of.ID, of.Kind, of.Unit, of.Range, of.Cost = n.ID, n.Kind, n.Unit, n.Range, n.Cost
	of.ReuseKey, of.Digest, of.Payload = n.ReuseKey, n.Digest, n.Payload
	return of
}
