package pdf

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sheaf"
	"sheaf/parser/pdf/engine"
)

// A page passes through these stages: words → tables drawn with rules → segments
// (adjacent words on a baseline) → columns, in reading order → lines → removal of
// running headers and footers → tables drawn with white space → blocks.
//
// All of it happens in the reading frame: the displayed page rotated so that most
// of its text runs from left to right, y down. Boxes are rotated back at the end.

// sheet is a page in transition from words to blocks.
type sheet struct {
	number        int
	label         string
	width, height float64 // as displayed
	failure       *sheaf.Failure

	facts facts
	edges [2][]runningLine
	read  bool // it has lines

	turn       uint8   // of the reading frame
	w, h       float32 // of the reading frame
	page       *wordPage
	texts      []string // of nearby pages, including this one
	strayRuns  []stray  // text in a direction other than the page's
	images     []box
	links      []link
	imageShare float32 // share of the page's area covered by the largest images
	regions    []region
	tables     []table
	running    []string // running lines that were removed
	truncated  bool
	objects    int // drawn on the page
	hidden     int // words outside the page

	blocks   []sheaf.Block
	warnings []sheaf.Warning
}

// box is a rectangle in the reading frame, y down.
type box struct{ x0, y0, x1, y1 float32 }

func (b box) holds(x, y float32) bool { return x >= b.x0 && x <= b.x1 && y >= b.y0 && y <= b.y1 }

func (b box) union(c box) box {
	return box{min(b.x0, c.x0), min(b.y0, c.y0), max(b.x1, c.x1), max(b.y1, c.y1)}
}

// seg is a run of adjacent words on a baseline, or a table (table ≥ 0).
type seg struct {
	box
	first, last int32 // words
	h           float32
	words       int32
	chars       int32
	table       int32
	rtl         bool
}

// link is an area that links to an address, or to a page counted from 1.
type link struct {
	box
	uri  string
	page int
}

// line is one or more segments on a baseline, from left to right.
type line struct {
	box
	segs  []seg
	h     float32 // font height, weighted by characters
	words int
	chars int
	bold  bool
	mono  bool
	dots  bool // has leaders: a line of a table of contents
	table int32
}

// region is lines in reading order that share a column.
type region struct {
	box
	lines []line
	pitch float32 // usual distance of its lines, including running lines
}

// take converts the engine's record into the reading frame. Nothing of p is retained.
func (s *sheet) take(a *assembler, p *engine.Page) {
	s.page = a.words(p)
	s.truncated, s.objects = p.Truncated, p.Objects
	var chars [5]int
	for i := range s.page.words {
		w := &s.page.words[i]
		chars[w.turn] += w.end - w.start
	}
	for t := uint8(1); t < turnSkew; t++ {
		if chars[t] > chars[s.turn] {
			s.turn = t
		}
	}
	s.w, s.h = p.Width, p.Height
	if s.turn&1 == 1 {
		s.w, s.h = s.h, s.w
	}
	remaining := s.page.words[:0]
	var others []word
	shown := box{-2, -2, p.Width + 2, p.Height + 2}
	for _, w := range s.page.words {
		if !shown.holds((w.x0+w.x1)/2, (w.y0+w.y1)/2) {
			s.hidden++ // cut off by the crop box: half of a printed spread
			continue
		}
		if w.turn != s.turn {
			others = append(others, w)
			continue
		}
		if s.turn != 0 {
			b := s.into(box{w.x0, w.y0, w.x1, w.y1})
			w.x0, w.y0, w.x1, w.y1 = b.x0, b.y0, b.x1, b.y1
		}
		remaining = append(remaining, w)
	}
	s.page.words = remaining
	s.joinStrays(others)

	f := frameOf(p)
	place := func(r engine.Rect) box {
		x0, y0, x1, y1 := f.display(r)
		return s.into(box{x0, y0, x1, y1})
	}
	for _, r := range p.Images {
		b := place(r)
		b = box{max(b.x0, 0), max(b.y0, 0), min(b.x1, s.w), min(b.y1, s.h)}
		if b.x1-b.x0 > 1 && b.y1-b.y0 > 1 {
			s.images = append(s.images, b)
		}
	}
	for _, l := range p.Links {
		s.links = append(s.links, link{place(l.Box), l.URI, l.Page + 1})
	}
	s.images = joinImages(s.images)
	for _, b := range s.images {
		s.imageShare = max(s.imageShare, (b.x1-b.x0)*(b.y1-b.y0)/max(s.w*s.h, 1))
	}

	var inTable []bool
	if len(p.Rules) >= minRules {
		rules := make([]box, len(p.Rules))
		for i, r := range p.Rules {
			rules[i] = place(r)
		}
		hs, vs := joinRules(rules)
		s.tables, inTable = latticeTables(s, hs, vs)
		inTable = s.bandTables(hs, inTable)
	}
	inTable = s.figureTables(inTable)
	segs := s.segments(inTable)
	if len(segs) > 0 {
		slices.SortStableFunc(segs, byMiddle)
		s.split(segs, 0)
	}
}

