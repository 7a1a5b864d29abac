// Package ragflow implements RAGFlow's HTTP API for datasets, documents, chunks and
// retrieval: /api/v1 in front of /v1. RAGFlow properties of a dataset or document
// that /v1 has no field for are stored in its attributes, under the key ragflow.
package ragflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sheaf/internal/facade"
)

// Codes of the envelope.
const (
	codeOK         = 0
	codeException  = 100
	codeArgument   = 101
	codeData       = 102
	codePermission = 108
	codeAuth       = 401
	codeNotFound   = 404
	codeServer     = 500
)

// maxBodyBytes bounds a request that is not an upload: ten thousand ids and more.
const maxBodyBytes = 8 << 20

// refusal is an error response.
type refusal struct {
	code    int
	message string
	data    any // nil omits it
	status  int // HTTP status; 0 is 200
}

func (r *refusal) Error() string { return r.message }

func refuse(code int, format string, args ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// bad is a data error: not found, not owned, or not possible now.
func bad(format string, args ...any) error { return refuse(codeData, format, args...) }

// missing reports whether /v1 answered 404.
func missing(err error) bool {
	e, ok := errors.AsType[*facade.Error](err)
	return ok && e.Status == http.StatusNotFound
}

// refusalOf converts an error to one of the interface.
func refusalOf(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	switch e := facade.AsError(err); {
	case e.Status == http.StatusUnauthorized:
		return &refusal{code: codeAuth, message: "<Unauthorized '401: Unauthorized'>", status: http.StatusUnauthorized}
	case e.Status == http.StatusForbidden:
		return &refusal{code: codePermission, message: e.Detail}
	case e.Status == http.StatusTooManyRequests && strings.Contains(e.Detail, "edits"): // per document, which waiting does not fix
		return &refusal{code: codeData, message: e.Detail}
	case e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError:
		return &refusal{code: codeServer, message: e.Detail, status: e.Status} // clients that retry go by the status
	default:
		return &refusal{code: codeData, message: e.Detail}
	}
}

// answer is a success response.
type answer struct {
	data   any
	noData bool           // omit data
	more   map[string]any // in addition to code and data
	file   *http.Response // sent instead of an envelope
}

// call is one request of an authenticated caller.
type call struct {
	*facade.Client
	v1     http.RoundTripper
	ctx    context.Context
	r      *http.Request
	tenant string
	path   []string // segments matched by "*" in the route
}

type handler func(*call) (*answer, error)

// route is a path whose segments "*" match anything.
type route struct {
	path    string
	methods map[string]handler
}

var routes = []route{
	{"datasets", map[string]handler{http.MethodPost: createDataset, http.MethodGet: listDatasets, http.MethodDelete: deleteDatasets}},
	{"datasets/documents/parse", nil}, // what remains of a path whose dataset is empty
	{"datasets/documents/stop", nil},
	{"datasets/search", map[string]handler{http.MethodPost: searchDatasets}},
	{"datasets/tags/aggregation", map[string]handler{http.MethodGet: aggregatedTags}},
	{"datasets/metadata/flattened", map[string]handler{http.MethodGet: flattenedMetadata}},
	{"datasets/*", map[string]handler{http.MethodGet: readDataset, http.MethodPut: updateDataset}},
	{"datasets/*/search", map[string]handler{http.MethodPost: searchDataset}},
	{"datasets/*/tags", map[string]handler{http.MethodGet: listTags, http.MethodDelete: deleteTags, http.MethodPut: renameTag}},
	{"datasets/*/ingestions", map[string]handler{http.MethodGet: listIngestions}},
	{"datasets/*/ingestions/summary", map[string]handler{http.MethodGet: ingestionSummary}},
	{"datasets/*/ingestions/*", map[string]handler{http.MethodGet: readIngestion}},
	{"datasets/*/metadata/summary", map[string]handler{http.MethodGet: metadataSummary}},
	{"datasets/*/metadata/config", map[string]handler{http.MethodGet: readMetadataConfig, http.MethodPut: changeMetadataConfig}},
	{"datasets/*/metadata/update", map[string]handler{http.MethodPost: changeMetadata}},
	{"datasets/*/chunks", map[string]handler{http.MethodPost: parseBySDK, http.MethodDelete: stopBySDK}},
	{"datasets/*/documents", map[string]handler{http.MethodPost: upload, http.MethodGet: listDocuments, http.MethodDelete: deleteDocuments}},
	{"datasets/*/documents/parse", map[string]handler{http.MethodPost: parse}},
	{"datasets/*/documents/stop", map[string]handler{http.MethodPost: stop}},
	{"datasets/*/documents/batch-update-status", map[string]handler{http.MethodPost: changeStatus}},
	{"datasets/*/documents/metadatas", map[string]handler{http.MethodPatch: changeMetadata}},
	{"datasets/*/documents/*", map[string]handler{http.MethodGet: download, http.MethodPatch: updateDocument}},
	{"datasets/*/documents/*/metadata/config", map[string]handler{http.MethodPut: documentMetadataConfig}},
	{"datasets/*/documents/*/chunks", map[string]handler{http.MethodPost: addChunk, http.MethodGet: listChunks, http.MethodPatch: switchChunks, http.MethodDelete: deleteChunks}},
	{"datasets/*/documents/*/chunks/*", map[string]handler{http.MethodGet: readChunk, http.MethodPatch: updateChunk, http.MethodPut: updateChunk}},
	{"documents/ingest", map[string]handler{http.MethodPost: ingest}},
	{"documents/*", map[string]handler{http.MethodGet: downloadAny}},
	{"documents/images/*", map[string]handler{http.MethodGet: image}},
	{"retrieval", map[string]handler{http.MethodPost: retrieve}},
	{"tasks/*/cancel", map[string]handler{http.MethodPost: cancelTask}},
	{"tasks/*", map[string]handler{http.MethodPatch: stopTask}},
	{"system/status", map[string]handler{http.MethodGet: systemStatus}},
}

// Prefix is the path prefix of all routes.
const Prefix = "/api/v1/"

// Routes returns the routes of the interface.
func Routes(v1 http.RoundTripper) map[string]http.Handler {
	return map[string]http.Handler{Prefix: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(v1, w, r) })}
}

