package keeper

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
)

// publishing is how many streams are published to at once.
const publishing = 8

// feed publishes pending tasks. Where the queue has lost its memory everything
// pending counts as not published; the window keeps that from being a flood.
func (k *Keeper) feed(ctx context.Context) (int, error) {
	k.emptyIn = 0
	if err := k.notice(ctx); err != nil {
		return 0, err
	}
	hints, err := k.cfg.Store.Feedable(ctx, k.cfg.Window, k.cfg.RequeueAfter)
	if err != nil {
		return 0, err
	}
	// A change of a share may wait for the next tick; a tenant that the queue
	// knows nothing of may not.
	unknown := func(h sheaf.Hint) bool { _, told := k.shared[h.TenantID]; return !told }
	if time.Since(k.sharedAt) >= k.cfg.FeedEvery || slices.ContainsFunc(hints, unknown) {
		if err := k.shares(ctx); err != nil {
			return 0, err
		}
		k.sharedAt = time.Now()
	}
	fed, most, err := k.publish(ctx, hints)
	// A crash here publishes the same hints again: a hint too many is refused
	// by the claim, a hint too few would be lost.
	if marking := k.cfg.Store.MarkEnqueued(ctx, fed); marking != nil {
		return 0, marking
	}
	now := time.Now()
	if !k.fedAt.IsZero() {
		k.emptyIn = halfEmptyIn(now.Sub(k.fedAt), most, k.cfg.Window)
	}
	k.fedAt = now
	return min(len(fed), batch-1), err // the window, not the batch, limits the rate of feeding
}

// halfEmptyIn is how long the fullest streams may be left alone, when the one that
// was emptied most took in so many hints since the time before: until half
// of its window is taken. One that stood empty may have done so for long.
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

// publish offers each lane its hints and returns those that were taken in, and
// how many the one with the most headroom took. Plans and bulk are offered by
// themselves: where the window is full of them, others still have capacity.
func (k *Keeper) publish(ctx context.Context, hints []sheaf.Hint) (fed []sheaf.Hint, most int, err error) {
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
	away := map[sheaf.Lane]bool{} // a lane may have an engine of its own: the others go on
	var all errgroup.Group
	all.SetLimit(publishing)
	for _, s := range order {
		all.Go(func() error {
			mu.Lock()
			skip := away[s.lane]
			mu.Unlock()
			if skip {
				return nil
			}
			accepted, failed := k.cfg.Queue.Publish(ctx, s.tenant, s.lane, groups[s])
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				away[s.lane], err = true, failed
				return nil
			}
			fed = append(fed, groups[s][:accepted]...)
			most = max(most, accepted)
			return nil
		})
	}
	_ = all.Wait() // err holds what failed
	return fed, most, err
}
