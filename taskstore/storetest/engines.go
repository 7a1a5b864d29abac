// Package storetest is the contract of the store, as tests that run against every
// engine.
package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"sheaf"
	"sheaf/taskstore/sqlstore"
)

// Engines lists the drivers that must fulfill the contract.
var Engines = []string{"sqlite", "mysql", "postgres"}

// Config creates an empty database of the engine, dropped at the end of the test,
// and returns its configuration. SHEAF_TEST_MYSQL_DSN and SHEAF_TEST_POSTGRES_DSN
// name the servers; a test without its server is skipped, or fails if
// SHEAF_TEST_REQUIRE is set.
func Config(t testing.TB, engine string) sqlstore.Config {
	t.Helper()
	return config(t, engine, "")
}

// config is Config with a clause of PostgreSQL's CREATE DATABASE.
func config(t testing.TB, engine, clause string) sqlstore.Config {
	t.Helper()
	c := sqlstore.Config{Driver: engine, EventLag: -1, SampleAge: -1}
	name := "sheaf_" + sheaf.NewID()
	switch engine {
	case "sqlite":
		c.DSN = filepath.Join(t.TempDir(), "sheaf.db")
	case "mysql":
		cfg, err := mysqldriver.ParseDSN(server(t, "SHEAF_TEST_MYSQL_DSN"))
		if err != nil {
			t.Fatalf("SHEAF_TEST_MYSQL_DSN: %v", err)
		}
		create(t, "mysql", cfg.FormatDSN(), "CREATE DATABASE "+name, "DROP DATABASE IF EXISTS "+name)
		cfg.DBName = name
		c.DSN = cfg.FormatDSN()
	case "postgres":
		u, err := url.Parse(server(t, "SHEAF_TEST_POSTGRES_DSN"))
		if err != nil {
			t.Fatalf("SHEAF_TEST_POSTGRES_DSN: %v", err)
		}
		create(t, "pgx", u.String(), "CREATE DATABASE "+name+clause, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		u.Path = "/" + name
		c.DSN = u.String()
	default:
		t.Fatalf("no engine %q", engine)
	}
	return c
}

// Open opens a database of the engine with empty tables.
func Open(t testing.TB, engine string) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(context.Background(), Migrated(t, engine))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// ForEachEngine runs the test for each engine, as a subtest named after it.
func ForEachEngine(t *testing.T, test func(t *testing.T, engine string)) {
	t.Helper()
	for _, engine := range Engines {
		t.Run(engine, func(t *testing.T) { test(t, engine) })
	}
}

func server(t testing.TB, variable string) string {
	t.Helper()
	dsn := os.Getenv(variable)
	if strings.TrimSpace(dsn) == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not set and SHEAF_TEST_REQUIRE asks for every engine", variable)
		}
		t.Skipf("%s is not set", variable)
	}
	return dsn
}

// create runs the first statement now and the second when the test ends.
func create(t testing.TB, driver, dsn, now, after string) {
	t.Helper()
	run := func(q string) error {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		if _, err = db.Exec(q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		return nil
	}
	if err := run(now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run(after); err != nil {
			t.Error(err)
		}
	})
}
