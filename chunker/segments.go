package chunker

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"sheaf"
)

// A border ranks how good a place it is to end a chunk after a segment.
type border uint8

const (
	borderGlue     border = iota // only if there is no other place
	borderSentence               // inside a block
	borderItem                   // between list items, rows, groups of code lines
	borderBlock                  // between blocks
	borderHard                   // a chunk always ends here
)

// A frame surrounds a run of segments wherever it is shown: the header above table
// rows, the fences around code.
type frame struct {
	open, close string
	tokens      int // of open and close
}

// A segment is the smallest unit of cutting.
type segment struct {
	block      *sheaf.Block
	text       string // trimmed, never empty
	sep        string // joins it to the previous segment when both are in one chunk
	bare       int    // tokens of text
	tokens     int    // of sep and text
	hash       uint64 // of text
	after      border
	frame      *frame
	path       []string // headings in force
	floor      int      // lowest level of a heading so far, 0 before the first: see sheaf.Floor
	page       int      // of a table row; 0 means the block's
	row        int      // of a table's rows, from 1; -1 is the header as a row, and 0 none of them
	boxes      []sheaf.Box
	start, end int          // of the text in block.Text; 0, 0 in tables
	spans      []sheaf.Span // of the block, including those in the text
	links      []sheaf.Link // likewise
	within     []string     // path of a declaration within a block
	record     *record      // of a row that is a chunk of its own
	pictures   []string     // directly before or after it
}

// splitter walks over the blocks of a range.
type splitter struct {
	set    options
	out    []segment
	levels []int
	titles []string
	path   []string // a copy of titles, shared by the segments below a heading
	floor  int
	report *sheaf.RangeOutline // nil unless requested
	header string              // of the last table, for methods that make a chunk of each row
}

// split turns blocks into segments, each small enough for a chunk of its own.
func split(in Input, set options) []segment {
	var blocks []*sheaf.Block
	units := map[*sheaf.Block]int{} // for blocks that do not carry their unit
	place := map[*sheaf.Block]int{} // which of in.Units each is in
	for i := range in.Units {
		for j := range in.Units[i].Blocks {
			b := &in.Units[i].Blocks[j]
			if b.Table == nil && strings.TrimSpace(b.Text) == "" {
				continue
			}
			blocks = append(blocks, b)
			place[b] = i
			if b.Page == 0 {
				units[b] = in.Units[i].Unit
			}
		}
	}

	front, back := picturesBy(in.Units)
	s := &splitter{set: set, report: in.Outline}
	for i, t := range in.Headings {
		level := i + 1
		if i < len(in.HeadingLevels) {
			level = in.HeadingLevels[i]
		}
		s.levels, s.titles = append(s.levels, level), append(s.titles, titleOf(t))
	}
	s.path = slices.Clone(s.titles)
	var last *sheaf.Block
	for i, b := range blocks {
		first := len(s.out)
		if set.watch.over(0) {
			break
		}
		if b.Kind == sheaf.BlockHeading {
			s.heading(b, b.Page+units[b])
		}
		switch {
		case b.Table != nil && set.row != nil:
			s.records(b, set.row)
		case b.Table != nil:
			s.table(b)
		case b.Kind == sheaf.BlockCode && set.syntax:
			s.syntax(b)
		case b.Kind == sheaf.BlockCode:
			s.code(b)
		default:
			s.text(b)
		}
		if len(s.out) == first {
			continue // a table without any text
		}
		spans, links := spansOf(b), linksOf(b)
		for k := first; k < len(s.out); k++ {
			p := &s.out[k]
			if set.watch.over(len(p.text)) {
				break
			}
			p.block, p.path, p.floor = b, s.path, s.floor
			p.spans = spans(p.start, p.end)
			if p.row != 0 {
				p.links = links(p.rows())
			} else {
				p.links = links(p.start, p.end)
			}
			if p.within != nil {
				p.path = p.within
			}
			p.hash = xxhash.Sum64String(p.text)
			if p.page == 0 {
				p.page = b.Page + units[b]
			}
			if p.bare == 0 {
				p.bare = CountTokens(p.text)
			}
			p.tokens = joinedTokens(p.sep, p.text, p.bare)
		}
		s.out[first].pictures = front[b]
		if names := back[b]; names != nil {
			p := &s.out[len(s.out)-1]
			p.pictures = append(slices.Clone(p.pictures), names...)
		}
		if first > 0 {
			p, prev := &s.out[first], &s.out[first-1]
			p.sep = "\n\n"
			if b.Kind == sheaf.BlockListItem && last.Kind == sheaf.BlockListItem {
				p.sep = "\n"
			}
			p.tokens = joinedTokens(p.sep, p.text, p.bare)
			switch {
			case set.perUnit && place[b] != place[last]:
				prev.after = borderHard
			case prev.after != borderHard:
				prev.after = s.between(blocks, i, last)
			}
		}
		last = b
	}
	if set.joins() {
		joinShort(s.out)
	}
	return s.out
}

