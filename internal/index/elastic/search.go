package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"sheaf"
	"sheaf/internal/index"
)

func term(field string, value any) any {
	return map[string]any{"term": map[string]any{field: map[string]any{"value": value}}}
}

func terms(field string, values []string) any {
	return map[string]any{"terms": map[string]any{field: values}}
}

func filtered(filters ...any) any {
	return map[string]any{"bool": map[string]any{"filter": filters}}
}

// answerState is the status in every search response. A partial or timed-out
// response is an error.
type answerState struct {
	TimedOut bool   `json:"timed_out"`
	Shards   shards `json:"_shards"`
}

func (s answerState) check() error {
	if s.TimedOut {
		return fmt.Errorf("%w: Elasticsearch ran out of time", sheaf.ErrUnavailable)
	}
	return s.Shards.check()
}

type answerHits struct {
	Hits struct {
		Hits []struct {
			ID     string              `json:"_id"`
			Score  float64             `json:"_score"`
			Source source              `json:"_source"`
			Fields map[string][]string `json:"fields"`
			Sort   []json.RawMessage   `json:"sort"`
		} `json:"hits"`
	} `json:"hits"`
}

// searchHeader is the header of one search in a multi-search.
func (x *Index) searchHeader(tenantID string) map[string]any {
	if x.config.ByDocument {
		// Otherwise each shard would weight words by its own content.
		return map[string]any{"index": x.alias, "search_type": "dfs_query_then_fetch"}
	}
	return map[string]any{"index": x.alias, "routing": tenantID}
}

// filters are the conditions of a query, the tenant's first: routing selects a
// shard, it does not isolate tenants.
func filters(q *index.Query) []any {
	all := []any{term("tenant", q.TenantID)}
	for _, f := range []struct {
		field  string
		values []string
	}{{"dataset", q.DatasetIDs}, {"document", q.DocumentIDs}, {"media_type", q.MediaTypes},
		{"language", index.Labels(q.Languages)}, {"keywords", index.Labels(q.Keywords)}, {"tags", index.Labels(q.Tags)}} {
		if len(f.values) > 0 {
			all = append(all, terms(f.field, f.values))
		}
	}
	if q.PageFrom > 0 || q.PageTo > 0 {
		bounds := make(map[string]any)
		if q.PageFrom > 0 {
			bounds["gte"] = q.PageFrom
		}
		if q.PageTo > 0 {
			bounds["lte"] = q.PageTo
		}
		all = append(all, map[string]any{"range": map[string]any{"pages": bounds}})
	}
	for k, v := range q.Metadata {
		all = append(all, term("metadata."+k, v))
	}
	summary := map[string]any{"exists": map[string]any{"field": "metadata." + sheaf.MetadataLayer}}
	switch q.Summaries {
	case index.OnlySummaries:
		all = append(all, summary)
	case index.NoSummaries:
		all = append(all, map[string]any{"bool": map[string]any{"must_not": summary}})
	}
	return all
}

// wordQuery matches any of the words and all exact phrases. The score is the sum of
// BM25 over terms and fields, as in the embedded index.
func wordQuery(w index.Words, conditions []any, similar bool) any {
	type m = map[string]any
	var should []any
	for _, t := range w.Terms {
		for field, name := range fieldNames {
			switch weight := index.Weights[field] * t.Weight; {
			case t.Name && index.Field(field) != index.FieldName:
			case similar:
				like := []any{m{"terms": m{name: append(index.Pieces(t.Text), t.Text)}}}
				if slips := index.Slips(t.Text); slips > 0 {
					like = append(like, m{"prefix": m{name: m{"value": t.Text}}},
						m{"fuzzy": m{name: m{"value": t.Text, "fuzziness": slips, "prefix_length": 1, "max_expansions": 256, "transpositions": false}}})
				}
				should = append(should, m{"constant_score": m{"boost": weight, "filter": m{"bool": m{"should": like, "minimum_should_match": 1}}}})
			case t.Prefix:
				should = append(should, m{"constant_score": m{"boost": weight, "filter": m{"prefix": m{name: m{"value": t.Text}}}}})
			default:
				should = append(should, m{"term": m{name: m{"value": t.Text, "boost": weight}}})
			}
		}
	}
	conditions = slices.Clone(conditions)
	for _, g := range w.Groups {
		if !g.Quoted {
			continue
		}
		var anywhere []any
		for _, name := range fieldNames {
			if g.Prefix {
				anywhere = append(anywhere, m{"prefix": m{name: m{"value": g.Terms[0]}}})
			} else {
				anywhere = append(anywhere, m{"match_phrase": m{name: strings.Join(g.Terms, " ")}})
			}
		}
		conditions = append(conditions, m{"bool": m{"should": anywhere, "minimum_should_match": 1}})
	}
	return m{"bool": m{"filter": conditions, "should": should, "minimum_should_match": 1}}
}

