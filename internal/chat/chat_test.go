package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
)

func serve(t *testing.T, c Config, handle http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	c.BaseURL, c.Model = srv.URL+"/v1/", "tiny"
	client, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func say(w http.ResponseWriter, text string) {
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]string{"role": "assistant", "content": text}}}})
}

func TestAsksAsTheProtocolSays(t *testing.T) {
	c := serve(t, Config{APIKey: "secret"}, func(w http.ResponseWriter, r *http.Request) {
		var ask request
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			t.Error(err)
		}
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer secret" || ask.Model != "tiny" || ask.MaxTokens != 7 || len(ask.Messages) != 2 {
			t.Errorf("%s %v %+v", r.URL.Path, r.Header, ask)
		}
		say(w, "  "+ask.Messages[0].Role+":"+ask.Messages[0].Content+"/"+ask.Messages[1].Role+":"+ask.Messages[1].Content+"\n")
	})
	got, err := c.Ask(t.Context(), "be brief", "text \xff", 7)
	if err != nil || got != "system:be brief/user:text" {
		t.Errorf("%q %v", got, err)
	}
	config := Config{BaseURL: "http://x", APIKey: "secret"}
	if s := fmt.Sprintf("%v %+v %#v", config, config, config); strings.Contains(s, "secret") {
		t.Errorf("the key is printed: %s", s)
	}
}

func TestPromptAndAnswerAreBounded(t *testing.T) {
	var got int
	c := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		var ask request
		_ = json.NewDecoder(r.Body).Decode(&ask)
		got = len(ask.Messages[1].Content)
		say(w, strings.Repeat("x", maxAnswerBytes+1))
	})
	_, err := c.Ask(t.Context(), "", strings.Repeat("é", maxPromptBytes), 5)
	if f, ok := errors.AsType[*sheaf.Failure](err); got > maxPromptBytes || got < maxPromptBytes-4 || !ok || f.Code != "chat_bad_answer" {
		t.Errorf("%d bytes were sent; a long answer is %v", got, err)
	}
}

func TestFailuresSayWhetherToTryAgain(t *testing.T) {
	for _, test := range []struct {
		status    int
		header    string
		body      string
		code      string
		retryable bool
		after     time.Duration // of RateLimited, -1 for none
		input     bool          // the text is to blame
	}{
		{429, "7", `{"error":{"message":"slow down"}}`, "chat_rate_limited", true, 7 * time.Second, false},
		{429, "", ``, "chat_rate_limited", true, 0, false},
		{429, "", `{"error":{"message":"no money","code":"insufficient_quota"}}`, "chat_refused", true, -1, false},
		{503, "3", ``, "chat_rate_limited", true, 3 * time.Second, false},
		{500, "", `{"detail":"oops"}`, "chat_unavailable", true, -1, false},
		{401, "", `{"error":"bad key"}`, "chat_unauthorized", true, -1, false},
		{404, "", `{"message":"no such model"}`, "chat_refused", true, -1, false},
		{400, "", `{"error":{"message":"maximum context length"}}`, "chat_refused", false, -1, true},
		{302, "", ``, "chat_refused", true, -1, false},
		{200, "", `{"choices":[]}`, "chat_bad_answer", false, -1, false},
		{200, "", `no json`, "chat_bad_answer", false, -1, false},
	} {
		c := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
			if test.header != "" {
				w.Header().Set("Retry-After", test.header)
			}
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.body))
		})
		_, err := c.Ask(t.Context(), "", "x", 5)
		f, ok := errors.AsType[*sheaf.Failure](err)
		if !ok || f.Code != test.code || f.Retryable != test.retryable || errors.Is(err, sheaf.ErrInvalid) != test.input {
			t.Errorf("%d %s: %v, want %s", test.status, test.body, err, test.code)
		}
		after := time.Duration(-1)
		if limited, ok := errors.AsType[*sheaf.RateLimited](err); ok {
			after = limited.After
		}
		if after != test.after {
			t.Errorf("%d %s: to wait %s, want %s", test.status, test.body, after, test.after)
		}
	}
}

func TestSlowServerTimesOutAndDeadServerIsUnavailable(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	c := serve(t, Config{Timeout: 50 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	_, err := c.Ask(t.Context(), "", "x", 5)
	if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "chat_timeout" || !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a server that never answers: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ask(ctx, "", "x", 5); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	gone, err := Open(Config{BaseURL: srv.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Ask(t.Context(), "", "x", 5); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a dead server: %v", err)
	}
}

func TestCallsAtOnceAreBounded(t *testing.T) {
	var now, most atomic.Int32
	both := make(chan struct{}, 8)
	c := serve(t, Config{Concurrency: 2}, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		both <- struct{}{}
		say(w, "x")
		now.Add(-1)
	})
	done := make(chan error)
	for range 8 {
		go func() { _, err := c.Ask(context.WithoutCancel(t.Context()), "", "x", 5); done <- err }()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if most.Load() > 2 || len(both) != 8 {
		t.Errorf("%d calls at once of %d", most.Load(), len(both))
	}
}

func TestOpenRefusesWrongConfig(t *testing.T) {
	for _, c := range []Config{{Model: "m"}, {BaseURL: "ftp://x", Model: "m"}, {BaseURL: "http://x/v1"}} {
		if _, err := Open(c); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
