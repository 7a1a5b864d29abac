// Package batching merges calls that come together. Between the workers of an
// executor and what costs much however little it carries (a transaction of the
// store, a round trip to the queue), it lets those who arrive while one run is
// under way be served together by the next. A call that finds nothing under way
// is run at once, alone, unless it says that it can wait for company. Where runs
// may overlap, the next begins before the last has ended once it is worth it.
package batching

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Group runs calls in batches. It is safe for concurrent use.
type Group[T, R any] struct {
	run     func(ctx context.Context, batch []T) []R
	most    int
	timeout time.Duration
	lines   int // runs at once
	worth   int // calls that a run beside another must have

	mu      sync.Mutex
	waiting []*call[T, R]
	running int
}

type call[T, R any] struct {
	ask    T
	wait   time.Duration // for company; 0 for none, or once it is over
	answer R
	done   chan struct{} // closed once answer is set
}

// New makes a group that runs one batch at a time. run gets 1 to most calls in the order they came and must
// answer as many, in their order. It has timeout for a batch, and a context
// that is nobody's own: that one caller gives up must not fail the others.
func New[T, R any](most int, timeout time.Duration, run func(ctx context.Context, batch []T) []R) *Group[T, R] {
	return &Group[T, R]{run: run, most: most, timeout: timeout, lines: 1}
}

// Overlap lets up to lines runs be under way at once, each but the first with
// worth calls at least, so that the batches stay large. It is set before the
// first call.
func (g *Group[T, R]) Overlap(lines, worth int) { g.lines, g.worth = lines, worth }

// begins reports whether there is reason for one more run now; g.mu is held.
func (g *Group[T, R]) begins() bool {
	if g.running > 0 {
		return g.running < g.lines && len(g.waiting) >= g.worth
	}
	return len(g.waiting) > 1 || len(g.waiting) == 1 && g.waiting[0].wait == 0
}

// rest gives who waits alone while nothing is under way the time it has; g.mu
// is held.
func (g *Group[T, R]) rest() {
	if g.running > 0 || len(g.waiting) == 0 {
		return
	}
	c := g.waiting[0]
	time.AfterFunc(c.wait, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.running == 0 && len(g.waiting) == 1 && g.waiting[0] == c {
			c.wait = 0
			g.running++
			go g.drain()
		}
	})
}

// Do is one call. The error is ctx's, when it ends before the batch does: the
// call may then still happen, unless it ended before it was Do's turn.
func (g *Group[T, R]) Do(ctx context.Context, ask T) (R, error) { return g.DoWithin(ctx, ask, 0) }

// DoWithin is Do for a call that can wait: where nothing is under way it is run
// with the next that comes, and alone only once it has waited so long.
func (g *Group[T, R]) DoWithin(ctx context.Context, ask T, wait time.Duration) (R, error) {
	c := &call[T, R]{ask: ask, wait: wait, done: make(chan struct{})}
	if err := ctx.Err(); err != nil {
		return c.answer, err
	}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	begin := g.begins()
	if begin {
		g.running++
	} else {
		g.rest()
	}
	g.mu.Unlock()
	if begin {
		go g.drain()
	}
	select {
	case <-c.done:
		return c.answer, nil
	case <-ctx.Done():
		g.withdraw(c)
		var none R
		return none, ctx.Err()
	}
}

// withdraw takes a call back that has not been begun.
func (g *Group[T, R]) withdraw(c *call[T, R]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == c {
			g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
			return
		}
	}
}

// drain runs batches until there is no reason for another.
func (g *Group[T, R]) drain() {
	for {
		// Whoever is about to call gets here first: goroutines that were started
		// or woken together call together.
		runtime.Gosched()
		g.mu.Lock()
		g.running--
		if !g.begins() {
			g.rest()
			g.mu.Unlock()
			return
		}
		g.running++
		n := min(len(g.waiting), g.most)
		calls := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.mu.Unlock()

		batch := make([]T, n)
		for i, c := range calls {
			batch[i] = c.ask
		}
		ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
		answers := g.run(ctx, batch)
		cancel()
		for i, c := range calls {
			c.answer = answers[i]
			close(c.done)
		}
	}
}
