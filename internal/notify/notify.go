// Package notify tells waiters that there is something to look at: tasks
// to executors, changes to the keeper and to watchers. A notification carries no
// data and may be lost, repeated or late; waiters poll besides. Within a
// process Signal and Subscribers carry it, between processes pgnotify or the
// queue in Redis, and Debouncer limits how often.
package notify

import (
	"context"
	"sync"
)

// Signal is a notification for one receiver. Those that were not received yet
// are one.
type Signal chan struct{}

// NewSignal makes a signal.
func NewSignal() Signal { return make(Signal, 1) }

// Notify never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default: // the one to come covers this one too
	}
}

// Remote carries notifications to other processes.
type Remote interface {
	// Notify notifies the other processes.
	Notify(ctx context.Context) error
	// Notifications receives when another process notified, or when a
	// notification may have been missed. It is closed when the remote is.
	Notifications() <-chan struct{}
}

// Subscribers are the receivers of values within a process. The zero value has
// none. It is safe for concurrent use.
type Subscribers[T any] struct {
	mu  sync.Mutex
	all map[chan T]struct{}
}

// Subscribe adds a receiver that buffers so many values. It is closed when ctx
// ends.
func (s *Subscribers[T]) Subscribe(ctx context.Context, buffer int) <-chan T {
	c := make(chan T, buffer)
	s.mu.Lock()
	if s.all == nil {
		s.all = map[chan T]struct{}{}
	}
	s.all[c] = struct{}{}
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, c)
		close(c)
	})
	return c
}

// Notify sends v to every receiver that has buffer left. It never blocks.
func (s *Subscribers[T]) Notify(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		select {
		case c <- v:
		default:
		}
	}
}
