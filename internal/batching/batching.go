// Package batching combines concurrent calls into one. It sits between an executor's
// tasks and operations with a high fixed cost: a transaction of the store, a round
// trip to the queue, a request to an embedding provider.
package batching

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Config bounds a group's batches.
type Config[T any] struct {
	Max         int           // maximum calls per batch
	Timeout     time.Duration // per batch; 0 for none
	Concurrency int           // concurrent batches; 0 means 1
	MinBatch    int           // minimum calls of a batch that runs concurrently with another

	// WeightFunc is the weight of a call, which counts against MaxWeight. nil: only Max
	// bounds a batch.
	WeightFunc func(T) int
	MaxWeight  int // of a batch with more than one call

	// Fill makes calls wait until a batch is full or the batch timeout of one of them
	// expires, even if no batch is running.
	Fill bool
}

// Group runs calls in batches. Unless it fills them, a call that finds no batch
// running runs immediately, alone, and calls that arrive during a batch form the
// next one. It is safe for concurrent use.
type Group[T, R any] struct {
	cfg Config[T]
	run func(ctx context.Context, batch []T) []R

	mu      sync.Mutex
	waiting []*call[T, R]
	running int
}

type call[T, R any] struct {
	ask    T
	wait   time.Duration // batch timeout; 0 for none, or once it has expired
	answer R
	done   chan struct{} // closed once answer is set
	gone   bool          // its caller has given up; guarded by Group.mu
}

// New makes a group. run gets calls in order of arrival and must return one answer
// per call, in that order. Its context has the batch timeout but is not any
// caller's: one caller giving up must not fail the others.
func New[T, R any](cfg Config[T], run func(ctx context.Context, batch []T) []R) *Group[T, R] {
	cfg.Concurrency = max(cfg.Concurrency, 1)
	return &Group[T, R]{cfg: cfg, run: run}
}

// begin starts a batch if one is due; g.mu is held.
func (g *Group[T, R]) begin() {
	if g.due() {
		g.running++
		go g.drain()
	}
}

// due reports whether another batch should start now; g.mu is held.
func (g *Group[T, R]) due() bool {
	switch {
	case len(g.waiting) == 0 || g.running >= g.cfg.Concurrency:
		return false
	case g.cfg.Fill:
		n, full := g.next()
		return full || n > 0 && g.waiting[0].wait == 0
	case g.running > 0:
		return len(g.waiting) >= g.cfg.MinBatch
	default:
		return len(g.waiting) > 1 || g.waiting[0].wait == 0
	}
}

// next returns the size of the next batch, and whether another call would not fit;
// g.mu is held.
func (g *Group[T, R]) next() (n int, full bool) {
	most := min(len(g.waiting), g.cfg.Max)
	if g.cfg.WeightFunc == nil {
		return most, most == g.cfg.Max
	}
	weight := 0
	for n < most {
		weight += g.cfg.WeightFunc(g.waiting[n].ask)
		if n > 0 && weight > g.cfg.MaxWeight {
			return n, true
		}
		n++
	}
	return n, n == g.cfg.Max || weight >= g.cfg.MaxWeight
}

// expire starts a batch once the batch timeout of calls has expired. A group that
// fills batches starts it at the call; others start it when the call is the only one
// waiting and no batch is running. g.mu is held.
func (g *Group[T, R]) expire(calls []*call[T, R]) {
	wait := calls[0].wait
	if wait == 0 {
		return
	}
	time.AfterFunc(wait, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.cfg.Fill && (g.running > 0 || len(g.waiting) != 1 || g.waiting[0] != calls[0]) {
			return
		}
		for _, c := range calls {
			c.wait = 0
		}
		g.begin()
	})
}

// alone starts the timeout of the first call if it waits while no batch is running;
// g.mu is held.
func (g *Group[T, R]) alone() {
	if !g.cfg.Fill && g.running == 0 && len(g.waiting) > 0 {
		g.expire(g.waiting[:1:1])
	}
}

// Do makes one call. The error is ctx's, if it is done before the batch is: the call
// may still happen unless its batch had not started.
func (g *Group[T, R]) Do(ctx context.Context, ask T) (R, error) { return g.DoWithin(ctx, ask, 0) }

// DoWithin is Do for a call that can wait: if no batch is running it runs together
// with the next call, and alone only after waiting that long.
func (g *Group[T, R]) DoWithin(ctx context.Context, ask T, wait time.Duration) (R, error) {
	answers, err := g.DoAll(ctx, []T{ask}, wait)
	if err != nil {
		var none R
		return none, err
	}
	return answers[0], nil
}

// DoAll is DoWithin for several calls, which may run in different batches. It
// returns the answers in their order.
func (g *Group[T, R]) DoAll(ctx context.Context, asks []T, wait time.Duration) ([]R, error) {
	if err := ctx.Err(); err != nil || len(asks) == 0 {
		return nil, err
	}
	calls := make([]*call[T, R], len(asks))
	for i, ask := range asks {
		calls[i] = &call[T, R]{ask: ask, wait: wait, done: make(chan struct{})}
	}
	g.mu.Lock()
	g.waiting = append(g.waiting, calls...)
	if g.cfg.Fill {
		g.expire(calls)
	}
	g.begin()
	g.alone()
	g.mu.Unlock()
	answers := make([]R, len(asks))
	for i, c := range calls {
		select {
		case <-c.done:
			answers[i] = c.answer
		case <-ctx.Done():
			g.withdraw(calls[i:])
			return nil, ctx.Err()
		}
	}
	return answers, nil
}

// withdraw removes calls that have not started.
func (g *Group[T, R]) withdraw(calls []*call[T, R]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range calls {
		c.gone = true
	}
	// Running batches share the array.
	g.waiting = slices.DeleteFunc(slices.Clone(g.waiting), func(c *call[T, R]) bool { return c.gone })
}

// drain runs batches until none is due.
func (g *Group[T, R]) drain() {
	for {
		// Let callers about to join get here first: goroutines started or woken
		// together call together.
		runtime.Gosched()
		g.mu.Lock()
		g.running--
		if !g.due() {
			g.alone()
			g.mu.Unlock()
			return
		}
		g.running++
		n, _ := g.next()
		calls := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.begin() // the rest may be a batch of its own
		g.mu.Unlock()

		batch := make([]T, n)
		for i, c := range calls {
			batch[i] = c.ask
		}
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if g.cfg.Timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, g.cfg.Timeout)
		}
		answers := g.run(ctx, batch)
		cancel()
		for i, c := range calls {
			c.answer = answers[i]
			close(c.done)
		}
	}
}
