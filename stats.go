package sheaf

import (
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
