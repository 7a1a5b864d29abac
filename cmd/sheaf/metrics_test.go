package main

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// metric reads one sample of /metrics; ok is false when it is not there.
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
	s.post("/v1/datasets/default/documents:reparse", map[string]any{"parser_config": map[string]any{"chunk_token_num": 64}}, &again)
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
	if err := s.app.index.DeleteDocument(t.Context(), sheaf.LocalTenant, docs[0].ID); err != nil {
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
