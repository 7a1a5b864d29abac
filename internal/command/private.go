package command

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"sheaf/internal/api"
	"sheaf/internal/buildinfo"
)

// private serves operators on a separate address: probes, metrics and pprof.
// Executors and keepers have no API and are monitored through it. It serves from
// the start, so a process that waits for its engines can say what it waits for.
type private struct {
	log     *slog.Logger
	ln      net.Listener
	server  *http.Server
	waiting atomic.Pointer[string] // the latest reason for waiting
	ready   atomic.Pointer[http.Handler]
	metrics atomic.Pointer[http.Handler]
}

// listen starts serving; with an empty addr it does nothing.
func (p *private) listen(addr string) (err error) {
	if addr == "" {
		return nil
	}
	if p.ln, err = net.Listen("tcp", addr); err != nil {
		return fmt.Errorf("server.debug_listen: %w; choose another address or leave it empty", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", api.Guarded("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok", "version": buildinfo.Get().String()})
	})))
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.Handle("GET /metrics", api.Guarded("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := p.metrics.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})))
	for path, h := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace, "symbol": pprof.Symbol} {
		mux.Handle("/debug/pprof/"+path, api.FromThisHost(h))
	}
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	go func() { _ = p.server.Serve(p.ln) }() // close ends it
	p.log.Info("answering probes, metrics and pprof", "address", p.ln.Addr().String())
	return nil
}

func (p *private) readyz(w http.ResponseWriter, r *http.Request) {
	if h := p.ready.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	why := "starting"
	if reason := p.waiting.Load(); reason != nil {
		why = *reason
	}
	answer(w, http.StatusServiceUnavailable, map[string]string{"status": "waiting", "error": why})
}

// waits records why the process is not working yet.
func (p *private) waits(err error) {
	text := err.Error()
	p.waiting.Store(&text)
}

// built switches to the handlers of the built parts.
func (p *private) built(a *app) {
	ready, metrics := a.health.Handler(false), api.TokenOnly(a.metrics.Handler(), a.cfg.Server.MetricsToken.Reveal())
	p.ready.Store(&ready)
	p.metrics.Store(&metrics)
}

func (p *private) close() {
	if p.server != nil {
		_ = p.server.Close() // losing a probe does no harm
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
}
