package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// minProgress is the number of bytes a sender must deliver within Config.BodyIdle.
// Anything less is an idle connection; even a slow line manages it in a second.
const minProgress = 1 << 10

// progressBody times out a stalled body: every minProgress bytes extend the
// deadline. A sender that is slow but makes progress is never cut off.
type progressBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	idle    time.Duration
	until   time.Time
	missing int // bytes until the deadline is extended
}

func (b *progressBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(b.until) // other code sets it too; only test writers do not support it
	n, err := b.ReadCloser.Read(p)
	if b.missing -= n; b.missing <= 0 {
		b.extend()
	}
	switch {
	case err == io.EOF:
		_ = b.rc.SetReadDeadline(time.Time{}) // the server is now waiting for a disconnect or the next request
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w: %w", errStalled, err)
	}
	return n, err
}

func (b *progressBody) extend() {
	b.until, b.missing = time.Now().Add(b.idle), minProgress
}

// progressWriter times out a response that the client does not read: each part has
// idle to reach the client, however long the whole response takes.
type progressWriter struct {
	http.ResponseWriter
	rc   *http.ResponseController
	idle time.Duration
}

// maxUnsent is the number of bytes that must reach the client or its socket buffers
// within progressWriter.idle.
const maxUnsent = 32 << 10

func (w *progressWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *progressWriter) WriteHeader(n int) {
	w.extend()
	w.ResponseWriter.WriteHeader(n)
}

func (w *progressWriter) Write(p []byte) (n int, err error) {
	for {
		w.extend()
		part, err := w.ResponseWriter.Write(p[n:min(len(p), n+maxUnsent)])
		if n += part; err != nil || n == len(p) {
			return n, err
		}
	}
}

func (w *progressWriter) extend() { _ = w.rc.SetWriteDeadline(time.Now().Add(w.idle)) }

// errStalled marks a body that stopped arriving.
var errStalled = errors.New("the body stopped coming")

// stalled is the response to errStalled.
func (s *Server) stalled() *Problem {
	p := newProblem(http.StatusRequestTimeout, "body_stalled", fmt.Sprintf("less than %d bytes of the body came within %s; send it again, or a large file as a resumable upload (POST /v1/datasets/{ds}/uploads), which resumes", minProgress, s.cfg.BodyIdle))
	p.Retryable = true
	return p
}

// brokenOff is the response to a body that ended early, for clients that are still
// listening.
func brokenOff() *Problem {
	p := newProblem(499, "broken_off", "the file broke off on its way; send it again")
	p.Retryable = true
	return p
}

// stallWatch remembers that a body stalled or ended early, even if the error is
// swallowed on the way up.
type stallWatch struct {
	io.ReadCloser
	stalled, brokenOff bool
}

func (b *stallWatch) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.stalled = b.stalled || errors.Is(err, errStalled)
	b.brokenOff = b.brokenOff || errors.Is(err, io.ErrUnexpectedEOF)
	return n, err
}

// bounded sets a deadline for every request body to arrive, whether or not a
// handler reads it (the server itself drains a little of an unread body), and for
// every response to be read.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Time{}) // the deadline of the connection's previous response may have passed
		taken := &progressWriter{w, rc, s.cfg.BodyIdle}
		if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
			b := &progressBody{ReadCloser: r.Body, rc: rc, idle: s.cfg.BodyIdle}
			b.extend()
			_ = b.rc.SetReadDeadline(b.until)
			r.Body = b
			taken.idle += b.idle // net/http drains an unread body before it sends the response
		}
		next.ServeHTTP(taken, r)
	})
}

// gate limits the concurrent operations of each tenant in this process.
type gate struct {
	most int
	mu   sync.Mutex
	now  map[string]int
}

func newGate(most int) *gate { return &gate{most: most, now: map[string]int{}} }

// enter takes a slot. It returns false if the limit is reached.
func (g *gate) enter(tenant string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now[tenant] >= g.most {
		return false
	}
	g.now[tenant]++
	return true
}

func (g *gate) leave(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now[tenant]--; g.now[tenant] == 0 {
		delete(g.now, tenant)
	}
}

// turns limits concurrent operations per tenant like gate, except that others wait
// for their turn.
type turns struct {
	most int64
	mu   sync.Mutex
	of   map[string]*tenantTurns
}

type tenantTurns struct {
	*semaphore.Weighted
	users int // that have a turn or wait for one
}

func newTurns(most int) *turns { return &turns{most: int64(most), of: map[string]*tenantTurns{}} }

// enter waits for a turn, which leave ends. The error is ctx's.
func (t *turns) enter(ctx context.Context, tenant string) (leave func(), err error) {
	t.mu.Lock()
	own := t.of[tenant]
	if own == nil {
		own = &tenantTurns{Weighted: semaphore.NewWeighted(t.most)}
		t.of[tenant] = own
	}
	own.users++
	t.mu.Unlock()
	gone := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.of, tenant)
		}
	}
	if err := own.Acquire(ctx, 1); err != nil {
		gone()
		return nil, err
	}
	return func() {
		own.Release(1)
		gone()
	}, nil
}

func tooManyUploads(most int) *Problem {
	p := newProblem(http.StatusTooManyRequests, "too_many_uploads", fmt.Sprintf("%d uploads of this tenant are under way here, which is the limit; wait for one to end, or send many files in one request", most))
	p.Retryable = true
	return p
}

func tooManyStreams(most int) *Problem {
	p := newProblem(http.StatusTooManyRequests, "too_many_streams", fmt.Sprintf("%d event streams of this tenant are open here, which is the limit; close one, or follow a whole dataset with one stream", most))
	p.Retryable = true
	return p
}

// guardMetrics admits the metrics token, and admin keys, because metrics name all
// tenants.
func (s *Server) guardMetrics(next http.Handler) http.Handler {
	if !s.cfg.Auth && s.cfg.MetricsToken == "" {
		return next // only this host can connect
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := bearer(r)
		if tokenMatches(secret, s.cfg.MetricsToken) {
			next.ServeHTTP(w, r)
			return
		}
		if secret != "" && s.cfg.Auth {
			if key, err := s.cfg.Catalog.KeyByHash(r.Context(), HashKey(secret)); err == nil && allows(key.Scopes, scopeAdmin) {
				next.ServeHTTP(w, r)
				return
			}
		}
		s.writeProblem(w, r, newProblem(http.StatusUnauthorized, "", "metrics name all tenants: send the token of server.metrics_token or an admin key as `Authorization: Bearer …`, or scrape the private address (server.debug_listen)"))
	})
}

// TokenOnly admits requests that send token, or all requests if token is "".
func TokenOnly(next http.Handler, token string) http.Handler {
	if token == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !tokenMatches(bearer(r), token) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send the token of server.metrics_token as Authorization: Bearer …", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// FromThisHost rejects callers from other hosts.
func FromThisHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			http.Error(w, "profiles are for callers on this host; forward the port, such as with kubectl port-forward", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
