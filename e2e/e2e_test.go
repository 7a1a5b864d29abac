package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/blob"
	"sheaf/internal/config"
	"sheaf/internal/keeper"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
	"sheaf/samples"
	"sheaf/taskstore"
)

func TestMain(m *testing.M) {
	if os.Getenv(mainVar) == "1" {
		p := product
		if every, err := time.ParseDuration(os.Getenv(ticksVar)); err == nil {
			p.KeeperFunc = func(c *keeper.Config) { c.FeedEvery, c.FoldEvery = every, every }
		}
		os.Exit(p.Run(os.Args[1:]))
	}
	child.MaybeRun(product.FormatsFunc(formats.FromEnviron()))
	os.Exit(m.Run())
}

// trialFormat is a text format whose lines are pages and whose pages can be
// told to misbehave: "CRASH" kills the parser, "HANG" never ends, "SLOW" takes
// a while, "FAIL path" is a page that cannot be read until the path exists. What
// stands before " :: " is a heading. A document that begins with "PRINTS" has a
// fingerprint of each page.
type trialFormat struct{}

const trialMedia = "application/x-scan"

func (trialFormat) ID() string               { return "scan" }
func (trialFormat) Version() int             { return 1 }
func (trialFormat) Types() []parser.FileType { return parser.Types(parser.FileType{}, trialMedia) }
func (trialFormat) Options() []string        { return nil }
func (trialFormat) Open(_ context.Context, f *os.File, _ parser.Options) (parser.Document, error) {
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	return trialDocument(strings.Split(strings.TrimSpace(string(b)), "\n")), nil
}

type trialDocument []string

func (d trialDocument) Plan(ctx context.Context) (*parser.Plan, error) {
	if word, path, _ := strings.Cut(d[0], " "); word == "COUNT" { // takes as long as its file is missing
		for missing(path) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	plan := &parser.Plan{Unit: sheaf.UnitPage, Units: len(d), RangeSize: 12}
	if strings.HasPrefix(d[0], "PRINTS") {
		for _, page := range d {
			plan.Fingerprints = append(plan.Fingerprints, xxhash.Sum64String(page))
		}
	}
	return plan, nil
}

func (d trialDocument) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		line := d[n-1]
		u := sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK}
		if title, text, ok := strings.Cut(line, " :: "); ok {
			u.Blocks, line = append(u.Blocks, sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: title, Page: n}), text
		}
		u.Blocks = append(u.Blocks, sheaf.Block{Kind: sheaf.BlockParagraph, Text: line, Page: n})
		switch {
		case strings.HasPrefix(line, "CRASH"):
			fmt.Fprintln(os.Stderr, "the page made the parser crash")
			os.Exit(3)
		case strings.HasPrefix(line, "HANG"):
			select {}
		case strings.HasPrefix(line, "SLOW"):
			time.Sleep(300 * time.Millisecond)
		case strings.HasPrefix(line, "FAIL") && missing(strings.Fields(line)[1]):
			u = sheaf.UnitResult{Unit: n, Status: sheaf.UnitFailed, Code: "bad_page", Message: "the page is broken"}
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

func (d trialDocument) Close() error { return nil }

func missing(path string) bool {
	_, err := os.Stat(path)
	return err != nil
}

func text(name, content string) source {
	return source{name: name, open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

// send uploads and waits for the end of the job.
func (s *service) send(fields map[string]string, files ...source) (*sheaf.Job, []sheaf.Document) {
	s.t.Helper()
	answer, err := s.submitAnswer(s.t.Context(), defaultDataset, files, fields, "")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range answer.Rejected {
		s.t.Fatalf("%s was refused: %s", r.Name, r.Failure.Message)
	}
	return s.ended(answer.Job.ID), s.docs(answer.Documents)
}

// ended waits for a job's end.
func (s *service) ended(id string) *sheaf.Job {
	s.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		job, err := s.job(s.t.Context(), id, "20s")
		if err != nil {
			s.t.Fatal(err)
		}
		if job.State.Terminal() {
			return job
		}
		if time.Now().After(deadline) {
			b, _ := json.Marshal(job)
			s.t.Fatalf("the job did not end: %s", b)
		}
	}
}

func (s *service) docs(list []sheaf.Document) []sheaf.Document {
	s.t.Helper()
	out := make([]sheaf.Document, len(list))
	for i, d := range list {
		out[i] = s.doc(d.ID)
	}
	return out
}

func (s *service) doc(id string) sheaf.Document {
	s.t.Helper()
	var d sheaf.Document
	s.get("/v1/datasets/default/documents/"+id, &d)
	return d
}

func (s *service) get(path string, out any) {
	s.t.Helper()
	if err := s.call(s.t.Context(), http.MethodGet, path, nil, out); err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
}

func (s *service) post(path string, body, out any) {
	s.t.Helper()
	if err := s.call(s.t.Context(), http.MethodPost, path, body, out); err != nil {
		s.t.Fatalf("POST %s: %v", path, err)
	}
}

// find searches and returns the texts of the hits.
func (s *service) find(query string) []string {
	s.t.Helper()
	r, err := s.search(s.t.Context(), defaultDataset, map[string]any{"query": query, "mode": "text", "limit": 50})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, h := range r.Hits {
		out = append(out, h.Chunk.Text)
	}
	return out
}

func (s *service) finds(query string) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.find(query), func(text string) bool { return strings.Contains(text, query) })
}

