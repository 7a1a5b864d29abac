package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/enrich"
	"sheaf/internal/flow"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/taskstore"
)

// A flow's nodes run sequentially in the task of a range: the range is read and
// chunked with the settings of its parse and chunk nodes, the nodes between chunk
// and index process the chunks, and what reaches index is embedded and written as
// usual. The plan decides once, for all ranges, which nodes run.

// program is the flow a document goes through.
type program struct {
	*flow.Flow
	ref    string
	digest string // of all nodes; names the stored flow
	ranges string // digest of the nodes that work on ranges, which determine the chunks
	body   []byte
	own    sheaf.ParseConfig // the settings of parse and chunk
	chat   string            // identifies what enrich nodes ask a model, for the digest
	asked  map[string]string // the same by node
}

// program finds a document's flow; nil for the standard pipeline.
func (p *Planner) program(ctx context.Context, doc *sheaf.Document) (*program, error) {
	if name := doc.ParseConfig.Flow.V; name == "" || name == flow.StandardName || name == flow.StandardName+"@1" {
		return nil, nil
	}
	ref, err := flow.ParseRef(doc.ParseConfig.Flow.V)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "no_flow", "%v", err)
	}
	v, err := p.Store.Flow(ctx, doc.TenantID, ref.Name, ref.Version)
	if errors.Is(err, sheaf.ErrNotFound) {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "no_flow", "The flow %s, which the settings of this document name, was deleted: create it, or parse the document again with another.", ref)
	}
	if err != nil {
		return nil, fmt.Errorf("reading flow %s: %w", ref, err)
	}
	out := &program{asked: map[string]string{}, ref: flow.Ref{Name: v.Name, Version: v.Version}.String(), digest: v.Digest, body: v.Body}
	if err := json.Unmarshal(v.Body, &out.Flow); err != nil {
		return nil, fmt.Errorf("reading flow %s: %w", out.ref, err)
	}
	ranges := *out.Flow
	ranges.Nodes = slices.DeleteFunc(slices.Clone(out.Nodes), func(n flow.Node) bool { return flow.Over(n.Kind) != "" })
	if out.ranges, err = ranges.Digest(); err != nil {
		return nil, fmt.Errorf("naming flow %s: %w", out.ref, err)
	}
	for i := range out.Nodes {
		n := &out.Nodes[i]
		if over := flow.Over(n.Kind); over != "" {
			if p.Chat != "" && asksModel(over, n.Config) {
				out.asked[n.ID] = p.Chat
			}
			continue
		}
		switch n.Kind {
		case "parse", "chunk":
			if out.own, err = flow.Settings(n, out.own); err != nil {
				return nil, fmt.Errorf("node %s of flow %s: %w", n.ID, out.ref, err)
			}
		case "enrich":
			asked, err := flow.Settings(n, doc.ParseConfig)
			if err != nil {
				return nil, fmt.Errorf("node %s of flow %s: %w", n.ID, out.ref, err)
			}
			out.asked[n.ID] = fmt.Sprintf("%s %d %d %t\n", enrich.Fingerprint(asked, p.Chat), asked.AutoKeywords.V, asked.AutoQuestions.V, asked.AutoContext.V)
			out.chat += out.asked[n.ID]
		default:
			if version := flow.Asks(n.Kind); version > 0 {
				out.asked[n.ID] = fmt.Sprintf("%s %d\n", p.Chat, version)
				out.chat += out.asked[n.ID]
			}
		}
	}
	return out, nil
}

// settings merges the flow's settings over a document's. A flow enriches only
// through its nodes.
func (p *program) settings(doc sheaf.ParseConfig) sheaf.ParseConfig {
	if p == nil {
		return doc
	}
	out := settings.Merge(p.own, doc)
	out.Flow = sheaf.Set(p.ref)
	return out
}

// inputs identifies the flow and every input of its conditions known before the
// document is opened: a stored plan is valid only for these. "" without a flow.
func (p *program) inputs(doc *sheaf.Document) string {
	if p == nil {
		return ""
	}
	given, _ := json.Marshal([]any{p.digest, p.chat, doc.Name, doc.MediaType, doc.Size, saidMetadata(doc)}) // plain fields always encode
	return string(given)
}

