// Package indextest is a test suite for the contract of index.Index, which every
// engine must pass.
package indextest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/internal/index"
)

// Dim is the width of the vectors in the suite.
const Dim = 48

// Engine creates indexes for the suite.
type Engine struct {
	// New creates an empty index with vectors of Dim values and removes it at the
	// end of the test.
	New func(t *testing.T) index.Index
	// Reopen closes x, which New created, and opens the same index again.
	Reopen func(t *testing.T, x index.Index) index.Index
}

// Vector makes a unit vector that depends only on seed.
func Vector(seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]float32, Dim)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return unit(v)
}

func unit(v []float32) []float32 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

// near is v rotated slightly.
func near(v []float32, by float32, seed uint64) []float32 {
	out := slices.Clone(v)
	for i, x := range Vector(seed) {
		out[i] += by * x
	}
	return unit(out)
}

const (
	acme    = "acme"
	manuals = "manuals"
)

// entry makes an entry of tenant acme, dataset manuals. id is "document/range/n".
func entry(id, text string, change ...func(*index.Entry)) index.Entry {
	parts := strings.Split(id, "/")
	e := index.Entry{
		Chunk: sheaf.Chunk{
			ID: strings.ReplaceAll(id, "/", "-"), DocumentID: parts[0], RangeID: parts[0] + "-" + parts[1], Generation: 1,
			Kind: sheaf.ChunkText, Text: text, Tokens: len(text) / 4, Pages: []int{1},
		},
		TenantID: acme, DatasetID: manuals, Name: "file.bin", MediaType: "application/pdf",
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

func write(t *testing.T, x index.Index, entries ...index.Entry) {
	t.Helper()
	if err := x.Write(t.Context(), entries); err != nil {
		t.Fatalf("Write: %v", err)
	}
	refresh(t, x)
}

func refresh(t *testing.T, x index.Index) {
	t.Helper()
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatalf("Refresh: %v", err)
	}
}

func search(t *testing.T, x index.Index, q index.Query) index.Candidates {
	t.Helper()
	if q.TenantID == "" {
		q.TenantID = acme
	}
	if q.K == 0 {
		q.K = 20
	}
	c, err := x.Search(t.Context(), q)
	if err != nil {
		t.Fatalf("Search %+v: %v", q, err)
	}
	for _, side := range [][]index.Hit{c.Text, c.Vector} {
		if len(side) > q.K {
			t.Errorf("%d hits where %d were asked for", len(side), q.K)
		}
		if !slices.IsSortedFunc(side, func(a, b index.Hit) int { return -compare(a.Score, b.Score) }) {
			t.Error("hits are not ordered best first")
		}
	}
	return c
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func ids(hits []index.Hit) []string {
	out := []string{}
	for _, h := range hits {
		out = append(out, h.Chunk.ID)
	}
	slices.Sort(out)
	return out
}

func expect(t *testing.T, what string, hits []index.Hit, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	slices.Sort(want)
	if got := ids(hits); !slices.Equal(got, want) {
		t.Errorf("%s: found %v, want %v", what, got, want)
	}
}

func scan(t *testing.T, x index.Index, tenant string) []string {
	t.Helper()
	out := []string{}
	err := x.Scan(t.Context(), tenant, func(chunk, rng, document string) bool {
		out = append(out, chunk+" "+rng+" "+document)
		return true
	})
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	slices.Sort(out)
	return out
}

func canonical(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Run tests the engine against the contract.
func Run(t *testing.T, e Engine) {
	tests := []struct {
		name string
		run  func(t *testing.T, e Engine)
	}{
		{"AllFieldsOfAChunkComeBack", roundTrip},
		{"AWriteMayBeRepeated", idempotent},
		{"FiltersAloneAndTogether", filters},
		{"TenantsDoNotSeeEachOther", tenants},
		{"PagesInTheGapsDoNotMatch", pages},
		{"NameAndHeadingsAreFoundAndNotStored", context1},
		{"WordsAreFoundInTheirForms", forms},
		{"OtherSpellings", spellings},
		{"NamesCountMoreThanText", names},
		{"SimilarWords", similar},
		{"ScriptsWithoutSpaces", ideographs},
		{"ExactPhrases", phrases},
		{"AnyWordWillDoWhenNoChunkHasAll", loose},
		{"HostileQueriesAreWords", hostile},
		{"EqualTextsStayApart", equalTexts},
		{"NearestVectorsComeFirst", nearest},
		{"ZeroVectorsAreNotFoundByMeaning", zeroVectors},
		{"DeleteDocument", deleteDocument},
		{"DeleteRanges", deleteRanges},
		{"DeletedChunksMayComeBack", comeBack},
		{"CountsOfRanges", counts},
		{"HighlightIsEscaped", highlight},
		{"AThousandEntriesInOneWrite", thousand},
		{"ABadEntryIsAnError", badEntry},
		{"BadQueriesAreRefused", badQueries},
		{"ScanStopsWhenToldTo", scanStops},
		{"WritersAndReadersTogether", concurrent},
		{"EverythingIsThereAfterReopening", reopen},
		{"CanceledCallsReturn", canceled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

func roundTrip(t *testing.T, e Engine) {
	x := e.New(t)
	full := entry("doc/r1/0", "Torque the M8 bolts to 24 Nm.", func(e *index.Entry) {
		e.Chunk.Generation, e.Chunk.Ordinal, e.Chunk.Kind, e.Chunk.Tokens = 3, sheaf.OrdinalBase(7)+2, sheaf.ChunkTable, 11
		e.Chunk.Pages = []int{7, 8}
		e.Chunk.Boxes = []sheaf.Box{{Page: 7, X0: 72.25, Y0: 100, X1: 300.5, Y1: 112.125}, {Page: 8, X0: 1, Y0: 2, X1: 3, Y1: 4}}
		e.Chunk.HeadingPath = []string{"Assembly", "Frame <3>"}
		e.Chunk.Columns = map[string]any{"part.no": "M8-24", "torque": 24.5, "ok": true, "": "empty name", "nested": map[string]any{"a": []any{"b", 1.0}}}
		e.Chunk.Metadata = map[string]string{"author": "Zoë", "a.b": "dotted", "long": strings.Repeat("x", 40000)}
		e.Chunk.Language, e.Chunk.Keywords, e.Chunk.Tags = "en", []string{"Bolt"}, []sheaf.Tag{{Name: "Fasteners", Weight: 0.75}}
		e.Vector = Vector(1)
	})
	least := index.Entry{Chunk: sheaf.Chunk{ID: "least-0", DocumentID: "least", RangeID: "least-r", Text: "Torque of least."}, TenantID: acme, DatasetID: manuals}
	write(t, x, full, least)
	c := search(t, x, index.Query{Text: "torque", Vector: Vector(1)})
	expect(t, "words", c.Text, "doc-r1-0", "least-0")
	expect(t, "meaning", c.Vector, "doc-r1-0")
	for _, h := range append(c.Text, c.Vector...) {
		want := full.Chunk
		if h.Chunk.ID == "least-0" {
			want = least.Chunk
		}
		if got, want := canonical(t, h.Chunk), canonical(t, want); !reflect.DeepEqual(got, want) {
			t.Errorf("chunk came back as %v, want %v", got, want)
		}
		if h.Score <= 0 {
			t.Errorf("score %g of a match is not positive", h.Score)
		}
	}
}

func idempotent(t *testing.T, e Engine) {
	x := e.New(t)
	first := entry("doc/r1/0", "the first text", func(e *index.Entry) { e.Vector = Vector(1) })
	again := entry("doc/r1/0", "another text under the same id", func(e *index.Entry) { e.Vector = Vector(2) })
	write(t, x, first)
	write(t, x, first, entry("doc/r1/1", "second chunk"))
	write(t, x, again, again)
	expect(t, "the first write counts", search(t, x, index.Query{Text: "first"}).Text, "doc-r1-0")
	expect(t, "the repetition does not", search(t, x, index.Query{Text: "another"}).Text)
	if c := search(t, x, index.Query{Vector: Vector(1)}); len(c.Vector) != 1 || math.Abs(c.Vector[0].Score-1) > 0.02 {
		t.Errorf("vector side has %+v, want the first vector alone", c.Vector)
	}
	if n, err := x.Count(t.Context(), acme, []string{"doc-r1"}); err != nil || n["doc-r1"] != 2 {
		t.Errorf("count %v, %v, want 2", n, err)
	}
	if err := x.Write(t.Context(), nil); err != nil {
		t.Errorf("a write of nothing: %v", err)
	}
}

func filters(t *testing.T, e Engine) {
	x := e.New(t)
	v := Vector(9)
	all := []index.Entry{
		entry("a/r1/0", "pump", func(e *index.Entry) {
			e.Chunk.Pages = []int{1}
			e.Chunk.Metadata = map[string]string{"lang": "en", "year": "2024"}
			e.Chunk.Language, e.Chunk.Keywords, e.Chunk.Tags = "en", []string{"Heat  Pump", "valve"}, []sheaf.Tag{{Name: "Überdruck", Weight: 1}}
		}),
		entry("a/r1/1", "pump", func(e *index.Entry) {
			e.Chunk.Pages = []int{2, 3}
			e.Chunk.Metadata = map[string]string{"lang": "de"}
			e.Chunk.Language = "de"
			e.Chunk.Keywords = []string{"VALVE", "valve", strings.Repeat("long ", 9000)}
		}),
		entry("b/r1/0", "pump", func(e *index.Entry) { e.MediaType = "text/html"; e.Chunk.Pages = []int{9} }),
		entry("c/r1/0", "pump", func(e *index.Entry) {
			e.DatasetID = "laws"
			e.Chunk.Metadata = map[string]string{"lang": "en"}
			e.Chunk.Pages = nil
			e.Chunk.Language, e.Chunk.Tags = "en", []sheaf.Tag{{Name: "valve", Weight: 0.5}, {Name: "law", Weight: 0.25}}
		}),
		entry("d/r1/0", "pump", func(e *index.Entry) {
			e.DatasetID, e.MediaType = "news", "text/html"
			e.Chunk.Kind, e.Chunk.Layer, e.Chunk.Children = sheaf.ChunkSummary, 1, []string{"a-r1-0", "b-r1-0"}
			e.Chunk.Metadata = map[string]string{sheaf.MetadataLayer: "1"}
		}),
	}
	for i := range all {
		all[i].Vector = near(v, 0.2, uint64(i))
	}
	write(t, x, all...)
	for _, test := range []struct {
		name string
		q    index.Query
		want []string
	}{
		{"nothing", index.Query{}, []string{"a-r1-0", "a-r1-1", "b-r1-0", "c-r1-0", "d-r1-0"}},
		{"dataset", index.Query{DatasetIDs: []string{"laws"}}, []string{"c-r1-0"}},
		{"datasets", index.Query{DatasetIDs: []string{"laws", "news", "none"}}, []string{"c-r1-0", "d-r1-0"}},
		{"document", index.Query{DocumentIDs: []string{"a"}}, []string{"a-r1-0", "a-r1-1"}},
		{"documents", index.Query{DocumentIDs: []string{"a", "b"}}, []string{"a-r1-0", "a-r1-1", "b-r1-0"}},
		{"media type", index.Query{MediaTypes: []string{"text/html"}}, []string{"b-r1-0", "d-r1-0"}},
		{"media types", index.Query{MediaTypes: []string{"text/html", "application/pdf"}}, []string{"a-r1-0", "a-r1-1", "b-r1-0", "c-r1-0", "d-r1-0"}},
		{"one page", index.Query{PageFrom: 3, PageTo: 3}, []string{"a-r1-1"}},
		{"from page", index.Query{PageFrom: 3}, []string{"a-r1-1", "b-r1-0"}},
		{"to page", index.Query{PageTo: 2}, []string{"a-r1-0", "a-r1-1", "d-r1-0"}},
		{"metadata", index.Query{Metadata: map[string]string{"lang": "en"}}, []string{"a-r1-0", "c-r1-0"}},
		{"metadata pairs", index.Query{Metadata: map[string]string{"lang": "en", "year": "2024"}}, []string{"a-r1-0"}},
		{"metadata of nobody", index.Query{Metadata: map[string]string{"lang": "fr"}}, nil},
		{"metadata is no prefix", index.Query{Metadata: map[string]string{"lang": "e"}}, nil},
		{"dataset and metadata", index.Query{DatasetIDs: []string{manuals}, Metadata: map[string]string{"lang": "en"}}, []string{"a-r1-0"}},
		{"document and page", index.Query{DocumentIDs: []string{"a"}, PageFrom: 2, PageTo: 9}, []string{"a-r1-1"}},
		{"language", index.Query{Languages: []string{"en"}}, []string{"a-r1-0", "c-r1-0"}},
		{"languages", index.Query{Languages: []string{"DE", "fr"}}, []string{"a-r1-1"}},
		{"language of nobody", index.Query{Languages: []string{"fr"}}, nil},
		{"keyword", index.Query{Keywords: []string{"Valve"}}, []string{"a-r1-0", "a-r1-1"}},
		{"keywords", index.Query{Keywords: []string{"heat pump", "none"}}, []string{"a-r1-0"}},
		{"a very long keyword", index.Query{Keywords: []string{strings.Repeat("long ", 9000)}}, []string{"a-r1-1"}},
		{"keyword is no word of one", index.Query{Keywords: []string{"pump"}}, nil},
		{"tag", index.Query{Tags: []string{"überdruck"}}, []string{"a-r1-0"}},
		{"tags", index.Query{Tags: []string{"law", "ÜBERDRUCK"}}, []string{"a-r1-0", "c-r1-0"}},
		{"summaries alone", index.Query{Summaries: index.OnlySummaries}, []string{"d-r1-0"}},
		{"no summaries", index.Query{Summaries: index.NoSummaries}, []string{"a-r1-0", "a-r1-1", "b-r1-0", "c-r1-0"}},
		{"summaries of another dataset", index.Query{Summaries: index.OnlySummaries, DatasetIDs: []string{manuals}}, nil},
		{"tag is no keyword", index.Query{Tags: []string{"valve"}}, []string{"c-r1-0"}},
		{"language and keyword", index.Query{Languages: []string{"en"}, Keywords: []string{"valve"}}, []string{"a-r1-0"}},
		{"keyword and tag", index.Query{Keywords: []string{"valve"}, Tags: []string{"law"}}, nil},
		{"contradiction", index.Query{DocumentIDs: []string{"c"}, DatasetIDs: []string{manuals}}, nil},
		{"all", index.Query{DatasetIDs: []string{manuals}, DocumentIDs: []string{"a", "b"}, MediaTypes: []string{"application/pdf"}, PageFrom: 1, PageTo: 3, Metadata: map[string]string{"lang": "de"}}, []string{"a-r1-1"}},
	} {
		test.q.Text, test.q.Vector = "pump", v
		c := search(t, x, test.q)
		expect(t, test.name+", words", c.Text, test.want...)
		expect(t, test.name+", meaning", c.Vector, test.want...)
	}
	// A filter works before the best K are chosen, not after.
	c := search(t, x, index.Query{Text: "pump", Vector: all[0].Vector, K: 1, DocumentIDs: []string{"d"}})
	expect(t, "K after the filter, words", c.Text, "d-r1-0")
	expect(t, "K after the filter, meaning", c.Vector, "d-r1-0")
	// Among the maximum number of documents in a filter.
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprintf("nobody-%d", i)
	}
	many[9_999] = "d"
	c = search(t, x, index.Query{Text: "pump", Vector: all[0].Vector, DocumentIDs: many})
	expect(t, "one of many documents, words", c.Text, "d-r1-0")
	expect(t, "one of many documents, meaning", c.Vector, "d-r1-0")
	// One side alone.
	if c := search(t, x, index.Query{Text: "pump"}); len(c.Vector) != 0 || len(c.Text) != 5 {
		t.Errorf("words alone: %d and %d hits", len(c.Text), len(c.Vector))
	}
	if c := search(t, x, index.Query{Vector: v}); len(c.Text) != 0 || len(c.Vector) != 5 {
		t.Errorf("meaning alone: %d and %d hits", len(c.Text), len(c.Vector))
	}
	if c := search(t, x, index.Query{}); len(c.Text)+len(c.Vector) != 0 {
		t.Error("a query of nothing found something")
	}
}

func tenants(t *testing.T, e Engine) {
	x := e.New(t)
	other := func(e *index.Entry) { e.TenantID = "umbrella" }
	a, b := entry("a/r1/0", "secret formula"), entry("b/r1/0", "secret formula", other)
	a.Vector, b.Vector = Vector(1), Vector(1)
	write(t, x, a, b)
	for tenant, want := range map[string]string{acme: "a-r1-0", "umbrella": "b-r1-0"} {
		c := search(t, x, index.Query{TenantID: tenant, Text: "secret", Vector: Vector(1)})
		expect(t, tenant+", words", c.Text, want)
		expect(t, tenant+", meaning", c.Vector, want)
	}
	// Another tenant's ids are of no use: not for finding, counting or deleting.
	c := search(t, x, index.Query{Text: "secret", Vector: Vector(1), DocumentIDs: []string{"b"}})
	expect(t, "other's document, words", c.Text)
	expect(t, "other's document, meaning", c.Vector)
	if n, err := x.Count(t.Context(), acme, []string{"b-r1"}); err != nil || n["b-r1"] != 0 {
		t.Errorf("count of the other's range: %v, %v", n, err)
	}
	if err := errors.Join(x.DeleteDocument(t.Context(), acme, "b"), x.DeleteRanges(t.Context(), acme, []string{"b-r1"})); err != nil {
		t.Fatal(err)
	}
	refresh(t, x)
	if got := scan(t, x, "umbrella"); len(got) != 1 {
		t.Errorf("the other tenant's chunks: %v", got)
	}
	if got := scan(t, x, ""); len(got) != 2 {
		t.Errorf("all chunks: %v", got)
	}
	if got := scan(t, x, acme); !slices.Equal(got, []string{"a-r1-0 a-r1 a"}) {
		t.Errorf("own chunks: %v", got)
	}
}

func pages(t *testing.T, e Engine) {
	x := e.New(t)
	en := entry("a/r1/0", "valve", func(e *index.Entry) { e.Chunk.Pages = []int{12, 2, 5, 2}; e.Vector = Vector(1) })
	write(t, x, en)
	for _, test := range []struct {
		from, to int
		found    bool
	}{{2, 2, true}, {3, 4, false}, {5, 5, true}, {6, 11, false}, {12, 0, true}, {13, 0, false}, {0, 1, false}, {0, 2, true}, {4, 6, true}} {
		c := search(t, x, index.Query{Text: "valve", Vector: Vector(1), PageFrom: test.from, PageTo: test.to})
		if (len(c.Text) == 1) != test.found || (len(c.Vector) == 1) != test.found {
			t.Errorf("pages %d–%d: %d and %d hits, want found %v", test.from, test.to, len(c.Text), len(c.Vector), test.found)
		}
	}
}

func context1(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x, entry("a/r1/0", "Press the button.", func(e *index.Entry) {
		e.Name = "Dishwasher_G7000-manual.pdf"
		e.Chunk.HeadingPath = []string{"Troubleshooting", "Leaking water"}
	}))
	for _, q := range []string{"dishwasher", "troubleshooting", "leaking", "button", "dishwasher leaking button", "manual"} {
		expect(t, q, search(t, x, index.Query{Text: q}).Text, "a-r1-0")
	}
	if c := search(t, x, index.Query{Text: "leaking", Highlight: true}); len(c.Text) != 1 || c.Text[0].Chunk.Text != "Press the button." || c.Text[0].Highlight != "Press the button." {
		t.Errorf("got %+v, want the text alone", c.Text)
	}
}

func forms(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("a/r1/0", "The filters were cleaned. Error code E-1042 appears, see section X-200."),
		entry("b/r1/0", "Crème brûlée at the café; naïve résumé."),
		entry("c/r1/0", "The user's guide doesn't mention it. Straße, ЗАЩИТА данных, Ｗｉｄｅ letters."),
	)
	for q, want := range map[string]string{
		"filter": "a-r1-0", "FILTERS": "a-r1-0", "cleaning": "a-r1-0", "X-200": "a-r1-0", "E-1042": "a-r1-0", "1042": "a-r1-0",
		"creme": "b-r1-0", "BRÛLÉE": "b-r1-0", "cafe\u0301": "b-r1-0", "resume": "b-r1-0",
		"users": "c-r1-0", "straße": "c-r1-0", "защита": "c-r1-0", "wide": "c-r1-0",
	} {
		expect(t, q, search(t, x, index.Query{Text: q}).Text, want)
	}
	expect(t, "absent", search(t, x, index.Query{Text: "zebra"}).Text)
}

func spellings(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("a/r1/0", "Revenue of 2018 grew.", func(e *index.Entry) { e.Name = "COCACOLA_2018_10K.pdf" }),
		entry("b/r1/0", "Set deviceId before HTTPServer starts; COVID19 and Q32021.", func(e *index.Entry) { e.Name = "JPMORGAN.pdf" }),
		entry("c/r1/0", "Die Straße ist gesperrt. كِتَابٌ", func(e *index.Entry) { e.Chunk.HeadingPath = []string{"Days Payable Outstanding"} }),
	)
	for q, want := range map[string]string{
		"FY2018": "a-r1-0", "FY18": "a-r1-0", "2018": "a-r1-0", "Coca-Cola": "a-r1-0", "Coca Cola": "a-r1-0", "cocacola": "a-r1-0",
		"device": "b-r1-0", "server": "b-r1-0", "covid": "b-r1-0", "2021Q3": "b-r1-0", "JPM": "b-r1-0",
		"strasse": "c-r1-0", "STRASSE": "c-r1-0", "DPO": "c-r1-0", "كتاب": "c-r1-0",
	} {
		expect(t, q, search(t, x, index.Query{Text: q}).Text, want)
	}
	expect(t, "spellings are no part of phrases", search(t, x, index.Query{Text: `"10k 2018"`}).Text)
}

func similar(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("a/r1/0", "The quarterly statement of Corning."),
		entry("b/r1/0", "Die Frist der Kündigung beträgt drei Monate."),
		entry("c/r1/0", "Nothing else."),
	)
	for q, want := range map[string]string{"Coorning": "a-r1-0", "statment": "a-r1-0", "quartely": "a-r1-0", "Kündigungsfrist": "b-r1-0", "Kündigungsgründe": "b-r1-0", "quarter": "a-r1-0"} {
		expect(t, q, search(t, x, index.Query{Text: q, Similar: true}).Text, want)
	}
	expect(t, "nothing is like it", search(t, x, index.Query{Text: "zebra crossing", Similar: true}).Text)
	expect(t, "exactly", search(t, x, index.Query{Text: "Coorning"}).Text)
}

func names(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("a/r1/0", "Revenue grew.", func(e *index.Entry) { e.Name = "Corning annual report.pdf" }),
		entry("b/r1/0", "Revenue grew, said Corning.", func(e *index.Entry) { e.Name = "Walmart annual report.pdf" }),
		entry("c/r1/0", "Revenue grew at Walmart.", func(e *index.Entry) { e.Name = "Pfizer annual report.pdf" }),
		entry("d/r1/0", "Other words.", func(e *index.Entry) { e.Name = "Verizon annual report.pdf" }),
	)
	for q, want := range map[string]string{"revenue of Corning": "a-r1-0", "revenue of Walmart": "b-r1-0"} {
		if c := search(t, x, index.Query{Text: q}); len(c.Text) == 0 || c.Text[0].Chunk.ID != want {
			t.Errorf("%s: found %v, want %s first", q, ids(c.Text), want)
		}
	}
}

