package pdf

// A drawn block is often only part of a table: shading behind one column of
// figures, the rules under subtotals, a grid around the figures without their
// labels. What is beside it on the same lines reveals that.

// cutsTable counts the lines of words inside an area, and those that continue
// outside it with more of the table: a figure beside it, or, if the area holds
// little but figures, a label.
func (s *sheet) cutsTable(area box, inTable []bool) bool {
	wide := box{0, area.y0 - 1, s.w, area.y1 + 1}
	lines := s.bandLines(wide, inTable)
	inside, figures, labels, bare, numbered := 0, 0, 0, 0, 0
	for i := range lines {
		l := &lines[i]
		in, numbers := 0, 0
		var left, right *bandCell
		for k := range l.cells {
			c := &l.cells[k]
			switch x := (c.x0 + c.x1) / 2; {
			case x < area.x0:
				left = c
			case x > area.x1:
				if right == nil {
					right = c
				}
			default:
				in++
				if s.figures(c.words) {
					numbers++
					if s.counts(c.words) && !isYear(s.cellText(c.words)) {
						numbered++
					}
				}
			}
		}
		if in == 0 {
			continue
		}
		inside++
		if numbers == in {
			bare++
			if left != nil {
				labels++
			}
		}
		if left != nil && s.figures(left.words) || right != nil && s.figures(right.words) {
			figures++
		}
	}
	if numbered == 0 {
		// Only names, with figures below: a shaded header.
		below := s.bandLines(box{area.x0 - sameEnd, area.y1, area.x1 + sameEnd, area.y1 + besideRows}, inTable)
		for _, l := range below[:min(len(below), minCutLines)] {
			n := 0
			for k := range l.cells {
				if c := &l.cells[k]; s.figures(c.words) && s.counts(c.words) {
					n++
				}
			}
			if n >= leastFigureColumns && n*2 >= len(l.cells) && l.y0-area.y1 < rowGap*l.h {
				return true
			}
		}
	}
	return figures >= minCutLines && figures*3 >= inside || labels >= minCutLines && labels*2 >= bare && bare*3 >= inside
}

// ofFigures reports whether an area between rules is a table of figures with
// several rows per rule: its rows are those of the figures, not of the rules.
func (s *sheet) ofFigures(area box, rules int, inTable []bool) bool {
	lines := s.bandLines(area, inTable)
	f := figureBlock{}
	for i := range lines {
		s.joinMarks(&lines[i])
		if r := s.figureRow(&lines[i]); r.figures {
			f.rows = append(f.rows, r)
		}
	}
	return len(f.rows)*5 >= len(lines)*3 && f.enough()
}
