package ragflow

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// ready answers /readyz.
type ready struct {
	status int
	body   string
}

func (s ready) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(s.body)), Request: r}, nil
}

// What is away is told where clients look for it.
func TestSystemTellsWhatIsAway(t *testing.T) {
	degraded := ready{200, `{"status":"degraded","dependencies":{"store":{"ok":true,"latency_ms":1.26},"index":{"ok":false,"error":"nobody answers"},"blobs":{"ok":true},"queue":{"ok":true}}}`}
	whole := ready{200, strings.ReplaceAll(degraded.body, `"ok":false`, `"ok":true`)}
	away := ready{503, `{"status":"unready"}`}
	for _, c := range []struct {
		v1                      ready
		engine, database, state string // as told by system/status and system/healthz
		code                    int
	}{
		{whole, "green", "green", "ok", 200},
		{degraded, "red", "green", "nok", 200},
		{away, "red", "red", "nok", 503},
	} {
		out, err := systemStatus(&call{v1: c.v1, ctx: t.Context()})
		if err != nil {
			t.Fatal(err)
		}
		told, _ := json.Marshal(out.data)
		var status map[string]struct{ Type, Status, Elapsed, Error string }
		if err := json.Unmarshal(told, &status); err != nil {
			t.Fatal(err)
		}
		if got := status["doc_engine"]; got.Status != c.engine || got.Type != "elasticsearch" || (got.Status == "red") != (got.Error != "") {
			t.Errorf("of %s the engine is %+v", c.v1.body, got)
		}
		if got := status["database"]; got.Status != c.database {
			t.Errorf("of %s the database is %+v", c.v1.body, got)
		}
		w := httptest.NewRecorder()
		healthz(c.v1, w, httptest.NewRequest(http.MethodGet, "/api/v1/system/healthz", nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), `"status":"`+c.state+`"`) {
			t.Errorf("of %s healthz answers %d %s", c.v1.body, w.Code, w.Body)
		}
	}
}
