package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/gif"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/image/bmp"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

func need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("tesseract"); err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("tesseract is not installed and SHEAF_TEST_REQUIRE asks for it")
		}
		t.Skip("tesseract is not installed")
	}
}

var (
	withTesseract = New(Config{OCR: ocr.Config{Tesseract: "tesseract"}})
	options       = parser.Options{Name: "a.png", MediaType: "image/png"}
)

// glyphs are capital letters of 5 × 7 dots.
var glyphs = map[rune][7]string{
	'H': {"#...#", "#...#", "#...#", "#####", "#...#", "#...#", "#...#"},
	'E': {"#####", "#....", "#....", "####.", "#....", "#....", "#####"},
	'L': {"#....", "#....", "#....", "#....", "#....", "#....", "#####"},
	'F': {"#####", "#....", "#....", "####.", "#....", "#....", "#...."},
	'T': {"#####", "..#..", "..#..", "..#..", "..#..", "..#..", "..#.."},
	'I': {".###.", "..#..", "..#..", "..#..", "..#..", "..#..", ".###."},
}

// draw writes words on white, a line each.
func draw(lines ...string) *image.Gray {
	const dot, margin = 6, 60
	m := image.NewGray(image.Rect(0, 0, 900, 2*margin+len(lines)*14*dot))
	for i := range m.Pix {
		m.Pix[i] = 255
	}
	for n, l := range lines {
		for k, r := range l {
			for y, row := range glyphs[r] {
				for x, c := range row {
					if c != '#' {
						continue
					}
					for i := range dot * dot {
						m.Pix[m.PixOffset(margin+(k*7+x)*dot+i%dot, margin+(n*14+y)*dot+i/dot)] = 0
					}
				}
			}
		}
	}
	return m
}

func pngOf(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tiffOf writes pages without compression (TIFF 6.0).
func tiffOf(pages ...*image.Gray) []byte {
	le := binary.LittleEndian
	b := []byte("II*\x00\x00\x00\x00\x00")
	link := 4
	for _, p := range pages {
		at := uint32(len(b))
		b = append(b, p.Pix...)
		if len(b)%2 == 1 {
			b = append(b, 0)
		}
		le.PutUint32(b[link:], uint32(len(b)))
		fields := [][3]uint32{ // tag, type, value
			{256, 4, uint32(p.Rect.Dx())}, {257, 4, uint32(p.Rect.Dy())}, {258, 3, 8}, {259, 3, 1}, {262, 3, 1},
			{273, 4, at}, {277, 3, 1}, {278, 4, uint32(p.Rect.Dy())}, {279, 4, uint32(len(p.Pix))},
		}
		b = le.AppendUint16(b, uint16(len(fields)))
		for _, f := range fields {
			b = le.AppendUint16(b, uint16(f[0]))
			b = le.AppendUint16(b, uint16(f[1]))
			b = le.AppendUint32(b, 1)
			b = le.AppendUint32(b, f[2])
		}
		link = len(b)
		b = le.AppendUint32(b, 0)
	}
	return b
}

func TestDrawnTextIsRead(t *testing.T) {
	need(t)
	plan, units, err := formattest.Read(t, withTesseract, pngOf(t, draw("HELL", "FILE TILE")), options, nil)
	if err != nil || plan.Unit != sheaf.UnitPage || plan.Metadata["width"] != "900" {
		t.Fatal(plan, err)
	}
	u, text := units[0], ""
	for _, b := range units[0].Blocks {
		text += b.Text + "\n"
		for _, s := range b.Spans {
			if s.Box.X0 < 0 || s.Box.X1 > u.Width || s.Box.Y1 > u.Height || s.Box.X1 <= s.Box.X0 {
				t.Errorf("a line lies at %+v of %v × %v", s.Box, u.Width, u.Height)
			}
		}
	}
	if u.Status != sheaf.UnitOCR || !strings.Contains(strings.ToUpper(text), "FILE TILE") {
		t.Errorf("%s %s %q", u.Status, u.Message, text)
	}
}

// What is drawn has the measure of the boxes, and a clip is cut out of it.
func TestPicturesAreDrawn(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name    string
		content []byte
		clip    *sheaf.Box
		w, h    int // of the answer at 144 dpi
		page    int // 0 for the first
	}{
		{"png", pngOf(t, draw("HELL", "FILE TILE")), nil, 1600, 512, 0}, // 900 × 288 pixels at 81 dpi
		{"tiff", tiffOf(draw("HELL")), nil, 1600, 363, 0},
		{"second page", tiffOf(draw("HELL"), draw("HELL", "FILE TILE"), draw("FILE")), nil, 1600, 512, 2},
		{"last page", tiffOf(draw("HELL", "FILE TILE"), draw("FILE"), draw("HELL")), nil, 1600, 363, 3},
		{"clip", pngOf(t, draw("HELL", "FILE TILE")), &sheaf.Box{X0: 72, Y0: 0, X1: 144, Y1: 72}, 144, 144, 0},
		{"clip beside it", pngOf(t, draw("HELL", "FILE TILE")), &sheaf.Box{X0: 7200, Y0: 7200, X1: 7300, Y1: 7300}, 1600, 512, 0},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		doc, err := withTesseract.Open(t.Context(), f, options)
		if err != nil {
			t.Fatal(err)
		}
		b, mediaType, err := doc.(parser.Renderer).Render(t.Context(), max(c.page, 1), 144, c.clip)
		if err != nil || mediaType != "image/jpeg" {
			t.Fatalf("%s: %s, %v", c.name, mediaType, err)
		}
		m, _, err := image.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if at := m.Bounds(); at.Dx() != c.w || at.Dy() != c.h {
			t.Errorf("%s is drawn %d × %d, want %d × %d", c.name, at.Dx(), at.Dy(), c.w, c.h)
		}
		if white, _, _, _ := m.At(1, 1).RGBA(); white < 0xf000 {
			t.Errorf("%s: the corner is %x", c.name, white)
		}
		if _, _, err := doc.(parser.Renderer).Render(t.Context(), 4, 144, nil); code(err) != "no_such_page" {
			t.Errorf("%s: page 4: %v", c.name, err)
		}
	}
}

