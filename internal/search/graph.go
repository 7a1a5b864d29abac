package search

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/index"
)

// GraphMode selects how the graph of a dataset is searched.
type GraphMode string

const (
	GraphLocal  GraphMode = "local"
	GraphGlobal GraphMode = "global"
	GraphMix    GraphMode = "mix"
)

// Grapher searches the graph of a dataset. It returns only what is visible: no hit,
// entity or relation is based on a hidden chunk.
type Grapher interface {
	// FindInGraph returns up to limit hits for which keep is true, best first by
	// Scores.Graph. Mode is GraphLocal or GraphGlobal.
	FindInGraph(ctx context.Context, tenantID, datasetID, query string, mode GraphMode, limit int, keep func(*Hit) bool) ([]Hit, *GraphInfo, error)
}

// GraphInfo is what a graph search found besides the hits.
type GraphInfo struct {
	Entities    []GraphEntity    `json:"entities" doc:"entities, best first"`
	Relations   []GraphRelation  `json:"relations" doc:"entities in the same sentences, heaviest first"`
	Communities []GraphCommunity `json:"communities" doc:"groups of closely related entities"`
	BuiltAt     time.Time        `json:"built_at" doc:"when the graph was built"`
	Stale       bool             `json:"stale,omitempty" doc:"documents have changed since and are being processed"`
}

// GraphEntity is something that chunks mention.
type GraphEntity struct {
	ID          string        `json:"id" doc:"normalized name, unique in the graph"`
	Name        string        `json:"name" doc:"most frequent spelling"`
	Type        string        `json:"type" doc:"name, organization, person or term, by rules; or one of the run's entity_types, by a model"`
	Description string        `json:"description,omitempty" doc:"summary of what chunks say about it, by a model"`
	Count       int           `json:"count" doc:"sentences that name it"`
	Degree      int           `json:"degree" doc:"number of relations"`
	Rank        float64       `json:"rank" doc:"PageRank; the sum over all entities is 1"`
	Community   *int          `json:"community,omitempty" doc:"id of its community; absent for entities related to almost everything"`
	Sources     []GraphSource `json:"sources" doc:"some of the chunks that name it"`
	Chunks      int           `json:"chunks" doc:"chunks that name it"`
	Names       []GraphName   `json:"names,omitempty" doc:"names in the chunks, if the requested entity was merged from several"`
}

// GraphName is one of the names that chunks use for an entity.
type GraphName struct {
	Name    string        `json:"name" doc:"spelling"`
	Reason  string        `json:"reason" enum:"spelling,plural,acronym" doc:"why it counts as a name of the entity; spelling: it differs in case, a possessive or punctuation"`
	Count   int           `json:"count" doc:"number of sentences"`
	Sources []GraphSource `json:"sources" doc:"some of the chunks with this spelling"`
}

// GraphRelation is a pair of entities that occur in the same sentences.
type GraphRelation struct {
	Source      string        `json:"source" doc:"id of an entity"`
	Target      string        `json:"target" doc:"id of the other entity"`
	Description string        `json:"description,omitempty" doc:"summary of what chunks say about it, by a model"`
	Count       int           `json:"count" doc:"sentences that name both"`
	Weight      float64       `json:"weight" doc:"mutual information: how often they occur together, and how much more often than by chance"`
	Sources     []GraphSource `json:"sources" doc:"some of the supporting chunks"`
	Chunks      int           `json:"chunks" doc:"number of supporting chunks"`
}

// GraphCommunity is a group of closely related entities.
type GraphCommunity struct {
	ID       int          `json:"id" doc:"number of the community in this graph"`
	Title    string       `json:"title" doc:"names of its most central entities"`
	Size     int          `json:"size" doc:"number of entities"`
	Entities []string     `json:"entities" doc:"ids of its most central entities"`
	Report   *GraphReport `json:"report,omitempty" doc:"report by a model, if a run created reports"`
}

// GraphReport is a model's report on a community, with the chunks it is based on.
type GraphReport struct {
	Title             string         `json:"title" doc:"short title"`
	Summary           string         `json:"summary" doc:"what the community is about"`
	Rating            float64        `json:"rating" doc:"importance, 0 to 10"`
	RatingExplanation string         `json:"rating_explanation" doc:"reason for the rating"`
	Findings          []GraphFinding `json:"findings" doc:"key findings"`
	Sources           []GraphSource  `json:"sources" doc:"chunks that the report is based on"`
}

// GraphFinding is one finding of a report.
type GraphFinding struct {
	Summary     string `json:"summary" doc:"one-sentence summary"`
	Explanation string `json:"explanation" doc:"supporting explanation"`
}

