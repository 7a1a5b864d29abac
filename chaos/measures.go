package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// tenantCap is per weight, and more than a tenant's share of the slots: a task
	// whose end is being written has left its slot but still counts, and a tenant
	// at its cap waits while others are served.
	tenantCap = 8
	// slots of the fleet: three executors of four workers. Up to that many claims
	// may be in flight when something changes.
	slots = 12
	// promised is how soon throughput recovers fully once Redis is back.
	promised = 10 * time.Second
	// window is the unit of measuring throughput. Claims are uneven within it, so
	// full throughput means as many as in the slowest window before.
	window = 4 * time.Second
)

// measureShares creates a backlog, without faults, and checks I13: tenants are
// served by weight, a new tenant is served at once, and no tenant runs more than
// its cap. Then it flushes Redis and measures when claims are as frequent as before
// (I14).
func (t *trial) measureShares(ctx context.Context, r *record) error {
	backlog := func(tenant string, documents int) error {
		for range documents {
			if _, err := t.l.sendTrial(ctx, &document{tenant: tenant, token: t.l.word()}, 40, true); err != nil {
				return err
			}
		}
		return nil
	}
	one := func(query string, args ...any) (n int64, err error) {
		err = t.e.db.QueryRowContext(ctx, query, args...).Scan(&n)
		return n, err
	}
	const lastEvent = "SELECT COALESCE(MAX(seq),0) FROM events"
	const claimsSince = "SELECT COUNT(*) FROM events WHERE kind='claimed' AND seq>?"

	// A newcomer, while two other tenants keep every slot busy.
	for tenant, n := range map[string]int{"alpha": 10, "gamma": 20} {
		if err := backlog(tenant, n); err != nil {
			return err
		}
	}
	if err := until(ctx, 60*time.Second, "a busy fleet", func() error {
		n, err := one("SELECT COUNT(*) FROM tasks WHERE state='running' AND kind='parse'")
		if err == nil && n < slots/2 {
			err = fmt.Errorf("%d tasks run", n)
		}
		return err
	}); err != nil {
		return err
	}
	before, err := one(lastEvent)
	if err != nil {
		return err
	}
	if err := backlog("beta", 10); err != nil {
		return err
	}
	if err := until(ctx, 60*time.Second, "the newcomer's first claim", func() error {
		n, err := one(`SELECT COUNT(*) FROM events WHERE kind='claimed' AND seq<(SELECT MIN(seq) FROM events WHERE kind='claimed' AND tenant_id='beta' AND seq>?)
			AND seq>(SELECT MIN(seq) FROM events WHERE kind='document' AND tenant_id='beta' AND seq>?)`, before, before)
		if err != nil {
			return err
		}
		if first, err := one("SELECT COALESCE(MIN(seq),0) FROM events WHERE kind='claimed' AND tenant_id='beta' AND seq>?", before); err != nil || first == 0 {
			return fmt.Errorf("it has none (%v)", err)
		}
		r.NewcomerAfter = int(n)
		return nil
	}); err != nil {
		return err
	}
	if r.NewcomerAfter > slots+len(tenants) {
		t.l.violation("I13: a newcomer was served after %d claims of others; the fleet has %d slots", r.NewcomerAfter, slots)
	}

	// All three have a backlog.
	if err := until(ctx, 60*time.Second, "three backlogs", func() error {
		n, err := one("SELECT COUNT(*) FROM (SELECT tenant_id FROM tasks WHERE state='pending' AND kind='parse' GROUP BY tenant_id HAVING COUNT(*)>=16) x")
		if err == nil && n < int64(len(tenants)) {
			err = fmt.Errorf("%d tenants have one", n)
		}
		return err
	}); err != nil {
		return err
	}
	if before, err = one(lastEvent); err != nil {
		return err
	}
	begun := time.Now()
	if err := until(ctx, 90*time.Second, "120 claims", func() error {
		for _, tenant := range tenants {
			runs, err := one("SELECT COUNT(*) FROM tasks WHERE state='running' AND tenant_id=?", tenant)
			if err != nil {
				return err
			}
			if cap := int64(tenantCap * weights[tenant]); runs > cap {
				t.l.violation("I13: %s runs %d tasks, its cap is %d", tenant, runs, cap)
			}
		}
		n, err := one(claimsSince, before)
		if err == nil && n < 120 {
			err = fmt.Errorf("there were %d", n)
		}
		return err
	}); err != nil {
		return err
	}
	took := time.Since(begun)
	served, total, weight := map[string]float64{}, 0.0, 0
	for _, tenant := range tenants {
		cost, err := one(`SELECT COALESCE(SUM(t.cost),0) FROM events e JOIN tasks t ON t.id=e.subject_id WHERE e.kind='claimed' AND e.seq>? AND e.tenant_id=?`, before, tenant)
		if err != nil {
			return err
		}
		served[tenant], total, weight = float64(cost), total+float64(cost), weight+weights[tenant]
	}
	r.Served = map[string]float64{}
	for _, tenant := range tenants {
		fair := total * float64(weights[tenant]) / float64(weight)
		r.Served[tenant] = served[tenant] / fair
		// Each executor that picks at either edge of the window may have two tasks
		// picked on the other side of it. If weights were ignored, gamma would be
		// off by 70.
		if off := served[tenant] - fair; max(off, -off) > 2*4*float64(len(t.f.of("executor"))+1) {
			t.l.violation("I13: %s was served %.0f pages, its share by weight was %.0f of %.0f", tenant, served[tenant], fair, total)
		}
	}
	times, err := t.e.claimTimes(ctx, begun)
	if err != nil {
		return err
	}
	r.ClaimsPerS = float64(within(times, 0, took)) / took.Seconds()
	r.SlowestPerS = r.ClaimsPerS
	for from := time.Duration(0); from+window <= took; from += window / 16 {
		r.SlowestPerS = min(r.SlowestPerS, float64(within(times, from, window))/window.Seconds())
	}
	return t.measureFlush(ctx, r)
}

