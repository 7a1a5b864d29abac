package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sheaf"
)

// Capability is something the service offers its users.
type Capability string

const (
	CanUpload  Capability = "uploads"
	CanSearch  Capability = "search"
	CanProcess Capability = "processing"
)

// capabilities lists them in the order a document goes through them.
var capabilities = []Capability{CanUpload, CanProcess, CanSearch}

// Check probes whether one dependency works. A Ping has no side effects.
type Check struct {
	Name string
	Ping func(ctx context.Context) error
}

// stops lists the capabilities lost while a dependency is down. Without the
// embedder, hybrid search falls back to keywords; uploads wait for the queue in the
// database.
var stops = map[string][]Capability{
	"store":    {CanUpload, CanProcess, CanSearch},
	"queue":    {CanProcess},
	"blobs":    {CanUpload, CanProcess},
	"index":    {CanProcess, CanSearch},
	"embedder": {CanProcess},
}

// Role is the job of a process in a fleet.
type Role string

const (
	RoleServe    Role = "serve"
	RoleExecutor Role = "executor"
	RoleKeeper   Role = "keeper"
	RoleAll      Role = "all"
)

// vital lists the dependencies without which a role is unready; while any other is
// down it is degraded. An API process still searches without the blob store and
// accepts uploads without the index. An executor still plans without index or
// embedder, and work that waits for them resumes automatically.
var vital = map[Role][]string{
	RoleServe:    {"store"},
	RoleExecutor: {"store", "queue", "blobs"},
	RoleKeeper:   {"store"},
	RoleAll:      {"store"},
}

// States of a process.
const (
	Ready    = "ready"
	Degraded = "degraded"
	Unready  = "unready"
)

// Readiness is the response of /readyz: 200 when ready or degraded, otherwise 503.
type Readiness struct {
	Status string `json:"status"` // ready, degraded or unready
	Role   Role   `json:"role"`
	// Capabilities of the whole service, as far as dependencies determine them.
	Capabilities map[Capability]Ability `json:"capabilities"`
	Dependencies map[string]Dependency  `json:"dependencies"`
	// Parts are optional: a missing one does not make the service unready.
	Parts []Part `json:"optional_parts"`
	// UnservedPools have waiting tasks but no executor.
	UnservedPools []string `json:"unserved_pools,omitempty"`
}

// Ability reports whether a capability is available now.
type Ability struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// Part is what a format needs besides this binary.
type Part struct {
	Format string `json:"format"` // id
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"` // what is missing and how to get it
}

// Dependency is the state of one dependency.
type Dependency struct {
	OK        bool    `json:"ok"`
	Needed    bool    `json:"needed"` // the role cannot work without it
	LatencyMS float64 `json:"latency_ms"`
	Error     string  `json:"error,omitempty"`
}

const (
	checkFresh = time.Second     // an answer is shared by all callers within it
	checkLimit = 3 * time.Second // of one probe
)

// Health tracks a process's dependencies. However many callers there are, each
// dependency is probed at most once a second and never concurrently.
type Health struct {
	role   Role
	parts  func() []Part // may be nil
	probes []*probe
	// Unserved names the pools that have waiting tasks but no executor. It is
	// called while the store answers; may be nil. Set it before the first Look.
	Unserved func(ctx context.Context) ([]string, error)
	unserved struct {
		sync.Mutex
		asked  time.Time
		latest []string
	}
}

// shownPools limits how many pools are named, since tenants choose the names.
const shownPools = 20

// pools caches Unserved for a second. It ignores errors: an unavailable store is
// reported by its own check.
func (h *Health) pools(ctx context.Context) []string {
	if h.Unserved == nil {
		return nil
	}
	h.unserved.Lock()
	defer h.unserved.Unlock()
	if h.unserved.asked.IsZero() || time.Since(h.unserved.asked) >= checkFresh {
		found, _ := h.Unserved(ctx)
		h.unserved.latest, h.unserved.asked = found[:min(len(found), shownPools)], time.Now()
	}
	return h.unserved.latest
}

// NewHealth makes a Health; parts may be nil.
func NewHealth(role Role, checks []Check, parts func() []Part, log *slog.Logger) *Health {
	h := &Health{role: role, parts: parts}
	for _, c := range checks {
		h.probes = append(h.probes, &probe{Check: c, log: log})
	}
	return h
}

