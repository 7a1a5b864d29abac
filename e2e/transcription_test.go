package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"sheaf"
	"sheaf/internal/config"
)

// A rotated key of the transcription server is used without a restart, by
// parsers that run already, and costs no attempts.
func TestTranscriptionFollowsItsKey(t *testing.T) {
	refused, accepted := make(chan struct{}, 100), make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Authorization") != "Bearer second" {
			refused <- struct{}{}
			http.Error(w, `{"error": {"message": "no such key"}}`, http.StatusUnauthorized)
			return
		}
		accepted <- struct{}{}
		_, _ = io.WriteString(w, `{"language":"en","duration":50,"text":"x","segments":[{"start":0,"end":50,"text":"The quince harvest was good."}]}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "key")
	write := func(key string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	cfg, err := config.Load("", []string{"SHEAF_PARSER_TRANSCRIBE_API_KEY_FILE=" + file, "SHEAF_PARSER_TRANSCRIBE_URL=" + server.URL + "/v1",
		"SHEAF_EXECUTOR_MAX_FAILS=2", "SHEAF_EXECUTOR_BACKOFF_BASE=10ms", "SHEAF_DATA_DIR=" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHEAF_PARSER_TRANSCRIBE_API_KEY_FILE", file)
	s := startWith(t, cfg)
	n := 0
	send := func() *answerDoc {
		t.Helper()
		n++
		answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text(fmt.Sprintf("talk%d.mp3", n), fmt.Sprintf("ID3\x03\x00\x00\x00\x00\x00\x00 sound %d", n))}, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		return &answerDoc{answer.Job.ID, answer.Documents[0].ID}
	}
	waits := send()
	<-refused
	write("second")
	// The file is looked at once a second; what comes before that waits as the
	// first does.
	waitFor(t, "a recording that is taken", func() bool {
		d := send()
		select {
		case <-refused:
			return false
		case <-accepted:
		}
		if job := s.ended(d.job); job.State != sheaf.DocSucceeded {
			t.Errorf("the job ended as %s: %+v", job.State, job.Documents)
		}
		return true
	})
	tasks, err := s.store.Tasks(t.Context(), sheaf.LocalTenant, waits.doc, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if task.FailCount > 0 || task.State.Terminal() {
			t.Errorf("the %s task is %s and lost %d attempts", task.Kind, task.State, task.FailCount)
		}
	}
}

type answerDoc struct{ job, doc string }
