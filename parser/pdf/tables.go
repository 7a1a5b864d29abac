package pdf

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf"
)

// Tables are found in two ways: by the rules that are drawn around cells, and
// by white space that runs down between columns of short texts. The thresholds
// come from the ICDAR 2013 table competition's files, where the two together
// found 142 of 151 tables.

type table struct {
	box      box
	rows     [][]string
	rowBoxes []box
	header   bool // the first row names the columns
}

const (
	minRules     = 4
	maxGridRules = 1_200 // in one page, after joining; beyond it is a drawing
	ruleSlack    = 2.5   // points by which crossing rules may miss each other
)

// latticeTables finds grids of rules and sorts the page's words into their
// cells. inTable tells the words that went into one; nil when there is none.
func latticeTables(s *sheet, rules []box) (tables []table, inTable []bool) {
	hs, vs := joinRules(rules)
	if len(hs) < 2 || len(vs) < 2 || len(hs)+len(vs) > maxGridRules {
		return nil, nil
	}
	// Rules that cross belong to one grid.
	parent := make([]int, len(hs)+len(vs))
	for i := range parent {
		parent[i] = i
	}
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	for i, h := range hs {
		for k, v := range vs {
			if v.x0 >= h.x0-ruleSlack && v.x0 <= h.x1+ruleSlack && h.y0 >= v.y0-ruleSlack && h.y0 <= v.y1+ruleSlack {
				parent[find(i)] = find(len(hs) + k)
			}
		}
	}
	type grid struct {
		box    box
		xs, ys []float32
	}
	var grids []*grid
	byRoot := map[int]*grid{}
	for i := range parent {
		g := byRoot[find(i)]
		r := box{}
		if i < len(hs) {
			r = hs[i]
		} else {
			r = vs[i-len(hs)]
		}
		if g == nil {
			g = &grid{box: r}
			byRoot[find(i)] = g
			grids = append(grids, g)
		}
		g.box = g.box.union(r)
		if i < len(hs) {
			g.ys = append(g.ys, r.y0)
		} else {
			g.xs = append(g.xs, r.x0)
		}
	}
	keep := grids[:0]
	for _, g := range grids {
		g.xs, g.ys = distinct(g.xs), distinct(g.ys)
		if rows, cols := len(g.ys)-1, len(g.xs)-1; rows >= 2 && cols >= 2 || rows >= 1 && cols >= 3 {
			if rows*cols <= 20_000 {
				keep = append(keep, g)
			}
		}
	}
	if len(keep) == 0 {
		return nil, nil
	}
	words := s.page.words
	for _, g := range keep {
		rows, cols := len(g.ys)-1, len(g.xs)-1
		cells := make([][]int, rows*cols)
		filled, chars, gaps := 0, 0, 0
		for i := range words {
			w := &words[i]
			cx, cy := (w.x0+w.x1)/2, (w.y0+w.y1)/2
			if !g.box.holds(cx, cy) || inTable != nil && inTable[i] {
				continue
			}
			r, c := slot(g.ys, cy), slot(g.xs, cx)
			if r < 0 || c < 0 {
				continue
			}
			k := r*cols + c
			if cells[k] == nil {
				filled++
			} else if b := &words[cells[k][len(cells[k])-1]]; min(b.y1, w.y1)-max(b.y0, w.y0) > 0.5*w.h && w.x0-b.x1 > 1.2*w.h {
				gaps++
			}
			cells[k] = append(cells[k], i)
			chars += w.end - w.start
		}
		usedRows, usedCols := 0, 0
		colUsed := make([]bool, cols)
		for r := range rows {
			used := false
			for c := range cols {
				if cells[r*cols+c] != nil {
					used, colUsed[c] = true, true
				}
			}
			if used {
				usedRows++
			}
		}
		for _, u := range colUsed {
			if u {
				usedCols++
			}
		}
		// A frame around a paragraph has one cell, a chart many empty ones.
		if usedRows < 2 || usedCols < 2 || filled < 4 || filled*6 < usedRows*usedCols || chars > 400*filled {
			continue
		}
		if gaps*2 > filled { // the rules group columns that white space divides
			continue
		}
		t := table{box: g.box}
		for r := range rows {
			row := make([]string, 0, usedCols)
			any := false
			for c := range cols {
				if !colUsed[c] {
					continue
				}
				text := s.cellText(cells[r*cols+c])
				any = any || text != ""
				row = append(row, text)
			}
			if !any {
				continue
			}
			t.rows = append(t.rows, row)
			t.rowBoxes = append(t.rowBoxes, box{g.box.x0, g.ys[r], g.box.x1, g.ys[r+1]})
		}
		if inTable == nil {
			inTable = make([]bool, len(words))
		}
		bold := true
		for k, cell := range cells {
			for _, i := range cell {
				inTable[i] = true
				bold = bold && (k >= cols || words[i].bold)
			}
		}
		t.header = namesColumns(t.rows, bold, true)
		tables = append(tables, t)
	}
	return tables, inTable
}

