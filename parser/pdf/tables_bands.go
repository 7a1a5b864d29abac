package pdf

import (
	"slices"

	"sheaf"
)

// Many tables have no vertical rules: a rule above and below the header and one at
// the foot, or one under every row, or a frame. The rules show where such a table
// begins and ends and which of its lines form a row, white space shows where its
// columns are.

// bandLine is a line of words between two rules.
type bandLine struct {
	box
	cells []bandCell
	h     float32
}

type bandCell struct {
	box
	words      []int
	col, width int  // columns it covers
	figure     bool // only numbers and their marks
	number     bool // contains a number
}

// bandTables finds tables with only horizontal rules among the words that are not
// yet in a table.
func (s *sheet) bandTables(hs []box, inTable []bool) []bool {
	rules := make([]box, 0, len(hs))
	for _, h := range hs {
		if h.x1-h.x0 >= leastRule && !slices.ContainsFunc(s.tables, func(t table) bool {
			return h.y0 > t.box.y0-3 && h.y0 < t.box.y1+3 && h.x1 > t.box.x0 && h.x0 < t.box.x1
		}) {
			rules = append(rules, h)
		}
	}
	if len(rules) < minBandRules || len(rules) > mostBands {
		return inTable
	}
	slices.SortStableFunc(rules, func(a, b box) int {
		switch {
		case a.y0 < b.y0:
			return -1
		case a.y0 > b.y0:
			return 1
		}
		return 0
	})
	used := make([]bool, len(rules))
	for i := range rules {
		if used[i] {
			continue
		}
		chain := []box{rules[i]}
		for k := i + 1; k < len(rules); k++ {
			r := rules[k]
			if used[k] || abs32(r.x0-rules[i].x0) > sameEnd || abs32(r.x1-rules[i].x1) > sameEnd {
				continue
			}
			used[k] = true
			if r.y0-chain[len(chain)-1].y0 > 3 {
				chain = append(chain, r)
			}
		}
		if len(chain) >= minBandRules {
			inTable = s.bandChain(chain, inTable)
		}
	}
	return inTable
}

// bandChain makes tables of rules of one width: a band of prose ends a table.
func (s *sheet) bandChain(chain []box, inTable []bool) []bool {
	var bands [][]bandLine
	from := 0
	several := func(lines []bandLine) bool {
		return slices.ContainsFunc(lines, func(l bandLine) bool { return len(l.cells) > 1 })
	}
	end := func(k int) {
		for n := len(bands); n > 0 && !several(bands[n-1]); n-- { // a line of prose under the table
			bands, k = bands[:n-1], k-1
		}
		if k-from+1 >= minBandRules {
			if t, bands, ok := s.bandTable(chain[from:k+1], bands, inTable); ok {
				if inTable == nil {
					inTable = make([]bool, len(s.page.words))
				}
				for _, band := range bands {
					for _, l := range band {
						for _, c := range l.cells {
							for _, i := range c.words {
								inTable[i] = true
							}
						}
					}
				}
				s.tables = append(s.tables, t)
			}
		}
		bands = nil
	}
	for k := range len(chain) - 1 {
		lines := s.bandLines(box{chain[k].x0 - sameEnd, chain[k].y0, chain[k].x1 + sameEnd, chain[k+1].y0}, inTable)
		if !several(lines) && (len(lines) != 1 || len(bands) == 0) {
			end(k)
			from = k + 1
			continue
		}
		bands = append(bands, lines)
	}
	end(len(chain) - 1)
	return inTable
}

func abs32(v float32) float32 { return max(v, -v) }

