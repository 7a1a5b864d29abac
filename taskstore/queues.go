package taskstore

import (
	"time"

	"sheaf"
)

// DeadLetterFilter selects dead tasks; empty fields select all.
type DeadLetterFilter struct {
	IDs        []string
	Kind       sheaf.TaskKind
	Code       string // failure code
	Category   sheaf.Category
	DocumentID string
	JobID      string
	DatasetID  string
	None       bool // selects nothing: what an empty list asks for
	DryRun     bool // count what the call would change, and change nothing
	// AllTenants selects the tasks of every tenant where the call names none.
	// For operators alone.
	AllTenants bool
}

// TenantQueue is the state of one tenant's queue.
type TenantQueue struct {
	TenantID         string      `json:"tenant_id"`
	Weight           int         `json:"weight"`
	Cap              int         `json:"cap"`
	Paused           bool        `json:"paused"`
	Running          int         `json:"running"`
	RetryWait        int         `json:"retry_wait"`
	Scheduled        int         `json:"scheduled"` // for later, as they were asked for
	Parked           int         `json:"parked"`
	Dead             int         `json:"dead"`
	Lanes            []LaneDepth `json:"lanes"`
	OldestPendingAge float64     `json:"oldest_pending_age_seconds"`
}

// LaneDepth is how much waits in one lane.
type LaneDepth struct {
	Lane             sheaf.Lane `json:"lane"`
	Pending          int        `json:"pending"`
	Cost             int        `json:"cost"`
	OldestPendingAge float64    `json:"oldest_pending_age_seconds"`
}

// Backlog is what waits and runs over all tenants, for metrics and alerts.
type Backlog struct {
	Lanes     []LaneBacklog // one a lane, in the order of Lanes
	Running   int
	RetryWait int
	Scheduled int
	Parked    int
	Dead      int
	Waiting   int            // tenants with pending tasks
	Tenants   []TenantQueue  // those with the most pending, running or dead tasks; without Cost
	Executors int            // seen within the last minute
	Unserved  []UnservedPool // as UnservedPools says; Backlog leaves it empty
}

// LaneBacklog sums a lane over all tenants.
type LaneBacklog struct {
	Lane    sheaf.Lane
	Pending int // of tenants and work that are not paused
	Held    int // pending, but paused
	// OldestPendingAge in seconds, of Pending alone: who pauses work knows that
	// it waits.
	OldestPendingAge float64
}

// Population counts what there is.
type Population struct {
	Documents map[sheaf.DocumentState]int // that are not deleted
	Queued    int                         // jobs of which no document has begun
	Running   int                         // jobs that have begun and are not over
	Jobs      int                         // all, with those that are over
}

// PoolUse says how busy a pool of connections is.
type PoolUse struct {
	Max, Open, Used int
	Waits           int64         // calls that had to wait for a connection
	Waited          time.Duration // by all of them
}
