package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/blob"
	"sheaf/internal/command"
	"sheaf/internal/config"
	"sheaf/internal/doctor"
	"sheaf/internal/queue"
	"sheaf/internal/queue/chaosqueue"
)

// request sends one request as it is and returns its answer.
func (s *service) request(method, path, body string, header ...string) (*http.Response, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, b
}

// blobs counts the objects under a prefix.
func (s *service) blobs(prefix string) (n int) {
	s.t.Helper()
	if err := s.blobStore.List(s.t.Context(), prefix, func(blob.Info) bool { n++; return true }); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func decodeAs[T any](t *testing.T, b []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

func TestRawUploadWaitsForItsEnd(t *testing.T) {
	s := start(t, nil)
	resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.md&wait=30s", "# Otters\n\nOtters hold hands while asleep.\n", "Content-Type", "text/markdown")
	a := decodeAs[api.SubmitAnswer](t, b)
	if resp.StatusCode != 202 || resp.Header.Get("Location") != "/v1/jobs/"+a.Job.ID {
		t.Fatalf("%s, Location %q: %s", resp.Status, resp.Header.Get("Location"), b)
	}
	if a.Job.State != sheaf.DocSucceeded || a.Documents[0].State != sheaf.DocSucceeded || !s.finds("Otters hold hands") {
		t.Errorf("after waiting: job %s, document %s", a.Job.State, a.Documents[0].State)
	}
}

// Held documents wait without a job; their bytes are copied to another dataset
// and read there.
func TestHeldUploadIsCopiedAndRead(t *testing.T) {
	s := start(t, nil)
	s.newDataset("shelf", false)
	resp, b := s.request("POST", "/v1/datasets/shelf/documents?name=a.md&hold=true", "# Otters\n\nOtters hold hands while asleep.\n", "Content-Type", "text/markdown")
	a := decodeAs[api.SubmitAnswer](t, b)
	if resp.StatusCode != 201 || a.Job != nil || len(a.Documents) != 1 || a.Documents[0].State != sheaf.DocUnstarted {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	held := a.Documents[0]
	resp, b = s.request("POST", "/v1/datasets/default/documents?wait=30s", `{"from":"`+held.ID+`","attributes":{"n":1}}`, "Content-Type", "application/json")
	a = decodeAs[api.SubmitAnswer](t, b)
	if resp.StatusCode != 202 || a.Documents[0].State != sheaf.DocSucceeded || a.Documents[0].SHA256 != held.SHA256 || string(a.Documents[0].Attributes["n"]) != "1" || !s.finds("Otters hold hands") {
		t.Errorf("a copy: %s: %s", resp.Status, b)
	}
	for query, body := range map[string]string{
		"":                  `{"from":"` + sheaf.NewID() + `"}`,
		"hold=maybe":        "x",
		"hold=true&wait=1s": "x",
	} {
		resp, b := s.request("POST", "/v1/datasets/default/documents?"+query, body, "Content-Type", "application/json")
		if want := map[bool]int{true: 404, false: 400}[query == ""]; resp.StatusCode != want {
			t.Errorf("%q: %s: %s", query, resp.Status, b)
		}
	}

	// Many at once are one job, with ids and settings of their own, all or none.
	id := sheaf.NewID()
	many := `{"copies":[{"from":"` + held.ID + `","id":"` + id + `","parser_config":{"chunk_token_num":64}},{"from":"` + a.Documents[0].ID + `","attributes":{"n":2}}],"parser_config":{"chunk_token_num":128}}`
	resp, b = s.request("POST", "/v1/datasets/shelf/documents?wait=30s", many, "Content-Type", "application/json")
	if c := decodeAs[api.SubmitAnswer](t, b); resp.StatusCode != 202 || len(c.Documents) != 2 || c.Job.Documents.Total != 2 || c.Documents[0].ID != id ||
		c.Documents[0].ParseConfig.ChunkTokenNum.V != 64 || c.Documents[1].ParseConfig.ChunkTokenNum.V != 128 || string(c.Documents[1].Attributes["n"]) != "2" || c.Documents[1].State != sheaf.DocSucceeded {
		t.Errorf("copies: %s: %s", resp.Status, b)
	}
	var named, shelf struct{ Items []sheaf.Document }
	s.get("/v1/datasets/-/documents?id="+held.ID+"&id="+a.Documents[0].ID+"&id="+sheaf.NewID(), &named)
	if len(named.Items) != 2 {
		t.Errorf("documents of two datasets by id: %+v", named)
	}
	for body, status := range map[string]int{
		`{"copies":[{"from":"` + held.ID + `"},{"from":"` + sheaf.NewID() + `"}]}`:                               404,
		`{"copies":[{"from":"` + held.ID + `"},{"from":"` + held.ID + `","id":"x"}]}`:                            400,
		`{"copies":[{"from":"` + held.ID + `","id":"` + id + `"},{"from":"` + held.ID + `","id":"` + id + `"}]}`: 400,
		`{"copies":[{"from":"` + held.ID + `","parser_config":{"chunk_token":1}}]}`:                              400,
		`{"copies":[{"from":"` + held.ID + `"}],"name":"x"}`:                                                     400,
		`{"copies":[{"from":"` + held.ID + `","parser_config":7}]}`:                                              400,
		`{"copies":[` + strings.TrimSuffix(strings.Repeat(`{"from":"`+held.ID+`"},`, 2001), ",") + `]}`:          400,
		`{"copies":[]}`: 400,
		`{"copies":7}`:  400,
	} {
		if resp, b := s.request("POST", "/v1/datasets/shelf/documents", body, "Content-Type", "application/json"); resp.StatusCode != status {
			t.Errorf("%.200s: %s: %s", body, resp.Status, b)
		}
	}
	if s.get("/v1/datasets/shelf/documents", &shelf); len(shelf.Items) != 3 {
		t.Errorf("copies that were refused are there: %+v", shelf)
	}
	if resp, _ := s.request("GET", "/v1/datasets/-/documents", ""); resp.StatusCode != 404 {
		t.Errorf("a list of all datasets: %s", resp.Status)
	}

	s.request("DELETE", "/v1/datasets/shelf/documents/"+held.ID, "")
	if resp, b := s.request("GET", "/v1/datasets/default/documents/"+a.Documents[0].ID+"/content", ""); resp.StatusCode != 200 || !strings.Contains(string(b), "Otters") {
		t.Errorf("the copy of a deleted document: %s: %s", resp.Status, b)
	}
}

func TestPutReplacesBytesUnderTheSameID(t *testing.T) {
	s := start(t, nil)
	id := sheaf.NewID()
	path := "/v1/datasets/default/documents/" + id + "?name=a.md&wait=30s"
	for i, animal := range []string{"badgers", "weasels"} {
		resp, b := s.request("PUT", path, "# T\n\nAll about "+animal+".\n", "Content-Type", "text/markdown")
		a := decodeAs[api.SubmitAnswer](t, b)
		if resp.StatusCode != 202 || a.Documents[0].ID != id || a.Documents[0].LiveGeneration != i+1 {
			t.Fatalf("%s: %s", resp.Status, b)
		}
	}
	if s.finds("badgers") || !s.finds("weasels") {
		t.Error("search does not see the new bytes, or sees the old ones")
	}
	resp, b := s.request("PUT", "/v1/datasets/default/documents/not-an-id?name=a.md", "x")
	if resp.StatusCode != 400 {
		t.Errorf("a bad id: %s %s", resp.Status, b)
	}
}

func TestIdempotencyKeyMakesAnUploadSafeToRepeat(t *testing.T) {
	s := start(t, nil)
	send := func(body, key string) (*http.Response, []byte) {
		return s.request("POST", "/v1/datasets/default/documents?name=a.txt", body, "Content-Type", "text/plain", "Idempotency-Key", key)
	}
	first, b1 := send("once upon a time", "k1")
	again, b2 := send("once upon a time", "k1")
	if first.StatusCode != 202 || again.StatusCode != 202 || !bytes.Equal(b1, b2) || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("Location") != first.Header.Get("Location") {
		t.Errorf("%s %s\n%s %s", first.Status, b1, again.Status, b2)
	}
	if other, b := send("another text of another length", "k1"); other.StatusCode != 422 || !bytes.Contains(b, []byte("idempotency_key_reused")) {
		t.Errorf("the key with another request: %s %s", other.Status, b)
	}
	var list api.List[sheaf.Document]
	s.get("/v1/datasets/default/documents", &list)
	if len(list.Items) != 1 {
		t.Errorf("%d documents", len(list.Items))
	}
}

func TestSameBytesAgainAreNamedADuplicateAndReused(t *testing.T) {
	s := start(t, nil)
	content := strings.Repeat("A sentence about puffins that is long enough to be a chunk. ", 60)
	_, one := s.send(nil, text("one.txt", content))
	job, two := s.send(nil, text("two.txt", content))
	if two[0].DuplicateOf != one[0].ID || two[0].State != sheaf.DocSucceeded {
		t.Errorf("duplicate_of %q, want %q; state %s", two[0].DuplicateOf, one[0].ID, two[0].State)
	}
	if job.Usage.Pages != 0 || job.Usage.EmbeddedTokens != 0 || job.Reused.Chunks != two[0].Chunks {
		t.Errorf("parsed or embedded again: usage %+v, reused %+v", job.Usage, job.Reused)
	}
	// The copy stands on its own.
	if err := s.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+one[0].ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(s.find("puffins")); n != two[0].Chunks {
		t.Errorf("%d chunks are found after the original was deleted, want %d", n, two[0].Chunks)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	s := start(t, nil)
	resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.csv&dry_run=true", "a,b\n1,2\n3,4\n", "Content-Type", "text/csv")
	a := decodeAs[api.SubmitAnswer](t, b)
	if resp.StatusCode != 200 || len(a.Plans) != 1 || a.Plans[0].Units != 2 || len(a.Plans[0].Ranges) != 1 {
		t.Fatalf("%s %s", resp.Status, b)
	}
	var list api.List[sheaf.Document]
	s.get("/v1/datasets/default/documents", &list)
	if n := s.blobs("originals/") + s.blobs("artifacts/"); n != 0 || len(list.Items) != 0 {
		t.Errorf("a dry run left %d objects and %d documents", n, len(list.Items))
	}
}

func TestUploadThatBreaksOffLeavesNothing(t *testing.T) {
	s := start(t, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/datasets/default/documents?name=big.txt HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000000\r\n\r\n%s", strings.Repeat("x", 300_000))
	_ = conn.Close()
	tmp := filepath.Join(s.cfg.DataDir, "blobs", "tmp")
	waitFor(t, "the rest of the upload to go away", func() bool {
		left, err := os.ReadDir(tmp)
		return err == nil && len(left) == 0 && s.blobs("originals/") == 0
	})
	var list api.List[sheaf.Document]
	s.get("/v1/datasets/default/documents", &list)
	if len(list.Items) != 0 {
		t.Errorf("%d documents", len(list.Items))
	}
}

// A client that ended its body early and still listens is told so, and no fault
// of the server is logged.
func TestUploadThatBreaksOffIsNoFaultOfTheServer(t *testing.T) {
	s := start(t, nil)
	multi := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.txt\"\r\n\r\nhello"
	for _, c := range [][3]string{
		{"POST /v1/datasets/default/documents?name=b.txt", "text/plain", "hello"},
		{"PUT /v1/datasets/default/documents/01a218d10d0e7001acacce3280099999?name=b.txt", "text/plain", "hello"},
		{"POST /v1/datasets/default/documents", "multipart/form-data; boundary=x", multi},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\nContent-Length: 5000\r\n\r\n%s", c[0], c[1], c[2])
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if text := string(answer); !strings.HasPrefix(text, "HTTP/1.1 499 ") || !strings.Contains(text, `"broken_off"`) {
			t.Errorf("%s: %s", c[0], text)
		}
	}
}

func TestOneBadFileDoesNotStopTheOthers(t *testing.T) {
	s := start(t, nil)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("good.txt", "A fine text."), text("program.exe", "MZ\x90\x00\x03\x00\x00\x00"), text("empty.txt", "")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	codes := []string{}
	for _, r := range answer.Rejected {
		codes = append(codes, r.Name+" "+r.Failure.Code)
	}
	if len(answer.Documents) != 1 || !slices.Equal(codes, []string{"program.exe unsupported_format", "empty.txt empty_file"}) {
		t.Errorf("%d documents, rejected %q", len(answer.Documents), codes)
	}
	s.ended(answer.Job.ID)
	if n := s.blobs("originals/"); n != 1 {
		t.Errorf("%d originals are stored", n)
	}
}

func TestBadRequestsSayWhatToDo(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", "/v1/datasets/nothing", "", 404, "not_found"},
		{"GET", "/v1/nothing", "", 404, "not_found"},
		{"DELETE", "/v1/jobs", "", 405, "method_not_allowed"},
		{"POST", "/v1/datasets", `{"name": ""}`, 400, "invalid"},
		{"POST", "/v1/datasets", `{"name": "default"}`, 409, "conflict"},
		{"POST", "/v1/datasets", `{`, 400, "invalid"},
		{"POST", "/v1/datasets/default/documents", `{"url": "http://169.254.169.254/latest"}`, 403, "url_not_allowed"},
		{"POST", "/v1/datasets/default/documents?name=a.txt&parser_config={\"chunk_token_num\":1}", "text", 400, "invalid"},
		{"POST", "/v1/datasets/default/documents?name=a.txt&parser_config={\"chunk_tokens\":1}", "text", 400, "invalid"},
		{"POST", "/v1/datasets/default/search", `{"query": "x", "limit": 100000}`, 400, "invalid"},
		{"GET", "/v1/jobs/" + sheaf.NewID() + "?wait=soon", "", 400, "invalid"},
	} {
		resp, b := s.request(c.method, c.path, c.body, "Content-Type", "application/json")
		p := decodeAs[api.Problem](t, b)
		if resp.StatusCode != c.status || p.Code != c.code || p.Detail == "" && len(p.Errors) == 0 || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %s %s", c.method, c.path, resp.Status, b)
		}
		if resp.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s %s: no request id", c.method, c.path)
		}
	}
	if resp, _ := s.request("GET", "/v1/datasets", "", "Origin", "https://evil.example"); resp.StatusCode != 403 {
		t.Errorf("a page of another site may read: %s", resp.Status)
	}
}

func TestPausedJobWaitsAndGoesOn(t *testing.T) {
	s := start(t, nil)
	s.post("/v1/queues:pause", nil, nil)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.txt", "A patient text.")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if job, err := s.job(t.Context(), answer.Job.ID, "500ms"); err != nil || job.State != sheaf.DocQueued || !job.Paused {
		t.Fatalf("a paused job is %s, paused %v: %v", job.State, job.Paused, err)
	}
	s.post("/v1/queues:resume", nil, nil)
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("ended %s", job.State)
	}
}