// bodyQuery is wordQuery for documents of format 1: any of the words and all exact
// phrases. Chunks with more of the words score higher automatically.
func bodyQuery(w index.Words, conditions []any) any {
	var must, should []any
	for _, g := range w.Groups {
		// Pairs of ideographs are in body.cjk; single ones are in body.
		field := "body"
		if !g.Prefix && isIdeographic(g.Source) {
			field = "body.cjk"
		}
		kind, settings := "match", map[string]any{"query": g.Source}
		if g.Quoted {
			kind = "match_phrase"
		}
		clause := map[string]any{kind: map[string]any{field: settings}}
		if g.Quoted {
			must = append(must, clause)
		} else {
			should = append(should, clause)
		}
	}
	query := map[string]any{"filter": conditions}
	if len(must) > 0 {
		query["must"] = must
	}
	if len(should) > 0 {
		query["should"] = should
		if len(must) == 0 {
			query["minimum_should_match"] = 1
		}
	}
	return map[string]any{"bool": query}
}

// countQuery counts the texts containing each word. The server caches its response
// until the index changes.
func countQuery(w index.Words) map[string]any {
	type m = map[string]any
	text := fieldNames[index.FieldText]
	filters := m{"all": m{"exists": m{"field": text}}}
	for _, t := range w.Terms {
		filters["t "+t.Text] = m{"term": m{text: m{"value": t.Text}}}
	}
	return m{"size": 0, "track_total_hits": false, "aggs": m{"terms": m{"filters": m{"filters": filters}}}}
}

func isIdeographic(s string) bool {
	for _, r := range s {
		return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
	}
	return false
}

