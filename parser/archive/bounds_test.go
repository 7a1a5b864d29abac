package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

func unpackOnce(t *testing.T, limits Limits, content []byte, from int) (*parser.Unpacked, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := options("pack")
	o.TempDir = t.TempDir()
	d, err := New(limits, registry).Open(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	return d.(parser.Unpacker).Unpack(t.Context(), from)
}

func TestAnArchiveOfOverlappingMembersIsRefused(t *testing.T) {
	var names []string
	for i := range 30_000 {
		names = append(names, fmt.Sprintf("%05d.txt", i))
	}
	begun := time.Now()
	_, err := unpackOnce(t, Limits{}, formattest.ZipDirectory(names[0], strings.Repeat("All work and no play. ", 1<<20), nil, names...), 1)
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "zip_bomb" {
		t.Errorf("error %v, want zip_bomb", err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("refused after %v", took)
	}
}

// A few bombs are enough to know an archive by.
func TestUnpackStopsAfterAFewBombs(t *testing.T) {
	zeros := strings.Repeat("\x00", 20<<20)
	var parts []string
	for i := range 12 {
		parts = append(parts, fmt.Sprintf("%d.txt", i), zeros)
	}
	u, err := unpackOnce(t, Limits{}, formattest.Zip(parts...), 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Members) != maxBombs || u.Next != 0 || len(u.Warnings) != 1 || u.Warnings[0].Code != "archive_damaged" {
		t.Errorf("%d members, next %d, %v", len(u.Members), u.Next, u.Warnings)
	}
}

// The bound on what an archive unpacks to is one for all steps.
func TestStepsShareTheBoundOfAnArchive(t *testing.T) {
	parts := []string{"a.txt", strings.Repeat("a ", 1<<20), "b.txt", strings.Repeat("b ", 1<<20), "c.txt", "One."}
	u, err := unpackOnce(t, Limits{TotalBytes: 3 << 20}, formattest.Zip(parts...), 2)
	if err != nil {
		t.Fatal(err)
	}
	if m := u.Members[0]; m.N != 2 || m.Code != "zip_bomb" {
		t.Errorf("the second file: %+v", m)
	}
}
