package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/taskstore"
)

// Bounds of what each of Config.Workers holds in memory.
const (
	sliceDocuments = 256
	sliceUnits     = 20_000 // of a slice's documents in total, unless a single one has more: a result has at least one unit
	batch          = 500    // ids per query to the database or the index
	maxOrphans     = 10_000 // ranges of a tenant processed at a time
	maxNames       = 50_000 // folders whose names are read at a time, for all workers
	mostExamples   = 10
)

// last sorts after every key in a folder, and before those of the next folder.
const last = "~"

// Roots of the stored objects.
const (
	originals = "originals/"
	artifacts = "artifacts/"
	uploads   = "uploads/"
)

// Stages of an examination, in order.
const (
	stageResults = ""        // documents with their results, blobs and index entries
	stageEntries = "entries" // the index entries of each tenant
	stageRest    = "rest"    // uploads, objects without a tenant, and the database itself
)

// Progress is the progress of an examination: everything before it is done.
type Progress struct {
	Stage  string             `json:"stage"`
	Tenant string             `json:"tenant"` // in id order; "" before the first
	After  string             `json:"after"`  // the last document of the tenant; with Whole, all of it is done
	Whole  bool               `json:"whole"`
	Done   bool               `json:"done"`
	Found  map[string]Finding `json:"found,omitempty"` // by code
	Report Report             `json:"report"`          // without the findings
}

// report returns the findings so far.
func (p *Progress) report() *Report {
	r := p.Report
	r.Findings = []Finding{}
	for _, code := range slices.Sorted(maps.Keys(p.Found)) {
		f := p.Found[code]
		f.Code, f.Cure = code, cures[code]
		r.Findings = append(r.Findings, f)
	}
	return &r
}

// examine is one run.
type examine struct {
	Config
	repair bool
	names  map[string]*names // by root; used by cut only

	mu sync.Mutex // guards the findings and counts of at
	at Progress
}

func begin(c Config, repair bool, at Progress) *examine {
	c.MinAge = cmp.Or(c.MinAge, time.Hour)
	c.Workers = cmp.Or(c.Workers, 2*runtime.GOMAXPROCS(0))
	c.Documents = cmp.Or(c.Documents, sliceDocuments)
	c.maxNames = cmp.Or(c.maxNames, maxNames)
	at.Found = maps.Clone(at.Found)
	if at.Found == nil {
		at.Found = map[string]Finding{}
	}
	return &examine{Config: c, repair: repair, at: at, names: map[string]*names{}}
}

// Run examines everything once and, if repair is set, fixes what it can.
func Run(ctx context.Context, c Config, repair bool) (*Report, error) {
	e := begin(c, repair, Progress{})
	for !e.at.Done {
		if err := e.step(ctx); err != nil {
			return nil, err
		}
	}
	return e.at.report(), nil
}

// step examines some slices concurrently. If it fails, at contains findings of
// slices that it does not count as examined.
func (e *examine) step(ctx context.Context) error {
	switch e.at.Stage {
	case stageResults:
		list, to, err := e.cut(ctx)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			e.enter(stageEntries)
			return nil
		}
		if err := parallel(ctx, e.Workers, list, e.slice); err != nil {
			return err
		}
		e.at.Tenant, e.at.After, e.at.Whole = to.tenant, to.upto, to.whole
	case stageEntries:
		tenants, err := e.Store.TenantIDs(ctx, e.at.Tenant, 2*e.Workers)
		if err != nil {
			return err
		}
		if len(tenants) == 0 {
			e.enter(stageRest)
			return nil
		}
		if err := parallel(ctx, e.Workers, tenants, e.entries); err != nil {
			return err
		}
		e.at.Tenant = tenants[len(tenants)-1]
	case stageRest:
		for _, part := range []func(context.Context) error{e.uploads, e.strangers, e.stalled, e.checkHints} {
			if err := part(ctx); err != nil {
				return err
			}
		}
		e.at.Done = true
	default: // from another version
		e.at = begin(e.Config, e.repair, Progress{}).at
	}
	return nil
}

func (e *examine) enter(stage string) {
	e.at.Stage, e.at.Tenant, e.at.After, e.at.Whole = stage, "", "", false
}

