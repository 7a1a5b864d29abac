package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sheaf"
)

// A copy that is made while others write holds whole transactions, is a store that opens,
// and leaves nothing beside it.
func TestSnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data äö?#")
	file, to := filepath.Join(dir, "sheaf.db"), filepath.Join(dir, "copy?.db")
	s, err := Open(t.Context(), Config{Driver: "sqlite", DSN: file})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	written := make(chan struct{})
	writer.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			// Two tenants that come together.
			a, b := sheaf.NewID(), sheaf.NewID()
			_, err := exec(s.write(context.WithoutCancel(ctx)), "INSERT INTO tenants (id, name, created_at) VALUES (?, 'pair', 1), (?, 'pair', 1)", a, b)
			if err != nil {
				t.Error(err)
				return
			}
			if n == 20 {
				close(written)
			}
		}
	})
	<-written
	err = Snapshot(t.Context(), file, to)
	cancel()
	writer.Wait()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "copy?.db-") {
			t.Errorf("%s is left beside the copy", e.Name())
		}
	}
	copied, err := Open(t.Context(), Config{Driver: "sqlite", DSN: to})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if err := copied.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, err := one[int](copied.read(t.Context()), "tenants", "", "SELECT COUNT(*) FROM tenants WHERE name='pair'")
	if err != nil || *n < 40 || *n%2 != 0 {
		t.Errorf("%d tenants, %v", value(n), err)
	}

	if err := Snapshot(t.Context(), file, to); err == nil {
		t.Error("an existing file was overwritten")
	}
}

func TestSnapshotOfDamage(t *testing.T) {
	dir := t.TempDir()
	file, to := filepath.Join(dir, "sheaf.db"), filepath.Join(dir, "copy.db")
	if err := Snapshot(t.Context(), file, to); err == nil {
		t.Error("a database that is missing was copied")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a database was created to be copied")
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"CREATE TABLE t (x)", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2000) INSERT INTO t SELECT randomblob(50) FROM n"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096 * 3; i < 4096*6; i++ {
		b[i] = 0xff
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, ok := errors.AsType[*sheaf.Failure](Snapshot(t.Context(), file, to))
	if !ok || f.Code != "store_damaged" {
		t.Errorf("a damaged database: %v", f)
	}
}
