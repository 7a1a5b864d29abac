package taskstore

import (
	"time"

	"sheaf"
)

// Completion is the outcome of a finished task.
type Completion struct {
	Result  sheaf.TaskResult
	Plan    *sheaf.PlanResult // of a plan task
	Spawn   []sheaf.NewTask   // inserted in the same transaction; conflicts on (document, generation, kind, node, range) are ignored
	Publish *Publication      // of a finalize task, or of a plan task whose spawned tasks are all done
	Stitch  []Stitch          // of a finalize task, in place of Publish
	Last    []sheaf.NewTask   // likewise: tasks over the whole document, after which the generation is finalized again
	Run     *RunEnd           // of the task of a run over a dataset
	Remains bool              // the attempt may have begun a range result that no task lists

	// CanWait is how long the write may be delayed, so that it shares a transaction
	// with claims and completions arriving meanwhile; 0 for none.
	CanWait time.Duration
	// NextFunc is called with the task that finalizes the document if this was the last
	// of its ranges, so that neither waits for the keeper: the task is written right
	// after the completion. Without NextFunc, or if that fails, the keeper writes the
	// task. It is called before Complete returns. May be nil.
	NextFunc func(h sheaf.Hint)
}

// Stitch replaces a range result of a complete generation whose chunks are not under
// their actual headings, or which has other headings in view of other ranges' pages.
// The generation is finalized again when the replacing tasks are done.
type Stitch struct {
	TaskID  string // done, and listing RangeID; it is superseded
	RangeID string // the range id that must no longer be listed
	Task    sheaf.NewTask
}

// Publication ends a generation. With a State of succeeded or partially_succeeded
// the generation becomes the live one; with failed the previous one stays live.
type Publication struct {
	State    sheaf.DocumentState
	Failure  *sheaf.Failure
	Ledger   sheaf.LedgerCounts
	Chunks   int
	Tokens   int
	Warnings []sheaf.Warning
	// Metadata is what flow nodes found out about the document. It replaces their
	// earlier findings, but nothing the uploader said.
	Metadata map[string]string

	// EditsVersion is the version of the edits in Edits. If users have edited since,
	// the generation is finalized again instead of being published.
	EditsVersion int64
	Edits        []PlacedEdit // omitted edits have no chunk in the generation
}
