// Package htmlblocks turns HTML into blocks. The HTML format, books, mail and
// the raw HTML inside Markdown share it.
package htmlblocks

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"regexp"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/grid"
	"sheaf/parser/internal/links"
	"sheaf/parser/internal/shown"
)

// Result is the content of a page.
type Result struct {
	Blocks   []sheaf.Block
	Metadata map[string]string // title, author, description, keywords, language, created, modified
	Warnings []sheaf.Warning
}

// Limits.
const (
	// maxTags is where building a tree would exceed the process's memory: a node
	// takes some 150 bytes.
	maxTags = 2 << 20
	// maxTreeBytes stops a page whose unclosed tags multiply in the tree: a
	// standard parser reopens up to 512 of them in every paragraph.
	maxTreeBytes = 320 << 20
	// maxDepth is x/net/html's own limit on open elements; the walk over its
	// tree is no deeper than that plus the levels it inserts.
	maxDepth     = 640
	maxListLevel = 9
	maxImages    = 10_000 // in a row, or in a table
)

var declared = regexp.MustCompile(`(?i)(?:charset|encoding)\s*=\s*["']?\s*([a-z0-9_:.\-]+)`)

// Declared returns the encoding that a page declares in its first 4 KB.
func Declared(head []byte) string {
	if m := declared.FindSubmatch(head[:min(len(head), 4096)]); m != nil {
		return string(m[1])
	}
	return ""
}

// Read parses a page in UTF-8. Broken markup is read as browsers read it, so there
// is no error; markup too deep or too large for a tree is read as text.
func Read(page []byte) *Result { return ReadIllustrated(page, nil) }

// Blocks reads a page that others have decoded, and perhaps not well.
func Blocks(page string) []sheaf.Block { return BlocksAt(page, nil) }

// BlocksAt is Blocks for a page that was found at an address, which its links refer to
// unless the page says otherwise.
func BlocksAt(page string, at *url.URL) []sheaf.Block {
	return read([]byte(strings.ToValidUTF8(page, "\ufffd")), nil, at).Blocks
}

// ReadIllustrated is Read for a page whose pictures can be drawn: name maps their
// addresses to the names used in blocks, "" for none (see sheaf.Block.Picture). Nil
// draws none.
func ReadIllustrated(page []byte, name func(src string) string) *Result {
	return read(page, name, nil)
}

func read(page []byte, name func(src string) string, at *url.URL) *Result {
	w := &walker{res: &Result{Metadata: map[string]string{}}, name: name, base: at}
	if bytes.Count(page, []byte("<")) <= maxTags {
		root, err := html.Parse(&guard{r: bytes.NewReader(page), base: heap()})
		if err == nil {
			w.walk(root, 0)
			w.flush()
			return w.res
		}
	}
	w.flat(page)
	w.res.Warnings = append(w.res.Warnings, sheaf.Warning{Code: "markup_too_deep", Message: "The page's markup is nested too deep or repeats too much, so its text was read without lists and tables."})
	return w.res
}

// guard limits the growth of the tree.
type guard struct {
	r    io.Reader
	base uint64
}

var errTree = errors.New("the tree takes too much memory")

func (g *guard) Read(b []byte) (int, error) {
	if h := heap(); h > g.base && h-g.base > maxTreeBytes {
		return 0, errTree
	}
	return g.r.Read(b)
}

func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

type walker struct {
	res    *Result
	text   strings.Builder
	kind   sheaf.BlockKind
	level  int
	list   int
	quote  int
	pre    int
	lang   string
	images []sheaf.Block           // encountered since the last block
	nested bool                    // inside a cell: nested tables are not read as tables
	name   func(src string) string // nil if pictures are not drawn
	order  *order                  // of the list, nil if its items have no numbers
	links  []links.Link            // in the text so far
	base   *url.URL                // what relative references refer to, nil if unknown
	based  bool                    // the page says so itself
	label  string                  // what is shown before the next text
	silent []sheaf.Block           // pictures in the cells of a table, which follow it
}

// order numbers the items of a list (HTML, 4.4.5).
type order struct {
	format string
	number int
	step   int
}

