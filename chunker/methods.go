package chunker

import (
	"slices"
	"strings"

	"sheaf"
)

// A strategy is what distinguishes a chunk method from the others; packing segments
// up to a limit is common to all. The zero value is method general.
type strategy struct {
	// whole makes one chunk of everything up to a hard border, across sections, up
	// to the maximum chunk size.
	whole bool
	// perUnit ends a chunk where a unit ends.
	perUnit bool
	// gather lets sections whose heading is at this level or below share a
	// chunk; 0 lets none.
	gather int
	// quotes keeps quoted text apart from what was written.
	quotes bool
	// outline finds headings that the parser took for paragraphs.
	outline outline
	// contents drops the lines of a printed table of contents.
	contents bool
	// uncut reports, by the innermost heading, which sections stay in one chunk up
	// to the maximum chunk size.
	uncut func(heading string) bool
	// row makes a chunk of each table row.
	row func(t *sheaf.Table, row []string) record
	// syntax cuts code by its declarations.
	syntax bool
	// semantic cuts where the meaning changes most.
	semantic bool
	// layers adds parents and summaries.
	layers bool
	// asks treats the heading of a section as a question.
	asks bool
}

// A record is a table row as a chunk of its own.
type record struct {
	text      string
	columns   map[string]any
	keywords  []string
	questions []string
	tags      []sheaf.Tag
}

var strategies = map[string]strategy{
	"general":      {},
	"naive":        {},
	"one":          {whole: true},
	"qa":           {row: pairRow, asks: true, outline: questions, uncut: func(heading string) bool { return heading != "" }},
	"table":        {row: valuesRow},
	"tag":          {row: tagRow},
	"paper":        {outline: paperSections, uncut: isAbstract},
	"book":         {outline: chapters, contents: true},
	"laws":         {outline: articles},
	"manual":       {outline: numbered, gather: 3},
	"presentation": {whole: true, perUnit: true},
	"picture":      {whole: true, perUnit: true},
	"email":        {perUnit: true, quotes: true},
	"resume":       {outline: resumeSections},
	"audio":        {},
	"semantic":     {semantic: true},
	"hierarchical": {layers: true},
	"code":         {syntax: true},
	"late":         {},
}

// prepare rewrites the blocks the way the method sees them. The input is not changed.
func (st strategy) prepare(in Input, w *watch) Input {
	if st.outline == nil && !st.contents && !st.quotes && !st.syntax {
		return in
	}
	inContents := false
	units := slices.Clone(in.Units)
	for i := range units {
		var blocks []sheaf.Block
		for _, b := range units[i].Blocks {
			if w.over(len(b.Text)) {
				return in
			}
			if b.Page == 0 {
				b.Page = units[i].Unit
			}
			if b.Table != nil || b.Kind == sheaf.BlockCode {
				blocks = append(blocks, b)
				continue
			}
			b.Text = valid(b.Text)
			if st.contents {
				if b, inContents = withoutContents(b, inContents, w); b.Text == "" {
					continue
				}
			}
			parts := []sheaf.Block{b}
			if st.outline != nil {
				parts = headings(b, st.outline, w)
			}
			if st.quotes {
				parts = quoted(parts, w)
			}
			blocks = append(blocks, parts...)
		}
		if st.syntax {
			blocks = joinCode(blocks)
		}
		units[i].Blocks = blocks
	}
	in.Units = units
	return in
}

// part returns the bytes [from, to) of a block as a block of its own.
func part(b sheaf.Block, from, to int) sheaf.Block {
	p := b
	p.Text, p.Spans = b.Text[from:to], nil
	for _, s := range b.Spans {
		if s.Start < to && s.End > from {
			p.Spans = append(p.Spans, sheaf.Span{Start: max(s.Start, from) - from, End: min(s.End, to) - from, Box: s.Box})
		}
	}
	return p
}

// headings cuts a paragraph where find detects a heading at the start of a line.
func headings(b sheaf.Block, find outline, w *watch) []sheaf.Block {
	if b.Kind != sheaf.BlockParagraph && b.Kind != sheaf.BlockListItem && b.Kind != sheaf.BlockQuote {
		return []sheaf.Block{b}
	}
	var out []sheaf.Block
	flush := func(from, to int) {
		if strings.TrimSpace(b.Text[from:to]) != "" {
			out = append(out, part(b, from, to))
		}
	}
	begin := 0
	alone := !strings.Contains(strings.TrimSpace(b.Text), "\n")
	for at := 0; at < len(b.Text); {
		end := len(b.Text)
		if w.over(len(b.Spans)) {
			break
		}
		if i := strings.IndexByte(b.Text[at:], '\n'); i >= 0 {
			end = at + i
		}
		line := b.Text[at:end]
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if level, n := find(strings.TrimSpace(line), alone && b.Kind == sheaf.BlockParagraph); level > 0 {
			flush(begin, at)
			h := part(b, at, at+indent+n)
			h.Kind, h.Level = sheaf.BlockHeading, level
			out = append(out, h)
			begin = at + indent + n
		}
		at = end + 1
	}
	flush(begin, len(b.Text))
	return out
}

// quoted cuts paragraphs between lines that quote and lines that do not.
func quoted(blocks []sheaf.Block, w *watch) []sheaf.Block {
	var out []sheaf.Block
	for _, b := range blocks {
		if b.Kind != sheaf.BlockParagraph {
			out = append(out, b)
			continue
		}
		begin, was := 0, strings.HasPrefix(strings.TrimSpace(b.Text), ">")
		flush := func(to int) {
			if strings.TrimSpace(b.Text[begin:to]) == "" {
				return
			}
			p := part(b, begin, to)
			if was {
				p.Kind = sheaf.BlockQuote
			}
			out = append(out, p)
			begin = to
		}
		at := 0
		for line := range strings.SplitAfterSeq(b.Text, "\n") {
			if w.over(len(line) + len(b.Spans)) {
				break
			}
			if is := strings.HasPrefix(strings.TrimSpace(line), ">"); is != was && strings.TrimSpace(line) != "" {
				flush(at)
				was = is
			}
			at += len(line)
		}
		flush(len(b.Text))
	}
	return out
}

// withoutContents drops the lines of b that are in a table of contents and end in a
// page number; in reports whether one is being read.
func withoutContents(b sheaf.Block, in bool, w *watch) (sheaf.Block, bool) {
	title := strings.ToLower(strings.Trim(strings.TrimSpace(b.Text), " :.·"))
	if len(title) <= 40 && contentsTitles[strings.Join(strings.Fields(title), " ")] {
		return b, true
	}
	if !in {
		return b, false
	}
	var keep []sheaf.Block
	at := 0
	dropped := false
	for line := range strings.SplitAfterSeq(b.Text, "\n") {
		if w.over(len(line) + len(b.Spans)) {
			break
		}
		if contentsLine.MatchString(strings.TrimSpace(line)) {
			dropped = true
		} else if strings.TrimSpace(line) != "" {
			keep = append(keep, part(b, at, at+len(line)))
		}
		at += len(line)
	}
	switch {
	case !dropped:
		return b, false
	case len(keep) == 0:
		b.Text, b.Spans = "", nil
		return b, true
	}
	rest := keep[0]
	var text strings.Builder
	text.WriteString(rest.Text)
	for _, k := range keep[1:] {
		for _, s := range k.Spans {
			s.Start, s.End = s.Start+text.Len(), s.End+text.Len()
			rest.Spans = append(rest.Spans, s)
		}
		text.WriteString(k.Text)
	}
	rest.Text = text.String()
	return rest, true
}
