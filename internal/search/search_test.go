package search_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

const tenant = "t1"

type entryOf = index.Entry

// ranges is a table of live ranges, as the store keeps it.
type ranges struct {
	mu    sync.Mutex
	live  map[string]taskstore.VisibleRange
	asked int
	fail  error
}

func (r *ranges) Visible(_ context.Context, tenantID string, ids []string) (map[string]taskstore.VisibleRange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.fail != nil {
		return nil, r.fail
	}
	out := make(map[string]taskstore.VisibleRange)
	for _, id := range ids {
		if v, ok := r.live[tenantID+"/"+id]; ok {
			out[id] = v
		}
	}
	return out, nil
}

func (r *ranges) hide(rangeID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, tenant+"/"+rangeID)
}

func newSearcher(t *testing.T) (*search.Searcher, *ranges) {
	t.Helper()
	m := static.Default().Model()
	x, err := embedded.Open(t.Context(), embedded.Config{Path: filepath.Join(t.TempDir(), "index.db"), ModelID: m.ID, Dim: m.Dim})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	r := &ranges{live: make(map[string]taskstore.VisibleRange)}
	return &search.Searcher{Index: x, Embedder: static.Default(), Visibility: r}, r
}

// chunk makes an entry whose document and range are called like it.
func chunk(id, text string, change ...func(*entryOf)) entryOf {
	e := entryOf{
		Chunk:    sheaf.Chunk{ID: id + "-0", DocumentID: id, RangeID: "range-" + id, Generation: 1, Kind: sheaf.ChunkText, Text: text, Pages: []int{1}},
		TenantID: tenant, DatasetID: "ds", Name: "manual.pdf", MediaType: "application/pdf",
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

// add indexes entries and publishes their ranges.
func add(t *testing.T, s *search.Searcher, r *ranges, all ...entryOf) {
	t.Helper()
	for i := range all {
		e := &all[i]
		v, err := s.Embedder.Embed(t.Context(), []string{strings.Join(append([]string{e.Name}, append(e.Chunk.HeadingPath, e.Chunk.Text)...), "\n")}, embed.Passage)
		if err != nil {
			t.Fatal(err)
		}
		e.Vector = v[0]
		r.live[e.TenantID+"/"+e.Chunk.RangeID] = taskstore.VisibleRange{DocumentID: e.Chunk.DocumentID, DatasetID: e.DatasetID, Name: e.Name, MediaType: e.MediaType, Generation: 2}
	}
	if err := s.Index.Write(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := s.Index.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, s *search.Searcher, r search.Request) *search.Response {
	t.Helper()
	answer, err := s.Search(t.Context(), tenant, r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	if answer.Hits == nil {
		t.Error("no hits are null, not an empty list")
	}
	if !slices.IsSortedFunc(answer.Hits, func(a, b search.Hit) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	}) {
		t.Error("hits are not ordered best first")
	}
	return answer
}

func documents(r *search.Response) []string {
	out := []string{}
	for _, h := range r.Hits {
		out = append(out, h.Document.ID)
	}
	return out
}

func TestAnswerHasTheShapeOfTheAPI(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r, chunk("a", "Replace the <filter> every year.", func(e *entryOf) {
		e.Chunk.Pages, e.Chunk.HeadingPath = []int{4}, []string{"Care"}
		e.Chunk.Boxes = []sheaf.Box{{Page: 4, X0: 1, Y0: 2, X1: 3, Y1: 4}}
	}))
	var request search.Request
	if err := json.Unmarshal([]byte(`{"query": "replacing filters", "limit": 5, "mode": "hybrid", "vector_weight": 0.5, "threshold": 0.1, "datasets": ["ds"], "highlight": true,
		"filter": {"document_ids": ["a"], "media_types": ["application/pdf"], "pages": {"from": 4, "to": 4}}, "group_by": "document"}`), &request); err != nil {
		t.Fatal(err)
	}
	answer := ask(t, s, request)
	if len(answer.Hits) != 1 {
		t.Fatalf("%d hits", len(answer.Hits))
	}
	answer.TookMS = 1
	h := answer.Hits[0]
	if h.Score < 0.99 || h.Scores.Text <= 0 || h.Scores.Vector <= 0.3 || h.Scores.Vector > 1.01 {
		t.Errorf("scores %g %+v", h.Score, h.Scores)
	}
	answer.Hits[0].Score, answer.Hits[0].Scores = 1, search.Scores{Text: 2, Vector: 0.5}
	got, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"hits":[{"score":1,"scores":{"text":2,"vector":0.5},"highlight":"\u003cmark\u003eReplace\u003c/mark\u003e the \u0026lt;\u003cmark\u003efilter\u003c/mark\u003e\u0026gt; every year.",` +
		`"document":{"id":"a","name":"manual.pdf","dataset_id":"ds","media_type":"application/pdf"},` +
		`"chunk":{"id":"a-0","document_id":"a","generation":2,"range_id":"range-a","ordinal":0,"kind":"text","text":"Replace the \u003cfilter\u003e every year.","tokens":0,"pages":[4],` +
		`"boxes":[{"page":4,"x0":1,"y0":2,"x1":3,"y1":4}],"heading_path":["Care"]}}],"took_ms":1,"index":{"model":"` + static.Default().Model().ID + `","stale":false}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestInvisibleChunksAreNeverReturned(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r, chunk("old", "Torque the bolts to 20 Nm."), chunk("new", "Torque the bolts to 24 Nm."))
	other := chunk("other", "Torque of another tenant.")
	other.TenantID = "t2"
	add(t, s, r, other)
	r.hide("range-old")
	for _, mode := range []search.Mode{search.Hybrid, search.Text, search.Vector} {
		if got := documents(ask(t, s, search.Request{Query: "torque of the bolts", Mode: mode})); !slices.Equal(got, []string{"new"}) {
			t.Errorf("%s: %v", mode, got)
		}
	}
	// A range that the store gives to another document or dataset than the index does.
	r.live[tenant+"/range-new"] = taskstore.VisibleRange{DocumentID: "somebody-else", DatasetID: "ds"}
	if got := documents(ask(t, s, search.Request{Query: "torque"})); len(got) != 0 {
		t.Errorf("another document's range: %v", got)
	}
	r.live[tenant+"/range-new"] = taskstore.VisibleRange{DocumentID: "new", DatasetID: "moved"}
	if got := documents(ask(t, s, search.Request{Query: "torque", Datasets: []string{"ds"}})); len(got) != 0 {
		t.Errorf("another dataset's range: %v", got)
	}
	r.fail = fmt.Errorf("%w: database", sheaf.ErrUnavailable)
	if _, err := s.Search(t.Context(), tenant, search.Request{Query: "torque"}); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("without the store: %v", err)
	}
}

func TestHiddenChunksDoNotCrowdOutVisibleOnes(t *testing.T) {
	s, r := newSearcher(t)
	var all []entryOf
	for i := range 700 { // generations in the making, better by every score
		all = append(all, chunk(fmt.Sprintf("hidden%d", i), "bolt torque bolt torque"))
	}
	for i := range 12 {
		all = append(all, chunk(fmt.Sprintf("seen%d", i), fmt.Sprintf("The torque for this bolt is listed in table %d of the appendix together with many other words.", i)))
	}
	add(t, s, r, all...)
	for i := range 700 {
		r.hide(fmt.Sprintf("range-hidden%d", i))
	}
	for _, mode := range []search.Mode{search.Hybrid, search.Text, search.Vector} {
		answer := ask(t, s, search.Request{Query: "bolt torque", Mode: mode, Limit: 10})
		if len(answer.Hits) != 10 {
			t.Errorf("%s: %d hits, want 10", mode, len(answer.Hits))
		}
		if mode != search.Vector && answer.Hits[0].Score < 0.99 {
			t.Errorf("%s: scores are relative to hidden chunks: %g", mode, answer.Hits[0].Score)
		}
	}
	r.asked = 0
	ask(t, s, search.Request{Query: "bolt torque", Limit: 100})
	if r.asked > 8 {
		t.Errorf("the store was asked %d times", r.asked)
	}
}

func TestGroupsKeepTheirBest(t *testing.T) {
	s, r := newSearcher(t)
	var all []entryOf
	for i := range 8 {
		all = append(all, chunk("long", strings.Repeat("valve pressure ", i+1)+fmt.Sprintf("section %d", i), func(e *entryOf) {
			e.Chunk.ID, e.Chunk.Pages, e.Chunk.Ordinal = fmt.Sprint("long-", i), []int{1 + i/4}, i
		}))
	}
	add(t, s, r, append(all, chunk("short", "Every valve has a pressure rating."))...)
	if n := len(ask(t, s, search.Request{Query: "valve pressure"}).Hits); n != 9 {
		t.Errorf("%d hits without groups", n)
	}
	answer := ask(t, s, search.Request{Query: "valve pressure", GroupBy: search.GroupByDocument})
	got := documents(answer)
	slices.Sort(got)
	if !slices.Equal(got, []string{"long", "short"}) {
		t.Errorf("documents %v", got)
	}
	if n := len(ask(t, s, search.Request{Query: "valve pressure", GroupBy: search.GroupByPage}).Hits); n != 3 {
		t.Errorf("%d pages", n)
	}
	got = documents(ask(t, s, search.Request{Query: "valve pressure", GroupBy: search.GroupByDocument, GroupSize: 3}))
	slices.Sort(got)
	if !slices.Equal(got, []string{"long", "long", "long", "short"}) {
		t.Errorf("three hits of each document: %v", got)
	}
}

// Copies of a document repeat its passages word for word.
func TestPassagesThatReadTheSameAreOneGroup(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r,
		chunk("first", "The valve opens at a pressure of 4 bar."),
		chunk("copy", "The valve opens\nat a  pressure of 4 bar."),
		chunk("other", "The valve opens at a pressure of 5 bar."),
		chunk("picture", ""), chunk("drawing", ""))
	for _, mode := range []search.Mode{search.Text, search.Hybrid} {
		all := documents(ask(t, s, search.Request{Query: "valve pressure", Mode: mode}))
		got := documents(ask(t, s, search.Request{Query: "valve pressure", Mode: mode, GroupBy: search.GroupByText}))
		if len(all)-len(got) != 1 || !slices.Contains(got, "other") || slices.Contains(got, "first") == slices.Contains(got, "copy") {
			t.Errorf("%s: %v of %v", mode, got, all)
		}
	}
	if got := documents(ask(t, s, search.Request{Query: "valve pressure", Mode: search.Text, GroupBy: search.GroupByText, GroupSize: 2})); len(got) != 3 {
		t.Errorf("two hits of each text: %v", got)
	}
}