func serve(v1 http.RoundTripper, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == Prefix+"system/healthz" {
		healthz(v1, w, r)
		return
	}
	out, err := dispatch(v1, r)
	switch {
	case err != nil:
		e := refusalOf(err)
		body := map[string]any{"code": e.code, "message": e.message}
		switch {
		case e.code == codeAuth:
			body["data"] = nil
		case e.code == codeNotFound:
			body["data"], body["error"] = nil, "Not Found"
		case e.data != nil:
			body["data"] = e.data
		}
		send(w, e.status, body)
	case out.file != nil:
		defer out.file.Body.Close()
		for _, name := range []string{"Content-Type", "Content-Disposition", "Cache-Control", "ETag", "Content-Length", "Content-Security-Policy", "X-Content-Type-Options"} {
			if v := out.file.Header.Get(name); v != "" {
				w.Header().Set(name, v)
			}
		}
		w.WriteHeader(http.StatusOK)
		_, _ = io.Copy(w, out.file.Body) // the client may be gone
	default:
		body := map[string]any{"code": codeOK}
		if !out.noData {
			body["data"] = out.data
		}
		for k, v := range out.more {
			body[k] = v
		}
		send(w, 0, body)
	}
}

func send(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	if status == 0 {
		status = http.StatusOK
	}
	facade.Status(w, status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client may be gone
}

// dispatch checks the key first, then calls the route.
func dispatch(v1 http.RoundTripper, r *http.Request) (*answer, error) {
	c := &call{Client: facade.Inside(v1, r.Header), v1: v1, ctx: r.Context(), r: r}
	var info struct {
		Tenant string `json:"tenant"`
	}
	if err := c.Call(c.ctx, http.MethodGet, "/v1/info", nil, &info); err != nil {
		return nil, err
	}
	c.tenant = info.Tenant
	segments := strings.FieldsFunc(strings.TrimPrefix(r.URL.Path, Prefix), func(r rune) bool { return r == '/' })
	for _, rt := range routes {
		open, ok := match(strings.Split(rt.path, "/"), segments)
		if !ok {
			continue
		}
		handle := rt.methods[r.Method]
		if handle == nil {
			return nil, refuse(codeException, "<MethodNotAllowed '405: Method Not Allowed'>")
		}
		c.path = open
		return handle(c)
	}
	return nil, &refusal{code: codeNotFound, message: "Not Found: " + r.URL.Path, status: http.StatusNotFound}
}

func match(pattern, segments []string) (open []string, ok bool) {
	if len(pattern) != len(segments) {
		return nil, false
	}
	for i, p := range pattern {
		switch {
		case p == "*":
			open = append(open, segments[i])
		case p != segments[i]:
			return nil, false
		}
	}
	return open, true
}

// body reads the request body, "" if there is none.
func (c *call) body() ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(nil, c.r.Body, maxBodyBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, refuse(codeArgument, "The request is larger than %d bytes; send it in parts", maxBodyBytes)
	}
	if err != nil {
		return nil, refuse(codeArgument, "The request broke off; send it again")
	}
	return bytes.TrimSpace(b), nil
}

