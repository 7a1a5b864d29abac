package sqlstore

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
	"modernc.org/sqlite"

	"sheaf"
)

// translate converts a driver's error to one of sheaf's kinds, wrapping both. Errors
// that already are of a kind, context errors and unknown errors are unchanged.
func translate(err error) error {
	kind := kindOf(err)
	if kind == nil {
		return err
	}
	if kind == sheaf.ErrReadOnly {
		return fmt.Errorf("%w: the database takes no writes (%w); free space on its disk, or name a server that is not a read-only replica", kind, err)
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func kindOf(err error) error {
	if err == nil || isKind(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if errors.Is(err, gorm.ErrRecordNotFound) || errors.Is(err, sql.ErrNoRows) {
		return sheaf.ErrNotFound
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() {
		case 2067, 1555: // SQLITE_CONSTRAINT_UNIQUE, _PRIMARYKEY
			return sheaf.ErrConflict
		}
		switch e.Code() & 0xff {
		case 13, 8: // SQLITE_FULL, SQLITE_READONLY
			return sheaf.ErrReadOnly
		case 5, 6, 10, 14: // BUSY, LOCKED, IOERR, CANTOPEN
			return sheaf.ErrUnavailable
		}
		return nil
	}
	if e, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		switch e.Number {
		case 1062: // duplicate key
			return sheaf.ErrConflict
		case 1290, 1792, 1836, 1021, 1114, 1041: // read-only server or transaction, disk full, table full
			return sheaf.ErrReadOnly
		case 1213, 1205, 1467, 1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1317, 1927, 1129:
			// deadlock, lock wait, too many connections, shutdown, network, killed
			return sheaf.ErrUnavailable
		}
		return nil
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case e.Code == "23505":
			return sheaf.ErrConflict
		case e.Code == "25006" || e.Code == "53100": // read-only transaction, disk full
			return sheaf.ErrReadOnly
		case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "53"), strings.HasPrefix(e.Code, "57P"),
			e.Code == "40001", e.Code == "40P01", e.Code == "55P03":
			return sheaf.ErrUnavailable
		}
		return nil
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return sheaf.ErrUnavailable
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return sheaf.ErrUnavailable
	}
	// The server's certificate can be fixed.
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok || errors.Is(err, mysqldriver.ErrNoTLS) {
		return sheaf.ErrUnavailable
	}
	for _, gone := range []error{driver.ErrBadConn, mysqldriver.ErrInvalidConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, gone) {
			return sheaf.ErrUnavailable
		}
	}
	return nil
}

func isKind(err error) bool {
	for _, k := range []error{sheaf.ErrNotFound, sheaf.ErrConflict, sheaf.ErrStale, sheaf.ErrInvalid, sheaf.ErrUnavailable, sheaf.ErrLimit, sheaf.ErrReadOnly} {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

// lockTrouble reports whether the engine aborted the transaction because of a lock:
// it had no effect, and may succeed if repeated.
func lockTrouble(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()&0xff == 5 || e.Code()&0xff == 6
	}
	if e, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		// 1467: a deadlock over the table's lock on its auto-increment counter.
		return e.Number == 1213 || e.Number == 1205 || e.Number == 1467
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "40001" || e.Code == "40P01" || e.Code == "55P03"
	}
	return false
}