func parallel[T any](ctx context.Context, workers int, list []T, each func(context.Context, T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, v := range list {
		g.Go(func() error { return each(ctx, v) })
	}
	return g.Wait()
}

func (e *examine) note(code, example string, repaired bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.at.Found[code]
	f.Count++
	if repaired {
		f.Repaired++
	}
	if len(f.Examples) < mostExamples && example != "" {
		f.Examples = append(slices.Clip(f.Examples), example)
	}
	e.at.Found[code] = f
}

func (e *examine) counted(ranges, objects, chunks int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at.Report.Ranges, e.at.Report.Objects, e.at.Report.Chunks = e.at.Report.Ranges+ranges, e.at.Report.Objects+objects, e.at.Report.Chunks+chunks
}

// slice is some documents of a tenant, and all objects whose keys lie between them.
type slice struct {
	tenant      string
	after, upto string // documents; objects before the first and after the last belong to no document
	whole       bool   // to the end of the tenant
	documents   []taskstore.InventoryDocument
	names       map[string][]string // by root, what is directly in the tenant's folder, if objects are local files
}

// begins returns what sorts before the slice's objects, "" for nothing, and ends what
// sorts after them, if the slice is not whole.
func (s *slice) begins(folder string) string {
	if s.after == "" {
		return ""
	}
	return folder + s.after + "/" + last
}

func (s *slice) ends(folder string) string { return folder + s.upto + "/" + last }

// cut takes the next slices, as many as are examined concurrently.
func (e *examine) cut(ctx context.Context) (out []*slice, to slice, err error) {
	to = slice{tenant: e.at.Tenant, upto: e.at.After, whole: e.at.Whole || e.at.Tenant == ""}
	var tenants []string
	for len(out) < 2*e.Workers {
		if to.whole {
			if len(tenants) == 0 {
				if tenants, err = e.Store.TenantIDs(ctx, to.tenant, 2*e.Workers); err != nil || len(tenants) == 0 {
					return out, to, err
				}
			}
			to = slice{tenant: tenants[0]}
			tenants = tenants[1:]
		}
		s := &slice{tenant: to.tenant, after: to.upto}
		if s.documents, err = e.Store.TenantDocuments(ctx, s.tenant, s.after, e.Documents); err != nil {
			return nil, to, err
		}
		s.whole = len(s.documents) < e.Documents
		units := 0
		for i, d := range s.documents {
			if units += max(d.Units, 1); units > sliceUnits && i > 0 {
				s.documents, s.whole = s.documents[:i], false
				break
			}
		}
		if !s.whole {
			s.upto = s.documents[len(s.documents)-1].DocumentID
		}
		if _, local := e.Blobs.(blob.Local); local {
			if err := e.addNames(ctx, s); err != nil {
				return nil, to, err
			}
		}
		out, to = append(out, s), *s
	}
	return out, to, nil
}

// names is what is directly in a tenant's folder, in order, after something.
type names struct {
	folder, after string
	sorted        []string
	whole         bool // to the end of the folder
}

// reach reports whether the names include all up to the end of a slice.
func (n *names) reach(s *slice) bool {
	return n.whole || !s.whole && n.sorted[len(n.sorted)-1] >= s.ends(n.folder)
}

// addNames gives a slice the names in its tenant's folders, and cuts it where there
// are too many. A folder of the file system can only be read as a whole, and it contains
// a folder for each document: reading it for each slice took 230 of the 240 CPU-s of
// an examination of 200,000 documents. What is created after it was read is found by
// missing.
func (e *examine) addNames(ctx context.Context, s *slice) error {
	for _, root := range []string{artifacts, originals} {
		folder := root + s.tenant + "/"
		after, n := s.begins(folder), e.names[root]
		if n == nil || n.folder != folder || after < n.after || after > n.after && !n.reach(s) {
			var err error
			if n, err = e.readNames(ctx, folder, after); err != nil {
				return err
			}
			e.names[root] = n
		}
		if !n.reach(s) {
			s.whole, s.upto = false, strings.TrimSuffix(strings.TrimPrefix(n.sorted[len(n.sorted)-1], folder), "/")
			after := slices.IndexFunc(s.documents, func(d taskstore.InventoryDocument) bool { return d.DocumentID > s.upto })
			if after >= 0 {
				s.documents = s.documents[:after]
			}
		}
	}
	s.names = map[string][]string{}
	for root, n := range e.names {
		from, _ := slices.BinarySearch(n.sorted, s.begins(n.folder))
		to := len(n.sorted)
		if !s.whole {
			to, _ = slices.BinarySearch(n.sorted, s.ends(n.folder))
		}
		s.names[root] = n.sorted[from:to]
	}
	return nil
}

// readNames reads the first names in a folder after another.
func (e *examine) readNames(ctx context.Context, folder, after string) (*names, error) {
	n := &names{folder: folder, after: after, whole: true}
	cut := func() {
		slices.Sort(n.sorted)
		if len(n.sorted) > e.maxNames {
			n.sorted, n.whole = slices.Delete(n.sorted, e.maxNames, len(n.sorted)), false
		}
	}
	err := e.Blobs.Children(ctx, folder, func(name string) bool {
		if name > after {
			n.sorted = append(n.sorted, name)
		}
		if len(n.sorted) == 2*e.maxNames {
			cut()
		}
		return ctx.Err() == nil
	})
	cut()
	return n, errors.Join(err, ctx.Err())
}

// slice compares what documents reference with what is stored for them. The
// database is read first, because objects exist before they are referenced.
func (e *examine) slice(ctx context.Context, s *slice) error {
	ids := make([]string, len(s.documents))
	docs := map[string]taskstore.InventoryDocument{}
	want := map[string]bool{} // each referenced key, and whether it was seen
	for i, d := range s.documents {
		ids[i], docs[d.DocumentID], want[d.BlobKey] = d.DocumentID, d, false
	}
	results, err := e.Store.ResultsOf(ctx, ids)
	if err != nil {
		return err
	}
	distinct := map[string]bool{}
	for _, r := range results {
		distinct[r.RangeID], want[r.ArtifactKey] = true, false
	}
	members, err := e.Store.MemberKeys(ctx, ids)
	if err != nil {
		return err
	}
	for _, key := range members {
		want[key] = false
	}
	objects := 0
	for _, root := range []string{artifacts, originals} {
		n, err := e.objects(ctx, s, root, want, docs)
		if err != nil {
			return err
		}
		objects += n
	}
	e.counted(len(distinct), objects, 0)
	for _, part := range []func() error{
		func() error { return e.missing(ctx, docs, results, want) },
		func() error { return e.counts(ctx, s.tenant, docs, results) },
		func() error { return e.counters(ctx, s.documents, results) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// objects lists what is stored between the first and the last document of a slice,
// marks what is referenced, and passes the rest to judge.
func (e *examine) objects(ctx context.Context, s *slice, root string, want map[string]bool, docs map[string]taskstore.InventoryDocument) (n int, err error) {
	folder := root + s.tenant + "/"
	old := time.Now().Add(-e.MinAge)
	var rest []string
	var failed error
	err = e.list(ctx, s, root, func(i blob.Info) bool {
		if !s.whole && i.Key > s.ends(folder) {
			return false
		}
		n++
		if _, named := want[i.Key]; named {
			want[i.Key] = true
			return true
		}
		o := read(i.Key)
		if _, lives := docs[o.document]; lives && o.part || i.Modified.After(old) {
			return true
		}
		if rest = append(rest, i.Key); len(rest) == batch {
			failed, rest = e.judge(ctx, rest), rest[:0]
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return n, err
	}
	return n, e.judge(ctx, rest)
}

// object is a parsed key.
type object struct {
	known    bool   // its kind is known
	part     bool   // lives as long as the document, without any other reference
	document string // whose folder it is in
	member   string // the document that it is the original of, in an archive's folder
	rangeID  string // of a result
}

// parts are the folders of a document besides its results: plans, pieces of the
// original, copies of results with the vectors of another model, answers about its
// text, and the flows that made it.
var parts = []string{"plans", "shards", "models", "items", "flows"}

func read(key string) (o object) {
	p := strings.Split(key, "/")
	if len(p) < 4 {
		return o
	}
	o.document = p[2]
	switch {
	case p[0]+"/" == artifacts && len(p) == 4 && path.Ext(key) == ".parquet":
		o.known, o.rangeID = true, strings.TrimSuffix(p[3], ".parquet")
	case p[0]+"/" == artifacts && len(p) > 4:
		o.part = slices.Contains(parts, p[3])
		o.known = o.part
	case p[0]+"/" == originals && len(p) == 4:
		o.known = true
	case p[0]+"/" == originals && len(p) == 6 && p[3] == "members":
		o.known, o.member = true, p[5]
	}
	return o
}

// list lists a slice's objects, and with a store that is not local more after them.
func (e *examine) list(ctx context.Context, s *slice, root string, each func(blob.Info) bool) error {
	if s.names == nil {
		folder := root + s.tenant + "/"
		return e.Blobs.ListAfter(ctx, folder, s.begins(folder), each)
	}
	more := true
	for _, name := range s.names[root] {
		var err error
		if strings.HasSuffix(name, "/") {
			err = e.Blobs.List(ctx, name, func(i blob.Info) bool { more = each(i); return more })
		} else {
			var i blob.Info
			if i, err = e.Blobs.Stat(ctx, name); err == nil {
				more = each(i)
			} else if errors.Is(err, sheaf.ErrNotFound) {
				err = nil // deleted in the meantime
			}
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// judge rechecks with the database objects that were unreferenced when listed: what
// is in progress, or awaits garbage collection, has not leaked. Objects of an
// unknown kind are reported and kept.
func (e *examine) judge(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	var ranges, docs []string
	for _, key := range keys {
		o := read(key)
		if docs = append(docs, o.document); o.member != "" {
			docs = append(docs, o.member)
		}
		if o.rangeID != "" {
			ranges = append(ranges, o.rangeID)
		}
	}
	refs, err := e.Store.References(ctx, ranges, docs)
	if err != nil {
		return err
	}
	var leaked []string
	for _, key := range keys {
		o := read(key)
		switch {
		case refs.Keys[key] || o.rangeID != "" && refs.Ranges[o.rangeID] || o.part && refs.Documents[o.document]:
		case slices.ContainsFunc(refs.Prefixes, func(p string) bool { return key == p || strings.HasSuffix(p, "/") && strings.HasPrefix(key, p) }):
		case !o.known:
			e.note(UnknownBlobs, key, false)
		default:
			leaked = append(leaked, key)
		}
	}
	return e.leaked(ctx, leaked)
}

func (e *examine) leaked(ctx context.Context, keys []string) error {
	if e.repair {
		if err := e.Blobs.Delete(ctx, keys...); err != nil {
			return err
		}
	}
	for _, key := range keys {
		e.note(LeakedBlobs, key, e.repair)
	}
	return nil
}

// missing looks for referenced objects that were not listed. Files of archives are
// with their archive, in another slice; absent ones may no longer be referenced.
func (e *examine) missing(ctx context.Context, docs map[string]taskstore.InventoryDocument, results []taskstore.InventoryRange, want map[string]bool) error {
	if err := e.elsewhere(ctx, want); err != nil {
		return err
	}
	gone := func(key string) (bool, error) {
		if want[key] {
			return false, nil
		}
		_, err := e.Blobs.Stat(ctx, key)
		if err == nil {
			want[key] = true
			return false, nil
		}
		if errors.Is(err, sheaf.ErrNotFound) {
			return true, nil
		}
		return false, fmt.Errorf("looking for %s: %w", key, err)
	}
	lost := map[string]taskstore.InventoryRange{} // by range
	var of, bytes []string                        // documents
	for _, r := range results {
		if !r.Live {
			continue
		}
		if yes, err := gone(r.ArtifactKey); err != nil {
			return err
		} else if yes {
			lost[r.RangeID], of = r, append(of, r.DocumentID)
		}
	}
	for id, d := range docs {
		if yes, err := gone(d.BlobKey); err != nil {
			return err
		} else if yes {
			bytes = append(bytes, id)
		}
	}
	if len(lost)+len(bytes) == 0 {
		return nil
	}
	still, err := e.Store.ResultsOf(ctx, slices.Compact(slices.Sorted(slices.Values(of))))
	if err != nil {
		return err
	}
	for _, r := range still {
		if _, was := lost[r.RangeID]; was && r.Live {
			delete(lost, r.RangeID) // once, even if several tasks reference it
			e.note(MissingArtifacts, r.DocumentID+" units "+r.Range.String(), false)
		}
	}
	refs, err := e.Store.References(ctx, nil, bytes)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(slices.Values(bytes)) {
		if refs.Documents[id] && refs.Keys[docs[id].BlobKey] {
			e.note(MissingOriginals, id, false)
		}
	}
	return nil
}

// few objects of a folder are checked individually.
const few = 3

// elsewhere lists folders of other slices in which several objects are wanted.
func (e *examine) elsewhere(ctx context.Context, want map[string]bool) error {
	folders := map[string][]string{}
	for key, seen := range want {
		if !seen {
			folders[path.Dir(key)+"/"] = append(folders[path.Dir(key)+"/"], key)
		}
	}
	for folder, keys := range folders {
		if len(keys) <= few || blob.CheckPrefix(folder, false) != nil {
			continue
		}
		first, end := slices.Min(keys), slices.Max(keys)
		err := e.Blobs.ListAfter(ctx, folder, first[:len(first)-1], func(i blob.Info) bool { // first sorts after its own prefix
			if _, wanted := want[i.Key]; wanted {
				want[i.Key] = true
			}
			return i.Key < end
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// counts asks the index how many chunks it has of live results.
func (e *examine) counts(ctx context.Context, tenant string, docs map[string]taskstore.InventoryDocument, results []taskstore.InventoryRange) error {
	short, err := e.short(ctx, tenant, results)
	if err != nil || len(short) == 0 {
		return err
	}
	// Recent writes to the index are visible after a refresh, and what was deleted
	// in the meantime is not missing.
	if err := e.Index.Refresh(ctx); err != nil {
		return err
	}
	var of []string
	for _, r := range short {
		of = append(of, r.DocumentID)
	}
	again, err := e.Store.ResultsOf(ctx, slices.Compact(slices.Sorted(slices.Values(of))))
	if err != nil {
		return err
	}
	again = slices.DeleteFunc(again, func(r taskstore.InventoryRange) bool { return short[r.RangeID].RangeID == "" })
	if short, err = e.short(ctx, tenant, again); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(short)) {
		r := short[id]
		e.note(MissingChunks, r.DocumentID+" units "+r.Range.String(), e.repair && e.rewrite(ctx, docs[r.DocumentID], r))
	}
	return nil
}

// short returns the live results with too few chunks in the index, by range.
func (e *examine) short(ctx context.Context, tenant string, results []taskstore.InventoryRange) (map[string]taskstore.InventoryRange, error) {
	live := map[string]taskstore.InventoryRange{}
	for _, r := range results {
		if r.Live && r.Chunks > 0 {
			live[r.RangeID] = r
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(live)), batch) {
		has, err := e.Index.Count(ctx, tenant, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if has[id] >= live[id].Chunks {
				delete(live, id)
			}
		}
	}
	return live, nil
}

// rewrite writes a range's chunks to the index from its artifact.
func (e *examine) rewrite(ctx context.Context, d taskstore.InventoryDocument, r taskstore.InventoryRange) bool {
	if err := e.Put(ctx, taskstore.LiveResult{TenantID: d.TenantID, DatasetID: d.DatasetID, DocumentID: d.DocumentID, Name: d.Name, MediaType: d.MediaType,
		RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.Chunks}); err != nil {
		e.Log.WarnContext(ctx, "a range could not be written again", "document", r.DocumentID, "range", r.RangeID, "error", err)
		return false
	}
	return true
}

// counters compares the documents' counters with the sums over their results.
func (e *examine) counters(ctx context.Context, docs []taskstore.InventoryDocument, results []taskstore.InventoryRange) error {
	sums := map[string]int{}
	for _, r := range results {
		if r.Live && r.Parsed {
			sums[r.DocumentID] += r.Chunks
		}
	}
	var wrong []string
	for _, d := range docs {
		if d.Generation > 0 && d.Chunks != sums[d.DocumentID] {
			wrong = append(wrong, d.DocumentID)
		}
	}
	drift, err := e.Store.Drift(ctx, wrong) // one query for both: a publication in between is not drift
	if err != nil {
		return err
	}
	for _, d := range drift {
		if e.repair {
			if err := e.Store.FixDrift(ctx, d.DocumentID); err != nil {
				return err
			}
		}
		e.note(CounterDrift, fmt.Sprintf("%s says %d, has %d", d.DocumentID, d.Has, d.Want), e.repair)
	}
	return nil
}

// entries looks for a tenant's index entries that nothing references. The entries
// are read before the database is queried, so that whatever finishes in between is
// known.
func (e *examine) entries(ctx context.Context, tenant string) error {
	orphans, docOf := map[string]int{}, map[string]string{} // chunks, documents, by range
	chunks, known, open := 0, map[string]bool{}, map[string]int{}
	look := func() error {
		refs, err := e.Store.References(ctx, slices.Collect(maps.Keys(open)), slices.Collect(maps.Values(docOf)))
		if err != nil {
			return err
		}
		if len(known) > maxOrphans {
			clear(known)
		}
		for id, n := range open {
			if refs.Ranges[id] || refs.Dying[docOf[id]] {
				known[id] = true
			} else {
				orphans[id] += n
			}
		}
		clear(open)
		clear(docOf)
		if len(orphans) < maxOrphans {
			return nil
		}
		return e.orphans(ctx, tenant, orphans)
	}
	var failed error
	err := e.Index.Scan(ctx, tenant, func(_, rangeID, documentID string) bool {
		chunks++
		switch {
		case known[rangeID]:
		case orphans[rangeID] > 0:
			orphans[rangeID]++
		default:
			open[rangeID]++
			docOf[rangeID] = documentID
			if len(open) == batch {
				failed = look()
			}
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if err := look(); err != nil {
		return err
	}
	e.counted(0, 0, chunks)
	return e.orphans(ctx, tenant, orphans)
}

func (e *examine) orphans(ctx context.Context, tenant string, orphans map[string]int) error {
	if len(orphans) == 0 {
		return nil
	}
	if err := e.Index.Refresh(ctx); err != nil { // before, recent deletions are still visible
		return err
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(orphans)), batch) {
		left, err := e.Index.Count(ctx, tenant, ids)
		if err != nil {
			return err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return left[id] == 0 })
		if e.repair {
			if err := e.Index.DeleteRanges(ctx, tenant, ids); err != nil {
				return err
			}
		}
		for _, id := range ids {
			e.note(OrphanChunks, fmt.Sprintf("%d chunks of range %s", orphans[id], id), e.repair)
		}
	}
	clear(orphans)
	return nil
}

// uploads looks for pieces of files that are no longer being sent.
func (e *examine) uploads(ctx context.Context) error {
	type upload struct{ tenant, id string }
	open := map[upload][]string{}
	n, objects := 0, 0
	look := func() error {
		byTenant := map[string][]string{}
		for u := range open {
			byTenant[u.tenant] = append(byTenant[u.tenant], u.id)
		}
		for tenant, ids := range byTenant {
			known, err := e.Store.KnownUploads(ctx, tenant, ids)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if !known[id] {
					if err := e.leaked(ctx, open[upload{tenant, id}]); err != nil {
						return err
					}
				}
			}
		}
		clear(open)
		n = 0
		return nil
	}
	old := time.Now().Add(-e.MinAge)
	var failed error
	err := e.Blobs.List(ctx, uploads, func(i blob.Info) bool {
		objects++
		if i.Modified.After(old) {
			return true
		}
		p := strings.Split(i.Key, "/")
		if len(p) != 4 {
			e.note(UnknownBlobs, i.Key, false)
			return true
		}
		u := upload{p[1], p[2]}
		open[u] = append(open[u], i.Key)
		if n++; n == batch {
			failed = look()
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	e.counted(0, objects, 0)
	return look()
}

// strangers looks for objects of tenants that do not exist, and for folders that
// are not ours.
func (e *examine) strangers(ctx context.Context) error {
	if err := e.Blobs.Children(ctx, "", func(name string) bool {
		if name != originals && name != artifacts && name != uploads {
			e.note(UnknownBlobs, name, false)
		}
		return ctx.Err() == nil
	}); err != nil {
		return err
	}
	for _, root := range []string{artifacts, originals} {
		var names []string
		look := func() error {
			ids := make([]string, len(names))
			for i, name := range names {
				ids[i] = strings.TrimSuffix(strings.TrimPrefix(name, root), "/")
			}
			known, err := e.Store.KnownTenants(ctx, ids)
			if err != nil {
				return err
			}
			for i, name := range names {
				switch {
				case known[ids[i]]:
				case !strings.HasSuffix(name, "/"):
					e.note(UnknownBlobs, name, false)
				default:
					n, err := e.objects(ctx, &slice{tenant: ids[i], whole: true}, root, nil, nil)
					if err != nil {
						return err
					}
					e.counted(0, n, 0)
				}
			}
			names = names[:0]
			return nil
		}
		var failed error
		err := e.Blobs.Children(ctx, root, func(name string) bool {
			if names = append(names, name); len(names) == batch {
				failed = look()
			}
			return failed == nil
		})
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if err := look(); err != nil {
			return err
		}
	}
	return nil
}

// stalled counts what should be in progress in the database but is not.
func (e *examine) stalled(ctx context.Context) error {
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
