package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// metric reads one sample of /metrics; ok is false when it does not exist.
func (s *service) metric(name string) (v float64, ok bool) {
	s.t.Helper()
	resp, err := http.Get(s.base + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), name+" "); found {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return v, true
		}
	}
	return 0, false
}

func TestMetricsCountWhatWasDone(t *testing.T) {
	s := start(t, nil)
	_, docs := s.send(map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, text("a.trial", trialPages(5, nil)))
	var again api.BatchAnswer
	s.post("/v1/datasets/default/documents:reparse", map[string]any{"all": true, "parser_config": map[string]any{"chunk_token_num": 64}}, &again)
	s.ended(again.Job.ID)
	for name, want := range map[string]float64{
		`sheaf_pages_total{kind="parse"}`:                       10,
		`sheaf_chunks_total{kind="parse",reused="false"}`:       float64(docs[0].Chunks + s.doc(docs[0].ID).Chunks),
		`sheaf_embeddings_total{kind="parse"}`:                  float64(docs[0].Chunks + s.doc(docs[0].ID).Chunks),
		`sheaf_tasks_total{kind="plan",state="done"}`:           2,
		`sheaf_stage_seconds_count{kind="parse",stage="embed"}`: 2,
		`sheaf_keeper_leads`:                                    1,
		`sheaf_index_retries_total`:                             0,
	} {
		if got, ok := s.metric(name); !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
		}
	}
	if got, ok := s.metric(`sheaf_tokens_total{kind="parse",reused="false"}`); !ok || got <= 0 {
		t.Errorf("no tokens are counted: %v", got)
	}
}

// moved waits until a metric is as a test wants it.
func (s *service) moved(name string, want func(v float64) bool) {
	s.t.Helper()
	waitFor(s.t, name, func() bool {
		v, ok := s.metric(name)
		return ok && want(v)
	})
}

func positive(v float64) bool { return v > 0 }

func TestMetricsShowWhatWaits(t *testing.T) {
	s := start(t, nil)
	const depth, age = `sheaf_queue_depth{lane="normal",tenant="local"}`, `sheaf_queue_oldest_pending_seconds{lane="normal",tenant="local"}`
	var paused api.Paused
	s.post("/v1/queues:pause", nil, &paused)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.md", "# One\n"), text("b.md", "# Two\n")}, map[string]string{"lane": "2"}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.moved(depth, func(v float64) bool { return v == 2 })
	s.moved(`sheaf_tasks_held{lane="normal"}`, func(v float64) bool { return v == 2 })
	for _, name := range []string{age, `sheaf_tasks_pending{lane="normal"}`, `sheaf_tasks_oldest_pending_seconds{lane="normal"}`} {
		if v, ok := s.metric(name); !ok || v != 0 {
			t.Errorf("%s is %v (there: %v) for work that is paused", name, v, ok)
		}
	}
	s.post("/v1/queues:resume", nil, &paused)
	s.ended(answer.Job.ID)
	s.moved(`sheaf_claims_total{kind="plan"}`, func(v float64) bool { return v == 2 })
	s.moved(`sheaf_task_wait_seconds_count{kind="plan"}`, func(v float64) bool { return v == 2 })
	waitFor(t, "the depth to fall", func() bool { v, _ := s.metric(depth); return v == 0 })
	s.moved(`sheaf_executors`, func(v float64) bool { return v == 1 })
	if v, ok := s.metric(`sheaf_store_connections_max{pool="write"}`); !ok || v != 1 {
		t.Errorf("the pool of SQLite's writer has %v connections (there: %v)", v, ok)
	}
	if v, ok := s.metric(`sheaf_http_request_seconds_count{route="POST /v1/datasets/{ds}/documents",status="2xx"}`); !ok || v < 1 {
		t.Errorf("%v uploads are counted (there: %v)", v, ok)
	}
	for _, name := range []string{"store", "blobs", "index"} {
		if v, ok := s.metric(`sheaf_dependency_up{dependency="` + name + `"}`); !ok || v != 1 {
			t.Errorf("the %s is said to be %v (there: %v)", name, v, ok)
		}
	}
	if v, ok := s.metric(`sheaf_keeper_loop_seconds_count{loop="fold"}`); !ok || v < 1 {
		t.Errorf("%v runs of a loop are counted (there: %v)", v, ok)
	}
}

// Tasks are taken from an executor at work: with heartbeats it notices, without
// them its result is refused. Either is counted, and the document is whole.
func TestMetricsCountLostTasks(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, heartbeat := range map[string]time.Duration{
		`sheaf_lease_losses_total{kind="parse"}`:          50 * time.Millisecond,
		`sheaf_stale_writes_rejected_total{kind="parse"}`: 20 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(c *config.Config) {
				c.Executor.Heartbeat, c.Keeper.WorkerTimeout = config.Duration(heartbeat), config.Duration(time.Minute)
			})
			slow := map[int]string{}
			for n := 1; n <= 10; n++ { // more than a plan would read
				slow[n] = "SLOW page"
			}
			answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("slow.trial", trialPages(10, slow))}, map[string]string{"parser_config": trialSettings}, "")
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, "a page being parsed", func() bool {
				v, _ := s.metric(`sheaf_claims_total{kind="parse"}`)
				return v > 0
			})
			var paused api.Paused
			s.post("/v1/queues:pause", nil, &paused) // or the task would come back to this executor at once
			if n, err := s.store.ReleaseRunning(t.Context()); err != nil || n == 0 {
				t.Fatalf("%d tasks were taken away, %v", n, err)
			}
			s.moved(name, positive)
			s.post("/v1/queues:resume", nil, &paused)
			if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
				t.Errorf("the job ended %s", job.State)
			}
		})
	}
}

// An index that is busy for a moment costs a repeated request, which is counted.
func TestMetricsCountIndexRetries(t *testing.T) {
	es := engine(t, "SHEAF_TEST_ES_URL")
	target, err := url.Parse(es)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	var refused atomic.Int32
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_bulk") && refused.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(busy.Close)
	own := "busy" + sheaf.NewID()[20:]
	t.Cleanup(func() { esDrop(t, es, own) })
	s := start(t, func(c *config.Config) {
		c.Index.Driver, c.Index.Addrs, c.Index.Prefix = "elasticsearch", []string{busy.URL}, own
	})
	if job, _ := s.send(nil, text("a.md", "# Title\n\nSome words.\n")); job.State != sheaf.DocSucceeded {
		t.Errorf("the job ended %s", job.State)
	}
	s.moved("sheaf_index_retries_total", positive)
}

// The leading keeper compares the stores by itself: what the index has lost
// shows without anybody asking.
func TestKeeperReportsDrift(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Keeper.AuditInterval = config.Duration(50 * time.Millisecond) })
	_, docs := s.send(nil, text("a.md", "# Title\n\nSome words.\n"))
	const missing = `sheaf_index_drift{code="missing_chunks"}`
	waitFor(t, "an audit that finds nothing", func() bool {
		v, ok := s.metric(missing)
		return ok && v == 0
	})
	if at, _ := s.metric("sheaf_index_audit_timestamp_seconds"); time.Since(time.Unix(int64(at), 0)) > time.Minute {
		t.Errorf("the audit says it ran at %v", at)
	}
	if err := s.index.DeleteDocument(t.Context(), sheaf.LocalTenant, docs[0].ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the drift to show", func() bool {
		v, _ := s.metric(missing)
		return v == 1
	})
	if err := s.call(t.Context(), http.MethodPost, "/v1/doctor", map[string]any{"repair": true}, nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the drift to be cured", func() bool {
		v, ok := s.metric(missing)
		return ok && v == 0
	})
}