func TestThresholdLimitAndWeight(t *testing.T) {
	s, r := newSearcher(t)
	for i := range 15 {
		add(t, s, r, chunk(fmt.Sprint("d", i), "pump "+strings.Repeat("other words stand here ", i)))
	}
	if n := len(ask(t, s, search.Request{Query: "pump"}).Hits); n != 10 {
		t.Errorf("%d hits by default", n)
	}
	if n := len(ask(t, s, search.Request{Query: "pump", Limit: 3}).Hits); n != 3 {
		t.Errorf("%d hits of 3", n)
	}
	high := 0.9
	answer := ask(t, s, search.Request{Query: "pump", Limit: 100, Threshold: &high})
	if len(answer.Hits) == 0 || len(answer.Hits) >= 15 || answer.Hits[len(answer.Hits)-1].Score < high {
		t.Errorf("%d hits above the threshold", len(answer.Hits))
	}
	add(t, s, r, chunk("words", "pump pump pump zzyzx"), chunk("meaning", "A device that moves liquids: pumps, compressors."))
	zero, one := 0.0, 1.0
	byWords := ask(t, s, search.Request{Query: "zzyzx pump", VectorWeight: &zero})
	byMeaning := ask(t, s, search.Request{Query: "a device that moves liquids", VectorWeight: &one})
	if byWords.Hits[0].Document.ID != "words" || byMeaning.Hits[0].Document.ID != "meaning" {
		t.Errorf("%v and %v come first", byWords.Hits[0].Document, byMeaning.Hits[0].Document)
	}
}

