// Package indexset knows which index is searched and which model made it, and
// fills another one beside it: of another model, or of the same one where the
// index was lost or is to be made anew. What it fills comes from the artifacts;
// nothing is parsed, and a text is embedded once for each model.
//
// All of it is one row of the store. Every process follows the row and opens what
// it names; the keeper that leads fills, and whoever changes the row is fenced by
// its version.
package indexset

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/taskstore"
)

// Space is an index and the model of its vectors, with what is needed to embed
// queries for it after the settings name another model. Keys are not part of it.
type Space struct {
	Model         embed.Model `json:"model"`
	Driver        string      `json:"driver"`
	URL           string      `json:"url,omitempty"`
	Name          string      `json:"name,omitempty"` // of the model, as its server knows it
	QueryPrefix   string      `json:"query_prefix,omitempty"`
	PassagePrefix string      `json:"passage_prefix,omitempty"`
	// Instance tells indexes apart; 0 is the one that earlier versions made.
	Instance int `json:"instance"`
	// Made says that the index was there once: where it is missing, it was lost.
	Made bool `json:"made"`

	// Tenant is whose chunks alone the index holds, "" for all that have no index
	// of their own, which Dedicated lists.
	Tenant    string  `json:"tenant,omitempty"`
	Shards    int     `json:"shards,omitempty"` // 0 for as many as the settings say
	Dedicated []Space `json:"dedicated,omitempty"`
}

func (s Space) same(o Space) bool { return s.Model.ID == o.Model.ID && s.Model.Dim == o.Model.Dim }

// Phase is how far the index beside the one that is searched is.
type Phase string

// Phases; "" means that there is no index beside.
const (
	Filling  Phase = "filling"
	Paused   Phase = "paused"
	Ready    Phase = "ready"    // the gate has passed
	Refused  Phase = "refused"  // the gate has not: Gate says why
	Switched Phase = "switched" // it is searched, and the former one is beside it
)

// State is what the store holds.
type State struct {
	Owner  string `json:"owner"` // of the chunks, in every index of this store
	Live   Space  `json:"live"`  // is searched
	Beside *Space `json:"beside,omitempty"`
	Phase  Phase  `json:"phase,omitempty"`
	Want   Action `json:"want,omitempty"` // Switch or Rollback, once nothing is missing there
	Force  bool   `json:"force,omitempty"`
	Auto   bool   `json:"auto,omitempty"` // switch and confirm without being asked
	Lost   string `json:"lost,omitempty"` // why Live is filled anew; "" when it is whole
	// LostTenant is whose own index alone was lost; "" for the one that is shared.
	LostTenant string `json:"lost_tenant,omitempty"`
	Fill       Fill   `json:"fill"`
	Gate       *Gate  `json:"gate,omitempty"`

	// Leaving are tenants that have an index of their own now: what the shared one
	// still has of them goes once nobody searches it any more.
	Leaving   []Leaving  `json:"leaving,omitempty"`
	Dropping  []Dropping `json:"dropping,omitempty"`
	Models    []string   `json:"models,omitempty"` // whose vectors results may have copies with
	Instances int        `json:"instances"`        // given so far
}

// Dropping is an index that goes once nobody searches it any more.
type Dropping struct {
	Space Space     `json:"space"`
	Since time.Time `json:"since"`
}

// Leaving is a tenant whose entries are to go from the shared index.
type Leaving struct {
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
}

// Fill is how far an index is filled.
type Fill struct {
	Started  time.Time `json:"started,omitzero"`
	Cursor   string    `json:"cursor,omitempty"` // of the last result that is in
	Pass     int       `json:"pass"`             // 0 writes all; later ones write what is missing
	Written  int       `json:"written"`          // in this pass
	Done     int       `json:"done"`             // results that this pass has seen
	Total    int       `json:"total"`
	Tokens   int64     `json:"tokens"`  // embedded in all passes
	Seconds  float64   `json:"seconds"` // of work in the first pass
	Failed   int       `json:"failed"`  // results that cannot be read, in this pass
	Examples []string  `json:"examples,omitempty"`
	Error    string    `json:"error,omitempty"` // of the last attempt
}

