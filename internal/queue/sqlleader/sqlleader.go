// Package sqlleader elects the keeper by a row in the database, for deployments
// without Redis. Leases expire by the database's clock.
package sqlleader

import (
	"context"
	"time"

	"sheaf/internal/queue"
)

// Leases are lease rows in the store.
type Leases interface {
	// AcquireLease makes holder the owner of the named lease for ttl if it is free, has
	// expired or is already holder's, and reports whether it did.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
	// ReleaseLease releases the lease if holder owns it.
	ReleaseLease(ctx context.Context, name, holder string) error
}

// New returns the Leader for all processes that use the same lease name in one
// database. Its times may be changed before it runs.
func New(leases Leases, name string) *queue.Campaign {
	return &queue.Campaign{Lock: row{leases, name}, Name: name}
}

// row is a queue.Lock over one lease.
type row struct {
	leases Leases
	name   string
}

func (r row) Acquire(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	return r.leases.AcquireLease(ctx, r.name, token, ttl)
}

// Renew may regain an expired lease that no one took: for the others that is the
// same as a timely renewal.
func (r row) Renew(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	return r.leases.AcquireLease(ctx, r.name, token, ttl)
}

func (r row) Release(ctx context.Context, token string) error {
	return r.leases.ReleaseLease(ctx, r.name, token)
}