// into rotates a displayed box into the reading frame.
func (s *sheet) into(b box) box {
	switch s.turn {
	case 1: // reads upwards: the page is turned clockwise
		return box{s.w - b.y1, b.x0, s.w - b.y0, b.x1}
	case 2:
		return box{s.w - b.x1, s.h - b.y1, s.w - b.x0, s.h - b.y0}
	case 3:
		return box{b.y0, s.h - b.x1, b.y1, s.h - b.x0}
	}
	return b
}

// place rotates a box of the reading frame back into the displayed page.
func (s *sheet) place(b box) sheaf.Box {
	switch s.turn {
	case 1:
		b = box{b.y0, s.w - b.x1, b.y1, s.w - b.x0}
	case 2:
		b = box{s.w - b.x1, s.h - b.y1, s.w - b.x0, s.h - b.y0}
	case 3:
		b = box{s.h - b.y1, b.x0, s.h - b.y0, b.x1}
	}
	return s.displayed(b)
}

func (s *sheet) displayed(b box) sheaf.Box {
	r := func(v float32) float64 { return float64(int(v*100+0.5)) / 100 } // a hundredth of a point is enough
	return sheaf.Box{Page: s.number, X0: r(b.x0), Y0: r(b.y0), X1: r(b.x1), Y1: r(b.y1)}
}

// joinImages merges pictures that touch: one scan is often cut into strips.
func joinImages(in []box) []box {
	if len(in) > 200 {
		in = in[:200]
	}
	out := in[:0]
next:
	for _, b := range in {
		for i := range out {
			o := &out[i]
			if b.x0 <= o.x1+1 && o.x0 <= b.x1+1 && b.y0 <= o.y1+1 && o.y0 <= b.y1+1 {
				*o = o.union(b)
				continue next
			}
		}
		out = append(out, b)
	}
	return out
}

// segments joins neighbouring words, in the engine's order, that share a baseline.
// Each table already found is represented by one segment.
func (s *sheet) segments(inTable []bool) []seg {
	words := s.page.words
	segs := make([]seg, 0, len(words)/8+len(s.tables)+4)
	open := false
	for i := range words {
		w := &words[i]
		if inTable != nil && inTable[i] {
			open = false
			continue
		}
		n := int32(w.end - w.start)
		if open {
			g := &segs[len(segs)-1]
			small := min(g.h, w.h)
			if min(g.y1, w.y1)-max(g.y0, w.y0) >= 0.5*small {
				limit := max(cellGap*max(g.h, w.h), 3)
				gap := w.x0 - g.x1
				ok := gap < limit && gap > -0.6*g.h
				if !ok && (w.rtl || g.rtl) {
					gap = g.x0 - w.x1
					ok = gap < limit && gap > -0.6*g.h
				}
				if ok {
					g.box = g.box.union(box{w.x0, w.y0, w.x1, w.y1})
					g.last = int32(i)
					g.h = max(g.h, w.h)
					g.words++
					g.chars += n
					g.rtl = g.rtl || w.rtl
					continue
				}
			}
		}
		segs = append(segs, seg{box: box{w.x0, w.y0, w.x1, w.y1}, first: int32(i), last: int32(i), h: w.h, words: 1, chars: n, table: -1, rtl: w.rtl})
		open = true
	}
	segs = joinStretched(segs)
	for i := range s.tables {
		segs = append(segs, seg{box: s.tables[i].box, table: int32(i), h: 12})
	}
	return segs
}

