package queuetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// Store is an in-memory model of the parts of the task store that a queue sees:
// tasks that are pending, running or done, a claim that only one caller can win, and
// the outbox that a feeder publishes from. It implements taskstore.Feed. The zero
// value is empty and ready to use.
type Store struct {
	Queries atomic.Int64 // reads of the Feed so far

	mu      sync.Mutex
	tenants map[string]*storeTenant
	tasks   map[string]*storeTask
	serial  int
}

type storeTenant struct {
	weight, cap int
	pending     []*storeTask // in the order they should run
	running     int
	peak        int // maximum that ran at once
	shared      bool
}

type storeTask struct {
	hint     sheaf.Hint
	serial   int
	state    sheaf.TaskState
	enqueued bool
	claims   int
}

var _ taskstore.Feed = (*Store)(nil)

// SetTenant sets a tenant's share; the default is weight 1 and cap 1,000.
func (s *Store) SetTenant(id string, weight, cap int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenant(id)
	t.weight, t.cap, t.shared = weight, cap, false
}

func (s *Store) tenant(id string) *storeTenant {
	if s.tenants == nil {
		s.tenants, s.tasks = make(map[string]*storeTenant), make(map[string]*storeTask)
	}
	t := s.tenants[id]
	if t == nil {
		t = &storeTenant{weight: 1, cap: 1000}
		s.tenants[id] = t
	}
	return t
}

// Add makes n pending parse tasks of cost 1, and returns their ids.
func (s *Store) Add(tenantID string, lane sheaf.Lane, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = s.AddTask(sheaf.Hint{TenantID: tenantID, Lane: lane, Cost: 1, Kind: sheaf.KindParse}, time.Now())
	}
	return ids
}

// AddTask makes a task, with since as its place unless it has one, and returns its
// id.
func (s *Store) AddTask(h sheaf.Hint, since time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenant(h.TenantID)
	s.serial++
	h.TaskID = fmt.Sprintf("%s-%06d", h.TenantID, s.serial)
	if h.Place.IsZero() {
		h.Place = since
	}
	task := &storeTask{hint: h, serial: s.serial, state: sheaf.TaskPending}
	s.tasks[h.TaskID] = task
	t.pending = append(t.pending, task)
	return h.TaskID
}

// before orders tasks of one lane.
func (a *storeTask) before(b *storeTask) int {
	return cmp.Or(cmp.Compare(a.hint.Phase, b.hint.Phase), a.hint.Place.Compare(b.hint.Place), cmp.Compare(a.serial, b.serial))
}

// Claim makes a pending task running, and reports whether it did.
func (s *Store) Claim(taskID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	task := s.tasks[taskID]
	if task == nil || task.state != sheaf.TaskPending {
		return false
	}
	task.state, task.claims = sheaf.TaskRunning, task.claims+1
	t := s.tenants[task.hint.TenantID]
	t.pending = slices.DeleteFunc(t.pending, func(p *storeTask) bool { return p == task })
	t.running++
	t.peak = max(t.peak, t.running)
	return true
}

// Finish makes a running task done, or pending again.
func (s *Store) Finish(taskID string, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task := s.tasks[taskID]
	t := s.tenants[task.hint.TenantID]
	t.running--
	task.state = sheaf.TaskDone
	if again {
		task.state, task.enqueued = sheaf.TaskPending, false
		t.pending = append(t.pending, task)
	}
}

// State returns the state of a task.
func (s *Store) State(taskID string) sheaf.TaskState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[taskID].state
}

// Peak is the maximum number of tasks of the tenant that ran at once.
func (s *Store) Peak(tenantID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenants[tenantID].peak
}

// Left counts tasks that are not done.
func (s *Store) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, t := range s.tenants {
		n += len(t.pending) + t.running
	}
	return n
}

// Running lists the running tasks per tenant.
func (s *Store) Running() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := make(map[string][]string)
	for id, task := range s.tasks {
		if task.state == sheaf.TaskRunning {
			running[task.hint.TenantID] = append(running[task.hint.TenantID], id)
		}
	}
	return running
}

