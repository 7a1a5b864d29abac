package enginetest

import (
	"bytes"
	"fmt"
	"strings"
)

// Heavy makes a PDF whose pages have 100 KB each, like scanned pages. It also
// returns what a page says.
func Heavy(pages int) (data []byte, says func(page int) string) { return heavy(pages, "") }

// HeavyLinked is Heavy with a link on its first page to each of some pages (counted
// from 0): twice by reference, and by number as in files that link elsewhere.
func HeavyLinked(pages int, to ...int) []byte {
	var links strings.Builder
	link := func(to string) {
		fmt.Fprintf(&links, "<< /Type /Annot /Subtype /Link /Rect [72 72 90 90] /Dest [%s /Fit] >> ", to)
	}
	for _, page := range to {
		link(fmt.Sprintf("%d 0 R", 4+2*page))
		link(fmt.Sprintf("%d 0 R", 4+2*page))
		link(fmt.Sprint(page))
	}
	data, _ := heavy(pages, "/Annots ["+links.String()+"]")
	return data
}

// heavy is Heavy with more entries in the dictionary of the first page.
func heavy(pages int, entries string) (data []byte, says func(page int) string) {
	says = func(page int) string { return fmt.Sprintf("This is page %d", page) }
	var b bytes.Buffer
	var at []int
	object := func(format string, args ...any) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n", len(at))
		fmt.Fprintf(&b, format, args...)
		b.WriteString("\nendobj\n")
	}
	b.WriteString("%PDF-1.4\n")
	object("<< /Type /Catalog /Pages 2 0 R >>")
	var kids strings.Builder
	for p := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*p)
	}
	object("<< /Type /Pages /Count %d /Kids [ %s] >>", pages, kids.String())
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
	for p := range pages {
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R %s >>", 5+2*p, entries)
		entries = ""
		content := "%" + strings.Repeat("x", 100<<10) + fmt.Sprintf("\nBT /F1 12 Tf 72 %d Td (%s) Tj ET", 300+p, says(p+1)) // not where a running header would be
		object("<< /Length %d >>\nstream\n%s\nendstream", len(content), content)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, o := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, xref)
	return b.Bytes(), says
}
