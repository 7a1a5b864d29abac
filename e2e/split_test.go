package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/config"
	"sheaf/internal/graphs"
	"sheaf/taskstore"
)

// entity is the id of the entity that a name of a dataset's graph means, and how
// chunks name it.
func (s *service) entity(dataset, name string) string {
	s.t.Helper()
	var part graphs.Part
	s.get("/v1/datasets/"+dataset+"/graph?entity="+url.QueryEscape(name), &part)
	out := part.Entities[0].ID
	for _, n := range part.Entities[0].Names {
		out += fmt.Sprintf(", %s by %s", n.Name, n.Reason)
		if n.Count < 1 || len(n.Sources) == 0 || n.Sources[0].ChunkID == "" || len(n.Sources[0].Pages) == 0 {
			s.t.Errorf("the name %s of %s is %+v", n.Name, name, n)
		}
	}
	return out
}

// TestAWrongMergeIsUndone: an entity of the graph that was merged from two names
// says so, becomes two, stays two when documents come and are parsed again, and is
// one again once the split is taken back.
func TestAWrongMergeIsUndone(t *testing.T) {
	s := start(t, nil)
	s.post("/v1/datasets", map[string]any{"name": "units"}, nil)
	const text = "# Units\n\nThe Information Technology (IT) unit runs PostgreSQL. Our IT unit runs Linux. With Linux and PostgreSQL the Information Technology unit is happy.\n"
	doc := sheaf.NewID()
	mustState(t, s.putIn("units", doc, "units.md", "text/markdown", text), sheaf.DocSucceeded)
	merged := "information technology, Information Technology by spelling, IT by acronym"
	is := func(when, it, long string) {
		t.Helper()
		if got := s.entity("units", "IT"); got != it {
			t.Errorf("%s IT is %s, want %s", when, got, it)
		}
		if got := s.entity("units", "information technology"); got != long {
			t.Errorf("%s Information Technology is %s, want %s", when, got, long)
		}
	}
	is("at first", merged, merged)
	if o := s.sheaf("dataset", "graph", "units", "IT"); o.code != 0 || !strings.Contains(o.out, "MERGED FROM") || !strings.Contains(o.out, "acronym") {
		t.Errorf("sheaf dataset graph: %d %q %q", o.code, o.out, o.err)
	}
	o := s.sheaf("dataset", "split", "units", "IT", "Information Technology")
	if o.code != 0 || !strings.Contains(o.out+o.err, "IT | Information Technology") {
		t.Fatalf("sheaf dataset split: %d %q %q", o.code, o.out, o.err)
	}
	is("apart", "it", "information technology")
	var list api.List[taskstore.Split]
	s.get("/v1/datasets/units/graph/splits", &list)
	if len(list.Items) != 1 || strings.Join(list.Items[0].Names, "|") != "IT|Information Technology" {
		t.Fatalf("splits: %+v", list)
	}
	id := list.Items[0].ID

	// The same again is the same, a document that comes is read so, and so is one
	// that is parsed again.
	var again taskstore.Split
	if s.post("/v1/datasets/units/graph/splits", api.NewSplit{Names: []string{"Information Technology", "IT"}}, &again); again.ID != id {
		t.Errorf("the same again is split %s, not %s", again.ID, id)
	}
	mustState(t, s.putIn("units", doc, "units.md", "text/markdown", text+"\nSo Alice Smith met the IT unit.\n"), sheaf.DocSucceeded)
	mustState(t, s.putIn("units", sheaf.NewID(), "more.md", "text/markdown", "# More\n\n"+strings.ReplaceAll(text[9:], "Linux", "Windows")), sheaf.DocSucceeded)
	parsed := time.Now()
	waitFor(t, "the graph follows the documents", func() bool {
		var part graphs.Part
		s.get("/v1/datasets/units/graph", &part)
		return part.BuiltAt.After(parsed)
	})
	is("after more documents", "it", "information technology")

	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "splits", `{"names":["IT","nobody"]}`, 404, "no entity of the name nobody"},
		{"POST", "splits", `{"names":["IT","IT\u202e's"]}`, 400, "the same name"},
		{"POST", "splits", `{"names":["IT"]}`, 400, ""},
		{"POST", "splits", `{"names":["IT","` + strings.Repeat("x", 1<<19) + `"]}`, 400, "at most 200"},
		{"POST", "splits", `{"names":["IT","` + strings.Repeat("x", 1<<20) + `"]}`, 413, "larger than"},
		{"POST", "splits", `{"names":["a","b","c","d","e","f","g","h","i","j","k"]}`, 400, ""},
		{"DELETE", "splits/" + sheaf.NewID(), "", 404, ""},
		{"GET", "splits?limit=0", "", 400, ""},
	} {
		resp, b := s.request(c.method, "/v1/datasets/units/graph/"+c.path, c.body, "Content-Type", "application/json")
		if resp.StatusCode != c.status || !strings.Contains(string(b), c.says) || len(b) > 4000 {
			t.Errorf("%s %s %.60s: %s %.300s", c.method, c.path, c.body, resp.Status, b)
		}
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"units", 0, id},
		{"units IT", 2, "stands alone"},
		{"units IT Linux --remove x", 2, "leave one"},
		{"units IT Linux --limit 3", 2, "leave it out"},
		{"nowhere", 11, "nowhere"},
		{"units --remove " + id, 0, "Took"},
		{"units", 0, "no names apart"},
	} {
		if o := s.sheaf(append([]string{"dataset", "split"}, strings.Fields(c.args)...)...); o.code != c.code || !strings.Contains(o.out+o.err, c.says) {
			t.Errorf("sheaf dataset split %s: %d %q %q, want %d and %q", c.args, o.code, o.out, o.err, c.code, c.says)
		}
	}
	is("taken back", merged, merged)

	// A dataset that is deleted takes its splits along.
	s.post("/v1/datasets/units/graph/splits", api.NewSplit{Names: []string{"IT", "Linux"}}, nil)
	if resp, b := s.request("DELETE", "/v1/datasets/units", ""); resp.StatusCode/100 != 2 {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	s.post("/v1/datasets", map[string]any{"name": "units"}, nil)
	if s.get("/v1/datasets/units/graph/splits", &list); len(list.Items) > 0 {
		t.Errorf("a new dataset has the splits %+v", list.Items)
	}
}

