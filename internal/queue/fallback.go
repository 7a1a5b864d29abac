package queue

import (
	"context"
	"errors"
	"time"
)

// Fallback is a Lock over two engines: Second decides while First does not respond,
// so that loops that need only Second continue. Candidates that see First
// differently may both hold it, which only doubles the leaders' work. A holder by
// Second moves to First as soon as it responds.
type Fallback struct{ First, Second Lock }

// ask gives First a tenth of the lease, so that a hung engine does not cost a term.
func (f Fallback) ask(ctx context.Context, ttl time.Duration, call func(context.Context, string, time.Duration) (bool, error), token string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ttl/10)
	defer cancel()
	return call(ctx, token, ttl)
}

// Acquire implements Lock.
func (f Fallback) Acquire(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	if won, err := f.ask(ctx, ttl, f.First.Acquire, token); err == nil {
		return won, nil
	}
	return f.Second.Acquire(ctx, token, ttl)
}

// Renew implements Lock.
func (f Fallback) Renew(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	held, err := f.ask(ctx, ttl, f.First.Renew, token)
	switch {
	case err != nil:
		return f.Second.Acquire(ctx, token, ttl)
	case held:
		return true, nil
	}
	// Another candidate has First, or this one holds only Second.
	if held, err = f.Second.Renew(ctx, token, ttl); err != nil || !held {
		return false, err
	}
	held, err = f.ask(ctx, ttl, f.First.Acquire, token)
	if err != nil {
		return true, nil // it is down again
	}
	return held, f.Second.Release(ctx, token)
}

// Release implements Lock.
func (f Fallback) Release(ctx context.Context, token string) error {
	return errors.Join(f.First.Release(ctx, token), f.Second.Release(ctx, token))
}
