package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// halfSent opens a connection and sends the beginning of a request.
func (s *service) halfSent(path string, size int, body string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nContent-Type: text/plain\r\n\r\n%s", path, size, body); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func answerOn(t *testing.T, r io.Reader) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(r), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

const plainUpload = "/v1/datasets/default/documents?name=a.txt"

// A body that does not come is cut off, read by a handler or not; one that
// comes slowly is waited for.
func TestBodiesThatStallAreCutOff(t *testing.T) {
	const timeout, size, part = 2 * time.Second, 256 << 10, 2 << 10
	s := start(t, func(c *config.Config) { c.Server.BodyTimeout = config.Duration(timeout) })
	slow := s.halfSent(plainUpload+"2", size, "")
	stalled := s.halfSent(plainUpload, 1000, "abc")
	unread := s.halfSent("/v1/nowhere", 1000, "abc")
	// The slow one lasts as long as the stalled one, which came after it.
	cut := make(chan struct{})
	answered := bufio.NewReader(stalled)
	go func() {
		defer close(cut)
		_, _ = answered.Peek(1)
	}()
	text, rest := strings.Repeat("slow and steady ", part/16), size
	for over := false; !over && rest > 0; rest -= part {
		if _, err := io.WriteString(slow, text); err != nil {
			t.Fatal(err)
		}
		select {
		case <-cut:
			over = true
		case <-time.After(timeout / 20):
		}
	}
	if _, err := io.WriteString(slow, strings.Repeat("s", rest)); err != nil {
		t.Fatal(err)
	}
	if status, body := answerOn(t, slow); status != http.StatusAccepted {
		t.Errorf("a slow upload is answered %d: %s", status, body)
	}
	<-cut
	if status, body := answerOn(t, answered); status != http.StatusRequestTimeout || !strings.Contains(body, `"body_stalled"`) {
		t.Errorf("a stalled upload is answered %d: %s", status, body)
	}
	if status, _ := answerOn(t, unread); status != http.StatusNotFound {
		t.Errorf("a request to nowhere is answered %d", status)
	}
	for _, c := range []net.Conn{stalled, unread} {
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("the connection is not closed: %v", err)
		}
	}
}

func TestUploadsAndStreamsOfATenantAreBounded(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.MaxUploads, c.Server.MaxStreams = 3, 2 })
	upload := func() (int, string) {
		resp, b := s.request("POST", plainUpload, "said in full")
		return resp.StatusCode, string(b)
	}
	// Of four at once one is refused, which is when the other three are there.
	// What is left of a small body is read before the answer, of a large one not.
	type answer struct {
		status int
		body   string
	}
	answers := make(chan answer, 4)
	var open []net.Conn
	for range 4 {
		c := s.halfSent(plainUpload, 1<<20, "abc")
		open = append(open, c)
		go func() {
			var a answer
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				a.status, a.body = resp.StatusCode, string(b)
			}
			answers <- a
		}()
	}
	first := <-answers
	if first.status != http.StatusTooManyRequests || !strings.Contains(first.body, `"too_many_uploads"`) {
		t.Fatalf("the fourth of four uploads is answered %d: %s", first.status, first.body)
	}
	if status, body := upload(); status != http.StatusTooManyRequests || !strings.Contains(body, `"too_many_uploads"`) {
		t.Errorf("an upload beside three others is answered %d: %s", status, body)
	}
	for _, c := range open {
		_ = c.Close()
	}
	for range 3 {
		if a := <-answers; a.status != 0 {
			t.Errorf("one of three uploads is answered %d: %s", a.status, a.body)
		}
	}
	waitFor(t, "capacity for an upload", func() bool { status, _ := upload(); return status == http.StatusAccepted })

	stream := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.base+"/v1/datasets/default?after=now", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	one, two := stream(), stream()
	defer two.Body.Close()
	three := stream()
	b, _ := io.ReadAll(three.Body)
	_ = three.Body.Close()
	if one.StatusCode != 200 || two.StatusCode != 200 || three.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(b), `"too_many_streams"`) || three.Header.Get("Retry-After") == "" {
		t.Errorf("%s, %s, %s: %s", one.Status, two.Status, three.Status, b)
	}
	_ = one.Body.Close()
	waitFor(t, "capacity for a stream", func() bool {
		resp := stream()
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func TestMetricsAskForAKey(t *testing.T) {
	const admin, reader, token = "an-admin-key", "a-reader-key", "the-token"
	cfg := config.Default()
	cfg.DataDir, cfg.Server.Auth, cfg.Server.MetricsToken, cfg.Server.DebugListen = t.TempDir(), true, token, "127.0.0.1:0"
	var log safeBuffer
	s := startLogging(t, cfg, "info", &log)
	if _, err := s.store.CreateTenant(t.Context(), sheaf.Tenant{ID: "acme-secret-name", Name: "a", Weight: 1, Cap: 1}); err != nil {
		t.Fatal(err)
	}
	for secret, scope := range map[string]string{admin: "admin", reader: "read"} {
		if err := s.store.CreateKey(t.Context(), sheaf.Key{ID: sheaf.NewID(), TenantID: "acme-secret-name", Scopes: []string{scope}}, api.HashKey(secret)); err != nil {
			t.Fatal(err)
		}
	}
	get := func(path, secret string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if secret != "" {
			req.Header.Set("Authorization", "Bearer "+secret)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for secret, want := range map[string]int{"": 401, reader: 401, "wrong": 401, admin: 200, token: 200} {
		if status, body := get("/metrics", secret); status != want || want == 200 != strings.Contains(body, "sheaf_keeper_leads") {
			t.Errorf("/metrics with %q is %d: %.200s", secret, status, body)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/docs", "/metrics", "/debug/pprof/", "/"} {
		if _, body := get(path, ""); strings.Contains(body, "acme-secret-name") || strings.Contains(body, s.cfg.DataDir) {
			t.Errorf("%s tells of tenants or paths", path)
		}
	}
	// On the private address the token is asked for as well.
	s.base = log.private(t)
	for secret, want := range map[string]int{"": 401, token: 200} {
		if status, _ := get("/metrics", secret); status != want {
			t.Errorf("/metrics of the private address with %q is %d", secret, status)
		}
	}
}
