package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/parser/pdf/enginetest"
)

// TestResultsAreDrawnAsTheyAre holds the page to what the store says: what failed,
// was healed, was canceled or was left out is drawn as that and nothing else.
func TestResultsAreDrawnAsTheyAre(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *service, b *browser)
	}{
		{"a retry of one page is one page", testRetryIsDrawn},
		{"a job that failed in part says where", testJobFailedInPart},
		{"what was told to stop did not fail", testCanceledIsNoIssue},
		{"what was left out on purpose is no issue", testNotesAreNoIssues},
		{"each failure has the cure that helps", testCures},
		{"operations say what was measured", testOperationsAreTrue},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t, s.t = t, t
			c.run(t, s, b)
			b.noErrors()
		})
		b.t, s.t = t, t
	}
}

func testRetryIsDrawn(t *testing.T, s *service, b *browser) {
	s.newDataset("healed", true)
	healed := filepath.Join(t.TempDir(), "healed")
	doc := s.addAny("healed", `{"task_page_size":4}`, text("torn.trial", trialPages(12, map[int]string{2: "FAIL " + healed, 6: "CRASH"})))[0]
	path := "/datasets/healed/documents/" + doc.ID
	strip := func(want string) string {
		return fmt.Sprintf(`document.querySelector(".progress-box .strip")?.getAttribute("aria-label") === %q`, want)
	}
	b.open(path)
	b.wait("both ranges with failures", strip("3 ranges: 2 with failures, 1 done"))
	b.open(path + "?tab=problems")
	const counted = `document.querySelectorAll(".problem").length === %d && document.querySelector('[data-tab="problems"] b').textContent === "%[1]d"`
	b.wait("as many cards as the tab counts", fmt.Sprintf(counted, 2))
	if err := os.WriteFile(healed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.press("Retry just this")
	b.sees("dialog h2", "Retry page 2")
	b.press("Retry")
	b.wait("the card that is left", fmt.Sprintf(counted, 1))
	b.open(path)
	b.wait("the healed page and the good ones as they are", strip("4 ranges: 2 reused, 1 done, 1 with failures"))
}

// addAny is add with settings, whatever comes of it.
func (s *service) addAny(dataset, settings string, files ...source) []sheaf.Document {
	s.t.Helper()
	answer, err := s.submitAnswer(s.t.Context(), dataset, files, map[string]string{"parser_config": settings}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	return answer.Documents
}

func testJobFailedInPart(t *testing.T, s *service, b *browser) {
	s.newDataset("halves", false)
	docs := s.add("halves", text("good.txt", "All is well."), text("water.pdf", "%PDF-1.7\nwater got in"), text("void.txt", " "))
	b.open("/jobs/" + docs[0].JobID)
	b.sees(".head .badge", "Partly")
	b.wait("what failed in the bar and in the stages", `document.querySelector(".whole-bar")?.getAttribute("aria-label") === "1 searchable, 2 failed" && document.querySelector('[aria-label="Stages"] tbody tr')?.textContent.startsWith("documents132")`)
	b.wait("a bar of documents that is not full", `Math.abs(document.querySelector('[aria-label="Progress of the documents"]').value - 1 / 3) < 0.01`)
}

func testCanceledIsNoIssue(t *testing.T, s *service, b *browser) {
	s.newDataset("halts", true)
	special := map[int]string{}
	for i := 1; i <= 120; i++ {
		special[i] = "SLOW page"
	}
	answer, err := s.submitAnswer(t.Context(), "halts", []source{text("endless.trial", trialPages(120, special))}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	b.open("/datasets/halts/documents/" + answer.Documents[0].ID + "?tab=problems")
	b.wait("running ranges", `document.querySelector(".progress-box .cell.run")`)
	b.press("Cancel…")
	b.press("Cancel processing")
	b.sees(".head .badge", "Canceled")
	s.ended(answer.Job.ID)
	b.wait("canceled ranges", `/canceled/.test(document.querySelector(".progress-box .strip")?.getAttribute("aria-label"))`)
	b.sees(".pane", "Canceled, no issues")
	if got := eval[string](b, `document.querySelector('[data-tab="problems"] b').textContent + document.querySelectorAll(".problem").length`); got != "0" {
		t.Errorf("a canceled document has issues: %q", got)
	}
	b.open("/datasets/halts")
	b.sees(".docs .badge", "Canceled")
	if got := eval[string](b, `document.querySelector(".docs .c-state:not(th)").textContent`); got != "Canceled" {
		t.Errorf("the row of a canceled document says %q", got)
	}
}

func testNotesAreNoIssues(t *testing.T, s *service, b *browser) {
	s.newDataset("heads", false)
	f := enginetest.File{}
	for n := range 12 {
		c := enginetest.Text("F1", 9, 72, 770, "Annual report of the granary, confidential")
		for line := range 20 {
			c += enginetest.Text("F1", 11, 72, 700-float64(line)*15, fmt.Sprintf("Line %d of part %d says what was stored dry and counted twice.", line, n))
		}
		f.Pages = append(f.Pages, enginetest.Page{Content: c})
	}
	doc := s.add("heads", text("report.pdf", string(f.Bytes())))[0]
	b.open("/datasets/heads/documents/" + doc.ID + "?tab=problems")
	b.sees(".pane", "No issues")
	b.sees(".notes summary", "note")
	if got := eval[string](b, `document.querySelector('[data-tab="problems"] b').textContent + document.querySelectorAll(".problem").length + document.querySelector(".notes").open`); got != "0false" {
		t.Errorf("the tab counts and shows %s", got)
	}

	// The page of a job says what is missing, and leads to the documents.
	ragged := s.add("heads", text("ragged.csv", "a,b,c\n1,2,3\n4,5\n"), text("plain.csv", "a,b,c\n1,2,3\n4,5,6\n"))[0]
	b.open("/jobs/" + ragged.JobID)
	b.sees(".notes summary", "1 document with warnings")
	eval[bool](b, `document.querySelector(".notes").open = true`)
	b.press("1 document")
	b.wait("the document in the list", `[...document.querySelectorAll(".docs tr[data-id] a")].map(a => a.textContent).join() === "ragged.csv"`)
	b.sees(".facets", "Ragged rows")
}

func testCures(t *testing.T, s *service, b *browser) {
	s.newDataset("ills", false)
	docs := s.add("ills", text("deed.pdf", string(enginetest.Encrypt(t, report(1, "Deed"), "wheat"))), text("void.txt", " "), text("water.pdf", "%PDF-1.7\nwater got in"))
	for i, want := range []struct{ button, says string }{
		{"Enter the password…", "The file is locked with a password. Enter its password, or upload a copy without one. encrypted · during planning · attempt 1"},
		{"", "The document opens but contains no text; check that you uploaded the right file. empty_document · bad input"},
		{"", "The file is not a PDF or is damaged beyond repair (the file is not a PDF or is damaged (PDFium error 3)); recreate it from its source. invalid_pdf · bad input · during planning · attempt 1"},
	} {
		b.open("/datasets/ills/documents/" + docs[i].ID + "?tab=problems")
		b.sees(".problem h2", "")
		if got := eval[string](b, `[...document.querySelectorAll("#view button.primary")].map(b => b.textContent).join()`); got != want.button {
			t.Errorf("%s offers %q, want %q", docs[i].Name, got, want.button)
		}
		if got := eval[string](b, `document.querySelector(".pane").innerText.replace(/\s+/g, " ").trim()`); got != want.says {
			t.Errorf("%s says %q, want %q", docs[i].Name, got, want.says)
		}
	}
	// A sentence that begins with its page does not get it once more.
	if got := eval[string](b, `import("/js/parts.js").then(m => m.failureLine({ code: "page_unreadable", page: 2, message: "Page 2 is damaged and cannot be read; recreate the file from its source." }))`); got != "Page 2 is damaged and cannot be read; recreate the file from its source." {
		t.Errorf("the failure of a page reads %q", got)
	}
}

// testOperationsAreTrue has the page draw an hour in which more happened than is
// looked at for times: its counts are of all, and the times are said to be of some.
func testOperationsAreTrue(t *testing.T, _ *service, b *browser) {
	b.run(evaluate(`history.pushState(null, "", "/jobs")`)) // a view that asks for no statistics
	b.run(evaluate(`(() => {
		const real = window.fetch;
		window.fetch = async (...a) => {
			if (!String(a[0]).includes("/v1/stats")) return real(...a);
			const s = await (await real(...a)).json();
			Object.assign(s.buckets[5], { tasks: 29_000, failed: 15, cost: 30_000, stage_ms: { parse: 1000 } });
			Object.assign(s.buckets.at(-2), { tasks: 1_000, failed: 0, cost: 1_000 });
			return Response.json({ ...s, sampled: true, fairness: { index: 0.5, tenants: 3 }, cost_per_second: 12, stages: [{ name: "parse", tasks: 10_000, p50_ms: 12, p95_ms: 40 }] });
		};
		document.querySelector('#nav a[data-view="operations"]').click();
	})()`))
	b.wait("all that was done, and what failed", `/3\d,\d{3} done, \d+ attempts failed/.test(document.querySelector(".charts")?.textContent)`)
	b.sees(".chart", "median of the newest tasks: parse 12 ms")
	b.wait("how fair it was", `(g => g?.textContent.includes("0.50") && g.parentElement.textContent.includes("among 3 waiting tenants") && g.querySelector("rect.ok").getAttribute("width") * 2 == g.querySelector("rect.rest").getAttribute("width"))(document.querySelector(".gauge"))`)
	b.wait("the load of an hour ago", `[...document.querySelectorAll(".chart")].find(c => c.textContent.includes("Throughput")).querySelectorAll("rect").length >= 2`)
}

// TestDeadLettersAreGroupedByCause has tasks dead for three causes: operators see
// those that they can cure, with their documents, and cure a group at once.
func TestDeadLettersAreGroupedByCause(t *testing.T) {
	var refuses atomic.Bool
	vectors, _ := vectorServer(t)
	through := newFront(t, vectors, func(w http.ResponseWriter) bool {
		if refuses.Load() {
			http.Error(w, `{"error": {"message": "no such words"}}`, http.StatusBadRequest)
		}
		return refuses.Load()
	})
	s := start(t, func(c *config.Config) { c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", through+"/v1", "words" })
	b := openBrowser(t, s)
	refuses.Store(true)
	s.add("default", text("one.txt", "The first."), text("two.txt", "The second."), text("deed.pdf", string(enginetest.Encrypt(t, report(1, "Deed"), "wheat"))), text("water.pdf", "%PDF-1.7\nwater got in"))
	b.open("/operations")
	b.sees(".issues", "embed_refused")
	b.wait("the names of its documents", `["one.txt", "two.txt"].every(n => [...document.querySelectorAll(".issues .owners a")].some(a => a.textContent === n && a.search === "?tab=problems"))`)
	if got := eval[string](b, `[...document.querySelectorAll(".issues > li")].map(li => li.dataset.code).join()`); got != "embed_refused" {
		t.Errorf("an operator is shown %s", got)
	}
	b.sees("[aria-label='Dead letters'] p", "2 tasks failed because of their files")
	b.run(evaluate(`document.querySelector(".issues summary").click()`))
	b.checkAccess(axe(t), "dead letters by cause")
	b.fits("dead letters by cause")
	refuses.Store(false)
	b.press("Retry 2…")
	b.press("Retry")
	b.sees("[aria-label='Dead letters'] p", "None that an operator can fix")
	for _, name := range []string{"one.txt", "two.txt"} {
		waitFor(t, name+" to be cured", func() bool {
			var list api.List[sheaf.Document]
			s.get("/v1/datasets/default/documents?state=succeeded&q="+name, &list)
			return len(list.Items) == 1
		})
	}
	b.run(evaluate(`document.querySelector('[name=files]').click()`))
	b.wait("faults of files where they are asked for", `[...document.querySelectorAll(".issues > li")].map(li => li.dataset.code).sort().join() === "encrypted,invalid_pdf"`)
	b.noErrors()
}

// newFront stands before a server; what refuse has answered does not go through.
func newFront(t *testing.T, base string, refuse func(w http.ResponseWriter) bool) string {
	t.Helper()
	inner, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: inner.Scheme, Host: inner.Host}) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !refuse(w) {
			through.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	return front.URL
}