// TestPipelineEndsRightOverABadQueue: hints are dropped, repeated, delayed and
// reordered; the store's truth and its guards must make up for it.
func TestPipelineEndsRightOverABadQueue(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Executor.PollInterval = config.Duration(50 * time.Millisecond) }, func(m *command.Main) {
		m.QueueFunc = func(q queue.Queue) queue.Queue { return chaosqueue.New(q, chaosqueue.Config{Seed: 7, Unacked: -1}) }
	})
	fields := map[string]string{"parser_config": `{"media_type":"` + trialMedia + `","task_page_size":2}`}
	job, docs := s.send(fields, text("a.trial", trialPages(80, nil)), text("b.trial", trialPages(41, map[int]string{13: "CRASH"})))
	if job.State != sheaf.DocPartiallySucceeded || docs[0].Ledger.OK != 80 || docs[1].Ledger.OK != 40 || docs[1].Ledger.Failed != 1 {
		t.Errorf("job %s, ledgers %+v %+v", job.State, docs[0].Ledger, docs[1].Ledger)
	}
	report, err := s.doctor(false)
	if err != nil || report.Drift() != 0 {
		t.Errorf("the stores disagree: %+v, %v", report, err)
	}
}

// doctor compares database, index and blob store, and cures what it can if asked.
func (s *service) doctor(repair bool) (*doctor.Report, error) {
	var r doctor.Report
	return &r, s.call(s.t.Context(), http.MethodPost, "/v1/doctor", map[string]any{"repair": repair}, &r)
}

