package taskstore

import (
	"time"

	"sheaf"
)

// QueueRunsKey is the Meta key of the queue's run ids as last noted, by lane, as JSON.
const QueueRunsKey = "queue_incarnation"

// DeadLetterFilter selects dead tasks; empty fields select all.
type DeadLetterFilter struct {
	IDs        []string
	Kind       sheaf.TaskKind
	Code       string // failure code
	Category   sheaf.Category
	DocumentID string
	JobID      string
	DatasetID  string
	None       bool // selects nothing: the meaning of an empty list
	DryRun     bool // count what the call would change, without changing it
	// AllTenants selects every tenant's tasks when the call names no tenant. For
	// operators only.
	AllTenants bool
}

// TenantQueue is the state of one tenant's queue.
type TenantQueue struct {
	TenantID         string      `json:"tenant_id"`
	Weight           int         `json:"weight"`
	Cap              int         `json:"cap"` // its own, or what the fleet gives it
	Paused           bool        `json:"paused"`
	Running          int         `json:"running"`
	RetryWait        int         `json:"retry_wait"`
	Scheduled        int         `json:"scheduled"` // waiting for their scheduled time
	Parked           int         `json:"parked"`
	Dead             int         `json:"dead"`
	Lanes            []LaneDepth `json:"lanes"`
	OldestPendingAge float64     `json:"oldest_pending_age_seconds"`
}

// LaneDepth is the waiting work of one lane.
type LaneDepth struct {
	Lane             sheaf.Lane `json:"lane"`
	Pending          int        `json:"pending"`
	Cost             int        `json:"cost"`
	OldestPendingAge float64    `json:"oldest_pending_age_seconds"`
}

// Backlog is the waiting and running work of all tenants, for metrics and alerts.
type Backlog struct {
	Lanes     []LaneBacklog // one per lane, in the order of Lanes
	Running   int
	RetryWait int
	Scheduled int
	Parked    int
	Dead      int
	Waiting   int            // tenants with pending tasks
	Tenants   []TenantQueue  // those with the most pending, running or dead tasks; without Cost
	Executors int            // seen within the last minute
	Unserved  []UnservedPool // from UnservedPools; Backlog leaves it empty
}

// LaneBacklog sums a lane over all tenants.
type LaneBacklog struct {
	Lane    sheaf.Lane
	Pending int // not paused
	Held    int // pending, but paused
	// OldestPendingAge in seconds, of Pending only: paused work is meant to wait.
	OldestPendingAge float64
}

// Population counts documents and jobs.
type Population struct {
	Documents map[sheaf.DocumentState]int // not deleted
	Queued    int                         // jobs with no started document
	Running   int                         // jobs started but not finished
	Jobs      int                         // all, including finished ones
}

// PoolUse is the use of a connection pool.
type PoolUse struct {
	Max, Open, Used int
	Waits           int64         // calls that had to wait for a connection
	Waited          time.Duration // total over all of them
}
