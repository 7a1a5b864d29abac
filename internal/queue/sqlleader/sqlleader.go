// Package sqlleader elects the keeper by a row in the database, for deployments
// without Redis. The database's clock decides when a lease has run out.
package sqlleader

import (
	"context"
	"time"

	"sheaf/internal/queue"
)

// Leases are the rows of the store.
type Leases interface {
	// AcquireLease makes holder the owner of the named lease for ttl, if it is
	// free, has run out or is holder's already, and reports whether it did.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
	// ReleaseLease gives the lease up if holder owns it.
	ReleaseLease(ctx context.Context, name, holder string) error
}

// New makes the Leader of all processes that name the same lease of one
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

// Renew may win a lease back that has run out and that nobody took: to the
// others that is the same as a renewal in time.
func (r row) Renew(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	return r.leases.AcquireLease(ctx, r.name, token, ttl)
}

func (r row) Release(ctx context.Context, token string) error {
	return r.leases.ReleaseLease(ctx, r.name, token)
}
