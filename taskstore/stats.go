package taskstore

import (
	"time"
)

// Stats is what a tenant's tasks did lately, for charts.
type Stats struct {
	Buckets       []StatsBucket `json:"buckets"`        // oldest first, the last one not over yet
	BucketMinutes int           `json:"bucket_minutes"` // that each bucket counts
	Stages        []StageStats  `json:"stages"`
	CostPerSecond float64       `json:"cost_per_second"`    // pages or their equivalent done in a second while anything ran; 0 when nothing did
	Fairness      *Fairness     `json:"fairness,omitempty"` // of the last minutes, by the keeper that leads; absent unless two tenants or more had work waiting
	Sampled       bool          `json:"sampled"`            // the speed and the times of stages are of the newest tasks, not of all; counts are of all
}

// StatsBucket counts some minutes.
type StatsBucket struct {
	At      time.Time        `json:"at"`
	Tasks   int              `json:"tasks"`    // done
	Failed  int              `json:"failed"`   // attempts that failed, were lost or were the last
	Cost    int              `json:"cost"`     // of the tasks that were done
	StageMS map[string]int64 `json:"stage_ms"` // time of the tasks that were done, by stage, in milliseconds; of buckets of one minute
}

// StageStats says how long a stage takes in one task.
type StageStats struct {
	Name  string `json:"name"`
	Tasks int    `json:"tasks"`
	P50MS int64  `json:"p50_ms"`
	P95MS int64  `json:"p95_ms"`
}
