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

// Lock is a lease that one token holds at a time, stored by an engine that all
// candidates reach. Its methods end when ctx does.
type Lock interface {
	// Acquire makes token the holder for ttl if the lock is free, has run out
	// or is token's already, and reports whether it is token's now.
	Acquire(ctx context.Context, token string, ttl time.Duration) (bool, error)
	// Renew makes the lease end ttl from now, if token still holds it.
	Renew(ctx context.Context, token string, ttl time.Duration) (bool, error)
	// Release frees the lock if token holds it.
	Release(ctx context.Context, token string) error
}

// Campaign is the Leader over a Lock. The holder relies on its lease for TTL −
// Margin from the start of the request that got it, by its own monotonic clock,
// so that its term ends before anybody else's can begin as long as the clocks
// run at about the same speed. Every term has a token of its own: a candidate
// that slept through its term cannot renew the next one.
type Campaign struct {
	Lock   Lock
	Name   string        // for the log
	TTL    time.Duration // 0 means 15 s
	Every  time.Duration // between attempts to win or to renew; 0 means TTL / 3
	Jitter time.Duration // added to Every at random; 0 means Every / 5
	Margin time.Duration // by which a term ends before the lease; 0 means TTL / 15
	Log    *slog.Logger  // nil means slog.Default
}

var (
	errTermLost    = errors.New("the lease went to somebody else")
	errTermExpired = errors.New("the lease could not be renewed in time")
)

// Run implements Leader. It returns nil when ctx ends, after lead has returned
// and the lease was given up. An engine that does not answer ends the term when
// the lease does, not the campaign.
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

// term leads until the lease is lost, its validity expires, lead returns
// or ctx ends; it returns when lead has.
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
	err := c.Lock.Release(release, token) // or else it runs out
	c.Log.Info("not leading any more", "cause", context.Cause(ctx), "release_error", err)
}

// pause sleeps for d and some jitter, and reports whether ctx still lives.
func (c *Campaign) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d + rand.N(max(c.Jitter, 1)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Always is the Leader of a process that is the only one.
type Always struct{}

// Run leads until ctx ends; should lead return before that, it is called again
// after a second.
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
