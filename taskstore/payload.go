package taskstore

import (
	"encoding/json"
	"slices"
	"time"

	"sheaf"
)

// PlanPayload is the payload of a plan task.
type PlanPayload struct {
	// Scope is "" for the whole document or "failed" for the units that generation Base
	// could not read; readable ones are listed again.
	Scope string `json:"scope,omitempty"`
	Base  int    `json:"base,omitempty"`
	// Stage, with a Base, repeats that stage and the following ones for what generation
	// Base could read: StageEmbed or StageIndex.
	Stage string `json:"stage,omitempty"`
	// Only narrows the scope failed; other failures stay. nil means all.
	Only *RetryOnly `json:"only,omitempty"`
	// Fresh ignores stored results: everything is parsed again. Vectors and answers of
	// language models for the same text are not made again.
	Fresh bool `json:"fresh,omitempty"`
}

// RetryOnly selects some of the failed units; both fields narrow the selection.
type RetryOnly struct {
	Units []sheaf.Range `json:"units,omitempty"` // [from, to], 1-based inclusive; empty means all
	Codes []string      `json:"codes,omitempty"` // of their failures; empty means all
}

// Empty reports whether r selects everything.
func (r RetryOnly) Empty() bool { return len(r.Units)+len(r.Codes) == 0 }

// Select lists the runs of failed units that r selects.
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

// Continues reports whether the plan starts from generation Base instead of the
// file.
func (p PlanPayload) Continues() bool { return p.Scope == "failed" || p.Stage != "" }

// PlanTask is the task that plans a document.
func PlanTask(p PlanPayload) sheaf.NewTask {
	raw, _ := json.Marshal(p) // plain fields always encode
	return sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: raw}
}

// ParsePayload says where a parse or index task's bytes are and how to read them.
// The plan writes it with everything an executor needs, so that changes to the
// document's row do not affect the task.
type ParsePayload struct {
	Format    string                `json:"format"`     // parser id
	MediaType string                `json:"media_type"` // as parsed
	SourceKey string                `json:"source_key"` // blob: the original, or a shard of it
	SHA256    string                `json:"sha256,omitempty"`
	Size      int64                 `json:"size"`
	Hint      json.RawMessage       `json:"hint,omitempty"`   // of the planned range, or of parser.Agreeing
	Beside    map[int][]sheaf.Block `json:"beside,omitempty"` // of parser.Plan, for units of the range
	Config    sheaf.ParseConfig     `json:"config"`           // merged with dataset and defaults
	Headings  []string              `json:"headings,omitempty"`
	// HeadingLevels are the levels of Headings if they are not 1, 2, 3 …
	HeadingLevels []int `json:"heading_levels,omitempty"`
	// Continues says that the headings the range starts under were unknown when it was
	// planned: its result reports its own headings, and finalize compares.
	Continues bool `json:"continues,omitempty"`
	// Stitch moves the chunks of Reuse under Headings.
	Stitch bool `json:"stitch,omitempty"`
	// Replaces is the blob key of the result that the task reads again, see Hint.
	Replaces string `json:"replaces,omitempty"`
	// TagSet lists the results whose tags the chunks get, by blob key: those in the
	// datasets of Config.TagKBIDs at the time of planning.
	TagSet []string `json:"tag_set,omitempty"`
	// Flow is how the chunks are processed; nil for the standard pipeline.
	Flow *FlowRun `json:"flow,omitempty"`
	// Reuse is the stored result that an index task copies; if its artifact is gone,
	// the task parses instead.
	Reuse *sheaf.TaskResult `json:"reuse,omitempty"`
	// Embed recomputes the vectors of Reuse.
	Embed bool `json:"embed,omitempty"`
	// Fresh recognizes the text in pictures again, see PlanPayload.
	Fresh bool `json:"fresh,omitempty"`
	// Slow says that a unit may take seconds, see parser.Plan.
	Slow bool `json:"slow,omitempty"`
}

// FlowRun is a flow as it runs over a generation. The plan decides it, so that all
// ranges do the same.
type FlowRun struct {
	Ref     string            `json:"ref"`               // contracts@3
	Key     string            `json:"key"`               // blob: the flow in canonical form
	Skipped []string          `json:"skipped,omitempty"` // ids of nodes that do not run
	Names   string            `json:"names"`             // identifies what determines the chunks, for the result's digest, 16 hex
	Why     map[string]string `json:"-"`                 // reasons for Skipped, while the plan is made
	// Warnings say why nodes are skipped; only the first range has them.
	Warnings []sheaf.Warning `json:"warnings,omitempty"`
	// Node is the node that the task runs; "" for the task that all nodes feed, and for
	// a task that runs all nodes.
	Node string `json:"node,omitempty"`
	// From are the nodes whose outputs the task reads, in this order; it depends on
	// their tasks. Empty for a task that runs all nodes.
	From []string `json:"from,omitempty"`
	// Reader is the node that read the range; the last task depends on its task.
	Reader string `json:"reader,omitempty"`
	// Last are the nodes that run over the whole document, after its ranges.
	Last  []string   `json:"last,omitempty"`
	Retry *NodeRetry `json:"retry,omitempty"` // nil for the executor's
}

// NodeRetry bounds the attempts of a node; zero fields mean the executor's.
type NodeRetry struct {
	Attempts int           `json:"attempts,omitempty"`
	Base     time.Duration `json:"base,omitempty"`
	Max      time.Duration `json:"max,omitempty"`
}

// Stages that can be repeated alone, because their input is stored.
const (
	StageEmbed = "embed"
	StageIndex = "index"
)

// FinalizePayload guards the publication: it is valid only while the document's
// FinalizeEpoch is unchanged.
type FinalizePayload struct {
	FinalizeEpoch int64 `json:"fin_epoch"`
}
