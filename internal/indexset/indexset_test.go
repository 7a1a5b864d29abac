package indexset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob/file"
	"sheaf/internal/embed"
	"sheaf/internal/embed/openai"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/elastic"
	"sheaf/internal/index/embedded"
	"sheaf/internal/indexset"
	"sheaf/internal/search"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// model is a server of /v1/embeddings whose vectors say which words a text has.
type model struct {
	*httptest.Server
	texts  atomic.Int64
	onText atomic.Pointer[func(n int64)] // after each request
	blind  bool                          // all texts are alike
}

const width = 64

func newModel(t *testing.T) *model {
	m := &model{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Input []string `json:"input"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n := m.texts.Add(int64(len(in.Input)))
		if f := m.onText.Load(); f != nil {
			(*f)(n)
		}
		type item struct {
			Index     int       `json:"index"`
			Embedding []float64 `json:"embedding"`
		}
		var out struct {
			Data []item `json:"data"`
		}
		for i, text := range in.Input {
			v := make([]float64, width)
			for _, word := range strings.Fields(strings.ToLower(text)) {
				h := fnv.New32a()
				_, _ = io.WriteString(h, strings.Trim(word, ".,>"))
				v[h.Sum32()%width]++
			}
			if m.blind {
				v = make([]float64, width)
				v[0] = 1
			}
			sum := 0.0
			for _, f := range v {
				sum += f * f
			}
			for k := range v {
				v[k] /= math.Sqrt(max(sum, 1e-9))
			}
			out.Data = append(out.Data, item{i, v})
		}
		_ = json.NewEncoder(w).Encode(out)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *model) embedder(t *testing.T, weight float64) *openai.Embedder {
	t.Helper()
	e, err := openai.Open(t.Context(), openai.Config{BaseURL: m.URL + "/v1", Model: "words", Dimensions: width, Weight: weight, Client: m.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// world is a store with documents, and the engine of its indexes.
type world struct {
	*storetest.Fixture
	t      *testing.T
	engine string
	blobs  *file.Store
	dir    string
	prefix string
	docs   []storetest.Doc
	model  *model
}

func newWorld(t *testing.T, engine string) *world {
	t.Helper()
	dir := t.TempDir()
	blobs, err := file.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Fixture: storetest.New(t, "sqlite"), t: t, engine: engine, blobs: blobs, dir: dir, prefix: "indexset-" + strings.ToLower(sheaf.NewID()), model: newModel(t)}
	if engine == "elastic" {
		t.Cleanup(func() { w.call(http.MethodDelete, "/"+w.names()) })
	}
	return w
}

func (w *world) server() string {
	u := os.Getenv("SHEAF_TEST_ES_URL")
	if u == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			w.t.Fatal("SHEAF_TEST_ES_URL is not set")
		}
		w.t.Skip("SHEAF_TEST_ES_URL is not set")
	}
	return u
}

func (w *world) call(method, path string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.server()+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return string(b)
}

// names of the engine's indexes, separated by commas or lines.
func (w *world) names() string {
	if w.engine == "elastic" {
		return strings.Join(strings.Fields(w.call(http.MethodGet, "/_cat/indices/"+w.prefix+"*?h=index")), ",")
	}
	all, _ := filepath.Glob(filepath.Join(w.dir, "index-*.db"))
	return strings.Join(all, ",")
}

// lose deletes every index behind the set's back.
func (w *world) lose() {
	if w.engine == "elastic" {
		w.call(http.MethodDelete, "/"+w.names())
		return
	}
	for _, f := range strings.Split(w.names(), ",") {
		if err := os.Remove(f); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) openIndex(ctx context.Context, s indexset.Space, owner string) (index.Index, error) {
	if w.engine == "elastic" {
		x, err := elastic.Open(ctx, elastic.Config{URLs: []string{w.server()}, Prefix: w.prefix, ModelID: s.Model.ID, Dim: s.Model.Dim, Owner: owner,
			Suffix: fmt.Sprintf("-r%d", s.Instance), Existing: s.Made, Attempts: 2, Shards: s.Shards, ByDocument: s.Tenant != ""})
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	x, err := embedded.Open(ctx, embedded.Config{Path: w.path(s), ModelID: s.Model.ID, Dim: s.Model.Dim, Owner: owner, Existing: s.Made})
	if err != nil {
		return nil, err
	}
	return x, nil
}

func (w *world) path(s indexset.Space) string {
	return filepath.Join(w.dir, fmt.Sprintf("index-%d.db", s.Instance))
}

// open is a process whose settings name a model.
func (w *world) open(configured embed.Embedder, change ...func(*indexset.Config)) *indexset.Set {
	w.t.Helper()
	cfg := indexset.Config{
		Store: w.Store, Blobs: w.blobs, Configured: indexset.Space{Model: configured.Model(), Driver: "test"}, Embedder: configured, OpenIndex: w.openIndex,
		Remove: func(s indexset.Space) error { return embedded.Remove(w.path(s)) },
		OpenEmbedder: func(_ context.Context, s indexset.Space) (embed.Embedder, error) {
			if s.Model.ID == static.Default().Model().ID {
				return static.Default(), nil
			}
			return w.model.embedder(w.t, s.Model.Weight), nil
		},
		Text:  func(name string, c sheaf.Chunk) string { return name + "\n" + c.Text },
		Keeps: true, Follow: time.Millisecond, Grace: time.Nanosecond, Slice: 4, Workers: 2, PerMillionTokens: 100, Currency: "EUR",
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := indexset.Open(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// add stores and publishes a document as a task does, and returns it.
func (w *world) add(s *indexset.Set) storetest.Doc {
	w.t.Helper()
	return w.addOf("t", s)
}

func (w *world) addOf(tenant string, s *indexset.Set) storetest.Doc {
	w.t.Helper()
	return w.publish(s, w.Document(tenant), len(w.docs))
}

func (w *world) publish(s *indexset.Set, d storetest.Doc, n int) storetest.Doc {
	w.t.Helper()
	ctx := w.t.Context()
	v, err := s.Fresh(ctx)
	w.OK(err)
	x, e := v.Pin(d.Tenant, s.Configured())
	for _, task := range w.Plan(d, storetest.Parse(2)...) {
		claimed := w.Claim(task.ID, "w")
		r := storetest.Result(claimed)
		chunks := make([]sheaf.Chunk, r.Chunks)
		texts := make([]string, r.Chunks)
		for i := range chunks {
			chunks[i] = sheaf.Chunk{ID: sheaf.ChunkID(r.RangeID, i), DocumentID: d.ID, Generation: claimed.Generation, RangeID: r.RangeID, Ordinal: i, Kind: sheaf.ChunkText, Tokens: 10,
				Pages: []int{task.Range.From + i}, Text: fmt.Sprintf("The heron numbered %s%c%c stands at the lake in the early morning of its %s day.", word(n), 'a'+rune(task.Range.From/12), 'a'+rune(i), word(n+i))}
			texts[i] = "a.pdf\n" + chunks[i].Text
		}
		vectors, err := e.Embed(ctx, texts, embed.Passage)
		w.OK(err)
		var b bytes.Buffer
		w.OK(artifact.Encode(&b, artifact.Header{DocumentID: d.ID, Generation: claimed.Generation, RangeID: r.RangeID, Range: task.Range, ModelID: e.Model().ID, Dim: e.Model().Dim, Created: time.Now()}, chunks, vectors))
		_, err = w.blobs.Put(ctx, r.ArtifactKey, &b, int64(b.Len()))
		w.OK(err)
		w.OK(x.Write(ctx, index.Entries(index.Entry{TenantID: d.Tenant, DatasetID: d.Dataset, Name: "a.pdf"}, chunks, vectors)))
		if beside := v.BesideFor(d.Tenant); beside != nil {
			w.OK(s.Put(ctx, beside, taskstore.LiveResult{TenantID: d.Tenant, DatasetID: d.Dataset, DocumentID: d.ID, Name: "a.pdf", RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, Chunks: r.Chunks}))
		}
		w.OK(w.Store.Complete(ctx, claimed.Held(), taskstore.Completion{Result: r}))
	}
	w.Publish(d.ID, sheaf.DocSucceeded)
	w.OK(x.Refresh(ctx))
	if n == len(w.docs) {
		w.docs = append(w.docs, d)
	}
	return d
}

// word is a word of its own for each number.
func word(n int) string {
	return string([]rune{'q' + rune(n/26/26%10), 'a' + rune(n/26%26), 'a' + rune(n%26)}) + "heron"
}

func (w *world) searcher(s *indexset.Set) *search.Searcher {
	return &search.Searcher{Source: s.Source, Verify: s.Verify, Visibility: w.Store}
}

// found checks that a search finds document n, by which model, and whether the
// answer says that it is whole.
func (w *world) found(s *indexset.Set, n int, model string) {
	w.t.Helper()
	answer, err := w.searcher(s).Search(w.t.Context(), w.docs[n].Tenant, search.Request{Query: "numbered " + word(n) + "aa", Limit: 5})
	if err != nil {
		w.t.Fatalf("document %d: %v", n, err)
	}
	if len(answer.Hits) == 0 || answer.Hits[0].Document.ID != w.docs[n].ID || answer.Index.Model != model || answer.Index.Stale {
		w.t.Fatalf("document %d: %d hits by %s, stale %v, want it first by %s: %+v", n, len(answer.Hits), answer.Index.Model, answer.Index.Stale, model, answer.Warnings)
	}
}

// step runs the loop until the status is as wanted.
func (w *world) step(s *indexset.Set, until func(*indexset.Status) bool) *indexset.Status {
	w.t.Helper()
	for range 500 {
		if _, err := s.Step(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		st, err := s.Status(w.t.Context())
		w.OK(err)
		if until(st) {
			return st
		}
	}
	st, _ := s.Status(w.t.Context())
	b, _ := json.Marshal(st)
	w.t.Fatalf("it ends as %s", b)
	return nil
}

func phase(p indexset.Phase) func(*indexset.Status) bool {
	return func(st *indexset.Status) bool {
		return st.Migration != nil && st.Migration.Phase == p && st.Migration.Wanted == ""
	}
}

func done(st *indexset.Status) bool { return st.Migration == nil }

func (w *world) act(s *indexset.Set, a indexset.Action) {
	w.t.Helper()
	if _, _, err := s.Act(w.t.Context(), a, false, false); err != nil {
		w.t.Fatalf("%s: %v", a, err)
	}
}

func onBoth(t *testing.T, f func(t *testing.T, w *world)) {
	for _, engine := range []string{"embedded", "elastic"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f(t, newWorld(t, engine))
		})
	}
}

func TestModelChangesWithoutAGap(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		old := static.Default()
		before := w.open(old)
		for range 12 {
			w.add(before)
		}
		w.OK(before.Close())

		next := w.model.embedder(t, 0.5)
		s := w.open(next)
		from, to := old.Model().ID, next.Model().ID
		w.found(s, 3, from)
		_, estimate, err := s.Act(ctx, indexset.Start, false, true)
		w.OK(err)
		if estimate == nil || estimate.Ranges != 24 || estimate.Chunks != 72 || estimate.Tokens != 720 || math.Abs(estimate.Price-0.072) > 1e-9 || s.View().Beside != nil {
			t.Fatalf("a dry run says %+v", estimate)
		}
		var saved []taskstore.SavedQuery
		for n := range 3 {
			saved = append(saved, taskstore.SavedQuery{Question: "numbered " + word(n+1) + "aa", Expected: []taskstore.ExpectedAnswer{{DocumentID: w.docs[n+1].ID}}})
		}
		for _, d := range w.docs[1:4] {
			_, err := w.Store.SaveQueries(ctx, "t", d.Dataset, saved[:1])
			w.OK(err)
			saved = saved[1:]
		}
		w.model.texts.Store(0)
		w.act(s, indexset.Start)

		// Killed while texts are under way.
		killed, kill := context.WithCancel(ctx)
		var once sync.Once
		stop := func(n int64) {
			if n >= 30 {
				once.Do(kill)
			}
		}
		w.model.onText.Store(&stop)
		for killed.Err() == nil {
			_, _ = s.Step(killed)
			w.found(s, 3, from)
		}
		w.model.onText.Store(nil)
		if n := w.model.texts.Load(); n >= 72 {
			t.Fatalf("it was killed after %d texts, which are all", n)
		}
		w.OK(s.Close())

		s = w.open(next)
		st, err := s.Status(ctx)
		w.OK(err)
		if m := st.Migration; m == nil || m.Phase != indexset.Filling || m.Ranges == 0 || m.TotalRanges != 24 || m.To != to {
			t.Fatalf("after the kill: %+v", m)
		}
		w.act(s, indexset.Pause)
		atPause := w.model.texts.Load()
		if more, err := s.Step(ctx); more || err != nil || w.model.texts.Load() != atPause {
			t.Fatalf("a paused migration embeds: %v", err)
		}
		// Meanwhile: a new document, one that is deleted, one that is parsed again.
		w.add(s)
		w.found(s, 12, from)
		gone := w.docs[0]
		w.OK(s.DeleteDocument(ctx, "t", gone.ID))
		_, err = w.Store.DeleteDocuments(ctx, "t", []string{gone.ID})
		w.OK(err)
		w.docs[5] = w.publish(s, w.Reparse(w.docs[5]), 5)
		w.act(s, indexset.Resume)
		st = w.step(s, phase(indexset.Ready))
		if g := st.Migration.Gate; !g.Passed || g.Samples < 20 || g.Missing != 0 || g.Saved != 3 || g.SavedRecall != 1 || g.SavedRecallLive != 1 || st.Migration.Price == 0 {
			t.Fatalf("the gate: %+v of %+v", g, st.Migration)
		}
		// 13 documents and one twice, of 6 chunks each; the write that was killed may
		// be repeated, the questions of the gate come on top.
		if n := w.model.texts.Load() - int64(2*st.Migration.Gate.Samples+st.Migration.Gate.Saved); n > 14*6+12+6 {
			t.Fatalf("%d texts were embedded", n)
		}
		w.found(s, 12, from)

		other := w.open2(next)
		w.act(s, indexset.Switch)
		w.step(s, phase(indexset.Switched))
		for _, n := range []int{3, 5, 12} {
			w.found(s, n, to)
		}
		if err := other.Follow(ctx); err != nil {
			t.Fatal(err)
		}
		other.found(12, to)
		w.absent(s, gone)
		w.add(s) // is in both
		w.found(s, 13, to)

		w.act(s, indexset.Rollback)
		w.step(s, phase(indexset.Ready))
		for _, n := range []int{3, 5, 12, 13} {
			w.found(s, n, from)
		}
		w.act(s, indexset.Switch)
		w.step(s, phase(indexset.Switched))
		w.act(s, indexset.Confirm)
		w.step(s, func(*indexset.Status) bool { return len(s.View().State.Dropping) == 0 })
		if names := w.names(); names == "" || strings.Contains(names, ",") {
			t.Fatalf("after the confirmation there is %q", names)
		}
		for _, n := range []int{3, 5, 12, 13} {
			w.found(s, n, to)
		}
		// A rebuild embeds nothing: the vectors are stored.
		texts := w.model.texts.Load()
		w.act(s, indexset.Rebuild)
		w.step(s, done)
		if n := w.model.texts.Load(); n != texts {
			t.Fatalf("a rebuild embedded %d texts", n-texts)
		}
		w.found(s, 13, to)
	})
}

// absent checks that no index has an entry of a document.
func (w *world) absent(s *indexset.Set, d storetest.Doc) {
	w.t.Helper()
	v := s.View()
	for _, m := range []*indexset.Member{v.Live, v.Beside} {
		if m == nil {
			continue
		}
		w.OK(m.Index.Refresh(w.t.Context()))
		if n, _, err := m.Index.CountDocument(w.t.Context(), d.Tenant, d.ID); err != nil || n != 0 {
			w.t.Fatalf("the index of %s has %d chunks of a deleted document: %v", m.Space.Model.ID, n, err)
		}
	}
}

// follower is another process, where the engine admits one.
type follower struct {
	*world
	s *indexset.Set
}

func (w *world) open2(configured embed.Embedder) follower {
	if w.engine == "embedded" {
		return follower{w, nil}
	}
	return follower{w, w.open(configured, func(c *indexset.Config) { c.Keeps = false })}
}

func (f follower) Follow(ctx context.Context) error {
	if f.s == nil {
		return nil
	}
	_, err := f.s.Fresh(ctx)
	return err
}

func (f follower) found(n int, model string) {
	f.t.Helper()
	if f.s != nil {
		f.world.found(f.s, n, model)
	}
}

// What was deleted while it was being written is not left in the new index.
func TestDeletedWhileItIsFilled(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		before := w.open(static.Default())
		for range 3 {
			w.add(before)
		}
		w.OK(before.Close())
		s := w.open(w.model.embedder(t, 0.5))
		w.act(s, indexset.Start)
		// The texts of a result are embedded: it is read, and not yet in.
		var once sync.Once
		remove := func(int64) {
			once.Do(func() {
				for _, d := range w.docs {
					if err := s.DeleteDocument(ctx, "t", d.ID); err != nil {
						t.Error(err)
					}
					if _, err := w.Store.DeleteDocuments(ctx, "t", []string{d.ID}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		w.model.onText.Store(&remove)
		w.step(s, phase(indexset.Ready))
		for _, d := range w.docs {
			w.absent(s, d)
		}
	})
}

func TestLostIndexIsToldAndFilledAnew(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		e := w.model.embedder(t, 0.5)
		s := w.open(e)
		for range 6 {
			w.add(s)
		}
		texts := w.model.texts.Load()
		model := e.Model().ID
		w.found(s, 2, model)
		w.lose()
		if w.engine == "embedded" { // the file stays open until the process ends
			w.OK(s.Close())
			s = w.open(e, func(c *indexset.Config) { c.Keeps = false })
		}
		for range 3 {
			answer, err := w.searcher(s).Search(ctx, "t", search.Request{Query: "numbered " + word(2) + "aa", Limit: 5})
			if err == nil || !errors.Is(err, sheaf.ErrUnavailable) || !index.IsLost(err) {
				t.Fatalf("a lost index answers %+v, %v", answer, err)
			}
		}
		if err := s.Ready(ctx); err == nil {
			t.Fatal("a process without its index is ready")
		}
		if w.engine == "embedded" {
			w.OK(s.Close())
			s = w.open(e)
		}
		// Replaced, and not yet filled: no answer claims to be whole.
		for s.View().State.Lost == "" {
			if _, err := s.Step(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for st := s.View().State; st.Lost != ""; st = s.View().State {
			answer, err := w.searcher(s).Search(ctx, "t", search.Request{Query: "numbered " + word(2) + "aa", Limit: 5})
			if err != nil || !answer.Index.Stale || len(answer.Warnings) == 0 || answer.Warnings[0].Code != "index_rebuilding" {
				t.Fatalf("while it is filled: %+v, %v", answer, err)
			}
			if status, err := s.Status(ctx); err != nil || !status.Stale || status.Migration == nil || s.Ready(ctx) == nil {
				t.Fatalf("while it is filled: %+v, %v", status, err)
			}
			if _, err := s.Step(ctx); err != nil {
				t.Fatal(err)
			}
		}
		w.step(s, done)
		w.OK(s.Ready(ctx))
		for n := range w.docs {
			w.found(s, n, model)
		}
		if asked := w.model.texts.Load() - texts; asked > 40 { // queries alone, one a search
			t.Fatalf("%d texts were embedded", asked)
		}
	})
}

// An index of another store under the same name is not searched.
func TestForeignIndexIsNotSearched(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		e := static.Default()
		s := w.open(e)
		for range 3 {
			w.add(s)
		}
		w.OK(s.Close())
		w.lose()
		stranger, err := w.openIndex(t.Context(), indexset.Space{Model: e.Model(), Instance: s.View().State.Live.Instance}, "another store")
		w.OK(err)
		w.OK(stranger.Close())
		s = w.open(e, func(c *indexset.Config) { c.Keeps = false })
		if _, err := w.searcher(s).Search(t.Context(), "t", search.Request{Query: "heron"}); err == nil || !index.IsLost(err) {
			t.Fatalf("a foreign index is searched: %v", err)
		}
		w.OK(s.Close())
		s = w.open(e)
		w.step(s, done)
		w.found(s, 1, e.Model().ID)
	})
}

func TestGateRefusesAWorseModel(t *testing.T) {
	w := newWorld(t, "embedded")
	ctx := t.Context()
	before := w.open(static.Default())
	for range 8 {
		w.add(before)
	}
	w.OK(before.Close())
	w.model.blind = true
	next := w.model.embedder(t, 1)
	s := w.open(next)
	w.act(s, indexset.Start)
	st := w.step(s, phase(indexset.Refused))
	if g := st.Migration.Gate; g.Passed || g.Reason == "" || g.Vector >= g.VectorLive/2 {
		t.Fatalf("the gate: %+v", g)
	}
	if _, _, err := s.Act(ctx, indexset.Switch, false, false); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("a refused index is switched to: %v", err)
	}
	w.found(s, 2, static.Default().Model().ID)
	if _, _, err := s.Act(ctx, indexset.Switch, true, false); err != nil {
		t.Fatal(err)
	}
	w.step(s, phase(indexset.Switched))
	w.act(s, indexset.Rollback)
	w.step(s, phase(indexset.Ready))
	w.act(s, indexset.Cancel)
	w.step(s, func(*indexset.Status) bool { return len(s.View().State.Dropping) == 0 })
	if names := w.names(); strings.Contains(names, ",") {
		t.Fatalf("after cancel there is %q", names)
	}
	w.found(s, 2, static.Default().Model().ID)
}

// Without the old model's server search goes on by words and says so.
func TestOldModelIsAway(t *testing.T) {
	w := newWorld(t, "embedded")
	ctx := t.Context()
	before := w.open(w.model.embedder(t, 0.5))
	for range 4 {
		w.add(before)
	}
	w.OK(before.Close())
	s := w.open(static.Default(), func(c *indexset.Config) {
		c.OpenEmbedder = func(context.Context, indexset.Space) (embed.Embedder, error) {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "embedder_unknown", "Nobody has that model.")
		}
	})
	w.add(s) // embedded by the new model, found by its words
	for _, n := range []int{2, 4} {
		answer, err := w.searcher(s).Search(ctx, "t", search.Request{Query: "numbered " + word(n) + "aa"})
		if err != nil || len(answer.Hits) == 0 || answer.Hits[0].Document.ID != w.docs[n].ID || !answer.Index.Stale || !strings.Contains(answer.Warnings[0].Message, "Nobody has that model") {
			t.Fatalf("document %d without the old model: %+v, %v", n, answer, err)
		}
	}
	w.act(s, indexset.Start)
	w.step(s, phase(indexset.Ready))
	w.act(s, indexset.Switch)
	w.step(s, phase(indexset.Switched))
	for n := range w.docs {
		w.found(s, n, static.Default().Model().ID)
	}
}
