package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"sheaf"
)

// Slots are a process's places for what tenants compete for: reading files,
// embedding, asking the language model, searching. A free one goes to the tenant that
// has had the least time in them by weight: if one tenant's pages or questions take
// seconds each, the others still get their share, whatever the number of its tasks
// here. Of a tenant's own tasks those of the lowest lane go first, and one in
// BulkEvery is the one that has waited longest.
//
// This is the stride scheduling of the queues, by time: until a task ends, it is
// charged what its tenant's latest one took.
type Slots struct {
	weight func(ctx context.Context, tenantID string) int

	mu      sync.Mutex
	free    int
	vt      time.Duration // virtual time: highest pass that had a turn
	tenants map[string]*slotShare
	came    int64 // tasks so far
}

// slotShare is a tenant's use of the slots. Between tasks it is kept only while pass
// is ahead of the virtual time.
type slotShare struct {
	weight  time.Duration // a factor, at least 1
	pass    time.Duration
	latest  time.Duration // time that its latest task took
	inside  int           // its tasks in slots
	waiting []*slotTask   // in the order they came
	turns   int           // slots it was given
}

// slotTask is a task waiting for a slot or in one.
type slotTask struct {
	of      *slotShare
	lane    sheaf.Lane
	number  int64
	turn    chan struct{} // closed when it gets a slot
	charged time.Duration
	since   time.Time
}

// maxSlotTime is the most that a task is charged; see sheaf.Beyond.
const maxSlotTime = time.Minute

// NewSlots makes n slots. weight returns a tenant's weight; nil for the same for all.
func NewSlots(n int, weight func(ctx context.Context, tenantID string) int) *Slots {
	if weight == nil {
		weight = func(context.Context, string) int { return 1 }
	}
	return &Slots{weight: weight, free: n, tenants: map[string]*slotShare{}}
}

// Enter waits for a slot, and returns a function that gives it back and may be called
// again. Its error is the cause of ctx's cancellation.
func (s *Slots) Enter(ctx context.Context, tenantID string, lane sheaf.Lane) (leave func(), err error) {
	weight := max(s.weight(ctx, tenantID), 1)
	s.mu.Lock()
	t := s.tenants[tenantID]
	if t == nil {
		t = &slotShare{}
		s.tenants[tenantID] = t
	}
	t.weight = time.Duration(weight)
	if t.inside+len(t.waiting) == 0 {
		t.pass = max(t.pass, s.vt)
	}
	s.came++
	x := &slotTask{of: t, lane: lane, number: s.came, turn: make(chan struct{})}
	t.waiting = append(t.waiting, x)
	s.fill()
	s.mu.Unlock()
	select {
	case <-x.turn:
		return sync.OnceFunc(func() { s.leave(x) }), nil
	case <-ctx.Done():
		s.withdraw(x)
		return nil, context.Cause(ctx)
	}
}

// fill hands out the free slots; the caller holds mu.
func (s *Slots) fill() {
	for s.free > 0 {
		var next *slotTask
		for _, t := range s.tenants {
			if len(t.waiting) == 0 {
				continue
			}
			x := t.waiting[t.next()]
			// guard: fairness: parsers go to the tenant that had the least time
			if next == nil || t.pass < next.of.pass || t.pass == next.of.pass && x.number < next.number {
				next = x
			}
		}
		if next == nil {
			return
		}
		t := next.of
		t.waiting = slices.Delete(t.waiting, t.next(), t.next()+1)
		t.turns++
		t.inside++
		s.free--
		s.vt = max(s.vt, t.pass)
		next.charged, next.since = t.latest, time.Now()
		t.pass += next.charged / t.weight
		close(next.turn)
	}
}

// next returns which of the tasks waiting, of which there are some, has its turn.
func (t *slotShare) next() (at int) {
	if (t.turns+1)%BulkEvery == 0 {
		return 0
	}
	for i, x := range t.waiting {
		if x.lane < t.waiting[at].lane {
			at = i
		}
	}
	return at
}

func (s *Slots) leave(x *slotTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := x.of
	t.latest = min(time.Since(x.since), maxSlotTime)
	t.pass += (t.latest - x.charged) / t.weight
	t.inside--
	s.free++
	s.fill()
	s.forget()
}

// withdraw ends the wait of a task, or gives back the slot that it got meanwhile.
func (s *Slots) withdraw(x *slotTask) {
	s.mu.Lock()
	if i := slices.Index(x.of.waiting, x); i >= 0 {
		x.of.waiting = slices.Delete(x.of.waiting, i, i+1)
		s.forget()
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.leave(x)
}

// Free returns how many slots nobody has.
func (s *Slots) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// forget drops tenants that have no tasks here and owe nothing; the caller holds mu.
func (s *Slots) forget() {
	for id, t := range s.tenants {
		if t.inside+len(t.waiting) == 0 && t.pass <= s.vt {
			delete(s.tenants, id)
		}
	}
}

// TenantStore is where weights are read.
type TenantStore interface {
	Tenant(ctx context.Context, id string) (*sheaf.Tenant, error)
}

// A changed weight is seen weightFor later.
const (
	weightFor  = 10 * time.Second
	maxWeights = 1000
)

// WeightOf returns a function that reads weights from the store and caches them. A
// tenant that cannot be read has weight 1: this must fail no task.
func WeightOf(store TenantStore) func(ctx context.Context, tenantID string) int {
	if store == nil {
		return nil
	}
	type weight struct {
		n    int
		read time.Time
	}
	var mu sync.Mutex
	known := map[string]weight{}
	return func(ctx context.Context, tenantID string) int {
		mu.Lock()
		w, ok := known[tenantID]
		mu.Unlock()
		if ok && time.Since(w.read) < weightFor {
			return w.n
		}
		w = weight{1, time.Now()}
		if t, err := store.Tenant(ctx, tenantID); err == nil {
			w.n = t.Weight
		}
		mu.Lock()
		defer mu.Unlock()
		if len(known) >= maxWeights {
			clear(known)
		}
		known[tenantID] = w
		return w.n
	}
}
