package e2e

import (
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
)

// The timeline of a job says which of its documents it shows and leads to the
// others, in the order of the API; the address keeps where it is.
func TestTimelineOfABigJob(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("big", false)
	s.post("/v1/datasets/big:pause", nil, nil) // nothing of it runs, so nothing moves
	var files []source
	for i := range 90 {
		files = append(files, text(fmt.Sprintf("part-%02d.txt", i), "one line"))
	}
	answer, err := s.submitAnswer(t.Context(), "big", files, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var all api.List[sheaf.Document]
	s.get("/v1/jobs/"+answer.Job.ID+"/documents?order=oldest&limit=100", &all)
	if len(all.Items) != 90 {
		t.Fatalf("the job has %d documents, want 90", len(all.Items))
	}
	const section = `section:has(> .tools [role="status"])`
	shows := func(says string, from, to int) {
		t.Helper()
		b.sees(section+` [role="status"]`, says)
		want := ""
		for _, d := range all.Items[from-1 : to] {
			want += d.Name + " "
		}
		b.wait(says, fmt.Sprintf(`[...document.querySelectorAll(".files li a")].map(a => a.textContent + " ").join("") === %q`, want))
		b.wait("tasks of "+all.Items[to-1].Name, fmt.Sprintf(`document.querySelector(".waterfall").textContent.includes(%q)`, all.Items[to-1].Name))
	}
	can := func(what string, yes bool) {
		t.Helper()
		b.wait(what, fmt.Sprintf(`[...document.querySelectorAll("button")].find(b => b.textContent === %q).disabled === %t`, what, !yes))
	}
	b.open("/jobs/" + answer.Job.ID)
	shows("The first 40 of 90 documents", 1, 40)
	can("First documents", false)
	b.press("Next documents")
	shows("Documents 41 to 80 of 90", 41, 80)
	b.press("Next documents")
	shows("Documents 81 to 90 of 90", 81, 90)
	can("Next documents", false)
	b.wait("the focus to stay beside", `document.activeElement.textContent === "First documents"`)
	b.wait("the address to say where it is", `new URLSearchParams(location.search).get("from") === "81"`)
	b.checkAccess(axe(t), "the end of a long timeline")
	b.open(eval[string](b, `location.pathname + location.search`))
	shows("Documents 81 to 90 of 90", 81, 90)
	b.press("First documents")
	shows("The first 40 of 90 documents", 1, 40)
	b.wait("the address to be plain", `!location.search`)
	b.noErrors()
}

// While a job goes on, the tasks of documents that have ended are not read again.
func TestTimelineReadsWhatCanHaveChanged(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	s.newDataset("long", false)
	var long strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&long, "Sentence %d of a text that takes a while to be read.\n", i)
	}
	answer, err := s.submitAnswer(t.Context(), "long", []source{text("a.txt", "one line"), text("b.txt", "two lines"), text("long.txt", long.String())}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	b.open("/jobs/" + answer.Job.ID)
	b.wait("two documents to have ended", `document.querySelectorAll(".files li .badge.ok").length >= 2`)
	const reads = `performance.getEntriesByType("resource").filter(e => e.name.endsWith(%q)).length`
	var docs api.List[sheaf.Document]
	s.get("/v1/jobs/"+answer.Job.ID+"/documents?order=oldest", &docs)
	short, slow := "/documents/"+docs.Items[0].ID+"/tasks", "/documents/"+docs.Items[2].ID+"/tasks"
	before := eval[int](b, fmt.Sprintf(reads, short))
	b.wait("the job to end", `document.querySelectorAll(".files li .badge.ok").length === 3`)
	b.wait("all tasks in the timeline", `document.querySelector(".waterfall").textContent.includes("long.txt")`)
	if after := eval[int](b, fmt.Sprintf(reads, short)); before == 0 || after != before {
		t.Errorf("the tasks of a document that has ended were read %d times, and %d times once it had", before, after-before)
	}
	if n := eval[int](b, fmt.Sprintf(reads, slow)); n < 2 { // at its end at the latest
		t.Errorf("the tasks of the document that ran were read %d times", n)
	}
	b.noErrors()
}