// Gate is what decides whether the index beside may be searched.
type Gate struct {
	Passed     bool    `json:"passed"`
	Missing    int     `json:"missing"`               // results that the index beside lacks
	Samples    int     `json:"samples"`               // questions whose answer is known
	RecallLive float64 `json:"recall_live,omitempty"` // share whose answer is among the first five hits
	Recall     float64 `json:"recall,omitempty"`
	MaxLoss    float64 `json:"max_loss"`              // of recall
	VectorLive float64 `json:"vector_live,omitempty"` // recall of the vectors alone
	Vector     float64 `json:"vector,omitempty"`      // must be half of VectorLive: less is a broken model
	Saved      int     `json:"saved,omitempty"`       // saved queries that were asked

	SavedRecallLive float64 `json:"saved_recall_live,omitempty"` // share of them whose answer is among the first five hits
	SavedRecall     float64 `json:"saved_recall,omitempty"`

	Reason string `json:"reason,omitempty"`
}

// Action is what an operator asks for.
type Action string

// Actions.
const (
	Start    Action = "start"
	Pause    Action = "pause"
	Resume   Action = "resume"
	Switch   Action = "switch"
	Rollback Action = "rollback"
	Confirm  Action = "confirm"
	Cancel   Action = "cancel"
	Rebuild  Action = "rebuild"

	// Dedicate and Share move a tenant to an index of its own and back.
	Dedicate Action = "dedicate"
	Share    Action = "share"
)

// Actions in the order in which they are used.
var Actions = []Action{Start, Pause, Resume, Switch, Rollback, Confirm, Cancel}

// Store is the row, and what there is to fill an index with.
type Store interface {
	IndexState(ctx context.Context) (value string, version int64, err error)
	SwapIndexState(ctx context.Context, version int64, value string) (bool, error)
	LiveResults(ctx context.Context, tenantID, after string, limit int) ([]taskstore.LiveResult, error)
	LiveTotals(ctx context.Context, tenantID string) (taskstore.LiveTotals, error)
	Tenant(ctx context.Context, id string) (*sheaf.Tenant, error)
	TenantsWith(ctx context.Context, chunks int64, limit int) ([]taskstore.TenantChunks, error)
	SampleQueries(ctx context.Context, n int) ([]taskstore.SavedQuery, error)
	Visible(ctx context.Context, tenantID string, rangeIDs []string) (map[string]taskstore.VisibleRange, error)
}

func load(ctx context.Context, s Store) (st State, version int64, err error) {
	text, version, err := s.IndexState(ctx)
	if err != nil || version == 0 {
		return st, version, err
	}
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		return st, version, fmt.Errorf("the stored state of the index cannot be read: %w", err)
	}
	return st, version, nil
}

func swap(ctx context.Context, s Store, version int64, st State) (bool, error) {
	text, err := json.Marshal(st)
	if err != nil {
		return false, err
	}
	return s.SwapIndexState(ctx, version, string(text))
}

func conflict(code, format string, args ...any) error {
	return fmt.Errorf("%w: %w", sheaf.ErrConflict, sheaf.Fail(sheaf.CategoryPolicy, code, format, args...))
}

// act changes the state as an operator asks.
func (st *State) act(a Action, configured Space, force bool, now time.Time) error {
	at := func(phases ...Phase) bool { return slices.Contains(phases, st.Phase) }
	switch a {
	case Start, Rebuild:
		if err := st.free(); err != nil {
			return err
		}
		next := configured
		next.Dedicated = st.Live.Dedicated
		if a == Rebuild {
			next = st.Live
		} else if next.same(st.Live) {
			return conflict("index_model_same", "The index already holds vectors of %s: name another model in embed.model first, or run `sheaf index rebuild`.", st.Live.Model.ID)
		}
		st.Beside, st.Phase, st.Auto = st.space(next), Filling, a == Rebuild
		st.Fill, st.Gate = Fill{Started: now}, nil
	case Pause:
		if !at(Filling) {
			return st.refuse(a)
		}
		st.Phase = Paused
	case Resume:
		if !at(Paused, Refused) {
			return st.refuse(a)
		}
		if st.Phase == Refused {
			st.Fill.again()
		}
		st.Phase, st.Fill.Error = Filling, ""
	case Switch:
		if !at(Ready) && !(force && at(Refused)) {
			return st.refuse(a)
		}
		st.want(a, force)
	case Rollback:
		if !at(Switched) {
			return st.refuse(a)
		}
		st.want(a, force)
	case Confirm:
		if !at(Switched) || st.Want != "" {
			return st.refuse(a)
		}
		st.drop(*st.Beside, now)
		st.Beside, st.Phase, st.Gate = nil, "", nil
	case Cancel:
		if st.Beside == nil || !at(Filling, Paused, Ready, Refused) { // nil: a lost index is filled anew
			return st.refuse(a)
		}
		if st.returns() {
			st.Leaving = append(st.Leaving, Leaving{st.Beside.Tenant, now})
		} else {
			st.drop(*st.Beside, now)
		}
		st.Beside, st.Phase, st.Gate, st.Want, st.Auto = nil, "", nil, "", false
		if st.Lost != "" { // Live is filled on
			st.Phase = Filling
		}
	default:
		return fmt.Errorf("%w: %q is no action of a migration", sheaf.ErrInvalid, a)
	}
	return nil
}

