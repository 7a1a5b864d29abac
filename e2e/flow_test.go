package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/api"
)

// The commands of flows, against a server: what is wrong is said with its
// node, an unchanged flow makes no version, and a deleted number stays unused.
func TestFlowCommands(t *testing.T) {
	s := start(t, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "contracts.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	has := func(o ending, code int, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if o.code != code || !strings.Contains(o.out+o.err, text) {
				t.Fatalf("exit %d, want %d with %q: %s%s", o.code, code, text, o.out, o.err)
			}
		}
	}
	write(strings.ReplaceAll(victimsFlow("contracts"), `"chunk", from = ["read"]`, `"chunk", from = ["raed"], timeout = "90h"`))
	has(s.sheaf("flow", "validate", file), exitUsage, `node cut: from: There is no node "raed"`, "node cut: timeout: ", `node read: Nothing reads its output`)
	has(s.sheaf("flow", "apply", file), exitFailed, `node.cut.from: There is no node "raed"`, "node.cut.timeout: ", "node.read: Nothing reads its output", "invalid_flow")
	write("{\n\"name\": \"contracts\",\n\"node\": [\n {\"id\": \"read\", \"kind\": \"parse\"},\n {\"id\": \"cut\", \"kind\": \"chunk\",\n  \"from\": [\"raed\"]},\n {\"id\": \"out\", \"kind\": \"index\", \"from\": [\"cut\"]}\n]}\n")
	has(s.sheaf("flow", "validate", file), exitUsage, `line 6: node cut: from: There is no node "raed"`, "line 4: node read: Nothing reads its output")
	write("\n\n{\"name\": \"contracts\",\n\"node\": [\n {\"id\": \"read\", \"kind\": \"parse\", \"from\": [\"raed\"]}]}")
	has(s.sheaf("flow", "validate", file), exitUsage, "line 5: node read: ")
	write("{\"name\": \"contracts\",\n\"node\": [\n {\"id\": \"read\" \"kind\": \"parse\"}]}")
	has(s.sheaf("flow", "validate", file), exitUsage, "begins as JSON and is none in line 3")

	write(victimsFlow("contracts"))
	has(s.must("flow", "validate", file), 0, "is valid")
	has(s.must("flow", "apply", file, "--dry-run"), 0, "contracts@1 would be")
	has(s.must("flow", "apply", file), 0, "contracts@1 is")
	has(s.must("flow", "apply", file), 0, "contracts@1 is")
	write(strings.ReplaceAll(victimsFlow("contracts"), `from = ["read"]`, `from = ["read"], config = { chunk_token_num = 64 }`))
	has(s.must("flow", "apply", file), 0, "contracts@2 is")
	has(s.must("flow", "list"), 0, "standard@1", "contracts@2", "built in")
	has(s.must("flow", "kinds"), 0, "extract", "the document", "passes on the chunks for which an expression is true")
	has(s.must("flow", "kinds", "extract"), 0, "config.schema", "object, required", "retry.attempts", "on_failure", "fail, skip, default")
	has(s.sheaf("flow", "kinds", "extracts"), 2, "there is no kind", "sheaf flow kinds")
	has(s.must("flow", "diff", "contracts"), 0, "cut", "config", `{"chunk_token_num":64}`)
	has(s.must("flow", "diff", "contracts", "--from", "2"), 0, "They do the same")
	has(s.must("flow", "show", "contracts@1"), 0, `id = "cut"`)

	// What show prints is what apply reads, in both forms.
	o := s.must("flow", "show", "contracts", "-q")
	write(o.out)
	has(s.must("flow", "apply", file), 0, "contracts@2 is")
	var shown api.FlowAnswer
	if err := json.Unmarshal([]byte(s.must("flow", "show", "contracts", "--json").out), &shown); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(shown.Flow)
	if err != nil {
		t.Fatal(err)
	}
	write(string(text))
	has(s.must("flow", "apply", file), 0, "contracts@2 is")

	has(s.sheaf("flow", "show", "contract"), exitNotFound, "no flow contract")
	has(s.sheaf("flow", "delete", "standard", "--yes"), exitBusy, "built in")
	has(s.must("flow", "delete", "contracts@2", "--yes"), 0, "Deleted contracts@2")
	has(s.must("flow", "apply", file), 0, "contracts@3 is")
	has(s.must("flow", "delete", "contracts", "--dry-run"), 0, "would delete contracts@3, contracts@1")
	has(s.must("flow", "delete", "contracts", "--yes"), 0, "Deleted contracts@1, contracts@3")
}

