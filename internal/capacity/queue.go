package capacity

import (
	"sheaf"
	"sheaf/internal/queue"
)

// hints are identical tasks of one document, which wait together.
type hints struct {
	place float64 // seconds
	seq   int64   // order of creation
	due   float64
	doc   int32
	n     int32 // tasks
	phase sheaf.Phase
}

func (a *hints) before(b *hints) bool {
	switch {
	case a.phase != b.phase:
		return a.phase < b.phase
	case a.place != b.place:
		return a.place < b.place
	}
	return a.seq < b.seq
}

// pile is a heap of hints.
type pile []hints

func (p *pile) push(h hints) { *p = push(*p, h, (*hints).before) }

// drop removes tasks of the first hints.
func (p *pile) drop(n int32) {
	if first := &(*p)[0]; first.n > n {
		first.n -= n
		return
	}
	*p = pop(*p, (*hints).before)
}

const phases = len(sheaf.Phases)

// lane is what a tenant has waiting in one lane, by phase: in the queue, and to be
// fed to it by the keeper.
type lane struct {
	fed, unfed [phases]pile
	waiting    [phases]int32 // tasks in fed
	turn       int
}

// tenant is a tenant's state in the queue.
type tenant struct {
	lanes   [len(sheaf.Lanes)]*lane
	pass    float64
	weight  float64
	cap     int32
	running int32
	backlog int32 // tasks not yet taken
	unfed   int32
	active  bool // in the heap of tenants with something to take
	capped  bool // it reached its cap with more waiting: a freed slot is announced

	ran   float64 // task-seconds
	since float64
}

func (t *tenant) lane(l sheaf.Lane) *lane {
	if t.lanes[l-1] == nil {
		t.lanes[l-1] = &lane{}
	}
	return t.lanes[l-1]
}

// fair hands out waiting tasks as the queues of a fleet do: by stride between
// tenants, and within a tenant by lane, phase and place with the turns of package
// queue.
type fair struct {
	tenants []tenant
	heap    []int32
	vt      float64
	seq     int64
	ageFor  float64 // seconds; see redisstream.Config.AgeAfter
}

const stride = 1000

func newFair(tenants int, cap int) *fair {
	f := &fair{tenants: make([]tenant, tenants), ageFor: 600}
	for i := range f.tenants {
		t := &f.tenants[i]
		t.weight, t.cap = 1, int32(cap)
	}
	return f
}

// add enqueues tasks: in the queue if fed, otherwise for the keeper.
func (f *fair) add(id int32, l sheaf.Lane, h hints, fed bool) {
	t := &f.tenants[id]
	f.seq++
	h.seq = f.seq
	t.backlog += h.n
	if !fed {
		t.lane(l).unfed[h.phase].push(h)
		t.unfed += h.n
		return
	}
	ln := t.lane(l)
	ln.fed[h.phase].push(h)
	ln.waiting[h.phase] += h.n
	f.activate(id)
}

// feed moves up to read tasks into the queue, as far as the window of each list has
// room, and returns their number and that of the list that took most.
func (f *fair) feed(id, window, read int32) (fed, most int32) {
	t := &f.tenants[id]
	for _, ln := range t.lanes {
		if ln == nil {
			continue
		}
		for _, list := range [...][2]sheaf.Phase{{sheaf.PhaseFinish, sheaf.PhaseRanges}, {sheaf.PhaseBegin, sheaf.PhaseBegin}, {sheaf.PhaseBulk, sheaf.PhaseBulk}} {
			room := window
			for p := list[0]; p <= list[1]; p++ {
				room -= ln.waiting[p]
			}
			room = min(room, read-fed)
			begun := room
			for p := list[0]; p <= list[1]; p++ {
				for room > 0 && len(ln.unfed[p]) > 0 {
					h := ln.unfed[p][0]
					h.n = min(h.n, room)
					ln.unfed[p].drop(h.n)
					ln.fed[p].push(h)
					ln.waiting[p] += h.n
					room -= h.n
				}
			}
			fed += begun - room
			most = max(most, begun-room)
		}
	}
	if t.unfed -= fed; fed > 0 {
		f.activate(id)
	}
	return fed, most
}

