package executor

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// slots says how many tasks an executor may hold. As many as it has workers are
// at work. More are claimed ahead only while tasks take no longer than claims
// do, as those of a re-parse that reuses everything: then workers would spend
// their time on waiting, and what waits here waits for less than a round trip.
// A task that waited behind a long one would be one that another executor could
// run, so the longest task seen lately decides.
type slots struct {
	workers, most int
	freed         chan struct{} // one token: a slot may be free

	mu    sync.Mutex
	held  int           // tasks taken, claimed or at work
	claim time.Duration // what a claim takes, smoothed
	work  time.Duration // what the longest tasks took lately
	seen  int           // tasks since there was nothing to take, as far as it matters
}

// newSlots makes the slots of workers that may hold batch tasks each.
func newSlots(workers, batch int) *slots {
	return &slots{workers: workers, most: workers * max(batch, 1), freed: make(chan struct{}, 1)}
}

// forgetting is how many tasks, or claims, it takes until the average follows
// by two thirds. Longer tasks count at once.
const forgetting = 32

func (s *slots) claimed(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claim == 0 {
		s.claim = took
	}
	s.claim += (took - s.claim) / forgetting
}

func (s *slots) worked(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work = max(took, s.work+(took-s.work)/forgetting)
	s.seen = min(s.seen+1, s.workers)
}

// busy reports whether there has been enough to take lately for each worker, so
// that there is probably more.
func (s *slots) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen == s.workers
}

// forget makes what comes next count as unknown.
func (s *slots) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = 0
}

// mayHold is how many tasks may be held now: beyond one a worker, as many as the
// workers get done during a claim.
func (s *slots) mayHold() int {
	if s.seen < s.workers {
		return s.workers
	}
	ahead := int64(s.workers) * int64(s.claim) / max(int64(s.work), 1)
	return int(min(int64(s.workers)+ahead, int64(s.most)))
}

// reserve waits for a free slot and takes every slot that is free. It returns
// 0 when ctx ends.
func (s *slots) reserve(ctx context.Context) int {
	for ctx.Err() == nil {
		s.mu.Lock()
		n := max(s.mayHold()-s.held, 0)
		s.held += n
		s.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-s.freed:
			runtime.Gosched() // tasks whose ends were written together free their slots together
		case <-ctx.Done():
		}
	}
	return 0
}

// reserveOne takes a slot if a worker is free.
func (s *slots) reserveOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held >= s.workers {
		return false
	}
	s.held++
	return true
}

func (s *slots) free(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.held -= n
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
