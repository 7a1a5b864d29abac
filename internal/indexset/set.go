package indexset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/index"
	"sheaf/internal/search"
)

// Config holds the dependencies; zero means the default named beside a field.
type Config struct {
	Store Store
	Blobs blob.Store
	Log   *slog.Logger
	// Configured is the model in the settings; Embedder embeds with it.
	Configured Space
	Embedder   embed.Embedder
	// Found is the model of an index made by an earlier version; may be nil.
	Found *Space
	// OpenIndex opens the index of a space, creating it unless it was Made. Its
	// content is lost if index.IsLost reports so for the error.
	OpenIndex func(ctx context.Context, s Space, owner string) (index.Index, error)
	// Remove deletes the remains of an index that cannot be opened. May be nil.
	Remove func(s Space) error
	// OpenEmbedder opens the embedder of a space whose model is no longer in the
	// settings.
	OpenEmbedder func(ctx context.Context, s Space) (embed.Embedder, error)
	// Text returns the text to embed for a chunk of the named document.
	Text func(name string, c sheaf.Chunk) string
	// Keeps allows this process to replace a lost index.
	Keeps bool

	Workers int // concurrent fill workers, default twice the CPUs
	Slice   int // results between two saves of the progress, repeated after a kill; default 2048
	// DedicatedFrom is the number of chunks from which a tenant gets a dedicated
	// index, if the engine supports it; 0 for never.
	DedicatedFrom    int64
	PerMillionTokens float64 // embedding price
	Currency         string
	Follow           time.Duration // interval between reads of the state, default 2 s
	Grace            time.Duration // for which a dropped index can still be searched, default 15 s
}

const verifyEvery = 10 * time.Second

// Member is an open space.
type Member struct {
	Space    Space
	Index    index.Index    // nil if it could not be opened: see Err
	Embedder embed.Embedder // fails if its model is unreachable
	Err      error
	embedErr error
}

// View is one version of the state with its members.
type View struct {
	State   State
	Live    *Member
	Beside  *Member // may be nil
	version int64
}

// Set is safe for concurrent use. It is an index.Index: reads and writes go to the
// live index, deletions to both.
type Set struct {
	cfg  Config
	view atomic.Pointer[View]

	mu       sync.Mutex // guards the fields below
	members  map[int]*Member
	verified time.Time
	measured time.Time             // when the tenants' sizes were measured
	broken   atomic.Pointer[error] // latest error of Verify; nil if healthy

	sample sampled
}

var _ index.Index = (*Set)(nil)