// orderOf returns nil for a list that shows no numbers, as those of menus and of the
// contents of a book do not.
func orderOf(n *html.Node) *order {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.DataAtom == atom.Nav {
			return nil
		}
	}
	if style := strings.ToLower(attr(n, "style")); n.DataAtom != atom.Ol || strings.Contains(style, "list-style") && strings.Contains(style, "none") {
		return nil
	}
	o := &order{format: numberFormats[attr(n, "type")], number: 1, step: 1}
	if slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "reversed" }) {
		o.step, o.number = -1, 0
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			if c.DataAtom == atom.Li {
				o.number++
			}
		}
	}
	if v, err := strconv.Atoi(strings.TrimSpace(attr(n, "start"))); err == nil && v > -maxNumber && v < maxNumber {
		o.number = v
	}
	return o
}

const maxNumber = 1 << 30

// numberFormats maps the type of a list to a format of package shown.
var numberFormats = map[string]string{"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}

// next returns what is shown before an item, "" for nothing.
func (o *order) next(item *html.Node) string {
	if o == nil {
		return ""
	}
	if v, err := strconv.Atoi(strings.TrimSpace(attr(item, "value"))); err == nil && v > -maxNumber && v < maxNumber {
		o.number = v
	}
	label := shown.Number(o.format, o.number) + "."
	o.number += o.step
	return label
}

// image records a picture: without a readable description only if it can be drawn.
func (w *walker) image(alt, src string) {
	b := sheaf.Block{Kind: sheaf.BlockImage}
	if w.name != nil && len(w.images)+len(w.silent) < maxImages {
		b.Picture = w.name(src)
	}
	if alt = clean.Line(alt); clean.Readable(alt) && len(alt) > 2 {
		b.Text = clean.Clip(alt, 2000)
	}
	switch {
	case w.nested:
		if b.Text != "" {
			w.text.WriteString(" " + alt + " ")
		}
		if b.Text = ""; b.Picture != "" {
			w.silent = append(w.silent, b)
		}
	case b.Text != "" || b.Picture != "":
		w.images = append(w.images, b)
	}
}

// drawing records the pictures in a drawing (SVG), such as the cover of a book.
func (w *walker) drawing(n *html.Node, depth int) {
	for c := n.FirstChild; c != nil && depth <= maxDepth; c = c.NextSibling {
		if c.Type == html.ElementNode && c.Data == "image" {
			w.image("", attr(c, "href"))
		}
		w.drawing(c, depth+1)
	}
}

func (w *walker) flush() {
	raw := w.text.String()
	w.text.Reset()
	kind := w.kind
	if kind == "" {
		kind = sheaf.BlockParagraph
		if w.quote > 0 {
			kind = sheaf.BlockQuote
		}
	}
	b := sheaf.Block{Kind: kind, Level: w.level}
	if w.pre > 0 {
		b.Text = strings.Trim(trimLines(clean.Text(raw)), "\n")
		if w.kind == "" || w.kind == sheaf.BlockCode {
			b.Kind, b.Level, b.Lang = sheaf.BlockCode, 0, w.lang
		}
	} else {
		b.Text = clean.Lines(raw)
	}
	if strings.TrimSpace(b.Text) != "" {
		if w.label != "" && b.Kind != sheaf.BlockCode {
			b.Text = w.label + " " + b.Text
		}
		w.label = ""
		b.Links = links.Place(b.Text, w.links)
		w.res.Blocks = append(w.res.Blocks, b)
	}
	w.links = nil
	w.res.Blocks = append(w.res.Blocks, w.images...)
	w.images = nil
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " \t")
	}
	return strings.Join(lines, "\n")
}

// block walks a block-level element.
func (w *walker) block(n *html.Node, depth int, kind sheaf.BlockKind, level int) {
	w.flush()
	oldKind, oldLevel := w.kind, w.level
	if kind != "" {
		w.kind, w.level = kind, level
	}
	w.children(n, depth)
	w.flush()
	w.kind, w.level = oldKind, oldLevel
}

