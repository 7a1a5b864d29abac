package sqlstore

import (
	"context"
	"time"

	"sheaf/taskstore"
)

// fairnessKey is the meta key of the recent fairness, for all processes to read.
const fairnessKey = "fairness"

// fairnessStale is the age at which a measurement is discarded: measuring has
// stopped.
const fairnessStale = 2 * time.Minute

// MeasureFairness compares what waiting tenants were served recently, and stores it
// for Stats. It returns nil if fewer than two tenants are waiting.
func (s *events) MeasureFairness(ctx context.Context, tenants []taskstore.TenantQueue) (*taskstore.Fairness, error) {
	rows, err := all[struct {
		TenantID string
		Cost     int
	}](s.read(ctx), s.sql("SELECT tenant_id, SUM(cost+beyond) AS cost FROM stats_minutes WHERE minute>(@now-?)/60000 GROUP BY tenant_id"), taskstore.FairnessWindow.Milliseconds())
	if err != nil {
		return nil, err
	}
	served := make(map[string]int, len(rows))
	for _, r := range rows {
		served[r.TenantID] = r.Cost
	}
	f := taskstore.FairnessOf(tenants, served)
	if f == nil {
		return nil, nil // the stored value goes stale
	}
	now, err := s.clockTime(s.read(ctx))
	if err != nil {
		return nil, err
	}
	f.At = toTime(now).UTC()
	return f, s.SetMeta(ctx, fairnessKey, encode(f))
}

// fairness returns what MeasureFairness stored, nil if too old.
func (s *events) fairness(ctx context.Context, nowMS int64) (*taskstore.Fairness, error) {
	text, err := s.Meta(ctx, fairnessKey)
	if err != nil || text == "" {
		return nil, err
	}
	var f taskstore.Fairness
	decode(text, &f)
	if toTime(nowMS).Sub(f.At) > fairnessStale {
		return nil, nil
	}
	return &f, nil
}
