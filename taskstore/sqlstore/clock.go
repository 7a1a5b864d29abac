package sqlstore

import (
	"context"
	"strconv"
	"time"

	"gorm.io/gorm"
)

const (
	clockKey   = "clock"          // of queue_meta: the latest time that WatchClock saw, in milliseconds
	clockEvery = 10 * time.Second // how often it is written while all is well
	clockStep  = 5 * time.Second  // a clock that goes back by less is left alone: nothing waits for it longer than that
)

// WatchClock answers the time by the store's clock. When that has gone back
// since an earlier call of any process, what lies ahead of it (due times,
// leases, signs of life) is brought back too, and back says by how much. All
// times here are the database's own, so that hosts need not agree; but what was
// written while that clock was ahead would wait until it has caught up. So the
// latest time seen is kept in the database, and when the clock is behind it,
// what lies ahead is brought back by as much: due times, leases, signs of life.
// That comes up to clockEvery too short, since the time is not written more
// often.
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

// bringBack changes the times that lie ahead of a clock that went back by so
// many milliseconds. A lease that is right is never cut short: it would still
// lie ahead.
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
		// The time that work was asked for is the caller's, and stays.
		{"UPDATE tasks SET " + atMostNow("created_at") + " WHERE state='scheduled' AND created_at>@now", nil},
		{"UPDATE tasks SET " + atMostNow("created_at") + ", " + atMostNow("started_at") + ", " + atMostNow("cancel_requested_at") +
			" WHERE state='running' AND (created_at>@now OR started_at>@now OR cancel_requested_at>@now)", nil},
		{"UPDATE tasks SET lease_until=lease_until-? WHERE state='running' AND lease_until>@now+?", []any{by, by}},
		{"UPDATE tasks SET " + earlier("place") + " WHERE state IN ('pending','parked','running','retry_wait') AND place>@now", []any{by}},
		{"UPDATE workers SET seen_at=@now WHERE seen_at>@now", nil},
		{"UPDATE leases SET until_at=until_at-? WHERE until_at>@now+?", []any{by, by}},
		// The reverse of what ClockJumped does. Garbage keeps its grace.
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

// ClockJumped is told that the store's clock has just jumped ahead by so much.
// What would be forgotten or removed for its age (unfinished uploads,
// idempotency keys, garbage that somebody may still write) gets that long more.
// It must be called once for a jump. Due times of tasks and leases are not
// moved: early retries do no harm, and executors renew their leases.
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