func TestDoctorFindsAndRepairs(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	_, docs := s.send(nil, text("a.md", "# T\n\nA sentence about terns.\n"), text("b.md", "# T\n\nA sentence about gulls.\n"))
	tasks, err := s.store.Tasks(t.Context(), "local", docs[0].ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	var rangeID string
	for _, task := range tasks {
		if task.Result.RangeID != "" {
			rangeID = task.Result.RangeID
		}
	}
	if err := s.index.DeleteRanges(t.Context(), "local", []string{rangeID}); err != nil {
		t.Fatal(err)
	}
	if s.finds("terns") {
		t.Fatal("the index was not damaged")
	}
	report, err := s.doctor(false)
	if err != nil || report.Drift() != 1 || report.Findings[0].Code != "missing_chunks" {
		t.Fatalf("%+v, %v", report, err)
	}
	if report, err = s.doctor(true); err != nil || report.Drift() != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if !s.finds("terns") || !s.finds("gulls") {
		t.Error("the repaired range is not searchable")
	}
}

func TestReadOnlyDataFolderIsASentence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a file, not a folder")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.DataDir = filepath.Join(file, "data")
	if said := begin(t, product, cfg, io.Discard, "up", "--listen", "127.0.0.1:0").fails(); !strings.Contains(said, "--data-dir") {
		t.Errorf("it says %s", said)
	}
	s := start(t, nil)
	if said := begin(t, product, s.cfg, io.Discard, "up", "--listen", "127.0.0.1:0").fails(); !strings.Contains(said, "another sheaf process") {
		t.Errorf("a second process on a data folder says %s", said)
	}
}

