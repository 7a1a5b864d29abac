// Package indexset tracks which index is searched and which model made it, and
// fills another one beside it: for another model, or for the same one if the index
// was lost or must be rebuilt. It fills from the artifacts; nothing is parsed, and
// a text is embedded once per model.
//
// All state is one row of the store. Every process follows the row and opens what
// it names; the leading keeper fills, and writes to the row are fenced by its
// version.
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
// queries for it after the settings change to another model. It contains no keys.
type Space struct {
	Model         embed.Model `json:"model"`
	Driver        string      `json:"driver"`
	URL           string      `json:"url,omitempty"`
	Name          string      `json:"name,omitempty"` // the server's name for the model
	QueryPrefix   string      `json:"query_prefix,omitempty"`
	PassagePrefix string      `json:"passage_prefix,omitempty"`
	// Instance identifies the index; 0 is the one made by earlier versions.
	Instance int `json:"instance"`
	// Made means that the index has existed: if it is missing, it was lost.
	Made bool `json:"made"`

	// Tenant is the only tenant whose chunks the index holds, or "" for all tenants
	// without a dedicated index, which Dedicated lists.
	Tenant    string  `json:"tenant,omitempty"`
	Shards    int     `json:"shards,omitempty"` // 0 for the configured number
	Dedicated []Space `json:"dedicated,omitempty"`
}

func (s Space) same(o Space) bool { return s.Model.ID == o.Model.ID && s.Model.Dim == o.Model.Dim }

// Phase is the progress of the index beside the live one.
type Phase string

// Phases; "" means that there is no index beside.
const (
	Filling  Phase = "filling"
	Paused   Phase = "paused"
	Ready    Phase = "ready"    // passed the gate
	Refused  Phase = "refused"  // failed the gate: Gate says why
	Switched Phase = "switched" // it is live, and the previous one is beside it
)

// State is the row in the store.
type State struct {
	Owner  string `json:"owner"` // of the chunks, in every index of this store
	Live   Space  `json:"live"`  // is searched
	Beside *Space `json:"beside,omitempty"`
	Phase  Phase  `json:"phase,omitempty"`
	Want   Action `json:"want,omitempty"` // Switch or Rollback, once nothing is missing
	Force  bool   `json:"force,omitempty"`
	Auto   bool   `json:"auto,omitempty"` // switch and confirm automatically
	Lost   string `json:"lost,omitempty"` // why Live is being refilled; "" if it is complete
	// LostTenant is whose dedicated index was lost; "" for the shared one.
	LostTenant string `json:"lost_tenant,omitempty"`
	Fill       Fill   `json:"fill"`
	Gate       *Gate  `json:"gate,omitempty"`

	// Leaving are tenants that now have a dedicated index: their entries in the
	// shared one are deleted once no search uses them.
	Leaving   []Leaving  `json:"leaving,omitempty"`
	Dropping  []Dropping `json:"dropping,omitempty"`
	Models    []string   `json:"models,omitempty"` // for which results may have copies with vectors
	Instances int        `json:"instances"`        // assigned so far
}

// Dropping is an index to delete once no search uses it.
type Dropping struct {
	Space Space     `json:"space"`
	Since time.Time `json:"since"`
}

// Leaving is a tenant to delete from the shared index.
type Leaving struct {
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
}

// Fill is the progress of filling an index.
type Fill struct {
	Started  time.Time `json:"started,omitzero"`
	Cursor   string    `json:"cursor,omitempty"` // of the last result written
	Pass     int       `json:"pass"`             // 0 writes all; later ones write what is missing
	Written  int       `json:"written"`          // in this pass
	Done     int       `json:"done"`             // results that this pass has seen
	Total    int       `json:"total"`
	Tokens   int64     `json:"tokens"`  // embedded in all passes
	Seconds  float64   `json:"seconds"` // spent in the first pass
	Failed   int       `json:"failed"`  // unreadable results in this pass
	Examples []string  `json:"examples,omitempty"`
	Error    string    `json:"error,omitempty"` // of the last attempt
}

