// Package elastic is the fleet's index: Elasticsearch 8. There is one index per
// embedding model (the mapping fixes the width of vectors), accessed through an
// alias so that a rebuilt index can replace it in one step. All tenants share it;
// every request is routed and filtered by tenant. A tenant that outgrows a shard
// has its own index, routed by document.
package elastic

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v8/esapi"

	"sheaf"
	"sheaf/internal/batching"
	"sheaf/internal/index"
)

// Config locates Elasticsearch and names the model whose vectors the index holds.
type Config struct {
	URLs   []string // of the nodes, "https://es-1:9200"; calls are spread over them
	APIKey string   // base64 as Elasticsearch shows it; takes precedence over Username
	// Key and PasswordNow return the current API key and password; nil if they do
	// not change.
	Key, PasswordNow func() string
	Username         string
	Password         string
	CAFile           string // PEM file with the authorities that sign the servers' certificates; "" for the system's

	Prefix   string // of alias and index names, default "sheaf"
	ModelID  string // embedding model of all vectors; "" with Dim 0 for an index without vectors
	Dim      int    // values in a vector, 0–4096
	Owner    string // of the chunks: an index of another owner is rejected; "" accepts any, and recreates a missing one
	Suffix   string // of the alias, if a model has several indexes
	Existing bool   // do not create a missing index
	Shards   int    // of a new index, default 1; about one for each 10 million chunks
	// ByDocument spreads a tenant's documents over all shards, each of which then
	// takes part in every search: for the index of one tenant.
	ByDocument bool
	Replicas   int // of a new index, default 0; at least one if nodes may fail

	// RefreshEvery is how often writes become visible under load; default 1 s.
	// Negative: on each call of Refresh.
	RefreshEvery time.Duration
	// GraphFrom is the number of entries from which vectors get a graph; default
	// 50,000. Negative: from the start.
	GraphFrom int

	RequestTimeout time.Duration // per request, default 30 s
	Retried        func()        // called before a request is retried; may be nil
	Attempts       int           // per request before the call fails with ErrUnavailable, default 6
}

const (
	maxDim = 4096
	// graphEffort is how many neighbors are considered to place a new vector in the
	// graph; pgvector's default is the same. Measured on 88,530 vectors of 256
	// values: two thirds to all of the CPU per chunk of Elasticsearch's default of
	// 100, and .949 of the ten nearest found instead of .952 (.896 instead of .907
	// in a single segment).
	graphEffort    = 64
	bulkBytes      = 8 << 20 // per bulk request, unless a single entry is larger
	bulkEntries    = 1000
	maxEntryBytes  = 64 << 20 // the server's default limit is 100 MB per request
	maxAnswerBytes = 256 << 20
	mostRefreshes  = 1000            // callers sharing one refresh
	refreshTime    = 5 * time.Minute // for one, including retries
	firstBackoff   = 100 * time.Millisecond
	maxBackoff     = 5 * time.Second
)

// Index implements index.Index.
type Index struct {
	config    Config
	alias     string // target of all requests
	name      string // of the index to create if none exists
	client    *elastictransport.Client
	transport *http.Transport

	bulks     *batching.Group[[]line, bulkAnswer]
	bulkAt    atomic.Int64                     // time of the last bulk, Unix nanoseconds
	refreshes *batching.Group[struct{}, error] // refreshes requested explicitly
	waits     *batching.Group[struct{}, error] // waits for the server's own refreshes
	pace      pace
	flat      atomic.Bool  // vectors have no graph yet
	unseen    atomic.Int64 // entries written since the index was last measured

	making   sync.Mutex
	made     atomic.Bool
	seen     atomic.Bool // the index has existed
	genuine  atomic.Bool // the server identified itself as Elasticsearch
	rescores atomic.Bool // the server can rescore its nearest hits
	closed   atomic.Bool

	migrating  atomic.Bool // there may be documents of format 1
	life       context.Context
	end        context.CancelFunc
	background sync.WaitGroup
}

var _ index.Index = (*Index)(nil)

