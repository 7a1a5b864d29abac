package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/internal/worker"
)

// slots are a process's places for what tenants compete for: reading files,
// embedding, and asking the language model. A free one goes to the tenant that has
// had the least time in them by weight: if one tenant's pages or questions take
// seconds each, the others still get their share, whatever the number of its tasks
// here. Of a tenant's own tasks those of the lowest lane go first, and one in
// queue.BulkEvery is the one that has waited longest.
//
// This is the stride scheduling of the queues, by time: until a task ends, it is
// charged what its tenant's latest one took.
type slots struct {
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

// newSlots makes n slots. weight returns a tenant's weight; nil for the same for all.
func newSlots(n int, weight func(ctx context.Context, tenantID string) int) *slots {
	if weight == nil {
		weight = func(context.Context, string) int { return 1 }
	}
	return &slots{weight: weight, free: n, tenants: map[string]*slotShare{}}
}

// enter waits for a slot, and returns a function that gives it back and may be called
// again. Its error is the cause of ctx's cancellation.
func (s *slots) enter(ctx context.Context, task *sheaf.Task) (leave func(), err error) {
	weight := max(s.weight(ctx, task.TenantID), 1)
	s.mu.Lock()
	t := s.tenants[task.TenantID]
	if t == nil {
		t = &slotShare{}
		s.tenants[task.TenantID] = t
	}
	t.weight = time.Duration(weight)
	if t.inside+len(t.waiting) == 0 {
		t.pass = max(t.pass, s.vt)
	}
	s.came++
	x := &slotTask{of: t, lane: task.Lane, number: s.came, turn: make(chan struct{})}
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
func (s *slots) fill() {
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
	if (t.turns+1)%queue.BulkEvery == 0 {
		return 0
	}
	for i, x := range t.waiting {
		if x.lane < t.waiting[at].lane {
			at = i
		}
	}
	return at
}

func (s *slots) leave(x *slotTask) {
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
func (s *slots) withdraw(x *slotTask) {
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

// forget drops tenants that have no tasks here and owe nothing; the caller holds mu.
func (s *slots) forget() {
	for id, t := range s.tenants {
		if t.inside+len(t.waiting) == 0 && t.pass <= s.vt {
			delete(s.tenants, id)
		}
	}
}

// TenantStore is where executors read tenants.
type TenantStore interface {
	Tenant(ctx context.Context, id string) (*sheaf.Tenant, error)
}

// A changed weight is seen weightFor later.
const (
	weightFor  = 10 * time.Second
	maxWeights = 1000
)

// weightOf returns a function that reads weights from the store and caches them. A
// tenant that cannot be read has weight 1: this must fail no task.
func weightOf(store TenantStore) func(ctx context.Context, tenantID string) int {
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

// Calls is how many files an executor has other services read at once: see
// parser.Caller.
const Calls = 4

type slotsKey struct{}

// inSlots is a task and what limits it.
type inSlots struct {
	slots *slots
	calls *semaphore.Weighted
	task  *sheaf.Task
}

// withSlots has planning under the context use the executor's slots, for a task.
func (e *Executor) withSlots(ctx context.Context, t *sheaf.Task) context.Context {
	return context.WithValue(ctx, slotsKey{}, inSlots{e.parse, e.calls, t})
}

// withoutSlots undoes withSlots.
func withoutSlots(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotsKey{}, nil)
}

// enterSlots waits for one of the context's slots. Without any, as in a dry run, it
// returns at once.
func enterSlots(ctx context.Context) (leave func(), err error) {
	if in, ok := ctx.Value(slotsKey{}).(inSlots); ok {
		return in.slots.enter(ctx, in.task)
	}
	return func() {}, nil
}

// enterCalls is admitted to the context's calls, if it has any.
func enterCalls(ctx context.Context) (leave func(), err error) {
	if in, ok := ctx.Value(slotsKey{}).(inSlots); ok {
		return admit(ctx, in.calls, sheaf.FailRetryable(sheaf.CategoryCapacity, "transcription_busy", "This executor has other recordings transcribed. This one follows when one of them is done."))
	}
	return func() {}, nil
}

// A task that is not admitted within admitWait is tried again admitRest later.
const (
	admitWait = time.Second
	admitRest = 10 * time.Second
)

// admit takes one of the places for tasks that wait for others for minutes, and gives
// back the task's worker. If there is none soon, the task must leave with the error:
// here it would count against its tenant's cap and its own time limit.
func admit(ctx context.Context, places *semaphore.Weighted, busy *sheaf.Failure) (leave func(), err error) {
	worker.Yield(ctx)
	wait, cancel := context.WithTimeout(ctx, admitWait)
	defer cancel()
	if places.Acquire(wait, 1) != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w (%w)", busy, &sheaf.RateLimited{After: admitRest})
	}
	return func() { places.Release(1) }, nil
}
