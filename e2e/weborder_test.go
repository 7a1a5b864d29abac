package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
)

// The rows of a dataset stand in the order of the API, however many there are,
// before and after the page follows what happens.
func TestRowsStandInTheOrderOfTheAPI(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	files := func(prefix string, n int) (out []source) {
		for i := range n {
			out = append(out, text(fmt.Sprintf("%s-%04d.txt", prefix, i), "one line of "+prefix))
		}
		return out
	}
	const drawn = `[...document.querySelectorAll(".docs tbody tr[data-id]")].map(r => r.dataset.id)`
	caughtUp := func(n int) string {
		return fmt.Sprintf(`document.querySelector("#line").dataset.state === "live" && performance.getEntriesByType("resource").filter(e => e.name.includes("limit=100") && e.responseEnd).length >= %d`, n)
	}
	for _, n := range []int{39, 40, 41, 101, 526} {
		name := fmt.Sprintf("of-%d", n)
		s.newDataset(name, false)
		s.post("/v1/datasets/"+name+":pause", nil, nil) // nothing of it runs
		if _, err := s.submitAnswer(t.Context(), name, files("old", n), nil, ""); err != nil {
			t.Fatal(err)
		}
		want := func() (ids []string) {
			for cursor := ""; ; {
				var page api.List[sheaf.Document]
				s.get("/v1/datasets/"+name+"/documents?limit=1000"+cursor, &page)
				for _, d := range page.Items {
					ids = append(ids, d.ID)
				}
				if page.NextCursor == nil {
					return ids
				}
				cursor = "&cursor=" + *page.NextCursor
			}
		}
		check := func(when string, scroll int) {
			t.Helper()
			all := want()
			b.run(evaluate(fmt.Sprintf(`document.querySelector(".scroller").scrollTop = %d`, scroll*44)))
			first := min(max(scroll-8, 0), len(all))
			b.wait(fmt.Sprintf("the rows of %d documents from %d on, %s", n, scroll, when),
				fmt.Sprintf(`(() => { const ids = %s, all = [%s], at = all.indexOf(ids[0]); return ids.length > 9 && at <= %d && at >= %d - 60 && ids.every((id, i) => id === all[at + i]); })()`,
					drawn, `"`+strings.Join(all, `","`)+`"`, max(first, 0), first))
		}
		b.open("/datasets/" + name)
		check("as they were read", 0)
		b.wait("the page to catch up", caughtUp(1))
		check("with the stream open", 0)
		check("further down", max(n-15, 0))
		// Documents that come while the page is open stand on top, in their order:
		// a few, and more than are read at once.
		for i, more := range []int{3, 150} {
			if _, err := s.submitAnswer(t.Context(), name, files(fmt.Sprintf("new%d", i), more), nil, ""); err != nil {
				t.Fatal(err)
			}
			newest := want()[0]
			b.run(evaluate(`document.querySelector(".scroller").scrollTop = 0`))
			b.wait("the newest document", fmt.Sprintf(`%s[0] === %q`, drawn, newest))
			check("after more came", 0)
			check("after more came, further down", n/2)
		}
	}
	if ids := eval[[]string](b, drawn); slices.Contains(ids, "") {
		t.Error("a row has no document")
	}
	b.noErrors()
}

// A dataset that is gone, or never was, does not stay the page that everything
// leads to.
func TestADatasetThatIsGoneIsLeft(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("tmp", false)
	b.open("/datasets/tmp")
	b.sees("h1", "tmp")
	s.must("dataset", "delete", "tmp", "--yes")
	b.mu.Lock()
	b.deleted = "tmp"
	b.mu.Unlock()
	b.open("/datasets/tmp")
	b.sees("#view", "no dataset tmp")
	b.press("All datasets")
	b.sees("h1", "Datasets")
	b.open("/")
	b.sees("h1", "default")
	b.mu.Lock()
	b.deleted = "mistyped"
	b.mu.Unlock()
	b.open("/datasets/mistyped")
	b.sees("#view", "no dataset mistyped")
	b.press("Documents")
	b.sees("h1", "default")
	b.noErrors()
}

// Where the server does not answer a filter, what stands there is no answer to
// another question.
func TestRowsLeaveWhenTheirAnswerDoesNotCome(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("calm", false)
	s.add("calm", text("one.txt", "One."), text("two.md", "# Two"))
	b.open("/datasets/calm")
	b.sees(".docs", "one.txt")
	b.run(evaluate(`window.realFetch = window.fetch; window.fetch = (...a) => String(a[0]).includes("media_type=") ? Promise.reject(new TypeError("away")) : window.realFetch(...a)`))
	b.facet("Format: Text")
	b.wait("the error alone", `document.querySelector(".trouble") && document.querySelector(".scroller").hidden`)
	b.run(evaluate(`window.fetch = window.realFetch`))
	b.press("Try again")
	b.sees(".docs", "one.txt")
	b.wait("only that", `document.querySelectorAll(".docs tr[data-id]").length === 1`)
	b.noErrors()
}
