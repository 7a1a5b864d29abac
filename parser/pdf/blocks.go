package pdf

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf"
)

// writer turns a sheet's lines into blocks.
type writer struct {
	sheet   *sheet
	body    body
	outline *outline
	blocks  []sheaf.Block

	// the block being written
	kind    sheaf.BlockKind
	level   int
	text    []byte
	spans   []sheaf.Span
	links   []sheaf.Link
	lines   int
	firstX  float32 // where its first line starts
	restX   float32 // where its other lines start
	h       float32
	bold    bool
	before  *line // its last line
	number  bool  // a heading that carries a number
	charW   float32
	regionB box
	pitch   float32 // usual distance of lines in the region
	bolds   int     // bold lines of one size that begin with the line at hand

	least, most int // body heights, in quarter points, between which everything is classified the same
}

// atLeast reports whether a height is at least times the body's, and records for
// which other body heights the answer would be the same.
func (w *writer) atLeast(h, times float32) bool {
	is := func(quarters int) bool { return h/max(float32(quarters)/4, 1) >= times }
	last := min(int(4*h/times)+1, mostQuarters) // the largest body for which it holds
	for last > 0 && !is(last) {
		last--
	}
	if is(quarters(w.body.h)) {
		w.most = min(w.most, last)
		return true
	}
	w.least = max(w.least, last+1)
	return false
}

// write turns all regions into blocks. Headings are larger than the body, or bold
// and alone on their line. The level follows from the leading number ("2.1" is
// level 2), otherwise from the size, independent of which pages were read together.
func (w *writer) write() {
	for r := range w.sheet.regions {
		w.region(&w.sheet.regions[r])
	}
}

func (w *writer) region(r *region) {
	w.regionB = r.box
	w.pitch = r.pitch
	for i := 0; i < len(r.lines); i++ {
		l := &r.lines[i]
		if l.table >= 0 {
			w.flush()
			w.blocks = append(w.blocks, w.sheet.tableBlock(&w.sheet.tables[l.table]))
			continue
		}
		if len(l.segs) > 1 {
			if t, end := w.streamTable(r.lines, i); end > i {
				w.flush()
				w.blocks = append(w.blocks, w.sheet.tableBlock(&t))
				i = end - 1
				continue
			}
		}
		var next *line
		if i+1 < len(r.lines) {
			next = &r.lines[i+1]
		}
		w.bolds = boldRun(r.lines[i:])
		w.line(l, next)
	}
	w.flush()
}