// A hit that the word side did not return may have words of the query all the same.
func TestHitsByMeaningAreHighlighted(t *testing.T) {
	s, r := newSearcher(t)
	var all []entryOf
	for i := range 300 { // the longer ones mean more of a pump, and match its word less
		all = append(all, chunk(fmt.Sprint("d", i), "pump "+strings.Repeat("compressor valve liquid ", i)))
	}
	add(t, s, r, all...)
	one := 1.0
	answer := ask(t, s, search.Request{Query: "pump for a liquid", Limit: 50, Highlight: true, VectorWeight: &one})
	byMeaning := 0
	for _, h := range answer.Hits {
		if h.Scores.Text == 0 {
			byMeaning++
		}
		if !strings.Contains(h.Highlight, "<mark>pump") {
			t.Errorf("%q is highlighted as %q", h.Chunk.Text, h.Highlight)
		}
	}
	if byMeaning == 0 || len(answer.Hits) != 50 {
		t.Errorf("%d of %d hits were found by meaning alone", byMeaning, len(answer.Hits))
	}
	if plain := ask(t, s, search.Request{Query: "pump"}); plain.Hits[0].Highlight != "" {
		t.Errorf("unasked, a hit is highlighted: %q", plain.Hits[0].Highlight)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	s, _ := newSearcher(t)
	much, little := 1.5, -0.1
	for name, r := range map[string]search.Request{
		"empty":         {Query: " \n"},
		"long":          {Query: strings.Repeat("x", 20000)},
		"limit":         {Query: "x", Limit: 1001},
		"negative":      {Query: "x", Limit: -1},
		"mode":          {Query: "x", Mode: "magic"},
		"group":         {Query: "x", GroupBy: "colour"},
		"group size":    {Query: "x", GroupBy: "page", GroupSize: 101},
		"size alone":    {Query: "x", GroupSize: 3},
		"weight":        {Query: "x", VectorWeight: &much},
		"threshold":     {Query: "x", Threshold: &little},
		"pages":         {Query: "x", Filter: search.Filter{Pages: search.Pages{From: 5, To: 2}}},
		"many document": {Query: "x", Filter: search.Filter{DocumentIDs: make([]string, 10_001)}},
	} {
		if _, err := s.Search(t.Context(), tenant, r); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// broken is an embedder whose server is down.
type broken struct{ embed.Embedder }

func (broken) Embed(context.Context, []string, embed.Purpose) ([][]float32, error) {
	return nil, fmt.Errorf("%w: %w", sheaf.ErrUnavailable, sheaf.FailRetryable(sheaf.CategoryTarget, "embedder_unreachable", "connection refused"))
}

func TestWithoutTheEmbedderWordsGoOn(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r, chunk("a", "The compressor is loud."))
	s.Embedder = broken{s.Embedder}
	answer := ask(t, s, search.Request{Query: "compressor"})
	if !slices.Equal(documents(answer), []string{"a"}) || !answer.Index.Stale || len(answer.Warnings) != 1 || answer.Warnings[0].Code != "vector_search_unavailable" {
		t.Errorf("answer %+v", answer)
	}
	if answer := ask(t, s, search.Request{Query: "compressor", Mode: search.Text}); answer.Index.Stale || len(answer.Warnings) != 0 {
		t.Errorf("mode text does not need the embedder: %+v", answer)
	}
	if _, err := s.Search(t.Context(), tenant, search.Request{Query: "compressor", Mode: search.Vector}); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("mode vector: %v", err)
	}
	s.Embedder = nil
	if answer := ask(t, s, search.Request{Query: "compressor"}); len(answer.Hits) != 1 || !answer.Index.Stale {
		t.Errorf("answer without a model %+v", answer)
	}
}

func TestQueriesTheModelDoesNotKnow(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r, chunk("zh", "请在设置页面重置密码。"), chunk("en", "Reset the password on the settings page."))
	if got := documents(ask(t, s, search.Request{Query: "重置密码"})); !slices.Equal(got, []string{"zh"}) {
		t.Errorf("found %v", got)
	}
	answer := ask(t, s, search.Request{Query: "重置密码", Mode: search.Vector})
	if len(answer.Hits) != 0 || len(answer.Warnings) != 1 {
		t.Errorf("answer %+v", answer)
	}
}

