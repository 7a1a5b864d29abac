package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
)

// A chunk is corrected, switched off, deleted, added and undone over HTTP; search
// and lists follow at once, and a new version has it all where it has the chunks.
func TestPeopleEditChunks(t *testing.T) {
	s := start(t, nil)
	_, docs := s.send(nil, text("birds.md", "# Birds\n\nOf waders.\n\n# Heron\n\nThe heron nests in April.\n\n# Stork\n\nThe stork nests in May.\n\n# Crane\n\nThe crane dances in June.\n"))
	doc := "/v1/datasets/default/documents/" + docs[0].ID
	list := func(query string) (chunks api.List[api.ListedChunk]) {
		t.Helper()
		s.get(doc+"/chunks"+query, &chunks)
		return chunks
	}
	ask := func(method, path, body string, want int, header ...string) api.EditedChunk {
		t.Helper()
		resp, answer := s.request(method, path, body, append(header, "Content-Type", "application/json")...)
		if resp.StatusCode != want {
			t.Fatalf("%s %s answers %s, want %d: %s", method, path, resp.Status, want, answer)
		}
		if want >= 300 {
			return api.EditedChunk{}
		}
		return decodeAs[api.EditedChunk](t, answer)
	}
	expect := func(query string, n int) {
		t.Helper()
		if found := s.find(query); len(found) != n {
			t.Errorf("%q finds %q, want %d chunks", query, found, n)
		}
	}
	items := list("").Items
	if len(items) != 4 || items[0].Edit != nil {
		t.Fatalf("chunks: %+v", items)
	}
	first := items[0].Text
	items = items[1:]
	at := func(i int) string { return doc + "/chunks/" + items[i].ID }

	changed := ask("PATCH", at(0), `{"text": "The bittern booms in reeds."}`, 200, "If-Match", `"0"`)
	if changed.Chunk.ID != items[0].ID || changed.Edit.Version != 1 || changed.Edit.State != "applied" || changed.Edit.Excerpt != items[0].Text {
		t.Errorf("changed: %+v %+v", changed.Chunk, changed.Edit)
	}
	expect("April", 0)
	expect("bittern", 1)
	ask("PATCH", at(0), `{"text": "Somebody else's."}`, 412, "If-Match", `"0"`)
	ask("PATCH", at(0), `{"text": "Somebody else's."}`, 400, "If-Match", `"soon"`)
	ask("PATCH", at(0), `{"text": " "}`, 400)
	ask("PATCH", doc+"/chunks/"+sheaf.NewID(), `{"text": "x"}`, 404)
	ask("PATCH", at(1), `{"enabled": false}`, 200)
	expect("May", 0)
	gone := ask("DELETE", at(2), "", 200)
	expect("June", 0)
	ask("GET", at(2), "", 404)
	added := ask("POST", doc+"/chunks", `{"text": "Ibises are waders.", "after": "`+items[0].ID+`"}`, 201)
	ask("POST", doc+"/chunks", `{"text": "Spoonbills end it."}`, 201)
	expect("ibises", 1)

	// Every page size lists the same, in order.
	for _, limit := range []string{"1", "2", "3", "50"} {
		var got []string
		for cursor := ""; ; {
			l := list("?limit=" + limit + cursor)
			for _, c := range l.Items {
				got = append(got, c.Text)
			}
			if l.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *l.NextCursor
		}
		if want := []string{first, "The bittern booms in reeds.", "Ibises are waders.", items[1].Text, "Spoonbills end it."}; !slices.Equal(got, want) {
			t.Errorf("pages of %s list %q, want %q", limit, got, want)
		}
	}
	if c := list("").Items[3]; c.Edit == nil || c.Edit.Enabled {
		t.Errorf("the list does not tell that a chunk is switched off: %+v", c.Edit)
	}

	// A new version without the crane, with the stork moved: its switch stays off.
	s.put(docs[0].ID, "birds.md", "{}", "# Birds\n\nOf the lagoon.\n\n# Heron\n\nThe heron nests in April.\n\n# On storks\n\nThe stork nests in May.\n")
	expect("April", 0)
	expect("bittern", 1)
	expect("May", 0)
	expect("ibises", 1)
	expect("spoonbills", 1)
	expect("lagoon", 1)
	var unplaced api.List[api.Edit]
	s.get(doc+"/edits?state=unplaced", &unplaced)
	if len(unplaced.Items) != 1 || unplaced.Items[0].ID != gone.Edit.ID || unplaced.Items[0].Excerpt != items[2].Text {
		t.Errorf("unplaced: %+v", unplaced.Items)
	}

	undone := ask("POST", doc+"/edits/"+changed.Edit.ID+":undo", `{"to": 0}`, 200, "If-Match", `"1"`)
	if undone.Edit.State != "undone" || undone.Edit.Version != 2 || undone.Chunk.Text != items[0].Text {
		t.Errorf("undone: %+v %+v", undone.Chunk, undone.Edit)
	}
	expect("April", 1)
	ask("POST", doc+"/edits/"+added.Edit.ID+":undo", `{"to": 0}`, 200)
	expect("ibises", 0)
	var history api.EditHistory
	s.get(doc+"/edits/"+changed.Edit.ID, &history)
	if len(history.Versions) != 2 || history.Versions[0].Text != nil || *history.Versions[1].Text != "The bittern booms in reeds." {
		t.Errorf("history: %+v", history.Versions)
	}
	s.must("doc", "edit", "birds.md", undone.Chunk.ID, "--text", "The avocet wades.", "--keywords", "marsh,fen")
	expect("avocet", 1)
	expect("fen", 1)
	s.must("doc", "edit", "birds.md", undone.Chunk.ID, "--off")
	expect("avocet", 0)
	s.must("doc", "undo", "birds.md", changed.Edit.ID, "--to", "1")
	expect("bittern", 1)
	if o := s.must("doc", "edits", "birds.md", "--state", "unplaced"); !strings.Contains(o.out, gone.Edit.ID) || strings.Contains(o.out, changed.Edit.ID) {
		t.Errorf("the command lists %s", o.out)
	}
	if o := s.sheaf("doc", "edit", "birds.md", undone.Chunk.ID); o.code == 0 || !strings.Contains(o.err, "--text") {
		t.Errorf("an edit that changes nothing: %d %s", o.code, o.err)
	}
	var report struct{ Findings []any }
	if err := s.call(t.Context(), http.MethodPost, "/v1/doctor", map[string]any{}, &report); err != nil || len(report.Findings) > 0 {
		t.Errorf("doctor: %+v, %v", report, err)
	}
}
