package keeper

import (
	"context"
	"time"
)

// populationEvery is how often documents and jobs are counted, which reads all of
// them.
const populationEvery = time.Minute

// measureShare limits the cost of measuring to one part in measureShare of the time,
// so that a backlog of tens of millions is measured less often rather than at the
// expense of the work.
const measureShare = 20

// measure exports the backlog, and periodically the population.
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
