// Package doctor compares the database with the index and the blob store, reports
// what is wrong and how to fix it, and fixes it when asked. It reads and repairs
// while the pipeline runs: anything that may be in progress is left alone.
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

// Store is the database to examine.
type Store interface {
	Inventory
	Audit
}

// Inventory is what the database says must exist elsewhere, by tenants and
// documents in id order.
type Inventory interface {
	TenantIDs(ctx context.Context, after string, limit int) ([]string, error)
	KnownTenants(ctx context.Context, ids []string) (map[string]bool, error)
	TenantDocuments(ctx context.Context, tenantID, after string, limit int) ([]taskstore.InventoryDocument, error)
	ResultsOf(ctx context.Context, documentIDs []string) ([]taskstore.InventoryRange, error)
	MemberKeys(ctx context.Context, archiveIDs []string) ([]string, error)
	KnownUploads(ctx context.Context, tenantID string, uploadIDs []string) (map[string]bool, error)
	References(ctx context.Context, rangeIDs, documentIDs []string) (*taskstore.References, error)
}

// Audit finds and repairs inconsistencies within the database.
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
	// MinAge is the age from which an unreferenced object counts as leaked: an
	// upload stores its bytes before its row. 0 means an hour.
	MinAge time.Duration
	// Hints means that the queue holds its own hints. A queue that reads the store
	// is never notified of tasks, which is then not a finding.
	Hints bool
	// Queue is where to look for those hints. May be nil.
	Queue queue.Queue
	// Put writes a stored result to the index.
	Put func(ctx context.Context, r taskstore.LiveResult) error
	// Workers is the number of concurrent slices; 0 means twice the CPUs.
	Workers int
	// Documents is the maximum per slice; 0 means 256.
	Documents int

	maxNames int // 0 means maxNames
}

// Finding is one kind of inconsistency.
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
	MissingOriginals = "missing_originals" // a document's original is not in the blob store
	LeakedBlobs      = "leaked_blobs"      // an object that nothing references
	UnknownBlobs     = "unknown_blobs"     // an object of a kind unknown to this version
	CounterDrift     = "counter_drift"     // a document's chunk count is wrong
	DeadLeases       = "dead_leases"       // a running task whose lease expired long ago
	UnhintedTasks    = "unhinted_tasks"    // a due task that was not announced to the queue
	StrayHints       = "stray_hints"       // an old hint for a task that has ended or does not exist
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

// Codes lists every code that a report can contain.
func Codes() []string { return slices.Sorted(maps.Keys(cures)) }

// Report is all findings; none means that everything is consistent.
type Report struct {
	Findings []Finding `json:"findings"`
	Ranges   int       `json:"ranges"`  // range results checked
	Objects  int       `json:"objects"` // blobs checked
	Chunks   int       `json:"chunks"`  // index entries checked
}

// Drift is the number of inconsistencies that were not repaired.
func (r *Report) Drift() int {
	n := 0
	for _, f := range r.Findings {
		n += f.Count - f.Repaired
	}
	return n
}

// checkHints looks for hints without a task. Recent ones are left alone: a task may
// end between the publication of a repeated hint and its claim.
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
