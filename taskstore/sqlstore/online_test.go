package sqlstore_test

import (
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sheaf/migrations"
	"sheaf/taskstore/storetest"
)

var (
	createTable = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)
	indexMade   = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(\w+) ON (\w+)`)
	indexGone   = regexp.MustCompile(`(?m)^DROP INDEX (CONCURRENTLY )?`)
)

// Since the release before this one, indexes of tables that a fleet writes to are
// built and dropped on PostgreSQL without keeping it from writing.
func TestPostgresIndexesAreBuiltWhileAFleetWorks(t *testing.T) {
	files, err := fs.Glob(migrations.FS, "postgres/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		number, _, _ := strings.Cut(path.Base(file), "_")
		if n, err := strconv.Atoi(number); err != nil || n <= migrations.Former {
			continue
		}
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		fresh := map[string]bool{"garbage": true} // which the collector empties: few rows
		for _, m := range createTable.FindAllStringSubmatch(up, -1) {
			fresh[m[1]] = true
		}
		for _, m := range indexMade.FindAllStringSubmatch(up, -1) {
			seen++
			if m[1] == "" && !fresh[m[3]] {
				t.Errorf("%s builds %s on %s, which keeps a fleet from writing to it: say CONCURRENTLY, and NO TRANSACTION", file, m[2], m[3])
			}
		}
		for _, m := range indexGone.FindAllStringSubmatch(up, -1) {
			if m[1] == "" {
				t.Errorf("%s drops an index, which waits for a fleet and keeps it waiting: say CONCURRENTLY, and NO TRANSACTION", file)
			}
		}
		if strings.Contains(up, "CONCURRENTLY") && !strings.Contains(up, "-- +goose NO TRANSACTION") {
			t.Errorf("%s says CONCURRENTLY and not NO TRANSACTION", file)
		}
	}
	if seen < 10 {
		t.Fatalf("%d indexes were seen", seen)
	}
}

// While an index waits for a transaction that is open, others write, and a process
// of the release before starts, which waits in the database for the lock of its own
// migrations.
func TestPostgresIsWrittenToWhileItMigrates(t *testing.T) {
	f := storetest.New(t, "postgres")
	d := f.Document("t")
	for _, name := range []string{"k_doc_tenant", "k_run_results_doc", "k_garbage_doc"} {
		f.Exec("DROP INDEX " + name)
	}
	f.Exec("DROP TABLE graph_splits") // of later migrations
	f.Exec("ALTER TABLE stats_minutes DROP COLUMN beyond")
	f.Exec("ALTER TABLE jobs DROP COLUMN summary")
	f.Exec("DROP INDEX k_doc_quota")
	f.Exec("DROP INDEX k_job_list")
	f.Exec("DELETE FROM goose_db_version WHERE version_id>=30")
	open, err := f.DB.Begin()
	f.OK(err)
	defer open.Rollback()
	if _, err := open.Exec("UPDATE documents SET name='open' WHERE id=$1", d.ID); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	second := f.Second()
	go func() { done <- second.Migrate(ctx) }()
	for until := time.Now().Add(30 * time.Second); f.Int("SELECT COUNT(*) FROM pg_stat_activity WHERE datname=current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY%' AND wait_event_type='Lock'") == 0; {
		select {
		case err := <-done:
			t.Fatalf("the migration did not wait: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(until) {
			t.Fatal("the migration did not begin")
		}
	}
	before, err := f.DB.Conn(ctx)
	f.OK(err)
	defer before.Close()
	var n int
	f.OK(before.QueryRowContext(ctx, "SELECT COUNT(pg_advisory_lock(7268451))").Scan(&n))
	other := f.Document("t") // another transaction writes to documents, tasks, jobs
	f.Exec("UPDATE documents SET name='other' WHERE id=?", other.ID)
	f.OK(open.Commit())
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n = f.Int("SELECT COUNT(*) FROM pg_index i JOIN pg_class c ON c.oid=i.indexrelid WHERE c.relname IN ('k_doc_tenant','k_run_results_doc','k_garbage_doc') AND i.indisvalid"); n != 3 {
		t.Errorf("%d of 3 indexes are there and valid", n)
	}
}
