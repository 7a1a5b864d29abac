package sqlstore

import (
	"context"
	"strconv"
	"time"

	"gorm.io/gorm"
)

const (
	clockKey   = "clock"          // queue_meta key of the latest time WatchClock saw, in milliseconds
	clockEvery = 10 * time.Second // how often it is normally written
	clockStep  = 5 * time.Second  // a smaller step back is ignored: nothing waits longer than that for it
)

// WatchClock returns the time by the store's clock. All times here are the
// database's own, so that hosts need not agree; but what was written while that
// clock was ahead would wait until it catches up. So the latest time seen, by any
// process, is kept in the database. When the clock is behind it, times ahead of the
// clock (due times, leases, signs of life) are moved back too, and back is by how
// much. That can be up to clockEvery too little, because the time is not written
// more often.
func (s *clock) WatchClock(ctx context.Context) (now time.Time, back time.Duration, err error) {
	look := func(db *gorm.DB, lock string) (ms, last int64, err error) {
		seen, err := first[string](db, "SELECT v FROM queue_meta WHERE k=?"+lock, clockKey)
		if err != nil {
			return 0, 0, err
		}
		last, _ = strconv.ParseInt(value(seen), 10, 64) // 0 before the first
		ms, err = s.clockTime(db)
		return ms, last, err
	}
	ms, last, err := look(s.read(ctx), "")
	if err != nil {
		return now, 0, translate(err)
	}
	now = toTime(ms)
	if last-ms <= clockStep.Milliseconds() && ms-last < clockEvery.Milliseconds() {
		return now, 0, nil
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		back = 0
		if err := insertRows(tx, "queue_meta", []string{"k", "v"}, [][]any{{clockKey, "0"}}, s.d.noop("k")); err != nil {
			return err
		}
		ms, last, err := look(tx, s.d.lock)
		if err != nil {
			return err
		}
		if by := last - ms; by > clockStep.Milliseconds() {
			back = time.Duration(by) * time.Millisecond
			if err := s.bringBack(tx, by); err != nil {
				return err
			}
		}
		return tx.Exec("UPDATE queue_meta SET v=? WHERE k=?", strconv.FormatInt(ms, 10), clockKey).Error
	})
	return now, back, err
}

// bringBack moves back times ahead of a clock that went back by that many
// milliseconds. A valid lease is never cut short: it would still be ahead.
func (s *clock) bringBack(tx *gorm.DB, by int64) error {
	earlier := func(column string) string {
		return column + "=CASE WHEN " + column + ">@now THEN " + s.d.greatest + "(@now, " + column + "-?) ELSE " + column + " END"
	}
	atMostNow := func(column string) string {
		return column + "=CASE WHEN " + column + ">@now THEN @now ELSE " + column + " END"
	}
	for _, c := range []struct {
		query string
		args  []any
	}{
		{"UPDATE tasks SET " + atMostNow("created_at") + ", " + atMostNow("run_at") + ", " + atMostNow("enqueued_at") +
			" WHERE state IN ('pending','parked') AND (created_at>@now OR run_at>@now OR enqueued_at>@now)", nil},
		{"UPDATE tasks SET " + atMostNow("created_at") + ", " + earlier("run_at") + " WHERE state='retry_wait' AND (created_at>@now OR run_at>@now)", []any{by}},
		// The scheduled time is the caller's, and stays.
		{"UPDATE tasks SET " + atMostNow("created_at") + " WHERE state='scheduled' AND created_at>@now", nil},
		{"UPDATE tasks SET " + atMostNow("created_at") + ", " + atMostNow("started_at") + ", " + atMostNow("cancel_requested_at") +
			" WHERE state='running' AND (created_at>@now OR started_at>@now OR cancel_requested_at>@now)", nil},
		{"UPDATE tasks SET lease_until=lease_until-? WHERE state='running' AND lease_until>@now+?", []any{by, by}},
		{"UPDATE tasks SET " + earlier("place") + " WHERE state IN ('pending','parked','running','retry_wait') AND place>@now", []any{by}},
		{"UPDATE workers SET seen_at=@now WHERE seen_at>@now", nil},
		{"UPDATE leases SET until_at=until_at-? WHERE until_at>@now+?", []any{by, by}},
		// The reverse of ClockJumped. Garbage keeps its grace.
		{"UPDATE uploads SET expires_at=expires_at-? WHERE expires_at>@now+?", []any{by, by}},
		{"UPDATE garbage SET not_before=" + s.d.greatest + "(not_before-?, @now+?) WHERE not_before>@now+?", []any{by, s.grace.Milliseconds(), s.grace.Milliseconds()}},
		{"UPDATE receipts SET next_at=next_at-? WHERE state='pending' AND next_at>@now+?", []any{by, s.zombieDelay().Milliseconds()}},
		{"UPDATE idempotency SET " + atMostNow("created_at") + " WHERE created_at>@now", nil},
		{"UPDATE idempotency SET lease_until=lease_until-? WHERE answer='' AND lease_until>@now+?", []any{by, by}},
		{"UPDATE webhooks SET " + earlier("not_before") + " WHERE not_before>@now", []any{by}},
		{"UPDATE webhook_deliveries SET " + earlier("next_at") + " WHERE state='pending' AND next_at>@now", []any{by}},
	} {
		if err := tx.Exec(s.sql(c.query), c.args...).Error; err != nil {
			return err
		}
	}
	return nil
}

// ClockJumped reports that the store's clock just jumped ahead. Whatever would be
// removed for its age (unfinished uploads, idempotency keys, garbage that may still
// be written) is kept that much longer. It must be called once per jump. Due times
// and leases of tasks are not moved: early retries are harmless, and executors renew
// their leases.
func (s *clock) ClockJumped(ctx context.Context, ahead time.Duration) error {
	by := ahead.Milliseconds()
	if by <= 0 {
		return nil
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		for _, c := range []struct {
			query string
			args  []any
		}{
			{"UPDATE uploads SET expires_at=expires_at+? WHERE expires_at>@now-?", []any{by, by}},
			{"UPDATE garbage SET not_before=not_before+? WHERE not_before>@now-?", []any{by, by}},
			{"UPDATE receipts SET next_at=next_at+? WHERE state='pending' AND next_at>@now-?", []any{by, by}},
			{"UPDATE idempotency SET created_at=created_at+?, lease_until=lease_until+? WHERE created_at>@now-?-?", []any{by, by, by, keyLife.Milliseconds()}},
		} {
			if err := tx.Exec(s.sql(c.query), c.args...).Error; err != nil {
				return err
			}
		}
		return nil
	})
}
