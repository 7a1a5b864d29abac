// Package api is the HTTP API of the pipeline: /v1, its OpenAPI description,
// problem+json, live events, keys and quotas. It is stateless: any number of API
// processes behave alike.
package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/batching"
	"sheaf/internal/blob"
	"sheaf/internal/buildinfo"
	"sheaf/internal/doctor"
	"sheaf/internal/edits"
	"sheaf/internal/embed"
	"sheaf/internal/eval"
	"sheaf/internal/graphs"
	"sheaf/internal/logctx"
	"sheaf/internal/notify"
	"sheaf/internal/queue"
	"sheaf/internal/receipt"
	"sheaf/internal/search"
	"sheaf/internal/settings"
	"sheaf/internal/watch"
	"sheaf/internal/webhook"
	"sheaf/parser/child"
)

// Renderer renders pages and embedded pictures. *child.Pool implements it.
type Renderer interface {
	Render(ctx context.Context, src child.Source, n, dpi int, clip *sheaf.Box) (image []byte, mediaType string, err error)
	Picture(ctx context.Context, src child.Source, name string, side int) (image []byte, mediaType string, err error)
}

// Files fetches originals to this host, whole or by the blocks that are read.
type Files interface {
	Fetch(ctx context.Context, key, sha256 string, size int64) (path string, release func(), err error)
	FetchBlocks(ctx context.Context, key, sha256 string, size int64) (path string, fill blob.Fill, release func(), err error)
}

// Tracer creates request spans. Request and Stage each return the span's context
// and a function that ends it.
type Tracer interface {
	// Request starts a span; traceparent is the caller's, "" if none.
	Request(ctx context.Context, traceparent, name string, attrs ...slog.Attr) (context.Context, func(error))
	Stage(ctx context.Context, name string) (context.Context, func(error))
	Annotate(ctx context.Context, attrs ...slog.Attr)
	// Traceparent identifies the context's span, for tasks that continue its trace.
	Traceparent(ctx context.Context) string
}

// Observer counts requests. Routes are patterns such as
// "POST /v1/jobs/{job}:cancel", so their number is bounded.
type Observer interface {
	Requested(route string, status int, took time.Duration)
	// Streaming counts the start of an event stream; call ended when it ends.
	Streaming(route string) (ended func())
}

// Config holds the API's dependencies and settings.
type Config struct {
	Catalog  Catalog
	Ingest   *ingest.Service
	Search   *search.Searcher
	Edits    *edits.Service
	Graphs   *graphs.Service
	Blobs    blob.Store
	Files    Files
	Renderer Renderer // nil: no page images
	// Previewer tries settings on pages. nil: no previews.
	Previewer Previewer
	Queue     queue.Queue
	Chat      eval.Asker                                                     // nil: no language model
	Embedder  embed.Embedder                                                 // of the search index; nil: no /v1/embeddings
	Receipts  *receipt.Signer                                                // nil: receipts are not signed
	Health    *Health                                                        // nil: /readyz knows of no dependencies
	Doctor    func(ctx context.Context, repair bool) (*doctor.Report, error) // nil: no /v1/doctor
	Indexes   Indexes                                                        // nil: no /v1/index
	// Confinement reports how parsers are sandboxed. May be nil.
	Confinement func(ctx context.Context) ([]child.Protection, error)
	Observe     Observer     // notified of requests; may be nil
	Metrics     http.Handler // nil: no /metrics
	Page        Page         // served at /; nil: nothing
	Interfaces  Interfaces   // third-party protocols; nil: none
	Log         *slog.Logger
	Trace       Tracer // nil: no spans; tasks then carry the caller's traceparent
	Build       buildinfo.Info

	Auth           bool // require keys; otherwise everything belongs to the local tenant
	Prices         Prices
	AllowURLs      []string // hosts that {"url": …} may name
	WebhookHosts   webhook.Hosts
	MaxUploadBytes int64
	MetricsToken   string        // grants access to /metrics in addition to admin keys; "" for none
	BodyIdle       time.Duration // time for a body to deliver another kilobyte, and for a client to read the next part of a response; default 1 min
	MaxUploads     int           // concurrent, per tenant; default 100
	MaxStreams     int           // concurrent, per tenant; default 200
	MaxPreviews    int           // concurrent, of all tenants; others wait; default 16
	EventPoll      time.Duration // between polls of the log while there are streams; default 100 ms
	// Changed is signaled when this process changes something, Changes when another
	// process does. nil: streams rely on polling the log.
	Changed notify.Signal
	Changes func(ctx context.Context) <-chan struct{}
	// Stopping is closed on shutdown: live streams end and waits are answered, so
	// that only real work delays it. May be nil.
	Stopping <-chan struct{}
}

