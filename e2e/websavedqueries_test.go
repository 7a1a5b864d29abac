package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sheaf/internal/api"
	"sheaf/taskstore"
)

// A person ticks the hits that answer, saves the question with them, and sees
// under other settings whether they are still found.
func TestSavedQueriesOfTheSearch(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	s.newDataset("barns", false)
	s.newDataset("mills", false)
	s.add("barns", text("field.md", "# Fields\n\nThe harvest of the field was dry.\n"))
	s.add("mills", text("counts.csv", "field,harvest\nnorth,harvest dry\nsouth,harvest wet\n"), text("survey.pdf", string(report(3, "harvest"))))
	queries := func() []taskstore.SavedQuery {
		t.Helper()
		var list api.List[taskstore.SavedQuery]
		s.get("/v1/datasets/mills/queries", &list)
		return list.Items
	}
	tick := func(hit string) {
		t.Helper()
		b.run(evaluate(fmt.Sprintf(`[...document.querySelectorAll(".hit")].find(h => h.querySelector("h2").textContent.startsWith(%q)).querySelector(".expect input").click()`, hit)))
	}
	const panel, list = `section[aria-label="Expected hits"]`, `.saved-queries`
	button := func(name string, disabled bool) string {
		return fmt.Sprintf(`[...document.querySelectorAll('section[aria-label="Expected hits"] button')].some(b => b.textContent === %q && b.disabled === %t)`, name, disabled)
	}

	b.open("/search")
	b.sees(list, "Choose a dataset to see its saved queries")
	b.open("/search?dataset=mills")
	b.sees(list, "No saved queries in mills yet")
	b.open("/search?q=harvest+dry&dataset=mills")
	b.sees(panel, "Select the hits that answer the question")
	b.wait("nothing to save yet", button("Save query", true))
	tick("survey.pdf, page 2")
	b.sees(panel, "survey.pdf, page 2 Rank")
	b.sees(panel, "with 1 expected hit in mills")
	b.press("Save query")
	b.sees(panel+" .badge.ok", "Saved query")
	b.wait("nothing to change yet", button("Save changes", true))
	if got := queries(); len(got) != 1 || got[0].Question != "harvest dry" || len(got[0].Expected) != 1 || got[0].Expected[0].From != 2 || got[0].Expected[0].To != 0 || got[0].Expected[0].DocumentID == "" {
		t.Fatalf("saved is %+v", got)
	}

	// Who asks it again sees that it is saved, and what it expects; more can be expected.
	b.open("/search?q=harvest+dry&dataset=mills")
	b.sees(panel+" .badge.ok", "Saved query")
	b.wait("the hits of page 2 are ticked, no others", `(e => e.length > 3 && e.every(i => i.checked === /survey.*(page 2|1–2|2–3)/.test(i.closest(".hit").querySelector("h2").textContent)))([...document.querySelectorAll(".expect input")])`)
	tick("counts.csv")
	b.sees(panel, "counts.csv, row")
	b.press("Save changes")
	b.wait("saved again", button("Save changes", true))
	if got := queries(); len(got) != 1 || len(got[0].Expected) != 2 {
		t.Fatalf("saved is %+v", got)
	}
	tick("counts.csv")
	tick("survey.pdf, page 2")
	b.sees(panel, "A query needs at least one expected hit")
	b.wait("nothing is not saved", button("Save changes", true))

	// The list runs a query with one click, and all of them with another.
	s.post("/v1/datasets/mills/queries", map[string]any{"question": "the price of flour", "expected": []any{map[string]any{"text": "what no passage says"}}}, nil)
	b.open("/search?q=harvest+dry&dataset=mills")
	b.sees(list+" summary", "Saved queries (2)")
	b.run(evaluate(`document.querySelector(".saved-queries summary").click()`))
	row := func(question string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".saved-queries tbody tr")].find(r => r.textContent.includes(%q))?.cells[1].textContent.trim()`, question)
	}
	b.wait("only what was asked has a rank", fmt.Sprintf(`/^Rank \d+$/.test(%s) && %s === "not run with these settings"`, row("harvest dry"), row("the price of flour")))
	b.press("Run all")
	b.sees(list, "1 of 2 found, 1 of them first.")
	b.wait("each has a rank", fmt.Sprintf(`%s === "Rank 1" && %s === "Not found"`, row("harvest dry"), row("the price of flour")))
	b.checkAccess(script, "a search whose query is saved")
	b.fits("a search whose query is saved")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "saved-queries.png"))
	}
	b.run(evaluate(`[...document.querySelectorAll(".saved-queries a")].find(a => a.textContent === "the price of flour").click()`))
	b.wait("its search", `location.search === "?q=the+price+of+flour&dataset=mills"`)
	b.sees(panel+" li", "what no passage says Not found")

	// Other settings have ranks of their own; two searches say theirs side by side.
	b.open("/search?q=harvest+dry&dataset=mills&compare=1&b_type=x&b_mode=text&b_threshold=1")
	b.sees(panel+" li", "A: rank 1")
	b.wait("ranks of B too", `[...document.querySelectorAll('section[aria-label="Expected hits"] li')].every(e => /A: .*B: /.test(e.textContent))`)
	b.checkAccess(script, "two searches whose query is saved")
	b.fits("two searches whose query is saved")

	// A query is of one dataset, also when all are asked.
	b.open("/search?q=harvest+dry")
	b.sees(panel+" .badge.ok", "Saved query")
	b.open("/search?q=the+harvest")
	b.sees(".hits", "field.md")
	tick("field.md")
	b.sees(panel, "with 1 expected hit in barns")
	tick("counts.csv")
	b.sees(panel, "A query belongs to one dataset")
	b.wait("not saved", button("Save query", true))
	tick("counts.csv")
	b.press("Save query")
	b.sees(panel, "Saved in barns")
	b.look(360, 740, true)
	b.checkAccess(script, "a saved query, narrow and dark")
	b.fits("a saved query")
	b.noErrors()
}