// joinStretched joins the words of a line that was justified to the column's width:
// the gaps are wide but equal, unlike those between table cells, whose texts differ
// in length.
func joinStretched(segs []seg) []seg {
	out := segs[:0]
	for i := 0; i < len(segs); {
		j := i + 1
		least, most := float32(1e9), float32(0)
		short, long := segs[i].x1-segs[i].x0, segs[i].x1-segs[i].x0
		words := segs[i].words
		for ; j < len(segs); j++ {
			a, b := &segs[j-1], &segs[j]
			gap := b.x0 - a.x1
			if a.last+1 != b.first || gap <= 0 || gap > stretchedGap*a.h || min(a.y1, b.y1)-max(a.y0, b.y0) < 0.5*min(a.h, b.h) ||
				max(most, gap) > min(least, gap)+stretchedSlack*a.h {
				break
			}
			least, most = min(least, gap), max(most, gap)
			short, long = min(short, b.x1-b.x0), max(long, b.x1-b.x0)
			words += b.words
		}
		g := segs[i]
		if j-i >= stretchedWords && long >= 1.8*short {
			for k := i + 1; k < j; k++ {
				q := &segs[k]
				g.box, g.last, g.h, g.chars, g.rtl = g.box.union(q.box), q.last, max(g.h, q.h), g.chars+q.chars, g.rtl || q.rtl
			}
			g.words = words
			out = append(out, g)
			i = j
			continue
		}
		out = append(out, g)
		i++
	}
	return out
}

func byMiddle(a, b seg) int {
	switch d := (a.y0 + a.y1) - (b.y0 + b.y1); {
	case d < 0:
		return -1
	case d > 0:
		return 1
	}
	return 0
}

// split cuts segments, sorted by height on the page, into regions in reading order.
// A gutter is a strip that few segments cross and that has prose, not cells, on
// both sides; the segments that cross it (titles, wide figures) divide the page
// into bands, and within a band the left column is read first.
func (s *sheet) split(segs []seg, depth int) {
	if s.columns(segs, depth) {
		return
	}
	// A gutter may be visible only between wide lines: below a figure, above a note.
	var whole []seg // not yet divided
	from := 0
	part := func(to int) {
		own := segs[from:to]
		if n := len(s.regions); len(own) < len(segs) && s.columns(own, depth+1) {
			divided := slices.Clone(s.regions[n:])
			s.regions = s.regions[:n]
			s.addRegion(whole)
			s.regions = append(s.regions, divided...)
			whole = nil
		} else {
			whole = append(whole, own...)
		}
		from = to
	}
	b := segs[0].box
	for i := range segs {
		b = b.union(segs[i].box)
	}
	for i := range segs {
		if segs[i].x1-segs[i].x0 > wideLine*(b.x1-b.x0) {
			part(i)
			whole = append(whole, segs[i])
			from = i + 1
		}
	}
	part(len(segs))
	s.addRegion(whole)
}

// columns cuts segments at a gutter, or returns false if there is none.
func (s *sheet) columns(segs []seg, depth int) bool {
	if depth >= maxSplits || len(segs) < leastSegments {
		return false
	}
	for _, among := range gutterSearches {
		for _, g := range gutters(segs, among) {
			if s.splitAt(segs, g, depth) {
				return true
			}
		}
	}
	return false
}

