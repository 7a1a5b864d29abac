package e2e

import (
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
