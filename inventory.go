package sheaf

import "context"

// Inventory is what the database says must exist elsewhere. It is read by
// doctor, which compares it with the index and the blob store.
type Inventory interface {
	// Ranges calls each for every range result that some task lists as done,
	// ordered by id, until it returns an error.
	Ranges(ctx context.Context, each func(InventoryRange) error) error
	// Originals calls each for every document that is not deleted.
	Originals(ctx context.Context, each func(InventoryDocument) error) error
	// Awaited calls each for everything that the collector will remove.
	Awaited(ctx context.Context, each func(Garbage) error) error
	// Unfinished calls each for every task that an executor may be writing
	// results of now, with the range id of its attempt.
	Unfinished(ctx context.Context, each func(rangeID, documentID string) error) error
	// Drift lists documents whose counters are not what their live tasks sum to.
	Drift(ctx context.Context, limit int) ([]CounterDrift, error)
	// FixDrift sets the counters of a document to what its live tasks sum to.
	FixDrift(ctx context.Context, documentID string) error
	// Stalled counts what should not be: running tasks whose lease ended more
	// than a minute ago, and due pending tasks that no queue was told of for
	// more than ten.
	Stalled(ctx context.Context) (deadLeases, unhinted int, err error)
	// Open answers which of the tasks exist and have not ended.
	Open(ctx context.Context, taskIDs []string) (map[string]bool, error)
}

// InventoryRange is a stored range result.
type InventoryRange struct {
	TenantID    string
	DocumentID  string
	RangeID     string
	ArtifactKey string
	Range       Range
	Chunks      int
	Live        bool // its generation is the document's live one
}

// InventoryDocument is a document's bytes.
type InventoryDocument struct {
	TenantID   string
	DatasetID  string
	DocumentID string
	Name       string
	MediaType  string
	BlobKey    string
	Metadata   map[string]string
}

// CounterDrift is a document whose counters are wrong.
type CounterDrift struct {
	TenantID   string
	DocumentID string
	Has, Want  int // chunks
}
