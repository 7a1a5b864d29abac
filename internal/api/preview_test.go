package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// slowPreviewer begins previews and waits until it is told to end them.
type slowPreviewer struct {
	begun chan time.Duration // until the deadline
	end   chan struct{}
}

func (p *slowPreviewer) Preview(ctx context.Context, _ *sheaf.Document, _ int, configs ...sheaf.ParseConfig) ([]sheaf.Preview, error) {
	until, _ := ctx.Deadline()
	p.begun <- time.Until(until)
	select {
	case <-p.end:
		return make([]sheaf.Preview, len(configs)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestATenantHasTwoPreviewsAtOnce(t *testing.T) {
	p := &slowPreviewer{make(chan time.Duration), make(chan struct{})}
	s := newTestServer(t, func(c *Config) { c.Previewer = p })
	s.must(nil, "POST", "/v1/datasets", `{"name":"files"}`, "Content-Type", "application/json")
	var up struct{ Documents []sheaf.Document }
	s.must(&up, "POST", "/v1/datasets/files/documents?name=a.txt", "Barley.")
	path := "/v1/datasets/files/documents/" + up.Documents[0].ID + ":preview"
	type answer struct {
		status int
		body   string
	}
	answers := make(chan answer, tenantPreviews)
	ask := func() {
		status, b := s.ask("POST", path, `{}`, "Content-Type", "application/json")
		answers <- answer{status, string(b)}
	}
	for range tenantPreviews {
		go ask()
		if left := <-p.begun; left <= 0 || left > previewTime {
			t.Errorf("a preview may take %s", left)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one more answers %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	close(p.end)
	for range tenantPreviews {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("a preview answers %d %s", a.status, a.body)
		}
	}
	go ask()
	<-p.begun
	if a := <-answers; a.status != http.StatusOK {
		t.Errorf("after that it answers %d %s", a.status, a.body)
	}
}