// joinShort lets a text of fewer than leastTokens share a chunk with the table it
// introduces, or otherwise, like the notes of a table, with the one before it: a
// statement's name on its own outranks the statement. Nothing is joined across a
// heading, so that ranges that meet at one give the same chunks as one range over
// both.
func joinShort(segments []segment) {
	var ends []int // of the stretches between hard borders
	var tokens []int
	sum := 0
	first := true
	for i := range segments {
		n := segments[i].tokens
		if first { // as if the range began here: what precedes a stretch does not count
			n = segments[i].bare
		}
		sum += n
		if first = segments[i].after == borderHard; first || i == len(segments)-1 {
			ends, tokens, sum = append(ends, i+1), append(tokens, sum), 0
		}
	}
	// join merges stretches k and k+1; a delimiter set by the user stays a border.
	join := func(k int) bool {
		p, q := &segments[ends[k]-1], &segments[ends[k]]
		if p.block == q.block || p.block.Kind == sheaf.BlockImage || q.block.Kind == sheaf.BlockImage {
			return false
		}
		p.after = borderBlock
		return true
	}
	from := 0
	for k := range len(ends) - 1 {
		introduces := segments[ends[k]].block.Table != nil && segments[ends[k]-1].block.Table == nil
		joined := tokens[k] < leastTokens && introduces && join(k)
		if !joined && k > 0 && tokens[k] < leastTokens {
			joinBack(segments, from, k, join)
		}
		from = ends[k]
	}
	if k := len(ends) - 1; k > 0 && tokens[k] < leastTokens {
		joinBack(segments, from, k, join)
	}
}

// joinBack joins stretch k, which starts at from, to a table before it.
func joinBack(segments []segment, from, k int, join func(int) bool) {
	if b := segments[from].block; b.Table == nil && b.Kind != sheaf.BlockHeading && segments[from-1].block.Table != nil {
		join(k - 1)
	}
}

// fewPlaces is the number of lines and links of a block up to which each segment
// scans them all.
const fewPlaces = 32

// within returns a function that drops the places wholly before from or after to.
// Otherwise every segment of a long block would scan all of its places. If places
// are not in order, all are returned.
func within[P any](places []P, start, end func(P) int) func(from, to int) []P {
	ordered := len(places) > fewPlaces && slices.IsSortedFunc(places, func(a, b P) int {
		return max(cmp.Compare(start(a), start(b)), cmp.Compare(end(a), end(b)))
	})
	return func(from, to int) []P {
		if !ordered {
			return places
		}
		first := sort.Search(len(places), func(i int) bool { return end(places[i]) > from })
		n := sort.Search(len(places)-first, func(i int) bool { return start(places[first+i]) >= to })
		return places[first : first+n]
	}
}

func spansOf(b *sheaf.Block) func(from, to int) []sheaf.Span {
	return within(b.Spans, func(s sheaf.Span) int { return s.Start }, func(s sheaf.Span) int { return s.End })
}

// linksOf is like spansOf; a table's links refer to rows.
func linksOf(b *sheaf.Block) func(from, to int) []sheaf.Link {
	return within(b.Links, func(l sheaf.Link) int { return l.Start }, func(l sheaf.Link) int { return l.End })
}

// between ranks the border before blocks[i]; last is the last block before it that
// yielded text.
func (s *splitter) between(blocks []*sheaf.Block, i int, last *sheaf.Block) border {
	b := blocks[i]
	if last.Kind == sheaf.BlockHeading {
		return borderGlue
	}
	if b.Kind == sheaf.BlockHeading {
		if s.set.whole || s.set.gather > 0 && b.Level >= s.set.gather {
			return borderBlock
		}
		return borderHard
	}
	if s.set.quotes && (b.Kind == sheaf.BlockQuote) != (last.Kind == sheaf.BlockQuote) {
		return borderHard
	}
	if captionOf(blocks, i) == last || captionOf(blocks, i-1) == b {
		return borderGlue
	}
	if !s.set.whole && (s.standsAlone(blocks, i) || s.standsAlone(blocks, i-1)) {
		return borderHard
	}
	if b.Kind == sheaf.BlockListItem {
		if last.Kind == sheaf.BlockListItem {
			return borderItem
		}
		if t := strings.TrimSpace(last.Text); strings.HasSuffix(t, ":") || strings.HasSuffix(t, "：") {
			return borderGlue // a list stays with the line that introduces it
		}
	}
	return borderBlock
}

