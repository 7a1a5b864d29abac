package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf/internal/api"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/command"
	"sheaf/internal/config"
	"sheaf/internal/keeper"
	"sheaf/taskstore"
)

// evaluating looks at saved queries all the time.
func evaluating(m *command.Main) {
	m.KeeperFunc = func(c *keeper.Config) { c.EvaluateEvery = 100 * time.Millisecond }
}

// People save queries at the command line, run them, and see what changed and why.
func TestEvaluationsAtTheCommandLine(t *testing.T) {
	s := start(t, nil)
	s.add("default", text("pumps.txt", "The boiler is drained with the red valve."), text("taxes.txt", "The tax on windows was paid at Michaelmas."))
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if o := s.sheaf(args...); o.code == 0 || !strings.Contains(o.err, want) {
			t.Errorf("sheaf %s ends with %d, and says %q, not %q", strings.Join(args, " "), o.code, o.err, want)
		}
	}
	refused("no saved query", "eval", "run")
	refused("no queries", "eval", "import", write("empty.json", "[]"))
	refused("not JSON", "eval", "import", write("bad.json", "{question"))
	refused("no document with the id or name", "eval", "import", write("foreign.json", `{"question": "a", "expected": [{"document": "nothing.pdf"}]}`))
	refused("expected", "eval", "import", write("typo.json", `{"question": "a", "expcted": []}`))
	refused("there is no measure", "eval", "run", "--min", "hit5=0.8")
	refused("not a number from 0 to 1", "eval", "run", "--min", "hit_5=80")
	refused("Did you mean -d default", "eval", "run", "-d", "defualt")
	if o := s.must("eval", "queries"); !strings.Contains(o.err, "no saved queries") {
		t.Errorf("no queries: %q", o.err)
	}
	lines := `{"question": "how is the boiler drained", "expected": [{"document": "pumps.txt"}]}
{"question": "when was the tax paid", "expected": [{"text": "at  MICHAELMAS"}]}`
	s.must("eval", "import", write("queries.jsonl", lines))
	s.must("eval", "import", write("queries.json", `{"queries": [`+strings.ReplaceAll(lines, "\n", ",")+`]}`)) // changes nothing
	if o := s.must("eval", "queries"); strings.Count(o.out, "\n") != 3 || !strings.Contains(o.out, "when was the tax paid") {
		t.Errorf("queries: %s", o.out)
	}
	if o := s.must("eval", "run", "--min", "hit_1=1"); !strings.Contains(o.out, "2 queries") || strings.Contains(o.out, "before") {
		t.Errorf("the first run: %s", o.out)
	}
	// What stood first is told when another document comes before it.
	s.add("default", text("drain.txt", "How is the boiler drained: how is the boiler drained, how the boiler is drained. Drained boiler."))
	o := s.sheaf("eval", "run", "--min", "hit_1=1")
	for _, want := range []string{"before", "how is the boiler drained", "drain.txt came first"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("the second run does not say %q: %s", want, o.out)
		}
	}
	if o.code != 1 || !strings.Contains(o.err, "hit_1 is 0.500, less than 1") {
		t.Errorf("below the bound it ends with %d: %s", o.code, o.err)
	}
	list := s.must("eval", "list").out
	if strings.Count(list, "request") != 2 {
		t.Errorf("list: %s", list)
	}
	refused("There is no evaluation nothing", "eval", "show", "nothing")
	refused("There is no evaluation nothing", "eval", "run", "--against", "nothing")
	var queries api.List[taskstore.SavedQuery]
	s.get("/v1/datasets/default/queries", &queries)
	s.must("eval", "delete", queries.Items[0].ID)
	refused("There is no query", "eval", "delete", queries.Items[0].ID)
}

