package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Ctrl-K leads to every place, dataset, document and job, also while something
// is typed.
func TestPalette(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("contracts", false)
	s.add("default", text("wet sheaves.txt", "Wet."), text("dry.txt", "Dry."))
	open := func() {
		b.t.Helper()
		b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(2)))
		b.wait("the palette", `document.activeElement.getAttribute("role") === "combobox" && document.querySelectorAll("[role=option]").length >= 6`)
	}
	b.open("/datasets/default")
	b.sees(".docs", "dry.txt")
	open()
	b.checkAccess(axe(t), "the palette")
	b.keys("contr" + kb.Enter)
	b.sees("h1", "contracts")
	b.open("/datasets/default")
	b.sees(".docs", "dry.txt")
	b.run(chromedp.Focus(`[aria-label="Filter by name"]`))
	open()
	b.keys("sheaves wet")
	b.wait("no document of another order of words", `document.querySelectorAll("[role=option]").length && ![...document.querySelectorAll("[role=option]")].some(o => o.textContent.startsWith("Document"))`)
	b.keys(kb.Escape)
	b.wait("the palette to go", `!document.querySelector("dialog")`)
	open()
	b.keys("wet sh")
	b.wait("the document first", `document.querySelector("[role=option][aria-selected=true]")?.textContent.includes("wet sheaves.txt")`)
	b.keys(kb.ArrowDown + kb.ArrowUp + kb.Enter)
	b.sees("h1", "wet sheaves.txt")
	open()
	b.keys("oper")
	b.wait("the place", `document.querySelector("[role=option][aria-selected=true]")?.textContent === "Go toOperations"`)
	b.look(360, 740, true)
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("the palette is %d pixels wide in a window of 360", wide)
	}
	b.checkAccess(axe(t), "the palette in a narrow dark window")
	b.keys(kb.Enter)
	b.sees("h1", "Operations")
	b.noErrors()
}

// With more datasets than a list can hold, none is out of reach: they are found by
// name in the list of datasets, of jobs, in search and from the palette, and a job of
// an old one says its name.
func TestManyDatasetsOnThePage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("first of all", false)
	s.add("first of all", text("sheaves.txt", "Wet sheaves dry slowly."))
	for i := range 210 {
		s.newDataset(fmt.Sprintf("set %03d", i), false)
	}
	b.open("/datasets")
	b.wait("a page of datasets", `document.querySelectorAll("tbody tr").length === 100`)
	b.press("Show more datasets")
	b.wait("another page", `document.querySelectorAll("tbody tr").length === 200`)
	b.run(chromedp.Focus(`[aria-label="Filter by name"]`))
	b.keys("FIRST of")
	b.wait("the oldest alone", `document.querySelectorAll("tbody tr").length === 1 && document.querySelector("tbody").textContent.includes("first of all") && location.search.includes("FIRST")`)
	b.checkAccess(axe(t), "filtered datasets")
	b.keys("x")
	b.sees(".empty:not([hidden])", "No dataset matches")

	b.open("/jobs")
	b.sees("tbody", "first of all")
	b.run(chromedp.Focus(`[aria-label="Dataset"]`))
	b.keys("set 2")
	b.wait("proposals", `[...document.querySelectorAll("datalist option")].some(o => o.value === "set 209") && ![...document.querySelectorAll("datalist option")].some(o => o.value.startsWith("set 1"))`)
	b.run(chromedp.SetValue(`[aria-label="Dataset"]`, "first of all"), chromedp.KeyEvent(kb.Tab))
	b.wait("the jobs of one dataset", `location.search.includes("dataset=first") && document.querySelectorAll("tbody tr").length === 1`)
	b.checkAccess(axe(t), "jobs of one of many datasets")

	b.open("/search?q=sheaves&dataset=first+of+all")
	b.sees(".hits", "Wet sheaves")
	b.wait("the name in its field", `document.querySelector("[name=dataset]").value === "first of all"`)
	b.checkAccess(axe(t), "search with many datasets")
	b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(2)))
	b.wait("the palette", `document.activeElement.getAttribute("role") === "combobox"`)
	b.keys("first of")
	b.wait("the dataset", `document.querySelector("[role=option][aria-selected=true]")?.textContent.includes("Datasetfirst of all")`)
	b.keys(kb.Enter)
	b.sees("h1", "first of all")
	b.noErrors()
}

// Who asks for it is told when a job ends, wherever on the page they are, once.
func TestNotificationWhenAJobEnds(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.post("/v1/datasets/default:pause", nil, nil)
	answer, err := s.submitAnswer(t.Context(), "default", []source{text("late.txt", "Late.")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	b.open("/jobs/" + answer.Job.ID)
	b.run(evaluate(`window.told = []; window.Notification = class { static permission = "granted"; constructor(t, o) { told.push(t + "|" + o.body); } close() {} }; document.hasFocus = () => false`))
	b.press("Notify me")
	b.wait("the pressed button", `document.querySelector(".tools [aria-pressed=true]")?.textContent === "Notify me"`)
	b.keys("gs") // goes on without loading the page anew
	b.sees("h1", "Datasets")
	s.post("/v1/datasets/default:resume", nil, nil)
	s.ended(answer.Job.ID)
	b.sees(".job-ended", "Succeeded: late.txt, 1 document")
	if got := eval[string](b, `told.join()`); got != "Succeeded: late.txt|1 document" {
		t.Errorf("the computer was told %q", got)
	}
	b.checkAccess(axe(t), "what tells of the end")
	if got := eval[string](b, `String(localStorage.getItem("sheaf-watched"))`); got != "null" {
		t.Errorf("%s is watched still", got)
	}
	b.press("Show")
	b.wait("the job", `location.pathname === "/jobs/`+answer.Job.ID+`"`)
	b.noErrors()
}
