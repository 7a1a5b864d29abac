package sqlstore

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A read does not write its statement down with all arguments, which nobody
// asks for.
func TestReadsDoNotRenderTheirArguments(t *testing.T) {
	s, err := Open(t.Context(), Config{Driver: "sqlite", DSN: filepath.Join(t.TempDir(), "sheaf.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	long := strings.Repeat("x", 1000)
	args := make([]any, 100)
	for i := range args {
		args[i] = long
	}
	query := "SELECT 1 WHERE ? IN (?" + strings.Repeat(",?", len(args)-2) + ")"
	db := s.handle.r.WithContext(t.Context())
	got, err := all[int](db, query, args...)
	if err != nil || len(got) != 1 || got[0] != 1 {
		t.Fatalf("read %v, %v", got, err)
	}
	const reads = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range reads {
		if _, err := all[int](db, query, args...); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if bytes, most := (after.TotalAlloc-before.TotalAlloc)/reads, uint64(2*len(args)*len(long)); bytes > most {
		t.Errorf("a read allocates %d bytes, want at most %d", bytes, most)
	}
}