// decide evaluates the conditions of a flow's nodes, and stores the flow with the
// document's results so that its tasks are unaffected by later changes to the flow.
// t is nil in a dry run, which stores nothing.
func (p *Planner) decide(ctx context.Context, prog *program, doc *sheaf.Document, opened *parser.Plan, t *sheaf.Task) (*taskstore.FlowRun, error) {
	if prog == nil {
		return nil, nil
	}
	metadata := maps.Clone(opened.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	maps.Copy(metadata, saidMetadata(doc)) // what the uploader said overrides what the file says
	skipped, err := prog.Skipped(map[string]any{
		"document.name": doc.Name, "document.media_type": doc.MediaType, "document.size": doc.Size, "document.pages": opened.Units, "document.metadata": metadata,
	})
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "flow_expression", "The flow %s cannot be decided for this document: %v", prog.ref, err)
	}
	out := &taskstore.FlowRun{Ref: prog.ref, Key: sheaf.ArtifactPrefix(doc.TenantID, doc.ID) + "flows/" + prog.digest + ".json"}
	for _, s := range skipped {
		out.Skipped = append(out.Skipped, s.Node)
		if out.Why == nil {
			out.Why = map[string]string{}
		}
		out.Why[s.Node] = clipText(s.Reason, 200)
		out.Warnings = append(out.Warnings, sheaf.Warning{Code: "flow_skipped", Message: fmt.Sprintf("The node %s of %s was skipped: %s.", s.Node, prog.ref, s.Reason)})
	}
	last := prog.last(nil) // these do not affect ranges
	skips := slices.DeleteFunc(slices.Clone(out.Skipped), func(id string) bool { return slices.Contains(last, id) })
	out.Names = fmt.Sprintf("%016x", xxhash.Sum64String(prog.ranges+"\n"+prog.chat+strings.Join(skips, " ")))
	out.Last = prog.last(out.Skipped)
	if t != nil {
		if _, err := p.Blobs.Put(ctx, out.Key, bytes.NewReader(prog.body), int64(len(prog.body))); err != nil {
			return nil, fmt.Errorf("storing flow %s: %w", prog.ref, err)
		}
	}
	return out, nil
}

// runFlow runs the nodes between chunk and index over the chunks of a range. A chunk
// that reaches index by several paths is taken from the first. The outline is
// adjusted to the remaining chunks.
func (e *Executor) runFlow(ctx context.Context, run *run, doc *sheaf.Document, chunks []sheaf.Chunk, outline *sheaf.RangeOutline, p *taskstore.ParsePayload) ([]sheaf.Chunk, []sheaf.Warning, error) {
	f, err := e.readFlow(ctx, p.Flow)
	if err != nil {
		return nil, nil, err
	}
	if err := enrich.Languages(ctx, chunks); err != nil { // conditions read them
		return nil, nil, err
	}
	at := make(map[string]int, len(chunks))
	for i := range chunks {
		at[chunks[i].ID] = i
	}
	warnings := slices.Clone(p.Flow.Warnings)
	outputs := map[string][]sheaf.Chunk{}
	for _, n := range f.Order() {
		if n.Kind == "parse" || slices.Contains(p.Flow.Skipped, n.ID) {
			continue
		}
		if n.Kind == "chunk" {
			outputs[n.ID] = chunks
			continue
		}
		in := joined(n, outputs, at)
		if n.Kind == "index" {
			return renumbered(run.rangeID, in, at, outline), warnings, nil
		}
		var said []sheaf.Warning
		if outputs[n.ID], said, err = e.runNode(ctx, run, doc, n, in, p); err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, said...)
	}
	return nil, nil, sheaf.Fail(sheaf.CategoryInternal, "bad_flow", "The flow %s has no node of the kind index; apply it again.", p.Flow.Ref)
}

// runNode runs a node between chunk and index. The node owns the chunks.
func (e *Executor) runNode(ctx context.Context, run *run, doc *sheaf.Document, n *flow.Node, in []sheaf.Chunk, p *taskstore.ParsePayload) (out []sheaf.Chunk, said []sheaf.Warning, err error) {
	err = run.stage(ctx, n.Kind, func(ctx context.Context) (err error) {
		input := e.nodeInput(run, doc, n, in, p)
		var used func() taskstore.RunProgress
		input.Ask, used = e.asker(run.task, flow.Asks(n.Kind))
		err = withinTimeout(ctx, nodeLimit(n), n, p.Flow.Ref, "raise it, or give the node fewer chunks", func(ctx context.Context) (err error) {
			out, said, err = flow.Run(ctx, input)
			return err
		})
		run.note(used())
		if into, _ := n.Config["into"].(string); into == "document" && err == nil {
			run.found(out)
		}
		return err
	})
	return out, said, err
}

