// Package doctor compares what the database says with what the index and the
// blob store hold, says what is wrong and how it is cured, and cures it when
// asked. It reads and repairs while the pipeline runs: what may be in the
// making is left alone.
package doctor

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/index"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// Store is the database that is examined.
type Store interface {
	Inventory
	Audit
}

// Inventory is what the database says must exist elsewhere, by tenants and
// documents in the order of their ids.
type Inventory interface {
	TenantIDs(ctx context.Context, after string, limit int) ([]string, error)
	KnownTenants(ctx context.Context, ids []string) (map[string]bool, error)
	TenantDocuments(ctx context.Context, tenantID, after string, limit int) ([]taskstore.InventoryDocument, error)
	ResultsOf(ctx context.Context, documentIDs []string) ([]taskstore.InventoryRange, error)
	MemberKeys(ctx context.Context, archiveIDs []string) ([]string, error)
	KnownUploads(ctx context.Context, tenantID string, uploadIDs []string) (map[string]bool, error)
	References(ctx context.Context, rangeIDs, documentIDs []string) (*taskstore.References, error)
}

// Audit finds and repairs what disagrees within the database.
type Audit interface {
	Drift(ctx context.Context, documentIDs []string) ([]taskstore.CounterDrift, error)
	FixDrift(ctx context.Context, documentID string) error
	Stalled(ctx context.Context) (deadLeases, unhinted int, err error)
	Open(ctx context.Context, taskIDs []string) (map[string]bool, error)
}

// Config holds what is compared.
type Config struct {
	Store Store
	Index index.Index
	Blobs blob.Store
	Log   *slog.Logger
	// MinAge is how old an unreferenced object must be to count as leaked: an
	// upload stores its bytes before its row. 0 means an hour.
	MinAge time.Duration
	// Hints says that the queue holds hints of its own; a queue that reads the
	// store is never told of a task, which is no finding then.
	Hints bool
	// Queue is where those hints are looked at. May be nil.
	Queue queue.Queue
	// Put writes a stored result into the index.
	Put func(ctx context.Context, r taskstore.LiveResult) error
	// Workers look at so many slices at once; 0 means twice the CPUs.
	Workers int
	// Documents of one slice at most; 0 means 256.
	Documents int
}

// Finding is one kind of disagreement.
type Finding struct {
	Code     string   `json:"code"`
	Count    int      `json:"count"`
	Repaired int      `json:"repaired"`
	Cure     string   `json:"cure"`
	Examples []string `json:"examples,omitempty"` // at most ten
}

// Codes of findings.
const (
	MissingChunks    = "missing_chunks"    // the index lacks chunks of a live range
	OrphanChunks     = "orphan_chunks"     // the index holds chunks that nothing lists
	MissingArtifacts = "missing_artifacts" // a listed range result is not in the blob store
	MissingOriginals = "missing_originals" // a document's bytes are not in the blob store
	LeakedBlobs      = "leaked_blobs"      // an object that nothing names
	UnknownBlobs     = "unknown_blobs"     // an object of which this version does not know what it is
	CounterDrift     = "counter_drift"     // a document's chunk count is wrong
	DeadLeases       = "dead_leases"       // a running task whose lease is long over
	UnhintedTasks    = "unhinted_tasks"    // a due task that no queue was told of
	StrayHints       = "stray_hints"       // an old hint for a task that is over or does not exist
)

var cures = map[string]string{
	MissingChunks:    "written again from the artifact; without one, re-parse the document",
	OrphanChunks:     "removed from the index",
	MissingArtifacts: "re-parse the document; restore the blob store if many are missing",
	MissingOriginals: "restore the blob store, or upload the document again under its id",
	LeakedBlobs:      "removed from the blob store",
	UnknownBlobs:     "left alone: look what wrote it; another program needs a bucket or a blob.prefix of its own",
	CounterDrift:     "set to the sum over the live tasks",
	DeadLeases:       "a keeper takes them back; check that one leads (log: \"keeper leads\")",
	UnhintedTasks:    "a keeper feeds them; check that one leads and that Redis accepts writes",
	StrayHints:       "removed from the queue; an executor that takes one drops it, so many mean that none takes work",
}

// Codes lists every code that a report can hold.
func Codes() []string { return slices.Sorted(maps.Keys(cures)) }

// Report is all findings; none means that everything agrees.
type Report struct {
	Findings []Finding `json:"findings"`
	Ranges   int       `json:"ranges"`  // range results checked
	Objects  int       `json:"objects"` // blobs checked
	Chunks   int       `json:"chunks"`  // index entries checked
}

// Drift is the number of disagreements that were not repaired.
func (r *Report) Drift() int {
	n := 0
	for _, f := range r.Findings {
		n += f.Count - f.Repaired
	}
	return n
}

// checkHints looks for hints that lead nowhere. Young ones are left alone: a
// task may end between the publishing of a repeated hint and its claim.
func (e *examine) checkHints(ctx context.Context) error {
	lister, ok := e.Queue.(queue.Lister)
	if !ok {
		return nil
	}
	var old []sheaf.Hint
	look := func() error {
		ids := make([]string, len(old))
		for i, h := range old {
			ids[i] = h.TaskID
		}
		open, err := e.Store.Open(ctx, ids)
		if err != nil {
			return err
		}
		for _, h := range old {
			if open[h.TaskID] {
				continue
			}
			if e.repair {
				if err := e.Queue.Ack(ctx, h, false); err != nil {
					return err
				}
			}
			e.note(StrayHints, h.TaskID, e.repair)
		}
		old = old[:0]
		return nil
	}
	before := time.Now().Add(-e.MinAge)
	err := lister.Hints(ctx, func(h sheaf.Hint, published time.Time) error {
		if published.After(before) {
			return nil
		}
		if old = append(old, h); len(old) < 500 {
			return nil
		}
		return look()
	})
	if err != nil {
		return err
	}
	return look()
}
