// Package notify wakes waiters when there may be something to do: executors for
// tasks, the keeper and watchers for changes. A notification carries no data and may
// be lost, repeated or late; waiters also poll. Within a process Signal and
// Subscribers carry it, between processes pgnotify or the Redis queue, and Debouncer
// limits the rate.
package notify

import (
	"context"
	"sync"
)

// Signal is a notification for one receiver. Unreceived notifications are merged.
type Signal chan struct{}

// NewSignal makes a signal.
func NewSignal() Signal { return make(Signal, 1) }

// Notify sends the signal. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default: // the pending one covers this one too
	}
}

// Remote carries notifications to other processes.
type Remote interface {
	// Notify notifies the other processes.
	Notify(ctx context.Context) error
	// Notifications receives when another process notified, or when a notification may
	// have been missed. It is closed with the remote.
	Notifications() <-chan struct{}
}

// Subscribers are the receivers of values within a process. The zero value has none.
// It is safe for concurrent use.
type Subscribers[T any] struct {
	mu  sync.Mutex
	all map[chan T]struct{}
}

// Subscribe adds a receiver with the given buffer. It is closed when ctx is done.
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

// Notify sends v to every receiver with buffer space. It never blocks.
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
