package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/executor"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/samples"
	"sheaf/taskstore"
)

// Files that take long, as scans do, keep nobody waiting who looks at a page or
// tries settings.
func TestImagesAndPreviewsDoNotWaitForTasks(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Parser.Processes = 1 })
	handbook, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	pdf := s.upload("handbook.pdf", "application/pdf", `{}`, string(handbook))
	mustState(t, pdf, sheaf.DocSucceeded)
	gate := filepath.Join(t.TempDir(), "gate")
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.scan", "COUNT "+gate), text("b.scan", "COUNT "+gate), text("c.scan", "COUNT "+gate)},
		map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a plan that waits", func() bool {
		job, err := s.job(t.Context(), answer.Job.ID, "")
		return err == nil && job.State == sheaf.DocRunning
	})
	began := time.Now()
	if resp, body := s.request(http.MethodGet, "/v1/datasets/default/documents/"+pdf.ID+"/pages/1/image?dpi=72", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("image: %d %s after %v", resp.StatusCode, body, time.Since(began))
	}
	if out, err := s.preview(pdf.ID, map[string]any{"chunk_token_num": 64}); err != nil || len(out.Chunks) == 0 {
		t.Errorf("preview: %v, %+v", err, out)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("the job is %s", job.State)
	}
}

// An embedding server elsewhere is asked for several documents at once, however few
// processors and workers this machine has.
func TestSlowEmbeddingServerIsAskedForManyAtOnce(t *testing.T) {
	const enough = 4
	vectors, _ := vectorServer(t)
	target, err := url.Parse(vectors)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	var now atomic.Int32
	reached := make(chan struct{})
	all := sync.OnceFunc(func() { close(reached) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now.Add(1) == enough {
			all()
		}
		defer now.Add(-1)
		select {
		case <-reached:
		case <-time.After(2 * time.Second): // what such a server takes
		case <-r.Context().Done():
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s := start(t, func(c *config.Config) {
		c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", server.URL+target.Path, "words"
		c.Executor.Workers = 1
	})
	var files []source
	for i := range 40 {
		files = append(files, text(fmt.Sprintf("%d.md", i), fmt.Sprintf("# Rock %d\n\nThis one is granite.\n", i)))
	}
	answer, err := s.submitAnswer(t.Context(), defaultDataset, files, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("the job is %s", job.State)
	}
	select {
	case <-reached:
	default:
		t.Errorf("the server never had %d requests at once", enough)
	}
}

// A language model and users' services take as long as they like. Executors read
// other documents meanwhile.
func TestSlowServicesKeepNobodyWaiting(t *testing.T) {
	release := make(chan struct{})
	hold := sync.OnceFunc(func() { close(release) })
	defer hold()
	chat := newChatServer(t)
	chat.first = func(http.ResponseWriter, int) bool { <-release; return false }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(hold) // before the servers are closed
	s := start(t, func(c *config.Config) {
		chat.use(c)
		c.Executor.Workers = 1
		c.Flow = config.Flow{AllowHosts: []string{"127.0.0.1"}, Secret: config.Secret("whsec_" + strings.Repeat("AAAA", 8))}
	})
	s.post("/v1/flows", map[string]any{"toml": `name = "told"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"] },
  { id = "tell", kind = "http", from = ["cut"], config = { url = "` + server.URL + `" }, on_failure = "skip" },
  { id = "out", kind = "index", from = ["tell"] },
]
`}, nil)
	var jobs []string
	for name, settings := range map[string]string{"asked.md": `{"auto_questions": 1}`, "told.md": `{"flow": "told"}`, "told-too.md": `{"flow": "told"}`} {
		answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text(name, sections(3, nil)+name)}, map[string]string{"parser_config": settings}, "")
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, answer.Job.ID)
	}
	waitFor(t, "three tasks that wait", func() bool {
		var list struct{ Items []taskstore.WorkerStatus }
		s.get("/v1/executors", &list)
		return len(list.Items) == 1 && len(list.Items[0].Running) == 3
	})
	mustState(t, s.upload("plain.md", "text/markdown", `{}`, sections(3, nil)), sheaf.DocSucceeded)
	hold()
	for _, id := range jobs {
		if job := s.ended(id); job.State != sheaf.DocSucceeded {
			t.Errorf("a job is %s", job.State)
		}
	}
}

