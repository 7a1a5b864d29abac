package capacity

import (
	"errors"
	"math"
	"math/rand/v2"

	"sheaf"
)

// Timing of the keeper and the executors, in seconds; the names are those of
// package keeper.
const (
	feedEvery    = .5
	followPause  = .01
	pollInterval = 1
	feedTime     = 10 // maximum of one scan; the next continues where it stopped
	feedTenants  = 50 // per slice of the feed
	deepSlice    = 12 // of them, those with more than fewTasks
	fewTasks     = 32
	wakeups      = 64 // maximum executors woken by one publication
)

// station is a group of servers with a first-come, first-served queue.
type station struct {
	free []float64 // heap of the times when they become free
	busy float64   // demand since the warm-up, in seconds
}

func newStation(servers int) station { return station{free: make([]float64, max(servers, 1))} }

// use returns when work that arrives now and takes that long is finished.
func (st *station) use(s *sim, took float64) float64 {
	if took <= 0 {
		return s.now
	}
	if s.counts() {
		st.busy += took
	}
	end := max(st.free[0], s.now) + took
	st.free[0] = end
	sink(st.free, func(a, b *float64) bool { return *a < *b })
	return end
}

// load is the utilization of the servers.
func (st *station) load(seconds float64) float64 {
	return st.busy / (seconds * float64(len(st.free)))
}

type executor struct {
	cores   station
	slots   int // free
	waiting bool
}

type document struct {
	tenant   int32
	pages    int32
	ranges   int32
	next     int32 // range to claim next
	left     int32 // ranges to be done
	lane     sheaf.Lane
	uploaded float64
	place    float64
}

type task struct {
	doc      int32
	executor int32
	pages    int32
	kind     uint8
	stage    uint8
	lane     sheaf.Lane
	due      float64

	uncounted bool // towards the tenant's cap
}

// Kinds of tasks.
const (
	plan = iota
	parse
	finalize
)

// Stages of a task, each named after what has ended when its event occurs.
const (
	reached = iota // the claim reached the database
	claimed
	worked
	stored
	gathered // a bulk request is sent, or the index was refreshed
	indexed
	ended
)

// Kinds of events.
const (
	uploads  = iota // the next upload starts
	ofBatch         // a document of a batch is uploaded
	uploaded        // a document's bytes have arrived
	queued          // its plan is in the database
	ofTask
	feedBegins
	feedSlice // a slice of the feed is published
	polls     // an executor polls without having been woken
)

type event struct {
	at   float64
	seq  int64
	kind uint8
	of   int32
}

// sim is one run of the model.
type sim struct {
	*Config
	random *rand.Rand
	now    float64
	warm   float64 // anything before is not counted
	end    float64 // 0: when all documents are searchable
	seq    int64
	events []event

	queue     *fair
	executors []executor
	idle      []int32 // waiting executors, in order
	docs      shelf[document]
	tasks     shelf[task]
	live      int
	polling   bool

	serve, database, elastic, store, redis, keepers station

	feed struct {
		timer   int32 // number of the valid event
		begun   float64
		ended   float64
		at      float64 // when the next starts, if it is set
		took    float64
		limit   float64
		fedAt   float64
		to      int32
		read    [][2]int32 // tenants of the slice, and their unfed tasks
		most    int32
		busy    float64
		longest float64
		running bool
		changed bool
		follows bool
	}

	byZipf  []float64 // cumulative shares of tenants
	bySize  []float64
	byLane  [len(sheaf.Lanes)]float64
	classes []int32 // first tenant of the next class
	rate    float64 // documents per second

	held      int // slots
	heldSince float64
	heldTime  float64
	hints     int32 // in the queue
	mostHints int32

	out counts
}

