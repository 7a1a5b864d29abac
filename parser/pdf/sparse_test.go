package pdf

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/pdf/enginetest"
)

// sparsely parses a range of a file that is holes until they are filled, and
// tells how many bytes were.
func sparsely(t *testing.T, data []byte, r sheaf.Range) (units []sheaf.UnitResult, filled int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(len(data))); err != nil {
		t.Fatal(err)
	}
	fill := func(offset, length int64) {
		filled += length
		if _, err := f.WriteAt(data[offset:offset+length], offset); err != nil {
			t.Error(err)
		}
	}
	return read(t, f.Name(), r, fill), filled
}

func read(t *testing.T, path string, r sheaf.Range, fill func(offset, length int64)) (units []sheaf.UnitResult) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	d, err := shared.Open(context.Background(), in, parser.Options{Name: "scan.pdf", MediaType: parser.MediaPDF, TempDir: t.TempDir(), Fill: fill})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Parse(context.Background(), r, func(u sheaf.UnitResult) error {
		units = append(units, u)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return units
}

func TestARangeReadsItsPartOfTheFile(t *testing.T) {
	data, says := enginetest.Heavy(300)
	units, filled := sparsely(t, data, sheaf.Range{From: 101, To: 112})
	if len(units) != 12 {
		t.Fatalf("%d pages", len(units))
	}
	for _, u := range units {
		if len(u.Blocks) != 1 || u.Blocks[0].Text != says(u.Unit) {
			t.Errorf("page %d: %+v", u.Unit, u.Blocks)
		}
	}
	// Twelve pages of 100 KB, and the head of each page before them, which
	// counting the pages takes.
	if most := int64(12+101)*(100<<10) + 1<<20; filled > most || filled > int64(len(data))/2 {
		t.Errorf("%d of %d KB were read", filled>>10, len(data)>>10)
	}
}

func TestASparseFileReadsLikeTheWhole(t *testing.T) {
	for _, path := range corpus(t, "pdf-large/*.pdf") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := sheaf.Range{From: 25, To: 36}
		want := read(t, path, r, nil)
		got, filled := sparsely(t, data, r)
		if len(want) != 12 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d pages of the sparse file are not the %d of the whole", filepath.Base(path), len(got), len(want))
		}
		if filled >= int64(len(data)) {
			t.Errorf("%s: all of it was read", filepath.Base(path))
		}
	}
}

func TestAPlanOfAFileWithHolesIsThatOfTheWhole(t *testing.T) {
	data, _ := enginetest.Heavy(40)
	path := filepath.Join(t.TempDir(), "whole.pdf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	holes, err := os.Create(filepath.Join(t.TempDir(), "sparse.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	defer holes.Close()
	if err := holes.Truncate(int64(len(data))); err != nil {
		t.Fatal(err)
	}
	plan := func(path string, fill func(offset, length int64)) *parser.Plan {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		d, err := shared.Open(t.Context(), f, parser.Options{Name: "scan.pdf", MediaType: parser.MediaPDF, TempDir: t.TempDir(), Fill: fill})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		p, err := d.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := plan(path, nil)
	got := plan(holes.Name(), func(offset, length int64) {
		if _, err := holes.WriteAt(data[offset:offset+length], offset); err != nil {
			t.Error(err)
		}
	})
	if len(want.Fingerprints) != 40 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
