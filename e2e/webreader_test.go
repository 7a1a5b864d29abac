package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"sheaf"
	"sheaf/internal/config"
)

// The reader leads through a document: outline and thumbnails, views of its
// text, find, keys, and what a chunk can be taken for.
func TestReader(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	const notes = "# Barn notes\n\nThe **first** word on `sheaves`, see [the list](https://example.org/list) and [a trap](javascript:alert(1)).\n\n- red\n- blue\n\n## Counting\n\n```\nsheaf count --all\n```\n\n| Mark | Meaning |\n| --- | --- |\n| red | wet <img src=x onerror=alert(1)> |\n"
	docs := s.add("default", text("survey.pdf", string(report(12, "barn"))), text("notes.md", notes))
	pdf, md := "/datasets/default/documents/"+docs[0].ID, "/datasets/default/documents/"+docs[1].ID

	b.open(pdf)
	b.sees(".chunk-column", "measured in store")
	// The keys turn the pages, and the focus stays where it is.
	b.run(evaluate(`document.querySelector('[aria-label="Next page"]').focus()`))
	b.keys(kb.Enter)
	b.wait("page 2", `document.querySelector(".page-number").value === "2" && new URLSearchParams(location.search).get("page") === "2"`)
	if got := eval[string](b, `document.activeElement.getAttribute("aria-label")`); got != "Next page" {
		t.Errorf("after the page was turned the focus is on %q", got)
	}
	b.keys(kb.ArrowRight)
	b.wait("page 3", `document.querySelector(".page-number").value === "3"`)
	b.keys(kb.ArrowLeft)
	b.wait("page 2 again", `document.querySelector(".page-number").value === "2"`)
	// Thumbnails have the ledger's words, lead to their page and show where the reader is.
	b.press("Thumbnails")
	b.wait("a drawn thumbnail of each page in sight", `document.querySelectorAll(".thumbs a").length === 12 && document.querySelector(".thumbs img")?.naturalWidth > 20`)
	if got := eval[string](b, `document.querySelector(".thumbs [aria-current]").getAttribute("aria-label")`); got != "page 2, read" {
		t.Errorf("the page on show is %q", got)
	}
	b.checkAccess(script, "the reader with thumbnails")
	b.run(evaluate(`document.querySelectorAll(".thumbs a")[6].click()`))
	b.wait("page 7", `document.querySelector(".page-number").value === "7" && document.querySelector('.thumbs [aria-current]').dataset.page === "7"`)
	// Find leads through the whole document, to the page and the chunk.
	b.keys("f")
	b.wait("the field of find", `document.activeElement.matches(".find input")`)
	b.run(evaluate(`document.activeElement.value = ""`)) // chromedp sends a character of its own, which nothing prevents
	b.keys("store 77" + kb.Enter)
	b.wait("the match", `document.querySelector(".find [role=status]").textContent.includes("page 11") && document.querySelector(".page-number").value === "11" && document.querySelector(".chunk.lit")`)
	b.wait("the marked words", `!("highlights" in CSS) || CSS.highlights.get("find")?.size > 0`)
	// The page and its text scroll together.
	b.look(1280, 420, false)
	b.wait("the drawn page", `document.querySelector(".page img")?.naturalWidth && document.querySelector(".boxes").getAttribute("viewBox")`)
	b.run(evaluate(`document.querySelector(".page-side").scrollTop = 1e6`))
	b.wait("the text at its end as the page is", `(() => { const c = document.querySelector(".chunk-column"); return c.scrollTop + c.clientHeight >= c.scrollHeight - 2; })()`)
	b.look(1280, 800, false)

	// Each chunk can be taken along, and says why it was cut where it was.
	b.open(pdf + "?page=1")
	b.sees(".chunk-column", "measured in store")
	b.run(evaluate(`Object.defineProperty(navigator, "clipboard", { value: { writeText: async (t) => { window.copied = t; } } })`))
	var chunks struct{ Items []sheaf.Chunk }
	s.get("/v1/datasets/default/documents/"+docs[0].ID+"/chunks?page=1", &chunks)
	first := chunks.Items[0]
	for act, want := range map[string]string{"copy": first.Text, "link": s.base + pdf + "?page=1&chunk=" + first.ID, "cite": "survey.pdf, page 1"} {
		b.run(evaluate(fmt.Sprintf(`window.copied = ""; document.querySelector('.chunk [data-act=%q]').click()`, act)))
		b.wait("what "+act+" copies", `window.copied`)
		if got := eval[string](b, `window.copied`); !strings.HasPrefix(got, want) {
			t.Errorf("%s copies %q, want %q", act, got, want)
		}
	}
	b.run(evaluate(`document.querySelector('.chunk [data-act="why"]').click()`))
	b.sees("dialog[open]", "The text begins here.")
	b.sees("dialog[open]", fmt.Sprintf("%d token", first.Tokens))
	b.checkAccess(script, "why a chunk was cut")
	b.press("Close")

	// Markdown is drawn as what it means, and nothing of it runs.
	b.open(md + "?as=markdown")
	b.sees(".markdown h2", "Barn notes")
	b.sees(".markdown pre", "sheaf count --all")
	b.sees(".markdown td", "wet")
	if got := eval[string](b, `document.querySelector(".markdown").textContent.includes("\u0060\u0060\u0060") + [...document.querySelectorAll(".markdown :is(h2,h3)")].map(h => h.textContent).join()`); got != "falseBarn notes,Counting" {
		t.Errorf("the rendered text has %q", got)
	}
	drawn := fmt.Sprintf(`(async () => { const { markdown } = await import("/js/markdown.js"), d = document.createElement("div"); d.append(...markdown(%s)); return [...d.querySelectorAll("h2,h3,strong,code,a,li,pre,td,img")].map(e => e.localName + ":" + (e.getAttribute("href") || e.textContent)).join("|"); })()`, encoded(t, notes))
	if got := eval[string](b, drawn); got != "h2:Barn notes|strong:first|code:sheaves|a:https://example.org/list|li:red|li:blue|h3:Counting|pre:sheaf count --all|td:red|td:wet <img src=x onerror=alert(1)>" {
		t.Errorf("Markdown is drawn as %q", got)
	}
	// Marks that nothing ends are not looked at to the end of the text for each.
	const endless = `(async () => { const { markdown } = await import("/js/markdown.js"); return markdown("_a ".repeat(200000) + "**b ".repeat(100000)).length; })()`
	if n := eval[int](b, endless); n != 1 {
		t.Errorf("a text of marks is %d parts", n)
	}
	b.checkAccess(script, "rendered Markdown")
	b.sees(".outline", "Counting")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "reader-markdown.png"))
	}
	b.press("JSON")
	b.sees(".json pre", `"heading_path"`)
	b.checkAccess(script, "chunks as JSON")
	// What is exported is the text that was sent, and every chunk.
	const saved = `(async () => {
		const made = [], of = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
		URL.createObjectURL = (blob) => (made.push(blob), of(blob));
		const name = new Promise((done) => { HTMLAnchorElement.prototype.click = function () { done(this.download); }; });
		[...document.querySelectorAll(".menu button")].find(b => b.textContent.startsWith(%q)).click();
		const called = await name;
		URL.createObjectURL = of; HTMLAnchorElement.prototype.click = click;
		return [called, await made[0].text()];
	})()`
	got := eval[[]string](b, fmt.Sprintf(saved, "Markdown"))
	if got[0] != "notes.md" || !strings.HasPrefix(got[1], "# Barn notes\n\nThe first word") || !strings.Contains(got[1], "\n## Counting\n") || !strings.Contains(got[1], "| red | wet") {
		t.Errorf("exported as %s: %q", got[0], got[1])
	}
	got = eval[[]string](b, fmt.Sprintf(saved, "JSON"))
	s.get("/v1/datasets/default/documents/"+docs[1].ID+"/chunks", &chunks)
	if n := strings.Count(got[1], "\n"); got[0] != "notes.jsonl" || n != len(chunks.Items) || !strings.Contains(got[1], chunks.Items[0].ID) {
		t.Errorf("exported as %s: %d of %d chunks", got[0], n, len(chunks.Items))
	}
	for _, dark := range []bool{false, true} {
		b.look(360, 740, dark)
		for _, as := range []string{"", "markdown", "json"} {
			b.open(md + "?as=" + as)
			b.sees(".reader", "Counting")
			b.checkAccess(script, "the narrow reader as "+as)
			b.fits("the reader as " + as)
		}
	}
	b.noErrors()
}