// bandLines groups the words in an area into lines, and those into cells at wide gaps.
func (s *sheet) bandLines(area box, inTable []bool) []bandLine {
	var at []int
	words := s.page.words
	for i := range words {
		w := &words[i]
		if area.holds((w.x0+w.x1)/2, (w.y0+w.y1)/2) && (inTable == nil || !inTable[i]) {
			at = append(at, i)
		}
	}
	slices.SortStableFunc(at, func(a, b int) int {
		return int(4 * (words[a].y0 + words[a].y1 - words[b].y0 - words[b].y1))
	})
	var lines []bandLine
	for n := 0; n < len(at); {
		first := &words[at[n]]
		k := n + 1
		for k < len(at) && min(words[at[k]].y1, first.y1)-max(words[at[k]].y0, first.y0) > 0.5*min(first.h, words[at[k]].h) {
			k++
		}
		own := slices.Clone(at[n:k])
		slices.SortStableFunc(own, func(a, b int) int { return int(8 * (words[a].x0 - words[b].x0)) })
		l := bandLine{box: box{first.x0, first.y0, first.x1, first.y1}, h: first.h}
		for _, i := range own {
			w := &words[i]
			b := box{w.x0, w.y0, w.x1, w.y1}
			l.box, l.h = l.union(b), max(l.h, w.h)
			if c := len(l.cells) - 1; c >= 0 && w.x0-l.cells[c].x1 < max(cellGap*w.h, 3) {
				l.cells[c].box = l.cells[c].union(b)
				l.cells[c].words = append(l.cells[c].words, i)
			} else {
				l.cells = append(l.cells, bandCell{box: b, words: []int{i}})
			}
		}
		lines = append(lines, l)
		n = k
	}
	return lines
}

// bandTable makes a table of the lines between neighbouring rules, and of adjacent
// rows that fit its columns but have no rule. It returns what it consumed.
func (s *sheet) bandTable(rules []box, bands [][]bandLine, inTable []bool) (table, [][]bandLine, bool) {
	var all []*bandLine
	for b := range bands {
		for l := range bands[b] {
			all = append(all, &bands[b][l])
		}
	}
	// The lines with the most cells define the columns; a cell of another line that
	// overlaps two of them spans both.
	byCells := slices.Clone(all)
	slices.SortStableFunc(byCells, func(a, b *bandLine) int { return len(b.cells) - len(a.cells) })
	var cols columns
	for _, l := range byCells {
		for i := range l.cells {
			if c := &l.cells[i]; cols.over(c.box) < 2 {
				cols = cols.add(c.x0, c.x1)
			}
		}
	}
	if len(cols) < 2 {
		return table{}, nil, false
	}
	area := box{rules[0].x0, rules[0].y0, rules[0].x1, rules[len(rules)-1].y0}
	above, below := s.besideBands(area, cols, inTable)
	for _, l := range above {
		bands = slices.Insert(bands, 0, []bandLine{l})
		area.y0 = min(area.y0, l.y0)
	}
	for _, l := range below {
		bands = append(bands, []bandLine{l})
		area.y1 = max(area.y1, l.y1)
	}
	all = all[:0]
	for b := range bands {
		for l := range bands[b] {
			all = append(all, &bands[b][l])
		}
	}
	for _, l := range all {
		for i := range l.cells {
			c := &l.cells[i]
			for k, v := range cols {
				if v.a < c.x1 && v.b > c.x0 {
					if c.width == 0 {
						c.col = k
					}
					c.width = k - c.col + 1
				}
			}
		}
	}
	if s.cutsTable(area, inTable) || s.ofFigures(area, len(rules), inTable) {
		return table{}, nil, false
	}
	t := table{box: area}
	filled, bold := 0, true
	for b, lines := range bands {
		for n, row := range s.bandRows(lines, b == 0, len(bands), cols) {
			if len(row) > mostRowLines {
				return table{}, nil, false
			}
			at := make([][]int, len(cols))
			area := row[0].box
			for _, l := range row {
				area = area.union(l.box)
				for _, c := range l.cells {
					at[c.col] = append(at[c.col], c.words...)
					if c.width > 1 {
						t.spans = append(t.spans, sheaf.TableSpan{Row: len(t.rows), Column: c.col, Rows: 1, Columns: c.width})
					}
					for _, i := range c.words {
						bold = bold && (b > 0 || n > 0 || s.page.words[i].bold)
					}
				}
			}
			cells := make([]string, len(cols))
			several := 0
			for c, words := range at {
				slices.Sort(words) // the engine's order is the reading order
				if cells[c] = s.cellText(words); cells[c] != "" {
					several++
				}
			}
			if several > 1 {
				filled++
			}
			t.rows = append(t.rows, cells)
			t.rowBoxes = append(t.rowBoxes, box{t.box.x0, area.y0, t.box.x1, area.y1})
		}
	}
	if len(t.rows) < 2 || float32(filled) < minRowShare*float32(len(t.rows)) {
		return table{}, nil, false
	}
	t.header = namesColumns(t.rows, bold, true)
	return t, bands, true
}

