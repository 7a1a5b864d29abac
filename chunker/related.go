package chunker

import (
	"fmt"
	"slices"
	"strings"

	"sheaf"
)

// Chunks in addition to those of the text: children, contents, and the context of
// tables and images.

// children cuts the segments of a chunk at the children's delimiters. It returns
// nothing when there is nothing to cut. A table row or a group of code lines is a
// child as it is; a heading stays with what follows it.
func children(own []segment, parent *sheaf.Chunk, set options) []sheaf.Chunk {
	if !set.children {
		return nil
	}
	var groups [][]segment
	var open []segment // headings waiting for text
	for i := range own {
		p := own[i]
		if p.block.Kind == sheaf.BlockHeading {
			open = append(open, p)
			continue
		}
		for _, q := range p.cutAt(set.childSoft, set.childHard) {
			groups = append(groups, append(slices.Clip(open), q))
			open = nil
		}
	}
	if len(open) > 0 {
		groups = append(groups, open)
	}
	var out []sheaf.Chunk
	for _, g := range groups {
		c := describe(g, g, set)
		c.Text = render(g)
		if c.Tokens = CountTokens(c.Text); c.Tokens > set.limit {
			return nil // cutting increased the token count: the parent serves
		}
		c.HeadingPath, c.Floor, c.Role, c.Parent = parent.HeadingPath, parent.Floor, sheaf.RoleChild, parent.Text
		out = append(out, c)
	}
	return out
}

// cutAt cuts a segment of prose after each delimiter.
func (p segment) cutAt(soft []rune, hard []string) []segment {
	if p.frame != nil || p.block.Table != nil {
		return []segment{p}
	}
	var out []segment
	next := hardCuts(p.text, hard)
	begin := 0
	add := func(to int) {
		text := strings.TrimSpace(p.text[begin:to])
		if text != "" {
			q := p
			q.start = p.start + begin + strings.Index(p.text[begin:to], text)
			q.end, q.text = q.start+len(text), text
			out = append(out, q)
		}
		begin = to
	}
	for from := 0; from < len(p.text); {
		to := next(from)
		for i, r := range p.text[from:to] {
			if at := from + i + len(string(r)); slices.Contains(soft, r) && at > begin {
				add(at)
			}
		}
		add(to)
		from = to
	}
	if len(out) == 0 {
		return []segment{p}
	}
	return out
}

// figures turns the captions of images without text, as in PDF, into images: the
// caption is all that can be read of such an image. The input is not changed.
func figures(in Input) Input {
	units := slices.Clone(in.Units)
	for i := range units {
		blocks := slices.Clone(units[i].Blocks)
		all := make([]*sheaf.Block, len(blocks))
		for k := range blocks {
			all[k] = &blocks[k]
		}
		for k := range blocks {
			if b := captionOf(all, k); b != nil && b.Kind == sheaf.BlockImage && strings.TrimSpace(b.Text) == "" {
				blocks[k].Kind = sheaf.BlockImage
			}
		}
		units[i].Blocks = blocks
	}
	in.Units = units
	return in
}

// surround adds the surrounding text to chunks of tables and images.
func surround(chunks []sheaf.Chunk, set options) {
	if set.tableContext <= 0 && set.imageContext <= 0 {
		return
	}
	prose := proseBeside(chunks)
	for i := range chunks {
		c := &chunks[i]
		if set.watch.over(0) {
			return
		}
		size := 0
		switch c.Kind {
		case sheaf.ChunkTable:
			size = set.tableContext
		case sheaf.ChunkImage:
			size = set.imageContext
		}
		if size <= 0 {
			continue
		}
		before, after := textAt(chunks, prose[i].before), textAt(chunks, prose[i].after)
		set.watch.over(len(before) + len(after))
		c.Context = strings.TrimSpace(tail(before, size, set.watch) + "\n" + head(after, size, set.watch))
	}
}

// beside holds the nearest chunks of prose in both directions, beyond those of the
// same kind; -1 for none.
type beside struct{ before, after int }

// proseBeside finds the neighbours of each chunk, in one pass per direction.
func proseBeside(chunks []sheaf.Chunk) []beside {
	out := make([]beside, len(chunks))
	next := func(i, k, beyond int) int { // k is next to i, beyond what is beside k
		switch {
		case k < 0 || k == len(chunks):
			return -1
		case chunks[k].Kind == sheaf.ChunkText:
			return k
		case chunks[k].Kind == chunks[i].Kind:
			return beyond
		}
		return -1
	}
	for i := range chunks {
		out[i].before = next(i, i-1, out[max(i-1, 0)].before)
	}
	for i := len(chunks) - 1; i >= 0; i-- {
		out[i].after = next(i, i+1, out[min(i+1, len(chunks)-1)].after)
	}
	return out
}

// textAt returns the text of a chunk of prose, the parent's text if it was cut into
// children; "" for -1.
func textAt(chunks []sheaf.Chunk, k int) string {
	switch {
	case k < 0:
		return ""
	case chunks[k].Parent != "":
		return chunks[k].Parent
	}
	return chunks[k].Text
}

// head returns the sentences at the start of text that fit into limit tokens.
func head(text string, limit int, w *watch) string {
	end, sum := 0, 0
	for e := range sentenceEnds(text, nil, w) {
		if sum += CountTokens(text[end:e]); sum > limit {
			break
		}
		end = e
	}
	return strings.TrimSpace(text[:end])
}

// tail returns the sentences at the end of text that fit into limit tokens.
func tail(text string, limit int, w *watch) string {
	ends := slices.Collect(sentenceEnds(text, nil, w))
	begin, sum := len(text), 0
	for k := len(ends) - 1; k >= 0; k-- {
		from := 0
		if k > 0 {
			from = ends[k-1]
		}
		if sum += CountTokens(text[from:ends[k]]); sum > limit {
			break
		}
		begin = from
	}
	return strings.TrimSpace(text[begin:])
}

// tableOfContents lists the headings of the range with the units they start on, in
// as many chunks as needed.
func tableOfContents(in Input, set options) []sheaf.Chunk {
	var out []sheaf.Chunk
	var lines []string
	var pages []int
	tokens := 0
	flush := func() {
		if len(lines) == 0 {
			return
		}
		text := strings.Join(lines, "\n")
		slices.Sort(pages)
		out = append(out, sheaf.Chunk{
			Kind: sheaf.ChunkText, Role: sheaf.RoleContents, Text: text, Tokens: CountTokens(text), Pages: slices.Compact(pages),
			Boxes: []sheaf.Box{}, HeadingPath: append([]string{}, in.Headings...),
		})
		lines, pages, tokens = nil, nil, 0
	}
	for _, u := range in.Units {
		for i := range u.Blocks {
			b := &u.Blocks[i]
			title := cell(b.Text)
			if b.Kind != sheaf.BlockHeading || title == "" {
				continue
			}
			page := b.Page
			if page == 0 {
				page = u.Unit
			}
			suffix := fmt.Sprintf(" (%d)", page)
			budget := max(set.limit-CountTokens(suffix)-8, minTokens/2)
			if set.watch.over(len(title)) {
				return nil
			}
			if !fits(title, budget) {
				title = strings.TrimSpace(title[:fitting(title, budget, set.watch)])
			}
			line := strings.Repeat("  ", min(max(b.Level, 1), 6)-1) + title + suffix
			n := CountTokens(line) + 1
			if tokens+n > set.limit {
				flush()
			}
			lines, pages, tokens = append(lines, line), append(pages, page), tokens+n
		}
	}
	flush()
	return out
}
