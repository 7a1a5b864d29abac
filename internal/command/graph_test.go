package command

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/graphs"
)

// TestAGraphFollowsItsDocuments: what is searched in it is cited, and what was
// deleted is neither found nor named.
func TestAGraphFollowsItsDocuments(t *testing.T) {
	s := start(t, nil)
	var ds sheaf.Dataset
	s.post("/v1/datasets", map[string]any{"name": "firms"}, &ds)
	deals, tech := sheaf.NewID(), sheaf.NewID()
	mustState(t, s.putIn("firms", deals, "deals.md", "text/markdown", "# Deals\n\nSo Alice Smith, Acme Corp and Globex Inc signed in Paris. So Acme Corp paid Globex Inc in Paris. So Alice Smith left Acme Corp.\n"), sheaf.DocSucceeded)
	mustState(t, s.putIn("firms", tech, "tech.md", "text/markdown", "# Machines\n\nOur machines run Linux and PostgreSQL. So Linux feeds PostgreSQL. Our Information Technology (IT) uses Linux. So IT likes Linux.\n"), sheaf.DocSucceeded)

	var part graphs.Part
	s.get("/v1/datasets/firms/graph", &part)
	names := func() string {
		var all []string
		for _, e := range part.Entities {
			all = append(all, e.Name)
			if len(e.Sources) == 0 || e.Sources[0].ChunkID == "" || len(e.Sources[0].Pages) == 0 {
				t.Errorf("%s is cited by %+v", e.Name, e.Sources)
			}
		}
		return strings.Join(all, ", ")
	}
	if got := names(); !strings.Contains(got, "Acme Corp") || !strings.Contains(got, "PostgreSQL") || len(part.Communities) < 2 {
		t.Fatalf("the graph has %s and communities %+v of %+v", got, part.Communities, part.Total)
	}
	s.get("/v1/datasets/firms/graph?entity=acme+corp&depth=2", &part)
	if got := names(); !strings.HasPrefix(got, "Acme Corp") || strings.Contains(got, "Linux") || len(part.Relations) == 0 {
		t.Errorf("around Acme Corp: %s", got)
	}
	if resp, b := s.request("GET", "/v1/datasets/firms/graph?entity=acme", ""); resp.StatusCode != 404 || !strings.Contains(string(b), "Acme Corp") {
		t.Errorf("an unknown entity: %s %s", resp.Status, b)
	}

	find := func(body map[string]any) []string {
		t.Helper()
		r, err := s.search(t.Context(), "firms", body)
		if err != nil {
			t.Fatal(err)
		}
		var docs []string
		for _, h := range r.Hits {
			docs = append(docs, h.Document.ID)
			if len(h.Chunk.Pages) == 0 || h.Chunk.Text == "" || h.Score <= 0 || h.Score > 1 {
				t.Errorf("%v: a hit is %+v", body, h)
			}
		}
		if r.Graph == nil {
			t.Errorf("%v: nothing is said of the graph", body)
		}
		return docs
	}
	if got := find(map[string]any{"query": "what did globex do", "graph": "local"}); len(got) != 1 || got[0] != deals {
		t.Errorf("local: %v", got)
	}
	if got := find(map[string]any{"query": "what are these about", "graph": "global"}); len(got) != 2 {
		t.Errorf("global: %v", got)
	}
	if got := find(map[string]any{"query": "linux", "graph": "mix", "explain": true}); len(got) == 0 || got[0] != tech {
		t.Errorf("mix: %v", got)
	}
	if got := find(map[string]any{"query": "globex", "graph": "local", "filter": map[string]any{"document_ids": []string{tech}}}); len(got) != 0 {
		t.Errorf("a filter let through %v", got)
	}
	for _, body := range []string{`{"query":"x","graph":"around"}`, `{"query":"x","graph":"local","mode":"text"}`, `{"query":" ","graph":"local"}`} {
		if resp, b := s.request("POST", "/v1/datasets/firms/search", body, "Content-Type", "application/json"); resp.StatusCode/100 != 4 {
			t.Errorf("%s: %s %s", body, resp.Status, b)
		}
	}
	if resp, b := s.request("POST", "/v1/search", `{"query":"x","graph":"local"}`, "Content-Type", "application/json"); resp.StatusCode != 400 {
		t.Errorf("over all datasets: %s %s", resp.Status, b)
	}
	export := func() string {
		resp, b := s.request("GET", "/v1/datasets/firms/graph/export", "")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/graphml+xml" || xml.Unmarshal(b, new(struct{ XMLName xml.Name })) != nil {
			t.Fatalf("the export: %s %s %.300s", resp.Status, resp.Header, b)
		}
		return string(b)
	}
	if got := export(); !strings.Contains(got, "Acme Corp") || !strings.Contains(got, "Linux") {
		t.Errorf("the export is %s", got)
	}

	if resp, b := s.request("DELETE", "/v1/datasets/firms/documents/"+deals, ""); resp.StatusCode/100 != 2 {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	// At once, whether or not the graph was made anew.
	if got := find(map[string]any{"query": "globex", "graph": "local"}); len(got) != 0 {
		t.Errorf("a deleted document is found: %v", got)
	}
	s.get("/v1/datasets/firms/graph", &part)
	if b := fmt.Sprintf("%+v", part); strings.Contains(b, "Acme") || strings.Contains(b, "Globex") || !strings.Contains(b, "Linux") {
		t.Errorf("after a deletion: %s", b)
	}
	if got := export(); strings.Contains(got, "Acme") {
		t.Errorf("a deleted document is exported: %s", got)
	}
}
