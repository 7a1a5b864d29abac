package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
)

// TestScreens writes a picture of every view, light and dark, wide and narrow,
// into the folder that SHEAF_SCREENS names: `make screenshots`. Without it, each
// view is looked at once.
func TestScreens(t *testing.T) {
	dir := os.Getenv("SHEAF_SCREENS")
	widths, schemes := []int64{1280, 360}, []bool{false, true}
	if dir == "" {
		dir, widths, schemes = t.TempDir(), widths[:1], schemes[:1]
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, nil)
	views := fillForScreens(t, s)
	b := openBrowser(t, s)
	for _, v := range views {
		if v.before != nil {
			v.before()
		}
		for _, width := range widths {
			for _, dark := range schemes {
				height := int64(800)
				if width == 360 {
					height = 740
				}
				b.look(width, height, dark)
				b.open(v.path)
				b.sees(v.ready, v.text)
				if v.act != "" {
					b.run(evaluate(v.act))
				}
				if v.then != "" {
					b.wait(v.name, v.then)
				}
				b.wait("the pictures of "+v.name, `[...document.querySelectorAll("img")].every(i => i.complete && i.naturalWidth || i.loading === "lazy" && (!i.checkVisibility() || i.getBoundingClientRect().top > innerHeight))`)
				// What has arrived may not have been unpacked, and would not be in the picture.
				eval[bool](b, `Promise.all([...document.querySelectorAll("img")].filter(i => i.complete && i.naturalWidth).map(i => i.decode().catch(() => {}))).then(() => new Promise(requestAnimationFrame)).then(() => new Promise(requestAnimationFrame)).then(() => true)`)
				scheme := "light"
				if dark {
					scheme = "dark"
				}
				b.shoot(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", v.name, width, scheme)))
			}
		}
	}
	b.noErrors()
	s.post("/v1/datasets/intake/documents:cancel", map[string]any{"all": true}, nil)
}

type screen struct {
	name, path, ready, text, act, then string
	before                             func() // nil: nothing is to be done before
}

// fillForScreens ingests what the views are to show.
func fillForScreens(t *testing.T, s *service) []screen {
	t.Helper()
	pdf := func(name string, pages int, subject string) source { return text(name, string(report(pages, subject))) }
	_, docs := s.send(nil,
		pdf("harvest-report-2026.pdf", 30, "Harvest report"), pdf("barn-survey.pdf", 14, "Barn survey"),
		text("prices.csv", priceList(400)), text("keeper's handbook.md", handbook()),
		text("letter to the mill.html", "<h1>To the mill</h1><p>Please send the weights of the last three carts, and say which were wet.</p>"),
		text("notes.txt", strings.Repeat("The third barn leaks at the north corner; move the sheaves before the rain. ", 60)))
	healed := filepath.Join(t.TempDir(), "never")
	job, trial := s.send(map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, text("ledger-1911-scan.pdf", trialPages(60, map[int]string{17: "FAIL " + healed, 37: "CRASH"})))
	var again api.BatchAnswer
	s.post("/v1/datasets/default/documents:reparse", map[string]any{"filter": map[string]any{"document_ids": []string{docs[0].ID}}, "parser_config": map[string]any{"chunk_token_num": 256}}, &again)
	s.ended(again.Job.ID)
	if err := s.call(t.Context(), http.MethodPost, "/v1/datasets", map[string]any{"name": "archive"}, &sheaf.Dataset{}); err != nil {
		t.Fatal(err)
	}
	s.newDataset("attic", false)
	// Work that is still going on while its pictures are taken.
	s.newDataset("intake", true)
	busy := func() {
		var files []source
		for i, name := range []string{"cart-register-1.pdf", "cart-register-2.pdf", "mill-letters.pdf", "weights-1911.pdf", "weights-1912.pdf"} {
			special := map[int]string{}
			for n := 1; n <= 120+40*i; n++ {
				special[n] = "SLOW weights of cart"
			}
			special[9], special[30] = "FAIL "+healed, "A quick page."
			files = append(files, text(name, trialPages(120+40*i, special)))
		}
		if _, err := s.submitAnswer(t.Context(), "intake", files, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	// A query that is found, and one that is not.
	s.post("/v1/datasets/default/queries", map[string]any{"question": "moisture of the sheaves in the barn", "expected": []any{map[string]any{"document": docs[1].ID, "from": 5}, map[string]any{"document": docs[0].ID, "from": 2}}}, nil)
	s.post("/v1/datasets/default/evaluations", nil, nil)
	s.post("/v1/datasets/default/queries", map[string]any{"question": "who counts the carts", "expected": []any{map[string]any{"document": docs[5].ID}}}, nil)
	s.post("/v1/datasets/default/evaluations", nil, nil)
	// A file that does not open leaves a dead letter.
	if _, err := s.submitAnswer(t.Context(), "archive", []source{text("mill-accounts.pdf", "%PDF-1.7\nwater got into the box")}, nil, ""); err != nil {
		t.Fatal(err)
	}
	// A dataset in which people and companies stand beside each other.
	s.post("/v1/datasets", map[string]any{"name": "ledger", "parser_config": map[string]any{"chunk_token_num": 64}}, nil)
	mustState(t, s.putIn("ledger", sheaf.NewID(), "contracts-1911.md", "text/markdown", contracts), sheaf.DocSucceeded)
	var mapped api.RunStarted
	s.post("/v1/datasets/ledger/mindmap", map[string]any{}, &mapped)
	s.over("ledger", mapped.ID)
	s.post("/v1/flows", map[string]any{"toml": keywordsFlow}, nil)
	answer, err := s.submitAnswer(t.Context(), "ledger", []source{text("carts.md", contracts)}, map[string]string{"parser_config": `{"flow":"keywords"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	flowed := "/datasets/ledger/documents/" + answer.Documents[0].ID
	one := "/datasets/default/documents/" + docs[0].ID
	return []screen{
		{"documents", "/datasets/default", ".docs", "harvest-report-2026.pdf", "", "", nil},
		{"selected", "/datasets/default", ".docs", "harvest-report-2026.pdf", `[...document.querySelectorAll('tbody input')].slice(0, 3).forEach(i => i.click()); ` + soon(".batch button", "Reprocess", "click"), `document.querySelector('.preview dl')`, nil},
		{"empty", "/datasets/attic", ".empty", "No documents yet", "", "", nil},
		{"overview", "/datasets/archive", ".issues", "damaged", "", "", nil},
		{"preview", "/datasets/default", ".docs", "harvest-report-2026.pdf", soon("button", "Preview", "click") + soon(".docs a", "harvest", "focus"), `innerWidth < 1000 || document.querySelector(".peek .page img")?.naturalWidth`, nil},
		{"document", one + "?page=5", ".chunk", "measured", `document.querySelectorAll('.chunk')[1]?.dispatchEvent(new MouseEvent('mouseenter'))`, `document.querySelector('.page img')?.naturalWidth && document.querySelector('.boxes rect.on')`, nil},
		{"table", "/datasets/default/documents/" + docs[2].ID, ".chunks", "Barn", "", "", nil},
		{"problems", "/datasets/default/documents/" + trial[0].ID + "?tab=problems", ".problem", "37", "", "", nil},
		{"timeline", one + "?tab=timeline", ".waterfall", "parse", "", "", nil},
		{"versions", one + "?tab=versions", ".versions", "Version 2", "", "", nil},
		{"settings", one + "?tab=settings", ".settings", "SHA-256", "", "", nil},
		{"job", "/jobs/" + job.ID, ".waterfall", "parse", "", "", nil},
		{"jobs", "/jobs", ".plain", "Ingest", "", "", nil},
		{"datasets", "/datasets", ".plain", "archive", "", "", nil},
		{"search", "/search?q=moisture+of+the+sheaves+in+the+barn&dataset=default", ".hits", "Barn", "", `document.querySelectorAll('.hit').length > 2`, nil},
		{"operations", "/operations", ".deps", "index", "", `document.querySelector('.chart')`, nil},
		{"compare", one + "?tab=versions&from=1&to=2", ".change", "", "", "", nil},
		{"retry", "/datasets/default/documents/" + trial[0].ID + "?tab=problems", ".problem", "37", soon(".problem button", "Retry just this", "click"), `document.querySelector('.preview dl')`, nil},
		{"graph", "/datasets/ledger/graph?entity=Acme+Mills", ".graph-side", "Acme Mills", "", `document.querySelectorAll(".graph-point").length > 3`, nil},
		{"mind-map", "/datasets/ledger/mindmap", ".map-tree", "contracts-1911.md", "", "", nil},
		{"run", flowed + "?tab=run", ".dag-node", "words", "", `document.querySelectorAll(".dag-edge").length === 3`, nil},
		{"flow", "/flows/keywords", ".flow-text", "", "", `document.querySelectorAll(".dag-node").length === 4`, nil},
		{"saved-queries", "/search?dataset=default", ".saved-queries", "who counts the carts", `[...document.querySelectorAll("button")].find(b => b.textContent === "Run all").click()`, `document.querySelector(".saved-queries").textContent.includes("of 2 found")`, nil},
		{"evaluations", "/datasets/default/evaluations", ".chart", "MRR", "", "", nil},
		{"runs", "/datasets/ledger/runs", ".plain", "keywords", "", "", nil},
		{"flows", "/flows", "[aria-label=Flows]", "keywords", "", "", nil},
		{"two-settings", "/search?q=moisture+of+the+sheaves+in+the+barn&dataset=default&compare=1&b_mode=text", ".compare", "Barn", "", `document.querySelectorAll('.compare .hit').length > 3`, nil},
		{"dead-letters", "/operations", "h2", "Dead letters", `document.querySelector('[name=files]').click(); [...document.querySelectorAll('h2')].find(h => h.textContent === 'Dead letters').scrollIntoView({block: 'center'})`, "", nil},
		{"dead-letter", "/operations", "h2", "Dead letters", `document.querySelector('[name=files]').click(); ` + soon(".plain button", "Details…", "click"), `document.querySelector('dialog table')`, nil},
		{"live", "/datasets/intake", ".job-line", "Ingest of 5", "", `document.querySelectorAll(".docs .cell.run").length > 1 && document.querySelector(".docs .cell.ok, .docs .cell.part")`, busy},
	}
}

// soon is a program that clicks or focuses what has a text as soon as it is there.
func soon(selector, text, what string) string {
	return fmt.Sprintf(`void (async () => {
		for (;;) {
			const e = [...document.querySelectorAll(%q)].find(e => e.textContent.startsWith(%q));
			if (e) return e.%s();
			await new Promise(requestAnimationFrame);
		}
	})(); `, selector, text, what)
}

const contracts = `# Contracts of 1911

## Supply

So Acme Mills and Harrow Farm signed in Winchester. So Acme Mills paid Harrow Farm for wheat. So Harrow Farm supplied Acme Mills with barley. So Alice Smith of Acme Mills met John Carter of Harrow Farm.

## Carriage

So Carter Brothers carried wheat for Harrow Farm to Winchester. So John Carter left Carter Brothers. So Acme Mills paid Carter Brothers in Winchester. So Alice Smith and John Carter signed.

## Disputes

So Stone Bridge Bank lent money to Acme Mills. So Harrow Farm sued Carter Brothers in Salisbury. So Stone Bridge Bank paid Carter Brothers. So Alice Smith met Stone Bridge Bank in Salisbury.
`

const keywordsFlow = `name = "keywords"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"], config = { chunk_token_num = 64 } },
  { id = "words", kind = "enrich", from = ["cut"], config = { auto_keywords = 3 } },
  { id = "out", kind = "index", from = ["words"] },
]
`

func priceList(rows int) string {
	var b strings.Builder
	b.WriteString("Month,Barn,Sheaves,Price,Buyer\n")
	for i := range rows {
		fmt.Fprintf(&b, "2026-%02d,Barn %c,%d,%.2f,Mill %d\n", i%12+1, 'A'+i%5, 900+i*7%311, 3.5+float64(i%9)*.25, i%4+1)
	}
	return b.String()
}

func handbook() string {
	return "# The keeper's handbook\n\nHow sheaves are taken in, counted and found again.\n\n## Taking in\n\nEach cart is weighed twice. A sheaf that is wet at the core is set aside and turned daily.\n\n## Finding again\n\n| Mark | Meaning |\n| --- | --- |\n| red | wet, turn daily |\n| blue | counted |\n\nAsk for the barn, then for the row.\n"
}