func mustState(t *testing.T, d sheaf.Document, want sheaf.DocumentState) {
	t.Helper()
	if d.State != want {
		b, _ := json.Marshal(d)
		t.Fatalf("%s is %s, want %s: %s", d.Name, d.State, want, b)
	}
}

func sampleFiles(t *testing.T) []source {
	t.Helper()
	entries, err := samples.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var out []source
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "handbook.") {
			out = append(out, source{name: e.Name(), open: func() (io.ReadCloser, error) { return samples.FS.Open(e.Name()) }})
		}
	}
	return out
}

func TestUploadBecomesSearchableWithPageAndBox(t *testing.T) {
	s := start(t, nil)
	job, docs := s.send(nil, sampleFiles(t)...)
	if job.State != sheaf.DocSucceeded || job.Progress != 1 {
		t.Fatalf("job ended %s at %v", job.State, job.Progress)
	}
	for _, d := range docs {
		mustState(t, d, sheaf.DocSucceeded)
		if d.Chunks == 0 || d.Ledger.Total() != d.Units || d.LiveGeneration != 1 || d.Progress != 1 {
			t.Errorf("%s: %d chunks, ledger %+v of %d units, live %d, progress %v", d.Name, d.Chunks, d.Ledger, d.Units, d.LiveGeneration, d.Progress)
		}
	}
	i := slices.IndexFunc(docs, func(d sheaf.Document) bool { return d.MediaType == parser.MediaPDF })
	pdf := docs[i]
	r, err := s.search(t.Context(), defaultDataset, map[string]any{"query": "what happens when an executor is killed", "limit": 10, "filter": map[string]any{"document_ids": []string{pdf.ID}}})
	if err != nil || len(r.Hits) == 0 {
		t.Fatalf("nothing found in the PDF: %v", err)
	}
	hit := r.Hits[0].Chunk
	if len(hit.Pages) == 0 || len(hit.Boxes) == 0 {
		t.Fatalf("the hit has no citation: %+v", hit)
	}
	for _, b := range hit.Boxes {
		if !slices.Contains(hit.Pages, b.Page) || b.X1 <= b.X0 || b.Y1 <= b.Y0 || b.X0 < 0 || b.Y1 > 900 {
			t.Errorf("box %+v is not on the hit's pages %v", b, hit.Pages)
		}
	}
	var pages api.Pages
	s.get("/v1/datasets/default/documents/"+pdf.ID+"/pages", &pages)
	if pages.Counts.Total() != pdf.Units || pages.Counts.Failed != 0 {
		t.Errorf("page ledger: %+v", pages)
	}
	var chunks api.List[sheaf.Chunk]
	s.get(fmt.Sprintf("/v1/datasets/default/documents/%s/chunks?page=%d", pdf.ID, hit.Pages[0]), &chunks)
	if !slices.ContainsFunc(chunks.Items, func(c sheaf.Chunk) bool { return c.ID == hit.ID && c.Text == hit.Text }) {
		t.Error("the page's chunks do not hold the hit")
	}
	resp, err := s.do(t.Context(), http.MethodGet, fmt.Sprintf("/v1/datasets/default/documents/%s/pages/%d/image?dpi=50", pdf.ID, hit.Pages[0]), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if img, _ := io.ReadAll(resp.Body); len(img) < 1000 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "image/") {
		t.Errorf("page image: %d bytes of %s", len(img), resp.Header.Get("Content-Type"))
	}
}

