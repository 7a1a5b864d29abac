package pdf

import (
	"slices"
	"strings"

	"sheaf"
)

// latticeTables finds grids of rules and assigns the page's words to their cells.
// inTable marks the words that are in one; nil if there is none.
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
		if gaps*2 > filled { // the rules group columns separated by white space
			continue
		}
		if s.cutsTable(g.box, inTable) {
			continue
		}
		t := table{box: g.box}
		rowAt, colAt := make([]int, rows+1), make([]int, cols+1) // table indexes of the grid's rows and columns
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

// grid is a set of crossing rules: the possible cell borders, and the rules.
type grid struct {
	box    box
	xs, ys []float32
	hs, vs []box
}

// dropUnderlines keeps the horizontal rules that connect two vertical rules or
// edges of the grid: the others underline words.
func (g *grid) dropUnderlines() {
	const near = 2 * ruleSlack
	ends := func(x float32) bool {
		d := x - g.xs[nearest(g.xs, x)]
		return d < near && d > -near || x < g.box.x0+near || x > g.box.x1-near
	}
	remaining := g.hs[:0]
	for _, h := range g.hs {
		if len(g.xs) == 0 || ends(h.x0) && ends(h.x1) {
			remaining = append(remaining, h)
			g.ys = append(g.ys, h.y0)
		}
	}
	g.hs, g.ys = remaining, distinct(g.ys)
}

// merge joins grid positions not separated by a rule into one cell: its words go to
// the top left position. It returns the cells that cover more than one position and
// hold text.
func (g *grid) merge(words []word, cells [][]int) []sheaf.TableSpan {
	rows, cols := len(g.ys)-1, len(g.xs)-1
	// Whether a rule is drawn to the left of, and above, a position.
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
			open := func(r int) bool { // the cell continues in this row, at the same width
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
			first := c + w // the first column with words: columns without any do not count
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

// dropProse empties the rows of a grid whose lines run across its vertical rules:
// that is text cropped by the page or a frame, not a ruled table.
func (g *grid) dropProse(words []word, cells [][]int) {
	rows, cols := len(g.ys)-1, len(g.xs)-1
	for r := range rows {
		crossed := 0
		for c := range cols - 1 {
			for _, i := range cells[r*cols+c] {
				// The engine's order: words that are consecutive in the text are
				// consecutive here.
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

// divided reports whether white space separates words that no rule separates: then
// the rules only frame the table or its header.
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

// besides reports whether two words are on one line.
func besides(a, b *word) bool { return min(a.y1, b.y1)-max(a.y0, b.y0) > 0.5*b.h }

// nearest returns the index of the value closest to v.
func nearest(at []float32, v float32) int {
	i, _ := slices.BinarySearch(at, v)
	if i == len(at) || i > 0 && v-at[i-1] < at[i]-v {
		i--
	}
	return i
}

// cellText joins a cell's words, given in the engine's order, across lines.
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
			case s.broken(s.page.str(before), s.page.str(w), s.texts):
				t := strings.TrimSuffix(b.String(), "-")
				b.Reset()
				b.WriteString(t)
			}
		}
		b.WriteString(s.page.str(w))
	}
	return b.String()
}

// joinRules classifies rules as horizontal or vertical and joins those that
// continue or overlap each other: a border is often drawn once per cell.
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

// distinct sorts and drops values within 3 points of their neighbour.
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
