package notify

import (
	"context"
	"log/slog"
	"time"
)

// Debouncer notifies the keeper from processes where it does not lead, often enough
// that no one waits for its ticks and no more often: each notification makes it
// query the database. Its methods never block, and may be called before and after
// Run.
type Debouncer struct {
	send            func(context.Context) error
	log             *slog.Logger
	urgent, routine Signal
}

// After a quiet time the first few changes are sent immediately: a small document
// makes no more than these, and a user waits for them. More than that is load, under
// which the keeper is notified of urgent changes about as often as it folds, and of
// routine ones often enough to keep the queue's windows full.
var (
	urgentRate  = rate{every: 50 * time.Millisecond, burst: 8}
	routineRate = rate{every: 250 * time.Millisecond, burst: 4}
)

const (
	sendTimeout  = 3 * time.Second
	retryAfter   = time.Second // after a failed notification
	finalTimeout = time.Second // for the final notification
)

// NewDebouncer makes a debouncer of send; Run does the sending. A nil log means
// slog.Default.
func NewDebouncer(send func(context.Context) error, log *slog.Logger) *Debouncer {
	if log == nil {
		log = slog.Default()
	}
	return &Debouncer{send: send, log: log, urgent: NewSignal(), routine: NewSignal()}
}

// Urgent reports a change that others wait for: a new document, or the end of a step
// that others follow.
func (d *Debouncer) Urgent() { d.urgent.Notify() }

// Routine reports a frequent change: the end of a document's range.
func (d *Debouncer) Routine() { d.routine.Notify() }

// Run sends until ctx is done, and then once more if a reported change was not sent.
// Failed notifications are retried after a pause.
func (d *Debouncer) Run(ctx context.Context) {
	urgent, routine := urgentRate, routineRate
	var wantUrgent, wantRoutine bool
	var retryAt time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if wantUrgent || wantRoutine {
			now := time.Now()
			at := urgent.next(now)
			if r := routine.next(now); !wantUrgent || wantRoutine && r.Before(at) {
				at = r
			}
			if at.Before(retryAt) {
				at = retryAt
			}
			timer.Reset(at.Sub(now))
			due = timer.C
		}
		select {
		case <-d.urgent:
			wantUrgent = true
		case <-d.routine:
			wantRoutine = true
		case <-due:
			urgent.spend(wantUrgent)
			routine.spend(wantRoutine)
			if err := d.notify(ctx, sendTimeout); err != nil && ctx.Err() == nil {
				d.log.Debug("the keeper was not notified of a change; its tick will find it", "error", err)
				retryAt = time.Now().Add(retryAfter)
				continue
			}
			wantUrgent, wantRoutine = false, false
		case <-ctx.Done():
			if wantUrgent || wantRoutine || len(d.urgent)+len(d.routine) > 0 {
				_ = d.notify(context.WithoutCancel(ctx), finalTimeout) // the keeper's tick finds it otherwise
			}
			return
		}
	}
}

func (d *Debouncer) notify(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return d.send(ctx)
}

// rate allows burst events immediately and then one per every.
type rate struct {
	every time.Duration
	burst int
	until time.Time // when the full burst is available again
}

// next is the earliest time of an event, at now or later.
func (r *rate) next(now time.Time) time.Time {
	if t := r.until.Add(-time.Duration(r.burst-1) * r.every); t.After(now) {
		return t
	}
	return now
}

// spend records an event now, unless it was not wanted or this rate did not allow
// it: then another rate did, and this one must not be charged.
func (r *rate) spend(wanted bool) {
	now := time.Now()
	if !wanted || r.next(now).After(now) {
		return
	}
	if r.until.Before(now) {
		r.until = now
	}
	r.until = r.until.Add(r.every)
}
