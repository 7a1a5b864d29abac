package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sheaf"
	"sheaf/internal/config"
)

// A key that was rotated, a model that is gone and one of another width hold
// the backlog up; they kill nothing, say what is wrong, and all goes on once
// they are cured.
func TestRefusingEmbedderHoldsWorkUpAndCostsNothing(t *testing.T) {
	vectors, _ := vectorServer(t)
	inner, err := url.Parse(vectors)
	if err != nil {
		t.Fatal(err)
	}
	var fault atomic.Int32 // 401: the key is looked at; 404: no such model; 3: another width
	var key atomic.Value
	key.Store("first")
	through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: inner.Scheme, Host: inner.Host}) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key.Load().(string):
			http.Error(w, `{"error": {"message": "no such key"}}`, http.StatusUnauthorized)
		case fault.Load() == 404:
			http.Error(w, `{"error": {"message": "no such model"}}`, http.StatusNotFound)
		case fault.Load() == 3:
			var asked struct{ Input []string }
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
				t.Error(err)
			}
			vectors := strings.Repeat(`,{"embedding":[1,0,0]}`, len(asked.Input)) // the texts of several tasks share a request
			_, _ = w.Write([]byte(`{"data":[` + strings.TrimPrefix(vectors, ",") + `]}`))
		default:
			through.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	file := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	cfg, err := config.Load("", []string{"SHEAF_EMBED_API_KEY_FILE=" + file, "SHEAF_EMBED_DRIVER=openai", "SHEAF_EMBED_URL=" + front.URL + "/v1", "SHEAF_EMBED_MODEL=words",
		"SHEAF_EXECUTOR_MAX_FAILS=2", "SHEAF_EXECUTOR_BACKOFF_BASE=10ms", "SHEAF_DATA_DIR=" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHEAF_EMBED_API_KEY_FILE", file)
	s := startWith(t, cfg)
	for _, c := range []struct {
		name, says  string
		break_, fix func()
	}{
		{"key", "set embed.api_key", func() { key.Store("second") }, func() { write("second") }},
		{"model", "no such model", func() { fault.Store(404) }, func() { fault.Store(0) }},
		{"width", "3 values instead of", func() { fault.Store(3) }, func() { fault.Store(0) }},
	} {
		c.break_()
		var files []source
		for _, word := range strings.Fields("heron stork egret ibis bittern spoonbill") {
			files = append(files, text(word+".txt", "A "+word+" stands by the "+c.name+"."))
		}
		answer, err := s.submitAnswer(t.Context(), defaultDataset, files, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the reason of "+c.name, func() bool {
			job, err := s.job(t.Context(), answer.Job.ID, "")
			return err == nil && job.Queue != nil && job.Queue.Delayed != nil && strings.Contains(job.Queue.Delayed.Reason, c.says)
		})
		if v, ok := s.metric(`sheaf_breaker_state{dependency="embedder"}`); !ok || v == 0 {
			t.Errorf("%s: the breaker's metric is %v", c.name, v)
		}
		if c.name == "key" { // a trial costs no attempts either
			const open = 2
			state := func() float64 { v, _ := s.metric(`sheaf_breaker_state{dependency="embedder"}`); return v }
			waitFor(t, "a trial", func() bool { return state() != open })
			waitFor(t, "its end", func() bool { return state() == open })
		}
		c.fix()
		if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
			t.Errorf("%s: the job ended as %s: %+v", c.name, job.State, job.Documents)
		}
		for _, d := range answer.Documents {
			tasks, err := s.store.Tasks(t.Context(), sheaf.LocalTenant, d.ID, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range tasks {
				if task.FailCount > 0 {
					t.Errorf("%s: the %s task of %s lost %d attempts", c.name, task.Kind, d.Name, task.FailCount)
				}
			}
		}
	}
}
