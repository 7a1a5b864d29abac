// Package sqlqueue is the queue of deployments that have a database and nothing
// else: it stands between the store and the executors of one process, reads
// pending tasks straight from taskstore.Feed, and decides in memory whose turn it is.
// Several processes may each have one over the same database; the guarded claim
// settles it when two hand out the same task.
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

// Config adjusts a queue; the zero value is ready to use.
type Config struct {
	DefaultCap int           // of tenants for which the store names none; 0 means 8
	AgeAfter   time.Duration // a task pending for longer counts one lane higher; 0 means 10 min, negative never
	HintTTL    time.Duration // a hint neither acked nor recovered is handed out again after this; 0 means 1 min
	TenantsTTL time.Duration // how long the list of tenants with work is used without a notification; 0 means 250 ms
	MaxTaken   int           // hints out and not acked, all workers together; 0 means 10,000
	Executors  notify.Remote // of Notify; nil: notifications stay inside the process. The owner closes it after the queue.
	Keeper     notify.Remote // the same for NotifyChange
	Log        *slog.Logger  // nil means slog.Default
}

const (
	stride  = 1000.0 // virtual time that one unit of cost takes at weight 1
	maxRead = 1024   // rows that one read of a tenant's tasks may ask for
)

// Queue implements queue.Queue over a Feed. While nothing happens it runs no
// query: only a notification, a wait that ran its time, or a tenant known to have work
// makes Take look at the store.
type Queue struct {
	feed taskstore.Feed
	cfg  Config

	turn chan struct{} // holds a token while no Take is at work: Takes of one process go one after the other

	mu      sync.Mutex
	tenants map[string]*tenant
	ready   tenantHeap // tenants that may have work, least pass first
	vt      float64    // virtual time: the pass of the latest tenant served
	taken   map[string]*taken
	unacked int           // entries of taken that are not running
	dirty   bool          // the store may hold work that ready does not know of
	readAt  time.Time     // of the list of tenants
	pending bool          // a notification that no Wait has received
	wakeup  chan struct{} // closed by the next notification
	closed  chan struct{}

	cancels notify.Subscribers[string]
	changes notify.Subscribers[struct{}]
}

// tenant is the schedule of one tenant. pass survives a spell without work for
// as long as it is ahead of the virtual time, so that nobody sheds what it owes
// by going empty; a tenant behind it starts at the virtual time, so that nobody
// saves up either.
type tenant struct {
	id      string
	weight  float64
	cap     int
	running int     // by the store, when it was last read
	extra   int     // handed out here and perhaps not among running
	pass    float64 // in units of stride
	index   int     // in ready, -1 when not there
	capped  bool    // left ready because it was at its cap
	freed   bool    // a task that may be among running has ended since
	turns   queue.Turns
}