// Open reads the state, or creates it, and opens its members.
func Open(ctx context.Context, cfg Config) (*Set, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 2*runtime.GOMAXPROCS(0))
	cfg.Slice = cmp.Or(cfg.Slice, 2048)
	cfg.Follow = cmp.Or(cfg.Follow, 2*time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, 15*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Set{cfg: cfg, members: map[int]*Member{}}
	first, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.refresh(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	v := s.View()
	if err := v.Live.Err; err != nil && !index.IsLost(err) && !errors.Is(err, sheaf.ErrUnavailable) {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.check(ctx, first); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if v := s.View(); !v.State.Live.same(cfg.Configured) && v.State.Beside == nil {
		cfg.Log.Warn("the settings name another embedding model than the index was made with, which goes on; `sheaf index migrate start` fills one of the new model beside it",
			"index", v.State.Live.Model.ID, "configured", cfg.Configured.Model.ID)
	}
	return s, nil
}

// begin writes the initial state. A store without results adopts the configured
// model immediately.
func (s *Set) begin(ctx context.Context) (first bool, err error) {
	for range 5 {
		st, version, err := load(ctx, s.cfg.Store)
		if err != nil {
			return false, err
		}
		if version > 0 && (st.Live.same(s.cfg.Configured) || st.Beside != nil) {
			return false, nil
		}
		some, err := s.cfg.Store.LiveResults(ctx, "", "", 1)
		if err != nil {
			return false, err
		}
		empty := len(some) == 0
		switch {
		case version == 0:
			st = State{Owner: sheaf.NewID(), Live: s.cfg.Configured}
			if found := s.cfg.Found; found != nil && !found.same(s.cfg.Configured) {
				if st.Live = *found; empty {
					st.drop(*found, time.Now())
					st.Live = *st.space(s.cfg.Configured)
				}
			}
			st.Models = append(st.Models, st.Live.Model.ID)
		case empty && s.cfg.Keeps:
			st.drop(st.Live, time.Now())
			st.Live, st.Lost, st.Phase = *st.space(s.cfg.Configured), "", ""
		default:
			return false, nil
		}
		if ok, err := swap(ctx, s.cfg.Store, version, st); err != nil || ok {
			return version == 0, err
		}
	}
	return false, fmt.Errorf("%w: the state of the index keeps changing", sheaf.ErrUnavailable)
}

// View returns the state as last read.
func (s *Set) View() *View { return s.view.Load() }

// refresh reads the state and opens its members.
func (s *Set) refresh(ctx context.Context) error {
	st, version, err := load(ctx, s.cfg.Store)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.view.Load(); v != nil && v.version == version && v.Live.usable() && (v.Beside == nil || v.Beside.usable()) {
		return nil
	}
	v := &View{State: st, version: version, Live: s.member(ctx, st.Live, st.Owner)}
	named := st.Live.instances()
	if st.Beside != nil {
		v.Beside = s.member(ctx, *st.Beside, st.Owner)
		named = append(named, st.Beside.instances()...)
	}
	for _, d := range st.Dropping {
		named = append(named, d.Space.Instance)
	}
	for instance, m := range s.members {
		if !slices.Contains(named, instance) {
			delete(s.members, instance)
			if m.Index != nil {
				_ = m.Index.Close()
			}
		}
	}
	s.view.Store(v)
	return nil
}

func (m *Member) usable() bool { return m.Err == nil && m.embedErr == nil && m.Space.Made }

// member returns an open space with its dedicated indexes. The caller holds mu.
func (s *Set) member(ctx context.Context, space Space, owner string) *Member {
	shared := space
	shared.Dedicated = nil
	m := s.open(ctx, shared, owner)
	if len(space.Dedicated) == 0 {
		return m
	}
	all := *m
	all.Space = space
	parts := &divided{Index: m.Index, dedicated: map[string]index.Index{}}
	for _, d := range space.Dedicated {
		part := s.open(ctx, d, owner)
		if parts.dedicated[d.Tenant] = part.Index; part.Err != nil && all.Err == nil {
			all.Err = &partError{d.Tenant, part.Err}
		}
	}
	if all.Index = parts; all.Err != nil {
		all.Index = nil
	}
	return &all
}

// open opens a single index unless it is open. The caller holds mu.
func (s *Set) open(ctx context.Context, space Space, owner string) *Member {
	old := s.members[space.Instance]
	if old != nil && old.Err == nil && old.embedErr == nil {
		if equal(old.Space, space) {
			return old
		}
		m := *old
		m.Space = space
		s.members[space.Instance] = &m
		return &m
	}
	m := &Member{Space: space}
	if old != nil {
		m.Index = old.Index
	}
	if m.Index == nil {
		m.Index, m.Err = s.cfg.OpenIndex(ctx, space, owner)
	}
	if m.Err != nil {
		m.Index = nil
	}
	if space.same(s.cfg.Configured) {
		m.Embedder = s.cfg.Embedder
	} else if m.Embedder, m.embedErr = s.cfg.OpenEmbedder(ctx, space); m.embedErr != nil {
		m.Embedder = away{space.Model, m.embedErr}
	}
	s.members[space.Instance] = m
	return m
}

// away is an unreachable embedder.
type away struct {
	model embed.Model
	err   error
}

func (a away) Model() embed.Model         { return a.model }
func (a away) Ping(context.Context) error { return a.err }
func (a away) Embed(context.Context, []string, embed.Purpose) ([][]float32, error) {
	return nil, a.err
}

// change applies f to the latest state, retrying after concurrent changes.
func (s *Set) change(ctx context.Context, f func(st *State) error) error {
	for range 20 {
		st, version, err := load(ctx, s.cfg.Store)
		if err != nil {
			return err
		}
		if err := f(&st); err != nil {
			return err
		}
		ok, err := swap(ctx, s.cfg.Store, version, st)
		if err != nil {
			return err
		}
		if ok {
			return s.refresh(ctx)
		}
	}
	return fmt.Errorf("%w: the state of the index keeps changing", sheaf.ErrUnavailable)
}

// Run follows the state until ctx ends.
func (s *Set) Run(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Follow)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.DebugContext(ctx, "the state of the index was not read", "error", err)
			continue
		}
		s.mu.Lock()
		due := time.Since(s.verified) >= verifyEvery
		s.mu.Unlock()
		if due {
			_ = s.Verify(ctx)
		}
	}
}