// counts are the measurements since the warm-up.
type counts struct {
	offered, pages   float64
	arrived, done    int
	tasks            int
	inSystem         float64 // document-seconds
	residence        float64 // seconds from upload to searchable, total
	inSince          float64
	claimed, found   [len(sheaf.Lanes)]histogram
	ofClass, foundIn [3]histogram // by class of tenants
	folds            histogram
	last             float64
	halfway          float64 // inSystem at the middle of the counted period
	perTenant        []int
}

func (s *sim) counts() bool { return s.now >= s.warm }

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (s *sim) at(when float64, kind uint8, of int32) {
	s.seq++
	s.events = push(s.events, event{when, s.seq, kind, of}, (*event).before)
}

func (s *sim) nextEvent() event {
	first := s.events[0]
	s.events = pop(s.events, (*event).before)
	return first
}

// mostEvents bounds a run: about a minute.
const mostEvents = 100_000_000

var errTooLong = errors.New("the simulation would take too long; reduce pages-per-day or tenants")

func (s *sim) run() error {
	for n := 0; s.step(); n++ {
		if n > mostEvents {
			return errTooLong
		}
	}
	s.holds(0)
	if s.end > 0 {
		s.now = s.end
	}
	s.inSystem(0)
	return nil
}

// step processes the next event, and reports whether there was one within the time.
func (s *sim) step() bool {
	if len(s.events) == 0 || s.end > 0 && s.events[0].at > s.end {
		return false
	}
	e := s.nextEvent()
	if middle := (s.warm + s.end) / 2; s.now < middle && e.at >= middle {
		s.now = middle
		s.inSystem(0)
		s.out.halfway = s.out.inSystem
	}
	s.now = e.at
	switch e.kind {
	case uploads:
		s.upload(document{tenant: int32(draw(s.random, s.byZipf)), pages: int32(s.Sizes[draw(s.random, s.bySize)].Pages), lane: sheaf.Lanes[draw(s.random, s.byLane[:])]})
		s.at(s.now+s.random.ExpFloat64()/s.rate, uploads, 0)
	case ofBatch:
		u := s.Batch[e.of]
		if u.Lane == 0 {
			u.Lane = sheaf.LaneNormal
		}
		s.upload(document{tenant: int32(u.Tenant), pages: int32(u.Pages), lane: u.Lane})
	case uploaded:
		s.at(s.database.use(s, s.Times.ms(databaseDocument)/3), queued, e.of)
	case queued:
		d := s.docs.at(e.of)
		d.place = s.now
		s.add(e.of, hints{place: s.now, due: s.now, doc: e.of, n: 1, phase: sheaf.PhaseBegin}, false)
	case ofTask:
		s.goOn(e.of)
	case feedBegins:
		if e.of == s.feed.timer && !s.feed.running {
			s.feedBegins()
		}
	case feedSlice:
		s.feedSlice()
	case polls:
		s.polling = false
		s.wake(1)
	}
	if len(s.queue.heap) > 0 && len(s.idle) > 0 && !s.polling {
		// There is more than the woken executors could take: one of the waiting
		// ones polls.
		s.polling = true
		s.at(s.now+2*pollInterval*s.random.Float64()/float64(len(s.idle)+1), polls, 0)
	}
	return true
}

