package search_test

import (
	"context"
	"strings"
	"testing"

	"sheaf/internal/embed"
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

// strong is a model that counts for more than words, to which texts about a subject
// are like each question and others are not.
type strong struct{ embed.Embedder }

func (s strong) Model() embed.Model {
	m := s.Embedder.Model()
	m.Weight = 0.7
	return m
}

func (s strong) Embed(_ context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = make([]float32, s.Embedder.Model().Dim)
		if out[i][0] = 1; purpose == embed.Passage && !strings.Contains(text, "subject") {
			out[i][0], out[i][1] = 0.4, 0.9165
		}
	}
	return out, nil
}

// Vectors tell what a passage is about and not which figures stand in it: a question
// for a quantity is decided by words, whatever the model.
func TestQuestionsForFiguresAreDecidedByWords(t *testing.T) {
	s, store := newSearcher(t)
	s.Embedder = strong{s.Embedder}
	add(t, s, store, chunk("about", "The subject is net sales and what they come from."), chunk("says", "Net sales grew to 14,694."))
	for query, want := range map[string]string{
		"where do net sales come":     "about",
		"how much did net sales grow": "says",
		"net sales in % of costs":     "says",
	} {
		r := ask(t, s, search.Request{Query: query, Explain: true})
		if r.Hits[0].Document.ID != want {
			t.Errorf("%q finds %s first: %+v, %+v", query, r.Hits[0].Document.ID, r.Hits[0].Explanation, r.Hits[1].Explanation)
		}
	}
	weight := 0.7 // who asks for a weight has it
	if r := ask(t, s, search.Request{Query: "how much did net sales grow", VectorWeight: &weight}); r.Hits[0].Document.ID != "about" {
		t.Errorf("with a weight of %v %s is first", weight, r.Hits[0].Document.ID)
	}
}
