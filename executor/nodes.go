package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/flow"
	"sheaf/internal/worker"
	"sheaf/taskstore"
)

// In the mode nodes a range of a document is a graph of tasks: one that reads and
// chunks it, one for each working node between chunk and index, and one that embeds
// and indexes the remaining chunks. They exchange objects named after the attempt,
// as range results are: listed by done tasks, found by a key derived from all their
// inputs, and collected once no generation lists them.

const (
	wholeNodes = 8                // maximum nodes of a flow that runs as a whole, in the mode auto
	wholeTime  = 30 * time.Second // maximum expected time of its nodes per range, likewise
	codeOfNode = 1                // version of what nodes do; raising it invalidates all outputs
	maxPayload = 16 << 10         // bytes; the store takes no more
	maxOutput  = 1 << 30          // maximum bytes of an output that is read
	nodeFailed = "flow_node_failed"
)

// mode decides whether nodes are tasks of their own, and why. times are recent stage
// durations.
func (p *program) mode(skipped []string, times map[string]time.Duration) (mode flow.Mode, reason string) {
	if p.Mode != flow.ModeAuto {
		return p.Mode, fmt.Sprintf("The flow sets mode = %q.", p.Mode)
	}
	for _, n := range p.Nodes {
		switch {
		case flow.Writes(n.Kind):
			return flow.ModeNodes, fmt.Sprintf("The node %s leaves a file, by a task of its own.", n.ID)
		case poolOf(&n) != "":
			return flow.ModeNodes, fmt.Sprintf("The node %s runs in the pool %s.", n.ID, n.Pool)
		case n.OnFailure == flow.SkipNode || n.OnFailure == flow.UseDefault:
			return flow.ModeNodes, fmt.Sprintf("The node %s has on_failure = %q.", n.ID, n.OnFailure)
		case n.Retry != nil:
			return flow.ModeNodes, fmt.Sprintf("The node %s has a retry of its own.", n.ID)
		}
	}
	if len(p.Nodes) > wholeNodes {
		return flow.ModeNodes, fmt.Sprintf("The flow has %d nodes, more than %d.", len(p.Nodes), wholeNodes)
	}
	expected := time.Duration(0)
	for _, n := range p.Nodes {
		if flow.Works(n.Kind) && flow.Over(n.Kind) == "" && !slices.Contains(skipped, n.ID) {
			expected += times[n.Kind]
		}
	}
	if expected > wholeTime {
		return flow.ModeNodes, fmt.Sprintf("Nodes of its kinds took %v a range of late, more than %v.", expected.Round(time.Second), wholeTime)
	}
	return flow.ModeWhole, fmt.Sprintf("The flow has at most %d nodes, and none asks for a task of its own.", wholeNodes)
}

// insteadOf is what happens when a node has failed permanently; "" when its task is
// dead.
func insteadOf(n *flow.Node) string {
	if n.OnFailure == flow.SkipNode || n.OnFailure == flow.UseDefault {
		return string(n.OnFailure)
	}
	return ""
}

func poolOf(n *flow.Node) string {
	if n.Pool == "default" {
		return ""
	}
	return n.Pool
}

// errLargePayload prevents nodes from being tasks: the plan falls back to one task
// per range.
var errLargePayload = errors.New("the payload of a node is too large")

