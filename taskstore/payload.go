package taskstore

import (
	"encoding/json"
	"slices"
	"time"

	"sheaf"
)

// PlanPayload tells a plan task what to plan.
type PlanPayload struct {
	// Scope is "" for the whole document or "failed" for the units that
	// generation Base could not read; what it could read is listed again.
	Scope string `json:"scope,omitempty"`
	Base  int    `json:"base,omitempty"`
	// Stage, with a Base, repeats that stage and what follows it for what
	// generation Base could read: StageEmbed or StageIndex.
	Stage string `json:"stage,omitempty"`
	// Only narrows the scope failed; what else failed stays so. nil means all.
	Only *RetryOnly `json:"only,omitempty"`
	// Fresh ignores stored results: everything is parsed and embedded again.
	Fresh bool `json:"fresh,omitempty"`
}

// RetryOnly names some of the units that failed; both fields narrow.
type RetryOnly struct {
	Units []sheaf.Range `json:"units,omitempty"` // [from, to], 1-based inclusive; empty means all
	Codes []string      `json:"codes,omitempty"` // of their failures; empty means all
}

// Empty reports whether nothing is narrowed.
func (r RetryOnly) Empty() bool { return len(r.Units)+len(r.Codes) == 0 }

// Select lists the runs of failed units that r names.
func (r RetryOnly) Select(ledger sheaf.Ledger) []sheaf.Range {
	var out []sheaf.Range
	for _, run := range ledger {
		if run.Status != sheaf.UnitFailed || len(r.Codes) > 0 && !slices.Contains(r.Codes, run.Code) {
			continue
		}
		failed := []sheaf.Range{{From: run.From, To: run.To}}
		if len(r.Units) > 0 {
			failed = sheaf.Overlaps(failed, r.Units)
		}
		out = append(out, failed...)
	}
	return out
}

// Continues reports whether the plan starts from what generation Base left,
// and not from the file.
func (p PlanPayload) Continues() bool { return p.Scope == "failed" || p.Stage != "" }

// PlanTask is the task that plans a document.
func PlanTask(p PlanPayload) sheaf.NewTask {
	raw, _ := json.Marshal(p) // plain fields always encode
	return sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: raw}
}

// ParsePayload tells a parse or index task where its bytes are and how to read
// them. It is written by the plan and holds all that an executor needs, so
// that a task means the same whatever happens to the document's row.
type ParsePayload struct {
	Format    string            `json:"format"`     // parser id
	MediaType string            `json:"media_type"` // as parsed
	SourceKey string            `json:"source_key"` // blob: the original, or a shard of it
	SHA256    string            `json:"sha256,omitempty"`
	Size      int64             `json:"size"`
	Hint      json.RawMessage   `json:"hint,omitempty"` // of the planned range, or of parser.Agreeing
	Config    sheaf.ParseConfig `json:"config"`         // merged with dataset and defaults
	Headings  []string          `json:"headings,omitempty"`
	// HeadingLevels are those of Headings where they are not 1, 2, 3 …
	HeadingLevels []int `json:"heading_levels,omitempty"`
	// Continues says that nobody knew, when this was planned, which headings the
	// range begins under: its result says what stands in it, and finalize
	// compares.
	Continues bool `json:"continues,omitempty"`
	// Stitch takes the chunks of Reuse and puts them under Headings.
	Stitch bool `json:"stitch,omitempty"`
	// TagSet names the results whose tags the chunks get, by their blob keys:
	// those that the datasets of Config.TagKBIDs held when this was planned.
	TagSet []string `json:"tag_set,omitempty"`
	// Flow is what is done with the chunks; nil for the standard pipeline.
	Flow *FlowRun `json:"flow,omitempty"`
	// Reuse is the stored result that an index task copies; when its artifact
	// is gone the task parses instead.
	Reuse *sheaf.TaskResult `json:"reuse,omitempty"`
	// Embed computes the vectors of Reuse anew.
	Embed bool `json:"embed,omitempty"`
}

// FlowRun is a flow as it runs over a generation, decided by the plan: all
// ranges do the same.
type FlowRun struct {
	Ref     string            `json:"ref"`               // contracts@3
	Key     string            `json:"key"`               // blob: the flow in canonical form
	Skipped []string          `json:"skipped,omitempty"` // ids of nodes that do not run
	Names   string            `json:"names"`             // of what decides the chunks, for the digest of the result, 16 hex
	Why     map[string]string `json:"-"`                 // nodes of Skipped, while the plan is made
	// Warnings say why nodes are skipped, to the first range alone.
	Warnings []sheaf.Warning `json:"warnings,omitempty"`
	// Node is the node that the task runs; "" for what all of them feed, and for a
	// task that runs all of them.
	Node string `json:"node,omitempty"`
	// From are the nodes whose outputs the task reads, in this order, each of a task
	// that it depends on. Empty for a task that runs all nodes.
	From []string `json:"from,omitempty"`
	// Reader is the node that read the range, on whose task the last one depends.
	Reader string `json:"reader,omitempty"`
	// Last are the nodes that run over the whole document, once its ranges have ended.
	Last  []string   `json:"last,omitempty"`
	Retry *NodeRetry `json:"retry,omitempty"` // nil for the executor's
}

// NodeRetry bounds the attempts of a node; zero fields mean the executor's.
type NodeRetry struct {
	Attempts int           `json:"attempts,omitempty"`
	Base     time.Duration `json:"base,omitempty"`
	Max      time.Duration `json:"max,omitempty"`
}

// Stages whose work can be repeated alone, since what goes into them is stored.
const (
	StageEmbed = "embed"
	StageIndex = "index"
)

// FinalizePayload guards the publication: it counts only while the document's
// FinalizeEpoch is still this one.
type FinalizePayload struct {
	FinalizeEpoch int64 `json:"fin_epoch"`
}
