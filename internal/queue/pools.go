package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"sheaf"
)

// Pools is a queue that hands out the tasks of pools, together with tasks of no pool
// or alone. A queue with its own memory holds no hints of tasks in pools: the store
// decides which executors may take them, so Of reads the store and is private to
// this process. Everything else goes to the embedded queue.
type Pools struct {
	Queue       // of the tasks of no pool
	Of    Queue // of the pools' tasks; receives no notifications from others
	Only  bool  // this worker does not take tasks of no pool
	// Look is how often the store is checked for pool tasks while there is other work
	// and no notification.
	Look time.Duration

	mu     sync.Mutex
	looked time.Time
	first  bool                // the latest Take asked the pools first
	taken  map[string]struct{} // ids from Of that are unacked or running, which bounds them
}

// Take implements Hints. The two queues alternate at going first, so that with few
// slots neither starves the other.
func (p *Pools) Take(ctx context.Context, workerID string, slots int, skip []sheaf.TaskKind) (got []sheaf.Hint, err error) {
	p.mu.Lock()
	p.first = !p.first
	first, stale := p.first, time.Since(p.looked) >= p.Look
	if stale {
		p.looked = time.Now()
	}
	p.mu.Unlock()
	if stale {
		// The notification is for the Take below, not for a Wait.
		if err := errors.Join(p.Of.Notify(ctx), p.Of.Wait(ctx, 0)); err != nil {
			return nil, err
		}
	}
	ask := func(pools bool) error {
		if len(got) >= slots || !pools && p.Only {
			return nil
		}
		from := p.Queue
		if pools {
			from = p.Of
		}
		hints, err := from.Take(ctx, workerID, slots-len(got), skip)
		if pools {
			p.mu.Lock()
			p.note(hints)
			p.mu.Unlock()
		}
		got = append(got, hints...)
		return err
	}
	err = errors.Join(ask(first), ask(!first))
	if len(got) > 0 {
		return got, nil // the next call hits the failure again
	}
	return nil, err
}

// note records that hints came from Of; the caller holds mu.
func (p *Pools) note(hints []sheaf.Hint) {
	for _, h := range hints {
		if p.taken == nil {
			p.taken = map[string]struct{}{}
		}
		p.taken[h.TaskID] = struct{}{}
	}
}

// Ack implements Hints.
func (p *Pools) Ack(ctx context.Context, h sheaf.Hint, running bool) error {
	p.mu.Lock()
	from := p.from(h)
	if !running {
		delete(p.taken, h.TaskID)
	}
	p.mu.Unlock()
	return from.Ack(ctx, h, running)
}

// from returns the queue that handed out h; the caller holds mu.
func (p *Pools) from(h sheaf.Hint) Queue {
	if _, pooled := p.taken[h.TaskID]; pooled {
		return p.Of
	}
	return p.Queue
}

// Charge implements Hints. What runs on the executors of a pool leaves a tenant's
// share of the others as it is.
func (p *Pools) Charge(ctx context.Context, h sheaf.Hint, cost int) error {
	p.mu.Lock()
	from := p.from(h)
	p.mu.Unlock()
	return from.Charge(ctx, h, cost)
}

// Done implements Hints. Each queue ignores tasks it does not know.
func (p *Pools) Done(ctx context.Context, tenantID, taskID string) error {
	p.mu.Lock()
	delete(p.taken, taskID)
	p.mu.Unlock()
	return errors.Join(p.Of.Done(ctx, tenantID, taskID), p.Queue.Done(ctx, tenantID, taskID))
}

// Recover implements Hints.
func (p *Pools) Recover(ctx context.Context, workerID string, minIdle time.Duration) ([]sheaf.Hint, error) {
	hints, err := p.Of.Recover(ctx, workerID, minIdle)
	p.mu.Lock()
	p.note(hints)
	p.mu.Unlock()
	if p.Only {
		return hints, err
	}
	more, failed := p.Queue.Recover(ctx, workerID, minIdle)
	return append(hints, more...), errors.Join(err, failed)
}

// Wait implements Notifier. Either queue ends it. The next Take checks the pools in
// any case: whoever made a task there notified the embedded queue.
func (p *Pools) Wait(ctx context.Context, d time.Duration) error {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	var freed sync.WaitGroup
	freed.Go(func() {
		if p.Of.Wait(both, d) == nil { // a slot under a cap became free
			cancel()
		}
	})
	err := p.Queue.Wait(both, d)
	if both.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	cancel()
	freed.Wait()
	p.mu.Lock()
	p.looked = time.Time{}
	p.mu.Unlock()
	return err
}

// Depths implements Reconciler.
func (p *Pools) Depths(ctx context.Context) ([]Depth, error) {
	depths, err := p.Queue.Depths(ctx)
	of, failed := p.Of.Depths(ctx)
	for _, d := range of {
		i := slices.IndexFunc(depths, func(o Depth) bool { return o.TenantID == d.TenantID && o.Lane == d.Lane })
		if i < 0 {
			depths = append(depths, d)
			continue
		}
		depths[i].Waiting += d.Waiting
		depths[i].Taken += d.Taken
	}
	slices.SortFunc(depths, CompareDepths)
	return depths, errors.Join(err, failed)
}

// Leave implements Hints.
func (p *Pools) Leave(ctx context.Context, workerID string) error {
	return errors.Join(p.Of.Leave(ctx, workerID), p.Queue.Leave(ctx, workerID))
}
