package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"sheaf"
)

// Bounds of a breaker.
const (
	tripAfter = 3               // calls in a row that found the dependency away; each has been tried several times by its client
	minOpen   = 2 * time.Second // first rest; doubles while a trial fails
	maxOpen   = 8 * time.Second // one call each so often costs nobody anything, and who comes back is not kept waiting
	fullSpeed = 16              // calls at once from which a recovering dependency counts as well
)

// Breaker stands in front of one dependency. While the dependency is away it
// turns calls back without making them; after a rest it lets one through, and
// then twice as many at once with each success, so that a dependency that
// comes back is not met by everybody who waited for it.
type Breaker struct {
	name string
	log  *slog.Logger

	mu       sync.Mutex
	failures int // in a row
	until    time.Time
	rest     time.Duration // 0: closed
	limit    int           // calls at once while it recovers
	inflight int
	refusal  error // what the dependency refuses this process with; nil when it is merely away

	probe func(ctx context.Context) error // nil for none

	LongestRest time.Duration // 8 s where it is 0; set before the first call
}

// NewBreaker is a closed breaker before the dependency of that name. probe asks
// the dependency for something harmless; nil where nothing is.
func NewBreaker(name string, log *slog.Logger, probe func(ctx context.Context) error) *Breaker {
	return &Breaker{name: name, log: log, probe: probe}
}

// broken says that a call was not made, or that the call failed which opened
// the breaker. The task did nothing wrong: it waits without losing an attempt.
type broken struct {
	dependency string
	after      time.Duration
	cause      error
}

func (b *broken) Error() string {
	if b.cause != nil {
		return b.cause.Error()
	}
	return fmt.Sprintf("the %s does not answer; the task waits until it does", b.dependency)
}

func (b *broken) Unwrap() []error { return []error{sheaf.ErrUnavailable, b.cause} }

// Do makes a call through the breaker.
func (b *Breaker) Do(ctx context.Context, call func() error) error {
	if err := b.enter(); err != nil {
		return err
	}
	err := call()
	if errors.Is(err, sheaf.ErrMisconfigured) && ctx.Err() == nil && b.probe != nil && b.probe(ctx) == nil {
		// All else is answered: it is about what was asked, such as a text that a
		// firewall before the server dislikes. That costs the task attempts, and
		// nobody else anything.
		err = sheaf.AsFailure(err, "")
	}
	return b.leave(ctx, err)
}

func (b *Breaker) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rest > 0 {
		if wait := time.Until(b.until); wait > 0 {
			return &broken{dependency: b.name, after: spread(wait), cause: b.refusal}
		}
		if b.inflight >= b.limit {
			return &broken{dependency: b.name, after: spread(time.Second), cause: b.refusal}
		}
	}
	b.inflight++
	return nil
}

// leave notes how a call went. An answer of any kind shows that the dependency
// is there; a call whose caller went away shows nothing.
func (b *Breaker) leave(ctx context.Context, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inflight--
	limited, isLimited := errors.AsType[*sheaf.RateLimited](err)
	switch {
	case ctx.Err() != nil:
		return err
	case isLimited:
		b.open(max(limited.After, time.Second), err)
		return err
	case errors.Is(err, sheaf.ErrMisconfigured), errors.Is(err, sheaf.ErrUnavailable), errors.Is(err, sheaf.ErrReadOnly):
		b.failures++
		switch {
		case b.rest > 0 && time.Now().Before(b.until):
			// One that was under way when it opened.
		case b.rest > 0:
			b.open(min(2*b.rest, cmp.Or(b.LongestRest, maxOpen)), err)
		// guard: breaker: what is away is left alone
		case b.failures >= tripAfter, errors.Is(err, sheaf.ErrMisconfigured): // the next call would be refused too
			b.open(minOpen, err)
		default:
			return err
		}
		return &broken{dependency: b.name, after: spread(time.Until(b.until)), cause: err}
	}
	b.failures, b.refusal = 0, nil
	if b.rest > 0 && !time.Now().Before(b.until) {
		if b.limit *= 2; b.limit >= fullSpeed {
			b.rest = 0
			b.log.Info("a dependency is back", "dependency", b.name)
		}
	}
	return err
}

// open begins a rest; the caller holds mu.
func (b *Breaker) open(rest time.Duration, cause error) {
	if b.rest == 0 {
		b.log.Warn("dependency does not respond; calls to it are held back", "dependency", b.name, "rest", rest, "error", cause)
	}
	b.refusal = nil
	if errors.Is(cause, sheaf.ErrMisconfigured) {
		b.refusal = cause
	}
	b.rest, b.until, b.limit = rest, time.Now().Add(rest), 1
}

// BreakerState is what a breaker does with calls.
type BreakerState int

const (
	BreakerClosed   BreakerState = iota // makes them
	BreakerHalfOpen                     // makes a few, to see whether the dependency is back
	BreakerOpen                         // turns them back
)

// State is what the breaker does with calls now.
func (b *Breaker) State() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.rest == 0:
		return BreakerClosed
	case time.Now().Before(b.until):
		return BreakerOpen
	}
	return BreakerHalfOpen
}

// TurnBack is what a call would be met with that is certain to be turned back
// now, nil for one that would be made: work that ends in such a call need not begin.
func (b *Breaker) TurnBack() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait := time.Until(b.until); b.rest > 0 && wait > 0 {
		return &broken{dependency: b.name, after: spread(wait), cause: b.refusal}
	}
	return nil
}

// IsOpen reports whether calls are turned back now.
func (b *Breaker) IsOpen() bool { return b.State() == BreakerOpen }

// spread keeps those who wait from coming back in one moment.
func spread(d time.Duration) time.Duration {
	return max(d, 100*time.Millisecond) + time.Duration(rand.Int64N(int64(time.Second)))
}
