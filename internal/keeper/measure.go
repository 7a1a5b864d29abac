package keeper

import (
	"context"
	"time"
)

// populationEvery is how often documents and jobs are counted, which reads all
// of them.
const populationEvery = time.Minute

// measureShare bounds what measuring may cost: one part in so many of the time,
// so that a backlog of ten millions is measured less often, not at the cost of
// the work.
const measureShare = 20

// measure exports the backlog, and now and then the population.
func (k *Keeper) measure(ctx context.Context) (int, error) {
	begun := time.Now()
	if begun.Sub(k.measuredAt) < measureShare*k.measured {
		return 0, nil
	}
	population := k.populatedAt.IsZero() || begun.Sub(k.populatedAt) >= max(populationEvery, measureShare*k.populated)
	err := k.cfg.Measure(ctx, population)
	took := time.Since(begun)
	k.measuredAt = begun
	if population {
		k.populatedAt, k.populated = begun, took
	} else {
		k.measured = took
	}
	return 0, err
}
