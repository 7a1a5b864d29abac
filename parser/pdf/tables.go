package pdf

import (
	"cmp"
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
	spans    []sheaf.TableSpan
	header   bool     // the first row names the columns
	columns  []string // names of the columns, where they are known otherwise
}

const (
	minRules     = 3
	maxGridRules = 1_200 // in one page, after joining; beyond it is a drawing
	ruleSlack    = 2.5   // points by which crossing rules may miss each other
)

// latticeTables finds grids of rules and sorts the page's words into their
// cells. inTable tells the words that went into one; nil when there is none.
func latticeTables(s *sheet, hs, vs []box) (tables []table, inTable []bool) {
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
			g.hs = append(g.hs, r)
		} else {
			g.xs = append(g.xs, r.x0)
			g.vs = append(g.vs, r)
		}
	}
	keep := grids[:0]
	for _, g := range grids {
		g.xs = distinct(g.xs)
		g.dropUnderlines()
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
			} else if b := &words[cells[k][len(cells[k])-1]]; besides(b, w) && w.x0-b.x1 > 1.2*w.h {
				gaps++
			}
			cells[k] = append(cells[k], i)
			chars += w.end - w.start
		}
		g.dropProse(words, cells)
		spans := g.merge(words, cells)
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
		if s.cutsTable(g.box, inTable) {
			continue
		}
		t := table{box: g.box}
		rowAt, colAt := make([]int, rows+1), make([]int, cols+1) // places in the table of the grid's rows and columns
		for c, used := range colUsed {
			colAt[c+1] = colAt[c]
			if used {
				colAt[c+1]++
			}
		}
		for r := range rows {
			rowAt[r+1] = rowAt[r]
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
			rowAt[r+1]++
			t.rows = append(t.rows, row)
			t.rowBoxes = append(t.rowBoxes, box{g.box.x0, g.ys[r], g.box.x1, g.ys[r+1]})
		}
		for _, p := range spans {
			q := sheaf.TableSpan{Row: rowAt[p.Row], Column: colAt[p.Column]}
			q.Rows, q.Columns = rowAt[p.Row+p.Rows]-q.Row, colAt[p.Column+p.Columns]-q.Column
			if q.Rows*q.Columns > 1 {
				t.spans = append(t.spans, q)
			}
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

// grid is rules that cross: the places where its cells may end, and the rules.
type grid struct {
	box    box
	xs, ys []float32
	hs, vs []box
}

// dropUnderlines keeps the horizontal rules that go from one vertical rule, or
// edge of the grid, to another: the others are lines under words.
func (g *grid) dropUnderlines() {
	const near = 2 * ruleSlack
	ends := func(x float32) bool {
		d := x - g.xs[nearest(g.xs, x)]
		return d < near && d > -near || x < g.box.x0+near || x > g.box.x1-near
	}
	kept := g.hs[:0]
	for _, h := range g.hs {
		if len(g.xs) == 0 || ends(h.x0) && ends(h.x1) {
			kept = append(kept, h)
			g.ys = append(g.ys, h.y0)
		}
	}
	g.hs, g.ys = kept, distinct(g.ys)
}

// merge joins the places of a grid that no rule parts into the cell they are:
// its words go to the place at the top left. It returns the cells that cover
// more than one place and hold text.
func (g *grid) merge(words []word, cells [][]int) []sheaf.TableSpan {
	rows, cols := len(g.ys)-1, len(g.xs)-1
	// Whether a rule is drawn on the left of, and above, a place.
	left, above := make([]bool, rows*cols), make([]bool, rows*cols)
	for _, v := range g.vs {
		c := nearest(g.xs, v.x0)
		for r := range rows {
			if mid := (g.ys[r] + g.ys[r+1]) / 2; c < cols && v.y0 <= mid && mid <= v.y1 {
				left[r*cols+c] = true
			}
		}
	}
	for _, h := range g.hs {
		r := nearest(g.ys, h.y0)
		for c := range cols {
			if mid := (g.xs[c] + g.xs[c+1]) / 2; r < rows && h.x0 <= mid && mid <= h.x1 {
				above[r*cols+c] = true
			}
		}
	}
	var out []sheaf.TableSpan
	done := make([]bool, rows*cols)
	for r := range rows {
		for c := range cols {
			if done[r*cols+c] {
				continue
			}
			w, h := 1, 1
			for c+w < cols && !left[r*cols+c+w] && !done[r*cols+c+w] {
				w++
			}
			open := func(r int) bool { // the cell goes on in this row, as wide as before
				for k := c; k < c+w; k++ {
					if above[r*cols+k] || done[r*cols+k] || k > c && left[r*cols+k] {
						return false
					}
				}
				return true
			}
			for r+h < rows && open(r+h) && (c+w == cols || left[(r+h)*cols+c+w]) {
				h++
			}
			if w > 1 && g.divided(words, cells, r, c, h, w) {
				for w, h = 1, 1; r+h < rows && open(r+h); {
					h++
				}
			}
			var all []int
			first := c + w // the first column that has words: columns without any are none
			for i := r; i < r+h; i++ {
				for k := c; k < c+w; k++ {
					done[i*cols+k] = true
					if len(cells[i*cols+k]) > 0 {
						first = min(first, k)
					}
					all = append(all, cells[i*cols+k]...)
					cells[i*cols+k] = nil
				}
			}
			if len(all) > 0 {
				slices.Sort(all) // the engine's order
				cells[r*cols+first] = all
				if w*h > 1 {
					out = append(out, sheaf.TableSpan{Row: r, Column: first, Rows: h, Columns: c + w - first})
				}
			}
		}
	}
	return out
}

// dropProse empties the rows of a grid whose lines run on over its vertical
// rules: what was cut off by the page, or by a frame, is not ruled there.
func (g *grid) dropProse(words []word, cells [][]int) {
	rows, cols := len(g.ys)-1, len(g.xs)-1
	for r := range rows {
		crossed := 0
		for c := range cols - 1 {
			for _, i := range cells[r*cols+c] {
				// The engine's order: what follows a word follows it in the text.
				if k := i + 1; k < len(words) && slices.Contains(cells[r*cols+c+1], k) && besides(&words[i], &words[k]) && words[k].x0-words[i].x1 < crossedGap*words[i].h {
					crossed++
				}
			}
		}
		if crossed >= mostCrossed {
			clear(cells[r*cols : (r+1)*cols])
		}
	}
}

// mostSpanned bounds the words of one cell that is looked at for white space.
const mostSpanned = 120

// divided reports whether white space parts the words of the places that no
// rule parts: then the rules were only drawn around the table or its header.
func (g *grid) divided(words []word, cells [][]int, r, c, h, w int) bool {
	cols := len(g.xs) - 1
	type placed struct {
		*word
		col int
	}
	var all []placed
	for i := r; i < r+h; i++ {
		for k := c; k < c+w; k++ {
			for _, n := range cells[i*cols+k] {
				all = append(all, placed{&words[n], k})
			}
		}
	}
	if len(all) > mostSpanned {
		return true
	}
	for _, a := range all {
		right := placed{col: a.col} // the next word on the line
		for _, b := range all {
			if b.x0 > a.x0 && besides(a.word, b.word) && (right.word == nil || b.x0 < right.x0) {
				right = b
			}
		}
		if right.col != a.col && right.x0-a.x1 > 0.9*a.h {
			return true
		}
	}
	return false
}

// besides reports whether two words stand on one line.
func besides(a, b *word) bool { return min(a.y1, b.y1)-max(a.y0, b.y0) > 0.5*b.h }

// nearest returns the index of the value closest to v.
func nearest(at []float32, v float32) int {
	i, _ := slices.BinarySearch(at, v)
	if i == len(at) || i > 0 && v-at[i-1] < at[i]-v {
		i--
	}
	return i
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
			switch {
			case !before.hyphen || !w.brk:
				b.WriteByte(' ')
			case s.broken(s.page.str(before), s.page.str(w)):
				t := strings.TrimSuffix(b.String(), "-")
				b.Reset()
				b.WriteString(t)
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
	out := hs[:min(1, len(hs))]
	for _, r := range hs[len(out):] {
		if l := &out[len(out)-1]; bucket(r.y0) == bucket(l.y0) && r.x0 <= l.x1+2*near {
			l.x1 = max(l.x1, r.x1)
		} else {
			out = append(out, r)
		}
	}
	hs = out
	out = vs[:min(1, len(vs))]
	for _, r := range vs[len(out):] {
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

// streamTable looks for a table that starts at line i of the region and
// returns the line after it, or i when there is none.
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
	if multi < 3 || len(cols) < 2 {
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
	case justified*3 > multi*2: // lines of prose, stretched to the margins
	case len(first.segs) == len(cols) && first.bold && !w.body.bold && !lines[i+1].bold:
		return w.fill(span, cols), last + 1 // a header
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
		drop := float32(0)
		if k > 0 {
			drop = l.y0 - lines[k-1].y0
		}
		// Rows that stand well apart show which lines are one cell's.
		apart := pitch > 1.45*l.h && drop < 1.3*l.h
		for c := range row {
			if n := len(t.rows); n > 0 && mostlyNumeric(row[c]) && mostlyNumeric(t.rows[n-1][c]) {
				apart = false
			}
		}
		if k > 0 {
			above := &lines[k-1]
			if k == 1 && len(above.segs) < len(l.segs) || len(above.segs) == 1 && above.x0 < cols[0].b && above.x1 < cols[0].a+0.85*(cols[0].b-cols[0].a) {
				apart = false // a group of columns, or of rows, has a name
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

// grouped reports whether the first two rows are a header together: a cell of
// the first stands over several columns, each of which the second names.
func (t *table) grouped() bool {
	if len(t.rows) < 3 {
		return false
	}
	first, second := t.rows[0], t.rows[1]
	under, groups := make([]bool, len(first)), false
	for _, s := range t.spans {
		if s.Row == 1 || s.Row == 0 && s.Rows > 2 {
			return false
		}
		if s.Row > 0 || s.Columns == 1 {
			continue
		}
		if s.Rows > 1 || s.Columns == len(first) || first[s.Column] == "" {
			return false
		}
		for c := s.Column; c < s.Column+s.Columns; c++ {
			under[c], groups = true, true
		}
	}
	if !groups {
		return false
	}
	both := false // a name in the second row that stands under nothing
	for c := range first {
		switch {
		case mostlyNumeric(second[c]), under[c] && second[c] == "", !under[c] && mostlyNumeric(first[c]):
			return false
		case !under[c] && second[c] != "":
			if first[c] != "" {
				return false // both rows fill the column: the second is like any other
			}
			both = true
		}
	}
	if both || !t.header {
		return namesColumns(t.rows[1:], false, false)
	}
	return true
}

// groupedColumns joins the two rows of a header: "Group / Column".
func (t *table) groupedColumns() []string {
	group := slices.Clone(t.rows[0])
	for _, s := range t.spans {
		for c := s.Column; s.Row == 0 && c < s.Column+s.Columns; c++ {
			group[c] = t.rows[0][s.Column]
		}
	}
	names := make([]string, len(group))
	for c, name := range t.rows[1] {
		if names[c] = cmp.Or(group[c], name); group[c] != "" && name != "" {
			names[c] = group[c] + " / " + name
		}
	}
	return names
}

// block turns a table into a block.
func (s *sheet) tableBlock(t *table) sheaf.Block {
	out := &sheaf.Table{}
	rows, boxes := t.rows, t.rowBoxes
	out.Spans = t.spans
	heads := 0
	switch {
	case t.columns != nil:
		out.Columns = t.columns
	case t.grouped():
		heads = 2
		out.Columns, out.Spans = t.groupedColumns(), nil
		for _, p := range t.spans { // the header is one row now
			if p.Row > 1 {
				p.Row--
				out.Spans = append(out.Spans, p)
			}
		}
	case t.header:
		heads = 1
		out.Columns = rows[0]
	}
	rows, boxes = rows[heads:], boxes[heads:]
	out.Rows = rows
	out.RowBoxes = make([]sheaf.Box, len(boxes))
	for i, b := range boxes {
		out.RowBoxes[i] = s.place(b)
	}
	b := s.place(t.box)
	out.Box = &b
	return sheaf.Block{Kind: sheaf.BlockTable, Page: s.number, Table: out, Links: s.tableLinks(t, max(heads-1, 0))}
}

// tableLinks are those that lie on a table's rows, of which the first merged+1
// are one.
func (s *sheet) tableLinks(t *table, merged int) []sheaf.Link {
	var out []sheaf.Link
	for _, l := range s.links {
		x, y := (l.x0+l.x1)/2, (l.y0+l.y1)/2
		for i, row := range t.rowBoxes {
			if !row.holds(x, y) {
				continue
			}
			i = max(i-merged, 0)
			to := sheaf.Link{Start: i, End: i + 1, URI: l.uri}
			if l.uri == "" {
				to.Page = l.page
			}
			out = append(out, to)
			break
		}
	}
	slices.SortStableFunc(out, func(a, b sheaf.Link) int { return cmp.Compare(a.Start, b.Start) })
	return out
}
