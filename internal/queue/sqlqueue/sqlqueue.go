// Package sqlqueue is the queue of deployments that have only a database. It sits
// between the store and the executors of one process, reads pending tasks directly
// from taskstore.Feed, and decides in memory whose turn it is. Several processes may
// each have one over the same database; the guarded claim decides when two hand out
// the same task.
package sqlqueue

import (
	"container/heap"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/notify"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

var _ queue.Queue = (*Queue)(nil)

// Config configures a queue; the zero value is ready to use.
type Config struct {
	DefaultCap int           // for tenants whose cap the store does not set; 0 means 8
	AgeAfter   time.Duration // a task pending for longer counts one lane higher; 0 means 10 min, negative means never
	HintTTL    time.Duration // a hint neither acked nor recovered is handed out again after this; 0 means 1 min
	TenantsTTL time.Duration // how long the list of tenants with work is used without a notification; 0 means 250 ms
	MaxTaken   int           // maximum unacked hints over all workers; 0 means 10,000
	Executors  notify.Remote // for Notify; nil: notifications stay in the process. The owner closes it after the queue.
	Keeper     notify.Remote // for NotifyChange, likewise
	Log        *slog.Logger  // nil means slog.Default
}

const (
	stride  = 1000.0 // virtual time per unit of cost at weight 1
	maxRead = 1024   // maximum rows per read of a tenant's tasks

	longList  = 500 // tenants with work of which the list takes long to read
	readShare = 10  // a long list is read at most that part of the time, while work is known
)

// Queue implements queue.Queue over a Feed. While idle it runs no queries: only a
// notification, an expired wait, or a tenant known to have work makes Take read the
// store.
type Queue struct {
	feed taskstore.Feed
	cfg  Config

	turn chan struct{} // holds a token while no Take is running: Takes of one process are serialized

	mu      sync.Mutex
	tenants map[string]*tenant
	ready   tenantHeap // tenants that may have work, lowest pass first
	vt      float64    // virtual time: highest pass served
	taken   map[string]*taken
	unacked int           // entries of taken that are not running
	dirty   bool          // the store may hold work unknown to ready
	readAt  time.Time     // when the list of tenants was read
	reading time.Duration // how long that took
	listed  int           // how many there were
	pending bool          // a notification not yet received by a Wait
	wakeup  chan struct{} // closed by the next notification
	closed  chan struct{}

	cancels notify.Subscribers[string]
	changes notify.Subscribers[struct{}]
}

// tenant is the schedule of one tenant. pass survives a period without work as long
// as it is ahead of the virtual time, so that no tenant sheds its debt by going
// empty. A tenant without work restarts at the virtual time, so that none saves up
// credit either; one that its cap kept waiting stays behind it by up to
// queue.MaxCredit.
type tenant struct {
	id      string
	weight  float64
	cap     int
	running int     // according to the store's last read
	extra   int     // handed out here and possibly not among running
	pass    float64 // in units of stride
	index   int     // in ready, -1 if absent
	capped  bool    // removed from ready because it was at its cap
	works   bool    // has work, as far as is known here
	freed   bool    // a task that may be among running has ended since
	turns   queue.Turns
}

// taken is a hint that was handed out. It is forgotten when it is spent, or when its
// task runs and a read of the store has counted it.
type taken struct {
	hint    sheaf.Hint
	worker  string
	at      time.Time
	running bool // acked: a store read that starts now counts it
}

// New makes a queue over feed.
func New(feed taskstore.Feed, cfg Config) *Queue {
	if cfg.DefaultCap <= 0 {
		cfg.DefaultCap = 8
	}
	if cfg.AgeAfter == 0 {
		cfg.AgeAfter = 10 * time.Minute
	}
	cfg.AgeAfter = max(cfg.AgeAfter, 0)
	if cfg.HintTTL <= 0 {
		cfg.HintTTL = time.Minute
	}
	if cfg.TenantsTTL <= 0 {
		cfg.TenantsTTL = 250 * time.Millisecond
	}
	if cfg.MaxTaken <= 0 {
		cfg.MaxTaken = 10_000
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	q := &Queue{
		feed:    feed,
		cfg:     cfg,
		turn:    make(chan struct{}, 1),
		tenants: make(map[string]*tenant),
		taken:   make(map[string]*taken),
		dirty:   true, // for tasks pending before the start
		wakeup:  make(chan struct{}),
		closed:  make(chan struct{}),
	}
	q.turn <- struct{}{}
	if cfg.Executors != nil {
		go q.receive(cfg.Executors, q.notifyLocal)
	}
	if cfg.Keeper != nil {
		go q.receive(cfg.Keeper, func() { q.changes.Notify(struct{}{}) })
	}
	return q
}

// receive passes on other processes' notifications in this process.
func (q *Queue) receive(from notify.Remote, local func()) {
	for {
		select {
		case <-q.closed:
			return
		case _, open := <-from.Notifications():
			if !open {
				return
			}
			local()
		}
	}
}

// Publish notifies executors; the hints are already in the store.
func (q *Queue) Publish(ctx context.Context, tenantID string, lane sheaf.Lane, hints []sheaf.Hint) (int, error) {
	if len(hints) == 0 {
		return 0, nil
	}
	return len(hints), q.Notify(ctx)
}

// SetShare makes the next Take reread the shares, which are in the store.
func (q *Queue) SetShare(ctx context.Context, tenantID string, weight, cap int) error {
	q.notifyLocal()
	return nil
}

// Take picks the tenant that is furthest behind its share, reads its next tasks, and
// charges it, until the slots are full or there is no more work.
func (q *Queue) Take(ctx context.Context, workerID string, slots int, skip []sheaf.TaskKind) ([]sheaf.Hint, error) {
	if slots <= 0 {
		return nil, nil
	}
	select {
	case <-q.turn:
		defer func() { q.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire()
	slots = min(slots, q.cfg.MaxTaken-q.unacked)
	if slots <= 0 || !q.dirty && len(q.ready) == 0 {
		return nil, nil
	}
	if q.stale() {
		if err := q.readTenants(ctx); err != nil {
			return nil, err
		}
	}

	var (
		got    []sheaf.Hint
		aside  []*tenant // have only work that this worker skips
		lists  = make(map[*tenant]list)
		reread bool
	)
	defer func() {
		for _, t := range aside {
			q.push(t)
		}
	}()
	for len(got) < slots && len(q.ready) > 0 {
		t := heap.Pop(&q.ready).(*tenant)
		if t.full() {
			t.capped = true
			// The store's count may lag behind what has ended here; one read updates
			// it, and returns t if it has headroom. Tasks that ended since are for the
			// next call.
			switch {
			case t.freed && (reread || len(q.ready) > 0 && !q.affordable()):
				q.signal()
			case t.freed:
				reread = true
				if err := q.readTenants(ctx); err != nil {
					return keep(got, err)
				}
			}
			continue
		}
		l := lists[t]
		// guard: capacity: what a cap withheld is read again when it has headroom
		if l.left == 0 && !l.all {
			var err error
			if l, err = q.readTasks(ctx, t, slots-len(got), skip); err != nil {
				q.push(t)
				return keep(got, err)
			}
		}
		if l.left == 0 {
			if t.works = len(skip) > 0; t.works {
				aside = append(aside, t)
			}
			continue // until the list of tenants is read again
		}
		h, rest := t.turns.Next(l.hints)
		lists[t] = list{rest, l.left - 1, l.all}
		q.hand(workerID, h, t)
		q.vt = max(q.vt, t.pass)
		t.pass += stride * float64(max(h.Cost, 1)) / t.weight
		q.push(t)
		got = append(got, h)
	}
	if len(q.ready) == 0 && q.dirty && q.listed >= longList {
		q.wake() // what was not worth a read is worth it now
	}
	return got, nil
}

// stale reports whether Take should read the list of tenants first.
func (q *Queue) stale() bool {
	return (q.dirty || time.Since(q.readAt) > q.cfg.TenantsTTL) && (len(q.ready) == 0 || q.affordable())
}

// affordable reports whether reading the list of tenants takes little of the time.
// With thousands of tenants it takes a tenth of a second, and each new task asks for
// it: while the list holds work, what is new can wait for ten times as long.
func (q *Queue) affordable() bool {
	return q.listed < longList || time.Since(q.readAt) >= readShare*q.reading
}

// keep returns what was handed out before err; the next call hits it again.
func keep(got []sheaf.Hint, err error) ([]sheaf.Hint, error) {
	if len(got) > 0 {
		return got, nil
	}
	return nil, err
}

// readTenants updates the schedule from the store. It unlocks mu during the query.
func (q *Queue) readTenants(ctx context.Context) error {
	// Notifications and ends during the query must count.
	q.dirty = false
	for _, t := range q.tenants {
		t.freed = false
	}
	var before []*taken
	for _, k := range q.taken {
		if k.running {
			before = append(before, k)
		}
	}
	q.mu.Unlock()
	begun := time.Now()
	loads, err := q.feed.RunnableTenants(ctx)
	q.mu.Lock()
	if err != nil {
		q.dirty = true
		return err
	}

	q.readAt, q.listed = time.Now(), len(loads)
	q.reading = q.readAt.Sub(begun)
	// What was acked before the query started is in the store's count. What was handed
	// out or acked since may or may not be: until the next read it counts twice rather
	// than not at all.
	for _, k := range before {
		if q.taken[k.hint.TaskID] == k {
			delete(q.taken, k.hint.TaskID)
		}
	}
	q.ready = q.ready[:0]
	for _, t := range q.tenants {
		q.bound(t)
		t.index, t.extra, t.running, t.capped, t.works = -1, 0, 0, false, false
	}
	for _, k := range q.taken {
		q.tenant(k.hint.TenantID).extra++
	}
	for _, l := range loads {
		t := q.tenant(l.TenantID)
		t.weight, t.cap, t.running = float64(max(l.Weight, 1)), l.Cap, l.Running
		if t.cap <= 0 {
			t.cap = q.cfg.DefaultCap
		}
		t.works = true
		if t.index < 0 {
			t.index = len(q.ready)
			q.ready = append(q.ready, t)
		}
	}
	heap.Init(&q.ready)
	for id, t := range q.tenants {
		if t.index < 0 && t.extra == 0 && t.pass <= q.vt {
			delete(q.tenants, id)
		}
	}
	return nil
}

// list is a tenant's next tasks, as far as they were read: all of them, or as many
// as slots and cap allowed. Both limits may grow meanwhile.
type list struct {
	hints []sheaf.Hint // whatever the turns, the next left hints are among these
	left  int          // hints that may still be taken
	all   bool
}

// readTasks reads enough to hand out want of t's next tasks, excluding those already
// handed out and those the worker skips. It unlocks mu during queries.
func (q *Queue) readTasks(ctx context.Context, t *tenant, want int, skip []sheaf.TaskKind) (list, error) {
	want = min(want, t.cap-t.running-t.extra)
	limit := min(want+t.extra, maxRead)
	for {
		q.mu.Unlock()
		hints, err := q.feed.Runnable(ctx, t.id, limit, q.cfg.AgeAfter)
		q.mu.Lock()
		if err != nil {
			return list{}, err
		}
		read, remaining := map[head]int{}, map[head]int{}
		for _, h := range hints {
			read[headOf(h)]++
		}
		hints = slices.DeleteFunc(hints, func(h sheaf.Hint) bool {
			k := q.taken[h.TaskID]
			return k != nil && !k.running || slices.Contains(skip, h.Kind)
		})
		for _, h := range hints {
			remaining[headOf(h)]++
		}
		more := false // of a list whose head was all taken or skipped
		for of, n := range read {
			more = more || n >= limit && remaining[of] < want
		}
		if !more || limit == maxRead {
			return list{hints, min(want, len(hints)), len(hints) < want}, nil
		}
		limit = min(4*limit, maxRead)
	}
}

// head is one of the lists that Feed.Runnable limits separately.
type head struct {
	lane sheaf.Lane
	last sheaf.Phase
}

func headOf(h sheaf.Hint) head { return head{h.Lane, max(h.Phase, sheaf.PhaseRanges)} }

// tenant finds or makes a tenant's schedule; new ones start at the virtual time.
func (q *Queue) tenant(id string) *tenant {
	t := q.tenants[id]
	if t == nil {
		t = &tenant{id: id, weight: 1, cap: q.cfg.DefaultCap, pass: q.vt, index: -1}
		q.tenants[id] = t
	}
	return t
}

// bound limits how far t is behind the virtual time.
func (q *Queue) bound(t *tenant) {
	least := q.vt
	// guard: fairness: who was kept by its cap is still owed
	if t.works {
		least -= stride * queue.MaxCredit
	}
	t.pass = max(t.pass, least)
}

// push queues t for its next turn, unless a read did so meanwhile.
func (q *Queue) push(t *tenant) {
	if t.index < 0 && q.tenants[t.id] == t {
		heap.Push(&q.ready, t)
	}
}

// hand records that the worker has h.
func (q *Queue) hand(workerID string, h sheaf.Hint, t *tenant) {
	q.forget(h.TaskID) // of an attempt whose end was not reported yet
	q.taken[h.TaskID] = &taken{hint: h, worker: workerID, at: time.Now()}
	q.unacked++
	t.extra++
}

// forget drops a hint that was handed out.
func (q *Queue) forget(taskID string) {
	k := q.taken[taskID]
	if k == nil {
		return
	}
	delete(q.taken, taskID)
	if !k.running {
		q.unacked--
	}
	if t := q.tenants[k.hint.TenantID]; t != nil {
		q.free(t, k.running)
		t.extra--
	}
}

// full reports whether t is at its cap, as far as is known here.
func (t *tenant) full() bool { return t.running+t.extra >= t.cap }

// free records that a slot under t's cap may be free, before it is counted as such.
// running says that the store may have counted it.
func (q *Queue) free(t *tenant, running bool) {
	t.freed = t.freed || running
	// guard: filled: a place of a tenant that may have more is announced to who waits
	// Whose place it was may serve another tenant next.
	if t.capped {
		q.signal()
	} else if t.full() && t.index >= 0 {
		q.wake()
	}
}

// expire drops unacked hints after HintTTL, so that the store decides again.
func (q *Queue) expire() {
	if q.unacked == 0 {
		return
	}
	for id, k := range q.taken {
		if !k.running && time.Since(k.at) > q.cfg.HintTTL {
			q.forget(id)
			q.dirty = true
		}
	}
}

// Ack ends the time in which a task is not handed out again. If it is not running,
// the store decides whether it comes back.
func (q *Queue) Ack(ctx context.Context, h sheaf.Hint, running bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.taken[h.TaskID]
	switch {
	case k == nil:
	case !running:
		q.forget(h.TaskID)
		if t := q.tenants[h.TenantID]; t == nil || t.index < 0 {
			q.dirty = true // it may still be pending, and would be overlooked
		}
	case !k.running:
		k.running = true
		q.unacked--
	}
	return nil
}

// Done frees the task's slot under the cap.
func (q *Queue) Done(ctx context.Context, tenantID, taskID string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken[taskID] != nil {
		q.forget(taskID)
	} else if t := q.tenants[tenantID]; t != nil {
		q.free(t, true)
	}
	return nil
}

// Charge moves the tenant's next turn back. A tenant without a schedule gets one: it
// may have had its last task handed out by another process's queue.
func (q *Queue) Charge(ctx context.Context, h sheaf.Hint, cost int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenant(h.TenantID)
	q.bound(t)
	t.pass += stride * float64(cost) / t.weight
	if t.index >= 0 {
		heap.Fix(&q.ready, t.index)
	}
	return nil
}

// Recover hands idle hints of workers of this process to workerID. Hints of a dead
// process come back automatically: their tasks are still pending in the store, and
// no memory holds them back.
func (q *Queue) Recover(ctx context.Context, workerID string, minIdle time.Duration) ([]sheaf.Hint, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var hints []sheaf.Hint
	for _, k := range q.taken {
		if !k.running && time.Since(k.at) >= minIdle {
			k.worker, k.at = workerID, time.Now()
			hints = append(hints, k.hint)
		}
	}
	return hints, nil
}

// Wait blocks until a notification, for at most d. A wait that times out makes the
// next Take read the store, for work without a notification.
func (q *Queue) Wait(ctx context.Context, d time.Duration) error {
	q.mu.Lock()
	if q.pending {
		q.pending = false
		q.mu.Unlock()
		return ctx.Err()
	}
	wakeup := q.wakeup
	q.mu.Unlock()

	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wakeup:
	case <-timer.C:
		q.mu.Lock()
		q.dirty = true
		q.mu.Unlock()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Notify wakes executors here and, if there is a remote, in other processes.
func (q *Queue) Notify(ctx context.Context) error {
	q.notifyLocal()
	if q.cfg.Executors == nil {
		return nil
	}
	return q.cfg.Executors.Notify(ctx)
}

func (q *Queue) notifyLocal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.signal()
}

// signal wakes all waiters and leaves one notification for a waiter between Take and
// Wait; received in vain, it costs a Take without a query.
func (q *Queue) signal() {
	q.dirty = true
	q.wake()
}

// wake is signal for work already in the schedule: the store need not be read.
func (q *Queue) wake() {
	q.pending = true
	close(q.wakeup)
	q.wakeup = make(chan struct{})
}

// SignalCancel reaches subscribers in this process. Other processes learn of it with
// their next heartbeat.
func (q *Queue) SignalCancel(ctx context.Context, taskIDs []string) error {
	for _, id := range taskIDs {
		q.cancels.Notify(id) // a subscriber far behind learns of it by heartbeat
	}
	return nil
}

// Cancels receives the ids that SignalCancel sends from now on.
func (q *Queue) Cancels(ctx context.Context) <-chan string {
	return q.cancels.Subscribe(ctx, 1024)
}

// NotifyChange reaches subscribers in this process and, if there is a remote, in
// others.
func (q *Queue) NotifyChange(ctx context.Context) error {
	q.changes.Notify(struct{}{})
	if q.cfg.Keeper == nil {
		return nil
	}
	return q.cfg.Keeper.Notify(ctx)
}

// Changes receives from now on.
func (q *Queue) Changes(ctx context.Context) <-chan struct{} { return q.changes.Subscribe(ctx, 1) }

// Reconcile makes the next Take reread the store's own count.
func (q *Queue) Reconcile(ctx context.Context, running map[string][]string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dirty = true
	return nil
}

// RunIDs is nil: the queue has no memory apart from the store.
func (q *Queue) RunIDs(ctx context.Context) (map[sheaf.Lane]string, error) { return nil, nil }

// Depths reports what is taken; the store counts what is waiting.
func (q *Queue) Depths(ctx context.Context) ([]queue.Depth, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	type key struct {
		tenant string
		lane   sheaf.Lane
	}
	count := make(map[key]int)
	for _, k := range q.taken {
		if !k.running {
			count[key{k.hint.TenantID, k.hint.Lane}]++
		}
	}
	depths := make([]queue.Depth, 0, len(count))
	for k, n := range count {
		depths = append(depths, queue.Depth{TenantID: k.tenant, Lane: k.lane, Taken: n})
	}
	slices.SortFunc(depths, queue.CompareDepths)
	return depths, nil
}

// Leave returns the worker's unacked hints.
func (q *Queue) Leave(ctx context.Context, workerID string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	gave := false
	for id, k := range q.taken {
		if k.worker == workerID && !k.running {
			q.forget(id)
			gave = true
		}
	}
	if gave {
		q.signal()
	}
	return nil
}

// Ping succeeds: the store that the queue reads has its own check.
func (q *Queue) Ping(ctx context.Context) error { return nil }

// Close stops receiving from the remotes. It may be called twice.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.closed:
	default:
		close(q.closed)
	}
	return nil
}

// tenantHeap orders tenants by pass, ties by id.
type tenantHeap []*tenant

func (h tenantHeap) Len() int { return len(h) }
func (h tenantHeap) Less(i, j int) bool {
	if h[i].pass != h[j].pass {
		return h[i].pass < h[j].pass
	}
	return h[i].id < h[j].id
}
func (h tenantHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *tenantHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
