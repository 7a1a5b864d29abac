package indexset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/embed"
	"sheaf/internal/index"
	"sheaf/taskstore"
)

const (
	writeChunks = 256             // minimum per write, slice permitting: a bulk request of its own
	readAhead   = writeChunks     // maximum results that one worker reads for a write, at one chunk each
	readAtOnce  = 8               // results read concurrently
	stepTime    = 5 * time.Second // of slices before the state is reread
	// settle is how many Follow periods must pass before a filled index may count
	// as complete: processes unaware of it write only to the other one.
	settle = 3
)

// Step fills pending indexes for a while, makes due decisions, and reports whether
// there is more to do right away. Two concurrent Steps waste work: the one that
// saves the state later writes nothing.
func (s *Set) Step(ctx context.Context) (more bool, err error) {
	if err := s.refresh(ctx); err != nil {
		return false, err
	}
	if err := s.check(ctx, false); err != nil {
		return false, err
	}
	if err := s.dropDue(ctx); err != nil {
		return false, err
	}
	if err := s.leave(ctx); err != nil {
		return false, err
	}
	if err := s.outgrown(ctx); err != nil {
		return false, err
	}
	v := s.View()
	target := v.State.target()
	if target == nil {
		return false, nil
	}
	more, err = s.fill(ctx, v)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		text := sheaf.AsFailure(err, "").Message
		note := s.change(ctx, func(st *State) error {
			if st.Fill.Error == text {
				return errUnchanged
			}
			st.Fill.Error = text
			return nil
		})
		if note != nil && !errors.Is(note, errUnchanged) {
			err = errors.Join(err, note)
		}
	}
	return more, err
}

var errUnchanged = errors.New("the state stays as it is")

func (s *Set) fill(ctx context.Context, v *View) (more bool, err error) {
	m := v.filled()
	err = m.Err // searches read the member too, so do not modify it
	if err == nil {
		if x, ok := m.Index.(index.Owned); ok {
			err = x.Verify(ctx)
		}
	}
	if err != nil {
		if index.IsLost(err) && m == v.Beside {
			// The filled index is gone: start over with a new one.
			return true, errors.Join(err, s.change(ctx, func(st *State) error {
				if st.Beside == nil || st.Beside.Instance != m.Space.Instance {
					return errUnchanged
				}
				st.drop(*st.Beside, time.Now())
				st.Beside, st.Phase, st.Want, st.Gate, st.Fill = st.space(*st.Beside), Filling, "", nil, Fill{Started: time.Now()}
				return nil
			}))
		}
		return false, err
	}
	st, version := v.State, v.version
	target := st.target()
	note := func() (bool, error) {
		ok, err := swap(ctx, s.cfg.Store, version, st)
		if err == nil {
			err = s.refresh(ctx)
		}
		version++
		return ok, err
	}
	if !target.Made {
		totals, err := s.cfg.Store.LiveTotals(ctx, target.Tenant)
		if err != nil {
			return false, err
		}
		if st.LostTenant != "" {
			st.Live.Dedicated = slices.Clone(st.Live.Dedicated) // views share it
			target = st.target()
		}
		target.made()
		st.Fill.Total = totals.Results
		s.sample.reset()
		if ok, err := note(); err != nil || !ok {
			return ok, err
		}
		now := s.View()
		if now.version != version {
			return true, nil // another process continues
		}
		m = now.filled()
	}
	f := &st.Fill
	if f.Pass > 0 && f.Cursor == "" {
		if err := m.Index.Refresh(ctx); err != nil {
			return false, err
		}
		s.sample.reset()
		f.Written, f.Done, f.Failed, f.Examples = 0, 0, 0, nil
	}
	for begun := time.Now(); time.Since(begun) < stepTime; {
		at := time.Now()
		results, err := s.cfg.Store.LiveResults(ctx, target.Tenant, f.Cursor, s.cfg.Slice)
		if err != nil {
			return false, err
		}
		if len(results) == 0 {
			return s.passed(ctx, m, &st, note)
		}
		if err := s.slice(ctx, m, f, results); err != nil {
			return false, err
		}
		f.Cursor, f.Error = results[len(results)-1].Cursor, ""
		f.Done += len(results)
		if f.Total = max(f.Total, f.Done); f.Pass == 0 {
			f.Seconds += time.Since(at).Seconds()
		}
		if ok, err := note(); err != nil || !ok {
			return ok, err
		}
	}
	return true, nil
}

// filled is the member being filled.
func (v *View) filled() *Member {
	if v.State.Lost == "" {
		return v.Beside
	}
	return v.Live
}

