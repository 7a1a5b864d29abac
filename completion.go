package sheaf

import "time"

// Completion is what a finished task leaves.
type Completion struct {
	Result  TaskResult
	Plan    *PlanResult  // of a plan task
	Spawn   []NewTask    // inserted in the same transaction; conflicts on (document, generation, kind, node, range) are ignored
	Publish *Publication // of a finalize task

	// CanWait is how long the end may be put off, so that it is written together
	// with the claims and ends that come meanwhile; 0 for at once.
	CanWait time.Duration
	// NextFunc is told of the task that finishes the document when this was the
	// last of its pieces, so that neither waits for the keeper: it is written
	// then, right after the end. Without it, and where that failed, the keeper
	// writes the task. It is called before Complete returns. May be nil.
	NextFunc func(h Hint)
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
}