func TestMissingPartIsSaidAtUpload(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Parser.Soffice = "/no/such/soffice" })
	resp, b := s.request("POST", "/v1/datasets/default/documents?name=old.rtf", `{\rtf1 old}`)
	p := decodeAs[api.Problem](t, b)
	if resp.StatusCode != 415 || p.Code != "part_missing" || !strings.Contains(p.Detail, "libreoffice-writer-nogui") {
		t.Errorf("%s %s", resp.Status, b)
	}
	if n := s.blobs("originals/"); n != 0 {
		t.Errorf("%d originals are stored", n)
	}
	var ready api.Readiness
	s.get("/readyz", &ready)
	if i := slices.IndexFunc(ready.Parts, func(p api.Part) bool { return p.Format == "office" }); ready.Status != "ready" || i < 0 || ready.Parts[i].OK || ready.Parts[i].Error == "" {
		t.Errorf("%+v", ready)
	}
}

func TestPartThatExecutorsHaveIsTakenAtUpload(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Parser.Soffice, c.Parser.RemoteFormats = "", []string{"office"} })
	sub, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("old.rtf", `{\rtf1 old}`)}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(sub.Job.ID)
	if d := s.doc(sub.Documents[0].ID); d.State != sheaf.DocFailed || d.Failure == nil || d.Failure.Code != "part_missing" {
		t.Errorf("this executor has none: %s %+v", d.State, d.Failure)
	}
}

