package openaistore

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/internal/facade"
)

// Bounds of a search.
const (
	maxResults     = 50
	defaultResults = 10
	maxQueries     = 20
	maxHits        = 100  // of a /v1 search
	maxMatching    = 1000 // documents that a /v1 search can be restricted to
	maxArchives    = 8    // nested around a file that was found
)

// queries is one question or several.
type queries []string

// UnmarshalJSON implements json.Unmarshaler.
func (q *queries) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*q = queries{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(q))
}

type searchRequest struct {
	Query   queries `json:"query"`
	Filters *filter `json:"filters"`
	Max     *int    `json:"max_num_results"`
	Ranking struct {
		Ranker    string   `json:"ranker"`
		Threshold *float64 `json:"score_threshold"`
		Hybrid    *struct {
			Embedding float64 `json:"embedding_weight"`
			Text      float64 `json:"text_weight"`
		} `json:"hybrid_search"`
	} `json:"ranking_options"`
	Rewrite bool `json:"rewrite_query"` // questions are not rewritten
}

type hit struct {
	Score float64     `json:"score"`
	Chunk sheaf.Chunk `json:"chunk"`
}

type found struct {
	FileID     string         `json:"file_id"`
	Filename   string         `json:"filename"`
	Score      float64        `json:"score"`
	Attributes map[string]any `json:"attributes"`
	Content    []text         `json:"content"`
}

// ask builds the /v1 request for a question.
func (in *searchRequest) ask(query string, limit int) (map[string]any, error) {
	ask := map[string]any{"query": query, "limit": limit}
	if t := in.Ranking.Threshold; t != nil {
		if *t < 0 || *t > 1 {
			return nil, invalid("ranking_options", "score_threshold cannot be %g; give 0 to 1", *t)
		}
		ask["threshold"] = *t
	}
	if h := in.Ranking.Hybrid; h != nil {
		if h.Embedding < 0 || h.Text < 0 || h.Embedding+h.Text == 0 {
			return nil, invalid("ranking_options", "embedding_weight and text_weight must be at least 0, and one of them more")
		}
		ask["vector_weight"] = h.Embedding / (h.Embedding + h.Text)
	}
	return ask, nil
}

func searchStore(ctx context.Context, c *call) (any, error) {
	var in searchRequest
	if err := c.body(&in); err != nil {
		return nil, err
	}
	most := defaultResults
	if in.Max != nil {
		most = *in.Max
	}
	switch {
	case most < 1 || most > maxResults:
		return nil, invalid("max_num_results", "max_num_results cannot be %d; give 1 to %d", most, maxResults)
	case len(in.Query) == 0 || len(in.Query) > maxQueries || slices.ContainsFunc(in.Query, func(q string) bool { return strings.TrimSpace(q) == "" }):
		return nil, invalid("query", "query must be a text, or a list of 1 to %d texts, none of them empty", maxQueries)
	}
	if err := in.Filters.check(0); err != nil {
		return nil, err
	}
	s, err := c.inUse(ctx)
	if err != nil {
		return nil, err
	}
	limit, narrow := most, map[string]any(nil)
	if in.Filters != nil {
		ids, err := c.matching(ctx, s, in.Filters)
		if err != nil {
			return nil, err
		}
		if len(ids) <= maxMatching {
			narrow = map[string]any{"document_ids": ids}
		} else { // filter the best passages instead
			limit = maxHits
		}
	}
	best := map[string]hit{}
	for _, query := range in.Query {
		ask, err := in.ask(query, limit)
		if err != nil {
			return nil, err
		}
		if narrow != nil {
			ask["filter"] = narrow
		}
		var answer struct {
			Hits []hit `json:"hits"`
		}
		if err := c.Call(ctx, http.MethodPost, facade.Path("v1", "datasets", s.ID, "search"), ask, &answer); err != nil {
			return nil, err
		}
		for _, h := range answer.Hits {
			if old, ok := best[h.Chunk.ID]; !ok || old.Score < h.Score {
				best[h.Chunk.ID] = h
			}
		}
	}
	hits := make([]hit, 0, len(best))
	for _, h := range best {
		hits = append(hits, h)
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Chunk.ID, b.Chunk.ID))
	})
	files, err := c.filesOf(ctx, s, hits)
	if err != nil {
		return nil, err
	}
	data := []found{}
	for _, h := range hits {
		d := files[h.Chunk.DocumentID]
		if d == nil || in.Filters != nil && narrow == nil && !in.Filters.holds(metaOfDocument(d).Attributes) {
			continue
		}
		data = append(data, found{fileID(d), d.Name, h.Score, placed(metaOfDocument(d).Attributes, &h.Chunk), []text{{"text", h.Chunk.Text}}})
		if len(data) == most {
			break
		}
	}
	var query any = in.Query
	if len(in.Query) == 1 {
		query = in.Query[0]
	}
	return map[string]any{"object": "vector_store.search_results.page", "search_query": query, "data": data, "has_more": false, "next_page": nil}, nil
}

