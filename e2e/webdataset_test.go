package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/settings"
	"sheaf/parser/pdf/enginetest"
	"sheaf/taskstore"
)

// TestDatasetPage drives what a dataset shows above and beside its documents.
func TestDatasetPage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *service, b *browser)
	}{
		{"an empty dataset leads to a first answer", testFirstAnswer},
		{"issues are grouped by cause, and cured together", testIssues},
		{"filters count what they find, and stand in the address", testFacetColumn},
		{"what is selected by a query is acted on as a whole", testWholeSelection},
		{"back keeps the place, the selection and the focus", testBackKeepsPlace},
		{"the preview follows the row", testPeek},
		{"settings are explained, changed and applied", testDatasetSettings},
		{"what is refused is said", testRefusedClick},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t, s.t = t, t
			c.run(t, s, b)
			b.noErrors()
		})
		b.t, s.t = t, t
	}
}

// testRefusedClick: a click that the server refuses never looks as if it had done
// nothing, also where a view has no place for errors.
func testRefusedClick(t *testing.T, s *service, b *browser) {
	s.newDataset("passing", false)
	b.open("/datasets")
	if resp, body := s.request(http.MethodDelete, "/v1/datasets/passing", ""); resp.StatusCode >= 300 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	b.run(evaluate(`document.querySelector('button[aria-label="Pause passing"]').click()`))
	b.sees(".fault", "There is no dataset")
	b.checkEverywhere(axe(t), "a refusal")
	b.press("Close")
	b.wait("no refusal", `!document.querySelector(".fault")`)
	b.mu.Lock()
	b.faults = nil // the refusal is logged
	b.mu.Unlock()
}

// fits fails when the page is wider than a narrow window.
func (b *browser) fits(what string) {
	b.t.Helper()
	b.look(360, 740, false)
	b.wait(what+" in a narrow window", `innerWidth === 360`)
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		b.t.Errorf("%s is %d pixels wide in a window of 360", what, wide)
	}
	b.look(1280, 800, false)
}

func testFirstAnswer(t *testing.T, s *service, b *browser) {
	script := axe(t)
	s.newDataset("first", false)
	b.open("/datasets/first")
	b.sees(".first-run .steps [aria-current=step]", "Add documents")
	b.checkAccess(script, "an empty dataset")
	b.fits("an empty dataset")
	// The command is the one that a terminal takes, and says what is chosen.
	b.run(evaluate(`(() => { const c = document.querySelector(".dropzone select"); c.value = "one"; c.dispatchEvent(new Event("change")); })()`))
	b.sees(".curl pre", `-F 'parser_config={"chunk_method":"one"}' -F file=@report.pdf `+s.base+"/v1/datasets/first/documents")
	b.press("Try a sample document")
	b.sees(".first-run .steps [aria-current=step]", "Ask")
	b.checkAccess(script, "the first question")
	b.press("Ask")
	b.sees("blockquote", "marked red and turned every day")
	b.sees("blockquote a", "The keeper's handbook (sample).md")
	b.checkAccess(script, "the first answer")
	b.fits("the first answer")
	var list api.List[sheaf.Document]
	s.get("/v1/datasets/first/documents", &list)
	if len(list.Items) != 1 || list.Items[0].ParseConfig.ChunkMethod.V != "one" || list.Items[0].Chunks != 1 {
		t.Errorf("the chosen method was not used: %+v", list.Items)
	}
	b.run(evaluate(`document.querySelector("blockquote a").click()`))
	b.sees(".chunk", "turned every day")
	// The next visit begins with the documents; another dataset with its own settings.
	b.open("/datasets/first")
	b.sees(".docs", "handbook")
	if eval[bool](b, `!!document.querySelector(".first-run")`) {
		t.Error("a dataset with documents begins as an empty one")
	}
	b.press("Upload options")
	b.sees(".zone .curl pre", "documents")
	b.checkAccess(script, "the options of uploads")
}

