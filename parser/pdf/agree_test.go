package pdf

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/pdf/enginetest"
)

// What a range reports is read as it was written, and what is damaged is no more
// than what stands before the damage.
func TestReportsSurviveTheWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		num := rapid.IntRange(0, mostQuarters)
		edge := rapid.Custom(func(t *rapid.T) edgeFact {
			flag := func() bool { return rapid.Bool().Draw(t, "flag") }
			return edgeFact{rapid.Uint64().Draw(t, "key"), num.Draw(t, "height"), flag(), flag(), flag(), flag(), flag(), flag(), flag()}
		})
		report := rapid.Custom(func(t *rapid.T) (r report) {
			r.page, r.least, r.most = rapid.IntRange(1, 1<<20).Draw(t, "page"), num.Draw(t, "least"), num.Draw(t, "most")
			r.decided, r.bold, r.mono = rapid.Bool().Draw(t, "decided"), rapid.Bool().Draw(t, "bold"), rapid.Bool().Draw(t, "mono")
			r.decision = decision{num.Draw(t, "body"), rapid.Bool().Draw(t, "bold"), rapid.Bool().Draw(t, "mono"), [2]int{num.Draw(t, "top"), num.Draw(t, "bottom")}}
			for range rapid.IntRange(0, 4).Draw(t, "sizes") {
				r.sizes = append(r.sizes, sizeFact{num.Draw(t, "height"), num.Draw(t, "chars"), num.Draw(t, "bold"), num.Draw(t, "mono")})
			}
			for e := range r.edges {
				for range rapid.IntRange(0, 3).Draw(t, "lines") {
					r.edges[e] = append(r.edges[e], edge.Draw(t, "line"))
				}
			}
			return r
		})
		reports := rapid.SliceOfN(report, 1, 5).Draw(t, "reports")
		var b []byte
		var ends []int
		for i := range reports {
			b = reports[i].append(b)
			ends = append(ends, len(b))
		}
		if got := readReports(b); !reflect.DeepEqual(got, reports) {
			t.Fatalf("read %+v, want %+v", got, reports)
		}
		cut, whole := rapid.IntRange(0, len(b)).Draw(t, "cut"), 0
		for _, end := range ends {
			if end <= cut {
				whole++
			}
		}
		if got := readReports(b[:cut]); len(got) != whole {
			t.Fatalf("%d reports of %d bytes, want %d", len(got), cut, whole)
		}
		New(Config{}).(parser.Agreeing).Agree([][]byte{rapid.SliceOf(rapid.Byte()).Draw(t, "noise"), b})
	})
}

// Small print at the end of a file is no larger than the body that stands before
// it in another range; a range that is read by what was agreed has the headings
// that it has beside all pages.
func TestRangeIsReadByThePagesAroundIt(t *testing.T) {
	var f enginetest.File
	small := "All lines of the notes are set in letters that are smaller than those of the text."
	for n := range 11 {
		c := lines("F4", 12, 72, 640, 14, "The report is set in letters of one size from its first page to its last,", "and it is long enough to outweigh the notes at its end.", "Each page has some lines.")
		if n == 10 {
			c = enginetest.Text("F4", 11, 72, 640, "Notes to the report") + lines("F4", 7, 72, 600, 9, small, small, small)
		}
		f.Pages = append(f.Pages, enginetest.Page{Content: c})
	}
	headings := func(r sheaf.Range, hint json.RawMessage) (n int, layout []byte) {
		t.Helper()
		d, err := openBytes(t, f.Bytes(), sheaf.ParseConfig{})
		if err != nil {
			t.Fatal(err)
		}
		d.(*document).options.Hint = hint
		if err := d.Parse(t.Context(), r, func(u sheaf.UnitResult) error {
			for _, b := range u.Blocks {
				if b.Kind == sheaf.BlockHeading {
					n++
				}
			}
			layout = append(layout, u.Layout...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n, layout
	}
	if n, _ := headings(sheaf.Range{From: 1, To: 11}, nil); n != 0 {
		t.Fatalf("%d headings in the whole file", n)
	}
	_, first := headings(sheaf.Range{From: 1, To: 10}, nil)
	n, last := headings(sheaf.Range{From: 11, To: 11}, nil)
	if n != 1 {
		t.Fatalf("%d headings on the last page alone: the file tests nothing", n)
	}
	agree := New(Config{}).(parser.Agreeing).Agree
	hints := agree([][]byte{first, last})
	if hints[0] != nil || hints[1] == nil {
		t.Fatalf("hints %s", hints)
	}
	n, last = headings(sheaf.Range{From: 11, To: 11}, hints[1])
	if again := agree([][]byte{first, last}); n != 0 || again[0] != nil || again[1] != nil {
		t.Errorf("%d headings as agreed, and then %s", n, again)
	}
}

// A page has the same blocks for all body heights for which it says so, and others
// beyond these, near its own: no range is read again in vain.
func TestPageStandsForTheHeightsThatGiveItTheSameBlocks(t *testing.T) {
	texts := []string{"Harvest", "The quinces were picked in the last week of October.", "3.1 Orchards", "of apples and pears", "1 See the notes", "Yields:"}
	narrow := 0
	rapid.Check(t, func(rt *rapid.T) {
		var content string
		y := 740.0
		for range rapid.IntRange(2, 14).Draw(rt, "lines") {
			size := rapid.Float64Range(8, 14).Draw(rt, "size")
			y -= size * rapid.SampledFrom([]float64{1.2, 1.2, 1.4, 2.2}).Draw(rt, "lead")
			content += enginetest.Text(rapid.SampledFrom([]string{"F4", "F4", "F2"}).Draw(rt, "font"), size, 72, y, rapid.SampledFrom(texts).Draw(rt, "text"))
		}
		doc, err := shared.Open(t.Context(), enginetest.Write(t, (&enginetest.File{Pages: []enginetest.Page{{Content: content}}}).Bytes()), parser.Options{Name: "page.pdf", MediaType: parser.MediaPDF})
		if err != nil {
			rt.Fatal(err)
		}
		defer doc.Close()
		s, err := doc.(*document).read(t.Context(), 1)
		if err != nil || s.failure != nil {
			rt.Fatal(err, s.failure)
		}
		body := rapid.IntRange(30, 58).Draw(rt, "body")
		blocks := func(q int) ([]sheaf.Block, report) {
			r := s.layOut(decision{Quarters: q}, nil, nil, nil)
			return s.blocks, r
		}
		want, r := blocks(body)
		for q := max(body-2*widest, 1); q <= body+2*widest; q++ {
			got, _ := blocks(q)
			same, stands := reflect.DeepEqual(got, want), q >= r.least && q <= r.most
			if stands && !same {
				rt.Fatalf("a page read by %d stands from %d to %d, and has other blocks by %d", body, r.least, r.most, q)
			}
			if near := q == r.least-1 || q == r.most+1; near && same && q >= body-widest && q <= body+widest {
				rt.Fatalf("a page read by %d stands from %d to %d only, and has the same blocks by %d", body, r.least, r.most, q)
			} else if near && !same {
				narrow++
			}
		}
	})
	if narrow == 0 {
		t.Error("no page depended on the body's height: the test tests nothing")
	}
}
