package graphs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/graph"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

// told holds the results of runs on a dataset.
type told struct {
	of      map[string]string // the result of each document, by its id
	reports []*graph.Report
	same    []graph.Same
	ids     string // of the underlying results
}

// told lists the results of runs, and reads the reports and merged entities, unless
// they are those of the current view.
func (s *Service) told(ctx context.Context, d *dataset) (*told, error) {
	t := &told{of: map[string]string{}}
	var others []taskstore.RunResult
	var ids strings.Builder
	for after := ""; ; {
		some, err := s.Store.RunResults(ctx, d.tenantID, d.id, sheaf.KindGraphRAG, "", after, listed)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			if after = r.RangeID; r.Layer == graph.LayerSaid {
				t.of[r.DocumentID] = r.RangeID
			} else {
				others = append(others, r)
				ids.WriteString(r.RangeID + " ")
			}
		}
		if len(some) < listed {
			break
		}
	}
	if t.ids = ids.String(); d.view != nil && d.view.told.ids == t.ids {
		t.reports, t.same = d.view.told.reports, d.view.told.same
		return t, nil
	}
	for _, r := range others {
		stored, err := s.result(ctx, d.tenantID, r.DocumentID, r.RangeID)
		if err != nil {
			return nil, err
		}
		if r.Layer == graph.LayerSame {
			if same, ok := graph.UnpackSame(stored); ok {
				t.same = append(t.same, same)
			}
			continue
		}
		var report graph.Report
		if len(stored) == 1 && json.Unmarshal([]byte(stored[0].Text), &report) == nil {
			t.reports = append(t.reports, &report)
		}
	}
	return t, nil
}

// result reads a run's result; nothing if it was deleted meanwhile.
func (s *Service) result(ctx context.Context, tenantID, documentID, rangeID string) ([]sheaf.Chunk, error) {
	return load(ctx, s.Blobs, sheaf.ArtifactKey(tenantID, documentID, rangeID))
}

func load(ctx context.Context, blobs blob.Store, key string) ([]sheaf.Chunk, error) {
	stored, err := artifact.Load(ctx, blobs, key)
	switch {
	case errors.Is(err, sheaf.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading what a run left for a graph: %w", err)
	}
	return stored.Chunks, nil
}

// said returns a model's statements about the chunks of a document, by chunk.
func (s *Service) said(ctx context.Context, tenantID, documentID, rangeID string, splits *graph.Splits) (map[string]graph.Extraction, error) {
	stored, err := s.result(ctx, tenantID, documentID, rangeID)
	if err != nil {
		return nil, err
	}
	all, err := graph.Unpack(stored, splits)
	if err != nil {
		return nil, err
	}
	out := make(map[string]graph.Extraction, len(all))
	for _, c := range all {
		out[c.Source.ChunkID] = c.Extraction
	}
	return out, nil
}

// assign finds the community of each report: the one that shares the most members
// with it, and at least half of the members of both.
func assign(g *graph.Graph, reports []*graph.Report) map[int32]*graph.Report {
	out, shared := map[int32]*graph.Report{}, map[int32]int{}
	for _, r := range reports {
		votes := map[int32]int{}
		for _, key := range r.Entities {
			if e, ok := g.Find(key); ok && g.Entities[e].Community >= 0 {
				votes[g.Entities[e].Community]++
			}
		}
		best := int32(-1)
		for c, n := range votes {
			if best < 0 || n > votes[best] || n == votes[best] && c < best {
				best = c
			}
		}
		if best >= 0 && 2*votes[best] >= max(len(r.Entities), len(g.Communities[best].Entities)) && votes[best] > shared[best] {
			out[best], shared[best] = r, votes[best]
		}
	}
	return out
}

// mentioned returns, for each community with a report, the share of a query's words
// in the report.
func (v *View) mentioned(query string) map[int32]float64 {
	words := graph.Words(query)
	out := map[int32]float64{}
	for c, r := range v.reports {
		has := map[string]bool{}
		for _, w := range graph.Words(r.Text()) {
			has[w] = true
		}
		n := 0
		for _, w := range words {
			if has[w] {
				n++
			}
		}
		if n > 0 {
			out[c] = float64(n) / float64(len(words))
		}
	}
	return out
}

// shownReport returns a report, unless one of its chunks is not visible.
func shownReport(r *graph.Report, visible map[string]taskstore.VisibleRange) *search.GraphReport {
	if r == nil {
		return nil
	}
	out := &search.GraphReport{Title: r.Title, Summary: r.Summary, Rating: r.Rating, RatingExplanation: r.RatingExplanation, Findings: []search.GraphFinding{}}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, search.GraphFinding(f))
	}
	for _, src := range r.Sources {
		if at, ok := visible[src.RangeID]; !ok || at.Hidden[src.ChunkID] {
			return nil
		}
		out.Sources = append(out.Sources, search.GraphSource(src))
	}
	return out
}