func TestPagesOfATIFFAreUnits(t *testing.T) {
	need(t)
	_, units, err := formattest.Read(t, withTesseract, tiffOf(draw("FILE TILE"), draw(), draw("THE TITLE")), parser.Options{Name: "a.tif", MediaType: "image/tiff"}, nil)
	if err != nil || len(units) != 3 {
		t.Fatal(units, err)
	}
	for i, want := range []string{"FILE TILE", "", "THE TITLE"} {
		u, text := units[i], ""
		for _, b := range u.Blocks {
			text += b.Text
		}
		if !strings.Contains(strings.ToUpper(text), want) || want == "" && u.Status != sheaf.UnitBlank {
			t.Errorf("page %d: %s %s %q", i+1, u.Status, u.Message, text)
		}
	}
}

func TestOtherPicturesAreRead(t *testing.T) {
	need(t)
	var asGIF, asBMP bytes.Buffer
	if err := errors.Join(gif.Encode(&asGIF, draw("THE TITLE"), nil), bmp.Encode(&asBMP, draw("THE TITLE"))); err != nil {
		t.Fatal(err)
	}
	for mediaType, content := range map[string][]byte{"image/gif": asGIF.Bytes(), "image/bmp": asBMP.Bytes()} {
		if got := parser.NewRegistry(withTesseract).Sniff(bytes.NewReader(content), int64(len(content)), "a"); got != mediaType {
			t.Errorf("%s is taken for %s", mediaType, got)
		}
		_, units, err := formattest.Read(t, withTesseract, content, parser.Options{Name: "a", MediaType: mediaType}, nil)
		if err != nil || len(units) != 1 || units[0].Status != sheaf.UnitOCR || !strings.Contains(strings.ToUpper(units[0].Blocks[0].Text), "TITLE") {
			t.Errorf("%s: %v %+v", mediaType, err, units)
		}
	}
}

