package indexset

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/index"
)

// A tenant lives in one shard of the shared index, so that each of its requests
// touches one shard. A tenant that outgrows it gets a dedicated index with its own
// shards: filled beside the shared one as in a migration, it replaces it for that
// tenant alone, whose entries are then deleted from the shared index.

const (
	// maxDedicated bounds the dedicated indexes: each is open in every process.
	maxDedicated = 100
	// maxShards of a dedicated index: 2.5 billion chunks.
	maxShards = 256
	// shardChunks is how many chunks suit one shard; see docs/operations.md.
	shardChunks = 10_000_000
	// sizesEvery is how often tenants are measured.
	sizesEvery = time.Hour
)

// Divisible is an index from which one tenant's entries can be removed, so that the
// tenant can have its own.
type Divisible interface {
	DeleteTenant(ctx context.Context, tenantID string) error
}

// dedicatedTo is the position of a tenant's dedicated index in a space, or -1.
func (s *Space) dedicatedTo(tenantID string) int {
	return slices.IndexFunc(s.Dedicated, func(d Space) bool { return d.Tenant == tenantID })
}

// instances returns the instances of a space and of its dedicated indexes.
func (s *Space) instances() []int {
	ids := []int{s.Instance}
	for _, d := range s.Dedicated {
		ids = append(ids, d.Instance)
	}
	return ids
}

func (s *Space) made() {
	s.Made, s.Dedicated = true, slices.Clone(s.Dedicated)
	for i := range s.Dedicated {
		s.Dedicated[i].Made = true
	}
}

func equal(a, b Space) bool { return reflect.DeepEqual(a, b) }

// move starts filling a tenant's chunks into a dedicated index, or back into the
// shared one.
func (st *State) move(a Action, tenantID string, shards int, now time.Time) error {
	if err := st.free(); err != nil {
		return err
	}
	at := st.Live.dedicatedTo(tenantID)
	next := st.Live
	next.Dedicated, next.Tenant = nil, tenantID
	switch {
	case tenantID == "":
		return fmt.Errorf("%w: name the tenant", sheaf.ErrInvalid)
	case slices.ContainsFunc(st.Leaving, func(l Leaving) bool { return l.Tenant == tenantID }):
		return conflict("index_tenant_leaving", "What the shared index still holds of tenant %s is being deleted: try again in a minute.", tenantID)
	case a == Share && at < 0:
		return conflict("index_tenant_shared", "Tenant %s has no index of its own.", tenantID)
	case a == Share:
		st.Beside = &next // the existing shared index
	case at >= 0:
		return conflict("index_tenant_dedicated", "Tenant %s has an index of its own already; to change its shards, share first.", tenantID)
	case len(st.Live.Dedicated) >= maxDedicated:
		return conflict("index_dedicated_full", "There are %d indexes of single tenants, which is the limit: share one first, or raise index.shards and rebuild.", maxDedicated)
	case shards < 1 || shards > maxShards:
		return fmt.Errorf("%w: an index of a tenant has 1 to %d shards", sheaf.ErrInvalid, maxShards)
	default:
		next.Shards = shards
		st.Beside = st.space(next)
	}
	st.Phase, st.Auto, st.Fill, st.Gate = Filling, true, Fill{Started: now}, nil
	return nil
}

// returns reports whether the index being filled is the shared one, for a tenant
// that leaves its dedicated index.
func (st *State) returns() bool {
	return st.Beside != nil && st.Beside.Tenant != "" && st.Beside.Instance == st.Live.Instance
}

// arrive switches searches to what was filled.
func (st *State) arrive() {
	if st.Beside.Tenant != "" {
		st.moved(time.Now())
		return
	}
	st.exchange()
	st.Phase = Switched
}

// moved switches the tenant's searches to where its chunks were filled.
func (st *State) moved(now time.Time) {
	t := st.Beside.Tenant
	st.Live.Dedicated = slices.Clone(st.Live.Dedicated) // views share the old one
	if st.returns() {
		at := st.Live.dedicatedTo(t)
		st.drop(st.Live.Dedicated[at], now)
		st.Live.Dedicated = slices.Delete(st.Live.Dedicated, at, at+1)
	} else {
		st.Live.Dedicated = append(st.Live.Dedicated, *st.Beside)
		st.Leaving = append(st.Leaving, Leaving{t, now})
	}
	st.Beside, st.Phase, st.Auto, st.Want, st.Force, st.Gate = nil, "", false, "", false, nil
}

