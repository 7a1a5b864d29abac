package command

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
