package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"sheaf"
	"sheaf/internal/index"
)

// format is the document format. Format 1 had name, headings and text together in a
// field "body" that the server analyzed.
const format = 2

const migrateBatch = 200 // documents per request: each is rewritten with its vector

// ofFormat1 selects documents written by an earlier version.
func ofFormat1() any {
	return map[string]any{"bool": map[string]any{"must_not": []any{map[string]any{"exists": map[string]any{"field": "format"}}}}}
}

// migrate adds terms to documents of format 1 until none are left or ctx ends. Any
// number of processes may run it concurrently: it does not redo finished work and
// never restores what was deleted.
func (x *Index) migrate(ctx context.Context) {
	for attempt := 1; ctx.Err() == nil; {
		n, err := x.migrateSome(ctx)
		if err == nil && n == 0 {
			x.migrating.Store(false)
			return
		}
		if err == nil {
			attempt = 1
		} else if attempt++; wait(ctx, attempt) != nil {
			return
		}
	}
}

func (x *Index) migrateSome(ctx context.Context) (int, error) {
	if err := x.refreshNow(ctx); err != nil {
		return 0, err
	}
	var answer struct {
		answerState
		Hits struct {
			Hits []struct {
				Index   string `json:"_index"`
				ID      string `json:"_id"`
				Routing string `json:"_routing"`
				Source  source `json:"_source"`
			} `json:"hits"`
		} `json:"hits"`
	}
	body := map[string]any{"size": migrateBatch, "track_total_hits": false, "query": ofFormat1(), "_source": map[string]any{"excludes": []string{"vector"}}}
	if err := x.retry(ctx, func() error {
		if err := x.do(ctx, esapi.SearchRequest{Index: []string{x.alias}, Body: encoded(body)}, &answer); err != nil {
			return err
		}
		return answer.check()
	}); err != nil || len(answer.Hits.Hits) == 0 {
		return 0, err
	}
	var updates bytes.Buffer
	encoder := json.NewEncoder(&updates)
	for _, h := range answer.Hits.Hits {
		e := index.Entry{Name: h.Source.Name}
		if err := json.Unmarshal(h.Source.Chunk, &e.Chunk); err != nil {
			return 0, fmt.Errorf("chunk %s in %s is not readable: %w", h.ID, x.alias, err)
		}
		e.Chunk.Text = h.Source.Text
		if err := errors.Join(
			encoder.Encode(map[string]any{"update": map[string]any{"_index": h.Index, "_id": h.ID, "routing": h.Routing, "retry_on_conflict": 3}}),
			encoder.Encode(map[string]any{"doc": termsOf(&e)}),
		); err != nil {
			return 0, err
		}
	}
	var done struct {
		Items []map[string]struct {
			Status int         `json:"status"`
			Error  errorDetail `json:"error"`
		} `json:"items"`
	}
	if err := x.do(ctx, esapi.BulkRequest{Body: &updates, Header: ndjson(), FilterPath: []string{"items.*.status", "items.*.error"}}, &done); err != nil {
		return 0, err
	}
	for _, item := range done.Items {
		for _, result := range item {
			if result.Status >= 300 && result.Status != 404 && result.Status != 409 {
				return 0, fmt.Errorf("%w: a chunk of format 1 could not be updated: %s", sheaf.ErrUnavailable, result.Error.text())
			}
		}
	}
	return len(answer.Hits.Hits), nil
}
