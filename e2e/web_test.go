package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/taskstore"
)

// TestPage drives the page in a real browser against the real service.
func TestPage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *service, b *browser)
	}{
		{"dropped files and folders become documents", testDrop},
		{"progress is live and survives a reload", testLive},
		{"a failed page says what to do and its retry heals it", testRetryPage},
		{"two versions are compared", testCompare},
		{"chosen documents are parsed again with other settings", testParseAgain},
		{"chosen documents are canceled", testCancelChosen},
		{"a job says what its cancel and its retry would do", testJobActions},
		{"jobs are filtered by name, kind and dataset", testJobList},
		{"a hit leads to its box", testSearchToBox},
		{"chunks are filtered by their labels and show them", testLabels},
		{"chunks are edited where they are read", testChunkEdits},
		{"documents are filtered, sorted and read from all sides", testSides},
		{"everything can be done with the keyboard", testKeyboard},
		{"a tenant is edited with the keyboard", testEditTenant},
		{"hostile names and contents are text", testHostile},
		{"ten thousand rows scroll", testManyRows},
		{"a view of work that does not end asks once a second", testPacedViews},
		{"a storm of events is drawn now and then", testStorm},
		{"axe finds nothing in any view", testAccess},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t, s.t = t, t
			c.run(t, s, b)
			b.noErrors()
		})
		b.t, s.t = t, t
	}
}

// newDataset makes a dataset; with trial its files are read by the trial format.
func (s *service) newDataset(name string, trial bool) *sheaf.Dataset {
	s.t.Helper()
	body := map[string]any{"name": name}
	if trial {
		body["parser_config"] = map[string]any{"media_type": trialMedia}
	}
	var d sheaf.Dataset
	s.post("/v1/datasets", body, &d)
	return &d
}

// add uploads into a dataset and waits for the end.
func (s *service) add(dataset string, files ...source) []sheaf.Document {
	s.t.Helper()
	answer, err := s.submitAnswer(s.t.Context(), dataset, files, nil, "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	return answer.Documents
}

// addWith is add with settings.
func (s *service) addWith(dataset, settings string, files ...source) []sheaf.Document {
	s.t.Helper()
	answer, err := s.submitAnswer(s.t.Context(), dataset, files, map[string]string{"parser_config": settings}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		s.t.Fatalf("the job ended %s", job.State)
	}
	return answer.Documents
}

func testDrop(t *testing.T, s *service, b *browser) {
	s.newDataset("drops", false)
	b.open("/datasets/drops")
	b.sees(".empty", "No documents yet")
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder", "inner")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, folder, "deep.md", []byte("# Deep\n\nA file in a folder in a folder.\n"))
	put(t, filepath.Dir(folder), "one.txt", []byte("The first file of the folder."))
	b.drop(filepath.Join(dir, "folder"), put(t, dir, "report.pdf", report(3, "Dropped report")), put(t, dir, "empty.bin", []byte{0, 1, 2, 3, 0xff}))
	b.sees("#uploads-title", "3 files uploaded, 1 refused")
	b.sees("#uploads-list .refused .note", "")
	for _, name := range []string{"deep.md", "one.txt", "report.pdf"} {
		b.wait(name+" to succeed", fmt.Sprintf(`[...document.querySelectorAll(".docs tr")].some(r => r.textContent.includes(%q) && r.textContent.includes("Succeeded"))`, name))
	}
	b.sees(".sum", "3 documents")
	b.press("Close")
	// The same bytes again are named as what they are.
	b.drop(put(t, dir, "again.txt", []byte("The first file of the folder.")))
	b.sees("#uploads-list .note", "same file")
	b.press("Close")
}

func testLive(t *testing.T, s *service, b *browser) {
	s.newDataset("live", true)
	special := map[int]string{}
	for i := 1; i <= 36; i++ {
		special[i] = fmt.Sprintf("SLOW subject%d", i)
	}
	b.open("/datasets/live")
	b.drop(put(t, t.TempDir(), "slow.trial", []byte(trialPages(36, special))))
	b.sees(".job-line", "Ingest of 1 document")
	b.wait("the document's row", `document.querySelector(".docs tr[data-id] a")`)
	id := eval[string](b, `document.querySelector(".docs tr[data-id]").dataset.id`)
	path := "/datasets/live/documents/" + id
	b.open(path)
	b.wait("a running range, told by its mark too", `document.querySelector(".progress-box .cell.run")?.textContent === "▸"`)
	// Every value of the bar is noted, before and after the reload.
	const watch = `new MutationObserver(() => { const p = document.querySelector(".progress-box progress"); const seen = JSON.parse(sessionStorage.seen || "[]"); if (p && p.value !== seen.at(-1)) sessionStorage.seen = JSON.stringify([...seen, p.value]); }).observe(document.body, {subtree: true, childList: true, attributes: true})`
	b.run(evaluate(watch))
	b.wait("some progress", `document.querySelector(".progress-box progress")?.value > 0.1`)
	b.run(chromedp.Reload(), chromedp.WaitVisible("#view h1"))
	b.run(evaluate(watch))
	b.sees(".head .badge", "Succeeded")
	if strip := eval[string](b, `document.querySelector(".progress-box .strip").getAttribute("aria-label")`); strip != "3 ranges: 3 done" {
		t.Errorf("the strip says %q", strip)
	}
	if marks := eval[string](b, `document.querySelector(".progress-box .strip").textContent`); marks != "✓✓✓" {
		t.Errorf("the strip's marks are %q", marks)
	}
	last := 0.0
	for _, v := range eval[[]float64](b, `JSON.parse(sessionStorage.seen || "[]")`) {
		if v < last {
			t.Errorf("progress fell from %v to %v", last, v)
		}
		last = v
	}
	// A stream that breaks and goes on brings every event once.
	const follow = `(async () => {
		const { follow } = await import("/js/live.js");
		const seen = [];
		let last = "0";
		for (const stopAt of [5, Infinity]) {
			const stop = new AbortController();
			await new Promise(done => follow(%q, { event(e) { seen.push(e.seq); last = String(e.seq); if (seen.length >= stopAt) { stop.abort(); done(); } }, end: done }, stop.signal, { after: last }));
			stop.abort();
		}
		return seen;
	})()`
	got := eval[[]int64](b, fmt.Sprintf(follow, "/v1"+path))
	var events api.Events
	s.get("/v1"+path+"/events?limit=3000", &events)
	var want []int64
	for _, e := range events.Items {
		want = append(want, e.Seq)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the stream brought %v, the log holds %v", got, want)
	}
	// Where no stream can be had the same log is polled.
	polled := eval[[]int64](b, fmt.Sprintf(`(async () => {
		delete window.EventSource;
		const { follow } = await import("/js/live.js");
		const seen = [];
		await new Promise(done => follow(%q, { event: e => seen.push(e.seq), end: done }, new AbortController().signal, { after: "0" }));
		return seen;
	})()`, "/v1"+path))
	if fmt.Sprint(polled) != fmt.Sprint(want) {
		t.Errorf("polling brought %v, the log holds %v", polled, want)
	}
	// The flight record holds what ran and nothing of what was read.
	record := b.flight("/v1" + path)
	var flight struct {
		Server        struct{ Version string }
		Tasks, Events []struct{ Kind string }
	}
	if err := json.Unmarshal([]byte(record), &flight); err != nil || flight.Server.Version == "" || len(flight.Tasks) < 5 || len(flight.Events) != len(want) {
		t.Errorf("flight record of %d tasks and %d events: %v", len(flight.Tasks), len(flight.Events), err)
	}
	for _, secret := range []string{"SLOW", "subject3", "slow.trial"} {
		if strings.Contains(record, secret) {
			t.Errorf("the flight record holds %q", secret)
		}
	}
}

// flight is the flight record of a document, as it is downloaded.
func (b *browser) flight(path string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`(async () => {
		const click = HTMLAnchorElement.prototype.click;
		HTMLAnchorElement.prototype.click = () => {}; // no file is wanted here
		const { diagnostics } = await import("/js/flight.js");
		const record = JSON.stringify(await diagnostics(%q, "d", new AbortController().signal));
		HTMLAnchorElement.prototype.click = click;
		return record;
	})()`, path))
}