// unknown is a model of which nothing is known but its vectors.
type unknown struct{ embed.Embedder }

func (u unknown) Model() embed.Model {
	m := u.Embedder.Model()
	m.Weight = -1
	return m
}

// counted counts the searches of an index.
type counted struct {
	index.Index
	searches int
}

func (c *counted) Search(ctx context.Context, q index.Query) (index.Candidates, error) {
	c.searches++
	return c.Index.Search(ctx, q)
}

func TestOneSearchIsEnoughWhereThereIsNoMore(t *testing.T) {
	s, r := newSearcher(t)
	var all []entryOf
	for i := range 60 {
		all = append(all, chunk(fmt.Sprint("d", i%3), fmt.Sprintf("valve pressure %d", i), func(e *entryOf) { e.Chunk.ID = fmt.Sprint("c", i) }))
	}
	add(t, s, r, append(all, chunk("hidden", "valve pressure"))...)
	r.hide("range-hidden")
	c := &counted{Index: s.Index}
	s.Index = c
	for _, request := range []search.Request{{Query: "valve pressure", Limit: 100}, {Query: "valve pressure", GroupBy: search.GroupByDocument}, {Query: "valve pressure", GroupBy: search.GroupByPage, Mode: search.Text}} {
		c.searches = 0
		if ask(t, s, request); c.searches != 1 {
			t.Errorf("%+v: the index was searched %d times", request, c.searches)
		}
	}
}

