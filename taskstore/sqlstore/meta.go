package sqlstore

import (
	"context"
	"slices"
	"time"

	"gorm.io/gorm"
)

// Meta returns a value of the queue's bookkeeping; "" if absent.
func (s *handle) Meta(ctx context.Context, key string) (string, error) {
	v, err := first[string](s.read(ctx), "SELECT v FROM queue_meta WHERE k=?", key)
	return value(v), err
}

// SetMeta writes a value of the queue's bookkeeping.
func (s *handle) SetMeta(ctx context.Context, key, value string) error {
	return translate(s.setMeta(s.write(ctx), key, value))
}

func (s *handle) setMeta(tx *gorm.DB, key, value string) error {
	return insertRows(tx, "queue_meta", []string{"k", "v"}, [][]any{{key, value}}, s.d.upsert("k", "v"))
}

// AcquireLease makes holder the owner of the named lease for ttl if it is free,
// expired or already holder's, and reports whether it did.
func (s *leases) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (got bool, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		got = false
		// A lease that ends later than a new one would was written before the clock
		// went back, and would block everyone until the clock catches up.
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

// ReleaseLease releases the lease if holder owns it.
func (s *leases) ReleaseLease(ctx context.Context, name, holder string) error {
	return run(s.write(ctx), stmt("DELETE FROM leases WHERE name=? AND holder=?", name, holder))
}

// Name prefix of the folding keepers' leases.
const foldLease = "fold/"

// FoldRank registers holder as a folding keeper for ttl, and returns its rank, from
// 0, and their number. Dead ones drop out when their ttl expires.
func (s *leases) FoldRank(ctx context.Context, holder string, ttl time.Duration) (rank, of int, err error) {
	if _, err := s.AcquireLease(ctx, foldLease+holder, holder, ttl); err != nil {
		return 0, 0, err
	}
	if err := run(s.write(ctx), stmt(s.sql("DELETE FROM leases WHERE name>=? AND name<? AND until_at<=@now"), foldLease, foldLease+"~")); err != nil {
		return 0, 0, err
	}
	all, err := all[string](s.write(ctx), "SELECT holder FROM leases WHERE name>=? AND name<? ORDER BY name", foldLease, foldLease+"~")
	if err != nil {
		return 0, 0, err
	}
	return max(slices.Index(all, holder), 0), max(len(all), 1), nil
}

// LeaveFold unregisters holder as a folding keeper.
func (s *leases) LeaveFold(ctx context.Context, holder string) error {
	return s.ReleaseLease(ctx, foldLease+holder, holder)
}
