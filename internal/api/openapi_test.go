package api

import (
	"bytes"
	"flag"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"sheaf/internal/buildinfo"
	"sheaf/internal/doctor"
	"sheaf/internal/indexset"

	"context"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

// TestOpenAPIIsCommitted keeps the committed description equal to the code:
// go test ./internal/api -run OpenAPI -update writes it.
func TestOpenAPIIsCommitted(t *testing.T) {
	const path = "../../docs/openapi.json"
	s := New(Config{Build: buildinfo.Info{Version: "1"}, Doctor: func(context.Context, bool) (*doctor.Report, error) { return nil, nil }, Indexes: (*indexset.Set)(nil)})
	got, err := s.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/openapi.json is not what the code says; run go test ./internal/api -run OpenAPI -update")
	}
}

// The page for people names each route of the description, group by group.
func TestDocsPageNamesEveryRoute(t *testing.T) {
	s := New(Config{})
	w := httptest.NewRecorder()
	s.docs(w, httptest.NewRequest(http.MethodGet, "/docs", nil))
	page := w.Body.String()
	last := -1
	for _, part := range []string{"<h1>Sheaf API</h1>", "<h2>documents</h2>", "<code>/v1/datasets/{ds}/documents/{doc}</code>", "<h2>jobs</h2>", "</table>"} {
		at := strings.Index(page[last+1:], part)
		if at < 0 {
			t.Fatalf("%s does not exist, or is out of place:\n%s", part, page)
		}
		last += 1 + at
	}
	for path := range s.api.OpenAPI().Paths {
		if !strings.Contains(page, "<code>"+html.EscapeString(path)+"</code>") {
			t.Errorf("%s is missing", path)
		}
	}
}

// TestEveryRouteIsDescribed compares the patterns that are served with the
// paths that are described.
func TestEveryRouteIsDescribed(t *testing.T) {
	s := New(Config{})
	doc, err := s.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/v1/datasets/{ds}/documents", "/v1/datasets/{ds}/documents/{doc}", "/v1/datasets/{ds}/documents/{doc}/pages", "/v1/datasets/{ds}/documents/{doc}/chunks",
		"/v1/datasets/{ds}/documents/{doc}/content", "/v1/datasets/{ds}/documents/{doc}/pages/{n}/image", "/v1/datasets/{ds}/documents/{doc}/pictures/{picture}", "/v1/datasets/{ds}/search", "/v1/search",
		"/v1/jobs/{job}", "/v1/jobs/{job}/errors", "/v1/jobs/{job}/events", "/v1/jobs/{job}:cancel", "/v1/jobs/{job}:pause", "/v1/jobs/{job}:resume", "/v1/jobs/{job}:retry",
		"/v1/datasets/{ds}/documents:reparse", "/v1/queues", "/v1/dead-letters", "/v1/executors",
	} {
		if !strings.Contains(string(doc), `"`+path+`"`) {
			t.Errorf("%s is not described", path)
		}
	}
}