// link walks an element that leads to an address: a word of a block, or blocks.
func (w *walker) link(n *html.Node, depth int) {
	uri := links.Address(attr(n, "href"), w.base)
	blocks, from := len(w.res.Blocks), w.text.Len()
	w.children(n, depth)
	switch {
	case uri == "":
	case len(w.res.Blocks) == blocks:
		w.links = append(w.links, links.Link{Text: w.text.String()[from:], URI: uri})
	default:
		for i := blocks; i < len(w.res.Blocks); i++ {
			if b := &w.res.Blocks[i]; b.Table == nil && b.Text != "" && len(b.Links) == 0 {
				b.Links = []sheaf.Link{{End: len(b.Text), URI: uri}}
			}
		}
	}
}

func (w *walker) children(n *html.Node, depth int) {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		w.walk(c, depth+1)
	}
}

var newlines = strings.NewReplacer("\n", " ", "\r", " ", "\f", " ")

func (w *walker) walk(n *html.Node, depth int) {
	if depth > maxDepth {
		return
	}
	switch n.Type {
	case html.TextNode:
		if w.pre > 0 {
			w.text.WriteString(n.Data)
		} else if strings.ContainsAny(n.Data, "\n\r\f") {
			_, _ = newlines.WriteString(&w.text, n.Data) // a Builder never fails
		} else {
			w.text.WriteString(n.Data)
		}
		return
	case html.ElementNode:
	case html.DocumentNode:
		w.children(n, depth)
		return
	default:
		return
	}
	if hidden(n) {
		return
	}
	switch n.DataAtom {
	case atom.Html:
		if l := attr(n, "lang"); l != "" {
			w.res.Metadata["language"] = clean.Line(clean.Clip(l, 40))
		}
		w.children(n, depth)
	case atom.Head:
		w.head(n)
	case atom.Script, atom.Style, atom.Template, atom.Noscript, atom.Iframe, atom.Object, atom.Embed, atom.Select, atom.Datalist, atom.Audio, atom.Video, atom.Canvas, atom.Rp, atom.Title, atom.Map:
	case atom.A:
		w.link(n, depth)
	case atom.Br:
		w.text.WriteByte('\n')
	case atom.Wbr:
	case atom.Hr:
		w.flush()
	case atom.Img:
		w.image(attr(n, "alt"), attr(n, "src"))
	case atom.Svg:
		if w.name != nil {
			w.drawing(n, depth)
		}
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.block(n, depth, sheaf.BlockHeading, int(n.Data[1]-'0'))
	case atom.Ul, atom.Ol, atom.Menu:
		w.flush()
		outer := w.order
		w.order = orderOf(n)
		w.list++
		w.children(n, depth)
		w.flush()
		w.list--
		w.order = outer
	case atom.Li:
		w.flush()
		w.label = w.order.next(n)
		w.block(n, depth, sheaf.BlockListItem, min(max(w.list, 1), maxListLevel))
		w.label = ""
	case atom.Dd:
		w.block(n, depth, sheaf.BlockListItem, min(w.list+1, maxListLevel))
	case atom.Pre, atom.Listing, atom.Xmp, atom.Textarea:
		w.flush()
		w.pre++
		old := w.lang
		w.lang = codeLang(n)
		w.children(n, depth)
		w.flush()
		w.pre--
		w.lang = old
	case atom.Blockquote:
		w.flush()
		w.quote++
		w.children(n, depth)
		w.flush()
		w.quote--
	case atom.Figcaption:
		w.block(n, depth, sheaf.BlockCaption, 0)
	case atom.Table:
		w.table(n, depth)
	case atom.P, atom.Div, atom.Section, atom.Article, atom.Dl, atom.Dt, atom.Header, atom.Footer, atom.Main, atom.Aside, atom.Nav, atom.Figure, atom.Form, atom.Fieldset, atom.Legend, atom.Address, atom.Caption, atom.Body, atom.Center, atom.Details, atom.Summary, atom.Dialog, atom.Hgroup, atom.Search, atom.Option, atom.Optgroup,
		atom.Tr, atom.Td, atom.Th, atom.Tbody, atom.Thead, atom.Tfoot: // of a layout table
		w.block(n, depth, "", 0)
	default:
		if n.Data == "annotation" || n.Data == "annotation-xml" { // the source of a formula, next to its text
			return
		}
		w.children(n, depth)
	}
}

