package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Scopes of keys, least privileged first. Write implies read, and scopeAdmin
// implies everything.
const (
	scopeRead  = "read"
	scopeWrite = "write"
	scopeAdmin = "admin" // covers what belongs to all tenants
)

// needs declares the scope that an operation requires, as OpenAPI does: by name in
// a security requirement.
func needs(op huma.Operation, scope string) huma.Operation {
	op.Security = []map[string][]string{{"bearer": {scope}}, {"key": {scope}}}
	return op
}

// route is what a request is checked against: the operation's scope, and the
// parameters, headers and body it accepts.
type route struct {
	pattern string // as described, "POST /v1/jobs/{job}:cancel"
	scope   string
	query   []*huma.Param
	header  []string // those with one of ownHeaders' prefixes
	body    bool     // it accepts a body
	stream  bool     // it also serves live events
}

// routeMux records its patterns, so that no undescribed route is served.
type routeMux struct {
	*http.ServeMux
	patterns []string
}

func (m *routeMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, handler)
}

func (m *routeMux) Handle(pattern string, handler http.Handler) {
	m.HandleFunc(pattern, handler.ServeHTTP)
}

// ownHeaders are our header prefixes; an unknown header with one is a typo.
var ownHeaders = []string{"Upload-", "Tus-", "Sheaf-"}

