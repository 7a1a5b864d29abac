package watch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"sheaf/taskstore"
)

// Scope identifies what a snapshot shows, and so which events affect it: those of
// the tenant, and of the dataset, job and document if set.
type Scope struct {
	TenantID, DatasetID, JobID, DocumentID string
	What                                   string // distinguishes snapshots of the same events
	MayLag                                 bool   // even a single reader may get a slightly older snapshot if reading takes long
}

// Snapshot is the result of a store read, shared by all its readers. It must not be
// modified.
type Snapshot struct {
	Value any
	JSON  []byte
	ETag  string // of JSON, including quotes
	At    time.Time
}

const (
	maxSnapshots = 500
	keepUnused   = time.Minute
	maxAge       = 2 * time.Second // if no event touched it: a position in the queue changes with the work of others
	maxQuiet     = 4 * time.Second // the same for streams, which poll occasionally
	crowd        = 5               // readers of a snapshot per second beyond which they share a slightly older one
	restFactor   = 20              // a widely shared snapshot is being read for at most a twentieth of the time
	maxRest      = 5 * time.Second
	maxLag       = 3 * maxRest            // age at which one that lags is reread even if others take their share
	perReader    = 100 * time.Millisecond // that each reader per second adds to the age at which a crowd's snapshot is reread
	maxCrowdRest = 3 * time.Second
	shareFactor  = 20                     // all of these together for at most a twentieth of the time
	costly       = 250 * time.Millisecond // time to read from which on a snapshot lags that may
)

// snapshots are those kept by a hub. The hub's mu guards entries and their state
// relative to the log.
type snapshots struct {
	entries map[Scope]*entry
	next    time.Time // until then no snapshot is reread for readers that accept an older one
}

type entry struct {
	turn chan struct{} // holds a token while no one reads

	// Guarded by the hub's mu.
	version int64 // incremented by each touch
	forced  int64 // version of the last change through this process, whose callers must see their own changes
	used    time.Time
	lags    bool // it may, and the last read was costly

	// Guarded by turn.
	snap        *Snapshot
	shows       int64         // version when it was read
	took        time.Duration // time to read it
	second      int64         // the second in which reads are counted
	reads       int
	readsBefore int // in the previous second
}

// touch marks what shows events of a scope; h.mu is held.
func (s *snapshots) touch(e taskstore.EventScope) {
	for scope, x := range s.entries {
		if scope.TenantID == e.TenantID && selects(taskstore.EventScope{DatasetID: scope.DatasetID, JobID: scope.JobID, DocumentID: scope.DocumentID}, e) {
			x.version++
		}
	}
}

func (s *snapshots) touchAll() {
	for _, x := range s.entries {
		x.version++
	}
}

// Changed marks everything of the tenant, or of all for "", as possibly changed by
// an answered request: the next read shows the change. jobID is the job that the
// request created or added to, "" for others: snapshots of other jobs learn of such
// a request's effects from events. So do those that lag, which would otherwise be
// read all the time while files come in.
func (h *Hub) Changed(tenantID, jobID string) {
	h.mu.Lock()
	for scope, x := range h.entries {
		if (tenantID == "" || scope.TenantID == tenantID) && (jobID == "" || scope.JobID == "" || scope.JobID == jobID) {
			x.version++
			if jobID == "" || jobID == scope.JobID || !x.lags {
				x.forced = x.version
			}
		}
	}
	h.mu.Unlock()
	h.Notify()
}

// Read returns a snapshot that includes everything in the log at the time of the
// call, unless many read it at once, which then needs no statement, or the scope may
// lag: then it may be older, by maxLag at most. lag is the age of one that may lack
// changes, 0 for others. read is called if there is none, by one caller at a time.
func (h *Hub) Read(ctx context.Context, scope Scope, read func(context.Context) (any, error)) (_ *Snapshot, lag time.Duration, _ error) {
	x := h.entry(scope)
	if err := x.lock(ctx); err != nil {
		return nil, 0, err
	}
	snap := h.forCrowd(x)
	x.unlock()
	if snap != nil {
		return snap, time.Since(snap.At), nil
	}
	if err, gone := h.syncs.Do(ctx, struct{}{}); gone != nil || err != nil {
		if gone != nil {
			return nil, 0, gone
		}
		return nil, 0, err
	}
	snap, again, err := h.snapshot(ctx, scope, true, read)
	if again > 0 {
		lag = time.Since(snap.At)
	}
	return snap, lag, err
}

