// Package openaistore implements OpenAI's API of files and vector stores on top of
// /v1: a vector store is a dataset, a file an unstarted document in a dedicated
// dataset, a file in a store a document made of its bytes, and a batch of files a
// job.
package openaistore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sheaf"
	"sheaf/internal/facade"
)

// Prefix is the path prefix of the routes: the base URL of clients ends in it.
const Prefix = "/openai/v1"

// maxBodyBytes bounds a request that is not a file: a batch of 2,000 files with
// attributes fits.
const maxBodyBytes = 32 << 20

// pollAfter is how long clients should wait between polls, in milliseconds.
const pollAfter = "250"

// call is one request.
type call struct {
	*facade.Client
	w http.ResponseWriter
	r *http.Request
}

// Routes returns the routes of the interface.
func Routes(v1 http.RoundTripper) map[string]http.Handler {
	out := map[string]http.Handler{}
	for pattern, f := range map[string]func(context.Context, *call) (any, error){
		"POST /files":               upload,
		"GET /files":                listFiles,
		"GET /files/{file}":         readFile,
		"DELETE /files/{file}":      deleteFile,
		"GET /files/{file}/content": fileContent,

		"POST /vector_stores":                createStore,
		"GET /vector_stores":                 listStores,
		"GET /vector_stores/{store}":         readStore,
		"POST /vector_stores/{store}":        changeStore,
		"DELETE /vector_stores/{store}":      deleteStore,
		"POST /vector_stores/{store}/search": searchStore,

		"POST /vector_stores/{store}/files":               attachFile,
		"GET /vector_stores/{store}/files":                listStoreFiles,
		"GET /vector_stores/{store}/files/{file}":         readStoreFile,
		"POST /vector_stores/{store}/files/{file}":        changeStoreFile,
		"DELETE /vector_stores/{store}/files/{file}":      detachFile,
		"GET /vector_stores/{store}/files/{file}/content": storeFileContent,

		"POST /vector_stores/{store}/file_batches":                createBatch,
		"GET /vector_stores/{store}/file_batches/{batch}":         readBatch,
		"POST /vector_stores/{store}/file_batches/{batch}/cancel": cancelBatch,
		"GET /vector_stores/{store}/file_batches/{batch}/files":   listBatchFiles,

		"POST /embeddings":    embeddings,
		"GET /models":         listModels,
		"GET /models/{model}": readModel,

		" /": unknownRoute,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		out[strings.TrimSpace(method+" "+Prefix+path)] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := &call{facade.Inside(v1, r.Header), w, r}
			v, err := f(r.Context(), c)
			switch {
			case err != nil:
				refuse(c, err)
			case v != nil:
				facade.Answer(w, nil, v)
			}
		})
	}
	return out
}

// refusal is an error about a parameter that does not come from /v1.
type refusal struct {
	e     *facade.Error
	param string
}

func (r *refusal) Error() string { return r.e.Error() }
func (r *refusal) Unwrap() error { return r.e }

func invalid(param, format string, args ...any) error {
	return &refusal{&facade.Error{Status: http.StatusBadRequest, Code: "invalid_value", Detail: fmt.Sprintf(format, args...)}, param}
}

func missing(what, id string) error {
	return &refusal{&facade.Error{Status: http.StatusNotFound, Code: "not_found", Detail: fmt.Sprintf("There is no %s %q; list what there is, and check the id", what, id)}, ""}
}

func absent(err error) bool {
	e, ok := errors.AsType[*facade.Error](err)
	return ok && e.Status == http.StatusNotFound
}

// refuse sends an error in OpenAI's form, with a status that clients know.
func refuse(c *call, err error) {
	var param any
	if own, ok := errors.AsType[*refusal](err); ok {
		if own.param != "" {
			param = own.param
		}
		// Only callers with a valid key are told that their request is invalid.
		if no := c.Call(context.WithoutCancel(c.r.Context()), http.MethodGet, "/v1/info", nil, nil); no != nil {
			err, param = no, nil
		}
	}
	e := *facade.AsError(err)
	kind := "invalid_request_error"
	switch {
	case e.Status == http.StatusUnauthorized:
		e.Code = "invalid_api_key"
	case e.Status == http.StatusForbidden:
		kind = "permission_error"
	case e.Status == http.StatusUnsupportedMediaType:
		e.Status, e.Code = http.StatusBadRequest, codeUnsupported
	case e.Status == http.StatusUnprocessableEntity:
		e.Status = http.StatusBadRequest
	case e.Status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
		if e.Code == sheaf.CodeLimit { // a quota does not free up while a client waits
			c.w.Header().Set("x-should-retry", "false")
		}
	case e.Status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	facade.Answer(c.w, &e, map[string]any{"error": map[string]any{"message": e.Detail, "type": kind, "param": param, "code": e.Code}})
}

// body decodes the JSON of a request; an empty one is {}.
func (c *call) body(into any) error {
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBodyBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &refusal{&facade.Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Detail: fmt.Sprintf("The request is larger than %d MiB; send less at once", maxBodyBytes>>20)}, ""}
	}
	if err != nil {
		return invalid("", "The request broke off; send it again")
	}
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return invalid(bad.Field, "%s", facade.Unreadable(err))
		}
		return invalid("", "The body is no JSON that can be read: %s", facade.Unreadable(err))
	}
	return nil
}

