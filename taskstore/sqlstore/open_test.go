package sqlstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"sheaf"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// migrateAtOnce has several stores migrate one database at the same time, each
// more than once.
func migrateAtOnce(t *testing.T, c sqlstore.Config, processes int) {
	t.Helper()
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			s, err := sqlstore.Open(context.Background(), c)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for range 2 {
				if err := s.Migrate(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestMigrateByManyProcessesAtOnce(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		c := storetest.Config(t, engine)
		migrateAtOnce(t, c, 3)
	})
}

// SQLite has no lock for several migrations: each process may come second to
// more than one of them.
func TestMigrateSQLiteByManyProcessesAtOnce(t *testing.T) {
	for i := range 10 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			migrateAtOnce(t, sqlstore.Config{Driver: "sqlite", DSN: filepath.Join(t.TempDir(), "sheaf.db")}, 10)
		})
	}
}

// Only one of many can make a new SQLite file a WAL database, and SQLite does
// not let the others wait for it.
func TestOpenNewSQLiteFileByManyProcessesAtOnce(t *testing.T) {
	for range 50 {
		c := sqlstore.Config{Driver: "sqlite", DSN: filepath.Join(t.TempDir(), "sheaf.db")}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				s, err := sqlstore.Open(context.Background(), c)
				if err != nil {
					t.Error(err)
					return
				}
				_ = s.Close()
			})
		}
		wg.Wait()
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	ctx := context.Background()
	if _, err := sqlstore.Open(ctx, sqlstore.Config{Driver: "oracle"}); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("unknown driver: %v, want ErrInvalid", err)
	}
	for _, c := range []sqlstore.Config{
		{Driver: "mysql", DSN: "root@tcp(127.0.0.1:1)/test"},
		{Driver: "postgres", DSN: "postgres://a:b@127.0.0.1:1/test"},
	} {
		if _, err := sqlstore.Open(ctx, c); !errors.Is(err, sheaf.ErrUnavailable) {
			t.Errorf("%s server that does not exist: %v, want ErrUnavailable", c.Driver, err)
		}
	}
}