// check verifies the live index and replaces it if it is lost. first means that the
// state is new: then an empty index also counts as lost if the store has entries.
func (s *Set) check(ctx context.Context, first bool) error {
	err := s.Verify(ctx)
	if err == nil && first {
		err = s.empty(ctx)
	}
	v := s.View()
	if err == nil && !v.State.Live.Made {
		return s.change(ctx, func(st *State) error {
			if st.Live.Instance == v.State.Live.Instance {
				st.Live.made()
			}
			return nil
		})
	}
	if !index.IsLost(err) || !s.cfg.Keeps {
		if index.IsLost(err) || errors.Is(err, sheaf.ErrUnavailable) {
			return nil // calls fail until it is back or another process has replaced it
		}
		return err
	}
	reason := sheaf.AsFailure(err, "").Message
	s.cfg.Log.WarnContext(ctx, "the index is lost; rebuilding it from the artifacts, without parsing", "reason", reason)
	part, alone := errors.AsType[*partError](err)
	if v.Live.Index == nil && s.cfg.Remove != nil && !alone {
		if err := s.cfg.Remove(v.State.Live); err != nil {
			return err
		}
	}
	return s.change(ctx, func(st *State) error {
		switch {
		case st.Live.Instance != v.State.Live.Instance:
		case !alone:
			st.lost(reason, time.Now())
		case equal(st.Live, v.State.Live):
			st.lostOf(part.tenant, reason, time.Now())
		}
		return nil
	})
}

// empty fails if the index holds nothing that the store has.
func (s *Set) empty(ctx context.Context) error {
	some, err := s.cfg.Store.LiveResults(ctx, "", "", 100)
	if err != nil || len(some) == 0 {
		return err
	}
	short, err := s.short(ctx, s.View().Live, some)
	if err == nil && len(short) == len(some) {
		err = sheaf.Fail(sheaf.CategoryTarget, "index_missing", "The index is empty and the store is not.")
	}
	return err
}

