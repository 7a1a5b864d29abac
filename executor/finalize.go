package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/edits"
	"sheaf/internal/flow"
	"sheaf/internal/index"
	"sheaf/internal/worker"
	"sheaf/taskstore"
)

// processFinalize determines the outcome of a generation and publishes it. It runs
// when every range is terminal, and reports "succeeded" only when the page ledger
// accounts for every requested unit and the index holds every chunk.
func (e *Executor) processFinalize(ctx context.Context, t *sheaf.Task) (done taskstore.Completion, err error) {
	doc, err := e.cfg.Store.DocumentByID(ctx, t.DocumentID)
	if err != nil {
		return done, fmt.Errorf("reading document %s: %w", t.DocumentID, err)
	}
	tasks, err := e.cfg.Store.GenerationTasks(ctx, t.DocumentID, t.Generation)
	if err != nil {
		return done, err
	}
	return e.finalize(ctx, t, doc, tasks)
}

// finalize is processFinalize for a document and its tasks, all terminal.
func (e *Executor) finalize(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, tasks []sheaf.Task) (done taskstore.Completion, err error) {
	if again := e.reread(t, tasks); len(again) > 0 {
		e.cfg.Log.DebugContext(ctx, "ranges are read again beside the pages around them", "ranges", len(again))
		return taskstore.Completion{Stitch: again}, nil
	}
	by := reportedBy(tasks)
	if stitches := stitches(t, tasks, by); len(stitches) > 0 {
		e.cfg.Log.DebugContext(ctx, "ranges are put under the headings before them", "ranges", len(stitches))
		return taskstore.Completion{Stitch: stitches}, nil
	}
	last, err := e.lastNodes(ctx, tasks)
	if err != nil {
		return done, err
	}
	// guard: flows: a document is published behind the nodes over it
	if len(last) > 0 {
		return taskstore.Completion{Last: last}, nil
	}
	result := outcome(doc, tasks)
	result.Metadata = foundBy(tasks)
	if result.Chunks > 0 {
		if err := e.newRun(t).stage(ctx, "verify", func(ctx context.Context) error { return e.verifyIndex(ctx, doc, tasks) }); err != nil {
			return done, err
		}
	}
	if err := e.placeEdits(ctx, t, doc, tasks, &result); err != nil {
		return done, err
	}
	return taskstore.Completion{Publish: &result}, nil
}

// foundBy merges what nodes found about the document in its ranges.
func foundBy(tasks []sheaf.Task) map[string]string {
	tasks = slices.Clone(tasks)
	slices.SortStableFunc(tasks, func(a, b sheaf.Task) int { return a.Range.From - b.Range.From })
	var out map[string]string
	for _, t := range tasks {
		if t.State != sheaf.TaskDone || t.Result.Output == nil {
			continue
		}
		for name, v := range t.Result.Output.Metadata {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = flow.Union(out[name], v)
		}
	}
	return out
}

// placeEdits applies users' edits of the document's chunks to the generation being
// published.
func (e *Executor) placeEdits(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, tasks []sheaf.Task, p *taskstore.Publication) error {
	var all []taskstore.ChunkEdit
	var err error
	if t.Generation > 1 { // only what was published can be edited
		if all, err = e.cfg.Store.Edits(ctx, t.TenantID, t.DocumentID); err != nil {
			return err
		}
	}
	p.EditsVersion = taskstore.EditsVersion(all)
	if len(all) == 0 || p.State == sheaf.DocFailed {
		return nil
	}
	// The parts this task is pinned to, as its ranges are.
	w := edits.Writer{Store: e.cfg.Store, Blobs: e.cfg.Blobs, Index: e.cfg.Index, Embedder: e.cfg.Embedder, TextFunc: EmbeddingText}
	return e.newRun(t).stage(ctx, "edits", func(ctx context.Context) error {
		p.Edits, err = w.Place(ctx, doc, t.Generation, tasks, all)
		return err
	})
}

