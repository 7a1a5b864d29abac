package api

import (
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// operationRoutes are for whoever runs the service.
func (s *Server) operationRoutes() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": s.cfg.Version})
	})
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.HandleFunc("GET /docs", s.docs)
	if s.cfg.Metrics != nil {
		s.mux.Handle("GET /metrics", s.cfg.Metrics)
	}
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Status       string                `json:"status"` // ready or unready
	Dependencies map[string]Dependency `json:"dependencies"`
	// Parts are optional: one that is missing does not make the service unready.
	Parts []Part `json:"optional_parts"`
}

// Part is what a format needs beside this binary.
type Part struct {
	Format string `json:"format"` // id
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"` // what is missing and how to get it
}

// Dependency is one part that the service needs.
type Dependency struct {
	OK        bool    `json:"ok"`
	LatencyMS float64 `json:"latency_ms"`
	Error     string  `json:"error,omitempty"`
}

// Ready answers /readyz for a process that has no API.
func Ready(checks []Check, parts func() []Part, log *slog.Logger) http.Handler {
	s := &Server{cfg: Config{Checks: checks, Parts: parts}, log: log}
	return http.HandlerFunc(s.ready)
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	out := Readiness{Status: "ready", Dependencies: map[string]Dependency{}, Parts: []Part{}}
	if s.cfg.Parts != nil {
		out.Parts = append(out.Parts, s.cfg.Parts()...)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range s.cfg.Checks {
		wg.Go(func() {
			begun := time.Now()
			err := c.Ping(ctx)
			d := Dependency{OK: err == nil, LatencyMS: float64(time.Since(begun).Microseconds()) / 1000}
			if err != nil {
				d.Error = s.mapError(ctx, err).Detail
			}
			mu.Lock()
			defer mu.Unlock()
			out.Dependencies[c.Name] = d
			if err != nil {
				out.Status = "unready"
			}
		})
	}
	wg.Wait()
	status := http.StatusOK
	if out.Status != "ready" {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, out)
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
