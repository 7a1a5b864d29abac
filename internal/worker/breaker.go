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

// Limits of a breaker.
const (
	tripAfter = 3               // consecutive calls that found the dependency down; its client retried each several times
	minOpen   = 2 * time.Second // first rest; doubles while trial calls fail
	maxOpen   = 8 * time.Second // cheap at one call per rest, and a recovered dependency is noticed soon
	fullSpeed = 16              // concurrent calls from which a recovering dependency counts as healthy
)

// Breaker guards one dependency. While the dependency is down it rejects calls
// without making them. After a rest it lets one through, and then twice as many
// concurrent calls with each success, so that a recovering dependency is not hit by
// every waiting caller at once.
type Breaker struct {
	name string
	log  *slog.Logger

	mu       sync.Mutex
	failures int // consecutive
	until    time.Time
	rest     time.Duration // 0: closed
	limit    int           // concurrent calls while it recovers
	inflight int
	refusal  error // the error with which the dependency refuses this process; nil when it is merely down

	probe func(ctx context.Context) error // nil for none

	LongestRest time.Duration // 8 s if 0; set before the first call
}

// NewBreaker returns a closed breaker for the named dependency. probe makes a
// harmless request to the dependency; nil if there is none.
func NewBreaker(name string, log *slog.Logger, probe func(ctx context.Context) error) *Breaker {
	return &Breaker{name: name, log: log, probe: probe}
}

// broken says that a call was not made, or that it was the failed call that opened
// the breaker. The task is not at fault: it waits without losing an attempt.
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
		// Other requests are answered, so it is about this request, such as a text that
		// a firewall in front of the server rejects. That costs the task attempts, and
		// no one else anything.
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

// leave records a call's outcome. Any answer shows that the dependency is up; a call
// whose caller went away shows nothing.
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
			// A call that was in flight when the breaker opened.
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

// open starts a rest; the caller holds mu.
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

// BreakerState is how a breaker treats calls.
type BreakerState int

const (
	BreakerClosed   BreakerState = iota // makes them
	BreakerHalfOpen                     // makes a few, to test whether the dependency is back
	BreakerOpen                         // rejects them
)

// State returns how the breaker treats calls now.
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

// TurnBack returns the error of a call that would certainly be rejected now, or nil:
// work that ends in such a call need not start.
func (b *Breaker) TurnBack() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait := time.Until(b.until); b.rest > 0 && wait > 0 {
		return &broken{dependency: b.name, after: spread(wait), cause: b.refusal}
	}
	return nil
}

// IsOpen reports whether calls are rejected now.
func (b *Breaker) IsOpen() bool { return b.State() == BreakerOpen }

// spread keeps waiting tasks from retrying at the same moment.
func spread(d time.Duration) time.Duration {
	return max(d, 100*time.Millisecond) + time.Duration(rand.Int64N(int64(time.Second)))
}
