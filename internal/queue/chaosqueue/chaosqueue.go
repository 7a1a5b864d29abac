// Package chaosqueue makes any queue behave as badly as the contract allows: it
// loses, repeats, reorders and delays hints, and drops notifications and cancel
// signals. Tests put it between keeper and executor to show that the pipeline still
// ends correctly.
package chaosqueue

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/queue"
)

var _ queue.Queue = (*Queue)(nil)

// Config sets the amount of trouble. Shares are between 0 and 1; 0 means the default
// and a negative value none.
type Config struct {
	Seed     uint64        // the same seed and the same calls give the same trouble
	Drop     float64       // share of hints, notifications and signals that are lost; default 0.10
	Repeat   float64       // share of hints and signals that are repeated; default 0.10
	Delay    float64       // share of taken hints that are delayed; default 0.10
	MaxDelay time.Duration // maximum delay; default 50 ms
	// Unacked is the share of dropped hints that look as if their worker died with
	// them: only the queue's own Recover or expiry brings them back. The others are
	// acked and gone until the keeper publishes them again. Default 0.5.
	Unacked float64
}

// Counts is the trouble made so far.
type Counts struct{ Dropped, Repeated, Delayed, Reordered int }

// Queue wraps another queue.
type Queue struct {
	queue.Queue
	cfg Config

	mu     sync.Mutex
	rng    *rand.Rand
	held   []held
	counts Counts
}

// held is a delayed hint.
type held struct {
	hint sheaf.Hint
	due  time.Time
}

// New wraps inner.
func New(inner queue.Queue, cfg Config) *Queue {
	for share, otherwise := range map[*float64]float64{&cfg.Drop: 0.10, &cfg.Repeat: 0.10, &cfg.Delay: 0.10, &cfg.Unacked: 0.5} {
		if *share == 0 {
			*share = otherwise
		}
		*share = max(*share, 0)
	}
	if cfg.MaxDelay <= 0 {
		cfg.MaxDelay = 50 * time.Millisecond
	}
	return &Queue{Queue: inner, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0))}
}

// Counts returns the trouble made so far.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts
}

// chance is true for a share of calls; q.mu is held.
func (q *Queue) chance(share float64) bool { return q.rng.Float64() < share }

// Publish loses, repeats and reorders the hints on their way in. Lost ones count
// as accepted.
func (q *Queue) Publish(ctx context.Context, tenantID string, lane sheaf.Lane, hints []sheaf.Hint) (int, error) {
	q.mu.Lock()
	var (
		sent []sheaf.Hint
		from []int // index in hints of each hint sent
	)
	for i, h := range hints {
		if q.chance(q.cfg.Drop) {
			q.counts.Dropped++
			continue
		}
		sent, from = append(sent, h), append(from, i)
		if q.chance(q.cfg.Repeat) {
			q.counts.Repeated++
			sent, from = append(sent, h), append(from, i)
		}
	}
	q.shuffle(len(sent), func(i, j int) {
		sent[i], sent[j] = sent[j], sent[i]
		from[i], from[j] = from[j], from[i]
	})
	q.mu.Unlock()

	n, err := q.Queue.Publish(ctx, tenantID, lane, sent)
	if err != nil {
		return 0, err
	}
	accepted := len(hints)
	for _, i := range from[n:] {
		accepted = min(accepted, i) // some after it may have been accepted: they are repeated
	}
	return accepted, nil
}

// shuffle swaps some neighbours; q.mu is held.
func (q *Queue) shuffle(n int, swap func(i, j int)) {
	for i := 1; i < n; i++ {
		if q.rng.IntN(4) == 0 {
			q.counts.Reordered++
			swap(i-1, i)
		}
	}
}

// Take loses, repeats, reorders and delays hints on their way out.
func (q *Queue) Take(ctx context.Context, workerID string, slots int, skip []sheaf.TaskKind) ([]sheaf.Hint, error) {
	if slots <= 0 {
		return nil, nil
	}
	got := q.release(slots, skip)
	var fresh []sheaf.Hint
	if len(got) < slots {
		var err error
		if fresh, err = q.Queue.Take(ctx, workerID, slots-len(got), skip); err != nil && len(got) == 0 {
			return nil, err
		}
	}

	var spent []sheaf.Hint
	q.mu.Lock()
	for _, h := range fresh {
		switch {
		case q.chance(q.cfg.Drop):
			q.counts.Dropped++
			if !q.chance(q.cfg.Unacked) {
				spent = append(spent, h)
			}
			continue
		case q.chance(q.cfg.Delay):
			q.counts.Delayed++
			q.hold(h)
		default:
			got = append(got, h)
		}
		if q.chance(q.cfg.Repeat) {
			q.counts.Repeated++
			q.hold(h)
		}
	}
	q.shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	q.mu.Unlock()

	for _, h := range spent {
		if err := q.Queue.Ack(ctx, h, false); err != nil {
			continue // then it stays unacked
		}
	}
	return got, nil
}

// hold delays a hint by a random time; q.mu is held.
func (q *Queue) hold(h sheaf.Hint) {
	q.held = append(q.held, held{h, time.Now().Add(time.Duration(q.rng.Int64N(int64(q.cfg.MaxDelay))))})
}

// release returns delayed hints that are due.
func (q *Queue) release(slots int, skip []sheaf.TaskKind) []sheaf.Hint {
	q.mu.Lock()
	defer q.mu.Unlock()
	var (
		got     []sheaf.Hint
		delayed = q.held[:0]
	)
next:
	for _, h := range q.held {
		for _, kind := range skip {
			if h.hint.Kind == kind {
				delayed = append(delayed, h)
				continue next
			}
		}
		if len(got) == slots || time.Now().Before(h.due) {
			delayed = append(delayed, h)
			continue
		}
		got = append(got, h.hint)
	}
	q.held = delayed
	return got
}

// Notify loses some notifications.
func (q *Queue) Notify(ctx context.Context) error {
	if q.loses() {
		return nil
	}
	return q.Queue.Notify(ctx)
}

// NotifyChange loses some notifications.
func (q *Queue) NotifyChange(ctx context.Context) error {
	if q.loses() {
		return nil
	}
	return q.Queue.NotifyChange(ctx)
}

// loses decides whether a notification is lost.
func (q *Queue) loses() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.chance(q.cfg.Drop) {
		return false
	}
	q.counts.Dropped++
	return true
}

// SignalCancel loses and repeats signals.
func (q *Queue) SignalCancel(ctx context.Context, taskIDs []string) error {
	q.mu.Lock()
	var sent []string
	for _, id := range taskIDs {
		if q.chance(q.cfg.Drop) {
			q.counts.Dropped++
			continue
		}
		sent = append(sent, id)
		if q.chance(q.cfg.Repeat) {
			q.counts.Repeated++
			sent = append(sent, id)
		}
	}
	q.mu.Unlock()
	return q.Queue.SignalCancel(ctx, sent)
}
