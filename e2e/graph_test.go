package e2e

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/config"
	"sheaf/internal/graphs"
	"sheaf/internal/search"
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

// TestAModelReadsTheGraph: a run at the command line has the model read entities
// and relations, which are shown and searched with pages; a document that goes
// takes what was said of it along, and nothing is asked twice.
func TestAModelReadsTheGraph(t *testing.T) {
	t.Parallel()
	model := chattest.Start(t)
	model.Reply(func(instruction, text string) string {
		switch {
		case strings.HasPrefix(instruction, "You report"):
			return `{"title": "Irrigation of the valley", "summary": "Reservoirs feed mills.", "rating": 7, "rating_explanation": "water", "findings": [{"summary": "s", "explanation": "e"}]}`
		case strings.Contains(text, "weir"):
			return `{"entities": [{"name": "weir", "type": "structure", "description": "A weir of stone."}, {"name": "mill", "type": "structure", "description": "A mill on the brook."}], "relations": [{"source": "weir", "target": "mill", "description": "The weir feeds the mill."}]}`
		default:
			return `{"entities": [], "relations": []}`
		}
	})
	s := start(t, func(c *config.Config) { c.Chat.URL, c.Chat.Model = model.URL, chattest.Model })
	s.post("/v1/datasets", map[string]any{"name": "water"}, nil)
	first, second := sheaf.NewID(), sheaf.NewID()
	mustState(t, s.putIn("water", first, "brook.md", "text/markdown", "# Brook\n\nthe weir of stone feeds the mill below.\n"), sheaf.DocSucceeded)
	mustState(t, s.putIn("water", second, "fields.md", "text/markdown", "# Fields\n\nnothing but grass.\n"), sheaf.DocSucceeded)
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--method general --dry-run", 0, "2 documents"},
		{"--method generall", 2, "general"},
		{"--method light --depth 2", 2, "cannot go together"},
		{"--method general -o entity_types=structure --wait", 0, "succeeded"},
		{"weir", 0, "mill"},
	} {
		if o := s.sheaf(append([]string{"dataset", "graph", "water"}, strings.Fields(c.args)...)...); o.code != c.code || !strings.Contains(o.out+o.err, c.says) {
			t.Errorf("sheaf dataset graph water %s: %d %q %q, want %d and %q", c.args, o.code, o.out, o.err, c.code, c.says)
		}
	}
	asked := len(model.Asked())
	if asked != 3 { // of two chunks, and one report
		t.Errorf("the model was asked %d times: %q", asked, model.Asked())
	}
	ask := func(mode string) *search.Response {
		t.Helper()
		r, err := s.search(t.Context(), "water", map[string]any{"query": "irrigation by a weir", "graph": mode})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, mode := range []string{"local", "global", "mix"} {
		if r := ask(mode); len(r.Hits) == 0 || r.Hits[0].Document.ID != first || len(r.Hits[0].Chunk.Pages) == 0 || r.Graph == nil {
			t.Errorf("%s finds %+v", mode, r)
		}
	}
	if r := ask("global"); len(r.Graph.Communities) == 0 || r.Graph.Communities[0].Report == nil || r.Graph.Communities[0].Report.Title != "Irrigation of the valley" {
		t.Errorf("the report is not told: %+v", r.Graph)
	}
	if o := s.sheaf("dataset", "graph", "water", "--method", "general", "-o", "entity_types=structure", "--wait"); o.code != 0 || len(model.Asked()) != asked {
		t.Errorf("again: %d %q %q, asked %d times", o.code, o.out, o.err, len(model.Asked())-asked)
	}
	s.request("DELETE", "/v1/datasets/water/documents/"+first, "")
	if r := ask("global"); len(r.Hits) != 0 || len(r.Graph.Communities) != 0 {
		t.Errorf("of a document that is gone: %+v", r)
	}
	if o := s.sheaf("dataset", "graph", "water", "--method", "general", "-o", "entity_types=structure", "--wait"); o.code != 0 || len(model.Asked()) != asked {
		t.Errorf("after the deletion: %d %q %q, asked %d times", o.code, o.out, o.err, len(model.Asked())-asked)
	}
}
