package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sheaf/internal/search"
)

// TestSearchOfThePage drives what a search may be asked on the page, and holds
// the hits to where they say they stand.
func TestSearchOfThePage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	s.newDataset("barns", false)
	s.newDataset("mills", false)
	var many []source
	for i := range 60 {
		many = append(many, text(fmt.Sprintf("note %02d.md", i), fmt.Sprintf("# Note %d\n\nThe harvest of field %d was dry.\n", i, i)))
	}
	many = append(many, text("map.md", "# The way\n\nThe barns are on [the map](https://example.org/map) of the parish.\n"))
	s.add("barns", many...)
	s.add("mills", text("counts.csv", "field,harvest\nnorth,harvest dry\nsouth,harvest wet\n"), text("survey.pdf", string(report(2, "harvest"))))

	// The field at the top says what it searches, and searches that.
	b.open("/datasets/mills")
	b.wait("what is searched", `document.querySelector("#q").placeholder === "Search in mills" && document.querySelector('label[for="q"]').textContent === "Search in mills"`)
	b.open("/jobs")
	b.wait("what is searched", `document.querySelector("#q").placeholder === "Search all datasets"`)
	b.run(chromedp.SendKeys("#q", "harvest dry"+kb.Enter))
	b.wait("hits", `document.querySelectorAll(".hit").length === 20`)
	if at := eval[string](b, `location.pathname + location.search`); at != "/search?q=harvest+dry" {
		t.Errorf("the address of the search is %s", at)
	}
	b.wait("one field to search with", `[...document.querySelectorAll("input[type=search]")].filter(i => i.checkVisibility()).length === 1 && document.querySelector(".search-form [name=q]").value === "harvest dry"`)
	b.keys("/")
	b.wait("the focus in it", `document.activeElement.matches(".search-form [name=q]")`)

	// There is more than 20, and what was read stays.
	first := eval[string](b, `document.querySelector(".hit h2").textContent`)
	b.press("Show more")
	b.wait("more hits, and the focus on the first of them", `document.querySelectorAll(".hit").length === 50 && document.activeElement === document.querySelectorAll(".hit h2 a")[20]`)
	if got := eval[string](b, `document.querySelector(".hit h2").textContent + location.search`); got != first+"?q=harvest+dry&limit=50" {
		t.Errorf("after more was asked for: %s", got)
	}
	b.press("Show more")
	b.wait("all hits", `document.querySelectorAll(".hit").length > 60 && ![...document.querySelectorAll("button")].some(b => b.textContent === "Show more")`)

	// A hit says where it stands, in the words of its format; a file that is read whole has no place.
	places := eval[string](b, `[...new Set([...document.querySelectorAll(".hit h2")].map(h => h.textContent.replace(/ \d\d/, "")))].sort().join("; ")`)
	for _, want := range []string{"counts.csv, row", "note.md;", "survey.pdf, page"} {
		if !strings.Contains(places, want) {
			t.Errorf("hits are called %q, want %q among them", places, want)
		}
	}

	// A hit shows the addresses that its text leads to.
	b.open("/search?q=parish+map&dataset=barns")
	b.wait("the link of the hit", `document.querySelector('.hit .labels a[href="https://example.org/map"][rel=noreferrer]')`)

	// What can be asked stands in the address, and only what the mode and the groups allow is sent.
	choose := func(name, value string) {
		t.Helper()
		b.run(evaluate(fmt.Sprintf(`(() => { const i = document.querySelector(".search-form [name=%s]"); i.value = %q; i.dispatchEvent(new Event("change")); })()`, name, value)))
		b.wait(name+" in the address", fmt.Sprintf(`new URLSearchParams(location.search).get(%q) === %q && !document.querySelector("section[aria-busy]")`, name, value))
	}
	b.open("/search?q=harvest+dry&dataset=mills")
	b.sees(".hits", "counts.csv")
	choose("weight", "0")
	choose("group", "document")
	b.wait("one hit of each", `document.querySelectorAll(".hit").length === 2`)
	choose("size", "2")
	b.wait("two hits of one", `[...document.querySelectorAll(".hit h2")].filter(h => h.textContent.startsWith("survey.pdf")).length === 2`)
	b.checkAccess(script, "a search with all it may be asked")
	choose("threshold", "1")
	b.wait("only the best", `document.querySelectorAll(".hit").length <= 1`)
	b.wait("the filters that are set", `document.querySelector(".filter-toggle").textContent === "Filters (5 set)"`)

	// The command finds what the page finds.
	b.open("/search?q=harvest+dry&dataset=mills&weight=0.3&group=document&size=2")
	b.sees(".hits", "survey.pdf")
	names := eval[[]string](b, `[...document.querySelectorAll(".hit h2 a > bdi")].map(h => h.textContent)`)
	b.run(evaluate(`document.querySelector(".as-command summary").click()`))
	command := eval[string](b, `document.querySelector(".as-command pre").textContent`)
	b.checkAccess(script, "a search as a command")
	b.fits("a search as a command")
	out, err := exec.Command("sh", "-c", strings.Replace(command, "curl ", "curl -sS ", 1)).Output()
	var answer search.Response
	if err != nil || json.Unmarshal(out, &answer) != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	var got []string
	for _, h := range answer.Hits {
		got = append(got, h.Document.Name)
	}
	if fmt.Sprint(got) != fmt.Sprint(names) || len(got) == 0 {
		t.Errorf("the command finds %q, the page %q", got, names)
	}
	b.noErrors()
}

