package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"sheaf/parser/pdf/engine"
)

// Helper returns the path of sheaf-pdfium, which scripts/test.sh builds.
func Helper(t testing.TB) string {
	t.Helper()
	path := os.Getenv("SHEAF_TEST_PDFIUM")
	if path == "" {
		const how = "SHEAF_TEST_PDFIUM names no sheaf-pdfium; make helper builds bin/sheaf-pdfium"
		if os.Getenv("SHEAF_TEST_REQUIRE") == "1" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	return path
}

// Fixtures are files on which engines built from the same PDFium must agree to the
// last bit: everything a page may hold, more of it than is read at once, and damage.
func Fixtures() map[string][]byte {
	words := func(n int, font string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(Text(font, 3, 20+float64(i%20)*28, 780-float64(i/20)*3, fmt.Sprintf("word%d", i)))
		}
		return b.String()
	}
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			y := 20 + float64(i%700)
			switch i % 4 {
			case 0:
				b.WriteString(Line(50, y, 90.25+float64(i%7), y))
			case 1:
				fmt.Fprintf(&b, "%d.5 %g 31.1 17.3 re S\n", 100+i%300, y)
			case 2:
				fmt.Fprintf(&b, "0.9 0.1 -0.1 0.9 %d 3 cm 10 %g m 60 %g l 60 %g l h S\n", i%3, y, y, y+20)
			case 3:
				fmt.Fprintf(&b, "q 1 0.002 0 1 0 0 cm 300 %g 200 2 re f Q\n", y)
			}
		}
		return b.String()
	}
	every := File{
		Pages: []Page{
			{Content: Text("F1", 12, 72, 700, "Plain words") + Text("F2", 24, 72, 600, "Bold") + Text("F3", 10, 72, 500, "code()") +
				"BT /F4 1 Tf 14 0 0 14 72 400 Tm (Scaled) Tj ET\nBT /F1 12 Tf 0 1 -1 0 500 300 Tm (Upwards) Tj ET\nBT /F1 12 Tf 0.7 -0.7 0.7 0.7 550 300 Tm (Askew) Tj ET\n"},
			{Content: Text("F1", 12, 100, 500, "Turned"), Rotate: 90},
			{Content: Text("F1", 12, 100, 500, "Cut"), CropBox: [4]int{50, 60, 450, 660}, Rotate: 270},
			{Content: Wide(10, 72, 700, "日本語 العربية עברית 𝔘𝔫𝔦") + Text("F1", 12, 72, 600, "beside Latin")},
			{Content: lines(300) + "1 0 0 1 100 0 cm /X1 Do\n" + Image(50, 500, 120, 80)},
			{Content: Text("F1", 12, 72, 700, "links"), Links: []Link{{Box: [4]int{72, 700, 120, 712}, URI: "https://example.org/a?b=c"}, {Box: [4]int{72, 600, 120, 612}, Page: 2}}},
			{},
		},
		Labels:  "0 << /S /r >> 2 << /S /D /St 7 >>",
		Info:    map[string]string{"Title": "A title \\(with signs\\)", "Author": "\xE9"},
		Outline: []Mark{{1, "One", 0}, {2, "One point one", 1}, {1, " ", 1}, {1, "Two", 2}},
	}.Bytes()
	many := File{Pages: []Page{
		{Content: words(4000, "F1") + words(900, "F4")},
		{Content: lines(9000)},
		{Content: strings.Repeat("/X1 Do\n", 21000)},
		{Content: strings.Repeat(Image(50, 500, 12, 8), 700) + Text("F1", 12, 72, 700, "after")},
	}}.Bytes()
	heavy, _ := Heavy(3)
	return map[string][]byte{
		"everything": every, "many": many, "heavy": heavy,
		"cut":     every[:len(every)*2/3],
		"patched": bytes.Replace(every, []byte("/Type /Pages"), []byte("/Type /Pagez"), 1),
		"empty":   {}, "text": []byte("no PDF at all"),
	}
}