// Forget marks every pending task as unpublished, as the keeper does when the queue
// has lost its memory.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, task := range s.tasks {
		task.enqueued = false
	}
	for _, t := range s.tenants {
		t.shared = false
	}
}

// FeedQueue publishes unpublished pending tasks, as the keeper does: shares first,
// then lane by lane, marking accepted ones.
func (s *Store) FeedQueue(ctx context.Context, q queue.Queue) error {
	s.mu.Lock()
	type batch struct {
		tenant string
		share  *storeTenant
		lanes  [4][]*storeTask
		claims [4][]int // of each task, when read
	}
	var batches []batch
	for id, t := range s.tenants {
		b := batch{tenant: id}
		if !t.shared {
			b.share = &storeTenant{weight: t.weight, cap: t.cap}
			t.shared = true
		}
		n := 0
		slices.SortStableFunc(t.pending, (*storeTask).before)
		for _, task := range t.pending {
			if lane := task.hint.Lane; !task.enqueued && len(b.lanes[lane]) < 100 {
				b.lanes[lane] = append(b.lanes[lane], task)
				b.claims[lane] = append(b.claims[lane], task.claims)
				n++
			}
		}
		if n > 0 || b.share != nil {
			batches = append(batches, b)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(batches, func(a, b batch) int { return cmp.Compare(a.tenant, b.tenant) })

	for _, b := range batches {
		if b.share != nil {
			if err := q.SetShare(ctx, b.tenant, b.share.weight, b.share.cap); err != nil {
				return err
			}
		}
		for _, lane := range sheaf.Lanes {
			if len(b.lanes[lane]) == 0 {
				continue
			}
			hints := make([]sheaf.Hint, len(b.lanes[lane]))
			s.mu.Lock() // Runnable ages hints
			for i, task := range b.lanes[lane] {
				hints[i] = task.hint
			}
			s.mu.Unlock()
			n, err := q.Publish(ctx, b.tenant, lane, hints)
			if err != nil {
				return err
			}
			s.mu.Lock()
			for i, task := range b.lanes[lane][:n] {
				// A task claimed and returned meanwhile has spent its hint.
				task.enqueued = task.claims == b.claims[lane][i]
			}
			s.mu.Unlock()
		}
	}
	return nil
}

// Runnable implements taskstore.Feed.
func (s *Store) Runnable(ctx context.Context, tenantID string, limit int, ageAfter time.Duration) ([]sheaf.Hint, error) {
	s.Queries.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[tenantID]
	if t == nil {
		return nil, nil
	}
	for _, task := range t.pending {
		bound := ageAfter
		if task.hint.Phase == sheaf.PhaseBegin {
			bound += sheaf.BeginDelay
		}
		task.hint.Aged = ageAfter > 0 && time.Since(task.hint.Place) > bound
	}
	slices.SortStableFunc(t.pending, func(a, b *storeTask) int {
		return cmp.Or(cmp.Compare(a.hint.ServedIn(), b.hint.ServedIn()), a.before(b))
	})
	type head struct {
		lane sheaf.Lane
		last sheaf.Phase
	}
	var hints []sheaf.Hint
	read := map[head]int{}
	for _, task := range t.pending {
		of := head{task.hint.Lane, max(task.hint.Phase, sheaf.PhaseRanges)}
		if read[of]++; read[of] <= limit {
			hints = append(hints, task.hint)
		}
	}
	return hints, nil
}

// RunnableTenants implements taskstore.Feed.
func (s *Store) RunnableTenants(ctx context.Context) ([]taskstore.TenantLoad, error) {
	s.Queries.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	var loads []taskstore.TenantLoad
	for id, t := range s.tenants {
		if len(t.pending) > 0 {
			loads = append(loads, taskstore.TenantLoad{TenantID: id, Weight: t.weight, Cap: t.cap, Running: t.running})
		}
	}
	return loads, nil
}
