package pdf

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/cespare/xxhash/v2"

	"sheaf/parser"
)

// Two properties of a page depend on other pages: the size of the body text, by
// which headings and their levels are recognized, and which lines at its edges are
// running headers and footers. Both are decided from the page and nearby pages, so
// that a file in which small print follows large is read by both sizes.
//
// A range is read without the pages around it. It decides from its own pages, and
// reports their facts, its decisions, and the body sizes between which its lines
// would be classified the same. Once all ranges have reported, Agree decides again
// from all pages; a range is read again only if its headings would differ.

// nearby is how many pages on either side influence a page: as many as a range of
// the usual size has.
const nearby = rangeSize - 1

// mostQuarters is the largest height distinguished, in quarter points.
const mostQuarters = 399

// maxSizes limits the letter sizes that a page reports.
const maxSizes = 40

// facts are what nearby pages need to know of a page.
type facts struct {
	sizes []sizeFact
	edges [2][]edgeFact // top and bottom, from the edge inwards
	stray []string      // keys of text along the margin; not reported
}

// sizeFact counts the characters of lines of one height, in quarter points.
type sizeFact struct{ quarters, chars, bold, mono int }

// edgeFact is a line that may be a running header or footer.
type edgeFact struct {
	key      uint64 // of its text, ignoring numbers; 0 for none
	quarters int    // height
	number   bool   // a number alone
	own      bool   // the number is that of the page
	apart    bool   // separated from the previous line by white space
	tabular  bool   // the head of a table
	title    bool   // its text could be a heading
	bold     bool
	table    bool // its presence determines where tables are; known once the page is laid out
}

// decision is what nearby pages imply for a page.
type decision struct {
	Quarters int // height of the body's letters
	Bold     bool
	Mono     bool
	Dropped  [2]int // running lines at the top and the bottom
}

func (d decision) body() body { return body{h: float32(d.Quarters) / 4, bold: d.Bold, mono: d.Mono} }

// report is what a range reports for one of its pages.
type report struct {
	page int
	facts
	decided bool // otherwise the page only contributes to decisions about others
	decision
	least, most int  // body heights between which the lines are classified the same
	bold, mono  bool // it has such lines
}

// gather collects the page's facts for nearby pages.
func (s *sheet) gather() {
	s.read = len(s.regions) > 0
	var by [mostQuarters + 1]sizeFact
	for r := range s.regions {
		for i := range s.regions[r].lines {
			l := &s.regions[r].lines[i]
			if l.table >= 0 {
				continue
			}
			k := &by[quarters(l.h)]
			k.chars += l.chars
			if l.bold {
				k.bold += l.chars
			}
			if l.mono {
				k.mono += l.chars
			}
		}
	}
	for q, f := range by {
		if f.chars > 0 {
			f.quarters = q
			s.facts.sizes = append(s.facts.sizes, f)
		}
	}
	if len(s.facts.sizes) > maxSizes {
		slices.SortStableFunc(s.facts.sizes, func(a, b sizeFact) int { return cmp.Compare(b.chars, a.chars) })
		s.facts.sizes = s.facts.sizes[:maxSizes]
	}
	w := writer{sheet: s}
	for e := range s.edges {
		s.edges[e] = s.edge(e == 1)
		for k, l := range s.edges[e] {
			at := &s.regions[l.region].lines[l.line]
			f := edgeFact{quarters: quarters(at.h), number: l.key == "#", own: l.key == "#" && s.ownNumber(at), tabular: l.tabular, bold: at.bold}
			if l.key != "" {
				f.key = xxhash.Sum64String(l.key) | 1
			}
			f.apart = k > 0 && s.apart(s.edges[e][k-1], l)
			f.title = at.chars <= headingChars && !at.dots && w.letters(at) >= 2
			s.facts.edges[e] = append(s.facts.edges[e], f)
		}
	}
	for _, r := range s.strayRuns {
		s.facts.stray = append(s.facts.stray, runningKey(r.text))
	}
}

func quarters(h float32) int { return min(int(h*4+0.5), mostQuarters) }