// What is done of a document that is read for the first time can be read.
func TestFinishedRangesAreRead(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Executor.Workers = 1 }) // a range after the other
	b := openBrowser(t, s)
	s.newDataset("live", true)
	special := map[int]string{}
	for i := 13; i <= 60; i++ {
		special[i] = fmt.Sprintf("SLOW subject%d", i)
	}
	answer, err := s.submitAnswer(t.Context(), "live", []source{text("slow.trial", trialPages(60, special))}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	doc := "/v1/datasets/live/documents/" + answer.Documents[0].ID
	waitFor(t, "the first range", func() bool {
		var d sheaf.Document
		s.get(doc, &d)
		return d.Progress > 0
	})
	s.post("/v1/datasets/live:pause", nil, nil) // what is left stays, however slow the browser is
	b.open("/datasets/live/documents/" + answer.Documents[0].ID)
	b.wait("the text of a range while others are being read", `document.querySelector(".reader-body > .page-note")?.textContent.startsWith("In progress") && document.querySelector(".reader li.chunk") && !document.querySelector(".head .badge").textContent.includes("Succeeded")`)
	s.post("/v1/datasets/live:resume", nil, nil)
	s.ended(answer.Job.ID)
	b.wait("the whole document", `document.querySelector(".head .badge").textContent === "Succeeded" && document.querySelector(".reader li.chunk") && ![...document.querySelectorAll(".page-note")].some(e => e.textContent.startsWith("In progress"))`)
	b.noErrors()
}