func hidden(n *html.Node) bool {
	for _, a := range n.Attr {
		switch a.Key {
		case "hidden":
			return a.Val != "until-found"
		case "style":
			if len(a.Val) < 4096 {
				s := strings.ToLower(strings.ReplaceAll(a.Val, " ", ""))
				if strings.Contains(s, "display:none") || strings.Contains(s, "visibility:hidden") {
					return true
				}
			}
		}
	}
	return false
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

var metaNames = map[string]string{
	"author": "author", "description": "description", "keywords": "keywords", "dc.title": "title", "dc.creator": "author",
	"generator": "producer", "date": "created", "article:published_time": "created", "article:modified_time": "modified",
	"last-modified": "modified", "og:description": "description", "og:title": "title", "content-language": "language",
}

func (w *walker) head(n *html.Node) {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		switch c.DataAtom {
		case atom.Title:
			if c.FirstChild != nil {
				w.meta("title", c.FirstChild.Data, true)
			}
		case atom.Base:
			if u, err := url.Parse(strings.TrimSpace(attr(c, "href"))); err == nil && u.IsAbs() && !w.based {
				w.base, w.based = u, true // the first one holds
			}
		case atom.Meta:
			name := attr(c, "name")
			if name == "" {
				name = attr(c, "property")
			}
			if name == "" {
				name = attr(c, "http-equiv")
			}
			if key, ok := metaNames[strings.ToLower(name)]; ok {
				w.meta(key, attr(c, "content"), false)
			}
		}
	}
}

func (w *walker) meta(key, value string, wins bool) {
	if value = clean.Line(clean.Clip(value, 1000)); value != "" && (wins || w.res.Metadata[key] == "") {
		w.res.Metadata[key] = value
	}
}

func codeLang(n *html.Node) string {
	for depth := 0; n != nil && depth < 3; depth++ {
		for _, c := range strings.Fields(clean.Clip(attr(n, "class"), 500)) {
			for _, p := range []string{"language-", "lang-", "highlight-source-", "brush:"} {
				if l, ok := strings.CutPrefix(c, p); ok && l != "" {
					return clean.Line(clean.Clip(l, 40))
				}
			}
		}
		n = firstElement(n)
	}
	return ""
}

func firstElement(n *html.Node) *html.Node {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.Type == html.ElementNode {
			return c
		}
	}
	return nil
}

// table reads a data table; a table that only lays out a page is read as the blocks
// in it.
func (w *walker) table(n *html.Node, depth int) {
	w.flush()
	if w.nested || isLayout(n) {
		w.children(n, depth)
		w.flush()
		return
	}
	var g grid.Builder
	name := ""
	var rows func(n *html.Node, head bool)
	rows = func(n *html.Node, head bool) { // at most two levels: the parser puts rows into sections
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			if c.Type != html.ElementNode || hidden(c) {
				continue
			}
			switch c.DataAtom {
			case atom.Caption:
				name, _ = w.cell(c, depth)
				name = strings.ReplaceAll(name, "\n", " ")
			case atom.Thead, atom.Tbody, atom.Tfoot:
				if n.DataAtom == atom.Table {
					rows(c, c.DataAtom == atom.Thead)
				}
			case atom.Tr:
				g.Row()
				for d := c.FirstChild; d != nil; d = d.NextSibling {
					if d.DataAtom == atom.Td || d.DataAtom == atom.Th {
						text, uris := w.cell(d, depth)
						g.Cell(text, span(d, "colspan"), span(d, "rowspan"), head || d.DataAtom == atom.Th)
						for _, uri := range uris {
							g.Link(uri)
						}
					}
				}
			}
		}
	}
	rows(n, false)
	if t := g.Table(); t != nil {
		t.Name = name
		w.res.Blocks = append(w.res.Blocks, sheaf.Block{Kind: sheaf.BlockTable, Table: t, Links: g.Links()})
	} else if name != "" {
		w.res.Blocks = append(w.res.Blocks, sheaf.Block{Kind: sheaf.BlockCaption, Text: name})
	}
	w.res.Blocks = append(w.res.Blocks, w.silent...)
	w.silent = nil
	if g.Clipped {
		w.res.Warnings = append(w.res.Warnings, sheaf.Warning{Code: "table_clipped", Message: "A table is larger than " + strconv.Itoa(grid.MaxColumns) + " columns or 1,000,000 cells and was cut there."})
	}
}

