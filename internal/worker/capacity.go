package worker

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// capacity decides how many tasks a worker may hold: one per worker goroutine being
// processed, plus prefetched ones only while tasks take no longer than claims, as in
// a re-parse that reuses everything. Otherwise workers would mostly wait, whereas a
// prefetched task then waits for less than a round trip. A task queued behind a long
// one could have run on another executor, so the longest recent task decides.
type capacity struct {
	workers, most int
	freed         chan struct{} // one token: there may be headroom

	mu    sync.Mutex
	held  int           // tasks being taken, claimed or processed
	claim time.Duration // duration of a claim, smoothed
	work  time.Duration // duration of the longest recent tasks
	seen  int           // tasks since there was nothing to take, up to workers
}

// newCapacity returns the capacity of that many workers, which may hold batch tasks
// each.
func newCapacity(workers, batch int) *capacity {
	return &capacity{workers: workers, most: workers * max(batch, 1), freed: make(chan struct{}, 1)}
}

// forgetting is how many tasks or claims it takes the average to move two thirds of
// the way. Longer tasks count immediately.
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

// busy reports whether there were recently enough tasks for every worker, so that
// there are probably more.
func (c *capacity) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen == c.workers
}

// forget makes the coming tasks count as unknown.
func (c *capacity) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = 0
}

// limit is how many tasks may be held now: one per worker, plus as many as the
// workers finish during a claim. The caller holds mu.
func (c *capacity) limit() int {
	if c.seen < c.workers {
		return c.workers
	}
	prefetch := int64(c.workers) * int64(c.claim) / max(int64(c.work), 1)
	return int(min(int64(c.workers)+prefetch, int64(c.most)))
}

// acquire waits for headroom and takes all of it. It returns 0 when ctx is done.
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
			runtime.Gosched() // tasks whose completions were written together release together
		case <-ctx.Done():
		}
	}
	return 0
}

// acquireOne takes headroom for one task if a worker is free.
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
