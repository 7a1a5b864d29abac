package queue

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"sheaf"
)

var (
	_ Leader = (*Campaign)(nil)
	_ Leader = Always{}
)

// Lock is a lease that one token holds at a time, stored in an engine that all
// candidates can reach. Its methods return when ctx is done.
type Lock interface {
	// Acquire makes token the holder for ttl if the lock is free, has expired or is
	// already token's, and reports whether token holds it now.
	Acquire(ctx context.Context, token string, ttl time.Duration) (bool, error)
	// Renew extends the lease to ttl from now, if token still holds it.
	Renew(ctx context.Context, token string, ttl time.Duration) (bool, error)
	// Release frees the lock if token holds it.
	Release(ctx context.Context, token string) error
}

// Campaign is the Leader over a Lock. The holder relies on its lease for TTL −
// Margin from the start of the request that obtained it, by its own monotonic clock,
// so that its term ends before another can begin as long as clocks run at about the
// same speed. Every term has its own token: a candidate that slept through its term
// cannot renew the next one.
type Campaign struct {
	Lock   Lock
	Name   string        // for the log
	TTL    time.Duration // 0 means 15 s
	Every  time.Duration // between attempts to acquire or renew; 0 means TTL / 3
	Jitter time.Duration // maximum random addition to Every; 0 means Every / 5
	Margin time.Duration // by which a term ends before the lease; 0 means TTL / 15
	Log    *slog.Logger  // nil means slog.Default
}

var (
	errTermLost    = errors.New("the lease went to somebody else")
	errTermExpired = errors.New("the lease could not be renewed in time")
)

// Run implements Leader. It returns nil when ctx is done, after lead has returned
// and the lease was released. An unresponsive engine ends the term when the lease
// expires, but not the campaign.
func (c *Campaign) Run(ctx context.Context, lead func(ctx context.Context)) error {
	p := *c
	if p.TTL <= 0 {
		p.TTL = 15 * time.Second
	}
	if p.Every <= 0 {
		p.Every = p.TTL / 3
	}
	if p.Jitter <= 0 {
		p.Jitter = p.Every / 5
	}
	if p.Margin <= 0 {
		p.Margin = p.TTL / 15
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	p.Log = p.Log.With("lease", p.Name)

	token, failing := sheaf.NewID(), false
	for ctx.Err() == nil {
		validUntil := time.Now().Add(p.TTL - p.Margin)
		attempt, cancel := context.WithTimeout(ctx, p.Every)
		won, err := p.Lock.Acquire(attempt, token, p.TTL)
		cancel()
		if err != nil && ctx.Err() == nil && !failing {
			p.Log.Warn("cannot campaign for leadership; retrying", "error", err)
		}
		failing = err != nil
		if won {
			p.term(ctx, token, validUntil, lead)
			token = sheaf.NewID()
		}
		p.pause(ctx, p.Every)
	}
	return nil
}

// term leads until the lease is lost, its validity expires, lead returns or ctx is
// done; it returns when lead has.
func (c *Campaign) term(ctx context.Context, token string, validUntil time.Time, lead func(ctx context.Context)) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	expiry := time.AfterFunc(time.Until(validUntil), func() { end(errTermExpired) })
	defer expiry.Stop()
	c.Log.Info("leading")

	returned := make(chan struct{})
	go func() {
		defer close(returned)
		defer end(nil)
		lead(ctx)
	}()

	wait := c.Every
	for c.pause(ctx, wait) {
		began := time.Now()
		// A hung engine must leave time for another attempt before validUntil.
		attempt, cancel := context.WithTimeout(ctx, min(c.Every, time.Until(validUntil)))
		held, err := c.Lock.Renew(attempt, token, c.TTL)
		cancel()
		switch {
		case err != nil:
			wait = c.Every / 5 // a few more attempts fit in before validUntil
		case !held:
			end(errTermLost)
		default:
			wait, validUntil = c.Every, began.Add(c.TTL-c.Margin)
			expiry.Reset(time.Until(validUntil))
		}
	}
	<-returned

	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Every)
	defer cancel()
	err := c.Lock.Release(release, token) // otherwise it expires
	c.Log.Info("not leading any more", "cause", context.Cause(ctx), "release_error", err)
}

// pause sleeps for d plus jitter, and reports whether ctx is still live.
func (c *Campaign) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d + rand.N(max(c.Jitter, 1)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Always is the Leader of the only process.
type Always struct{}

// Run leads until ctx is done; if lead returns earlier, it is called again after a
// second.
func (Always) Run(ctx context.Context, lead func(ctx context.Context)) error {
	for ctx.Err() == nil {
		lead(ctx)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}
