package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// forecast asks for a dry run of a batch action on documents.
func (s *service) forecast(verb string, body map[string]any) *ingest.Forecast {
	s.t.Helper()
	if body["filter"] == nil {
		body["all"] = true
	}
	return s.forecastOf("/v1/datasets/default/documents:"+verb, body)
}

// forecastOf asks for a dry run of an action.
func (s *service) forecastOf(action string, body map[string]any) *ingest.Forecast {
	s.t.Helper()
	var out struct{ Forecast *ingest.Forecast }
	s.post(action+"?dry_run=true", body, &out)
	if out.Forecast == nil {
		s.t.Fatalf("the dry run of %s has no forecast", action)
	}
	return out.Forecast
}

func TestDryRunSaysWhatWorkTakes(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Config) {
		c.Price = config.Price{Currency: "EUR", PerThousandPages: 2, PerMillionTokens: 100}
	})
	upload := func(name, content string) *api.SubmitAnswer {
		t.Helper()
		resp, b := s.request("POST", "/v1/datasets/default/documents?dry_run=true&name="+name, content)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", resp.Status, b)
		}
		a := decodeAs[api.SubmitAnswer](t, b)
		return &a
	}
	// Nothing like it was measured: nothing is invented.
	first := upload("new.pdf", string(report(30, "Harvest"))).Forecast
	if first.Units != 30 || first.Unit != sheaf.UnitPage || first.Ranges < 3 || first.Chunks.Count != nil || first.Tokens.Count != nil || first.Seconds.P50 != nil || first.Price != nil {
		t.Errorf("before anything was measured: %+v", first)
	}
	_, docs := s.send(nil, text("measured.pdf", string(report(30, "Barley"))))
	d := docs[0]
	mustState(t, d, sheaf.DocSucceeded)

	// A file of the same type: an estimate from what was measured, and it says so.
	// A sample of the speed, here one without tasks, is kept for a while.
	var a *api.SubmitAnswer
	waitFor(t, "the speed to be measured", func() bool {
		a = upload("other.pdf", string(report(15, "Carts")))
		return a.Forecast.Seconds.P50 != nil
	})
	f := a.Forecast
	if f.Units != 15 || len(a.Plans) != 1 || f.Chunks.Count == nil || !f.Chunks.Estimated || f.Chunks.Basis == "" {
		t.Fatalf("%+v", f)
	}
	if half := d.Chunks / 2; *f.Chunks.Count < half*6/10 || *f.Chunks.Count > half*14/10 {
		t.Errorf("15 pages are said to make %d chunks, 30 like them made %d", *f.Chunks.Count, d.Chunks)
	}
	if f.Seconds.P50 == nil || f.Seconds.P90 == nil || *f.Seconds.P50 <= 0 || *f.Seconds.P90 < *f.Seconds.P50 {
		t.Errorf("time %+v", f.Seconds)
	}
	if want := 2*15.0/1000 + 100*float64(*f.Tokens.Count)/1e6; f.Price == nil || f.Price.Currency != "EUR" || !f.Price.Estimated || f.Price.Amount < want*0.999 || f.Price.Amount > want*1.001 {
		t.Errorf("price %+v, want %g", f.Price, want)
	}

	// The same bytes and a re-parse without a change are reused: exact, free and at once.
	same, reparse := upload("again.pdf", string(report(30, "Barley"))).Forecast, s.forecast("reparse", map[string]any{})
	for what, f := range map[string]*ingest.Forecast{"same bytes": same, "re-parse": reparse} {
		if f.Reused.Ranges != f.Ranges || f.Chunks.Estimated || *f.Chunks.Count != d.Chunks || *f.Tokens.Count != d.Tokens || f.Price.Amount != 0 {
			t.Errorf("%s: %+v, %d chunks", what, f, *f.Chunks.Count)
		}
	}
	if *reparse.Seconds.P90 != 0 {
		t.Errorf("a re-parse that changes nothing takes %g s", *reparse.Seconds.P90)
	}
	// Each kind of work has the speed of its stages: the chunks of a copy are
	// indexed, new vectors are also made, and a page that is read anew takes all.
	embed := s.forecast("retry", map[string]any{"scope": "stage:embed"})
	index := s.forecast("retry", map[string]any{"scope": "stage:index"})
	all := s.forecast("retry", map[string]any{"scope": "all"})
	times := []float64{*same.Seconds.P50, *index.Seconds.P50, *embed.Seconds.P50, *all.Seconds.P50}
	if times[0] <= 0 || times[0] != times[1] || times[1] > times[2] || times[2] >= times[3] || *embed.Seconds.P90 < *embed.Seconds.P50 {
		t.Errorf("a copy, a repeated index, new vectors and all anew are said to take %g s", times)
	}
	if embed.Documents != 1 || *embed.Chunks.Count != d.Chunks || embed.Chunks.Estimated || embed.Reused.Chunks != d.Chunks || embed.Reused.Tokens != 0 || embed.Price.Amount <= 0 {
		t.Errorf("new vectors: %+v", embed)
	}
	if index.Reused.Tokens != d.Tokens || index.Price.Amount != 0 {
		t.Errorf("a repeated index: %+v", index)
	}
	// Smaller chunks: more of them, of as much text.
	f = s.forecast("reparse", map[string]any{"parser_config": map[string]any{"chunk_token_num": 64}})
	if f.Reused.Ranges != 0 || *f.Chunks.Count <= d.Chunks || *f.Tokens.Count != d.Tokens || !f.Tokens.Estimated {
		t.Errorf("smaller chunks: %+v, %d chunks", f, *f.Chunks.Count)
	}
	if f = s.forecast("reparse", map[string]any{"fresh": true}); f.Reused.Ranges != 0 || *f.Chunks.Count != d.Chunks {
		t.Errorf("read anew: %+v", f)
	}
	if f = s.forecast("delete", map[string]any{}); f.Documents != 1 || f.Removed.Chunks != d.Chunks || f.Removed.Bytes != d.Size || f.Removed.Generations != 1 {
		t.Errorf("delete: %+v", f)
	}
	if f = s.forecast("cancel", map[string]any{}); f.Documents != 0 || f.Skipped != 1 || *f.Stopped != (ingest.StoppedTasks{}) {
		t.Errorf("cancel of what is done: %+v", f)
	}
	s.post("/v1/queues:pause", nil, nil)
	waits, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("waits.txt", "It waits.")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]*ingest.Forecast{"documents": s.forecast("cancel", map[string]any{}), "job": s.forecastOf("/v1/jobs/"+waits.Job.ID+":cancel", nil)} {
		if f.Documents != 1 || f.Stopped.Queued != 1 || f.Stopped.Running != 0 {
			t.Errorf("cancel of the %s: %+v %+v", what, f, f.Stopped)
		}
	}
	if f = s.forecastOf("/v1/jobs/"+d.JobID+":cancel", nil); f.Documents != 0 || f.Skipped != 1 {
		t.Errorf("cancel of a job that has ended: %+v", f)
	}
	if f = s.forecastOf("/v1/jobs/"+d.JobID+":retry", map[string]any{"scope": "stage:embed"}); f.Documents != 1 || *f.Chunks.Count != d.Chunks || f.Seconds.P50 == nil || *f.Seconds.P50 < *embed.Seconds.P50 {
		t.Errorf("new vectors of a job: %+v", f)
	}
	if f = s.forecastOf("/v1/jobs/"+d.JobID+":retry", map[string]any{}); f.Documents != 0 || f.Skipped != 1 {
		t.Errorf("retry of a job in which nothing failed: %+v", f)
	}
	// Pages and rows have no name in common.
	s.post("/v1/queues:resume", nil, nil)
	_, rows := s.send(nil, text("rows.csv", "field,crop\nnorth,barley\n"))
	if f = s.forecast("reparse", map[string]any{"filter": map[string]any{"document_ids": []string{rows[0].ID}}}); f.Unit != sheaf.UnitRow {
		t.Errorf("rows alone: %+v", f)
	}
	if f = s.forecast("reparse", map[string]any{"filter": map[string]any{"document_ids": []string{rows[0].ID, d.ID}}}); f.Unit != "" || f.Units <= 30 {
		t.Errorf("pages and rows: %+v", f)
	}
	if now := s.doc(d.ID); now.Generation != 1 || now.Chunks != d.Chunks {
		t.Errorf("dry runs left generation %d with %d chunks", now.Generation, now.Chunks)
	}
}

