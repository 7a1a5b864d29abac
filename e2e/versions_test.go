package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
)

func TestReplacedVersionIsReadAndCompared(t *testing.T) {
	s := start(t, nil)
	file := func(second string) string {
		return "# One\n\nThe first part stays as it is.\n\n# Two\n\n" + second + "\n\n# Three\n\nThe third part stays too.\n"
	}
	id := sheaf.NewID()
	put := func(body string) {
		t.Helper()
		resp, b := s.request("PUT", "/v1/datasets/default/documents/"+id+"?name=parts.md&wait=30s", body, "Content-Type", "text/markdown")
		if a := decodeAs[api.SubmitAnswer](t, b); resp.StatusCode != http.StatusAccepted || a.Documents[0].State != sheaf.DocSucceeded {
			t.Fatalf("%s %s", resp.Status, b)
		}
	}
	put(file("The second part is about barley and carts."))
	put(file("The second part is about wheat and carts.") + "\n# Four\n\nSomething new.\n")
	base := "/v1/datasets/default/documents/" + id

	var old, now api.List[sheaf.Chunk]
	s.get(base+"/chunks?generation=1", &old)
	s.get(base+"/chunks", &now)
	if len(old.Items) != 3 || len(now.Items) != 4 || !strings.Contains(old.Items[1].Text, "barley") || !strings.Contains(now.Items[1].Text, "wheat") || old.Items[0].Generation != 1 {
		t.Fatalf("version 1 has %d chunks, version 2 has %d", len(old.Items), len(now.Items))
	}
	if len(s.find("barley")) != 0 {
		t.Error("search finds a version that was replaced")
	}
	var c api.Comparison
	s.get(base+"/compare", &c) // the live version with the one before
	if want := (api.ComparisonCounts{Same: 2, Changed: 1, Added: 1}); c.Counts != want || len(c.Settings) != 0 {
		t.Errorf("the comparison says %+v, want %+v; settings %v", c.Counts, want, c.Settings)
	}
	s.get(base+"/compare?from=1&to=2&change=changed&change=added&limit=1", &c)
	if len(c.Items) != 1 || c.Items[0].Change != "changed" || c.NextCursor == nil {
		t.Fatalf("the first page holds %+v", c.Items)
	}
	s.get(base+"/compare?from=1&to=2&change=changed&change=added&limit=1&cursor="+*c.NextCursor, &c)
	if len(c.Items) != 1 || c.Items[0].Change != "added" || c.NextCursor != nil {
		t.Errorf("the second page holds %+v", c.Items)
	}

	// Other settings are named with their values.
	var again api.BatchAnswer
	s.post("/v1/datasets/default/documents:reparse", map[string]any{"all": true, "parser_config": map[string]any{"chunk_token_num": 64}}, &again)
	s.ended(again.Job.ID)
	s.get(base+"/compare?from=2&to=3", &c)
	if b, _ := json.Marshal(c.Settings); string(b) != `[{"name":"chunk_token_num","from":null,"to":64}]` {
		t.Errorf("the settings that differ: %s", b)
	}

	// What no longer exists says so.
	gens := []int{}
	tasks, err := s.store.Tasks(t.Context(), sheaf.LocalTenant, id, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if task.Result.FormerArtifact != "" {
			gens = append(gens, task.Generation)
			if err := s.blobStore.Delete(t.Context(), task.Result.FormerArtifact); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(gens) == 0 {
		t.Fatal("no task of version 1 names its artifact")
	}
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/chunks?generation=1":  {http.StatusGone, "generation_gone"},
		"/compare?from=1&to=3":  {http.StatusGone, "generation_gone"},
		"/chunks?generation=9":  {http.StatusNotFound, "not_found"},
		"/compare?from=2&to=9":  {http.StatusNotFound, "not_found"},
		"/compare?from=-1":      {http.StatusBadRequest, "invalid"},
		"/chunks?generation=-1": {http.StatusBadRequest, "invalid"},
	} {
		resp, b := s.request("GET", base+path, "")
		if p := decodeAs[api.Problem](t, b); resp.StatusCode != want.status || p.Code != want.code {
			t.Errorf("%s answers %s %s, want %d %s", path, resp.Status, b, want.status, want.code)
		}
	}
}
