package storetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"sheaf"
	"sheaf/migrations"
	"sheaf/taskstore/sqlstore"
)

// Migrated is Config with a database that has been migrated. It is a copy, which
// takes the engines a third to a fiftieth of the time: the suites need hundreds, and
// a migration takes 0.2 to 0.7 s. What migrates is tested by tests that use Config.
func Migrated(t testing.TB, engine string) (c sqlstore.Config) {
	t.Helper()
	var err error
	switch engine {
	case "sqlite":
		c = config(t, engine, "")
		var file []byte
		if file, err = sqliteTemplate(); err == nil {
			err = os.WriteFile(c.DSN, file, 0o600)
		}
	case "mysql":
		c = config(t, engine, "")
		err = copyMySQL(c.DSN)
	default:
		server(t, "SHEAF_TEST_POSTGRES_DSN")
		var template string
		if template, err = postgresTemplate(); err == nil {
			c = config(t, engine, " TEMPLATE "+template)
		}
	}
	if err != nil {
		t.Fatalf("copying a migrated database of %s: %v", engine, err)
	}
	return c
}

func migrate(driver, dsn string) error {
	s, err := sqlstore.Open(context.Background(), sqlstore.Config{Driver: driver, DSN: dsn})
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(context.Background()), s.Close())
}

// templateName is the same for all processes with the same migrations, which share
// the template.
func templateName(engine string) string {
	h := sha256.New()
	err := fs.WalkDir(migrations.FS, engine, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(migrations.FS, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	if err != nil {
		panic(err) // they are part of the program
	}
	return fmt.Sprintf("sheaf_template_%x", h.Sum(nil)[:8])
}

var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sheaf-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "sheaf.db")
	if err := migrate("sqlite", path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// mysqlTemplate returns the statements that copy the template into the connection's
// database, table by table: there are no foreign keys, triggers or views, which they
// would leave out.
var mysqlTemplate = sync.OnceValues(func() (statements []string, err error) {
	c, err := mysqldriver.ParseDSN(os.Getenv("SHEAF_TEST_MYSQL_DSN"))
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the lock is the connection's
	// One process makes it while others wait. One that was killed has left a part.
	name := templateName("mysql")
	var locked, whole bool
	if err := db.QueryRow("SELECT COALESCE(GET_LOCK('sheaf_template', 60), 0)").Scan(&locked); err != nil {
		return nil, err
	}
	if !locked {
		return nil, errors.New("the lock sheaf_template was not free for a minute")
	}
	if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema=? AND table_name='template_is_whole'", name).Scan(&whole); err != nil {
		return nil, err
	}
	if !whole {
		if err := execAll(db, "DROP DATABASE IF EXISTS "+name, "CREATE DATABASE "+name); err != nil {
			return nil, err
		}
		c.DBName = name
		if err := migrate("mysql", c.FormatDSN()); err != nil {
			return nil, err
		}
		if err := execAll(db, "CREATE TABLE "+name+".template_is_whole (x INT)"); err != nil {
			return nil, err
		}
	}
	rows, err := db.Query("SELECT table_name FROM information_schema.tables WHERE table_schema=? AND table_name<>'template_is_whole'", name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, err
		}
		statements = append(statements,
			"CREATE TABLE "+table+" LIKE "+name+"."+table,
			"INSERT INTO "+table+" SELECT * FROM "+name+"."+table)
	}
	return statements, rows.Err()
})

func copyMySQL(dsn string) error {
	statements, err := mysqlTemplate()
	if err != nil {
		return err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	return execAll(db, statements...)
}

var postgresTemplate = sync.OnceValues(func() (string, error) {
	u, err := url.Parse(os.Getenv("SHEAF_TEST_POSTGRES_DSN"))
	if err != nil {
		return "", err
	}
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		return "", err
	}
	defer db.Close()
	name, made := templateName("postgres"), "sheaf_"+sheaf.NewID()
	var there bool
	if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname=$1)", name).Scan(&there); err != nil || there {
		return name, err
	}
	if err := execAll(db, "CREATE DATABASE "+made); err != nil {
		return "", err
	}
	u.Path = "/" + made
	if err := migrate("postgres", u.String()); err != nil {
		return "", err
	}
	err = execAll(db, "ALTER DATABASE "+made+" RENAME TO "+name)
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && e.Code == "42P04" { // another process was first
		err = execAll(db, "DROP DATABASE "+made)
	}
	return name, err
})

func execAll(db *sql.DB, statements ...string) error {
	for _, q := range statements {
		if _, err := db.Exec(q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}
