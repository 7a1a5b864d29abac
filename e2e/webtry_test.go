package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"sheaf/internal/config"
)

// TestPageTriesSettings changes settings and looks at the chunks of a page before
// anything is saved: in the settings of the dataset and where a document is parsed again.
func TestPageTriesSettings(t *testing.T) {
	s := start(t, func(*config.Config) {})
	b := openBrowser(t, s)
	script := axe(t)
	shoot := func(name string) {
		if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
			b.wait("the picture", `[...document.querySelectorAll(".tried img")].every(i => i.complete && i.naturalWidth)`)
			b.shoot(filepath.Join(dir, name+".png"))
		}
	}
	set := func(within, name, value string) {
		t.Helper()
		at := fmt.Sprintf(`document.querySelector('%s [name="%s"]')`, within, name)
		b.wait("the field "+name, at)
		b.run(evaluate(fmt.Sprintf(`(() => { const i = %s; i.value = %q; i.dispatchEvent(new Event("input", { bubbles: true })); })()`, at, value)))
	}
	s.newDataset("tries", false)
	b.open("/datasets/tries/settings")
	b.press("Preview on a page")
	b.sees(".tried-sum", "Upload one first")
	s.add("tries", text("notes.md", "# Notes\n\nThe harvest was dry.\n"))
	docs := s.add("tries", text("harvest.pdf", string(report(20, "Harvest"))))
	b.open("/datasets/tries/settings")
	b.look(1440, 900, false)
	// It is asked for by the keyboard, and is where the focus is then.
	b.run(evaluate(`[...document.querySelectorAll("button")].find(x => x.textContent === "Preview on a page").focus()`))
	b.keys(kb.Enter)
	b.wait("the chunks of the first page", `document.querySelector(".tried h2") === document.activeElement && document.querySelectorAll(".tried li.chunk").length > 0 && document.querySelectorAll(".tried rect").length > 0 && document.querySelector(".tried img")?.naturalWidth`)
	b.sees(".tried select", "harvest.pdf")
	b.sees(".tried-sum", "Page 1:")
	was := eval[int](b, `document.querySelectorAll(".tried li.chunk").length`)
	b.run(evaluate(`(() => { const i = document.querySelector(".tried .page-number"); i.value = "3"; i.dispatchEvent(new Event("change")); })()`))
	b.sees(".tried-sum", "Page 3:")

	// As it is typed the chunks change, and the one answer that counts is the last.
	b.run(evaluate(`(() => { window.asked = []; const f = fetch; window.fetch = (p, o) => { if (String(p).endsWith(":preview")) asked.push(o); return f(p, o); }; })()`))
	set(".dataset-settings", "chunk_token_num", "6")
	set(".dataset-settings", "chunk_token_num", "64")
	b.wait("the difference", `/^Page 3: \d+ → \d+ chunks, median \d+ → \d+ tokens\. Pages 1–\d+: \d+ → \d+ chunks/.test(document.querySelector(".tried-sum").textContent)`)
	if n := eval[int](b, `asked.length`); n != 1 {
		t.Errorf("the server was asked %d times for two changes at once", n)
	}
	if n := eval[int](b, `document.querySelectorAll(".tried li.chunk").length`); n <= was {
		t.Errorf("chunks of 64 tokens are %d on the page, were %d", n, was)
	}
	b.checkAccess(script, "a preview of settings")
	b.fits("a preview of settings")
	shoot("try-settings")
	// A chunk in focus lights its boxes.
	b.run(evaluate(`document.querySelectorAll(".tried li.chunk")[1].focus()`))
	b.wait("its boxes", `document.querySelectorAll('.tried rect.on[data-key="1"]').length > 0 && !document.querySelector('.tried rect.on:not([data-key="1"])')`)
	// An older request is given up for a newer one.
	b.run(evaluate(`(() => { asked.length = 0; const n = document.querySelector('.tried [aria-label="Next page"]'); n.click(); n.click(); })()`))
	b.sees(".tried-sum", "Page 5:")
	if got := eval[string](b, `asked.map(o => o.signal.aborted).join()`); got != "true,false" {
		t.Errorf("given up: %s", got)
	}
	// What cannot be says so beside what was there, and goes when it is right.
	set(".dataset-settings", "chunk_token_num", "5")
	b.sees(".tried .trouble", "choose a number from 16 to 8191")
	b.mu.Lock()
	b.faults = nil // the refusal is logged, and what was given up
	b.mu.Unlock()
	set(".dataset-settings", "chunk_token_num", "32")
	b.wait("no trouble", `!document.querySelector(".tried .trouble") && document.querySelectorAll(".tried li.chunk").length > 3`)
	if got := s.configOf("/v1/datasets/tries"); got != `{}` {
		t.Errorf("a preview has saved %s", got)
	}
	// A file without pages.
	b.run(evaluate(`(() => { const i = document.querySelector(".tried select"); i.value = [...i.options].find(o => o.text === "notes.md").value; i.dispatchEvent(new Event("change")); })()`))
	b.wait("the chunk of the notes", `document.querySelectorAll(".tried li.chunk").length === 1 && document.querySelector(".tried").textContent.includes("The harvest was dry") && document.querySelector(".tried .page-side").hidden`)
	b.look(360, 740, true)
	b.fits("a preview of settings in a narrow window")
	b.checkAccess(script, "a preview of settings in a narrow window")
	b.look(1280, 800, false)

	// Where the document is parsed again.
	b.open("/datasets/tries/documents/" + docs[0].ID)
	b.press("Reprocess…")
	b.wait("the line", `document.querySelector("dialog .try summary")`)
	b.run(evaluate(`document.querySelector("dialog .try summary").click()`))
	b.sees("dialog .tried-sum", "Page 1:")
	set("dialog", "chunk_token_num", "48")
	b.wait("the difference", `/Page 1: \d+ → \d+ chunks/.test(document.querySelector("dialog .tried-sum").textContent)`)
	b.checkAccess(script, "a preview in a dialog")
	shoot("try-dialog")
	b.press("Cancel")
	b.noErrors()
}

// configOf is the settings at a path, as JSON.
func (s *service) configOf(path string) string {
	s.t.Helper()
	var d struct {
		ParserConfig json.RawMessage `json:"parser_config"`
	}
	s.get(path, &d)
	return strings.TrimSpace(string(d.ParserConfig))
}
