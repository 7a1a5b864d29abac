package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"sheaf"
	"sheaf/internal/index"
)

// source is a chunk as stored. Chunk holds what is not searched, so that it comes
// back unchanged whatever the mapping does to the rest.
type source struct {
	Tenant    string            `json:"tenant"`
	Dataset   string            `json:"dataset"`
	Document  string            `json:"document"`
	Range     string            `json:"range"`
	MediaType string            `json:"media_type,omitempty"`
	Name      string            `json:"name,omitempty"`
	Headings  []string          `json:"headings,omitempty"`
	Text      string            `json:"text"`
	Pages     []int             `json:"pages,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"` // for filters
	Columns   map[string]any    `json:"columns,omitempty"`
	Language  string            `json:"language,omitempty"`
	Keywords  []string          `json:"keywords,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Chunk     json.RawMessage   `json:"chunk"` // without its text
	termSource
}

// termSource holds the terms that find a chunk.
type termSource struct {
	Format   int      `json:"format"`
	Text     []string `json:"terms_text,omitempty"`
	Headings []string `json:"terms_headings,omitempty"`
	Name     []string `json:"terms_name,omitempty"`
}

func termsOf(e *index.Entry) termSource {
	a := e.Analyze()
	return termSource{format, a[index.FieldText], a[index.FieldHeadings], a[index.FieldName]}
}

// routing selects the shard of a document.
func (x *Index) routing(tenantID, documentID string) string {
	if x.config.ByDocument {
		return documentID
	}
	return tenantID
}

// shardsOf returns the routings of a request for a tenant, or for one of its
// documents if that is not ""; nil means all shards.
func (x *Index) shardsOf(tenantID, documentID string) []string {
	if r := x.routing(tenantID, documentID); r != "" {
		return []string{r}
	}
	return nil
}

// line is an entry of a bulk request.
type line struct {
	id   string
	data []byte // action and source, each with its newline
}

// Write adds entries in bulk requests of bounded size. A chunk id always names the
// same content, so an existing chunk is success, and a request whose response was
// lost can be resent.
func (x *Index) Write(ctx context.Context, entries []index.Entry) error {
	for i := range entries {
		if err := entries[i].Validate(x.config.Dim); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil || len(entries) == 0 {
		return err
	}
	if err := x.ensure(ctx); err != nil {
		return err
	}
	var lines []line
	size := 0
	send := func() error {
		if len(lines) == 0 {
			return nil
		}
		err := x.bulk(ctx, lines)
		lines, size = lines[:0], 0
		return err
	}
	for i := range entries {
		l, err := encode(&entries[i], x.routing(entries[i].TenantID, entries[i].Chunk.DocumentID))
		if err != nil {
			return err
		}
		if len(lines) == bulkEntries || size+len(l.data) > bulkBytes {
			if err := send(); err != nil {
				return err
			}
		}
		lines = append(lines, l)
		size += len(l.data)
	}
	return send()
}

func encode(e *index.Entry, routing string) (line, error) {
	c := e.Chunk
	refuse := func(err error) (line, error) {
		return line{}, fmt.Errorf("%w: chunk %s cannot be stored: %w", sheaf.ErrInvalid, e.Chunk.ID, err)
	}
	s := source{
		Tenant: e.TenantID, Dataset: e.DatasetID, Document: c.DocumentID, Range: c.RangeID, MediaType: e.MediaType,
		Name: e.Name, Headings: e.Preamble(), Text: c.Text, Pages: c.Pages, Metadata: c.Metadata,
		Language: index.Label(c.Language), Keywords: e.Keywords(), Tags: e.Tags(), termSource: termsOf(e),
	}
	c.Text = ""
	s.Metadata, s.Columns = searchable(c.Metadata), searchableColumns(c.Columns)
	var b bytes.Buffer
	action := map[string]any{"create": map[string]any{"_id": c.ID, "routing": routing}}
	// Values marshaled beforehand would be scanned again by the encoder, which for
	// a vector takes longer than the rest of the entry.
	encoder := json.NewEncoder(&b)
	if err := errors.Join(encoder.Encode(action), encoder.Encode(struct {
		source
		Chunk sheaf.Chunk `json:"chunk"`
	}{s, c})); err != nil {
		return refuse(err)
	}
	if !index.NoVector(e.Vector) {
		b.Truncate(b.Len() - len("}\n"))
		b.Grow(len("-9999,")*len(e.Vector) + 16)
		v := append(b.AvailableBuffer(), `,"vector":[`...)
		v = appendVector(v, e.Vector)
		b.Write(append(v, "]}\n"...))
	}
	if b.Len() > maxEntryBytes {
		return refuse(fmt.Errorf("it has %d MB and at most %d fit in a request", b.Len()>>20, maxEntryBytes>>20))
	}
	return line{c.ID, b.Bytes()}, nil
}

// appendVector writes a vector as integers of up to four digits. Cosine needs only
// the direction, and a quantized vector keeps a fiftieth of that precision.
// Measured: half the bytes of the raw values, and a fifth of the time to write.
func appendVector(to []byte, v []float32) []byte {
	var most float64
	for _, f := range v {
		most = max(most, math.Abs(float64(f)))
	}
	scale := 9999 / most
	for i, f := range v {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendInt(to, int64(math.Round(float64(f)*scale)), 10)
	}
	return to
}

// searchable drops what a flattened field rejects: NUL, and empty keys.
func searchable(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		if k = strings.ReplaceAll(k, "\x00", ""); k != "" {
			out[k] = strings.ReplaceAll(v, "\x00", "")
		}
	}
	return out
}

// searchableColumns is searchable for cells; values that are not scalars are not
// searchable.
func searchableColumns(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		if k = strings.ReplaceAll(k, "\x00", ""); k == "" {
			continue
		}
		switch v := v.(type) {
		case string:
			out[k] = strings.ReplaceAll(v, "\x00", "")
		case nil, bool, int, int64, float64, json.Number:
			out[k] = v
		}
	}
	return out
}

// Bounds of a bulk shared by several writes. Measured with bodies of 52 KB, typical
// for a range: eight in one request take a quarter less server CPU than eight
// requests.
const (
	gatherBytes   = 1 << 20
	gatherEntries = 200
	gatherRanges  = 128
	gatherTime    = 100 * time.Millisecond // between bulks, unless there is enough for one
	bulksAtOnce   = 4
)

// bulkWeight is what lines count against gatherBytes.
func bulkWeight(lines []line) int {
	size := 0
	for _, l := range lines {
		size += len(l.data)
	}
	return max(size, len(lines)*(gatherBytes/gatherEntries))
}

// gatherFor is how long lines may wait for others: not at all if none were sent for
// a while, or if the caller writes alone.
func (x *Index) gatherFor(ctx context.Context) time.Duration {
	if index.Concurrency(ctx) == 1 {
		return 0
	}
	return max(0, gatherTime-time.Since(time.Unix(0, x.bulkAt.Load())))
}

// bulk sends lines until all are in, batched with those of other callers. Only
// items that the server was too busy for are resent.
func (x *Index) bulk(ctx context.Context, lines []line) error {
	rest := slices.Clone(lines)
	for attempt := 1; ; attempt++ {
		wait := x.gatherFor(ctx)
		if wait > 0 {
			index.Waiting(ctx)
		}
		answer, err := x.bulks.DoWithin(ctx, rest, wait)
		if err == nil {
			err = answer.err
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e, answered := errors.AsType[*answerError](err)
			if !errors.Is(err, sheaf.ErrUnavailable) && !(answered && retryable(e.status) && e.kind != "cluster_block_exception") || attempt >= x.config.Attempts {
				return x.explain(err)
			}
			// The response was lost or refused: whether the lines are in is
			// unknown, and resending is harmless.
		} else if len(answer.again) == 0 {
			return nil
		} else if attempt >= x.config.Attempts {
			return fmt.Errorf("%w: %w", sheaf.ErrUnavailable, sheaf.FailRetryable(sheaf.CategoryTarget, "index_busy",
				"Elasticsearch was too busy for %d of %d chunks after %d attempts: it is tried again later; add nodes if this goes on.", len(answer.again), len(lines), attempt))
		} else {
			rest = answer.again
		}
		if err := x.wait(ctx, attempt); err != nil {
			return err
		}
	}
}

// bulkAnswer is the outcome of one caller's lines.
type bulkAnswer struct {
	again []line // to resend
	err   error  // of the request, or of a line that can never succeed
}

// bulkTogether sends the lines of several callers in one request, without mixing up
// their errors.
func (x *Index) bulkTogether(ctx context.Context, all [][]line) []bulkAnswer {
	x.bulkAt.Store(time.Now().UnixNano())
	answers, err := x.bulkOnce(ctx, all)
	if err == nil {
		return answers
	}
	answers = make([]bulkAnswer, len(all))
	if e, answered := errors.AsType[*answerError](err); answered && !retryable(e.status) && len(all) > 1 {
		// The server refused the entire request, perhaps because of one caller.
		for i := range all {
			alone, err := x.bulkOnce(ctx, all[i:i+1])
			if answers[i].err = err; err == nil {
				answers[i] = alone[0]
			}
		}
		return answers
	}
	for i := range answers {
		answers[i].err = err
	}
	return answers
}

// bulkOnce makes one request. The error is the request's.
func (x *Index) bulkOnce(ctx context.Context, all [][]line) ([]bulkAnswer, error) {
	var body bytes.Buffer
	n := 0
	for _, lines := range all {
		for _, l := range lines {
			body.Write(l.data)
		}
		n += len(lines)
	}
	var answer bulkItems
	// With require_alias a missing index is an error; without it, the server would
	// create one with a guessed mapping.
	request := esapi.BulkRequest{
		Index: x.alias, Body: &body, Header: ndjson(),
		RequireAlias: esapi.BoolPtr(true), FilterPath: []string{"errors", "items.*.status", "items.*.error"},
	}
	if err := x.do(ctx, request, &answer); err != nil {
		return nil, err
	}
	if len(answer.Items) != n {
		return nil, fmt.Errorf("%w: Elasticsearch answered %d of %d items", sheaf.ErrUnavailable, len(answer.Items), n)
	}
	answers := make([]bulkAnswer, len(all))
	items := answer.Items
	for i, lines := range all {
		answers[i] = sortOut(lines, items[:len(lines)])
		items = items[len(lines):]
	}
	x.wrote(ctx, n)
	return answers, nil
}

// bulkItems is the response to a bulk request.
type bulkItems struct {
	Errors bool       `json:"errors"`
	Items  []bulkItem `json:"items"`
}

// bulkItem is the outcome of a line, keyed by its action.
type bulkItem map[string]struct {
	Status int         `json:"status"`
	Error  errorDetail `json:"error"`
}

// sortOut evaluates the outcome of one caller's lines.
func sortOut(lines []line, items []bulkItem) (a bulkAnswer) {
	for i, item := range items {
		for _, result := range item {
			switch {
			case result.Status < 300, result.Status == http.StatusConflict:
			case result.Error.Type == "cluster_block_exception", !retryable(result.Status):
				return bulkAnswer{err: &answerError{result.Status, result.Error.Type, "chunk " + lines[i].id + ": " + result.Error.text()}}
			default:
				a.again = append(a.again, lines[i])
			}
		}
	}
	return a
}

// Count returns how many entries each range has, as of the last Refresh.
func (x *Index) Count(ctx context.Context, tenantID string, rangeIDs []string) (map[string]int, error) {
	counts := make(map[string]int, len(rangeIDs))
	if err := x.ensure(ctx); err != nil {
		return nil, err
	}
	for part := range slices.Chunk(rangeIDs, 1000) {
		var answer struct {
			answerState
			Aggregations struct {
				Ranges struct {
					Buckets []struct {
						Key   string `json:"key"`
						Count int    `json:"doc_count"`
					} `json:"buckets"`
				} `json:"ranges"`
			} `json:"aggregations"`
		}
		body := map[string]any{
			"size": 0, "track_total_hits": false,
			"query": filtered(term("tenant", tenantID), terms("range", part)),
			"aggs":  map[string]any{"ranges": map[string]any{"terms": map[string]any{"field": "range", "size": len(part)}}},
		}
		err := x.retry(ctx, func() error {
			request := esapi.SearchRequest{Index: []string{x.alias}, Routing: x.shardsOf(tenantID, ""), Body: encoded(body)}
			if err := x.do(ctx, request, &answer); err != nil {
				return err
			}
			return answer.check()
		})
		if err != nil {
			return nil, err
		}
		for _, b := range answer.Aggregations.Ranges.Buckets {
			counts[b.Key] = b.Count
		}
	}
	return counts, nil
}

// CountDocument returns how many entries a document has and how many of them
// have a vector, as of the last Refresh.
func (x *Index) CountDocument(ctx context.Context, tenantID, documentID string) (chunks, vectors int, err error) {
	if err := x.ensure(ctx); err != nil {
		return 0, 0, err
	}
	var answer struct {
		answerState
		Hits struct {
			Total struct {
				Value int `json:"value"`
			} `json:"total"`
		} `json:"hits"`
		Aggregations struct {
			Vectors struct {
				Count int `json:"doc_count"`
			} `json:"vectors"`
		} `json:"aggregations"`
	}
	body := map[string]any{
		"size": 0, "track_total_hits": true,
		"query": filtered(term("tenant", tenantID), term("document", documentID)),
	}
	if x.config.Dim > 0 {
		body["aggs"] = map[string]any{"vectors": map[string]any{"filter": map[string]any{"exists": map[string]any{"field": "vector"}}}}
	}
	err = x.retry(ctx, func() error {
		request := esapi.SearchRequest{Index: []string{x.alias}, Routing: x.shardsOf(tenantID, documentID), Body: encoded(body)}
		if err := x.do(ctx, request, &answer); err != nil {
			return err
		}
		return answer.check()
	})
	return answer.Hits.Total.Value, answer.Aggregations.Vectors.Count, err
}

// DeleteRanges removes the entries of the tenant's ranges.
func (x *Index) DeleteRanges(ctx context.Context, tenantID string, rangeIDs []string) error {
	for part := range slices.Chunk(rangeIDs, 1000) {
		if err := x.delete(ctx, x.shardsOf(tenantID, ""), term("tenant", tenantID), terms("range", part)); err != nil {
			return err
		}
	}
	return nil
}

// DeleteDocument removes all entries of a document, of every generation.
func (x *Index) DeleteDocument(ctx context.Context, tenantID, documentID string) error {
	return x.delete(ctx, x.shardsOf(tenantID, documentID), term("tenant", tenantID), term("document", documentID))
}

// DeleteTenant removes everything of a tenant.
func (x *Index) DeleteTenant(ctx context.Context, tenantID string) error {
	return x.delete(ctx, x.shardsOf(tenantID, ""), term("tenant", tenantID))
}

const (
	deleteBatch  = 5000 // entries per request, so that each ends in time
	deleteRounds = 10000
)

// delete works in rounds. Each starts with a refresh, since delete-by-query only
// sees refreshed entries. The last round finds nothing.
func (x *Index) delete(ctx context.Context, routing []string, which ...any) error {
	if err := x.ensure(ctx); err != nil {
		return err
	}
	body := map[string]any{"query": filtered(which...), "max_docs": deleteBatch}
	stuck := 0
	for range deleteRounds {
		if err := x.refreshNow(ctx); err != nil {
			return err
		}
		var answer struct {
			Deleted   int               `json:"deleted"`
			Conflicts int               `json:"version_conflicts"`
			TimedOut  bool              `json:"timed_out"`
			Failures  []json.RawMessage `json:"failures"`
		}
		if err := x.retry(ctx, func() error {
			return x.do(ctx, esapi.DeleteByQueryRequest{
				Index: []string{x.alias}, Routing: routing, Body: encoded(body),
				Conflicts: "proceed", Refresh: esapi.BoolPtr(true),
			}, &answer)
		}); err != nil {
			return err
		}
		if answer.Deleted == 0 && answer.Conflicts == 0 && !answer.TimedOut && len(answer.Failures) == 0 {
			return nil
		}
		if answer.Deleted > 0 {
			stuck = 0
			continue
		}
		if stuck++; stuck >= x.config.Attempts {
			break
		}
		if err := wait(ctx, stuck); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", sheaf.ErrUnavailable, sheaf.FailRetryable(sheaf.CategoryTarget, "index_busy",
		"Elasticsearch did not finish a deletion in %s: it is tried again later.", x.alias))
}

// Compact has Elasticsearch rewrite every segment with deleted entries, which
// continues after the call. By default it does so only once a tenth of a segment is
// deleted.
func (x *Index) Compact(ctx context.Context) error {
	if err := x.ensure(ctx); err != nil {
		return err
	}
	return x.retry(ctx, func() error {
		var stats struct {
			All struct {
				Total struct {
					Docs struct {
						Deleted int `json:"deleted"`
					} `json:"docs"`
				} `json:"total"`
			} `json:"_all"`
		}
		if err := x.do(ctx, esapi.IndicesStatsRequest{Index: []string{x.alias}, Metric: []string{"docs"}}, &stats); err != nil || stats.All.Total.Docs.Deleted == 0 {
			return err
		}
		every := map[string]any{"index": map[string]any{"merge": map[string]any{"policy": map[string]any{"expunge_deletes_allowed": 0}}}}
		if err := x.do(ctx, esapi.IndicesPutSettingsRequest{Index: []string{x.alias}, Body: encoded(every)}, nil); err != nil {
			return err
		}
		if err := x.do(ctx, esapi.IndicesFlushRequest{Index: []string{x.alias}}, nil); err != nil {
			return err
		}
		return x.do(ctx, esapi.IndicesForcemergeRequest{Index: []string{x.alias}, OnlyExpungeDeletes: esapi.BoolPtr(true), WaitForCompletion: esapi.BoolPtr(false)}, nil)
	})
}
