// Package mindmap builds a topic tree of a document: from its headings, or if it
// has none from segments of its text; below them the phrases that distinguish them.
// It is pure. Each node cites supporting chunks.
package mindmap

import (
	"context"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf"
	"sheaf/internal/enrich"
	"sheaf/internal/raptor"
)

// Limits of a tree.
const (
	Levels      = 4 // including the root
	maxChildren = 40
	maxNodes    = 500
	maxCited    = 5   // chunks per node
	maxLabel    = 120 // bytes
	phrases     = 3   // below a node without subheadings
	topics      = 12  // approximate number of segments of a text without headings
)

// MapNode is a node of a mind map with its subtree.
type MapNode struct {
	Label      string     `json:"label" doc:"a heading, key phrases, or a label by the chat model"`
	DocumentID string     `json:"document_id,omitempty" doc:"document of the chunks; absent at the root of a dataset"`
	Chunks     []string   `json:"chunks,omitempty" doc:"ids of some supporting chunks"`
	Pages      []int      `json:"pages,omitempty" doc:"pages of these chunks"`
	Children   []*MapNode `json:"children,omitempty" doc:"child nodes"`
}

// cite adds a chunk to a node's citations.
func (n *MapNode) cite(c *sheaf.Chunk) {
	if len(n.Chunks) == maxCited || slices.Contains(n.Chunks, c.ID) {
		return
	}
	n.Chunks = append(n.Chunks, c.ID)
	n.Pages = append(n.Pages, c.Pages...)
	slices.Sort(n.Pages)
	n.Pages = slices.Compact(n.Pages)
}

// Label shortens a text to what a node shows, without invalid characters and those
// that reverse the direction of writing.
func Label(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0xfffe, r == 0xffff:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.Join(strings.Fields(s), " ")
	for len(s) > maxLabel {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// Build builds the tree of a document with that title. vectors has one entry per
// chunk, nil for chunks without one. name returns a topic's name from the texts of
// its chunks, or "" for key phrases; it is called for one topic after the other.
// The error is name's or ctx's.
func Build(ctx context.Context, title string, chunks []sheaf.Chunk, vectors [][]float32, name func(ctx context.Context, text string) (string, error)) (*MapNode, error) {
	b := builder{chunks: chunks}
	var texts, languages []string
	for i := range chunks {
		c := &chunks[i]
		if c.Role != "" && c.Role != sheaf.RoleChild || strings.TrimSpace(c.Text) == "" {
			continue
		}
		b.at, texts, languages = append(b.at, i), append(texts, c.Text), append(languages, c.Language)
		b.headed = b.headed || len(c.HeadingPath) > 0
	}
	root := &MapNode{Label: Label(title)}
	if len(b.at) == 0 {
		return root, nil
	}
	var err error
	if b.keywords, err = enrich.Keywords(ctx, texts, languages, 2*phrases); err != nil {
		return nil, err
	}
	if b.headed {
		b.headings(root)
	} else if err := b.segments(ctx, root, vectors, name); err != nil {
		return nil, err
	}
	return root, nil
}

type builder struct {
	chunks   []sheaf.Chunk
	at       []int      // of the chunks that count
	keywords [][]string // of each of them
	headed   bool
	nodes    int
}

// child finds or creates a node with that label below n; nil if there is no room.
func (b *builder) child(n *MapNode, label string) *MapNode {
	label = Label(label)
	for _, c := range n.Children {
		if c.Label == label {
			return c
		}
	}
	if label == "" || len(n.Children) == maxChildren || b.nodes == maxNodes {
		return nil
	}
	b.nodes++
	c := &MapNode{Label: label, DocumentID: b.chunks[0].DocumentID}
	n.Children = append(n.Children, c)
	return c
}

// headings places chunks below their headings.
func (b *builder) headings(root *MapNode) {
	of := map[*MapNode][]int{} // those of b.at for which it is the deepest node
	var order []*MapNode
	for k, i := range b.at {
		c := &b.chunks[i]
		path := c.HeadingPath
		if len(path) > 1 && Label(path[0]) == root.Label {
			path = path[1:]
		}
		n := root
		n.cite(c)
		for _, h := range path[:min(len(path), Levels-1)] {
			next := b.child(n, h)
			if next == nil {
				break
			}
			n = next
			n.cite(c)
		}
		if of[n] == nil {
			order = append(order, n)
		}
		of[n] = append(of[n], k)
	}
	depth := depths(root)
	for _, n := range order {
		if len(n.Children) == 0 && depth[n] < Levels {
			b.phrases(n, of[n])
		}
	}
}

func depths(root *MapNode) map[*MapNode]int {
	out := map[*MapNode]int{root: 1}
	for open := []*MapNode{root}; len(open) > 0; open = open[1:] {
		for _, c := range open[0].Children {
			out[c] = out[open[0]] + 1
			open = append(open, c)
		}
	}
	return out
}

// top returns the most frequent keywords of some chunks, ties in the order of the
// text.
func (b *builder) top(of []int, n int) []string {
	count := map[string]int{}
	var all []string
	for _, k := range of {
		for _, w := range b.keywords[k] {
			if count[w] == 0 {
				all = append(all, w)
			}
			count[w]++
		}
	}
	slices.SortStableFunc(all, func(a, c string) int { return count[c] - count[a] })
	return all[:min(len(all), n)]
}

// phrases adds key phrases of chunks below a node.
func (b *builder) phrases(n *MapNode, of []int) {
	for _, w := range b.top(of, phrases) {
		if strings.EqualFold(w, n.Label) {
			continue
		}
		c := b.child(n, w)
		if c == nil {
			return
		}
		for _, k := range of {
			if slices.Contains(b.keywords[k], w) {
				c.cite(&b.chunks[b.at[k]])
			}
		}
	}
}

// segments places chunks below the segments of a text without headings.
func (b *builder) segments(ctx context.Context, root *MapNode, vectors [][]float32, name func(context.Context, string) (string, error)) error {
	items := make([]raptor.Item, len(b.at))
	for k, i := range b.at {
		items[k] = raptor.Item{Name: b.chunks[i].Text, Tokens: max(b.chunks[i].Tokens, 1), Vector: vectors[i]}
		root.cite(&b.chunks[i])
	}
	// Few segments, so that they are topics: a segment takes as many chunks as needed.
	size := max(len(items)/topics, 2)
	for _, s := range raptor.Segments(items, raptor.Config{MaxChildren: 4 * size, MaxTokens: 1 << 30, Ratio: 1 / float64(size)}) {
		var of []int
		var text []string
		for k := s.From; k < s.To; k++ {
			of, text = append(of, k), append(text, b.chunks[b.at[k]].Text)
		}
		words, err := name(ctx, strings.Join(text, "\n\n"))
		if err != nil {
			return err
		}
		if words = Label(words); words == "" {
			words = strings.Join(b.top(of, 2), ", ")
		}
		if words == "" {
			words = Label(text[0])
		}
		n := b.child(root, words)
		if n == nil {
			continue
		}
		for _, k := range of {
			n.cite(&b.chunks[b.at[k]])
		}
		b.phrases(n, of)
	}
	return nil
}

// stored appends the nodes of a tree in reading order, root first, in stored form:
// Layer is the level, from 1.
func (n *MapNode) stored(level int, out []sheaf.Chunk) []sheaf.Chunk {
	out = append(out, sheaf.Chunk{Kind: sheaf.ChunkText, Role: sheaf.RoleContents, Text: n.Label, Layer: level, Children: slices.Clone(n.Chunks), Pages: n.Pages, Ordinal: len(out),
		Metadata: map[string]string{sheaf.MetadataLayer: fmt.Sprint(level)}})
	for _, c := range n.Children {
		out = c.stored(level+1, out)
	}
	return out
}

// Store returns a tree as chunks of a result. A tree without citations has none.
func (n *MapNode) Store() []sheaf.Chunk {
	if len(n.Chunks) == 0 {
		return nil
	}
	return n.stored(1, nil)
}

// Load reads what Store wrote.
func Load(documentID string, chunks []sheaf.Chunk) *MapNode {
	var open []*MapNode // by level
	for _, c := range chunks {
		n := &MapNode{Label: c.Text, DocumentID: documentID, Chunks: c.Children, Pages: c.Pages}
		level := min(max(c.Layer, 1), len(open)+1)
		if open = open[:level-1]; level > 1 {
			open[level-2].Children = append(open[level-2].Children, n)
		}
		open = append(open, n)
	}
	if len(open) == 0 {
		return nil
	}
	return open[0]
}

// Cut removes everything below that many levels.
func (n *MapNode) Cut(levels int) *MapNode {
	if levels <= 1 {
		n.Children = nil
	}
	for _, c := range n.Children {
		c.Cut(levels - 1)
	}
	return n
}

// Markdown returns the tree as nested lists, each node with its pages.
func (n *MapNode) Markdown() string {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`, "#", `\#`)
	fmt.Fprintf(&b, "# %s\n\n", escape.Replace(n.Label))
	var list func(nodes []*MapNode, indent string)
	list = func(nodes []*MapNode, indent string) {
		for _, c := range nodes {
			fmt.Fprintf(&b, "%s- %s%s\n", indent, escape.Replace(c.Label), pages(c.Pages))
			list(c.Children, indent+"  ")
		}
	}
	list(n.Children, "")
	return b.String()
}

func pages(all []int) string {
	switch len(all) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" (p. %d)", all[0])
	}
	return fmt.Sprintf(" (p. %d–%d)", all[0], all[len(all)-1])
}