// GraphSource is a supporting chunk and its position.
type GraphSource struct {
	DocumentID string      `json:"document_id" doc:"of the chunk"`
	RangeID    string      `json:"range_id" doc:"range that the chunk belongs to"`
	ChunkID    string      `json:"chunk_id" doc:"id of the chunk"`
	Pages      []int       `json:"pages" doc:"of the chunk"`
	Boxes      []sheaf.Box `json:"boxes" doc:"its position on the pages"`
}

// rrf is the constant of reciprocal rank fusion (Cormack et al. 2009).
const rrf = 60

func (s *Searcher) searchGraph(ctx context.Context, tenantID string, r Request, started time.Time) (*Response, error) {
	switch r.Graph {
	case GraphLocal, GraphGlobal, GraphMix:
	default:
		return nil, fmt.Errorf("%w: graph is %q: it must be local, global or mix", sheaf.ErrInvalid, r.Graph)
	}
	if len(r.Datasets) != 1 {
		return nil, fmt.Errorf("%w: graph searches one dataset: name it in the address", sheaf.ErrInvalid)
	}
	if r.Graph != GraphMix && r.Mode != "" {
		return nil, fmt.Errorf("%w: mode chooses between words and vectors and does nothing with graph %s: leave it out, or search with graph mix", sheaf.ErrInvalid, r.Graph)
	}
	if s.Graphs == nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "no_graph", "This server makes no graphs: search without graph.")
	}
	answer := &Response{Hits: []Hit{}}
	text := r
	text.Graph, text.Threshold = "", nil
	mode := r.Graph
	if r.Graph == GraphMix {
		mode = GraphLocal
		found, err := s.search(ctx, tenantID, text, started)
		if err != nil {
			return nil, err
		}
		answer = found
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if r.none() {
		return answer, nil
	}
	hits, info, err := s.Graphs.FindInGraph(ctx, tenantID, r.Datasets[0], r.Query, mode, r.Limit, r.Filter.keeps)
	if err != nil {
		return nil, err
	}
	answer.Graph = info
	for i := range hits {
		h := &hits[i]
		h.Score = h.Scores.Graph
		if r.Highlight {
			h.Highlight = index.ParseWords(r.Query).Highlight(h.Chunk.Text)
		}
	}
	if r.Graph == GraphMix {
		answer.Hits = fuseLists(answer.Hits, hits)
	} else {
		answer.Hits = hits
	}
	if r.Explain {
		for i := range answer.Hits {
			h := &answer.Hits[i]
			h.Explanation = append(h.Explanation, Part{"graph", h.Scores.Graph, h.Scores.Graph})
		}
	}
	surplus := r.surplus()
	answer.Hits = slices.DeleteFunc(answer.Hits, func(h Hit) bool {
		return r.Threshold != nil && h.Score < *r.Threshold || surplus(h.Document.ID, &h.Chunk)
	})
	answer.Hits = answer.Hits[:min(len(answer.Hits), r.Limit)]
	answer.TookMS = math.Round(time.Since(started).Seconds()*1e5) / 100
	return answer, nil
}

// fuseLists merges two lists by rank. The best hit scores 1.
func fuseLists(text, graph []Hit) []Hit {
	at := map[string]int{}
	var out []Hit
	for _, list := range [][]Hit{text, graph} {
		for rank, h := range list {
			i, seen := at[h.Chunk.ID]
			if !seen {
				i = len(out)
				at[h.Chunk.ID] = i
				out = append(out, h)
				out[i].Score = 0
			}
			out[i].Score += 1 / float64(rrf+1+rank)
			out[i].Scores.Graph = max(out[i].Scores.Graph, h.Scores.Graph)
		}
	}
	slices.SortStableFunc(out, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	for i := len(out) - 1; i >= 0; i-- {
		out[i].Score /= out[0].Score
	}
	return out
}

// keeps reports whether a hit that the index did not filter matches the filter.
func (f *Filter) keeps(h *Hit) bool {
	oneOf := func(l List, has []string) bool {
		return l == nil || slices.ContainsFunc(has, func(s string) bool { return slices.Contains(l, s) })
	}
	page := func(p int) bool { return p >= f.Pages.From && (f.Pages.To == 0 || p <= f.Pages.To) }
	e := index.Entry{Chunk: h.Chunk}
	for key, value := range maps.All(f.Metadata) {
		if h.Chunk.Metadata[key] != value {
			return false
		}
	}
	return oneOf(f.DocumentIDs, []string{h.Document.ID}) && oneOf(f.MediaTypes, []string{h.Document.MediaType}) &&
		oneOf(f.Languages, []string{strings.ToLower(h.Chunk.Language)}) &&
		oneOf(index.Labels(f.Keywords), e.Keywords()) && oneOf(index.Labels(f.Tags), e.Tags()) &&
		(f.Pages == Pages{} || slices.ContainsFunc(h.Chunk.Pages, page))
}