// Search queries both sides in one request.
func (x *Index) Search(ctx context.Context, q index.Query) (index.Candidates, error) {
	var c index.Candidates
	if err := q.Validate(); err != nil {
		return c, err
	}
	if len(q.Vector) != 0 && len(q.Vector) != x.config.Dim {
		return c, index.VectorMismatch(len(q.Vector), x.config.Dim)
	}
	if err := x.ensure(ctx); err != nil {
		return c, err
	}
	conditions := filters(&q)
	common := func(body map[string]any) map[string]any {
		body["size"], body["track_total_hits"] = q.K, false
		body["_source"] = map[string]any{"excludes": []string{"vector", "terms_*"}}
		body["timeout"] = fmt.Sprintf("%dms", (x.config.RequestTimeout * 9 / 10).Milliseconds())
		return body
	}
	words := index.ParseWords(q.Text)
	var sides []*[]index.Hit
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	add := func(side *[]index.Hit, search map[string]any) error {
		sides = append(sides, side)
		return errors.Join(encoder.Encode(x.searchHeader(q.TenantID)), encoder.Encode(common(search)))
	}
	count := func(w index.Words) error {
		sides = append(sides, nil)
		return errors.Join(encoder.Encode(x.searchHeader(q.TenantID)), encoder.Encode(countQuery(w)))
	}
	if len(words.Groups) > 0 {
		query := wordQuery(words, conditions, q.Similar)
		if x.migrating.Load() {
			query = map[string]any{"bool": map[string]any{"should": []any{query, bodyQuery(words, append(slices.Clone(conditions), ofFormat1()))}}}
		}
		if err := errors.Join(add(&c.Text, map[string]any{"query": query}), count(words)); err != nil {
			return c, err
		}
	}
	if !index.NoVector(q.Vector) {
		knn := map[string]any{
			"field": "vector", "query_vector": q.Vector, "k": q.K, "num_candidates": min(10000, max(5*q.K, 200)),
			"filter": conditions, // inside: the nearest k that match, not the matches among the nearest k
		}
		if x.rescores.Load() {
			// Eight-bit values lose more than the graph does. Measured: rescoring
			// twice as many at full precision finds .976 of the ten nearest instead
			// of .949 (.979 instead of .896 in a single segment), for about 2
			// CPU-ms more per search.
			knn["rescore_vector"] = map[string]any{"oversample": 2}
		}
		if err := add(&c.Vector, map[string]any{"knn": knn}); err != nil {
			return c, err
		}
	}
	if len(sides) == 0 {
		c.NoMore = true
		return c, ctx.Err()
	}
	var answer struct {
		Responses []struct {
			answerState
			answerHits
			Aggregations struct {
				Terms struct {
					Buckets map[string]struct {
						Count int `json:"doc_count"`
					} `json:"buckets"`
				} `json:"terms"`
			} `json:"aggregations"`
			Status int         `json:"status"`
			Error  errorDetail `json:"error"`
		} `json:"responses"`
	}
	err := x.retry(ctx, func() error {
		answer.Responses = nil
		if err := x.do(ctx, esapi.MsearchRequest{Body: bytes.NewReader(body.Bytes()), Header: ndjson()}, &answer); err != nil {
			return err
		}
		if len(answer.Responses) != len(sides) {
			return fmt.Errorf("%w: Elasticsearch answered %d of %d searches", sheaf.ErrUnavailable, len(answer.Responses), len(sides))
		}
		for i := range answer.Responses {
			r := &answer.Responses[i]
			if r.Status >= 300 {
				return &answerError{r.Status, r.Error.Type, r.Error.text()}
			}
			if err := r.check(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	for i, side := range sides {
		if side == nil {
			counts := answer.Responses[i].Aggregations.Terms.Buckets
			c.IDF = make(map[string]float64, len(words.Terms))
			for _, t := range words.Terms {
				c.IDF[t.Text] = index.IDF(counts["t "+t.Text].Count, counts["all"].Count)
			}
			continue
		}
		for _, h := range answer.Responses[i].Hits.Hits {
			hit := index.Hit{Score: h.Score}
			if err := index.DecodeChunk(h.Source.Chunk, &hit.Chunk); err != nil {
				return index.Candidates{}, fmt.Errorf("chunk %s in %s is not readable: %w", h.ID, x.alias, err)
			}
			hit.Chunk.Text = h.Source.Text
			if side == &c.Vector {
				hit.Score = 2*h.Score - 1 // back to cosine
			} else if q.Highlight {
				hit.Highlight = words.Highlight(hit.Chunk.Text)
			}
			*side = append(*side, hit)
		}
	}
	c.NoMore = len(c.Text) < q.K && len(c.Vector) < q.K
	return c, nil
}

const (
	scanPage  = 1000
	keepAlive = "2m" // between pages, while the caller works
)

// Scan pages through a point in time.
func (x *Index) Scan(ctx context.Context, tenantID string, each func(chunkID, rangeID, documentID string) bool) error {
	if err := x.ensure(ctx); err != nil {
		return err
	}
	query := any(map[string]any{"match_all": map[string]any{}})
	if tenantID != "" {
		query = filtered(term("tenant", tenantID))
	}
	var point struct {
		ID string `json:"id"`
	}
	err := x.retry(ctx, func() error {
		return x.do(ctx, esapi.OpenPointInTimeRequest{Index: []string{x.alias}, KeepAlive: keepAlive, Routing: x.routing(tenantID, "")}, &point)
	})
	if err != nil {
		return err
	}
	defer func() { // even if ctx has ended: the server keeps files open for it
		_ = x.do(context.WithoutCancel(ctx), esapi.ClosePointInTimeRequest{Body: encoded(map[string]any{"id": point.ID})}, nil)
	}()
	var after []json.RawMessage
	for {
		body := map[string]any{
			"size": scanPage, "track_total_hits": false, "_source": false, "docvalue_fields": []string{"range", "document"},
			"query": query, "pit": map[string]any{"id": point.ID, "keep_alive": keepAlive}, "sort": []any{map[string]any{"_shard_doc": "asc"}},
		}
		if after != nil {
			body["search_after"] = after
		}
		var answer struct {
			answerState
			answerHits
			Point string `json:"pit_id"`
		}
		err := x.retry(ctx, func() error {
			answer.Hits.Hits = nil
			if err := x.do(ctx, esapi.SearchRequest{Body: encoded(body)}, &answer); err != nil {
				return err
			}
			return answer.check()
		})
		if err != nil {
			return err
		}
		if answer.Point != "" {
			point.ID = answer.Point
		}
		for _, h := range answer.Hits.Hits {
			if len(h.Fields["range"]) != 1 || len(h.Fields["document"]) != 1 {
				return fmt.Errorf("chunk %s in %s has no range or document", h.ID, x.alias)
			}
			if !each(h.ID, h.Fields["range"][0], h.Fields["document"][0]) {
				return nil
			}
			after = h.Sort
		}
		if len(answer.Hits.Hits) < scanPage {
			return nil
		}
	}
}
