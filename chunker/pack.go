package chunker

import (
	"slices"
	"strings"

	"sheaf"
)

// pack joins segments into chunks. Only the last segment may be followed by a hard
// border.
func pack(segments []segment, set options) []sheaf.Chunk {
	var out []sheaf.Chunk
	for from := 0; from < len(segments) && !set.watch.over(0); {
		repeated := overlap(segments, from, set)
		limit := set.limit
		if len(repeated) > 0 {
			limit -= set.overlap
		}
		to := cut(segments, from, limit)
		all := slices.Concat(repeated, segments[from:to])
		text := render(all)
		tokens := CountTokens(text)
		set.watch.over(len(text))
		// The sum over segments can be slightly below the count of the whole,
		// because joining changes words at the seams.
		for tokens > set.limit && len(repeated) > 0 {
			repeated = repeated[1:]
			all = all[1:]
			text = render(all)
			tokens = CountTokens(text)
		}
		for tokens > set.limit && to > from+1 {
			to = best(segments, from, from+1, to-1)
			all = segments[from:to]
			text = render(all)
			tokens = CountTokens(text)
		}
		c := describe(segments[from:to], all, set)
		c.Text, c.Tokens = text, tokens
		if kids := children(segments[from:to], &c, set); len(kids) > 1 {
			out = append(out, kids...)
		} else {
			out = append(out, c)
		}
		from = to
	}
	return out
}

// cut returns the end of the chunk that starts at from: everything if it fits,
// otherwise the best border in the second half of the limit.
func cut(segments []segment, from, limit int) int {
	sum, low, high := 0, 0, from
	var f *frame
	for high < len(segments) {
		p := &segments[high]
		n := p.tokens
		if high == from {
			n = p.bare
		}
		if p.frame != f && p.frame != nil {
			n += p.frame.tokens
		}
		if sum+n > limit && high > from {
			break
		}
		sum += n
		f = p.frame
		high++
		if low == 0 && sum >= limit/2 {
			low = high
		}
	}
	if high == len(segments) {
		return high
	}
	if low == 0 {
		low = high // a long segment follows a short one
	}
	// leave the last chunk of the stretch an eighth of the limit
	tail := 0
	for end := len(segments); end > low && tail < limit/8; {
		end--
		tail += segments[end].tokens
		high = min(high, end)
	}
	return best(segments, from, low, high)
}

// best picks the end in [low, high]: the best border, and among equals the one with
// the smallest hash before it. If there is nothing but glue, it looks for a better
// one nearer to from.
func best(segments []segment, from, low, high int) int {
	to := high
	for end := low; end <= high; end++ {
		p, q := &segments[end-1], &segments[to-1]
		if p.after > q.after || p.after == q.after && p.hash < q.hash {
			to = end
		}
	}
	if segments[to-1].after == borderGlue {
		for end := low - 1; end > from; end-- {
			if segments[end-1].after != borderGlue {
				return end
			}
		}
		return high
	}
	return to
}

// overlap returns the whole sentences before from that fit into the overlap. Tables
// and code are not repeated.
func overlap(segments []segment, from int, set options) []segment {
	sum, start := 0, from
	for start > 0 {
		p := &segments[start-1]
		if p.frame != nil || p.block.Table != nil || p.block.Kind == sheaf.BlockHeading || sum+p.tokens > set.overlap {
			break
		}
		sum += p.tokens
		start--
	}
	if segments[from].frame != nil || segments[from].block.Table != nil {
		return nil
	}
	return segments[start:from]
}

// render returns the segments as one text.
func render(segments []segment) string {
	var text strings.Builder
	var f *frame
	for i := range segments {
		p := &segments[i]
		if p.frame != f && f != nil {
			text.WriteString(f.close)
		}
		if i > 0 {
			sep := p.sep
			if p.frame != f && sep == "\n" {
				sep = "\n\n" // a line directly below a table would become a row of it
			}
			text.WriteString(sep)
		}
		if p.frame != f && p.frame != nil {
			text.WriteString(p.frame.open)
		}
		f = p.frame
		text.WriteString(p.text)
	}
	if f != nil {
		text.WriteString(f.close)
	}
	return text.String()
}

// describe fills in everything but text and numbering. own are the chunk's
// segments, all those including the overlap in front.
func describe(own, all []segment, set options) sheaf.Chunk {
	c := sheaf.Chunk{Kind: kindOf(own, set), HeadingPath: pathOf(own, set), Floor: own[len(own)-1].floor, Boxes: []sheaf.Box{}}
	if r := own[len(own)-1].record; r != nil { // a heading may precede it
		c.Columns, c.Keywords, c.Questions, c.Tags = r.columns, r.keywords, r.questions, r.tags
	} else if set.asks && own[0].block.Kind == sheaf.BlockHeading && len(c.HeadingPath) > 0 {
		c.Questions = c.HeadingPath[len(c.HeadingPath)-1:]
	}
	var links addresses
	for i := range all {
		p := &all[i]
		set.watch.over(len(p.links))
		links.of(p)
		lines := p.boxes
		if lines == nil {
			set.watch.over(len(p.spans))
			for _, s := range p.spans {
				if s.Start < p.end && s.End > p.start {
					lines = append(lines, s.Box)
				}
			}
		}
		for _, b := range lines {
			if !slices.Contains(c.Boxes, b) {
				c.Boxes = append(c.Boxes, b)
			}
			if p.block.Table == nil || p.block.Table.FirstRow == 0 {
				c.Pages = append(c.Pages, b.Page)
			}
		}
		if len(lines) == 0 || p.block.Table != nil {
			c.Pages = append(c.Pages, p.page)
		}
		if t := p.block.Table; t != nil && c.Columns == nil && p.record == nil && c.Kind == sheaf.ChunkTable {
			c.Columns = columnTypes(t)
		}
	}
	slices.Sort(c.Pages)
	c.Pages = slices.Compact(c.Pages)
	c.Boxes = joinBoxes(c.Boxes)
	pictures := picturesOf(own)
	for key, lines := range map[string][]string{sheaf.MetadataLinks: links.list, sheaf.MetadataPictures: pictures} {
		if len(lines) == 0 {
			continue
		}
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[key] = strings.Join(lines, "\n")
	}
	return c
}

