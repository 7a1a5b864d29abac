package queuetest

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sheaf"
)

// pipeline simulates what documents do with a queue, as the store does it: a plan,
// then its ranges, then the finalize task.
type pipeline struct {
	h      Harness
	tenant string
	left   map[string]*paper // by task
	worked int               // tasks that ran, including failed attempts
	ended  []*paper          // published, in that order
}

type paper struct {
	name   string
	ranges int
	open   int
	place  time.Time
	begun  int // pipeline.worked when it was added
}

// add queues a document.
func (p *pipeline) add(name string, ranges int, place time.Time) {
	d := &paper{name: name, ranges: ranges, place: place, begun: p.worked}
	p.task(d, sheaf.KindPlan, sheaf.PhaseBegin, place)
}

func (p *pipeline) task(d *paper, kind sheaf.TaskKind, phase sheaf.Phase, place time.Time) {
	id := p.h.Store.AddTask(sheaf.Hint{TenantID: p.tenant, Lane: sheaf.LaneNormal, Cost: 1, Kind: kind, Phase: phase, Place: place}, place)
	p.left[id] = d
}

// ran ends a task that was handed out, and adds its successors.
func (p *pipeline) ran(t *testing.T, hint sheaf.Hint) {
	t.Helper()
	finish(t, p.h, hint)
	p.worked++
	d := p.left[hint.TaskID]
	switch hint.Kind {
	case sheaf.KindPlan:
		phase := sheaf.PhaseRanges
		if d.ranges > sheaf.BulkRanges {
			phase = sheaf.PhaseBulk
		}
		for range d.ranges {
			p.task(d, sheaf.KindParse, phase, d.place.Add(time.Duration(d.ranges)*sheaf.RangeDelay))
		}
		d.open = d.ranges
	case sheaf.KindParse:
		if d.open--; d.open == 0 {
			p.task(d, sheaf.KindFinalize, sheaf.PhaseFinish, d.place)
		}
	case sheaf.KindFinalize:
		p.ended = append(p.ended, d)
	}
}

// testEqualDocuments: of equal documents the k-th is published within the work of k
// documents plus one per slot, whichever running task ends first and whatever is
// retried.
func testEqualDocuments(t *testing.T, h Harness) {
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		p := &pipeline{h: h, tenant: fmt.Sprint("equal", round), left: map[string]*paper{}}
		documents, ranges, slots := rapid.IntRange(1, 10).Draw(r, "documents"), rapid.IntRange(1, 6).Draw(r, "ranges"), rapid.IntRange(1, 4).Draw(r, "slots")
		queued := time.Now().Add(-time.Second)
		for i := range documents {
			p.add(fmt.Sprint(i), ranges, queued)
		}
		var running []sheaf.Hint
		retries := 0
		for p.h.Store.Left() > 0 {
			feed(t, h)
			for _, hint := range take(t, h.Queue, worker, slots-len(running)) {
				claim(t, h, hint)
				running = append(running, hint)
			}
			if len(running) == 0 {
				r.Fatalf("%d tasks are left and none is handed out", h.Store.Left())
			}
			i := rapid.IntRange(0, len(running)-1).Draw(r, "ends")
			hint := running[i]
			running = append(running[:i], running[i+1:]...)
			if retries < 5 && rapid.IntRange(0, 9).Draw(r, "fails") == 0 {
				h.Store.Finish(hint.TaskID, true)
				if err := h.Queue.Done(t.Context(), hint.TenantID, hint.TaskID); err != nil {
					r.Fatal(err)
				}
				retries++
				p.worked++
				continue
			}
			before := len(p.ended)
			p.ran(t, hint)
			if k := len(p.ended); k > before {
				if most := (k+slots)*(ranges+2) + retries; p.worked > most {
					r.Fatalf("document %d of %d with %d ranges each was published after %d tasks, want %d at most with %d slots", k, documents, ranges, p.worked, most, slots)
				}
			}
		}
	})
}