// draw samples an index from cumulative sums up to 1.
func draw(r *rand.Rand, sums []float64) int {
	x := r.Float64()
	low, high := 0, len(sums)-1
	for low < high {
		if mid := (low + high) / 2; sums[mid] < x {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

func (s *sim) upload(d document) {
	d.uploaded = s.now
	d.ranges = (d.pages + rangePages - 1) / rangePages
	d.left = d.ranges
	if s.counts() {
		s.out.offered += float64(d.pages)
		s.out.arrived++
	}
	s.inSystem(1)
	id := s.docs.put(d)
	s.at(s.serve.use(s, s.Times.ms(serveDocument)+float64(d.pages)*s.Times.ms(servePage)), uploaded, id)
}

func (s *sim) inSystem(more int) {
	if s.counts() {
		s.out.inSystem += float64(s.live) * (s.now - max(s.out.inSince, s.warm))
	}
	s.out.inSince = s.now
	s.live += more
}

// add enqueues tasks of a document. Those not published by an executor wait for the
// keeper, unless the queue reads the database.
func (s *sim) add(id int32, h hints, published bool) {
	d := s.docs.at(id)
	published = published || s.NoFeed
	s.queue.add(d.tenant, d.lane, h, published)
	if published {
		s.inQueue(h.n)
		s.wake(h.n)
	} else {
		s.feedFollows()
	}
}

func (s *sim) inQueue(n int32) {
	s.hints += n
	if s.counts() {
		s.mostHints = max(s.mostHints, s.hints)
	}
}

// wake has waiting executors look for work.
func (s *sim) wake(n int32) {
	for n = min(n, wakeups); n > 0 && len(s.idle) > 0; n-- {
		e := s.idle[0]
		s.idle = s.idle[1:]
		s.executors[e].waiting = false
		if !s.take(e) {
			return
		}
	}
}

// take fills the free slots of an executor, and reports whether it got any. An
// executor that finds nothing waits.
func (s *sim) take(e int32) (got bool) {
	x := &s.executors[e]
	for x.slots > 0 {
		_, lane, h, ok := s.queue.take(s.now, s.cost)
		if !ok {
			x.waiting = true
			s.idle = append(s.idle, e)
			return got
		}
		got = true
		x.slots--
		s.holds(1)
		s.inQueue(-1)
		t := task{doc: h.doc, executor: e, lane: lane, due: h.due}
		d := s.docs.at(h.doc)
		switch h.phase {
		case sheaf.PhaseBegin:
			t.kind = plan
		case sheaf.PhaseFinish:
			t.kind = finalize
		default:
			t.kind, t.pages = parse, int32(s.cost(h))
			d.next++
		}
		id := s.tasks.put(t)
		s.at(s.now+s.Times.ms(queueLatency), ofTask, id)
	}
	return got
}

// cost is the fair-queueing cost of the next task of hints.
func (s *sim) cost(h hints) float64 {
	if h.phase == sheaf.PhaseBegin || h.phase == sheaf.PhaseFinish {
		return 1
	}
	d := s.docs.at(h.doc)
	return float64(min(rangePages, d.pages-d.next*rangePages))
}

func (s *sim) holds(more int) {
	if s.counts() {
		s.heldTime += float64(s.held) * (s.now - max(s.heldSince, s.warm))
	}
	s.heldSince = s.now
	s.held += more
}

// leave returns a slot, and the executor looks for the next task.
func (s *sim) leave(e int32) {
	x := &s.executors[e]
	x.slots++
	s.holds(-1)
	if !x.waiting {
		s.take(e)
	}
}

// goOn moves a task to its next stage.
func (s *sim) goOn(id int32) {
	t := s.tasks.at(id)
	e, m := t.executor, &s.Times
	next := s.now
	switch t.stage {
	case reached:
		next = max(s.database.use(s, m.ms(databaseTask)/2), s.redis.use(s, m.ms(redisTask)))
	case claimed:
		wait := s.now - t.due
		if s.counts() {
			s.out.claimed[t.lane-1].add(wait)
			s.out.ofClass[s.class(s.docs.at(t.doc).tenant)].add(wait)
			s.out.tasks++
		}
		work := m.ms(executorTask)
		switch t.kind {
		case plan:
			work += m.ms(executorDocument)
		case parse:
			page := m.ms(executorPage) * float64(t.pages)
			if v := m[executorSpread]; v > 0 && page > 0 { // a factor with mean 1
				page *= math.Exp(v*s.random.NormFloat64() - v*v/2)
			}
			work += page
		}
		next = s.executors[e].cores.use(s, work)
		if t.kind == parse {
			next += m.ms(executorWait)
		}
	case worked:
		switch t.kind {
		case plan:
			next = s.store.use(s, m.ms(storeDocument))
		case parse:
			next = s.store.use(s, float64(t.pages)*m.ms(storePage))
		}
	case stored:
		// From here on only waiting is left, which occupies no worker and does not count
		// towards the tenant's cap.
		switch gather, refresh := m.ms(indexGather), m.ms(indexRefresh); {
		case t.kind == parse && gather > 0:
			next += gather * s.random.Float64()
		case t.kind == finalize && refresh > 0:
			next = (math.Floor(s.now/refresh) + 1) * refresh
		}
	case gathered:
		if t.kind == parse {
			next = s.elastic.use(s, float64(t.pages)*m.ms(indexPage))
		}
	case indexed:
		work := m.ms(databaseTask)/2 + float64(t.pages)*m.ms(databasePage)
		if t.kind != parse { // a third was spent on the upload
			work += m.ms(databaseDocument) / 3
		}
		next = s.database.use(s, work)
	case ended:
		s.ends(id)
		return
	}
	leaves := t.stage == stored
	t.stage++
	if next > s.now {
		s.at(next, ofTask, id)
		if leaves {
			t.uncounted = true
			s.uncount(s.docs.at(t.doc).tenant)
			s.leave(e)
		}
		return
	}
	if leaves {
		s.leave(e) // may move s.tasks
	}
	s.goOn(id)
}

// uncount frees a tenant's slot under its cap.
func (s *sim) uncount(tenant int32) {
	if s.queue.done(tenant, s.now) {
		s.wake(1)
	}
}

// ends performs the consequences of the end of a task.
func (s *sim) ends(id int32) {
	t := *s.tasks.at(id)
	s.tasks.remove(id)
	d := s.docs.at(t.doc)
	if !t.uncounted {
		s.uncount(d.tenant)
		d = s.docs.at(t.doc)
	}
	switch t.kind {
	case plan:
		s.folds(s.Times.ms(keeperDocument) / 2)
		h := hints{place: d.place + float64(d.ranges)*sheaf.RangeDelay.Seconds(), due: s.now, doc: t.doc, n: d.ranges, phase: sheaf.PhaseRanges}
		if d.ranges > sheaf.BulkRanges {
			h.phase = sheaf.PhaseBulk
		}
		s.add(t.doc, h, false)
	case parse:
		s.folds(float64(t.pages) * s.Times.ms(keeperPage))
		if d.left--; d.left == 0 {
			s.add(t.doc, hints{place: d.place, due: s.now, doc: t.doc, n: 1, phase: sheaf.PhaseFinish}, true)
		}
	case finalize:
		s.folds(s.Times.ms(keeperDocument) / 2)
		s.inSystem(-1)
		s.out.last = s.now
		if s.counts() {
			took := s.now - d.uploaded
			s.out.pages += float64(d.pages)
			s.out.done++
			s.out.residence += took
			s.out.found[d.lane-1].add(took)
			s.out.foundIn[s.class(d.tenant)].add(took)
			s.out.perTenant[d.tenant]++
		}
		s.docs.remove(t.doc)
	}
}

// folds is a keeper's work on a document's progress; nothing waits for it.
func (s *sim) folds(work float64) {
	if end := s.keepers.use(s, work); s.counts() {
		s.out.folds.add(end - s.now)
	}
}

func (s *sim) class(tenant int32) int {
	for i, to := range s.classes {
		if tenant < to {
			return i
		}
	}
	return len(s.classes)
}

// feedFollows has the feed look soon after a change, as keeper.run does.
func (s *sim) feedFollows() {
	f := &s.feed
	if f.running || f.follows { // one more scan is due, whatever this one sees
		f.changed = true
		return
	}
	f.follows = true
	took := f.took - min(f.took, (s.now-f.ended)/4)
	at := s.now + min(max(followPause, 4*took), f.limit)
	if f.at == 0 || at < f.at {
		s.feedAt(at)
	}
}

func (s *sim) feedAt(at float64) {
	s.feed.timer++
	s.feed.at = at
	s.at(at, feedBegins, s.feed.timer)
}

func (s *sim) feedBegins() {
	f := &s.feed
	f.running, f.follows, f.at = true, false, 0
	f.begun, f.most = s.now, 0
	if f.to >= int32(len(s.queue.tenants)) {
		f.to = 0
	}
	s.feedReads()
}

// feedReads starts the next slice of tenants with a backlog.
func (s *sim) feedReads() {
	f := &s.feed
	f.read = f.read[:0]
	tenants, deep, hints := 0, 0, int32(0)
	for ; int(f.to) < len(s.queue.tenants) && tenants < feedTenants && deep < deepSlice; f.to++ {
		t := &s.queue.tenants[f.to]
		if t.backlog == 0 {
			continue
		}
		tenants++
		if t.backlog > fewTasks {
			deep++
		}
		if t.unfed > 0 {
			hints += min(t.unfed, int32(s.Window))
			f.read = append(f.read, [2]int32{f.to, t.unfed})
		}
	}
	took := s.Times.ms(feedPass) + float64(tenants)*s.Times.ms(feedTenant) + float64(hints)*s.Times.ms(feedHint)
	// Most of that time the keeper waits for the database, and for Redis while it
	// publishes.
	s.at(max(s.now+took, s.database.use(s, took/2)), feedSlice, 0)
}

func (s *sim) feedSlice() {
	f := &s.feed
	for _, of := range f.read {
		fed, most := s.queue.feed(of[0], int32(s.Window), of[1])
		f.most = max(f.most, most)
		if fed > 0 {
			s.inQueue(fed)
			s.wake(fed)
		}
	}
	whole := int(f.to) >= len(s.queue.tenants)
	if !whole && s.now-f.begun <= feedTime {
		s.feedReads()
		return
	}
	f.running, f.ended, f.took = false, s.now, s.now-f.begun
	if s.counts() && f.took > feedEvery {
		f.busy += f.took
	}
	if !whole {
		f.limit = feedEvery
		if f.changed {
			f.changed = false
			s.feedFollows()
		} else {
			s.feedAt(s.now + .02)
		}
		return
	}
	f.longest = max(f.longest, f.took)
	// See keeper.halfEmptyIn.
	empty := 0.0
	switch window := int32(s.Window); {
	case f.most == 0 || f.fedAt == 0:
	case f.most >= window:
		empty = (s.now - f.fedAt) / 4
	default:
		empty = (s.now - f.fedAt) * float64(window) / float64(2*f.most)
	}
	f.fedAt, f.limit = s.now, feedEvery
	if empty > 0 {
		f.limit = max(followPause, f.took, empty)
	}
	if f.changed {
		f.changed = false
		s.feedFollows()
		return
	}
	for i := range s.queue.tenants {
		if s.queue.tenants[i].unfed > 0 {
			s.feedAt(s.now + min(feedEvery, f.limit))
			return
		}
	}
}

// histogram counts times in logarithmic steps of a twentieth.
type histogram struct {
	n     int
	steps []int32
}

const (
	leastTime = 1e-4
	timeStep  = .05
	timeSteps = 480
)

func (h *histogram) add(seconds float64) {
	if h.steps == nil {
		h.steps = make([]int32, timeSteps)
	}
	i := 0
	if seconds > leastTime {
		i = min(int(math.Log(seconds/leastTime)/timeStep)+1, timeSteps-1)
	}
	h.n++
	h.steps[i]++
}

// at returns a quantile in seconds; 0 if there are no values.
func (h *histogram) at(q float64) float64 {
	left := int(q * float64(h.n))
	for i, n := range h.steps {
		if left -= int(n); left < 0 {
			return leastTime * math.Exp((float64(i)-.5)*timeStep)
		}
	}
	return 0
}