func TestOldOfficeFileBecomesSearchable(t *testing.T) {
	t.Parallel()
	need(t, "soffice")
	content, err := os.ReadFile("../parser/office/testdata/sample.doc")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, nil)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("harvest.doc", string(content))}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	d := s.doc(answer.Documents[0].ID)
	mustState(t, d, sheaf.DocSucceeded)
	if !s.finds("quince orchard") {
		t.Error("its text is not found")
	}
	left, err := os.ReadDir(filepath.Join(s.cfg.DataDir, "tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		converted, _ := filepath.Glob(filepath.Join(s.cfg.DataDir, "tmp", e.Name(), "doc-*", "office-*"))
		if len(converted) > 0 {
			t.Errorf("converted files stay behind: %q", converted)
		}
	}
}

func TestSpeechBecomesSearchable(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/v1/audio/transcriptions" || r.Header.Get("Authorization") != "Bearer hush" {
			t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, `{"language":"en","duration":70,"text":"x","segments":[{"start":0,"end":50,"text":"The quince harvest was good."},{"start":50,"end":70,"text":"Then came the rain."}]}`)
	}))
	defer server.Close()
	s := start(t, func(c *config.Config) {
		c.Parser.TranscribeURL, c.Parser.TranscribeAPIKey = server.URL+"/v1", "hush"
	})
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("talk.mp3", "ID3\x03\x00\x00\x00\x00\x00\x00 sound")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	d := s.doc(answer.Documents[0].ID)
	mustState(t, d, sheaf.DocSucceeded)
	if d.Units != 2 || d.Metadata["language"] != "en" || !s.finds("quince harvest") || requests.Load() != 1 {
		t.Errorf("%d units, %q, %d requests", d.Units, d.Metadata, requests.Load())
	}
}

// need skips a test whose program is not installed, or fails it where
// SHEAF_TEST_REQUIRE says that everything must run.
func need(t *testing.T, command string) {
	t.Helper()
	if _, err := exec.LookPath(command); err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not installed and SHEAF_TEST_REQUIRE asks for it", command)
		}
		t.Skipf("%s is not installed", command)
	}
}