func TestReparseOfUnchangedReusesEverything(t *testing.T) {
	s := start(t, nil)
	_, docs := s.send(nil, sampleFiles(t)...)
	var again api.BatchAnswer
	s.post("/v1/datasets/default/documents:reparse", map[string]any{"all": true}, &again)
	job := s.ended(again.Job.ID)
	if job.State != sheaf.DocSucceeded || job.Usage.Pages != 0 || job.Usage.EmbeddedTokens != 0 {
		t.Fatalf("re-parse ended %s and used %+v", job.State, job.Usage)
	}
	chunks := 0
	for _, d := range docs {
		now := s.doc(d.ID)
		chunks += now.Chunks
		if now.LiveGeneration != 2 || now.Chunks != d.Chunks {
			t.Errorf("%s: live %d with %d chunks, had %d", d.Name, now.LiveGeneration, now.Chunks, d.Chunks)
		}
	}
	if job.Reused.Chunks != chunks {
		t.Errorf("receipt says %d chunks reused of %d", job.Reused.Chunks, chunks)
	}
}

func TestReparseWithOtherSettingsReplacesAtOnce(t *testing.T) {
	s := start(t, nil)
	_, docs := s.send(nil, text("a.txt", strings.Repeat("The quick zebra jumps over the lazy dog. ", 200)))
	before := docs[0].Chunks
	var again api.BatchAnswer
	s.post("/v1/datasets/default/documents:reparse", map[string]any{"all": true, "parser_config": map[string]any{"chunk_token_num": 64}}, &again)
	job := s.ended(again.Job.ID)
	now := s.doc(docs[0].ID)
	if job.State != sheaf.DocSucceeded || now.Chunks <= 2*before || now.LiveGeneration != 2 {
		t.Fatalf("job %s, %d chunks after %d, live %d", job.State, now.Chunks, before, now.LiveGeneration)
	}
	if n := len(s.find("zebra")); n != now.Chunks {
		t.Errorf("search sees %d chunks of %d: two generations mix or one is missing", n, now.Chunks)
	}
	// A re-parse that fails leaves the good version as it is.
	err := s.call(t.Context(), http.MethodPost, "/v1/datasets/default/documents:reparse", map[string]any{"all": true, "parser_config": map[string]any{"pages": []any{[]int{5, 9}}}}, &again)
	if err != nil {
		t.Fatal(err)
	}
	if job := s.ended(again.Job.ID); job.State != sheaf.DocFailed {
		t.Fatalf("a re-parse of pages that do not exist ended %s", job.State)
	}
	if n := len(s.find("zebra")); n != now.Chunks {
		t.Errorf("after a failed re-parse search sees %d chunks of %d", n, now.Chunks)
	}
}

