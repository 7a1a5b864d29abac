package pdf

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/api"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/pdf/enginetest"
)

func needTesseract(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("tesseract"); err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("tesseract is not installed and SHEAF_TEST_REQUIRE asks for it")
		}
		t.Skip("tesseract is not installed")
	}
}

// pictured draws the first page of a file.
func pictured(t *testing.T, file enginetest.File) ([]byte, image.Config) {
	t.Helper()
	d, err := openBytes(t, file.Bytes(), sheaf.ParseConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	picture, _, err := d.(parser.Renderer).Render(context.Background(), 1, 200, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := jpeg.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	return picture, c
}

// scan is a page without a text layer: the picture of one with text.
func scan(t *testing.T) []byte {
	t.Helper()
	page := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F4", 18, 72, 700, "The quince harvest was") + enginetest.Text("F4", 18, 72, 676, "better than expected.") +
		enginetest.Text("F4", 18, 72, 500, "Invoice number 48151623")}}}
	picture, c := pictured(t, page)
	return enginetest.File{Scan: picture, ScanW: c.Width, ScanH: c.Height, Pages: []enginetest.Page{
		{Content: enginetest.Image(0, 0, 612, 792)},
		{Content: enginetest.Text("F1", 12, 72, 700, "A page with a text layer is not recognised.")},
	}}.Bytes()
}

func readWith(t *testing.T, c ocr.Config, content []byte) []sheaf.UnitResult {
	t.Helper()
	return readBy(t, c, sheaf.ParseConfig{}, content)
}

func readBy(t *testing.T, c ocr.Config, by sheaf.ParseConfig, content []byte) []sheaf.UnitResult {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "scan.pdf")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := New(Config{OCR: c}).Open(context.Background(), f, parser.Options{TempDir: dir, Config: by})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return parseAllPages(t, d)
}

func TestScannedPagesAreRecognised(t *testing.T) {
	needTesseract(t)
	us := readWith(t, ocr.Config{Tesseract: "tesseract"}, scan(t))
	if u := us[0]; u.Status != sheaf.UnitOCR || u.Code != "" || !strings.Contains(u.Message, "confidence") || len(u.Blocks) != 2 ||
		u.Blocks[0].Text != "The quince harvest was better than expected." || u.Blocks[1].Text != "Invoice number 48151623" {
		t.Fatalf("%s %s %s", u.Status, u.Message, dump(us[:1]))
	}
	// The baseline of the first line lies at 92 points from the top.
	s := us[0].Blocks[0].Spans
	if len(s) != 2 || abs(s[0].Box.X0-72) > 4 || s[0].Box.Y0 < 70 || s[0].Box.Y1 > 104 || s[1].Box.Y0 < s[0].Box.Y0 {
		t.Errorf("%+v", s)
	}
	if u := us[1]; u.Status != sheaf.UnitOK {
		t.Errorf("the page with text is %s", u.Status)
	}
}

func TestScannedPagesWithoutTesseractAreSkipped(t *testing.T) {
	us := readWith(t, ocr.Config{Tesseract: "/no/such/tesseract"}, scan(t))
	if us[0].Status != sheaf.UnitSkipped || us[0].Code != needsOCR || us[1].Status != sheaf.UnitOK {
		t.Errorf("%s", dump(us))
	}
}

func TestRecognitionThatFailsIsAVerdictOnThePage(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "tesseract")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\nexit 9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	us := readWith(t, ocr.Config{Tesseract: broken}, scan(t))
	if us[0].Status != sheaf.UnitFailed || us[0].Code != "parser_crash" || us[1].Status != sheaf.UnitOK {
		t.Errorf("%s", dump(us))
	}
}

func TestVersionFollowsRecognition(t *testing.T) {
	needTesseract(t)
	off, eng, deu := New(Config{}).Version(), New(Config{OCR: ocr.Config{Tesseract: "tesseract"}}).Version(), New(Config{OCR: ocr.Config{Tesseract: "tesseract", Languages: "deu"}}).Version()
	if off != version || eng == off || deu == eng || eng%1000 != version {
		t.Errorf("versions %d, %d, %d", off, eng, deu)
	}
}

