package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
)

// However many ask, a dependency is asked once a second, and one that hangs
// holds nobody up for long.
func TestProbesAreSharedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		release := make(chan struct{})
		h := NewHealth(RoleAll, []Check{
			{"store", func(context.Context) error { asked.Add(1); time.Sleep(100 * time.Millisecond); return nil }},
			{"index", func(context.Context) error { <-release; return nil }}, // deaf to its context
		}, nil, slog.New(slog.DiscardHandler))
		look := func() (out Readiness) {
			w := httptest.NewRecorder()
			h.Handler(false).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
				t.Error(err)
			}
			return out
		}
		begun := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if r := look(); r.Status != Degraded || !r.Dependencies["store"].OK || r.Dependencies["index"].OK {
					t.Errorf("%+v", r)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); took > 5*time.Second || asked.Load() != 1 {
			t.Errorf("after %s the store was asked %d times", took, asked.Load())
		}
		close(release)
		synctest.Wait()
		if r := look(); r.Status != Ready || asked.Load() != 2 {
			t.Errorf("%+v, asked %d times", r, asked.Load())
		}
		if look(); asked.Load() != 2 {
			t.Error("within a second it is asked again")
		}
	})
}

func TestReadinessGoesByRoleAndNeed(t *testing.T) {
	for _, c := range []struct {
		away   string
		status map[Role]string
		broken string // capabilities
	}{
		{"", map[Role]string{RoleServe: Ready, RoleExecutor: Ready, RoleKeeper: Ready, RoleAll: Ready}, ""},
		{"store", map[Role]string{RoleServe: Unready, RoleExecutor: Unready, RoleKeeper: Unready, RoleAll: Unready}, "uploads processing search"},
		{"queue", map[Role]string{RoleServe: Degraded, RoleExecutor: Unready, RoleKeeper: Degraded, RoleAll: Degraded}, "processing"},
		{"blobs", map[Role]string{RoleServe: Degraded, RoleExecutor: Unready, RoleKeeper: Degraded, RoleAll: Degraded}, "uploads processing"},
		{"index", map[Role]string{RoleServe: Degraded, RoleExecutor: Degraded, RoleKeeper: Degraded, RoleAll: Degraded}, "processing search"},
		{"embedder", map[Role]string{RoleServe: Degraded, RoleExecutor: Degraded, RoleKeeper: Degraded, RoleAll: Degraded}, "processing"},
	} {
		var checks []Check
		for name := range stops {
			checks = append(checks, Check{name, func(context.Context) error {
				if name == c.away {
					return fmt.Errorf("%w: dial tcp 10.1.2.3:9200 of /var/lib/secret", sheaf.ErrUnavailable)
				}
				return nil
			}})
		}
		h := NewHealth(RoleServe, checks, nil, slog.New(slog.DiscardHandler))
		for role, want := range c.status {
			w := httptest.NewRecorder()
			h.Handler(true).ServeHTTP(w, httptest.NewRequest("GET", "/readyz?role="+string(role), nil))
			var r Readiness
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Status != want || (w.Code == 503) != (want == Unready) {
				t.Errorf("without %s %s is %s (%d), want %s: %v", c.away, role, r.Status, w.Code, want, err)
			}
			for name, a := range r.Capabilities {
				if a.OK == strings.Contains(c.broken, string(name)) {
					t.Errorf("without %s %s is %+v", c.away, name, a)
				}
			}
			if strings.Contains(w.Body.String(), "10.1.2.3") || strings.Contains(w.Body.String(), "/var/lib") {
				t.Errorf("an open address tells %s", w.Body)
			}
		}
		w := httptest.NewRecorder()
		h.Handler(false).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		if c.away != "" && !strings.Contains(w.Body.String(), "10.1.2.3") {
			t.Errorf("the private address does not say why %s is away: %s", c.away, w.Body)
		}
	}
	w := httptest.NewRecorder()
	NewHealth(RoleServe, nil, nil, nil).Handler(true).ServeHTTP(w, httptest.NewRequest("GET", "/readyz?role=king", nil))
	if w.Code != 400 {
		t.Errorf("an unknown role: %d", w.Code)
	}
}

// Addresses outside of /v1 refuse what they do not understand, on the API's
// address and on the private one, and take what scrapers add.
func TestProbesRefuseWhatTheyDoNotUnderstand(t *testing.T) {
	s := newTestServer(t, func(c *Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1") })
	})
	handlers := map[string]http.Handler{}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		handlers["private "+path] = Guarded("GET "+path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }))
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/openapi.yaml"} {
		handlers[path] = s.api.Handler()
	}
	for name, h := range handlers {
		_, path, private := strings.Cut(name, " ")
		if !private {
			path = name
		}
		ask := func(query string) (int, string) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", path+query, nil)
			r.Host = "localhost"
			h.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		good, bad := []string{""}, map[string]string{"?verbose": "verbose", "?rol=serve": "rol", "?a=%zz": "query string"}
		switch path {
		case "/readyz":
			good = append(good, "?role=serve", "?role=executor")
			bad["?role=king"], bad["?role="], bad["?role=serve&role=all"], bad["?rol=serve"] = "king", "empty", "once", "did you mean role?"
		case "/metrics":
			good = append(good, "?name[]=up&name[]=down")
		}
		for _, q := range good {
			if status, body := ask(q); status != 200 {
				t.Errorf("%s%s: %d %s", name, q, status, body)
			}
		}
		for q, says := range bad {
			if status, body := ask(q); status != 400 || !strings.Contains(body, says) || !strings.Contains(body, `"invalid"`) {
				t.Errorf("%s%s: %d %s", name, q, status, body)
			}
		}
	}
}
