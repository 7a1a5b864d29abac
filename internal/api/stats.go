package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"sheaf/internal/indexset"
	"sheaf/taskstore"
)

// StatsAnswer is recent throughput and the state of the search index.
type StatsAnswer struct {
	taskstore.Stats
	Index *indexset.Status `json:"index,omitempty" doc:"whether the searched index is complete, and the progress of one being filled"`
}

// statsSpans are the look-back periods and their bucket sizes, in minutes: about a
// hundred bars each.
var statsSpans = map[string]struct{ minutes, bucket int }{
	"":      {60, 1},
	"hour":  {60, 1},
	"day":   {24 * 60, 15},
	"month": {30 * 24 * 60, 6 * 60},
}

// statsRoutes registers the statistics route.
func (s *Server) statsRoutes() {
	type in struct {
		Minutes int    `query:"minutes" minimum:"1" maximum:"180" doc:"how far to look back, in one-minute buckets; 60 if neither this nor span is given"`
		Span    string `query:"span" enum:"hour,day,month" doc:"look back this far instead: an hour in 1-minute buckets, a day in 15-minute buckets, 30 days in 6-hour buckets. A day and a month are up to a minute old"`
	}
	long := longStats{read: func(ctx context.Context, tenantID string, minutes, bucket int) (*taskstore.Stats, error) {
		return s.cfg.Catalog.Stats(ctx, tenantID, minutes, bucket)
	}}
	handle(s, get("/v1/stats", "Read throughput and stage times of the last minutes, a day or a month, and the state of the search index"), func(ctx context.Context, in *in) (*output[StatsAnswer], error) {
		tenant := tenantOf(ctx)
		if !s.cfg.Auth {
			tenant = "" // as for the queues
		}
		if in.Span != "" && in.Minutes != 0 {
			return nil, newProblem(http.StatusBadRequest, "", "give minutes or span, not both")
		}
		span := statsSpans[in.Span]
		if in.Minutes != 0 {
			span.minutes = in.Minutes
		}
		read := s.cfg.Catalog.Stats
		if span.bucket > 1 {
			read = long.stats
		}
		st, err := read(ctx, tenant, span.minutes, span.bucket)
		if err != nil {
			return nil, err
		}
		out := &output[StatsAnswer]{StatsAnswer{Stats: *st}}
		if s.cfg.Indexes != nil {
			out.Body.Index, err = s.indexStatus(ctx)
		}
		return out, err
	})
}

// Bounds of the cached sums. A month of a busy fleet is millions of rows in the
// store: they are summed at most once a minute, however many callers there are.
const (
	longStatsAge = time.Minute
	maxLongStats = 1000
)

// longStats caches sums over long periods for a minute.
type longStats struct {
	read    func(ctx context.Context, tenantID string, minutes, bucket int) (*taskstore.Stats, error)
	reading singleflight.Group

	mu   sync.Mutex
	kept map[string]keptStats
}

type keptStats struct {
	at    time.Time
	stats *taskstore.Stats
}

// stats returns a tenant's sums. Concurrent callers share one read; if it fails,
// all of them get its error.
func (l *longStats) stats(ctx context.Context, tenant string, minutes, bucket int) (*taskstore.Stats, error) {
	key := fmt.Sprintf("%s %d", tenant, minutes)
	l.mu.Lock()
	k := l.kept[key]
	l.mu.Unlock()
	if k.stats != nil && time.Since(k.at) <= longStatsAge {
		return k.stats, nil
	}
	done := l.reading.DoChan(key, func() (any, error) {
		// Not canceled with this caller: others wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longStatsAge)
		defer cancel()
		st, err := l.read(ctx, tenant, minutes, bucket)
		if err == nil {
			l.keep(key, st)
		}
		return st, err
	})
	select {
	case r := <-done:
		st, _ := r.Val.(*taskstore.Stats)
		return st, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *longStats) keep(key string, st *taskstore.Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil || len(l.kept) >= maxLongStats {
		l.kept = map[string]keptStats{}
	}
	l.kept[key] = keptStats{time.Now(), st}
}
