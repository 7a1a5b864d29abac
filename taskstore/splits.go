package taskstore

import "time"

// Limits on splits.
const (
	MaxSplits     = 1000 // per dataset
	MaxSplitNames = 10   // per split
	MaxSplitName  = 200  // bytes per name
)

// Split is a set of names that a dataset's graph keeps apart although it would merge
// them.
type Split struct {
	ID        string    `json:"id"`
	TenantID  string    `json:"-"`
	DatasetID string    `json:"dataset_id"`
	Names     []string  `json:"names" nullable:"false" doc:"names that are separate entities, in alphabetical order"`
	CreatedAt time.Time `json:"created_at"`
}
