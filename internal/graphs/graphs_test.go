package graphs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

// shelf is datasets of ranges, with how often they were listed.
type shelf struct {
	mu     sync.Mutex
	live   map[string][]taskstore.LiveResult // by dataset
	hidden map[string]map[string]bool        // chunks by range
	edits  int
	splits [][]string
	lists  int
	panics bool
	random *rand.Rand // shuffles what is listed; nil leaves it
}

func (s *shelf) DatasetStamp(_ context.Context, _, datasetID string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.live[datasetID], s.edits, s.splits), nil
}

func (s *shelf) DatasetResults(_ context.Context, _, datasetID, after string, _ int) ([]taskstore.LiveResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after != "" {
		return nil, nil
	}
	s.lists++
	out := slices.Clone(s.live[datasetID])
	if s.random != nil {
		s.random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out, nil
}

func (s *shelf) SplitNames(context.Context, string, string) ([][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.splits, nil
}

func (s *shelf) RunResults(context.Context, string, string, sheaf.TaskKind, string, string, int) ([]taskstore.RunResult, error) {
	return nil, nil
}

func (s *shelf) Visible(_ context.Context, _ string, ids []string) (map[string]taskstore.VisibleRange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panics {
		panic("a fault")
	}
	out := map[string]taskstore.VisibleRange{}
	for dataset, all := range s.live {
		for _, r := range all {
			if slices.Contains(ids, r.RangeID) {
				out[r.RangeID] = taskstore.VisibleRange{DocumentID: r.DocumentID, DatasetID: dataset, Name: r.Name, Generation: 1, Hidden: s.hidden[r.RangeID]}
			}
		}
	}
	return out, nil
}

// add stores texts as the chunks of a range; each has its page and box.
func (s *shelf) add(t *testing.T, blobs blob.Store, dataset, rangeID string, texts ...string) []sheaf.Chunk {
	t.Helper()
	chunks := make([]sheaf.Chunk, len(texts))
	for i, text := range texts {
		chunks[i] = sheaf.Chunk{ID: sheaf.ChunkID(rangeID, i), DocumentID: "doc-" + rangeID, Generation: 1, RangeID: rangeID, Ordinal: i, Kind: sheaf.ChunkText, Language: "en", Text: text,
			Pages: []int{i + 1}, Boxes: []sheaf.Box{{Page: i + 1, X0: 10, Y0: 20, X1: 300, Y1: 40}}}
	}
	var b bytes.Buffer
	if err := artifact.Encode(&b, artifact.Header{DocumentID: "doc-" + rangeID, Generation: 1, RangeID: rangeID, Range: sheaf.Range{From: 1, To: len(texts)}}, chunks, nil); err != nil {
		t.Fatal(err)
	}
	key := sheaf.ArtifactKey("t", "doc-"+rangeID, rangeID)
	if _, err := blobs.Put(t.Context(), key, &b, int64(b.Len())); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		s.live, s.hidden = map[string][]taskstore.LiveResult{}, map[string]map[string]bool{}
	}
	s.live[dataset] = append(s.live[dataset], taskstore.LiveResult{RangeID: rangeID, DocumentID: "doc-" + rangeID, Name: rangeID + ".pdf", ArtifactKey: key, Chunks: len(texts), Cursor: rangeID})
	return chunks
}

func opened(t *testing.T) blob.Store {
	t.Helper()
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return blobs
}

var texts = []string{
	"So Alice Smith, Acme Corp signed with Globex Inc in Paris. So Acme Corp paid Globex Inc.",
	"So Acme Corp and Globex Inc met in Paris. So Alice Smith told Acme Corp.",
	"With Linux and PostgreSQL the platform team is happy. They told Bob Jones that Linux and PostgreSQL run.",
}

func (s *Service) view(t *testing.T, dataset string) *View {
	t.Helper()
	v, err := s.View(t.Context(), "t", dataset)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLostArtifactDoesNotMakeTheGraphAnew(t *testing.T) {
	store := &shelf{live: map[string][]taskstore.LiveResult{"d": {{RangeID: "r1", ArtifactKey: "artifacts/gone", Chunks: 3, Cursor: "r1"}}}}
	s := &Service{Store: store, Blobs: opened(t), Bounds: Bounds{Fresh: time.Nanosecond}}
	first, again := s.view(t, "d"), s.view(t, "d")
	if first.Failed != 1 || again.Failed != 1 {
		t.Errorf("%d and %d ranges could not be read, want 1", first.Failed, again.Failed)
	}
	if first.Graph != again.Graph {
		t.Error("the graph was made anew though nothing of it changed")
	}
	if store.lists != 2 {
		t.Errorf("what could not be read was looked for %d times, want 2", store.lists)
	}
}

// A dataset is listed again only after it has changed, and then only what has
// changed is read.
func TestUnchangedDatasetIsNotListed(t *testing.T) {
	store, blobs := &shelf{}, opened(t)
	store.add(t, blobs, "d", "r1", texts...)
	s := &Service{Store: store, Blobs: blobs, Bounds: Bounds{Fresh: time.Nanosecond}}
	first := s.view(t, "d")
	for range 3 {
		if v := s.view(t, "d"); v != first {
			t.Fatal("another view of the same")
		}
	}
	if store.lists != 1 {
		t.Errorf("the dataset was listed %d times, want 1", store.lists)
	}
	store.add(t, blobs, "d", "r2", texts[2])
	if err := blobs.Delete(t.Context(), sheaf.ArtifactKey("t", "doc-r1", "r1")); err != nil { // it is not read again
		t.Fatal(err)
	}
	second := s.view(t, "d")
	if linux, _ := second.Graph.Find("Linux"); second.Failed != 0 || len(second.Graph.Entities[linux].Chunks) != 2 {
		t.Errorf("after a document came, %d ranges failed and Linux has %d chunks", second.Failed, len(second.Graph.Entities[linux].Chunks))
	}
	store.mu.Lock()
	store.hidden["r2"], store.edits = map[string]bool{sheaf.ChunkID("r2", 0): true}, 1
	store.mu.Unlock()
	third := s.view(t, "d")
	if linux, found := third.Graph.Find("Linux"); !found || len(third.Graph.Entities[linux].Chunks) != 1 {
		t.Errorf("after a chunk was hidden Linux (%v) has %d chunks of %v", found, len(third.Graph.Entities[linux].Chunks), third.Graph.Sources)
	}
}

// TestASplitIsSeenAtOnce: also one of capitals, for which the chunks are read again,
// and what is taken back leaves the graph as it was.
func TestASplitIsSeenAtOnce(t *testing.T) {
	store, blobs := &shelf{}, opened(t)
	store.add(t, blobs, "d", "r1", "So Apple, Steve Jobs and Acme Corp met. So Apple paid Acme Corp.", "So APPLE feeds Orchard Ltd. So APPLE is of Orchard Ltd and Acme Corp.",
		"The Information Technology (IT) unit likes Acme Corp. Our IT unit likes Acme Corp and Information Technology.")
	s := &Service{Store: store, Blobs: blobs, Bounds: Bounds{Fresh: time.Nanosecond}}
	first := s.view(t, "d")
	keys := func(g *View) (out []string) {
		for _, name := range []string{"APPLE", "Apple", "IT", "Information Technology"} {
			e, ok := g.Graph.Find(name)
			if !ok {
				t.Fatalf("%s is gone", name)
			}
			out = append(out, g.Graph.Entities[e].Key)
		}
		return out
	}
	for _, c := range []struct {
		splits [][]string
		want   []string
	}{
		{nil, []string{"apple", "apple", "information technology", "information technology"}},
		{[][]string{{"IT", "Information Technology"}}, []string{"apple", "apple", "it", "information technology"}},
		{[][]string{{"IT", "Information Technology"}, {"Apple", "APPLE"}}, []string{"APPLE", "Apple", "it", "information technology"}},
		{[][]string{{"Apple", "APPLE"}}, []string{"APPLE", "Apple", "information technology", "information technology"}},
	} {
		store.mu.Lock()
		store.splits = c.splits
		store.mu.Unlock()
		if got := keys(s.view(t, "d")); !slices.Equal(got, c.want) {
			t.Errorf("with %q: %q, want %q", c.splits, got, c.want)
		}
		s.view(t, "d") // what was read is kept
	}
	store.mu.Lock()
	store.splits = nil
	store.mu.Unlock()
	if last := s.view(t, "d"); !reflect.DeepEqual(last.Graph, first.Graph) {
		t.Errorf("after all was taken back: %+v, want %+v", last.Graph, first.Graph)
	}

	for _, c := range []struct {
		names []string
		says  string // "" for none
	}{
		{[]string{"IT", "Information Technology"}, ""},
		{[]string{"it's\u202e", "information technology"}, ""}, // as they are written does not matter
		{[]string{"Apple", "APPLE"}, ""},
		{[]string{"Apple", "apple"}, ""},
		{nil, "2 to 10"},
		{[]string{"IT"}, "2 to 10"},
		{strings.Split("a b c d e f g h i j k", " "), "2 to 10"},
		{[]string{"IT", "IT's"}, "same name"},
		{[]string{"Acme Corp", "IT", "IT"}, "same name"},
		{[]string{"IT", "\u202e\u202d"}, "no letter"},
		{[]string{"IT", strings.Repeat("x", 1<<20)}, "at most 200"},
		{[]string{"IT", "Acme"}, "perhaps you mean Acme Corp"},
		{[]string{"IT", "nobody"}, "no entity"},
		{[]string{"Apple", "aPPle"}, "no chunk writes aPPle"},
	} {
		got, err := s.CheckSplit(t.Context(), "t", "d", c.names)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || !errors.Is(err, sheaf.ErrInvalid) && !errors.Is(err, sheaf.ErrNotFound)) || err == nil && len(got) != len(c.names) {
			t.Errorf("%.60q: %q, %v, want %q", c.names, got, err, c.says)
		}
	}
}

// A summary says once more what its chunks say: it is no further support.
func TestSummariesCountForNothing(t *testing.T) {
	if c := contribution(&sheaf.Chunk{Kind: sheaf.ChunkSummary, Language: "en", Text: texts[0]}, "r", &taskstore.VisibleRange{}, nil); len(c.Extraction.Mentions) > 0 {
		t.Errorf("a summary names %d entities", len(c.Extraction.Mentions))
	}
	if c := contribution(&sheaf.Chunk{Kind: sheaf.ChunkText, Language: "en", Text: texts[0]}, "r", &taskstore.VisibleRange{}, nil); len(c.Extraction.Mentions) == 0 {
		t.Error("its chunks name none")
	}
}

func TestGraphsAreBoundedByBytes(t *testing.T) {
	store, blobs := &shelf{}, opened(t)
	for _, d := range []string{"a", "b", "c"} {
		store.add(t, blobs, d, "r-"+d, texts...)
	}
	s := &Service{Store: store, Blobs: blobs, Bounds: Bounds{Fresh: time.Hour}}
	first := s.view(t, "a")
	if first.size < 2000 || first.size > 100_000 {
		t.Errorf("a graph of three chunks takes %d bytes", first.size)
	}
	s.Bounds.Bytes = 2*(first.size+emptySize) + emptySize
	s.view(t, "b")
	if s.view(t, "a") != first {
		t.Error("a graph was forgotten though there is room for it")
	}
	s.view(t, "c") // b was not asked for the longest
	if s.view(t, "a") != first {
		t.Error("the graph that was asked for later was forgotten")
	}
	lists := store.lists
	if s.view(t, "b"); store.lists == lists {
		t.Error("three graphs are held where there is room for two")
	}
	s.Bounds.Bytes = 1
	s.view(t, "c")
	if len(s.held) != 1 {
		t.Errorf("%d graphs are held where there is room for none but the last", len(s.held))
	}
}

func TestUnusedGraphsAreForgotten(t *testing.T) {
	store, blobs := &shelf{}, opened(t)
	store.add(t, blobs, "d", "r1", texts...)
	s := &Service{Store: store, Blobs: blobs}
	first := s.view(t, "d")
	age := func(by time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[0].used = s.held[0].used.Add(-by)
		s.forget()
	}
	if age(idle - time.Minute); s.view(t, "d") != first {
		t.Error("a graph was forgotten too early")
	}
	if age(idle); len(s.held) != 0 || s.sweep != nil {
		t.Errorf("%d graphs are held that nobody asks for", len(s.held))
	}
	s.Bounds.Idle = time.Millisecond // and nobody asks for any
	s.view(t, "d")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		held := len(s.held)
		s.mu.Unlock()
		if held == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a graph that nobody asks for stays")
		}
	}
}