// usualPitch is the median distance between neighbouring lines of similar height.
func usualPitch(lines []line) float32 {
	var d []float32
	for i := 1; i < len(lines); i++ {
		a, b := &lines[i-1], &lines[i]
		if a.table >= 0 || b.table >= 0 {
			continue
		}
		if p := b.y0 - a.y0; p > 0 && a.h < 1.1*b.h && b.h < 1.1*a.h && p < 2.5*b.h {
			d = append(d, p)
		}
	}
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// line adds a line to the block being written, or starts another.
func (w *writer) line(l, next *line) {
	kind, level, number, skip := w.classify(l)
	if kind == sheaf.BlockCode && w.kind != "" && w.kind != sheaf.BlockCode && !w.ended(w.before) && w.full(w.before) &&
		l.y0-w.before.y0 < 1.2*max(w.pitch, l.h) && (w.lines < 2 || l.x0 < w.restX+2) {
		kind = sheaf.BlockParagraph // a sentence that ends in a literal
	}
	if w.kind != "" && !w.continues(l, kind, number) {
		w.flush()
	}
	if w.kind == "" {
		w.start(l, kind, level, number)
		w.append(l, skip)
		return
	}
	w.append(l, 0)
}

func (w *writer) start(l *line, kind sheaf.BlockKind, level int, number bool) {
	w.kind, w.level, w.number = kind, level, number
	w.firstX, w.restX = l.x0, -1
	w.h, w.bold = l.h, l.bold
	w.lines = 0
	w.text, w.spans, w.links = w.text[:0], nil, nil
	if l.chars > 0 {
		w.charW = (l.x1 - l.x0) / float32(l.chars+l.words-1)
	}
}

// classify determines what a line is if it starts a block. skip is the number of
// words in a list item's bullet.
func (w *writer) classify(l *line) (kind sheaf.BlockKind, level int, number bool, skip int) {
	if l.mono && !w.body.mono {
		return sheaf.BlockCode, 0, false, 0
	}
	first := &l.segs[0]
	if w.caption(l) {
		return sheaf.BlockCaption, 0, false, 0
	}
	if w.heading(l) {
		depth := w.numberDepth(first)
		return sheaf.BlockHeading, w.headingLevel(l, depth), depth > 0, 0
	}
	switch w.marker(first) {
	case markBullet:
		if l.words > 1 {
			return sheaf.BlockListItem, w.indent(l), false, 1
		}
	case markNumber:
		if l.words > 1 {
			return sheaf.BlockListItem, w.indent(l), false, 0
		}
	}
	if l.y0 > 0.55*w.sheet.h && w.noteMark(first) && !w.atLeast(l.h, 0.92) {
		return sheaf.BlockFootnote, 0, false, 0
	}
	return sheaf.BlockParagraph, 0, false, 0
}

// heading reports whether a line is one. What the body's height does not change is
// decided first: most lines are too long, and none of these narrows the heights for
// which the page stands.
func (w *writer) heading(l *line) bool {
	if l.chars > headingChars || l.dots || w.letters(l) < 2 {
		return false
	}
	last, ratio := w.lastRune(l), float32(headingRatio)
	sentence := last == '.' || last == ',' || last == ';'
	if sentence {
		ratio = sentenceRatio
	}
	if w.atLeast(l.h, ratio) {
		return !w.namesNothing(l, true)
	}
	return l.bold && !w.body.bold && l.chars <= boldChars && !sentence && last != ':' && w.bolds <= mostHeadingLines &&
		!w.namesNothing(l, false) && w.atLeast(l.h, boldRatio)
}

// boldRun counts the leading lines that are bold, of one size, and set like one
// paragraph.
func boldRun(lines []line) int {
	n := 0
	for n < len(lines) && n <= mostHeadingLines {
		l := &lines[n]
		if !l.bold || l.table >= 0 || n > 0 && (l.h > 1.08*lines[0].h || lines[0].h > 1.08*l.h || l.y0-lines[n-1].y0 > 1.5*l.h) {
			break
		}
		n++
	}
	return n
}

// namesNothing reports whether the text of a line in large or bold letters rules
// out a heading: an address, a table header, a date, a unit.
func (w *writer) namesNothing(l *line, large bool) bool {
	if !large && len(l.segs) > 1 && (len(l.segs) > 2 || l.segs[0].words > 1) {
		return true // cells
	}
	text := w.sheet.lineText(l)
	if strings.ContainsAny(text, "@") || strings.Contains(text, "://") || strings.Contains(text, "www.") {
		return true
	}
	if !large && text[0] == '(' && text[len(text)-1] == ')' {
		return true // the unit of a table
	}
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if !slices.Contains(dateWords, word) {
			return false
		}
	}
	return true
}

// dateWords are the words of lines that consist only of a date.
var dateWords = []string{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
	"as", "at", "of", "the", "for", "and", "year", "years", "month", "months", "quarter", "ended", "three", "six", "nine", "twelve", "fiscal"}

// indent is a list item's nesting level, from its start within its column.
func (w *writer) indent(l *line) int {
	return min(max(1+int((l.x0-w.regionB.x0)/max(2*l.h, 8)), 1), 4)
}