func testIssues(t *testing.T, s *service, b *browser) {
	script := axe(t)
	s.newDataset("troubles", false)
	s.add("troubles", text("good.txt", "All is well."), text("void-1.txt", " \n"), text("void-2.txt", "\n\n"), text("water.pdf", "%PDF-1.7\nwater got in"))
	b.open("/datasets/troubles")
	b.sees(".issues", "2 documents contain no text")
	b.sees(".issues", "1 document is damaged")
	if got := eval[string](b, `document.querySelector(".whole-bar").getAttribute("aria-label")`); got != "1 searchable, 3 failed" {
		t.Errorf("the bar says %q", got)
	}
	b.checkAccess(script, "issues")
	b.fits("issues")
	b.run(evaluate(`document.querySelector(".issues summary").click()`))
	b.sees(".issues details[open] a", "void-1.txt")
	b.press("Show 2")
	b.wait("the two alone", `document.querySelectorAll(".docs tr[data-id]").length === 2`)
	if at := eval[string](b, `location.search`); !strings.Contains(at, "issue=") || !strings.Contains(at, "state=failed") {
		t.Errorf("the address is %s", at)
	}
	// Its one cure is for the whole group, though only some of it need be known here.
	b.press("Delete 2…")
	b.sees("dialog .preview dd", "2 files")
	b.press("Delete all 2")
	b.sees(".toast", "2 documents will be deleted")
	b.wait("the group to be gone", `!document.querySelector(".issues")?.textContent.includes("contain no text") && !document.querySelector(".toast")`)
	var facets taskstore.Facets
	s.get("/v1/datasets/troubles/documents/facets", &facets)
	if facets.Documents != 2 || len(facets.Issues) != 1 || facets.Issues[0].Name != "water.pdf" {
		t.Errorf("what is left: %+v", facets)
	}

	// What another try may cure is tried again by the query, and nothing else.
	s.newDataset("stops-short", true)
	crash := func(name string) source { return text(name, trialPages(4, map[int]string{2: "CRASH " + name})) }
	torn := s.add("stops-short", crash("one.trial"), crash("two.trial"), text("sound.trial", trialPages(4, nil)))
	b.open("/datasets/stops-short")
	b.sees(".issues", "2 documents crashed the parser, partially")
	b.press("Retry 2…")
	b.sees("dialog h2", "Retry 2 documents")
	b.sees("dialog .preview dd", "ranges")
	b.press("Retry")
	for i, d := range torn {
		want := []int{2, 2, 1}[i]
		waitFor(t, d.Name+" to be retried or left", func() bool {
			var now sheaf.Document
			s.get("/v1/datasets/stops-short/documents/"+d.ID, &now)
			return now.Generation == want && now.State.Terminal()
		})
	}
	// Files of one password are opened together, in place.
	s.newDataset("vaults", false)
	one, other := enginetest.Encrypt(t, report(1, "Deed"), "wheat"), enginetest.Encrypt(t, report(2, "Will"), "wheat")
	s.add("vaults", text("deed.pdf", string(one)), text("will.pdf", string(other)))
	b.open("/datasets/vaults")
	b.sees(".issues", "2 documents are locked with a password")
	b.run(evaluate(`document.querySelector(".unlock input").focus()`))
	b.keys("wheat" + kb.Enter)
	b.wait("both to be read", `document.querySelector(".whole-bar").getAttribute("aria-label") === "2 searchable"`)
	b.wait("no issue to be left", `document.querySelector(".issue-box").hidden`)
}

