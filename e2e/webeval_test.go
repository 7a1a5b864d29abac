package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// A person saves a query, runs an evaluation, and sees what another document changed.
func TestEvaluationsOnThePage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	s.add("default", text("pumps.txt", "The boiler is drained with the red valve."))
	b.open("/search?q=boiler&dataset=default")
	b.sees(".hits", "pumps.txt")
	b.run(evaluate(`[...document.querySelectorAll("a")].find(a => a.textContent === "Search quality").click()`))
	b.sees("h1", "Evaluations")
	b.sees(".empty", "No evaluation has run yet")
	b.checkAccess(script, "evaluations before the first")
	b.press("Run now")
	b.sees(".trouble", "saved query")
	fill := func(document string) {
		t.Helper()
		b.run(evaluate(`document.querySelector("[name=question]").value = "how is the boiler drained"; document.querySelector("[name=document]").value = "` + document + `"`))
		b.press("Save query")
	}
	fill("pupms.txt")
	b.sees(".trouble", "pupms.txt")
	fill("pumps.txt")
	b.sees("section[aria-label='Queries of the dataset'] table", "how is the boiler drained")
	b.wait("no trouble", `!document.querySelector(".trouble")`)
	b.press("Run now")
	b.sees("section[aria-label=Evaluations] table", "on request")
	b.sees("section[aria-label=Evaluations] table", "1.00")
	s.add("default", text("drain.txt", "How is the boiler drained: how is the boiler drained, how the boiler is drained. Drained boiler."))
	b.press("Run now")
	b.sees("section[aria-label='One evaluation']", "drain.txt came first")
	// Two evaluations make a line, and the table has the same in numbers.
	b.sees("section[aria-label=Evaluations] figcaption", "2 evaluations. Hit@5 1.00 at first, now 1.00; Recall@10 1.00 at first, now 1.00; MRR 1.00 at first, now 0.50.")
	b.wait("a line of each measure", `(l => l.length === 3 && l.every(p => p.getAttribute("points").split(" ").length === 2))([...document.querySelectorAll(".chart-area polyline")])`)
	b.wait("the numbers", `[...document.querySelectorAll("section[aria-label=Evaluations] tbody tr")].map(r => r.cells[8].textContent).join() === "0.50,1.00"`)
	b.checkAccess(script, "evaluations")
	b.fits("evaluations")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "evaluations.png"))
	}
	// The first stays at hand, and can be sent as an address.
	b.run(evaluate(`document.querySelectorAll("section[aria-label=Evaluations] tbody a")[1].click()`))
	b.wait("the first evaluation", `location.search.startsWith("?evaluation=") && !document.querySelector("section[aria-label='One evaluation']").textContent.includes("drain.txt")`)
	// Headings make questions, which are marked.
	s.add("default", text("winter.md", "# Before the winter comes\n\nThe pump is emptied, and its valve stays open.\n"))
	b.press("Generate questions from headings")
	b.sees("section[aria-label='Queries of the dataset'] table", "Before the winter comes")
	b.sees("section[aria-label='Queries of the dataset'] .badge", "from a heading")
	b.checkAccess(script, "evaluations with generated queries")
	b.press("Delete")
	b.wait("one query", `document.querySelectorAll("section[aria-label='Queries of the dataset'] tbody tr").length === 1`)
	b.press("Delete")
	b.wait("no query", `!document.querySelector("section[aria-label='Queries of the dataset'] table")`)
}