func (w *writer) headingLevel(l *line, depth int) int {
	if w.outline != nil {
		if level := w.outline.level(w.sheet.lineText(l)); level > 0 {
			return min(level, 6)
		}
	}
	switch {
	case depth > 0:
		return min(depth, 6)
	case w.atLeast(l.h, 1.9):
		return 1
	case w.atLeast(l.h, 1.5):
		return 2
	case w.atLeast(l.h, 1.25):
		return 3
	case w.atLeast(l.h, 1.1):
		return 4
	}
	return 5
}

// continues reports whether a line belongs to the block being written.
func (w *writer) continues(l *line, kind sheaf.BlockKind, number bool) bool {
	p := w.before
	drop := l.y0 - p.y0
	if drop < -0.5*l.h { // a new column, or text set above
		return false
	}
	pitch := w.pitch
	if pitch <= 0 || pitch < 0.7*l.h || w.atLeast(w.h, 1.1) {
		pitch = 1.25 * max(l.h, w.h)
	}
	like := l.h < 1.08*w.h && w.h < 1.08*l.h
	switch w.kind {
	case sheaf.BlockCode:
		return kind == sheaf.BlockCode && drop < 3*max(pitch, l.h)
	case sheaf.BlockHeading:
		return kind == sheaf.BlockHeading && !number && like && l.bold == w.bold && drop < 1.5*max(pitch, l.h) && w.lines < 4
	}
	if kind == sheaf.BlockHeading && (l.h > 1.1*w.h || l.bold && !w.bold) ||
		kind == sheaf.BlockCode || kind == sheaf.BlockListItem || kind == sheaf.BlockCaption ||
		kind == sheaf.BlockFootnote && w.kind != sheaf.BlockFootnote {
		if kind != sheaf.BlockListItem || !w.runsOn(l, drop, pitch) {
			return false
		}
	}
	if kind == sheaf.BlockFootnote && w.kind == sheaf.BlockFootnote && w.before != nil {
		return false
	}
	if drop > 1.35*pitch || l.h > 1.25*w.h || w.h > 1.25*l.h {
		return false
	}
	if p.dots || l.dots {
		return false // a table of contents: one entry per line
	}
	em := max(l.h, 6) * 0.75
	if w.rtlLine(l) {
		return true // the start is on the other side; the gaps above decide
	}
	if w.lines == 1 {
		switch {
		case l.x0 > w.firstX+em: // deeper than the first line: hanging, or a new paragraph
			return w.kind == sheaf.BlockListItem || w.kind == sheaf.BlockFootnote || w.kind == sheaf.BlockCaption || !w.ended(p) && w.full(p)
		case l.x0 < w.firstX-em:
			return (w.kind == sheaf.BlockParagraph || w.kind == sheaf.BlockFootnote) && w.full(p) || w.kind == sheaf.BlockCaption
		}
		return !w.ended(p) || w.full(p)
	}
	switch {
	case l.x0 > w.restX+em:
		return !w.ended(p) && w.full(p) && l.x0 < w.restX+4*em
	case l.x0 < w.restX-em:
		return w.kind != sheaf.BlockListItem && !w.ended(p) && w.full(p)
	}
	return !w.ended(p) || w.full(p)
}

// runsOn accepts a line that only looks like a list item: "(2) and" or "3." in
// mid-sentence.
func (w *writer) runsOn(l *line, drop, pitch float32) bool {
	if w.kind != sheaf.BlockParagraph || w.marker(&l.segs[0]) != markNumber || drop > 1.2*pitch {
		return false
	}
	return !w.ended(w.before) && w.full(w.before) && l.x0 <= w.regionB.x0+1
}

// full reports whether a line reaches far enough to the right to continue on the next.
func (w *writer) full(l *line) bool {
	return l.x1 >= w.regionB.x1-0.18*(w.regionB.x1-w.regionB.x0)
}

// ended reports whether a line ends a sentence.
func (w *writer) ended(l *line) bool {
	switch w.lastRune(l) {
	case '.', '!', '?', ':', '。', '！', '？', ';':
		return true
	}
	return false
}