// gutters returns up to three places with few segments, widest first.
func gutters(segs []seg, among gutterSearch) []float32 {
	b := segs[0].box
	var area float32
	for i := range segs {
		b = b.union(segs[i].box)
	}
	width := b.x1 - b.x0
	if width < 100 {
		return nil
	}
	counts := func(q *seg) bool { return q.x1-q.x0 <= among.widest*width }
	for i := range segs {
		if counts(&segs[i]) {
			area += segs[i].h * (segs[i].x1 - segs[i].x0)
		}
	}
	const most = 320
	var cover [most + 1]float32
	n := min(most, int(width/2))
	per := width / float32(n)
	for i := range segs {
		g := &segs[i]
		if !counts(g) {
			continue
		}
		from, to := int((g.x0-b.x0)/per), int((g.x1-b.x0)/per)
		cover[max(0, min(from, n))] += g.h
		if to+1 <= n {
			cover[to+1] -= g.h
		}
	}
	var sum float32
	for i := range n {
		sum += cover[i]
		cover[i] = sum
	}
	mean := area / width
	type strip struct{ middle, width float32 }
	var found []strip
	for i := n / 10; i < n-n/10; i++ {
		if cover[i] > among.share*mean {
			continue
		}
		low, j := cover[i], i
		for ; j < n-n/10 && cover[j] <= among.share*mean; j++ {
			low = min(low, cover[j])
		}
		// At its lowest point: titles cross the whole gutter, ragged lines its edge.
		from, to := -1, -1
		for k := i; k < j; k++ {
			if cover[k] <= low+0.05*mean {
				if from < 0 {
					from = k
				}
				to = k
			}
		}
		if w := float32(j-i) * per; w >= 5 {
			found = append(found, strip{b.x0 + (float32(from+to)/2+0.5)*per, w})
		}
		i = j
	}
	slices.SortStableFunc(found, func(a, b strip) int {
		switch {
		case a.width > b.width:
			return -1
		case a.width < b.width:
			return 1
		}
		return 0
	})
	out := make([]float32, 0, 3)
	for _, f := range found[:min(3, len(found))] {
		out = append(out, f.middle)
	}
	return out
}

// splitAt cuts at the gutter g, or does nothing and returns false if it turns out
// not to be one.
func (s *sheet) splitAt(segs []seg, g float32, depth int) bool {
	type band struct {
		from, to int
		spanning bool
		columns  bool
	}
	var bands []band
	for i := range segs {
		spanning := segs[i].x0 < g-2 && segs[i].x1 > g+2
		if n := len(bands); n > 0 && bands[n-1].spanning == spanning {
			bands[n-1].to = i + 1
		} else {
			bands = append(bands, band{from: i, to: i + 1, spanning: spanning})
		}
	}
	confirmed := false
	for i := range bands {
		if b := &bands[i]; !b.spanning {
			b.columns = columnsAt(segs[b.from:b.to], g)
			confirmed = confirmed || b.columns
		}
	}
	if !confirmed {
		return false
	}
	var rest []seg
	flush := func() {
		if len(rest) > 0 && len(rest) < len(segs) {
			s.split(rest, depth+1)
		} else if len(rest) > 0 {
			s.addRegion(rest)
		}
		rest = nil
	}
	for _, b := range bands {
		here := segs[b.from:b.to]
		if !b.columns && !b.spanning {
			b.columns = sideways(here, g)
		}
		if !b.columns {
			rest = append(rest, here...)
			continue
		}
		flush()
		var left, right []seg
		for _, q := range here {
			if (q.x0+q.x1)/2 < g {
				left = append(left, q)
			} else {
				right = append(right, q)
			}
		}
		s.split(left, depth+1)
		s.split(right, depth+1)
	}
	flush()
	return true
}

// columnsAt reports whether the segments on both sides of a gutter are columns:
// running text on both, or text on one that does not line up with the other.
func columnsAt(segs []seg, g float32) bool {
	left, right := prose(segs, g, true), prose(segs, g, false)
	return left && right || (left || right) && apartAt(segs, g)
}

// prose reports whether one side of a gutter reads as running text: at least three
// long lines of several words that hold most of its text. A table on one side
// counts too: it does not line up with the other side.
func prose(segs []seg, g float32, left bool) bool {
	var n, long, wide, chars, in int
	var widest float32
	side := func(q *seg) bool { return q.table < 0 && ((q.x0+q.x1)/2 < g) == left }
	isLong := func(q *seg) bool {
		return q.words >= proseWords && q.chars >= proseChars || q.chars >= proseRunes
	}
	for i := range segs {
		if q := &segs[i]; side(q) {
			n++
			chars += int(q.chars)
			if isLong(q) {
				widest = max(widest, q.x1-q.x0)
			}
		}
	}
	if n == 0 {
		return slices.ContainsFunc(segs, func(q seg) bool { return q.table >= 0 && ((q.x0+q.x1)/2 < g) == left })
	}
	for i := range segs {
		if q := &segs[i]; side(q) && isLong(q) {
			long++
			in += int(q.chars)
			if q.x1-q.x0 >= 0.55*widest {
				wide++
			}
		}
	}
	return long >= proseLines && wide*2 >= long && float32(in) >= proseShare*float32(chars)
}