// A document goes through the flow that its settings name: arms by condition,
// chunks dropped by a filter, keywords by a node, settings by the chunk node. The
// same flow again makes nothing anew; the standard pipeline brings all back.
func TestDocumentGoesThroughAFlow(t *testing.T) {
	s := start(t, nil)
	flowOf := func(keep, when string) string {
		return `name = "minutes"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"], config = { chunk_token_num = 32 } },
  { id = "public", kind = "filter", from = ["cut"], config = { keep = "` + keep + `" } },
  { id = "short", kind = "branch", from = ["public"], when = "` + when + `" },
  { id = "words", kind = "enrich", from = ["short"], timeout = "1m", config = { auto_keywords = 2 } },
  { id = "all", kind = "merge", from = ["words", "public"] },
  { id = "out", kind = "index", from = ["all"] },
]
`
	}
	apply := func(text string) {
		t.Helper()
		var v api.FlowAnswer
		s.post("/v1/flows", map[string]any{"toml": text}, &v)
	}
	apply(flowOf("!chunk.text.contains('secret')", "document.name.endsWith('.md') && !('long' in document.metadata)"))
	body := "# Minutes\n\nThe quartzite was measured twice.\n\n# Notes\n\nThis is secret: obsidian.\n\n# End\n\nFeldspar closes the list.\n"
	upload := func(fields map[string]string) sheaf.Document {
		t.Helper()
		answer, err := s.submitAnswer(t.Context(), "default", []source{text("minutes.md", body)}, fields, "")
		if err != nil {
			t.Fatal(err)
		}
		s.ended(answer.Job.ID)
		var d sheaf.Document
		s.get("/v1/datasets/default/documents/"+answer.Documents[0].ID, &d)
		return d
	}
	chunksOf := func(d sheaf.Document) (texts []string, keywords int) {
		t.Helper()
		var l api.List[sheaf.Chunk]
		s.get("/v1/datasets/default/documents/"+d.ID+"/chunks", &l)
		for i, c := range l.Items {
			texts = append(texts, c.Text)
			keywords += len(c.Keywords)
			if want := sheaf.ChunkID(c.RangeID, i); c.ID != want {
				t.Errorf("chunk %d has the id %s, want %s", i, c.ID, want)
			}
		}
		return texts, keywords
	}
	warned := func(d sheaf.Document, code string) bool {
		return slices.ContainsFunc(d.Warnings, func(w sheaf.Warning) bool { return w.Code == code })
	}

	d := upload(map[string]string{"parser_config": `{"flow":"minutes@1"}`})
	texts, keywords := chunksOf(d)
	if all := strings.Join(texts, "\n"); d.State != sheaf.DocSucceeded || len(texts) != 2 || strings.Contains(all, "obsidian") || !strings.Contains(all, "Feldspar") || keywords == 0 || !warned(d, "flow_dropped") || warned(d, "flow_skipped") {
		t.Fatalf("%s with %d keywords and warnings %v: %q", d.State, keywords, d.Warnings, texts)
	}
	if found := s.findIn("default", "obsidian"); strings.Contains(strings.Join(found, "\n"), "obsidian") {
		t.Errorf("a chunk that the filter dropped is found: %q", found)
	}

	// Metadata of its own turns the condition: the arm is skipped, and said so.
	long := upload(map[string]string{"parser_config": `{"flow":"minutes"}`, "metadata": `{"long":"yes"}`})
	if texts, keywords := chunksOf(long); len(texts) != 2 || keywords != 0 || !warned(long, "flow_skipped") {
		t.Errorf("%d chunks, %d keywords, warnings %v", len(texts), keywords, long.Warnings)
	}

	// The dataset follows the latest version, as it is when a document is parsed.
	s.must("dataset", "settings", "default", "flow=minutes")
	apply(flowOf("chunk.tokens > 100000", "true"))
	empty := upload(nil)
	if empty.State != sheaf.DocFailed || empty.Failure == nil || empty.Failure.Code != "flow_dropped" {
		t.Errorf("a flow that drops everything ends %s: %+v", empty.State, empty.Failure)
	}
	if o := s.sheaf("flow", "delete", "minutes", "--yes"); o.code != exitBusy || !strings.Contains(o.err, "he dataset default names the flow minutes") {
		t.Errorf("deleting what a dataset names: %d %s", o.code, o.err)
	}
	if o := s.sheaf("dataset", "settings", "default", "flow=minuets"); o.code == 0 || !strings.Contains(o.err, "there is no flow minuets") {
		t.Errorf("a flow that is not there: %d %s", o.code, o.err)
	}

	// The same version again reads nothing anew; the standard pipeline has it all.
	again := func(flow string) sheaf.Document {
		t.Helper()
		s.must("doc", "reparse", d.ID, "--setting", "flow="+flow, "--wait")
		var now sheaf.Document
		s.get("/v1/datasets/default/documents/"+d.ID, &now)
		return now
	}
	same := again("minutes@1")
	var tasks api.List[api.Task]
	s.get("/v1/datasets/default/documents/"+d.ID+"/tasks", &tasks)
	for _, task := range tasks.Items {
		if task.Kind == sheaf.KindParse && !task.Reused {
			t.Errorf("a re-parse by the same flow runs %s again", task.Kind)
		}
	}
	if texts, _ := chunksOf(same); len(texts) != 2 || same.Generation < 2 {
		t.Errorf("generation %d has %q", same.Generation, texts)
	}
	whole := again("standard")
	if texts, keywords := chunksOf(whole); !strings.Contains(strings.Join(texts, "\n"), "obsidian") || keywords != 0 || warned(whole, "flow_dropped") {
		t.Errorf("the standard pipeline makes %d keywords, %v and %q", keywords, whole.Warnings, texts)
	}
}

