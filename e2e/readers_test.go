package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sheaf/internal/config"
)

// An answer that nobody takes is cut off; one that is taken slowly comes whole.
func TestAnswersThatNobodyTakesAreCutOff(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.BodyTimeout = config.Duration(time.Second) })
	const size = 24 << 20 // more than the buffers of a connection hold
	content := bytes.Repeat([]byte("slow and steady "), size/16)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.txt", string(content))}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.post("/v1/jobs/"+answer.Job.ID+":cancel", nil, nil)
	const route = `GET /v1/datasets/{ds}/documents/{doc}/content`
	get := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "GET /v1/datasets/default/documents/%s/content HTTP/1.1\r\nHost: localhost\r\n\r\n", answer.Documents[0].ID); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ended := func() float64 {
		v, _ := s.metric(`sheaf_http_request_seconds_count{route="` + route + `",status="2xx"}`)
		return v
	}
	deaf, slow := get(), get()
	resp, err := http.ReadResponse(bufio.NewReaderSize(slow, 4<<10), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 6 { // three times the time-out
		time.Sleep(500 * time.Millisecond)
		if _, err := io.CopyN(io.Discard, resp.Body, 2<<20); err != nil {
			t.Fatalf("a slow download is cut off: %v", err)
		}
	}
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size-12<<20 {
		t.Errorf("a slow download ends after %d bytes: %v", n, err)
	}
	waitFor(t, "the end of the answer that nobody takes", func() bool { return ended() == 2 })
	if n, err := io.Copy(io.Discard, deaf); err == nil && n >= size {
		t.Errorf("it came whole: %d bytes", n)
	}
}