func ideographs(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("ja/r1/0", "全文検索エンジンの設定方法を説明します。"),
		entry("zh/r1/0", "请在设置页面重置密码。"),
		entry("ko/r1/0", "비밀번호를 재설정하려면 설정 페이지로 이동하세요."),
		entry("en/r1/0", "Reset the password on the settings page."),
	)
	for q, want := range map[string]string{
		"検索エンジン": "ja-r1-0", "設定方法": "ja-r1-0", "重置密码": "zh-r1-0", "密码": "zh-r1-0", "비밀번호": "ko-r1-0",
		"全文検索 engine 設定": "ja-r1-0", "password": "en-r1-0",
	} {
		c := search(t, x, index.Query{Text: q, Highlight: true})
		if len(c.Text) == 0 || c.Text[0].Chunk.ID != want {
			t.Errorf("%s: found %v, want %s first", q, ids(c.Text), want)
		} else if !strings.Contains(c.Text[0].Highlight, "<mark>") {
			t.Errorf("%s: nothing is marked in %s", q, c.Text[0].Highlight)
		}
	}
}

func phrases(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("a/r1/0", "Open the safety valve slowly."),
		entry("b/r1/0", "The valve has a safety label."),
		entry("c/r1/0", "Nothing about it, slowly."),
	)
	expect(t, "words", search(t, x, index.Query{Text: "safety valve"}).Text, "a-r1-0", "b-r1-0")
	expect(t, "phrase", search(t, x, index.Query{Text: `"safety valve"`}).Text, "a-r1-0")
	expect(t, "phrase and word", search(t, x, index.Query{Text: `slowly "safety valve"`}).Text, "a-r1-0")
	expect(t, "typographic quotes", search(t, x, index.Query{Text: `“safety valve”`}).Text, "a-r1-0")
	expect(t, "absent phrase", search(t, x, index.Query{Text: `"valve safety"`}).Text)
}