func (w *writer) lastWord(l *line) string {
	g := &l.segs[len(l.segs)-1]
	return w.sheet.page.str(&w.sheet.page.words[g.last])
}

func (w *writer) lastRune(l *line) rune {
	t := strings.TrimRight(w.lastWord(l), `"')]»”’`)
	r, _ := utf8.DecodeLastRuneInString(t)
	return r
}

func (w *writer) rtlLine(l *line) bool {
	for i := range l.segs {
		if l.segs[i].rtl {
			return true
		}
	}
	return false
}

func (w *writer) letters(l *line) int {
	n := 0
	for q := range l.segs {
		for i := l.segs[q].first; i <= l.segs[q].last; i++ {
			for _, r := range w.sheet.page.str(&w.sheet.page.words[i]) {
				if unicode.IsLetter(r) {
					if n++; n >= 2 {
						return n
					}
				}
			}
		}
	}
	return n
}

// append adds a line's words to the block's text, with one span per line.
func (w *writer) append(l *line, skip int) {
	w.before = l
	w.lines++
	if w.lines == 2 {
		w.restX = l.x0
	}
	page := w.sheet.page
	first := true
	var start int
	if w.kind == sheaf.BlockCode {
		if len(w.text) > 0 {
			w.text = append(w.text, '\n')
		}
		start = len(w.text)
		if w.charW > 0 {
			for n := min(int((l.x0-w.firstX)/w.charW+0.5), 80); n > 0; n-- {
				w.text = append(w.text, ' ')
			}
		}
		var before *word
		for q := range l.segs {
			for i := l.segs[q].first; i <= l.segs[q].last; i++ {
				t := &page.words[i]
				if before != nil {
					n := 1
					if w.charW > 0 {
						n = min(max(int((t.x0-before.x1)/w.charW+0.5), 1), 80)
					}
					for ; n > 0; n-- {
						w.text = append(w.text, ' ')
					}
				}
				w.text = append(w.text, page.str(t)...)
				before = t
			}
		}
		w.spans = append(w.spans, sheaf.Span{Start: start, End: len(w.text), Box: w.sheet.place(l.box)})
		return
	}
	for q := range l.segs {
		for i := l.segs[q].first; i <= l.segs[q].last; i++ {
			if skip > 0 {
				skip--
				continue
			}
			t := page.str(&page.words[i])
			if l.dots && isDots(t) {
				continue // leaders carry no text
			}
			if first {
				w.join(t)
				start = len(w.text)
			} else {
				w.text = append(w.text, ' ')
			}
			w.text = append(w.text, t...)
			if len(w.sheet.links) > 0 {
				w.link(&page.words[i], len(t))
			}
			first = false
		}
	}
	if !first {
		w.spans = append(w.spans, sheaf.Span{Start: start, End: len(w.text), Box: w.sheet.place(l.box)})
	}
}

// link records the target of the word of n bytes that ends the text. Adjacent words
// with the same target form one link.
func (w *writer) link(t *word, n int) {
	for _, l := range w.sheet.links {
		if !l.holds((t.x0+t.x1)/2, (t.y0+t.y1)/2) {
			continue
		}
		to := sheaf.Link{Start: len(w.text) - n, End: len(w.text), URI: l.uri}
		if l.uri == "" {
			to.Page = l.page
		}
		if k := len(w.links) - 1; k >= 0 && w.links[k].URI == to.URI && w.links[k].Page == to.Page && to.Start-w.links[k].End <= 1 {
			w.links[k].End = to.End
		} else {
			w.links = append(w.links, to)
		}
		return
	}
}

