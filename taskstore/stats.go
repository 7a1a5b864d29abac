package taskstore

import (
	"time"
)

// Stats is the recent activity of a tenant's tasks, for charts.
type Stats struct {
	Buckets       []StatsBucket `json:"buckets"`        // oldest first, the last one still open
	BucketMinutes int           `json:"bucket_minutes"` // length of a bucket
	Stages        []StageStats  `json:"stages"`
	CostPerSecond float64       `json:"cost_per_second"`    // pages or their equivalent done per second while anything ran; 0 when nothing did
	Fairness      *Fairness     `json:"fairness,omitempty"` // of the last minutes, from the leading keeper; absent unless two or more tenants had waiting work
	Sampled       bool          `json:"sampled"`            // the speed and stage times are from the newest tasks only; counts are from all
}

// StatsBucket counts the tasks of some minutes.
type StatsBucket struct {
	At      time.Time        `json:"at"`
	Tasks   int              `json:"tasks"`    // done
	Failed  int              `json:"failed"`   // attempts that failed or were lost, including final ones
	Cost    int              `json:"cost"`     // of done tasks
	StageMS map[string]int64 `json:"stage_ms"` // time of done tasks by stage, in milliseconds; only in one-minute buckets
}

// StageStats is how long a stage takes per task.
type StageStats struct {
	Name  string `json:"name"`
	Tasks int    `json:"tasks"`
	P50MS int64  `json:"p50_ms"`
	P95MS int64  `json:"p95_ms"`
}