func trialPages(n int, special map[int]string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		line := special[i]
		if line == "" {
			line = fmt.Sprintf("Page number%d speaks of subject%d.", i, i)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func TestPoisonPageIsQuarantinedAndTheOthersLand(t *testing.T) {
	s := start(t, nil)
	job, docs := s.send(map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, text("poison.trial", trialPages(60, map[int]string{37: "CRASH"})))
	d := docs[0]
	mustState(t, d, sheaf.DocPartiallySucceeded)
	if d.Ledger.OK != 59 || d.Ledger.Failed != 1 || d.LiveGeneration != 1 {
		t.Fatalf("ledger %+v, live %d", d.Ledger, d.LiveGeneration)
	}
	var pages api.Pages
	s.get("/v1/datasets/default/documents/"+d.ID+"/pages", &pages)
	for _, r := range pages.Runs {
		if r.Status == sheaf.UnitFailed && (r.From != 37 || r.To != 37 || r.Code != "parser_crash") {
			t.Errorf("failed: %+v", r)
		}
	}
	// What the parser wrote before it stopped stands with the attempt, for that page alone.
	var tasks api.List[api.Task]
	s.get("/v1/datasets/default/documents/"+d.ID+"/tasks", &tasks)
	var outputs []sheaf.UnitOutput
	for _, task := range tasks.Items {
		var h api.TaskHistory
		s.get("/v1/tasks/"+task.ID, &h)
		for _, try := range h.Tries {
			outputs = append(outputs, try.Output...)
		}
	}
	if want := []sheaf.UnitOutput{{From: 37, To: 37, Code: "parser_crash", Lines: "the page made the parser crash\n"}}; !slices.Equal(outputs, want) {
		t.Errorf("the parser's last lines are %+v, want %+v", outputs, want)
	}
	for _, n := range []int{1, 36, 38, 60} {
		if !s.finds(fmt.Sprintf("subject%d", n)) {
			t.Errorf("page %d is not searchable", n)
		}
	}
	var errs api.List[taskstore.JobError]
	s.get("/v1/jobs/"+job.ID+"/errors", &errs)
	if len(errs.Items) == 0 || !slices.ContainsFunc(errs.Items, func(e taskstore.JobError) bool { return e.Failure.Code == "parser_crash" }) {
		t.Errorf("the job's errors do not say what happened: %+v", errs.Items)
	}

	// A retry of what failed runs that page and nothing else.
	var again api.BatchAnswer
	s.post("/v1/jobs/"+job.ID+":retry", map[string]any{"scope": "failed"}, &again)
	s.ended(again.Job.ID)
	tasks = api.List[api.Task]{}
	s.get("/v1/datasets/default/documents/"+d.ID+"/tasks?generation=2", &tasks)
	ran := 0
	for _, task := range tasks.Items {
		if task.Kind == sheaf.KindParse && !task.Reused {
			ran++
			if task.Range == nil || *task.Range != (sheaf.Range{From: 37, To: 37}) {
				t.Errorf("the retry ran %v", task.Range)
			}
		}
	}
	if ran != 1 {
		t.Errorf("the retry ran %d ranges, want 1", ran)
	}
	now := s.doc(d.ID)
	mustState(t, now, sheaf.DocPartiallySucceeded)
	if now.Ledger.OK != 59 || now.Ledger.Failed != 1 || now.Chunks != d.Chunks {
		t.Errorf("after the retry: ledger %+v, %d chunks, had %d", now.Ledger, now.Chunks, d.Chunks)
	}
}

func TestRetryOfFailedPagesHealsTheDocument(t *testing.T) {
	s := start(t, nil)
	healed := filepath.Join(t.TempDir(), "healed")
	job, docs := s.send(map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, text("heal.trial", trialPages(30, map[int]string{5: "FAIL " + healed + " subject5", 20: "FAIL " + healed + " subject20"})))
	mustState(t, docs[0], sheaf.DocPartiallySucceeded)
	if s.finds("subject20") {
		t.Fatal("a failed page is searchable")
	}
	if err := os.WriteFile(healed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var again api.BatchAnswer
	s.post("/v1/jobs/"+job.ID+":retry", map[string]any{"scope": "failed"}, &again)
	s.ended(again.Job.ID)
	now := s.doc(docs[0].ID)
	mustState(t, now, sheaf.DocSucceeded)
	if now.Ledger.OK != 30 || !s.finds("subject20") || !s.finds("subject6") {
		t.Errorf("after the retry: ledger %+v", now.Ledger)
	}
}

// A stage is repeated from what is stored: pages that could not be read again
// are not read again, those that never could are.
func TestRetryOfAStage(t *testing.T) {
	address, embedded := vectorServer(t)
	s := start(t, func(c *config.Config) { c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", address, "words" })
	readable, late := filepath.Join(t.TempDir(), "readable"), filepath.Join(t.TempDir(), "late")
	if err := os.WriteFile(readable, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	special := map[int]string{5: "FAIL " + readable + " subject5", 20: "FAIL " + late + " subject20"}
	job, docs := s.send(map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, text("stages.trial", trialPages(30, special)))
	d := docs[0]
	mustState(t, d, sheaf.DocPartiallySucceeded)
	if err := errors.Join(os.Remove(readable), os.WriteFile(late, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	retry := func(scope string, state sheaf.DocumentState) *sheaf.Job {
		t.Helper()
		var again api.BatchAnswer
		s.post("/v1/jobs/"+job.ID+":retry", map[string]any{"scope": scope}, &again)
		ended := s.ended(again.Job.ID)
		mustState(t, s.doc(d.ID), state)
		return ended
	}

	before := embedded()
	ended := retry("stage:embed", sheaf.DocSucceeded)
	now := s.doc(d.ID)
	if n := embedded() - before; now.Ledger.OK != 30 || n < now.Chunks || ended.Usage.Pages != 1 || ended.Usage.EmbeddedTokens < now.Tokens {
		t.Errorf("stage:embed embedded %d texts for %d chunks with the ledger %+v and the usage %+v", n, now.Chunks, now.Ledger, ended.Usage)
	}
	for _, word := range []string{"subject5", "subject20"} {
		if !s.finds(word) {
			t.Errorf("%s is not searchable", word)
		}
	}

	before = embedded()
	if ended = retry("stage:index", sheaf.DocSucceeded); embedded() != before || ended.Usage.Pages != 0 || s.doc(d.ID).LiveGeneration != 3 {
		t.Errorf("stage:index embedded %d texts and used %+v; live is %d", embedded()-before, ended.Usage, s.doc(d.ID).LiveGeneration)
	}
	if !s.finds("subject5") || s.doc(d.ID).Chunks != now.Chunks {
		t.Errorf("after stage:index %d chunks, had %d", s.doc(d.ID).Chunks, now.Chunks)
	}
	if resp, b := s.request("POST", "/v1/jobs/"+job.ID+":retry", `{"scope":"stage:dream"}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a stage that is none: %s %s", resp.Status, b)
	}
	// Everything anew means the page that is gone, too.
	retry("stage:parse", sheaf.DocPartiallySucceeded)
}

func TestCancelStopsRunningWorkAndLeavesNothingVisible(t *testing.T) {
	s := start(t, nil)
	special := map[int]string{}
	for i := 1; i <= 200; i++ {
		special[i] = fmt.Sprintf("SLOW subject%d", i)
	}
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("slow.trial", trialPages(200, special))}, map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the document to run", func() bool { return s.doc(answer.Documents[0].ID).State == sheaf.DocRunning })
	waitFor(t, "a range to run", func() bool {
		var q api.List[taskstore.TenantQueue]
		s.get("/v1/queues", &q)
		return len(q.Items) > 0 && q.Items[0].Running > 1
	})
	begun := time.Now()
	var receipt taskstore.CancelReceipt
	s.post("/v1/jobs/"+answer.Job.ID+":cancel", nil, &receipt)
	job := s.ended(answer.Job.ID)
	if took := time.Since(begun); job.State != sheaf.DocCanceled || took > 10*time.Second {
		t.Fatalf("the job ended %s after %s", job.State, took)
	}
	if receipt.Documents != 1 || receipt.Queued == 0 {
		t.Errorf("receipt %+v", receipt)
	}
	if s.finds("subject1") {
		t.Error("a canceled document is searchable")
	}
}

func TestDeleteRemovesEveryTrace(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	_, docs := s.send(nil, text("gone.md", "# Title\n\nAn unforgettable sentence about walruses.\n"), text("kept.md", "# Title\n\nA sentence about herons.\n"))
	var receipt taskstore.DeleteReceipt
	if err := s.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+docs[0].ID, nil, &receipt); err != nil {
		t.Fatal(err)
	}
	if receipt.Documents != 1 || receipt.Chunks == 0 || receipt.Bytes != docs[0].Size {
		t.Errorf("receipt %+v", receipt)
	}
	if len(s.find("walruses")) != 0 || len(s.find("herons")) == 0 {
		t.Error("search does not reflect the delete")
	}
	waitFor(t, "the collector", func() bool {
		left := 0
		for _, prefix := range []string{sheaf.OriginalPrefix("local", docs[0].ID), sheaf.ArtifactPrefix("local", docs[0].ID)} {
			if err := s.blobStore.List(t.Context(), prefix, func(blob.Info) bool { left++; return true }); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.index.Scan(t.Context(), "local", func(_, _, doc string) bool {
			if doc == docs[0].ID {
				left++
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}

func TestBadFilesGetAVerdict(t *testing.T) {
	s := start(t, nil)
	for name, c := range map[string]struct{ content, code string }{
		"broken.pdf":  {"%PDF-1.7\nthis is not a pdf at all", "invalid_pdf"},
		"broken.docx": {"PK\x03\x04 truncated", ""},
		"blank.txt":   {" \n\n \t\n", ""},
	} {
		answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text(name, c.content)}, nil, "")
		if err != nil {
			if !strings.Contains(err.Error(), "(") {
				t.Errorf("%s: refused without a code: %v", name, err)
			}
			continue
		}
		s.ended(answer.Job.ID)
		d := s.doc(answer.Documents[0].ID)
		mustState(t, d, sheaf.DocFailed)
		if d.Failure == nil || d.Failure.Message == "" || c.code != "" && d.Failure.Code != c.code {
			t.Errorf("%s: %+v", name, d.Failure)
		}
	}
	if _, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("empty.pdf", "")}, nil, ""); err == nil || !strings.Contains(err.Error(), "empty_file") {
		t.Errorf("an empty file: %v", err)
	}
}

func TestEventsResumeWithoutGapOrRepeat(t *testing.T) {
	s := start(t, nil)
	const content = "# One\n\nSome words.\n"
	job, _ := s.send(nil, text("a.md", content))
	if job.Usage.Bytes != int64(len(content)) {
		t.Errorf("the job read %d bytes, want %d", job.Usage.Bytes, len(content))
	}
	var all, first, rest api.Events
	s.get("/v1/jobs/"+job.ID+"/events?limit=3000", &all)
	s.get("/v1/jobs/"+job.ID+"/events?limit=2", &first)
	s.get(fmt.Sprintf("/v1/jobs/%s/events?limit=3000&after=%d", job.ID, first.Last), &rest)
	if len(first.Items)+len(rest.Items) != len(all.Items) || len(all.Items) < 4 {
		b, _ := json.Marshal(rest.Items)
		t.Fatalf("%d + %d events, want %d: %s", len(first.Items), len(rest.Items), len(all.Items), b)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/v1/jobs/"+job.ID, nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", fmt.Sprint(first.Last))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body) // the job is over: the stream ends by itself
	if err != nil {
		t.Fatal(err)
	}
	var got, want []int64
	for _, e := range rest.Items {
		want = append(want, e.Seq)
	}
	for block := range strings.SplitSeq(string(b), "\n\n") {
		// The status carries the position it was read at, which is no event.
		if id, rest, ok := strings.Cut(strings.TrimPrefix(block, "id: "), "\nevent: "); ok && strings.HasPrefix(block, "id: ") && !strings.HasPrefix(rest, "status") && !strings.HasPrefix(rest, "end") {
			seq, err := strconv.ParseInt(id, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, seq)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the stream resumed with %v, want %v", got, want)
	}
	if !bytes.Contains(b, []byte("event: end")) {
		t.Error("the stream of a finished job does not say that it is over")
	}
}

// waitFor polls for what another goroutine or process will bring about.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestTablesKeepEveryRowAndTheirHeader(t *testing.T) {
	s := start(t, nil)
	var csv strings.Builder
	csv.WriteString("id,animal,note\n")
	const rows = 7001
	for i := 1; i <= rows; i++ {
		fmt.Fprintf(&csv, "%d,animal%d,\"a note, with a comma\"\n", i, i)
	}
	_, docs := s.send(nil, text("zoo.csv", csv.String()))
	d := docs[0]
	mustState(t, d, sheaf.DocSucceeded)
	if d.Units != rows || d.Ledger.OK != rows || d.Unit != sheaf.UnitRow {
		t.Fatalf("%d %ss, ledger %+v; want %d rows", d.Units, d.Unit, d.Ledger, rows)
	}
	seen := map[string]bool{}
	cursor := ""
	for {
		var page api.List[sheaf.Chunk]
		s.get("/v1/datasets/default/documents/"+d.ID+"/chunks?limit=500&cursor="+cursor, &page)
		for _, c := range page.Items {
			if !strings.Contains(c.Text, "animal") || !strings.Contains(c.Text, "note") {
				t.Fatalf("a chunk without the table's header: %.200s", c.Text)
			}
			for word := range strings.FieldsFuncSeq(c.Text, func(r rune) bool {
				return r != 'a' && r != 'n' && r != 'i' && r != 'm' && r != 'l' && (r < '0' || r > '9')
			}) {
				if strings.HasPrefix(word, "animal") && word != "animal" {
					seen[word] = true
				}
			}
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if len(seen) != rows {
		t.Errorf("%d rows are in the chunks, want %d", len(seen), rows)
	}
	if !s.finds("animal4711") {
		t.Error("a row in the middle is not searchable")
	}
}