// Prices are the charges of a language model; zero if unknown.
type Prices struct {
	Currency         string
	PerMillionTokens float64 // that it reads and writes
}

// ErrStopping as a context's cause means the process shut down before the request
// finished.
var ErrStopping = errors.New("the server is stopping")

// Server answers requests.
type Server struct {
	cfg Config
	log *slog.Logger
	api huma.API
	mux *routeMux
	// table holds the API's routes by mux pattern.
	table   map[string]*route
	foreign map[string]bool // patterns of Config.Interfaces
	handler http.Handler

	uploads, streams, evaluating, previewing, exporting *gate // concurrent operations per tenant
	allPreviews                                         *gate // across all tenants
	drawing                                             *turns
	previewTurns                                        *semaphore.Weighted
	hub                                                 *watch.Hub
	lasts                                               *batching.Group[lastOf, lastSeq]
}

// New builds the routes.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.BodyIdle = cmp.Or(cfg.BodyIdle, time.Minute)
	s := &Server{cfg: cfg, log: cfg.Log, mux: &routeMux{ServeMux: http.NewServeMux()}, uploads: newGate(cmp.Or(cfg.MaxUploads, 100)), streams: newGate(cmp.Or(cfg.MaxStreams, 200)), evaluating: newGate(1), exporting: newGate(exportsAtOnce),
		previewing: newGate(tenantPreviews), allPreviews: newGate(allPreviews), drawing: newTurns(tenantImages), previewTurns: semaphore.NewWeighted(int64(cmp.Or(cfg.MaxPreviews, allPreviews)))}
	s.hub = watch.New(watch.Config{Log: cfg.Catalog, Changed: cfg.Changed, Changes: cfg.Changes, Encode: eventFrame, Poll: cfg.EventPoll, Logger: cfg.Log})
	s.lasts = batching.New(batching.Config[lastOf]{Max: 10_000, Timeout: lastsTime}, s.readLasts)
	hc := huma.DefaultConfig("Sheaf", cmp.Or(cfg.Build.String(), "dev"))
	hc.Info.Description = "Document ingestion: upload, true progress, search with exact citations."
	hc.OpenAPIPath, hc.DocsPath, hc.SchemasPath = "/openapi", "", ""
	hc.Transformers = append(hc.Transformers, chooseFields)
	hc.CreateHooks = nil // no $schema members in responses
	hc.Formats = map[string]huma.Format{"application/json": strictJSON, "json": strictJSON}
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[sheaf.Range](), reflect.TypeFor[[2]int]()) // its JSON form
	aliasOpt[int](schemas)
	aliasOpt[bool](schemas)
	aliasOpt[string](schemas)
	aliasOpt[[]string](schemas)
	aliasOpt[[]sheaf.Range](schemas)
	aliasOpt[sheaf.RunConfig](schemas)
	hc.Components.Schemas = schemas
	hc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer"}, "key": {Type: "apiKey", In: "header", Name: "X-Api-Key"},
	}
	hc.Security = []map[string][]string{{"bearer": {}}, {"key": {}}}
	s.api = huma.NewAPI(hc, verbAdapter{humago.NewAdapter(s.mux, "")})
	// Client generators require one. It is relative to the URL of the description.
	s.api.OpenAPI().Servers = []*huma.Server{{URL: "/", Description: "The server that served this description"}}
	s.routes()
	s.buildTable()
	describeSettings(schemas.Map()["ParseConfig"])
	describeRunSettings(schemas.Map()["ParseConfig"])
	describeProperties(schemas.Map())
	describeAll(s.api.OpenAPI())
	s.foreign = map[string]bool{}
	if cfg.Interfaces != nil {
		for pattern, h := range cfg.Interfaces(local{s}) {
			s.foreign[pattern] = true
			s.mux.ServeMux.Handle(pattern, h)
		}
	}
	s.handler = s.identify(s.compressed(s.bounded(s.authenticate(s.guard(s.idempotent(http.HandlerFunc(s.serve)))))))
	return s
}

