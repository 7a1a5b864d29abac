package search_test

import (
	"testing"

	"sheaf/internal/search"
)

// A question for a quantity is answered by the statement rather than by the
// text about it, and any other question by the text.
func TestQuestionsForFiguresFindStatements(t *testing.T) {
	s, store := newSearcher(t)
	add(t, s, store,
		chunk("letter", "Net sales of the company are discussed below. We explain why they matter to the owners."),
		chunk("statement", "Consolidated statement | 2023 | 2022 | 2021\nNet sales | 14,694 | 14,544 | 12,861\nCost of sales | 11,969 | 11,724 | 10,129\nGross margin | 2,725 | 2,820 | 2,732\nIncome | 1,048 | 805 | 939"))
	for query, want := range map[string]string{
		"how much did net sales grow":                "statement",
		"net sales in FY2023":                        "statement",
		"wie hoch waren die net sales":               "statement",
		"net sales in %":                             "statement",
		"why net sales matter":                       "letter",
		"the company explains its net sales in 2023": "letter", // a year alone is in many names
	} {
		r, err := s.Search(t.Context(), tenant, search.Request{Query: query, Mode: search.Text, Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.Hits[0].Document.ID != want {
			t.Errorf("%q finds the %s first: %+v, %+v", query, r.Hits[0].Document.ID, r.Hits[0].Explanation, r.Hits[1].Explanation)
		}
	}
}