// slice writes results, in later passes only the missing ones, and removes what was
// deleted in the meantime.
func (s *Set) slice(ctx context.Context, m *Member, f *Fill, results []taskstore.LiveResult) (err error) {
	for _, r := range results {
		s.sample.offer(r)
	}
	if f.Pass > 0 {
		if results, err = s.short(ctx, m, results); err != nil || len(results) == 0 {
			return err
		}
	}
	var mu sync.Mutex
	g, ctx2 := errgroup.WithContext(ctx)
	g.SetLimit(s.cfg.Workers)
	for part := range parts(results) {
		g.Go(func() error {
			made := make([][]index.Entry, len(part))
			read, within := errgroup.WithContext(ctx2)
			read.SetLimit(readAtOnce)
			for i, r := range part {
				read.Go(func() error {
					entries, tokens, err := s.entries(within, m, r, false)
					mu.Lock()
					defer mu.Unlock()
					f.Tokens += int64(tokens)
					switch {
					case errors.Is(err, sheaf.ErrNotFound) || errors.Is(err, sheaf.ErrInvalid):
						if f.Failed++; len(f.Examples) < 10 {
							f.Examples = append(f.Examples, fmt.Sprintf("document %s: %s", r.DocumentID, sheaf.AsFailure(err, "").Message))
						}
						err = nil
					case err == nil:
						f.Written++
					}
					made[i] = entries
					return err
				})
			}
			if err := read.Wait(); err != nil {
				return err
			}
			return m.Index.Write(index.WithConcurrency(ctx2, s.cfg.Workers), slices.Concat(made...))
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.retract(ctx, m, results)
}

// parts splits results into batches of one write each.
func parts(results []taskstore.LiveResult) func(yield func([]taskstore.LiveResult) bool) {
	return func(yield func([]taskstore.LiveResult) bool) {
		from, chunks := 0, 0
		for i, r := range results {
			if chunks += r.Chunks; chunks >= writeChunks || i-from+1 == readAhead || i == len(results)-1 {
				if !yield(results[from : i+1]) {
					return
				}
				from, chunks = i+1, 0
			}
		}
	}
}

func rangesByTenant(results []taskstore.LiveResult) map[string][]string {
	ids := map[string][]string{}
	for _, r := range results {
		ids[r.TenantID] = append(ids[r.TenantID], r.RangeID)
	}
	return ids
}

// short returns the results with fewer chunks in the index than they have, as of
// its last refresh.
func (s *Set) short(ctx context.Context, m *Member, results []taskstore.LiveResult) ([]taskstore.LiveResult, error) {
	if m.Index == nil {
		return nil, unavailable(m.Err)
	}
	have := map[string]int{}
	for tenant, ids := range rangesByTenant(results) {
		counts, err := m.Index.Count(ctx, tenant, ids)
		if err != nil {
			return nil, err
		}
		maps.Copy(have, counts)
	}
	return slices.DeleteFunc(slices.Clone(results), func(r taskstore.LiveResult) bool { return have[r.RangeID] >= r.Chunks }), nil
}

// retract removes what was deleted while it was being written: a delete that ran
// first cannot have found it.
func (s *Set) retract(ctx context.Context, m *Member, results []taskstore.LiveResult) error {
	for tenant, ids := range rangesByTenant(results) {
		seen, err := s.cfg.Store.Visible(ctx, tenant, ids)
		if err != nil {
			return err
		}
		gone := slices.DeleteFunc(ids, func(id string) bool { _, ok := seen[id]; return ok })
		if len(gone) == 0 {
			continue
		}
		if err := m.Index.DeleteRanges(ctx, tenant, gone); err != nil {
			return err
		}
		var copies []string
		for _, r := range results {
			if slices.Contains(gone, r.RangeID) {
				if _, err := s.cfg.Blobs.Stat(ctx, r.ArtifactKey); errors.Is(err, sheaf.ErrNotFound) {
					copies = append(copies, artifact.CopyKey(r.ArtifactKey, m.Space.Model.ID))
				}
			}
		}
		if err := s.cfg.Blobs.Delete(ctx, copies...); err != nil {
			return err
		}
	}
	return nil
}

// entries reads a result with the vectors of a member's model. Without such vectors
// it is embedded, and stored as a copy so that no text is embedded twice. With
// byWords, the entries have no vectors if the model is unreachable.
func (s *Set) entries(ctx context.Context, m *Member, r taskstore.LiveResult, byWords bool) (made []index.Entry, tokens int, err error) {
	model := m.Space.Model
	stored, err := artifact.LoadFor(ctx, s.cfg.Blobs, r.ArtifactKey, model.ID)
	if err != nil {
		return nil, 0, err
	}
	if stored.Header.ModelID != model.ID && model.Dim > 0 {
		stored.Vectors, err = s.embed(ctx, m, r.Name, stored.Chunks)
		switch {
		case err != nil && byWords && m.embedErr != nil:
			stored.Vectors = nil
		case err != nil:
			return nil, 0, err
		default:
			for _, c := range stored.Chunks {
				tokens += c.Tokens
			}
			stored.Header.ModelID, stored.Header.Dim = model.ID, model.Dim
			stored.Header = stored.Header.WithReadings(nil) // the original has them
			var file bytes.Buffer
			if err := artifact.Encode(&file, stored.Header, stored.Chunks, stored.Vectors); err != nil {
				return nil, tokens, err
			}
			if _, err := s.cfg.Blobs.Put(ctx, artifact.CopyKey(r.ArtifactKey, model.ID), &file, int64(file.Len())); err != nil {
				return nil, tokens, err
			}
		}
	}
	of := index.Entry{TenantID: r.TenantID, DatasetID: r.DatasetID, Name: r.Name, MediaType: r.MediaType}
	return index.Entries(of, stored.Chunks, stored.Vectors), tokens, nil
}

func (s *Set) embed(ctx context.Context, m *Member, name string, chunks []sheaf.Chunk) ([][]float32, error) {
	texts := make([]string, len(chunks))
	for i, c := range chunks {
		texts[i] = s.cfg.Text(name, c)
	}
	return embed.Each(ctx, m.Embedder, texts, embed.Passage)
}

// Put writes one result into an index of the set.
func (s *Set) Put(ctx context.Context, m *Member, r taskstore.LiveResult) error {
	if m.Index == nil {
		return unavailable(m.Err)
	}
	made, _, err := s.entries(ctx, m, r, true)
	if err != nil {
		return err
	}
	return m.For(r.TenantID).Write(ctx, made)
}

// passed decides what to do when a pass has covered every result.
func (s *Set) passed(ctx context.Context, m *Member, st *State, note func() (bool, error)) (more bool, err error) {
	f := &st.Fill
	if f.Pass == 0 || f.Written > 0 || st.Lost == "" && st.Want == "" && time.Since(f.Started) < settle*s.cfg.Follow {
		f.Pass, f.Cursor = f.Pass+1, ""
		soon := f.Written > 0
		more, err = note()
		return more && soon, err
	}
	f.Cursor = ""
	switch {
	case st.Lost != "":
		s.cfg.Log.InfoContext(ctx, "the index is whole again", "ranges", f.Done, "unreadable", f.Failed)
		if st.Lost, st.LostTenant, st.Phase = "", "", ""; st.Beside != nil {
			st.Phase, st.Fill = Filling, Fill{Started: time.Now(), Pass: 1}
		}
	case st.Want == Rollback:
		st.exchange()
		st.Phase = Ready
	case st.Want == Switch && st.Force:
		st.arrive()
	default:
		if st.Gate, err = s.gate(ctx, st, m); err != nil {
			return false, err
		}
		switch {
		case !st.Gate.Passed:
			st.Phase, st.Want, st.Auto = Refused, "", false
			s.cfg.Log.WarnContext(ctx, "the new index did not pass the gate; search stays on the old one", "reason", st.Gate.Reason)
		case st.Want == Switch, st.Auto && st.Beside.Tenant != "":
			st.arrive()
		case st.Auto:
			st.exchange()
			st.drop(*st.Beside, time.Now())
			st.Beside, st.Phase, st.Auto, st.Gate = nil, "", false, nil
		default:
			st.Phase = Ready
		}
	}
	return note()
}

// dropDue deletes the indexes that can no longer be in use by a search.
func (s *Set) dropDue(ctx context.Context) error {
	v := s.View()
	for _, d := range v.State.Dropping {
		if time.Since(d.Since) < s.cfg.Grace {
			continue
		}
		d.Space.Made = true // do not create a missing one
		s.mu.Lock()
		m := s.members[d.Space.Instance]
		delete(s.members, d.Space.Instance)
		s.mu.Unlock()
		var x index.Index
		var err error
		if m != nil && m.Index != nil {
			x = m.Index
		} else {
			x, err = s.cfg.OpenIndex(ctx, d.Space, v.State.Owner)
		}
		if err == nil {
			if owned, ok := x.(index.Owned); ok {
				if err = owned.Verify(ctx); err == nil {
					err = owned.Drop(ctx)
				}
			}
			if err != nil {
				_ = x.Close()
			}
		}
		if err != nil && !index.IsLost(err) {
			return fmt.Errorf("dropping the index of %s: %w", d.Space.Model.ID, err)
		}
		if err != nil && s.cfg.Remove != nil {
			if err := s.cfg.Remove(d.Space); err != nil {
				return err
			}
		}
		if err := s.change(ctx, func(st *State) error {
			st.Dropping = slices.DeleteFunc(st.Dropping, func(o Dropping) bool { return o.Space.Instance == d.Space.Instance })
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