// Questions are generated from headings, and by a language model from chunks,
// marked as such; what people wrote stays.
func TestGeneratedQueries(t *testing.T) {
	model := chattest.Start(t)
	s := start(t, func(c *config.Config) { c.Chat.URL, c.Chat.Model = model.URL, chattest.Model })
	words := strings.Repeat("The boiler is drained with the red valve before the winter comes, and filled again in spring. ", 6)
	s.add("default", text("pumps.md", "# Care of the boiler\n\n"+words+"\n\n# Care of the pump\n\n"+strings.ReplaceAll(words, "boiler", "pump")))
	s.post("/v1/datasets/default/queries", map[string]any{"question": "Care of the pump", "expected": []any{map[string]any{"text": "pump"}}}, nil)
	if o := s.must("eval", "generate", "--dry-run"); !strings.Contains(o.out, "Care of the boiler") || strings.Contains(o.out, "Care of the pump") {
		t.Errorf("a dry run prints %q", o.out)
	}
	s.must("eval", "generate")
	if o := s.must("eval", "generate"); !strings.Contains(o.out+o.err, "nothing to ask") {
		t.Errorf("the second time it prints %q, %q", o.out, o.err)
	}
	if o := s.must("eval", "generate", "--from", "chunks", "--dry-run"); !strings.Contains(o.out+o.err, "would be asked 2 questions") || len(model.Asked()) != 0 {
		t.Errorf("a dry run with a model prints %q, and asks %d times", o.out+o.err, len(model.Asked()))
	}
	if o := s.must("eval", "generate", "--from", "chunks"); strings.Count(o.out, "\n") != 2 || len(model.Asked()) != 2 {
		t.Errorf("the model was asked %d times; printed %q, %q", len(model.Asked()), o.out, o.err)
	}
	var list api.List[taskstore.SavedQuery]
	s.get("/v1/datasets/default/queries", &list)
	sources := map[taskstore.QuerySource]int{}
	for _, q := range list.Items {
		sources[q.Source]++
		if q.Question == "Care of the pump" && q.Expected[0].Text != "pump" {
			t.Errorf("the query that somebody wrote expects %+v", q.Expected)
		}
	}
	if sources[""] != 1 || sources[taskstore.SourceHeadings] != 1 || sources[taskstore.SourceChunks] != 2 {
		t.Errorf("queries by source: %v", sources)
	}
	var found api.EvaluationAnswer
	s.post("/v1/datasets/default/evaluations", map[string]any{}, &found)
	if found.Measures.Queries != 4 || found.Measures.Hit5 != 1 {
		t.Errorf("the queries measure %+v", found.Measures)
	}
	for want, args := range map[string][]string{"headings": {"--from", "heading"}, "200": {"--limit", "1000"}, "at least 1": {"--limit", "0"}, "Did you mean": {"-d", "defualt"}} {
		if o := s.sheaf(append([]string{"eval", "generate"}, args...)...); o.code == 0 || !strings.Contains(o.err, want) {
			t.Errorf("%v ends with %d and says %q", args, o.code, o.err)
		}
	}
	without := start(t, nil)
	if o := without.sheaf("eval", "generate", "--from", "chunks"); o.code == 0 || !strings.Contains(o.err, "chat.url") {
		t.Errorf("without a model it ends with %d and says %q", o.code, o.err)
	}
	if o := without.must("eval", "generate"); !strings.Contains(o.out+o.err, "nothing to ask") {
		t.Errorf("an empty dataset: %q %q", o.out, o.err)
	}
}

// A dataset is evaluated by itself: at first, after its documents were parsed
// again, and after its settings were changed. Nothing else is.
func TestEvaluationsRunByThemselves(t *testing.T) {
	s := start(t, nil, evaluating)
	s.add("default", text("pumps.txt", "The boiler is drained with the red valve."))
	var saved taskstore.SavedQuery
	s.post("/v1/datasets/default/queries", map[string]any{"question": "how is the boiler drained", "expected": []any{map[string]any{"document": "pumps.txt"}}}, &saved)
	var first api.EvaluationAnswer
	s.post("/v1/datasets/default/evaluations", map[string]any{}, &first)
	causes := func(want ...string) {
		t.Helper()
		var got []string
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var list api.List[taskstore.Evaluation]
			s.get("/v1/datasets/default/evaluations", &list)
			got = nil
			for _, e := range list.Items {
				got = append(got, string(e.Cause))
				if e.Measures.Hit1 != 1 {
					t.Fatalf("evaluation for %s: %+v", e.Cause, e.Measures)
				}
			}
			if len(got) >= len(want) {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("evaluations for %v, want %v", got, want)
		}
	}
	causes("request") // which saw the dataset as it is
	s.reparse("default")
	causes("reparse", "request")
	s.must("dataset", "settings", "default", "chunk_token_num=64")
	causes("settings", "reparse", "request")
	runs := func() float64 {
		n, _ := s.metric(`sheaf_keeper_loop_seconds_count{loop="evaluate"}`)
		return n
	}
	for before := runs(); runs() < before+3; time.Sleep(10 * time.Millisecond) {
	}
	causes("settings", "reparse", "request")
}
