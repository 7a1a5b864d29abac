package taskstore

import (
	"encoding/json"
	"time"

	"sheaf"
)

// NewMembers are files of an archive that become documents.
type NewMembers struct {
	Files []NewDocument // Document: ID, Name, Path, MediaType, Size, SHA256, BlobKey, ParseConfig, Metadata
	// Keep leaves existing documents unchanged; they still belong to the archive's new
	// generation.
	Keep bool
	// MaxDocuments and MaxBytes bound the total contents of the outermost archive,
	// including nested archives.
	MaxDocuments int
	MaxBytes     int64
}

// MemberOutcome is the outcome of one file of an archive.
type MemberOutcome struct {
	Failure *sheaf.Failure // why it is not a document; nil if it is
	Stored  bool           // its BlobKey is in use
	Wait    bool           // the tenant's queue is full: try again
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

// WorkerStatus is an executor's report about itself with each heartbeat.
type WorkerStatus struct {
	ID          string          `json:"id"` // unique per process start
	Host        string          `json:"host"`
	PID         int             `json:"pid"`
	Version     string          `json:"version"`
	Slots       int             `json:"slots"`
	Running     []string        `json:"running"` // task ids
	RSSBytes    int64           `json:"rss_bytes"`
	Pools       []string        `json:"pools,omitempty"`        // the pools it serves; empty for default
	HeartbeatMS int64           `json:"heartbeat_ms,omitempty"` // heartbeat interval
	Info        json.RawMessage `json:"info,omitempty"`
	StartedAt   time.Time       `json:"started_at"`
	SeenAt      time.Time       `json:"seen_at"`
}

// HeartbeatReply lists claims of the call that need attention.
type HeartbeatReply struct {
	Lost     []sheaf.Claim // no longer this worker's: drop the work
	Canceled []sheaf.Claim // still held, but cancellation was requested
	Ended    []sheaf.Claim // tasks canceled, superseded or deleted meanwhile: drop the work, nothing is lost
}

// FailReport ends a failed attempt.
type FailReport struct {
	Failure  sheaf.Failure // Retryable false makes the task dead immediately
	Delay    time.Duration // until the next attempt
	MaxFails int           // dead when fail_count reaches it
}

// ReusableRange is a stored range result that a new generation may list or copy.
type ReusableRange struct {
	DocumentID string
	TaskID     string
	Kind       sheaf.TaskKind
	Unit       sheaf.Unit
	Range      sheaf.Range
	ReuseKey   string
	Result     sheaf.TaskResult
}

// Promotion lists the scheduled and retried tasks that became pending.
type Promotion struct {
	Tasks []PromotedTask
	// NextIn is when the next one is due; 0 only if there is none.
	NextIn time.Duration
}

// PromotedTask is a due task that is now pending.
type PromotedTask struct {
	ID   string
	Lane sheaf.Lane
	Late time.Duration // since it was due, by the store's clock
}

// FinishedRange is what a done task of a generation covers.
type FinishedRange struct {
	Unit        sheaf.Unit
	Range       sheaf.Range
	ArtifactKey string // "" once a newer version has replaced the result
}

// RangeOutline is what a done task reports about the headings in its range.
type RangeOutline struct {
	Range    sheaf.Range
	Headings []sheaf.Heading // in order
}

// DefaultPool is the pool of tasks without a pool.
const DefaultPool = "default"

// UnservedAfter is how long a silent worker still counts as serving its pools,
// unless its heartbeats are further apart: less than the ten seconds within which an
// unserved pool is reported.
const UnservedAfter = 7 * time.Second

// UnservedPool is a pool with waiting tasks that no live worker serves.
type UnservedPool struct {
	Pool  string
	Tasks int
	Since time.Time // since the first of them could have run
}

// TenantLoad is what a fair pick needs to know about a tenant.
type TenantLoad struct {
	TenantID string
	Weight   int
	Cap      int
	Running  int
}

// FeedSlice is the work of some tenants for a queue.
type FeedSlice struct {
	Tenants []TenantLoad // with pending tasks; Running is not set
	Hints   []sheaf.Hint // not known to be in a queue
	Next    string       // the last of the tenants, "" when there are no more
}

// ReapPolicy says when a running task is lost.
type ReapPolicy struct {
	MaxLost       int           // dead when lost_count reaches it, default 3
	MaxJitter     time.Duration // maximum random delay before a task that was already lost once runs again
	WorkerTimeout time.Duration // a worker silent for this long is dead before its leases expire; 0 means leases only
	// TakenFunc is called with each task after it was reclaimed. May be nil.
	TakenFunc func(tenantID, taskID string)
}