func TestScoresAreExplainedAndMeanSomething(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r,
		chunk("bolt", "Torque the M8 bolts to 24 Nm.", func(e *entryOf) { e.Chunk.HeadingPath = []string{"Assembly of the frame"} }),
		chunk("pump", "The pump is cleaned every year.", func(e *entryOf) { e.Name = "Pump.pdf" }),
		chunk("bill", "Invoices are issued on the first day of each month."))
	model := s.Embedder
	for _, mode := range []search.Mode{search.Hybrid, "unknown weight", search.Text, search.Vector} {
		if s.Embedder = model; mode == "unknown weight" {
			s.Embedder, mode = unknown{model}, search.Hybrid
		}
		for _, q := range []string{"torque of bolts in the assembly", "clean the pump", "when do I get an invoice", "zzyzx torque qwfp vbnq"} {
			for _, h := range ask(t, s, search.Request{Query: q, Mode: mode, Explain: true}).Hits {
				sum := 0.0
				for _, p := range h.Explanation {
					sum += p.Score
				}
				if len(h.Explanation) == 0 && h.Score > 0 || math.Abs(sum-h.Score) > 1e-9 || h.Score < 0 || h.Score > 1+1e-9 {
					t.Errorf("%s, %s: score %g, its parts %g: %+v", mode, q, h.Score, sum, h.Explanation)
				}
			}
		}
	}
	best := func(q string) float64 {
		if hits := ask(t, s, search.Request{Query: q}).Hits; len(hits) > 0 {
			return hits[0].Score
		}
		return 0
	}
	if good, half, none := best("torque bolts"), best("torque zzyzx"), best("zzyzx qwfp vbnq"); good < 0.99 || half < 0.1 || half > 0.7 || none > 0.2 {
		t.Errorf("all words %.2f, half of them %.2f, nonsense %.2f", good, half, none)
	}
	if hits := ask(t, s, search.Request{Query: `"bolts torque"`}).Hits; len(hits) != 0 {
		t.Errorf("a phrase that stands nowhere has %d hits", len(hits))
	}
	if hits := ask(t, s, search.Request{Query: `"the m8 bolts"`}).Hits; len(hits) != 1 || hits[0].Document.ID != "bolt" {
		t.Errorf("an exact phrase has %d hits", len(hits))
	}
	if hits := ask(t, s, search.Request{Query: "assembbly", Mode: search.Text}).Hits; len(hits) != 1 || hits[0].Document.ID != "bolt" || hits[0].Score <= 0 || hits[0].Score > 0.5 {
		t.Errorf("a misspelled word: %+v", hits)
	}
	least := 0.5
	if hits := ask(t, s, search.Request{Query: "zzyzx qwfp vbnq", Threshold: &least}).Hits; len(hits) != 0 {
		t.Errorf("nonsense has %d hits above the threshold", len(hits))
	}
}
