package sqlstore

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"sheaf"
	"sheaf/taskstore"
)

func TestErrorsOfServersBecomeKinds(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind error
	}{
		{&mysqldriver.MySQLError{Number: 1062}, sheaf.ErrConflict},
		{&mysqldriver.MySQLError{Number: 1213}, sheaf.ErrUnavailable},
		{&mysqldriver.MySQLError{Number: 1290}, sheaf.ErrReadOnly},
		{&mysqldriver.MySQLError{Number: 1064}, nil}, // a syntax error is nobody's kind
		{&pgconn.PgError{Code: "23505"}, sheaf.ErrConflict},
		{&pgconn.PgError{Code: "57P01"}, sheaf.ErrUnavailable},
		{&pgconn.PgError{Code: "53100"}, sheaf.ErrReadOnly},
		{&pgconn.PgError{Code: "42601"}, nil},
		{mysqldriver.ErrInvalidConn, sheaf.ErrUnavailable},
		{&net.OpError{Op: "dial", Err: io.EOF}, sheaf.ErrUnavailable},
		{context.Canceled, nil},
		{&taskstore.NotClaimable{TaskID: "t"}, nil},
	} {
		got := translate(c.err)
		if !errors.Is(got, c.err) {
			t.Errorf("%v was lost on the way to %v", c.err, got)
		}
		if c.kind == nil && got != c.err || c.kind != nil && !errors.Is(got, c.kind) {
			t.Errorf("%T %v became %v, want kind %v", c.err, c.err, got, c.kind)
		}
	}
}

// TestFullDiskIsReadOnly fills a real database to its limit: what is there
// stays readable, writes fail with ErrReadOnly and change nothing, and they
// work again when there is space.
func TestFullDiskIsReadOnly(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, Config{Driver: "sqlite", DSN: filepath.Join(t.TempDir(), "dir with ? and %", "sheaf.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) {
		if err := s.w.Exec("PRAGMA max_page_count=" + strings.Repeat("9", n)).Error; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetMeta(ctx, "k", "before"); err != nil {
		t.Fatal(err)
	}
	if err := s.w.Exec("PRAGMA max_page_count=1").Error; err != nil { // as small as it is
		t.Fatal(err)
	}
	big := strings.Repeat("x", 1<<20)
	if err := s.SetMeta(ctx, "k", big); !errors.Is(err, sheaf.ErrReadOnly) {
		t.Fatalf("a write to a full disk: %v, want ErrReadOnly", err)
	}
	if v, err := s.Meta(ctx, "k"); err != nil || v != "before" {
		t.Fatalf("read %q, %v from a full disk", v, err)
	}
	limit(9)
	if err := s.SetMeta(ctx, "k", big); err != nil {
		t.Fatal(err)
	}
}
