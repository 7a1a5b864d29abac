package eval

import (
	"context"
	"fmt"
	"math"
	"testing"

	"sheaf"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

func hit(document, text string, pages ...int) search.Hit {
	return search.Hit{Document: search.Document{ID: document}, Chunk: sheaf.Chunk{ID: document + text, Text: text, Pages: pages}}
}

func TestRanksCountPages(t *testing.T) {
	hits := []search.Hit{hit("a", "one", 1), hit("a", "two", 1, 2), hit("b", "a row"), hit("b", "Another  ROW"), hit("a", "three", 1, 7)}
	for _, c := range []struct {
		expected []taskstore.ExpectedAnswer
		want     string
	}{
		{[]taskstore.ExpectedAnswer{{DocumentID: "a", From: 1}}, "1 1.00 1.00"},
		{[]taskstore.ExpectedAnswer{{DocumentID: "a", From: 2, To: 5}}, "2 1.00 0.63"},
		{[]taskstore.ExpectedAnswer{{DocumentID: "b"}}, "3 1.00 0.50"},
		{[]taskstore.ExpectedAnswer{{Text: "another row"}}, "4 1.00 0.43"},
		{[]taskstore.ExpectedAnswer{{DocumentID: "a", Text: "another row"}}, "0 0.00 0.00"},
		{[]taskstore.ExpectedAnswer{{DocumentID: "a", From: 7}, {DocumentID: "c", From: 1}}, "5 0.50 0.24"},
		{[]taskstore.ExpectedAnswer{{DocumentID: "a"}, {DocumentID: "a", From: 1}}, "1 1.00 1.00"},
		{nil, "0 0.00 0.00"},
	} {
		r := Score(hits, c.expected)
		if got := fmt.Sprintf("%d %.2f %.2f", r.Rank, r.Recall, r.NDCG); got != c.want {
			t.Errorf("%v: %s, want %s", c.expected, got, c.want)
		}
	}
}

func TestMeasuresAreMeans(t *testing.T) {
	m := Measure([]taskstore.QueryResult{{Rank: 1, Recall: 1, NDCG: 1}, {Rank: 4, Recall: .5, NDCG: .5}, {Rank: 10, Recall: .5}, {}})
	want := taskstore.Measures{Queries: 4, Hit1: .25, Hit5: .5, Hit10: .75, Recall: .5, MRR: 1.35 / 4, NDCG: .375}
	if math.Abs(m.MRR-want.MRR) > 1e-9 {
		t.Errorf("MRR %v, want %v", m.MRR, want.MRR)
	}
	if m.MRR = want.MRR; m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
	if (Measure(nil) != taskstore.Measures{}) {
		t.Error("nothing measured is not nothing")
	}
}

func TestComparisonsTellTheWorstFirst(t *testing.T) {
	was := []taskstore.QueryResult{{QueryID: "same", Rank: 3}, {QueryID: "better", Rank: 5}, {QueryID: "lost", Rank: 1}, {QueryID: "worse", Rank: 1}, {QueryID: "edited", Version: 1, Rank: 1}}
	is := []taskstore.QueryResult{{QueryID: "same", Rank: 3}, {QueryID: "better", Rank: 1}, {QueryID: "worse", Rank: 2}, {QueryID: "lost"}, {QueryID: "edited", Version: 2}, {QueryID: "new"}}
	var got string
	for _, c := range Compare(was, is) {
		got += fmt.Sprintln(c.QueryID, c.Was, c.Is)
	}
	if want := "lost 1 0\nworse 1 2\nbetter 5 1\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

type answers map[string][]search.Hit

func (a answers) Search(_ context.Context, tenant string, r search.Request) (*search.Response, error) {
	if tenant != "t" || len(r.Datasets) != 1 || r.Datasets[0] != "ds" {
		return nil, sheaf.ErrNotFound
	}
	return &search.Response{Hits: a[r.Query], Index: search.IndexInfo{Model: "m", Stale: r.Query == "later"}}, nil
}

func TestRunAsksEachQueryThatExpectsSomething(t *testing.T) {
	e, err := Run(t.Context(), answers{"first": {hit("a", "x", 1)}}, &sheaf.Dataset{ID: "ds", TenantID: "t"}, []taskstore.SavedQuery{
		{ID: "1", Version: 3, Question: "first", Expected: []taskstore.ExpectedAnswer{{DocumentID: "a"}}},
		{ID: "2", Question: "emptied"},
		{ID: "3", Question: "later", Expected: []taskstore.ExpectedAnswer{{DocumentID: "a"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%v %s %v %v", e.Results, e.Model, e.Stale, e.Measures.MRR), "[{1 3 1 1 1 [{a 1}]} {3 0 0 0 0 []}] m true 0.5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