// matching lists the documents that a search may find: files with matching
// attributes, and what is inside them.
func (c *call) matching(ctx context.Context, s *store, f *filter) ([]string, error) {
	ids := []string{}
	parents := map[string]string{}
	holds := map[string]bool{}
	var order []string
	l := listing[sheaf.Document]{path: s.documents(), query: url.Values{"fields": {"id,parent_id,attributes"}}, keep: func(d *sheaf.Document) bool {
		parents[d.ID] = d.ParentID
		holds[d.ID] = d.ParentID == "" && f.holds(metaOfDocument(d).Attributes)
		order = append(order, d.ID)
		return false
	}}
	if _, _, err := l.read(ctx, c, asked{limit: 1000}, ""); err != nil {
		return nil, err
	}
	for _, id := range order {
		root := id
		for range maxArchives {
			if parents[root] == "" {
				break
			}
			root = parents[root]
		}
		if holds[root] {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// filesOf finds, for each document of the hits, the file in the store: itself, or
// the archive around it.
func (c *call) filesOf(ctx context.Context, s *store, hits []hit) (map[string]*sheaf.Document, error) {
	known := map[string]*sheaf.Document{}
	want := map[string]bool{}
	for _, h := range hits {
		want[h.Chunk.DocumentID] = true
	}
	for range maxArchives {
		ids := make([]string, 0, len(want))
		for id := range want {
			ids = append(ids, id)
		}
		clear(want)
		for some := range slices.Chunk(ids, 500) {
			var list facade.List[sheaf.Document]
			if err := c.Call(ctx, http.MethodGet, s.documents()+"?"+url.Values{"limit": {"1000"}, "id": some}.Encode(), nil, &list); err != nil {
				return nil, err
			}
			for i := range list.Items {
				d := &list.Items[i]
				known[d.ID] = d
				if d.ParentID != "" && known[d.ParentID] == nil {
					want[d.ParentID] = true
				}
			}
		}
		if len(want) == 0 {
			break
		}
	}
	out := map[string]*sheaf.Document{}
	for id, d := range known {
		for range maxArchives {
			if d == nil || d.ParentID == "" {
				break
			}
			d = known[d.ParentID]
		}
		out[id] = d
	}
	return out, nil
}

// placed returns a file's attributes plus the location of a passage, unless the
// file has attributes of the same names.
func placed(attributes map[string]any, c *sheaf.Chunk) map[string]any {
	out := map[string]any{"chunk_id": c.ID}
	if len(c.Pages) > 0 {
		pages := make([]string, len(c.Pages))
		for i, n := range c.Pages {
			pages[i] = strconv.Itoa(n)
		}
		out["page"], out["pages"] = c.Pages[0], strings.Join(pages, ",")
	}
	if len(c.Boxes) > 0 {
		if b, err := json.Marshal(c.Boxes); err == nil {
			out["boxes"] = string(b) // attributes cannot hold lists
		}
	}
	if len(c.HeadingPath) > 0 {
		out["headings"] = strings.Join(c.HeadingPath, " > ")
	}
	for key, value := range attributes {
		out[key] = value
	}
	return out
}
