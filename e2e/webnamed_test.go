package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// TestNamesUseAWideWindow looks at a name of 80 letters: a window of 1,920 pixels has
// room for it, and one that is smaller shows both its ends.
func TestNamesUseAWideWindow(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("wide", false)
	long := strings.Repeat("Moisture of the stored harvest, ", 3)[:70] + " 2026-11.md"
	s.add("wide", text(long, "# Harvest\n\nDry.\n"))
	b.look(1920, 1080, false)
	b.open("/datasets/wide")
	b.wait("the row", `document.querySelector(".docs tr[data-id] .cut")`)
	const whole = `[...document.querySelectorAll(".docs tr[data-id] .cut bdi")].every(e => e.scrollWidth <= e.clientWidth + 1) && document.querySelector(".docs tr[data-id] .cut").getBoundingClientRect().right <= document.querySelector(".docs tr[data-id] .c-name").getBoundingClientRect().right`
	if !eval[bool](b, whole) {
		t.Errorf("a name of %d letters is cut at 1,920 pixels: %s", len(long), eval[string](b, `JSON.stringify([innerWidth, document.querySelector("main").clientWidth, document.querySelector(".docs").clientWidth, document.querySelector(".docs tr[data-id] .c-name").clientWidth, [...document.querySelectorAll(".docs tr[data-id] .cut bdi")].map(e => [e.scrollWidth, e.clientWidth])])`))
	}
	b.fits("a list at 1,920 pixels")
	b.look(1280, 800, false)
	if end := eval[string](b, `(e => e.getBoundingClientRect().right <= e.closest("td").getBoundingClientRect().right && e.scrollWidth <= e.clientWidth + 1 ? e.textContent : "")(document.querySelector(".docs tr[data-id] .cut bdi:last-child"))`); !strings.HasSuffix(end, "2026-11.md") {
		t.Errorf("the end of the name is not in sight at 1,280 pixels: %q", end)
	}
	b.noErrors()
}