// outcome rolls the tasks of a generation up into its outcome: the ledger of all
// requested units, and the verdict derived from it.
func outcome(doc *sheaf.Document, tasks []sheaf.Task) taskstore.Publication {
	var out taskstore.Publication
	var ledgers []sheaf.Ledger
	var firstFailure *sheaf.Failure
	documents := 0 // that came out of an archive
	nodes := nodeEnds(tasks)
	warn := func(ws []sheaf.Warning) {
		for _, w := range ws {
			if len(out.Warnings) < maxDocumentWarnings && !slices.Contains(out.Warnings, w) {
				out.Warnings = append(out.Warnings, w)
			}
		}
	}
	for _, t := range tasks { // first, what concerns the whole document
		if t.Kind == sheaf.KindPlan && t.State == sheaf.TaskDone {
			warn(t.Result.Warnings)
		}
	}
	for _, t := range tasks {
		if !covers(t) {
			continue
		}
		switch t.State {
		case sheaf.TaskSuperseded: // by one that put its chunks under other headings
		case sheaf.TaskDone:
			ledgers = append(ledgers, t.Result.Ledger)
			out.Chunks += t.Result.Chunks
			out.Tokens += t.Result.Tokens
			documents += t.Result.Documents
			warn(t.Result.Warnings)
		default: // dead, or canceled by an admin: its units were not read
			f := whyUnread(t)
			if dead := nodes.dead[t.Range]; dead != nil && f.Code == "dependency_failed" {
				f = dead
			}
			if firstFailure == nil {
				firstFailure = f
			}
			ledgers = append(ledgers, sheaf.Ledger{{From: t.Range.From, To: t.Range.To, Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message}})
		}
	}
	warn(nodes.warnings)
	ledger := sheaf.MergeLedgers(ledgers...)
	if wanted, err := sheaf.SelectUnits(doc.ParseConfig.Pages.V, doc.Units); err == nil {
		for _, r := range ledger.Missing(wanted) {
			// No task accounts for these units: record a verdict instead of omitting
			// them.
			ledger = sheaf.MergeLedgers(ledger, sheaf.Ledger{{From: r.From, To: r.To, Status: sheaf.UnitFailed, Code: "not_planned", Message: "No task covered these units; re-parse the document."}})
		}
	}
	out.Ledger = ledger.Counts()

	for _, r := range ledger {
		if r.Status == sheaf.UnitFailed && firstFailure == nil {
			firstFailure = sheaf.Fail(sheaf.CategoryOf(r.Code), r.Code, "%s", r.Message)
			firstFailure.Page = r.From
		}
	}
	c := out.Ledger
	switch {
	case out.Chunks+documents == 0:
		out.State, out.Failure = sheaf.DocFailed, emptyFailure(c, ledger, firstFailure)
		if i := slices.IndexFunc(out.Warnings, func(w sheaf.Warning) bool { return w.Code == flow.DroppedCode }); i >= 0 && firstFailure == nil {
			out.Failure = sheaf.Fail(sheaf.CategoryPolicy, flow.DroppedCode, "the flow dropped every chunk of the document (%s); correct the keep of its filter", out.Warnings[i].Message)
		}
	case c.Failed > 0:
		out.State, out.Failure = sheaf.DocPartiallySucceeded, firstFailure
	case nodes.failure == nil && len(nodes.dead) > 0 && c.Failed == 0: // nodes that the index does not wait for
		for _, f := range nodes.dead {
			out.State, out.Failure = sheaf.DocPartiallySucceeded, f
		}
	case nodes.failure != nil:
		out.State, out.Failure = sheaf.DocPartiallySucceeded, nodes.failure
	default:
		out.State = sheaf.DocSucceeded
	}
	return out
}

// emptyFailure says why a document yielded nothing searchable; that is never a
// success.
func emptyFailure(c sheaf.LedgerCounts, ledger sheaf.Ledger, first *sheaf.Failure) *sheaf.Failure {
	switch {
	case c.Failed > 0 && first != nil:
		return first
	case c.Skipped > 0:
		for _, r := range ledger {
			if r.Status == sheaf.UnitSkipped {
				return sheaf.Fail(sheaf.CategoryOf(r.Code), r.Code, "%s", r.Message)
			}
		}
	case c.Blank > 0 && c.OK == 0 && c.OCR == 0:
		return sheaf.Fail(sheaf.CategoryBadInput, "empty_document", "The document opens but contains no text; check that you uploaded the right file.")
	}
	return sheaf.Fail(sheaf.CategoryBadInput, "no_text", "The document opens but no text could be extracted; check that you uploaded the right file.")
}

