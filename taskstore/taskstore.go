// Package taskstore holds what a store of tenants, documents and tasks and its
// callers exchange. A consumer declares the few methods it needs; sqlstore
// implements them all and documents each, over SQLite, MySQL and PostgreSQL;
// storetest is the contract. Any method may fail with sheaf.ErrUnavailable,
// after which a retry may help. All times are by the database's clock.
package taskstore

import (
	"context"
	"time"

	"sheaf"
)

// Feed is what the SQL queue and the feeder read.
type Feed interface {
	// Runnable lists due, unpaused pending tasks of one tenant in the order
	// they should run: lane (a task whose place is longer ago than ageAfter
	// counts one lane higher), then phase, place and id. ageAfter 0 means never.
	// limit is for each lane, and in it for PhaseFinish with PhaseRanges, for
	// PhaseBegin, and for PhaseBulk: whose turn it is among these the queue
	// decides.
	Runnable(ctx context.Context, tenantID string, limit int, ageAfter time.Duration) ([]sheaf.Hint, error)
	// RunnableTenants lists tenants with due, unpaused pending tasks, with
	// their weight, cap and number of running tasks.
	RunnableTenants(ctx context.Context) ([]TenantLoad, error)
}
