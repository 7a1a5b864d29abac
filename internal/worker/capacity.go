package worker

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// capacity says how many tasks a worker may hold. As many as it has workers are
// at work. More are prefetched only while tasks take no longer than claims
// do, as those of a re-parse that reuses everything: then workers would spend
// their time on waiting, and what waits here waits for less than a round trip.
// A task that waited behind a long one would be one that another executor could
// run, so the longest task seen lately decides.
type capacity struct {
	workers, most int
	freed         chan struct{} // one token: there may be headroom

	mu    sync.Mutex
	held  int           // tasks taken, claimed or at work
	claim time.Duration // what a claim takes, smoothed
	work  time.Duration // what the longest tasks took lately
	seen  int           // tasks since there was nothing to take, as far as it matters
}

// newCapacity is that of workers that may hold batch tasks each.
func newCapacity(workers, batch int) *capacity {
	return &capacity{workers: workers, most: workers * max(batch, 1), freed: make(chan struct{}, 1)}
}

// forgetting is how many tasks, or claims, it takes until the average follows
// by two thirds. Longer tasks count at once.
const forgetting = 32

func (c *capacity) claimed(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claim == 0 {
		c.claim = took
	}
	c.claim += (took - c.claim) / forgetting
}

func (c *capacity) worked(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work = max(took, c.work+(took-c.work)/forgetting)
	c.seen = min(c.seen+1, c.workers)
}

// busy reports whether there has been enough to take lately for each worker, so
// that there is probably more.
func (c *capacity) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen == c.workers
}

// forget makes what comes next count as unknown.
func (c *capacity) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = 0
}

// limit is how many tasks may be held now: beyond one a worker, as many as the
// workers get done during a claim. The caller holds mu.
func (c *capacity) limit() int {
	if c.seen < c.workers {
		return c.workers
	}
	prefetch := int64(c.workers) * int64(c.claim) / max(int64(c.work), 1)
	return int(min(int64(c.workers)+prefetch, int64(c.most)))
}

// acquire waits for headroom and takes all of it. It returns 0 when ctx ends.
func (c *capacity) acquire(ctx context.Context) int {
	for ctx.Err() == nil {
		c.mu.Lock()
		n := max(c.limit()-c.held, 0)
		c.held += n
		c.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-c.freed:
			runtime.Gosched() // tasks whose ends were written together release together
		case <-ctx.Done():
		}
	}
	return 0
}

// acquireOne acquires for one task if a worker is free.
func (c *capacity) acquireOne() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held >= c.workers {
		return false
	}
	c.held++
	return true
}

func (c *capacity) release(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	c.held -= n
	c.mu.Unlock()
	select {
	case c.freed <- struct{}{}:
	default:
	}
}
