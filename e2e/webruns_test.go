package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/config"
	"sheaf/taskstore"
)

// checkEverywhere looks at what is shown in both colours and in a narrow window,
// and writes pictures where SHEAF_SCREENS names a folder.
func (b *browser) checkEverywhere(script, name string) {
	b.t.Helper()
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1280, 360} {
			b.look(width, 900, dark)
			b.wait(name+" in a window of another size", fmt.Sprintf(`innerWidth === %d`, width))
			// What is placed by the size of its frame is placed in the next frame.
			eval[bool](b, `new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame)).then(() => true)`)
			b.checkAccess(script, fmt.Sprintf("%s, %d pixels wide, dark=%v", name, width, dark))
			if wide := eval[int](b, `document.documentElement.scrollWidth`); int64(wide) > width {
				b.t.Errorf("%s is %d pixels wide in a window of %d", name, wide, width)
			}
			if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					b.t.Fatal(err)
				}
				scheme := map[bool]string{false: "light", true: "dark"}[dark]
				b.shoot(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", strings.ReplaceAll(name, " ", "-"), width, scheme)))
			}
		}
	}
	b.look(1280, 900, false)
	b.wait("the window", `innerWidth === 1280`)
}

const factsFlow = `name = "facts"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"], config = { chunk_token_num = 32 } },
  { id = "public", kind = "filter", from = ["cut"], config = { keep = "!chunk.text.contains('secret')" } },
  { id = "scans", kind = "branch", from = ["cut"], when = "document.pages > 400" },
  { id = "rocks", kind = "extract", from = ["public"], config = { schema = { rock = "string" } }, pool = "llm", on_failure = "skip", retry = { attempts = 3 } },
  { id = "words", kind = "enrich", from = ["public"], config = { auto_keywords = 3 } },
  { id = "all", kind = "merge", from = ["words", "rocks", "scans"] },
  { id = "out", kind = "index", from = ["all"] },
]
`