// Nodes that ask for it are tasks of their own: one that fails for good is skipped,
// as it says, and what the others make is there; a change of one node runs that
// one and what reads it, on the outputs that are stored; what no version lists is
// collected, and what one lists is not.
func TestNodesOfAFlowAreTasks(t *testing.T) {
	s := start(t, nil)
	apply := func(keywords int) {
		t.Helper()
		var v api.FlowAnswer
		s.post("/v1/flows", map[string]any{"toml": fmt.Sprintf(`name = "graph"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"], config = { chunk_token_num = 32 }, retry = { attempts = 2 } },
  { id = "public", kind = "filter", from = ["cut"], config = { keep = "!chunk.text.contains('secret')" } },
  { id = "risky", kind = "filter", from = ["cut"], config = { keep = "chunk.metadata['none'] == 'x'" }, on_failure = "skip" },
  { id = "after", kind = "filter", from = ["risky"], config = { keep = "true" } },
  { id = "words", kind = "enrich", from = ["public"], config = { auto_keywords = %d } },
  { id = "all", kind = "merge", from = ["words", "after", "public"] },
  { id = "out", kind = "index", from = ["all"] },
]
`, keywords)}, &v)
	}
	apply(2)
	body := "# Minutes\n\nThe quartzite was measured twice.\n\n# Notes\n\nThis is secret: obsidian.\n\n# End\n\nFeldspar closes the list.\n"
	answer, err := s.submitAnswer(t.Context(), "default", []source{text("minutes.md", body)}, map[string]string{"parser_config": `{"flow":"graph"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	path := "/v1/datasets/default/documents/" + answer.Documents[0].ID
	look := func() (d sheaf.Document, nodes map[string]api.RunNode, keywords int) {
		t.Helper()
		var run api.FlowRun
		var chunks api.List[sheaf.Chunk]
		s.get(path, &d)
		s.get(path+"/run", &run)
		s.get(path+"/chunks", &chunks)
		if run.Mode != "nodes" || run.State != sheaf.DocPartiallySucceeded || !strings.Contains(run.Reason, "cut") {
			t.Errorf("the run is %+v", run)
		}
		texts := ""
		for _, c := range chunks.Items {
			texts, keywords = texts+c.Text, max(keywords, len(c.Keywords))
		}
		if len(chunks.Items) != 2 || strings.Contains(texts, "obsidian") || !strings.Contains(texts, "Feldspar") {
			t.Errorf("the chunks are %q", texts)
		}
		nodes = map[string]api.RunNode{}
		for _, n := range run.Nodes {
			nodes[n.ID] = n
		}
		return d, nodes, keywords
	}
	d, nodes, keywords := look()
	if d.State != sheaf.DocPartiallySucceeded || d.Failure == nil || d.Failure.Code != "flow_expression" || keywords != 2 {
		t.Fatalf("%s with %d keywords: %+v", d.State, keywords, d.Failure)
	}
	for id, state := range map[string]string{"read": "done", "cut": "done", "public": "done", "risky": "skipped", "after": "skipped", "words": "done", "all": "done", "out": "done"} {
		if nodes[id].State != state || state == "skipped" && nodes[id].Reason == "" {
			t.Errorf("node %s is %+v, want %s", id, nodes[id], state)
		}
	}
	if n := nodes["words"]; n.Chunks != 2 || n.Bytes == 0 || nodes["risky"].Failure == nil {
		t.Errorf("outputs: %+v and %+v", n, nodes["risky"])
	}
	for _, code := range []string{"flow_dropped", "flow_node_failed"} {
		if !slices.ContainsFunc(d.Warnings, func(w sheaf.Warning) bool { return w.Code == code }) {
			t.Errorf("no warning says %s: %v", code, d.Warnings)
		}
	}

	// Another config of one node: what it reads is there.
	apply(3)
	var would struct{ Plans []ingest.PlanPreview }
	s.post("/v1/datasets/default/documents:reparse?dry_run=true", map[string]any{"filter": map[string]any{"document_ids": []string{d.ID}}}, &would)
	planned := map[string]ingest.PlannedNode{}
	for _, n := range would.Plans[0].Nodes {
		planned[n.Node] = n
	}
	if planned["cut"].Reused != 1 || planned["public"].Reused != 1 || planned["words"].Run != 1 || planned["cut"].Run+planned["public"].Run != 0 {
		t.Errorf("a dry run says %+v", would.Plans[0])
	}
	for range 2 { // a result without the node that failed does not stand for one with it
		if o := s.sheaf("doc", "reparse", d.ID, "--wait"); o.code != exitPartial {
			t.Fatalf("exit %d: %s%s", o.code, o.out, o.err)
		}
		_, nodes, keywords = look()
		if keywords != 3 || nodes["cut"].Reused != 1 || nodes["public"].Reused != 1 || nodes["cut"].Attempts+nodes["public"].Attempts != 0 {
			t.Errorf("%d keywords, nodes %+v", keywords, nodes)
		}
	}
	if nodes["words"].Reused != 1 || nodes["risky"].Attempts != 1 {
		t.Errorf("a third run makes keywords again, or does not try again what failed: %+v", nodes)
	}
}
