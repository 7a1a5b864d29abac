package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sheaf"
	"sheaf/internal/flow"
	"sheaf/internal/graph"
	"sheaf/taskstore"
)

// Nodes over the whole document run when its ranges have ended. finalize spawns
// their tasks once the ranges' stored results are settled, and finalizes again after
// them. Each does what a run over the dataset does for one document and leaves the
// same result under the same name, so that the next run of the kind keeps it. None
// of it is visible until the generation is published.

// DocumentKind is a RunKind that can process a single document on its own.
type DocumentKind interface {
	// RunDocument does for one document what Run does for each. It may be called again
	// after an interruption at any point, and finds the answers it already had.
	RunDocument(ctx context.Context, r *DatasetRun, d taskstore.RunDocument) (DocumentResult, error)
}

// DocumentResult is the outcome of a node over the whole document.
type DocumentResult struct {
	Chunks  int      // stored
	Failed  string   // what the model failed at, a sentence; "" for nothing
	Reasons troubles // for that, and for omissions
}

// last lists the nodes over the whole document that are not skipped.
func (p *program) last(skipped []string) (ids []string) {
	for _, n := range p.Order() {
		if flow.Over(n.Kind) != "" && !slices.Contains(skipped, n.ID) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// asksModel reports whether runs of a kind use a model when one is configured.
func asksModel(kind sheaf.TaskKind, config map[string]any) bool {
	return kind != sheaf.KindGraphRAG || config["method"] != graph.MethodCooccurrence
}

// lastNodes makes the tasks of nodes over the whole document that have none yet;
// none when nothing of the document is searchable.
func (e *Executor) lastNodes(ctx context.Context, tasks []sheaf.Task) (out []sheaf.NewTask, err error) {
	at := slices.IndexFunc(tasks, func(t sheaf.Task) bool { return covers(t) && t.State == sheaf.TaskDone && t.Result.Chunks > 0 })
	if at < 0 {
		return nil, nil
	}
	var payload taskstore.ParsePayload
	if err := json.Unmarshal(tasks[at].Payload, &payload); err != nil || payload.Flow == nil || len(payload.Flow.Last) == 0 {
		return nil, nil // a payload that does not decode was not read either
	}
	f, err := e.readFlow(ctx, payload.Flow)
	if err != nil {
		return nil, err
	}
	for _, n := range f.Order() {
		if !slices.Contains(payload.Flow.Last, n.ID) || slices.ContainsFunc(tasks, func(t sheaf.Task) bool { return t.Kind == sheaf.KindDataflow && t.Node == n.ID }) {
			continue
		}
		of := taskstore.FlowRun{Ref: payload.Flow.Ref, Key: payload.Flow.Key, Names: payload.Flow.Names, Node: n.ID, Retry: retryOf(n)}
		raw, err := json.Marshal(taskstore.ParsePayload{Config: payload.Config, Flow: &of})
		if err != nil {
			return nil, fmt.Errorf("encoding the payload of node %s: %w", n.ID, err)
		}
		out = append(out, sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindDataflow, Node: n.ID, Cost: 1, Payload: raw, Pool: poolOf(n), OnFailure: insteadOf(n)})
	}
	return out, nil
}

// processDocumentNode runs a node over the whole document.
func (e *Executor) processDocumentNode(ctx context.Context, run *run, doc *sheaf.Document, n *flow.Node, p *taskstore.ParsePayload) (done taskstore.Completion, err error) {
	t, over := run.task, flow.Over(n.Kind)
	kind, ok := e.cfg.Runs[over].(DocumentKind)
	if !ok {
		return done, sheaf.FailRetryable(sheaf.CategoryInternal, "bad_flow", "This executor runs no nodes of the kind %s; replace it by one that does.", n.Kind)
	}
	edits, err := e.cfg.Store.Edits(ctx, t.TenantID, doc.ID)
	if err != nil {
		return done, err
	}
	if len(edits) > 0 { // which are placed when the document is published
		done.Result.Output = &sheaf.NodeOutput{Skipped: fmt.Sprintf("people have edited chunks of the document, which a run of %s over the dataset reads", over)}
		return done, nil
	}
	tasks, err := e.cfg.Store.GenerationTasks(ctx, doc.ID, t.Generation)
	if err != nil {
		return done, err
	}
	d := taskstore.RunDocument{ID: doc.ID, Name: doc.Name, MediaType: doc.MediaType, Generation: t.Generation}
	for _, r := range tasks {
		if covers(r) && r.State == sheaf.TaskDone && r.Result.RangeID != "" && r.Result.Chunks > 0 {
			d.Ranges = append(d.Ranges, taskstore.RunRange{Range: r.Range, RangeID: r.Result.RangeID, ArtifactKey: r.Result.ArtifactKey, Chunks: r.Result.Chunks})
		}
	}
	slices.SortStableFunc(d.Ranges, func(a, b taskstore.RunRange) int { return a.Range.From - b.Range.From })
	of := taskstore.DatasetRun{ID: t.ID, TenantID: t.TenantID, DatasetID: doc.DatasetID, Kind: over}
	if len(n.Config) > 0 {
		if of.Options.Config, err = json.Marshal(n.Config); err != nil {
			return done, fmt.Errorf("encoding the config of node %s: %w", n.ID, err)
		}
	}
	r := &DatasetRun{DatasetRun: of, e: e, claim: t.Held(), until: time.Now().Add(runSlice), node: true}
	var left DocumentResult
	err = run.stage(ctx, n.Kind, func(ctx context.Context) (err error) {
		return withinTimeout(ctx, time.Duration(n.Timeout), n, p.Flow.Ref, "raise it", func(ctx context.Context) (err error) {
			left, err = kind.RunDocument(ctx, r, d)
			return err
		})
	})
	switch {
	case ctx.Err() != nil:
		return done, context.Cause(ctx)
	case errors.Is(err, errSlice): // it continues from the cached answers
		return done, &sheaf.RateLimited{After: time.Second}
	case errors.Is(err, ErrDocumentGone):
		return done, sheaf.Fail(sheaf.CategoryCanceled, "canceled", "The document was deleted while the node %s ran.", n.ID)
	case err != nil:
		return done, err
	}
	run.note(r.Progress())
	done.Result = sheaf.TaskResult{Stages: run.times, Warnings: left.warnings(n.ID), Output: &sheaf.NodeOutput{Chunks: left.Chunks, Asked: run.asked}}
	return done, nil
}

// warnings reports what a node did not produce.
func (d DocumentResult) warnings(node string) (out []sheaf.Warning) {
	if d.Failed != "" {
		out = append(out, sheaf.Warning{Code: "flow_node_incomplete", Message: fmt.Sprintf("The node %s: %s", node, d.Failed)})
	}
	for _, r := range d.Reasons {
		if d.Failed == "" || r.Code == structuredCode {
			out = append(out, sheaf.Warning{Code: r.Code, Message: fmt.Sprintf("The node %s: %s", node, r.Message)})
		}
	}
	return out
}

func retryOf(n *flow.Node) *taskstore.NodeRetry {
	if n.Retry == nil {
		return nil
	}
	return &taskstore.NodeRetry{Attempts: n.Retry.Attempts, Base: time.Duration(n.Retry.Base), Max: time.Duration(n.Retry.Max)}
}