// What runs is seen as it runs, without the mouse too, and says why it waits.
func TestRunsOnThePage(t *testing.T) {
	model := chattest.Start(t)
	answers := make(chan struct{})
	answered := sync.OnceFunc(func() { close(answers) })
	t.Cleanup(answered) // before the model ends, which waits for what it was asked
	asked := make(chan struct{}, 1000)
	model.Reply(func(string, string) string {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-answers
		return `{"rock": "quartzite"}`
	})
	s := start(t, func(c *config.Config) {
		c.Chat.URL, c.Chat.Model, c.Chat.Price, c.Price.PerMillionChatTokens, c.Price.Currency = model.URL, chattest.Model, 2, 2, "EUR"
		c.Executor.Pools = []string{"default", "llm"}
	})
	b := openBrowser(t, s)
	script := axe(t)
	s.post("/v1/flows", map[string]any{"toml": factsFlow}, nil)
	answer, err := s.submitAnswer(t.Context(), "default", []source{text("minutes.md", threeSections)}, map[string]string{"parser_config": `{"flow":"facts"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	id := answer.Documents[0].ID
	node := func(id string) string {
		return fmt.Sprintf(`document.querySelector('.dag-node[data-node=%q]')`, id)
	}
	<-asked // before its plan a document has no run, which its page would say
	b.open("/datasets/default/documents/" + id + "?tab=run")
	b.wait("the node that asks to run", node("rocks")+`?.textContent === "rocks, extract: Running"`)
	for id, label := range map[string]string{"cut": "cut, chunk: Done", "scans": "scans, branch: Skipped", "out": "out, index: Waiting", "read": "read, parse: Done"} {
		if got := eval[string](b, node(id)+`.textContent`); got != label {
			t.Errorf("%s is called %q, want %q", id, got, label)
		}
	}
	if n := eval[int](b, `document.querySelectorAll(".dag-edge").length`); n != 9 {
		t.Errorf("%d edges are drawn", n)
	}
	b.checkEverywhere(script, "a run that runs")
	// Nothing is sent again while nothing changes, and not more than one request a second.
	b.run(evaluate(`performance.clearResourceTimings()`))
	b.wait("two looks", `performance.getEntriesByType("resource").filter(e => e.name.endsWith("/run")).length >= 2`)
	if sent := eval[float64](b, `performance.getEntriesByType("resource").filter(e => e.name.endsWith("/run")).reduce((n, e) => Math.max(n, e.transferSize), 0)`); sent > 600 {
		t.Errorf("%v bytes are sent of a run that has not changed", sent)
	}
	if gap := eval[float64](b, `(() => { const at = performance.getEntriesByType("resource").filter(e => e.name.endsWith("/run")).map(e => e.startTime); return at[1] - at[0]; })()`); gap < 950 {
		t.Errorf("the run is asked for again after %v ms", gap)
	}
	// By keys alone: along the edges, and into a node.
	b.run(evaluate(`document.querySelector('.dag-node[tabindex="0"]').focus()`))
	b.keys(kb.ArrowRight + kb.ArrowRight)
	at := `document.activeElement.dataset.node`
	if got := eval[string](b, at); got != "public" && got != "scans" {
		t.Errorf("two to the right is %s", got)
	}
	b.keys(kb.End)
	b.keys(kb.ArrowLeft + kb.ArrowLeft)
	b.keys(kb.Home)
	if got := eval[string](b, at); got != "read" {
		t.Errorf("the first is %s", got)
	}
	b.keys(kb.ArrowRight + kb.Enter)
	b.sees(".run-detail h2", "cut")
	b.sees(".run-detail pre", `"chunk_token_num": 32`)
	b.sees(".run-detail dl", "public, scans")
	b.sees(".run-detail table", "Done")
	if got := eval[string](b, `document.activeElement.dataset.node + location.search`); got != "cut?tab=run&node=cut" {
		t.Errorf("after the choice the page is at %s", got)
	}
	var detail api.RunNodeAnswer
	s.get("/v1/datasets/default/documents/"+id+"/run/nodes/cut", &detail)
	if len(detail.Tasks) != 1 || detail.Tasks[0].Digest == "" || detail.Tasks[0].Chunks != 3 || detail.Definition == nil || detail.Definition.Kind != "chunk" {
		t.Fatalf("%+v", detail)
	}
	b.sees(".run-detail td", detail.Tasks[0].Digest)
	if resp, body := s.request("GET", "/v1/datasets/default/documents/"+id+"/run/nodes/none", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a node that is not there: %s %s", resp.Status, body)
	}

	// It goes on, and the page with it.
	b.open("/datasets/default/documents/" + id + "?tab=run&node=rocks")
	b.sees(".run-detail dl", "llm")
	answered()
	s.ended(answer.Job.ID)
	b.wait("the end", node("out")+`.textContent === "out, index: Done"`)
	b.sees(".run-facts", "2 calls")
	b.sees(".run-facts", "€")
	b.sees(".run-detail dl", "2 calls")
	b.checkEverywhere(script, "a run that is over")
	// The table says the same, and opens a node.
	b.run(evaluate(`[...document.querySelectorAll("[aria-label='Nodes of the run'] button")].find(e => e.textContent === "scans").click()`))
	b.sees(".run-detail .page-note", "document.pages > 400 is false")

	// A flow that was deleted leaves its runs, without what it said.
	s.post("/v1/flows", map[string]any{"toml": strings.Replace(factsFlow, "facts", "gone", 1)}, nil)
	gone, err := s.submitAnswer(t.Context(), "default", []source{text("gone.md", threeSections)}, map[string]string{"parser_config": `{"flow":"gone"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(gone.Job.ID)
	s.request(http.MethodDelete, "/v1/flows/gone", "")
	b.open("/datasets/default/documents/" + gone.Documents[0].ID + "?tab=run")
	b.sees(".run-head", "gone@1 was deleted")

	// From the dataset: documents first, then what is made of all of them.
	mustState(t, s.putIn("default", sheaf.NewID(), "ponds.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	b.open("/datasets/default")
	b.press("Runs")
	b.sees("[aria-label='Runs over documents'] td", "facts@1")
	b.sees("[aria-label='Runs over documents'] td", "The standard pipeline runs in one task a range.")
	b.sees("[aria-label='Runs over documents'] td", "2 calls")
	b.press("Start a run…")
	b.sees("dialog .preview dd", "at most")
	b.checkAccess(script, "the start of a run")
	b.run(evaluate(`document.querySelector("dialog [name=max_tokens]").value = "20"`))
	b.press("Start")
	b.sees("[aria-label='Runs over the dataset'] .badge", "Stopped at its cap")
	b.checkEverywhere(script, "the runs of a dataset")
	b.press("Raise the cap…")
	b.run(evaluate(`document.querySelector("dialog [name=max_tokens]").value = "some"`))
	b.press("Raise the cap and resume")
	b.sees("dialog .trouble", "“some” is not a whole number of tokens")
	b.run(evaluate(`document.querySelector("dialog [name=max_tokens]").value = "1,000,000"`))
	b.press("Raise the cap and resume")
	b.sees("[aria-label='Runs over the dataset'] .badge", "Succeeded")
	var runs api.List[api.DatasetRun]
	s.get("/v1/datasets/default/runs", &runs)
	if len(runs.Items) != 1 || runs.Items[0].State != taskstore.RunSucceeded || runs.Items[0].MaxTokens != 1_000_000 {
		t.Errorf("%+v", runs.Items)
	}
	b.run(evaluate(`[...document.querySelectorAll("[aria-label='Runs over documents'] a")].find(e => e.textContent === "minutes.md").click()`))
	b.wait("the run of the document", node("rocks"))
	b.noErrors()
}