// Two settings of a search stand side by side: the address holds both, each hit
// says where the other has it, and the programs that are offered find the same.
func TestTwoSettingsSideBySide(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	s.newDataset("mills", false)
	s.add("mills", text("one.txt", "The mill grinds barley. The mill grinds barley at night."), text("two.txt", "A mill by the river."), text("three.txt", "Wheat and \"flour\" are ground by water wheels."))

	b.open("/search?q=mill+barley&dataset=mills")
	b.sees(".hits", "one.txt")
	b.press("Compare with other settings")
	b.wait("two lists alike", `(r => r.length === 2 && r[0].querySelectorAll(".hit").length > 1 && [...r[0].querySelectorAll(".hit .badge")].every(e => e.textContent === "Same rank as in B"))(document.querySelectorAll(".compare > section"))`)
	if at := eval[string](b, `location.search`); at != "?q=mill+barley&dataset=mills&compare=1" {
		t.Errorf("the address is %s", at)
	}
	b.run(evaluate(`(() => { const i = document.querySelector("[name=b_mode]"); i.value = "text"; i.dispatchEvent(new Event("change")); })()`))
	b.wait("what words alone do not find", `document.querySelector('[aria-label="Hits of A"]')?.textContent.includes("three.txt") && !document.querySelector('[aria-label="Hits of B"]').textContent.includes("three.txt") && !document.querySelector("section[aria-busy]")`)
	// What the page says of a hit is what the two answers say.
	type hit struct{ Name, Says string }
	read := func(side string) []hit {
		return eval[[]hit](b, fmt.Sprintf(`[...document.querySelectorAll('[aria-label="Hits of %s"] .hit')].map(h => ({ Name: h.querySelector("h2 bdi").textContent, Says: h.querySelector(".badge").textContent }))`, side))
	}
	ranks := func(mode string) map[string]int {
		var answer search.Response
		s.post("/v1/datasets/mills/search", map[string]any{"query": "mill barley", "mode": mode, "limit": 20}, &answer)
		out := map[string]int{}
		for i, h := range answer.Hits {
			out[h.Document.Name] = i + 1
		}
		return out
	}
	of := map[string]map[string]int{"A": ranks("hybrid"), "B": ranks("text")}
	other := map[string]string{"A": "B", "B": "A"}
	shared := 0
	for side := range of {
		hits := read(side)
		if len(hits) != len(of[side]) || len(hits) == 0 {
			t.Errorf("%s shows %v, the API answers %v", side, hits, of[side])
		}
		for i, h := range hits {
			want := "Not in " + other[side]
			if at := of[other[side]][h.Name]; at > 0 {
				shared++
				switch up := at - (i + 1); {
				case up > 0:
					want = fmt.Sprintf("%d higher than in %s", up, other[side])
				case up < 0:
					want = fmt.Sprintf("%d lower than in %s", -up, other[side])
				default:
					want = "Same rank as in " + other[side]
				}
			}
			if of[side][h.Name] != i+1 || h.Says != want {
				t.Errorf("%s has %s at %d, which says %q, want %q", side, h.Name, i+1, h.Says, want)
			}
		}
	}
	b.sees("[role=status]", fmt.Sprintf("%d of %d passages in both", shared/2, len(of["A"])))
	b.checkAccess(script, "two searches")
	b.fits("two searches")

	// The address is enough to see it again, and the programs of B find what B shows.
	b.open("/search" + eval[string](b, "location.search"))
	b.sees(".second legend", "Settings of B")
	b.sees(".compare", "Not in B")
	b.run(evaluate(`document.querySelector('[aria-label="Hits of B"] summary').click()`))
	python := eval[string](b, `document.querySelector('[aria-label="Search B in Python"]').textContent`)
	out, err := exec.Command("python3", "-c", python).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != len(of["B"]) {
		t.Fatalf("%s: %v\n%s", python, err, out)
	}
	for i, l := range lines {
		if fields := strings.Fields(l); len(fields) < 2 || of["B"][fields[1]] != i+1 {
			t.Errorf("line %d of the program is %q, want the order %v", i+1, l, of["B"])
		}
	}
	// A mode that does not exist is refused, not taken for the default.
	here := eval[string](b, "location.search")
	b.open("/search?q=mill&dataset=mills&compare=1&b_mode=wrods")
	b.sees(".trouble", "wrods")
	b.mu.Lock()
	b.faults = nil // the refusal is logged
	b.mu.Unlock()
	b.open("/search" + here)
	b.sees(".compare", "Not in B")
	b.press("Stop comparing")
	b.wait("one list", `!document.querySelector(".compare") && document.querySelectorAll(".hits .hit").length > 0 && location.search === "?q=mill+barley&dataset=mills"`)
	b.noErrors()
}
