package main

import (
	"bytes"
	"fmt"
	"strings"
)

// A4 in points, with margins.
const (
	pageWidth, pageHeight = 595.0, 842.0
	marginX, marginY      = 64.0, 72.0
	textWidth             = pageWidth - 2*marginX
)

type font struct {
	name   string // of the resource
	base   string
	widths *[95]int // of the characters from space to tilde, in thousandths of the size; nil: 600 each
}

// Widths are from Adobe's metrics for the standard fonts (Core 14 AFM).
var (
	regular = &font{"F1", "Helvetica", &[95]int{
		278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
		556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
		1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
		667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
		333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
		556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584}}
	bold = &font{"F2", "Helvetica-Bold", &[95]int{
		278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278,
		556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611,
		975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833, 722, 778,
		667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584, 556,
		333, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611,
		611, 611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584}}
	mono  = &font{"F3", "Courier", nil}
	fonts = []*font{regular, bold, mono}
)

// beyond are the non-ASCII characters that the handbook uses: their WinAnsi codes
// and widths, which both Helvetica faces share.
var beyond = map[rune]struct {
	code  byte
	width int
}{'–': {0x96, 556}, '…': {0x85, 1000}, '×': {0xd7, 584}}

func (f *font) width(s string, size float64) float64 {
	n := 0
	for _, r := range s {
		switch {
		case f.widths == nil:
			n += 600
		case r >= ' ' && r <= '~':
			n += f.widths[r-' ']
		default:
			n += beyond[r].width
		}
	}
	return float64(n) * size / 1000
}

// wrap splits s into lines of at most width, at spaces if there are any.
func (f *font) wrap(s string, size, width float64) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && f.width(line+" "+word, size) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		line = word
		for f.width(line, size) > width {
			cut := len(line) - 1
			for cut > 1 && f.width(line[:cut], size) > width {
				cut--
			}
			lines, line = append(lines, line[:cut]), line[cut:]
		}
	}
	return append(lines, line)
}

type bookmark struct {
	level, page int
	y           float64
	text        string
}

type pdf struct {
	pages []*bytes.Buffer
	y     float64 // of the next line's top, from the top of the page
	marks []bookmark
	bad   rune
}

func (p *pdf) newPage() {
	p.pages = append(p.pages, &bytes.Buffer{})
	p.y = marginY
	n := fmt.Sprint(len(p.pages))
	p.line(regular, 9, pageWidth/2-regular.width(n, 9)/2, pageHeight-40, n)
}

// room begins a new page if fewer than h points are left.
func (p *pdf) room(h float64) {
	if p.y+h > pageHeight-marginY {
		p.newPage()
	}
}

// line writes s with its baseline at y from the top.
func (p *pdf) line(f *font, size, x, y float64, s string) {
	var b strings.Builder
	for _, r := range s {
		c, known := beyond[r]
		switch {
		case r == '(' || r == ')' || r == '\\':
			b.WriteString("\\" + string(r))
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		case known:
			fmt.Fprintf(&b, "\\%03o", c.code)
		default:
			p.bad = r
		}
	}
	fmt.Fprintf(p.pages[len(p.pages)-1], "BT /%s %.4g Tf 1 0 0 1 %.2f %.2f Tm (%s) Tj ET\n", f.name, size, x, pageHeight-y, b.String())
}

func writePDF(blocks []block) ([]byte, error) {
	p := &pdf{}
	p.newPage()
	for _, b := range blocks {
		switch b.kind {
		case title:
			p.title(b)
		case paragraph:
			p.text(regular, 10.5, 15, b.text)
			p.y += 7
		case code:
			for l := range strings.SplitSeq(b.text, "\n") {
				for _, part := range mono.wrapCode(l, 8.5, textWidth-12) {
					p.room(12)
					p.line(mono, 8.5, marginX+12, p.y+9, part)
					p.y += 12
				}
			}
			p.y += 8
		case table:
			p.table(b.rows)
		}
	}
	if p.bad != 0 {
		return nil, fmt.Errorf("the character %q is not in the table of widths", p.bad)
	}
	return p.bytes(blocks[0].text), nil
}

// wrapCode splits a line of code by length alone: its spaces matter.
func (f *font) wrapCode(s string, size, width float64) []string {
	n := int(width / f.width("x", size))
	var out []string
	for len(s) > n {
		out, s = append(out, s[:n]), s[n:]
	}
	return append(out, s)
}

func (p *pdf) title(b block) {
	size := map[int]float64{1: 26, 2: 18, 3: 13}[b.level]
	if b.level == 2 && p.y > pageHeight/2 {
		p.newPage() // a chapter begins in the upper half of a page
	}
	p.room(size + 60) // and a heading is never alone at the foot
	if p.y > marginY {
		p.y += size * 0.6
	}
	p.marks = append(p.marks, bookmark{b.level, len(p.pages) - 1, p.y, b.text})
	p.text(bold, size, size*1.25, b.text)
	p.y += size * 0.4
}

func (p *pdf) text(f *font, size, leading float64, s string) {
	for _, l := range f.wrap(s, size, textWidth) {
		p.room(leading)
		p.line(f, size, marginX, p.y+size, l)
		p.y += leading
	}
}