// In a narrow window the outline and the thumbnails open above the page, and
// nothing is asked for until they are.
func TestReaderOfANarrowWindow(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	doc := s.add("default", text("survey.pdf", string(report(12, "barn"))))[0]
	b.look(360, 740, false)
	b.open("/datasets/default/documents/" + doc.ID)
	b.sees(".chunk-column", "measured in store")
	const asked = `performance.getEntriesByType("resource").some(e => e.name.includes("heading_path"))`
	if eval[bool](b, asked) {
		t.Error("an outline that nobody sees is read")
	}
	b.press("Outline and pages")
	b.wait("the outline", `document.querySelector(".outline a")?.checkVisibility() && `+asked)
	b.press("Thumbnails")
	b.wait("a strip of thumbnails", `(l => l.length === 12 && l[0].checkVisibility() && new Set([...l].map(e => e.getBoundingClientRect().top)).size === 1 && document.querySelector(".thumbs img")?.naturalWidth > 20)(document.querySelectorAll(".thumbs li"))`)
	b.checkAccess(script, "thumbnails in a narrow window")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "reader-narrow.png"))
	}
	b.run(evaluate(`document.querySelectorAll(".thumbs a")[8].click()`))
	b.wait("page 9, in sight in the strip", `document.querySelector(".page-number").value === "9" && (e => e.dataset.page === "9" && e.getBoundingClientRect().left >= 0 && e.getBoundingClientRect().right <= innerWidth)(document.querySelector(".thumbs [aria-current]"))`)
	b.press("Outline and pages")
	b.wait("a closed rail", `!document.querySelector(".rail").checkVisibility() && document.querySelector(".rail-toggle").getAttribute("aria-expanded") === "false"`)
	b.fits("the reader")
	b.noErrors()
}