func loose(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("a/r1/0", "Replace the battery of the remote."),
		entry("b/r1/0", "The antenna receives the signal."),
		entry("c/r1/0", "Unrelated words."),
	)
	expect(t, "any", search(t, x, index.Query{Text: "battery antenna"}).Text, "a-r1-0", "b-r1-0")
	expect(t, "question", search(t, x, index.Query{Text: "How do I change the battery?"}).Text, "a-r1-0")
	both := search(t, x, index.Query{Text: "remote battery zebra"})
	if len(both.Text) == 0 || both.Text[0].Chunk.ID != "a-r1-0" {
		t.Errorf("found %v, want the chunk with two of three words first", ids(both.Text))
	}
}

func hostile(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x, entry("a/r1/0", `Use AND, OR and NOT with care: {name} NEAR(x, y) title:foo* "quoted" \path\to C++ x^2 -1 <tag> 100% O'Brien`, func(e *index.Entry) { e.Vector = Vector(1) }))
	for _, q := range []string{
		`"`, `""`, `"""`, `"unbalanced`, `'`, `O'Brien`, `\`, `\"`, `*`, `foo*`, `^`, `x^2`, `-`, `-1`, `--`, `AND`, `OR`, `NOT`, `NOT AND OR`,
		`NEAR(x, y)`, `title:foo`, `body : foo`, `{name}`, `{a b} : c`, `(`, `)`, `((`, `a AND (b OR`, `"a" + "b"`, `C++`, `100%`, `<tag>`, `</mark>`,
		`$1 ?1 :a @b`, `; DROP TABLE words; --`, "a\x00b", "\xff\xfe", "\u202e", "🙂", "~!@#$%^&*()_+`-={}|[]\\:;<>?,./", `{"query":{"match_all":{}}}`,
		strings.Repeat("word ", 5000), strings.Repeat("x", 100000), strings.Repeat(`"a b" `, 500), strings.Repeat("密", 3000), "a.b.c.d.e", "user@example.com", "https://example.com/a?b=c#d", "_id:*", "../../etc/passwd", "\n\t\r",
	} {
		c, err := x.Search(t.Context(), index.Query{TenantID: acme, Text: q, K: 10, Highlight: true, Vector: Vector(1)})
		if err != nil {
			t.Errorf("query %.40q: %v", q, err)
			continue
		}
		if len(c.Vector) != 1 {
			t.Errorf("query %.40q: the vector side found %d", q, len(c.Vector))
		}
	}
	for _, q := range []string{`foo*`, `title:foo`, `NEAR(x, y)`, `{name}`, `C++`, `O'Brien`, `"quoted"`, `\path\to`, `path\to`} {
		expect(t, q, search(t, x, index.Query{Text: q}).Text, "a-r1-0")
	}
	// If operators were interpreted, this would find or lose something.
	expect(t, "NOT is a word", search(t, x, index.Query{Text: "care NOT quoted"}).Text, "a-r1-0")
	expect(t, "minus is no operator", search(t, x, index.Query{Text: "care -quoted"}).Text, "a-r1-0")
	expect(t, "a star is no prefix", search(t, x, index.Query{Text: "nam*"}).Text)
	expect(t, "another field cannot be named", search(t, x, index.Query{Text: "document_id:a"}).Text)
}

