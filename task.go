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
	TaskScheduled  TaskState = "scheduled" // waits for its scheduled time
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

// Phase is how close a task brings its document to completion. Within a tenant and
// lane, later phases of the work go first, so that a document in progress finishes
// before the next one starts.
type Phase int

const (
	PhaseFinish Phase = iota // publishes: all the work is done
	PhaseRanges              // of a document of at most BulkRanges ranges
	PhaseBegin               // plans, and background work
	PhaseBulk                // ranges of a larger document: they yield to small documents, except for their share of turns
)

// Phases lists the phases in the order they are served.
var Phases = [...]Phase{PhaseFinish, PhaseRanges, PhaseBegin, PhaseBulk}

const (
	// BulkRanges is the maximum number of ranges of a document that does not count as
	// bulk.
	BulkRanges = 32
	// RangeDelay times a document's number of ranges is added to the place of each
	// of them. Of documents queued together, the one with the least to do finishes
	// first, and none is held up for long by smaller ones that arrive later.
	RangeDelay = 100 * time.Millisecond
	// BeginDelay is how much later than a range a plan ages, so that the documents of
	// an aging job do not all start before those in progress are done.
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
	Pool       string // of the executors that run it; "" for the default pool
	Unit       Unit
	Range      Range // zero for tasks that cover no units
	Cost       int   // pages or their equivalent, at least 1: what fairness charges and progress is weighted by
	Lane       Lane
	State      TaskState
	Epoch      int64
	WorkerID   string
	Attempts   int // claims; not counted against any budget
	FailCount  int // handler errors that count
	LostCount  int // expired leases

	RunAt             time.Time
	CreatedAt         time.Time
	StartedAt         time.Time // of the latest attempt; zero if never claimed
	FinishedAt        time.Time // zero until terminal
	LeaseUntil        time.Time // zero unless running
	CancelRequestedAt time.Time // zero unless requested

	ReuseKey string // fingerprint + digest, 16+16 hex; "" when the result cannot be reused
	Digest   string // xxhash64 of the config that shaped the result, 16 hex
	Payload  json.RawMessage
	Result   TaskResult
	Failure  *Failure // of the latest failed attempt
	Trace    string   // W3C traceparent of the request that caused it
}

// Held returns the claim that an executor presents with every write.
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
	CPUMS       int64         `json:"cpu_ms,omitempty"` // processor time of parsers and the programs they ran, such as tesseract
	Warnings    []Warning     `json:"warnings,omitempty"`
	Outline     *RangeOutline `json:"outline,omitempty"` // where ParsePayload.Continues
	Output      *NodeOutput   `json:"output,omitempty"`  // of a node of a flow
	Layout      []byte        `json:"layout,omitempty"`  // UnitResult.Layout of its units
	// FormerArtifact is set instead of RangeID and ArtifactKey once a newer version has
	// replaced the result: nothing may list it, and the object exists only until it is
	// garbage-collected. Only reads set it.
	FormerArtifact string `json:"-"`
}

// NodeOutput is what a flow node stores for a range. The object is at ArtifactKey.
type NodeOutput struct {
	Name   string `json:"name,omitempty"`   // identifies what produced it, 16 hex
	Bytes  int64  `json:"bytes,omitempty"`  // of the object
	Digest string `json:"digest,omitempty"` // xxhash64 of the object, 16 hex
	Chunks int    `json:"chunks"`           // in it
	Media  string `json:"media,omitempty"`  // media type of an export; "" for output that other nodes read
	// Metadata is what the node found out about the document as a whole.
	Metadata map[string]string `json:"metadata,omitempty"`
	Asked    *Asked            `json:"asked,omitempty"` // requests to a language model
	// Skipped says why there is no output. Nodes that read it continue without it, or
	// are skipped too when they read nothing else.
	Skipped string `json:"skipped,omitempty"`
	// Failed says that the node failed permanently and, per its on_failure, was skipped
	// or replaced by an empty output; the task has the failure.
	Failed bool `json:"failed,omitempty"`
	// Incomplete says that an earlier node failed: the output is used in this run only.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Asked counts a node's requests to a language model.
type Asked struct {
	Calls  int   `json:"calls"`  // requests made
	Cached int   `json:"cached"` // requests answered from the cache
	Tokens int64 `json:"tokens"` // of the calls: prompts and answers
}

// How a permanently failed task ends; "" leaves it dead.
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

// Took is when the last stage ended, since the claim.
func (r *TaskResult) Took() time.Duration {
	var end int64
	for _, s := range r.Stages {
		end = max(end, s.StartMS+s.MS)
	}
	return time.Duration(end) * time.Millisecond
}

// costTime is the processor time that a cost of 1 covers: a page with text takes
// less.
const costTime = 10 * time.Millisecond

// maxBeyond is a minute of processor time. Without a limit, one task that ran for an
// hour would keep its tenant waiting for an hour of every other tenant's work.
const maxBeyond = int(time.Minute / costTime)

// Beyond returns what fairness charges, in addition to its cost, for a task that took
// so much processor time: a page that is recognized takes a thousand times as long
// as one with text, and both have the cost of a page.
func Beyond(cost int, took time.Duration) int {
	return min(max(int(took/costTime)-max(cost, 1), 0), maxBeyond)
}

// Claim names an attempt at a task. Every write of an executor carries one, and
// changes nothing when the task's epoch has moved on.
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
	Pool      string      // of the executors that may run it; "" for the default pool
	OnFailure string      // OnFailureSkip, OnFailureDefault or ""
	DependsOn []string    // ids of tasks in the same or an earlier insert; unfinished ones park the task
	Done      *TaskResult // not nil: the task is inserted done, listing an existing range result
	Ran       bool        // Done was produced by the attempt that inserts the task
}

// Hint says that a task may be claimable. It is not authoritative: a hint may be
// lost, repeated or stale, and the guarded claim decides.
type Hint struct {
	TaskID   string
	TenantID string
	Lane     Lane
	Cost     int
	Kind     TaskKind
	Phase    Phase
	Place    time.Time // when its document's job was queued, plus RangeDelay per range of the document; orders hints of a lane and phase
	Aged     bool      // has waited longer than the limit passed to Feed.Runnable
	Epoch    int64     // of the task when the hint was read from the store; queues need not carry it
	Token    string    // the queue's own handle (a stream entry id); "" for the SQL queue
}

// ServedIn is the lane the hint is served in: one higher once it is aged.
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

// Kinds of events. The transitions occur at most once per task and epoch.
const (
	EventClaimed    = "claimed"
	EventDone       = "done"
	EventFailed     = "failed" // will be retried
	EventDead       = "dead"
	EventSnoozed    = "snoozed"
	EventReleased   = "released"
	EventLost       = "lost" // the lease expired
	EventCanceled   = "canceled"
	EventSuperseded = "superseded"
	EventRetried    = "retried"  // by an admin
	EventProgress   = "progress" // Detail is Progress
	EventMessage    = "message"
	EventOutput     = "output"   // the parser's last lines on a failed unit; Detail is UnitOutput. Not part of a flight record
	EventDocument   = "document" // a document changed state; Detail is DocumentChange
)

// Progress is the detail of an EventProgress: units of the task's range that
// have passed a stage.
type Progress struct {
	Stage string `json:"stage"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
}

// UnitOutput is the detail of an EventOutput: the parser process's output before it
// stopped on units From..To. It may quote the document.
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
