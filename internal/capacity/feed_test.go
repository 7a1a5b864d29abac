package capacity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/keeper"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// pending is a store and a queue for a keeper's feed. Reading takes what the model
// says it does, and what is published runs at once.
type pending struct {
	keeper.Store
	queue.Queue
	times Times
	keep  *keeper.Keeper
	doing sync.WaitGroup

	mu      sync.Mutex
	tenants [][]fedTask // tasks that are not published
	waits   []float64
}

type fedTask struct {
	kind  sheaf.TaskKind
	since time.Time
}

func (p *pending) add(tenant int, kind sheaf.TaskKind) {
	p.mu.Lock()
	p.tenants[tenant] = append(p.tenants[tenant], fedTask{kind, time.Now()})
	p.mu.Unlock()
	p.keep.Notify()
}

func (p *pending) Feedable(_ context.Context, after string, _ int, _ time.Duration) (slice taskstore.FeedSlice, err error) {
	from := 0
	if after != "" {
		_, _ = fmt.Sscan(after, &from)
		from++
	}
	p.mu.Lock()
	n := 0
	for i := from; i < len(p.tenants); i++ {
		if len(p.tenants[i]) == 0 {
			continue
		}
		if n == feedTenants {
			slice.Next = fmt.Sprint(i - 1)
			break
		}
		n++
		for range p.tenants[i] {
			slice.Hints = append(slice.Hints, sheaf.Hint{TenantID: fmt.Sprint(i), Lane: sheaf.LaneNormal, Phase: sheaf.PhaseRanges})
		}
	}
	p.mu.Unlock()
	time.Sleep(time.Duration((p.times.ms(feedPass) + float64(n)*p.times.ms(feedTenant) + float64(len(slice.Hints))*p.times.ms(feedHint)) * float64(time.Second)))
	return slice, nil
}

func (p *pending) Publish(_ context.Context, tenant string, _ sheaf.Lane, hints []sheaf.Hint) (int, error) {
	var id int
	_, _ = fmt.Sscan(tenant, &id)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tenants[id][:len(hints)] {
		p.waits = append(p.waits, time.Since(t.since).Seconds())
		if t.kind == sheaf.KindPlan {
			p.doing.Go(func() {
				time.Sleep(time.Duration(p.times.ms(executorDocument) * float64(time.Second)))
				p.add(id, sheaf.KindParse)
			})
		}
	}
	p.tenants[id] = p.tenants[id][len(hints):]
	return len(hints), nil
}

func (p *pending) Meta(context.Context, string) (string, error)                     { return "", nil }
func (p *pending) SetShare(context.Context, string, int, int) error                 { return nil }
func (p *pending) MarkEnqueued(context.Context, []sheaf.Hint, string) (bool, error) { return true, nil }
func (p *pending) RunIDs(context.Context) (map[sheaf.Lane]string, error)            { return nil, nil }
func (p *pending) Changes(context.Context) <-chan struct{}                          { return nil }
func (p *pending) Notify(context.Context) error                                     { return nil }
func (p *pending) Reconcile(context.Context, map[string][]string) error             { return nil }
func (p *pending) Running(context.Context) (map[string][]string, error)             { return nil, nil }
func (p *pending) WakeParked(context.Context, int) (int, error)                     { return 0, nil }
func (p *pending) RollUp(context.Context) (int, error)                              { return 0, nil }
func (p *pending) Reap(context.Context, taskstore.ReapPolicy, int) (int, error)     { return 0, nil }
func (p *pending) HardCancel(context.Context, time.Duration, int) (int, error)      { return 0, nil }
func (p *pending) PurgeDeleted(context.Context, int) (int, error)                   { return 0, nil }
func (p *pending) ExpireUploads(context.Context, int) (int, error)                  { return 0, nil }
func (p *pending) CloseIdleJobs(context.Context, int) (int, error)                  { return 0, nil }
func (p *pending) Garbage(context.Context, int) ([]taskstore.Garbage, error)        { return nil, nil }
func (p *pending) Fold(context.Context, int, time.Duration) (int, bool, error)      { return 0, false, nil }
func (p *pending) WatchClock(context.Context) (time.Time, time.Duration, error) {
	return time.Now(), 0, nil
}
func (p *pending) PromoteDue(context.Context, int) (taskstore.Promotion, error) {
	return taskstore.Promotion{}, nil
}
func (p *pending) SettleReceipts(context.Context, int, func(*taskstore.Receipt) error) (int, error) {
	return 0, nil
}
func (p *pending) Cleanup(context.Context, time.Duration, int, bool) (taskstore.CleanupReport, error) {
	return taskstore.CleanupReport{}, nil
}

// Tasks wait for a real keeper to feed them as long as the model says, with few
// tenants that have little to do and with thousands that are read in rounds of
// seconds.
func TestFeedWaitsAsTheKeepers(t *testing.T) {
	for _, of := range []struct {
		tenants int
		rate    float64 // documents a second
	}{{1, 2}, {20, 5}, {200, 100}, {3000, 1000}} {
		t.Run(fmt.Sprint(of.tenants), func(t *testing.T) {
			const seconds, warm = 60, 10
			c := Defaults()
			c.Executors, c.Slots, c.Cores, c.Tenants, c.Cap, c.Warm, c.Until = 1, 10_000, 1000, of.tenants, 10_000, warm, seconds
			defaults := DefaultTimes()
			c.Times = Times{executorDocument: 30, feedPass: defaults[feedPass], feedTenant: defaults[feedTenant], feedHint: defaults[feedHint]}
			c.Database = 1000
			random := rand.New(rand.NewPCG(1, uint64(of.tenants)))
			for at := 0.; at < seconds; at += random.ExpFloat64() / of.rate {
				c.Batch = append(c.Batch, Upload{Tenant: random.IntN(of.tenants), Pages: 1, At: at})
			}
			s := played(t, c, nil)
			// A third are ends of documents, which wait for nobody.
			predicted := s.out.claimed[sheaf.LaneNormal-1].at(1./3 + 2./3/2)

			var waits []float64
			synctest.Test(t, func(t *testing.T) {
				p := &pending{times: c.Times, tenants: make([][]fedTask, of.tenants)}
				p.keep = keeper.New(keeper.Config{Store: p, Queue: p, Feeds: true})
				ctx, stop := context.WithCancel(t.Context())
				p.doing.Go(func() { _ = p.keep.Run(ctx) }) // ends with ctx
				begun := time.Now()
				for _, u := range c.Batch {
					at := time.Duration(u.At * float64(time.Second))
					time.Sleep(time.Until(begun.Add(at)))
					p.add(u.Tenant, sheaf.KindPlan)
				}
				stop()
				p.doing.Wait()
				waits = p.waits[len(p.waits)*warm/seconds:]
			})
			slices.Sort(waits)
			measured := waits[len(waits)/2]
			if ratio := predicted / measured; ratio < .8 || ratio > 1.2 {
				t.Errorf("predicted %.4f s, measured %.4f s", predicted, measured)
			}

		})
	}
}
