package queue

import (
	"context"
	"log/slog"
	"time"
)

// Stirrer stirs the keeper for a process in which it does not lead, often enough
// that nobody waits for its ticks and no oftener: each stir makes it look at the
// database. Its methods never block, and may be called before Run and after it.
type Stirrer struct {
	q    Queue
	log  *slog.Logger
	soon chan struct{}
	late chan struct{}
}

// After a quiet time the first few changes are told at once: a small document
// makes no more of them, and they are what somebody waits for. Beyond that it is
// load, under which the keeper hears of what others wait for about as often as
// it folds, and of ordinary ends as often as keeps windows full.
var (
	soonPace = pace{every: 50 * time.Millisecond, burst: 8}
	latePace = pace{every: 250 * time.Millisecond, burst: 4}
)

const (
	stirLimit = 3 * time.Second // for one stir
	stirRest  = time.Second     // after one that failed
	stirLast  = time.Second     // for the one at the end
)

// NewStirrer makes a stirrer; Run makes it stir. log nil means slog.Default.
func NewStirrer(q Queue, log *slog.Logger) *Stirrer {
	if log == nil {
		log = slog.Default()
	}
	return &Stirrer{q: q, log: log, soon: make(chan struct{}, 1), late: make(chan struct{}, 1)}
}

// Soon says that something changed that others wait for: a document is new, or
// a step has ended that the next ones follow.
func (s *Stirrer) Soon() { note(s.soon) }

// Late says that something changed of which there is much: a range of a
// document has ended.
func (s *Stirrer) Late() { note(s.late) }

func note(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // the stir to come is for this one too
	}
}

// Run stirs until ctx ends, and then once more if something was said that has
// not been told. A stir that fails is tried again after a rest.
func (s *Stirrer) Run(ctx context.Context) {
	soon, late := soonPace, latePace
	var wantSoon, wantLate bool
	var rest time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if wantSoon || wantLate {
			now := time.Now()
			at := soon.next(now)
			if l := late.next(now); !wantSoon || wantLate && l.Before(at) {
				at = l
			}
			if at.Before(rest) {
				at = rest
			}
			timer.Reset(at.Sub(now))
			due = timer.C
		}
		select {
		case <-s.soon:
			wantSoon = true
		case <-s.late:
			wantLate = true
		case <-due:
			soon.spend(wantSoon)
			late.spend(wantLate)
			if err := s.stir(ctx, stirLimit); err != nil && ctx.Err() == nil {
				s.log.Debug("the keeper was not told of a change; its tick will find it", "error", err)
				rest = time.Now().Add(stirRest)
				continue
			}
			wantSoon, wantLate = false, false
		case <-ctx.Done():
			if wantSoon || wantLate || len(s.soon)+len(s.late) > 0 {
				_ = s.stir(context.WithoutCancel(ctx), stirLast) // the keeper's tick finds it
			}
			return
		}
	}
}

func (s *Stirrer) stir(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.q.Stir(ctx)
}

// pace lets burst events happen at once and then one in every.
type pace struct {
	every time.Duration
	burst int
	until time.Time // when all of burst is there again
}

// next is when an event may happen, at now or later.
func (p *pace) next(now time.Time) time.Time {
	if t := p.until.Add(-time.Duration(p.burst-1) * p.every); t.After(now) {
		return t
	}
	return now
}

// spend notes that an event happens now, unless it was not wanted or is not this
// pace's: it would owe for what another allowed.
func (p *pace) spend(wanted bool) {
	now := time.Now()
	if !wanted || p.next(now).After(now) {
		return
	}
	if p.until.Before(now) {
		p.until = now
	}
	p.until = p.until.Add(p.every)
}
