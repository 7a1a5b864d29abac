// Package watch connects the store's event log with its watchers. One follower per
// process reads the log once and passes each event to the subscriptions that select
// it; whatever else a watcher is shown, a job or a list, is read once for all its
// watchers and cached until an event touches it. The cost of watchers to a process
// is limited, however many there are: a subscription that falls behind is cut off,
// and resumes from the last event it delivered.
package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/batching"
	"sheaf/internal/notify"
	"sheaf/taskstore"
)

// Log is the hub's view of the store.
type Log interface {
	// FollowEvents reads the log of all tenants after seq, oldest first, up to the
	// point before which nothing can still appear.
	FollowEvents(ctx context.Context, after int64, limit int) ([]sheaf.Event, error)
	// FollowFrom returns a recent position in the log to start following from.
	FollowFrom(ctx context.Context) (int64, error)
	// Touched returns the scopes of the events after seq, including those that
	// FollowEvents holds back, and the number of the newest event. It returns at
	// most limit scopes; after < 0 requests only the number.
	Touched(ctx context.Context, after int64, limit int) (of []taskstore.EventScope, newest int64, err error)
}

// Config configures a hub; the zero value of each field but Log is ready to use.
type Config struct {
	Log Log
	// Changed is signaled when this process changed something, and Changes when
	// another did, until ctx ends. nil: the log is only polled.
	Changed notify.Signal
	Changes func(ctx context.Context) <-chan struct{}
	Encode  func(sheaf.Event) []byte // encodes an event for subscriptions; nil: they receive it without
	Poll    time.Duration            // between reads of a growing log; 0 means 100 ms
	Idle    time.Duration            // between reads of an idle log, without a notification; 0 means 500 ms
	Queue   int                      // maximum lag of a subscription in events; 0 means 2,000
	Logger  *slog.Logger             // nil means slog.Default
}

const (
	readLimit = 1000                  // events per read
	perWatch  = time.Millisecond      // added to the read interval per subscription, since each read may wake all of them
	maxPoll   = time.Second           // between reads of a growing log, however many subscriptions there are
	readTime  = 10 * time.Second      // per read
	tooOld    = 10 * time.Second      // after that long without a read, what was touched no longer matters
	lookPause = 10 * time.Millisecond // between checks of the log for readers, each of which serves those who arrived meanwhile
	maxScopes = 5000                  // per check; beyond that everything counts as touched

	// A process pays for each answer written to a watcher, so with many watchers it
	// writes to each less often.
	unpaced    = 20                   // subscriptions that are served at once
	pacePer    = 6 * time.Millisecond // added per further subscription to the time between two answers to any
	maxPace    = 3 * time.Second
	mergedFrom = time.Second // pace from which superseded events are dropped
)

// Hub is the follower of a process. It is safe for concurrent use.
type Hub struct {
	cfg   Config
	wake  notify.Signal
	syncs *batching.Group[struct{}, error]

	mu        sync.Mutex
	groups    map[string]map[taskstore.EventScope]*group // by tenant
	watching  int                                        // number of subscriptions
	following bool                                       // cursor is current, or soon will be
	cursor    int64                                      // the last event delivered

	look     sync.Mutex // held while checking the log for touched scopes
	seen     int64      // the newest event at that time
	lookedAt time.Time

	snapshots
}

// group is the subscriptions of one tenant that select the same events, such as all
// that follow one job. Events are matched once for all of them.
type group struct {
	subs    map[*Subscription]struct{}
	events  []Item // of the current read
	touched bool   // events will follow
}

// Subscription receives the events of one tenant that match a filter.
type Subscription struct {
	hub    *Hub
	tenant string
	of     taskstore.EventScope // what it selects: "" matches any
	// Ready is signaled when there is something to Take, and when events will
	// follow later, whose subjects have already changed.
	Ready notify.Signal
	// Filling is signaled when half of the queue is in use: a watcher waiting for
	// its Pace should then take what there is.
	Filling notify.Signal

	mu     sync.Mutex
	queue  [][]Item // shared within the group
	queued int      // items in it
	lost   bool
}

// Item is one event, encoded once for all subscriptions.
type Item struct {
	Seq  int64
	Data []byte

	subject string // the task or document whose state it reports, "" for other events
	passing bool   // superseded by any later state of the subject
}

// itemOf encodes an event.
func (h *Hub) itemOf(e *sheaf.Event) *Item {
	it := &Item{Seq: e.Seq, Data: h.cfg.Encode(*e)}
	switch e.Kind {
	case sheaf.EventMessage, sheaf.EventOutput:
	case sheaf.EventDocument:
		var change sheaf.DocumentChange
		it.subject = e.DocumentID
		it.passing = json.Unmarshal(e.Detail, &change) == nil && !change.State.Terminal()
	default:
		it.subject = e.TaskID
		it.passing = e.Kind == sheaf.EventClaimed || e.Kind == sheaf.EventProgress
	}
	return it
}