func TestPanicIsTheErrorOfOneDataset(t *testing.T) {
	store, blobs := &shelf{panics: true}, opened(t)
	store.add(t, blobs, "d", "r1", texts...)
	s := &Service{Store: store, Blobs: blobs}
	for range 2 {
		_, err := s.View(t.Context(), "t", "d")
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "graph_failed" || !strings.Contains(f.Message, "could not be made") {
			t.Fatalf("a graph that panics: %v", err)
		}
	}
	if store.lists != 1 {
		t.Errorf("what panics was tried %d times at once", store.lists)
	}
	store.panics = false
	s.held[0].again = time.Now() // its rest is over
	if v := s.view(t, "d"); len(v.Graph.Entities) == 0 {
		t.Error("the graph is empty after the fault is gone")
	}
}

// Whatever a graph answers stands on chunks that are there, by their pages and boxes.
func TestGraphHitsHavePagesAndBoxes(t *testing.T) {
	store, blobs := &shelf{}, opened(t)
	chunks := map[string]sheaf.Chunk{}
	for _, c := range store.add(t, blobs, "d", "r1", texts...) {
		chunks[c.ID] = c
	}
	for _, c := range store.add(t, blobs, "d", "r2", texts[1], texts[2]) {
		chunks[c.ID] = c
	}
	s := &Service{Store: store, Blobs: blobs}
	for _, mode := range []search.GraphMode{search.GraphLocal, search.GraphGlobal} {
		hits, info, err := s.FindInGraph(t.Context(), "t", "d", "What did Acme Corp sign?", mode, 10, func(*search.Hit) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		if len(hits) == 0 || len(info.Entities) == 0 {
			t.Fatalf("%s finds %d hits and %d entities", mode, len(hits), len(info.Entities))
		}
		for _, h := range hits {
			want := chunks[h.Chunk.ID]
			if want.ID == "" || h.Chunk.Text != want.Text || !slices.Equal(h.Chunk.Pages, want.Pages) || !slices.Equal(h.Chunk.Boxes, want.Boxes) || h.Document.ID != want.DocumentID || h.Scores.Graph <= 0 {
				t.Errorf("%s: the hit %+v is not the chunk %+v", mode, h, want)
			}
		}
		var sources []search.GraphSource
		for _, e := range info.Entities {
			sources = append(sources, e.Sources...)
		}
		for _, r := range info.Relations {
			sources = append(sources, r.Sources...)
		}
		for _, src := range sources {
			want := chunks[src.ChunkID]
			if want.ID == "" || src.DocumentID != want.DocumentID || !slices.Equal(src.Pages, want.Pages) || !slices.Equal(src.Boxes, want.Boxes) {
				t.Errorf("%s: the source %+v is not the chunk %+v", mode, src, want)
			}
		}
	}
}

// Names of a megabyte and names that turn the direction of writing round are no
// entities, or shown without what makes them dangerous.
func TestHostileNamesAreHarmless(t *testing.T) {
	store, blobs := &shelf{}, opened(t)
	long := "A" + strings.Repeat("b", 1<<20)
	bidi := "Evil\u202eproC \u2066Corp\u2069 \u200fGroup\x00"
	var hostile []string
	for range 3 {
		hostile = append(hostile, "So Acme Corp told "+long+" of Globex Inc. So Acme Corp met Globex Inc.", "So Acme Corp met "+bidi+" and Globex Inc. So "+bidi+" met Globex Inc.")
	}
	store.add(t, blobs, "d", "r1", hostile...)
	s := &Service{Store: store, Blobs: blobs}
	v := s.view(t, "d")
	if _, ok := v.Graph.Find("Acme Corp"); !ok {
		t.Fatal("what stands beside hostile names is not found")
	}
	var out bytes.Buffer
	if err := s.WriteGraphML(t.Context(), "t", "d", &out); err != nil {
		t.Fatal(err)
	}
	part, err := s.Around(t.Context(), "t", "d", "", 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range part.Entities {
		if len(e.Name) > 200 || len(e.ID) > 200 {
			t.Errorf("a name has %d bytes", len(e.Name))
		}
		out.WriteString(e.Name + e.ID)
	}
	for _, c := range part.Communities {
		out.WriteString(c.Title)
	}
	if said := out.String(); strings.ContainsAny(said, "\u202e\u2066\u2069\u200f\x00") || len(said) > 1<<16 {
		t.Errorf("%d bytes that may turn the direction of writing round", len(said))
	}
	if _, err := s.Around(t.Context(), "t", "d", long, 1, 10); !errors.Is(err, sheaf.ErrNotFound) || len(err.Error()) > 1000 {
		t.Errorf("an entity of a megabyte is asked for: %.200v", err)
	}
}

// Equal chunks give equal answers, in whatever order the store lists them.
func TestAnswersHaveOneOrder(t *testing.T) {
	store, blobs := &shelf{random: rand.New(rand.NewPCG(1, 1))}, opened(t)
	random := rand.New(rand.NewPCG(2, 2))
	for r := range 12 {
		var some []string
		for range 4 {
			var b strings.Builder
			for range 4 {
				fmt.Fprintf(&b, "So Person%cx met Person%cx and Place%cx. ", 'A'+rune(random.IntN(12)), 'A'+rune(random.IntN(12)), 'A'+rune(random.IntN(6)))
			}
			some = append(some, b.String())
		}
		store.add(t, blobs, "d", fmt.Sprintf("r%02d", r), some...)
	}
	var first []any
	for round := range 4 {
		s := &Service{Store: store, Blobs: blobs}
		v := s.view(t, "d")
		var out bytes.Buffer
		if err := s.WriteGraphML(t.Context(), "t", "d", &out); err != nil {
			t.Fatal(err)
		}
		got := []any{out.String()}
		for _, mode := range []search.GraphMode{search.GraphLocal, search.GraphGlobal} {
			hits, info, err := s.FindInGraph(t.Context(), "t", "d", "PersonAx and PlaceBx", mode, 20, func(*search.Hit) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			info.BuiltAt = time.Time{}
			b, err := json.Marshal([]any{hits, info})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(b))
		}
		if round == 0 {
			if first = got; len(v.Graph.Entities) < 10 {
				t.Fatalf("%d entities are too few to have an order", len(v.Graph.Entities))
			}
		} else if !reflect.DeepEqual(got, first) {
			t.Fatalf("round %d answers another way:\n%.3000s\n%.3000s", round, got, first)
		}
	}
}