func equalTexts(t *testing.T, e Engine) {
	x := e.New(t)
	var all []index.Entry
	var want []string
	for i := range 6 {
		en := entry(fmt.Sprintf("doc%d/r1/0", i), "All rights reserved.")
		en.Vector = Vector(1)
		all = append(all, en)
		want = append(want, en.Chunk.ID)
	}
	write(t, x, all...)
	c := search(t, x, index.Query{Text: "rights reserved", Vector: Vector(1)})
	expect(t, "words", c.Text, want...)
	expect(t, "meaning", c.Vector, want...)
}

func nearest(t *testing.T, e Engine) {
	x := e.New(t)
	v := Vector(77)
	var all []index.Entry
	for i := range 30 {
		en := entry(fmt.Sprintf("doc/r1/%d", i), "text")
		en.Vector = near(v, 0.1+0.2*float32(i), uint64(i)+1000)
		all = append(all, en)
	}
	write(t, x, all...)
	c := search(t, x, index.Query{Vector: v, K: 10})
	if len(c.Vector) != 10 {
		t.Fatalf("%d hits, want 10", len(c.Vector))
	}
	cosines := make(map[string]float64)
	for _, en := range all {
		var dot float64
		for i := range v {
			dot += float64(v[i]) * float64(en.Vector[i])
		}
		cosines[en.Chunk.ID] = dot
	}
	best := make([]float64, 0, len(cosines))
	for _, c := range cosines {
		best = append(best, c)
	}
	slices.Sort(best)
	for i, h := range c.Vector {
		if math.Abs(h.Score-cosines[h.Chunk.ID]) > 0.02 {
			t.Errorf("score of %s is %.4f, its cosine %.4f", h.Chunk.ID, h.Score, cosines[h.Chunk.ID])
		}
		if want := best[len(best)-1-i]; math.Abs(cosines[h.Chunk.ID]-want) > 0.03 {
			t.Errorf("hit %d has cosine %.4f, the %d-th best is %.4f", i, cosines[h.Chunk.ID], i, want)
		}
	}
}