// nodeTasks makes the tasks of a range's nodes, each after those it reads, and the
// final task, which covers the range. base identifies the range's content and the
// settings without the flow.
func (p *program) nodeTasks(last sheaf.NewTask, payload taskstore.ParsePayload, base string) ([]sheaf.NewTask, error) {
	type feed struct{ node, task, name string }
	run := *payload.Flow
	outputs := map[string][]feed{}
	var tasks []sheaf.NewTask
	reader, indexed := "", false
	kinds := map[string]string{}
	for _, n := range p.sinksLast() {
		kinds[n.ID] = n.Kind
		if n.Kind == "parse" || flow.Over(n.Kind) != "" || slices.Contains(run.Skipped, n.ID) {
			continue
		}
		var from []feed
		for _, id := range n.From {
			for _, f := range outputs[id] {
				if !slices.Contains(from, f) {
					from = append(from, f)
				}
			}
		}
		var t sheaf.NewTask
		of := taskstore.FlowRun{Ref: run.Ref, Key: run.Key, Node: n.ID, Names: run.Names, Retry: retryOf(n)}
		names := []string{base}
		for _, f := range from {
			t.DependsOn, of.From, names = append(t.DependsOn, f.task), append(of.From, f.node), append(names, f.name)
		}
		switch {
		case n.Kind == "index":
			run.From, run.Retry = of.From, of.Retry
			payload.Flow = &run
			raw, err := json.Marshal(payload)
			if err != nil {
				return nil, fmt.Errorf("encoding the payload of units %s: %w", last.Range, err)
			}
			if last.Payload = raw; !slices.Contains(t.DependsOn, reader) {
				t.DependsOn = append(t.DependsOn, reader) // its output has the ledger and the outline
			}
			last.DependsOn, last.Pool = t.DependsOn, poolOf(n)
			tasks, indexed = append(tasks, last), true
			continue
		case n.Kind != "chunk" && !flow.Works(n.Kind):
			outputs[n.ID] = from
			continue
		}
		name := nodeName(n, p.asked[n.ID], names)
		mine := taskstore.ParsePayload{Config: payload.Config, Flow: &of}
		t.ID, t.Kind, t.Node, t.Unit, t.Range, t.Cost = sheaf.NewID(), sheaf.KindDataflow, n.ID, last.Unit, last.Range, 1
		if n.Kind == "chunk" {
			reader, run.Reader = t.ID, n.ID
			mine, t.Cost = payload, last.Cost
			mine.Flow, mine.TagSet = &of, nil
		}
		if flow.Writes(n.Kind) && slices.ContainsFunc(n.From, func(id string) bool { return kinds[id] == "embed" }) {
			t.DependsOn = append(t.DependsOn, last.ID) // it has the vectors
		}
		t.ReuseKey, t.Pool = name, poolOf(n)
		t.OnFailure = insteadOf(n)
		var err error
		if t.Payload, err = json.Marshal(mine); err != nil {
			return nil, fmt.Errorf("encoding the payload of node %s: %w", n.ID, err)
		}
		if len(t.Payload) > maxPayload {
			return nil, errLargePayload
		}
		tasks = append(tasks, t)
		outputs[n.ID] = []feed{{n.ID, t.ID, name}}
	}
	if indexed {
		return tasks, nil
	}
	return nil, sheaf.Fail(sheaf.CategoryInternal, "bad_flow", "The flow %s has no node of the kind index; apply it again.", p.ref)
}

// sinksLast is the order of the nodes with index after the nodes it may wait for,
// and nodes that write files last.
func (p *program) sinksLast() []*flow.Node {
	order := p.Order()
	place := func(n *flow.Node) int {
		switch {
		case flow.Writes(n.Kind):
			return 2
		case n.Kind == "index":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b *flow.Node) int { return place(a) - place(b) })
	return order
}

// nodeName identifies a node's output by everything that determines it: its kind,
// the version of the code, its config, what it asks a model, and the names of its
// inputs; 32 hex.
func nodeName(n *flow.Node, asked string, inputs []string) string {
	// guard: flows: an output is named by the config of its node
	b, _ := json.Marshal([]any{"node", codeOfNode, n.Kind, n.Config, asked, inputs}) // it was JSON
	return hash32(b)
}

// needed drops the tasks of nodes whose output will not be read, because they only
// feed existing outputs. Existing outputs stay listed.
func needed(tasks []sheaf.NewTask) []sheaf.NewTask {
	if !slices.ContainsFunc(tasks, func(t sheaf.NewTask) bool { return t.Kind == sheaf.KindDataflow }) {
		return tasks
	}
	// A node that feeds no other writes a file.
	fed := map[string]bool{}
	for _, t := range tasks {
		for _, id := range t.DependsOn {
			fed[id] = true
		}
	}
	reads := map[string]bool{}
	var out []sheaf.NewTask
	for _, t := range slices.Backward(tasks) {
		runs := t.Done == nil && (t.Kind == sheaf.KindParse || t.Kind == sheaf.KindDataflow && (reads[t.ID] || !fed[t.ID]))
		switch {
		case runs:
			for _, id := range t.DependsOn {
				reads[id] = true
			}
		case t.Kind == sheaf.KindDataflow && t.Done == nil:
			continue
		default:
			t.DependsOn = nil
		}
		out = append(out, t)
	}
	slices.Reverse(out)
	return out
}

