// Package eval measures how well search finds known answers: it runs the saved
// queries of a dataset and scores the top pages.
package eval

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

const (
	// Limit is how many hits per query are examined.
	Limit = 50
	// depth is how many pages recall and nDCG consider.
	depth = 10
	// firstPages is how many of the top pages are recorded.
	firstPages = 3
)

// Searcher answers a query.
type Searcher interface {
	Search(ctx context.Context, tenantID string, r search.Request) (*search.Response, error)
}

// Run runs the queries of a dataset, as its users do, and scores the answers.
// Queries that no longer expect anything are omitted. The caller records the state
// of the dataset: see See.
func Run(ctx context.Context, s Searcher, ds *sheaf.Dataset, queries []taskstore.SavedQuery) (*taskstore.Evaluation, error) {
	e := &taskstore.Evaluation{TenantID: ds.TenantID, DatasetID: ds.ID}
	for _, q := range queries {
		if len(q.Expected) == 0 {
			continue
		}
		r := search.Request{Query: q.Question, Datasets: search.List{ds.ID}, Limit: Limit}
		r.TagsOf(ds.ParseConfig)
		answer, err := s.Search(ctx, ds.TenantID, r)
		if err != nil {
			return nil, fmt.Errorf("asking query %s, after %d of %d: %w", q.ID, len(e.Results), len(queries), err)
		}
		result := Score(answer.Hits, q.Expected)
		result.QueryID, result.Version = q.ID, q.Version
		e.Results = append(e.Results, result)
		e.Model, e.Stale = answer.Index.Model, e.Stale || answer.Index.Stale
	}
	e.Measures = Measure(e.Results)
	return e, nil
}

// Score ranks the expected answers among the pages of hits. Pages are ordered by
// their first hit; a hit without a page counts as one.
func Score(hits []search.Hit, expected []taskstore.ExpectedAnswer) taskstore.QueryResult {
	at := make([]int, len(expected)) // rank of each, 0 if not found
	type place struct {
		document string
		page     int
		chunk    string // if there is no page
	}
	seen := map[place]bool{}
	var r taskstore.QueryResult
	for i := range hits {
		h := &hits[i]
		pages, chunk := h.Chunk.Pages, ""
		if len(pages) == 0 {
			pages, chunk = []int{0}, h.Chunk.ID
		}
		for _, p := range pages {
			if at := (place{h.Document.ID, p, chunk}); !seen[at] {
				seen[at] = true
				if len(r.First) < firstPages {
					r.First = append(r.First, taskstore.FoundPage{DocumentID: h.Document.ID, Page: p})
				}
			}
			for k := range expected {
				if at[k] == 0 && meets(&expected[k], h, p) {
					at[k] = len(seen)
				}
			}
		}
	}
	found, gain, best := 0, 0.0, 0.0
	for i, rank := range at {
		if rank > 0 && (r.Rank == 0 || rank < r.Rank) {
			r.Rank = rank
		}
		if rank > 0 && rank <= depth {
			found++
			gain += discount(rank)
		}
		if i < depth {
			best += discount(i + 1)
		}
	}
	if len(expected) > 0 {
		r.Recall = float64(found) / float64(len(expected))
		r.NDCG = min(1, gain/best) // several met by one page gain more than the best order of pages
	}
	return r
}

func discount(rank int) float64 { return 1 / math.Log2(float64(rank)+1) }

// Meets reports whether a hit is an expected answer.
func Meets(e *taskstore.ExpectedAnswer, h *search.Hit) bool {
	if len(h.Chunk.Pages) == 0 {
		return meets(e, h, 0)
	}
	return slices.ContainsFunc(h.Chunk.Pages, func(page int) bool { return meets(e, h, page) })
}

// meets reports whether a hit, on one of its pages, is an expected answer.
func meets(e *taskstore.ExpectedAnswer, h *search.Hit, page int) bool {
	switch {
	case e.DocumentID != "" && e.DocumentID != h.Document.ID:
		return false
	case e.From > 0 && (page < e.From || page > max(e.From, e.To)):
		return false
	}
	return e.Text == "" || strings.Contains(plain(h.Chunk.Text), plain(e.Text))
}

// plain normalizes case and white space.
func plain(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

// Measure aggregates results.
func Measure(results []taskstore.QueryResult) taskstore.Measures {
	m := taskstore.Measures{Queries: len(results)}
	for _, r := range results {
		for i, hit := range []*float64{&m.Hit1, &m.Hit5, &m.Hit10} {
			if r.Rank > 0 && r.Rank <= [...]int{1, 5, 10}[i] {
				*hit++
			}
		}
		if r.Rank > 0 {
			m.MRR += 1 / float64(r.Rank)
		}
		m.Recall += r.Recall
		m.NDCG += r.NDCG
	}
	for _, sum := range []*float64{&m.Hit1, &m.Hit5, &m.Hit10, &m.Recall, &m.MRR, &m.NDCG} {
		*sum /= float64(max(len(results), 1))
	}
	return m
}

// Change is a query that two evaluations ranked differently.
type Change struct {
	QueryID string
	Was, Is int // ranks

	WasFirst, First []taskstore.FoundPage
}

// Compare lists the queries whose rank changed from one evaluation to a later one,
// regressions first. A query edited meanwhile is omitted.
func Compare(was, is []taskstore.QueryResult) (changes []Change) {
	before := make(map[string]taskstore.QueryResult, len(was))
	for _, r := range was {
		before[r.QueryID] = r
	}
	for _, r := range is {
		if b, ok := before[r.QueryID]; ok && b.Version == r.Version && b.Rank != r.Rank {
			changes = append(changes, Change{r.QueryID, b.Rank, r.Rank, b.First, r.First})
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int {
		if d := gained(a) - gained(b); d != 0 {
			return int(math.Copysign(1, d))
		}
		return strings.Compare(a.QueryID, b.QueryID)
	})
	return changes
}

// gained is the contribution of a change to the sum of reciprocal ranks.
func gained(c Change) float64 {
	reciprocal := func(rank int) float64 {
		if rank == 0 {
			return 0
		}
		return 1 / float64(rank)
	}
	return reciprocal(c.Is) - reciprocal(c.Was)
}
