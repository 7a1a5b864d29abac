package api

import (
	"compress/gzip"
	"net/http"
	"strings"

	"sheaf/internal/apidoc"
)

// operationRoutes registers the operator's routes.
func (s *Server) operationRoutes() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": s.cfg.Build.String()})
	})
	health := s.cfg.Health
	if health == nil {
		health = NewHealth(RoleAll, nil, nil, s.log)
	}
	s.mux.Handle("GET /readyz", health.Handler(s.cfg.Auth))
	s.mux.HandleFunc("GET /docs", s.docs)
	if s.cfg.Metrics != nil {
		s.mux.Handle("GET /metrics", s.guardMetrics(s.cfg.Metrics))
	}
}

// docs serves the human-readable reference. Its examples use the address it was
// requested from.
func (s *Server) docs(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept-Encoding")
	base := "http://" + r.Host // behind a TLS proxy the page's script knows better
	if r.TLS != nil {
		base = "https://" + r.Host
	}
	page := apidoc.Page(s.api.OpenAPI(), base)
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(page) // the client may be gone
		return
	}
	h.Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = z.Write(page)
	_ = z.Close()
}