// Open connects, and creates the index if it is missing. It succeeds even if
// Elasticsearch is down: every call retries, and fails with sheaf.ErrUnavailable
// until then. What waiting cannot fix (a different server at the address, wrong
// credentials, an index of another model) is a *sheaf.Failure that says what to do.
func Open(ctx context.Context, config Config) (*Index, error) {
	if config.Dim < 0 || config.Dim > maxDim {
		return nil, fmt.Errorf("%w: an index of vectors with %d values: at most %d", sheaf.ErrInvalid, config.Dim, maxDim)
	}
	if len(config.URLs) == 0 {
		return nil, fmt.Errorf("%w: %w", sheaf.ErrInvalid, sheaf.Fail(sheaf.CategoryPolicy, "index_url_missing", "No Elasticsearch URL is configured: set one such as http://localhost:9200."))
	}
	nodes := make([]*url.URL, len(config.URLs))
	for i, u := range config.URLs {
		p, err := url.Parse(strings.TrimRight(u, "/"))
		if err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" {
			return nil, fmt.Errorf("%w: %w", sheaf.ErrInvalid, sheaf.Fail(sheaf.CategoryPolicy, "index_url_invalid", "The Elasticsearch URL %q is not one: write http:// or https://, the host and the port.", redact(u)))
		}
		nodes[i] = p
	}
	if config.Prefix == "" {
		config.Prefix = "sheaf"
	}
	config.Shards = max(config.Shards, 1)
	config.RefreshEvery = cmp.Or(config.RefreshEvery, time.Second)
	config.GraphFrom = cmp.Or(config.GraphFrom, 50_000)
	if config.RequestTimeout <= 0 {
		config.RequestTimeout = 30 * time.Second
	}
	if config.Attempts <= 0 {
		config.Attempts = 6
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.ResponseHeaderTimeout = config.RequestTimeout
	if config.CAFile != "" {
		authorities, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", sheaf.ErrInvalid, sheaf.Fail(sheaf.CategoryPolicy, "index_ca_unreadable", "The certificate file %s for Elasticsearch cannot be read (%v): check the path.", config.CAFile, err))
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%w: %w", sheaf.ErrInvalid, sheaf.Fail(sheaf.CategoryPolicy, "index_ca_invalid", "The certificate file %s for Elasticsearch holds no PEM certificate: export the authority's certificate as PEM.", config.CAFile))
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	options := []elastictransport.Option{
		elastictransport.WithURLs(nodes...), elastictransport.WithTransport(transport), elastictransport.WithUserAgent("sheaf"),
		elastictransport.WithDisableRetry(), // retried here, with one limit for all causes
	}
	user, password := config.Username, config.Password
	if u := nodes[0].User; u != nil { // the first node's credentials apply to all
		user = u.Username()
		password, _ = u.Password()
	}
	if live := liveHeader(config, user); live != nil {
		options = append(options, elastictransport.WithTransport(authorized{transport, live}))
	} else if config.APIKey != "" {
		options = append(options, elastictransport.WithAPIKey(config.APIKey))
	} else if user != "" || password != "" {
		options = append(options, elastictransport.WithBasicAuth(user, password))
	}
	client, err := elastictransport.NewClient(options...)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "index_config_invalid", "The Elasticsearch settings are not usable (%v): check URL and certificate.", err)
	}
	alias := indexName(config.Prefix+"-"+config.ModelID) + config.Suffix
	x := &Index{config: config, alias: alias, name: alias + "-v1", client: client, transport: transport}
	x.bulks = batching.New(batching.Config[[]line]{
		Max: gatherRanges, Timeout: refreshTime, Concurrency: bulksAtOnce, Fill: true, WeightFunc: bulkWeight, MaxWeight: gatherBytes,
	}, x.bulkTogether)
	each := func(f func(context.Context) error) func(context.Context, []struct{}) []error {
		return func(ctx context.Context, asked []struct{}) []error { return slices.Repeat([]error{f(ctx)}, len(asked)) }
	}
	x.refreshes = batching.New(batching.Config[struct{}]{Max: mostRefreshes, Timeout: refreshTime}, each(x.refresh))
	x.waits = batching.New(batching.Config[struct{}]{Max: mostRefreshes, Timeout: refreshTime, Concurrency: waitsAtOnce, Fill: true}, each(x.await))
	x.life, x.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := x.ensure(ctx); err != nil && !errors.Is(err, sheaf.ErrUnavailable) {
		_ = x.Close()
		return nil, err
	}
	return x, nil
}

// authorized sets the current credentials on each request.
type authorized struct {
	http.RoundTripper
	header func() string
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", a.header())
	return a.RoundTripper.RoundTrip(r)
}