func testFacetColumn(t *testing.T, s *service, b *browser) {
	script := axe(t)
	s.newDataset("shelf", false)
	s.add("shelf", text("one.md", "---\nlanguage: de\n---\n# Eins\n\nKorn."), text("two.md", "---\nlanguage: en\n---\n# Two\n\nCorn."))
	s.add("shelf", text("three.txt", "Three."), text("four.txt", "Four."), text("void.txt", " "))
	s.post("/v1/datasets/shelf/documents:tag", map[string]any{"tag": "Mill", "filter": map[string]any{"q": "THREE"}}, nil)
	labels := `[...document.querySelectorAll(".facet input")].map(i => i.getAttribute("aria-label")).join("; ")`
	counts := func(want string) {
		t.Helper()
		v, _ := json.Marshal(want)
		b.wait(want, fmt.Sprintf(`%s.includes(%s)`, labels, v))
	}
	b.open("/datasets/shelf")
	counts("State: Succeeded, 4; State: Failed, 1; Issue: Empty")
	counts("Format: Text, 3; Format: Markdown, 2; Tag: Mill, 1; Language: ")
	b.checkAccess(script, "the filters")
	b.facet("Format: Text")
	counts("State: Succeeded, 2; State: Failed, 1")
	counts("Format: Text, 3; Format: Markdown, 2; Tag: Mill, 1")
	b.facet("Tag: Mill")
	b.wait("one row", `document.querySelectorAll(".docs tr[data-id]").length === 1 && document.querySelector(".docs .tag").textContent === "Mill"`)
	b.sees(".found", "1 document of 5")
	if focus := eval[string](b, `document.activeElement.getAttribute("aria-label") || document.activeElement.localName`); !strings.HasPrefix(focus, "Tag: Mill") && focus != "body" {
		t.Errorf("the focus is on %s", focus)
	}
	// The address is the view: it can be kept under a name and opened again.
	b.press("Save this view")
	b.run(evaluate(`document.querySelector(".save-view input").focus()`))
	b.keys("Mill texts" + kb.Enter)
	b.sees(".saved a[aria-current]", "Mill texts")
	b.checkAccess(script, "a saved view")
	address := eval[string](b, `location.pathname + location.search`)
	b.open("/datasets/shelf")
	b.sees(".saved a", "Mill texts")
	b.press("Mill texts")
	b.wait("the view", fmt.Sprintf(`location.pathname + location.search === %q && document.querySelectorAll(".docs tr[data-id]").length === 1`, address))
	b.run(evaluate(`document.querySelector('[aria-label="Clear all filters"]').click()`))
	b.wait("all rows", `document.querySelectorAll(".docs tr[data-id]").length === 5 && location.search === ""`)
	// A narrow window shows the documents before the filters are asked for.
	b.look(360, 740, false)
	b.wait("no filters", `!document.querySelector(".facet-lists").checkVisibility()`)
	b.press("Filters")
	b.wait("the filters", `document.querySelector(".facet input").checkVisibility() && document.documentElement.scrollWidth <= 360`)
	b.checkAccess(script, "the filters in a narrow window")
	b.look(1280, 800, false)
}