func zeroVectors(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x,
		entry("a/r1/0", "alpha", func(e *index.Entry) { e.Vector = make([]float32, Dim) }),
		entry("b/r1/0", "alpha"),
		entry("c/r1/0", "alpha", func(e *index.Entry) { e.Vector = Vector(3) }),
	)
	c := search(t, x, index.Query{Text: "alpha", Vector: Vector(3)})
	expect(t, "words", c.Text, "a-r1-0", "b-r1-0", "c-r1-0")
	expect(t, "meaning", c.Vector, "c-r1-0")
	c = search(t, x, index.Query{Text: "alpha", Vector: make([]float32, Dim)})
	expect(t, "words beside a zero query", c.Text, "a-r1-0", "b-r1-0", "c-r1-0")
	expect(t, "zero query", c.Vector)
}

func deleteDocument(t *testing.T, e Engine) {
	x := e.New(t)
	for i := range 3 {
		for _, doc := range []string{"a", "b"} {
			write(t, x, entry(fmt.Sprintf("%s/r%d/0", doc, i), "paragraph", func(e *index.Entry) { e.Vector = Vector(uint64(i)); e.Chunk.Generation = i }))
		}
	}
	write(t, x, entry("a/r9/0", "paragraph"))
	refresh(t, x)
	counted := func(tenant, doc string, chunks, vectors int) {
		t.Helper()
		c, v, err := x.CountDocument(t.Context(), tenant, doc)
		if err != nil || c != chunks || v != vectors {
			t.Errorf("%s has %d chunks and %d vectors, want %d and %d: %v", doc, c, v, chunks, vectors, err)
		}
	}
	counted(acme, "a", 4, 3)
	counted(acme, "never-was", 0, 0)
	counted("another tenant", "a", 0, 0)
	for range 2 { // the second time there is nothing left to do
		if err := x.DeleteDocument(t.Context(), acme, "a"); err != nil {
			t.Fatal(err)
		}
	}
	refresh(t, x)
	counted(acme, "a", 0, 0)
	counted(acme, "b", 3, 3)
	c := search(t, x, index.Query{Text: "paragraph", Vector: Vector(0)})
	expect(t, "words", c.Text, "b-r0-0", "b-r1-0", "b-r2-0")
	expect(t, "meaning", c.Vector, "b-r0-0", "b-r1-0", "b-r2-0")
	if err := x.DeleteDocument(t.Context(), acme, "never-was"); err != nil {
		t.Errorf("an absent document: %v", err)
	}
	// It may be written again.
	write(t, x, entry("a/r0/0", "paragraph", func(e *index.Entry) { e.Vector = Vector(1) }))
	refresh(t, x)
	counted(acme, "a", 1, 1)
	c = search(t, x, index.Query{Text: "paragraph", DocumentIDs: []string{"a"}})
	expect(t, "words of one that came back", c.Text, "a-r0-0")
}

