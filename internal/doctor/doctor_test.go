package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/blob/s3"
	"sheaf/internal/index"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// entries is an index that holds what a test says, by range.
type entries struct {
	index.Index
	mu               sync.Mutex // tenants are examined at once
	tenant, document map[string]string
	chunks           map[string]int
}

func (x *entries) Refresh(context.Context) error { return nil }

func (x *entries) Count(_ context.Context, tenant string, ids []string) (map[string]int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string]int{}
	for _, id := range ids {
		if x.tenant[id] == tenant {
			out[id] = x.chunks[id]
		}
	}
	return out, nil
}

func (x *entries) Scan(_ context.Context, tenant string, each func(_, rangeID, documentID string) bool) error {
	x.mu.Lock()
	chunks, tenants, documents := maps.Clone(x.chunks), maps.Clone(x.tenant), maps.Clone(x.document)
	x.mu.Unlock()
	for id, n := range chunks {
		for range n {
			if tenants[id] == tenant && !each("", id, documents[id]) {
				return nil
			}
		}
	}
	return nil
}

func (x *entries) DeleteRanges(_ context.Context, _ string, ids []string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		delete(x.chunks, id)
	}
	return nil
}

// watched counts what a blob store is asked for, and fails when a test says so.
type watched struct {
	blob.Store
	mu     sync.Mutex
	stats  int
	lists  []string // where each began
	reads  int      // of folders
	failAt int      // of lists; 0 for never
}

var errPulled = errors.New("the plug was pulled")

func (w *watched) Stat(ctx context.Context, key string) (blob.Info, error) {
	w.mu.Lock()
	w.stats++
	w.mu.Unlock()
	return w.Store.Stat(ctx, key)
}

func (w *watched) ListAfter(ctx context.Context, prefix, after string, each func(blob.Info) bool) error {
	w.mu.Lock()
	w.lists = append(w.lists, max(prefix, after))
	pulled := w.failAt > 0 && len(w.lists) >= w.failAt
	w.mu.Unlock()
	if pulled {
		return errPulled
	}
	return w.Store.ListAfter(ctx, prefix, after, each)
}

func (w *watched) List(ctx context.Context, prefix string, each func(blob.Info) bool) error {
	return w.ListAfter(ctx, prefix, "", each)
}

func (w *watched) Children(ctx context.Context, prefix string, each func(name string) bool) error {
	w.reads++
	return w.Store.Children(ctx, prefix, each)
}

// local is watched with local files.
type local struct {
	*watched
	blob.Local
}

// world is a store, blobs and an index that agree.
type world struct {
	*storetest.Fixture
	t     *testing.T
	blobs *watched
	index *entries
	conf  Config
}