func testRetryPage(t *testing.T, s *service, b *browser) {
	s.newDataset("repairs", true)
	healed, late := filepath.Join(t.TempDir(), "healed"), filepath.Join(t.TempDir(), "late")
	doc := s.add("repairs", text("torn.trial", trialPages(30, map[int]string{5: "FAIL " + healed + " subject5", 8: "FAIL " + late, 14: "FAIL " + late, 20: "CRASH"})))[0]
	b.open("/datasets/repairs")
	b.sees(".docs", "4 failed")
	b.open("/datasets/repairs/documents/" + doc.ID + "?tab=problems")
	b.sees(".problem h2", "the page is broken")
	b.sees(".problem", "If the file is damaged")
	b.sees(".problem code", "bad_page")
	b.sees(".problem code", "parser_crash")
	// Each card has the attempts with their worker and time, and what the parser wrote before it stopped.
	var executors api.List[taskstore.WorkerStatus]
	s.get("/v1/executors", &executors)
	b.wait("the attempts and the parser's last lines", fmt.Sprintf(`(() => {
		const p = [...document.querySelectorAll(".problem")].find(p => p.textContent.includes("parser_crash"));
		p.scrollIntoView();
		const tries = [...p.querySelectorAll('[aria-label^="Attempts"] tbody tr')];
		return tries.length === 1 && tries[0].querySelector("time") && tries[0].querySelector(".mono").textContent === %q && tries[0].textContent.includes("done, without page 20")
			&& p.querySelector(".last-lines pre")?.textContent === "the page made the parser crash";
	})()`, executors.Items[0].ID))
	b.wait("no last lines where the parser said the page is broken", `(() => { const p = document.querySelector(".problem"); p.scrollIntoView(); return p.querySelector("tbody tr") && !p.querySelector(".last-lines"); })()`)
	path := "/v1/datasets/repairs/documents/" + doc.ID
	if record := b.flight(path); !strings.Contains(record, "parser_crash") || strings.Contains(record, "made the parser crash") {
		t.Error("the flight record has no word on the crash, or quotes the parser")
	}
	b.press("Show page 5")
	b.sees(".page-note", "could not be read")
	if label := eval[string](b, `document.querySelector('.ledger [aria-current]').getAttribute("aria-label")`); label != "page 5, failed" {
		t.Errorf("the ledger's cell says %q", label)
	}
	if err := os.WriteFile(healed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.open("/datasets/repairs/documents/" + doc.ID + "?tab=problems")
	b.press("Retry just this") // of the first failure, which is page 5
	b.sees("dialog h2", "Retry page 5")
	b.seesTime()
	b.press("Retry")
	problems := func(want ...string) string {
		list, _ := json.Marshal(want)
		return fmt.Sprintf(`document.querySelector(".head .badge").textContent.includes("Partly") && JSON.stringify([...document.querySelectorAll(".problem h2")].map(h => h.textContent.split(":")[0])) === JSON.stringify(%s)`, list)
	}
	b.wait("the retry to heal page 5", problems("Page 8", "Page 14", "Page 20"))
	// What failed with the same code is tried again together, and nothing else.
	if err := os.WriteFile(late, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.press("Retry all 2 with this code")
	b.sees("dialog h2", "Retry what failed with bad_page")
	b.seesTime()
	b.press("Retry")
	b.wait("the retry to heal pages 8 and 14", problems("Page 20"))
	b.sees(".problem code", "parser_crash")
	// Its attempt was of the first version, which the later ones have it from.
	b.sees(".problem .history tbody", "done, without page 20")
	b.sees(".problem .last-lines", "the page made the parser crash")
	// All that failed of chosen documents is tried again from the list.
	b.open("/datasets/repairs")
	b.wait("the row", `document.querySelector("tbody input")`)
	b.run(evaluate(`document.querySelector("tbody input").click()`))
	b.press("Retry 1 failed…")
	b.seesTime()
	b.press("Retry")
	waitFor(t, "the list's retry to end", func() bool {
		var now sheaf.Document
		s.get(path, &now)
		return now.Generation == 4 && now.State == sheaf.DocPartiallySucceeded
	})
	// A cell of the page ledger leads to its page.
	b.open("/datasets/repairs/documents/" + doc.ID)
	b.wait("the ledger", `document.querySelectorAll(".ledger a").length === 30`)
	b.run(evaluate(`document.querySelectorAll(".ledger a")[19].click()`))
	b.wait("the page of the cell", `new URLSearchParams(location.search).get("page") === "20" && document.querySelector(".page-note")?.textContent.includes("could not be read")`)
	b.press("Versions")
	b.sees(".versions", "Version 3")
	b.sees(".versions", "failed: 4 → 3")
	b.sees(".versions", "failed: 3 → 1")
	// Times are the reader's, and UTC on hover.
	stamp := eval[[]string](b, `(() => { const t = document.querySelector(".versions time"); return [t.dateTime, t.title, t.textContent]; })()`)
	at, err := time.Parse(time.RFC3339, stamp[0])
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin") // where openBrowser puts the reader
	if err != nil {
		t.Fatal(err)
	}
	if stamp[1] != at.UTC().Format("2006-01-02 15:04:05")+" UTC" || !strings.Contains(stamp[2], at.In(berlin).Format("15:04")) {
		t.Errorf("%s is shown as %q, and %q on hover", stamp[0], stamp[2], stamp[1])
	}
}

func testCompare(t *testing.T, s *service, b *browser) {
	s.newDataset("drafts", false)
	id := sheaf.NewID()
	for _, grain := range []string{"barley", "wheat"} {
		body := "# One\n\nWhat stays as it is.\n\n# Two\n\nThe carts of " + grain + " are weighed twice.\n"
		if resp, b := s.request("PUT", "/v1/datasets/drafts/documents/"+id+"?name=draft.md&wait=30s", body, "Content-Type", "text/markdown"); resp.StatusCode != http.StatusAccepted {
			t.Fatalf("%s %s", resp.Status, b)
		}
	}
	b.open("/datasets/drafts/documents/" + id + "?tab=versions")
	b.press("Compare text with version 1")
	b.sees(".comparison h2", "Version 1 → version 2")
	b.sees(".comparison .chips [aria-current]", "1 different")
	if got := eval[string](b, `document.querySelector(".change.changed del").textContent.trim() + " to " + document.querySelector(".change.changed ins").textContent.trim()`); got != "barley to wheat" {
		t.Errorf("the words that differ are %q", got)
	}
	b.press("1 the same")
	b.sees(".change.same", "What stays")
	if where := eval[string](b, `location.search`); !strings.Contains(where, "show=same") {
		t.Errorf("the address of the comparison is %s", where)
	}
}

func testParseAgain(t *testing.T, s *service, b *browser) {
	s.newDataset("anew", false)
	docs := s.add("anew", text("a.md", "# One\n\nBarley.\n\n# Two\n\nWheat.\n"), text("b.md", "# Three\n\nRye.\n\n# Four\n\nOats.\n"))
	b.open("/datasets/anew")
	b.sees(".docs", "b.md")
	b.run(evaluate(`for (const box of document.querySelectorAll("tbody input")) box.click()`))
	b.sees(".batch", "2 documents selected")
	b.press("Reprocess…")
	b.sees("dialog[open] .preview", "2 of 2 ranges")
	b.run(evaluate(`(() => {
		for (const [name, value] of [["chunk_method", "one"], ["task_page_size", "40"]]) {
			const field = document.querySelector("dialog[open] [name=" + name + "]");
			field.value = value;
			field.dispatchEvent(new Event("input", { bubbles: true }));
		}
	})()`))
	b.sees("dialog[open] .preview", "Reusednothing")
	b.press("Reprocess")
	for _, d := range docs {
		waitFor(t, d.Name+" to be parsed again", func() bool {
			var now sheaf.Document
			s.get("/v1/datasets/anew/documents/"+d.ID, &now)
			return now.LiveGeneration == 2 && now.Chunks == 1 && now.ParseConfig.ChunkMethod.V == "one" && now.ParseConfig.TaskPageSize.V == 40
		})
	}

	// Back to what the dataset says, but for an overlap of none.
	s.request("PATCH", "/v1/datasets/anew", `{"parser_config":{"overlapped_percent":50}}`, "Content-Type", "application/json")
	b.open("/datasets/anew")
	b.sees(".docs", "b.md")
	b.run(evaluate(`for (const box of document.querySelectorAll("tbody input")) box.click()`))
	b.press("Reprocess…")
	b.sees("dialog[open] .preview", "ranges")
	b.run(evaluate(`(() => {
		document.querySelector("dialog[open] [name=back]").click();
		document.querySelector("dialog[open] [name=overlapped_percent]").value = "0";
	})()`))
	b.press("Reprocess")
	for _, d := range docs {
		waitFor(t, d.Name+" to be parsed by the dataset's settings", func() bool {
			var now sheaf.Document
			s.get("/v1/datasets/anew/documents/"+d.ID, &now)
			b, err := json.Marshal(now.ParseConfig)
			return err == nil && now.LiveGeneration == 3 && now.Chunks == 2 && string(b) == `{"overlapped_percent":0}`
		})
	}
}

func testCancelChosen(t *testing.T, s *service, b *browser) {
	s.newDataset("stops", true)
	special := map[int]string{}
	for i := 1; i <= 400; i++ {
		special[i] = fmt.Sprintf("SLOW subject%d", i)
	}
	answer, err := s.submitAnswer(t.Context(), "stops", []source{text("endless.trial", trialPages(400, special))}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.deleted = answer.Documents[0].ID
	b.mu.Unlock()
	// One task is canceled on the time line, and the others go on.
	path := "/v1/datasets/stops/documents/" + answer.Documents[0].ID
	b.open(strings.TrimPrefix(path, "/v1") + "?tab=timeline")
	const last = `document.querySelector('.waterfall [aria-label^="Cancel parse"][aria-label$="–400"]')`
	b.wait("the last range", last)
	b.checkAccess(axe(t), "a time line with tasks that can be canceled")
	b.run(evaluate(last + ".click()"))
	b.sees("dialog [role=status]", "It ") // waits, as a rule
	b.press("Cancel the task")
	b.wait("the canceled task", fmt.Sprintf(`!%s && [...document.querySelectorAll(".waterfall tr")].some(r => r.textContent.includes("–400") && r.textContent.includes("canceled"))`, last))
	var tasks api.List[sheaf.Task]
	s.get(path+"/tasks", &tasks)
	for _, task := range tasks.Items {
		if (task.State == sheaf.TaskCanceled) != (task.Range.To == 400) {
			t.Errorf("the %s task of %v is %s", task.Kind, task.Range, task.State)
		}
	}
	b.open("/datasets/stops")
	b.sees(".docs", "Running")
	b.run(evaluate(`document.querySelector("tbody input").click()`))
	b.sees(".batch", "1 document selected")
	b.press("Cancel 1…")
	b.sees("dialog .preview dd", "of 1 document")
	b.press("Cancel processing")
	b.sees(".docs .badge", "Canceled")
	b.facet("State: Canceled")
	b.sees(".docs", "endless.trial")
	b.run(chromedp.SendKeys(`[aria-label="Filter by name"]`, "none is called so"))
	b.sees(".empty", "No documents match the filters")
	// Deleting asks, and Escape is an answer.
	b.press("Show all")
	b.wait("the row", `document.querySelector("tbody input")`)
	b.run(evaluate(`document.querySelector("tbody input").click()`))
	b.press("Delete…")
	b.sees("dialog", "You can undo this for ten seconds")
	b.sees("dialog .preview dd", "1 version")
	b.keys(kb.Escape)
	b.wait("the question to go", `!document.querySelector("dialog")`)
	b.press("Delete…")
	b.press("Delete")
	b.sees(".toast", "1 document will be deleted")
	b.wait("the row that is to go", `document.querySelector("tr.leaving")`)
	b.checkAccess(axe(t), "a deletion that can be undone")
	b.press("Undo")
	b.wait("the row to stay", `!document.querySelector("tr.leaving, .toast") && document.querySelector("tr[data-id]")`)
	b.run(evaluate(`document.querySelector("tbody input").click()`))
	b.press("Delete…")
	b.press("Delete")
	b.sees(".toast", "1 document will be deleted")
	b.wait("the document to be gone", `!document.querySelector("tr[data-id]")`)
	var left api.List[sheaf.Document]
	if s.get("/v1/datasets/stops/documents", &left); len(left.Items) != 0 {
		t.Errorf("%d documents are left", len(left.Items))
	}
}

func testJobActions(t *testing.T, s *service, b *browser) {
	s.newDataset("runs", true)
	special := map[int]string{}
	for i := 1; i <= 400; i++ {
		special[i] = fmt.Sprintf("SLOW subject%d", i)
	}
	answer, err := s.submitAnswer(t.Context(), "runs", []source{text("long.trial", trialPages(400, special))}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	b.open("/jobs/" + answer.Job.ID)
	b.sees(".head .badge", "Running")
	b.press("Cancel…")
	b.sees("dialog .preview dd", "of 1 document")
	b.press("Cancel processing")
	b.sees(".head .badge", "Canceled")
	b.press("Retry what failed…")
	b.sees("dialog .preview dd", "over 400 pages")
	b.press("Cancel")
	// Of a job that has succeeded any stage can be repeated.
	docs := s.add("runs", text("short.trial", trialPages(30, nil)))
	b.open("/jobs/" + docs[0].JobID)
	b.press("Run again…")
	b.sees("dialog .preview dd", "3 of 3 ranges")
	b.run(chromedp.SetValue("dialog select", "stage:embed"), evaluate(`document.querySelector("dialog select").dispatchEvent(new Event("change"))`))
	b.sees("dialog .preview dd", "embeddings are recomputed")
	b.seesTime()
	b.press("Retry")
	b.wait("the page of the new job", fmt.Sprintf(`location.pathname.startsWith("/jobs/") && !location.pathname.endsWith(%q)`, docs[0].JobID))
	b.sees("h1", "Retry of 1 document")
	b.sees(".head .badge", "Succeeded")
	// The list tells jobs of one kind apart by their dataset.
	b.open("/jobs")
	b.wait("the jobs of this dataset", `[...document.querySelectorAll('[aria-label="Jobs"] tbody a[href="/datasets/runs"]')].length === 3`)
}

// testJobList narrows the list of jobs, by the API and not among the rows that
// are there, and finds what it shows in its address.
func testJobList(t *testing.T, s *service, b *browser) {
	s.newDataset("listed", false)
	// The two that are looked for are older than what the first page holds.
	s.add("listed", text("lighthouse.txt", "The lighthouse is white."))
	s.reparse("listed")
	s.add("listed", text("harbour plan.txt", "The harbour has two piers."))
	for i := range 52 {
		s.add("listed", text(fmt.Sprintf("note %d.txt", i), fmt.Sprintf("Note number %d.", i)))
	}
	rows := func(what string, names ...string) {
		t.Helper()
		want, _ := json.Marshal(names)
		b.wait(what, fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('[aria-label="Jobs"] tbody th')].map(e => e.textContent)) === JSON.stringify(%s)`, want))
	}
	b.open("/jobs?dataset=listed")
	b.wait("the first page", `document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 50`)
	b.press("Show older jobs")
	b.wait("all jobs of the dataset", `document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 55`)
	b.run(chromedp.SendKeys("[aria-label='Filter by name or file']", "HARBOUR"))
	rows("the job of the harbour", "Ingest of 1 documentharbour plan.txt")
	if at := eval[string](b, "location.search"); at != "?q=HARBOUR&dataset=listed" {
		t.Errorf("the address says %s", at)
	}
	b.open("/jobs" + eval[string](b, "location.search")) // loaded anew
	rows("the job of the harbour again", "Ingest of 1 documentharbour plan.txt")
	b.wait("a duration", `/^\d/.test(document.querySelector('[aria-label="Jobs"] tbody td[data-label=Duration]').textContent)`)
	b.press("Clear filters")
	b.wait("jobs of all datasets", `document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 50 && location.search === ""`)
	b.open("/jobs?dataset=listed&kind=reparse")
	b.wait("the job that read again alone", `(r => r.length === 1 && r[0].textContent.startsWith("Reprocessing of 1 document"))(document.querySelectorAll('[aria-label="Jobs"] tbody th'))`)
	// By its state: what failed is found behind all that did not.
	if _, err := s.submitAnswer(t.Context(), "listed", []source{text("wet.pdf", "%PDF-1.7\nwater got in")}, nil, ""); err != nil {
		t.Fatal(err)
	}
	b.open("/jobs?dataset=listed")
	b.run(evaluate(`(() => { const i = document.querySelector('[aria-label="State"]'); i.value = "failed"; i.dispatchEvent(new Event("change")); })()`))
	rows("the job that failed", "Ingest of 1 documentwet.pdf")
	if at := eval[string](b, "location.search"); at != "?state=failed&dataset=listed" {
		t.Errorf("the address says %s", at)
	}
	b.open("/jobs?dataset=listed&state=running")
	b.sees(".empty:not([hidden]) .empty-title", "No job matches")
	b.open("/jobs?dataset=listed&q=nowhere")
	b.sees(".empty:not([hidden]) .empty-title", "No job matches")
	// What is mistyped is refused in words, and shows no job of another question.
	for at, says := range map[string]string{"dataset=lsited": "lsited", "kind=reprase": "reprase", "state=faild": "faild"} {
		b.open("/jobs?" + at)
		b.sees("main .trouble", says)
		b.wait("no rows", `!document.querySelector('[aria-label="Jobs"] tbody tr') && ![...document.querySelectorAll(".empty")].some(e => e.checkVisibility())`)
		b.press("Clear filters")
		b.wait("all jobs", `document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 50 && !document.querySelector("main .trouble")`)
	}
	b.mu.Lock()
	b.faults = nil // the refusals are logged
	b.mu.Unlock()
}

func testSearchToBox(t *testing.T, s *service, b *browser) {
	s.newDataset("library", false)
	s.add("library", text("survey.pdf", string(report(6, "Barn survey"))), text("zebra.txt", "A zebra has stripes."))
	b.open("/datasets/library")
	b.run(chromedp.SendKeys("#q", "Barn survey part 5"+kb.Enter))
	b.sees(".hits mark", "Barn")
	b.sees(".hit .path", "What was measured")
	b.sees(".why-rank", "words (BM25)")
	b.sees(".why-rank", "meaning (vector)")
	b.wait("the thumbnail's box", `document.querySelector(".thumb rect")`)
	if where := eval[string](b, `location.pathname + location.search`); !strings.HasPrefix(where, "/search?") || !strings.Contains(where, "dataset=library") {
		t.Errorf("the address of the search is %s", where)
	}
	// Format, pages and one document narrow the hits, and are in the address.
	all := eval[string](b, `location.pathname + location.search`)
	hits := func(what, of string) {
		t.Helper()
		b.wait(what, fmt.Sprintf(`(() => { const h = [...document.querySelectorAll(".hit h2")].map(e => e.textContent); return !document.querySelector("section[aria-busy]") && h.length > 0 && h.every(x => %s); })()`, of))
	}
	b.open(all + "&type=text%2Fplain")
	hits("text alone", `x.startsWith("zebra.txt")`)
	b.open(all + "&from=5&to=5")
	hits("page 5 alone", `(m => m && +m[1] <= 5 && +(m[2] || m[1]) >= 5)(/^survey.pdf, pages? (\d+)(?:–(\d+))?/.exec(x))`)
	b.open(all + "&doc=" + eval[string](b, `document.querySelector(".hit h2 a").pathname.split("/").at(-1)`))
	hits("one document alone", `x.startsWith("survey.pdf")`)
	b.sees(".search-form", "Searching one document")
	b.open(all)
	hits("both documents", `/^(survey.pdf|zebra.txt)/.test(x)`)
	b.run(evaluate(`document.querySelector(".hit h2 a").click()`))
	b.wait("the page with the hit's box", `document.querySelector(".page img")?.naturalWidth && document.querySelector(".boxes rect.hit")`)
	// Boxes lie on the page, over its text.
	b.wait("boxes on the page", `(() => { const p = document.querySelector(".page").getBoundingClientRect(); return [...document.querySelectorAll(".boxes rect")].filter(r => { const x = r.getBoundingClientRect(); return x.left < p.left - 1 || x.right > p.right + 1 || x.top < p.top - 1 || x.bottom > p.bottom + 1 || x.height < 2; }).length === 0; })()`)
	b.wait("the focused chunk's boxes to be lit", `(() => { document.querySelectorAll(".chunk")[1].focus(); const id = document.activeElement.id.slice(2); return [...document.querySelectorAll("rect.on")].every(r => r.dataset.key === id) && document.querySelector("rect.on") !== null; })()`)
	b.run(evaluate(`document.querySelector(".boxes rect").dispatchEvent(new MouseEvent("click", {bubbles: true}))`))
	if !eval[bool](b, `document.activeElement.id === "c-" + document.querySelector(".boxes rect").dataset.key`) {
		t.Error("a click on a box does not lead to its chunk")
	}
	b.open("/datasets/library/documents/" + eval[string](b, `location.pathname.split("/").at(-1)`) + "?page=5")
	b.sees(".chunk table th", "Moisture")
}

func testLabels(t *testing.T, s *service, b *browser) {
	s.newDataset("labels", false)
	docs := s.addWith("labels", `{"auto_keywords": 2, "pii": "redact"}`,
		text("garten.txt", "Der Garten hinter dem Haus ist groß, und die alte Gartentür ist nicht mehr zu schließen. Der Gärtner kommt nach dem Winter wieder."),
		text("garden.txt", "The garden behind the house is large, and the old garden gate does not close any more. Write to ada@example.org, der Garten has a gardener."))
	s.addWith("labels", `{"chunk_method": "tag"}`, text("tags.csv", "content,tags\nThe gate of the garden is broken,\"Repair, Urgent\"\n"))
	b.open("/search?dataset=labels&q=garten+garden")
	b.wait("three hits", `document.querySelectorAll(".hit").length === 3`)
	choose := func(name, value string) {
		b.run(evaluate(fmt.Sprintf(`(() => { const i = document.querySelector(".search-form [name=%s]"); i.value = %q; i.dispatchEvent(new Event("change")); i.form.requestSubmit(); })()`, name, value)))
	}
	only := func(name string) {
		t.Helper()
		b.wait("only "+name, fmt.Sprintf(`document.querySelectorAll(".hit").length === 1 && document.querySelector(".hit h2").textContent.includes(%q)`, name))
	}
	choose("language", "de")
	only("garten.txt")
	b.sees(".hit .labels", "German")
	if where := eval[string](b, `location.search`); !strings.Contains(where, "language=de") {
		t.Errorf("the address of the search is %s", where)
	}
	choose("language", "")
	b.wait("three hits", `document.querySelectorAll(".hit").length === 3`)
	choose("tag", "urgent")
	only("tags.csv")
	b.sees(".hit .labels", "Repair, Urgent")
	var list struct{ Items []sheaf.Chunk }
	s.get("/v1/datasets/labels/documents/"+docs[1].ID+"/chunks", &list)
	keyword := list.Items[0].Keywords[0]
	choose("tag", "")
	b.wait("three hits", `document.querySelectorAll(".hit").length === 3`)
	choose("keyword", strings.ToUpper(keyword))
	only("garden.txt")
	b.run(evaluate(`document.querySelector(".hit h2 a").click()`))
	b.sees(".chunk .labels", keyword)
	b.sees(".chunk .labels", "replaced: email")
}

// facet turns a filter of the list of documents on or off; its label begins so.
func (b *browser) facet(label string) {
	b.t.Helper()
	v, _ := json.Marshal(label + ",")
	find := fmt.Sprintf(`[...document.querySelectorAll(".facet input")].find(i => i.getAttribute("aria-label").startsWith(%s))`, v)
	b.wait("the filter "+label, find)
	b.run(evaluate(find + ".click()"))
}

func testSides(t *testing.T, s *service, b *browser) {
	// Filters narrow each other, and are in the address.
	shown := func(names ...string) string {
		list, _ := json.Marshal(names)
		return fmt.Sprintf(`JSON.stringify([...document.querySelectorAll(".docs tr[data-id] a")].map(a => a.textContent)) === JSON.stringify(%s)`, list)
	}
	b.open("/datasets/library")
	b.wait("both documents", shown("zebra.txt", "survey.pdf"))
	b.run(evaluate(`document.querySelector('[data-sort="size"]').click()`))
	b.wait("the smaller first", shown("zebra.txt", "survey.pdf"))
	b.run(evaluate(`document.querySelector('[data-sort="size"]').click()`))
	b.wait("the larger first", shown("survey.pdf", "zebra.txt"))
	b.facet("Format: PDF")
	b.wait("the PDF alone", shown("survey.pdf"))
	b.facet("State: Succeeded")
	b.wait("the PDF alone", shown("survey.pdf"))
	// What is chosen elsewhere narrows the counts, and a list is not narrowed by itself.
	b.wait("the counts", `[...document.querySelectorAll(".facet input")].map(i => i.getAttribute("aria-label")).join("; ").startsWith("State: Succeeded, 1; Format: PDF, 1; Format: Text, 1")`)
	address := eval[string](b, `location.pathname + location.search`)
	for _, part := range []string{"type=application", "state=succeeded", "sort=-size"} {
		if !strings.Contains(address, part) {
			t.Errorf("the address %s has no %s", address, part)
		}
	}
	b.open(address)
	b.wait("the PDF alone", shown("survey.pdf"))
	document := eval[string](b, `new URL(document.querySelector(".docs tr[data-id] a").href).pathname`)
	// The mouse over a chunk lights its boxes.
	b.open(document + "?page=5")
	b.wait("the boxes", `document.querySelector(".page img")?.naturalWidth && document.querySelector(".boxes rect")`)
	place := eval[[]float64](b, `(() => { const c = document.querySelector(".chunk"); c.scrollIntoView({block: "center"}); const r = c.getBoundingClientRect(); return [r.x + r.width / 2, Math.max(r.y, c.closest(".chunk-column").getBoundingClientRect().y, 70) + 12]; })()`)
	b.run(chromedp.MouseEvent(input.MouseMoved, place[0], place[1]))
	b.wait("the lit boxes", `(() => { const id = document.querySelector(".chunk").id.slice(2), on = [...document.querySelectorAll("rect.on")]; return on.length && on.every(r => r.dataset.key === id); })()`)
	// The original and the Parquet files are what they are called.
	const follow = `(async () => {
		let href = "";
		const click = HTMLAnchorElement.prototype.click;
		HTMLAnchorElement.prototype.click = function () { href = this.href; };
		[...document.querySelectorAll("button")].find(%s).click();
		HTMLAnchorElement.prototype.click = click;
		return new TextDecoder("latin1").decode((await (await fetch(href)).arrayBuffer()).slice(0, 4));
	})()`
	if got := eval[string](b, fmt.Sprintf(follow, `b => b.textContent === "Original"`)); got != "%PDF" {
		t.Errorf("the original begins with %q", got)
	}
	b.press("Settings")
	b.sees(".settings dt", "Max tokens per chunk")
	b.sees(".settings dd", "512")
	b.wait("the Parquet files", `document.querySelector(".files button")`)
	if got := eval[string](b, fmt.Sprintf(follow, `b => b.matches(".files button")`)); got != "PAR1" {
		t.Errorf("the Parquet file begins with %q", got)
	}
	// All stages of each task are on the time line, on their executor.
	b.press("Timeline")
	for _, stage := range []string{"queue wait", "fetch", "parse", "chunk", "embed", "index"} {
		b.sees(".waterfall .legend", stage)
	}
	b.sees(".waterfall tbody tr", "parse page 1–6")
	var executors api.List[taskstore.WorkerStatus]
	s.get("/v1/executors", &executors)
	if len(executors.Items) != 1 || eval[bool](b, fmt.Sprintf(`![...document.querySelectorAll(".waterfall tbody tr")].every(r => r.querySelector(".mono [title]")?.title === %q)`, executors.Items[0].ID)) {
		t.Errorf("not every task names its executor, of %d", len(executors.Items))
	}
	b.run(evaluate(`[...document.querySelectorAll(".pane label")].find(l => l.textContent.includes("Slowest first")).click()`))
	b.wait("the slowest first", `(() => { const ms = [...document.querySelectorAll(".waterfall tbody tr td.num")].map(c => { const [n, u] = c.textContent.split(" "); return n * {ms: 1, s: 1000, min: 60000}[u]; }); return ms.length > 1 && ms.every((n, i) => !i || n <= ms[i - 1]); })()`)
	// Its scale has round times, a handful of them.
	spans := []int64{1, 434, 5999, 90_000, 3_600_000, 864_000_000}
	for i, marks := range eval[[][]int64](b, fmt.Sprintf(`import("/js/waterfall.js").then(m => %s.map(m.ticks))`, strings.ReplaceAll(fmt.Sprint(spans), " ", ", "))) {
		if n := len(marks); n < 2 || n > 6 || marks[0] != 0 || marks[n-1] > spans[i] || marks[1]%time.Hour.Milliseconds() != 0 && strings.Trim(strings.TrimLeft(fmt.Sprint(marks[1]), "1256"), "0") != "" {
			t.Errorf("the scale of %d ms has %v", spans[i], marks)
		}
	}
	// The flight record comes as a file.
	id := document[strings.LastIndexByte(document, '/')+1:]
	saved := eval[string](b, `(async () => {
		let saved = "";
		const click = HTMLAnchorElement.prototype.click;
		HTMLAnchorElement.prototype.click = function () { saved = this.download + " " + this.protocol; };
		[...document.querySelectorAll("button")].find(b => b.textContent === "Download diagnostics").click();
		for (let i = 0; i < 600 && !saved; i++) await new Promise(r => setTimeout(r, 100));
		HTMLAnchorElement.prototype.click = click;
		return saved;
	})()`)
	if want := "sheaf-diagnostics-" + id + ".json blob:"; saved != want {
		t.Errorf("the flight record is saved as %q, want %q", saved, want)
	}
	// Operations: what waits, who works, how fast, and what it stands on.
	b.open("/operations")
	b.sees(".deps li.ok", "index")
	b.wait("the lanes of the queue", `["Interactive", "Normal", "Backfill", "Running", "Cap", "Weight"].every(h => document.querySelector('[aria-label="Queue"] thead')?.textContent.includes(h))`)
	b.wait("an executor with its memory", `/\d (MB|GB)/.test([...document.querySelectorAll("h2")].find(h => h.textContent === "Executors")?.nextElementSibling.textContent)`)
	// What is drawn anew while it is looked at keeps the keyboard's focus.
	b.run(evaluate(`window.was = document.querySelector('[role=region][aria-label="Executors"]'); was.focus()`))
	b.wait("the focus on the executors drawn anew", `(() => { const now = document.querySelector('[role=region][aria-label="Executors"]'); return now !== was && document.activeElement === now; })()`)
	charts := func() {
		t.Helper()
		for _, chart := range []string{"Throughput", "Tasks", "Stage times"} {
			b.wait("the chart of "+chart, fmt.Sprintf(`[...document.querySelectorAll(".chart")].some(c => c.textContent.includes(%q) && c.querySelector("rect"))`, chart))
		}
	}
	charts()
	// A day and a month back: in the address, and each bar by its date.
	for span, bars := range map[string]string{"Day": "?span=day", "Month": "?span=month"} {
		b.press(span)
		b.wait("the charts of a "+span, fmt.Sprintf(`document.querySelector('[data-span=%s]').getAttribute("aria-pressed") === "true" && document.querySelector(".charts").textContent.includes("Stage times, last hour")`, strings.ToLower(span)))
		charts()
		if at := eval[string](b, `location.search`); at != bars {
			t.Errorf("the address of a %s says %q", span, at)
		}
	}
	b.open("/operations?span=month")
	b.wait("a month, by the address", `document.querySelector('[data-span=month]').getAttribute("aria-pressed") === "true"`)
	charts()
	b.press("Hour")
	b.wait("an hour", `!location.search && !document.querySelector(".charts").textContent.includes("last hour")`)
	b.open("/operations?span=year")
	b.sees(".trouble", "Use hour, day or month")
	charts()
}

func testEditTenant(t *testing.T, s *service, b *browser) {
	store := s.store
	was, err := store.CreateTenant(t.Context(), sheaf.Tenant{ID: "acme", Name: "Acme", Weight: 2, Cap: 4, Quota: sheaf.Quota{Documents: 100}})
	if err != nil {
		t.Fatal(err)
	}
	const edit, named = `document.querySelector('[aria-label="Edit tenant acme"]')`, `document.activeElement.name`
	row := func(cap, weight int, paused bool) string {
		return fmt.Sprintf(`(() => { const c = n => tr.querySelector('[data-label="' + n + '"]').textContent, tr = %s?.closest("tr"); return tr && c("Cap") === "%d" && c("Weight") === "%d" && tr.textContent.includes("Paused") === %v; })()`, edit, cap, weight, paused)
	}
	b.open("/operations")
	b.wait("the tenant", row(4, 2, false))
	b.run(evaluate(edit + `.focus()`))
	b.keys(kb.Enter)
	b.sees("dialog h2", "Edit tenant acme")
	script := axe(t)
	b.checkAccess(script, "the form of a tenant")
	for range 20 { // from field to field, each with its content chosen
		b.keys(kb.Tab)
		if eval[string](b, named) == "weight" {
			break
		}
	}
	b.keys("5" + kb.Tab + "9")
	if at := eval[string](b, named); at != "cap" {
		t.Fatalf("after the weight comes %q", at)
	}
	b.keys(kb.Tab + kb.Tab + "12345" + kb.Tab + kb.Tab + " ")
	b.keys(kb.Enter)
	b.wait("the changed tenant", row(9, 5, true))
	b.wait("the dialog to be gone", `!document.querySelector("dialog")`)
	b.wait("the focus where it was", `document.activeElement === `+edit)
	want := *was
	want.Weight, want.Cap, want.Paused, want.Quota.Bytes = 5, 9, true, 12345
	if now, err := store.Tenant(t.Context(), "acme"); err != nil || *now != want {
		t.Errorf("the store has %+v, want %+v: %v", now, want, err)
	}
	// Nothing is sent that was not changed: another's change stays.
	b.keys(kb.Enter)
	b.sees("dialog h2", "Edit tenant acme")
	if _, err := store.ChangeTenant(t.Context(), "acme", taskstore.TenantChange{Weight: new(7)}); err != nil {
		t.Fatal(err)
	}
	b.run(evaluate(`document.querySelector("dialog [name=paused]").click()`))
	b.press("Save")
	b.wait("the tenant that goes on", row(9, 7, false))
	// Without keys everybody may do this, and the page says how to change that.
	b.press("Tenants and keys")
	b.sees("#view h1", "Tenants")
	b.sees(".page-note", "SHEAF_SERVER_AUTH=true")
	b.checkAccess(script, "the tenants of a server without keys")
}

func testKeyboard(t *testing.T, s *service, b *browser) {
	focused := `(document.activeElement.textContent.trim() || document.activeElement.id).slice(0, 60)`
	b.open("/datasets/library")
	b.wait("the rows", `document.querySelectorAll(".docs tr[data-id]").length === 2`)
	b.keys(kb.Tab)
	if got := eval[string](b, focused); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	// Every stop is visible and has a name.
	var stops []string
	for range 40 {
		b.keys(kb.Tab)
		stop := eval[[]string](b, `(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect(); return [e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent.trim(), s.outlineStyle, String(r.width > 0 && r.height > 0)]; })()`)
		if stop[0] == "" || stop[1] == "none" || stop[2] != "true" {
			t.Errorf("a stop has no name, no outline or no place: %q", stop)
		}
		stops = append(stops, stop[0])
		if stop[0] == "survey.pdf" {
			break
		}
	}
	if stops[len(stops)-1] != "survey.pdf" {
		t.Fatalf("the first document was not reached by Tab: %q", stops)
	}
	b.keys(kb.ArrowUp)
	if got := eval[string](b, focused); got != "zebra.txt" {
		t.Errorf("the arrow leads to %q", got)
	}
	b.run(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(8)), chromedp.KeyEvent(" "))
	b.sees(".batch", "1 document selected")
	b.keys(kb.Escape)
	b.wait("an empty selection", `document.querySelector(".batch").hidden`)
	b.keys("/")
	b.keys("zebra stripes" + kb.Enter)
	b.sees(".hits", "zebra.txt")
	if got := eval[string](b, `document.activeElement.tagName`); got != "H1" {
		t.Errorf("after going on the focus is on %s", got)
	}
	for range 20 {
		b.keys(kb.Tab)
		if eval[bool](b, `document.activeElement.matches(".hit h2 a")`) {
			break
		}
	}
	b.keys(kb.Enter)
	b.sees(".chunk", "zebra has stripes")
	b.run(chromedp.NavigateBack())
	b.sees(".hits", "zebra.txt")
}

func testHostile(t *testing.T, s *service, b *browser) {
	s.newDataset("hostile", false)
	names := []string{
		`<img src=x onerror=window.pwned=1>.txt`, `"><svg onload=window.pwned=1>.txt`, "abc\u202etxt.exe\u2066.txt", "javascript:window.pwned=1.txt",
		strings.Repeat("long name ", 400) + ".txt", "`${window.pwned=1}`.txt",
	}
	const content = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1> </mark><b>hostile harvest</b> &lt;mark&gt; | a | b |"
	var id string
	for _, n := range names {
		var answer api.SubmitAnswer
		resp, err := s.do(t.Context(), http.MethodPost, "/v1/datasets/hostile/documents?wait=30s&name="+url.QueryEscape(n), strings.NewReader(content+n[:5]), "text/plain")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil || len(answer.Documents) != 1 {
			t.Fatalf("%.40q was not taken: %v", n, err)
		}
		id = answer.Documents[0].ID
	}
	b.open("/datasets/hostile")
	b.wait("all rows", fmt.Sprintf(`document.querySelectorAll(".docs tr[data-id]").length === %d`, len(names)))
	for _, n := range names[:4] {
		v, _ := json.Marshal(n)
		b.wait("the name as text in a bdi", fmt.Sprintf(`[...document.querySelectorAll(".docs .c-name a")].some(a => a.textContent === %s && [...a.querySelectorAll("*")].every(e => e.localName === "bdi" && e.children.length === 0))`, v))
	}
	if eval[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("a long name makes the page wider than the window")
	}
	for _, path := range []string{"/search?q=hostile+harvest&dataset=hostile", "/datasets/hostile/documents/" + id, "/jobs"} {
		b.open(path)
		b.wait("the view", `document.querySelector(".hit, .chunk, .plain")`)
		if bad := eval[int](b, `document.querySelectorAll("#view script, #view img[src='x'], #view b:not(.count)").length`); bad > 0 {
			t.Errorf("%s holds %d elements of the document's making", path, bad)
		}
	}
	b.open("/search?q=hostile+harvest&dataset=hostile")
	b.sees(".hits mark", "hostile")
	b.sees(".hits .prose", "<script>window.pwned=1</script>")
	if eval[bool](b, `"pwned" in window`) {
		t.Error("a name or content ran as a script")
	}
}

func testManyRows(t *testing.T, s *service, b *browser) {
	const rows = 10_000
	ds := s.newDataset("many", false)
	s.post("/v1/datasets/many:pause", nil, nil) // nothing of it runs
	for from := 0; from < rows; from += 1000 {
		job := sheaf.Job{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, DatasetID: ds.ID, Kind: sheaf.JobIngest}
		var docs []taskstore.NewDocument
		for i := from; i < from+1000; i++ {
			id := sheaf.NewID()
			docs = append(docs, taskstore.NewDocument{
				Document: sheaf.Document{ID: id, Name: fmt.Sprintf("document %05d.pdf", i), MediaType: "application/pdf", Size: int64(1000 + i), SHA256: strings.Repeat("0", 32) + id, BlobKey: sheaf.OriginalPrefix(sheaf.LocalTenant, id) + "v1"},
				Plan:     sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: json.RawMessage(`{}`)},
			})
		}
		if _, err := s.store.CreateDocuments(t.Context(), job, docs, ""); err != nil {
			t.Fatal(err)
		}
	}
	b.run(chromedp.Navigate("about:blank"), network.ClearBrowserCache())
	b.open("/datasets/many")
	b.sees(".docs", "document 09999.pdf")
	size := eval[int](b, `performance.getEntries().filter(e => e.transferSize && e.startTime < performance.now()).reduce((n, e) => n + e.transferSize, 0)`)
	// How fast it comes is measured by bench, in page.first.
	if size > 200_000 || size < 10_000 {
		t.Errorf("the first view takes %d bytes", size)
	}
	b.sees(".sum", "10,000 documents")
	// The newest stand on top, in the order of the API, before and after the page follows what happens.
	const newest = `(() => { const names = [...document.querySelectorAll(".docs tr[data-id] a.cut")].map(a => a.textContent); return names.length > 9 && names.every((n, i) => n === "document " + String(9999 - i).padStart(5, "0") + ".pdf"); })()`
	b.wait("the newest on top", newest)
	b.wait("the page to catch up", `document.querySelector("#line").dataset.state === "live" && performance.getEntriesByType("resource").some(e => e.name.includes("limit=100") && e.responseEnd)`)
	b.wait("the newest on top, with the stream open", newest)
	// All the way down, a screen at a time: the table never holds many rows.
	most := eval[int](b, `(async () => {
		const s = document.querySelector(".scroller");
		let most = 0;
		for (let y = 0; y < s.scrollHeight; y += s.scrollHeight / 60) {
			s.scrollTop = y;
			await new Promise(requestAnimationFrame);
			await new Promise(requestAnimationFrame);
			most = Math.max(most, document.querySelectorAll(".docs tbody tr").length);
		}
		s.scrollTop = s.scrollHeight;
		return most;
	})()`)
	if most > 120 {
		t.Errorf("the table held %d rows at once", most)
	}
	b.sees(".docs", "document 00000.pdf")
	if got := eval[string](b, `document.querySelector(".docs").getAttribute("aria-rowcount")`); got != "10001" {
		t.Errorf("the table says it has %s rows", got)
	}
	b.run(evaluate(`document.querySelector('[data-sort="name"]').click()`))
	b.wait("the order by name", `document.querySelector(".docs tr[data-id] a")?.textContent === "document 00000.pdf"`)
	b.run(chromedp.SendKeys(`[aria-label="Filter by name"]`, "01234"))
	b.wait("the filtered row", `document.querySelectorAll(".docs tr[data-id]").length === 1 && document.querySelector(".docs tr[data-id]").textContent.includes("document 01234.pdf")`)
	b.run(evaluate(`document.querySelector('[aria-label="Select all"]').click()`))
	b.sees(".batch", "1 document selected")
	// All rows, and all between two clicks, are chosen at once.
	b.open("/datasets/many")
	b.wait("the rows", `document.querySelectorAll("tbody tr[data-id]").length > 10`)
	b.run(evaluate(`(() => { const at = n => document.querySelectorAll("tbody tr[data-id] input")[n]; at(2).click(); at(8).dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: true })); })()`))
	b.sees(".batch", "7 documents selected")
	b.run(evaluate(`document.querySelector('[aria-label="Select all"]').click()`))
	b.sees(".batch", "10,000 documents selected")
}

func testAccess(t *testing.T, s *service, b *browser) {
	script := axe(t)
	doc := func(dataset string) string {
		var list api.List[sheaf.Document]
		s.get("/v1/datasets/"+dataset+"/documents?limit=1&order=oldest", &list)
		return "/datasets/" + dataset + "/documents/" + list.Items[0].ID
	}
	var jobs, whole api.List[sheaf.Job]
	s.get("/v1/jobs?dataset=repairs", &jobs)
	s.get("/v1/jobs?dataset=library", &whole)
	s.post("/v1/datasets/library/queries", map[string]any{"question": "where is the barn", "expected": []any{map[string]any{"text": "a barn that no passage names"}}}, nil)
	s.post("/v1/datasets/library/evaluations", map[string]any{}, nil)
	views := []struct{ path, ready string }{
		{"/datasets/library/evaluations", "section:nth-of-type(2) li"}, {"/datasets/library", ".docs tr[data-id]"}, {"/datasets/stops", ".empty"}, {"/datasets/many", ".docs tr[data-id]"}, {"/datasets", ".plain"}, {doc("library") + "?page=5", ".chunk"}, {doc("repairs") + "?tab=problems", ".problem .history tbody"},
		{doc("repairs") + "?tab=timeline", ".waterfall table"}, {doc("repairs") + "?tab=versions", ".versions"}, {doc("drafts") + "?tab=versions&from=1&to=2", ".change"}, {doc("library") + "?tab=settings", ".settings"},
		{"/jobs", ".plain"}, {"/jobs/" + jobs.Items[0].ID, ".waterfall table"}, {"/search?q=barn&dataset=library", ".hit"}, {"/operations", ".chart"}, {"/nothing/here", "h1"},
		{"/search?q=barn&dataset=library&compare=1&b_mode=text", ".compare .hit"}, {"/search?q=where+is+the+barn&dataset=library", ".expected-panel .badge"}, {"/search?dataset=library", ".saved-queries table"},
		{"/datasets/library/runs", "#view .empty, #view table"}, {"/datasets/library/graph", "#view .empty, .graph-point"}, {"/datasets/library/mindmap", "#view .empty"}, {"/flows", "[aria-label=Flows] th"}, {"/flows/standard", ".dag-node"}, {doc("library") + "?tab=run", ".dag-node, #view .empty"},
	}
	for _, dark := range []bool{false, true} {
		b.look(1280, 800, dark)
		for _, v := range views {
			b.open(v.path)
			b.wait(v.path, fmt.Sprintf("document.querySelector(%q)", v.ready))
			b.checkAccess(script, fmt.Sprintf("%s dark=%v", v.path, dark))
			if n := eval[int](b, `document.getAnimations().filter(a => a.playState === "running").length`); n > 0 {
				t.Errorf("%s: %d animations run where motion is to be reduced", v.path, n)
			}
		}
		// What is asked before something is done.
		for _, d := range []struct{ path, ready, button string }{
			{"/datasets/repairs", ".docs tr[data-id]", "Retry 1 failed…"},
			{"/datasets/many", ".docs tr[data-id]", "Cancel 1…"},
			{"/datasets/library", ".docs tr[data-id]", "Reprocess…"},
			{"/datasets/library", ".docs tr[data-id]", "Delete…"},
			{"/jobs/" + whole.Items[0].ID, ".waterfall table", "Run again…"},
		} {
			b.open(d.path)
			b.wait(d.path, fmt.Sprintf("document.querySelector(%q)", d.ready))
			if strings.HasPrefix(d.path, "/datasets") {
				b.run(evaluate(`document.querySelector("tbody tr[data-id] input").click()`))
			}
			b.press(d.button)
			b.wait("the forecast of "+d.button, `document.querySelector("dialog[open] .preview dl")`)
			b.checkAccess(script, fmt.Sprintf("%s of %s dark=%v", d.button, d.path, dark))
			b.press("Cancel")
		}
	}
	b.look(360, 740, false)
	for _, v := range views {
		b.open(v.path)
		b.wait(v.path, fmt.Sprintf("document.querySelector(%q)", v.ready))
		if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
			t.Errorf("%s is %d pixels wide in a window of 360", v.path, wide)
		}
		if wide := eval[[]string](b, `[...document.querySelectorAll(".scroll-x")].filter(e => e.scrollWidth > e.clientWidth && !e.querySelector("table.content")).map(e => e.getAttribute("aria-label") || e.className)`); len(wide) > 0 {
			t.Errorf("%s: %q must be scrolled sideways in a window of 360", v.path, wide)
		}
	}
	// A narrow window shows hits before the filters are asked for.
	b.open("/search?q=barn&dataset=library")
	b.wait("the first hit in sight", `document.querySelector(".hit")?.getBoundingClientRect().top < innerHeight`)
	b.press("Filters (1 set)")
	b.wait("the filters", `document.querySelector(".search-filters select").checkVisibility() && document.querySelector(".filter-toggle").getAttribute("aria-expanded") === "true"`)
	b.checkAccess(script, "the open filters")
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("the open filters are %d pixels wide in a window of 360", wide)
	}
	// However long a question is, what answers it is in sight.
	b.open("/datasets/library")
	b.wait("the rows", `document.querySelector(".docs tr[data-id]")`)
	b.run(evaluate(`document.querySelector("tbody tr[data-id] input").click()`))
	b.press("Reprocess…")
	b.wait("the forecast", `document.querySelector("dialog[open] .preview dl")`)
	if !eval[bool](b, `(() => { const d = document.querySelector("dialog[open]"), a = d.querySelector(".actions").getBoundingClientRect(); return d.scrollHeight > d.clientHeight && a.bottom <= innerHeight && a.bottom <= d.getBoundingClientRect().bottom; })()`) {
		t.Error("the buttons of a long question are out of sight in a window of 360")
	}
	b.press("Cancel")
	b.look(1280, 800, false)
}

