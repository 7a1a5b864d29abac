package taskstore

import (
	"time"

	"sheaf"
)

// Page asks for part of a list. Lists answer the next cursor, "" at the end.
type Page struct {
	Limit     int // 1–1,000, 0 means 50
	Cursor    string
	Ascending bool // oldest first
}

// DocumentFilter selects documents; empty fields select all.
type DocumentFilter struct {
	None          bool   // selects nothing: what an empty list asks for
	DatasetID     string // "" means all of the tenant's
	IDs           []string
	States        []sheaf.DocumentState
	MediaTypes    []string
	Query         string // substring of the name, case-insensitive
	SHA256        string
	ParentID      string   // files of this archive
	Issues        []string // codes of what they failed with
	JobIDs        []string // that worked on them last
	Languages     []string // that they say they are in
	Tags          []string // TagAttribute
	CreatedAfter  time.Time
	CreatedBefore time.Time
}

// JobFilter selects jobs; empty fields select all.
type JobFilter struct {
	DatasetID string
	Kinds     []sheaf.JobKind
	Requester string // name of the key that asked
	Query     string // substring of the name or of one of the first files, case-insensitive
	// States the jobs are in now. A job has the state of its documents, which is
	// looked up for each: so many jobs are looked at for a page as bounded time
	// allows, and a page may hold fewer than its limit, also none, and have a next.
	States []sheaf.DocumentState
}

// NewDocument is a document to be created, or, when a document of that ID
// exists in the dataset, to replace its bytes under a new generation.
type NewDocument struct {
	Document sheaf.Document // ID, Name, MediaType, Size, SHA256, BlobKey, ParseConfig, Metadata, DuplicateOf; Attributes of a new one
	Plan     sheaf.NewTask
}

// ReparseDocument asks for a new generation of one document.
type ReparseDocument struct {
	DocumentID  string
	ParseConfig sheaf.ParseConfig
	MediaType   string // of its bytes, where that has to change; "" leaves it
	Plan        sheaf.NewTask
}

// VisibleRange says whose chunks a visible range holds.
type VisibleRange struct {
	DocumentID string
	DatasetID  string
	Name       string
	MediaType  string
	Generation int
	Hidden     map[string]bool // chunks that people changed, switched off or deleted; nil for none
	Edited     *EditedChunk    // of a range that holds an edited chunk; else nil
}

// EditedChunk is how an edited chunk is called: by the chunk that it stands in
// place of, or an added one by its edit.
type EditedChunk struct{ ChunkID, RangeID string }

// EventScope says what an event is of.
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
	Queued    int `json:"queued"`  // tasks that left the queue at once
	Running   int `json:"running"` // tasks asked to stop
	// RunningTasks are the ids of those asked to stop, for the queue's fast signal.
	RunningTasks []string `json:"-"`
}

// DeleteReceipt counts what a delete took away at once and what the collector
// will remove elsewhere; ReceiptID names the receipt that follows that.
type DeleteReceipt struct {
	ReceiptID    string   `json:"receipt_id,omitempty" doc:"of /v1/receipts/{id}, which is completed when the last object, chunk and vector is gone; absent when nothing was deleted"`
	Documents    int      `json:"documents"`
	Generations  int      `json:"generations"`
	Tasks        int      `json:"tasks"`
	Chunks       int      `json:"chunks"` // of live generations, gone from search at once
	Bytes        int64    `json:"bytes"`  // of originals, removed by the collector
	DocumentIDs  []string `json:"document_ids"`
	RunningTasks []string `json:"-"`
}

// KeyedRequest is one try of a request under an idempotency key.
type KeyedRequest struct {
	TenantID string
	Key      string // the client's, at most 128 bytes
	Hash     string // of what is asked for, without the body
	Former   string // the same as versions before 0010_idempotency_body hashed it
	Holder   string // of this try alone
}

// KeyedState is how a key stands when a try asks for it.
type KeyedState struct {
	Held   bool      // by this try, which shall do the work and end with Finish or Leave
	Since  time.Time // when the key was first used: the same for all tries
	Body   string    // digest of the body of the first try that read it to its end; "" while there is none
	Answer []byte    // of the try that finished; nil while another is at work, and empty where it cannot be shown any more
}

// JobError is one failure of a job.
type JobError struct {
	DocumentID string        `json:"document_id"`
	Document   string        `json:"document"`
	TaskID     string        `json:"task_id,omitempty"`
	Failure    sheaf.Failure `json:"failure"`
}

// PauseScope names what is paused; exactly one field is set, or Tenant.
type PauseScope struct {
	JobID     string
	DatasetID string
	Tenant    bool
}

// Remaining is the work between a job and its end, in cost units (pages).
type Remaining struct {
	Own       int // cost of the job's tasks not yet terminal
	Unplanned int // documents whose plan is not done
	// UnplannedCost is what these will cost if they are as the job's others, or
	// as the tenant's latest documents; 0 when there are none to go by.
	UnplannedCost int
	AheadOwn      int           // pending tasks of the tenant that come first
	AheadOthers   int           // pending tasks of other tenants in the same or a higher lane
	AheadCost     int           // their cost together
	CostPerSec    float64       // measured over the last finished tasks, all executors together; 0 when unknown
	Wait          time.Duration // until any of it may begin
	SpreadP90     float64       // ratio of the 90th percentile of seconds per cost to the median, ≥ 1; 0 when unknown
	Delayed       *sheaf.Delay  // of the task that is tried again next; nil while none was put off
	Stalled       bool          // nothing runs, and that task waits for a server that does not answer as it should: nobody knows until when
}

// ForgottenAnswer is what is left of an idempotency key's answer that told of a
// document which was deleted since.
const ForgottenAnswer = "{}"