// newest removes, in place, items superseded by a later item of the same subject.
// The last item always stays, so that a watcher resumes after it.
func newest(items []Item) []Item {
	later := make(map[string]struct{}, len(items))
	at := len(items)
	for i, it := range slices.Backward(items) {
		_, superseded := later[it.subject]
		if it.subject != "" {
			later[it.subject] = struct{}{}
		}
		if !superseded || !it.passing {
			at--
			items[at] = items[i]
		}
	}
	n := copy(items, items[at:])
	clear(items[n:])
	return items[:n]
}

// New creates a hub; Run starts following.
func New(cfg Config) *Hub {
	cfg.Poll = cmp.Or(cfg.Poll, 100*time.Millisecond)
	cfg.Idle = max(cmp.Or(cfg.Idle, 500*time.Millisecond), cfg.Poll)
	cfg.Queue = cmp.Or(cfg.Queue, 2000)
	if cfg.Encode == nil {
		cfg.Encode = func(sheaf.Event) []byte { return nil }
	}
	if cfg.Changed == nil {
		cfg.Changed = notify.NewSignal()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	h := &Hub{cfg: cfg, wake: cfg.Changed, groups: map[string]map[taskstore.EventScope]*group{}, seen: -1}
	h.snapshots.entries = map[Scope]*entry{}
	h.syncs = batching.New(batching.Config[struct{}]{Max: 10_000, Timeout: readTime}, func(ctx context.Context, asked []struct{}) []error {
		h.look.Lock()
		wait := lookPause - time.Since(h.lookedAt)
		h.look.Unlock()
		time.Sleep(wait)
		err := h.markTouched(ctx)
		errs := make([]error, len(asked))
		for i := range errs {
			errs[i] = err
		}
		return errs
	})
	return h
}

// Notify signals that the log may have grown. It never blocks.
func (h *Hub) Notify() { h.wake.Notify() }

// Subscribe starts after the event that it returns: earlier ones are read from the
// store, later ones are received, until Close.
func (h *Hub) Subscribe(ctx context.Context, tenantID string, f taskstore.EventFilter) (*Subscription, int64, error) {
	s := &Subscription{hub: h, tenant: tenantID, of: taskstore.EventScope{DatasetID: f.DatasetID, DocumentID: f.DocumentID, JobID: f.JobID}, Ready: notify.NewSignal(), Filling: notify.NewSignal()}
	from := int64(-1)
	for {
		h.mu.Lock()
		if h.following || from >= 0 {
			if !h.following {
				h.following, h.cursor = true, from
			}
			if h.groups[tenantID] == nil {
				h.groups[tenantID] = map[taskstore.EventScope]*group{}
			}
			g := h.groups[tenantID][s.of]
			if g == nil {
				g = &group{subs: map[*Subscription]struct{}{}}
				h.groups[tenantID][s.of] = g
			}
			g.subs[s] = struct{}{}
			h.watching++
			from = h.cursor
			h.mu.Unlock()
			h.wake.Notify()
			return s, from, nil
		}
		h.mu.Unlock()
		var err error
		if from, err = h.cfg.Log.FollowFrom(ctx); err != nil {
			return nil, 0, err
		}
	}
}

// Close ends the subscription. It may be called twice.
func (s *Subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.groups[s.tenant][s.of]
	if g == nil {
		return
	}
	if _, there := g.subs[s]; !there {
		return
	}
	delete(g.subs, s)
	if len(g.subs) == 0 {
		delete(h.groups[s.tenant], s.of)
	}
	if len(h.groups[s.tenant]) == 0 {
		delete(h.groups, s.tenant)
	}
	h.watching--
}

// Take returns the events since the last call. lost means that the subscription
// fell behind: it receives nothing more. With many watchers, events superseded by a
// later one of the same task or document are omitted; final states never are.
func (s *Subscription) Take() (items []Item, lost bool) {
	merged := s.hub.Pace() >= mergedFrom
	s.mu.Lock()
	defer s.mu.Unlock()
	items = slices.Concat(s.queue...) // a copy: the queue is shared with the group
	s.queue, s.queued = nil, 0
	if merged {
		items = newest(items)
	}
	return items, s.lost
}

// Pace is the time to leave between two answers to one watcher, 0 with few watchers.
func (h *Hub) Pace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pace()
}