// renewIDs gives the tasks of a stored plan new ids.
func renewIDs(tasks []sheaf.NewTask) {
	ids := make(map[string]string, len(tasks))
	for i := range tasks {
		id := sheaf.NewID()
		ids[tasks[i].ID], tasks[i].ID = id, id
	}
	for i := range tasks {
		for k, parent := range tasks[i].DependsOn {
			tasks[i].DependsOn[k] = ids[parent]
		}
	}
}

// output is what a node stores. Its chunks' ids are their positions among all chunks
// of the range, so that equal work yields equal bytes.
type output struct {
	Chunks  []sheaf.Chunk       `json:"chunks"`
	Ledger  sheaf.Ledger        `json:"ledger,omitempty"`  // of the node that read the range
	Outline *sheaf.RangeOutline `json:"outline,omitempty"` // likewise, where ParsePayload.Continues
	// Readings are those of the range, for its result.
	Readings artifact.Readings `json:"readings,omitempty"`
	Said     []sheaf.Warning   `json:"said,omitempty"`
}

// processNode runs a node of a flow over a range.
func (e *Executor) processNode(ctx context.Context, t *sheaf.Task) (done taskstore.Completion, err error) {
	payload, err := parsePayload(t)
	if err != nil {
		return done, err
	}
	if payload.Flow == nil {
		return done, sheaf.Fail(sheaf.CategoryInternal, "bad_payload", "The task's payload names no flow; re-parse the document.")
	}
	doc, err := e.cfg.Store.DocumentByID(ctx, t.DocumentID)
	if err != nil {
		return done, fmt.Errorf("reading document %s: %w", t.DocumentID, err)
	}
	run := e.newRun(t)
	if payload.Reuse != nil && payload.Reuse.Output != nil && payload.Reuse.Output.Media == "" { // a file names its document
		if made, err := e.readOutput(ctx, payload.Reuse); err == nil {
			if done, err = e.leave(ctx, run, doc, made); err == nil {
				done.Result.Reused, done.Result.Output.Metadata = true, payload.Reuse.Output.Metadata
			}
			return done, err
		} // of a document that is gone or of a newer version: it is made
	}
	f, err := e.readFlow(ctx, payload.Flow)
	if err != nil {
		return done, err
	}
	at := slices.IndexFunc(f.Nodes, func(n flow.Node) bool { return n.ID == payload.Flow.Node })
	if at < 0 {
		return done, sheaf.Fail(sheaf.CategoryInternal, "bad_flow", "The flow %s has no node %s; re-parse the document.", payload.Flow.Ref, payload.Flow.Node)
	}
	n := &f.Nodes[at]
	if flow.Over(n.Kind) != "" {
		return e.processDocumentNode(ctx, run, doc, n, payload)
	}
	var made output
	if n.Kind == "chunk" {
		chunks, result, err := e.readRange(ctx, run, doc, payload)
		if err != nil {
			return done, err
		}
		if err := enrich.Languages(ctx, chunks); err != nil { // conditions read them
			return done, err
		}
		for i := range chunks {
			c := &chunks[i]
			c.ID, c.RangeID, c.DocumentID, c.Generation = strconv.Itoa(i), "", "", 0
		}
		made = output{Chunks: chunks, Ledger: result.Ledger, Outline: result.Outline, Readings: run.kept, Said: result.Warnings}
		return e.leave(ctx, run, doc, &made)
	}
	in, err := e.inputs(ctx, t, payload.Flow)
	if err != nil {
		return done, err
	}
	if in.skipped {
		done.Result.Output = &sheaf.NodeOutput{Skipped: "all that it reads was skipped", Incomplete: in.incomplete}
		return done, nil
	}
	if flow.Writes(n.Kind) {
		return e.writeNode(ctx, run, doc, n, &in, payload)
	}
	made.Chunks, made.Said, err = e.runNode(ctx, run, doc, n, in.chunks, payload)
	if err != nil {
		return done, err
	}
	done, err = e.leave(ctx, run, doc, &made)
	if err == nil {
		done.Result.Output.Incomplete, done.Result.Output.Asked, done.Result.Output.Metadata = in.incomplete, run.asked, run.about
	}
	return done, err
}