// Move moves a tenant's chunks to a dedicated index with the given number of
// shards, or back to the shared one: a is Dedicate or Share. Search continues. With
// dryRun it only reports whether that is possible.
func (s *Set) Move(ctx context.Context, a Action, tenantID string, shards int, dryRun bool) (*Status, error) {
	v, err := s.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	shared := v.Live.shared()
	if _, ok := shared.(Divisible); !ok && shared != nil {
		return nil, conflict("index_indivisible", "The embedded index is one file for all tenants; an index for each is for Elasticsearch (index.driver).")
	}
	if a == Dedicate && tenantID != "" { // a deleted one may still have an index
		if _, err := s.cfg.Store.Tenant(ctx, tenantID); err != nil {
			return nil, err
		}
	}
	if dryRun {
		st := v.State
		err = st.move(a, tenantID, shards, time.Now())
	} else {
		err = s.change(ctx, func(st *State) error { return st.move(a, tenantID, shards, time.Now()) })
	}
	if err != nil {
		return nil, err
	}
	return s.Status(ctx)
}

// outgrown moves the largest tenant with more chunks than DedicatedFrom, one at a
// time, if the settings enable it.
func (s *Set) outgrown(ctx context.Context) error {
	v := s.View()
	if _, ok := v.Live.shared().(Divisible); !ok || s.cfg.DedicatedFrom < 1 || v.State.free() != nil || len(v.State.Leaving) > 0 || len(v.State.Live.Dedicated) >= maxDedicated {
		return nil
	}
	s.mu.Lock()
	due := time.Since(s.measured) >= sizesEvery
	if due {
		s.measured = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	large, err := s.cfg.Store.TenantsWith(ctx, s.cfg.DedicatedFrom, maxDedicated+1)
	if err != nil {
		return err
	}
	for _, t := range large {
		if v.State.Live.dedicatedTo(t.TenantID) >= 0 {
			continue
		}
		// It will grow: allocate twice the shards that it fills now.
		shards := int(min(maxShards, 2*((t.Chunks-1)/shardChunks+1)))
		s.cfg.Log.InfoContext(ctx, "a tenant has outgrown a shard and gets an index of its own", "tenant", t.TenantID, "chunks", t.Chunks, "shards", shards)
		err := s.change(ctx, func(st *State) error { return st.move(Dedicate, t.TenantID, shards, time.Now()) })
		if err != nil && !errors.Is(err, sheaf.ErrConflict) {
			return err
		}
		s.mu.Lock()
		s.measured = time.Time{} // there may be another
		s.mu.Unlock()
		return nil
	}
	return nil
}

// leave deletes tenants with a dedicated index from the shared one.
func (s *Set) leave(ctx context.Context) error {
	v := s.View()
	shared, ok := v.Live.shared().(Divisible)
	for _, l := range v.State.Leaving {
		if time.Since(l.Since) < s.cfg.Grace || !ok || v.State.Lost != "" {
			continue
		}
		if err := shared.DeleteTenant(ctx, l.Tenant); err != nil {
			return fmt.Errorf("deleting tenant %s from the shared index: %w", l.Tenant, err)
		}
		if err := s.change(ctx, func(st *State) error {
			st.Leaving = slices.DeleteFunc(st.Leaving, func(o Leaving) bool { return o == l })
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// For returns the index that holds a tenant's chunks.
func (m *Member) For(tenantID string) index.Index {
	if d, ok := m.Index.(*divided); ok {
		return d.of(tenantID)
	}
	return m.Index
}

// shared is the index of the tenants without a dedicated one.
func (m *Member) shared() index.Index {
	if d, ok := m.Index.(*divided); ok {
		return d.Index
	}
	return m.Index
}

// concerns reports whether a tenant's chunks belong in the index of a member, which
// may be nil.
func (m *Member) concerns(tenantID string) bool {
	return m != nil && (m.Space.Tenant == "" || m.Space.Tenant == tenantID)
}

// divided is an index in which some tenants have a dedicated part. The embedded
// Index holds the others.
type divided struct {
	index.Index
	dedicated map[string]index.Index // by tenant
}

func (d *divided) of(tenantID string) index.Index {
	if x, ok := d.dedicated[tenantID]; ok {
		return x
	}
	return d.Index
}

// each calls f for all parts concurrently.
func (d *divided) each(ctx context.Context, f func(ctx context.Context, x index.Index) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	g.Go(func() error { return f(ctx, d.Index) })
	for _, x := range d.dedicated {
		g.Go(func() error { return f(ctx, x) })
	}
	return g.Wait()
}

func (d *divided) Write(ctx context.Context, entries []index.Entry) error {
	parts := map[index.Index][]index.Entry{}
	for _, e := range entries {
		x := d.of(e.TenantID)
		parts[x] = append(parts[x], e)
	}
	for x, part := range parts {
		if err := x.Write(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (d *divided) Refresh(ctx context.Context) error {
	return d.each(ctx, func(ctx context.Context, x index.Index) error { return x.Refresh(ctx) })
}

func (d *divided) Count(ctx context.Context, tenantID string, rangeIDs []string) (map[string]int, error) {
	return d.of(tenantID).Count(ctx, tenantID, rangeIDs)
}

// A task that started before its tenant was moved may have written to the shared
// index after the tenant was deleted from it, so deletions apply to both.

func (d *divided) DeleteRanges(ctx context.Context, tenantID string, rangeIDs []string) error {
	return d.everywhere(tenantID, func(x index.Index) error { return x.DeleteRanges(ctx, tenantID, rangeIDs) })
}

func (d *divided) DeleteDocument(ctx context.Context, tenantID, documentID string) error {
	return d.everywhere(tenantID, func(x index.Index) error { return x.DeleteDocument(ctx, tenantID, documentID) })
}

func (d *divided) everywhere(tenantID string, f func(x index.Index) error) error {
	if own, ok := d.dedicated[tenantID]; ok {
		if err := f(own); err != nil {
			return err
		}
	}
	return f(d.Index)
}

func (d *divided) CountDocument(ctx context.Context, tenantID, documentID string) (chunks, vectors int, err error) {
	return d.of(tenantID).CountDocument(ctx, tenantID, documentID)
}

func (d *divided) Search(ctx context.Context, q index.Query) (index.Candidates, error) {
	return d.of(q.TenantID).Search(ctx, q)
}

// Scan omits nothing: leftovers of a moved tenant in the shared index are deleted
// by DeleteRanges like everything else that is not listed.
func (d *divided) Scan(ctx context.Context, tenantID string, each func(chunkID, rangeID, documentID string) bool) error {
	if tenantID != "" {
		return d.of(tenantID).Scan(ctx, tenantID, each)
	}
	goesOn := true
	all := func(chunkID, rangeID, documentID string) bool {
		goesOn = each(chunkID, rangeID, documentID)
		return goesOn
	}
	if err := d.Index.Scan(ctx, "", all); err != nil {
		return err
	}
	for _, x := range d.dedicated {
		if !goesOn {
			return nil
		}
		if err := x.Scan(ctx, "", all); err != nil {
			return err
		}
	}
	return nil
}

func (d *divided) Ping(ctx context.Context) error {
	return d.each(ctx, func(ctx context.Context, x index.Index) error { return x.Ping(ctx) })
}

// Compact implements index.Compacter.
func (d *divided) Compact(ctx context.Context) error {
	return d.each(ctx, func(ctx context.Context, x index.Index) error {
		if c, ok := x.(index.Compacter); ok {
			return c.Compact(ctx)
		}
		return nil
	})
}

// Verify implements index.Owned.
func (d *divided) Verify(ctx context.Context) error {
	return d.each(ctx, func(ctx context.Context, x index.Index) error {
		o, ok := x.(index.Owned)
		if !ok {
			return nil
		}
		err := o.Verify(ctx)
		for t, own := range d.dedicated {
			if own == x && err != nil {
				return &partError{t, err}
			}
		}
		return err
	})
}

// partError is an error of a tenant's dedicated index.
type partError struct {
	tenant string
	error
}

func (e *partError) Unwrap() error { return e.error }

// Drop implements index.Owned. Parts are dropped individually.
func (d *divided) Drop(context.Context) error {
	return errors.New("an index that is divided is dropped part by part")
}