type probe struct {
	Check
	log *slog.Logger

	mu      sync.Mutex
	asked   time.Time // when the latest answer arrived; zero: never
	latest  Dependency
	running chan struct{} // closed when the probe in flight is answered; nil if none
}

// ask returns the answer of this second, or waits for the probe in flight.
func (p *probe) ask(ctx context.Context) Dependency {
	p.mu.Lock()
	if !p.asked.IsZero() && time.Since(p.asked) < checkFresh {
		defer p.mu.Unlock()
		return p.latest
	}
	if p.running == nil {
		p.running = make(chan struct{})
		// The first caller may leave; others still wait.
		go p.question(context.WithoutCancel(ctx), p.running)
	}
	done := p.running
	p.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return Dependency{Error: "it has not answered yet", LatencyMS: float64(checkLimit.Milliseconds())}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

func (p *probe) question(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	begun := time.Now()
	err := p.Ping(ctx)
	d := Dependency{OK: err == nil, LatencyMS: float64(time.Since(begun).Microseconds()) / 1000}
	if err != nil {
		// Only the user-safe message: callers who may not read it do not see it.
		d.Error = sheaf.AsFailure(err, "").Message
		if ctx.Err() != nil {
			d.Error = "it did not answer within " + checkLimit.String()
		}
		p.log.WarnContext(ctx, "a dependency is unavailable", "dependency", p.Name, "error", err)
	}
	p.mu.Lock()
	p.latest, p.asked, p.running = d, time.Now(), nil
	p.mu.Unlock()
	close(done)
}

// Look probes all dependencies and derives the readiness of a role.
func (h *Health) Look(ctx context.Context, role Role) Readiness {
	ctx, cancel := context.WithTimeout(ctx, checkLimit+time.Second)
	defer cancel()
	out := Readiness{Status: Ready, Role: role, Capabilities: map[Capability]Ability{}, Dependencies: map[string]Dependency{}, Parts: []Part{}}
	if h.parts != nil {
		out.Parts = append(out.Parts, h.parts()...)
	}
	answers := make([]Dependency, len(h.probes))
	var wg sync.WaitGroup
	for i, p := range h.probes {
		wg.Go(func() { answers[i] = p.ask(ctx) })
	}
	wg.Wait()
	away := map[Capability][]string{}
	for i, p := range h.probes {
		d := answers[i]
		d.Needed = slices.Contains(vital[role], p.Name)
		out.Dependencies[p.Name] = d
		if d.OK {
			continue
		}
		if d.Needed {
			out.Status = Unready
		} else if out.Status == Ready {
			out.Status = Degraded
		}
		for _, c := range stops[p.Name] {
			away[c] = append(away[c], p.Name)
		}
	}
	if out.Dependencies["store"].OK {
		if out.UnservedPools = h.pools(ctx); len(out.UnservedPools) > 0 && out.Status == Ready {
			out.Status = Degraded
		}
	}
	for _, c := range capabilities {
		a := Ability{OK: len(away[c]) == 0}
		if !a.OK {
			a.Reason = "waits for: " + strings.Join(away[c], ", ")
		} else if c == CanProcess && len(out.UnservedPools) > 0 {
			a.Reason = unservedReason(out.UnservedPools)
		}
		out.Capabilities[c] = a
	}
	return out
}

// unservedReason says why tasks of pools wait, and what to do about it.
func unservedReason(pools []string) string {
	return fmt.Sprintf("tasks of flows wait for an executor that serves the pool %s; start one with executor.pools = %s", strings.Join(pools, ", "), strings.Join(pools, ","))
}

// Handler serves /readyz for the process's own role, or the one in ?role=. guarded
// hides error texts, because they may name hosts and paths that must not appear on
// a public address.
func (h *Health) Handler(guarded bool) http.Handler {
	return Guarded("GET /readyz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := h.Look(r.Context(), cmp.Or(Role(r.URL.Query().Get("role")), h.role))
		if guarded {
			for name, d := range out.Dependencies {
				if d.Error != "" {
					d.Error = "away; the private address of this process (server.debug_listen) says why"
				}
				out.Dependencies[name] = d
			}
			for i := range out.Parts {
				out.Parts[i].Error = ""
			}
		}
		status := http.StatusOK
		if out.Status == Unready {
			status = http.StatusServiceUnavailable
		}
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, status, out)
	}))
}