// Pages beyond the limit are named.
func TestPagesBeyondTheLimitAreNamed(t *testing.T) {
	// Each directory has the two entries of the size.
	b := []byte("II*\x00\x08\x00\x00\x00")
	for i := range maxPages + 1 {
		b = append(b, 2, 0)
		for _, tag := range []byte{0, 1} {
			b = append(b, tag, 1, 3, 0, 1, 0, 0, 0, 9, 0, 0, 0)
		}
		next := uint32(len(b) + 4)
		if i == maxPages {
			next = 0
		}
		b = binary.LittleEndian.AppendUint32(b, next)
	}
	for last, want := range map[bool]int{true: 0, false: 1} {
		content := bytes.Clone(b)
		if last { // the limit itself
			binary.LittleEndian.PutUint32(content[len(content)-30-4:], 0)
		}
		pages, more, err := tiffPages(bytes.NewReader(content), int64(len(content)))
		plan, planErr := (&document{pages: pages, more: more}).Plan(t.Context())
		if err = errors.Join(err, planErr); err != nil || len(pages) != maxPages || len(plan.Warnings) != want {
			t.Errorf("%d pages, more %v, %v", len(pages), more, err)
		}
	}
}

func code(err error) string {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f.Code
	}
	return ""
}

func TestBadInput(t *testing.T) {
	need(t)
	loop := tiffOf(draw())
	binary.LittleEndian.PutUint32(loop[len(loop)-4:], binary.LittleEndian.Uint32(loop[4:]))
	for title, c := range map[string]struct {
		content []byte
		code    string
	}{
		"no bytes":       {nil, "empty_file"},
		"garbage":        {[]byte("no picture"), "invalid_image"},
		"endless TIFF":   {loop, "invalid_image"},
		"cut off TIFF":   {loop[:8], "invalid_image"},
		"cut off WebP":   {[]byte("RIFF\x00\x00\x00\x00WEBPnothing of use here....."), "invalid_image"},
		"too many dots":  {append([]byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"), 0xff, 0xff, 0, 0xff, 0xff, 0, 0, 0), "too_large"},
		"no page at all": {[]byte("II*\x00\x00\x00\x00\x00"), "invalid_image"},
	} {
		if _, _, err := formattest.Read(t, withTesseract, c.content, options, nil); code(err) != c.code {
			t.Errorf("%s: %v, want %s", title, err, c.code)
		}
	}
	// A picture that is damaged behind its size is a verdict on its page.
	half := pngOf(t, draw("HELL"))[:60]
	if _, units, err := formattest.Read(t, withTesseract, half, options, nil); err != nil || units[0].Status != sheaf.UnitFailed || units[0].Code != "parser_crash" {
		t.Errorf("cut off: %+v, %v", units, err)
	}
}

func TestMissingTesseractIsSaidAtOnce(t *testing.T) {
	f := New(Config{OCR: ocr.Config{Tesseract: "/no/such/tesseract"}})
	if err := parser.Available(f); code(err) != "part_missing" || !strings.Contains(err.Error(), "tesseract-ocr") {
		t.Error(err)
	}
	if _, _, err := formattest.Read(t, f, pngOf(t, draw("HELL")), options, nil); code(err) != "part_missing" {
		t.Error(err)
	}
}

// FuzzOpen holds that no file's head makes the parser panic or hang: the rest
// of it is read by a process of its own.
func FuzzOpen(f *testing.F) {
	f.Add(pngOf(f, draw("HELL")))
	f.Add(tiffOf(draw("HELL"), draw("FILE")))
	f.Add(append([]byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"), 9, 0, 0, 9, 0, 0, 0, 0))
	sh := New(Config{OCR: ocr.Config{Tesseract: "sh"}}) // any program that is there
	f.Fuzz(func(t *testing.T, b []byte) {
		path := t.TempDir() + "/f"
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := sh.Open(t.Context(), file, options); err != nil && code(err) == "" {
			t.Errorf("not a failure: %v", err)
		}
	})
}
