package sqlstore

import (
	"context"
	"time"

	"sheaf/taskstore"
)

// fairnessKey is where the fairness of the last minutes is stored, for all
// processes to read.
const fairnessKey = "fairness"

// fairnessStale is after what time it says nothing more: nobody measures.
const fairnessStale = 2 * time.Minute

// MeasureFairness sums what tenants were served lately, compares those that
// wait, and stores it for Stats. nil where fewer than two wait.
func (s *events) MeasureFairness(ctx context.Context, tenants []taskstore.TenantQueue) (*taskstore.Fairness, error) {
	rows, err := all[struct {
		TenantID string
		Cost     int
	}](s.read(ctx), s.sql("SELECT tenant_id, SUM(cost) AS cost FROM stats_minutes WHERE minute>(@now-?)/60000 GROUP BY tenant_id"), taskstore.FairnessWindow.Milliseconds())
	if err != nil {
		return nil, err
	}
	served := make(map[string]int, len(rows))
	for _, r := range rows {
		served[r.TenantID] = r.Cost
	}
	f := taskstore.FairnessOf(tenants, served)
	if f == nil {
		return nil, nil // what was stored goes stale
	}
	now, err := s.clockTime(s.read(ctx))
	if err != nil {
		return nil, err
	}
	f.At = toTime(now).UTC()
	return f, s.SetMeta(ctx, fairnessKey, encode(f))
}

// fairness is what MeasureFairness has stored, nil where that is too long ago.
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