// free fails where the index is being filled already.
func (st *State) free() error {
	switch {
	case st.Lost != "":
		return conflict("index_rebuilding", "The index is being filled anew: wait until `sheaf index status` says that it is whole.")
	case st.Beside != nil && st.Beside.Tenant != "":
		return conflict("index_migration_exists", "Tenant %s is being moved to another index: wait, or cancel that by `sheaf index migrate cancel`.", st.Beside.Tenant)
	case st.Beside != nil:
		return conflict("index_migration_exists", "A migration to %s is %s: confirm, cancel or roll it back first.", st.Beside.Model.ID, st.Phase)
	}
	return nil
}

func (st *State) refuse(a Action) error {
	return conflict("index_migration_phase", "There is nothing to %s: the migration is %s.", a, orNone(st.Phase))
}

func orNone(p Phase) string {
	if p == "" {
		return "not started"
	}
	return string(p)
}

func (st *State) want(a Action, force bool) {
	st.Want, st.Force = a, force
	st.Fill.again()
}

// again begins a pass that writes what is missing.
func (f *Fill) again() {
	f.Cursor, f.Pass, f.Written, f.Done, f.Failed, f.Examples = "", max(f.Pass, 1), 0, 0, 0, nil
}

// space numbers a new index of a model.
func (st *State) space(of Space) *Space {
	st.Instances++
	of.Instance, of.Made = st.Instances, false
	of.Dedicated = slices.Clone(of.Dedicated)
	for i, d := range of.Dedicated {
		st.Instances++
		model := of // and of no other driver or server
		model.Instance, model.Tenant, model.Shards, model.Dedicated = st.Instances, d.Tenant, d.Shards, nil
		of.Dedicated[i] = model
	}
	if !slices.Contains(st.Models, of.Model.ID) {
		st.Models = append(st.Models, of.Model.ID)
	}
	return &of
}

// drop notes an index that nobody needs any more.
func (st *State) drop(s Space, now time.Time) {
	for _, d := range append([]Space{s}, s.Dedicated...) {
		d.Dedicated = nil
		st.Dropping = append(st.Dropping, Dropping{d, now})
	}
}

// lost puts a new index in the place of the one that is searched.
func (st *State) lost(reason string, now time.Time) {
	dedicated := st.Live.Dedicated // are there
	st.Live.Dedicated = nil
	st.Live = *st.space(st.Live)
	st.Live.Dedicated, st.Leaving = dedicated, nil
	st.fillAnew("", reason, now)
}

// lostOf puts a new index in the place of a tenant's own.
func (st *State) lostOf(tenantID, reason string, now time.Time) {
	at := st.Live.dedicatedTo(tenantID)
	if at < 0 {
		return
	}
	st.Live.Dedicated = slices.Clone(st.Live.Dedicated)
	st.Live.Dedicated[at] = *st.space(st.Live.Dedicated[at])
	st.fillAnew(tenantID, reason, now)
}

func (st *State) fillAnew(tenantID, reason string, now time.Time) {
	if st.Beside != nil && st.Beside.Tenant != "" { // a move begins anew once all is there
		if st.Beside.Instance != st.Live.Instance && st.Beside.Made {
			st.drop(*st.Beside, now)
		}
		st.Beside, st.Auto = nil, false
	}
	st.Lost, st.LostTenant, st.Phase, st.Want, st.Fill, st.Gate = reason, tenantID, Filling, "", Fill{Started: now}, nil
}

// exchange searches the index beside, and keeps the other one beside it.
func (st *State) exchange() {
	st.Leaving = nil // the new one never had them, and the former goes
	live := st.Live
	st.Live, st.Beside = *st.Beside, &live
	st.Want, st.Force = "", false
}

// target is the space that is being filled, nil for none.
func (st *State) target() *Space {
	switch {
	case st.Phase == Paused:
		return nil
	case st.LostTenant != "":
		return &st.Live.Dedicated[st.Live.dedicatedTo(st.LostTenant)]
	case st.Lost != "":
		return &st.Live
	case st.Beside != nil && (st.Phase == Filling || st.Want != ""):
		return st.Beside
	}
	return nil
}