func TestRetryOfOnePageOrCodeLeavesTheRest(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	healed := filepath.Join(t.TempDir(), "healed")
	special := map[int]string{5: "FAIL " + healed + " subject5", 20: "FAIL " + healed + " subject20", 25: "CRASH"}
	_, docs := s.send(map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, text("narrow.trial", trialPages(30, special)))
	d := docs[0]
	if d.Ledger.Failed != 3 {
		t.Fatalf("ledger %+v", d.Ledger)
	}
	if err := os.WriteFile(healed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	one := map[string]any{"document_ids": []string{d.ID}}
	f := s.forecast("retry", map[string]any{"filter": one, "units": []any{[]int{1, 10}}})
	if f.Documents != 1 || f.Ranges-f.Reused.Ranges != 1 || f.Reused.Chunks != d.Chunks {
		t.Errorf("dry run: %+v", f)
	}
	retry := func(body map[string]any) sheaf.Document {
		t.Helper()
		body["filter"] = one
		var again api.BatchAnswer
		s.post("/v1/datasets/default/documents:retry", body, &again)
		s.ended(again.Job.ID)
		return s.doc(d.ID)
	}
	failed := func(want ...int) {
		t.Helper()
		var pages api.Pages
		s.get("/v1/datasets/default/documents/"+d.ID+"/pages", &pages)
		var got []int
		for _, r := range pages.Runs {
			for n := r.From; r.Status == sheaf.UnitFailed && n <= r.To; n++ {
				got = append(got, n)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("pages %v failed, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("pages %v failed, want %v", got, want)
			}
		}
	}
	// One page: the others stay as they are, and their cures are still known.
	if now := retry(map[string]any{"units": []any{[]int{5, 5}}}); now.State != sheaf.DocPartiallySucceeded || now.Ledger.OK != 28 {
		t.Errorf("after one page: %s %+v", now.State, now.Ledger)
	}
	failed(20, 25)
	if !s.finds("subject5") || s.finds("subject20") {
		t.Error("search does not show exactly what was read")
	}
	// What is not among the failures is refused, in words.
	if err := s.call(t.Context(), http.MethodPost, "/v1/datasets/default/documents:retry", map[string]any{"filter": one, "units": []any{[]int{7, 9}}}, nil); err == nil {
		t.Error("a retry of pages that were read was taken")
	}
	if err := s.call(t.Context(), http.MethodPost, "/v1/datasets/default/documents:retry", map[string]any{"filter": one, "codes": []string{"bad_page"}, "scope": "all"}, nil); err == nil {
		t.Error("a retry of all, narrowed, was taken")
	}
	// One code.
	if now := retry(map[string]any{"codes": []string{"bad_page"}}); now.Ledger.OK != 29 || now.Ledger.Failed != 1 {
		t.Errorf("after one code: %+v", now.Ledger)
	}
	failed(25)
	// And the last one, which crashes again: nothing else is lost.
	if now := retry(map[string]any{}); now.Ledger.OK != 29 || now.Ledger.Failed != 1 || !s.finds("subject20") || !s.finds("subject30") {
		t.Errorf("after all: %+v", now.Ledger)
	}
	failed(25)
}

func TestRetryCommandNarrowsToPagesAndCodes(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	healed := filepath.Join(t.TempDir(), "healed")
	_, docs := s.send(map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, text("narrow.trial", trialPages(30, map[int]string{5: "FAIL " + healed, 20: "FAIL " + healed, 25: "FAIL " + healed})))
	d := docs[0]
	if err := os.WriteFile(healed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) error {
		if o := s.sheaf(append([]string{"retry", d.ID}, args...)...); o.code != 0 {
			return errors.New(o.err)
		}
		return nil
	}
	failed := func(want int) {
		t.Helper()
		var jobs api.List[sheaf.Job]
		s.get("/v1/jobs?limit=1", &jobs)
		s.ended(jobs.Items[0].ID)
		if now := s.doc(d.ID); now.Ledger.Failed != want {
			t.Fatalf("%d pages failed, want %d", now.Ledger.Failed, want)
		}
	}
	if err := run("--units", "9-5"); err == nil || !strings.Contains(err.Error(), "5,9-12") {
		t.Errorf("a range that runs backward: %v", err)
	}
	if err := run("--units", "7"); err == nil {
		t.Error("a retry of a page that was read was taken")
	}
	if err := run("--units", "5", "--dry-run"); err != nil {
		t.Fatal(err)
	}
	failed(3)
	if err := run("--units", "5,15-20"); err != nil {
		t.Fatal(err)
	}
	failed(1)
	if err := run("--code", "bad_page"); err != nil {
		t.Fatal(err)
	}
	failed(0)
}
