package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/internal/rerank"
)

func TestSearchesAreRerankedByTheConfiguredServer(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var authorization atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization.Store(r.Header.Get("Authorization"))
		var ask struct{ Documents []string }
		_ = json.NewDecoder(r.Body).Decode(&ask)
		if r.URL.Path != "/v1/rerank" || len(ask.Documents) != 2 {
			http.Error(w, "unexpected", http.StatusBadRequest)
			return
		}
		results := make([]string, len(ask.Documents))
		for i, text := range ask.Documents {
			score := 0.25
			if strings.Contains(text, "quokka") {
				score = 0.75
			}
			results[i] = fmt.Sprintf(`{"index":%d,"relevance_score":%g}`, i, score)
		}
		_, _ = fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
	}))
	t.Cleanup(srv.Close)
	cfg, err := config.Load("", []string{
		"SHEAF_DATA_DIR=" + t.TempDir(), "SHEAF_SEARCH_RERANK_URL=" + srv.URL + "/v1/rerank", "SHEAF_SEARCH_RERANK_MODEL=m",
		"SHEAF_SEARCH_RERANK_API_KEY_FILE=" + key, "SHEAF_SEARCH_RERANK_BUDGET=10s", "SHEAF_SEARCH_RERANK_CANDIDATES=2",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHEAF_SEARCH_RERANK_API_KEY_FILE", key)
	s := startWith(t, cfg)
	for name, text := range map[string]string{"plain": "Valve, valve, valve: close the valve.", "rare": "A quokka sits beside a valve in the long grass of the island.", "none": "Weather of last week, and a small valve among many other things that nobody looks for."} {
		s.put(sheaf.NewID(), name+".md", "{}", text)
	}
	search := func() *answerOf {
		answer := &answerOf{}
		s.post("/v1/datasets/default/search", map[string]any{"query": "valve", "mode": "text"}, answer)
		return answer
	}
	answer := search()
	if len(answer.Hits) != 3 || answer.Hits[0].Score != 0.75 || answer.Hits[0].Document.Name != "rare.md" || answer.Hits[2].Score > 0.25 ||
		answer.Rerank.Outcome != rerank.Used || answer.Rerank.Model != "m" || answer.Rerank.Candidates != 2 || authorization.Load() != "Bearer one" {
		t.Errorf("%+v, authorization %v", answer, authorization.Load())
	}
	if err := os.WriteFile(key, []byte("two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(key, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the new key", func() bool { search(); return authorization.Load() == "Bearer two" })
	srv.Close()
	if answer := search(); len(answer.Hits) != 3 || answer.Rerank.Outcome != rerank.Failed || answer.Rerank.Reason != "rerank_unavailable" {
		t.Errorf("without the server: %+v", answer)
	}
	if n, ok := s.metric(`sheaf_rerank_seconds_count{outcome="error"}`); !ok || n != 1 {
		t.Errorf("the metric counts %g failures", n)
	}
}

// answerOf is what a client reads of an answer.
type answerOf struct {
	Hits []struct {
		Score    float64
		Document struct{ Name string }
	}
	Rerank struct {
		Outcome    rerank.Outcome
		Reason     string
		Model      string
		Candidates int
	}
}