// Dimensions of a drawing, in pixels.
const (
	rowHeight   = 24
	columnWidth = 300
	charWidth   = 7
	shownLabel  = 38 // characters
)

// SVG draws the tree from left to right. It contains no script and no external
// references.
func (n *MapNode) SVG() string {
	var lines, words strings.Builder
	row := 0
	var draw func(n *MapNode, depth int) int
	draw = func(n *MapNode, depth int) int {
		x := 12 + depth*columnWidth
		var ys []int
		for _, c := range n.Children {
			ys = append(ys, draw(c, depth+1))
		}
		y := row*rowHeight + rowHeight
		if len(ys) == 0 {
			row++
		} else {
			y = (ys[0] + ys[len(ys)-1]) / 2
		}
		label := []rune(n.Label)
		if len(label) > shownLabel {
			label = append(label[:shownLabel-1], '…')
		}
		end := x + charWidth*len(label) + 8
		for _, to := range ys {
			fmt.Fprintf(&lines, `<path d="M%d %dC%d %d %d %d %d %d"/>`, end, y-4, end+30, y-4, x+columnWidth-40, to-4, x+columnWidth-6, to-4)
		}
		fmt.Fprintf(&words, `<text x="%d" y="%d"><title>%s%s</title>%s</text>`, x, y, html.EscapeString(n.Label), pages(n.Pages), html.EscapeString(string(label)))
		return y
	}
	draw(n, 0)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="13" role="img"><title>%s</title><g fill="none" stroke="#8a94a6">%s</g><g fill="#1d2430">%s</g></svg>`+"\n",
		Levels*columnWidth+24, max(row, 1)*rowHeight+rowHeight, html.EscapeString(n.Label), lines.String(), words.String())
}