// apartAt reports whether the lines on the two sides of a gutter are at different
// heights: a sidebar beside a text, not the cells of rows.
func apartAt(segs []seg, g float32) bool {
	var sides [2][]*seg
	for i := range segs {
		q := &segs[i]
		k := 0
		if (q.x0+q.x1)/2 >= g {
			k = 1
		}
		sides[k] = append(sides[k], q)
	}
	few, many := sides[0], sides[1]
	if len(few) > len(many) {
		few, many = many, few
	}
	if len(few) < proseLines {
		return false
	}
	level := 0
	for _, q := range few {
		mid := (q.y0 + q.y1) / 2
		if slices.ContainsFunc(many, func(o *seg) bool {
			return o.table >= 0 && mid > o.y0 && mid < o.y1 || abs32((o.y0+o.y1)/2-mid) < levelSlack*min(o.h, q.h)
		}) {
			level++
		}
	}
	return float32(level) <= levelShare*float32(len(few))
}

// sideways is the weaker test for a band at a gutter that other bands have
// confirmed: text on both sides that does not look like cells.
func sideways(segs []seg, g float32) bool {
	var n, chars [2]int
	for i := range segs {
		q := &segs[i]
		k := 0
		if (q.x0+q.x1)/2 >= g {
			k = 1
		}
		n[k]++
		chars[k] += int(q.chars)
		if q.table >= 0 {
			chars[k] += 100
		}
	}
	return n[0] > 0 && n[1] > 0 && chars[0] >= 12*n[0] && chars[1] >= 12*n[1]
}

// addRegion makes lines of the segments of one column.
func (s *sheet) addRegion(segs []seg) {
	if len(segs) == 0 {
		return
	}
	r := region{box: segs[0].box, lines: make([]line, 0, len(segs))}
	store := make([]seg, 0, len(segs)) // lines point into it
	for i := 0; i < len(segs); {
		first := segs[i]
		if first.table >= 0 {
			store = append(store, first)
			r.lines = append(r.lines, line{box: first.box, segs: store[len(store)-1:], table: first.table})
			r.box = r.box.union(first.box)
			i++
			continue
		}
		// A line includes segments whose middle lies in the middle part of the
		// line's tallest segment.
		b := first.box
		tall := first
		j := i + 1
		for ; j < len(segs); j++ {
			q := &segs[j]
			if q.table >= 0 {
				break
			}
			mid, tallMid := (q.y0+q.y1)/2, (tall.y0+tall.y1)/2
			if d := mid - tallMid; d > 0.35*max(tall.y1-tall.y0, q.y1-q.y0) || d < -0.35*max(tall.y1-tall.y0, q.y1-q.y0) {
				// A footnote mark is raised beside its text.
				small := min(q.h, tall.h) < 0.75*max(q.h, tall.h)
				if !small || min(q.y1, b.y1)-max(q.y0, b.y0) < 0.5*min(q.h, tall.h) || q.x0 < b.x1-1 && b.x0 < q.x1-1 {
					break
				}
			}
			if q.h > 1.5*tall.h || tall.h > 1.5*q.h { // a drop cap, a formula's brace
				if min(q.y1, b.y1)-max(q.y0, b.y0) < 0.6*min(q.h, tall.h) {
					break
				}
			}
			b = b.union(q.box)
			if q.h > tall.h {
				tall = *q
			}
		}
		at := len(store)
		store = append(store, segs[i:j]...)
		own := store[at:len(store):len(store)]
		if len(own) > 1 {
			slices.SortStableFunc(own, func(a, b seg) int {
				switch {
				case a.x0 < b.x0:
					return -1
				case a.x0 > b.x0:
					return 1
				}
				return 0
			})
		}
		l := line{box: b, segs: own, table: -1}
		s.measure(&l)
		r.lines = append(r.lines, l)
		r.box = r.box.union(b)
		i = j
	}
	s.regions = append(s.regions, r)
}

