package child

import (
	"context"
	"sync/atomic"
	"time"
)

// Meter sums the processor time of requests: of the child and the programs it ran.
// Waiting for a child does not count: another request has it. A request that
// exceeds its time limit counts with that. The zero value is ready to use, and it is
// safe for concurrent use.
type Meter struct{ ns atomic.Int64 }

// Spent is the sum so far.
func (m *Meter) Spent() time.Duration { return time.Duration(m.ns.Load()) }

type meterKey struct{}

// WithMeter has the requests made under the context add to m.
func WithMeter(ctx context.Context, m *Meter) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}

func spend(ctx context.Context, d time.Duration) {
	if m, ok := ctx.Value(meterKey{}).(*Meter); ok {
		m.ns.Add(int64(d))
	}
}
