package taskstore

import "time"

// Bounds on splits.
const (
	MaxSplits     = 1000 // of a dataset
	MaxSplitNames = 10   // of a split
	MaxSplitName  = 200  // bytes of a name
)

// Split is names that the graph of a dataset keeps apart, where it would take one
// for the other.
type Split struct {
	ID        string    `json:"id"`
	TenantID  string    `json:"-"`
	DatasetID string    `json:"dataset_id"`
	Names     []string  `json:"names" nullable:"false" doc:"no two of which are one entity, in alphabetical order"`
	CreatedAt time.Time `json:"created_at"`
}
