package api

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"sheaf/internal/apidoc"
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

// The page for people shows each route of the description, group by group, and
// each link in it leads somewhere.
func TestDocsPageShowsEveryRoute(t *testing.T) {
	s := New(Config{})
	r := httptest.NewRequest(http.MethodGet, "/docs", nil)
	r.Host = "example.org:80'><script>"
	w := httptest.NewRecorder()
	s.docs(w, r)
	page := w.Body.String()
	last := -1
	for _, part := range []string{"<h1>API reference</h1>", `id="errors"`, `id="tag-datasets"`, `id="tag-documents"`, "<code>/v1/datasets/{ds}/documents/{doc}</code>", `id="tag-jobs"`, `id="tag-admin"`, `id="schemas"`, `id="schema-Problem"`, "</html>"} {
		at := strings.Index(page[last+1:], part)
		if at < 0 {
			t.Fatalf("%s does not exist, or is out of place", part)
		}
		last += 1 + at
	}
	for _, op := range apidoc.Operations(s.api.OpenAPI()) {
		if !strings.Contains(page, `<details class="op" id="`+op.OperationID+`">`) {
			t.Errorf("%s %s is missing", op.Method, op.Path)
		}
	}
	if strings.Contains(page, "'><script>") {
		t.Error("the name of the host is not escaped")
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("#%s leads nowhere", link[1])
		}
	}
}

// Clients are made from the description: nothing in it goes without a word.
func TestEverythingIsDescribed(t *testing.T) {
	s := newTestServer(t, nil).api.api.OpenAPI()
	used := map[string]bool{}
	all := s.Components.Schemas.Map()
	for name, schema := range all {
		used["schema "+name] = true
		for key, of := range schema.Properties {
			used["key "+key] = true
			if of.Description == "" && (of.Ref == "" || all[of.Ref[strings.LastIndexByte(of.Ref, '/')+1:]].Description == "") {
				t.Errorf("%s.%s is not described", name, key)
			}
		}
	}
	for _, op := range apidoc.Operations(s) {
		used["operation "+op.OperationID] = true
		for _, p := range op.Parameters {
			used["parameter "+p.Name] = true
			used["parameter of "+op.OperationID+" "+p.Name] = true
			if p.Description == "" {
				t.Errorf("%s %s: the parameter %s is not described", op.Method, op.Path, p.Name)
			}
			if p.In == "path" && p.Example == nil {
				t.Errorf("%s %s: the parameter %s has no example", op.Method, op.Path, p.Name)
			}
		}
		if op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil || op.RequestBody.Content["multipart/form-data"] != nil {
			continue
		}
		used["body of "+op.OperationID] = true
		if op.RequestBody.Content["application/json"].Example == nil {
			t.Errorf("%s %s: the body has no example", op.Method, op.Path)
		}
	}
	for _, p := range properties {
		for name := range strings.FieldsSeq(p.schemas) {
			if !used["schema "+name] {
				t.Errorf("no schema is called %s", name)
			}
		}
	}
	for key := range keyTexts {
		if !used["key "+key] {
			t.Errorf("no property is called %s", key)
		}
	}
	for name := range schemaTexts {
		if !used["schema "+name] {
			t.Errorf("no schema is called %s", name)
		}
	}
	for name := range parameterTexts {
		if !used["parameter "+name] {
			t.Errorf("no parameter is called %s", name)
		}
	}
	for id := range bodyExamples {
		if !used["body of "+id] {
			t.Errorf("%s takes no JSON", id)
		}
	}
	for id, of := range parameterExamples {
		for name := range of {
			if !used["parameter of "+id+" "+name] {
				t.Errorf("%s has no parameter %s", id, name)
			}
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
