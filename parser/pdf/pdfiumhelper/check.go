package pdfiumhelper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"sheaf/parser/pdf/engine"
)

// Check starts the program, reads its self-description, and has it read a page.
// filtered reports whether the kernel blocks all system calls that reading does not
// need.
func Check(ctx context.Context, cfg Config) (filtered bool, err error) {
	e := New(cfg)
	defer e.Close()
	p, filtered, err := e.start(nil)
	if err != nil {
		return false, err
	}
	_ = p.end(nil)
	sample := samplePDF()
	d, err := e.Open(ctx, bytes.NewReader(sample), int64(len(sample)), "")
	if err != nil {
		return false, err
	}
	defer d.Close()
	var page engine.Page
	if err := d.Page(0, &page); err != nil {
		return false, err
	}
	var text strings.Builder
	for _, c := range page.Chars {
		text.WriteRune(rune(c.Unit))
	}
	first := engine.Rect{}
	if len(page.Chars) > 0 {
		first = page.Chars[0].Box
	}
	// As package pdfiumwasm reads it; a test checks that they are equal.
	if got, want := fmt.Sprintf("%q %v %v %v", text.String(), first, page.Fonts, page.Rules), sampleReads; got != want {
		return false, errors.New("it reads a page of the self-test wrongly: " + got)
	}
	return filtered, nil
}

const sampleReads = `"Sheaf reads this." {72 697.312 80.004 711.34} [{Helvetica 0 32}] [{71.3 599.3 300.7 600.7}]`

// samplePDF is one page with a line of text and a rule.
func samplePDF() []byte {
	content := "BT /F1 12 Tf 72 700 Td (Sheaf reads this.) Tj ET 0.7 w 72 600 m 300 600 l S"
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	var at []int
	for i, o := range []string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 4 0 R >> >> /Contents 5 0 R >>",
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
		fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(content), content),
	} {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, o := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, xref)
	return b.Bytes()
}