// pace is Pace; h.mu is held.
func (h *Hub) pace() time.Duration {
	return min(time.Duration(max(h.watching-unpaced, 0))*pacePer, maxPace)
}

// push delivers the events of a read, which must not be modified afterwards; it
// wakes the watcher even if there are none. h.mu is held.
func (s *Subscription) push(events []Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, before := s.hub.cfg.Queue, s.queued
	switch {
	case len(events) == 0 || s.lost:
	case before+len(events) > most:
		s.queue, s.queued, s.lost = nil, 0, true
	default:
		s.queue = append(s.queue, events)
		if s.queued += len(events); before < most/2 && s.queued >= most/2 {
			s.Filling.Notify()
		}
	}
	s.Ready.Notify()
}

// selects reports whether events of scope e are among those selected by f.
func selects(f, e taskstore.EventScope) bool {
	return (f.DatasetID == "" || f.DatasetID == e.DatasetID) && (f.DocumentID == "" || f.DocumentID == e.DocumentID) && (f.JobID == "" || f.JobID == e.JobID)
}

// Run follows the log while there are subscriptions, until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	var changes <-chan struct{}
	if h.cfg.Changes != nil {
		changes = h.cfg.Changes(ctx)
	}
	timer := time.NewTimer(h.cfg.Idle)
	defer timer.Stop()
	failing := false
	var readAt time.Time
	for {
		select {
		case <-h.wake:
		case _, open := <-changes:
			if !open {
				changes = nil
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		watching := h.watching
		if watching == 0 {
			h.following = false
		}
		h.mu.Unlock()
		if watching == 0 {
			timer.Reset(time.Hour) // Subscribe wakes
			continue
		}
		// Events within the poll interval are read together.
		interval := min(h.cfg.Poll+time.Duration(watching)*perWatch, max(maxPoll, h.cfg.Poll))
		if wait := interval - time.Since(readAt); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
		readAt = time.Now()
		grew, err := h.read(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			h.cfg.Logger.Warn("the log of events cannot be followed; watchers wait until it can be", "error", err)
		}
		failing = err != nil
		next := h.cfg.Idle
		if grew {
			next = interval
		}
		timer.Reset(next)
	}
}

// read delivers what the log holds beyond the cursor, and reports whether there was
// anything.
func (h *Hub) read(ctx context.Context) (grew bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if err := h.markTouched(ctx); err != nil {
		return false, err
	}
	for {
		h.mu.Lock()
		cursor := h.cursor
		h.mu.Unlock()
		events, err := h.cfg.Log.FollowEvents(ctx, cursor, readLimit)
		if err != nil || len(events) == 0 {
			return grew, err
		}
		grew = true
		h.mu.Lock()
		for i := range events {
			h.sort(&events[i])
		}
		h.handOut()
		h.cursor = events[len(events)-1].Seq
		h.mu.Unlock()
		if len(events) < readLimit {
			return grew, nil
		}
	}
}

// sort adds an event to the groups that select it; h.mu is held.
func (h *Hub) sort(e *sheaf.Event) {
	scope := taskstore.EventScope{TenantID: e.TenantID, DatasetID: e.DatasetID, JobID: e.JobID, DocumentID: e.DocumentID}
	h.touch(scope)
	var it *Item
	for want, g := range h.groups[e.TenantID] {
		if !selects(want, scope) {
			continue
		}
		if it == nil {
			it = h.itemOf(e)
		}
		g.events = append(g.events, *it)
	}
}

// handOut delivers each group's events: with many watchers, without superseded
// ones. h.mu is held.
func (h *Hub) handOut() {
	merged := h.pace() >= mergedFrom
	for _, groups := range h.groups {
		for _, g := range groups {
			if len(g.events) == 0 && !g.touched {
				continue
			}
			if merged {
				g.events = newest(g.events)
			}
			for s := range g.subs {
				s.push(g.events)
			}
			g.events, g.touched = nil, false
		}
	}
}

// markTouched checks the log for changes since the last check: cached snapshots are
// outdated, and subscriptions learn that there is more than the events that can be
// delivered so far.
func (h *Hub) markTouched(ctx context.Context) error {
	h.look.Lock()
	defer h.look.Unlock()
	began, after := time.Now(), h.seen
	if began.Sub(h.lookedAt) > tooOld {
		after = -1
	}
	of, newest, err := h.cfg.Log.Touched(ctx, after, maxScopes)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if after < 0 || len(of) == maxScopes {
		h.touchAll()
	}
	for _, scope := range of {
		h.touch(scope)
		for want, g := range h.groups[scope.TenantID] {
			g.touched = g.touched || selects(want, scope)
		}
	}
	h.handOut()
	h.seen, h.lookedAt = newest, began
	return nil
}
