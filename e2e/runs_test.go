package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/config"
	"sheaf/internal/doctor"
	"sheaf/internal/mindmap"
	"sheaf/taskstore"
)

// ponds is a document of a few chunks about one kind of bird.
func ponds(kind string) string {
	var b strings.Builder
	for i := range 12 {
		fmt.Fprintf(&b, "# Pond %d\n\nThe %s was seen at pond %d in the early morning. %s\n\n", i, kind, i, strings.Repeat(fmt.Sprintf("It stood in the water of pond %d and waited for fish. ", i), 12))
	}
	return b.String()
}

// over waits for the end of a run.
func (s *service) over(dataset, id string) api.DatasetRun {
	s.t.Helper()
	var r api.DatasetRun
	for end := time.Now().Add(time.Minute); ; {
		s.get("/v1/datasets/"+dataset+"/runs/"+id, &r)
		if !r.State.Open() {
			return r
		}
		if time.Now().After(end) {
			s.t.Fatalf("the run is %s: %+v", r.State, r)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestSummariesAreFoundAndGoWithTheirDocuments runs raptor end to end: what it
// costs is told before, search finds summaries with their pages, and none of a
// document that was deleted.
func TestSummariesAreFoundAndGoWithTheirDocuments(t *testing.T) {
	t.Parallel()
	model := chattest.Start(t)
	s := start(t, func(c *config.Config) {
		c.Chat.URL, c.Chat.Model, c.Chat.Price = model.URL, chattest.Model, 2
		c.Price.Currency = "EUR"
	})
	s.post("/v1/datasets", map[string]any{"name": "birds", "parser_config": map[string]any{"chunk_token_num": 128}}, nil)
	refused := func(method, path, body, code string, status int) string {
		t.Helper()
		resp, b := s.request(method, path, body, "Content-Type", "application/json")
		if resp.StatusCode != status || !strings.Contains(string(b), `"`+code+`"`) {
			t.Errorf("%s %s %s: %s %s, want %d %s", method, path, body, resp.Status, b, status, code)
		}
		return string(b)
	}
	const raptor = "/v1/datasets/birds/raptor"
	refused("POST", raptor, `{}`, "empty_dataset", 409)
	refused("POST", "/v1/datasets/fish/raptor", `{}`, "not_found", 404)
	heron, stork := sheaf.NewID(), sheaf.NewID()
	mustState(t, s.putIn("birds", heron, "heron.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	mustState(t, s.putIn("birds", stork, "stork.md", "text/markdown", ponds("stork")), sheaf.DocSucceeded)
	for _, body := range []string{`{"options": {"scope": "all"}}`, `{"options": {"max_token": 9}}`, `{"auto_update": "1s"}`, `{"auto_update": "soon"}`, `{"max_tokens": -1}`, `{"options": 4}`} {
		if resp, b := s.request("POST", raptor, body, "Content-Type", "application/json"); resp.StatusCode/100 != 4 {
			t.Errorf("%s: %s %s", body, resp.Status, b)
		}
	}
	refused("GET", "/v1/datasets/birds/runs/none", "", "not_found", 404)
	refused("POST", "/v1/datasets/birds/runs/none:cancel", "", "not_found", 404)

	var begun api.RunStarted
	s.post(raptor+"?dry_run=true", map[string]any{}, &begun)
	if p := begun.Plan; p == nil || p.Documents != 2 || p.Current != 0 || p.Calls < 4 || p.Tokens < 1000 || p.Price == 0 || p.Currency != "EUR" || len(model.Asked()) != 0 {
		t.Fatalf("the plan is %+v", begun.Plan)
	}
	// A second one is told of the first; it is held by the dataset's pause.
	s.post("/v1/datasets/birds:pause", nil, nil)
	options := map[string]any{"scope": "dataset", "max_token": 64}
	plan := begun.Plan
	begun = api.RunStarted{}
	s.post(raptor, map[string]any{"options": options}, &begun)
	if begun.DatasetRun == nil || begun.State != taskstore.RunQueued || begun.Documents != 2 {
		t.Fatalf("%+v", begun.DatasetRun)
	}
	if b := refused("POST", raptor, `{}`, "run_open", 409); !strings.Contains(b, `"run":"`+begun.ID+`"`) {
		t.Errorf("the run that is open is not named: %s", b)
	}
	refused("DELETE", raptor, "", "run_open", 409)
	s.post("/v1/datasets/birds:resume", nil, nil)
	r := s.over("birds", begun.ID)
	if r.State != taskstore.RunSucceeded || r.Calls < 4 || int64(r.Calls) > plan.Calls+2 || r.Tokens == 0 || r.Price == 0 || r.Currency != "EUR" || r.Behind != 0 || r.Progress != 1 {
		t.Fatalf("%+v", r)
	}
	refused("POST", "/v1/datasets/birds/runs/"+r.ID+":resume", "{}", "conflict", 409)
	refused("POST", "/v1/datasets/birds/runs/"+r.ID+":cancel", "", "conflict", 409)

	find := func(body map[string]any) (texts, summaries int) {
		t.Helper()
		answer, err := s.search(t.Context(), "birds", body)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range answer.Hits {
			if h.Chunk.Kind != sheaf.ChunkSummary {
				texts++
				continue
			}
			summaries++
			if len(h.Chunk.Pages) == 0 || len(h.Chunk.Children) < 2 || h.Chunk.Layer < 1 || h.Document.Name == "" {
				t.Errorf("a summary is cited by %+v", h)
			}
		}
		return texts, summaries
	}
	query := map[string]any{"query": "sum up the following passages in a few sentences, and keep their numbers", "limit": 9}
	if texts, summaries := find(query); summaries == 0 || summaries > 3 || texts < 2*summaries {
		t.Errorf("%d texts and %d summaries", texts, summaries)
	}
	query["kinds"] = []string{"summary"}
	if texts, summaries := find(query); texts != 0 || summaries < 2 {
		t.Errorf("of summaries alone: %d texts and %d summaries", texts, summaries)
	}
	query["kinds"] = []string{"text"}
	if texts, summaries := find(query); texts == 0 || summaries != 0 {
		t.Errorf("of texts alone: %d texts and %d summaries", texts, summaries)
	}
	refused("POST", "/v1/datasets/birds/search", `{"query":"x","kinds":["graph"]}`, "invalid", 400)

	// The lost index is filled with summaries too, and the doctor finds all well.
	var report doctor.Report
	s.post("/v1/doctor", map[string]any{}, &report)
	if len(report.Findings) != 0 {
		t.Errorf("the doctor finds %+v", report.Findings)
	}

	// Nothing is paid for twice, and nothing for a deletion.
	asked := len(model.Asked())
	if resp, b := s.request(http.MethodDelete, "/v1/datasets/birds/documents/"+heron, ""); resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s", resp.Status, b)
	}
	query["kinds"] = []string{"summary"}
	answer, err := s.search(t.Context(), "birds", query)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range answer.Hits {
		if h.Document.ID == heron || strings.Contains(h.Chunk.Text, "heron") {
			t.Errorf("a summary quotes a deleted document: %+v", h.Chunk)
		}
	}
	s.get("/v1/datasets/birds/runs/"+r.ID, &r)
	if r.Behind != 1 {
		t.Errorf("behind %d documents", r.Behind)
	}
	s.post(raptor, map[string]any{"options": map[string]any{"scope": "file", "max_token": 64}}, &begun)
	if r := s.over("birds", begun.ID); r.State != taskstore.RunSucceeded || r.Calls != 0 || len(model.Asked()) != asked {
		t.Errorf("after a deletion %d calls: %+v", r.Calls, r)
	}
	var runs api.List[api.DatasetRun]
	s.get("/v1/datasets/birds/runs?kind=raptor", &runs)
	if len(runs.Items) != 2 || runs.Items[0].ID != begun.ID {
		t.Errorf("runs: %+v", runs.Items)
	}
	var wiped api.Wiped
	_, b := s.request(http.MethodDelete, raptor, "")
	if err := json.Unmarshal(b, &wiped); err != nil || wiped.Runs != 2 {
		t.Errorf("%s", b)
	}
	if texts, summaries := find(query); texts+summaries != 0 {
		t.Errorf("after a wipe %d texts and %d summaries", texts, summaries)
	}
}

// TestMindMapsAreMadeAndFollowTheirDocuments: of headings and of topics, in three
// formats, and none of a document that was deleted.
func TestMindMapsAreMadeAndFollowTheirDocuments(t *testing.T) {
	t.Parallel()
	model := chattest.Start(t)
	s := start(t, func(c *config.Config) { c.Chat.URL, c.Chat.Model = model.URL, chattest.Model })
	s.post("/v1/datasets", map[string]any{"name": "maps", "parser_config": map[string]any{"chunk_token_num": 64}}, nil)
	headed, plain := sheaf.NewID(), sheaf.NewID()
	mustState(t, s.putIn("maps", headed, "ponds.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	mustState(t, s.putIn("maps", plain, "notes.txt", "text/plain", strings.Repeat("The locomotive pulls the freight train over the pass. ", 60)+strings.Repeat("The court dismissed the appeal of the defendant. ", 60)), sheaf.DocSucceeded)
	const path = "/v1/datasets/maps/mindmap"
	if resp, b := s.request("GET", path, ""); resp.StatusCode != 404 || !strings.Contains(string(b), "no_mindmap") {
		t.Errorf("before a run: %s %s", resp.Status, b)
	}
	if resp, b := s.request("POST", path, `{"options":{"scope":"file"}}`, "Content-Type", "application/json"); resp.StatusCode != 400 {
		t.Errorf("options: %s %s", resp.Status, b)
	}
	var begun api.RunStarted
	s.post(path, map[string]any{}, &begun)
	r := s.over("maps", begun.ID)
	if r.State != taskstore.RunSucceeded || r.Calls == 0 {
		t.Fatalf("%+v", r)
	}
	var root mindmap.MapNode
	s.get(path, &root)
	if root.Label != "maps" || len(root.Children) != 2 {
		t.Fatalf("%+v", root)
	}
	var levels func(n *mindmap.MapNode) int
	levels = func(n *mindmap.MapNode) int {
		most := 0
		for _, c := range n.Children {
			if len(c.Chunks) == 0 || len(c.Pages) == 0 || c.DocumentID == "" {
				t.Errorf("%q names no chunk: %+v", c.Label, c)
			}
			most = max(most, levels(c))
		}
		return most + 1
	}
	if n := levels(&root); n < 3 || n > mindmap.Levels {
		t.Errorf("%d levels", n)
	}
	var one mindmap.MapNode
	s.get(path+"?document="+headed, &one)
	if one.Label != "ponds.md" || len(one.Children) != 12 || one.Children[3].Label != "Pond 3" {
		t.Errorf("%+v", one)
	}
	for format, want := range map[string]string{"markdown": "# maps\n\n- ponds.md", "svg": "<svg xmlns="} {
		if resp, b := s.request("GET", path+"?format="+format, ""); resp.StatusCode != 200 || !strings.HasPrefix(string(b), want) || !strings.Contains(resp.Header.Get("Content-Type"), format) {
			t.Errorf("%s: %s %s %.100s", format, resp.Status, resp.Header, b)
		}
	}
	for _, bad := range []string{"?format=png", "?document=none"} {
		if resp, b := s.request("GET", path+bad, ""); resp.StatusCode/100 != 4 {
			t.Errorf("%s: %s %s", bad, resp.Status, b)
		}
	}
	answer, err := s.search(t.Context(), "maps", map[string]any{"query": "pond 3", "limit": 50})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range answer.Hits {
		if strings.HasPrefix(h.Chunk.RangeID, sheaf.RunRangePrefix) {
			t.Errorf("search shows a node of a mind map: %+v", h.Chunk)
		}
	}
	var report doctor.Report
	s.post("/v1/doctor", map[string]any{}, &report)
	if len(report.Findings) != 0 {
		t.Errorf("the doctor finds %+v", report.Findings)
	}
	asked := len(model.Asked())
	s.request(http.MethodDelete, "/v1/datasets/maps/documents/"+headed, "")
	var left mindmap.MapNode
	if s.get(path, &left); len(left.Children) != 1 || left.Children[0].DocumentID != plain {
		t.Errorf("after a deletion: %+v", left)
	}
	s.post(path, map[string]any{}, &begun)
	if r := s.over("maps", begun.ID); r.Calls != 0 || len(model.Asked()) != asked {
		t.Errorf("after a deletion %d calls", r.Calls)
	}
}

// What the handbook says of runs is given to the command line, in its order; and
// what goes wrong there is told with what to do.
func TestRunsAtTheCommandLine(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	mustState(t, s.putIn("default", sheaf.NewID(), "ponds.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	given := 0
	for _, title := range []string{"### Summaries over summaries\n", "### Mind maps\n"} {
		_, section, _ := strings.Cut(readFile(t, "../docs/handbook.md"), title)
		_, block, _ := strings.Cut(section, "```\n")
		block, _, _ = strings.Cut(block, "```\n")
		for line := range strings.Lines(block) {
			words, ok := strings.CutPrefix(strings.TrimSpace(line), "sheaf ")
			if !ok {
				continue
			}
			given++
			var args []string
			for i, part := range strings.Split(words, `"`) {
				if i%2 == 1 {
					args = append(args, part)
				} else {
					args = append(args, strings.Fields(part)...)
				}
			}
			if o := s.sheaf(args...); o.code != 0 || o.out == "" {
				t.Errorf("sheaf %s: %d %s %s", words, o.code, o.out, o.err)
			}
		}
	}
	if given < 6 {
		t.Errorf("the handbook shows %d commands", given)
	}
	var runs api.List[api.DatasetRun]
	s.get("/v1/datasets/default/runs?kind=raptor", &runs)
	if len(runs.Items) != 1 || runs.Items[0].State != taskstore.RunSucceeded || runs.Items[0].Calls != 0 {
		t.Fatalf("%+v", runs.Items)
	}
	id := runs.Items[0].ID
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"dataset", "runs", "default", id}, 0, "succeeded"},
		{[]string{"dataset", "runs", "default", "--json"}, 0, `"kind": "raptor"`},
		{[]string{"dataset", "runs", "default", id, "--resume"}, 13, "start another"},
		{[]string{"dataset", "runs", "default", id, "--cancel"}, 13, "is over"},
		{[]string{"dataset", "runs", "default", "--cancel"}, 2, "which run"},
		{[]string{"dataset", "runs", "default", "none"}, 11, "none"},
		{[]string{"dataset", "raptor", "defaul"}, 11, "default"},
		{[]string{"dataset", "raptor", "default", "-o", "scope"}, 2, "KEY=VALUE"},
		{[]string{"dataset", "raptor", "default", "-o", "max_token=1"}, 2, "64 to 2048"},
		{[]string{"dataset", "raptor", "default", "--max-price", "1"}, 2, "chat.price_per_million_tokens"},
		{[]string{"dataset", "raptor", "default", "-o", "max_token=128", "--wait"}, 0, "succeeded"},
		{[]string{"dataset", "mindmap", "default", "--show", "json"}, 0, `"label":"ponds.md"`},
		// A flag that another makes meaningless is refused, and nothing is lost: the wipe below finds both runs.
		{[]string{"dataset", "raptor", "default", "--wipe", "--dry-run"}, 2, "cannot go together"},
		{[]string{"dataset", "raptor", "default", "--wipe", "--max-tokens", "5"}, 2, "cannot go together"},
		{[]string{"dataset", "raptor", "default", "--dry-run", "--wait"}, 2, "cannot go together"},
		{[]string{"dataset", "raptor", "default", "-o", "scope=file", "-o", "scope=dataset"}, 2, "given twice"},
		{[]string{"dataset", "mindmap", "default", "--show", "json", "--wipe"}, 2, "cannot go together"},
		{[]string{"dataset", "mindmap", "default", "--document", "x"}, 2, "does nothing without --show"},
		{[]string{"dataset", "runs", "default", id, "--max-tokens", "5"}, 2, "does nothing without --resume"},
		{[]string{"dataset", "runs", "default", id, "--cancel", "--resume"}, 2, "cannot go together"},
		{[]string{"dataset", "runs", "default", "--wait"}, 2, "which run"},
		{[]string{"dataset", "raptor", "default", "--wipe"}, 0, "2 runs"},
		{[]string{"dataset", "mindmap", "default", "--wipe"}, 0, "1 runs"},
		{[]string{"dataset", "mindmap", "default", "--show", "json"}, 11, "No mind map"},
	} {
		if o := s.sheaf(c.args...); o.code != c.code || !strings.Contains(o.out+o.err, c.says) {
			t.Errorf("sheaf %s: %d %q %q, want %d and %q", strings.Join(c.args, " "), o.code, o.out, o.err, c.code, c.says)
		}
	}
}

// TestRunsFollowByThemselves: where auto_update asks for it, documents that come
// are taken without anybody asking.
func TestRunsFollowByThemselves(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	mustState(t, s.putIn("default", sheaf.NewID(), "heron.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	ds, err := s.store.Dataset(t.Context(), sheaf.LocalTenant, "default")
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.ingest().StartRun(t.Context(), taskstore.DatasetRun{TenantID: ds.TenantID, DatasetID: ds.ID, Kind: sheaf.KindRaptor, Options: taskstore.RunOptions{AutoUpdate: time.Millisecond}}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.over("default", r.ID)
	if n, err := s.ingest().StartDueRuns(t.Context()); n != 0 || err != nil {
		t.Errorf("%d runs began where nothing changed, %v", n, err)
	}
	mustState(t, s.putIn("default", sheaf.NewID(), "stork.md", "text/markdown", ponds("stork")), sheaf.DocSucceeded)
	var runs api.List[api.DatasetRun]
	for end := time.Now().Add(time.Minute); len(runs.Items) < 2; { // the keeper's loop may have been first
		if _, err := s.ingest().StartDueRuns(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.get("/v1/datasets/default/runs", &runs)
		if time.Now().After(end) {
			t.Fatal("no run followed")
		}
	}
	if next := s.over("default", runs.Items[0].ID); next.State != taskstore.RunSucceeded || next.Documents != 2 || next.AutoUpdate == "" {
		t.Errorf("%+v", next)
	}
}

// TestRunsBeginAfterDocumentsArePublished: where the settings of a dataset say so,
// runs begin by themselves once its documents are left alone, by the options that
// the settings have; no document has these settings.
func TestRunsBeginAfterDocumentsArePublished(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	if o := s.sheaf("dataset", "settings", "default", `raptor={"use_raptor": true, "max_token": 128, "budget": {"max_tokens": 7000}}`); o.code != 0 {
		t.Fatalf("%d %s %s", o.code, o.out, o.err)
	}
	begin := func() int {
		t.Helper()
		n, err := s.ingest().StartDueRuns(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := begin(); n != 0 {
		t.Errorf("%d runs began over an empty dataset", n)
	}
	doc := s.putIn("default", sheaf.NewID(), "heron.md", "text/markdown", ponds("heron"))
	mustState(t, doc, sheaf.DocSucceeded)
	if doc.ParseConfig.Raptor.IsSet() {
		t.Errorf("a document has %v", doc.ParseConfig.Raptor)
	}
	if n := begin(); n != 0 {
		t.Errorf("%d runs began while documents come", n)
	}
	eager := s.ingest() // as if a minute had passed
	eager.Settled = time.Nanosecond
	begun := func(want int) (runs []api.DatasetRun) {
		t.Helper()
		if _, err := eager.StartDueRuns(t.Context()); err != nil {
			t.Fatal(err)
		}
		var list api.List[api.DatasetRun]
		if s.get("/v1/datasets/default/runs", &list); len(list.Items) != want {
			t.Fatalf("there are %d runs, want %d", len(list.Items), want)
		}
		return list.Items
	}
	first := s.over("default", begun(1)[0].ID)
	if first.State != taskstore.RunSucceeded || first.Documents != 1 || string(first.Config) != `{"max_token":128}` || first.MaxTokens != 7000 {
		t.Errorf("%+v", first)
	}
	begun(1) // nothing has changed
	mustState(t, s.putIn("default", sheaf.NewID(), "stork.md", "text/markdown", ponds("stork")), sheaf.DocSucceeded)
	if second := s.over("default", begun(2)[0].ID); second.State != taskstore.RunSucceeded || second.Documents != 2 || second.MaxTokens != 7000 {
		t.Errorf("%+v", second)
	}
	// A request without options takes those of the settings; with the setting off none begins.
	if o := s.sheaf("dataset", "settings", "default", `raptor={"use_raptor": false, "max_token": 256, "budget": {"max_tokens": 9000}}`); o.code != 0 {
		t.Fatalf("%d %s", o.code, o.err)
	}
	mustState(t, s.putIn("default", sheaf.NewID(), "crane.md", "text/markdown", ponds("crane")), sheaf.DocSucceeded)
	begun(2)
	var asked api.RunStarted
	s.post("/v1/datasets/default/raptor", map[string]any{}, &asked)
	if string(asked.Config) != `{"max_token":256}` || asked.MaxTokens != 9000 {
		t.Errorf("asked for with %s, %d tokens", asked.Config, asked.MaxTokens)
	}
	for config, says := range map[string]string{
		`{"raptor": {"use_raptor": "yes"}}`: "raptor.use_raptor must be true or false", `{"raptor": {"max_token": 5}}`: "64 to 2048",
		`{"graphrag": {"methods": "light"}}`: "methods", `{"raptor": 7}`: "an object",
		`{"raptor": {"budget": 5000}}`: "raptor.budget must have max_tokens", `{"graphrag": {"budget": {"max_price": 2}}}`: "price_per_million_tokens",
	} {
		resp, b := s.request("PATCH", "/v1/datasets/default", `{"parser_config": `+config+`}`, "Content-Type", "application/json")
		if resp.StatusCode != 400 || !strings.Contains(string(b), says) {
			t.Errorf("%s: %d %s", config, resp.StatusCode, b)
		}
	}
	resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.txt&parser_config="+url.QueryEscape(`{"raptor": {"use_raptor": true}}`), "text", "Content-Type", "text/plain")
	if resp.StatusCode != 400 || !strings.Contains(string(b), "a setting of datasets") {
		t.Errorf("an upload with a setting of datasets: %d %s", resp.StatusCode, b)
	}
}

// TestSummariesAreInEveryIndex: one that lacks them is repaired, and one that is
// made anew has them.
func TestSummariesAreInEveryIndex(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	s := startWith(t, cfg)
	mustState(t, s.putIn("default", sheaf.NewID(), "ponds.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	var begun api.RunStarted
	s.post("/v1/datasets/default/raptor", map[string]any{}, &begun)
	s.over("default", begun.ID)
	found := func() (ranges []string) {
		answer, err := s.search(t.Context(), "default", map[string]any{"query": "heron at the pond", "limit": 50, "kinds": []string{"summary"}})
		if err != nil {
			return nil // the index is being made
		}
		for _, h := range answer.Hits {
			ranges = append(ranges, h.Chunk.RangeID)
		}
		return ranges
	}
	first := found()
	if len(first) == 0 {
		t.Fatal("no summary is found")
	}
	if err := s.index.DeleteRanges(t.Context(), sheaf.LocalTenant, first); err != nil {
		t.Fatal(err)
	}
	if left := found(); len(left) != 0 {
		t.Fatalf("%v is left", left)
	}
	var report doctor.Report
	s.post("/v1/doctor", map[string]any{"repair": true}, &report)
	if again := found(); len(again) != len(first) || len(report.Findings) != 1 || report.Findings[0].Code != doctor.MissingChunks || report.Findings[0].Repaired == 0 {
		t.Errorf("%d of %d summaries are found after a repair: %+v", len(again), len(first), report.Findings)
	}
	s.stop()
	files, err := filepath.Glob(filepath.Join(cfg.DataDir, "index*.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	s = startWith(t, cfg)
	waitFor(t, "the summaries in an index that is made anew", func() bool { return len(found()) == len(first) })
}
