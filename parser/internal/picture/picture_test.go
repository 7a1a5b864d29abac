package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/zipfile"
)

func archive(t *testing.T, parts ...string) *zipfile.Archive {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.zip")
	if err := os.WriteFile(path, formattest.Zip(parts...), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // it was only read
	z, err := zipfile.Open(f, "docx")
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func encoded(t *testing.T, encode func(b *bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// claiming is a PNG whose header says w × h.
func claiming(b string, w, h uint32) string {
	p := []byte(b)
	binary.BigEndian.PutUint32(p[16:], w)
	binary.BigEndian.PutUint32(p[20:], h)
	binary.BigEndian.PutUint32(p[29:], crc32.ChecksumIEEE(p[12:29]))
	return string(p)
}

func code(err error) string {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f.Code
	}
	return ""
}

func TestPicturesAreDrawnWithinBounds(t *testing.T) {
	gray := image.NewGray(image.Rect(0, 0, 300, 200))
	small := encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, gray) })
	clear := encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, image.NewNRGBA(image.Rect(0, 0, 300, 200))) })
	moving := encoded(t, func(b *bytes.Buffer) error {
		return gif.Encode(b, image.NewPaletted(image.Rect(0, 0, 300, 200), color.Palette{color.Black, color.White}), nil)
	})
	for name, c := range map[string]struct {
		part, content string
		side          int
		code          string
		w, h          int
		white         bool // what is seen through is white
	}{
		"as it is":        {"a.png", small, 1024, "", 300, 200, false},
		"smaller":         {"a.png", small, 30, "", 30, 20, false},
		"least":           {"a.png", small, -5, "", 16, 10, false},
		"transparent":     {"a.png", clear, 1024, "", 300, 200, true},
		"another kind":    {"a.gif", moving, 1024, "", 300, 200, false},
		"no picture":      {"a.png", "text", 1024, "picture_unreadable", 0, 0, false},
		"cut off":         {"a.png", small[:60], 1024, "picture_unreadable", 0, 0, false},
		"too many pixels": {"a.png", claiming(small, 100_000, 100_000), 1024, "too_large", 0, 0, false},
	} {
		z := archive(t, c.part, c.content)
		b, err := Draw(z, Name(z, c.part), c.side)
		if code(err) != c.code {
			t.Errorf("%s: %v, want %q", name, err, c.code)
			continue
		}
		if c.code != "" {
			continue
		}
		m, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil || m.Bounds().Dx() != c.w || m.Bounds().Dy() != c.h {
			t.Errorf("%s: %v, %v", name, m, err)
			continue
		}
		if light, _, _, _ := m.At(5, 5).RGBA(); light > 0x8000 != c.white {
			t.Errorf("%s: the corner is %x", name, light)
		}
	}
}

func TestOtherPartsHaveNoName(t *testing.T) {
	z := archive(t, "a.emf", "x", "b.xml", "x", "c.PNG", "x")
	if Name(z, "a.emf")+Name(z, "b.xml")+Name(z, "none.png") != "" || Name(z, "c.PNG") == "" {
		t.Error("what is not drawn has a name, or what is drawn has none")
	}
	// The name that part b.xml would have is that of c.PNG, whose bytes are the same.
	if part, ok := find(z, Name(z, "c.PNG")); !ok || part != "c.PNG" {
		t.Errorf("%q", part)
	}
	for _, bad := range []string{"", "-", "8cdc1683", "8cdc1683-", "zz-1", "8cdc1683--1", "8cdc1683-1-1"} {
		if _, err := Draw(z, bad, 100); code(err) != "no_picture" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Reading ends with a warning where the time is over or the program is missing,
// and never fails the unit.
func TestReadingPicturesIsBounded(t *testing.T) {
	gray := image.NewGray(image.Rect(0, 0, 300, 200))
	z := archive(t, "a.png", encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, gray) }), "b.png", "damaged",
		"c.png", encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, image.NewGray(image.Rect(0, 0, 20, 20))) }))
	unit := func(parts ...string) *sheaf.UnitResult {
		u := &sheaf.UnitResult{Unit: 1, Status: sheaf.UnitBlank}
		for _, p := range parts {
			u.Blocks = append(u.Blocks, sheaf.Block{Kind: sheaf.BlockImage, Picture: Name(z, p)})
		}
		return u
	}
	for name, c := range map[string]struct {
		program string
		left    int
		parts   []string
		warning string
	}{
		"no time left":    {"false", 0, []string{"a.png", "c.png"}, "not read (2)"},
		"damaged":         {"false", 1, []string{"b.png"}, "not read (1)"},
		"program fails":   {"false", 1, []string{"a.png"}, "not read (1)"},
		"program missing": {"/no/such/tesseract", 1, []string{"a.png", "b.png"}, "install"},
		"ornament":        {"false", 1, []string{"c.png"}, ""},
		"no pictures":     {"false", 1, nil, ""},
	} {
		r := &Reader{Archive: z, OCR: ocr.Config{Tesseract: c.program}, TempDir: t.TempDir()}
		if c.left > 0 {
			_, r.Left = Budget(1, nil)
		}
		u := unit(c.parts...)
		if err := r.Read(context.Background(), u); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		said := ""
		for _, w := range u.Warnings {
			said += w.Message
		}
		if (c.warning == "") != (said == "") || !strings.Contains(said, c.warning) || u.Status != sheaf.UnitBlank {
			t.Errorf("%s: %s, %q", name, u.Status, said)
		}
	}
}
