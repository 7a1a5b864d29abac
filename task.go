package sheaf

import (
	"encoding/json"
	"time"
)

// TaskKind names the processor that runs a task.
type TaskKind string

const (
	KindPlan     TaskKind = "plan"     // open, count, fingerprint, split
	KindParse    TaskKind = "parse"    // the standard type: range → chunks → index
	KindIndex    TaskKind = "index"    // copy a stored artifact into the index
	KindFinalize TaskKind = "finalize" // verify the ledger and publish the generation
	KindRaptor   TaskKind = "raptor"
	KindGraphRAG TaskKind = "graphrag"
	KindMindmap  TaskKind = "mindmap"
	KindDataflow TaskKind = "dataflow"
	KindGC       TaskKind = "gc"
)

// TaskState is a node of the state machine of a task:
//
//	parked → pending → running → done | retry_wait → pending | dead | canceled | superseded
//	scheduled → pending
type TaskState string

const (
	TaskParked     TaskState = "parked"    // waits for the tasks it depends on
	TaskScheduled  TaskState = "scheduled" // waits for the time it was asked for
	TaskPending    TaskState = "pending"
	TaskRunning    TaskState = "running"
	TaskRetryWait  TaskState = "retry_wait"
	TaskDone       TaskState = "done"
	TaskDead       TaskState = "dead" // the dead-letter queue
	TaskCanceled   TaskState = "canceled"
	TaskSuperseded TaskState = "superseded"
)

// Terminal reports whether only an admin retry can leave the state.
func (s TaskState) Terminal() bool {
	switch s {
	case TaskDone, TaskDead, TaskCanceled, TaskSuperseded:
		return true
	}
	return false
}

// Lane is a priority class within a tenant: 1 is served first.
type Lane int

const (
	LaneInteractive Lane = 1
	LaneNormal      Lane = 2
	LaneBackfill    Lane = 3
)

// Lanes lists the lanes in the order they are served.
var Lanes = [...]Lane{LaneInteractive, LaneNormal, LaneBackfill}

// Phase says how near to its end a task brings a document. Of tasks of one
// tenant and lane the nearer go first, so that a document which has begun is
// finished before the next one begins.
type Phase int

const (
	PhaseFinish Phase = iota // publishes: all the work is done
	PhaseRanges              // of a document of at most BulkRanges ranges
	PhaseBegin               // plans, and what nobody waits for
	PhaseBulk                // ranges of a larger document: they yield to small documents, but for their share of the turns
)

// Phases lists the phases in their order.
var Phases = [...]Phase{PhaseFinish, PhaseRanges, PhaseBegin, PhaseBulk}

const (
	// BulkRanges is how many ranges a document has at most that does not
	// count as bulk.
	BulkRanges = 32
	// RangeDelay is added to the place of a document's ranges for each of them,
	// so that of documents that were queued together the one with the least to do
	// is finished first, and none waits for long for smaller ones that come later.
	RangeDelay = 100 * time.Millisecond
	// BeginDelay is how much later a plan counts as aged than a range, so
	// that documents of a job that ages do not all begin before those that have
	// begun are done.
	BeginDelay = BulkRanges * RangeDelay
)

// Task is one row of the queue.
type Task struct {
	ID         string
	TenantID   string
	DatasetID  string
	DocumentID string
	JobID      string
	Generation int
	Kind       TaskKind
	Node       string // of a flow; "" otherwise
	Pool       string // of the executors that run it; "" for default
	Unit       Unit
	Range      Range // zero for tasks that cover no units
	Cost       int   // pages or their equivalent, at least 1: what fairness charges and progress weighs
	Lane       Lane
	State      TaskState
	Epoch      int64
	WorkerID   string
	Attempts   int // claims; no budget is drawn from it
	FailCount  int // handler errors that count
	LostCount  int // leases that ran out

	RunAt             time.Time
	CreatedAt         time.Time
	StartedAt         time.Time // of the latest attempt; zero if never claimed
	FinishedAt        time.Time // zero until terminal
	LeaseUntil        time.Time // zero unless running
	CancelRequestedAt time.Time // zero unless asked

	ReuseKey string // fingerprint + digest, 16+16 hex; "" when the result cannot be reused
	Digest   string // xxhash64 of the config that shaped the result, 16 hex
	Payload  json.RawMessage
	Result   TaskResult
	Failure  *Failure // of the latest failed attempt
	Trace    string   // W3C traceparent of the request that caused it
}

