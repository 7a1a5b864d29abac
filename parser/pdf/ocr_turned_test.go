package pdf

import (
	"bytes"
	"image"
	"image/jpeg"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/pdf/enginetest"
)

func TestScannedPagesOnTheirHeadAreTurned(t *testing.T) {
	needTesseract(t)
	text := append(append([]string{}, leftColumn...), rightColumn...)
	upright := pictureOf(t, lines("F4", 14, 72, 700, 22, text...), 200)
	w, h := upright.Bounds().Dx(), upright.Bounds().Dy()
	turned := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			turned.Set(w-1-x, h-1-y, upright.At(x, y))
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, turned, nil); err != nil {
		t.Fatal(err)
	}
	u := readWith(t, ocr.Config{Tesseract: "tesseract"}, enginetest.File{Scan: b.Bytes(), ScanW: w, ScanH: h, Pages: []enginetest.Page{{Content: enginetest.Image(0, 0, 612, 792)}}}.Bytes())[0]
	var read strings.Builder
	for _, k := range u.Blocks {
		read.WriteString(k.Text + " ")
	}
	first, last := strings.Index(read.String(), "The first column holds"), strings.Index(read.String(), "very last line")
	if u.Status != sheaf.UnitOCR || first < 0 || last < first {
		t.Fatalf("%s %s", u.Status, dump([]sheaf.UnitResult{u}))
	}
	// The box is that of the page as it lies: its first line stands at the foot.
	if y := u.Blocks[0].Spans[0].Box.Y0; y < 600 {
		t.Errorf("the first line is placed at %.0f of 792 points", y)
	}
}
