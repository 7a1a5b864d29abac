package taskstore

import (
	"time"

	"sheaf"
)

// Page selects part of a list. Lists return the next cursor, "" at the end.
type Page struct {
	Limit     int // 1–1,000, 0 means 50
	Cursor    string
	Ascending bool // oldest first
}

// DocumentFilter selects documents; empty fields select all.
type DocumentFilter struct {
	None          bool   // selects nothing: the meaning of an empty list
	DatasetID     string // "" means all of the tenant's
	IDs           []string
	States        []sheaf.DocumentState
	MediaTypes    []string
	Query         string // substring of the name, case-insensitive
	SHA256        string
	ParentID      string   // files of this archive
	Issues        []string // codes of their failures
	Warnings      []string // codes of their warnings
	JobIDs        []string // of the latest job that worked on them
	Languages     []string // as stated in their metadata
	Tags          []string // TagAttribute
	CreatedAfter  time.Time
	CreatedBefore time.Time
}

// DatasetFilter selects datasets; empty fields select all.
type DatasetFilter struct {
	Query string   // substring of the name, case-insensitive
	IDs   []string // those that do not exist are omitted
}

// JobFilter selects jobs; empty fields select all.
type JobFilter struct {
	DatasetID string
	Kinds     []sheaf.JobKind
	Requester string // name of the API key used
	Query     string // substring of the name or of one of the first files, case-insensitive
	// States are the jobs' current states. A job's state is derived from its documents,
	// per job, so a page examines only as many jobs as bounded time allows: it may hold
	// fewer than its limit, or none, and still have a next page.
	States []sheaf.DocumentState
}

// NewDocument is a document to create or, if a document with that ID exists in the
// dataset, to replace the bytes of under a new generation.
type NewDocument struct {
	Document sheaf.Document // ID, Name, MediaType, Size, SHA256, BlobKey, ParseConfig, Metadata, DuplicateOf; Attributes if new
	Plan     sheaf.NewTask
}

// ReparseDocument asks for a new generation of one document.
type ReparseDocument struct {
	DocumentID  string
	ParseConfig sheaf.ParseConfig
	MediaType   string // of its bytes, if that changes; "" keeps it
	Plan        sheaf.NewTask
}

// VisibleRange identifies the document whose chunks a visible range holds.
type VisibleRange struct {
	DocumentID string
	DatasetID  string
	Name       string
	MediaType  string
	Generation int
	Hidden     map[string]bool // chunks that users changed, disabled or deleted; nil for none
	Edited     *EditedChunk    // for a range that holds an edited chunk; otherwise nil
}

// EditedChunk is the public id of an edited chunk: that of the chunk it replaces or,
// for an added one, of its edit.
type EditedChunk struct{ ChunkID, RangeID string }

// EventScope is what an event belongs to.
type EventScope struct{ TenantID, DatasetID, JobID, DocumentID string }

// EventFilter selects events; empty fields select all.
type EventFilter struct {
	DatasetID  string
	DocumentID string
	JobID      string
	Kinds      []string
}

// CancelReceipt counts what a cancel did.
type CancelReceipt struct {
	Documents int `json:"documents"`
	Queued    int `json:"queued"`  // tasks that left the queue immediately
	Running   int `json:"running"` // tasks asked to stop
	// RunningTasks are the ids of the tasks asked to stop, for the queue's fast signal.
	RunningTasks []string `json:"-"`
}

// DeleteReceipt counts what a delete removed immediately and what the collector will
// remove; ReceiptID is the receipt that tracks the latter.
type DeleteReceipt struct {
	ReceiptID    string   `json:"receipt_id,omitempty" doc:"id for /v1/receipts/{id}, completed when the last object, chunk and vector is removed; absent if nothing was deleted"`
	Documents    int      `json:"documents"`
	Generations  int      `json:"generations"`
	Tasks        int      `json:"tasks"`
	Chunks       int      `json:"chunks"` // of live generations, gone from search immediately
	Bytes        int64    `json:"bytes"`  // of originals, to be removed by the collector
	DocumentIDs  []string `json:"document_ids" doc:"ids of deleted documents, at most 10,000; documents counts all"`
	RunningTasks []string `json:"-"`
}

// KeyedRequest is one attempt at a request with an idempotency key.
type KeyedRequest struct {
	TenantID string
	Key      string // the client's, at most 128 bytes
	Hash     string // of the request, without the body
	Former   string // Hash as computed before 0010_idempotency_body
	Holder   string // unique to this attempt
}

// KeyedState is the state of a key when an attempt uses it.
type KeyedState struct {
	Held   bool      // by this attempt, which must do the work and end with Finish or Leave
	Since  time.Time // when the key was first used: the same for all attempts
	Body   string    // digest of the body of the first attempt that read all of it; "" until then
	Answer []byte    // of the finished attempt; nil while another is in progress, empty if it can no longer be shown
}

// JobError is one failure of a job.
type JobError struct {
	DocumentID string        `json:"document_id"`
	Document   string        `json:"document"`
	TaskID     string        `json:"task_id,omitempty"`
	Failure    sheaf.Failure `json:"failure"`
}

// JobWarnings are the warnings of a job's document.
type JobWarnings struct {
	DocumentID string          `json:"document_id"`
	Document   string          `json:"document"`
	Warnings   []sheaf.Warning `json:"warnings" nullable:"false"`
}

// PauseScope selects what is paused; exactly one field is set.
type PauseScope struct {
	JobID     string
	DatasetID string
	Tenant    bool
}

// Remaining is a job's remaining work, in cost units (pages).
type Remaining struct {
	Own       int // cost of the job's open tasks, without plans and ends of documents, which take little beside them
	Tasks     int // number of these tasks, and of the documents whose plan is not done
	Unplanned int // documents whose plan is not done
	// UnplannedCost is the expected cost of these, judged by the job's other documents
	// or the tenant's latest ones; 0 when there are none.
	UnplannedCost int
	AheadOwn      int           // pending tasks of the tenant that are served first
	AheadOthers   int           // pending tasks of other tenants in the same or a higher lane
	AheadCost     int           // their total cost
	All           Pace          // of all latest tasks
	Like          Pace          // of those that are like the job's own
	Wait          time.Duration // until any of it may start
	Delayed       *sheaf.Delay  // of the next retried task; nil if none was delayed
	Stalled       bool          // nothing is running, and that task waits for a failing server: the end is unknown
}

// Pace is how fast tasks end, measured over finished ones.
type Pace struct {
	PerSecond float64 // cost units, of all executors together while any of the tasks ran; 0: nothing was measured
	Variation float64 // standard deviation of the seconds per cost unit, over their mean
	Tasks     int     // number of tasks measured
}

// ForgottenAnswer replaces the stored answer of an idempotency key once a document
// it mentions has been deleted.
const ForgottenAnswer = "{}"