// taken is a hint that was handed out. It is forgotten when it is spent, or when
// its task runs and a read of the store has counted it.
type taken struct {
	hint    sheaf.Hint
	worker  string
	at      time.Time
	running bool // acked: a read of the store that begins now counts it
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
		dirty:   true, // what was pending before the start
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

// receive passes on in this process what others notify of.
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

// Publish notifies executors: the hints are in the store already.
func (q *Queue) Publish(ctx context.Context, tenantID string, lane sheaf.Lane, hints []sheaf.Hint) (int, error) {
	if len(hints) == 0 {
		return 0, nil
	}
	return len(hints), q.Notify(ctx)
}

// SetShare reads the shares again with the next Take: the store holds them.
func (q *Queue) SetShare(ctx context.Context, tenantID string, weight, cap int) error {
	q.notifyLocal()
	return nil
}

// Take picks the tenant that is furthest behind its share, reads what it should
// run next, and charges it, until the slots are full or nobody has work.
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
	if q.dirty || time.Since(q.readAt) > q.cfg.TenantsTTL {
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
			// The count of the store may be behind what has ended here; one
			// read brings it up to date, and t back if it has headroom. What has
			// ended since then is for the next call.
			switch {
			case t.freed && reread:
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
			if len(skip) > 0 {
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
	return got, nil
}

// keep returns what was handed out before err: the next call will meet it again.
func keep(got []sheaf.Hint, err error) ([]sheaf.Hint, error) {
	if len(got) > 0 {
		return got, nil
	}
	return nil, err
}

// readTenants brings the schedule up to date with the store. It gives mu up
// while the query runs.
func (q *Queue) readTenants(ctx context.Context) error {
	// What is notified or ends during the query must count.
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
	loads, err := q.feed.RunnableTenants(ctx)
	q.mu.Lock()
	if err != nil {
		q.dirty = true
		return err
	}

	q.readAt = time.Now()
	// What was acked before the query began is in the store's count. What was
	// handed out or acked since may or may not be: it counts twice until the
	// next read rather than not at all.
	for _, k := range before {
		if q.taken[k.hint.TaskID] == k {
			delete(q.taken, k.hint.TaskID)
		}
	}
	q.ready = q.ready[:0]
	for _, t := range q.tenants {
		t.index, t.extra, t.running, t.capped = -1, 0, 0, false
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
		t.pass = max(t.pass, q.vt)
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

// list is what a tenant should run next, as far as it was read: all, or as much
// as there were slots and headroom under the cap for. Both may grow meanwhile.
type list struct {
	hints []sheaf.Hint // whichever turn it is, the next left of them are here
	left  int          // hints that may be taken
	all   bool
}

// readTasks reads what is needed to hand out want tasks that t should run next,
// without those that are out and those that the worker skips. It gives mu up
// while a query runs.
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
		more := false // of a list whose head was all out or skipped
		for of, n := range read {
			more = more || n >= limit && remaining[of] < want
		}
		if !more || limit == maxRead {
			return list{hints, min(want, len(hints)), len(hints) < want}, nil
		}
		limit = min(4*limit, maxRead)
	}
}

// head is one of the lists that Feed.Runnable limits by itself.
type head struct {
	lane sheaf.Lane
	last sheaf.Phase
}

func headOf(h sheaf.Hint) head { return head{h.Lane, max(h.Phase, sheaf.PhaseRanges)} }

// tenant finds or makes the schedule of a tenant, new ones at the virtual time.
func (q *Queue) tenant(id string) *tenant {
	t := q.tenants[id]
	if t == nil {
		t = &tenant{id: id, weight: 1, cap: q.cfg.DefaultCap, pass: q.vt, index: -1}
		q.tenants[id] = t
	}
	return t
}

// push makes t wait for its next turn, unless a read put it there meanwhile.
func (q *Queue) push(t *tenant) {
	if t.index < 0 && q.tenants[t.id] == t {
		heap.Push(&q.ready, t)
	}
}

// hand records that the worker has h.
func (q *Queue) hand(workerID string, h sheaf.Hint, t *tenant) {
	q.forget(h.TaskID) // of an attempt whose end nobody reported yet
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

// full says that t is at its cap, as far as is known here.
func (t *tenant) full() bool { return t.running+t.extra >= t.cap }

// free notes that a place under t's cap may be free, before it is counted as such.
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

// expire gives up hints that nobody acked, so that the store's word counts again.
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

// Ack ends the time in which a task is not handed out again. If it does not
// run, the store decides whether it comes back.
func (q *Queue) Ack(ctx context.Context, h sheaf.Hint, running bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.taken[h.TaskID]
	switch {
	case k == nil:
	case !running:
		q.forget(h.TaskID)
		if t := q.tenants[h.TenantID]; t == nil || t.index < 0 {
			q.dirty = true // it may still be pending, and nobody would look
		}
	case !k.running:
		k.running = true
		q.unacked--
	}
	return nil
}

// Done frees the task's place under the cap.
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

// Recover hands hints of workers of this process that sit on them to workerID.
// What a process took that is gone comes back by itself: the store still has it
// pending, and no memory is left that would hold it back.
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

// Wait blocks until a notification, for d at most. A wait that ran its time makes the
// next Take look at the store, for work that nobody notified of.
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

// Notify wakes executors here, and in other processes if there is a remote.
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

// signal wakes everybody who waits and leaves one notification for a waiter that was
// between Take and Wait; received in vain it costs a Take that runs no query.
func (q *Queue) signal() {
	q.dirty = true
	q.wake()
}

// wake is signal for what the schedule here knows of: the store need not be read.
func (q *Queue) wake() {
	q.pending = true
	close(q.wakeup)
	q.wakeup = make(chan struct{})
}

// SignalCancel reaches the subscribers in this process. Other processes learn of
// it with their next heartbeat.
func (q *Queue) SignalCancel(ctx context.Context, taskIDs []string) error {
	for _, id := range taskIDs {
		q.cancels.Notify(id) // a subscriber far behind learns it by heartbeat
	}
	return nil
}

// Cancels receives the ids that SignalCancel names from now on.
func (q *Queue) Cancels(ctx context.Context) <-chan string {
	return q.cancels.Subscribe(ctx, 1024)
}

// NotifyChange reaches the subscribers in this process, and in others if there
// is a remote for it.
func (q *Queue) NotifyChange(ctx context.Context) error {
	q.changes.Notify(struct{}{})
	if q.cfg.Keeper == nil {
		return nil
	}
	return q.cfg.Keeper.Notify(ctx)
}

// Changes receives from now on.
func (q *Queue) Changes(ctx context.Context) <-chan struct{} { return q.changes.Subscribe(ctx, 1) }

// Reconcile reads the store's own count again with the next Take.
func (q *Queue) Reconcile(ctx context.Context, running map[string][]string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dirty = true
	return nil
}

// RunIDs is nil: what the queue knows it reads from the store.
func (q *Queue) RunIDs(ctx context.Context) (map[sheaf.Lane]string, error) { return nil, nil }

// Depths reports what is taken; what waits is in the store, which counts it.
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

// Leave gives back what the worker took and did not ack.
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

// Ping succeeds: the store, which the queue reads, answers for itself.
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

// tenantHeap orders tenants by pass, equal ones by id.
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
