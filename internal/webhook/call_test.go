package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// What a service may do to its caller, and what becomes of it: a code, a
// sentence, and whether another try helps.
func TestCallsAreBounded(t *testing.T) {
	secret := NewSecret()
	hang := make(chan struct{})
	reached := false
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var at int64
		_, _ = fmt.Sscan(r.Header.Get(HeaderTimestamp), &at)
		want, _ := Sign(secret, r.Header.Get(HeaderID), time.Unix(at, 0), body)
		if r.Header.Get(HeaderSignature) != want || r.Header.Get(HeaderID) != "id-1" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"ok": true}`))
	})
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/secret", http.StatusFound) })
	mux.HandleFunc("/secret", func(http.ResponseWriter, *http.Request) { reached = true })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) { // would be 10 GB
		line := []byte(strings.Repeat("x", 64<<10))
		for range 10 << 30 / len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		t.Error("10 GB were read")
	})
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(10<<30))
		_, _ = w.Write([]byte("{"))
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
	})
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such\nfield", http.StatusBadRequest) })
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(hang)

	c, err := NewCaller([]string{"127.0.0.0/8"}, secret)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		code, says string
		retryable  bool
	}{
		"/ok": {}, "/empty": {},
		"/redirect": {"service_redirects", "Redirects are not followed", false},
		"/hang":     {"service_unavailable", "its time is over", true},
		"/endless":  {"service_answer_too_large", "more than 1 MB", false},
		"/huge":     {"service_answer_too_large", "more than 1 MB", false},
		"/cut":      {"service_unavailable", "breaks off", true},
		"/busy":     {"service_unavailable", "429", true},
		"/broken":   {"service_unavailable", "502", true},
		"/refuse":   {"service_refused", "no such field", false},
	} {
		limit := 30 * time.Second
		if path == "/hang" {
			limit = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		answer, err := c.Post(ctx, Call{URL: server.URL + path, ID: "id-1", Body: []byte(`{}`), MaxAnswer: 1 << 20})
		cancel()
		if want.code == "" {
			if err != nil || path == "/ok" && string(answer) != `{"ok": true}` || path == "/empty" && answer != nil {
				t.Errorf("%s: %q, %v", path, answer, err)
			}
			continue
		}
		f := sheaf.AsFailure(err, "")
		if f.Code != want.code || !strings.Contains(f.Message, want.says) || f.Retryable != want.retryable || errors.Is(err, sheaf.ErrUnavailable) != want.retryable {
			t.Errorf("%s: %+v (%v)", path, f, err)
		}
		if limited, ok := errors.AsType[*sheaf.RateLimited](err); ok != (path == "/busy") || ok && limited.After != 7*time.Second {
			t.Errorf("%s: rate limited %v", path, limited)
		}
	}
	if reached {
		t.Error("a redirect was followed")
	}
}

// An address that is not public is called only where it is named, whatever name
// leads there.
func TestPrivateAddressesAreCalledOnlyWhereNamed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	secret := NewSecret()
	for _, c := range []struct {
		hosts []string
		url   string
		ok    bool
	}{
		{nil, server.URL, false},
		{[]string{"localhost"}, "http://localhost:" + port, false}, // the name is allowed, and leads to a loopback address
		{[]string{"localhost", "127.0.0.1"}, "http://localhost:" + port, true},
		{[]string{"localhost", "127.0.0.0/8"}, "http://localhost:" + port, true},
		{[]string{"127.0.0.1:1"}, server.URL, false}, // another port
		{[]string{"127.0.0.0/8"}, server.URL, true},
		{[]string{"10.0.0.0/8"}, server.URL, false},
		{[]string{"127.0.0.1"}, strings.Replace(server.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1), true},
		{[]string{"10.0.0.0/8"}, strings.Replace(server.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1), false},
		{[]string{"127.0.0.1"}, "http://user:pass@127.0.0.1:" + port, false},
		{[]string{"127.0.0.1"}, "file:///etc/passwd", false},
	} {
		caller, err := NewCaller(c.hosts, secret)
		if err != nil {
			t.Fatal(err)
		}
		_, err = caller.Post(t.Context(), Call{URL: c.url, ID: "x", Body: []byte("{}"), MaxAnswer: 1 << 10})
		if (err == nil) != c.ok || err != nil && sheaf.AsFailure(err, "").Code != "service_not_allowed" {
			t.Errorf("%v, %s: %v", c.hosts, c.url, err)
		}
	}
	for _, a := range []string{"10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "fe80::1", "fd00::1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "2002:7f00:1::", "224.0.0.1", "255.255.255.255"} {
		if public(netip.MustParseAddr(a).Unmap()) {
			t.Errorf("%s counts as public", a)
		}
	}
	for _, a := range []string{"8.8.8.8", "2606:4700::1111"} {
		if !public(netip.MustParseAddr(a)) {
			t.Errorf("%s counts as private", a)
		}
	}
	for _, hosts := range [][]string{{"http://x"}, {""}, {"a b"}} {
		if _, err := NewCaller(hosts, secret); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%q: %v", hosts, err)
		}
	}
	if _, err := NewCaller([]string{"example.org"}, ""); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("no secret: %v", err)
	}
}
