package pdf

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Statements and most tables of numbers are set without rules between their
// columns: labels on the left, figures in columns on the right, a header of one or
// more lines above. Their rows are found here, across the full page width and
// before it is divided into columns, so that no gutter separates labels from figures.

// figureTables finds tables of figures among the words that are not yet in a table.
func (s *sheet) figureTables(inTable []bool) []bool {
	if !s.hasFigures() {
		return inTable
	}
	lines := s.bandLines(box{-1e6, -1e6, 1e6, 1e6}, inTable)
	for i := range lines {
		s.joinMarks(&lines[i])
	}
	lines = s.joinLabels(lines)
	rows := make([]figureRow, len(lines))
	for i := range lines {
		rows[i] = s.figureRow(&lines[i])
	}
	for i := 0; i < len(rows); {
		if !rows[i].figures {
			i++
			continue
		}
		f := s.figureBlock(rows, i)
		if !f.enough() {
			i++
			continue
		}
		f.header(s, rows, i)
		t, used := f.table(s)
		if len(t.rows) == 0 {
			i = f.end
			continue
		}
		if inTable == nil {
			inTable = make([]bool, len(s.page.words))
		}
		for _, k := range used {
			inTable[k] = true
		}
		s.tables = append(s.tables, t)
		i = f.end
	}
	return inTable
}

// hasFigures reports whether there are lines with several numbers: most pages have
// none, and sorting their words into lines can be skipped.
func (s *sheet) hasFigures() bool {
	var numbers [256]uint8 // by height
	lines := 0
	for i := range s.page.words {
		w := &s.page.words[i]
		if c := s.page.text[w.start]; c > '9' && c < 0x80 || !isNumber(s.page.str(w)) {
			continue
		}
		at := uint8(int(w.y0+w.y1) / 6)
		if numbers[at]++; numbers[at] == leastFigureColumns {
			lines++
		}
	}
	return lines >= leastInColumn
}

// figureRow is a line and those of its cells that belong to one row of figures,
// cells[from:to]; none if from equals to.
type figureRow struct {
	*bandLine
	from, to int
	figures  bool // the row has at least one
	years    bool // all are years: the line belongs to a header
}

func (r *figureRow) own() []bandCell     { return r.cells[r.from:r.to] }
func (r *figureRow) left() float32       { return r.cells[r.from].x0 }
func (r *figureRow) right() float32      { return r.cells[r.to-1].x1 }
func (c *bandCell) text(s *sheet) string { return s.cellText(c.words) }

// joinMarks moves marks set apart from their figure into its cell: a currency sign
// before it, a bracket, a percent sign or a note mark after.
func (s *sheet) joinMarks(l *bandLine) {
	var cells []bandCell
	for i := range l.cells {
		cells = s.splitAtCurrency(cells, &l.cells[i])
	}
	out := cells[:0]
	for i := range cells {
		c := cells[i]
		c.figure = s.figures(c.words)
		if n := len(out) - 1; n >= 0 {
			p := &out[n]
			t := c.text(s)
			before := p.figure && !p.number && c.figure && strings.Trim(p.text(s), currencies) == ""
			after := p.figure && p.number && c.x0-p.x1 < 2*l.h && (strings.Trim(t, ")%") == "" || isNoteMark(t))
			if before || after {
				p.box = p.box.union(c.box)
				p.words = append(p.words, c.words...)
				p.number = p.number || s.counts(c.words)
				continue
			}
		}
		c.number = c.figure && s.counts(c.words)
		out = append(out, c)
	}
	l.cells = out
}

// splitAtCurrency appends a cell to cells, split before each currency sign that
// follows a figure: it belongs to the next column, however close it is.
func (s *sheet) splitAtCurrency(cells []bandCell, c *bandCell) []bandCell {
	from := 0
	add := func(words []int) {
		part := bandCell{words: words[:len(words):len(words)]}
		for n, i := range words {
			w := &s.page.words[i]
			b := box{w.x0, w.y0, w.x1, w.y1}
			if n == 0 {
				part.box = b
			}
			part.box = part.box.union(b)
		}
		cells = append(cells, part)
	}
	for n := 1; n < len(c.words); n++ {
		t, before := s.page.str(&s.page.words[c.words[n]]), s.page.str(&s.page.words[c.words[n-1]])
		if strings.ContainsAny(t[:1], "$") && isFigure(t) && isFigure(before) && strings.Trim(before, currencies) != "" {
			add(c.words[from:n])
			from = n
		}
	}
	if from == 0 {
		return append(cells, *c)
	}
	add(c.words[from:])
	return cells
}

