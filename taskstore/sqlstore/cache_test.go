package sqlstore

import (
	"path/filepath"
	"testing"

	"gorm.io/gorm"
)

// All connections of a SQLite store together may cache so much that a service
// stays below the memory that it promises, however large its store becomes.
func TestPageCachesAreBounded(t *testing.T) {
	const most = 100 << 10 // KiB; the engine takes about twice that
	s, err := Open(t.Context(), Config{Driver: "sqlite", DSN: filepath.Join(t.TempDir(), "sheaf.db"), MaxOpenConns: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	total := 0
	for _, pool := range []struct {
		gorm  *gorm.DB
		conns int
	}{{s.handle.w, 1}, {s.handle.r, 16}} {
		db, err := pool.gorm.DB()
		if err != nil {
			t.Fatal(err)
		}
		for range pool.conns { // each is held, so that the next is another one
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var size int // KiB when it is negative, as it is set
			if err := c.QueryRowContext(t.Context(), "PRAGMA cache_size").Scan(&size); err != nil {
				t.Fatal(err)
			}
			if size >= 0 {
				t.Fatalf("the cache of a connection is %d pages", size)
			}
			total -= size
		}
	}
	if total > most {
		t.Errorf("the connections may cache %d KiB, want at most %d", total, most)
	}
}