// nodeLimit is how long an attempt at a node may take; 0 for no limit of its own.
func nodeLimit(n *flow.Node) time.Duration {
	switch {
	case n.Timeout > 0:
		return time.Duration(n.Timeout)
	case n.Kind == "http":
		return nodeTime
	case flow.Asks(n.Kind) > 0:
		return nodeAskedTime
	}
	return 0
}

// nodeInput is the input of a node, except for the language model.
func (e *Executor) nodeInput(run *run, doc *sheaf.Document, n *flow.Node, in []sheaf.Chunk, p *taskstore.ParsePayload) flow.Input {
	return flow.Input{
		Node: n, Chunks: in, Settings: p.Config, Range: run.task.Range,
		Document: flow.Document{ID: doc.ID, DatasetID: doc.DatasetID, Name: doc.Name, MediaType: doc.MediaType},
		Enrich: func(ctx context.Context, chunks []sheaf.Chunk, c sheaf.ParseConfig) ([]sheaf.Warning, error) {
			return e.enrichChunks(ctx, run, doc, chunks, c)
		},
		Post: e.poster(run.task, p.Flow.Ref, n), CountTokens: chunker.CountTokens,
	}
}

// note adds a node's requests to a model.
func (r *run) note(p taskstore.RunProgress) {
	if p.Calls+p.Cached == 0 {
		return
	}
	if r.asked == nil {
		r.asked = &sheaf.Asked{}
	}
	r.asked.Calls += int(p.Calls)
	r.asked.Cached += int(p.Cached)
	r.asked.Tokens += p.Tokens
}

// found records what a node found out about the document: the metadata it gave to
// every chunk of the range.
func (r *run) found(chunks []sheaf.Chunk) {
	for _, c := range chunks[:min(len(chunks), 1)] {
		for _, name := range strings.Fields(c.Metadata[sheaf.MetadataAdded]) {
			if same := !slices.ContainsFunc(chunks, func(o sheaf.Chunk) bool { return o.Metadata[name] != c.Metadata[name] }); same {
				if r.about == nil {
					r.about = map[string]string{}
				}
				r.about[name] = c.Metadata[name]
			}
		}
	}
}

// readFlow reads the flow that the plan stored.
func (e *Executor) readFlow(ctx context.Context, r *taskstore.FlowRun) (*flow.Flow, error) {
	b, err := e.cfg.Blobs.Open(ctx, r.Key, 0, -1)
	if errors.Is(err, sheaf.ErrNotFound) {
		return nil, sheaf.Fail(sheaf.CategoryTarget, "flow_missing", "The stored flow %s is gone from the blob store; re-parse the document.", r.Ref)
	}
	if err != nil {
		return nil, fmt.Errorf("reading flow %s: %w", r.Ref, err)
	}
	defer b.Close()
	var f flow.Flow
	if err := json.NewDecoder(b).Decode(&f); err != nil {
		return nil, fmt.Errorf("reading flow %s: %w", r.Ref, err)
	}
	return &f, nil
}

// joined gathers the outputs that a node reads, in document order. Each chunk
// appears once, as in the first input that has it. The node owns the copies except
// for their slices and maps, which nodes replace instead of modifying.
func joined(n *flow.Node, outputs map[string][]sheaf.Chunk, at map[string]int) []sheaf.Chunk {
	var out []sheaf.Chunk
	seen := map[string]bool{}
	for _, from := range n.From {
		for _, c := range outputs[from] {
			if !seen[c.ID] {
				seen[c.ID] = true
				out = append(out, c)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b sheaf.Chunk) int { return at[a.ID] - at[b.ID] })
	return out
}

// renumbered gives chunks ids by their position in what is left of a range, and
// updates the outline to match.
func renumbered(rangeID string, chunks []sheaf.Chunk, at map[string]int, outline *sheaf.RangeOutline) []sheaf.Chunk {
	if outline != nil {
		for i := range outline.Floors {
			from := outline.Floors[i].From
			outline.Floors[i].From = 0
			for _, c := range chunks {
				if at[c.ID] < from {
					outline.Floors[i].From++
				}
			}
		}
	}
	for i := range chunks {
		chunks[i].ID = sheaf.ChunkID(rangeID, i)
	}
	return chunks
}
