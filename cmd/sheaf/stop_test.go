package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"sheaf/internal/config"
)

// TestStopLetsRequestsEnd tells the process to stop while an upload is half
// sent, a client waits for a job and another watches its dataset: the watcher
// and the waiter are let go at once, and the upload is taken.
func TestStopLetsRequestsEnd(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Executor.DrainTimeout = config.Duration(100 * time.Millisecond) })
	s.post("/v1/queues:pause", nil, nil)
	waiting, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("held.txt", "held")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}

	watch, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/v1/datasets/default", nil)
	if err != nil {
		t.Fatal(err)
	}
	watch.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(watch)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewReader(stream.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	body, half := io.Pipe()
	taken := make(chan int, 1)
	reading := make(chan struct{}) // closed when the server reads the body
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	upload, err := http.NewRequestWithContext(trace, http.MethodPost, s.base+"/v1/datasets/default/documents?name=half.txt", body)
	if err != nil {
		t.Fatal(err)
	}
	upload.Header.Set("Content-Type", "text/plain")
	upload.Header.Set("Expect", "100-continue")
	go func() {
		patient := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
		resp, err := patient.Do(upload)
		if err != nil {
			t.Error("the upload:", err)
			taken <- 0
			return
		}
		_ = resp.Body.Close()
		taken <- resp.StatusCode
	}()
	<-reading
	if _, err := half.Write([]byte("one half ")); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	begun := time.Now()
	go func() {
		_, err := s.job(t.Context(), waiting.Job.ID, "50s")
		waited <- err
	}()

	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error("the stream broke off:", err)
	}
	if err := <-waited; err != nil && !strings.Contains(err.Error(), "refused") { // it may have come after the end
		t.Error("the wait for a job:", err)
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("the watcher and the waiter were let go after %s", took)
	}
	if _, err := half.Write([]byte("and the other")); err != nil {
		t.Fatal(err)
	}
	_ = half.Close()
	if status := <-taken; status != http.StatusAccepted {
		t.Errorf("an upload under way was answered %d", status)
	}
	<-stopped
}