// With keys turned on the page asks for one and then works without EventSource.
func TestPageWithKey(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	const secret = "a key for the page"
	err := s.store.CreateKey(t.Context(), sheaf.Key{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, Name: "page", Scopes: []string{"write"}}, api.HashKey(secret))
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, s)
	b.run(chromedp.Navigate(b.base+"/datasets/default"), chromedp.WaitVisible("dialog input"))
	b.run(chromedp.SendKeys("dialog input", "wrong"+kb.Enter))
	b.sees("dialog .trouble", "unknown or revoked")
	b.run(chromedp.SetValue("dialog input", secret), chromedp.SendKeys("dialog input", kb.Enter))
	b.sees(".empty", "No documents yet")
	b.sees("#line", "Live")
	b.drop(put(t, t.TempDir(), "page.pdf", report(2, "Behind a key")))
	b.sees(".docs .badge", "Succeeded")
	b.run(evaluate(`document.querySelector(".docs tr[data-id] a").click()`))
	b.wait("the page's image", `document.querySelector(".page img")?.naturalWidth`)
	// The key that asked for a job narrows the list.
	b.open("/jobs?requester=nobody")
	b.sees(".empty:not([hidden]) .empty-title", "No job matches")
	b.press("Clear filters")
	b.wait("its job", `document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 1`)
	b.press("page")
	b.wait("the jobs of the key", `document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 1 && document.querySelector(".filters").textContent.includes("Requested by page") && location.search === "?requester=page"`)
	// Dead letters of all tenants are for a key with the scope admin.
	beta := s.tenant("beta", "write", sheaf.Quota{})
	beta.newDataset("wet", false)
	wet, err := beta.submitAnswer(t.Context(), "wet", []source{text("wet.pdf", "%PDF-1.7\nwater got in")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	beta.ended(wet.Job.ID)
	everybody := func() {
		b.open("/operations")
		b.sees("section p", "A task becomes a dead letter when")
		b.run(evaluate(`document.querySelector('[aria-label="All tenants"]').click()`))
	}
	everybody()
	b.sees(".trouble", "scope")
	b.wait("no way to edit tenants", `!document.querySelector('[aria-label^="Edit tenant"]') && document.querySelector('[aria-label="Queue"] tbody tr')`)
	b.run(evaluate(`performance.clearResourceTimings()`))
	b.wait("the page to look again", `performance.getEntriesByType("resource").filter(e => e.name.endsWith("/v1/stats")).length > 1`)
	b.sees(".trouble", "scope") // and it still says so
	b.wait("the box to be empty again", `document.querySelector('[aria-label="All tenants"]').checked === false`)
	b.mu.Lock()
	b.faults = nil // the refusal is logged
	b.mu.Unlock()
	const ruler = "a key for all tenants"
	if err := s.store.CreateKey(t.Context(), sheaf.Key{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, Name: "operator", Scopes: []string{"admin"}}, api.HashKey(ruler)); err != nil {
		t.Fatal(err)
	}
	b.run(evaluate(fmt.Sprintf(`sessionStorage.setItem("sheaf-key", %q)`, ruler)))
	everybody()
	b.wait("the queues of all tenants, to be edited", `["beta", "local"].every(id => document.querySelector('[aria-label="Edit tenant ' + id + '"]'))`)
	// That a file is damaged is its owner's to cure.
	b.sees("[aria-label='Dead letters'] p", "1 task failed because of its file")
	b.run(evaluate(`document.querySelector('[name=files]').click()`))
	b.sees(".issues code", "invalid_pdf")
	b.run(evaluate(`document.querySelector(".issues summary").click()`))
	b.sees("td bdi", "beta")
	b.sees("th", "Tenant")
	b.press("Details…")
	b.sees("dialog h2", "Dead task: plan")
	b.sees("dialog table", "dead")
	b.press("Cancel")
	b.press("Retry 1…")
	b.sees("dialog h2", "Retry 1 dead task")
	b.press("Retry")
	b.wait("the retried task to be dead once more", `[...document.querySelectorAll('[role=region][aria-label^="Dead tasks"] td.num')].some(c => c.textContent === "2")`)
	b.press("Remove 1…")
	b.sees("dialog h2", "Remove 1 dead task")
	b.press("Remove")
	b.sees("section p", "A task becomes a dead letter when")
	b.noErrors()
}

// What work waits for stands beside its progress, wherever that is shown, and
// is there again after a reload.
func TestPageSaysWhatWorkWaitsFor(t *testing.T) {
	vectors, _ := vectorServer(t)
	var busy, locked atomic.Bool
	front := newFront(t, vectors, func(w http.ResponseWriter) bool {
		switch {
		case busy.Load():
			w.Header().Set("Retry-After", "8")
			http.Error(w, `{"error": {"message": "too many tokens a minute"}}`, http.StatusTooManyRequests)
		case locked.Load():
			http.Error(w, `{"error": {"message": "no such words"}}`, http.StatusBadRequest)
		default:
			return false
		}
		return true
	})
	s := start(t, func(c *config.Config) {
		c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", front+"/v1", "words"
		c.Executor.Workers = 1
	})
	b := openBrowser(t, s)
	busy.Store(true)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("waits.txt", "It waits for its vectors.")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	document := "/datasets/default/documents/" + answer.Documents[0].ID
	for _, v := range []struct{ path, place string }{{"/datasets/default", ".job-line"}, {document, ".progress-line"}, {"/jobs/" + answer.Job.ID, ".progress-line"}} {
		b.open(v.path)
		b.wait("the reason at "+v.path, fmt.Sprintf(`/asks to slow down \(429\): too many tokens a minute, next try in \d s/.test(document.querySelector(%q)?.textContent)`, v.place+" .waits"))
		if cell := eval[string](b, `document.querySelector(".strip, .ranges .strip")?.getAttribute("aria-label") || ""`); v.path == document && cell != "1 range: 1 waiting to retry" {
			t.Errorf("the strip says %q", cell)
		}
	}
	// The seconds are counted down.
	b.run(evaluate(`window.told = new Set(); setInterval(() => told.add(document.querySelector(".waits")?.textContent.match(/in (\d+) s/)?.[1]), 50)`))
	b.wait("the next second", `[...told].filter(Boolean).length > 1`)
	busy.Store(false)
	b.sees(".head .badge", "Succeeded")
	if eval[bool](b, `document.querySelector(".waits") !== null`) {
		t.Error("what has ended still waits")
	}
	// A task that has used up its attempts gets others where its failure stands.
	locked.Store(true)
	if answer, err = s.submitAnswer(t.Context(), defaultDataset, []source{text("locked.txt", "The embedder refuses it.")}, nil, ""); err != nil {
		t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	b.open("/datasets/default/documents/" + answer.Documents[0].ID + "?tab=problems")
	b.sees(".problem h2", "refuses the input")
	locked.Store(false)
	b.run(evaluate(`[...document.querySelectorAll(".problem")].find(p => p.textContent.includes("embed_refused")).querySelector("button.primary").click()`))
	b.sees("dialog h2", "Retry")
	b.press("Retry")
	b.sees(".head .badge", "Succeeded")
	// What stands before it in the line is counted.
	s.newDataset("line", true)
	special := map[int]string{}
	for i := 1; i <= 240; i++ {
		special[i] = "SLOW page"
	}
	var first string
	for _, name := range []string{"long.trial", "next.trial"} {
		first = answer.Job.ID
		if answer, err = s.submitAnswer(t.Context(), "line", []source{text(name, trialPages(240, special))}, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	b.open("/jobs/" + first)
	b.wait("the time left, which is a range where it is not sure", `[...document.querySelectorAll(".progress-line .muted")].some(e => /^(\d.* to \d.*|about \d.*) left$/.test(e.textContent))`)
	waitFor(t, "the ranges of the first", func() bool {
		var job sheaf.Job
		s.get("/v1/jobs/"+first, &job)
		return job.Stages[0].Total > 0
	})
	b.open("/jobs/" + answer.Job.ID)
	b.wait("the tasks ahead", `/\d+ tasks? of yours ahead/.test(document.querySelector(".waits")?.textContent)`)
	// What happens while the page reads the job is not missed: that reading is held up until it has happened.
	b.run(evaluate(`(() => {
		const fetch = window.fetch;
		let held = 0;
		window.release = null;
		window.fetch = async (...a) => {
			const answer = await fetch(...a);
			if (String(a[0]).includes("/errors") && !held++) await new Promise(ok => (window.release = ok));
			return answer;
		};
	})()`))
	b.press("Pause")
	b.sees(".waits", "paused")
	b.wait("the reading that is held up", `window.release`)
	b.press("Resume")
	b.wait("the answer to it", `performance.getEntriesByType("resource").some(e => e.name.endsWith(":resume"))`)
	b.run(evaluate(`release()`))
	b.wait("the job to go on", `[...document.querySelectorAll("button")].some(b => b.textContent === "Pause") && !document.querySelector(".waits")?.textContent.includes("paused")`)
	// Operators see it from their side: how many wait, how long the oldest has, what runs where.
	b.open("/operations")
	b.wait("what waits in the queue", `/\d+cost [\d,]+, oldest \d/.test(document.querySelector('[aria-label="Queue"] tbody')?.textContent)`)
	b.wait("what the executor runs", `/parse page \d+–\d+/.test(document.querySelector('[aria-label="Executors"] tbody')?.textContent)`)
	s.post("/v1/datasets/line/documents:cancel", map[string]any{"all": true}, nil)
}

// testPacedViews has a view read again whenever it may while changes do not end:
// whatever one reading costs, no minute has 100 requests, and the first reading
// after a quiet time comes at once.
func testPacedViews(t *testing.T, s *service, b *browser) {
	b.open("/")
	for _, cost := range []int{3, 5, 20, 103} {
		got := eval[struct{ Most, Readings, First, Rested int }](b, fmt.Sprintf(`(async () => {
			const { pacer } = await import(document.querySelector('script[type="module"]').src.replace(/[^/]*$/, "live.js"));
			const real = Date.now, cost = %d;
			let now = 0;
			Date.now = () => now;
			try {
				const pace = pacer(), read = [], first = pace.wait(400);
				while (now < 3_600_000) {
					now += pace.wait(400);
					read.push(now);
					pace.spend(cost);
				}
				let most = 0;
				for (let i = 0, j = 0; i < read.length; i++) {
					while (read[i] - read[j] >= 60_000) j++;
					most = Math.max(most, (i - j + 1) * cost);
				}
				now += 600_000;
				return { Most: most, Readings: read.length, First: first, Rested: pace.wait(400) };
			} finally {
				Date.now = real;
			}
		})()`, cost))
		if got.Most >= 100+cost || cost <= 20 && got.Most >= 100 || got.Readings < 3600/cost/2 || got.First != 400 || got.Rested != 400 {
			t.Errorf("a view whose reading costs %d requests makes up to %d in a minute with %d readings in an hour, waits %d ms at first and %d ms when it has rested", cost, got.Most, got.Readings, got.First, got.Rested)
		}
	}
}

// testStorm sends a view more events than anybody can read: it draws what has
// gathered, not each of them.
func testStorm(t *testing.T, s *service, b *browser) {
	s.newDataset("storm", false)
	s.post("/v1/datasets/storm:pause", nil, nil) // nothing of it runs
	for i := range 3 {
		if _, err := s.submitAnswer(t.Context(), "storm", []source{text(fmt.Sprintf("storm%d.txt", i), fmt.Sprint("Rain number ", i))}, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	b.open("/datasets/storm")
	b.wait("the rows", `document.querySelectorAll(".docs tr[data-id]").length === 3`)
	type storm struct {
		Draws, Statuses, Events int
		Ordered, Last, Seen     bool
	}
	const bursts, each = 100, 20
	got := eval[storm](b, fmt.Sprintf(`(async () => {
		const bursts = %d, each = %d, from = document.querySelector('script[type="module"]').src.replace(/[^/]*$/, "");
		const [{ follow }, { go }] = await Promise.all([import(from + "live.js"), import(from + "nav.js")]);
		const real = { EventSource, requestAnimationFrame }, frame = () => new Promise((r) => real.requestAnimationFrame.call(window, r));
		const sources = [];
		window.EventSource = class extends EventTarget {
			constructor(url) { super(); this.url = url; sources.push(this); setTimeout(() => this.onopen?.()); }
			close() {}
			say(kind, data) { this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data) })); }
		};
		const stop = new AbortController(), seqs = [], statuses = [];
		try {
			go("/jobs");
			while (!document.querySelector("#view h1")?.textContent.includes("Jobs")) await frame();
			go("/datasets/storm");
			while (!sources.length || !document.querySelector(".docs tr[data-id]")) await frame();
			follow("/v1/datasets/other", { event: (e) => seqs.push(e.seq), status: (s) => statuses.push(s.n) }, stop.signal);
			const id = document.querySelector(".docs tr[data-id]").dataset.id;
			let seen = false, draws = 0;
			const look = new MutationObserver(() => { seen ||= document.querySelector('.docs tr[data-id="' + id + '"]')?.textContent.includes("Failed"); });
			look.observe(document.querySelector(".docs"), { subtree: true, childList: true, characterData: true });
			window.requestAnimationFrame = (f) => { draws++; return real.requestAnimationFrame.call(window, f); };
			for (let n = 1, seq = 1; n <= bursts; n++) {
				for (const s of sources) s.say("status", { n });
				for (let i = 0; i < each; i++, seq++) for (const s of sources) s.say("document", { seq, kind: "document", document_id: id, detail: n === bursts ? { state: "failed", progress: 1, failure: { code: "broken", message: "It rained." } } : { state: "running", progress: n / bursts } });
				await frame();
			}
			while (!seen || seqs.length < bursts * each) await frame();
			look.disconnect();
			return { Draws: draws, Statuses: statuses.length, Events: seqs.length, Ordered: seqs.every((s, i) => s === i + 1), Last: statuses.at(-1) === bursts, Seen: seen };
		} finally {
			stop.abort();
			Object.assign(window, real);
		}
	})()`, bursts, each))
	if got.Draws > bursts/2 || got.Statuses > bursts/2 {
		t.Errorf("%d bursts of %d events were drawn %d times, and %d statuses of %d were handed on", bursts, each, got.Draws, got.Statuses, bursts)
	}
	if got.Events != bursts*each || !got.Ordered || !got.Last || !got.Seen {
		t.Errorf("what came of %d events is %+v", bursts*each, got)
	}
	b.open("/")
}