// joinLabels joins a label with the figures beside it that are set slightly higher
// or lower, as in vertically centred rows.
func (s *sheet) joinLabels(lines []bandLine) []bandLine {
	out := lines[:0]
	for _, l := range lines {
		if n := len(out) - 1; n >= 0 {
			p := &out[n]
			label, figures := p, &l
			if len(p.cells) > 0 && p.cells[0].figure {
				label, figures = &l, p
			}
			if len(label.cells) == 1 && !label.cells[0].figure && figures.cells[0].figure && label.cells[0].x1 < figures.cells[0].x0 &&
				min(p.y1, l.y1)-max(p.y0, l.y0) > rowOverlap*min(p.h, l.h) {
				cells := append(slices.Clone(label.cells), figures.cells...)
				out[n] = bandLine{box: p.union(l.box), h: max(p.h, l.h), cells: cells}
				continue
			}
		}
		out = append(out, l)
	}
	return out
}

// figureRow finds the row of figures on a line: figures and the texts to their
// left, unless these are a neighbouring column's prose.
func (s *sheet) figureRow(l *bandLine) figureRow {
	r := figureRow{bandLine: l}
	first, last, numbers := -1, -1, 0
	for i := range l.cells {
		if c := &l.cells[i]; c.figure {
			if first < 0 {
				first = i
			}
			last = i
			if c.number {
				numbers++
			}
		}
	}
	if numbers == 0 {
		return r
	}
	if first == 0 && last == 0 {
		return r // a page number, or a list item's number
	}
	r.from, r.to = first, last+1
	for k := r.from - 1; k >= 0 && (k == first-1 || len(l.cells[k].words) <= mostSideWords); k-- {
		r.from = k
	}
	for r.to < len(l.cells) && len(l.cells[r.to].words) <= mostSideWords {
		r.to++
	}
	r.figures, r.years = true, true
	for _, c := range r.own() {
		if c.figure && !isYear(c.text(s)) {
			r.years = false
		}
	}
	return r
}

// figureBlock is consecutive rows of figures with the lines between them.
type figureBlock struct {
	rows     []figureRow
	heads    []figureRow // above, from the top
	end      int         // line after it
	x0, x1   float32
	figureX0 float32 // where the leftmost figure starts
}

func (s *sheet) figureBlock(rows []figureRow, i int) *figureBlock {
	f := &figureBlock{end: i + 1, x0: rows[i].left(), x1: rows[i].right()}
	f.add(&rows[i])
	var pending []figureRow
	bottom := rows[i].y1 // of the last line in the block, or beside it
	for j := i + 1; j < len(rows); j++ {
		r := rows[j]
		if r.y0-bottom > rowGap*max(r.h, 4) {
			break
		}
		if r.x1 < f.x0 || r.x0 > f.x1 {
			continue // belongs to a neighbouring column
		}
		bottom = r.y1
		if r.figures {
			if r.right() < f.x0 || r.left() > f.x1 || r.right() > f.x1+widerRow && r.left() >= f.figureX0 && !r.years {
				break
			}
			if r.years && slices.ContainsFunc(f.rows, func(r figureRow) bool { return !r.years && r.figures }) {
				break // the header of the next table
			}
			f.rows = append(f.rows, pending...)
			pending = pending[:0]
			f.add(&r)
			f.end = j + 1
			continue
		}
		// A line between rows: a group name, or part of a long label.
		for k := range r.cells {
			c := &r.cells[k]
			if c.x0 > f.x0-sameEnd && c.x1 < f.x1+sameEnd {
				if r.from == r.to {
					r.from = k
				}
				r.to = k + 1
			}
		}
		if r.from == r.to || len(pending) == mostLabelLines {
			break
		}
		if c := &r.cells[r.from]; c.x0 >= f.figureX0-sameEnd || c.x1 > f.figureX0+widerRow && len(c.words) > mostNameWords {
			break // the header of the next table, or prose
		}
		pending = append(pending, r)
	}
	if len(pending) > 0 {
		// The last row's cells, except its label, may extend below it.
		if p := &pending[0]; p.to-p.from == 1 && p.left() > f.x0+sameEnd && p.y0-f.rows[len(f.rows)-1].y1 < tightGap*p.h {
			f.rows = append(f.rows, *p)
			f.end++
		}
	}
	return f
}

func (f *figureBlock) add(r *figureRow) {
	if len(f.rows) == 0 {
		f.figureX0 = r.right()
	}
	f.rows = append(f.rows, *r)
	f.x0, f.x1 = min(f.x0, r.left()), max(f.x1, r.right())
	if !r.years {
		for _, c := range r.own() {
			if c.figure {
				f.figureX0 = min(f.figureX0, c.x0)
				break
			}
		}
	}
}

