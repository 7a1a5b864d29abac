// Package limit governs an embedding provider: it finds out how many concurrent
// calls the provider accepts, and makes all callers wait when it asks one of them
// to. It wraps an embed.Embedder.
package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/embed"
)

// Config bounds the governor. Zero values have the meaning given for each field.
type Config struct {
	Max int // concurrent calls; 0 means 8
	// MaxWait is how long a call may wait for a pause to end before it fails as
	// rate limited, so that its task yields its slot to another; 0 means 5 s.
	MaxWait time.Duration
	// Trip is the number of consecutive outages after which callers are rejected
	// for a while without a call; 0 means 5.
	Trip int
}

const (
	minPause = time.Second // first pause if the provider specifies none
	maxPause = time.Minute // longest such pause

	// probe is the fraction of a call that a round adds near the last ceiling: each
	// attempt above it costs all callers a pause.
	probe = 0.02
)

// Embedder is a governed embedder. It is safe for concurrent use.
type Embedder struct {
	inner  embed.Embedder
	config Config

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced when a caller may proceed
	inflight    int
	allowed     float64 // concurrent calls: grows by one per round, halves when told to slow down
	ceiling     float64 // value when last told so: from there growth only probes
	lowered     time.Time
	pausedUntil time.Time
	cause       error // of the pause
	pause       time.Duration
	outages     int // consecutive
}

var _ embed.Embedder = (*Embedder)(nil)

// Wrap governs e.
func Wrap(e embed.Embedder, c Config) *Embedder {
	if c.Max <= 0 {
		c.Max = 8
	}
	if c.MaxWait <= 0 {
		c.MaxWait = 5 * time.Second
	}
	if c.Trip <= 0 {
		c.Trip = 5
	}
	return &Embedder{inner: e, config: c, changed: make(chan struct{}), allowed: float64(min(2, c.Max)), ceiling: float64(c.Max) + 1}
}

// Model describes the vectors.
func (l *Embedder) Model() embed.Model { return l.inner.Model() }

// Ping pings the provider, even during a pause.
func (l *Embedder) Ping(ctx context.Context) error { return l.inner.Ping(ctx) }

// Embed waits for its turn, and fails as rate limited or unavailable without a call
// if the provider's pause is longer than MaxWait.
func (l *Embedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, ctx.Err()
	}
	if err := l.acquire(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	var err error
	defer func() { l.release(began, err) }()
	var vectors [][]float32
	vectors, err = l.inner.Embed(ctx, texts, purpose)
	return vectors, err
}

func (l *Embedder) acquire(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.mu.Lock()
		now := time.Now()
		wait := l.pausedUntil.Sub(now)
		if wait > l.config.MaxWait {
			err := fmt.Errorf("%w (%w)", l.cause, &sheaf.RateLimited{After: wait})
			l.mu.Unlock()
			return err
		}
		if wait <= 0 && l.inflight < max(1, int(l.allowed)) {
			l.inflight++
			l.mu.Unlock()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()

		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer:
		}
	}
}

func (l *Embedder) release(began time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight--
	now := time.Now()
	limited, isLimited := errors.AsType[*sheaf.RateLimited](err)
	switch {
	case err == nil:
		step := 1 / l.allowed
		if l.allowed+1 > l.ceiling {
			step *= probe
		}
		l.allowed = min(float64(l.config.Max), l.allowed+step)
		l.pause, l.outages = 0, 0
	case isLimited:
		l.slowDown(began, now)
		l.stop(now, limited.After, sheaf.FailRetryable(sheaf.CategoryCapacity, "embed_rate_limited", "the embedding provider asked all callers to wait"))
	case errors.Is(err, sheaf.ErrUnavailable):
		l.slowDown(began, now)
		if l.outages++; l.outages >= l.config.Trip {
			l.stop(now, 0, fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, "embed_unavailable", "the embedding server failed %d times in a row; it is asked again soon: check that it runs", l.outages), sheaf.ErrUnavailable))
		}
	default: // any response, even a rejection, shows that the provider is up
		l.outages = 0
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// slowDown halves the concurrency, once for all calls that were in flight when the
// provider had enough.
func (l *Embedder) slowDown(began, now time.Time) {
	if began.Before(l.lowered) {
		return
	}
	l.ceiling = l.allowed
	l.allowed, l.lowered = max(1, l.allowed/2), now
}

// stop blocks new calls for after, or for a growing pause if it is 0.
func (l *Embedder) stop(now time.Time, after time.Duration, cause error) {
	if after <= 0 {
		if now.Before(l.pausedUntil) {
			return // one of several calls that failed together
		}
		l.pause = min(max(minPause, 2*l.pause), maxPause)
		after = l.pause
	}
	if until := now.Add(after); until.After(l.pausedUntil) {
		l.pausedUntil, l.cause = until, cause
	}
}