// span is a colspan or rowspan; the standard's own limits are 1,000 and 65,534.
func span(n *html.Node, key string) int {
	v, err := strconv.Atoi(strings.TrimSpace(attr(n, key)))
	if err != nil || v < 1 {
		return 1
	}
	return min(v, 1000)
}

// cell returns the text of a cell, its paragraphs and list items on separate lines,
// and the addresses in it.
func (w *walker) cell(n *html.Node, depth int) (text string, uris []string) {
	in := walker{res: &Result{Metadata: w.res.Metadata}, nested: true, name: w.name, base: w.base, based: w.based}
	in.children(n, depth)
	in.flush()
	if len(w.silent) < maxImages {
		w.silent = append(w.silent, in.silent...)
	}
	parts := make([]string, len(in.res.Blocks))
	for i, b := range in.res.Blocks {
		parts[i] = b.Text
		for _, l := range b.Links {
			uris = append(uris, l.URI)
		}
	}
	return strings.Join(parts, "\n"), uris
}

// isLayout distinguishes a layout table from a data table: it is marked as one, it
// has one column or one row of prose, or its cells contain headings or tables and
// no header row names its columns.
func isLayout(n *html.Node) bool {
	switch attr(n, "role") {
	case "presentation", "none":
		return true
	}
	rows, cols, heads, blocks := 0, 0, 0, 0
	seen := 0
	var look func(n *html.Node, depth int)
	look = func(n *html.Node, depth int) {
		for c := n.FirstChild; c != nil && depth < maxDepth && seen < 20_000; c = c.NextSibling {
			if c.Type != html.ElementNode {
				continue
			}
			seen++
			switch c.DataAtom {
			case atom.Tr:
				rows++
				in := 0
				for d := c.FirstChild; d != nil; d = d.NextSibling {
					if d.DataAtom == atom.Td || d.DataAtom == atom.Th {
						in++
					}
				}
				cols = max(cols, in)
			case atom.Th:
				heads++
			case atom.Table, atom.H1, atom.H2, atom.H3, atom.H4, atom.Form, atom.Article, atom.Section:
				blocks++
				if c.DataAtom == atom.Table {
					continue // the rows of an inner table do not count
				}
			}
			look(c, depth+1)
		}
	}
	look(n, 0)
	if heads > 0 {
		return false
	}
	return cols <= 1 || blocks > 0
}

// breaks are the elements that end a line when markup is read flat.
var breaks = map[atom.Atom]bool{
	atom.P: true, atom.Div: true, atom.Li: true, atom.Tr: true, atom.Table: true, atom.Ul: true, atom.Ol: true, atom.Dl: true, atom.Dt: true, atom.Dd: true,
	atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true, atom.Pre: true, atom.Blockquote: true, atom.Section: true,
	atom.Article: true, atom.Header: true, atom.Footer: true, atom.Nav: true, atom.Aside: true, atom.Hr: true, atom.Body: true, atom.Form: true, atom.Br: true,
}

// flat reads the text between tags in constant memory.
func (w *walker) flat(page []byte) {
	z := html.NewTokenizer(bytes.NewReader(page))
	var skip atom.Atom
	for {
		switch z.Next() {
		case html.ErrorToken: // the end: a Reader over bytes has no other error
			w.flush()
			return
		case html.TextToken:
			if skip == 0 {
				w.text.Write(z.Text())
				w.text.WriteByte(' ')
				if w.text.Len() > 64<<10 {
					w.flush()
				}
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name, _ := z.TagName()
			switch a := atom.Lookup(name); {
			case a == atom.Script || a == atom.Style || a == atom.Template || a == atom.Noscript || a == atom.Title:
				skip = a
			case breaks[a]:
				w.flush()
				if len(name) == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6' {
					w.kind, w.level = sheaf.BlockHeading, int(name[1]-'0')
				}
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			a := atom.Lookup(name)
			if a == skip {
				skip = 0
			}
			if breaks[a] {
				w.flush()
				w.kind, w.level = "", 0
			}
		}
	}
}