// Held is the claim an executor presents with every write.
func (t *Task) Held() Claim { return Claim{TaskID: t.ID, Epoch: t.Epoch} }

// TaskResult is what a done task leaves behind.
type TaskResult struct {
	RangeID     string        `json:"range_id,omitempty"`     // "" for kinds that make no chunks
	ArtifactKey string        `json:"artifact_key,omitempty"` // blob key of the Parquet file
	Chunks      int           `json:"chunks"`
	Tokens      int           `json:"tokens"`
	Reused      bool          `json:"reused,omitempty"`    // nothing was parsed or embedded for it
	Documents   int           `json:"documents,omitempty"` // of an archive: files that became documents
	Ledger      Ledger        `json:"ledger,omitempty"`
	Usage       Usage         `json:"usage"`
	Stages      []StageTime   `json:"stages,omitempty"`
	Warnings    []Warning     `json:"warnings,omitempty"`
	Outline     *RangeOutline `json:"outline,omitempty"` // where ParsePayload.Continues
	Output      *NodeOutput   `json:"output,omitempty"`  // of a node of a flow
	Layout      []byte        `json:"layout,omitempty"`  // UnitResult.Layout of its units
	// FormerArtifact is set instead of RangeID and ArtifactKey once a newer
	// version has replaced the result: nothing may list it, and the object is
	// there only until the collector comes. Set by reads alone.
	FormerArtifact string `json:"-"`
}

