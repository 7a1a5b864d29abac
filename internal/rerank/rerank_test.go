package rerank

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/worker"
)

// open makes a client with the breaker of the service. Its budget is far
// longer than a local server needs.
func open(t *testing.T, c Config) *Client {
	t.Helper()
	if c.Budget == 0 {
		c.Budget = time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Candidates = 50
	c.Breaker = worker.NewBreaker("rerank server", slog.New(slog.DiscardHandler), nil)
	client, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	return srv.URL
}

func texts(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("text %d", i)
	}
	return all
}

// relevanceOf is what the servers below think of a text of texts.
func relevanceOf(t *testing.T, text string) float64 {
	var n int
	if _, err := fmt.Sscanf(text, "text %d", &n); err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return float64(n*37%50) / 50
}

// strict reads a request that has just the fields of a protocol.
func strict(t *testing.T, r *http.Request, into any) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v", r.URL.Path, err)
	}
}

func TestSpeaksEachProtocol(t *testing.T) {
	key, calls := "one", atomic.Int64{}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer "+key || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		if r.URL.Path == "/rerank" {
			var ask struct {
				Query    string
				Texts    []string
				Truncate bool
			}
			strict(t, r, &ask)
			if ask.Query != "which?" || len(ask.Texts) > 32 || !ask.Truncate {
				t.Errorf("%+v", ask)
			}
			var answer []map[string]any
			for i, text := range slices.Backward(ask.Texts) {
				answer = append(answer, map[string]any{"index": i, "score": relevanceOf(t, text)})
			}
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		var ask struct {
			Model, Query    string
			Documents       []string
			TopN            int   `json:"top_n"`
			ReturnDocuments *bool `json:"return_documents"`
		}
		strict(t, r, &ask)
		if jina := r.URL.Path == "/v1/rerank"; ask.Model != "m" || ask.Query != "which?" || ask.TopN != len(ask.Documents) || jina != (ask.ReturnDocuments != nil) || jina && *ask.ReturnDocuments {
			t.Errorf("%s %+v", r.URL.Path, ask)
		}
		results := []map[string]any{}
		for i, text := range slices.Backward(ask.Documents) {
			results = append(results, map[string]any{"index": i, "relevance_score": relevanceOf(t, text)})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "results": results, "meta": map[string]any{}})
	})
	for _, c := range []struct {
		path, model string
		calls       int64
	}{{"/v2/rerank", "m", 1}, {"/v1/rerank", "m", 1}, {"/rerank", "", 2}} {
		client := open(t, Config{URL: address + c.path, Model: c.model, Key: func() string { return key }})
		for _, key = range []string{"one", "two"} { // a new one needs no new client
			calls.Store(0)
			scores, result := client.Rerank(t.Context(), "which?", texts(50))
			if result.Outcome != Used || result.Reason != "" || len(scores) != 50 || calls.Load() != c.calls {
				t.Fatalf("%s: %+v, %d scores, %d calls", c.path, result, len(scores), calls.Load())
			}
			for i, text := range texts(50) {
				if scores[i] != relevanceOf(t, text) {
					t.Errorf("%s: text %d scores %g", c.path, i, scores[i])
				}
			}
		}
	}
}