// claimTimes returns the times of all claims after begun.
func (e *engines) claimTimes(ctx context.Context, begun time.Time) (times []time.Duration, err error) {
	rs, err := e.db.QueryContext(ctx, "SELECT at FROM events WHERE kind='claimed' AND at>=?", begun.UnixMilli())
	if err != nil {
		return nil, err
	}
	defer rs.Close()
	for rs.Next() {
		var at int64
		if err := rs.Scan(&at); err != nil {
			return nil, err
		}
		times = append(times, time.UnixMilli(at).Sub(begun))
	}
	return times, rs.Err()
}

// within counts the times in an interval starting at from.
func within(times []time.Duration, from, length time.Duration) (n int) {
	for _, at := range times {
		if at >= from && at < from+length {
			n++
		}
	}
	return n
}

// measureFlush flushes Redis in the middle of a backlog.
func (t *trial) measureFlush(ctx context.Context, r *record) error {
	flushed := time.Now()
	if err := t.e.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	// Throughput has recovered at the start of a window with as many claims as the
	// slowest before, if the following window has as many.
	r.FlushBackS = -1
	for r.FlushBackS < 0 && time.Since(flushed) < 2*promised+2*window {
		pause(ctx, window/8)
		times, err := t.e.claimTimes(ctx, flushed)
		if err != nil {
			return err
		}
		full := func(from time.Duration) bool {
			return float64(within(times, from, window)) >= r.SlowestPerS*window.Seconds()
		}
		for after := time.Duration(0); after+2*window <= time.Since(flushed); after += window / 16 {
			if full(after) && full(after+window) {
				r.FlushBackS = after.Seconds()
				r.FlushPerS = float64(within(times, after, 2*window)) / (2 * window).Seconds()
				break
			}
		}
	}
	if r.FlushBackS < 0 {
		r.FlushBackS = time.Since(flushed).Seconds()
	}
	for _, tenant := range tenants { // the rest of the backlog has served its purpose
		if err := t.l.post(ctx, tenant, "/v1/datasets/"+dataset+"/documents:cancel", map[string]any{"filter": map[string]any{"state": []string{"queued", "running", "finalizing"}}}, nil); err != nil {
			return err
		}
	}
	t.l.mu.Lock()
	for _, d := range t.l.docs {
		d.canceled = true
	}
	t.l.mu.Unlock()
	return until(ctx, 60*time.Second, "the end of the backlog", func() error {
		what, err := t.e.open(ctx)
		if err == nil && what > 0 {
			err = fmt.Errorf("%d tasks are open", what)
		}
		return err
	})
}

// open counts the tasks that have not ended.
func (e *engines) open(ctx context.Context) (n int, err error) {
	err = e.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE state NOT IN "+terminal).Scan(&n)
	return n, err
}