// eachWorld runs a test on SQLite with files, whose folders have few or too many
// entries, and on the engines of a fleet.
func eachWorld(t *testing.T, test func(w *world)) {
	const tooMany = ", more names than are read at a time"
	for _, name := range append([]string{"sqlite" + tooMany}, storetest.Engines...) {
		t.Run(name, func(t *testing.T) {
			engine, many := strings.CutSuffix(name, tooMany)
			f := storetest.New(t, engine)
			var blobs blob.Store
			var files *file.Store
			var err error
			if engine == "sqlite" {
				files, err = file.Open(t.TempDir())
				blobs = files
			} else {
				c := s3.Config{Endpoint: os.Getenv("SHEAF_TEST_S3_ENDPOINT"), AccessKey: os.Getenv("SHEAF_TEST_S3_ACCESS_KEY"), SecretKey: os.Getenv("SHEAF_TEST_S3_SECRET_KEY"),
					Bucket: "sheaf-doctor", Prefix: sheaf.NewID() + "/", CreateBucket: true}
				if c.Endpoint == "" {
					t.Skip("SHEAF_TEST_S3_ENDPOINT is not set; `make services` starts a MinIO")
				}
				if blobs, err = s3.Open(t.Context(), c); err == nil {
					t.Cleanup(func() {
						_ = blobs.Children(context.Background(), "", func(name string) bool {
							_, err := blobs.DeletePrefix(context.Background(), name)
							return err == nil
						})
					})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			w := &world{Fixture: f, t: t, blobs: &watched{Store: blobs}, index: &entries{tenant: map[string]string{}, document: map[string]string{}, chunks: map[string]int{}}}
			w.conf = Config{Store: f.Store, Index: w.index, Blobs: w.blobs, Log: slog.New(slog.DiscardHandler), MinAge: time.Nanosecond, Workers: 2, Documents: 3,
				Put: func(_ context.Context, r taskstore.LiveResult) error {
					w.has(r.TenantID, r.DocumentID, r.RangeID, r.Chunks)
					return nil
				}}
			if files != nil {
				w.conf.Blobs = local{w.blobs, files}
			}
			if many {
				w.conf.maxNames = 2
			}
			test(w)
		})
	}
}

// local reports whether objects are local files, of which each folder is listed.
func (w *world) local() bool {
	_, is := w.conf.Blobs.(blob.Local)
	return is
}

func (w *world) has(tenant, document, rangeID string, chunks int) {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	w.index.tenant[rangeID], w.index.document[rangeID], w.index.chunks[rangeID] = tenant, document, chunks
}

func (w *world) put(keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		if _, err := w.blobs.Put(context.Background(), key, strings.NewReader("x"), 1); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) there(key string) bool {
	w.t.Helper()
	_, err := w.blobs.Store.Stat(context.Background(), key)
	if err != nil && !errors.Is(err, sheaf.ErrNotFound) {
		w.t.Fatal(err)
	}
	return err == nil
}

// document makes one of two ranges that is published, with all that it names.
func (w *world) document(tenant string) (storetest.Doc, []sheaf.TaskResult) {
	w.t.Helper()
	d := w.Document(tenant)
	w.put(sheaf.OriginalPrefix(tenant, d.ID) + "v1")
	results := w.parse(d)
	w.Publish(d.ID, sheaf.DocSucceeded)
	return d, results
}

// parse plans and parses the newest generation of a document.
func (w *world) parse(d storetest.Doc) (results []sheaf.TaskResult) {
	w.t.Helper()
	for _, t := range w.Plan(d, storetest.Parse(2)...) {
		r := w.Done(t.ID)
		w.put(r.ArtifactKey)
		w.has(d.Tenant, d.ID, r.RangeID, r.Chunks)
		results = append(results, r)
	}
	return results
}

// found runs the doctor and returns how often it found what.
func (w *world) found(repair bool) map[string]int {
	w.t.Helper()
	r, err := Run(context.Background(), w.conf, repair)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]int{}
	for _, f := range r.Findings {
		out[f.Code] = f.Count
	}
	w.t.Logf("%d ranges, %d objects, %d chunks: %v", r.Ranges, r.Objects, r.Chunks, r.Findings)
	return out
}

func (w *world) finds(what string, repair bool, want map[string]int) {
	w.t.Helper()
	if got := w.found(repair); !maps.Equal(got, want) {
		w.t.Errorf("%s: found %v, want %v", what, got, want)
	}
}

// Whatever the store names in whatever way stays, and so does what nobody knows;
// what nothing names goes.
func TestOnlyWhatNothingNamesIsTaken(t *testing.T) {
	eachWorld(t, func(w *world) {
		ctx := context.Background()
		var docs []storetest.Doc
		for _, tenant := range []string{"a", "a-b", "a.b", "b"} { // in keys "a" comes last of the first three
			for range 4 {
				d, _ := w.document(tenant)
				docs = append(docs, d)
			}
		}
		d := docs[0]
		artifact := func(name string) string { return sheaf.ArtifactPrefix(d.Tenant, d.ID) + name }
		var named []string
		name := func(keys ...string) {
			w.put(keys...)
			named = append(named, keys...)
		}
		// Parts of a document, and what is laid over its text.
		for _, part := range parts {
			name(artifact(part + "/x.json"))
		}
		name(artifact("models/0123/range.parquet"))
		w.Exec(`INSERT INTO chunk_edits (doc_id, id, tenant_id, version, added, anchor, content, author, gen, chunk_id, base_range, range_id, hides, created_at, updated_at)
			VALUES (?, 'e', ?, 1, 0, '', '', '', 1, '', '', 'edit-1', 0, 1, 1)`, d.ID, d.Tenant)
		name(artifact("edit-1.parquet"))
		w.has(d.Tenant, d.ID, "edit-1", 1)
		w.Exec(`INSERT INTO run_results (range_id, tenant_id, dataset_id, kind, doc_id, name, layer, artifact_key, chunk_count, token_count, created_at)
			VALUES ('run-1', ?, ?, 'raptor', ?, 'n', 0, ?, 1, 1, 1)`, d.Tenant, d.Dataset, d.ID, artifact("run-1.parquet"))
		name(artifact("run-1.parquet"))
		w.has(d.Tenant, d.ID, "run-1", 1)
		// An earlier version, whose results nothing shows and its tasks name.
		w.parse(w.Reparse(docs[1]))
		// An attempt that is under way, and one that was lost.
		running := w.Document("a")
		w.put(sheaf.OriginalPrefix("a", running.ID) + "v1")
		tasks := w.Plan(running, storetest.Parse(2)...)
		for _, task := range tasks {
			id := sheaf.RangeID(task.ID, w.Claim(task.ID, "w").Epoch)
			name(sheaf.ArtifactKey("a", running.ID, id))
			w.has("a", running.ID, id, 3)
		}
		// A reservation, as runs make before they write.
		w.OK(w.Store.ReserveRanges(ctx, d.Tenant, d.ID, []string{"reserved"}))
		name(artifact("reserved.parquet"))
		// A file of an archive lies with the archive, here in a slice before.
		last := docs[3]
		member := sheaf.MemberKey("a", d.ID, 1, 1, last.ID)
		w.Exec("UPDATE documents SET parent_id=?, blob_key=? WHERE id=?", d.ID, member, last.ID)
		w.OK(w.blobs.Delete(ctx, sheaf.OriginalPrefix("a", last.ID)+"v1"))
		name(member)
		// A deleted document is left to the collector.
		gone, results := w.document("b")
		_, err := w.Store.DeleteDocuments(ctx, "b", []string{gone.ID})
		w.OK(err)
		name(results[0].ArtifactKey, results[1].ArtifactKey, sheaf.OriginalPrefix("b", gone.ID)+"v1")
		// An upload that is on its way.
		w.Exec(`INSERT INTO uploads (id, tenant_id, dataset_id, doc_id, size, pieces, hash, spec, created_at, expires_at) VALUES ('up', 'b', 'ds-b', 'x', 1, '', '', '', 1, 2000000000000)`)
		name(taskstore.UploadPrefix("b", "up")+"1", taskstore.UploadPrefix("b", "up")+"direct")

		w.finds("all agrees", true, map[string]int{})

		unknown := []string{artifact("new/x"), artifact("x.json"), "artifacts/b/x", "originals/a/" + d.ID + "/a/b", "uploads/x", "backups/db"}
		leaked := []string{artifact("nothing.parquet"), sheaf.OriginalPrefix("a", d.ID) + "v0", sheaf.ArtifactKey("b", sheaf.NewID(), "x"), sheaf.ArtifactPrefix("b", sheaf.NewID()) + "plans/x.json",
			sheaf.MemberKey("a", d.ID, 1, 1, sheaf.NewID()), sheaf.ArtifactKey("nobody", "x", "x"), taskstore.UploadPrefix("b", "lost") + "1"}
		w.put(unknown...)
		w.put(leaked...)
		w.has("b", "x", "orphan", 2)
		want := map[string]int{LeakedBlobs: len(leaked), UnknownBlobs: len(unknown), OrphanChunks: 1}
		w.conf.MinAge = time.Hour
		w.finds("while all is young", true, map[string]int{OrphanChunks: 1, UnknownBlobs: 1}) // a folder has no age
		w.has("b", "x", "orphan", 2)
		w.conf.MinAge = time.Nanosecond
		w.finds("not repaired", false, want)
		w.finds("repaired", true, want)
		w.finds("afterwards", true, map[string]int{UnknownBlobs: len(unknown)})
		for _, key := range append(named, unknown...) {
			if !w.there(key) {
				t.Errorf("%s is gone", key)
			}
		}
		for _, key := range leaked {
			if w.there(key) {
				t.Errorf("%s is still there", key)
			}
		}
	})
}

// What is lost is found, each once, and a range that is parsed again is not lost
// any more.
func TestWhatIsLostIsFound(t *testing.T) {
	eachWorld(t, func(w *world) {
		ctx := context.Background()
		var docs []storetest.Doc
		var results [][]sheaf.TaskResult
		for i := range 8 {
			d, r := w.document([]string{"a", "a-b"}[i%2])
			docs, results = append(docs, d), append(results, r)
		}
		w.blobs.stats = 0
		w.finds("all agrees", false, map[string]int{})
		lists, reads := 14, 3 // of two tenants, and of the folders above them
		if w.local() {
			lists = 2*len(docs) + 1 // the folders of each document
			reads += 4
		}
		if w.conf.maxNames > 0 { // half of those of a tenant
			reads += 4
		}
		if w.blobs.stats > 0 || len(w.blobs.lists) > lists || w.blobs.reads > reads {
			t.Errorf("%d objects took %d questions, %d lists and %d folders: %v", 3*len(docs), w.blobs.stats, len(w.blobs.lists), w.blobs.reads, w.blobs.lists)
		}
		w.OK(w.blobs.Delete(ctx, results[1][0].ArtifactKey, results[6][0].ArtifactKey, results[6][1].ArtifactKey, sheaf.OriginalPrefix("a", docs[4].ID)+"v1"))
		w.index.chunks[results[2][1].RangeID]--
		w.Exec("UPDATE documents SET chunk_count=99 WHERE id=?", docs[3].ID)
		lost := map[string]int{MissingArtifacts: 3, MissingOriginals: 1, MissingChunks: 1, CounterDrift: 1}
		w.finds("not repaired", false, lost)
		w.finds("repaired", true, lost)
		w.finds("what needs a parse", true, map[string]int{MissingArtifacts: 3, MissingOriginals: 1})
		w.put(sheaf.OriginalPrefix("a", docs[4].ID) + "v1")
		for _, i := range []int{1, 6} {
			w.parse(w.Reparse(docs[i]))
			w.Publish(docs[i].ID, sheaf.DocSucceeded)
		}
		w.finds("parsed again", false, map[string]int{})
	})
}

// An audit whose process dies is gone on with where it was, by whoever leads next,
// and finds what it would have found.
func TestAuditGoesOnWhereItWas(t *testing.T) {
	eachWorld(t, func(w *world) {
		ctx := context.Background()
		for i := range 40 {
			d, r := w.document([]string{"a", "b"}[i%2])
			if i == 0 || i == 39 {
				w.OK(w.blobs.Delete(ctx, r[0].ArtifactKey))
			}
			if i%2 == 0 {
				w.put(sheaf.ArtifactKey(d.Tenant, d.ID, "leaked"))
			}
		}
		clock := time.Now()
		var reports []*Report
		lead := func() *Auditor {
			return &Auditor{Config: w.conf, State: w.Store, Every: time.Hour, now: func() time.Time { return clock }, Ended: func(_ context.Context, r *Report) { reports = append(reports, r) }}
		}
		step := func(a *Auditor, more bool, want error) {
			t.Helper()
			if got, err := a.Step(ctx); got != more || !errors.Is(err, want) {
				t.Fatalf("there is more: %v, %v; want %v, %v", got, err, more, want)
			}
		}
		step(lead(), false, nil)
		clock = clock.Add(59 * time.Minute)
		step(lead(), false, nil)
		if len(w.blobs.lists) > 0 || len(reports) > 0 {
			t.Fatal("an audit began before it was due")
		}
		clock = clock.Add(time.Minute)
		if w.blobs.failAt = 20; w.local() {
			w.blobs.failAt = 60
		}
		step(lead(), false, errPulled)
		before := slices.Clone(w.blobs.lists)
		w.blobs.lists, w.blobs.failAt = nil, 0
		second := lead()
		step(second, false, nil)
		if len(reports) != 1 {
			t.Fatalf("%d audits have ended", len(reports))
		}
		begun := fmt.Sprint(w.blobs.lists)
		for _, at := range before[:4] { // of the first slices
			if strings.Contains(begun, at+" ") {
				t.Errorf("it began anew: %s was listed again: %s", at, begun)
			}
		}
		found := map[string]int{}
		for _, f := range reports[0].Findings {
			found[f.Code] = f.Count
		}
		if want := map[string]int{MissingArtifacts: 2, LeakedBlobs: 20}; !maps.Equal(found, want) || reports[0].Ranges != 80 {
			t.Errorf("found %v in %d ranges, want %v in 80", found, reports[0].Ranges, want)
		}
		step(second, false, nil)
		if len(reports) != 1 {
			t.Error("an audit began again at once")
		}
		clock = clock.Add(-24 * time.Hour) // what ended tomorrow does not keep the next one waiting
		step(lead(), false, nil)
		if len(reports) != 2 {
			t.Error("no audit began after the clock went back")
		}
	})
}

// Of two keepers that both take themselves for the leader one ends the audit.
func TestAuditIsFenced(t *testing.T) {
	f := storetest.New(t, "sqlite")
	blobs, err := file.Open(t.TempDir())
	f.OK(err)
	ended := 0
	a := Auditor{Config: Config{Store: f.Store, Index: &entries{}, Blobs: blobs}, State: f.Store, Every: time.Nanosecond, Ended: func(context.Context, *Report) { ended++ }}
	if _, err := a.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := a
	late.State = stateWith{f.Store, func() { // between reading and writing
		if _, err := a.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}}
	if _, err := late.Step(t.Context()); err != nil || ended != 1 {
		t.Errorf("%d audits ended, %v", ended, err)
	}
}

type stateWith struct {
	AuditStore
	read func()
}

func (s stateWith) AuditState(ctx context.Context) (string, int64, error) {
	v, n, err := s.AuditStore.AuditState(ctx)
	s.read()
	return v, n, err
}
