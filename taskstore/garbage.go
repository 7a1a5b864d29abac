package taskstore

import (
	"context"
	"time"

	"sheaf"
)

// Garbage is something in the index or the blob store that is no longer needed.
// DocumentID alone means everything of the document; RangeID one range result.
type Garbage struct {
	ID          int64
	TenantID    string
	DocumentID  string
	RangeID     string
	ArtifactKey string // "" unless the range's artifact is removed too
	BlobPrefix  string // "" unless every blob under it is removed too
	ReceiptID   string // the deletion waiting for it; "" for none
	Counted     bool   // its contents are in the receipt
}

// GarbageCount is the contents of a garbage entry.
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

// cleanupRows is how many rows of each kind one round of CleanUp removes, few enough
// to keep transactions short.
const cleanupRows = 1000

// CleanUp removes what is older than retention, in at most rounds rounds, and
// reports whether there is more. It stops between rounds when ctx is done, which is
// not an error. A dry run counts what these rounds would remove, and changes
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
	Parsed      bool // of the document itself: not an edited chunk or a run's result
}

// InventoryDocument identifies a document's bytes.
type InventoryDocument struct {
	TenantID   string
	DatasetID  string
	DocumentID string
	Name       string
	MediaType  string
	BlobKey    string
	Units      int
	Chunks     int // according to its counter
	Generation int // the live one, 0 for none
}

// References is what the store knows of some range results and documents.
type References struct {
	Ranges    map[string]bool // in use, possibly being made, or to be removed
	Documents map[string]bool // not deleted
	Dying     map[string]bool // documents whose index entries will be removed
	Keys      map[string]bool // blobs of the documents, and blobs to be removed
	Prefixes  []string        // prefixes whose blobs will all be removed, or whole keys
}

// CounterDrift is a document with wrong counters.
type CounterDrift struct {
	TenantID   string
	DocumentID string
	Has, Want  int // chunks
}

// LiveResult is a stored range result that search may show, with the fields its
// index entries have in common.
type LiveResult struct {
	Cursor      string // orders the results; results stored later may sort anywhere
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