// standsAlone reports whether the block is a table, an image that gets the text
// around it, or the caption of either.
func (s *splitter) standsAlone(blocks []*sheaf.Block, i int) bool {
	b := blocks[i]
	if c := captionOf(blocks, i); c != nil {
		b = c
	}
	return b.Table != nil || b.Kind == sheaf.BlockImage && s.set.imageContext > 0
}

// captionOf returns the neighbour that blocks[i] is the caption of, or nil. By
// convention a caption is below an image and above a table.
func captionOf(blocks []*sheaf.Block, i int) *sheaf.Block {
	if i < 0 || blocks[i].Kind != sheaf.BlockCaption {
		return nil
	}
	var before, after *sheaf.Block
	if i > 0 {
		before = blocks[i-1]
	}
	if i+1 < len(blocks) {
		after = blocks[i+1]
	}
	switch {
	case before != nil && before.Kind == sheaf.BlockImage:
		return before
	case after != nil && (after.Table != nil || after.Kind == sheaf.BlockImage):
		return after
	case before != nil && before.Table != nil:
		return before
	}
	return nil
}

// titleMaxBytes limits a heading in the heading path: if a parser mistakes a
// paragraph for a heading, it must not precede every chunk.
const titleMaxBytes = 240

func (s *splitter) heading(b *sheaf.Block, page int) {
	level := max(b.Level, 1)
	for n := len(s.levels); n > 0 && s.levels[n-1] >= level; n-- {
		s.levels, s.titles = s.levels[:n-1], s.titles[:n-1]
	}
	title := titleOf(b.Text)
	s.levels, s.titles = append(s.levels, level), append(s.titles, title)
	if s.floor == 0 || level < s.floor {
		s.floor = level
	}
	if s.report != nil {
		s.report.Add(sheaf.Heading{Level: level, Title: title, Page: page})
	}
	s.path = slices.Clone(s.titles)
}

// titleOf returns a heading on one line, truncated to titleMaxBytes.
func titleOf(text string) string {
	title := strings.Join(strings.Fields(valid(text)), " ")
	if len(title) > titleMaxBytes {
		cut := titleMaxBytes
		for !utf8.RuneStart(title[cut]) {
			cut--
		}
		title = title[:cut] + "…"
	}
	return title
}

// text adds the segments of a prose block. A block of up to half a chunk stays
// whole, which gives every chunk a border between blocks to end at; with overlap it
// is still cut into sentences, because the next chunk begins with whole ones.
func (s *splitter) text(b *sheaf.Block) {
	text := valid(b.Text)
	next := hardCuts(text, s.set.hard)
	from := 0
	for from < len(text) && !s.set.watch.over(0) {
		to := next(from)
		first := len(s.out)
		tokens, whole := 0, false
		if s.set.overlap == 0 && !s.set.semantic && !s.set.layers {
			tokens, whole = tokensWithin(text[from:to], s.set.limit/2)
		}
		if whole && tokens > 0 {
			s.addCounted(text, from, to, tokens)
		} else {
			s.sentences(text, from, to)
		}
		if to < len(text) && len(s.out) > first {
			s.out[len(s.out)-1].after = borderHard
		}
		from = to
	}
	s.endBlock()
}

// hardCuts returns a function that returns the end of the first hard delimiter at
// or after from, or the end of the text. from must not decrease.
func hardCuts(text string, hard []string) func(from int) int {
	at := make([]int, len(hard)) // where each was last found, so that none is searched for twice
	for i := range at {
		at[i] = -1
	}
	return func(from int) int {
		begin, end := len(text), len(text)
		for i, d := range hard {
			if at[i] < from {
				at[i] = len(text)
				if k := strings.Index(text[from:], d); k >= 0 {
					at[i] = from + k
				}
			}
			if at[i] < begin {
				begin, end = at[i], at[i]+len(d)
			}
		}
		return end
	}
}

func (s *splitter) sentences(text string, from, to int) {
	start := from
	for e := range sentenceEnds(text[from:to], s.set.soft, s.set.watch) {
		end := from + e
		if s.set.watch.over(end - start) {
			return
		}
		sentence := strings.TrimSpace(text[start:end])
		if tokens, fits := tokensWithin(sentence, s.budget()); fits {
			at := start + strings.Index(text[start:end], sentence)
			s.addCounted(text, at, at+len(sentence), tokens)
		} else {
			s.fit(text, start, end, nil)
		}
		start = end
	}
}

// budget is the tokens a segment may take up in a chunk: all but the overlap.
func (s *splitter) budget() int { return s.set.limit - s.set.overlap }