func TestLogitsBecomeShares(t *testing.T) {
	client := open(t, Config{Model: "m", URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"results":[{"index":1,"relevance_score":-1e300},{"index":0,"relevance_score":2},{"index":2,"relevance_score":0.5}]}`)
	})})
	scores, _ := client.Rerank(t.Context(), "q", texts(3))
	if len(scores) != 3 || scores[0] <= scores[2] || scores[2] <= scores[1] || scores[0] > 1 || scores[1] < 0 {
		t.Errorf("%v", scores)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	var ask struct {
		Query string
		Texts []string
	}
	client := open(t, Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&ask)
		_, _ = io.WriteString(w, `[{"index":0,"score":0.5}]`)
	})})
	_, result := client.Rerank(t.Context(), strings.Repeat("é", 1<<20), []string{"x" + strings.Repeat("é", 1<<20)})
	if result.Outcome != Used || len(ask.Query) != maxQueryBytes || len(ask.Texts) != 1 || len(ask.Texts[0]) != maxTextBytes-1 {
		t.Errorf("%+v: query of %d bytes, %d texts", result, len(ask.Query), len(ask.Texts))
	}
}

// What a server may answer, and what is made of it. None of it leaves scores.
func TestUselessAnswersAreRefused(t *testing.T) {
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"message":"no"}`)
		}
	}
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		reason string
		opens  int // the call from which the breaker turns back; 0: it stays closed
	}{
		"too few":       {say(`{"results":[{"index":0,"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"too many":      {say(`{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":1},{"index":2,"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"twice":         {say(`{"results":[{"index":0,"relevance_score":1},{"index":0,"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"out of bounds": {say(`{"results":[{"index":0,"relevance_score":1},{"index":2,"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"negative":      {say(`{"results":[{"index":0,"relevance_score":1},{"index":-1,"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"no index":      {say(`{"results":[{"index":1,"relevance_score":1},{"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"no score":      {say(`{"results":[{"index":0,"relevance_score":1},{"index":1}]}`), "rerank_bad_answer", 3},
		"null":          {say(`{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":null}]}`), "rerank_bad_answer", 3},
		"NaN":           {say(`{"results":[{"index":0,"relevance_score":NaN},{"index":1,"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"infinite":      {say(`{"results":[{"index":0,"relevance_score":1e999},{"index":1,"relevance_score":1}]}`), "rerank_bad_answer", 3},
		"TEI's":         {say(`[{"index":0,"score":1},{"index":1,"score":1}]`), "rerank_bad_answer", 3},
		"a page":        {say(`<html>`), "rerank_bad_answer", 3},
		"nothing":       {say(``), "rerank_bad_answer", 3},
		"10 GB": {func(w http.ResponseWriter, _ *http.Request) {
			part := bytes.Repeat([]byte(" "), 1<<20)
			for range 10 << 10 {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
			t.Error("the whole answer was read")
		}, "rerank_bad_answer", 3},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"results":[{"index":0,`)
		}, "rerank_unavailable", 3},
		"hung up":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "rerank_unavailable", 3},
		"broken":        {status(500), "rerank_unavailable", 3},
		"slow down":     {status(429, "Retry-After", "60"), "rerank_rate_limited", 1},
		"wrong key":     {status(401), "rerank_unauthorized", 1},
		"wrong address": {status(404), "rerank_refused", 1},
		"moved":         {status(307, "Location", "http://127.0.0.1:1/"), "rerank_refused", 1},
		"wrong text":    {status(422), "rerank_refused", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			asked := atomic.Int64{}
			client := open(t, Config{Model: "m", APIKey: "geheim", Log: slog.New(slog.NewTextHandler(&log, nil)), URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				c.handle(w, r)
			})})
			for call := range 4 {
				want, reason := Failed, c.reason
				if c.opens > 0 && call >= c.opens {
					want, reason = TurnedBack, ""
				}
				scores, result := client.Rerank(t.Context(), "q", texts(2))
				if scores != nil || result.Outcome != want || result.Reason != reason {
					t.Errorf("call %d: %v %+v, want %s %s", call, scores, result, want, reason)
				}
			}
			if n := asked.Load(); c.opens > 0 && n != int64(c.opens) || c.opens == 0 && n != 4 {
				t.Errorf("the server was asked %d times", n)
			}
			if c.reason == "rerank_unauthorized" && !strings.Contains(log.String(), "search.rerank.api_key") || strings.Contains(log.String(), "geheim") {
				t.Errorf("the log says %s", log.String())
			}
		})
	}
}

// transport answers without a network, so that time is the bubble's.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stalled is a body that never ends and never comes.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }
func (stalled) Close() error               { return nil }

func TestSearchesWaitNoLongerThanTheBudget(t *testing.T) {
	const budget = 300 * time.Millisecond
	for name, slow := range map[string]transport{
		"no head": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"no body": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: stalled{r.Context()}}, nil
		},
		"no reason": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 500, Body: stalled{r.Context()}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := slow
				told := map[string]int{}
				client := open(t, Config{URL: "http://tei/rerank", Budget: budget, Reranked: func(outcome string, _ time.Duration) { told[outcome]++ },
					Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) { return server(r) })}})
				ask := func() (Result, time.Duration) {
					started := time.Now()
					_, result := client.Rerank(t.Context(), "q", texts(1))
					return result, time.Since(started)
				}
				want, reason := PastBudget, "rerank_timeout"
				if name == "no reason" { // its status is one
					want, reason = Failed, "rerank_unavailable"
				}
				for range 3 {
					if result, took := ask(); result.Outcome != want || result.Reason != reason || took != budget || result.Took != budget {
						t.Fatalf("%+v after %s", result, took)
					}
				}
				for range 100 { // three in a row are enough
					if result, took := ask(); result.Outcome != TurnedBack || took != 0 {
						t.Fatalf("%+v after %s", result, took)
					}
				}
				server = func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`[{"index":0,"score":0.5}]`))}, nil
				}
				time.Sleep(10 * time.Second) // the breaker lets a trial through
				if result, _ := ask(); result.Outcome != Used {
					t.Fatalf("the server is back: %+v", result)
				}
				if told[string(want)] != 3 || told["breaker"] != 100 || told["used"] != 1 {
					t.Errorf("the metric was told %v", told)
				}
			})
		})
	}
}

// Whoever goes away shows nothing about the server.
func TestCallersThatGoAwayDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := open(t, Config{URL: "http://tei/rerank", Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}})
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, result := client.Rerank(ctx, "q", texts(40)); result.Outcome != Failed {
				t.Errorf("%+v", result)
			}
			cancel()
		}
	})
}

func TestOpenRefusesWrongConfig(t *testing.T) {
	good := Config{URL: "https://api.jina.ai/v1/rerank", Model: "m", Budget: time.Second, Candidates: 1, APIKey: "geheim"}
	for name, change := range map[string]func(c *Config){
		"no scheme": func(c *Config) { c.URL = "api.jina.ai/v1/rerank" }, "no model": func(c *Config) { c.Model, c.Protocol = "", Jina },
		"protocol": func(c *Config) { c.Protocol = "voyage" }, "budget": func(c *Config) { c.Budget = 0 }, "candidates": func(c *Config) { c.Candidates = 0 },
	} {
		c := good
		change(&c)
		if _, err := Open(c); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(good); err != nil {
		t.Error(err)
	}
	if s := fmt.Sprintf("%v %+v %#v", good, good, good); strings.Contains(s, "geheim") {
		t.Errorf("the key is printed: %s", s)
	}
	for _, c := range []struct {
		address, model string
		want           Protocol
	}{
		{"https://api.cohere.com/v2/rerank", "rerank-v3.5", Cohere}, {"https://api.jina.ai/v1/rerank", "m", Jina}, {"https://api.jina.ai/v1/rerank", "", Jina},
		{"http://vllm:8000/rerank", "m", Jina}, {"http://tei:8080/rerank", "", TEI},
	} {
		if got := Detect(c.address, c.model); got != c.want {
			t.Errorf("%s is %s", c.address, got)
		}
	}
}