// liveHeader returns nil if the credentials do not change.
func liveHeader(c Config, user string) func() string {
	switch {
	case c.APIKey != "" && c.Key != nil:
		return func() string { return "ApiKey " + c.Key() }
	case c.APIKey == "" && user != "" && user == c.Username && c.PasswordNow != nil:
		return func() string {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+c.PasswordNow()))
		}
	}
	return nil
}

// redact removes user and password from a URL for use in a message, even if it is
// malformed.
func redact(u string) string {
	if i := strings.LastIndexByte(u, '@'); i >= 0 {
		scheme, _, ok := strings.Cut(u[:i], "://")
		if !ok {
			return "***" + u[i:]
		}
		return scheme + "://***" + u[i:]
	}
	return u
}

// indexName replaces characters that Elasticsearch does not allow in index names.
func indexName(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	name := strings.Trim(b.String(), "-_.")
	return name[:min(len(name), 200)]
}

// mapping is the mapping of a new index. The terms of index.Analyze are what word
// searches match, so that this index and the embedded one rank alike; the server
// only splits them at spaces. Terms and vector stay in _source, because an update
// or reindex without it would silently drop the chunk from the vector side;
// requests exclude them instead.
func (x *Index) mapping() map[string]any {
	type m = map[string]any
	keyword, stored := m{"type": "keyword"}, m{"type": "object", "enabled": false}
	shown := m{"type": "keyword", "index": false, "doc_values": false}
	flat := m{"type": "flattened", "ignore_above": 8000} // Lucene rejects longer values
	properties := m{
		"tenant": keyword, "dataset": keyword, "document": keyword, "range": keyword, "media_type": keyword,
		"pages": m{"type": "integer"}, "metadata": flat, "columns": flat,
		"name": shown, "headings": shown, "text": shown, "chunk": stored,
	}
	maps.Copy(properties, labelFields)
	maps.Copy(properties, termFields)
	if x.config.Dim > 0 {
		properties["vector"] = m{"type": "dense_vector", "dims": x.config.Dim, "index": true, "similarity": "cosine", "index_options": graphOptions()}
		if x.growsLater() {
			properties["vector"].(m)["index_options"] = m{"type": flatVectors}
		}
	}
	return m{
		"settings": m{
			"number_of_shards": x.config.Shards, "number_of_replicas": x.config.Replicas,
			// Callers that need their writes visible wait for the next refresh.
			// Each extra one makes a small segment that every merge rewrites.
			"refresh_interval": x.interval(),
		},
		"mappings": m{
			"dynamic": "strict", "_meta": m{"model": x.config.ModelID, "dim": x.config.Dim, "format": 2, "owner": x.config.Owner},
			"_routing": m{"required": true}, "properties": properties,
		},
		"aliases": m{x.alias: m{"is_write_index": true}},
	}
}

// fieldNames are the fields for word searches.
var fieldNames = [index.Fields]string{index.FieldText: "terms_text", index.FieldHeadings: "terms_headings", index.FieldName: "terms_name"}

// termFields were added in format 2, whose number each of its documents carries.
// Documents of a format 1 index are searched in "body" until they have it.
var termFields = func() map[string]any {
	fields := map[string]any{"format": map[string]any{"type": "byte"}}
	for _, name := range fieldNames {
		fields[name] = map[string]any{"type": "text", "analyzer": "whitespace"}
	}
	return fields
}()

// labelFields were added later: they are added to an index without them, and match
// existing entries once these are indexed again.
var labelFields = map[string]any{
	"language": map[string]any{"type": "keyword"}, "keywords": map[string]any{"type": "keyword"}, "tags": map[string]any{"type": "keyword"},
}