// TestPageSaysThatPagesAreCounted looks at a document whose pages are being counted.
func TestPageSaysThatPagesAreCounted(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("counted", true)
	counted := filepath.Join(t.TempDir(), "counted")
	answer, err := s.submitAnswer(t.Context(), "counted", []source{text("long.trial", "COUNT "+counted+"\nsecond page\n")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	b.open("/datasets/counted/documents/" + answer.Documents[0].ID)
	b.sees(".progress-box", "Counting pages")
	if err := os.WriteFile(counted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.wait("the end", `document.querySelector(".head .badge").textContent === "Succeeded" && !document.body.textContent.includes("Counting pages")`)
	b.sees(".facts-line", "2 pages")
	b.noErrors()
}

// TestUploadsFoldWhileTheyRun folds the tray away while bytes are on their way.
func TestUploadsFoldWhileTheyRun(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("folded", false)
	b.open("/datasets/folded")
	b.run(evaluate(`(() => { const send = XMLHttpRequest.prototype.send; window.held = []; XMLHttpRequest.prototype.send = function (...a) { held.push(() => send.apply(this, a)); }; })()`))
	b.drop(put(t, t.TempDir(), "held.txt", []byte("Held until it may go.")))
	b.wait("the upload under way", `held.length === 1 && document.querySelector("#uploads-title").textContent === "Uploading 0 of 1 file"`)
	open := eval[float64](b, `document.querySelector("#uploads").getBoundingClientRect().height`)
	b.run(evaluate(`document.querySelector("#uploads-fold").focus()`))
	b.keys(kb.Enter)
	b.wait("the folded tray", `(f => f.getAttribute("aria-expanded") === "false" && f.textContent === "Show" && document.activeElement === f && !document.querySelector("#uploads-list").checkVisibility() && document.querySelector("#uploads-title").checkVisibility())(document.querySelector("#uploads-fold"))`)
	if now := eval[float64](b, `document.querySelector("#uploads").getBoundingClientRect().height`); now >= open || now > 80 {
		t.Errorf("the folded tray is %v high, was %v", now, open)
	}
	b.run(evaluate(`held.pop()()`))
	b.sees("#uploads-title", "1 file uploaded")
	b.wait("still folded", `!document.querySelector("#uploads-list").checkVisibility()`)
	b.keys(kb.Enter)
	b.wait("the list", `document.querySelector("#uploads-list").checkVisibility() && document.querySelector("#uploads-fold").getAttribute("aria-expanded") === "true"`)
	b.noErrors()
}

// TestSkipLinksLeadToTheContent goes from the top of the page to the first document by
// the keyboard alone.
func TestSkipLinksLeadToTheContent(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("skipped", false)
	s.add("skipped", text("first.md", "# First\n\nDry.\n"))
	b.open("/datasets/skipped")
	b.wait("the row", `document.querySelector(".docs tr[data-id] a")`)
	b.run(evaluate(`document.activeElement.blur(); getSelection().removeAllRanges()`))
	b.run(chromedp.Evaluate(`document.body.setAttribute("tabindex", "-1"); document.body.focus(); document.body.removeAttribute("tabindex")`, nil))
	b.keys(kb.Tab)
	b.wait("the skip link, in sight", `(e => e.textContent === "Skip to the content" && e.getBoundingClientRect().left >= 0)(document.activeElement)`)
	b.keys(kb.Enter)
	b.wait("the content", `document.activeElement.id === "view"`)
	before, tabs := "", 0
	for ; tabs < 30; tabs++ {
		b.keys(kb.Tab)
		before = eval[string](b, `document.activeElement.textContent`)
		if before == "Skip to the documents" {
			break
		}
	}
	if before != "Skip to the documents" {
		t.Fatalf("no skip link to the documents; the last focus was on %q", before)
	}
	b.keys(kb.Enter)
	b.wait("the first document", `document.activeElement.closest(".docs tr[data-id]")`)
	t.Logf("%d tabs between the skip links", tabs+1)
	b.noErrors()
}

// TestKeyHoldsInOtherTabs gives the key once where its owner says that it may stay.
func TestKeyHoldsInOtherTabs(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	const secret = "a key for all tabs"
	if err := s.store.CreateKey(t.Context(), sheaf.Key{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, Name: "tabs", Scopes: []string{"write"}}, api.HashKey(secret)); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, s)
	enter := func(b *browser, stays bool) {
		t.Helper()
		b.run(chromedp.Navigate(b.base+"/datasets/default"), chromedp.WaitVisible("dialog input"))
		if stays {
			b.run(evaluate(`document.querySelector("dialog [name=stays]").click()`))
		}
		b.run(evaluate(fmt.Sprintf(`document.querySelector("dialog [name=key]").value = %q; document.querySelector("dialog [type=submit]").click()`, secret)))
		b.sees(".empty", "No documents yet")
	}
	tab := func() *browser {
		ctx, cancel := chromedp.NewContext(b.ctx)
		t.Cleanup(cancel)
		if err := chromedp.Run(ctx); err != nil { // the tab lives as long as the context of its first action
			t.Fatal(err)
		}
		return &browser{t: t, ctx: ctx, base: b.base}
	}
	// Without that it is this tab's.
	enter(b, false)
	second := tab()
	second.run(chromedp.Navigate(b.base + "/datasets/default"))
	second.wait("the question", `document.querySelector("dialog [name=key]")`)
	enter(second, true)
	third := tab()
	third.run(chromedp.Navigate(b.base + "/datasets/default"))
	third.sees(".empty", "No documents yet")
	third.wait("no question", `!document.querySelector("dialog")`)
	if kept := eval[string](third, `Object.keys(localStorage).filter(k => localStorage[k].includes("all tabs")).join()`); kept != "sheaf-key" {
		t.Errorf("the key is kept as %s", kept)
	}
	// Where no key is asked for none is offered.
	open := openBrowser(t, start(t, nil))
	open.open("/datasets/default")
	if eval[bool](open, fmt.Sprintf(`document.querySelector("%s").checkVisibility()`, "#key")) {
		t.Error("the footer offers a key that nobody asks for")
	}
	open.noErrors()
}
