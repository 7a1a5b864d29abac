package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/taskstore"
)

// TestSettingsOfThePage sets what the API can set where people look for it: on an
// upload, on documents that are parsed again, and on a dataset.
func TestSettingsOfThePage(t *testing.T) {
	h := newHook(t)
	s := start(t, func(c *config.Config) { c.Webhooks.Hosts = []string{h.host()} })
	b := openBrowser(t, s)
	script := axe(t)
	set := func(within, name, value string) {
		t.Helper()
		at := fmt.Sprintf(`document.querySelector('%s [name="%s"]')`, within, name)
		b.wait("the field "+name, at)
		b.run(evaluate(fmt.Sprintf(`(() => { const i = %s; i.value = %q; for (const e of ["input", "change"]) i.dispatchEvent(new Event(e, { bubbles: true })); })()`, at, value)))
	}
	config := func(path string) string {
		var d struct {
			ParserConfig json.RawMessage `json:"parser_config"`
		}
		s.get(path, &d)
		return string(d.ParserConfig)
	}

	// An upload takes settings and a lane, and the command says the same.
	s.newDataset("rules", false)
	s.newDataset("words", false)
	s.request("PATCH", "/v1/datasets/words", `{"parser_config":{"chunk_method":"tag"}}`, "Content-Type", "application/json")
	s.add("rules", text("first.md", "# One\n\nBarley.\n"))
	b.open("/datasets/rules")
	b.press("Upload options")
	b.wait("the options", `document.querySelector(".dropzone .more-settings")`)
	b.run(evaluate(`document.querySelector(".dropzone .more-settings summary").click()`))
	set(".dropzone", "chunk_token_num", "64")
	set(".dropzone", "pages", "1-x")
	b.sees(".dropzone .trouble", "Use the form 1-10, 20-25")
	set(".dropzone", "pages", "")
	b.run(evaluate(`(() => { const l = document.querySelector('[aria-label="Lane"]'); l.value = "3"; l.dispatchEvent(new Event("change")); })()`))
	b.sees(".dropzone .curl pre", `parser_config={"chunk_token_num":64}' -F lane=3 -F file=`)
	// What is stored with each file is filled in by the keyboard, and said where it is wrong.
	b.run(evaluate(`document.querySelector(".dropzone .metadata summary").click(); document.querySelector('[aria-label="Name 1"]').focus()`))
	b.keys("author" + kb.Tab + kb.Tab)
	b.sees(".dropzone .trouble", "“author” has no value")
	b.run(evaluate(`document.querySelector('[aria-label="Value 1"]').focus()`))
	b.keys("Clara Mühle")
	b.wait("no trouble", `!document.querySelector(".dropzone .trouble")`)
	b.press("Add another")
	b.wait("the next pair", `document.activeElement.getAttribute("aria-label") === "Name 2"`)
	b.keys("author" + kb.Tab + "X" + kb.Tab)
	b.sees(".dropzone .trouble", "“author” is given twice")
	b.run(evaluate(`document.querySelectorAll(".pair .remove")[1].click()`))
	b.sees(".dropzone .curl pre", `-F 'metadata={"author":"Clara Mühle"}' -F lane=3`)
	b.checkAccess(script, "settings of an upload")
	b.fits("settings of an upload")
	b.drop(put(t, t.TempDir(), "second.md", []byte("# Two\n\n"+strings.Repeat("The keeper turns each sheaf and writes down where it lay. ", 40))))
	b.sees("#uploads-title", "1 file uploaded")
	b.press("Close")
	var list api.List[sheaf.Document]
	waitFor(t, "the upload", func() bool {
		s.get("/v1/datasets/rules/documents?q=second&state=succeeded", &list)
		return len(list.Items) == 1
	})
	var tasks api.List[api.Task]
	second := "/v1/datasets/rules/documents/" + list.Items[0].ID
	s.get(second+"/tasks", &tasks)
	if got := config(second); got != `{"chunk_token_num":64}` || len(tasks.Items) == 0 || tasks.Items[0].Lane != sheaf.LaneBackfill {
		t.Errorf("uploaded with %s, %+v", got, tasks.Items)
	}

	var stored sheaf.Document
	if s.get(second, &stored); stored.Metadata["author"] != "Clara Mühle" {
		t.Errorf("stored with %v", stored.Metadata)
	}
	if resp, body := s.request("POST", "/v1/datasets/rules/search", `{"query":"keeper","filter":{"metadata":{"author":"Clara Mühle"}}}`, "Content-Type", "application/json"); resp.StatusCode != 200 || !strings.Contains(string(body), `second.md`) {
		t.Errorf("found by its metadata: %s %s", resp.Status, body)
	}
	s.request("PATCH", second, `{"attributes":{"crm.id":17}}`, "Content-Type", "application/json")
	b.open("/datasets/rules/documents/" + stored.ID + "?tab=settings")
	b.sees(".settings", "Clara Mühle")
	b.sees(".settings", "crm.id")

	// A dialog says what is set now, calls settings as the page does, and has them all.
	b.open("/datasets/rules?q=second")
	b.wait("the row", `document.querySelectorAll(".docs tr[data-id]").length === 1`)
	b.run(evaluate(`document.querySelector("tbody input").click()`))
	b.press("Reprocess…")
	b.wait("what is set now", `["64 (now)", "0 (now)"].every(v => [...document.querySelectorAll("dialog input")].some(i => i.placeholder === v)) && document.querySelector("dialog [name=chunk_method]").selectedOptions[0].textContent === "general (now)"`)
	set("dialog", "chunk_token_num", "5")
	b.sees("dialog .trouble", "“Max tokens per chunk” is 5; choose a number from 16 to 8191, or leave the field empty")
	b.mu.Lock()
	b.faults = nil // the refusal is logged
	b.mu.Unlock()
	set("dialog", "chunk_token_num", "")
	b.run(evaluate(`document.querySelector("dialog .more-settings summary").click()`))
	set("dialog", "toc_extraction", "true")
	b.checkAccess(script, "all settings of a document")
	b.sees("dialog .preview dd", " over ")
	b.press("Reprocess")
	waitFor(t, "the setting", func() bool { return config(second) == `{"chunk_token_num":64,"toc_extraction":true}` })

	// A dataset gets its tags from another, by name, and a name of its own.
	b.open("/datasets/rules/settings")
	b.wait("the tag set by its name", `document.querySelector("[name=tag_kb_ids]").textContent === "words"`)
	b.run(evaluate(`document.querySelector("[name=tag_kb_ids] option").selected = true; document.querySelector("#set-name").value = "house rules"`))
	b.press("Save")
	b.wait("the new address", `location.pathname === "/datasets/house%20rules/settings" && document.querySelector(".crumbs")?.textContent.includes("house rules")`)
	var words sheaf.Dataset
	s.get("/v1/datasets/words", &words)
	if got := config("/v1/datasets/house%20rules"); got != `{"tag_kb_ids":["`+words.ID+`"]}` {
		t.Errorf("the settings are %s", got)
	}

	// A webhook is made, tried, changed and removed.
	b.press("New webhook…")
	set("dialog", "url", "http://elsewhere.example/hook")
	b.press("Create")
	b.sees("dialog .trouble, dialog .fault", "webhooks.hosts")
	b.mu.Lock()
	b.faults = nil
	b.mu.Unlock()
	set("dialog", "url", h.URL)
	b.run(evaluate(`document.querySelector('dialog [value="job.failed"]').click()`))
	b.checkAccess(script, "a new webhook")
	b.press("Create")
	b.wait("its secret, once", `document.querySelector('[aria-label="Webhook secret"]')?.value.startsWith("whsec_")`)
	b.checkAccess(script, "the secret of a webhook")
	h.Lock()
	h.secret = eval[string](b, `document.querySelector('[aria-label="Webhook secret"]').value`)
	h.Unlock()
	b.press("Done")
	b.press("Try")
	b.sees("dialog h2", "Recent deliveries")
	waitFor(t, "the message", func() bool { return h.count(taskstore.WebhookPing) == 1 })
	for range 50 {
		if eval[bool](b, `document.querySelector("dialog")?.textContent.includes("delivered")`) {
			break
		}
		b.press("Refresh")
		b.wait("the answer", `document.querySelectorAll("dialog").length === 1`)
	}
	b.sees("dialog td", "delivered")
	b.press("Close")
	b.press("Edit…")
	b.run(evaluate(`document.querySelector('dialog [value="job.failed"]').click(); document.querySelector("dialog [name=enabled]").click()`))
	b.press("Save")
	b.sees("[aria-label='Webhooks'] .badge", "Off")
	b.sees("[aria-label='Webhook endpoints'] td", "everything")
	b.fits("webhooks")
	b.press("Remove…")
	b.press("Remove")
	b.sees("[aria-label='Webhooks'] p", "No webhooks yet")
	b.noErrors()
}