func ownHeader(name string) bool {
	return slices.ContainsFunc(ownHeaders, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// buildTable collects the routes by mux pattern. A route under /v1 that is not
// described or declares no scope is a programming error, and New fails.
func (s *Server) buildTable() {
	s.table = map[string]*route{}
	for path, item := range s.api.OpenAPI().Paths {
		for method, op := range operationsOf(item) {
			rt := &route{pattern: method + " " + path, body: op.RequestBody != nil, stream: streamed(op)}
			if len(op.Security) > 0 && len(op.Security[0]["bearer"]) == 1 {
				rt.scope = op.Security[0]["bearer"][0]
			}
			if rt.scope == "" {
				panic(rt.pattern + " declares no scope")
			}
			for _, p := range op.Parameters {
				switch {
				case p.In == "query":
					rt.query = append(rt.query, p)
				case p.In == "header" && ownHeader(textproto.CanonicalMIMEHeaderKey(p.Name)):
					rt.header = append(rt.header, p.Name)
				}
			}
			if strings.Contains(path, "/uploads") { // tus clients send them with every request
				rt.header = unique(append(rt.header, "Tus-Resumable", "Upload-Length", "Upload-Metadata", "Upload-Offset"))
			}
			s.table[method+" "+verbPath(path)] = rt
		}
	}
	for _, pattern := range s.mux.patterns {
		if _, path, _ := strings.Cut(pattern, " "); strings.HasPrefix(path, "/v1") && s.table[pattern] == nil {
			panic(pattern + " is served and not described")
		}
	}
}

// operationsOf lists the operations of a path by method.
func operationsOf(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{"GET": item.Get, "HEAD": item.Head, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete, "OPTIONS": item.Options}
	maps.DeleteFunc(all, func(_ string, op *huma.Operation) bool { return op == nil })
	return all
}

// matched is what a request's URL resolves to.
type matched struct {
	route   *route // nil if not part of the API
	pattern string // of the mux; "" if nothing is served there
}

func matchOf(ctx context.Context) matched {
	m, _ := ctx.Value(matchKey).(matched)
	return m
}

// match finds the route of a request. It is called once, up front, and every later
// decision uses its result.
func (s *Server) match(r *http.Request) matched {
	_, pattern := s.mux.Handler(routed(r))
	rt := s.table[pattern]
	if rt == nil && r.Method == http.MethodHead { // GET also serves HEAD
		rt = s.table[strings.Replace(pattern, "HEAD ", "GET ", 1)]
	}
	return matched{rt, pattern}
}

// routed returns the request as the mux sees it: with the verb after the colon as
// its own segment.
func routed(r *http.Request) *http.Request {
	// Under /api, another program's namespace, collapse repeated slashes; the mux
	// would redirect the client instead.
	if strings.HasPrefix(r.URL.Path, "/api/") && strings.Contains(r.URL.Path, "//") {
		u := *r.URL
		u.Path, u.RawPath = path.Clean(r.URL.Path), ""
		out := *r
		out.URL = &u
		return &out
	}
	if r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return r
	}
	path := r.URL.EscapedPath()
	p := verbPath(path)
	if p == path {
		return r
	}
	plain, err := url.PathUnescape(p)
	if err != nil {
		return r
	}
	u := *r.URL
	u.Path, u.RawPath = plain, p
	out := *r
	out.URL = &u
	return &out
}

// guard rejects input that a route does not accept instead of ignoring it: a typo
// in a parameter name must not turn a dry run into a change.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := matchOf(r.Context())
		if found.route == nil && found.pattern != "" && !s.foreign[found.pattern] {
			found.route = plainRoute(found.pattern)
		}
		if found.route != nil {
			if p := found.route.check(r); p != nil {
				s.writeProblem(w, r, p)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// plainRoute describes what a URL outside /v1 accepts. Probes and scrapers send no
// parameters of their own.
func plainRoute(pattern string) *route {
	rt := &route{pattern: pattern}
	switch {
	case strings.HasSuffix(pattern, " /readyz"):
		rt.query = []*huma.Param{{Name: "role", In: "query", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{RoleServe, RoleExecutor, RoleKeeper, RoleAll}}}}
	case strings.HasSuffix(pattern, " /metrics"):
		rt.query = []*huma.Param{{Name: "name[]", In: "query", Schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}}}
	}
	return rt
}

// Guarded rejects input that the route pattern ("GET /readyz") does not accept, for
// use without a Server.
func Guarded(pattern string, next http.Handler) http.Handler {
	rt := plainRoute(pattern)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := errors.AsType[*Problem](rt.check(r)); ok {
			writeJSON(w, p.Status, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (rt *route) check(r *http.Request) error {
	var faults []ProblemDetail
	known := rt.query
	if rt.stream && wantsStream(r) {
		known = streamParams
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return newProblem(400, "", "the query string cannot be read: escape what is special in it with %, and separate parameters with &")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if text := rt.checkParam(known, name, query[name]); text != "" {
			faults = append(faults, ProblemDetail{Location: "query." + name, Message: text})
		}
	}
	for name := range r.Header {
		if text := rt.checkHeader(name); text != "" {
			faults = append(faults, ProblemDetail{Location: "header." + name, Message: text})
		}
	}
	if len(faults) > 0 {
		return faulty(faults)
	}
	if !rt.body {
		return checkNoBody(r)
	}
	return nil
}

// streamParams are the query parameters of a live stream.
var streamParams = []*huma.Param{{Name: "after", In: "query", Schema: &huma.Schema{Type: "string", Format: formatAfter}}}

// Formats of parameters that are validated here.
const (
	formatDuration = "duration" // of Go: 30s, 1m30s
	formatAfter    = "after"    // a sequence number, or "now"
	// Cursors, which are issued here and only passed back.
	formatCursor = "cursor"
	formatChunks = "chunk-cursor"
	formatCount  = "count-cursor"
)

var cursors = map[string]*regexp.Regexp{
	formatCursor: regexp.MustCompile(`^[0-9a-f]{32}(:[0-9]{1,9})?$`),
	formatChunks: regexp.MustCompile(`^[0-9]{1,9}\.[0-9]{1,9}(\.[0-9]{1,9})?$`),
	formatCount:  regexp.MustCompile(`^[0-9]{1,18}$`),
}

// checkParam returns a sentence about what is wrong with a parameter, or "".
func (rt *route) checkParam(known []*huma.Param, name string, values []string) string {
	i := slices.IndexFunc(known, func(p *huma.Param) bool { return p.Name == name })
	if i < 0 {
		return rt.unknownParam(known, name)
	}
	p := known[i]
	if p.Schema.Type == huma.TypeArray {
		for _, v := range values {
			if text := checkValue(p, p.Schema.Items, v); text != "" {
				return text
			}
		}
		return ""
	}
	if len(values) > 1 {
		return fmt.Sprintf("the parameter %s is given %d times; give it once", name, len(values))
	}
	return checkValue(p, p.Schema, values[0])
}

func (rt *route) unknownParam(known []*huma.Param, name string) string {
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.Name
	}
	changes := !strings.HasPrefix(rt.pattern, "GET ") && !strings.HasPrefix(rt.pattern, "HEAD ") && rt.scope != scopeRead
	if changes && !slices.Contains(names, "dry_run") && Nearest(name, []string{"dry_run"}) != "" {
		return fmt.Sprintf("the request %s cannot be tried without being carried out, so that it takes no %s; leave the parameter out to carry it out", rt.pattern, name)
	}
	return fmt.Sprintf("there is no parameter %s; %s", quoted(name), didYouMean(name, sorted(names)))
}

// emptyParams may be empty, as forms send them; empty means unset.
var emptyParams = []string{"q", "cursor"}

// checkValue returns what is wrong with one value of a parameter, or "".
func checkValue(p *huma.Param, sc *huma.Schema, value string) string {
	name := p.Name
	if value == "" {
		if slices.Contains(emptyParams, name) {
			return ""
		}
		return fmt.Sprintf("the parameter %s is empty; %s, or leave it out", name, wanted(sc))
	}
	if len(sc.Enum) > 0 {
		if choices := choicesOf(sc); !slices.Contains(choices, value) {
			return fmt.Sprintf("the parameter %s cannot be %s; %s", name, quoted(value), didYouMean(value, choices))
		}
		return ""
	}
	wrong := fmt.Sprintf("the parameter %s cannot be %s; %s", name, quoted(value), wanted(sc))
	switch sc.Type {
	case huma.TypeBoolean:
		if value != "true" && value != "false" {
			return wrong
		}
	case huma.TypeInteger, huma.TypeNumber:
		n, err := strconv.ParseFloat(value, 64)
		if sc.Type == huma.TypeInteger {
			var i int64
			i, err = strconv.ParseInt(value, 10, 64)
			n = float64(i)
		}
		if err != nil || sc.Minimum != nil && n < *sc.Minimum || sc.Maximum != nil && n > *sc.Maximum {
			return wrong
		}
	case huma.TypeString:
		if sc.MaxLength != nil && len([]rune(value)) > *sc.MaxLength {
			return fmt.Sprintf("the parameter %s has %d characters; give at most %d", name, len([]rune(value)), *sc.MaxLength)
		}
		if !validFormat(sc.Format, value) {
			return wrong
		}
	}
	return ""
}

func validFormat(format, value string) bool {
	switch format {
	case "date-time":
		_, err := time.Parse(time.RFC3339, value)
		return err == nil
	case formatDuration:
		d, err := time.ParseDuration(value)
		return err == nil && d >= 0
	case formatAfter:
		n, err := strconv.ParseInt(value, 10, 64)
		return value == "now" || err == nil && n >= 0
	}
	pattern := cursors[format]
	return pattern == nil || pattern.MatchString(value)
}

func choicesOf(sc *huma.Schema) []string {
	out := make([]string, len(sc.Enum))
	for i, v := range sc.Enum {
		out[i] = fmt.Sprint(v)
	}
	return out
}

// wanted describes a valid value of the schema, as advice in a sentence.
func wanted(sc *huma.Schema) string {
	switch {
	case len(sc.Enum) > 0:
		return "give " + anyOf(choicesOf(sc), "or")
	case sc.Type == huma.TypeBoolean:
		return "give true or false"
	case sc.Type == huma.TypeInteger || sc.Type == huma.TypeNumber:
		kind := "a whole number"
		if sc.Type == huma.TypeNumber {
			kind = "a number"
		}
		switch {
		case sc.Minimum != nil && sc.Maximum != nil:
			return fmt.Sprintf("give %s from %v to %v", kind, *sc.Minimum, *sc.Maximum)
		case sc.Minimum != nil:
			return fmt.Sprintf("give %s of at least %v", kind, *sc.Minimum)
		case sc.Maximum != nil:
			return fmt.Sprintf("give %s of at most %v", kind, *sc.Maximum)
		}
		return "give " + kind
	case sc.Type == huma.TypeArray:
		return "give a list"
	case sc.Type == huma.TypeObject:
		return "give an object"
	case sc.Format == "date-time":
		return "give a time such as 2026-01-31T12:00:00Z"
	case sc.Format == formatDuration:
		return "give a duration with its unit, such as 30s"
	case cursors[sc.Format] != nil:
		return "give next_cursor of the page before"
	case sc.Format == formatAfter:
		return "give the number of an event, or now"
	}
	return "give a text"
}

// checkHeader returns what is wrong with one of our own headers, or "". Other
// headers are ignored.
func (rt *route) checkHeader(name string) string {
	if name != "Idempotency-Key" && (strings.HasPrefix(name, "Idempot") || strings.HasPrefix(name, "X-Idempot")) {
		return fmt.Sprintf("there is no header %s; did you mean Idempotency-Key?", name)
	}
	if !ownHeader(name) || slices.ContainsFunc(rt.header, func(h string) bool { return textproto.CanonicalMIMEHeaderKey(h) == name }) {
		return ""
	}
	return fmt.Sprintf("the header %s does nothing here; %s", name, didYouMean(name, rt.header))
}

// checkNoBody rejects a body on routes that read none. An empty object is allowed,
// since many clients send one.
func checkNoBody(r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	const most = 4 << 10
	b, err := io.ReadAll(io.LimitReader(r.Body, most))
	if err != nil {
		return newProblem(400, "", "the request broke off; send it again")
	}
	if b = bytes.TrimSpace(b); len(b) > 0 && string(b) != "{}" && string(b) != "null" {
		return newProblem(400, "", "this request takes no body and would not heed one; leave it out, and give what it knows as query parameters")
	}
	return nil
}

// faulty builds the problem for a request with these faults.
func faulty(faults []ProblemDetail) *Problem {
	const mostSaid = 3
	slices.SortStableFunc(faults, func(a, b ProblemDetail) int { return strings.Compare(a.Location, b.Location) })
	var text []string
	for i := range faults {
		faults[i].Message = capital(faults[i].Message)
		if i < mostSaid {
			text = append(text, strings.TrimSuffix(faults[i].Message, "."))
		}
	}
	detail := strings.ReplaceAll(strings.Join(text, ". "), "?. ", "? ")
	if n := len(faults) - mostSaid; n > 0 {
		detail += fmt.Sprintf(". There is more at fault: %d", n)
	}
	p := newProblem(400, "", detail)
	p.Errors = faults
	return p
}
