package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"sheaf"
	"sheaf/taskstore"
)

// backlogGroup is one group of waiting or running tasks.
type backlogGroup struct {
	TenantID, State string
	Paused, Lane, N int
	Oldest          int64
}

// count adds the group to the sum of its state; it returns false for pending tasks.
func (g backlogGroup) count(running, retryWait, scheduled, parked, dead *int) bool {
	to := map[sheaf.TaskState]*int{sheaf.TaskRunning: running, sheaf.TaskRetryWait: retryWait, sheaf.TaskScheduled: scheduled, sheaf.TaskParked: parked, sheaf.TaskDead: dead}[sheaf.TaskState(g.State)]
	if to != nil {
		*to += g.N
	}
	return to != nil
}

// queue is the queue of the tenant, before its tasks are counted, in a fleet with that
// cap.
func (r tenantRow) queue(fleetCap int) taskstore.TenantQueue {
	return taskstore.TenantQueue{TenantID: r.ID, Weight: r.Weight, Cap: cmp.Or(r.Cap, fleetCap), Paused: r.Paused != 0}
}

// Backlog uses a bounded number of statements, whatever the number of tenants, and
// lists at most top of them: one statement over the feed index, and three over small
// tables.
func (s *queues) Backlog(ctx context.Context, top int) (*taskstore.Backlog, error) {
	db := s.read(ctx)
	groups, err := all[backlogGroup](db, `SELECT tenant_id, state, paused, lane, COUNT(*) AS n, MIN(run_at) AS oldest FROM tasks
		WHERE state IN ('pending','running','retry_wait','scheduled','parked','dead') AND paused IN (0,1,2,3) GROUP BY state, paused, tenant_id, lane`)
	if err != nil {
		return nil, err
	}
	tenants, err := all[tenantRow](db, "SELECT * FROM tenants")
	if err != nil {
		return nil, err
	}
	rest, err := one[struct{ NowMs, Executors int64 }](db, "clock", s.d.name, s.sql("SELECT @now AS now_ms, (SELECT COUNT(*) FROM workers WHERE seen_at>=@now-60000) AS executors"))
	if err != nil {
		return nil, err
	}
	fleet, err := s.fleetCap(ctx)
	if err != nil {
		return nil, err
	}
	out := sumBacklog(groups, tenants, fleet, rest.NowMs, top)
	out.Executors = int(rest.Executors)
	return out, nil
}

// sumBacklog sums groups by lane and tenant and keeps the top tenants.
func sumBacklog(groups []backlogGroup, tenants []tenantRow, fleetCap int, now int64, top int) *taskstore.Backlog {
	out := &taskstore.Backlog{}
	for _, lane := range sheaf.Lanes {
		out.Lanes = append(out.Lanes, taskstore.LaneBacklog{Lane: lane})
	}
	by := make(map[string]*taskstore.TenantQueue, len(tenants))
	for _, t := range tenants {
		q := t.queue(fleetCap)
		by[t.ID] = &q
	}
	pending := map[string]int{}
	for _, g := range groups {
		t := by[g.TenantID]
		if t == nil {
			continue // it was created or removed between two statements
		}
		if g.count(&t.Running, &t.RetryWait, &t.Scheduled, &t.Parked, &t.Dead) {
			g.count(&out.Running, &out.RetryWait, &out.Scheduled, &out.Parked, &out.Dead)
			continue
		}
		pending[g.TenantID] += g.N
		if t.Lanes == nil {
			t.Lanes = mapped(sheaf.Lanes[:], func(lane sheaf.Lane) taskstore.LaneDepth { return taskstore.LaneDepth{Lane: lane} })
		}
		age := max(float64(now-g.Oldest)/1000, 0)
		for i := range out.Lanes {
			if int(out.Lanes[i].Lane) != g.Lane {
				continue
			}
			t.Lanes[i].Pending += g.N
			if t.Paused || g.Paused%ofPool != 0 {
				out.Lanes[i].Held += g.N
				continue
			}
			t.Lanes[i].OldestPendingAge = max(t.Lanes[i].OldestPendingAge, age)
			t.OldestPendingAge = max(t.OldestPendingAge, age)
			out.Lanes[i].Pending += g.N
			out.Lanes[i].OldestPendingAge = max(out.Lanes[i].OldestPendingAge, age)
		}
	}
	out.Waiting = len(pending)
	size := func(t *taskstore.TenantQueue) int { return pending[t.TenantID] + t.Running + t.Dead }
	busiest := make([]*taskstore.TenantQueue, 0, len(by))
	for _, t := range by {
		if size(t) > 0 {
			busiest = append(busiest, t)
		}
	}
	slices.SortFunc(busiest, func(a, b *taskstore.TenantQueue) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a.TenantID, b.TenantID))
	})
	for _, t := range busiest[:min(top, len(busiest))] {
		out.Tenants = append(out.Tenants, *t)
	}
	return out
}

// Population reads every document and job, so it is not for every scrape.
func (s *queues) Population(ctx context.Context) (*taskstore.Population, error) {
	db := s.read(ctx)
	out := &taskstore.Population{Documents: map[sheaf.DocumentState]int{}}
	documents, err := all[backlogGroup](db, "SELECT state, COUNT(*) AS n FROM documents WHERE deleted_at=0 GROUP BY state")
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		out.Documents[sheaf.DocumentState(d.State)] = d.N
	}
	// A job has no state of its own. Jobs with unfinished documents are found from
	// these documents, which are few compared to finished ones.
	open, err := all[struct{ Begun, N int }](db, `SELECT begun, COUNT(*) AS n FROM (
			SELECT g.job_id, MAX(CASE WHEN d.state IN ('unstarted','queued') THEN 0 ELSE 1 END) AS begun
			FROM documents d JOIN generations g ON g.doc_id=d.id AND g.gen=d.gen
			WHERE d.state IN ('unstarted','queued','running','finalizing','canceling') AND d.deleted_at=0 GROUP BY g.job_id) x GROUP BY begun`)
	if err != nil {
		return nil, err
	}
	for _, o := range open {
		if o.Begun != 0 {
			out.Running = o.N
		} else {
			out.Queued = o.N
		}
	}
	jobs, err := one[int](db, "count", "", "SELECT COUNT(*) FROM jobs")
	out.Jobs = value(jobs)
	return out, err
}
