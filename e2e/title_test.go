package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/internal/config"
)

// A chunk is found by the title that its document has, which its text does not
// say: by words, and by what is embedded for it.
func TestChunksAreFoundByTheTitleOfTheirDocument(t *testing.T) {
	var mu sync.Mutex
	var embedded []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		embedded = append(embedded, ask.Input...)
		mu.Unlock()
		var data []map[string]any
		for i := range ask.Input {
			data = append(data, map[string]any{"index": i, "embedding": []float32{1, 2}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	t.Cleanup(srv.Close)
	s := start(t, func(c *config.Config) { c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", srv.URL+"/v1", "words" })
	page := func(title, heading string) string {
		return "<!DOCTYPE html><html><head><title>" + title + "</title></head><body><h1>" + heading + "</h1><p>Nobody lives in the house.</p></body></html>"
	}
	for name, c := range map[string]struct{ title, heading, prefix string }{
		"a7.html":           {"Quarterly quince report", "Findings", "a7.html > Quarterly quince report > Findings\n"},
		"medlar.html":       {"Medlar report", "Medlar Report", "medlar.html > Medlar Report\n"},
		"pear_report.html":  {"Pear report", "Findings", "pear_report.html > Findings\n"},
		"nothing-said.html": {"Untitled", "Findings", "nothing-said.html > Findings\n"},
	} {
		mustState(t, s.upload(name, "text/html", `{}`, page(c.title, c.heading)), sheaf.DocSucceeded)
		mu.Lock()
		if !slices.ContainsFunc(embedded, func(text string) bool { return strings.HasPrefix(text, c.prefix) }) {
			t.Errorf("%s: none of %q begins with %q", name, embedded, c.prefix)
		}
		mu.Unlock()
	}
	if hits := s.find("quince"); len(hits) != 1 || !strings.Contains(hits[0], "Nobody lives") || strings.Contains(hits[0], "quince") {
		t.Errorf("by a word of the title: %q", hits)
	}
}
