package ragflow

import (
	"context"
	"fmt"
	"net/http"

	"sheaf/internal/facade"
)

// parts are the server components the interface reports: their names in the status
// and the health check, and our dependency behind each.
var parts = []struct{ status, health, dependency string }{
	{"doc_engine", "doc_engine", "index"}, {"storage", "storage", "blobs"}, {"database", "db", "store"}, {"redis", "redis", "queue"},
}

// part is a dependency as reported by /readyz.
type part struct {
	OK        bool    `json:"ok"`
	Error     string  `json:"error"`
	LatencyMS float64 `json:"latency_ms"`
}

// dependencies queries /readyz; an error means that the server cannot do anything.
func dependencies(ctx context.Context, v1 http.RoundTripper) (map[string]part, error) {
	var ready struct {
		Dependencies map[string]part `json:"dependencies"`
	}
	err := facade.Inside(v1, http.Header{}).Call(ctx, http.MethodGet, "/readyz", nil, &ready)
	return ready.Dependencies, err
}

func systemStatus(c *call) (*answer, error) {
	of, err := dependencies(c.ctx, c.v1)
	out := object{}
	for _, p := range parts {
		d, asked := of[p.dependency]
		one := object{"status": "green", "elapsed": fmt.Sprintf("%.1f", d.LatencyMS)}
		switch {
		case err != nil:
			one["status"], one["error"] = "red", err.Error()
		case asked && !d.OK:
			one["status"], one["error"] = "red", d.Error
		}
		if p.status == "doc_engine" { // clients derive the engine's behavior from it
			one["type"] = "elasticsearch"
		}
		out[p.status] = one
	}
	return &answer{data: out}, nil
}

// healthz responds without a key. A server that does part of its work is in
// service, and reports what is down.
func healthz(v1 http.RoundTripper, w http.ResponseWriter, r *http.Request) {
	of, err := dependencies(r.Context(), v1)
	if err != nil {
		send(w, http.StatusServiceUnavailable, object{"status": "nok", "_meta": fmt.Sprint(err)})
		return
	}
	out := object{"status": "ok"}
	for _, p := range parts {
		out[p.health] = "ok"
		if d, asked := of[p.dependency]; asked && !d.OK {
			out["status"], out[p.health] = "nok", "nok"
		}
	}
	send(w, 0, out)
}