func testWholeSelection(t *testing.T, s *service, b *browser) {
	ds := s.newDataset("bulk", false)
	s.post("/v1/datasets/bulk:pause", nil, nil)
	for _, kind := range []string{"wheat", "barley"} {
		job := sheaf.Job{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, DatasetID: ds.ID, Kind: sheaf.JobIngest}
		var docs []taskstore.NewDocument
		for i := range 700 {
			id := sheaf.NewID()
			docs = append(docs, taskstore.NewDocument{
				Document: sheaf.Document{ID: id, Name: fmt.Sprintf("%s %03d.txt", kind, i), MediaType: "text/plain", Size: 10, SHA256: strings.Repeat("0", 32) + id, BlobKey: sheaf.OriginalPrefix(sheaf.LocalTenant, id) + "v1"},
				Plan:     sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: json.RawMessage(`{}`)},
			})
		}
		if _, err := s.store.CreateDocuments(t.Context(), job, docs, ""); err != nil {
			t.Fatal(err)
		}
	}
	b.open("/datasets/bulk?q=wheat")
	b.sees(".found", "700 documents of 1,400")
	b.run(evaluate(`performance.clearResourceTimings(); document.querySelector('[aria-label="Select all"]').click()`))
	b.sees(".batch", "700 documents selected")
	if n := eval[int](b, `performance.getEntriesByType("resource").filter(e => e.name.includes("/documents?")).length`); n > 0 {
		t.Errorf("%d lists were read to select all", n)
	}
	b.press("Tag…")
	b.run(evaluate(`document.querySelector("dialog input").focus()`))
	b.keys("Mill")
	b.press("Tag")
	b.wait("the tag", `document.querySelector(".docs .tag")?.textContent === "Mill" && !document.querySelector("dialog")`)
	tagged := func() int {
		var f taskstore.Facets
		s.get("/v1/datasets/bulk/documents/facets?tag=Mill", &f)
		return f.Documents
	}
	if n := tagged(); n != 700 {
		t.Errorf("%d documents are tagged, want 700", n)
	}
	// All but one: what is not selected stays as it is.
	b.run(evaluate(`document.querySelector('[aria-label="Select all"]').click()`))
	b.sees(".batch", "700 documents selected")
	b.run(evaluate(`document.querySelector("tbody tr[data-id] input").click()`))
	b.sees(".batch", "699 documents selected")
	b.press("Cancel 699…")
	b.sees("dialog .preview dd", "of 699 documents")
	b.press("Cancel processing")
	waitFor(t, "699 to be canceled", func() bool {
		var f taskstore.Facets
		s.get("/v1/datasets/bulk/documents/facets?state=canceled", &f)
		return f.Documents == 699
	})
	b.wait("the dialog to be gone", `!document.querySelector("dialog")`)
	// All but one, while the list begins anew with more than a page of new documents.
	b.open("/datasets/bulk?q=wheat")
	b.sees(".found", "700 documents of 1,400")
	b.run(evaluate(`document.querySelector('[aria-label="Select all"]').click()`))
	b.sees(".batch", "700 documents selected")
	b.run(evaluate(`{
		const asks = window.fetch;
		window.fetch = async (url, ...rest) => {
			if (String(url).includes("cursor=")) await new Promise((go) => (window.readOn = go, window.fetch = asks));
			return asks(url, ...rest);
		};
		document.querySelector("tbody tr[data-id] input").click();
	}`))
	b.wait("the list to be read on", `!!window.readOn`)
	late := make([]source, 101)
	for i := range late {
		late[i] = text(fmt.Sprintf("wheat of the second day %03d.txt", i), fmt.Sprintf("Barn %d.", i))
	}
	if _, err := s.submitAnswer(t.Context(), "bulk", late, nil, ""); err != nil {
		t.Fatal(err)
	}
	b.sees(".docs", "wheat of the second day 100.txt")
	b.run(evaluate(`window.readOn()`))
	b.sees(".batch", "800 documents selected")
	s.post("/v1/datasets/bulk/documents:cancel", map[string]any{"all": true}, nil)
}

func testBackKeepsPlace(t *testing.T, s *service, b *browser) {
	b.open("/datasets/bulk?q=barley")
	b.sees(".found", "700")
	b.run(evaluate(`document.querySelector(".scroller").scrollTop = 44 * 300`))
	row := `[...document.querySelectorAll(".docs tr[data-id]")].find(r => r.textContent.includes("barley 395"))`
	b.wait("a row far down", row)
	b.run(evaluate(row + `.querySelector("input").click()`))
	b.sees(".batch", "1 document selected")
	top := eval[float64](b, `document.querySelector(".scroller").scrollTop`)
	b.run(evaluate(row + `.querySelector("a").focus()`))
	b.keys(kb.Enter)
	b.wait("the document", `document.querySelector("#view h1")?.textContent === "barley 395.txt"`)
	b.run(evaluate(`history.back()`))
	b.wait("the same place", fmt.Sprintf(`document.querySelector(".scroller")?.scrollTop === %v && %s`, top, row))
	b.sees(".batch", "1 document selected")
	b.wait("the focus on the document that was opened", `document.activeElement.closest("tr")?.textContent.includes("barley 395")`)
	// Who comes by another way begins at the top.
	b.run(evaluate(`document.querySelector('#nav a[data-view="jobs"]').click()`))
	b.sees("h1", "Jobs")
	b.press("Documents")
	b.wait("the top of the list", `document.querySelector(".docs tr[data-id]") && document.querySelector(".scroller").scrollTop === 0 && document.querySelector(".batch").hidden`)
}

