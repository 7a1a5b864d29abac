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

// dialect is what differs between the engines.
type dialect struct {
	name      string
	goose     goose.Dialect
	now       string // milliseconds since 1970 UTC
	returning bool   // UPDATE … RETURNING works (not on MariaDB)
	skip      string // suffix of a SELECT that locks its rows and skips locked ones
	lock      string // suffix of a SELECT that locks its rows
	share     string // suffix of a SELECT that keeps its rows from changing
	greatest  string // the larger of two numbers
	byID      string // after "tasks": rows are found by the key. MySQL else weighs every index that state is in, dive by dive, and SQLite takes one of those
	byTurn    string // after "tasks": rows are found by k_feed. MySQL else takes the tasks of all tenants by their state and looks for the one's
	// noop is the suffix of an INSERT that leaves a row in the way as it is;
	// the argument is a column of the table's key.
	noop func(column string) string
	// upsert is the suffix of an INSERT that overwrites columns of a row in
	// the way, found by its key.
	upsert func(key string, columns ...string) string
	// lockMigrations keeps other processes from migrating until unlock.
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
		// VALUES(): MariaDB does not know the row alias of MySQL 8.
		sets[i] = c + "=VALUES(" + c + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(sets, ", ")
}

var sqliteDialect = dialect{
	name: "sqlite", goose: goose.DialectSQLite3,
	now:       "CAST(unixepoch('subsec')*1000 AS INTEGER)",
	returning: true,
	greatest:  "MAX",
	byID:      " INDEXED BY sqlite_autoindex_tasks_1", // the index of the primary key, as SQLite names it
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
	share:    " LOCK IN SHARE MODE", // FOR SHARE is MySQL 8 alone
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
	// The statement's time and not clock_timestamp(): that one is volatile,
	// and the planner uses no index against a volatile value.
	now:       "CAST(FLOOR(EXTRACT(EPOCH FROM statement_timestamp())*1000) AS BIGINT)",
	returning: true,
	skip:      " FOR UPDATE SKIP LOCKED",
	lock:      " FOR UPDATE",
	share:     " FOR SHARE",
	greatest:  "GREATEST",
	noop:      onConflictNoop,
	upsert:    onConflictUpdate,
	lockMigrations: func(ctx context.Context, db *sql.DB) (func(), error) {
		// Asked for again and again: an index that is built concurrently waits for
		// every statement that runs, and so would never end before one that waits
		// for the lock. The release before waits so for 7268451, and has nothing to
		// migrate here: it is not kept waiting.
		return lockConn(ctx, db, "SELECT CASE WHEN pg_try_advisory_lock(7268452) THEN 1 ELSE 0 END", "SELECT pg_advisory_unlock(7268452)")
	},
}

// Another process may be changing the schema for so long, and is asked so often.
const (
	lockWait  = time.Minute
	lockPause = 100 * time.Millisecond
)

// lockConn takes a lock that belongs to a connection, by a query that answers
// 1 when it has it, and keeps that connection until unlock.
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