// besideBands returns the lines above an area, going up, and below it, going down,
// as long as they are close and fit the columns.
func (s *sheet) besideBands(area box, cols columns, inTable []bool) (above, below []bandLine) {
	fits := func(l *bandLine, gap float32) bool {
		if gap > 1.5*l.h || len(l.cells) < 2 {
			return false
		}
		for i := range l.cells {
			if cols.over(l.cells[i].box) != 1 {
				return false
			}
		}
		return true
	}
	lines := s.bandLines(box{area.x0 - sameEnd, area.y0 - besideRows, area.x1 + sameEnd, area.y0}, inTable)
	top := area.y0
	for i := len(lines) - 1; i >= 0 && fits(&lines[i], top-lines[i].y1); i-- {
		above, top = append(above, lines[i]), lines[i].y0
	}
	lines = s.bandLines(box{area.x0 - sameEnd, area.y1, area.x1 + sameEnd, area.y1 + besideRows}, inTable)
	bottom := area.y1
	for i := 0; i < len(lines) && fits(&lines[i], lines[i].y0-bottom); i++ {
		below, bottom = append(below, lines[i]), lines[i].y1
	}
	return above, below
}

// bandRows groups the lines between two rules into rows: by the gaps between them
// if there are two kinds of gap, otherwise a header is one row, and so is a band
// whose cells differ in height.
func (s *sheet) bandRows(lines []bandLine, header bool, bands int, cols columns) [][]bandLine {
	if len(lines) < 2 {
		return [][]bandLine{lines}
	}
	least, most := float32(1e6), float32(0)
	for i := 1; i < len(lines); i++ {
		if d := lines[i].y0 - lines[i-1].y0; d > 0.9*lines[i].h {
			least, most = min(least, d), max(most, d)
		}
	}
	full := true // every line has the same number of cells
	for _, l := range lines {
		full = full && len(l.cells) == len(lines[0].cells)
	}
	var out [][]bandLine
	for i, l := range lines {
		fresh := i == 0
		switch {
		case fresh:
		case header && slices.ContainsFunc(lines[i-1].cells, func(c bandCell) bool { return c.width > 1 }):
			fresh = true // the name of a group of columns
		case s.numbersUnder(&lines[i-1], &l), !header && cols.names(&lines[i-1]):
			fresh = true
		case most > 1.25*least:
			fresh = l.y0-lines[i-1].y0 > 1.2*least
		case header, bands >= 4 && !full:
		default:
			fresh = l.cells[0].col == 0
		}
		if fresh {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], l)
	}
	return out
}

// names reports whether a line is alone in the first column and ends well before
// its right edge: it names the rows that follow, and is not the first line of a
// long cell.
func (c columns) names(l *bandLine) bool {
	return len(l.cells) == 1 && l.cells[0].col == 0 && l.x1 < c[0].a+0.85*(c[0].b-c[0].a)
}

// numbersUnder reports whether a number is below another, which makes the lines two
// rows.
func (s *sheet) numbersUnder(above, below *bandLine) bool {
	for _, a := range above.cells {
		for _, b := range below.cells {
			if a.col == b.col && mostlyNumeric(s.cellText(a.words)) && mostlyNumeric(s.cellText(b.words)) {
				return true
			}
		}
	}
	return false
}

// over counts the columns that a box overlaps.
func (c columns) over(b box) int {
	n := 0
	for _, v := range c {
		if v.a < b.x1 && v.b > b.x0 {
			n++
		}
	}
	return n
}