// join ends the previous line: with a space, or, if it ended in mid-word, by
// removing the hyphen.
func (w *writer) join(next string) {
	if len(w.text) == 0 {
		return
	}
	last, n := utf8.DecodeLastRune(w.text)
	head, _ := utf8.DecodeRuneInString(next)
	switch {
	case last == '-' || last == '\u2010':
		texts := w.sheet.texts
		if w.kind == sheaf.BlockHeading {
			texts = nil // the result does not depend on how the document is cut
		}
		if w.sheet.broken(lastWord(w.text), next, texts) {
			w.text = w.text[:len(w.text)-n]
			if k := len(w.spans); k > 0 {
				w.spans[k-1].End = min(w.spans[k-1].End, len(w.text))
			}
			if k := len(w.links); k > 0 {
				w.links[k-1].End = min(w.links[k-1].End, len(w.text))
			}
		}
		if unicode.IsLetter(head) || unicode.IsDigit(head) {
			return // a compound keeps its hyphen, without a space
		}
	case isCJK(last) && isCJK(head):
		return // written without spaces
	}
	w.text = append(w.text, ' ')
}

func isCJK(r rune) bool {
	return r >= 0x2E80 && r <= 0x9FFF || r >= 0xF900 && r <= 0xFAFF || r >= 0xFF00 && r <= 0xFF60 || r >= 0x20000 && r <= 0x3FFFF
}

func (w *writer) flush() {
	if w.kind != "" && len(w.text) > 0 {
		w.blocks = append(w.blocks, sheaf.Block{Kind: w.kind, Level: w.level, Page: w.sheet.number, Text: string(w.text), Spans: w.spans, Links: w.links})
	}
	w.kind = ""
	w.spans, w.links = nil, nil
	w.text = w.text[:0]
}

type mark int

const (
	markNone mark = iota
	markBullet
	markNumber
)

const bullets = "•◦▪‣·●○■□◆◇►▶➢➤✓✔★❖∙⁃–—-*\uf0a7\uf0b7\uf0d8\uf076"

// marker recognises the mark in front of a list item.
func (w *writer) marker(g *seg) mark {
	if g.table >= 0 {
		return markNone
	}
	t := w.sheet.page.str(&w.sheet.page.words[g.first])
	if utf8.RuneCountInString(t) == 1 && strings.Contains(bullets, t) {
		return markBullet
	}
	if len(t) < 2 || len(t) > 6 {
		return markNone
	}
	inner := t
	switch {
	case t[0] == '(' && t[len(t)-1] == ')':
		inner = t[1 : len(t)-1]
	case t[0] == '[' && t[len(t)-1] == ']':
		inner = t[1 : len(t)-1]
	case t[len(t)-1] == '.' || t[len(t)-1] == ')':
		inner = t[:len(t)-1]
	default:
		return markNone
	}
	digits, roman := true, true
	for _, r := range inner {
		digits = digits && r >= '0' && r <= '9'
		roman = roman && strings.ContainsRune("ivxlc", unicode.ToLower(r))
	}
	if inner != "" && (digits && len(inner) <= 3 || roman || len(inner) == 1 && unicode.IsLetter(rune(inner[0])) && (t[len(t)-1] != '.' || inner[0] >= 'a')) { // "A. Smith" is a name
		return markNumber
	}
	return markNone
}

// numberDepth counts the parts of a heading's number: 2 for "3.1", 0 for none.
func (w *writer) numberDepth(g *seg) int {
	t := strings.TrimSuffix(w.sheet.page.str(&w.sheet.page.words[g.first]), ".")
	if t == "" || g.words < 2 && len(t) > 3 {
		return 0
	}
	depth := 0
	for part := range strings.SplitSeq(t, ".") {
		if part == "" || len(part) > 3 {
			return 0
		}
		for i := range len(part) {
			c := part[i]
			if c >= '0' && c <= '9' || depth == 0 && len(part) == 1 && c >= 'A' && c <= 'H' && strings.Contains(t, ".") {
				continue
			}
			return 0
		}
		depth++
	}
	return depth
}

