package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"sheaf"
	"sheaf/taskstore"
)

// backlogGroup is one line of what waits and runs.
type backlogGroup struct {
	TenantID, State string
	Paused, Lane, N int
	Oldest          int64
}

// Backlog reads all of it with a bounded number of statements, whatever the
// number of tenants, and lists no more than top of them: one statement over the
// index by which tasks are fed, and three over small tables.
func (s *queues) Backlog(ctx context.Context, top int) (*taskstore.Backlog, error) {
	db := s.read(ctx)
	var groups []backlogGroup
	err := db.Raw(`SELECT tenant_id, state, paused, lane, COUNT(*) AS n, MIN(run_at) AS oldest FROM tasks
		WHERE state IN ('pending','running','retry_wait','parked','dead') AND paused IN (0, 1) GROUP BY state, paused, tenant_id, lane`).Scan(&groups).Error
	if err != nil {
		return nil, translate(err)
	}
	var tenants []tenantRow
	if err := db.Raw("SELECT * FROM tenants").Scan(&tenants).Error; err != nil {
		return nil, translate(err)
	}
	var rest []struct{ NowMs, Executors int64 }
	if err := db.Raw(s.sql("SELECT @now AS now_ms, (SELECT COUNT(*) FROM workers WHERE seen_at>=@now-60000) AS executors")).Scan(&rest).Error; err != nil {
		return nil, translate(err)
	}
	out := sumBacklog(groups, tenants, rest[0].NowMs, top)
	out.Executors = int(rest[0].Executors)
	return out, nil
}

// sumBacklog sums groups by lane and by tenant and keeps the top tenants.
func sumBacklog(groups []backlogGroup, tenants []tenantRow, now int64, top int) *taskstore.Backlog {
	out := &taskstore.Backlog{}
	for _, lane := range sheaf.Lanes {
		out.Lanes = append(out.Lanes, taskstore.LaneBacklog{Lane: lane})
	}
	by := make(map[string]*taskstore.TenantQueue, len(tenants))
	for _, t := range tenants {
		by[t.ID] = &taskstore.TenantQueue{TenantID: t.ID, Weight: t.Weight, Cap: t.Cap, Paused: t.Paused != 0}
	}
	pending := map[string]int{}
	for _, g := range groups {
		t := by[g.TenantID]
		if t == nil {
			continue // it was made, or removed, between two statements
		}
		switch sheaf.TaskState(g.State) {
		case sheaf.TaskRunning:
			t.Running += g.N
			out.Running += g.N
		case sheaf.TaskRetryWait:
			t.RetryWait += g.N
			out.RetryWait += g.N
		case sheaf.TaskParked:
			t.Parked += g.N
			out.Parked += g.N
		case sheaf.TaskDead:
			t.Dead += g.N
			out.Dead += g.N
		case sheaf.TaskPending:
			pending[g.TenantID] += g.N
			if t.Lanes == nil {
				for _, lane := range sheaf.Lanes {
					t.Lanes = append(t.Lanes, taskstore.LaneDepth{Lane: lane})
				}
			}
			held := t.Paused || g.Paused != 0
			age := max(float64(now-g.Oldest)/1000, 0)
			for i := range out.Lanes {
				if int(out.Lanes[i].Lane) != g.Lane {
					continue
				}
				t.Lanes[i].Pending += g.N
				if held {
					out.Lanes[i].Held += g.N
					continue
				}
				t.Lanes[i].OldestPendingAge = max(t.Lanes[i].OldestPendingAge, age)
				t.OldestPendingAge = max(t.OldestPendingAge, age)
				out.Lanes[i].Pending += g.N
				out.Lanes[i].OldestPendingAge = max(out.Lanes[i].OldestPendingAge, age)
			}
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

// Population reads every document and job: not for each scrape.
func (s *queues) Population(ctx context.Context) (*taskstore.Population, error) {
	db := s.read(ctx)
	out := &taskstore.Population{Documents: map[sheaf.DocumentState]int{}}
	var documents []struct {
		State string
		N     int
	}
	if err := db.Raw("SELECT state, COUNT(*) AS n FROM documents WHERE deleted_at=0 GROUP BY state").Scan(&documents).Error; err != nil {
		return nil, translate(err)
	}
	for _, d := range documents {
		out.Documents[sheaf.DocumentState(d.State)] = d.N
	}
	// A job has no state of its own. Those with a document that is not at its
	// end are found from these documents, which are few beside those that are.
	var open []struct{ Begun, N int }
	err := db.Raw(`SELECT begun, COUNT(*) AS n FROM (
			SELECT g.job_id, MAX(CASE WHEN d.state IN ('unstarted','queued') THEN 0 ELSE 1 END) AS begun
			FROM documents d JOIN generations g ON g.doc_id=d.id AND g.gen=d.gen
			WHERE d.state IN ('unstarted','queued','running','finalizing','canceling') AND d.deleted_at=0 GROUP BY g.job_id) x GROUP BY begun`).Scan(&open).Error
	if err != nil {
		return nil, translate(err)
	}
	for _, o := range open {
		if o.Begun != 0 {
			out.Running = o.N
		} else {
			out.Queued = o.N
		}
	}
	var jobs []int
	if err := db.Raw("SELECT COUNT(*) FROM jobs").Scan(&jobs).Error; err != nil {
		return nil, translate(err)
	}
	out.Jobs = jobs[0]
	return out, nil
}