// NodeOutput is what a node of a flow leaves for a range. The object is under
// ArtifactKey.
type NodeOutput struct {
	Name   string `json:"name,omitempty"`   // of what made it, 16 hex
	Bytes  int64  `json:"bytes,omitempty"`  // of the object
	Digest string `json:"digest,omitempty"` // xxhash64 of the object, 16 hex
	Chunks int    `json:"chunks"`           // in it
	Media  string `json:"media,omitempty"`  // media type of an export, "" for what other nodes read
	// Metadata is what the node found about the document, for which no chunk is asked.
	Metadata map[string]string `json:"metadata,omitempty"`
	Asked    *Asked            `json:"asked,omitempty"` // of a language model
	// Skipped says why there is no output: what reads it goes on without it, or is
	// skipped too when it reads nothing else.
	Skipped string `json:"skipped,omitempty"`
	// Failed says that the node failed for good, and was skipped or replaced by an
	// empty output as its on_failure says; the task has the failure.
	Failed bool `json:"failed,omitempty"`
	// Incomplete says that a node before it failed: the output is used in this run,
	// and in no other.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Asked is what a node asked a language model.
type Asked struct {
	Calls  int   `json:"calls"`  // that were made
	Cached int   `json:"cached"` // that were answered by an answer kept from before
	Tokens int64 `json:"tokens"` // of the calls: prompts and answers
}

// What becomes of a task that failed for good; "" leaves it dead.
const (
	OnFailureSkip    = "skip"    // it is done, and its output is skipped
	OnFailureDefault = "default" // it is done, with an empty output
)

// Usage is what a task consumed.
type Usage struct {
	Pages          int   `json:"pages"`
	OCRPages       int   `json:"ocr_pages"`
	Tokens         int   `json:"tokens"`
	EmbeddedTokens int   `json:"embedded_tokens"`
	Bytes          int64 `json:"bytes"`
}

// Add sums usage.
func (u *Usage) Add(v Usage) {
	u.Pages += v.Pages
	u.OCRPages += v.OCRPages
	u.Tokens += v.Tokens
	u.EmbeddedTokens += v.EmbeddedTokens
	u.Bytes += v.Bytes
}

// StageTime is the wall time one stage of a task took.
type StageTime struct {
	Name    string `json:"name"`     // fetch, parse, chunk, embed, index
	StartMS int64  `json:"start_ms"` // since the claim
	MS      int64  `json:"ms"`
}

// Claim names an attempt at a task. Every write that an executor makes carries
// one and changes nothing when the task's epoch has moved on.
type Claim struct {
	TaskID string
	Epoch  int64
}

// NewTask is a task to be inserted. Tenant, dataset, document, job, generation
// and lane come from the task or call that spawns it.
type NewTask struct {
	ID        string // NewID
	Kind      TaskKind
	Node      string
	Unit      Unit
	Range     Range
	Cost      int
	ReuseKey  string
	Digest    string
	Payload   json.RawMessage
	Pool      string      // of the executors that may run it; "" for default
	OnFailure string      // OnFailureSkip, OnFailureDefault or ""
	DependsOn []string    // ids of tasks in the same or an earlier insert; unmet ones park the task
	Done      *TaskResult // not nil: the task is inserted done, listing an existing range result
}

// Hint says that a task may be claimable. It carries no truth: a hint may
// be lost, repeated or out of date, and the guarded claim decides.
type Hint struct {
	TaskID   string
	TenantID string
	Lane     Lane
	Cost     int
	Kind     TaskKind
	Phase    Phase
	Place    time.Time // when its document's job was queued, later by RangeDelay for each range; orders hints of a lane and phase
	Aged     bool      // has waited longer than Feed.Runnable was asked for
	Epoch    int64     // of the task when the hint was read from the store; queues need not carry it
	Token    string    // the queue's own handle (a stream entry id); "" for the SQL queue
}

// ServedIn is the lane that the hint counts in: one higher once it is aged.
func (h Hint) ServedIn() Lane {
	if h.Aged && h.Lane > LaneInteractive {
		return h.Lane - 1
	}
	return h.Lane
}

// Event is one line of the append-only log. Seq orders events as readers see
// them and is the id of the event stream.
type Event struct {
	Seq        int64           `json:"seq"`
	TenantID   string          `json:"-"`
	DatasetID  string          `json:"dataset_id,omitempty"`
	JobID      string          `json:"job_id,omitempty"`
	DocumentID string          `json:"document_id,omitempty"`
	Generation int             `json:"generation,omitempty"`
	TaskID     string          `json:"task_id,omitempty"`
	Epoch      int64           `json:"epoch,omitempty"`
	Kind       string          `json:"kind"` // EventClaimed …
	Worker     string          `json:"worker,omitempty"`
	Level      string          `json:"level,omitempty"` // info, warn, error
	Text       string          `json:"text,omitempty"`  // one line for people, at most 1,000 bytes
	Detail     json.RawMessage `json:"detail,omitempty"`
	At         time.Time       `json:"at"`
}

// Kinds of event. The transitions occur at most once per task and epoch.
const (
	EventClaimed    = "claimed"
	EventDone       = "done"
	EventFailed     = "failed" // will be retried
	EventDead       = "dead"
	EventSnoozed    = "snoozed"
	EventReleased   = "released"
	EventLost       = "lost" // the lease ran out
	EventCanceled   = "canceled"
	EventSuperseded = "superseded"
	EventRetried    = "retried"  // by an admin
	EventProgress   = "progress" // Detail is Progress
	EventMessage    = "message"
	EventOutput     = "output"   // the parser's last lines on a unit that failed; Detail is UnitOutput. No part of a flight record
	EventDocument   = "document" // a document changed state; Detail is DocumentChange
)

// Progress is the detail of an EventProgress: units of the task's range that
// have passed a stage.
type Progress struct {
	Stage string `json:"stage"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
}

// UnitOutput is the detail of an EventOutput: what the parser's process wrote
// before it stopped on units From..To. It may quote the document.
type UnitOutput struct {
	From  int    `json:"from"`
	To    int    `json:"to"`
	Code  string `json:"code"`  // of the units' failure
	Lines string `json:"lines"` // at most 4 KB
}

// DocumentChange is the detail of an EventDocument.
type DocumentChange struct {
	State    DocumentState `json:"state"`
	Progress float64       `json:"progress"`
	Failure  *Failure      `json:"failure,omitempty"`
}