// Prefixes of ids. The rest is the id in /v1.
const (
	filePrefix  = "file-"
	storePrefix = "vs_"
	batchPrefix = "vsfb_"
)

// inner returns the /v1 id in an id, or "" if it is invalid.
func inner(prefix, id string) string {
	if s, ok := strings.CutPrefix(id, prefix); ok && sheaf.ValidID(s) {
		return s
	}
	return ""
}

// Keys of attributes. What /v1 has no field for is stored under metaKey; the others
// have their own keys so that concurrent changes do not conflict.
const (
	metaKey   = "openai"
	activeKey = "openai.last_active" // of a store: Unix seconds
	copyKey   = "openai.store."      // of a file, followed by a store's id: how often it was removed from that store
)

// metaOf decodes what is stored under a key; if absent, into is unchanged.
func metaOf(a sheaf.Attributes, key string, into any) {
	if b, ok := a[key]; ok {
		_ = json.Unmarshal(b, into) // ignore what another program wrote there
	}
}

// change writes attributes of a document or dataset.
func (c *call) change(ctx context.Context, path string, attributes map[string]any, out any) error {
	return c.Call(ctx, http.MethodPatch, path, map[string]any{"attributes": attributes}, out)
}

// docPath is a document's path in any dataset.
func docPath(id string) string { return facade.Path("v1", "datasets", "-", "documents", id) }

func (c *call) document(ctx context.Context, id string) (*sheaf.Document, error) {
	var d sheaf.Document
	if err := c.Call(ctx, http.MethodGet, docPath(id), nil, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// remove deletes a document; a missing one is not an error.
func (c *call) remove(ctx context.Context, id string) error {
	if err := c.Call(ctx, http.MethodDelete, docPath(id), nil, nil); err != nil && !absent(err) {
		return err
	}
	return nil
}

// unknownRoute responds to unknown routes, since a page would not be JSON.
func unknownRoute(_ context.Context, c *call) (any, error) {
	return nil, &refusal{&facade.Error{Status: http.StatusNotFound, Code: "not_found", Detail: fmt.Sprintf("Unknown request URL: %s %s. There are files, vector stores, embeddings and models here; docs/openai.md lists them", c.r.Method, c.r.URL.Path)}, ""}
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// embeddingModel returns the only model, nil if there is none.
func (c *call) embeddingModel(ctx context.Context) (*model, error) {
	var info struct {
		Model string `json:"embedding_model"`
	}
	if err := c.Call(ctx, http.MethodGet, "/v1/info", nil, &info); err != nil || info.Model == "" {
		return nil, err
	}
	return &model{ID: info.Model, Object: "model", OwnedBy: "sheaf"}, nil
}

func listModels(ctx context.Context, c *call) (any, error) {
	m, err := c.embeddingModel(ctx)
	if err != nil {
		return nil, err
	}
	data := []*model{}
	if m != nil {
		data = append(data, m)
	}
	return map[string]any{"object": "list", "data": data}, nil
}

func readModel(ctx context.Context, c *call) (any, error) {
	m, err := c.embeddingModel(ctx)
	if err != nil {
		return nil, err
	}
	if id := c.r.PathValue("model"); m == nil || m.ID != id {
		return nil, missing("model", id)
	}
	return m, nil
}

// embeddings forwards a request to /v1/embeddings, which uses the same format.
func embeddings(ctx context.Context, c *call) (any, error) {
	resp, err := c.Do(ctx, http.MethodPost, "/v1/embeddings", c.r.Body, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = io.Copy(c.w, resp.Body) // the client may be gone
	return nil, nil
}
