package child

import (
	"context"
	"errors"
	"sync"
	"time"
)

// sampleEvery is how often the memory of a busy child is sampled.
const sampleEvery = 100 * time.Millisecond

// watch kills the child when ctx ends, when limit (0: none) has passed, or when its
// resident memory exceeds maxRSS (0: any). Once the returned stop function returns,
// nothing is killed.
//
// It has no goroutine of its own: most calls end within milliseconds, and waking a
// thread for each cost as much as a small file.
func (c *process) watch(ctx context.Context, limit time.Duration, maxRSS int64) (stop func()) {
	w := &watcher{c: c}
	if limit > 0 {
		w.limit = time.AfterFunc(limit, func() { w.kill(killTimeout) })
	}
	if maxRSS > 0 {
		w.mu.Lock()
		w.sample = time.AfterFunc(sampleEvery, func() { w.look(maxRSS) })
		w.mu.Unlock()
	}
	unwatch := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.kill(killTimeout)
		} else {
			w.kill(killCanceled)
		}
	})
	return func() {
		unwatch()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
		if w.limit != nil {
			w.limit.Stop()
		}
		if w.sample != nil {
			w.sample.Stop()
		}
	}
}

type watcher struct {
	c     *process
	limit *time.Timer

	mu     sync.Mutex // held while killing: a child that has moved on to another call must not be killed for this one
	over   bool
	sample *time.Timer
}

func (w *watcher) kill(why int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.c.kill(why)
	}
}

func (w *watcher) look(maxRSS int64) {
	if w.c.resident() > maxRSS {
		w.kill(killMemory)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.sample.Reset(sampleEvery)
	}
}