// Runs over datasets ask a model for hours. However many there are, executors read
// documents meanwhile, and every run ends.
func TestRunsKeepNobodyWaiting(t *testing.T) {
	release := make(chan struct{})
	hold := sync.OnceFunc(func() { close(release) })
	chat := newChatServer(t)
	chat.first = func(http.ResponseWriter, int) bool { <-release; return false }
	t.Cleanup(hold)
	s := start(t, func(c *config.Config) {
		chat.use(c)
		c.Executor.Workers = 1
	})
	var runs [4]api.RunStarted
	for i := range runs {
		name := fmt.Sprint("birds", i)
		s.post("/v1/datasets", map[string]any{"name": name, "parser_config": map[string]any{"chunk_token_num": 128}}, nil)
		mustState(t, s.putIn(name, sheaf.NewID(), "heron.md", "text/markdown", ponds("heron")), sheaf.DocSucceeded)
	}
	for i := range runs {
		s.post(fmt.Sprintf("/v1/datasets/birds%d/raptor", i), map[string]any{}, &runs[i])
	}
	waitFor(t, "two runs that ask and two that wait", func() bool {
		var q api.List[taskstore.TenantQueue]
		s.get("/v1/queues", &q)
		return len(q.Items) == 1 && q.Items[0].Running == 2 && q.Items[0].RetryWait == 2
	})
	mustState(t, s.upload("plain.md", "text/markdown", `{}`, sections(3, nil)), sheaf.DocSucceeded)
	hold()
	for i, r := range runs {
		if end := s.over(fmt.Sprint("birds", i), r.ID); end.State != taskstore.RunSucceeded {
			t.Errorf("run %d is %s: %+v", i, end.State, end)
		}
	}
}

// Transcribing takes minutes, in which nothing is done here: whatever the number of
// recordings, other files are read meanwhile, and every recording is transcribed.
func TestRecordingsKeepNobodyWaiting(t *testing.T) {
	release := make(chan struct{})
	hold := sync.OnceFunc(func() { close(release) })
	var asked, calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		<-release
		_, _ = fmt.Fprintf(w, `{"language":"en","duration":50,"text":"x","segments":[{"start":0,"end":50,"text":"The harvest of call %d was good."}]}`, calls.Add(1))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(hold)
	s := start(t, func(c *config.Config) {
		c.Parser.TranscribeURL = server.URL + "/v1"
		c.Parser.Processes, c.Executor.Workers = 1, 1
	})
	var recordings []source
	for i := range executor.Calls + 2 {
		recordings = append(recordings, text(fmt.Sprintf("talk%d.mp3", i), fmt.Sprintf("ID3\x03\x00\x00\x00\x00\x00\x00 sound %d", i)))
	}
	answer, err := s.submitAnswer(t.Context(), defaultDataset, recordings, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "as many calls as there may be", func() bool { return asked.Load() == executor.Calls })
	waitFor(t, "recordings that wait", func() bool {
		var q api.List[taskstore.TenantQueue]
		s.get("/v1/queues", &q)
		return len(q.Items) == 1 && q.Items[0].Running == executor.Calls && q.Items[0].RetryWait == 2
	})
	mustState(t, s.upload("plain.md", "text/markdown", `{}`, sections(3, nil)), sheaf.DocSucceeded)
	hold()
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("the job is %s", job.State)
	}
	if n := asked.Load(); int(n) != len(recordings) {
		t.Errorf("%d recordings were transcribed %d times", len(recordings), n)
	}
}