// measure totals a line's words.
func (s *sheet) measure(l *line) {
	var h float32
	var bold, mono, rtl, dots int
	for i := range l.segs {
		q := &l.segs[i]
		for k := q.first; k <= q.last; k++ {
			w := &s.page.words[k]
			n := w.end - w.start
			l.words++
			l.chars += n
			h += w.h * float32(n)
			if w.bold {
				bold += n
			}
			if w.mono {
				mono += n
			}
			if w.rtl {
				rtl++
			}
			if c := s.page.text[w.start]; c != '.' && c < 0x80 {
				dots = 0
				if n > leaderDots && strings.Contains(s.page.str(w), "....") {
					l.dots = true
				}
			} else if isDots(s.page.str(w)) {
				if dots += utf8.RuneCountInString(s.page.str(w)); dots >= leaderDots {
					l.dots = true
				}
			} else {
				dots = 0
			}
		}
	}
	if l.chars > 0 {
		l.h = h / float32(l.chars)
		l.bold = bold*10 >= l.chars*9
		l.mono = mono*10 >= l.chars*9
	}
	if rtl*2 > l.words && len(l.segs) > 1 {
		slices.Reverse(l.segs)
	}
}

// layOut builds the blocks of a page according to d, and reports the body sizes for
// which the lines would be classified the same.
func (s *sheet) layOut(d decision, around []*facts, texts []string, o *outline) (r report) {
	for k := range s.regions {
		s.regions[k].pitch = usualPitch(s.regions[k].lines)
	}
	w := writer{sheet: s, body: d.body(), outline: o, least: 1, most: mostQuarters}
	w.edgesInTables()
	s.dropRunning(d.Dropped, around)
	s.texts = texts
	w.write()
	w.widen()
	s.blocks = w.blocks
	s.addImages()
	s.addStrays()
	r = report{page: s.number, facts: s.facts, decided: true, decision: d, least: w.least, most: w.most}
	for k := range s.regions {
		for _, l := range s.regions[k].lines {
			r.bold, r.mono = r.bold || l.bold, r.mono || l.mono
		}
	}
	return r
}

// body is the appearance of most of the text.
type body struct {
	h    float32
	bold bool
	mono bool
}

func bodyOf(pages []*facts) body {
	var by [mostQuarters + 1]sizeFact
	from, to := mostQuarters, 0 // the sizes there are, of many that are not
	for _, f := range pages {
		for _, n := range f.sizes {
			k := &by[n.quarters]
			k.chars, k.bold, k.mono = k.chars+n.chars, k.bold+n.bold, k.mono+n.mono
			from, to = min(from, n.quarters), max(to, n.quarters)
		}
	}
	best, most := 0, 0
	for k := max(from-1, 1); k <= min(to+1, mostQuarters-1); k++ {
		if n := by[k-1].chars + 2*by[k].chars + by[k+1].chars; n > most {
			best, most = k, n
		}
	}
	if most == 0 {
		return body{h: 12}
	}
	return body{h: float32(best) / 4, bold: by[best].bold*2 > by[best].chars, mono: by[best].mono*2 > by[best].chars}
}

// addImages inserts figures at their place in the reading order. A picture behind
// the text of the whole page is the page itself.
func (s *sheet) addImages() {
	for _, b := range s.images {
		w, h := b.x1-b.x0, b.y1-b.y0
		if w < 24 || h < 24 || w*h < 0.005*s.w*s.h || w*h > 0.8*s.w*s.h && s.page.chars > 0 {
			continue
		}
		place := s.place(b)
		at := len(s.blocks)
		for i := range s.blocks {
			k := &s.blocks[i]
			var first sheaf.Box
			switch {
			case len(k.Spans) > 0:
				first = k.Spans[0].Box
			case k.Table != nil && k.Table.Box != nil:
				first = *k.Table.Box
			default:
				continue
			}
			if first.Y0 >= place.Y0 && first.X0 < place.X1 && first.X1 > place.X0 {
				at = i
				break
			}
		}
		s.blocks = slices.Insert(s.blocks, at, sheaf.Block{Kind: sheaf.BlockImage, Page: s.number, Spans: []sheaf.Span{{Box: place}}})
	}
}

