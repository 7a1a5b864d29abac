package taskstore

import (
	"encoding/json"
	"time"

	"sheaf"
)

// NewMembers is part of an archive on its way to become documents.
type NewMembers struct {
	Files []NewDocument // Document: ID, Name, Path, MediaType, Size, SHA256, BlobKey, ParseConfig, Metadata
	// Keep leaves documents that are there as they are; they belong to the
	// archive's new generation all the same.
	Keep bool
	// MaxDocuments and MaxBytes bound all that comes out of the outermost
	// archive, with the archives inside it.
	MaxDocuments int
	MaxBytes     int64
}

// MemberOutcome is what became of one file of an archive.
type MemberOutcome struct {
	Failure *sheaf.Failure // why it is no document; nil when it is
	Stored  bool           // its BlobKey is in use
	Wait    bool           // the tenant's queue is full: to be tried again
}

// NotClaimable says why a claim was refused. The hint that led to it is spent.
type NotClaimable struct {
	TaskID string
	State  sheaf.TaskState // "" when there is no such task
}

func (e *NotClaimable) Error() string {
	if e.State == "" {
		return "task " + e.TaskID + " does not exist"
	}
	return "task " + e.TaskID + " is " + string(e.State) + ", not claimable"
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *NotClaimable) Is(target error) bool { return target == sheaf.ErrConflict }

// WorkerStatus is what an executor says about itself with each heartbeat.
type WorkerStatus struct {
	ID          string          `json:"id"` // unique per process start
	Host        string          `json:"host"`
	PID         int             `json:"pid"`
	Version     string          `json:"version"`
	Slots       int             `json:"slots"`
	Running     []string        `json:"running"` // task ids
	RSSBytes    int64           `json:"rss_bytes"`
	Pools       []string        `json:"pools,omitempty"`        // that it serves; empty for default
	HeartbeatMS int64           `json:"heartbeat_ms,omitempty"` // how often it says so
	Info        json.RawMessage `json:"info,omitempty"`
	StartedAt   time.Time       `json:"started_at"`
	SeenAt      time.Time       `json:"seen_at"`
}

// HeartbeatReply lists claims of the call that need attention.
type HeartbeatReply struct {
	Lost     []sheaf.Claim // not this worker's any more: drop the work
	Canceled []sheaf.Claim // still held, and asked to stop
	Ended    []sheaf.Claim // of tasks that were canceled, superseded or deleted meanwhile: drop the work, nothing is lost
}

// FailReport ends an attempt that did not work out.
type FailReport struct {
	Failure  sheaf.Failure // Retryable false makes the task dead at once
	Delay    time.Duration // until the next attempt
	MaxFails int           // dead when fail_count reaches it
}

// ReusableRange is a stored range result that a new generation may list or copy.
type ReusableRange struct {
	DocumentID string
	TaskID     string
	Range      sheaf.Range
	Result     sheaf.TaskResult
}

// Promotion is what became of tasks that waited for their time.
type Promotion struct {
	Tasks []PromotedTask
	// NextIn is when the next one is due; 0 when there is none, and not 0
	// otherwise.
	NextIn time.Duration
}

// PromotedTask is a task that was due and is pending now.
type PromotedTask struct {
	ID   string
	Lane sheaf.Lane
	Late time.Duration // since it was due, by the store's clock
}

// FinishedRange is what a done task of a generation has covered.
type FinishedRange struct {
	Unit        sheaf.Unit
	Range       sheaf.Range
	ArtifactKey string // "" once a newer version has replaced the result
}

// RangeOutline is what a done task reports of the headings in its range.
type RangeOutline struct {
	Range    sheaf.Range
	Headings []sheaf.Heading // in order
}

// DefaultPool is that of tasks without a pool.
const DefaultPool = "default"

// UnservedAfter is how long a worker that says nothing still counts as one that
// serves its pools, unless its heartbeats are far between: less than the ten
// seconds in which a pool that nobody serves is told of.
const UnservedAfter = 7 * time.Second

// UnservedPool is a pool for which tasks wait and that no live worker serves.
type UnservedPool struct {
	Pool  string
	Tasks int
	Since time.Time // from when the first of them could have run
}

// TenantLoad is what a fair pick needs to know of a tenant.
type TenantLoad struct {
	TenantID string
	Weight   int
	Cap      int
	Running  int
}

// FeedSlice is what some tenants have for a queue.
type FeedSlice struct {
	Tenants []TenantLoad // with pending tasks; Running is not read
	Hints   []sheaf.Hint // that no queue is known to hold
	Next    string       // the last of the tenants, "" when there are no more behind it
}

// ReapPolicy says when a running task is lost.
type ReapPolicy struct {
	MaxLost       int           // dead when lost_count reaches it, default 3
	MaxJitter     time.Duration // a task that was lost before runs after a random wait up to this
	WorkerTimeout time.Duration // a worker not heard of for this long is gone before its leases end; 0 means leases only
	// TakenFunc is told of each task after it was taken back. May be nil.
	TakenFunc func(tenantID, taskID string)
}