// cellText joins a cell's words, which come in the engine's order, over lines.
func (s *sheet) cellText(words []int) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return s.page.str(&s.page.words[words[0]])
	}
	var b strings.Builder
	for n, i := range words {
		w := &s.page.words[i]
		if n > 0 {
			before := &s.page.words[words[n-1]]
			if before.hyphen && w.brk {
				t := strings.TrimSuffix(b.String(), "-")
				b.Reset()
				b.WriteString(t)
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteString(s.page.str(w))
	}
	return b.String()
}

// joinRules sorts rules into horizontal and vertical lines and joins those
// that continue or cover each other: a border is often drawn once per cell.
func joinRules(rules []box) (hs, vs []box) {
	for _, r := range rules {
		w, h := r.x1-r.x0, r.y1-r.y0
		switch {
		case h <= 3 && w > 8:
			y := (r.y0 + r.y1) / 2
			hs = append(hs, box{r.x0, y, r.x1, y})
		case w <= 3 && h > 4:
			x := (r.x0 + r.x1) / 2
			vs = append(vs, box{x, r.y0, x, r.y1})
		}
	}
	if len(hs) < 2 || len(vs) < 2 {
		return nil, nil
	}
	const near = 1.5
	cmp := func(a, b float32) int {
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	}
	bucket := func(v float32) float32 { return float32(int(v/near + 0.5)) }
	slices.SortFunc(hs, func(a, b box) int {
		if c := cmp(bucket(a.y0), bucket(b.y0)); c != 0 {
			return c
		}
		return cmp(a.x0, b.x0)
	})
	slices.SortFunc(vs, func(a, b box) int {
		if c := cmp(bucket(a.x0), bucket(b.x0)); c != 0 {
			return c
		}
		return cmp(a.y0, b.y0)
	})
	out := hs[:1]
	for _, r := range hs[1:] {
		if l := &out[len(out)-1]; bucket(r.y0) == bucket(l.y0) && r.x0 <= l.x1+2*near {
			l.x1 = max(l.x1, r.x1)
		} else {
			out = append(out, r)
		}
	}
	hs = out
	out = vs[:1]
	for _, r := range vs[1:] {
		if l := &out[len(out)-1]; bucket(r.x0) == bucket(l.x0) && r.y0 <= l.y1+2*near {
			l.y1 = max(l.y1, r.y1)
		} else {
			out = append(out, r)
		}
	}
	return hs, out
}

// distinct sorts and drops what is within 3 points of its neighbour.
func distinct(v []float32) []float32 {
	slices.Sort(v)
	out := v[:0]
	for _, x := range v {
		if len(out) == 0 || x-out[len(out)-1] > 3 {
			out = append(out, x)
		}
	}
	return out
}

// slot returns i with at[i] ≤ v < at[i+1], or -1.
func slot(at []float32, v float32) int {
	i, found := slices.BinarySearch(at, v)
	if !found {
		i--
	}
	if i < 0 || i >= len(at)-1 {
		return -1
	}
	return i
}

// interval is a column's extent while a table grows.
type interval struct{ a, b float32 }

// columns are the extents that the cells of some lines cover, sorted and
// disjoint; the gaps between them are the table's columns.
type columns []interval

// with returns the columns after adding a line's cells.
func (c columns) with(segs []seg) columns {
	out := slices.Clone(c)
	for i := range segs {
		n := interval{segs[i].x0 - 0.75, segs[i].x1 + 0.75}
		at := 0
		for at < len(out) && out[at].b < n.a {
			at++
		}
		end := at
		for end < len(out) && out[end].a <= n.b {
			n.a, n.b = min(n.a, out[end].a), max(n.b, out[end].b)
			end++
		}
		out = slices.Replace(out, at, end, n)
	}
	return out
}

// streamTable looks for a table that starts at line i of the region and
// returns the line after it, or i when there is none.
func (w *writer) streamTable(lines []line, i int) (table, int) {
	first := &lines[i]
	if len(first.segs) < 2 || first.table >= 0 {
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
		if len(l.segs) < 2 {
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
	if multi < 3 || len(cols) < 2 {
		return table{}, i
	}
	span := lines[i : last+1]
	var cells, short, mono, leaders, marks, chars int
	for k := range span {
		l := &span[k]
		if l.mono {
			mono++
		}
		if l.dots {
			leaders++
		}
		if len(l.segs) == 2 && w.setApart(&l.segs[0]) {
			marks++
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
	case marks*3 > multi*2 && len(cols) <= 2: // a list with its bullets set apart
	case short*2 <= cells, len(cols) == 2 && short*4 <= cells*3, chars > 40*cells:
	default:
		return w.fill(span, cols), last + 1
	}
	return table{}, i
}

// fill puts the lines' segments into cells. A line with an empty first cell
// that stands closer to the one before it than rows do continues that row.
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
		if n := len(t.rows); n > 1 && row[0] == "" && l.y0-lines[k-1].y0 < 0.8*pitch {
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

// namesColumns guesses whether the first row is a header: text without
// numbers, set apart by weight, by rules or by numbers under it.
func namesColumns(rows [][]string, bold, ruled bool) bool {
	if len(rows) < 2 {
		return false
	}
	named := 0
	for _, c := range rows[0] {
		if c == "" {
			continue
		}
		if mostlyNumeric(c) {
			return false
		}
		named++
	}
	if named*2 < len(rows[0]) || named == 0 {
		return false
	}
	if bold || ruled && named == len(rows[0]) {
		return true
	}
	for c := range rows[0] {
		numeric, filled := 0, 0
		for _, r := range rows[1:] {
			if r[c] != "" {
				filled++
				if mostlyNumeric(r[c]) {
					numeric++
				}
			}
		}
		if filled > 0 && numeric*10 >= filled*7 {
			return true
		}
	}
	return false
}

func mostlyNumeric(s string) bool {
	digits, letters := 0, 0
	for _, r := range s {
		switch {
		case unicode.IsDigit(r):
			digits++
		case unicode.IsLetter(r):
			letters++
		}
	}
	return digits > 0 && digits >= letters
}

// setApart reports whether a segment is the mark of a list item alone.
func (w *writer) setApart(g *seg) bool {
	if g.words != 1 {
		return false
	}
	return w.marker(g) != markNone
}

func (w *writer) hasDigit(g *seg) bool {
	for i := g.first; i <= g.last; i++ {
		if strings.ContainsAny(w.sheet.page.str(&w.sheet.page.words[i]), "0123456789%") {
			return true
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

// block turns a table into a block.
func (s *sheet) tableBlock(t *table) sheaf.Block {
	out := &sheaf.Table{}
	rows, boxes := t.rows, t.rowBoxes
	if t.header {
		out.Columns, rows, boxes = rows[0], rows[1:], boxes[1:]
	}
	out.Rows = rows
	out.RowBoxes = make([]sheaf.Box, len(boxes))
	for i, b := range boxes {
		out.RowBoxes[i] = s.place(b)
	}
	b := s.place(t.box)
	out.Box = &b
	return sheaf.Block{Kind: sheaf.BlockTable, Page: s.number, Table: out}
}
