package pdf

import (
	"strconv"
	"strings"
	"unicode"
)

// Running headers and footers are lines at the top or bottom edge that repeat on
// nearby pages, ignoring numbers, and printed page numbers. Nothing else is ever
// removed, and only from the edge inwards, up to the first line that does not
// repeat.
//
// A page number is recognized from its page alone, however the document is cut into
// ranges: a lone number that is the outermost line of the page and close to the
// page's position in the file. It counts wherever the text ends, since a page that
// is not full may have it directly below its last line.

type runningLine struct {
	region  int
	line    int
	key     string
	tabular bool
}

// dropRunning removes the running lines that were decided on, and text along the
// margin that occurs on a quarter of the nearby pages.
func (s *sheet) dropRunning(dropped [2]int, around []*facts) {
	for e, n := range dropped {
		for _, l := range s.edges[e][:min(n, len(s.edges[e]))] {
			drop := &s.regions[l.region].lines[l.line]
			s.running = append(s.running, s.lineText(drop))
			drop.chars = -1 // removed below
		}
	}
	if len(s.running) > 0 {
		s.sweepLines()
	}
	for k := range s.strayRuns { // a stamp along the margin of every page
		key, count := s.facts.stray[k], 0
		for _, f := range around {
			for _, other := range f.stray {
				if other == key {
					count++
				}
			}
		}
		if r := &s.strayRuns[k]; key != "" && count >= 3 && count*4 >= len(around) {
			r.dropped = true
			s.running = append(s.running, r.text)
		}
	}
}

// sweepLines removes the marked lines.
func (s *sheet) sweepLines() {
	for r := range s.regions {
		remaining := s.regions[r].lines[:0]
		for _, l := range s.regions[r].lines {
			if l.chars >= 0 {
				remaining = append(remaining, l)
			}
		}
		s.regions[r].lines = remaining
	}
}

// apart reports whether white space separates two lines at an edge.
func (s *sheet) apart(outer, inner runningLine) bool {
	a, b := &s.regions[outer.region].lines[outer.line], &s.regions[inner.region].lines[inner.line]
	return max(a.y0, b.y0)-min(a.y1, b.y1) > 1.2*max(a.h, b.h)
}

// ownNumber reports whether a lone number is the page's own.
func (s *sheet) ownNumber(l *line) bool {
	text := strings.Trim(s.lineText(l), "-–— ")
	if text == s.label {
		return true
	}
	n, err := strconv.Atoi(text)
	return err == nil && max(n-s.number, s.number-n) <= numberDrift
}

// outermost is the distance of the outermost line or table from the edge.
func (s *sheet) outermost(bottom bool) float32 {
	y := s.h
	for r := range s.regions {
		for i := range s.regions[r].lines {
			if l := &s.regions[r].lines[i]; bottom {
				y = min(y, s.h-l.y0)
			} else {
				y = min(y, l.y1)
			}
		}
	}
	return y
}

// edge returns the outermost lines of the page, from the edge inwards.
func (s *sheet) edge(bottom bool) []runningLine {
	var out []runningLine
	var at []float32
	outermost := s.outermost(bottom)
	for r := range s.regions {
		lines := s.regions[r].lines
		for i := range lines {
			l := &lines[i]
			if l.table >= 0 || l.chars == 0 {
				continue
			}
			y := l.y1
			if bottom {
				y = s.h - l.y0
			}
			if y > runningZone*s.h && (l.words > 3 || y > outermost+l.h || runningKey(s.lineText(l)) != "#") {
				continue
			}
			k := 0
			for k < len(at) && at[k] <= y {
				k++
			}
			if k >= runningLines {
				continue
			}
			// A row of cells close to another is a table's header.
			tabular := false
			if len(l.segs) >= 3 {
				if j := i + 1; j < len(lines) && len(lines[j].segs) >= 3 && lines[j].y0-l.y1 < 0.6*l.h {
					tabular = true
				}
			}
			at = append(at[:k:k], append([]float32{y}, at[k:]...)...)
			out = append(out[:k:k], append([]runningLine{{r, i, runningKey(s.lineText(l)), tabular}}, out[k:]...)...)
			if len(out) > runningLines {
				at, out = at[:runningLines], out[:runningLines]
			}
		}
	}
	return out
}

// runningKey is a line's text with numbers, which change from page to page,
// normalized. A line that consists of a number, arabic or roman, is "#".
func runningKey(text string) string {
	if len(text) > 200 {
		return ""
	}
	var b strings.Builder
	digits, letters := false, false
	roman := len(text) <= 8
	for _, r := range text {
		switch {
		case unicode.IsDigit(r):
			if !digits {
				b.WriteByte('#')
			}
			digits, roman = true, false
			continue
		case unicode.IsLetter(r):
			letters = true
			if !strings.ContainsRune("ivxlcIVXLC", r) {
				roman = false
			}
			b.WriteRune(unicode.ToLower(r))
		case !unicode.IsSpace(r) && !strings.ContainsRune("-–—.|", r):
			b.WriteRune(r)
			roman = false
		}
		digits = false
	}
	if roman && letters {
		return "#"
	}
	return b.String()
}

// lineText returns a line's words separated by single spaces.
func (s *sheet) lineText(l *line) string {
	var b strings.Builder
	for i := range l.segs {
		for k := l.segs[i].first; k <= l.segs[i].last; k++ {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(s.page.str(&s.page.words[k]))
		}
	}
	return b.String()
}
