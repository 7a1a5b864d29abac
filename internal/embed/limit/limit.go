// Package limit governs an embedding provider: it finds out how many concurrent
// calls the provider accepts, and makes all callers wait when it asks one of them
// to. It wraps an embed.Embedder.
package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	// After a query, one place is kept free this long for the next: people wait for
	// queries, while passages take all places there are.
	queryTime = time.Minute
	// queriesInRow is how many queries may go before a passage that waits.
	queriesInRow = 3
)

// Embedder is a governed embedder. It is safe for concurrent use.
type Embedder struct {
	inner  embed.Embedder
	config Config

	mu          sync.Mutex
	queries     []*caller // that wait, in the order they came
	passages    []*caller // and windows
	queried     time.Time // when the latest query came
	row         int       // queries since a passage had its turn
	later       *time.Timer
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
	return &Embedder{inner: e, config: c, allowed: float64(min(2, c.Max)), ceiling: float64(c.Max) + 1}
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
	if err := l.acquire(ctx, purpose == embed.Query); err != nil {
		return nil, err
	}
	began := time.Now()
	var err error
	defer func() { l.release(began, err) }()
	var vectors [][]float32
	vectors, err = l.inner.Embed(ctx, texts, purpose)
	return vectors, err
}

// caller waits for its turn: nil, or why it gets none.
type caller struct{ turn chan error }

func (l *Embedder) acquire(ctx context.Context, query bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &caller{make(chan error, 1)}
	l.mu.Lock()
	if query {
		l.queries, l.queried = append(l.queries, c), time.Now()
	} else {
		l.passages = append(l.passages, c)
	}
	l.grant()
	l.mu.Unlock()
	select {
	case err := <-c.turn:
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	waits := func(x *caller) bool { return x == c }
	before := len(l.queries) + len(l.passages)
	l.queries, l.passages = slices.DeleteFunc(l.queries, waits), slices.DeleteFunc(l.passages, waits)
	if len(l.queries)+len(l.passages) == before && <-c.turn == nil { // its turn came meanwhile
		l.inflight--
		l.grant()
	}
	return ctx.Err()
}

// grant gives the free places to those that wait, or refuses them all during a long
// pause. The caller holds mu.
func (l *Embedder) grant() {
	now := time.Now()
	if wait := l.pausedUntil.Sub(now); wait > l.config.MaxWait {
		for _, c := range slices.Concat(l.queries, l.passages) {
			c.turn <- fmt.Errorf("%w (%w)", l.cause, &sheaf.RateLimited{After: wait})
		}
		l.queries, l.passages = nil, nil
		return
	} else if wait > 0 {
		if l.later != nil {
			l.later.Stop()
		}
		l.later = time.AfterFunc(wait, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.grant()
		})
		return
	}
	for n := max(1, int(l.allowed)); l.inflight < n; l.inflight++ {
		kept := 0
		if n > 1 && now.Sub(l.queried) < queryTime {
			kept = 1
		}
		switch {
		case len(l.queries) > 0 && (len(l.passages) == 0 || l.row < queriesInRow):
			l.queries[0].turn <- nil
			l.queries = l.queries[1:]
			l.row++
		case len(l.passages) > 0 && (l.inflight < n-kept || len(l.queries) > 0):
			l.passages[0].turn <- nil
			l.passages = l.passages[1:]
			l.row = 0
		default:
			return
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
	l.grant()
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