// noteMark recognises the number or sign in front of a footnote.
func (w *writer) noteMark(g *seg) bool {
	t := w.sheet.page.str(&w.sheet.page.words[g.first])
	r, n := utf8.DecodeRuneInString(t)
	if strings.ContainsRune("*†‡§¶¹²³", r) {
		return true
	}
	k := 0
	for k < len(t) && t[k] >= '0' && t[k] <= '9' {
		k++
	}
	if k == 0 || k > 3 {
		return false
	}
	r, _ = utf8.DecodeRuneInString(t[k:])
	return (k == len(t) && g.words > 1 || unicode.IsUpper(r)) && n > 0
}

var captionWords = []string{"figure", "fig", "fig.", "table", "tab.", "chart", "exhibit", "plate", "abbildung", "abb.", "tabelle", "tableau", "figura", "tabla", "图", "表", "図"}

// caption recognises "Figure 3" or "Table A.1:" at the start of a line.
func (w *writer) caption(l *line) bool {
	g := &l.segs[0]
	t := strings.ToLower(strings.TrimRight(w.sheet.page.str(&w.sheet.page.words[g.first]), ":"))
	if !slices.Contains(captionWords, t) || l.words < 2 {
		return false
	}
	next := ""
	if g.first < g.last {
		next = w.sheet.page.str(&w.sheet.page.words[g.first+1])
	} else if len(l.segs) > 1 {
		next = w.sheet.page.str(&w.sheet.page.words[l.segs[1].first])
	}
	digits := strings.ContainsAny(next, "0123456789") && len(next) <= 8
	// "Figure 3 shows" is a sentence; a caption has a mark or ends there.
	return digits && (strings.ContainsAny(next[len(next)-1:], ".:–-|)") || l.words == 2 || l.bold || w.upperAfter(l))
}

// upperAfter reports whether the third word of a line starts with a capital.
func (w *writer) upperAfter(l *line) bool {
	g := &l.segs[0]
	var t string
	switch {
	case g.first+2 <= g.last:
		t = w.sheet.page.str(&w.sheet.page.words[g.first+2])
	case len(l.segs) > 1:
		t = w.sheet.page.str(&w.sheet.page.words[l.segs[1].first])
	}
	r, _ := utf8.DecodeRuneInString(t)
	return unicode.IsUpper(r)
}

// outline gives headings the level of the bookmark with the same title.
type outline struct {
	levels map[string]int // by headingKey; -1 where two levels share a title
}

// headings loads the bookmarks once per open document.
func (d *document) headings() *outline {
	if d.outline != nil {
		return d.outline
	}
	d.outline = &outline{levels: map[string]int{}}
	if d.doc == nil {
		return d.outline
	}
	marks, err := d.doc.Outline(maxBookmarks, false)
	if err != nil { // the next page is read with a fresh engine document
		_ = d.doc.Close()
		d.doc = nil
	}
	for _, m := range marks {
		key := headingKey(m.Title)
		d.outline.add(key, m.Level)
		if bare := strings.TrimLeft(key, "0123456789"); bare != key && len(bare) >= 6 {
			d.outline.add(bare, m.Level)
		}
	}
	return d.outline
}

func (o *outline) add(key string, level int) {
	if known, ok := o.levels[key]; ok && known != level {
		level = -1
	}
	o.levels[key] = level
}

// level returns the level of the bookmark with the line's text, 0 if there is none.
// Either may lack the leading number.
func (o *outline) level(text string) int {
	if len(o.levels) == 0 {
		return 0
	}
	key := headingKey(text)
	if len(key) < 3 {
		return 0
	}
	level, ok := o.levels[key]
	if bare := strings.TrimLeft(key, "0123456789"); !ok && len(bare) >= 6 {
		level = o.levels[bare]
	}
	return max(level, 0)
}

// headingKey keeps letters and digits, in lower case.
func headingKey(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}
