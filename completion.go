package sheaf

import (
	"encoding/json"
	"time"
)

// Completion is what a finished task leaves.
type Completion struct {
	Result  TaskResult
	Plan    *PlanResult  // of a plan task
	Spawn   []NewTask    // inserted in the same transaction; conflicts on (document, generation, kind, node, range) are ignored
	Publish *Publication // of a finalize task
	Stitch  []Stitch     // of a finalize task, in place of Publish

	// CanWait is how long the end may be put off, so that it is written together
	// with the claims and ends that come meanwhile; 0 for at once.
	CanWait time.Duration
	// NextFunc is told of the task that finishes the document when this was the
	// last of its pieces, so that neither waits for the keeper: it is written
	// then, right after the end. Without it, and where that failed, the keeper
	// writes the task. It is called before Complete returns. May be nil.
	NextFunc func(h Hint)
}

// Stitch replaces a range result of a complete generation whose chunks were made
// under other headings than they stand under. The generation is finalized again
// when the tasks that replace are done.
type Stitch struct {
	TaskID  string // done, and listing RangeID; it is superseded
	RangeID string // the range id that nothing may list any more
	Task    NewTask
}

// Publication ends a generation. With a State of succeeded or
// partially_succeeded the generation becomes the live one; with failed the one
// that was live stays so.
type Publication struct {
	State    DocumentState
	Failure  *Failure
	Ledger   LedgerCounts
	Chunks   int
	Tokens   int
	Warnings []Warning
	Outline  json.RawMessage // []Heading, where the plan kept the document's; else nil
}