// ensure creates the index and its alias if needed, and checks whose vectors it
// holds. Any number of processes may call it concurrently.
func (x *Index) ensure(ctx context.Context) error {
	if x.closed.Load() {
		return fmt.Errorf("%w: the index is closed", sheaf.ErrUnavailable)
	}
	if x.made.Load() {
		return nil
	}
	x.making.Lock()
	defer x.making.Unlock()
	if x.made.Load() {
		return nil
	}
	var server struct {
		Version struct {
			Number string `json:"number"`
		} `json:"version"`
	}
	if err := x.do(ctx, esapi.InfoRequest{}, &server); err != nil {
		if e, ok := errors.AsType[*answerError](err); ok && e.status == http.StatusNotFound {
			return x.notElasticsearch()
		}
		return x.explain(err)
	}
	if server.Version.Number == "" {
		return x.notElasticsearch()
	}
	x.rescores.Store(canRescore(server.Version.Number))
	for range 3 {
		var mappings map[string]struct {
			Mappings struct {
				Meta struct {
					Model  string `json:"model"`
					Dim    int    `json:"dim"`
					Format int    `json:"format"`
					Owner  string `json:"owner"`
				} `json:"_meta"`
				Properties struct {
					Vector struct {
						Dims    int `json:"dims"`
						Options struct {
							Type string `json:"type"`
						} `json:"index_options"`
					} `json:"vector"`
					Tags   json.RawMessage `json:"tags"`
					Format json.RawMessage `json:"format"`
					Body   json.RawMessage `json:"body"`
				} `json:"properties"`
			} `json:"mappings"`
		}
		err := x.do(ctx, esapi.IndicesGetMappingRequest{Index: []string{x.alias}}, &mappings)
		e, answered := errors.AsType[*answerError](err)
		switch {
		case err == nil:
			for name, m := range mappings {
				if m.Mappings.Meta.Model != x.config.ModelID || m.Mappings.Properties.Vector.Dims != x.config.Dim {
					return sheaf.Fail(sheaf.CategoryPolicy, "index_model_mismatch",
						"The Elasticsearch index %s holds vectors of model %q with %d values, but the configured model is %q with %d: set the model back, or choose another index prefix and rebuild the index.",
						name, m.Mappings.Meta.Model, m.Mappings.Properties.Vector.Dims, x.config.ModelID, x.config.Dim)
				}
				if own, has := x.config.Owner, m.Mappings.Meta.Owner; own != has && own != "" {
					if has != "" || x.existing() {
						return sheaf.Fail(sheaf.CategoryPolicy, "index_foreign",
							"The Elasticsearch index %s holds the chunks of another store: correct index.addrs or index.prefix. If they are right, the index is filled anew from the artifacts.", name)
					}
					meta := m.Mappings.Meta
					owned := map[string]any{"_meta": map[string]any{"model": meta.Model, "dim": meta.Dim, "format": meta.Format, "owner": own}}
					if err := x.do(ctx, esapi.IndicesPutMappingRequest{Index: []string{name}, Body: encoded(owned)}, nil); err != nil {
						return x.explain(err)
					}
				}
				if m.Mappings.Properties.Tags == nil {
					labels := esapi.IndicesPutMappingRequest{Index: []string{name}, Body: encoded(map[string]any{"properties": labelFields})}
					if err := x.do(ctx, labels, nil); err != nil {
						return x.explain(err)
					}
				}
				if m.Mappings.Properties.Format == nil {
					fields := esapi.IndicesPutMappingRequest{Index: []string{name}, Body: encoded(map[string]any{"properties": termFields})}
					if err := x.do(ctx, fields, nil); err != nil {
						return x.explain(err)
					}
				}
				if m.Mappings.Properties.Body != nil && !x.migrating.Load() {
					x.migrating.Store(true)
					x.background.Go(func() { x.migrate(x.life) })
				}
			}
			if err := x.settle(ctx); err != nil {
				return x.explain(err)
			}
			flat := false
			for _, m := range mappings {
				flat = flat || m.Mappings.Properties.Vector.Options.Type == flatVectors
			}
			x.flat.Store(flat)
			if flat && !x.seen.Load() {
				x.grow(ctx)
			}
			x.made.Store(true)
			x.seen.Store(true)
			return nil
		case answered && e.status == http.StatusNotFound && x.existing():
			return x.explain(err)
		case answered && e.status == http.StatusNotFound:
			err := x.do(ctx, esapi.IndicesCreateRequest{Index: x.name, Body: encoded(x.mapping())}, nil)
			if e, ok := errors.AsType[*answerError](err); ok && e.kind == "resource_already_exists_exception" {
				// Another process has just created it, or it lost its alias.
				err = x.do(ctx, esapi.IndicesUpdateAliasesRequest{Body: encoded(map[string]any{"actions": []any{
					map[string]any{"add": map[string]any{"index": x.name, "alias": x.alias, "is_write_index": true}}}})}, nil)
			}
			if err != nil {
				return x.explain(err)
			}
		default:
			return x.explain(err)
		}
	}
	return fmt.Errorf("%w: the index %s comes and goes", sheaf.ErrUnavailable, x.alias)
}

// existing reports whether the index must exist: a new one would lack what it held.
func (x *Index) existing() bool {
	return x.config.Existing || x.config.Owner != "" && x.seen.Load()
}