func decode(b []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err = dec.Decode(&v); err == nil {
		if _, more := dec.Token(); more != io.EOF {
			err = errors.New("something follows the JSON value")
		}
	}
	return v, err
}

// malformed is the message for a body that is not JSON.
const malformed = "Malformed JSON syntax: Missing commas/brackets or invalid encoding"

// strict reads the object in a body by the strict rules.
func (c *call) strict() (map[string]any, error) {
	media := c.r.Header.Get("Content-Type")
	if kind, _, _ := strings.Cut(media, ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		if media == "" {
			media = "None"
		}
		return nil, refuse(codeArgument, "Unsupported content type: Expected application/json, got %s", media)
	}
	b, err := c.body()
	if err != nil {
		return nil, err
	}
	v, err := decode(b)
	if err != nil {
		return nil, refuse(codeArgument, malformed)
	}
	if object, ok := v.(map[string]any); ok {
		return object, nil
	}
	if empty(v) {
		return map[string]any{}, nil
	}
	return nil, refuse(codeArgument, "Invalid request payload: expected object, got %s", pyType(v))
}

// lenient reads the object in a body by the lenient rules: an empty body is {}.
func (c *call) lenient() (map[string]any, error) {
	b, err := c.body()
	if err != nil || len(b) == 0 {
		return map[string]any{}, err
	}
	v, err := decode(b)
	if err != nil {
		return nil, refuse(codeArgument, malformed)
	}
	if object, ok := v.(map[string]any); ok {
		return object, nil
	}
	if v == nil {
		return map[string]any{}, nil
	}
	return nil, refuse(codeException, "AttributeError(\"'%s' object has no attribute 'get'\")", pyType(v))
}

// page is the requested part of a list, by the lenient rules.
func (c *call) page() (from, to int) {
	q := c.r.URL.Query()
	return span(positive(q.Get("page"), 1), positive(q.Get("page_size"), defaultPage))
}

// Bounds of a page.
const (
	defaultPage = 30
	maxPage     = 100
)

func span(page, size int) (from, to int) {
	size = min(size, maxPage)
	from = (min(page, 1<<40) - 1) * size
	return from, from + size
}

// cut returns the part of a list between two positions.
func cut[T any](all []T, from, to int) []T {
	from = min(from, len(all))
	if part := all[from:min(to, len(all))]; part != nil {
		return part
	}
	return []T{}
}

// unique returns the values without duplicates, and the duplicates.
func unique(ids []string) (once, repeated []string) {
	times := make(map[string]int, len(ids))
	for _, id := range ids {
		switch times[id]++; times[id] {
		case 1:
			once = append(once, id)
		case 2:
			repeated = append(repeated, id)
		}
	}
	return once, repeated
}
