package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"testing"

	"gorm.io/gorm"
	"modernc.org/sqlite"
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

// prepared counts the statements that a connector's only connection prepares.
type prepared struct {
	driver.Connector
	of map[string]int
}

func (p prepared) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return preparing{c.(sqliteConn), p.of}, nil
}

type preparing struct {
	sqliteConn
	of map[string]int
}

func (p preparing) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	p.of[query]++
	return p.sqliteConn.PrepareContext(ctx, query)
}

// A statement that is used all the time stays prepared, however many others are used
// once; those do not stay.
func TestStatementsInUseStayPrepared(t *testing.T) {
	connector, err := sqlite.NewConnector("file:" + filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	db := sql.OpenDB(stmtCache{prepared{connector, of}})
	defer db.Close()
	db.SetMaxOpenConns(1)
	run := func(query string) {
		t.Helper()
		var n int
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	const often, first = "SELECT 1", "SELECT 2"
	run(first)
	for i := range 2 * maxStmts {
		run(often)
		run(fmt.Sprint("SELECT ", 10+i))
	}
	run(first)
	run(first)
	if of[often] != 1 || of[first] != 2 {
		t.Errorf("prepared %d and %d times, want 1 and 2", of[often], of[first])
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Raw(func(c any) error {
		if c := c.(*cachingConn); len(c.stmts) != maxStmts || c.idle.Len() != maxStmts {
			t.Errorf("%d statements are kept, %d of them idle, want %d", len(c.stmts), c.idle.Len(), maxStmts)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