// addStrays adds text in a direction other than the page's, one block per run,
// after everything else.
func (s *sheet) addStrays() {
	for _, r := range s.strayRuns {
		if r.dropped {
			continue
		}
		s.blocks = append(s.blocks, sheaf.Block{Kind: sheaf.BlockParagraph, Text: r.text, Page: s.number, Spans: []sheaf.Span{{End: len(r.text), Box: s.displayed(r.box)}}})
	}
}

// stray is a run of words in a direction other than the page's, in display
// coordinates.
type stray struct {
	box
	text    string
	dropped bool
}

func (s *sheet) joinStrays(words []word) {
	for i := 0; i < len(words); {
		j := i + 1
		var text strings.Builder
		text.WriteString(s.page.str(&words[i]))
		b := box{words[i].x0, words[i].y0, words[i].x1, words[i].y1}
		for ; j < len(words) && words[j].turn == words[i].turn && !words[j].brk; j++ {
			text.WriteByte(' ')
			text.WriteString(s.page.str(&words[j]))
			b = b.union(box{words[j].x0, words[j].y0, words[j].x1, words[j].y1})
		}
		s.strayRuns = append(s.strayRuns, stray{box: b, text: text.String()})
		i = j
	}
}

// release drops what nearby pages no longer need.
func (s *sheet) release() {
	*s = sheet{number: s.number, page: s.page, facts: s.facts, read: s.read}
	if s.page != nil {
		s.page = &wordPage{text: s.page.text}
	}
}

// needsOCR is the code of a page that OCR could read.
const needsOCR = "needs_ocr"

// stamped reports whether the page is a scan whose only text lies along its edges, as
// courts, fax machines and signing services print it onto the pages they pass on.
func (s *sheet) stamped() bool {
	if s.page.chars > stampChars || s.imageShare < scanShare {
		return false
	}
	top, side := stampZone*s.height, stampSide*s.width
	for i := range s.blocks {
		for _, sp := range s.blocks[i].Spans {
			b := sp.Box
			if s.blocks[i].Kind != sheaf.BlockImage && b.Y1 > top && b.Y0 < s.height-top && b.X1 > side && b.X0 < s.width-side {
				return false
			}
		}
	}
	return true
}

func (s *sheet) result() sheaf.UnitResult {
	u := sheaf.UnitResult{Unit: s.number, Label: s.label, Width: s.width, Height: s.height, Status: sheaf.UnitOK, Blocks: s.blocks, Running: s.running, Warnings: s.warnings}
	silent := true // an "ok" page has something to read
	for i := range s.blocks {
		silent = silent && s.blocks[i].Kind == sheaf.BlockImage
	}
	switch {
	case s.failure != nil:
		u.Status, u.Code, u.Message = sheaf.UnitFailed, s.failure.Code, s.failure.Message
	case silent && len(s.images) == 0 && s.objects < fewObjects:
		u.Status = sheaf.UnitBlank
	case silent, s.page.chars < fewChars && s.imageShare >= 0.5, s.stamped():
		// Any text is kept: a stamp on a scan may name the case.
		u.Status, u.Code = sheaf.UnitSkipped, needsOCR
		u.Message = "The page is a picture or a drawing without a text layer; install tesseract where the executors run and retry, or upload a copy with text."
	}
	if s.hidden > 0 {
		u.Warnings = append(u.Warnings, sheaf.Warning{Code: "text_off_page", Page: s.number, Message: fmt.Sprintf("Words outside of the visible page (%d) were left out.", s.hidden)})
	}
	if s.truncated {
		u.Warnings = append(u.Warnings, sheaf.Warning{Code: "page_truncated", Page: s.number, Message: "The page holds more characters or drawings than are read; its end is missing."})
	}
	return u
}
