// Package doctor compares what the database says with what the index and the
// blob store hold, says what is wrong and how it is cured, and cures it when
// asked. It reads and repairs while the pipeline runs: what may be in the
// making is left alone.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/index"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// Inventory is what the database says must exist elsewhere. Each walk is in the
// order of ids and ends with the first error of each.
type Inventory interface {
	Ranges(ctx context.Context, each func(taskstore.InventoryRange) error) error
	Originals(ctx context.Context, each func(taskstore.InventoryDocument) error) error
	Awaited(ctx context.Context, each func(taskstore.Garbage) error) error
	Unfinished(ctx context.Context, each func(rangeID, documentID string) error) error
}

// Audit finds and repairs what disagrees within the database.
type Audit interface {
	Drift(ctx context.Context, limit int) ([]taskstore.CounterDrift, error)
	FixDrift(ctx context.Context, documentID string) error
	Stalled(ctx context.Context) (deadLeases, unhinted int, err error)
	Open(ctx context.Context, taskIDs []string) (map[string]bool, error)
}

// Store is the database that is examined.
type Store interface {
	Inventory
	Audit
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

// examine is one run.
type examine struct {
	Config
	repair   bool
	found    map[string]*Finding
	report   Report
	live     map[string]taskstore.InventoryRange // by range id; a range listed by a live generation
	listed   map[string]bool                     // every range id that may have chunks
	objects  map[string]bool                     // every blob key that is named
	prefixes []string                            // blob prefixes on their way out
	dying    map[string]bool                     // documents on their way out
	docs     map[string]taskstore.InventoryDocument
}

// Run examines everything once and, if repair is set, cures what it can.
func Run(ctx context.Context, c Config, repair bool) (*Report, error) {
	if c.MinAge == 0 {
		c.MinAge = time.Hour
	}
	e := &examine{Config: c, repair: repair, found: map[string]*Finding{}, live: map[string]taskstore.InventoryRange{}, listed: map[string]bool{},
		objects: map[string]bool{}, dying: map[string]bool{}, docs: map[string]taskstore.InventoryDocument{}}
	// The index and the blobs are read before the database is read again for
	// what they hold too much of: what was finished in between is then known.
	for _, step := range []func(context.Context) error{e.inventory, e.checkArtifacts, e.checkCounts, e.checkOrphans, e.checkBlobs, e.checkCounters, e.checkHints} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	for _, f := range e.found {
		f.Cure = cures[f.Code]
		e.report.Findings = append(e.report.Findings, *f)
	}
	slices.SortFunc(e.report.Findings, func(a, b Finding) int { return strings.Compare(a.Code, b.Code) })
	if e.report.Findings == nil {
		e.report.Findings = []Finding{}
	}
	return &e.report, nil
}

func (e *examine) note(code, example string, repaired bool) {
	f := e.found[code]
	if f == nil {
		f = &Finding{Code: code}
		e.found[code] = f
	}
	f.Count++
	if repaired {
		f.Repaired++
	}
	if len(f.Examples) < 10 && example != "" {
		f.Examples = append(f.Examples, example)
	}
}

// inventory reads what must exist and what may.
func (e *examine) inventory(ctx context.Context) error {
	err := e.Store.Originals(ctx, func(d taskstore.InventoryDocument) error {
		e.docs[d.DocumentID] = d
		e.objects[d.BlobKey] = true
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.Store.Ranges(ctx, func(r taskstore.InventoryRange) error {
		e.listed[r.RangeID] = true
		e.objects[r.ArtifactKey] = true
		if r.Live {
			e.live[r.RangeID] = r
		}
		return nil
	}); err != nil {
		return err
	}
	e.report.Ranges = len(e.listed)
	return e.transient(ctx)
}

// transient reads what is in the making or on its way out: neither is drift.
func (e *examine) transient(ctx context.Context) error {
	if err := e.Store.Unfinished(ctx, func(rangeID, documentID string) error {
		e.listed[rangeID] = true
		return nil
	}); err != nil {
		return err
	}
	return e.Store.Awaited(ctx, func(g taskstore.Garbage) error {
		switch {
		case g.RangeID != "":
			e.listed[g.RangeID] = true
			e.objects[g.ArtifactKey] = true
		case g.BlobPrefix != "":
			e.prefixes = append(e.prefixes, g.BlobPrefix)
		default:
			e.dying[g.DocumentID] = true
		}
		return nil
	})
}

func (e *examine) checkArtifacts(ctx context.Context) error {
	for id, r := range e.live {
		if _, err := e.Blobs.Stat(ctx, r.ArtifactKey); errors.Is(err, sheaf.ErrNotFound) {
			e.note(MissingArtifacts, r.DocumentID+" units "+r.Range.String(), false)
		} else if err != nil {
			return fmt.Errorf("looking for the artifact of range %s: %w", id, err)
		}
	}
	for _, d := range e.docs {
		if _, err := e.Blobs.Stat(ctx, d.BlobKey); errors.Is(err, sheaf.ErrNotFound) {
			e.note(MissingOriginals, d.DocumentID, false)
		} else if err != nil {
			return fmt.Errorf("looking for the bytes of document %s: %w", d.DocumentID, err)
		}
	}
	return nil
}

// countBatch bounds how many ranges one count asks for.
const countBatch = 500

func (e *examine) checkCounts(ctx context.Context) error {
	if err := e.Index.Refresh(ctx); err != nil {
		return err
	}
	byTenant := map[string][]string{}
	for id, r := range e.live {
		if r.Chunks > 0 {
			byTenant[r.TenantID] = append(byTenant[r.TenantID], id)
		}
	}
	for tenant, ids := range byTenant {
		slices.Sort(ids)
		for batch := range slices.Chunk(ids, countBatch) {
			counts, err := e.Index.Count(ctx, tenant, batch)
			if err != nil {
				return err
			}
			for _, id := range batch {
				if r := e.live[id]; counts[id] < r.Chunks {
					e.note(MissingChunks, r.DocumentID+" units "+r.Range.String(), e.repair && e.rewrite(ctx, r))
				}
			}
		}
	}
	return nil
}

// rewrite writes a range's chunks into the index from its artifact.
func (e *examine) rewrite(ctx context.Context, r taskstore.InventoryRange) bool {
	d := e.docs[r.DocumentID]
	if err := e.Put(ctx, taskstore.LiveResult{TenantID: d.TenantID, DatasetID: d.DatasetID, DocumentID: d.DocumentID, Name: d.Name, MediaType: d.MediaType,
		RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.Chunks}); err != nil {
		e.Log.WarnContext(ctx, "a range could not be written again", "document", r.DocumentID, "range", r.RangeID, "error", err)
		return false
	}
	return true
}

func (e *examine) checkOrphans(ctx context.Context) error {
	orphans := map[string]map[string]int{} // tenant → range → chunks
	docOf := map[string]string{}
	// The tenant of an entry is that of its document; entries of unknown
	// documents are looked for in every tenant.
	tenants := map[string]bool{}
	for _, d := range e.docs {
		tenants[d.TenantID] = true
	}
	for tenant := range tenants {
		err := e.Index.Scan(ctx, tenant, func(_, rangeID, documentID string) bool {
			e.report.Chunks++
			if !e.listed[rangeID] && !e.dying[documentID] {
				if orphans[tenant] == nil {
					orphans[tenant] = map[string]int{}
				}
				orphans[tenant][rangeID]++
				docOf[rangeID] = documentID
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	if len(orphans) == 0 {
		return nil
	}
	// What was claimed or finished since the inventory was read is no orphan.
	if err := e.inventory(ctx); err != nil {
		return err
	}
	for tenant, ranges := range orphans {
		var ids []string
		for id := range ranges {
			if !e.listed[id] && !e.dying[docOf[id]] {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		for batch := range slices.Chunk(ids, countBatch) {
			repaired := false
			if e.repair {
				if err := e.Index.DeleteRanges(ctx, tenant, batch); err != nil {
					return err
				}
				repaired = true
			}
			for _, id := range batch {
				e.note(OrphanChunks, fmt.Sprintf("%d chunks of range %s", ranges[id], id), repaired)
			}
		}
	}
	return nil
}

func (e *examine) checkBlobs(ctx context.Context) error {
	old := time.Now().Add(-e.MinAge)
	var leaked []string
	for _, prefix := range []string{"originals/", "artifacts/"} {
		err := e.Blobs.List(ctx, prefix, func(i blob.Info) bool {
			e.report.Objects++
			if !e.objects[i.Key] && i.Modified.Before(old) && !e.belongs(i.Key) {
				leaked = append(leaked, i.Key)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(leaked, countBatch) {
		if e.repair {
			if err := e.Blobs.Delete(ctx, batch...); err != nil {
				return err
			}
		}
		for _, key := range batch {
			e.note(LeakedBlobs, key, e.repair)
		}
	}
	return nil
}

// belongs reports whether a key that no row names is on its way out, or is
// part of a document's plan, a copy of a result with the vectors of another
// model, or an answer about its text: those live as long as the document.
func (e *examine) belongs(key string) bool {
	for _, p := range e.prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	parts := strings.Split(key, "/") // artifacts/tenant/document/{plans,shards,models,items}/…
	if len(parts) >= 5 && (parts[3] == "plans" || parts[3] == "shards" || parts[3] == "models" || parts[3] == "items") {
		_, ok := e.docs[parts[2]]
		return ok
	}
	return false
}

func (e *examine) checkCounters(ctx context.Context) error {
	drift, err := e.Store.Drift(ctx, 10_000)
	if err != nil {
		return err
	}
	for _, d := range drift {
		repaired := false
		if e.repair {
			if err := e.Store.FixDrift(ctx, d.DocumentID); err != nil {
				return err
			}
			repaired = true
		}
		e.note(CounterDrift, fmt.Sprintf("%s says %d, has %d", d.DocumentID, d.Has, d.Want), repaired)
	}
	leases, unhinted, err := e.Store.Stalled(ctx)
	for range leases {
		e.note(DeadLeases, "", false)
	}
	if e.Hints {
		for range unhinted {
			e.note(UnhintedTasks, "", false)
		}
	}
	return err
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
