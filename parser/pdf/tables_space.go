package pdf

import (
	"slices"
	"unicode/utf8"
)

// interval is a column's extent while a table grows.
type interval struct{ a, b float32 }

// columns are the extents covered by the cells of some lines, sorted and disjoint;
// the gaps between them separate the table's columns.
type columns []interval

// with returns the columns after adding a line's cells.
func (c columns) with(segs []seg) columns {
	out := slices.Clone(c)
	for i := range segs {
		out = out.add(segs[i].x0, segs[i].x1)
	}
	return out
}

// add widens the columns, in place, by a cell's extent.
func (c columns) add(x0, x1 float32) columns {
	n := interval{x0 - 0.75, x1 + 0.75}
	at := 0
	for at < len(c) && c[at].b < n.a {
		at++
	}
	end := at
	for end < len(c) && c[end].a <= n.b {
		n.a, n.b = min(n.a, c[end].a), max(n.b, c[end].b)
		end++
	}
	return slices.Replace(c, at, end, n)
}

// streamTable looks for a table that starts at line i of the region and returns the
// line after it, or i if there is none.
func (w *writer) streamTable(lines []line, i int) (table, int) {
	first := &lines[i]
	if len(first.segs) < 2 || first.table >= 0 || len(first.segs) == 2 && w.setApart(&first.segs[0]) {
		return table{}, i
	}
	if i+1 >= len(lines) {
		return table{}, i
	}
	if w.caption(first) {
		return table{}, i
	}
	cols := columns(nil).with(first.segs)
	multi, last, gap := 1, i, 0
	for j := i + 1; j < len(lines); j++ {
		l := &lines[j]
		if l.table >= 0 || l.y0-lines[j-1].y1 > 2.2*max(l.y1-l.y0, 4) {
			break
		}
		if len(l.segs) < 2 || len(l.segs) == 2 && w.setApart(&l.segs[0]) {
			if gap++; gap > 2 {
				break
			}
			continue
		}
		next := cols.with(l.segs)
		if len(next) < 2 {
			break
		}
		cols, last, gap = next, j, 0
		multi++
	}
	if multi < minStreamRows || len(cols) < 2 {
		return table{}, i
	}
	span := lines[i : last+1]
	var cells, short, mono, leaders, justified, chars int
	for k := range span {
		l := &span[k]
		if l.mono {
			mono++
		}
		if l.dots {
			leaders++
		}
		if l.x0 < w.regionB.x0+1 && l.x1 > w.regionB.x1-1 && l.chars > 12*len(l.segs) {
			justified++
		}
		for q := range l.segs {
			g := &l.segs[q]
			cells++
			chars += int(g.chars)
			if g.chars < 25 || w.hasDigit(g) {
				short++
			}
		}
	}
	switch {
	case mono*2 > len(span) && !w.body.mono: // aligned code
	case leaders*3 > multi: // a table of contents
	case justified*3 > multi*2: // prose, justified to the margins
	case len(first.segs) == len(cols) && first.bold && !w.body.bold && !lines[i+1].bold:
		return w.fill(span, cols), last + 1 // a header
	case short*2 <= cells, len(cols) == 2 && short*4 <= cells*3, chars > 40*cells:
	default:
		return w.fill(span, cols), last + 1
	}
	return table{}, i
}

// fill puts the lines' segments into cells. A line with an empty first cell that is
// closer to the previous line than rows are continues that row.
func (w *writer) fill(lines []line, cols columns) table {
	t := table{box: lines[0].box}
	cuts := make([]float32, 0, len(cols))
	for k := 1; k < len(cols); k++ {
		cuts = append(cuts, (cols[k-1].b+cols[k].a)/2)
	}
	var gaps []float32
	for k := 1; k < len(lines); k++ {
		gaps = append(gaps, lines[k].y0-lines[k-1].y0)
	}
	slices.Sort(gaps)
	pitch := gaps[len(gaps)*3/4]
	for k := range lines {
		l := &lines[k]
		row := make([]string, len(cols))
		for q := range l.segs {
			g := &l.segs[q]
			c, _ := slices.BinarySearch(cuts, (g.x0+g.x1)/2)
			var b []byte
			if row[c] != "" {
				b = append(append(b, row[c]...), ' ')
			}
			for i := g.first; i <= g.last; i++ {
				if i > g.first {
					b = append(b, ' ')
				}
				b = append(b, w.sheet.page.str(&w.sheet.page.words[i])...)
			}
			row[c] = string(b)
		}
		drop := float32(0)
		if k > 0 {
			drop = l.y0 - lines[k-1].y0
		}
		// If rows are well apart, close lines belong to one cell.
		apart := pitch > 1.45*l.h && drop < 1.3*l.h
		for c := range row {
			if n := len(t.rows); n > 0 && mostlyNumeric(row[c]) && mostlyNumeric(t.rows[n-1][c]) {
				apart = false
			}
		}
		if k > 0 {
			above := &lines[k-1]
			if k == 1 && len(above.segs) < len(l.segs) || len(above.segs) == 1 && above.x0 < cols[0].b && above.x1 < cols[0].a+0.85*(cols[0].b-cols[0].a) {
				apart = false // a group of columns or rows has its own name
			}
		}
		if n := len(t.rows); drop < 0.8*pitch && (n > 1 && row[0] == "" || n > 0 && apart) {
			for c, text := range row {
				if text != "" && t.rows[n-1][c] != "" {
					t.rows[n-1][c] += " "
				}
				t.rows[n-1][c] += text
			}
			t.rowBoxes[n-1] = t.rowBoxes[n-1].union(l.box)
		} else {
			t.rows = append(t.rows, row)
			t.rowBoxes = append(t.rowBoxes, l.box)
		}
		t.box = t.box.union(l.box)
	}
	t.header = namesColumns(t.rows, lines[0].bold && !w.body.bold, false)
	return t
}

// setApart reports whether a segment is only a list item's mark.
func (w *writer) setApart(g *seg) bool {
	if g.words != 1 {
		return false
	}
	return w.marker(g) != markNone
}

func (w *writer) hasDigit(g *seg) bool {
	for i := g.first; i <= g.last; i++ {
		text := w.sheet.page.str(&w.sheet.page.words[i])
		for k := range len(text) { // strings.ContainsAny takes five times as long, 1 % of reading a page
			if c := text[k]; c-'0' <= 9 || c == '%' {
				return true
			}
		}
	}
	return false
}

func isDots(s string) bool {
	if s == "" {
		return false
	}
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r != '.' && r != '·' && r != '…' {
			return false
		}
		s = s[n:]
	}
	return true
}
