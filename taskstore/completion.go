package taskstore

import (
	"encoding/json"
	"time"

	"sheaf"
)

// Completion is what a finished task leaves.
type Completion struct {
	Result  sheaf.TaskResult
	Plan    *sheaf.PlanResult // of a plan task
	Spawn   []sheaf.NewTask   // inserted in the same transaction; conflicts on (document, generation, kind, node, range) are ignored
	Publish *Publication      // of a finalize task
	Stitch  []Stitch          // of a finalize task, in place of Publish
	Last    []sheaf.NewTask   // likewise: tasks over the whole document, after whose end the generation is finalized again
	Run     *RunEnd           // of the task of a run over a dataset

	// CanWait is how long the end may be put off, so that it is written together
	// with the claims and ends that come meanwhile; 0 for at once.
	CanWait time.Duration
	// NextFunc is told of the task that finishes the document when this was the
	// last of its ranges, so that neither waits for the keeper: it is written
	// then, right after the end. Without it, and where that failed, the keeper
	// writes the task. It is called before Complete returns. May be nil.
	NextFunc func(h sheaf.Hint)
}

// Stitch replaces a range result of a complete generation whose chunks were made
// under other headings than they stand under, or have other headings beside the
// pages of other ranges. The generation is finalized again
// when the tasks that replace are done.
type Stitch struct {
	TaskID  string // done, and listing RangeID; it is superseded
	RangeID string // the range id that nothing may list any more
	Task    sheaf.NewTask
}

// Publication ends a generation. With a State of succeeded or
// partially_succeeded the generation becomes the live one; with failed the one
// that was live stays so.
type Publication struct {
	State    sheaf.DocumentState
	Failure  *sheaf.Failure
	Ledger   sheaf.LedgerCounts
	Chunks   int
	Tokens   int
	Warnings []sheaf.Warning
	// Metadata is what nodes of a flow have found about the document. It replaces what
	// they found before, and nothing that the uploader said.
	Metadata map[string]string
	Outline  json.RawMessage // []Heading, where the plan stored the document's; else nil

	// EditsVersion is that of the edits that Edits places. Where people have
	// edited since, the generation is finalized again in place of being published.
	EditsVersion int64
	Edits        []PlacedEdit // those that are left out have no chunk in the generation
}
