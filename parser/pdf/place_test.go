package pdf

import (
	"bytes"
	"context"
	"io"
	"os"
	"reflect"
	"slices"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/enginetest"
	"sheaf/parser/pdf/pdfium"
)

// countingReader counts what is read of a file, in places 64 KB apart.
type countingReader struct {
	io.ReaderAt
	places map[int64]bool
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	c.places[off>>16] = true
	return c.ReaderAt.ReadAt(p, off)
}

// An engine that is told where the pages are reads the last one without those
// before it, and numbers that lead nowhere change nothing.
func TestPlacedPagesAreFoundAtOnce(t *testing.T) {
	const pages = 60
	heavy, _ := enginetest.Heavy(pages)
	in, err := inspectSound(bytes.NewReader(heavy), int64(len(heavy)))
	if err != nil {
		t.Fatal(err)
	}
	engines(t, func(t *testing.T, e engine.Engine) { testPlacedPages(t, e, heavy, in.pages) })
}

// engines runs a test for WebAssembly and for the program.
func engines(t *testing.T, test func(t *testing.T, e engine.Engine)) {
	for _, name := range []string{"WebAssembly", "program"} {
		t.Run(name, func(t *testing.T) {
			var config pdfium.Config
			if name == "program" {
				config.Helper = enginetest.Helper(t)
			}
			e := pdfium.New(config)
			t.Cleanup(func() { _ = e.Close() })
			test(t, e)
		})
	}
}

func testPlacedPages(t *testing.T, e engine.Engine, heavy []byte, known []int) {
	pages := len(known)
	read := func(numbers []int) (places int, p engine.Page) {
		t.Helper()
		f := &countingReader{bytes.NewReader(heavy), map[int64]bool{}}
		d, err := e.Open(t.Context(), f, int64(len(heavy)), "")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if numbers != nil {
			d.(engine.Placing).Place(numbers)
		}
		clear(f.places)
		if err := d.Page(pages-1, &p); err != nil {
			t.Fatal(err)
		}
		p.Chars, p.Runs = slices.Clone(p.Chars), slices.Clone(p.Runs)
		return len(f.places), p
	}
	found, want := read(nil)
	if found < pages {
		t.Fatalf("unplaced, the last page is found by reading %d places of the file: this shows nothing", found)
	}
	placed, got := read(known)
	if placed > 5 || !reflect.DeepEqual(got, want) {
		t.Errorf("placed, the last page takes %d places of the file, want a few; the same page: %v", placed, reflect.DeepEqual(got, want))
	}
	for name, numbers := range map[string][]int{
		"too few": known[1:], "too many": append(slices.Clone(known), 1), "none": make([]int, pages), "not there": slices.Repeat([]int{1 << 20}, pages),
	} {
		if _, got := read(numbers); !reflect.DeepEqual(got, want) {
			t.Errorf("numbers that are %s give another page", name)
		}
	}
}

// Which page a link shows is known without that page, where it is known where the
// pages are.
func TestLinksToPlacedPagesReadNone(t *testing.T) {
	to := []int{50, 10, 20, 30, 40}
	file := enginetest.HeavyLinked(60, to...)
	in, err := inspectSound(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	engines(t, func(t *testing.T, e engine.Engine) { testPlacedLinks(t, e, file, in.pages, to) })
}

func testPlacedLinks(t *testing.T, e engine.Engine, file []byte, known, to []int) {
	read := func(place bool) (places int, pages []int) {
		f := &countingReader{bytes.NewReader(file), map[int64]bool{}}
		d, err := e.Open(t.Context(), f, int64(len(file)), "")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if place {
			d.(engine.Placing).Place(known)
		}
		clear(f.places)
		var p engine.Page
		if err := d.Page(0, &p); err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Links {
			pages = append(pages, l.Page)
		}
		return len(f.places), pages
	}
	var want []int
	for _, page := range to {
		want = append(want, page, page, page)
	}
	unplaced, links := read(false)
	if unplaced < len(to) || !slices.Equal(links, want) {
		t.Fatalf("unplaced, %d places of the file are read and the links show %v, want %v", unplaced, links, want)
	}
	// The first shows how the engine keeps references.
	placed, links := read(true)
	if placed > 4 || !slices.Equal(links, want) {
		t.Errorf("placed, %d places of the file are read, want those of the page and of one other; the links show %v, want %v", placed, links, want)
	}
}

// Pages and their links are the same whether the document was planned before or
// not.
func TestPlannedDocumentsReadAlike(t *testing.T) {
	files := enginetest.Fixtures()
	handbook, err := os.ReadFile("../../samples/handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	files["handbook"] = handbook
	f, compared := New(Config{}), 0
	for name, data := range files {
		file := enginetest.Write(t, data)
		read := func(plan bool) (out []sheaf.UnitResult) {
			d, err := f.Open(t.Context(), file, parser.Options{Name: name, MediaType: parser.MediaPDF, TempDir: t.TempDir()})
			if err != nil {
				return nil
			}
			defer d.Close()
			if plan {
				if _, err := d.Plan(t.Context()); err != nil {
					return nil
				}
			}
			for n := d.(*document).pages; n >= 1; n-- { // the last first: those before it are not known
				_ = d.Parse(context.Background(), sheaf.Range{From: n, To: n}, func(u sheaf.UnitResult) error {
					out = append(out, u)
					return nil
				})
			}
			return out
		}
		plain, planned := read(false), read(true)
		if !reflect.DeepEqual(plain, planned) {
			t.Errorf("%s: pages differ once it is planned", name)
		}
		compared += len(planned)
	}
	if compared < 10 {
		t.Errorf("only %d pages were compared", compared)
	}
}
