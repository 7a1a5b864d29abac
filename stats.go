package sheaf

import (
	"context"
	"time"
)

// Stats is what a tenant's tasks did lately, for charts.
type Stats struct {
	Buckets       []StatsBucket `json:"buckets" nullable:"false" doc:"one a minute, oldest first, the last one not over yet"`
	Stages        []StageStats  `json:"stages" nullable:"false"`
	CostPerSecond float64       `json:"cost_per_second" doc:"pages or their equivalent done in a second while anything ran; 0 when nothing did"`
	Sampled       bool          `json:"sampled" doc:"more happened than was looked at: the newest was"`
}

// StatsBucket counts one minute.
type StatsBucket struct {
	At      time.Time        `json:"at"`
	Tasks   int              `json:"tasks" doc:"done"`
	Failed  int              `json:"failed" doc:"attempts that failed, were lost or were the last"`
	Cost    int              `json:"cost" doc:"of the tasks that were done"`
	StageMS map[string]int64 `json:"stage_ms" doc:"time of the tasks that were done, by stage, in milliseconds"`
}

// StageStats says how long a stage takes in one task.
type StageStats struct {
	Name  string `json:"name"`
	Tasks int    `json:"tasks"`
	P50MS int64  `json:"p50_ms"`
	P95MS int64  `json:"p95_ms"`
}

// Backlog is what waits and runs over all tenants, for metrics and alerts.
type Backlog struct {
	Lanes     []LaneBacklog // one a lane, in the order of Lanes
	Running   int
	RetryWait int
	Parked    int
	Dead      int
	Waiting   int           // tenants with pending tasks
	Tenants   []TenantQueue // those with the most pending, running or dead tasks; without Cost
	Executors int           // seen within the last minute
}

// LaneBacklog sums a lane over all tenants.
type LaneBacklog struct {
	Lane    Lane
	Pending int // of tenants and work that are not paused
	Held    int // pending, but paused
	// OldestPendingAge in seconds, of Pending alone: who pauses work knows that
	// it waits.
	OldestPendingAge float64
}

// Population counts what there is.
type Population struct {
	Documents map[DocumentState]int // that are not deleted
	Queued    int                   // jobs of which no document has begun
	Running   int                   // jobs that have begun and are not over
	Jobs      int                   // all, with those that are over
}

// BacklogReader reads what the keeper that leads exports.
type BacklogReader interface {
	// Backlog reads all of it with a bounded number of statements, whatever the
	// number of tenants, and lists no more than top of them.
	Backlog(ctx context.Context, top int) (*Backlog, error)
	// Population reads every document and job: not for each scrape.
	Population(ctx context.Context) (*Population, error)
}

// PoolUse says how busy a pool of connections is.
type PoolUse struct {
	Max, Open, Used int
	Waits           int64         // calls that had to wait for a connection
	Waited          time.Duration // by all of them
}

// StatsCatalog reads what the log says about the last minutes.
type StatsCatalog interface {
	// Stats looks minutes back, at a bounded number of events. The tenant ""
	// means all.
	Stats(ctx context.Context, tenantID string, minutes int) (*Stats, error)
	// LastEvent is the number of the newest event of the tenant that Events
	// would show, 0 when there is none: where a stream may begin.
	LastEvent(ctx context.Context, tenantID string) (int64, error)
}
