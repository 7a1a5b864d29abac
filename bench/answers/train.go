package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"sheaf"
	"sheaf/internal/search"
)

// train fits the ranker's weights: among a question's candidates, one from the
// right page should rank above all others (pairwise logistic loss, non-negative
// weights). It prints the weights, which sum to one, for rank.go, and also that of
// the vector side.
func (c *collection) train(ctx context.Context, questions []question) error {
	type pair map[string]float64 // the right candidate's features minus a wrong one's
	var pairs [][]pair           // per question
	names := make(map[string]bool)
	for _, q := range questions {
		answer, err := c.searcher.Search(ctx, sheaf.LocalTenant, search.Request{Query: q.Question, Limit: 100, Explain: true})
		if err != nil {
			return err
		}
		features := func(h search.Hit) pair {
			m := make(pair)
			for _, p := range h.Explanation {
				m[p.Feature] = p.Value
				names[p.Feature] = true
			}
			return m
		}
		var right pair
		var wrong []pair
		for _, h := range answer.Hits {
			onPage := h.Document.ID == c.ids[q.Document] && slices.ContainsFunc(h.Chunk.Pages, func(p int) bool { return slices.Contains(q.Pages, p) })
			switch {
			case !onPage:
				wrong = append(wrong, features(h))
			case right == nil:
				right = features(h)
			}
		}
		if right == nil {
			continue
		}
		var of []pair
		for _, w := range wrong {
			d := maps.Clone(right)
			for k, v := range w {
				d[k] -= v
			}
			of = append(of, d)
		}
		pairs = append(pairs, of)
	}
	weights := make(map[string]float64)
	for k := range names {
		weights[k] = 1
	}
	const rounds, rate, decay = 300, 2.0, 1e-4
	for range rounds {
		gradient := make(map[string]float64)
		for _, of := range pairs {
			for _, d := range of {
				sum := 0.0
				for k, v := range d {
					sum += weights[k] * v
				}
				g := 1 / (1 + math.Exp(sum)) / float64(len(of)*len(pairs))
				for k, v := range d {
					gradient[k] += g * v
				}
			}
		}
		for k := range weights {
			weights[k] = max(0, weights[k]+rate*(gradient[k]-decay*weights[k]))
		}
	}
	sum := 0.0
	for k, w := range weights {
		if k != "vector" {
			sum += w
		}
	}
	fmt.Printf("%d of %d questions have their page among the candidates\n", len(pairs), len(questions))
	for _, k := range slices.Sorted(maps.Keys(weights)) {
		fmt.Printf("%-10s %.3f\n", k, weights[k]/sum)
	}
	return nil
}