func deleteRanges(t *testing.T, e Engine) {
	x := e.New(t)
	var all []index.Entry
	for i := range 5 {
		for n := range 3 {
			en := entry(fmt.Sprintf("a/r%d/%d", i, n), "paragraph")
			en.Vector = Vector(uint64(i))
			all = append(all, en)
		}
	}
	write(t, x, all...)
	for range 2 {
		if err := x.DeleteRanges(t.Context(), acme, []string{"a-r0", "a-r3", "a-r9"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.DeleteRanges(t.Context(), acme, nil); err != nil {
		t.Errorf("no ranges: %v", err)
	}
	refresh(t, x)
	n, err := x.Count(t.Context(), acme, []string{"a-r0", "a-r1", "a-r2", "a-r3", "a-r4"})
	if err != nil || n["a-r0"]+n["a-r3"] != 0 || n["a-r1"] != 3 || n["a-r2"] != 3 || n["a-r4"] != 3 {
		t.Errorf("counts %v, %v", n, err)
	}
	c := search(t, x, index.Query{Text: "paragraph", Vector: Vector(0)})
	if len(c.Text) != 9 || len(c.Vector) != 9 {
		t.Errorf("%d and %d hits, want 9", len(c.Text), len(c.Vector))
	}
}

func comeBack(t *testing.T, e Engine) {
	x := e.New(t)
	en := entry("a/r1/0", "phoenix", func(e *index.Entry) { e.Vector = Vector(5) })
	for range 3 {
		write(t, x, en)
		c := search(t, x, index.Query{Text: "phoenix", Vector: Vector(5)})
		expect(t, "words", c.Text, "a-r1-0")
		expect(t, "meaning", c.Vector, "a-r1-0")
		if err := x.DeleteRanges(t.Context(), acme, []string{"a-r1"}); err != nil {
			t.Fatal(err)
		}
		refresh(t, x)
		c = search(t, x, index.Query{Text: "phoenix", Vector: Vector(5)})
		expect(t, "words after the deletion", c.Text)
		expect(t, "meaning after the deletion", c.Vector)
	}
}

func counts(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x, entry("a/r1/0", "x"), entry("a/r1/1", "x"), entry("a/r2/0", "x"))
	n, err := x.Count(t.Context(), acme, []string{"a-r1", "a-r2", "a-r3"})
	if err != nil || n["a-r1"] != 2 || n["a-r2"] != 1 || n["a-r3"] != 0 {
		t.Errorf("counts %v, %v", n, err)
	}
	if n, err := x.Count(t.Context(), acme, nil); err != nil || len(n) != 0 {
		t.Errorf("counts of nothing: %v, %v", n, err)
	}
	many := []string{"a-r1"}
	for i := range 3000 {
		many = append(many, fmt.Sprintf("absent-%d", i))
	}
	if n, err := x.Count(t.Context(), acme, append(many, "a-r2")); err != nil || n["a-r1"] != 2 || n["a-r2"] != 1 {
		t.Errorf("counts of many: %v, %v", n, err)
	}
}

func highlight(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x, entry("a/r1/0", `<script>alert("pumps")</script> & the Pump's <b>pumping</b> rate`))
	c := search(t, x, index.Query{Text: "pump rate", Highlight: true})
	want := `&lt;script&gt;alert(&#34;<mark>pumps</mark>&#34;)&lt;/script&gt; &amp; the <mark>Pump</mark>&#39;s &lt;b&gt;<mark>pumping</mark>&lt;/b&gt; <mark>rate</mark>`
	if len(c.Text) != 1 || c.Text[0].Highlight != want {
		t.Errorf("got %+v\nwant %s", c.Text, want)
	}
	if c := search(t, x, index.Query{Text: "pump"}); len(c.Text) != 1 || c.Text[0].Highlight != "" {
		t.Error("a highlight nobody asked for")
	}
}

func thousand(t *testing.T, e Engine) {
	x := e.New(t)
	var all []index.Entry
	for i := range 1000 {
		en := entry(fmt.Sprintf("doc/r1/%d", i), fmt.Sprintf("Paragraph number%d of the long report. %s", i, strings.Repeat("filler text ", 60)))
		en.Vector = Vector(uint64(i))
		all = append(all, en)
	}
	write(t, x, all...)
	if n, err := x.Count(t.Context(), acme, []string{"doc-r1"}); err != nil || n["doc-r1"] != 1000 {
		t.Errorf("count %v, %v", n, err)
	}
	if got := scan(t, x, acme); len(got) != 1000 {
		t.Errorf("scan gave %d", len(got))
	}
	expect(t, "one of them", search(t, x, index.Query{Text: "number777"}).Text, "doc-r1-777")
	c := search(t, x, index.Query{Text: "report", Vector: Vector(123), K: 1000})
	if len(c.Text) != 1000 || len(c.Vector) < 990 {
		t.Errorf("%d and %d hits of 1,000", len(c.Text), len(c.Vector))
	}
	if c.Vector[0].Chunk.ID != "doc-r1-123" {
		t.Errorf("nearest is %s", c.Vector[0].Chunk.ID)
	}
}

func badEntry(t *testing.T, e Engine) {
	x := e.New(t)
	for name, bad := range map[string]index.Entry{
		"wrong width": entry("a/r1/1", "x", func(e *index.Entry) { e.Vector = make([]float32, Dim+1); e.Vector[0] = 1 }),
		"no id":       entry("a/r1/1", "x", func(e *index.Entry) { e.Chunk.ID = "" }),
		"no range":    entry("a/r1/1", "x", func(e *index.Entry) { e.Chunk.RangeID = "" }),
		"no document": entry("a/r1/1", "x", func(e *index.Entry) { e.Chunk.DocumentID = "" }),
		"no tenant":   entry("a/r1/1", "x", func(e *index.Entry) { e.TenantID = "" }),
		"no dataset":  entry("a/r1/1", "x", func(e *index.Entry) { e.DatasetID = "" }),
		"page 0":      entry("a/r1/1", "x", func(e *index.Entry) { e.Chunk.Pages = []int{0, 1} }),
		"not JSON":    entry("a/r1/1", "x", func(e *index.Entry) { e.Chunk.Columns = map[string]any{"f": math.NaN()} }),
	} {
		if err := x.Write(t.Context(), []index.Entry{entry("a/r1/0", "good"), bad}); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: error %v is not ErrInvalid", name, err)
		}
	}
	if err := x.Write(t.Context(), []index.Entry{entry("a/r1/0", "good")}); err != nil {
		t.Errorf("the good one alone: %v", err)
	}
}

