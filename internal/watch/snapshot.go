package watch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"sheaf/taskstore"
)

// Scope names what a snapshot shows, and with it which events touch it: those
// of the tenant, and of the dataset, job and document as far as they are named.
type Scope struct {
	TenantID, DatasetID, JobID, DocumentID string
	What                                   string // tells snapshots of the same events apart
}

// Snapshot is what was read of the store, for all who ask for it. It must not
// be changed.
type Snapshot struct {
	Value any
	JSON  []byte
	ETag  string // of JSON, with quotes
	At    time.Time
}

const (
	maxSnapshots = 500
	keepUnused   = time.Minute
	maxAge       = 2 * time.Second // of what no event has touched: a place in the queue changes with the work of others
	maxQuiet     = 4 * time.Second // the same for streams, which ask now and then
	crowd        = 5               // readers of a snapshot in a second, from which on they share what is a little older
	restFactor   = 20              // a snapshot that many share is read for a twentieth of the time at most
	maxRest      = 5 * time.Second
	perReader    = 100 * time.Millisecond // that a reader in a second adds to the age at which a crowd's snapshot is read again
	maxCrowdRest = 3 * time.Second
	shareFactor  = 20 // all of these together for a twentieth of it
)

// snapshots are those that a hub keeps. The hub's mu guards entries and what
// says how they stand to the log.
type snapshots struct {
	entries map[Scope]*entry
	next    time.Time // before which no snapshot is read again for those who can do with an older one
}

type entry struct {
	turn chan struct{} // holds a token while nobody reads

	// Guarded by the hub's mu.
	version int64 // grows with each touch
	forced  bool  // it was changed through this process, whose callers see their own changes
	used    time.Time

	// Guarded by turn.
	snap        *Snapshot
	shows       int64         // version when it was read
	took        time.Duration // to read it
	second      int64         // in which reads are counted
	reads       int
	readsBefore int // in the second before
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

// Changed says that a request was answered that may have changed something of
// the tenant, or of all for "": what is read next shows that. jobID is the job
// that the request made or added to, "" for others: snapshots of another job
// learn from events what such a request does to them.
func (h *Hub) Changed(tenantID, jobID string) {
	h.mu.Lock()
	for scope, x := range h.entries {
		if (tenantID == "" || scope.TenantID == tenantID) && (jobID == "" || scope.JobID == "" || scope.JobID == jobID) {
			x.version++
			x.forced = true
		}
	}
	h.mu.Unlock()
	h.Notify()
}

// Read returns a snapshot that shows all that was in the log when it was called,
// unless many read it at once: then it may be older by what maxRest allows, and
// is answered without a statement. read is called where there is none, by one
// caller at a time.
func (h *Hub) Read(ctx context.Context, scope Scope, read func(context.Context) (any, error)) (*Snapshot, error) {
	x := h.entry(scope)
	if err := x.lock(ctx); err != nil {
		return nil, err
	}
	snap := h.forCrowd(x)
	x.unlock()
	if snap != nil {
		return snap, nil
	}
	if err, gone := h.syncs.Do(ctx, struct{}{}); gone != nil || err != nil {
		if gone != nil {
			return nil, gone
		}
		return nil, err
	}
	snap, _, err := h.snapshot(ctx, scope, true, read)
	return snap, err
}

// Latest returns a snapshot that may be older than the log, and then in how long
// to ask again; 0 for not at all.
func (h *Hub) Latest(ctx context.Context, scope Scope, read func(context.Context) (any, error)) (_ *Snapshot, again time.Duration, _ error) {
	return h.snapshot(ctx, scope, false, read)
}

// forCrowd counts a reader, and returns the snapshot that a crowd shares until it
// is too old, nil for who is none; x is locked.
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
	forced := x.forced
	h.mu.Unlock()
	if x.snap == nil || forced || !x.crowded() || now.Sub(x.snap.At) >= x.rest() {
		return nil
	}
	return x.snap
}

// crowded reports whether many read the snapshot in this second or the last.
func (x *entry) crowded() bool { return max(x.reads, x.readsBefore) > crowd }

// rest is the age at which a crowd's snapshot is read again.
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
	version, forced, shared, pace := x.version, x.forced, h.next, h.pace()
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
		if !touched || !fresh || x.crowded() {
			if again := max(rest-age, shared.Sub(now)); again > 0 {
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
	if x.version == version {
		x.forced = false
	}
	h.next = time.Now().Add(min((shareFactor-1)*x.took, maxRest))
	return x.snap, 0, nil
}

// entry finds or makes the place of a snapshot, and drops those that nobody has
// used for a while.
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

// drop removes what was not used for a while, or else the one that was not for
// longest; h.mu is held.
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
