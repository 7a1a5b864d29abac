package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// From one document of a list the next is reached without going back, and back
// leads to the list.
func TestNextDocumentOfTheList(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.add("default", text("a.txt", "Alpha."), text("b.txt", "Beta."), text("c.txt", "Gamma."))
	b.open("/datasets/default?sort=name")
	b.sees(".docs", "c.txt")
	b.run(evaluate(`[...document.querySelectorAll(".docs td a")].find(a => a.textContent === "a.txt").click()`))
	b.sees("h1", "a.txt")
	b.sees(".neighbors", "1 of 3")
	b.wait("no document before the first", `document.querySelector('[data-step="k"]').disabled`)
	b.press("Next document")
	b.sees("h1", "b.txt")
	b.keys("j")
	b.sees("h1", "c.txt")
	b.wait("the focus on the document's name", `document.activeElement.localName === "h1"`)
	b.keys("k")
	b.sees("h1", "b.txt")
	b.run(chromedp.NavigateBack())
	b.sees("h1", "default")
	b.checkAccess(axe(t), "the list that was come back to")
	b.noErrors()
}

// Copying works without a clipboard, which only pages of https and of this
// machine have, and says so where the browser refuses it.
func TestCopyWithoutAClipboard(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	b.open("/datasets/default")
	b.sees(".curl", "curl")
	b.run(evaluate(`Object.defineProperty(navigator, "clipboard", { value: undefined }); addEventListener("copy", () => { window.copied = document.activeElement.value; })`))
	copyButton := `.curl button`
	b.run(chromedp.Click(copyButton, chromedp.ByQuery))
	b.sees(copyButton, "Copied")
	if got := eval[bool](b, `window.copied === document.querySelector(".curl pre").textContent`); !got {
		t.Errorf("%q was copied", eval[string](b, `String(window.copied)`))
	}
	b.wait("the label again", `document.querySelector(".curl button").textContent === "Copy"`)
	b.run(evaluate(`document.execCommand = () => false`))
	b.run(chromedp.Click(copyButton, chromedp.ByQuery))
	b.sees(copyButton, "Selected")
	if !eval[bool](b, `getSelection().toString() === document.querySelector(".curl pre").textContent`) {
		t.Error("the command is not selected, to be copied by hand")
	}
	b.noErrors()
}

// What others have written into the browser's memory does not break a dataset.
func TestSavedViewsThatCannotBeRead(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.add("default", text("a.txt", "Alpha."))
	ds := new(struct{ ID string })
	s.get("/v1/datasets/default", ds)
	b.open("/datasets/default")
	for _, stored := range []string{`{`, `{"a": 1}`, `[1, ["x"], [null, "?q=x"], ["Good", "?q=a"]]`} {
		b.run(evaluate(`localStorage.setItem("sheaf-views:` + ds.ID + `", ` + "`" + stored + "`" + `)`))
		b.open("/datasets/default?q=a.t")
		b.sees(".docs", "a.txt")
		b.sees(".saved", "Save this view")
	}
	if got := eval[string](b, `[...document.querySelectorAll(".saved li a")].map(a => a.textContent).join()`); got != "Good" {
		t.Errorf("the views are %q", got)
	}
	b.noErrors()
}
