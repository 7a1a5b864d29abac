package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sheaf"
	"sheaf/internal/enrich"
	"sheaf/parser"
	"sheaf/taskstore"
)

// A small document is read by its plan task: to store, queue, claim and end two more
// tasks took longer than to read it. The document then has the tasks and results that
// it would otherwise have, written in one transaction and published by it.

// smallBytes is the size up to which a document in one piece is read by its plan, and
// smallSparseBytes the same if only the parts of the file that are needed are read.
const (
	smallBytes       = 256 << 10
	smallSparseBytes = 4 << 20
)

// smallCost is the same for what a piece costs, in pages.
const smallCost = 8

// smallTime and smallTimePerPage bound its parsing. What takes longer is left to a
// task, which has more time and finds the unit that is to blame.
const (
	smallTime        = 2 * time.Second
	smallTimePerPage = time.Second
)

// processPlan plans a document, and reads and publishes it if it is small.
func (e *Executor) processPlan(ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
	doc, err := e.cfg.Planner.Store.DocumentByID(ctx, t.DocumentID)
	if err != nil {
		return taskstore.Completion{}, fmt.Errorf("reading document %s: %w", t.DocumentID, err)
	}
	done, err := e.cfg.Planner.Process(e.withSlots(ctx, t), t, doc)
	if err != nil {
		return done, err
	}
	if e.readsSmall(t, doc, &done) {
		if err := e.readSmall(ctx, t, doc, &done); err != nil {
			if ctx.Err() != nil {
				return done, err
			}
			// Its own task reads it again and reports what is wrong.
			e.cfg.Log.DebugContext(ctx, "the plan could not read the document; a task of its own does", "document", doc.ID, "error", err)
			done.Remains = true
		}
	}
	e.outlines.planned(t, done.Spawn)
	return done, nil
}

// readsSmall reports whether the plan t reads the document itself: one piece that
// takes no longer than planning, and needs nothing but this process. After a failed
// or lost attempt, planning and reading are tried apart.
func (e *Executor) readsSmall(t *sheaf.Task, doc *sheaf.Document, done *taskstore.Completion) bool {
	if doc.Generation > 1 || t.FailCount+t.LostCount > 0 || done.Plan == nil || done.Plan.Flow != nil || len(done.Spawn) != 1 {
		return false
	}
	of := &done.Spawn[0]
	if of.Kind != sheaf.KindParse || of.Done != nil || of.Pool != "" || of.Cost > smallCost || len(of.DependsOn) > 0 || slices.Contains(e.Skipped(), sheaf.KindParse) {
		return false
	}
	var payload taskstore.ParsePayload
	if json.Unmarshal(of.Payload, &payload) != nil || payload.Flow != nil || payload.Continues || payload.Slow {
		return false
	}
	most := int64(smallBytes)
	if e.sparse(&payload) {
		most = smallSparseBytes
	}
	if doc.Size > most {
		return false
	}
	if e.model != nil && enrich.Fingerprint(payload.Config, e.cfg.Chat.Model()) != "" {
		return false
	}
	format, ok := e.cfg.Planner.Formats.ByID(payload.Format)
	if !ok {
		return false
	}
	_, optional := format.(parser.Optional)
	_, caller := format.(parser.Caller)
	return !optional && !caller
}

// readSmall runs the only range of a planned document, and determines how the
// document ends. The range result has the id of the plan's attempt, so that it is
// collected if the attempt is lost.
func (e *Executor) readSmall(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, done *taskstore.Completion) error {
	of := &done.Spawn[0]
	planned := *doc
	planned.Parser, planned.Unit, planned.Units = done.Plan.Parser, done.Plan.Unit, done.Plan.Units
	planned.Metadata = done.Plan.MetadataWith(doc.Metadata)
	e.recent.know(t, &planned, time.Now())
	defer e.recent.forget([]string{doc.ID})

	reads := *t
	reads.Kind, reads.Unit, reads.Range, reads.Cost = of.Kind, of.Unit, of.Range, of.Cost
	reads.ReuseKey, reads.Digest, reads.Payload = of.ReuseKey, of.Digest, of.Payload
	quick := *e
	quick.cfg.ParseTimeout, quick.cfg.UnitTimeout = min(e.cfg.ParseTimeout, smallTime), min(e.cfg.UnitTimeout, smallTimePerPage)
	parsed, err := quick.pinned((*Executor).processParse).Process(ctx, &reads)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(parsed.Result.Ledger, func(r sheaf.LedgerRun) bool { return r.Status == sheaf.UnitFailed }); i >= 0 {
		// Perhaps only for want of time: a task of its own has more.
		return fmt.Errorf("unit %d was not read: %s", parsed.Result.Ledger[i].From, parsed.Result.Ledger[i].Message)
	}
	plan := *t
	plan.State, plan.Result = sheaf.TaskDone, done.Result
	reads.ID, reads.State, reads.Result = of.ID, sheaf.TaskDone, parsed.Result
	finalizes := *t
	finalizes.Kind = sheaf.KindFinalize
	ended, err := e.pinned(func(e *Executor, ctx context.Context, t *sheaf.Task) (taskstore.Completion, error) {
		return e.finalize(ctx, t, &planned, []sheaf.Task{plan, reads})
	}).Process(ctx, &finalizes)
	if err == nil && ended.Publish == nil {
		err = errors.New("the document is not complete")
	}
	if err != nil {
		return err
	}
	of.Done, of.Ran, done.Publish = &parsed.Result, true, ended.Publish
	return nil
}
