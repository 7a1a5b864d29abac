package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/api"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/config"
	"sheaf/internal/doctor"
	"sheaf/internal/graphs"
	"sheaf/internal/mindmap"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

// ofTheDocument are nodes over the whole document, behind one that indexes it.
const ofTheDocument = `  { id = "out", kind = "index", from = ["cut"] },
  { id = "tree", kind = "raptor", from = ["out"], config = { max_token = 64 } },
  { id = "map", kind = "mindmap", from = ["out"] },
  { id = "net", kind = "graph", from = ["out"], config = { method = "general", entity_types = ["structure"] }, on_failure = "skip", retry = { attempts = 1 } },
`

// readsGraph answers questions of a graph with a bird at a pond, and others as ever.
func readsGraph(instruction, text string) string {
	switch {
	case strings.HasPrefix(instruction, "The text is passages"):
		passages := make([]string, strings.Count("\n"+text, "\n["))
		for i := range passages {
			passages[i] = fmt.Sprintf(`{"passage": %d, "entities": [{"name": "heron", "type": "structure", "description": "A bird."}, {"name": "pond", "type": "structure", "description": "Water."}], "relations": [{"source": "heron", "target": "pond", "description": "It stands there."}]}`, i+1)
		}
		return `{"passages": [` + strings.Join(passages, ", ") + `]}`
	case strings.HasPrefix(instruction, "You extract"):
		return `{"entities": [{"name": "heron", "type": "structure", "description": "A bird."}, {"name": "pond", "type": "structure", "description": "Water."}], "relations": [{"source": "heron", "target": "pond", "description": "It stands there."}]}`
	}
	return chattest.Answer(instruction, text)
}

// Nodes over the whole document leave what runs over its dataset would: it is found
// with the version that it is of, a run keeps it, and a new version pays for nothing
// that it does not change.
func TestNodesOverTheDocument(t *testing.T) {
	t.Parallel()
	model := chattest.Start(t)
	model.Reply(readsGraph)
	s := start(t, func(c *config.Config) { c.Chat.URL, c.Chat.Model = model.URL, chattest.Model })
	d, run := s.flowed("trees", ofTheDocument, ponds("heron"))
	if d.State != sheaf.DocSucceeded || len(d.Warnings) != 0 || run.Mode != "nodes" {
		t.Fatalf("%s %+v, mode %s", d.State, d.Warnings, run.Mode)
	}
	for _, id := range []string{"tree", "map", "net"} {
		if n := nodeOf(t, run, id); n.State != "done" || n.Shared || n.Ranges != 1 || n.Attempts != 1 || id != "map" && (n.Asked == nil || n.Asked.Calls == 0 || n.Asked.Tokens == 0) { // headings name a map
			t.Errorf("node %s is %+v", id, n)
		}
	}
	asked := len(model.Asked())
	summaries := func() (texts []string) {
		t.Helper()
		r, err := s.search(t.Context(), defaultDataset, map[string]any{"query": "sum up the following passages", "kinds": []string{"summary"}, "limit": 50})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range r.Hits {
			if len(h.Chunk.Pages) == 0 || len(h.Chunk.Children) < 2 || h.Document.ID != d.ID {
				t.Errorf("a summary is cited by %+v", h)
			}
			texts = append(texts, h.Chunk.Text)
		}
		return texts
	}
	first := summaries()
	if len(first) < 2 {
		t.Errorf("summaries: %q", first)
	}
	var tree mindmap.MapNode
	if s.get("/v1/datasets/default/mindmap?document="+d.ID, &tree); len(tree.Children) != 12 {
		t.Errorf("the mind map is %+v", tree)
	}
	graph := func() *graphs.Part {
		t.Helper()
		var g graphs.Part
		s.get("/v1/datasets/default/graph?entity=heron", &g)
		return &g
	}
	if g := graph(); !slices.ContainsFunc(g.Entities, func(e search.GraphEntity) bool { return e.Name == "pond" }) {
		t.Errorf("the graph is %+v", g)
	}
	var report doctor.Report
	if s.post("/v1/doctor", map[string]any{}, &report); len(report.Findings) != 0 {
		t.Errorf("the doctor finds %+v", report.Findings)
	}

	// Runs over the dataset keep it all.
	for kind, options := range map[string]map[string]any{"raptor": {"max_token": 64}, "mindmap": nil, "graphrag": {"method": "light", "entity_types": []string{"structure"}}} {
		var begun api.RunStarted
		s.post("/v1/datasets/default/"+kind, map[string]any{"options": options}, &begun)
		if r := s.over("default", begun.ID); r.State != taskstore.RunSucceeded || r.Calls != 0 || !strings.Contains(string(r.Result), `"kept":1`) {
			t.Errorf("%s: %s with %d calls: %s", kind, r.State, r.Calls, r.Result)
		}
	}

	// A dry run says what they would ask; a new version asks nothing again, and takes
	// the place of the one before.
	var would struct{ Plans []ingest.PlanPreview }
	s.post("/v1/datasets/default/documents:reparse?dry_run=true", map[string]any{"filter": map[string]any{"document_ids": []string{d.ID}}}, &would)
	for _, id := range []string{"tree", "map", "net"} {
		if i := slices.IndexFunc(would.Plans[0].Nodes, func(n ingest.PlannedNode) bool { return n.Node == id }); i < 0 || would.Plans[0].Nodes[i].Run != 1 || would.Plans[0].Nodes[i].Tokens == nil || would.Plans[0].Nodes[i].Seconds == nil || *would.Plans[0].Nodes[i].Seconds > 60 {
			t.Errorf("a dry run says of %s: %+v", id, would.Plans[0].Nodes)
		}
	}
	s.must("doc", "reparse", d.ID, "--wait")
	if again := summaries(); !slices.Equal(sorted(again), sorted(first)) {
		t.Errorf("after a new version %q, before %q", again, first)
	}
	if n := len(model.Asked()); n != asked {
		t.Errorf("a new version asked %d times", n-asked)
	}
	d, run = s.ran(d.ID)
	if n := nodeOf(t, run, "tree"); d.LiveGeneration != 2 || n.State != "done" || n.Asked == nil || n.Asked.Calls != 0 || n.Asked.Cached == 0 {
		t.Errorf("generation %d, %+v", d.LiveGeneration, n)
	}

	// What people edited is left to runs, which know of it.
	var chunks api.List[sheaf.Chunk]
	s.get("/v1/datasets/default/documents/"+d.ID+"/chunks", &chunks)
	if resp, b := s.request("PATCH", "/v1/datasets/default/documents/"+d.ID+"/chunks/"+chunks.Items[0].ID, `{"text": "The kingfisher was seen."}`, "Content-Type", "application/json"); resp.StatusCode != 200 {
		t.Fatalf("%s %s", resp.Status, b)
	}
	s.must("doc", "reparse", d.ID, "--wait")
	if d, run = s.ran(d.ID); d.State != sheaf.DocSucceeded || nodeOf(t, run, "tree").State != "skipped" || !strings.Contains(nodeOf(t, run, "tree").Reason, "edited") || len(summaries()) != 0 {
		t.Errorf("%s, %+v, summaries %q", d.State, nodeOf(t, run, "tree"), summaries())
	}
}

