// Package dify implements Dify's external knowledge API: a dataset is a knowledge
// base queried by POST /retrieval. It is a facade of /v1/…/search.
package dify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sheaf"
	"sheaf/internal/facade"
)

// Error codes, from Dify's description of the API.
const (
	codeBadHeader = 1001
	codeRefused   = 1002
	codeMissing   = 2001
	codeInvalid   = 400
	codeService   = 500
)

// Limits of a request.
const (
	maxBodyBytes  = 1 << 20
	maxTop        = 100 // maximum passages per search
	maxConditions = 100
	defaultTop    = 10
)

// Routes returns the routes of the API.
func Routes(v1 http.RoundTripper) map[string]http.Handler {
	return map[string]http.Handler{"POST /retrieval": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		records, err := retrieve(v1, r)
		if err != nil {
			e := facade.AsError(err)
			facade.Answer(w, e, map[string]any{"error_code": codeOf(e, r), "error_msg": e.Detail})
			return
		}
		facade.Answer(w, nil, map[string]any{"records": records})
	})}
}

func codeOf(e *facade.Error, r *http.Request) int {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case e.Status == http.StatusUnauthorized && (!strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(key) == ""):
		return codeBadHeader
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return codeRefused
	case e.Status == http.StatusNotFound:
		return codeMissing
	case e.Status < http.StatusInternalServerError:
		return codeInvalid
	}
	return codeService
}

type request struct {
	Knowledge string `json:"knowledge_id"`
	Query     string `json:"query"`
	Setting   struct {
		Top       int      `json:"top_k"`
		Threshold *float64 `json:"score_threshold"`
	} `json:"retrieval_setting"`
	Condition *condition `json:"metadata_condition"`
}

// record is one passage. Metadata is never null, since Dify fails on that.
type record struct {
	Content  string         `json:"content"`
	Score    float64        `json:"score"`
	Title    string         `json:"title"`
	Metadata map[string]any `json:"metadata"`
}

func invalid(format string, args ...any) error {
	return &facade.Error{Status: http.StatusBadRequest, Code: "invalid", Detail: fmt.Sprintf(format, args...)}
}

func retrieve(v1 http.RoundTripper, r *http.Request) ([]record, error) {
	b, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &facade.Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Detail: fmt.Sprintf("The request is larger than %d bytes; shorten it", maxBodyBytes)}
	}
	if err != nil {
		return nil, invalid("The request broke off; send it again")
	}
	var in request
	inside := facade.Inside(v1, r.Header)
	// Details of an invalid request are shown only to callers with a valid key.
	wrong := func(err error) error {
		if refused := inside.Call(r.Context(), http.MethodGet, "/v1/info", nil, nil); refused != nil {
			return refused
		}
		return err
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, wrong(invalid("The body is no JSON of the form {\"knowledge_id\": …, \"query\": …, \"retrieval_setting\": {\"top_k\": 5, \"score_threshold\": 0.5}}: %s", facade.Unreadable(err)))
	}
	if in.Knowledge == "" {
		return nil, wrong(invalid("knowledge_id is empty; give the id or the name of a dataset"))
	}
	top := cmp.Or(in.Setting.Top, defaultTop)
	if top < 0 || top > maxTop {
		return nil, wrong(invalid("top_k cannot be %d; give 1 to %d", top, maxTop))
	}
	ask := map[string]any{"query": in.Query, "limit": top}
	if in.Setting.Threshold != nil {
		ask["threshold"] = *in.Setting.Threshold
	}
	matches, err := in.Condition.compile()
	if err != nil {
		return nil, wrong(err)
	}
	if matches != nil {
		ask["limit"] = maxTop // the matching ones are selected from these
		if equal := in.Condition.equal(); equal != nil {
			ask["filter"] = map[string]any{"metadata": equal}
		}
	}
	var found struct {
		Hits []struct {
			Score    float64     `json:"score"`
			Chunk    sheaf.Chunk `json:"chunk"`
			Document struct {
				ID   string `json:"id"`
				Name string `json:"name"`
			} `json:"document"`
		} `json:"hits"`
	}
	if err := inside.Call(r.Context(), http.MethodPost, facade.Path("v1", "datasets", in.Knowledge, "search"), ask, &found); err != nil {
		return nil, err
	}
	records := []record{}
	for _, h := range found.Hits {
		if matches != nil && !matches(func(name string) (string, bool) {
			if name == nameKey {
				return h.Document.Name, true
			}
			value, ok := h.Chunk.Metadata[name]
			return value, ok
		}) {
			continue
		}
		meta := map[string]any{nameKey: h.Document.Name, "document_id": h.Document.ID, "chunk_id": h.Chunk.ID, "pages": h.Chunk.Pages, "boxes": h.Chunk.Boxes, "headings": h.Chunk.HeadingPath}
		for key, value := range h.Chunk.Metadata {
			meta[key] = value
		}
		if records = append(records, record{h.Chunk.Text, h.Score, h.Document.Name, meta}); len(records) == top {
			break
		}
	}
	return records, nil
}