// Latest returns a snapshot that may lag behind the log, and in that case when to
// ask again; 0 for never.
func (h *Hub) Latest(ctx context.Context, scope Scope, read func(context.Context) (any, error)) (_ *Snapshot, again time.Duration, _ error) {
	return h.snapshot(ctx, scope, false, read)
}

// forCrowd counts a reader, and returns the snapshot that a crowd shares until it
// is too old, nil for others; x is locked.
func (h *Hub) forCrowd(x *entry) *Snapshot {
	now := time.Now()
	if s := now.Unix(); s != x.second {
		if s == x.second+1 {
			x.readsBefore = x.reads
		} else {
			x.readsBefore = 0
		}
		x.second, x.reads = s, 0
	}
	x.reads++
	h.mu.Lock()
	forced := x.forced > x.shows
	h.mu.Unlock()
	if x.snap == nil || forced || !x.crowded() || now.Sub(x.snap.At) >= x.rest() {
		return nil
	}
	return x.snap
}

// crowded reports whether many readers read the snapshot in this second or the last.
func (x *entry) crowded() bool { return max(x.reads, x.readsBefore) > crowd }

// rest is the age at which a crowd's snapshot is reread.
func (x *entry) rest() time.Duration {
	return max(min(restFactor*x.took, maxRest), min(time.Duration(max(x.reads, x.readsBefore))*perReader, maxCrowdRest))
}

func (x *entry) lock(ctx context.Context) error {
	select {
	case <-x.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *entry) unlock() { x.turn <- struct{}{} }

func (h *Hub) snapshot(ctx context.Context, scope Scope, fresh bool, read func(context.Context) (any, error)) (*Snapshot, time.Duration, error) {
	x := h.entry(scope)
	if err := x.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer x.unlock()
	now := time.Now()
	h.mu.Lock()
	version, forced, lags, shared, pace := x.version, x.forced > x.shows, x.lags, h.next, h.pace()
	h.mu.Unlock()
	if x.snap != nil && !forced {
		age, touched := now.Sub(x.snap.At), x.shows != version
		if !touched && (age < maxAge || !fresh && age < maxQuiet) {
			return x.snap, 0, nil
		}
		rest := min(restFactor*x.took, maxRest)
		switch {
		case x.crowded():
			rest = x.rest()
		case !fresh:
			rest = max(rest, pace)
		}
		if !touched || !fresh || x.crowded() || lags {
			others := shared.Sub(now) // until they have had their share
			if lags {
				others = min(others, maxLag-age)
			}
			if again := max(rest-age, others); again > 0 {
				if !touched {
					again = 0
				}
				return x.snap, again, nil
			}
		}
	}
	value, err := read(ctx)
	if err != nil {
		return nil, 0, err
	}
	b, err := json.Marshal(value)
	if err != nil {
		return nil, 0, err
	}
	sum := sha256.Sum256(b)
	x.snap = &Snapshot{Value: value, JSON: b, ETag: `"` + hex.EncodeToString(sum[:12]) + `"`, At: now}
	x.took = time.Since(now)
	x.shows = version
	h.mu.Lock()
	defer h.mu.Unlock()
	x.lags = scope.MayLag && x.took >= costly
	h.next = time.Now().Add(min((shareFactor-1)*x.took, maxRest))
	return x.snap, 0, nil
}

// entry finds or creates the entry of a snapshot, and drops those unused for a while.
func (h *Hub) entry(scope Scope) *entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	x := h.entries[scope]
	if x == nil {
		if len(h.entries) >= maxSnapshots {
			h.drop(now)
		}
		x = &entry{turn: make(chan struct{}, 1), version: 1}
		x.turn <- struct{}{}
		h.entries[scope] = x
	}
	x.used = now
	return x
}

// drop removes entries unused for a while, or otherwise the least recently used
// one; h.mu is held.
func (h *Hub) drop(now time.Time) {
	var oldest Scope
	var at time.Time
	for scope, x := range h.entries {
		if now.Sub(x.used) > keepUnused {
			delete(h.entries, scope)
		} else if at.IsZero() || x.used.Before(at) {
			oldest, at = scope, x.used
		}
	}
	if len(h.entries) >= maxSnapshots {
		delete(h.entries, oldest)
	}
}
