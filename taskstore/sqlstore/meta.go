package sqlstore

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// Meta reads a value of the queue's own bookkeeping; "" when absent.
func (s *handle) Meta(ctx context.Context, key string) (string, error) {
	v, err := first[string](s.read(ctx), "SELECT v FROM queue_meta WHERE k=?", key)
	return value(v), err
}

// SetMeta writes a value of the queue's own bookkeeping.
func (s *handle) SetMeta(ctx context.Context, key, value string) error {
	return translate(insertRows(s.write(ctx), "queue_meta", []string{"k", "v"}, [][]any{{key, value}}, s.d.upsert("k", "v")))
}

// AcquireLease makes holder the owner of the named lease for ttl, if it is
// free, expired or already holder's, and reports whether it did.
func (s *leases) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (got bool, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		got = false
		// A lease that ends later than a new one would was written before the
		// clock went back, and would keep everybody out until it catches up.
		n, err := exec(tx, s.sql("UPDATE leases SET holder=?, until_at=@now+? WHERE name=? AND (holder=? OR until_at<=@now OR until_at>@now+?)"),
			holder, ttl.Milliseconds(), name, holder, (ttl + clockStep).Milliseconds())
		if err != nil || n == 1 {
			got = err == nil
			return err
		}
		err = insertRows(tx, "leases", []string{"name", "holder", "until_at"},
			[][]any{{name, holder, s.after(ttl)}}, s.d.noop("name"))
		if err != nil {
			return err
		}
		owner, err := first[string](tx, "SELECT holder FROM leases WHERE name=?", name)
		got = owner != nil && *owner == holder
		return err
	})
	return got, err
}

// ReleaseLease gives the lease up if holder owns it.
func (s *leases) ReleaseLease(ctx context.Context, name, holder string) error {
	return run(s.write(ctx), stmt("DELETE FROM leases WHERE name=? AND holder=?", name, holder))
}