// decide derives the decision for a page from the pages around it.
func (f *facts) decide(around []*facts) (d decision) {
	b := bodyOf(around)
	d.Quarters, d.Bold, d.Mono = quarters(b.h), b.bold, b.mono
	for e := range f.edges {
		for k, l := range f.edges[e] {
			if !l.repeats(e, around) || k > 0 && l.apart {
				break // a repeated sentence may also start the body
			}
			d.Dropped[e]++
		}
	}
	return d
}

// repeats decides whether a line at an edge is a running line.
func (l *edgeFact) repeats(edge int, around []*facts) bool {
	if l.key == 0 || l.tabular {
		return false
	}
	count := 0
	for _, f := range around {
		if slices.ContainsFunc(f.edges[edge], func(o edgeFact) bool { return o.key == l.key }) {
			count++
		}
	}
	if count >= 3 && count*4 >= len(around) {
		return true
	}
	// A lone number at the edge is the page number if neighbouring pages have one
	// too, or if it matches the page's own.
	return l.number && (count >= 2 || l.own)
}

// stands reports whether a decision from all pages gives the page the same headings
// as that of its range.
func (r *report) stands(d decision) bool {
	if d.Quarters < r.least || d.Quarters > r.most || r.bold && d.Bold != r.decision.Bold || r.mono && d.Mono != r.decision.Mono {
		return false
	}
	for e, lines := range r.edges {
		from, to := min(d.Dropped[e], r.Dropped[e]), max(d.Dropped[e], r.Dropped[e])
		if to > len(lines) || slices.ContainsFunc(lines[from:to], func(l edgeFact) bool { return l.table || l.heading(d.body()) }) {
			return false
		}
	}
	return true
}

// heading reports whether the line could be a heading given such a body.
func (l *edgeFact) heading(b body) bool {
	ratio := (float32(l.quarters) + 1) / 4 / max(b.h, 1) // heights are rounded
	return l.title && (ratio >= headingRatio || l.bold && !b.bold && ratio >= boldRatio)
}

// widest is how far around the page's body height, in quarter points, widen looks.
// The body of one text is measured within this, and more is another text.
const widest = 3

// widen extends the body heights for which the page stands over those that would
// give it the same blocks: a comparison that turned out otherwise often changes
// nothing, and a range that need not be read again costs nothing.
func (w *writer) widen() {
	body := quarters(w.body.h)
	at := func(q int) *writer {
		v := &writer{sheet: w.sheet, body: w.body, outline: w.outline, least: 1, most: mostQuarters}
		v.body.h = float32(q) / 4
		if v.write(); !reflect.DeepEqual(v.blocks, w.blocks) {
			return nil
		}
		return v
	}
	for w.most < min(body+widest, mostQuarters) {
		v := at(w.most + 1)
		if v == nil {
			break
		}
		w.most = v.most
	}
	for w.least > max(body-widest, 1) {
		v := at(w.least - 1)
		if v == nil {
			break
		}
		w.least = v.least
	}
}

// edgesInTables notes which lines at the page's edges affect where tables are.
func (w *writer) edgesInTables() {
	s := w.sheet
	for e := range s.edges {
		for k, at := range s.edges[e] {
			lines := s.regions[at.region].lines
			cells := 0
			for i := range lines {
				if len(lines[i].segs) > 1 {
					cells++
				}
			}
			if cells < minStreamRows {
				continue
			}
			remaining := func(dropped []runningLine) (out []line, n int) {
				for i := range lines {
					if i == at.line {
						n = len(out)
					}
					if !slices.ContainsFunc(dropped, func(o runningLine) bool { return o.region == at.region && o.line == i }) {
						out = append(out, lines[i])
					}
				}
				return out, n
			}
			with, n := remaining(s.edges[e][:k])
			without, _ := remaining(s.edges[e][:k+1])
			in := w.inTables(with)
			s.facts.edges[e][k].table = in[n] || !slices.Equal(slices.Delete(in, n, n+1), w.inTables(without))
		}
	}
}

// inTables reports which lines of a region are in tables drawn with white space.
func (w *writer) inTables(lines []line) []bool {
	in := make([]bool, len(lines))
	for i := 0; i < len(lines); i++ {
		if _, end := w.streamTable(lines, i); end > i {
			for ; i < end; i++ {
				in[i] = true
			}
			i--
		}
	}
	return in
}