func testPeek(t *testing.T, s *service, b *browser) {
	script := axe(t)
	s.newDataset("glance", false)
	s.add("glance", text("first.md", "# First\n\nThe barley stands in the third barn."), text("void.txt", " "))
	b.open("/datasets/glance")
	b.sees(".docs", "void.txt")
	b.keys("jp")
	b.sees(".peek h2", "void.txt")
	b.sees(".peek-issue", "contains no text")
	b.keys("j")
	b.sees(".peek h2", "first.md")
	b.sees(".peek-text", "third barn")
	b.checkAccess(script, "the preview")
	b.keys("p")
	b.wait("the preview to go", `!document.querySelector(".peek").checkVisibility()`)
}

func testDatasetSettings(t *testing.T, s *service, b *browser) {
	script := axe(t)
	s.newDataset("rules", false)
	doc := s.add("rules", text("long.md", "# Long\n\n"+strings.Repeat("The keeper turns each sheaf and writes down where it lay. ", 60)))[0]
	set := func(name, value string) {
		t.Helper()
		b.run(evaluate(fmt.Sprintf(`document.querySelector('.dataset-settings [name=%s]').value = %q`, name, value)))
	}
	b.open("/datasets/rules")
	b.press("Settings")
	b.sees(".setting", "from 16 to 8191")
	b.checkAccess(script, "the settings of a dataset")
	b.fits("the settings of a dataset")
	// Every setting of the API is there.
	for _, row := range settings.Names() {
		if !eval[bool](b, fmt.Sprintf(`!!document.querySelector('.dataset-settings [name="%s"]')`, row)) {
			t.Errorf("there is no field for %s", row)
		}
	}
	set("chunk_token_num", "5")
	b.press("Save")
	b.sees(".dataset-settings .trouble", "choose a number from 16 to 8191")
	b.wait("the focus on the field at fault", `document.activeElement.name === "chunk_token_num" && document.activeElement.getAttribute("aria-invalid") === "true"`)
	b.mu.Lock()
	b.faults = nil // the refusal is logged
	b.mu.Unlock()
	set("chunk_token_num", "64")
	set("pages", "1-3, 7")
	set("toc_extraction", "true")
	b.press("Save")
	b.sees(".dataset-settings [role=status]", "Saved")
	var ds sheaf.Dataset
	s.get("/v1/datasets/rules", &ds)
	if got, _ := json.Marshal(ds.ParseConfig); string(got) != `{"chunk_token_num":64,"toc_extraction":true,"pages":[[1,3],[7,7]]}` {
		t.Errorf("the settings are %s", got)
	}
	// A run of summaries that begins by itself, and by hand again.
	for _, begun := range []string{"Automatic, after documents are published", "Manual"} {
		b.run(evaluate(fmt.Sprintf(`for (const o of document.querySelector('.dataset-settings [name=raptor]').options) if (o.textContent === %q) o.selected = true`, begun)))
		b.press("Save")
		b.sees(".dataset-settings [role=status]", "Saved")
		waitFor(t, begun, func() bool {
			var now sheaf.Dataset
			s.get("/v1/datasets/rules", &now)
			on, _ := now.ParseConfig.Raptor.V["use_raptor"].(bool)
			return on == strings.HasPrefix(begun, "Automatic")
		})
	}
	// A field that is emptied takes its default again, and the others stay.
	set("pages", "")
	b.press("Save")
	b.sees(".dataset-settings [role=status]", "Saved")
	b.press("Reprocess the 1 existing document…")
	b.wait("the forecast", `document.querySelector("dialog[open] .preview dl")`)
	b.press("Reprocess")
	waitFor(t, "the document to be cut anew", func() bool {
		var now sheaf.Document
		s.get("/v1/datasets/rules/documents/"+doc.ID, &now)
		return now.LiveGeneration == 2 && now.Chunks > 5
	})
	b.wait("the documents", `location.pathname === "/datasets/rules"`)
}