// verifyIndex makes sure that every chunk of the generation can be found, and
// rewrites missing ones from the artifacts.
func (e *Executor) verifyIndex(ctx context.Context, doc *sheaf.Document, tasks []sheaf.Task) error {
	ctx = index.WithWaiting(ctx, func() { worker.YieldBriefly(ctx) }) // one refresh serves all that finish within a second
	if err := e.cfg.Index.Refresh(ctx); err != nil {
		return err
	}
	want := map[string]*sheaf.Task{}
	var ids []string
	for i := range tasks {
		if t := &tasks[i]; covers(*t) && t.State == sheaf.TaskDone && t.Result.RangeID != "" && t.Result.Chunks > 0 {
			want[t.Result.RangeID] = t
			ids = append(ids, t.Result.RangeID)
		}
	}
	e.verifyBeside(ctx, doc, want, ids)
	for round := range 2 {
		short, err := e.shortRanges(ctx, doc.TenantID, ids, want)
		if err != nil || len(short) == 0 {
			return err
		}
		if round == 1 {
			return sheaf.FailRetryable(sheaf.CategoryTarget, "index_incomplete", "The index holds fewer chunks than were written for %d ranges; it will be tried again.", len(short))
		}
		for _, id := range short {
			e.cfg.Log.WarnContext(ctx, "the index lost chunks of a finished range; writing them again", "range", id)
			if e.live != nil {
				err = e.cfg.Indexes.Put(ctx, e.live, liveResult(doc, &want[id].Result))
			} else {
				err = e.rewrite(ctx, doc, want[id].Result.ArtifactKey)
			}
			if errors.Is(err, sheaf.ErrNotFound) {
				return sheaf.Fail(sheaf.CategoryTarget, "artifact_missing", "The stored result of units %s is gone from the blob store; re-parse the document.", want[id].Range)
			}
			if err != nil {
				return err
			}
		}
		if err := e.cfg.Index.Refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rewrite writes a stored result into the index.
func (e *Executor) rewrite(ctx context.Context, doc *sheaf.Document, key string) error {
	stored, err := artifact.Load(ctx, e.cfg.Blobs, key)
	if err != nil {
		return err
	}
	return e.cfg.Index.Write(ctx, entriesOf(doc.TenantID, doc, stored.Chunks, stored.Vectors))
}

// verifyBeside adds to the index beside the live one the results of tasks that did
// not know about it yet.
func (e *Executor) verifyBeside(ctx context.Context, doc *sheaf.Document, want map[string]*sheaf.Task, ids []string) {
	if e.beside == nil || e.beside.Index == nil {
		return
	}
	other := *e
	other.cfg.Index = e.beside.For(doc.TenantID)
	err := other.cfg.Index.Refresh(ctx)
	if err == nil {
		ids, err = other.shortRanges(ctx, doc.TenantID, ids, want)
	}
	if err != nil {
		e.cfg.Log.WarnContext(ctx, "the new index could not be compared; that is done before it is searched", "document", doc.ID, "error", err)
		return
	}
	for _, id := range ids {
		e.writeBeside(ctx, doc, &want[id].Result)
	}
}

// countBatch bounds how many ranges one count covers.
const countBatch = 500

func (e *Executor) shortRanges(ctx context.Context, tenantID string, ids []string, want map[string]*sheaf.Task) (short []string, err error) {
	for len(ids) > 0 {
		n := min(len(ids), countBatch)
		counts, err := e.cfg.Index.Count(ctx, tenantID, ids[:n])
		if err != nil {
			return nil, err
		}
		for _, id := range ids[:n] {
			if counts[id] < want[id].Result.Chunks {
				short = append(short, id)
			}
		}
		ids = ids[n:]
	}
	return short, nil
}