// Verify checks that the live index is still the one that was filled.
func (s *Set) Verify(ctx context.Context) error {
	v := s.View()
	err := v.Live.Err
	if x, ok := v.Live.Index.(index.Owned); ok && err == nil {
		err = x.Verify(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	s.verified = time.Now()
	s.mu.Unlock()
	if index.IsLost(err) {
		err = fmt.Errorf("%w: %w", sheaf.ErrUnavailable, err)
		s.broken.Store(&err)
	} else if err == nil {
		s.broken.Store(nil)
	}
	return err
}

// Source returns what to search now for a tenant.
func (s *Set) Source(_ context.Context, tenantID string) (search.Source, error) {
	v := s.View()
	if v.Live.Index == nil {
		return search.Source{}, unavailable(v.Live.Err)
	}
	if err := s.broken.Load(); err != nil && v.State.Lost == "" {
		return search.Source{}, *err
	}
	src := search.Source{Index: v.Live.Index, Embedder: v.Live.Embedder}
	if f := v.State.stale(); f != nil && v.State.misses(tenantID) {
		src.Stale = f
	}
	return src, nil
}

func unavailable(err error) error {
	if errors.Is(err, sheaf.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", sheaf.ErrUnavailable, err)
}

// stale returns why the live index is incomplete, or nil.
func (st *State) stale() *sheaf.Failure {
	if st.Lost == "" {
		return nil
	}
	return sheaf.FailRetryable(sheaf.CategoryTarget, "index_rebuilding",
		"The index was lost and is filled anew from the artifacts, %d of %d ranges so far: what is not in yet is not found. (%s)", st.Fill.filled(), st.Fill.Total, st.Lost)
}

// misses reports whether a lost index held chunks of the tenant: the shared one has
// nothing of a tenant with its own, and that has nothing of others.
func (st *State) misses(tenantID string) bool {
	if st.LostTenant != "" {
		return tenantID == st.LostTenant
	}
	return st.Live.dedicatedTo(tenantID) < 0
}

// filled is the number of results written.
func (f *Fill) filled() int {
	if f.Pass > 0 {
		return f.Total - f.Failed
	}
	return f.Done
}

// Ready is the /readyz check of the index: it exists, is complete and responds.
func (s *Set) Ready(ctx context.Context) error {
	if err := s.broken.Load(); err != nil && s.View().State.Lost == "" {
		return *err
	}
	if f := s.View().State.stale(); f != nil {
		return f
	}
	return s.Ping(ctx)
}

// live is the index being searched.
func (s *Set) live() (index.Index, error) {
	m := s.View().Live
	if m.Index == nil {
		return nil, unavailable(m.Err)
	}
	return m.Index, nil
}

// both calls f for the live index and the one beside it, if they hold chunks of the
// tenant ("" for any).
func (s *Set) both(tenantID string, f func(x index.Index) error) error {
	v := s.View()
	for _, m := range []*Member{v.Live, v.Beside} {
		if m == nil || tenantID != "" && !m.concerns(tenantID) {
			continue
		}
		if m.Index == nil {
			return unavailable(m.Err)
		}
		if err := f(m.Index); err != nil {
			return err
		}
	}
	return nil
}

// Write adds entries to the live index.
func (s *Set) Write(ctx context.Context, entries []index.Entry) error {
	x, err := s.live()
	if err != nil {
		return err
	}
	return x.Write(ctx, entries)
}

// Refresh makes previous writes visible.
func (s *Set) Refresh(ctx context.Context) error {
	x, err := s.live()
	if err != nil {
		return err
	}
	return x.Refresh(ctx)
}

// Count counts entries of ranges in the live index.
func (s *Set) Count(ctx context.Context, tenantID string, rangeIDs []string) (map[string]int, error) {
	x, err := s.live()
	if err != nil {
		return nil, err
	}
	return x.Count(ctx, tenantID, rangeIDs)
}

// CountDocument counts a document's entries in the live index.
func (s *Set) CountDocument(ctx context.Context, tenantID, documentID string) (chunks, vectors int, err error) {
	x, err := s.live()
	if err != nil {
		return 0, 0, err
	}
	return x.CountDocument(ctx, tenantID, documentID)
}

// DeleteRanges removes entries from both indexes.
func (s *Set) DeleteRanges(ctx context.Context, tenantID string, rangeIDs []string) error {
	return s.both(tenantID, func(x index.Index) error { return x.DeleteRanges(ctx, tenantID, rangeIDs) })
}

// DeleteDocument removes a document's entries from both indexes.
func (s *Set) DeleteDocument(ctx context.Context, tenantID, documentID string) error {
	return s.both(tenantID, func(x index.Index) error { return x.DeleteDocument(ctx, tenantID, documentID) })
}

// Search searches the live index.
func (s *Set) Search(ctx context.Context, q index.Query) (index.Candidates, error) {
	x, err := s.live()
	if err != nil {
		return index.Candidates{}, err
	}
	return x.Search(ctx, q)
}

// Scan scans the live index.
func (s *Set) Scan(ctx context.Context, tenantID string, each func(chunkID, rangeID, documentID string) bool) error {
	x, err := s.live()
	if err != nil {
		return err
	}
	return x.Scan(ctx, tenantID, each)
}

// Compact purges deleted words from both indexes if their engine does not.
func (s *Set) Compact(ctx context.Context) error {
	return s.both("", func(x index.Index) error {
		if c, ok := x.(index.Compacter); ok {
			return c.Compact(ctx)
		}
		return nil
	})
}

// Ping pings the live index.
func (s *Set) Ping(ctx context.Context) error {
	x, err := s.live()
	if err != nil {
		return err
	}
	return x.Ping(ctx)
}

// Embedder embeds with the model of the live index.
func (s *Set) Embedder() embed.Embedder { return s.View().Live.Embedder }

// Models lists the models for which results may have copies with vectors.
func (s *Set) Models() []string { return s.View().State.Models }

// Close closes all open indexes.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for instance, m := range s.members {
		if m.Index != nil {
			errs = append(errs, m.Index.Close())
		}
		delete(s.members, instance)
	}
	return errors.Join(errs...)
}

// Following embeds with the model of the live index, even as that changes. Use the
// Embedder of a View for work that must not see a change.
func (s *Set) Following() embed.Embedder { return following{s} }

type following struct{ s *Set }

func (f following) Model() embed.Model             { return f.s.Embedder().Model() }
func (f following) Ping(ctx context.Context) error { return f.s.Embedder().Ping(ctx) }
func (f following) Embed(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	return f.s.Embedder().Embed(ctx, texts, purpose)
}

// Pin returns what a tenant's task uses until it ends: the live index and the
// embedder of its model. If that is unreachable, it is the configured one, and the
// index takes words only.
func (v *View) Pin(tenantID string, configured embed.Embedder) (index.Index, embed.Embedder) {
	switch m := v.Live; {
	case m.Index == nil:
		return missing{err: unavailable(m.Err)}, m.Embedder
	case m.embedErr != nil:
		return wordsOnly{m.For(tenantID)}, configured
	default:
		return m.For(tenantID), m.Embedder
	}
}

// BesideFor returns the index beside that also takes a tenant's chunks; may be nil.
func (v *View) BesideFor(tenantID string) *Member {
	if !v.Beside.concerns(tenantID) {
		return nil
	}
	return v.Beside
}

// wordsOnly drops the vectors of another model.
type wordsOnly struct{ index.Index }

func (w wordsOnly) Write(ctx context.Context, entries []index.Entry) error {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Vector = nil
	}
	return w.Index.Write(ctx, entries)
}

// missing is an index that could not be opened.
type missing struct {
	index.Index
	err error
}

func (m missing) Write(context.Context, []index.Entry) error { return m.err }
func (m missing) Refresh(context.Context) error              { return m.err }
func (m missing) Count(context.Context, string, []string) (map[string]int, error) {
	return nil, m.err
}

// Configured embeds with the model in the settings.
func (s *Set) Configured() embed.Embedder { return s.cfg.Embedder }

// Fresh returns the view after rereading the store.
func (s *Set) Fresh(ctx context.Context) (*View, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	return s.View(), nil
}