// activate makes a tenant eligible for picking.
func (f *fair) activate(id int32) {
	t := &f.tenants[id]
	if !t.active {
		from := f.vt
		if t.capped {
			from -= stride * queue.MaxCredit
		}
		t.pass = max(t.pass, from)
		f.push(id)
	}
	t.capped = false
}

// take hands out the next task, if there is one.
func (f *fair) take(now float64, cost func(hints) float64) (id int32, l sheaf.Lane, h hints, ok bool) {
	for len(f.heap) > 0 {
		id = f.heap[0]
		t := &f.tenants[id]
		f.pop()
		if t.running >= t.cap {
			t.capped = true
			continue
		}
		if l, h, ok = t.next(now, f.ageFor); !ok {
			continue
		}
		t.backlog--
		f.ran(t, now, 1)
		t.capped = t.running == t.cap && t.backlog > t.unfed
		f.vt = max(f.vt, t.pass)
		t.pass += stride * cost(h) / t.weight
		f.push(id)
		return id, l, h, true
	}
	return 0, 0, h, false
}

// done frees a slot under a tenant's cap, and reports whether it was awaited.
func (f *fair) done(id int32, now float64) bool {
	t := &f.tenants[id]
	f.ran(t, now, -1)
	if !t.capped {
		return false
	}
	f.activate(id)
	return true
}

func (f *fair) ran(t *tenant, now float64, more int32) {
	t.ran += float64(t.running) * (now - t.since)
	t.since = now
	t.running += more
}

// next takes the task whose turn it is.
func (t *tenant) next(now, ageFor float64) (sheaf.Lane, hints, bool) {
	for i := range t.lanes {
		var own, below *lane = t.lanes[i], nil
		if i+1 < len(t.lanes) {
			below = t.lanes[i+1]
		}
		// For each phase, the first of this lane, and of the one below if aged.
		var heads [2 * phases]*hints
		var aged [2 * phases]bool
		best := -1
		for k, ln := range [...]*lane{own, below} {
			if ln == nil {
				continue
			}
			for p := range phases {
				if len(ln.fed[p]) == 0 {
					continue
				}
				h, at := &ln.fed[p][0], k*phases+p
				age := now - h.place - ageFor
				if sheaf.Phase(p) == sheaf.PhaseBegin {
					age -= sheaf.BeginDelay.Seconds()
				}
				if aged[at] = age > 0; k == 1 && !aged[at] {
					continue
				}
				heads[at] = h
				if best < 0 || h.before(heads[best]) {
					best = at
				}
			}
		}
		if best < 0 {
			continue
		}
		ln := t.lane(sheaf.Lanes[i])
		ln.turn = (ln.turn + 1) % queue.AgedEvery
		switch {
		case ln.turn == 0:
			oldest := -1
			for at, h := range heads {
				if h != nil && aged[at] && (oldest < 0 || h.place < heads[oldest].place || h.place == heads[oldest].place && h.before(heads[oldest])) {
					oldest = at
				}
			}
			if oldest >= 0 {
				best = oldest
			}
		case ln.turn%queue.BulkEvery == 0:
			bulk := -1
			for _, at := range [...]int{int(sheaf.PhaseBulk), phases + int(sheaf.PhaseBulk)} {
				if h := heads[at]; h != nil && (bulk < 0 || h.before(heads[bulk])) {
					bulk = at
				}
			}
			if bulk >= 0 {
				best = bulk
			}
		}
		of, p := i+best/phases, best%phases
		from := t.lanes[of]
		h := from.fed[p][0]
		from.fed[p].drop(1)
		from.waiting[p]--
		return sheaf.Lanes[of], h, true
	}
	return 0, hints{}, false
}

func (f *fair) less(a, b *int32) bool {
	x, y := f.tenants[*a].pass, f.tenants[*b].pass
	return x < y || x == y && *a < *b
}

func (f *fair) push(id int32) {
	f.tenants[id].active = true
	f.heap = push(f.heap, id, f.less)
}

// pop removes the first.
func (f *fair) pop() {
	f.tenants[f.heap[0]].active = false
	f.heap = pop(f.heap, f.less)
}
