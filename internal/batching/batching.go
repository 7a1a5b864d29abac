// Package batching gathers calls that come together into one: between the tasks
// of an executor and what costs much however little it carries (a transaction of
// the store, a round trip to the queue, a request to an embedding provider).
package batching

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Config bounds the batches of a group.
type Config[T any] struct {
	Max         int           // calls of a batch
	Timeout     time.Duration // of a batch; 0 for none
	Concurrency int           // batches at once; 0 means 1
	MinBatch    int           // calls that a batch beside another must have

	// WeightFunc is what a call counts against MaxWeight. nil: only Max bounds
	// a batch.
	WeightFunc func(T) int
	MaxWeight  int // of a batch of more than one call

	// Fill makes calls wait until a batch is full or the batch timeout of one of
	// them is over, even if nothing is under way.
	Fill bool
}

// Group runs calls in batches. Unless it fills them, a call that finds nothing
// under way is run at once, alone, and those that arrive during a batch are the
// next. It is safe for concurrent use.
type Group[T, R any] struct {
	cfg Config[T]
	run func(ctx context.Context, batch []T) []R

	mu      sync.Mutex
	waiting []*call[T, R]
	running int
}

type call[T, R any] struct {
	ask    T
	wait   time.Duration // batch timeout; 0 for none, or once it is over
	answer R
	done   chan struct{} // closed once answer is set
	gone   bool          // its caller has given up; guarded by Group.mu
}

// New makes a group. run gets calls in the order they came and must answer as
// many, in their order. It has the timeout of a batch, and a context that is
// nobody's own: that one caller gives up must not fail the others.
func New[T, R any](cfg Config[T], run func(ctx context.Context, batch []T) []R) *Group[T, R] {
	cfg.Concurrency = max(cfg.Concurrency, 1)
	return &Group[T, R]{cfg: cfg, run: run}
}

// begin starts a batch if there is reason for one more now; g.mu is held.
func (g *Group[T, R]) begin() {
	if g.due() {
		g.running++
		go g.drain()
	}
}

// due reports whether there is reason for one more batch now; g.mu is held.
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

// next is how many calls the next batch has, and whether no other would fit;
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

// expire begins a batch once the timeout of calls that wait is over. Only a
// group that fills batches counts it from the call; else it is counted from when
// a call is the only one and nothing is under way. g.mu is held.
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

// alone gives a call that waits alone while nothing is under way its time; g.mu
// is held.
func (g *Group[T, R]) alone() {
	if !g.cfg.Fill && g.running == 0 && len(g.waiting) > 0 {
		g.expire(g.waiting[:1:1])
	}
}

// Do is one call. The error is ctx's, when it ends before the batch does: the
// call may then still happen, unless it ended before it was Do's turn.
func (g *Group[T, R]) Do(ctx context.Context, ask T) (R, error) { return g.DoWithin(ctx, ask, 0) }

// DoWithin is Do for a call that can wait: where nothing is under way it is run
// with the next that comes, and alone only once it has waited so long.
func (g *Group[T, R]) DoWithin(ctx context.Context, ask T, wait time.Duration) (R, error) {
	answers, err := g.DoAll(ctx, []T{ask}, wait)
	if err != nil {
		var none R
		return none, err
	}
	return answers[0], nil
}

// DoAll is DoWithin for several calls, which may go in different batches. It
// answers in their order.
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

// withdraw takes calls back that have not been begun.
func (g *Group[T, R]) withdraw(calls []*call[T, R]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range calls {
		c.gone = true
	}
	// Batches under way share the array.
	g.waiting = slices.DeleteFunc(slices.Clone(g.waiting), func(c *call[T, R]) bool { return c.gone })
}

// drain runs batches until there is no reason for another.
func (g *Group[T, R]) drain() {
	for {
		// Callers about to join get here first: goroutines
		// that were started or woken together call together.
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
		g.begin() // what is left may be a batch of its own
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
