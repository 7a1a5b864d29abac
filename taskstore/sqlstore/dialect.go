package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"sheaf"
)

// dialect holds the differences between the engines.
type dialect struct {
	name      string
	goose     goose.Dialect
	now       string // milliseconds since 1970 UTC
	returning bool   // UPDATE … RETURNING works (not on MariaDB)
	skip      string // suffix of a SELECT that locks its rows, skipping locked ones
	lock      string // suffix of a SELECT that locks its rows
	share     string // suffix of a SELECT that prevents changes to its rows
	greatest  string // the larger of two numbers
	byID      string // after "tasks": rows are found by primary key. Otherwise MySQL weighs every index with state, dive by dive, and SQLite uses one of those
	byTurn    string // after "tasks": rows are found by k_feed. Otherwise MySQL scans all tenants' tasks by state for this one's
	// noop is the suffix of an INSERT that ignores conflicting rows; the argument is a
	// column of the table's key.
	noop func(column string) string
	// upsert is the suffix of an INSERT that overwrites columns of a conflicting row,
	// found by its key.
	upsert func(key string, columns ...string) string
	// lockMigrations prevents other processes from migrating until unlock.
	lockMigrations func(ctx context.Context, db *sql.DB) (unlock func(), err error)
}

func onConflictNoop(string) string { return " ON CONFLICT DO NOTHING" }

func onConflictUpdate(key string, columns ...string) string {
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c + "=excluded." + c
	}
	return " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(sets, ", ")
}

func onDuplicateUpdate(_ string, columns ...string) string {
	sets := make([]string, len(columns))
	for i, c := range columns {
		// VALUES(): MariaDB does not support MySQL 8's row alias.
		sets[i] = c + "=VALUES(" + c + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(sets, ", ")
}

var sqliteDialect = dialect{
	name: "sqlite", goose: goose.DialectSQLite3,
	now:       "CAST(unixepoch('subsec')*1000 AS INTEGER)",
	returning: true,
	greatest:  "MAX",
	byID:      " INDEXED BY sqlite_autoindex_tasks_1", // SQLite's name for the primary key index
	noop:      onConflictNoop,
	upsert:    onConflictUpdate,
	lockMigrations: func(context.Context, *sql.DB) (func(), error) {
		return func() {}, nil
	},
}

var mysqlDialect = dialect{
	name: "mysql", goose: goose.DialectMySQL,
	now:      "CAST(UNIX_TIMESTAMP(NOW(3))*1000 AS SIGNED)",
	skip:     " FOR UPDATE SKIP LOCKED",
	lock:     " FOR UPDATE",
	share:    " LOCK IN SHARE MODE", // FOR SHARE is MySQL 8 only
	greatest: "GREATEST",
	byID:     " FORCE INDEX (PRIMARY)",
	byTurn:   " FORCE INDEX (k_feed)",
	noop:     func(column string) string { return " ON DUPLICATE KEY UPDATE " + column + "=" + column },
	upsert:   onDuplicateUpdate,
	lockMigrations: func(ctx context.Context, db *sql.DB) (func(), error) {
		return lockConn(ctx, db, "SELECT GET_LOCK('sheaf_migrations', 60)", "SELECT RELEASE_LOCK('sheaf_migrations')")
	},
}

var postgresDialect = dialect{
	name: "postgres", goose: goose.DialectPostgres,
	// The statement's time, not clock_timestamp(): that is volatile, and the planner
	// uses no index against volatile values.
	now:       "CAST(FLOOR(EXTRACT(EPOCH FROM statement_timestamp())*1000) AS BIGINT)",
	returning: true,
	skip:      " FOR UPDATE SKIP LOCKED",
	lock:      " FOR UPDATE",
	share:     " FOR SHARE",
	greatest:  "GREATEST",
	noop:      onConflictNoop,
	upsert:    onConflictUpdate,
	lockMigrations: func(ctx context.Context, db *sql.DB) (func(), error) {
		// Polled: a concurrent index build waits for every running statement, so it
		// would never finish while one waits for the lock. The previous release waits
		// that way for 7268451, and has nothing to migrate here, so it is not kept
		// waiting.
		return lockConn(ctx, db, "SELECT CASE WHEN pg_try_advisory_lock(7268452) THEN 1 ELSE 0 END", "SELECT pg_advisory_unlock(7268452)")
	},
}

// How long another process may be changing the schema, and how often to retry.
const (
	lockWait  = time.Minute
	lockPause = 100 * time.Millisecond
)

// lockConn takes a connection-level lock, using a query that returns 1 when it has
// the lock, and holds the connection until unlock.
func lockConn(ctx context.Context, db *sql.DB, lock, unlock string) (func(), error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	for until := time.Now().Add(lockWait); ; {
		if err = conn.QueryRowContext(ctx, lock).Scan(&got); err != nil {
			_ = conn.Close()
			return nil, err
		}
		if got.Int64 == 1 || time.Now().After(until) {
			break
		}
		pause := time.NewTimer(lockPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			_ = conn.Close()
			return nil, ctx.Err()
		}
	}
	if got.Int64 != 1 {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: another process has been changing the schema for a minute; try again when it is done", sheaf.ErrUnavailable)
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), unlock)
		_ = conn.Close()
	}, nil
}