func badQueries(t *testing.T, e Engine) {
	x := e.New(t)
	for name, q := range map[string]index.Query{
		"no tenant":      {Text: "x", K: 1},
		"K 0":            {TenantID: acme, Text: "x"},
		"K too large":    {TenantID: acme, Text: "x", K: 1001},
		"pages reversed": {TenantID: acme, Text: "x", K: 1, PageFrom: 3, PageTo: 2},
		"other width":    {TenantID: acme, K: 1, Vector: []float32{1, 0}},
		"empty keyword":  {TenantID: acme, Text: "x", K: 1, Keywords: []string{" "}},
		"many tags":      {TenantID: acme, Text: "x", K: 1, Tags: make([]string, 1025)},
		"many documents": {TenantID: acme, Text: "x", K: 1, DocumentIDs: make([]string, 10_001)},
	} {
		if _, err := x.Search(t.Context(), q); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: error %v is not ErrInvalid", name, err)
		}
	}
}

func scanStops(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x, entry("a/r1/0", "x"), entry("a/r1/1", "x"), entry("a/r1/2", "x"))
	n := 0
	if err := x.Scan(t.Context(), acme, func(string, string, string) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("called %d times, %v", n, err)
	}
}

func concurrent(t *testing.T, e Engine) {
	x := e.New(t)
	const writers, batches, size = 4, 8, 10
	ctx, stop := context.WithCancel(t.Context())
	var readers, wait sync.WaitGroup
	for r := range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				c, err := x.Search(ctx, index.Query{TenantID: acme, Text: "shared words", Vector: Vector(uint64(r)), K: 50})
				if err != nil && ctx.Err() == nil {
					t.Errorf("Search: %v", err)
					return
				}
				for _, h := range append(c.Text, c.Vector...) {
					if h.Chunk.ID == "" || h.Chunk.Text == "" {
						t.Errorf("half a chunk: %+v", h.Chunk)
					}
				}
				if _, err := x.Count(ctx, acme, []string{"w0-r0", "w1-r1"}); err != nil && ctx.Err() == nil {
					t.Errorf("Count: %v", err)
				}
			}
		})
	}
	for w := range writers {
		wait.Go(func() {
			for b := range batches {
				var batch []index.Entry
				for n := range size {
					en := entry(fmt.Sprintf("w%d/r%d/%d", w, b, n), "shared words of all writers")
					en.Vector = Vector(uint64(w*1000 + b*10 + n))
					batch = append(batch, en)
				}
				if err := x.Write(ctx, batch); err != nil {
					t.Errorf("Write: %v", err)
				}
				if b%4 == 3 {
					if err := x.Refresh(ctx); err != nil {
						t.Errorf("Refresh: %v", err)
					}
					if err := x.DeleteRanges(ctx, acme, []string{fmt.Sprintf("w%d-r%d", w, b)}); err != nil {
						t.Errorf("DeleteRanges: %v", err)
					}
				}
			}
		})
	}
	wait.Wait()
	stop()
	readers.Wait()
	refresh(t, x)
	want := writers * (batches - batches/4) * size
	if got := len(scan(t, x, acme)); got != want {
		t.Errorf("%d entries, want %d", got, want)
	}
	c := search(t, x, index.Query{Text: "shared", Vector: Vector(1), K: 1000})
	if len(c.Text) != want || len(c.Vector) < want*98/100 {
		t.Errorf("%d and %d hits, want %d", len(c.Text), len(c.Vector), want)
	}
}

