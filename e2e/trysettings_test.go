package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// tried is what a preview of settings answers.
type tried struct {
	Unit          sheaf.Unit
	Shown, Range  sheaf.Range
	Chunks        []sheaf.Chunk
	LeftOff       int `json:"left_off"`
	Before, After *struct{ Page, Range countedChunks }
	Failures      []sheaf.LedgerRun
	Notes         []string
}

type countedChunks struct {
	Chunks, Tokens int
	MedianTokens   int `json:"median_tokens"`
}

// TestSettingsAreTriedOnAPage looks at chunks of a page by settings that are not
// saved: they are those that a parse makes, and nothing is stored for them.
func TestSettingsAreTriedOnAPage(t *testing.T) {
	s := start(t, nil)
	d := s.upload("harvest.pdf", "application/pdf", `{"overlapped_percent":0}`, string(report(30, "Harvest")))
	at := func(id string) string { return "/v1/datasets/default/documents/" + id + ":preview" }
	try := func(id, body string) tried {
		t.Helper()
		resp, b := s.request("POST", at(id), body, "Content-Type", "application/json")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", body, resp.Status, b)
		}
		return decodeAs[tried](t, b)
	}
	held := func() string {
		var doc sheaf.Document
		var tasks api.List[api.Task]
		var jobs api.List[sheaf.Job]
		s.get("/v1/datasets/default/documents/"+d.ID, &doc)
		s.get("/v1/datasets/default/documents/"+d.ID+"/tasks", &tasks)
		s.get("/v1/jobs", &jobs)
		return fmt.Sprint(doc.Generation, doc.ParseConfig, doc.Chunks, len(tasks.Items), len(jobs.Items))
	}
	before := held()

	page := try(d.ID, `{"page":7,"parser_config":{"chunk_token_num":64}}`)
	if page.Unit != sheaf.UnitPage || page.Shown != (sheaf.Range{From: 7, To: 7}) || !page.Range.Contains(7) || page.Range.Len() > 32 || len(page.Failures)+len(page.Notes)+page.LeftOff != 0 {
		t.Errorf("page 7: %+v", page)
	}
	if page.Before == nil || page.After.Page.Chunks != len(page.Chunks) || page.After.Page.Chunks <= page.Before.Page.Chunks || page.After.Page.MedianTokens >= page.Before.Page.MedianTokens ||
		page.After.Range.Chunks <= page.After.Page.Chunks || page.After.Page.MedianTokens > 64 {
		t.Errorf("the counts are %+v, before %+v", page.After, page.Before)
	}
	for _, c := range page.Chunks {
		if !slices.Contains(c.Pages, 7) || len(c.Boxes) == 0 || c.Tokens == 0 || len(c.HeadingPath) == 0 {
			t.Errorf("a chunk of page 7 is %+v", c)
		}
	}
	// As they are, they are those that search has.
	same := try(d.ID, `{"page":7}`)
	var now []string
	for _, c := range s.chunks(d.ID) {
		if slices.Contains(c.Pages, 7) {
			now = append(now, strings.Join(c.HeadingPath, " > ")+c.Text)
		}
	}
	listed := func(chunks []sheaf.Chunk) (out []string) {
		for _, c := range chunks {
			out = append(out, strings.Join(c.HeadingPath, " > ")+c.Text)
		}
		return out
	}
	if got := listed(same.Chunks); !slices.Equal(got, now) || *same.Before != *same.After {
		t.Errorf("with the settings as they are:\n%q\nwant\n%q\ncounts %+v, %+v", got, now, same.Before, same.After)
	}
	if after := held(); after != before {
		t.Errorf("a preview has changed %s to %s", before, after)
	}

	// What cannot be is refused in the words of a save.
	var saved string
	for _, c := range []struct {
		id, body string
		status   int
		says     string
	}{
		{d.ID, `{"parser_config":{"chunk_token_num":5}}`, 400, "chunk_token_num"},
		{d.ID, `{"over":"dataset","parser_config":{"chunk_token_num":5}}`, 400, "chunk_token_num"},
		{d.ID, `{"parser_config":{"chunk_method":"table"}}`, 400, "table"},
		{d.ID, `{"parser_config":{"chunk_tokens":64}}`, 400, "chunk_tokens"},
		{d.ID, `{"parser_config":{"flow":"none"}}`, 400, "there is no flow none"},
		{d.ID, `{"page":3,"parser_config":{"pages":[[5,9]]}}`, 400, "pages leaves out page 3"},
		{d.ID, `{"parser_config":{"media_type":"text/plain"}}`, 400, "media_type"},
		{d.ID, `{"page":31}`, 404, "the document has 30 pages; page 31 is behind its end"},
		{d.ID, `{"page":0}`, 400, "page"},
		{sheaf.NewID(), `{}`, 404, ""},
	} {
		resp, b := s.request("POST", at(c.id), c.body, "Content-Type", "application/json")
		p := decodeAs[api.Problem](t, b)
		if resp.StatusCode != c.status && !(c.status == 400 && resp.StatusCode == 422) || !strings.Contains(strings.ToLower(p.Detail+fmt.Sprint(p.Errors)), strings.ToLower(c.says)) {
			t.Errorf("%s answers %d: %s", c.body, resp.StatusCode, b)
		}
		if strings.Contains(c.body, "dataset") {
			saved = p.Detail
		}
	}
	if _, b := s.request("PATCH", "/v1/datasets/default", `{"parser_config":{"chunk_token_num":5}}`, "Content-Type", "application/json"); decodeAs[api.Problem](t, b).Detail != saved {
		t.Errorf("a save says %s, a preview %s", b, saved)
	}

	// Of the dataset, whatever the document itself is read by.
	whole := try(d.ID, `{"page":7,"over":"dataset","parser_config":{"chunk_method":"one"}}`)
	if whole.After.Range.Chunks >= whole.Before.Range.Chunks || whole.After.Page.Chunks != 1 {
		t.Errorf("one chunk for all: %+v, before %+v", whole.After, whole.Before)
	}

	// Personal data is replaced as a parse would.
	mail := s.upload("mail.md", "text/markdown", `{}`, "# Contact\n\nWrite to keeper@granary.example before noon.\n")
	if red := try(mail.ID, `{"parser_config":{"pii":"redact"}}`); len(red.Chunks) != 1 || strings.Contains(red.Chunks[0].Text, "keeper@") {
		t.Errorf("redacted: %+v", red.Chunks)
	}
	if red := try(mail.ID, `{}`); len(red.Chunks) != 1 || !strings.Contains(red.Chunks[0].Text, "keeper@") {
		t.Errorf("not redacted: %+v", red.Chunks)
	}

	// Of a table some rows are shown.
	var rows strings.Builder
	rows.WriteString("store,sheaves\n")
	for n := range 300 {
		fmt.Fprintf(&rows, "store %d,%d\n", n+1, n*7)
	}
	table := s.upload("stores.csv", "text/csv", `{}`, rows.String())
	if got := try(table.ID, `{"page":101,"parser_config":{"chunk_method":"table"}}`); got.Unit != sheaf.UnitRow || got.Shown != (sheaf.Range{From: 101, To: 150}) || got.Range.Len() < 300 || len(got.Chunks) != 50 || got.Before.Page.Chunks >= 50 {
		t.Errorf("rows 101 to 150: %v of %v, %d chunks, %+v", got.Shown, got.Range, len(got.Chunks), got.Before)
	}

	// Nothing is known of a file that nobody has opened.
	resp, b := s.request("POST", "/v1/datasets/default/documents?hold=true&name=later.md", "# Later\n")
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s", resp.Status, b)
	}
	later := decodeAs[api.SubmitAnswer](t, b).Documents[0]
	if resp, b := s.request("POST", at(later.ID), `{}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusConflict || !strings.Contains(string(b), `"not_parsed"`) {
		t.Errorf("before it was parsed: %s %s", resp.Status, b)
	}
}

// TestPreviewsAreOfTheirTenant asks for a page of another.
func TestPreviewsAreOfTheirTenant(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	alpha, beta := s.tenant("alpha", "write", sheaf.Quota{}), s.tenant("beta", "write", sheaf.Quota{})
	alpha.newDataset("files", false)
	answer, err := alpha.submitAnswer(t.Context(), "files", []source{text("own.md", "# Own\n\nNobody else reads this.\n")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	alpha.ended(answer.Job.ID)
	for who, want := range map[*service]int{alpha: http.StatusOK, beta: http.StatusNotFound} {
		for _, ds := range []string{"-", "files"} {
			if resp, b := who.ask("POST", "/v1/datasets/"+ds+"/documents/"+answer.Documents[0].ID+":preview", "application/json", []byte(`{}`)); resp.StatusCode != want || (want == http.StatusOK) != strings.Contains(b, "Nobody") {
				t.Errorf("%s: %s %s", ds, resp.Status, b)
			}
		}
	}
}
