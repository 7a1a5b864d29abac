package sqlstore

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// exactCost is the depth up to which the cost of a lane is summed exactly; beyond,
// it is the mean of a sample times the depth.
const exactCost = 10_000

// Queue returns the state of a tenant's queue.
func (s *queues) Queue(ctx context.Context, tenantID string) (*taskstore.TenantQueue, error) {
	tenant, err := one[tenantRow](s.read(ctx), "tenant", tenantID, "SELECT * FROM tenants WHERE id=?", tenantID)
	if err != nil {
		return nil, err
	}
	qs, err := s.queuesOf(ctx, []tenantRow{*tenant})
	if err != nil {
		return nil, err
	}
	return &qs[0], nil
}

// Queues lists the queues of all tenants, in the order of Tenants.
func (s *queues) Queues(ctx context.Context, p taskstore.Page) ([]taskstore.TenantQueue, string, error) {
	tenants, next, err := s.tenantRows(ctx, p)
	if err != nil || len(tenants) == 0 {
		return nil, "", err
	}
	qs, err := s.queuesOf(ctx, tenants)
	return qs, next, err
}

// queuesOf returns the queues of one or more tenants. It counts depths in the index
// alone, so that a backlog of a million tasks does not read a million rows.
func (s *queues) queuesOf(ctx context.Context, tenants []tenantRow) ([]taskstore.TenantQueue, error) {
	db := s.read(ctx)
	fleet, err := s.fleetCap(ctx)
	if err != nil {
		return nil, err
	}
	out := mapped(tenants, func(t tenantRow) taskstore.TenantQueue { return t.queue(fleet) })
	at := make(map[string]*taskstore.TenantQueue, len(tenants))
	for i := range out {
		out[i].Lanes = mapped(sheaf.Lanes[:], func(lane sheaf.Lane) taskstore.LaneDepth { return taskstore.LaneDepth{Lane: lane} })
		at[out[i].TenantID] = &out[i]
	}
	groups, err := all[backlogGroup](db, `SELECT tenant_id, state, lane, COUNT(*) AS n, MIN(run_at) AS oldest FROM tasks
		WHERE state IN ('pending','running','retry_wait','scheduled','parked','dead') AND paused IN (0,1,2,3) AND tenant_id IN ? GROUP BY state, tenant_id, lane`, mapped(tenants, func(t tenantRow) string { return t.ID }))
	if err != nil {
		return nil, err
	}
	now, err := s.clockTime(db)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		t := at[g.TenantID]
		if t == nil {
			continue
		}
		if g.count(&t.Running, &t.RetryWait, &t.Scheduled, &t.Parked, &t.Dead) {
			continue
		}
		age := max(float64(now-g.Oldest)/1000, 0)
		t.OldestPendingAge = max(t.OldestPendingAge, age)
		for i := range t.Lanes {
			if int(t.Lanes[i].Lane) != g.Lane {
				continue
			}
			cost, err := s.laneCost(db, g.TenantID, g.Lane, g.N)
			if err != nil {
				return nil, err
			}
			t.Lanes[i].Pending, t.Lanes[i].Cost, t.Lanes[i].OldestPendingAge = g.N, cost, age
		}
	}
	return out, nil
}

func (s *queues) laneCost(db *gorm.DB, tenantID string, lane, n int) (int, error) {
	limit := exactCost
	if n > exactCost {
		limit = 1000
	}
	var mean []float64
	err := scan(db.Raw(fmt.Sprintf(`SELECT COALESCE(AVG(cost), 0) FROM (SELECT cost FROM tasks
		WHERE state='pending' AND paused IN (0,1,2,3) AND tenant_id=? AND lane=? LIMIT %d) x`, limit), tenantID, lane), &mean)
	if err != nil {
		return 0, err
	}
	return int(mean[0]*float64(n) + 0.5), nil
}

// Workers lists executors seen in the last minute.
func (s *queues) Workers(ctx context.Context) ([]taskstore.WorkerStatus, error) {
	return s.liveWorkers(ctx)
}

func (s *handle) liveWorkers(ctx context.Context) ([]taskstore.WorkerStatus, error) {
	rows, err := all[workerRow](s.read(ctx), s.sql("SELECT * FROM workers WHERE seen_at>=@now-60000 ORDER BY id"))
	return mapped(rows, workerRow.toDomain), err
}

// fleetCap is the cap of tenants that have none of their own.
func (s *handle) fleetCap(ctx context.Context) (int, error) {
	return s.fleet.get(func() (int, bool, error) {
		live, err := s.liveWorkers(ctx)
		workers := 0
		for _, w := range live {
			workers += w.Slots
		}
		return sheaf.FleetCap(workers), false, err
	})
}