// Verify checks that the alias still points to the index that was opened.
func (x *Index) Verify(ctx context.Context) error {
	x.made.Store(false)
	return x.ensure(ctx)
}

// Drop deletes the indexes behind the alias and thereby the alias.
func (x *Index) Drop(ctx context.Context) error {
	var behind map[string]json.RawMessage
	err := x.do(ctx, esapi.IndicesGetAliasRequest{Name: []string{x.alias}}, &behind)
	if e, ok := errors.AsType[*answerError](err); ok && e.status == http.StatusNotFound {
		return x.Close()
	}
	if err == nil && len(behind) > 0 {
		err = x.do(ctx, esapi.IndicesDeleteRequest{Index: slices.Collect(maps.Keys(behind))}, nil)
	}
	if err != nil {
		return x.explain(err)
	}
	return x.Close()
}

// canRescore reports whether a server version supports rescore_vector, added in
// 8.18.
func canRescore(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major > 8 || major == 8 && minor >= 18)
}

// Ping checks that Elasticsearch responds and has the index. It does not create it.
func (x *Index) Ping(ctx context.Context) error {
	if x.closed.Load() {
		return fmt.Errorf("%w: the index is closed", sheaf.ErrUnavailable)
	}
	err := x.explain(x.do(ctx, esapi.IndicesGetSettingsRequest{Index: []string{x.alias}, Name: []string{"index.number_of_shards"}}, nil))
	if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code == "index_missing" && !x.seen.Load() {
		return nil // the first write creates it
	}
	return err
}

// Close closes the connections. Later calls fail with sheaf.ErrUnavailable.
func (x *Index) Close() error {
	x.closed.Store(true)
	x.end()
	x.background.Wait()
	x.transport.CloseIdleConnections()
	return nil
}

func (x *Index) refresh(ctx context.Context) error {
	return x.retry(ctx, func() error {
		var answer struct {
			Shards shards `json:"_shards"`
		}
		if err := x.do(ctx, esapi.IndicesRefreshRequest{Index: []string{x.alias}}, &answer); err != nil {
			return err
		}
		return answer.Shards.check()
	})
}

// shards reports how many shards took part in a response.
type shards struct {
	Failed   int               `json:"failed"`
	Failures []json.RawMessage `json:"failures"`
}

// check makes a partial response an error.
func (s shards) check() error {
	if s.Failed == 0 {
		return nil
	}
	reason := ""
	if len(s.Failures) > 0 {
		reason = string(s.Failures[0][:min(len(s.Failures[0]), 500)])
	}
	return fmt.Errorf("%w: %d shards of the index did not answer %s", sheaf.ErrUnavailable, s.Failed, reason)
}

// answerError is an error response of the server.
type answerError struct {
	status int
	kind   string // type of the error, such as index_not_found_exception
	reason string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("Elasticsearch answered %d %s: %s", e.status, e.kind, e.reason)
}

// encoded encodes a body of maps, strings and numbers, which cannot fail.
func encoded(body map[string]any) io.Reader {
	data, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("elastic: a body that does not encode: %v", err))
	}
	return bytes.NewReader(data)
}

// ndjson returns the header of a body with one JSON object per line. The client
// modifies it, so each request needs its own.
func ndjson() http.Header {
	return http.Header{"Content-Type": {"application/x-ndjson"}}
}

// do sends a request, which cannot be reused, and decodes the response into out
// unless it is nil.
func (x *Index) do(ctx context.Context, request esapi.Request, out any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, x.config.RequestTimeout)
	defer cancel()
	res, err := request.Do(limited, x.client)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", sheaf.ErrUnavailable, sheaf.FailRetryable(sheaf.CategoryTarget, "index_unreachable",
			"Elasticsearch at %s does not answer (%v): check the URL and that the server runs.", x.address(), err))
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 300 && !x.genuine.Load() {
		if res.Header.Get("X-Elastic-Product") != "Elasticsearch" {
			return x.notElasticsearch()
		}
		x.genuine.Store(true)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: the answer of Elasticsearch broke off: %w", sheaf.ErrUnavailable, err)
	}
	if res.StatusCode >= 300 {
		e := &answerError{status: res.StatusCode}
		var answer struct {
			Error json.RawMessage `json:"error"`
		}
		var detail errorDetail
		if json.Unmarshal(data, &answer) == nil && json.Unmarshal(answer.Error, &detail) == nil {
			e.kind, e.reason = detail.Type, detail.text()
		} else {
			e.reason = string(data[:min(len(data), 300)])
		}
		return e
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w: the answer of Elasticsearch is not readable: %w", sheaf.ErrUnavailable, err)
	}
	return nil
}

