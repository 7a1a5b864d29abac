package e2e

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
	taken := s.underWay("name=half.txt", body)
	if _, err := half.Write([]byte("one half ")); err != nil {
		t.Fatal(err)
	}
	waited := s.underWay("name=held.txt&wait=50s", strings.NewReader("held"))
	begun := time.Now()

	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error("the stream broke off:", err)
	}
	if status := <-waited; status != http.StatusAccepted {
		t.Errorf("who waits for a job was answered %d", status)
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

// underWay uploads body and returns when the server has begun to read it. The
// status of the answer comes on the channel, 0 for none.
func (s *service) underWay(query string, body io.Reader) <-chan int {
	s.t.Helper()
	reading := make(chan struct{})
	trace := httptrace.WithClientTrace(s.t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	req, err := http.NewRequestWithContext(trace, http.MethodPost, s.base+"/v1/datasets/default/documents?"+query, body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	req.Header.Set("Expect", "100-continue")
	answer := make(chan int, 1)
	go func() {
		patient := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
		resp, err := patient.Do(req)
		if err != nil {
			s.t.Error("an upload under way:", err)
			answer <- 0
			return
		}
		_ = resp.Body.Close()
		answer <- resp.StatusCode
	}()
	select {
	case <-reading:
	case <-time.After(time.Minute):
		s.t.Fatal("the server does not read the upload")
	}
	return answer
}
