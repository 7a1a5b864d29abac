package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/openai"
	"sheaf/internal/embed/static"
)

// embedServer is a server with the built-in model. Keys are the names of their scopes.
func embedServer(t *testing.T, auth bool) (*testServer, embed.Embedder) {
	t.Helper()
	model := static.Default()
	s := newTestServer(t, func(c *Config) { c.Auth, c.Embedder = auth, model })
	for _, scope := range []string{scopeRead, scopeWrite} {
		if err := s.store.CreateKey(t.Context(), sheaf.Key{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, Scopes: []string{scope}}, HashKey(scope)); err != nil {
			t.Fatal(err)
		}
	}
	return s, model
}

// The client that Sheaf asks OpenAI's servers with gets from Sheaf what the model says.
func TestEmbeddingsServeAClientOfOpenAI(t *testing.T) {
	s, model := embedServer(t, true)
	texts := []string{"The invoice is due in May.", "Die Rechnung ist im Mai fällig.", "zebra", "zebra", "中文"}
	want, err := model.Embed(t.Context(), texts, embed.Passage)
	if err != nil {
		t.Fatal(err)
	}
	for _, encoding := range []string{"float", "base64"} {
		c, err := openai.Open(t.Context(), openai.Config{BaseURL: s.url + "/v1", APIKey: scopeRead, Model: "text-embedding-3-small", Encoding: encoding})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Embed(t.Context(), texts, embed.Passage)
		if err != nil || !slices.EqualFunc(got, want, near) {
			t.Errorf("%s: the vectors are not those of the model (%v)", encoding, err)
		}
	}
}

// near allows for the client making the length one again.
func near(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return x-y < 1e-6 && y-x < 1e-6 })
}

func TestEmbeddingsReadEachFormOfInput(t *testing.T) {
	s, model := embedServer(t, false)
	want, err := model.Embed(t.Context(), []string{"hello world", "hello"}, embed.Passage)
	if err != nil {
		t.Fatal(err)
	}
	for input, n := range map[string]int{
		`"hello world"`: 1, `["hello world"]`: 1, `["hello world", "hello"]`: 2, `[15339, 1917]`: 1, `[[15339, 1917]]`: 1, `[[15339, 1917], [15339]]`: 2,
	} {
		var a struct {
			Object, Model string
			Data          []struct {
				Object    string
				Index     int
				Embedding []float32
			}
			Usage EmbedUsage
		}
		s.must(&a, "POST", "/v1/embeddings", `{"model": "any", "user": "u", "input": `+input+`}`, "Content-Type", asJSON)
		if tokens := n + 1; a.Object != "list" || a.Model != model.Model().ID || len(a.Data) != n || a.Usage != (EmbedUsage{tokens, tokens}) {
			t.Errorf("%s: %+v", input, a)
			continue
		}
		for i, d := range a.Data {
			if d.Object != "embedding" || d.Index != i || !slices.Equal(d.Embedding, want[i]) {
				t.Errorf("%s: vector %d is not that of its text", input, i)
			}
		}
	}
	s.must(nil, "POST", "/v1/embeddings", fmt.Sprintf(`{"input": "hello", "input_type": "query", "dimensions": %d}`, model.Model().Dim), "Content-Type", asJSON)
}

func TestEmbeddingsRefuseWhatTheyCannotDo(t *testing.T) {
	s, _ := embedServer(t, false)
	list := func(n int, text string) string {
		b, err := json.Marshal(slices.Repeat([]string{text}, n))
		if err != nil {
			t.Fatal(err)
		}
		return `{"input": ` + string(b) + `}`
	}
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"input": []}`, 400, "Input has 0 texts; give 1 to 2048"},
		{list(2049, "a"), 400, "Input has 2049 texts; give 1 to 2048"},
		{list(2048, "a"), 200, ""},
		{`{"input": ["a", ""]}`, 400, "Input 1 is empty; leave it out"},
		{`{"input": [[15339], []]}`, 400, "Input 1 is empty; leave it out"},
		{list(1, strings.Repeat(" a", 8192)), 200, ""},
		{list(1, strings.Repeat(" a", 8193)), 400, "Input 0 has 8193 tokens; give at most 8192"},
		{list(37, strings.Repeat(" a", 8192)), 400, "more than 300000 tokens together; send them in several requests"},
		{list(1, strings.Repeat("a", maxEmbedBytes)), 413, "larger than 8388608 bytes"},
		{`{"input": [[15339], [4000000]]}`, 400, "Input 1 holds a number that is no token of cl100k_base; send the text itself"},
		{`{"input": [-1]}`, 400, "Input must be a text, a list of texts, or lists of token numbers"},
		{`{"input": ["a", 1]}`, 400, "input"},
		{`{"input": {"text": "a"}}`, 400, "input"},
		{`{"input": null}`, 400, "nput"},
		{`{"model": "m"}`, 400, "The property input is missing; give it"},
		{`{"input": "a", "dimensions": 8}`, 400, "Dimensions cannot be 8; the vectors of "},
		{`{"input": "a", "encoding_format": "base46"}`, 400, "did you mean base64?"},
		{`{"input": "a", "truncate": true}`, 400, `no property "truncate"`},
	} {
		status, b := s.ask("POST", "/v1/embeddings", c.body, "Content-Type", asJSON)
		if status != c.status {
			t.Errorf("%.60s answers %d, want %d: %.300s", c.body, status, c.status, b)
		} else if status >= 400 {
			if p := s.problem(c.body[:min(60, len(c.body))], b); !strings.Contains(p.Detail, c.says) {
				t.Errorf("%.60s: %q does not say %q", c.body, p.Detail, c.says)
			}
		}
	}
}

func TestEmbeddingsNeedAReadKey(t *testing.T) {
	s, _ := embedServer(t, true)
	for key, want := range map[string]int{"": 401, "wrong": 401, scopeRead: 200} {
		if status, b := s.ask("POST", "/v1/embeddings", `{"input": "a"}`, "Content-Type", asJSON, "Authorization", "Bearer "+key); status != want {
			t.Errorf("the key %q: %d %s, want %d", key, status, b, want)
		}
	}
}

// A request whose body ends before its Content-Length is refused.
func TestEmbeddingsOfABrokenRequest(t *testing.T) {
	s, _ := embedServer(t, false)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{\"input\": \"a\"}")
	if err == nil {
		err = conn.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "broke off; send it again") {
		t.Errorf("%v: %s", err, answer)
	}
}

func TestEmbeddingsWithoutAnEmbedder(t *testing.T) {
	away, err := openai.Open(t.Context(), openai.Config{BaseURL: "http://127.0.0.1:1/v1", Model: "m", Dimensions: 8})
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]embed.Embedder{"away": away, "none": nil} {
		s := newTestServer(t, func(c *Config) { c.Embedder = e })
		status, b := s.ask("POST", "/v1/embeddings", `{"input": "a"}`, "Content-Type", asJSON)
		if p := s.problem(name, b); status != http.StatusServiceUnavailable || strings.Contains(p.Detail, "127.0.0.1") {
			t.Errorf("%s: %d %s", name, status, b)
		}
	}
}
