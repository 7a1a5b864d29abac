package taskstore_test

import (
	"context"
	"testing"
	"time"

	"sheaf/taskstore"
)

// rows is a store with so many old events.
type rows struct{ events, calls int }

func (r *rows) Cleanup(_ context.Context, _ time.Duration, limit int, dryRun bool) (taskstore.CleanupReport, error) {
	r.calls++
	n := min(r.events, limit)
	if !dryRun {
		r.events -= n
	}
	return taskstore.CleanupReport{Events: n}, nil
}

// CleanUp removes all there is in rounds, and says when its rounds or its time
// ended before that.
func TestCleanUpStopsAtItsBounds(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx                         context.Context
		events, rounds, want, calls int
		dry, more                   bool
	}{
		"all":               {ctx: t.Context(), events: 2500, rounds: 10, want: 2500, calls: 3},
		"rounds":            {ctx: t.Context(), events: 2500, rounds: 2, want: 2000, calls: 2, more: true},
		"time":              {ctx: ended, events: 2500, rounds: 10, want: 1000, calls: 1, more: true},
		"dry run":           {ctx: t.Context(), events: 2500, rounds: 10, want: 2500, calls: 1, dry: true},
		"dry run of rounds": {ctx: t.Context(), events: 2500, rounds: 2, want: 2000, calls: 1, dry: true, more: true},
	} {
		store := &rows{events: c.events}
		got, more, err := taskstore.CleanUp(c.ctx, store, time.Hour, c.rounds, c.dry)
		if err != nil || got.Events != c.want || more != c.more || store.calls != c.calls {
			t.Errorf("%s: %d events in %d calls, more %v, %v; want %d in %d, more %v", name, got.Events, store.calls, more, err, c.want, c.calls, c.more)
		}
	}
}
