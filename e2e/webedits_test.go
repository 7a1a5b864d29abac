package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sheaf/internal/api"
)

// Chunks are edited where they are read. The server's list says what came of it.
func testChunkEdits(t *testing.T, s *service, b *browser) {
	s.newDataset("edits", false)
	doc := s.add("edits", text("birds.md", "# Birds\n\nOf waders.\n\n# Heron\n\nThe heron nests in April.\n\n# Stork\n\nThe stork nests in May.\n\n# Crane\n\nThe crane dances in June.\n"))[0]
	b.mu.Lock()
	b.edited = doc.ID
	b.mu.Unlock()
	path := "/datasets/edits/documents/" + doc.ID
	chunks := func() (items []api.ListedChunk) {
		t.Helper()
		var list api.List[api.ListedChunk]
		s.get("/v1"+path+"/chunks", &list)
		return list.Items
	}
	parsed := chunks()
	// others is a change that somebody else makes meanwhile.
	others := func(n int, body string) {
		t.Helper()
		if resp, answer := s.request(http.MethodPatch, "/v1"+path+"/chunks/"+parsed[n].ID, body, "Content-Type", "application/json"); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", resp.Status, answer)
		}
	}
	row := func(n int) string { return fmt.Sprintf(`document.getElementById("c-%s")`, parsed[n].ID) }
	click := func(n int, label string) {
		t.Helper()
		find := fmt.Sprintf(`[...%s?.querySelectorAll("button") || []].find(e => e.textContent === %q)`, row(n), label)
		b.wait(label+" of a chunk", find)
		b.run(evaluate(find + ".click()"))
	}
	says := func(n int, what string) {
		t.Helper()
		b.wait(fmt.Sprintf("%q in chunk %d", what, n), fmt.Sprintf(`%s?.textContent.includes(%q)`, row(n), what))
	}
	write := func(field, what string) {
		b.run(evaluate(fmt.Sprintf(`(() => { const f = document.querySelector("dialog[open] [name=%s]"); f.value = %q; })()`, field, what)))
	}
	focused := func(n int, act string) {
		t.Helper()
		b.wait("the focus on "+act, fmt.Sprintf(`document.activeElement === %s.querySelector("[data-act=%s]")`, row(n), act))
	}

	// By the keyboard alone: one stop a chunk, arrows between its tools.
	b.open(path)
	says(1, "heron nests")
	b.run(evaluate(row(1) + `.focus()`))
	b.keys(kb.Tab)
	focused(1, "edit")
	b.keys(kb.ArrowRight)
	focused(1, "off")
	b.keys(kb.ArrowLeft + kb.Enter)
	b.sees("dialog h2", "Edit chunk")
	script := axe(t)
	b.checkAccess(script, "the form of a chunk")
	write("text", "The bittern booms in reeds.")
	write("keywords", "marsh\nfen")
	b.press("Save")
	says(1, "bittern booms")
	says(1, "Edited")
	says(1, "marsh, fen")
	focused(1, "edit")
	if c := chunks()[1]; c.Text != "The bittern booms in reeds." || fmt.Sprint(c.Keywords) != "[marsh fen]" || c.Edit.Version != 1 {
		t.Errorf("the server has %+v %+v", c.Chunk, c.Edit)
	}

	// Somebody else was first: nothing is lost, and the page says what to do.
	click(1, "Edit…")
	b.sees("dialog h2", "Edit chunk")
	others(1, `{"text": "The spoonbill wades."}`)
	write("text", "Mine: the bittern.")
	b.press("Save")
	b.sees("dialog [role=alert]", "Save again to replace theirs")
	b.sees("dialog .theirs", "The spoonbill wades.")
	b.wait("the focus on Save", `document.activeElement === document.querySelector("dialog .primary")`)
	b.checkAccess(script, "a conflict")
	if got := eval[string](b, `document.querySelector("dialog [name=text]").value`); got != "Mine: the bittern." {
		t.Errorf("the conflict leaves %q in the form", got)
	}
	b.keys(kb.Escape)
	says(1, "The spoonbill wades.")
	click(1, "Edit…")
	b.sees("dialog h2", "Edit chunk")
	others(1, `{"text": "The egret wades."}`)
	write("text", "Mine: the bittern.")
	b.press("Save")
	b.sees("dialog .theirs", "The egret wades.")
	b.press("Save")
	says(1, "Mine: the bittern.")
	// Also where a button changes at once.
	others(2, `{"text": "The stork came early."}`)
	click(2, "Turn off")
	says(2, "Someone else changed this chunk")
	says(2, "The stork came early.")
	if !chunks()[2].Edit.Enabled {
		t.Error("a chunk is off in spite of the conflict")
	}
	click(2, "Turn off")
	says(2, "Off: not in search")
	focused(2, "off")
	if chunks()[2].Edit.Enabled {
		t.Error("the chunk is not off")
	}

	// A deletion is undone where the chunk stood.
	click(3, "Delete")
	says(3, "Chunk deleted")
	focused(3, "undo")
	if n := len(chunks()); n != 3 {
		t.Errorf("%d chunks are listed", n)
	}
	b.keys(kb.Enter)
	says(3, "crane dances")
	click(3, "Delete")
	says(3, "Chunk deleted")
	for _, word := range []string{"first", "second"} {
		click(1, "Add after…")
		b.sees("dialog h2", "Add a chunk after this one")
		write("text", "The "+word+" ibis.")
		b.press("Add")
		b.wait("the added chunk in focus", fmt.Sprintf(`document.activeElement.matches(".added") && document.activeElement.textContent.includes("The %s ibis.")`, word))
	}
	var texts []string
	for _, c := range chunks() {
		texts = append(texts, c.Text)
	}
	if shown := eval[string](b, `JSON.stringify([...document.querySelectorAll(".chunk:not(.gone) .prose")].map(p => p.textContent))`); shown != encoded(t, texts) {
		t.Errorf("the page shows %s, the server has %q", shown, texts)
	}
	b.checkAccess(script, "edited chunks")
	b.look(360, 740, true)
	b.checkAccess(script, "edited chunks in the dark at 360 px")
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("edited chunks are %d pixels wide in a window of 360", wide)
	}
	b.look(1280, 800, false)

	// Back in history, to an older version and to what was parsed.
	click(1, "History…")
	b.sees("dialog h2", "Chunk history")
	b.checkAccess(script, "the history of a chunk")
	b.run(chromedp.Click(`dialog [name=to][value="2"]`))
	b.press("Restore this version")
	says(1, "The spoonbill wades.")
	focused(1, "history")
	click(1, "History…")
	b.run(chromedp.Click(`dialog [name=to][value="0"]`))
	b.press("Restore this version")
	says(1, "heron nests")
	b.wait("no mark of an edit", `!`+row(1)+`.querySelector(".badge")`)

	// A version without the stork and the crane: their edits are listed as without a chunk.
	if resp, answer := s.request(http.MethodPut, "/v1"+path+"?name=birds.md&wait=60s", "# Birds\n\nOf the lagoon.\n\n# Heron\n\nThe heron nests in April.\n", "Content-Type", "text/markdown"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%s: %s", resp.Status, answer)
	}
	b.open(path)
	b.sees(`[data-tab="edits"] b`, "2")
	b.press("Edits2")
	b.sees(".pane h2", "Without a chunk (2)")
	b.sees(".pane h2", "In effect (2)")
	b.sees(".pane h2", "Undone (1)")
	b.sees(".pane .chunk", "The crane dances in June.")
	b.checkAccess(script, "the edits of a document")
	b.run(evaluate(`[...document.querySelectorAll(".pane .chunk")].find(c => c.textContent.includes("crane")).querySelector(".tools button:last-child").click()`))
	b.sees(".pane h2", "Undone (2)")
	b.sees(`[data-tab="edits"] b`, "1")
	var left api.List[api.Edit]
	s.get("/v1"+path+"/edits?state=unplaced", &left)
	if len(left.Items) != 1 {
		t.Errorf("%d edits are without a chunk", len(left.Items))
	}
	b.press("Add a chunk at the end…")
	write("text", "Written on the tab.")
	b.press("Add")
	b.sees(".pane .chunk", "Written on the tab.")
	b.press("Show")
	b.wait("the chunk in focus", `document.activeElement.matches(".chunk.added")`)
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