// aliasOpt describes an optional setting as its value type.
func aliasOpt[T any](schemas huma.Registry) {
	schemas.RegisterTypeAlias(reflect.TypeFor[sheaf.Opt[T]](), reflect.TypeFor[T]())
}

// describeSettings documents the keys of parser_config and their defaults.
func describeSettings(config *huma.Schema) {
	if config == nil {
		return
	}
	for _, set := range settings.Table {
		p := config.Properties[set.Name]
		p.Description = set.Describe()
		p.Nullable = true // null resets it
		if set.Name == "chunk_method" {
			p.Description += ". One of " + strings.Join(settings.MethodNames(), ", ")
		}
	}
}

// describeRunSettings does the same for settings that only datasets have.
func describeRunSettings(config *huma.Schema) {
	if config == nil {
		return
	}
	for _, set := range settings.Runs {
		p := config.Properties[set.Name]
		p.Description, p.Nullable = set.Describe(), true
	}
}

// schemaName disambiguates types of the same name by prefixing those of search.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if strings.HasSuffix(t.PkgPath(), "/search") {
		return "Search" + name
	}
	return name
}

// Run follows the event log for the streams until ctx ends.
func (s *Server) Run(ctx context.Context) { s.hub.Run(ctx) }

// OpenAPI returns the OpenAPI document as JSON.
func (s *Server) OpenAPI() ([]byte, error) { return json.MarshalIndent(s.api.OpenAPI(), "", "  ") }

// Handler returns the server's handler.
func (s *Server) Handler() http.Handler { return s.handler }

// verb matches the action at the end of a path: /v1/jobs/{job}:cancel. Some clients
// escape the colon.
var verb = regexp.MustCompile(`^(.+)(?::|%3[Aa])([a-z]+)$`)

// verbAdapter allows verbs after a colon in routes, which net/http patterns cannot
// express: internally the verb is a segment ":verb".
type verbAdapter struct{ huma.Adapter }

func (a verbAdapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	inner := *op
	inner.Path = verbPath(op.Path)
	a.Adapter.Handle(&inner, func(ctx huma.Context) {
		if live, ok := op.Metadata[metaStream].(liveSource); ok {
			if r, w := humago.Unwrap(ctx); wantsStream(r) {
				live(w, r)
				return
			}
		}
		handler(ctx)
	})
}