// table draws a grid. Column widths depend on the content; the header is repeated
// on every page.
func (p *pdf) table(rows [][]string) {
	const size, leading, pad = 9.0, 11.5, 4.0
	widths := columnWidths(rows, size, pad)
	row := func(i int) (lines [][]string, height float64) {
		f := regular
		if i == 0 {
			f = bold
		}
		for c, s := range rows[i] {
			lines = append(lines, f.wrap(s, size, widths[c]-2*pad))
			height = max(height, float64(len(lines[c]))*leading+2*pad)
		}
		return lines, height
	}
	draw := func(i int) {
		lines, height := row(i)
		f, x := regular, marginX
		if i == 0 {
			f = bold
		}
		for c, cell := range lines {
			fmt.Fprintf(p.pages[len(p.pages)-1], "0.5 w %.2f %.2f %.2f %.2f re S\n", x, pageHeight-p.y-height, widths[c], height)
			for k, l := range cell {
				p.line(f, size, x+pad, p.y+pad+size+float64(k)*leading-1, l)
			}
			x += widths[c]
		}
		p.y += height
	}
	for i := range rows {
		_, height := row(i)
		if i == 0 {
			height += 30
		}
		page := len(p.pages)
		if p.room(height); i > 0 && len(p.pages) > page {
			draw(0)
		}
		draw(i)
	}
	p.y += 12
}

func columnWidths(rows [][]string, size, pad float64) []float64 {
	widths := make([]float64, len(rows[0]))
	for _, row := range rows {
		for c, s := range row {
			widths[c] = max(widths[c], bold.width(s, size)+2*pad+2)
		}
	}
	// the last column holds explanations and takes the rest; the others are limited
	rest := textWidth
	for c := range len(widths) - 1 {
		widths[c] = min(widths[c], textWidth/3)
		rest -= widths[c]
	}
	widths[len(widths)-1] = rest
	return widths
}

// bytes writes the file: catalog, page tree, fonts, pages, outline, info.
func (p *pdf) bytes(name string) []byte {
	var out bytes.Buffer
	var offsets []int
	add := func(format string, args ...any) {
		offsets = append(offsets, out.Len())
		fmt.Fprintf(&out, "%d 0 obj\n%s\nendobj\n", len(offsets), fmt.Sprintf(format, args...))
	}
	out.WriteString("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
	firstPage := 4 + len(fonts) // 1 catalog, 2 tree, 3 info, then the fonts
	firstMark := firstPage + 2*len(p.pages)
	add("<< /Type /Catalog /Pages 2 0 R /Outlines %d 0 R /PageMode /UseOutlines /Lang (en) >>", firstMark)
	var kids, resources strings.Builder
	for i := range p.pages {
		fmt.Fprintf(&kids, "%d 0 R ", firstPage+2*i)
	}
	for i, f := range fonts {
		fmt.Fprintf(&resources, "/%s %d 0 R ", f.name, 4+i)
	}
	add("<< /Type /Pages /Count %d /Kids [%s] /MediaBox [0 0 %g %g] /Resources << /Font << %s>> >> >>", len(p.pages), kids.String(), pageWidth, pageHeight, resources.String())
	add("<< /Title (%s) /Author (Sheaf) /Producer (Sheaf samples) >>", name)
	for _, f := range fonts {
		add("<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding >>", f.base)
	}
	for i, page := range p.pages {
		add("<< /Type /Page /Parent 2 0 R /Contents %d 0 R >>", firstPage+2*i+1)
		add("<< /Length %d >>\nstream\n%s\nendstream", page.Len(), page.String())
	}
	p.outline(add, firstPage, firstMark)

	xref := out.Len()
	fmt.Fprintf(&out, "xref\n0 %d\n0000000000 65535 f \n", len(offsets)+1)
	for _, o := range offsets {
		fmt.Fprintf(&out, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&out, "trailer\n<< /Size %d /Root 1 0 R /Info 3 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(offsets)+1, xref)
	return out.Bytes()
}

// outline writes the bookmarks: a tree by level, as linked lists.
func (p *pdf) outline(add func(string, ...any), firstPage, root int) {
	id := func(i int) int { return root + 1 + i }
	parent := func(i int) int { // index, -1 for the root
		for k := i - 1; k >= 0; k-- {
			if p.marks[k].level < p.marks[i].level {
				return k
			}
		}
		return -1
	}
	children := map[int][]int{}
	for i := range p.marks {
		children[parent(i)] = append(children[parent(i)], i)
	}
	links := func(of int) string {
		c := children[of]
		if len(c) == 0 {
			return ""
		}
		return fmt.Sprintf(" /First %d 0 R /Last %d 0 R /Count %d", id(c[0]), id(c[len(c)-1]), len(c))
	}
	add("<< /Type /Outlines%s >>", links(-1))
	for i, m := range p.marks {
		up := parent(i)
		siblings := children[up]
		near := ""
		for k, s := range siblings {
			if s != i {
				continue
			}
			if k > 0 {
				near += fmt.Sprintf(" /Prev %d 0 R", id(siblings[k-1]))
			}
			if k+1 < len(siblings) {
				near += fmt.Sprintf(" /Next %d 0 R", id(siblings[k+1]))
			}
		}
		add("<< /Title (%s) /Parent %d 0 R%s%s /Dest [%d 0 R /XYZ 0 %.2f 0] >>", m.text, id(up), near, links(i), firstPage+2*m.page, pageHeight-m.y)
	}
}
