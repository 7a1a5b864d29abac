package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// lateServer answers /v1/embeddings as servers that know late_chunking do: the
// vector of each text is its own and that of the whole request.
type lateServer struct {
	address string

	mu      sync.Mutex
	windows [][]string // of requests with late_chunking
}

func newLateServer(t *testing.T) *lateServer {
	t.Helper()
	l := &lateServer{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Input        []string `json:"input"`
			LateChunking bool     `json:"late_chunking"`
		}
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		add := func(v []float32, text string) {
			for word := range strings.FieldsSeq(text) {
				v[xxhash.Sum64String(word)%16]++
			}
		}
		whole := make([]float32, 16)
		if ask.LateChunking {
			l.mu.Lock()
			l.windows = append(l.windows, ask.Input)
			l.mu.Unlock()
			add(whole, strings.Join(ask.Input, " "))
		}
		var data []map[string]any
		for i, text := range ask.Input {
			v := append([]float32(nil), whole...)
			add(v, text)
			data = append(data, map[string]any{"index": i, "embedding": v})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	t.Cleanup(srv.Close)
	l.address = srv.URL + "/v1"
	return l
}

// asked is what windows were embedded since the last time.
func (l *lateServer) asked() [][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.windows
	l.windows = nil
	return out
}

func TestLateChunkingEmbedsSectionsWhole(t *testing.T) {
	server := newLateServer(t)
	s := start(t, func(c *config.Config) {
		c.Embed.Driver, c.Embed.URL, c.Embed.Model, c.Embed.LateWindow = "openai", server.address, "words", 400
	})
	section := func(i int, more string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "## Section %d\n\n", i)
		for p := range 6 {
			fmt.Fprintf(&b, "Paragraph %d of section %d says that the landlord keeps the garden in order, and that it is paid for by those who live there.%s\n\n", p, i, more)
		}
		return b.String()
	}
	body := func(more string) string { return "# House\n\n" + section(0, "") + section(1, more) + section(2, "") }
	id := sheaf.NewID()
	settings := `{"chunk_method": "late", "chunk_token_num": 64}`
	d := s.put(id, "house.md", settings, body(""))
	windows := server.asked()
	n := 0
	for _, w := range windows {
		n += len(w)
		if len(w) < 2 || !strings.HasPrefix(w[0], "house.md > House > Section") || strings.HasPrefix(w[1], "house.md") {
			t.Errorf("a window is %q", w)
		}
		for _, other := range []string{"section 0 ", "section 1 ", "section 2 "} {
			if strings.Contains(w[0], other) != strings.Contains(w[len(w)-1], other) {
				t.Errorf("a window reaches over a section: %q", w)
			}
		}
	}
	if len(windows) != 3 || n != d.Chunks {
		t.Errorf("%d windows of %d texts for %d chunks", len(windows), n, d.Chunks)
	}
	// The same again costs nothing, fresh or not; a change costs its section.
	var again api.BatchAnswer
	for _, how := range []map[string]any{{"all": true}, {"all": true, "fresh": true}} {
		s.post("/v1/datasets/default/documents:reparse", how, &again)
		if job := s.ended(again.Job.ID); job.State != sheaf.DocSucceeded {
			t.Fatalf("parsing again ended %s", job.State)
		}
		if w := server.asked(); len(w) != 0 {
			t.Errorf("parsing again with %v embedded %d windows", how, len(w))
		}
	}
	s.put(id, "house.md", settings, body(" Since last year."))
	if w := server.asked(); len(w) != 1 || !strings.Contains(w[0][0], "Section 1") {
		t.Errorf("a change in one section embedded %d windows: %.60q", len(w), w)
	}
	// Another method embeds each chunk alone.
	s.put(id, "house.md", `{"chunk_token_num": 64}`, body(""))
	if w := server.asked(); len(w) != 0 {
		t.Errorf("general embedded windows: %q", w)
	}
	if !s.finds("Paragraph 3 of section 2") {
		t.Error("nothing is found")
	}
	resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.md&parser_config="+url.QueryEscape(`{"chunk_method": "late", "chunk_token_num": 512}`), "# A", "Content-Type", "text/markdown")
	if resp.StatusCode/100 != 4 || !strings.Contains(string(b), "late_window") {
		t.Errorf("chunks longer than a window: %s %s", resp.Status, b)
	}
}

func TestLateChunkingIsRefusedWhereTheModelCannot(t *testing.T) {
	s := start(t, nil)
	for path, body := range map[string]string{
		"/v1/datasets": `{"name": "late", "parser_config": {"chunk_method": "late"}}`,
		"/v1/datasets/default/documents?name=a.md&parser_config=" + url.QueryEscape(`{"chunk_method": "late"}`): "# A",
	} {
		contentType := "application/json"
		if strings.Contains(path, "documents") {
			contentType = "text/markdown"
		}
		resp, b := s.request("POST", path, body, "Content-Type", contentType)
		if resp.StatusCode/100 != 4 || !strings.Contains(string(b), "embed.late_window") {
			t.Errorf("%s: %s %s", path, resp.Status, b)
		}
	}
}
