package indexset

import (
	"context"
	"fmt"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
)

// Status describes the index and what is being filled beside it.
type Status struct {
	Model      string     `json:"model" doc:"model of the searched vectors"`
	Configured string     `json:"configured" doc:"the configured model"`
	Stale      bool       `json:"stale" doc:"the searched index is incomplete: see reason"`
	Reason     string     `json:"reason,omitempty"`
	Embedder   string     `json:"embedder,omitempty" doc:"why queries cannot be embedded; search uses words only"`
	Migration  *Migration `json:"migration,omitempty" doc:"absent if nothing is being filled or awaits confirmation"`

	Dedicated []Dedicated `json:"dedicated,omitempty" doc:"tenants with their own index"`
}

// Dedicated is the index of one tenant.
type Dedicated struct {
	Tenant string `json:"tenant" doc:"id of the tenant"`
	Shards int    `json:"shards" doc:"shards of the index"`
}

// Migration describes an index that is being filled or was switched to.
type Migration struct {
	Phase           Phase    `json:"phase" enum:"filling,paused,ready,refused,switched"`
	Wanted          Action   `json:"wanted,omitempty" doc:"action once nothing is missing"`
	Rebuild         bool     `json:"rebuild" doc:"it finishes automatically"`
	From            string   `json:"from" doc:"model"`
	To              string   `json:"to" doc:"model"`
	Tenant          string   `json:"tenant,omitempty" doc:"tenant whose chunks are moved to its own index, or back"`
	Checking        bool     `json:"checking" doc:"everything is written, and is compared with the store"`
	Ranges          int      `json:"ranges" doc:"ranges written"`
	TotalRanges     int      `json:"total_ranges"`
	RangesPerSecond float64  `json:"ranges_per_second,omitempty"`
	SecondsLeft     float64  `json:"seconds_left,omitempty"`
	Tokens          int64    `json:"tokens" doc:"tokens embedded so far"`
	Price           float64  `json:"price,omitempty" doc:"price of these tokens"`
	Currency        string   `json:"currency,omitempty"`
	Unreadable      int      `json:"unreadable,omitempty" doc:"ranges whose stored result cannot be read"`
	Examples        []string `json:"examples,omitempty"`
	Error           string   `json:"error,omitempty" doc:"error of the last attempt; it is retried"`
	Gate            *Gate    `json:"gate,omitempty"`
}

// Estimate is what filling an index of the configured model would take.
type Estimate struct {
	To       string  `json:"to"`
	Ranges   int     `json:"ranges"`
	Chunks   int64   `json:"chunks"`
	Tokens   int64   `json:"tokens" doc:"maximum tokens to embed"`
	Price    float64 `json:"price,omitempty"`
	Currency string  `json:"currency,omitempty"`
	Seconds  float64 `json:"seconds,omitempty" doc:"embedding time, extrapolated from a few texts embedded now"`
}

// Status reads the latest state.
func (s *Set) Status(ctx context.Context) (*Status, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	v := s.View()
	st := &v.State
	out := &Status{Model: st.Live.Model.ID, Configured: s.cfg.Configured.Model.ID}
	if f := st.stale(); f != nil {
		out.Stale, out.Reason = true, f.Message
	} else if err := s.broken.Load(); err != nil {
		out.Stale, out.Reason = true, sheaf.AsFailure(*err, "").Message
	}
	if err := v.Live.embedErr; err != nil {
		out.Embedder = sheaf.AsFailure(err, "").Message
	}
	for _, d := range st.Live.Dedicated {
		out.Dedicated = append(out.Dedicated, Dedicated{d.Tenant, d.Shards})
	}
	if st.Beside == nil && st.Lost == "" {
		return out, nil
	}
	f := &st.Fill
	m := &Migration{
		Phase: st.Phase, Wanted: st.Want, Rebuild: st.Auto || st.Lost != "", From: st.Live.Model.ID, To: st.Live.Model.ID, Checking: f.Pass > 0 && st.target() != nil,
		Ranges: f.filled(), TotalRanges: f.Total, Tokens: f.Tokens, Price: s.price(f.Tokens), Currency: s.cfg.Currency,
		Unreadable: f.Failed, Examples: f.Examples, Error: f.Error, Gate: st.Gate,
	}
	if st.Beside != nil {
		m.Tenant = st.Beside.Tenant
		if m.To = st.Beside.Model.ID; st.Phase == Switched {
			m.From, m.To = m.To, m.From
		}
	}
	if f.Pass == 0 && f.Seconds > 0 {
		m.RangesPerSecond = float64(f.Done) / f.Seconds
		if m.RangesPerSecond > 0 {
			m.SecondsLeft = float64(f.Total-f.Done) / m.RangesPerSecond
		}
	}
	out.Migration = m
	return out, nil
}

func (s *Set) price(tokens int64) float64 { return float64(tokens) / 1e6 * s.cfg.PerMillionTokens }

// Estimate measures what a migration to the configured model would take.
func (s *Set) Estimate(ctx context.Context) (*Estimate, error) {
	totals, err := s.cfg.Store.LiveTotals(ctx, "")
	if err != nil {
		return nil, err
	}
	out := &Estimate{To: s.cfg.Configured.Model.ID, Ranges: totals.Results, Chunks: totals.Chunks, Tokens: totals.Tokens, Price: s.price(totals.Tokens), Currency: s.cfg.Currency}
	some, err := s.cfg.Store.LiveResults(ctx, "", "", 8)
	if err != nil {
		return nil, err
	}
	var tokens int
	var took time.Duration
	for _, r := range some {
		stored, err := artifact.Load(ctx, s.cfg.Blobs, r.ArtifactKey)
		if err != nil {
			continue
		}
		chunks := stored.Chunks[:min(len(stored.Chunks), 4)]
		begun := time.Now()
		if _, err := s.embed(ctx, &Member{Embedder: s.cfg.Embedder}, r.Name, chunks); err != nil {
			return nil, fmt.Errorf("embedding with the configured model: %w", err)
		}
		took += time.Since(begun)
		for _, c := range chunks {
			tokens += c.Tokens
		}
	}
	if tokens > 0 {
		out.Seconds = took.Seconds() / float64(tokens) * float64(totals.Tokens)
	}
	return out, nil
}

// Act performs an operator's action. With dryRun it only reports whether that is
// possible and, for Start, what it would take.
func (s *Set) Act(ctx context.Context, a Action, force, dryRun bool) (*Status, *Estimate, error) {
	var estimate *Estimate
	if dryRun {
		st, _, err := load(ctx, s.cfg.Store)
		if err != nil {
			return nil, nil, err
		}
		if err := st.act(a, s.cfg.Configured, force, time.Now()); err != nil {
			return nil, nil, err
		}
		if a == Start {
			if estimate, err = s.Estimate(ctx); err != nil {
				return nil, nil, err
			}
		}
	} else if err := s.change(ctx, func(st *State) error { return st.act(a, s.cfg.Configured, force, time.Now()) }); err != nil {
		return nil, nil, err
	}
	status, err := s.Status(ctx)
	return status, estimate, err
}