func verbPath(p string) string {
	if m := verb.FindStringSubmatch(p); m != nil {
		return m[1] + "/:" + m[2]
	}
	return p
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if found := matchOf(r.Context()); found.pattern != "" {
		if rt := found.route; rt != nil && rt.scope != scopeRead && r.Method != http.MethodGet && r.Method != http.MethodHead {
			tenant := tenantOf(r.Context())
			if rt.scope == scopeAdmin {
				tenant = "" // it may have changed another tenant's
			}
			defer func() {
				job, made := strings.CutPrefix(w.Header().Get("Location"), "/v1/jobs/")
				if !made {
					job = ""
				}
				s.hub.Changed(tenant, job)
			}()
		}
		s.mux.ServeHTTP(w, routed(r))
		return
	}
	// The page serves every URL without a route, but none under the API, where a
	// wrong one must be a 404. The same goes for programs at any URL, since they
	// cannot read HTML.
	api := r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/")
	if s.cfg.Page != nil && !api && (r.Method == http.MethodGet || r.Method == http.MethodHead) && (s.cfg.Page.Has(r.URL.Path) || takesHTML(r)) {
		s.cfg.Page.ServeHTTP(w, r)
		return
	}
	// Let the mux tell 405 from 404, but respond in our own format.
	rec := &statusOnly{header: http.Header{}}
	s.mux.ServeHTTP(rec, routed(r))
	if allow := rec.header.Get("Allow"); rec.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		s.writeProblem(w, r, newProblem(405, "", fmt.Sprintf("%s is not possible here; use %s", r.Method, anyOf(strings.Split(allow, ", "), "or"))))
		return
	}
	s.writeProblem(w, r, newProblem(404, "", fmt.Sprintf("there is nothing at %s; %s", r.URL.Path, s.nearestPath(r.URL.Path))))
}

// Page is the web UI.
type Page interface {
	http.Handler
	Has(path string) bool // whether path is a file of it, rather than a client-side route
}

// takesHTML reports whether the client accepts HTML, as browsers do.
func takesHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// nearestPath ends the message about an unknown URL with a suggestion.
func (s *Server) nearestPath(path string) string {
	given := strings.Split(strings.Trim(path, "/"), "/")
	best, bound := "", 0
	for _, rt := range s.table {
		_, known, _ := strings.Cut(rt.pattern, " ")
		parts := strings.Split(strings.Trim(known, "/"), "/")
		if len(parts) != len(given) || len(given) > 12 || len(path) > 1000 {
			continue
		}
		sum, ok := 0, true
		for i, p := range parts {
			if strings.HasPrefix(p, "{") && strings.HasSuffix(p, "}") {
				if strings.Contains(given[i], ":") { // more likely a misspelled verb
					sum += 3
				}
				continue
			}
			if tail, verb, isVerb := strings.Cut(p, "}:"); isVerb && strings.HasPrefix(tail, "{") {
				_, p, _ = strings.Cut(given[i], ":")
				sum += editDistance(p, verb)
				ok = ok && Nearest(p, []string{verb}) != ""
				continue
			}
			sum += editDistance(given[i], p)
			ok = ok && Nearest(given[i], []string{p}) != ""
		}
		if ok && (best == "" || sum < bound || sum == bound && known < best) {
			best, bound = known, sum
		}
	}
	if best == "" {
		return "/docs lists what there is"
	}
	return fmt.Sprintf("did you mean %s? /docs lists what there is", best)
}

type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(n int)           { s.status = n }

type contextKey int

const (
	requestIDKey contextKey = iota
	principalKey
	callerKey
	keyedKey
	matchKey
)

// principal identifies the caller. Only this package can put one into a context.
type principal struct {
	tenant string
	key    string // key id; "" without keys
	name   string // key name
	scopes []string
}

// caller is filled in by authenticate for the log line that identify writes.
type caller struct{ tenant string }