// errorDetail is the error object in responses and in bulk items.
type errorDetail struct {
	Type      string `json:"type"`
	Reason    string `json:"reason"`
	RootCause []struct {
		Type   string `json:"type"`
		Reason string `json:"reason"`
	} `json:"root_cause"`
	CausedBy struct {
		Reason string `json:"reason"`
	} `json:"caused_by"`
}

func (d errorDetail) text() string {
	text := d.Reason
	if len(d.RootCause) > 0 && d.RootCause[0].Reason != "" && d.RootCause[0].Reason != d.Reason {
		text += ": " + d.RootCause[0].Reason
	}
	if d.CausedBy.Reason != "" {
		text += ": " + d.CausedBy.Reason
	}
	return text[:min(len(text), 500)]
}

func (x *Index) address() string {
	shown := make([]string, len(x.config.URLs))
	for i, u := range x.config.URLs {
		shown[i] = redact(u)
	}
	return strings.Join(shown, ", ")
}

func (x *Index) notElasticsearch() error {
	return sheaf.Fail(sheaf.CategoryTarget, "index_not_elasticsearch",
		"The server at %s is not Elasticsearch 8: check the URL (OpenSearch and proxies that drop the X-Elastic-Product header are not supported).", x.address())
}

// explain turns an error response into an error of the contract, with a message.
func (x *Index) explain(err error) error {
	e, ok := errors.AsType[*answerError](err)
	if !ok {
		return err
	}
	wrap := func(kind error, f *sheaf.Failure) error {
		f.Detail = e.Error()
		return fmt.Errorf("%w: %w", kind, f)
	}
	switch {
	case e.kind == "cluster_block_exception":
		return wrap(sheaf.ErrReadOnly, sheaf.FailRetryable(sheaf.CategoryTarget, "index_read_only",
			"Elasticsearch refuses writes to %s (%s): free disk space on its nodes, or lift the block from the index.", x.alias, e.reason))
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		return wrap(sheaf.ErrMisconfigured, sheaf.FailRetryable(sheaf.CategoryTarget, "index_unauthorized",
			"Elasticsearch at %s refuses the credentials (status %d): correct the API key (index.api_key), or index.username and index.password, and let them create, read and write indexes named %s*; the work that waits goes on.", x.address(), e.status, x.config.Prefix))
	case e.kind == "index_not_found_exception" || e.kind == "alias_not_found_exception" ||
		e.status == http.StatusNotFound && strings.Contains(e.reason, "alias"):
		x.made.Store(false) // without an owner the next call recreates it, empty
		return wrap(sheaf.ErrUnavailable, sheaf.FailRetryable(sheaf.CategoryTarget, "index_missing",
			"The Elasticsearch alias %s is gone: point it at its index again, or rebuild the index from the artifacts.", x.alias))
	case retryable(e.status):
		return wrap(sheaf.ErrUnavailable, sheaf.FailRetryable(sheaf.CategoryTarget, "index_busy",
			"Elasticsearch is busy or starting (%s): it is tried again; add nodes if this goes on.", e.Error()))
	}
	return wrap(sheaf.ErrInvalid, sheaf.Fail(sheaf.CategoryInternal, "index_rejected", "Elasticsearch refused the request (%s): report this.", e.Error()))
}

func retryable(status int) bool {
	return status == http.StatusTooManyRequests || status >= 500
}

// retry calls f until it succeeds, at most config.Attempts times, with backoff. It
// retries only transient errors.
func (x *Index) retry(ctx context.Context, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		e, answered := errors.AsType[*answerError](err)
		again := errors.Is(err, sheaf.ErrUnavailable) || answered && retryable(e.status) && e.kind != "cluster_block_exception"
		if !again || attempt >= x.config.Attempts {
			return x.explain(err)
		}
		if err := x.wait(ctx, attempt); err != nil {
			return err
		}
	}
}

// wait reports a retry, then sleeps.
func (x *Index) wait(ctx context.Context, attempt int) error {
	if x.config.Retried != nil {
		x.config.Retried()
	}
	return wait(ctx, attempt)
}

// wait sleeps between half and all of the backoff of an attempt, counted from 1.
func wait(ctx context.Context, attempt int) error {
	d := min(firstBackoff<<min(attempt-1, 10), maxBackoff)
	d = d/2 + rand.N(d/2)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