// Limits on the links of a chunk: they are stored with it and returned with every hit.
const (
	maxLinks     = 16
	maxLinkBytes = 2 << 10 // in total
)

// addresses collects the link targets in a chunk's text, without duplicates.
type addresses struct {
	list  []string
	bytes int
}

func (a *addresses) of(p *segment) {
	for _, l := range p.links {
		if len(a.list) == maxLinks {
			return
		}
		if l.URI == "" || slices.Contains(a.list, l.URI) || a.bytes+len(l.URI) >= maxLinkBytes || !p.leads(l) {
			continue
		}
		a.list = append(a.list, l.URI)
		a.bytes += len(l.URI) + 1
	}
}

// rows is the segment's row of a table as links refer to it, with the header for the
// first.
func (p *segment) rows() (from, to int) {
	if p.row < 0 {
		return 0, 1
	}
	to = p.row
	if p.block.Table.Columns != nil {
		to++
	}
	if from = to - 1; p.row <= 1 {
		from = 0
	}
	return from, to
}

// leads reports whether a link of its block falls within the segment.
func (p *segment) leads(l sheaf.Link) bool {
	t := p.block.Table
	if t == nil {
		return l.Start < p.end && l.End > p.start
	}
	from, to := p.rows()
	return p.row == 0 || l.Start >= from && l.Start < to
}

func kindOf(own []segment, set options) sheaf.ChunkKind {
	var kind sheaf.ChunkKind
	tables, beside := false, 0 // tokens of text next to tables
	for i := range own {
		switch b := own[i].block; {
		case b.Table != nil:
			tables = true
		case b.Kind != sheaf.BlockHeading && b.Kind != sheaf.BlockCaption:
			beside += own[i].tokens
		}
	}
	if tables && set.joins() && beside < 2*leastTokens {
		return sheaf.ChunkTable // with at most one text before and one after it
	}
	for i := range own {
		var k sheaf.ChunkKind
		switch b := own[i].block; {
		case b.Table != nil:
			k = sheaf.ChunkTable
		case b.Kind == sheaf.BlockHeading || b.Kind == sheaf.BlockCaption:
			continue
		case b.Kind == sheaf.BlockCode:
			k = sheaf.ChunkCode
		case b.Kind == sheaf.BlockImage:
			k = sheaf.ChunkImage
		default:
			return sheaf.ChunkText
		}
		if kind != "" && kind != k {
			return sheaf.ChunkText
		}
		kind = k
	}
	if kind == "" {
		return sheaf.ChunkText
	}
	return kind
}

// pathOf returns the heading path of the last segment: the innermost of the
// headings that open the chunk. A chunk that spans sections has their common prefix.
func pathOf(own []segment, set options) []string {
	path := own[len(own)-1].path
	if set.whole || set.gather > 0 || set.syntax {
		for i := range own {
			if own[i].block.Kind == sheaf.BlockHeading {
				continue
			}
			n := 0
			for n < min(len(path), len(own[i].path)) && path[n] == own[i].path[n] {
				n++
			}
			path = path[:n]
		}
	}
	return append([]string{}, path...)
}

const maxBoxes = 8

// joinBoxes joins vertically adjacent lines, then, while there are more than
// maxBoxes, the neighbours on one page whose hull adds the least area.
func joinBoxes(boxes []sheaf.Box) []sheaf.Box {
	out := []sheaf.Box{}
	for _, b := range boxes {
		if n := len(out); n > 0 && stacked(out[n-1], b) {
			out[n-1] = hull(out[n-1], b)
			continue
		}
		out = append(out, b)
	}
	for len(out) > maxBoxes {
		at, least := -1, 0.0
		for i := 1; i < len(out); i++ {
			if out[i].Page != out[i-1].Page {
				continue
			}
			if waste := area(hull(out[i-1], out[i])) - area(out[i-1]) - area(out[i]); at < 0 || waste < least {
				at, least = i, waste
			}
		}
		if at < 0 {
			break
		}
		out[at-1] = hull(out[at-1], out[at])
		out = slices.Delete(out, at, at+1)
	}
	return out
}

// stacked reports whether b continues a downwards: they share most of the narrower
// one's width, and the gap is no more than a line.
func stacked(a, b sheaf.Box) bool {
	if a.Page != b.Page || b.Y1 < a.Y1 {
		return false
	}
	shared := min(a.X1, b.X1) - max(a.X0, b.X0)
	return shared > 0.5*min(a.X1-a.X0, b.X1-b.X0) && b.Y0-a.Y1 <= b.Y1-b.Y0
}

func hull(a, b sheaf.Box) sheaf.Box {
	return sheaf.Box{Page: a.Page, X0: min(a.X0, b.X0), Y0: min(a.Y0, b.Y0), X1: max(a.X1, b.X1), Y1: max(a.Y1, b.Y1)}
}

func area(b sheaf.Box) float64 { return (b.X1 - b.X0) * (b.Y1 - b.Y0) }