// enough reports whether the block is a table of figures: rows with labels, columns
// of figures, and little else.
func (f *figureBlock) enough() bool {
	var cols columns
	rows, labels, figures, texts := 0, 0, 0, 0
	each := func(do func(r *figureRow, figures []bandCell)) {
		for k := range f.rows {
			if r := &f.rows[k]; !r.years {
				var own []bandCell
				for _, c := range r.own() {
					if c.figure {
						own = append(own, c)
					}
				}
				if len(own) > 0 {
					do(r, own)
				}
			}
		}
	}
	each(func(r *figureRow, own []bandCell) {
		rows++
		figures += len(own)
		texts += r.to - r.from - len(own)
		if !r.cells[r.from].figure {
			labels, texts = labels+1, texts-1
		}
		for _, c := range own {
			cols = cols.add(c.x0, c.x1)
		}
	})
	count := make([]int, len(cols))
	each(func(_ *figureRow, own []bandCell) {
		for _, c := range own {
			from, _ := cols.under(c.box)
			count[from]++
		}
	})
	full := 0
	for _, n := range count {
		if n >= leastInColumn && n*3 >= rows {
			full++
		}
	}
	return rows >= leastFigureRows && full >= leastFigureColumns && labels*2 >= rows && texts*2 <= figures
}

// header takes the lines above the block that name its columns, and group names
// between them and the first figures.
func (f *figureBlock) header(s *sheet, rows []figureRow, at int) {
	top := rows[at].y0
	var names []figureRow // bottom up
	for i := at - 1; i >= 0 && len(f.heads) < mostHeaderLines; i-- {
		r := rows[i]
		if top-r.y1 > headerGap*max(r.h, 4) {
			break
		}
		r.from, r.to = 0, 0
		over, prose := 0, false
		for k := range r.cells {
			c := &r.cells[k]
			if c.x1 < f.x0-sameEnd || c.x0 > f.x1+sameEnd {
				continue
			}
			if c.x0 < f.x0-sameEnd || c.x1 > f.x1+widerRow && len(c.words) > mostNameWords {
				prose = true
				break
			}
			if r.from == r.to {
				r.from = k
			}
			r.to = k + 1
			switch {
			case c.x0 >= f.figureX0-widerRow:
				over++
			case c.x1 > f.figureX0 && len(c.words) > mostNameWords:
				prose = true
			}
		}
		if prose || r.from == r.to {
			break
		}
		if t := r.cells[r.from].text(s); over == 0 && (r.to-r.from > 1 || !strings.HasPrefix(t, "(") || !strings.HasSuffix(t, ")")) {
			if len(f.heads) > 0 || len(names) == mostGroupNames || f.rows[0].years || r.to-r.from > 1 || r.cells[r.from].x1 > f.figureX0 {
				break
			}
			names = append(names, r)
			top = r.y0
			continue
		}
		f.heads = append(f.heads, r)
		top = r.y0
	}
	slices.Reverse(f.heads)
	if len(f.heads) > 0 && len(names) > 0 {
		slices.Reverse(names)
		f.rows = append(names, f.rows...)
	}
}

// table builds the table of a block and reports which words it uses.
func (f *figureBlock) table(s *sheet) (t table, used []int) {
	// The rows with the most cells define the columns; a cell of another row that
	// overlaps two of them spans both.
	byCells := make([]*figureRow, 0, len(f.rows))
	for k := range f.rows {
		byCells = append(byCells, &f.rows[k])
	}
	slices.SortStableFunc(byCells, func(a, b *figureRow) int { return (b.to - b.from) - (a.to - a.from) })
	var cols columns
	for _, r := range byCells {
		if r.years {
			continue
		}
		for _, c := range r.own() {
			if cols.over(c.box) < 2 {
				cols = cols.add(c.x0, c.x1)
			}
		}
	}
	if len(cols) < 2 {
		return table{}, nil
	}
	body := 0
	for body < len(f.rows) && f.rows[body].years {
		body++
	}
	heads := append(slices.Clone(f.heads), f.rows[:body]...)
	t.columns = make([]string, len(cols))
	group := make([]bool, len(cols)) // the name so far spans several columns
	t.box = box{f.x0, f.rows[0].y0, f.x1, f.rows[len(f.rows)-1].y1}
	for k := range heads {
		r := &heads[k]
		t.box = t.box.union(r.box)
		for _, c := range r.own() {
			used = append(used, c.words...)
			text := c.text(s)
			from, to := cols.spanned(c.box)
			for q := from; q < to; q++ {
				switch {
				case t.columns[q] == "":
				case t.columns[q] == text: // a cell of two lines, set twice
					continue
				case group[q] && to-from == 1:
					t.columns[q] += " / "
				default:
					t.columns[q] += " "
				}
				t.columns[q] += text
				group[q] = to-from > 1
			}
		}
	}
	if !slices.ContainsFunc(t.columns, func(c string) bool { return c != "" }) {
		t.columns = nil
	}
	label := "" // of lines above, continued by the next row
	var labelBox box
	for _, r := range f.rows[body:] {
		cells := make([]string, len(cols))
		area := box{r.left(), r.y0, r.right(), r.y1}
		several := 0
		for _, c := range r.own() {
			used = append(used, c.words...)
			q, _ := cols.under(c.box)
			if cells[q] != "" {
				cells[q] += " "
			} else {
				several++
			}
			cells[q] += c.text(s)
		}
		alone := several == 1 && cells[0] != ""
		n := len(t.rows) - 1
		goesOn := startsLower(cells[0])
		switch {
		case n >= 0 && several == 1 && !alone && !r.figures: // the end of a cell above
			for q, c := range cells {
				if c != "" {
					t.rows[n][q] = strings.TrimSpace(t.rows[n][q] + " " + c)
				}
			}
			t.rowBoxes[n] = t.rowBoxes[n].union(area)
			continue
		case goesOn && n >= 0 && label == "" && alone && t.rows[n][0] != "": // the end of the label above
			t.rows[n][0] += " " + cells[0]
			t.rowBoxes[n] = t.rowBoxes[n].union(area)
			continue
		case goesOn && label != "":
			t.rows, t.rowBoxes = t.rows[:n], t.rowBoxes[:n]
			cells[0] = label + " " + cells[0]
			area = area.union(labelBox)
		}
		label = ""
		if alone {
			label, labelBox = cells[0], area
		}
		t.rows = append(t.rows, cells)
		t.rowBoxes = append(t.rowBoxes, area)
	}
	return t, used
}