func sorted(texts []string) []string { return slices.Sorted(slices.Values(texts)) }

// A node over the document that fails for good is told of; the document is found
// without what it would have made. In the mode whole it has a task of its own, too.
func TestNodesOverTheDocumentThatFail(t *testing.T) {
	t.Parallel()
	model := chattest.Start(t)
	broken := func(instruction, text string) string {
		if strings.HasPrefix(instruction, "You write summaries") {
			return ""
		}
		return readsGraph(instruction, text)
	}
	model.Reply(broken)
	s := start(t, func(c *config.Config) { c.Chat.URL, c.Chat.Model = model.URL, chattest.Model })
	d, run := s.flowed("half", strings.Replace(ofTheDocument, `on_failure = "skip", retry = { attempts = 1 }`, `when = "document.pages > 99"`, 1), ponds("heron"))
	if run.Mode != "whole" || nodeOf(t, run, "net").State != "skipped" || nodeOf(t, run, "map").State != "done" || nodeOf(t, run, "map").Shared {
		t.Errorf("the run is %+v", run)
	}
	if d.State != sheaf.DocSucceeded || !slices.ContainsFunc(d.Warnings, func(w sheaf.Warning) bool {
		return w.Code == "flow_node_incomplete" && strings.Contains(w.Message, "tree")
	}) {
		t.Errorf("%s %+v", d.State, d.Warnings)
	}
	// A run asks again, by the name that says so.
	model.Reply(readsGraph)
	var begun api.RunStarted
	s.post("/v1/datasets/default/raptor", map[string]any{"options": map[string]any{"max_token": 64}}, &begun)
	if r := s.over("default", begun.ID); r.State != taskstore.RunSucceeded || r.Calls == 0 {
		t.Errorf("%s with %d calls", r.State, r.Calls)
	}

	for name, c := range map[string]struct {
		on    string
		state string
	}{
		"skips": {`, on_failure = "skip"`, "skipped"},
		"fails": {"", "failed"},
	} {
		d, run = s.flowed(name, `  { id = "out", kind = "index", from = ["cut"] },
  { id = "tree", kind = "raptor", from = ["out"], timeout = "1ns", retry = { attempts = 1 }`+c.on+` },
`, ponds("stork"))
		if n := nodeOf(t, run, "tree"); d.State != sheaf.DocPartiallySucceeded || d.Failure == nil || d.Failure.Code != "node_timeout" || n.State != c.state || d.LiveGeneration != 1 {
			t.Errorf("%s: %s %+v, node %+v", name, d.State, d.Failure, n)
		}
		if c.on == "" { // a node that failed is called by its name
			p := openBrowser(t, s)
			p.open("/datasets/default/documents/" + d.ID + "?tab=problems")
			p.sees(".problem", "Node tree: ")
		}
	}
}

// Without a language model the same nodes make summaries of sentences and a map of
// key phrases; the graph is that of rules.
func TestNodesOverTheDocumentWithoutAModel(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	d, run := s.flowed("offline", strings.Replace(ofTheDocument, `method = "general", `, "", 1), ponds("heron"))
	if d.State != sheaf.DocSucceeded || nodeOf(t, run, "tree").State != "done" || nodeOf(t, run, "tree").Asked != nil || nodeOf(t, run, "net").State != "done" {
		t.Errorf("%s: %+v", d.State, run)
	}
	r, err := s.search(t.Context(), defaultDataset, map[string]any{"query": "heron in the morning", "kinds": []string{"summary"}})
	if err != nil || len(r.Hits) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	d, run = s.flowed("model", ofTheDocument, ponds("stork"))
	if n := nodeOf(t, run, "net"); d.State != sheaf.DocPartiallySucceeded || d.Failure == nil || d.Failure.Code != "no_model" || n.State != "skipped" {
		t.Errorf("%s %+v, node %+v", d.State, d.Failure, n)
	}
}
