package sqlstore

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Meta reads a value of the queue's own bookkeeping; "" when absent.
func (s *handle) Meta(ctx context.Context, key string) (string, error) {
	var v []string
	if err := s.read(ctx).Raw("SELECT v FROM queue_meta WHERE k=?", key).Scan(&v).Error; err != nil || len(v) == 0 {
		return "", translate(err)
	}
	return v[0], nil
}

// SetMeta writes a value of the queue's own bookkeeping.
func (s *handle) SetMeta(ctx context.Context, key, value string) error {
	return translate(insertRows(s.w.WithContext(ctx), "queue_meta", []string{"k", "v"}, [][]any{{key, value}}, s.d.upsert("k", "v")))
}

// AcquireLease makes holder the owner of the named lease for ttl, if it is
// free, expired or already holder's, and reports whether it did.
func (s *leases) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (got bool, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		got = false
		// A lease that ends later than a new one would was written before the
		// clock went back, and would keep everybody out until it catches up.
		res := tx.Exec(s.sql("UPDATE leases SET holder=?, until_at=@now+? WHERE name=? AND (holder=? OR until_at<=@now OR until_at>@now+?)"),
			holder, ttl.Milliseconds(), name, holder, (ttl + clockStep).Milliseconds())
		if res.Error != nil || res.RowsAffected == 1 {
			got = res.Error == nil
			return res.Error
		}
		err := insertRows(tx, "leases", []string{"name", "holder", "until_at"},
			[][]any{{name, holder, raw(fmt.Sprintf("%s+%d", s.now(), ttl.Milliseconds()))}}, s.d.noop("name"))
		if err != nil {
			return err
		}
		var owner []string
		if err := tx.Raw("SELECT holder FROM leases WHERE name=?", name).Scan(&owner).Error; err != nil {
			return err
		}
		got = len(owner) == 1 && owner[0] == holder
		return nil
	})
	return got, err
}

// ReleaseLease gives the lease up if holder owns it.
func (s *leases) ReleaseLease(ctx context.Context, name, holder string) error {
	return translate(s.w.WithContext(ctx).Exec("DELETE FROM leases WHERE name=? AND holder=?", name, holder).Error)
}