// testLargeBesideSmall: a large document beside an endless stream of small ones.
// Each small one is finished soon, and the large one gets its share of the turns.
func testLargeBesideSmall(t *testing.T, h Harness) {
	p := &pipeline{h: h, tenant: "mixed", left: map[string]*paper{}}
	now := time.Now().Add(-time.Minute)
	p.add("large", 10_000, now)
	bulk, small := 0, 0
	for turn := range 800 {
		if h.Store.Left() == 0 || turn%4 == 1 { // a small document is three tasks, and one turn in four is the large one's
			small++
			p.add(fmt.Sprint("small", small), 1, now.Add(time.Duration(small)*time.Millisecond))
		}
		feed(t, h)
		for _, hint := range take(t, h.Queue, worker, 1) {
			claim(t, h, hint)
			if hint.Phase == sheaf.PhaseBulk {
				bulk++
			}
			before := len(p.ended)
			p.ran(t, hint)
			if len(p.ended) > before {
				if d := p.ended[before]; p.worked-d.begun > 24 {
					t.Errorf("%s was published %d tasks after it came", d.name, p.worked-d.begun)
				}
			}
		}
	}
	if bulk < 800/8 || bulk > 800/2 {
		t.Errorf("of 800 tasks %d were of the large document, want about a fourth", bulk)
	}
	if len(p.ended) < small*3/4 {
		t.Errorf("%d of %d small documents were published", len(p.ended), small)
	}
}

// testPhasesDoNotStarve: a stream of new documents does not hold up ranges of one in
// progress, and a stream of ranges, as from many retries, does not hold up a plan
// older than the ageing bound.
func testPhasesDoNotStarve(t *testing.T, h Harness) {
	until := func(what, task string, most int, more func(i int)) {
		t.Helper()
		for i := range most + 1 {
			more(i)
			feed(t, h)
			hints := take(t, h.Queue, worker, 1)
			if len(hints) != 1 {
				t.Fatalf("%s: took %d hints", what, len(hints))
			}
			run(t, h, hints[0])
			if hints[0].TaskID == task {
				return
			}
		}
		t.Errorf("%s waited for more than %d others", what, most)
	}
	// In the first lane nothing ages into a higher one.
	add := func(tenant string, kind sheaf.TaskKind, phase sheaf.Phase, place time.Time) string {
		return h.Store.AddTask(sheaf.Hint{TenantID: tenant, Lane: sheaf.LaneInteractive, Cost: 1, Kind: kind, Phase: phase, Place: place}, place)
	}
	now := time.Now().Add(-time.Minute)
	for range 10 {
		add("plans", sheaf.KindPlan, sheaf.PhaseBegin, now)
	}
	for _, phase := range []sheaf.Phase{sheaf.PhaseFinish, sheaf.PhaseRanges} {
		one := add("plans", sheaf.KindParse, phase, now.Add(time.Second))
		until("a range", one, 1, func(i int) { add("plans", sheaf.KindPlan, sheaf.PhaseBegin, now) })
	}
	large := add("plans", sheaf.KindParse, sheaf.PhaseBulk, now)
	until("a range of a large document", large, 4, func(i int) { add("plans", sheaf.KindPlan, sheaf.PhaseBegin, now) })
	serveAll(t, h)

	old := add("ranges", sheaf.KindPlan, sheaf.PhaseBegin, time.Now().Add(-11*time.Minute))
	until("a plan that has aged", old, 16, func(i int) {
		add("ranges", sheaf.KindParse, sheaf.PhaseRanges, now)
		add("ranges", sheaf.KindParse, sheaf.PhaseRanges, now)
	})
	serveAll(t, h)
}

// testPlaces: within a lane and phase the earlier place goes first, regardless of
// the order of publication, and a retried task keeps its place.
func testPlaces(t *testing.T, h Harness) {
	now := time.Now().Add(-time.Minute)
	add := func(after time.Duration) string {
		return h.Store.AddTask(sheaf.Hint{TenantID: "a", Lane: sheaf.LaneNormal, Cost: 1, Kind: sheaf.KindParse, Phase: sheaf.PhaseRanges, Place: now.Add(after)}, now)
	}
	third := add(3 * time.Second)
	feed(t, h)
	first := add(time.Second)
	feed(t, h)
	second := add(2 * time.Second)
	feed(t, h)
	hints := take(t, h.Queue, worker, 1)
	if len(hints) != 1 || hints[0].TaskID != first {
		t.Fatalf("took %v first, want %s", hints, first)
	}
	claim(t, h, hints[0])
	h.Store.Finish(first, true) // it will be retried
	if err := h.Queue.Done(t.Context(), "a", first); err != nil {
		t.Fatal(err)
	}
	feed(t, h)
	for _, want := range []string{first, second, third} {
		hints := take(t, h.Queue, worker, 1)
		if len(hints) != 1 || hints[0].TaskID != want {
			t.Fatalf("took %v, want %s", hints, want)
		}
		run(t, h, hints[0])
	}
}
