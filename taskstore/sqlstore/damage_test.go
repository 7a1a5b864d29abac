package sqlstore_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// fill puts rows into the store, and all of it into the main file.
func fill(t *testing.T, f *storetest.Fixture) {
	t.Helper()
	for range 2000 {
		f.Exec("INSERT INTO leases (name, holder, until_at) VALUES (?, ?, 0)", sheaf.NewID(), strings.Repeat("x", 100))
	}
	f.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
}

// spoil overwrites all pages but the first few.
func spoil(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const keep = 4096
	if _, err := file.WriteAt(bytes.Repeat([]byte{0xA5}, int(info.Size()-keep)), keep); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedFileIsNotOpened(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"pages": spoil,
		"no database": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := storetest.New(t, "sqlite")
			fill(t, f)
			_ = f.Store.Close()
			_ = f.DB.Close()
			harm(t, f.Config.DSN)
			s, err := sqlstore.Open(t.Context(), f.Config)
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if failure := sheaf.AsFailure(err, ""); failure.Code != "store_damaged" || !strings.Contains(failure.Message, "backup") {
				t.Errorf("%v", err)
			}
		})
	}
}

// Damage that a statement meets while the service runs makes it unready.
func TestDamageMetAtWorkIsNoticed(t *testing.T) {
	f := storetest.New(t, "sqlite")
	fill(t, f)
	if err := f.Store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	spoil(t, f.Config.DSN)
	if _, _, err := f.Store.Tenants(t.Context(), taskstore.Page{}); err == nil {
		t.Fatal("spoiled pages are read without an error")
	}
	if err := f.Store.Ping(t.Context()); err == nil || sheaf.AsFailure(err, "").Code != "store_damaged" {
		t.Errorf("the store calls itself well: %v", err)
	}
}