// Gate decides whether the index beside may go live.
type Gate struct {
	Passed     bool    `json:"passed"`
	Missing    int     `json:"missing"`               // results that the index beside lacks
	Samples    int     `json:"samples"`               // questions with a known answer
	RecallLive float64 `json:"recall_live,omitempty"` // share with the answer among the first five hits
	Recall     float64 `json:"recall,omitempty"`
	MaxLoss    float64 `json:"max_loss"`              // of recall
	VectorLive float64 `json:"vector_live,omitempty"` // recall by vectors alone
	Vector     float64 `json:"vector,omitempty"`      // must be half of VectorLive: less means a broken model
	Saved      int     `json:"saved,omitempty"`       // saved queries that were run

	SavedRecallLive float64 `json:"saved_recall_live,omitempty"` // share of them with the answer among the first five hits
	SavedRecall     float64 `json:"saved_recall,omitempty"`

	Reason string `json:"reason,omitempty"`
}

// Action is what an operator requests.
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

// Actions lists them in order of use.
var Actions = []Action{Start, Pause, Resume, Switch, Rollback, Confirm, Cancel}

// Store holds the row, and the results to fill an index with.
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

// act changes the state as an operator requests.
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
		if st.Beside == nil || !at(Filling, Paused, Ready, Refused) { // nil: a lost index is being refilled
			return st.refuse(a)
		}
		if st.returns() {
			st.Leaving = append(st.Leaving, Leaving{st.Beside.Tenant, now})
		} else {
			st.drop(*st.Beside, now)
		}
		st.Beside, st.Phase, st.Gate, st.Want, st.Auto = nil, "", nil, "", false
		if st.Lost != "" { // Live is still being filled
			st.Phase = Filling
		}
	default:
		return fmt.Errorf("%w: %q is no action of a migration", sheaf.ErrInvalid, a)
	}
	return nil
}

// free fails if an index is already being filled.
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

// again starts a pass that writes what is missing.
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
		model := of // and no other driver or server
		model.Instance, model.Tenant, model.Shards, model.Dedicated = st.Instances, d.Tenant, d.Shards, nil
		of.Dedicated[i] = model
	}
	if !slices.Contains(st.Models, of.Model.ID) {
		st.Models = append(st.Models, of.Model.ID)
	}
	return &of
}

// drop marks an index that is no longer needed for deletion.
func (st *State) drop(s Space, now time.Time) {
	for _, d := range append([]Space{s}, s.Dedicated...) {
		d.Dedicated = nil
		st.Dropping = append(st.Dropping, Dropping{d, now})
	}
}

// lost replaces the live index with a new one.
func (st *State) lost(reason string, now time.Time) {
	dedicated := st.Live.Dedicated // still exist
	st.Live.Dedicated = nil
	st.Live = *st.space(st.Live)
	st.Live.Dedicated, st.Leaving = dedicated, nil
	st.fillAnew("", reason, now)
}

// lostOf replaces a tenant's dedicated index with a new one.
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
	if st.Beside != nil && st.Beside.Tenant != "" { // a move restarts once the refill is complete
		if st.Beside.Instance != st.Live.Instance && st.Beside.Made {
			st.drop(*st.Beside, now)
		}
		st.Beside, st.Auto = nil, false
	}
	st.Lost, st.LostTenant, st.Phase, st.Want, st.Fill, st.Gate = reason, tenantID, Filling, "", Fill{Started: now}, nil
}

// exchange makes the index beside live, and keeps the other one beside it.
func (st *State) exchange() {
	st.Leaving = nil // the new one never had them, and the old one is dropped
	live := st.Live
	st.Live, st.Beside = *st.Beside, &live
	st.Want, st.Force = "", false
}

// target is the space being filled, or nil.
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