// bits returns the bytes of a slice of plain numbers.
func bits[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// described formats each run with its font instead of the font's number, which
// changes when another engine takes over.
func described(p *engine.Page) (all []string) {
	for _, r := range p.Runs {
		font := "none"
		if r.Font >= 0 {
			font = fmt.Sprint(p.Fonts[r.Font])
		}
		all = append(all, fmt.Sprintf("%s %x %x", font, math.Float32bits(r.Size), math.Float32bits(r.Angle)))
	}
	return all
}

// Same checks that two engines read a file identically to the bit: at most most of
// its pages, the document's metadata, and a picture of the first page.
func Same(t testing.TB, a, b engine.Engine, f io.ReaderAt, size int64, most int) (pages int) {
	t.Helper()
	da, errA := a.Open(context.Background(), f, size, "")
	db, errB := b.Open(context.Background(), f, size, "")
	if errA != nil || errB != nil {
		if errA == nil || errB == nil || errA.Error() != errB.Error() {
			t.Errorf("opening: %v, and %v", errA, errB)
		}
		for _, d := range []engine.Document{da, db} {
			if d != nil {
				_ = d.Close()
			}
		}
		return 0
	}
	defer da.Close()
	defer db.Close()
	if da.Pages() != db.Pages() {
		t.Errorf("%d pages, and %d", da.Pages(), db.Pages())
		return 0
	}
	var pa, pb engine.Page
	for n := range min(da.Pages(), most) {
		errA, errB := da.Page(n, &pa), db.Page(n, &pb)
		if fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Errorf("page %d: %v, and %v", n, errA, errB)
			continue
		}
		if errA != nil {
			continue
		}
		pages++
		for what, equal := range map[string]bool{
			"characters": bytes.Equal(bits(pa.Chars), bits(pb.Chars)), "runs": reflect.DeepEqual(described(&pa), described(&pb)),
			"rules": bytes.Equal(bits(pa.Rules), bits(pb.Rules)), "images": bytes.Equal(bits(pa.Images), bits(pb.Images)),
			"links": len(pa.Links) == 0 && len(pb.Links) == 0 || reflect.DeepEqual(pa.Links, pb.Links),
			"page":  fmt.Sprint(pa.Width, pa.Height, pa.Box, pa.Rotation, pa.Objects, pa.Truncated) == fmt.Sprint(pb.Width, pb.Height, pb.Box, pb.Rotation, pb.Objects, pb.Truncated),
			"label": da.Label(n) == db.Label(n),
		} {
			if !equal {
				t.Errorf("page %d: the %s differ", n, what)
			}
		}
	}
	if da.Label(da.Pages()/2) != db.Label(da.Pages()/2) {
		t.Error("a label differs")
	}
	for _, key := range []string{"Title", "Author", "Producer", "None"} {
		if x, y := da.Meta(key), db.Meta(key); x != y {
			t.Errorf("%s: %q, and %q", key, x, y)
		}
	}
	wa, ha, errA := da.Size(0)
	wb, hb, errB := db.Size(0)
	if wa != wb || ha != hb || fmt.Sprint(errA) != fmt.Sprint(errB) {
		t.Errorf("size: %v × %v %v, and %v × %v %v", wa, ha, errA, wb, hb, errB)
	}
	for _, limit := range []int{3, 2000} {
		ma, errA := da.Outline(limit, limit == 2000)
		mb, errB := db.Outline(limit, limit == 2000)
		if !reflect.DeepEqual(ma, mb) || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Errorf("outline of at most %d: %d bookmarks %v, and %d %v", limit, len(ma), errA, len(mb), errB)
		}
	}
	ia, errA := da.Render(0, 97, 131)
	ib, errB := db.Render(0, 97, 131)
	if (errA == nil) != (errB == nil) || errA == nil && !bytes.Equal(ia.Pix, ib.Pix) {
		t.Errorf("pictures of the first page differ: %v, %v", errA, errB)
	}
	return pages
}