func reopen(t *testing.T, e Engine) {
	x := e.New(t)
	var all []index.Entry
	for i := range 50 {
		en := entry(fmt.Sprintf("doc%d/r1/0", i%7), "persistent words")
		en.Chunk.ID += fmt.Sprint(i)
		en.Chunk.Pages = []int{1, 3 + i}
		en.Chunk.Metadata = map[string]string{"i": fmt.Sprint(i)}
		en.Chunk.Keywords, en.Chunk.Language = []string{fmt.Sprint("key", i)}, [...]string{"en", "de"}[i%2]
		en.Chunk.Tags = []sheaf.Tag{{Name: [...]string{"even", "odd"}[i%2], Weight: 1}}
		en.Vector = Vector(uint64(i))
		all = append(all, en)
	}
	write(t, x, all...)
	if err := x.DeleteDocument(t.Context(), acme, "doc0"); err != nil {
		t.Fatal(err)
	}
	refresh(t, x)
	queries := []index.Query{
		{Text: "persistent", Vector: Vector(8), K: 100},
		{Text: "persistent", Vector: Vector(8), Metadata: map[string]string{"i": "8"}},
		{Text: "persistent", Vector: Vector(8), PageFrom: 20, PageTo: 22},
		{Text: "persistent", Vector: Vector(8), DocumentIDs: []string{"doc3"}},
		{Text: "persistent", Vector: Vector(8), Languages: []string{"en"}, Keywords: []string{"key8"}, Tags: []string{"even"}},
	}
	var before []index.Candidates
	for _, q := range queries {
		before = append(before, search(t, x, q))
	}
	x = e.Reopen(t, x)
	for i, q := range queries {
		after := search(t, x, q)
		if len(after.Text) == 0 || len(after.Vector) == 0 {
			t.Errorf("query %d finds nothing after reopening", i)
		}
		expect(t, fmt.Sprintf("query %d, words", i), after.Text, ids(before[i].Text)...)
		expect(t, fmt.Sprintf("query %d, meaning", i), after.Vector, ids(before[i].Vector)...)
	}
	// It works as before: repetitions are recognized, new entries are found.
	write(t, x, all[1], entry("new/r1/0", "persistent newcomer", func(e *index.Entry) { e.Vector = Vector(500) }))
	c := search(t, x, index.Query{Text: "newcomer", Vector: Vector(500), K: 1})
	expect(t, "newcomer, words", c.Text, "new-r1-0")
	expect(t, "newcomer, meaning", c.Vector, "new-r1-0")
	if got, want := len(scan(t, x, acme)), len(before[0].Text)+1; got != want {
		t.Errorf("%d entries, want %d", got, want)
	}
}

func canceled(t *testing.T, e Engine) {
	x := e.New(t)
	write(t, x, entry("a/r1/0", "x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Search(ctx, index.Query{TenantID: acme, Text: "x", K: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("Search: %v", err)
	}
	if err := x.Write(ctx, []index.Entry{entry("b/r1/0", "x")}); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v", err)
	}
	if err := x.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
}