// TestASplitAsksNoModel: of names that a model read and that differ by capitals
// alone, each becomes an entity with its own words, in the graph and in the reports,
// and no chunk is read again for it.
func TestASplitAsksNoModel(t *testing.T) {
	t.Parallel()
	model := chattest.Start(t)
	model.Reply(func(instruction, text string) string {
		switch {
		case strings.HasPrefix(instruction, "You report"):
			return `{"title": "Fruit", "summary": "Of fruit.", "rating": 7, "rating_explanation": "r", "findings": []}`
		case strings.Contains(text, "orchard"):
			return `{"entities": [{"name": "apple", "type": "fruit", "description": "A fruit."}, {"name": "orchard", "type": "place", "description": "Of trees."}], "relations": [{"source": "apple", "target": "orchard", "description": "It grows there."}]}`
		default:
			return `{"entities": [{"name": "Apple", "type": "firm", "description": "A firm."}, {"name": "California", "type": "place", "description": "A state."}], "relations": [{"source": "Apple", "target": "California", "description": "It is there."}]}`
		}
	})
	s := start(t, func(c *config.Config) { c.Chat.URL, c.Chat.Model = model.URL, chattest.Model })
	s.post("/v1/datasets", map[string]any{"name": "apples"}, nil)
	mustState(t, s.putIn("apples", sheaf.NewID(), "fruit.md", "text/markdown", "# Fruit\n\nan apple of the orchard.\n"), sheaf.DocSucceeded)
	mustState(t, s.putIn("apples", sheaf.NewID(), "firm.md", "text/markdown", "# Firm\n\nApple of California.\n"), sheaf.DocSucceeded)
	run := func() int {
		t.Helper()
		before := len(model.Asked())
		if o := s.sheaf("dataset", "graph", "apples", "--method", "general", "-o", "entity_types=fruit,firm,place", "--wait"); o.code != 0 {
			t.Fatalf("the run: %d %q %q", o.code, o.out, o.err)
		}
		return len(model.Asked()) - before
	}
	run()
	merged := "apple, Apple by spelling, apple by spelling"
	if got := s.entity("apples", "apple"); got != merged {
		t.Fatalf("apple is %s, want %s", got, merged)
	}
	asked := len(model.Asked())
	var split taskstore.Split
	s.post("/v1/datasets/apples/graph/splits", api.NewSplit{Names: []string{"Apple", "apple"}}, &split)
	if got := []string{s.entity("apples", "Apple"), s.entity("apples", "apple")}; got[0] != "Apple" || got[1] != "apple" {
		t.Errorf("apart they are %q", got)
	}
	var part graphs.Part
	s.get("/v1/datasets/apples/graph?entity=Apple", &part)
	if e := part.Entities[0]; e.Description != "A firm." || e.Type != "firm" || len(part.Entities) != 2 {
		t.Errorf("the firm is %+v of %d", e, len(part.Entities))
	}
	if n := len(model.Asked()) - asked; n != 0 {
		t.Errorf("the split asked the model %d times", n)
	}
	if n := run(); n != 2 { // reports on two communities in place of one
		t.Errorf("the run after the split asked %d times, want twice: %q", n, model.Asked())
	}
	s.request("DELETE", "/v1/datasets/apples/graph/splits/"+split.ID, "")
	if got := s.entity("apples", "apple"); got != merged {
		t.Errorf("taken back, apple is %s, want %s", got, merged)
	}
	if n := run(); n != 0 && n != 1 { // the report of before may be gone, the chunks are not read again
		t.Errorf("the run after that asked %d times: %q", n, model.Asked())
	}
}
