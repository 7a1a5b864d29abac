package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"

	"sheaf"
)

// Snapshot writes a copy of the SQLite database file as of now to a file that must not
// exist, while others read and write it, and checks the copy. It reads the whole database
// and needs as much space as the copy.
func Snapshot(ctx context.Context, file, to string) error {
	// mode=rw: a missing file is an error and not a new, empty database.
	db, err := openFile(file, "mode=rw&_pragma=busy_timeout("+strconv.FormatInt(sqlitePatience.Milliseconds(), 10)+")")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	if closed := db.Close(); err == nil {
		err = closed
	}
	if isDamage(err) {
		return damaged(err.Error())
	}
	if err != nil {
		return translate(err)
	}
	copied, err := openFile(to, "mode=ro&immutable=1")
	if err != nil {
		return err
	}
	defer copied.Close()
	var finding string
	if err := copied.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&finding); err != nil {
		return translate(err)
	}
	if finding != "ok" {
		return fmt.Errorf("%w: the copy of the database is damaged (%s); check the disk", sheaf.ErrUnavailable, finding)
	}
	return nil
}

func openFile(file, options string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+options)
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}