// under returns the columns [from, to) above which a cell is; the nearest if there
// are none.
func (c columns) under(b box) (from, to int) {
	from = -1
	for k, v := range c {
		if v.a < b.x1 && v.b > b.x0 {
			if from < 0 {
				from = k
			}
			to = k + 1
		}
	}
	if from >= 0 {
		return from, to
	}
	mid, best := (b.x0+b.x1)/2, float32(1e9)
	for k, v := range c {
		if d := max(v.a-mid, mid-v.b); d < best {
			from, best = k, d
		}
	}
	return from, from + 1
}

// spanned returns the columns that a header cell spans. One that spans several is
// centred over them, and often narrower.
func (c columns) spanned(b box) (from, to int) {
	from, to = c.under(b)
	if to-from < 2 {
		return from, to
	}
	if from == 0 && b.x0 < c[0].a+sameEnd {
		return 0, 1 // the unit of the figures, above the labels
	}
	off := func(from, to int) float32 { return abs32(c[from].a+c[to-1].b-b.x0-b.x1) / 2 }
	best, least := [2]int{from, to}, off(from, to)
	for i := max(from-mostSpread, 0); i <= from; i++ {
		for k := to; k <= min(to+mostSpread, len(c)); k++ {
			if d := off(i, k); d < least-sameEnd {
				best, least = [2]int{i, k}, d
			}
		}
	}
	return best[0], best[1]
}

func startsLower(t string) bool {
	r, _ := utf8.DecodeRuneInString(t)
	return unicode.IsLower(r)
}

const currencies = "$€£¥ "

// figures reports whether words are all numbers as printed in tables.
func (s *sheet) figures(words []int) bool {
	return len(words) > 0 && !slices.ContainsFunc(words, func(i int) bool { return !isFigure(s.page.str(&s.page.words[i])) })
}

// counts reports whether figures contain a digit, or a mark for no value.
func (s *sheet) counts(words []int) bool {
	return slices.ContainsFunc(words, func(i int) bool { return strings.Trim(s.page.str(&s.page.words[i]), "$€£¥()%") != "" })
}

// isFigure recognises a number with its sign, brackets, currency or percent sign,
// one of these marks alone, and placeholders for no number.
func isFigure(t string) bool {
	switch t {
	case "":
		return false
	case "NM", "N/M", "N/A", "n/a", "n.m.", "nm":
		return true
	}
	for _, r := range t {
		switch {
		case r >= '0' && r <= '9':
		case strings.ContainsRune(".,()$€£¥%-–—−+", r):
		default:
			return false
		}
	}
	return true
}

// isNumber recognises a figure with a digit.
func isNumber(t string) bool { return isFigure(t) && strings.ContainsAny(t, "0123456789") }

// isYear recognises four digits that are a year.
func isYear(t string) bool {
	return len(t) == 4 && (t[:2] == "19" || t[:2] == "20") && isNumber(t)
}

// isNoteMark recognises "(a)" and "(1)".
func isNoteMark(t string) bool {
	return len(t) == 3 && t[0] == '(' && t[2] == ')' && !strings.ContainsAny(t[1:2], "$%")
}