func withCaller(ctx context.Context) (context.Context, *caller) {
	c := &caller{}
	return context.WithValue(ctx, callerKey, c), c
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

func tenantOf(ctx context.Context) string {
	p, _ := ctx.Value(principalKey).(principal)
	return p.tenant
}

// identify assigns a request id, logs the outcome and turns a panic into a 500.
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if len(id) == 0 || len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			id = sheaf.NewID()
		}
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		ctx := logctx.With(context.WithValue(r.Context(), requestIDKey, id), slog.String("request", id))
		ctx, who := withCaller(ctx)
		found := s.match(r)
		ctx = context.WithValue(ctx, matchKey, found)
		ctx, endSpan := s.span(ctx, r, id)
		r = r.WithContext(ctx)
		begun := time.Now()
		rec := &recorder{ResponseWriter: w, status: 200}
		defer func() {
			ctx := logctx.With(ctx, slog.String("tenant", who.tenant))
			defer func() { endSpan(who.tenant, rec.status) }()
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				s.log.ErrorContext(ctx, "handler panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				rec.status = 500
				s.observe(r, rec, time.Since(begun))
				if rec.wrote {
					panic(http.ErrAbortHandler) // a truncated response must not look complete
				}
				s.writeProblem(w, r, newProblem(500, "", "something went wrong inside Sheaf; the log has the details under this request id"))
				return
			}
			s.observe(r, rec, time.Since(begun))
			s.log.DebugContext(ctx, "request", "method", r.Method, "path", r.URL.Path, "status", rec.status, "ms", time.Since(begun).Milliseconds())
		}()
		next.ServeHTTP(rec, r)
	})
}

// observe counts a finished request. Streams are excluded: their duration depends
// on the watcher and says nothing about latency.
func (s *Server) observe(r *http.Request, rec *recorder, took time.Duration) {
	if s.cfg.Observe == nil || strings.HasPrefix(rec.Header().Get("Content-Type"), "text/event-stream") {
		return
	}
	s.cfg.Observe.Requested(s.routeLabel(r), rec.status, took)
}

// routeLabel names the route of a request. Without a route it omits the method,
// which can be anything a client sends.
func (s *Server) routeLabel(r *http.Request) string {
	if rt := matchOf(r.Context()).route; rt != nil {
		return rt.pattern
	}
	if p := matchOf(r.Context()).pattern; s.foreign[p] {
		return p
	}
	return "unknown"
}

// span starts the span of a request to /v1, named after its route: a URL would give
// each document its own span name.
func (s *Server) span(ctx context.Context, r *http.Request, id string) (context.Context, func(tenant string, status int)) {
	if s.cfg.Trace == nil || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return ctx, func(string, int) {}
	}
	name := r.Method + " unknown"
	if rt := matchOf(ctx).route; rt != nil {
		name = rt.pattern
	}
	ctx, end := s.cfg.Trace.Request(ctx, traceOf(r.Header.Get("traceparent")), name, slog.String("request", id), slog.String("http.request.method", r.Method), slog.String("url.path", r.URL.Path))
	return ctx, func(tenant string, status int) {
		s.cfg.Trace.Annotate(ctx, slog.String("tenant", tenant), slog.Int("http.response.status_code", status))
		var err error
		if status >= 500 {
			err = errors.New(http.StatusText(status))
		}
		end(err)
	}
}

// stage runs f within its own span.
func (s *Server) stage(ctx context.Context, name string, f func(ctx context.Context) error) error {
	if s.cfg.Trace == nil {
		return f(ctx)
	}
	ctx, end := s.cfg.Trace.Stage(ctx, name)
	err := f(ctx)
	end(err)
	return err
}

