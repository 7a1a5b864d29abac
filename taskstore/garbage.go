package taskstore

import (
	"context"
	"time"

	"sheaf"
)

// Garbage is something the index or the blob store holds in vain. DocumentID
// alone means everything of the document; RangeID one range result.
type Garbage struct {
	ID          int64
	TenantID    string
	DocumentID  string
	RangeID     string
	ArtifactKey string // "" unless the range's artifact goes too
	BlobPrefix  string // "" unless every blob under it goes too
	ReceiptID   string // of the deletion that waits for it; "" for none
	Counted     bool   // what it stands for is in the receipt
}

// GarbageCount is what an entry of the garbage stood for.
type GarbageCount struct {
	ID      int64
	Objects int
	Bytes   int64
	Chunks  int
	Vectors int
}

// CleanupReport counts what retention removed, or would remove.
type CleanupReport struct {
	Events      int `json:"events"`
	Tasks       int `json:"tasks"`
	Workers     int `json:"workers"`
	Idempotency int `json:"idempotency"`
	Deliveries  int `json:"deliveries"` // messages to webhooks
	Jobs        int `json:"jobs"`
}

// cleanupRows is how many rows of each kind one round of CleanUp removes: few
// enough that no transaction is long.
const cleanupRows = 1000

// CleanUp removes in up to so many rounds what is older than retention, and
// says whether there is more. It stops between two rounds when ctx ends, which
// is no error. A dry run counts what these rounds would find, and changes
// nothing.
func CleanUp(ctx context.Context, store interface {
	Cleanup(ctx context.Context, retention time.Duration, limit int, dryRun bool) (CleanupReport, error)
}, retention time.Duration, rounds int, dryRun bool) (sum CleanupReport, more bool, err error) {
	limit := cleanupRows
	if dryRun {
		limit, rounds = limit*min(rounds, 100), 1
	}
	for range rounds {
		r, err := store.Cleanup(context.WithoutCancel(ctx), retention, limit, dryRun)
		sum.Events += r.Events
		sum.Tasks += r.Tasks
		sum.Workers += r.Workers
		sum.Idempotency += r.Idempotency
		sum.Deliveries += r.Deliveries
		sum.Jobs += r.Jobs
		more = max(r.Events, r.Tasks, r.Workers, r.Idempotency, r.Deliveries, r.Jobs) >= limit
		if err != nil || !more || ctx.Err() != nil {
			return sum, more, err
		}
	}
	return sum, more, nil
}

// InventoryRange is a stored range result.
type InventoryRange struct {
	TenantID    string
	DocumentID  string
	RangeID     string
	ArtifactKey string
	Range       sheaf.Range
	Chunks      int
	Live        bool // its generation is the document's live one
	Parsed      bool // of the document itself: no edited chunk, and not left by a run
}

// InventoryDocument is a document's bytes.
type InventoryDocument struct {
	TenantID   string
	DatasetID  string
	DocumentID string
	Name       string
	MediaType  string
	BlobKey    string
	Units      int
	Chunks     int // that its counter says
	Generation int // the live one, 0 for none
}

// References is what the store has of some range results and documents.
type References struct {
	Ranges    map[string]bool // that something names, may be making, or will remove
	Documents map[string]bool // that are not deleted
	Dying     map[string]bool // documents whose entries in the index will be removed
	Keys      map[string]bool // blobs of the documents, and blobs that will be removed
	Prefixes  []string        // under which all blobs will be removed, or whole keys
}

// CounterDrift is a document whose counters are wrong.
type CounterDrift struct {
	TenantID   string
	DocumentID string
	Has, Want  int // chunks
}

// LiveResult is a stored range result that search may show, with what its
// entries in an index have in common.
type LiveResult struct {
	Cursor      string // orders the results; those that are stored later may come anywhere
	TenantID    string
	DatasetID   string
	DocumentID  string
	Name        string
	MediaType   string
	RangeID     string
	ArtifactKey string
	Chunks      int
}

// TenantChunks is how many chunks a tenant's live documents have.
type TenantChunks struct {
	TenantID string
	Chunks   int64
}

// LiveTotals are the sums over all live results.
type LiveTotals struct {
	Results int   `json:"ranges"`
	Chunks  int64 `json:"chunks"`
	Tokens  int64 `json:"tokens"`
}
