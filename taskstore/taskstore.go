// Package taskstore defines the types exchanged between a store of tenants,
// documents and tasks and its callers. Consumers declare the few methods they need;
// sqlstore implements and documents them all, over SQLite, MySQL and PostgreSQL;
// storetest is the contract. Any method may fail with sheaf.ErrUnavailable, after
// which a retry may help. All times are by the database's clock.
package taskstore

import (
	"context"
	"time"

	"sheaf"
)

// Feed is what the SQL queue and the feeder read.
type Feed interface {
	// Runnable lists due, unpaused pending tasks of one tenant in the order they should
	// run: lane (a task whose place is longer ago than ageAfter counts one lane
	// higher), then phase, place and id. ageAfter 0 means never. limit applies per lane
	// and, within it, separately to PhaseFinish with PhaseRanges, to PhaseBegin, and to
	// PhaseBulk: the queue decides whose turn it is among these.
	Runnable(ctx context.Context, tenantID string, limit int, ageAfter time.Duration) ([]sheaf.Hint, error)
	// RunnableTenants lists tenants with due, unpaused pending tasks, with
	// their weight, cap and number of running tasks.
	RunnableTenants(ctx context.Context) ([]TenantLoad, error)
}