// fit cuts text[from:to], which is too long, at line ends, words or runes.
func (s *splitter) fit(text string, from, to int, f *frame) {
	budget := s.budget()
	if f != nil {
		budget -= f.tokens
	}
	for from < to && !s.set.watch.over(0) {
		end := from + fitting(text[from:to], budget, s.set.watch)
		s.add(text, from, end, borderGlue)
		if n := len(s.out); n > 0 {
			s.out[n-1].frame = f
		}
		from = end
	}
	if n := len(s.out); n > 0 {
		s.out[n-1].after = borderSentence
	}
}

// add appends text[from:to], trimmed; leading white space becomes the separator.
func (s *splitter) add(text string, from, to int, after border) {
	for from < to {
		r, n := utf8.DecodeRuneInString(text[from:to])
		if !unicode.IsSpace(r) {
			break
		}
		from += n
	}
	for from < to {
		r, n := utf8.DecodeLastRuneInString(text[from:to])
		if !unicode.IsSpace(r) {
			break
		}
		to -= n
	}
	if from == to {
		return
	}
	sep := ""
	if n := len(s.out); n > 0 && s.out[n-1].block == nil && s.out[n-1].end <= from {
		// block is set once the block is done: the previous segment is of this block
		sep = text[s.out[n-1].end:from]
	}
	s.out = append(s.out, segment{text: text[from:to], sep: sep, start: from, end: to, after: after})
}

// addCounted is add for one or more sentences when the tokens of text[from:to] are
// known.
func (s *splitter) addCounted(text string, from, to, tokens int) {
	n := len(s.out)
	s.add(text, from, to, borderSentence)
	if len(s.out) > n && s.out[n].start == from && s.out[n].end == to {
		s.out[n].bare = tokens
	}
}

func (s *splitter) endBlock() {
	if n := len(s.out); n > 0 && s.out[n-1].block == nil && s.out[n-1].after != borderHard {
		s.out[n-1].after = borderBlock
	}
}

// code adds a code block, cut between groups of lines if it must be cut.
func (s *splitter) code(b *sheaf.Block) {
	text := valid(b.Text)
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	lang := strings.Join(strings.Fields(valid(b.Lang)), "-")
	if len(lang) > 32 {
		lang = ""
	}
	f := &frame{open: fence + lang + "\n", close: "\n" + fence}
	f.tokens = CountTokens(f.open) + CountTokens(f.close)
	if f.tokens > s.set.limit/4 {
		f = &frame{}
	}
	first := len(s.out)
	budget := s.budget() - f.tokens
	if codeFits(text, budget) {
		s.line(text, 0, len(text), borderBlock)
	} else {
		for from := 0; from < len(text) && !s.set.watch.over(0); {
			// a group of lines ends with a blank line
			to := len(text)
			if i := strings.Index(text[from:], "\n\n"); i >= 0 {
				to = from + i + 2
				for to < len(text) && text[to] == '\n' {
					to++
				}
			}
			if codeFits(text[from:to], budget) {
				s.line(text, from, to, borderItem)
			} else {
				s.lines(text, from, to, budget, f)
			}
			from = to
		}
	}
	for i := first; i < len(s.out); i++ {
		s.out[i].frame = f
	}
	s.endBlock()
}

func (s *splitter) lines(text string, from, to, budget int, f *frame) {
	for from < to && !s.set.watch.over(0) {
		end := to
		if i := strings.IndexByte(text[from:to], '\n'); i >= 0 {
			end = from + i + 1
		}
		if codeFits(text[from:end], budget) {
			s.line(text, from, end, borderSentence)
		} else {
			s.fit(text, from, end, f)
		}
		from = end
	}
	if n := len(s.out); n > 0 && s.out[n-1].block == nil {
		s.out[n-1].after = borderItem
	}
}

// codeFits reports whether code, as line adds it, has at most limit tokens.
func codeFits(s string, limit int) bool {
	_, fits := tokensWithin(strings.TrimRightFunc(strings.TrimLeft(s, "\r\n"), unicode.IsSpace), limit)
	return fits
}

// line is add for code, which keeps its indentation.
func (s *splitter) line(text string, from, to int, after border) {
	if strings.TrimSpace(text[from:to]) == "" {
		return
	}
	for text[from] == '\n' || text[from] == '\r' {
		from++
	}
	to = from + len(strings.TrimRightFunc(text[from:to], unicode.IsSpace))
	sep := ""
	if n := len(s.out); n > 0 && s.out[n-1].block == nil {
		sep = text[s.out[n-1].end:from]
	}
	s.out = append(s.out, segment{text: text[from:to], sep: sep, start: from, end: to, after: after})
}

// valid replaces each invalid UTF-8 byte with a question mark, so that span offsets
// stay correct. Parsers return valid text; this keeps a faulty one from producing a
// chunk that no store accepts.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	b := []byte(s)
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			b[i] = '?'
		}
		i += n
	}
	return string(b)
}