// writeNode runs a node that writes a file. After embed, it takes the vectors from
// the range's result, which is in the index by then; chunks that are not in the
// index are embedded here.
func (e *Executor) writeNode(ctx context.Context, run *run, doc *sheaf.Document, n *flow.Node, in *inputs, p *taskstore.ParsePayload) (done taskstore.Completion, err error) {
	input := e.nodeInput(run, doc, n, in.chunks, p)
	for i := range input.Chunks {
		input.Chunks[i].Metadata = mergeMetadata(chunkMetadata(doc, p.Config), input.Chunks[i].Metadata)
		input.Chunks[i].DocumentID = doc.ID
	}
	if at := slices.IndexFunc(in.tasks, covers); at >= 0 {
		if err := e.nodeVectors(ctx, doc, in.tasks[at].Result.ArtifactKey, &input); err != nil {
			return done, err
		}
	}
	var made flow.Object
	err = run.stage(ctx, n.Kind, func(ctx context.Context) (err error) {
		return withinTimeout(ctx, time.Duration(n.Timeout), n, p.Flow.Ref, "raise it", func(ctx context.Context) (err error) {
			made, err = flow.Write(ctx, input)
			return err
		})
	})
	if err != nil {
		return done, err
	}
	done, err = e.leaveBytes(ctx, run, doc, made.Body)
	if err == nil {
		o := done.Result.Output
		o.Chunks, o.Media, o.Incomplete = len(input.Chunks), made.Media, in.incomplete
	}
	return done, err
}

// withinTimeout runs an attempt at a node with a time limit; 0 for none of its own.
// cure is what to do when it times out.
func withinTimeout(ctx context.Context, within time.Duration, n *flow.Node, ref, cure string, do func(context.Context) error) error {
	if within == 0 {
		return do(ctx)
	}
	limited, stop := context.WithTimeout(ctx, within)
	defer stop()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = sheaf.FailRetryable(sheaf.CategoryTimeout, "node_timeout", "The node %s of %s took longer than its timeout of %v; %s.", n.ID, ref, within, cure)
	}
	return err
}

// nodeVectors finds the vectors of chunks in their range's result, matched by the
// embedded text.
func (e *Executor) nodeVectors(ctx context.Context, doc *sheaf.Document, key string, in *flow.Input) error {
	model := e.cfg.Embedder.Model()
	stored, err := artifact.LoadFor(ctx, e.cfg.Blobs, key, model.ID)
	if err != nil {
		return fmt.Errorf("reading the vectors of the range: %w", err)
	}
	have := map[string][]float32{}
	for i := range stored.Chunks {
		if i < len(stored.Vectors) && stored.Header.ModelID == model.ID {
			have[EmbeddingText(doc.Name, stored.Chunks[i])] = stored.Vectors[i]
		}
	}
	in.ModelID, in.Dim, in.Vectors = model.ID, model.Dim, make([][]float32, len(in.Chunks))
	var texts []string
	var missing []int
	for i := range in.Chunks {
		text := EmbeddingText(doc.Name, in.Chunks[i])
		if v, ok := have[text]; ok {
			in.Vectors[i] = v
			continue
		}
		texts, missing = append(texts, text), append(missing, i)
	}
	if len(texts) == 0 {
		return nil
	}
	vectors, err := e.vectors(ctx, texts, embed.Passage)
	if err != nil {
		return err
	}
	for k, i := range missing {
		in.Vectors[i] = vectors[k]
	}
	return nil
}

// leave stores a node's output.
func (e *Executor) leave(ctx context.Context, run *run, doc *sheaf.Document, made *output) (done taskstore.Completion, err error) {
	body, err := json.Marshal(made)
	if err != nil {
		return done, fmt.Errorf("encoding an output: %w", err)
	}
	if done, err = e.leaveBytes(ctx, run, doc, body); err == nil {
		done.Result.Warnings, done.Result.Output.Chunks = made.Said, len(made.Chunks)
	}
	return done, err
}

// leaveBytes stores an object under the attempt's name.
func (e *Executor) leaveBytes(ctx context.Context, run *run, doc *sheaf.Document, body []byte) (done taskstore.Completion, err error) {
	t := run.task
	key := sheaf.ArtifactKey(t.TenantID, doc.ID, run.rangeID)
	err = run.stage(ctx, "output", func(ctx context.Context) error {
		_, err := e.cfg.Blobs.Put(ctx, key, bytes.NewReader(body), int64(len(body)))
		return err
	})
	if err != nil {
		return done, err
	}
	done.Result = sheaf.TaskResult{RangeID: run.rangeID, ArtifactKey: key, Stages: run.times, Output: &sheaf.NodeOutput{
		Name: t.ReuseKey, Bytes: int64(len(body)), Digest: fmt.Sprintf("%016x", xxhash.Sum64(body)),
	}}
	return done, nil
}

