package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"sheaf"
)

// A mind map is asked for, walked by keys, and leads to its chunks.
func TestMindMapOnThePage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	s.post("/v1/datasets", map[string]any{"name": "maps", "parser_config": map[string]any{"chunk_token_num": 64}}, nil)
	id := sheaf.NewID()
	mustState(t, s.putIn("maps", id, "ponds.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	b.open("/datasets/maps/runs")
	b.press("Mind map")
	b.sees("#view .empty", "No mind map yet")
	b.checkAccess(script, "no mind map")
	b.press("Create…")
	b.sees("dialog .preview dd", "not used")
	b.press("Start")
	b.press("Show")
	b.sees(".map-tree", "ponds.md")
	b.checkEverywhere(script, "a mind map")
	here := `document.activeElement.querySelector(":scope > .map-row > .map-label").textContent + "/" + document.activeElement.getAttribute("aria-expanded")`
	b.run(evaluate(`document.querySelector('.map-tree [tabindex="0"]').focus()`))
	for _, c := range []struct{ keys, at string }{
		{"", "maps/true"}, {kb.ArrowDown, "ponds.md/true"}, {kb.ArrowRight, "Pond 0/"}, {kb.ArrowLeft, "ponds.md/true"}, {kb.ArrowLeft, "ponds.md/false"},
		{kb.ArrowRight, "ponds.md/true"}, {kb.ArrowUp, "maps/true"}, {kb.End, "Pond 11/"}, {kb.Home, "maps/true"},
	} {
		if c.keys != "" {
			b.keys(c.keys)
		}
		if got := eval[string](b, here); !strings.HasPrefix(got, c.at) {
			t.Errorf("after %q the focus is on %s, want %s", c.keys, got, c.at)
		}
	}
	b.keys("pond 3")
	if got := eval[string](b, here); !strings.HasPrefix(got, "Pond 3/") {
		t.Errorf("what is typed leads to %s", got)
	}
	b.press("Collapse all")
	b.wait("two nodes", `[...document.querySelectorAll(".map-row")].filter(e => e.checkVisibility()).length === 2 && !!document.querySelector('.map-tree [tabindex="0"]').checkVisibility()`)
	b.press("Expand all")
	b.wait("the leaves", `[...document.querySelectorAll("[aria-level='4'] > .map-row")].every(e => e.checkVisibility())`)
	b.run(evaluate(`[...document.querySelectorAll("[role=treeitem]")].find(e => e.textContent.startsWith("Pond 3")).focus()`))
	b.keys(kb.Enter)
	b.wait("the chunk", fmt.Sprintf(`location.pathname.endsWith(%q) && document.querySelector("li.chunk")?.textContent.includes("pond")`, id))
	b.sees("li.chunk", "pond 3")
	// Of one document.
	b.open("/datasets/maps/documents/" + id)
	b.press("mind map")
	b.sees(".map-tree", "Pond 3")
	b.press("all documents")
	b.wait("the whole", `document.querySelector(".map-tree .map-label").textContent === "maps"`)
	// A page that is open while the map is made shows it.
	s.newDataset("slow", false)
	mustState(t, s.putIn("slow", sheaf.NewID(), "ponds.md", "text/markdown", ponds("egret")), sheaf.DocSucceeded)
	s.post("/v1/datasets/slow:pause", nil, nil)
	s.post("/v1/datasets/slow/mindmap", map[string]any{}, nil)
	b.open("/datasets/slow/mindmap")
	b.sees("#view .empty", "One is being built")
	s.post("/v1/datasets/slow:resume", nil, nil)
	b.sees(".map-tree", "ponds.md")
	b.noErrors()
}
