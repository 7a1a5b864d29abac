package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
)

// handle is the database shared by all roles: its connections, dialect and clock,
// and writes that several roles need.
type handle struct {
	w, r         *gorm.DB // the same pool except on SQLite, which has one writer and several readers
	scripts      *sql.DB  // a pool for multi-statement execution, nil where unsupported
	d            dialect
	eventLag     time.Duration
	grace        time.Duration
	keepVersions time.Duration
	keepHistory  time.Duration // for jobs and versions of which nothing is left; 0 means forever
	sampleAge    time.Duration
	offset       atomic.Int64           // milliseconds added to the database's clock, for tests
	purgeLater   atomic.Bool            // leave all purging to the keeper, for tests
	vault        vault                  // set by Unlock
	damage       atomic.Pointer[string] // the error found in a damaged SQLite file; nil for a sound one
	fuse         func() error           // set by BreakBefore
	fleet        recent[int]            // the cap of tenants that have none of their own
	room         uploadRooms            // what tenants hold, with their pending uploads
}

// zombieDelay is the delay before a deleted document is collected again: by then a
// worker that missed the deletion has lost its lease. 3 minutes with the default
// grace.
func (s *handle) zombieDelay() time.Duration { return s.grace * 3 / 2 }

// after is an SQL expression for the time that long from now.
func (s *handle) after(d time.Duration) raw {
	return raw(fmt.Sprintf("%s+%d", s.now(), d.Milliseconds()))
}

// on returns a gorm session on a connection.
func (s *handle) on(ctx context.Context, conn *sql.Conn) *gorm.DB {
	tx := s.w.Session(&gorm.Session{NewDB: true, Context: ctx})
	tx.Statement.ConnPool = conn
	return tx
}

// AdvanceClock moves the store's view of the database clock ahead, for tests, which
// cannot wait for leases to expire.
func (s *handle) AdvanceClock(d time.Duration) { s.offset.Add(d.Milliseconds()) }

// PurgeNothingNow makes deletions end as if the process died right after the
// transaction, for tests.
func (s *handle) PurgeNothingNow() { s.purgeLater.Store(true) }

// BreakBefore makes each statement, and each end of a transaction that is sent with
// others, fail with the error of f if it is not nil. It is for tests that simulate a
// process dying between two statements, and is called before the store is used.
func (s *handle) BreakBefore(f func() error) error {
	s.fuse = f
	look := func(tx *gorm.DB) {
		if err := f(); err != nil {
			_ = tx.AddError(err)
		}
	}
	var errs []error
	for _, g := range []*gorm.DB{s.w, s.r} {
		c := g.Callback()
		errs = append(errs, c.Raw().Before("gorm:raw").Register("sheaf:fuse", look), c.Query().Before("gorm:query").Register("sheaf:fuse", look), c.Row().Before("gorm:row").Register("sheaf:fuse", look))
		if s.r == s.w {
			break
		}
	}
	return errors.Join(errs...)
}

// burn checks the fuse before statements sent outside gorm.
func (s *handle) burn() error {
	if s.fuse == nil {
		return nil
	}
	return s.fuse()
}

// write starts a statement outside of a transaction.
func (s *handle) write(ctx context.Context) *gorm.DB { return s.w.WithContext(ctx) }

// read starts a query that is not part of a transaction.
func (s *handle) read(ctx context.Context) *gorm.DB { return s.r.WithContext(ctx) }

const txAttempts = 5

// tx runs fn in a transaction, and again when the engine made it a deadlock victim
// or could not get a lock; so fn must reset its results each time. Locks are taken
// in the order documents, tasks, task_deps, child tasks, events, doc_dirty; a task's
// own row may come first if the document is not locked at all.
func (s *handle) tx(ctx context.Context, fn func(tx *gorm.DB) error) error {
	return again(ctx, func() error { return s.write(ctx).Transaction(fn) })
}

// again runs a transaction until it succeeds or fails for a reason other than locks.
func again(ctx context.Context, transaction func() error) error {
	for attempt := 1; ; attempt++ {
		err := transaction()
		if err == nil {
			return nil
		}
		if attempt == txAttempts || !lockTrouble(err) || ctx.Err() != nil {
			return translate(err)
		}
		wait := time.Duration(rand.Int64N(int64(10*time.Millisecond) << attempt))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// now is the SQL expression for the database's clock in milliseconds. It is stable
// within a statement, so that indexes can be used.
func (s *handle) now() string {
	if o := s.offset.Load(); o != 0 {
		return fmt.Sprintf("(%s+%d)", s.d.now, o)
	}
	return s.d.now
}

// sql replaces @now by the clock expression.
func (s *handle) sql(q string) string { return strings.ReplaceAll(q, "@now", s.now()) }

// again seals a column's text with the current key.
func (v vault) again(c secretColumn, tenantID, id, text string) (sealed string, err error) {
	one := func(text, context string) string {
		plain, failed := v.ring.Open(text, context)
		if failed != nil {
			err = failed
			return text
		}
		return v.ring.Seal(plain, context)
	}
	if c.context != "" {
		return one(text, secretContext(c.context, tenantID, id)), err
	}
	sealed = swap(text, func(value string) string { return one(value, secretContext("settings", tenantID, "")) })
	return sealed, err
}

// clockTime returns the database's clock, in milliseconds.
func (s *handle) clockTime(db *gorm.DB) (int64, error) {
	now, err := one[int64](db, "clock", s.d.name, "SELECT "+s.now())
	return value(now), err
}