// readOutput reads a node's stored output.
func (e *Executor) readOutput(ctx context.Context, r *sheaf.TaskResult) (*output, error) {
	b, err := e.cfg.Blobs.Open(ctx, r.ArtifactKey, 0, -1)
	if errors.Is(err, sheaf.ErrNotFound) {
		return nil, sheaf.Fail(sheaf.CategoryTarget, "output_missing", "The output of a node is gone from the blob store; re-parse the document.")
	}
	if err != nil {
		return nil, fmt.Errorf("reading an output: %w", err)
	}
	defer b.Close()
	body, err := io.ReadAll(io.LimitReader(b, maxOutput))
	if err != nil {
		return nil, fmt.Errorf("reading an output: %w", err)
	}
	var out output
	if r.Output != nil && r.Output.Digest != fmt.Sprintf("%016x", xxhash.Sum64(body)) || json.Unmarshal(body, &out) != nil {
		return nil, sheaf.FailRetryable(sheaf.CategoryTarget, "output_damaged", "The stored output of a node is not what was written; re-parse the document.")
	}
	return &out, nil
}

// inputs is what a task reads from other tasks.
type inputs struct {
	tasks      []sheaf.Task // its dependencies
	chunks     []sheaf.Chunk
	skipped    bool // all of them were skipped
	incomplete bool // a node before the task failed
}

// inputs merges the outputs that a task reads.
func (e *Executor) inputs(ctx context.Context, t *sheaf.Task, f *taskstore.FlowRun) (in inputs, err error) {
	if in.tasks, err = e.cfg.Store.Inputs(ctx, t.ID); err != nil {
		return in, fmt.Errorf("reading the inputs of task %s: %w", t.ID, err)
	}
	in.skipped = true
	seen := map[string]bool{}
	for _, id := range f.From {
		i := nodeOf(in.tasks, id)
		if i < 0 {
			continue
		}
		from := &in.tasks[i]
		left := from.Result.Output
		in.incomplete = in.incomplete || left != nil && (left.Failed || left.Incomplete)
		if left != nil && left.Skipped != "" {
			continue
		}
		in.skipped = false
		if left != nil && left.Failed {
			continue // an empty output
		}
		out, err := e.readOutput(ctx, &from.Result)
		if err != nil {
			return in, err
		}
		for _, c := range out.Chunks {
			if !seen[c.ID] {
				seen[c.ID] = true
				in.chunks = append(in.chunks, c)
			}
		}
	}
	slices.SortStableFunc(in.chunks, func(a, b sheaf.Chunk) int { return positionOf(a) - positionOf(b) })
	return in, nil
}

func nodeOf(tasks []sheaf.Task, id string) int {
	return slices.IndexFunc(tasks, func(t sheaf.Task) bool { return t.Node == id })
}

// nodeOutputs returns the chunks that a range's nodes left to be embedded and
// indexed, and the known part of the range's result. The chunks are nil for a task
// without node tasks, as when units are read again: it runs all nodes itself.
func (e *Executor) nodeOutputs(ctx context.Context, run *run, t *sheaf.Task, payload *taskstore.ParsePayload) ([]sheaf.Chunk, sheaf.TaskResult, error) {
	result := sheaf.TaskResult{RangeID: run.rangeID, Warnings: payload.Flow.Warnings}
	in, err := e.inputs(ctx, t, payload.Flow)
	if err != nil || len(in.tasks) == 0 {
		return nil, result, err
	}
	reader := nodeOf(in.tasks, payload.Flow.Reader)
	if reader < 0 {
		return nil, result, sheaf.Fail(sheaf.CategoryInternal, "bad_payload", "The task does not depend on the node %s; re-parse the document.", payload.Flow.Reader)
	}
	if in.skipped {
		return nil, result, sheaf.Fail(sheaf.CategoryPolicy, nodeFailed, "Every node of %s that feeds the index failed or was skipped for units %s, so that nothing of them can be found. Retry the document.", payload.Flow.Ref, t.Range)
	}
	read, err := e.readOutput(ctx, &in.tasks[reader].Result)
	if err != nil {
		return nil, result, err
	}
	at := make(map[string]int, len(read.Chunks))
	for i, c := range read.Chunks {
		at[c.ID] = i
	}
	result.Ledger, result.Outline, run.kept = read.Ledger, read.Outline, read.Readings
	if in.incomplete {
		result.Output = &sheaf.NodeOutput{Incomplete: true}
	}
	chunks := renumbered(run.rangeID, append([]sheaf.Chunk{}, in.chunks...), at, result.Outline)
	for i := range chunks {
		chunks[i].RangeID, chunks[i].DocumentID, chunks[i].Generation = run.rangeID, t.DocumentID, t.Generation
	}
	return chunks, result, nil
}