// Agree implements parser.Agreeing.
func (f *format) Agree(layouts [][]byte) []json.RawMessage {
	ranges := make([][]report, len(layouts))
	pages := map[int]*facts{}
	for i, b := range layouts {
		ranges[i] = readReports(b)
		for k := range ranges[i] {
			pages[ranges[i][k].page] = &ranges[i][k].facts
		}
	}
	around := make([]*facts, 0, 2*nearby+1)
	decide := func(r *report) decision {
		around = around[:0]
		for n := r.page - nearby; n <= r.page+nearby; n++ {
			if f := pages[n]; f != nil {
				around = append(around, f)
			}
		}
		return r.decide(around)
	}
	hints := make([]json.RawMessage, len(layouts))
	for i, reports := range ranges {
		stands := true // nearly always, in a new version of a document
		for k := range reports {
			if r := &reports[k]; r.decided && !r.stands(decide(r)) {
				stands = false
				break
			}
		}
		if stands {
			continue
		}
		agreed := map[int]decision{}
		for k := range reports {
			if r := &reports[k]; r.decided {
				agreed[r.page] = decide(r)
			}
		}
		hints[i], _ = json.Marshal(agreed) // plain fields always encode
	}
	return hints
}

var _ parser.Agreeing = (*format)(nil)

// append writes a report in the format of readReports.
func (r *report) append(b []byte) []byte {
	num := func(values ...int) {
		for _, v := range values {
			b = binary.AppendUvarint(b, uint64(max(v, 0)))
		}
	}
	num(r.page, bits(r.decided, r.decision.Bold, r.decision.Mono, r.bold, r.mono), r.Quarters, r.Dropped[0], r.Dropped[1], r.least, r.most, len(r.sizes))
	for _, s := range r.sizes {
		num(s.quarters, s.chars, s.bold, s.mono)
	}
	for _, lines := range r.edges {
		num(len(lines))
		for _, l := range lines {
			num(l.quarters, bits(l.number, l.own, l.apart, l.title, l.bold, l.tabular, l.table))
			b = binary.LittleEndian.AppendUint64(b, l.key)
		}
	}
	return b
}

func bits(flags ...bool) (n int) {
	for i, f := range flags {
		if f {
			n |= 1 << i
		}
	}
	return n
}

// readReports reads reports up to the end, or up to damaged data.
func readReports(b []byte) (out []report) {
	ok := true
	num := func() int {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<31 {
			b, ok = nil, false
			return 0
		}
		b = b[n:]
		return int(v)
	}
	for len(b) > 0 {
		var r report
		r.page = num()
		flags := num()
		r.decided, r.decision.Bold, r.decision.Mono, r.bold, r.mono = flags&1 > 0, flags&2 > 0, flags&4 > 0, flags&8 > 0, flags&16 > 0
		r.Quarters, r.Dropped[0], r.Dropped[1], r.least, r.most = num(), num(), num(), num(), num()
		sizes := num()
		if sizes > 0 {
			r.sizes = make([]sizeFact, 0, min(sizes, maxSizes))
		}
		for ; sizes > 0 && ok; sizes-- {
			s := sizeFact{num(), num(), num(), num()}
			s.quarters = min(s.quarters, mostQuarters)
			r.sizes = append(r.sizes, s)
		}
		for e := range r.edges {
			for n := num(); n > 0 && ok; n-- {
				l := edgeFact{quarters: num()}
				flags := num()
				l.number, l.own, l.apart, l.title, l.bold, l.tabular, l.table = flags&1 > 0, flags&2 > 0, flags&4 > 0, flags&8 > 0, flags&16 > 0, flags&32 > 0, flags&64 > 0
				if ok = ok && len(b) >= 8; ok {
					l.key, b = binary.LittleEndian.Uint64(b), b[8:]
				}
				r.edges[e] = append(r.edges[e], l)
			}
		}
		if !ok {
			break
		}
		out = append(out, r)
	}
	return out
}
