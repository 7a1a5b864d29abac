package notify

import (
	"context"
	"log/slog"
	"time"
)

// Debouncer notifies the keeper for a process in which it does not lead, often
// enough that nobody waits for its ticks and no oftener: each notification makes
// it query the database. Its methods never block, and may be called before Run
// and after it.
type Debouncer struct {
	send            func(context.Context) error
	log             *slog.Logger
	urgent, routine Signal
}

// After a quiet time the first few changes are sent at once: a small document
// makes no more of them, and they are what somebody waits for. Beyond that it is
// load, under which the keeper is notified of what others wait for about as often
// as it folds, and of ordinary ends as often as keeps the queue's windows full.
var (
	urgentRate  = rate{every: 50 * time.Millisecond, burst: 8}
	routineRate = rate{every: 250 * time.Millisecond, burst: 4}
)

const (
	sendTimeout  = 3 * time.Second
	retryAfter   = time.Second // after a notification that failed
	finalTimeout = time.Second // for the one at the end
)

// NewDebouncer makes a debouncer of send; Run makes it send. log nil means
// slog.Default.
func NewDebouncer(send func(context.Context) error, log *slog.Logger) *Debouncer {
	if log == nil {
		log = slog.Default()
	}
	return &Debouncer{send: send, log: log, urgent: NewSignal(), routine: NewSignal()}
}

// Urgent reports a change that others wait for: a document is new, or a step has
// ended that the next ones follow.
func (d *Debouncer) Urgent() { d.urgent.Notify() }

// Routine reports a change of which there are many: a range of a document has
// ended.
func (d *Debouncer) Routine() { d.routine.Notify() }

// Run sends until ctx ends, and then once more if a change was reported that was
// not sent. What fails is sent again after a pause.
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
				_ = d.notify(context.WithoutCancel(ctx), finalTimeout) // the keeper's tick finds it
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

// rate lets burst events happen at once and then one in every.
type rate struct {
	every time.Duration
	burst int
	until time.Time // when all of burst is there again
}

// next is when an event may happen, at now or later.
func (r *rate) next(now time.Time) time.Time {
	if t := r.until.Add(-time.Duration(r.burst-1) * r.every); t.After(now) {
		return t
	}
	return now
}

// spend notes that an event happens now, unless it was not wanted or is not this
// rate's: it would owe for what another allowed.
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