// Policy is the retry policy of a task whose node sets one.
func (e *Executor) Policy(t *sheaf.Task) (p worker.RetryPolicy) {
	if t.Kind != sheaf.KindDataflow && t.Kind != sheaf.KindParse {
		return p
	}
	var payload struct{ Flow *taskstore.FlowRun }
	if json.Unmarshal(t.Payload, &payload) == nil && payload.Flow != nil && payload.Flow.Retry != nil {
		r := payload.Flow.Retry
		p = worker.RetryPolicy{MaxFails: r.Attempts, Base: r.Base, Max: r.Max}
	}
	return p
}

func positionOf(c sheaf.Chunk) int {
	n, _ := strconv.Atoi(c.ID)
	return n
}

// decided records how a flow runs, and returns its mode.
func (d *DocumentPlan) decided(p *program, run *taskstore.FlowRun, times map[string]time.Duration) flow.Mode {
	mode, reason := p.mode(run.Skipped, times)
	d.Result.Flow = &sheaf.FlowDecision{Ref: run.Ref, Mode: string(mode), Reason: reason, Skipped: run.Why, Last: run.Last}
	for _, n := range p.Order() {
		d.Result.Flow.Nodes, d.Result.Flow.Kinds = append(d.Result.Flow.Nodes, n.ID), append(d.Result.Flow.Kinds, n.Kind)
		if asked := p.asked[n.ID]; asked != "" && asked[0] != ' ' && !slices.Contains(run.Skipped, n.ID) { // it begins with the model
			d.Result.Flow.Asks = append(d.Result.Flow.Asks, n.ID)
		}
		if own := mode == flow.ModeNodes && (n.Kind == "chunk" || flow.Works(n.Kind)) || flow.Over(n.Kind) != ""; own && !slices.Contains(run.Skipped, n.ID) {
			d.Result.Flow.Tasks = append(d.Result.Flow.Tasks, n.ID)
		}
	}
	return mode
}

// ends summarizes how a generation's nodes ended.
type ends struct {
	dead     map[sheaf.Range]*sheaf.Failure // why the task covering a range had no input
	failure  *sheaf.Failure                 // of the first node that was skipped or replaced because it failed
	warnings []sheaf.Warning
}

func nodeEnds(tasks []sheaf.Task) ends {
	out := ends{dead: map[sheaf.Range]*sheaf.Failure{}}
	for _, t := range tasks {
		if t.Kind != sheaf.KindDataflow {
			continue
		}
		failed := t.State == sheaf.TaskDone && t.Result.Output != nil && t.Result.Output.Failed
		switch {
		case t.State == sheaf.TaskDead && t.Failure != nil && t.Failure.Code != "dependency_failed":
			out.dead[t.Range] = t.Failure
		case failed && t.Failure != nil:
			if out.failure == nil {
				out.failure = t.Failure
			}
			of := ""
			if t.Range != (sheaf.Range{}) {
				of = " for units " + t.Range.String()
			}
			out.warnings = append(out.warnings, sheaf.Warning{Code: nodeFailed, Message: fmt.Sprintf("The node %s failed%s, and the document was made without its output: %s", t.Node, of, t.Failure.Message)})
		case t.State == sheaf.TaskDone:
			out.warnings = append(out.warnings, t.Result.Warnings...)
		}
	}
	out.warnings = out.warnings[:min(len(out.warnings), maxWarnings)]
	return out
}

func clipText(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
