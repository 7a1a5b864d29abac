package command

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The private address answers while the process waits, and says for what.
func TestWaitingProcessAnswersProbes(t *testing.T) {
	p := &private{log: slog.New(slog.DiscardHandler)}
	if err := p.listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + p.ln.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	p.waits(fmt.Errorf("the database is on holiday"))
	if status, body := get("/readyz"); status != 503 || !strings.Contains(body, "on holiday") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, _ := get("/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	a := built(t, nil)
	c, _ := running(t, a)
	p.built(a)
	if status, body := get("/readyz"); status != 200 || !strings.Contains(body, `"store"`) || !strings.Contains(body, "latency_ms") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, body := get("/metrics"); status != 200 || !strings.Contains(body, "sheaf_keeper_leads") {
		t.Errorf("/metrics: %d %.100s", status, body)
	}
	if status, body := get("/debug/pprof/"); status != 200 || !strings.Contains(body, "goroutine") {
		t.Errorf("pprof: %d", status)
	}
	elsewhere := httptest.NewRequest("GET", "/debug/pprof/", nil) // from 192.0.2.1
	w := httptest.NewRecorder()
	if p.server.Handler.ServeHTTP(w, elsewhere); w.Code != http.StatusForbidden {
		t.Errorf("a profile for another host: %d", w.Code)
	}
	resp, err := http.Get(c.base + "/debug/pprof/goroutine?debug=1") // answered by the page, as every address that does not exist
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); strings.Contains(string(b), "goroutine profile") {
		t.Error("the API's own address answers pprof")
	}
}