// recorder records the status for the log.
type recorder struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (r *recorder) WriteHeader(n int) {
	r.status, r.wrote = n, true
	r.ResponseWriter.WriteHeader(n)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = true
	return r.ResponseWriter.Write(b)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// HashKey returns the stored form of an API key's secret.
func HashKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// authenticate identifies the caller. Without keys everything belongs to the local
// tenant, and cross-origin requests from web pages are rejected: otherwise a
// browser would lend them the user's loopback access.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := matchOf(r.Context())
		// URLs outside the API are open, except those that look like part of it.
		open := found.route == nil && !strings.HasPrefix(r.URL.Path, "/v1/")
		p := principal{tenant: sheaf.LocalTenant, scopes: []string{"admin"}}
		switch {
		case !s.cfg.Auth:
			if err := sameOrigin(r); err != nil {
				s.writeProblem(w, r, err)
				return
			}
		case !open:
			secret := bearer(r)
			if secret == "" {
				s.writeProblem(w, r, newProblem(401, "", "send an API key as `Authorization: Bearer KEY` or `X-Api-Key: KEY`"))
				return
			}
			key, err := s.cfg.Catalog.KeyByHash(r.Context(), HashKey(secret))
			if errors.Is(err, sheaf.ErrNotFound) {
				s.writeProblem(w, r, newProblem(401, "", "the API key is unknown or revoked"))
				return
			}
			if err != nil {
				s.writeProblem(w, r, err)
				return
			}
			p = principal{tenant: key.TenantID, key: key.ID, name: key.Name, scopes: key.Scopes}
			if found.route != nil && !allows(p.scopes, found.route.scope) {
				s.writeProblem(w, r, newProblem(403, "", fmt.Sprintf("the API key lacks the scope %q, which %s needs; use a key that has it", found.route.scope, found.route.pattern)))
				return
			}
		}
		if who, ok := r.Context().Value(callerKey).(*caller); ok {
			who.tenant = p.tenant
		}
		ctx := logctx.With(context.WithValue(r.Context(), principalKey, p), slog.String("tenant", p.tenant))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// bearer returns the secret in a request, or "".
func bearer(r *http.Request) string {
	if b, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(b)
	}
	return r.Header.Get("X-Api-Key")
}

// tokenMatches compares in constant time; an empty token matches nothing.
func tokenMatches(secret, token string) bool {
	a, b := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(token))
	return token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// allows reports whether a key with these scopes satisfies need.
func allows(scopes []string, need string) bool {
	return slices.Contains(scopes, scopeAdmin) || slices.Contains(scopes, need) || need == scopeRead && slices.Contains(scopes, scopeWrite)
}

// sameOrigin rejects cross-site requests and foreign Host headers (DNS rebinding)
// when no key protects the API.
func sameOrigin(r *http.Request) error {
	host := r.Host
	if h, _, ok := strings.Cut(host, ":"); ok && !strings.HasPrefix(host, "[") {
		host = h
	}
	if host != "localhost" && host != "127.0.0.1" && !strings.HasPrefix(r.Host, "[::1]") && host != "" {
		return newProblem(403, "foreign_host", "this server answers on loopback only; turn on server.auth to serve other hosts")
	}
	if o := r.Header.Get("Origin"); o != "" {
		u, err := url.Parse(o)
		if err != nil || u.Host != r.Host {
			return newProblem(403, "foreign_origin", "a page of another site may not use this server; turn on server.auth and send a key")
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" && r.Method != http.MethodGet {
		return newProblem(403, "foreign_origin", "a page of another site may not use this server; turn on server.auth and send a key")
	}
	return nil
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceOf returns h if it is a valid W3C trace context, otherwise "".
func traceOf(h string) string {
	if traceparent.MatchString(h) {
		return h
	}
	return ""
}

// originAt is origin for work that must not start before notBefore.
func (s *Server) originAt(ctx context.Context, traceHeader string, notBefore time.Time) (from ingest.Origin, err error) {
	from = s.origin(ctx, traceHeader)
	from.NotBefore, err = ingest.CheckNotBefore(notBefore, time.Now())
	return from, err
}

// origin identifies this request to what it creates.
func (s *Server) origin(ctx context.Context, traceHeader string) ingest.Origin {
	k, _ := ctx.Value(keyedKey).(keyed)
	p, _ := ctx.Value(principalKey).(principal)
	return ingest.Origin{Trace: s.taskTrace(ctx, traceHeader), Key: k.key, Since: k.since, Requester: p.name}
}

// taskTrace is the trace that this request's tasks continue: this server's span or,
// without a tracer, the caller's.
func (s *Server) taskTrace(ctx context.Context, header string) string {
	if s.cfg.Trace != nil {
		return s.cfg.Trace.Traceparent(ctx)
	}
	return traceOf(header)
}
