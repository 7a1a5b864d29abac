package keeper

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
)

// publishing is how many streams are published to concurrently.
const publishing = 8

// feedTime bounds one run; the next run resumes at the tenant where it stopped.
const feedTime = 10 * time.Second

// feed publishes pending tasks, a slice of tenants at a time, so that the first are
// being worked on while thousands are still to be read. If the queue has lost its
// memory, all pending tasks count as unpublished; the window prevents a flood.
func (k *Keeper) feed(ctx context.Context) (int, error) {
	k.emptyIn = 0
	if err := k.notice(ctx); err != nil {
		return 0, err
	}
	begun, all, most := time.Now(), 0, 0
	away := map[sheaf.Lane]error{} // a lane may have its own engine: the others continue
	told := true
	for {
		slice, err := k.cfg.Store.Feedable(ctx, k.fedTo, k.cfg.Window, k.cfg.RequeueAfter)
		if err != nil {
			return 0, err
		}
		told = told && k.shares(ctx, slice.Tenants)
		fed, headroom := k.publish(ctx, slice.Hints, away)
		// A crash here publishes the same hints again: the claim refuses an extra hint,
		// but a missing one would be lost.
		marked, failed := k.cfg.Store.MarkEnqueued(ctx, fed, k.noted)
		if failed != nil {
			return 0, failed
		}
		if !marked {
			// Another keeper leads as well, and has fed or is feeding these tasks again.
			k.knownRuns = nil
			return 0, nil
		}
		all, most, k.fedTo = all+len(fed), max(most, headroom), slice.Next
		if k.fedTo == "" || len(away) == len(sheaf.Lanes) {
			break
		}
		if time.Since(begun) > feedTime {
			return batch, nil
		}
	}
	now := time.Now()
	if !k.fedAt.IsZero() {
		k.emptyIn = halfEmptyIn(now.Sub(k.fedAt), most, k.cfg.Window)
	}
	k.fedAt = now
	for _, err := range away {
		return min(all, batch-1), err
	}
	return min(all, batch-1), nil // the window, not the batch, limits the rate of feeding
}

// halfEmptyIn is how long to wait before the next feed: until the stream that was
// drained most is half empty, given that it took in most hints since the last time.
// A stream found empty may have been so for long.
func halfEmptyIn(since time.Duration, most, window int) time.Duration {
	switch {
	case most == 0:
		return 0
	case most >= window:
		return since / 4
	default:
		return since * time.Duration(window) / time.Duration(2*most)
	}
}

// publish offers each lane its hints. It returns the accepted ones, and the largest
// number that one stream accepted. Plans and bulk are offered separately: when they
// fill the window, others still have room. Lanes in away are skipped, and lanes that
// fail are added to it.
func (k *Keeper) publish(ctx context.Context, hints []sheaf.Hint, away map[sheaf.Lane]error) (fed []sheaf.Hint, most int) {
	type stream struct {
		tenant string
		lane   sheaf.Lane
		last   sheaf.Phase
	}
	groups := map[stream][]sheaf.Hint{}
	var order []stream
	for _, h := range hints {
		s := stream{h.TenantID, h.Lane, max(h.Phase, sheaf.PhaseRanges)}
		if groups[s] == nil {
			order = append(order, s)
		}
		groups[s] = append(groups[s], h)
	}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(publishing)
	for _, s := range order {
		all.Go(func() error {
			mu.Lock()
			skip := away[s.lane] != nil
			mu.Unlock()
			if skip {
				return nil
			}
			accepted, failed := k.cfg.Queue.Publish(ctx, s.tenant, s.lane, groups[s])
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				away[s.lane] = failed
				return nil
			}
			fed = append(fed, groups[s][:accepted]...)
			most = max(most, accepted)
			return nil
		})
	}
	_ = all.Wait() // away holds the failures
	return fed, most
}