// pictureOf is how a page of the given content looks.
func pictureOf(t *testing.T, content string, dpi int) image.Image {
	t.Helper()
	d, err := openBytes(t, enginetest.File{Pages: []enginetest.Page{{Content: content}}}.Bytes(), sheaf.ParseConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	picture, _, err := d.(parser.Renderer).Render(context.Background(), 1, dpi, nil)
	if err != nil {
		t.Fatal(err)
	}
	upright, err := jpeg.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	return upright
}

func TestScanOnItsSideIsRecognised(t *testing.T) {
	needTesseract(t)
	page := ""
	for i := range 20 {
		page += enginetest.Text("F4", 18, 72, 720-30*float64(i), "The quince harvest was better than expected.")
	}
	upright := pictureOf(t, page, 150)
	w, h := upright.Bounds().Dx(), upright.Bounds().Dy()
	turned := image.NewRGBA(image.Rect(0, 0, h, w))
	for y := range h {
		for x := range w {
			turned.Set(h-1-y, x, upright.At(x, y))
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, turned, nil); err != nil {
		t.Fatal(err)
	}
	content := enginetest.File{Scan: b.Bytes(), ScanW: h, ScanH: w, Pages: []enginetest.Page{{Content: enginetest.Image(0, 0, 612, 612*float64(w)/float64(h))}}}.Bytes()
	u := readWith(t, ocr.Config{Tesseract: "tesseract"}, content)[0]
	text := ""
	for _, b := range u.Blocks {
		text += b.Text + " "
		for _, s := range b.Spans {
			if s.Box.X0 < 0 || s.Box.X1 > u.Width || s.Box.Y1 > u.Height || s.Box.Y1-s.Box.Y0 < s.Box.X1-s.Box.X0 {
				t.Errorf("a line that runs down the page lies at %+v of %v × %v", s.Box, u.Width, u.Height)
			}
		}
	}
	if n := strings.Count(text, "better than expected"); u.Status != sheaf.UnitOCR || n < 15 {
		t.Errorf("%s, %d lines: %.300s", u.Status, n, text)
	}
}

// illustrated is a page with text and a picture of text.
func illustrated(t *testing.T) []byte {
	t.Helper()
	page := enginetest.File{Pages: []enginetest.Page{{MediaBox: [4]int{0, 0, 360, 144}, Content: enginetest.Text("F4", 18, 36, 90, "Pressed on the ninth") + enginetest.Text("F4", 18, 36, 50, "of October, 412 litres")}}}
	picture, c := pictured(t, page)
	return enginetest.File{Scan: picture, ScanW: c.Width, ScanH: c.Height, Pages: []enginetest.Page{
		{Content: enginetest.Text("F1", 12, 72, 700, "The label of the bottle says when it was made, and how much of it.") + enginetest.Image(72, 400, 360, 144)},
		{Content: enginetest.Text("F1", 12, 72, 700, "A page without pictures.")},
	}}.Bytes()
}

// The text in a picture belongs to the picture's block, whose box is the picture.
func TestFiguresAreReadOnRequest(t *testing.T) {
	needTesseract(t)
	content := illustrated(t)
	ask := sheaf.ParseConfig{OCRPictures: sheaf.Set(true)}
	us := readBy(t, ocr.Config{Tesseract: "tesseract"}, ask, content)
	box := sheaf.Box{Page: 1, X0: 72, Y0: 248, X1: 432, Y1: 392}
	if k := us[0].Blocks; us[0].Status != sheaf.UnitOK || len(k) != 2 || k[1].Kind != sheaf.BlockImage || k[1].Text != "Pressed on the ninth\nof October, 412 litres" ||
		len(k[1].Spans) != 1 || k[1].Spans[0] != (sheaf.Span{End: len(k[1].Text), Box: box}) {
		t.Errorf("%s", dump(us[:1]))
	}
	if len(us[0].Warnings)+len(us[1].Warnings) != 0 {
		t.Errorf("%+v %+v", us[0].Warnings, us[1].Warnings)
	}
	if us = readWith(t, ocr.Config{Tesseract: "tesseract"}, content); us[0].Blocks[1].Text != "" {
		t.Errorf("read unasked: %s", dump(us[:1]))
	}
}

// A picture that was not read is named: without the program, and without time.
func TestFiguresThatAreNotReadAreNamed(t *testing.T) {
	content := illustrated(t)
	us := readBy(t, ocr.Config{Tesseract: "no-such-program"}, sheaf.ParseConfig{OCRPictures: sheaf.Set(true)}, content)
	if w := us[0].Warnings; len(w) != 1 || w[0].Code != "pictures_unread" || !strings.Contains(w[0].Message, "tesseract") || len(us[1].Warnings) != 0 {
		t.Errorf("%+v", us[0].Warnings)
	}
	d, err := openBytes(t, content, sheaf.ParseConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.(*document).readFigures(t.Context(), &us[0], 0); err != nil {
		t.Fatal(err)
	}
	if w := us[0].Warnings; len(w) != 2 || !strings.Contains(w[1].Message, "(1)") {
		t.Errorf("%+v", w)
	}
}

// Recognition takes seconds a page: scans are cut into small ranges, so that they are
// read side by side, unless nothing is recognized.
func TestScansAreCutIntoSmallRanges(t *testing.T) {
	picture, _ := pictured(t, enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "A page")}}})
	pages := func(scans int) []byte {
		text := enginetest.File{Pages: make([]enginetest.Page, 3)}
		for i := range text.Pages {
			text.Pages[i].Content = enginetest.Text("F1", 12, 72, 700, "A page with a text layer.")
		}
		if scans == 0 {
			return text.Bytes()
		}
		var b bytes.Buffer
		readers := make([]io.Reader, scans)
		for i := range readers {
			readers[i] = bytes.NewReader(picture)
		}
		if err := api.ImportImages(nil, &b, readers, nil, nil); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := api.MergeRaw([]io.ReadSeeker{bytes.NewReader(b.Bytes()), bytes.NewReader(text.Bytes())}, &out, false, nil); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	on := ocr.Config{Tesseract: os.Args[0]} // it is there, and not started
	for _, c := range []struct {
		scans int
		by    ocr.Config
		want  int
	}{{5, on, ocr.RangePages}, {5, ocr.Config{}, rangeSize}, {2, on, rangeSize}, {0, on, rangeSize}} {
		path := filepath.Join(t.TempDir(), "a.pdf")
		if err := os.WriteFile(path, pages(c.scans), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		d, err := New(Config{OCR: c.by}).Open(t.Context(), f, parser.Options{MediaType: parser.MediaPDF, TempDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := d.Plan(t.Context())
		if err != nil || plan.Units != c.scans+3 || plan.RangeSize != c.want {
			t.Errorf("%d scans of %d pages: %v, ranges of %d, want %d", c.scans, plan.Units, err, plan.RangeSize, c.want)
		} else if plan.Slow != (c.scans > 0) {
			t.Errorf("a plan with %d scans: slow is %t", c.scans, plan.Slow)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
