package api

import (
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// operationRoutes are for the operator.
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

// docs is a reference made of the OpenAPI document, with nothing fetched from
// anywhere.
func (s *Server) docs(w http.ResponseWriter, r *http.Request) {
	type route struct{ Method, Path, Summary, Description string }
	groups := map[string][]route{}
	for path, item := range s.api.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if op != nil {
				groups[op.Tags[0]] = append(groups[op.Tags[0]], route{method, path, op.Summary, op.Description})
			}
		}
	}
	for _, rs := range groups {
		slices.SortFunc(rs, func(a, b route) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self' 'unsafe-inline'")
	_, _ = io.WriteString(w, docsPage) // the client may be gone
	for _, tag := range slices.Sorted(maps.Keys(groups)) {
		_, _ = fmt.Fprintf(w, "<h2>%s</h2><table>", html.EscapeString(tag))
		for _, r := range groups[tag] {
			_, _ = fmt.Fprintf(w, "<tr><td><code>%s</code><td><code>%s</code><td>%s", r.Method, html.EscapeString(r.Path), html.EscapeString(r.Summary))
			if r.Description != "" {
				_, _ = fmt.Fprintf(w, "<br><small>%s</small>", html.EscapeString(r.Description))
			}
		}
		_, _ = io.WriteString(w, "</table>")
	}
}

const docsPage = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sheaf API</title><style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
code{font-size:.95em}td{padding:.2rem .8rem .2rem 0;vertical-align:top}h2{margin-top:2rem}</style>
<h1>Sheaf API</h1><p>The machine-readable description is at <a href="/openapi.json">/openapi.json</a>. Errors are <code>application/problem+json</code> with a stable <code>code</code>.</p>
`
