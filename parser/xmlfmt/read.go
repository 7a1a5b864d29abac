package xmlfmt

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/grid"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/shown"
)

// Document vocabularies use few names for the same things. Sources: DocBook 5.2,
// JATS 1.3, TEI P5, DITA 1.3, RSS 2.0, Atom (RFC 4287), SVG 2.
var (
	titles     = set("title", "head", "article-title", "heading", "bridgehead")
	wrappers   = set("info", "articleinfo", "bookinfo", "title-group", "article-meta", "front", "titleStmt", "fileDesc", "teiHeader", "prolog", "blockinfo")
	paragraphs = set("p", "para", "simpara", "formalpara", "ab", "shortdesc", "desc", "l", "subtitle", "note")
	items      = set("listitem", "list-item", "item", "li", "callout", "step", "ref", "biblioentry", "bibliomixed", "bibl", "varlistentry", "def-item", "glossentry")
	lists      = set("itemizedlist", "orderedlist", "variablelist", "simplelist", "procedure", "list", "ul", "ol", "steps", "def-list", "ref-list", "listBibl", "bibliography", "glossary")
	codes      = set("programlisting", "screen", "literallayout", "codeblock", "preformat", "synopsis", "code-block", "eg")
	quotes     = set("blockquote", "disp-quote", "lq", "quote-block", "cit")
	captions   = set("caption", "figDesc")
	figures    = set("fig", "figure", "informalfigure")
	footnotes  = set("footnote", "fn")
	tables     = set("table", "informaltable", "table-wrap", "simpletable")
	rows       = set("row", "tr", "strow", "sthead")
	cells      = set("entry", "td", "th", "cell", "stentry")
	// silent elements have nothing for a reader, or repeat adjacent text.
	silent = set("style", "script", "annotation", "annotation-xml", "indexterm")
	// named are sections whose element name serves as the title if they have none.
	named = map[string]string{"abstract": "Abstract", "ack": "Acknowledgements", "acknowledgements": "Acknowledgements", "preface": "Preface", "ref-list": "References",
		"bibliography": "Bibliography", "glossary": "Glossary", "dedication": "Dedication", "listBibl": "Bibliography"}
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

const (
	maxTableCells = 1_000_000
	maxColumns    = 200
	// maxBlockBytes is where the lines of a record are split into blocks.
	maxBlockBytes = 4 << 10
	maxLevel      = 6 // of headings
)

// reader turns a tree into blocks.
type reader struct {
	out  []sheaf.Block
	cur  strings.Builder // "name: value" lines that become a paragraph
	data bool            // no element is a paragraph: names and attributes carry the meaning
}

func read(root *node) []sheaf.Block {
	r := &reader{data: !has(root, paragraphs)}
	if root.name == "svg" { // its attributes are geometry
		r.data = false
	}
	if !r.data {
		prune(root)
	}
	r.element(root, 1, 0)
	r.flush()
	return r.out
}

func prune(n *node) {
	n.children = slices.DeleteFunc(n.children, func(c *node) bool { return silent[c.name] })
	for _, c := range n.children {
		prune(c)
	}
}

// has reports whether an element of these names is below n.
func has(n *node, names map[string]bool) bool {
	return slices.ContainsFunc(n.children, func(c *node) bool { return names[c.name] || has(c, names) })
}

func (r *reader) add(b sheaf.Block) {
	r.flush()
	if b.Table != nil || strings.TrimSpace(b.Text) != "" {
		r.out = append(r.out, b)
	}
}

func (r *reader) flush() {
	text := strings.TrimSpace(r.cur.String())
	r.cur.Reset()
	if text != "" {
		r.out = append(r.out, sheaf.Block{Kind: sheaf.BlockParagraph, Text: text})
	}
}

func (r *reader) line(name, value string) {
	if value == "" {
		return
	}
	if r.cur.Len() > 0 && r.cur.Len()+len(value) > maxBlockBytes {
		r.flush()
	}
	if name != "" {
		value = name + ": " + value
	}
	r.cur.WriteString(value + "\n")
}

// element reads n, whose heading would have the given level; list is the nesting
// depth of lists.
func (r *reader) element(n *node, level, list int) {
	switch {
	case tables[n.name] && (has(n, rows) || has(n, cells)):
		r.table(n)
	case codes[n.name]:
		r.add(sheaf.Block{Kind: sheaf.BlockCode, Text: strings.Trim(clean.Text(raw(n)), "\n"), Lang: n.attr("language")})
	case quotes[n.name]:
		r.prose(n, sheaf.BlockQuote, 0)
	case footnotes[n.name]:
		r.prose(n, sheaf.BlockFootnote, 0)
	case captions[n.name]:
		r.prose(n, sheaf.BlockCaption, 0)
	case figures[n.name]:
		r.figure(n, level, list)
	case lists[n.name]:
		r.list(n, level, list+1)
	case paragraphs[n.name]:
		r.paragraph(n, level, list)
	case n.elements() == 0 || n.mixed():
		r.leaf(n, level)
	case wrappers[n.name] && !r.data:
		r.wrapper(n, level)
	default:
		r.container(n, level, list)
	}
}

// wrapper reads what surrounds a title already taken by the parent: authors, dates,
// an abstract.
func (r *reader) wrapper(n *node, level int) {
	for _, c := range n.children {
		switch {
		case c.name == "" || titles[c.name]:
		case wrappers[c.name]:
			r.wrapper(c, level)
		case has(c, paragraphs):
			r.element(c, level, 0)
		default:
			r.line(c.name, flatten(c, nil))
		}
	}
	r.flush()
}

// prose makes one block of the text of an element, followed by its footnotes.
func (r *reader) prose(n *node, kind sheaf.BlockKind, level int) {
	notes := []*node{}
	r.add(sheaf.Block{Kind: kind, Level: level, Text: flatten(n, &notes)})
	for _, f := range notes {
		r.add(sheaf.Block{Kind: sheaf.BlockFootnote, Text: flatten(f, nil)})
	}
}

// paragraph reads text that may contain lists, listings and tables.
func (r *reader) paragraph(n *node, level, list int) {
	block := func(c *node) bool { return lists[c.name] || codes[c.name] || tables[c.name] || paragraphs[c.name] }
	if !slices.ContainsFunc(n.children, block) {
		r.prose(n, sheaf.BlockParagraph, 0)
		return
	}
	from := 0
	for i := 0; i <= len(n.children); i++ {
		if i < len(n.children) && !block(n.children[i]) {
			continue
		}
		r.prose(&node{name: n.name, children: n.children[from:i]}, sheaf.BlockParagraph, 0)
		if i < len(n.children) {
			r.element(n.children[i], level, list)
		}
		from = i + 1
	}
}

// leaf reads an element without child elements, or with inline ones only.
func (r *reader) leaf(n *node, level int) {
	value := flatten(n, nil)
	switch {
	case r.data && (strings.Contains(value, "</") || strings.Contains(value, "<br")): // a page in a feed
		r.flush()
		for _, b := range htmlblocks.Read([]byte(raw(n))).Blocks {
			if b.Kind == sheaf.BlockHeading {
				b.Level = min(level+b.Level-1, maxLevel)
			}
			r.out = append(r.out, b)
		}
	case !r.data:
		r.prose(n, sheaf.BlockParagraph, 0)
	case value == "":
		r.line(n.name, strings.Join(n.pairs(), ", "))
	case len(n.attrs) > 0:
		r.line(n.name+" ("+strings.Join(n.pairs(), ", ")+")", value)
	default:
		r.line(n.name, value)
	}
}

// figure reads a caption, preceded by its label, and the rest of the figure.
func (r *reader) figure(n *node, level, list int) {
	caption := &node{name: "caption"}
	for _, c := range n.children {
		if titles[c.name] || captions[c.name] || c.name == "label" {
			caption.children = append(caption.children, c)
		}
	}
	r.prose(caption, sheaf.BlockCaption, 0)
	for _, c := range n.children {
		if c.name != "" && !slices.Contains(caption.children, c) {
			r.element(c, level, list)
		}
	}
}

func (r *reader) list(n *node, level, list int) {
	if title := titleOf(n); title != "" {
		r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: min(level, maxLevel), Text: title})
	} else if named[n.name] != "" {
		r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: min(level, maxLevel), Text: named[n.name]})
	}
	format, number := numberFormat(n), 0
	for _, c := range n.children {
		switch {
		case c.name == "" || titles[c.name]:
		case items[c.name] || c.elements() == 0 || c.mixed():
			label := ""
			if number++; format != "" && !slices.ContainsFunc(c.children, func(l *node) bool { return l.name == "label" }) {
				label = shown.Number(format, number) + ". "
			}
			r.item(c, label, level, list)
		default:
			r.element(c, level, list)
		}
	}
}

// numberFormats maps how DocBook and JATS number lists to formats of package shown.
var numberFormats = map[string]string{
	"arabic": "decimal", "loweralpha": "lowerLetter", "upperalpha": "upperLetter", "lowerroman": "lowerRoman", "upperroman": "upperRoman",
	"order": "decimal", "ordered": "decimal", "alpha-lower": "lowerLetter", "alpha-upper": "upperLetter", "roman-lower": "lowerRoman", "roman-upper": "upperRoman",
}

// numberFormat returns how the items of a list are numbered, "" for not.
func numberFormat(n *node) string {
	switch n.name {
	case "orderedlist":
		return cmp.Or(numberFormats[n.attr("numeration")], "decimal")
	case "procedure", "ol", "steps":
		return "decimal"
	case "list":
		return numberFormats[cmp.Or(n.attr("list-type"), n.attr("rend"), n.attr("type"))]
	}
	return ""
}

// item reads the text of a list item, preceded by its label, then its lists and
// listings.
func (r *reader) item(n *node, label string, level, list int) {
	words, rest := &node{name: n.name}, []*node{}
	if label != "" {
		words.children = append(words.children, &node{text: label})
	}
	for _, c := range n.children {
		if lists[c.name] || codes[c.name] || tables[c.name] {
			rest = append(rest, c)
		} else {
			words.children = append(words.children, c)
		}
	}
	if len(words.children) > 1 || label == "" {
		r.prose(words, sheaf.BlockListItem, min(max(list, 1), 9))
	}
	for _, c := range rest {
		r.element(c, level, list)
	}
}

// container reads a section, a record, or something around them.
func (r *reader) container(n *node, level, list int) {
	title := titleOf(n)
	if title == "" {
		title = named[n.name]
	}
	if r.data && title == "" {
		if t := records(n); t != nil {
			r.add(sheaf.Block{Kind: sheaf.BlockTable, Table: t})
			return
		}
		if nested := slices.ContainsFunc(n.children, func(c *node) bool { return c.name != "" && !c.flat() }); !nested || level > 1 {
			title = n.label()
		}
	}
	r.flush()
	if title != "" {
		r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: min(level, maxLevel), Text: title})
		level++
	}
	if r.data {
		for _, p := range n.pairs() {
			r.line("", p)
		}
	}
	for _, c := range n.children {
		if c.name == "" {
			if t := clean.Line(c.text); t != "" {
				r.line("", t)
			}
			continue
		}
		if titles[c.name] && flatten(c, nil) == title {
			continue
		}
		r.element(c, level, list)
	}
	r.flush()
}

// titleOf returns the title that an element contains, "" for none.
func titleOf(n *node) string {
	for _, c := range n.children {
		if titles[c.name] {
			return clean.Clip(flatten(c, nil), 1000)
		}
	}
	for _, c := range n.children {
		if wrappers[c.name] {
			if t := titleOf(c); t != "" {
				return t
			}
		}
	}
	return ""
}

// records returns the table of an element whose children all have one name and hold
// plain values: rows of data. It is nil for others.
func records(n *node) *sheaf.Table {
	var list []*node
	for _, c := range n.children {
		if c.name == "" {
			if strings.TrimSpace(c.text) != "" {
				return nil
			}
			continue
		}
		if !c.flat() || len(list) > 0 && c.name != list[0].name {
			return nil
		}
		list = append(list, c)
	}
	if len(list) < 2 || list[0].elements() == 0 && len(list[0].attrs) == 0 {
		return nil
	}
	t, index := &sheaf.Table{Name: n.label()}, map[string]int{}
	column := func(name string) {
		if _, ok := index[name]; !ok {
			index[name] = len(t.Columns)
			t.Columns = append(t.Columns, name)
		}
	}
	for _, rec := range list {
		seen := map[string]bool{}
		for i := 0; i < len(rec.attrs); i += 2 {
			column(rec.attrs[i])
			seen[rec.attrs[i]] = true
		}
		if rec.elements() == 0 {
			column(rec.name)
		}
		for _, c := range rec.children {
			switch {
			case c.name == "":
				continue
			case seen[c.name], len(c.attrs) > 0: // a list, or a value with attributes
				return nil
			}
			seen[c.name] = true
			column(c.name)
		}
		if len(t.Columns) > maxColumns || len(t.Columns)*len(list) > maxTableCells {
			return nil
		}
	}
	for _, rec := range list {
		row := make([]string, len(t.Columns))
		for i := 0; i < len(rec.attrs); i += 2 {
			row[index[rec.attrs[i]]] = rec.attrs[i+1]
		}
		if rec.elements() == 0 {
			row[index[rec.name]] = flatten(rec, nil)
		}
		for _, c := range rec.children {
			if c.name == "" {
				continue
			}
			value := flatten(c, nil)
			if len(value) > maxBlockBytes { // prose reads better as text
				return nil
			}
			row[index[c.name]] = value
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// table reads the tables of HTML and CALS.
func (r *reader) table(n *node) {
	var g grid.Builder
	columns := map[string]int{} // of CALS, by the name used in its cells
	notes := []*node{}
	var walk func(n *node, head bool)
	walk = func(n *node, head bool) {
		for _, c := range n.children {
			switch {
			case c.name == "colspec":
				columns[c.attr("colname")] = len(columns)
			case rows[c.name]:
				g.Row()
				for _, d := range c.children {
					if !cells[d.name] {
						continue
					}
					across := number(d.attr("colspan"))
					if from, ok := columns[d.attr("namest")]; ok {
						across = columns[d.attr("nameend")] - from + 1
					}
					down := max(number(d.attr("rowspan")), number(d.attr("morerows"))+1)
					g.Cell(flatten(d, &notes), across, down, head || d.name == "th" || c.name == "sthead")
				}
			default:
				walk(c, head || c.name == "thead")
			}
		}
	}
	walk(n, false)
	name := ""
	for _, c := range n.children {
		if titles[c.name] || captions[c.name] || c.name == "label" {
			name = strings.TrimSpace(name + " " + flatten(c, &notes))
		}
	}
	if t := g.Table(); t != nil {
		t.Name = clean.Clip(name, 1000)
		r.add(sheaf.Block{Kind: sheaf.BlockTable, Table: t})
	} else {
		r.add(sheaf.Block{Kind: sheaf.BlockCaption, Text: name})
	}
	for _, f := range notes {
		r.add(sheaf.Block{Kind: sheaf.BlockFootnote, Text: flatten(f, nil)})
	}
}

// number parses a span, which the standards limit to 1,000.
func number(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return 0
	}
	return min(max(n, 0), 1000)
}

// attr returns the value of an attribute, "" if there is none.
func (n *node) attr(name string) string {
	for i := 0; i < len(n.attrs); i += 2 {
		if n.attrs[i] == name {
			return n.attrs[i+1]
		}
	}
	return ""
}

// pairs returns the readable attributes: "name: value".
func (n *node) pairs() []string {
	var out []string
	for i := 0; i < len(n.attrs); i += 2 {
		if clean.Readable(n.attrs[i+1]) {
			out = append(out, n.attrs[i]+": "+n.attrs[i+1])
		}
	}
	return out
}

// label names an element in a path of headings: by its kind and what distinguishes
// it from its siblings.
func (n *node) label() string {
	for _, key := range []string{"name", "id", "key", "label", "type"} {
		if v := n.attr(key); v != "" && len(v) <= 100 {
			return n.name + " " + v
		}
		for _, c := range n.children {
			if c.name != key || c.elements() > 0 {
				continue
			}
			if v := flatten(c, nil); v != "" && len(v) <= 100 {
				return n.name + " " + v
			}
		}
	}
	return n.name
}

func (n *node) elements() int {
	count := 0
	for _, c := range n.children {
		if c.name != "" {
			count++
		}
	}
	return count
}

// mixed reports whether an element contains both text and elements: the elements
// are words in a sentence.
func (n *node) mixed() bool {
	return slices.ContainsFunc(n.children, func(c *node) bool { return c.name == "" && strings.TrimSpace(c.text) != "" })
}

// flat reports whether an element is empty, or contains only text or fields with text.
func (n *node) flat() bool {
	return !slices.ContainsFunc(n.children, func(c *node) bool { return c.elements() > 0 })
}

// raw returns all text below n verbatim.
func raw(n *node) string {
	var b strings.Builder
	var walk func(n *node)
	walk = func(n *node) {
		b.WriteString(n.text)
		for _, c := range n.children {
			walk(c)
		}
	}
	walk(n)
	return b.String()
}

// flatten returns the text of n on one line. Footnotes go to notes, if it is not
// nil. Adjacent elements without text between them are separate words.
func flatten(n *node, notes *[]*node) string {
	var b strings.Builder
	var walk func(n *node)
	walk = func(n *node) {
		apart := !n.mixed()
		for _, c := range n.children {
			switch {
			case c.name == "":
				b.WriteString(c.text)
			case notes != nil && footnotes[c.name]:
				*notes = append(*notes, c)
			default:
				walk(c)
				if apart || paragraphs[c.name] || items[c.name] {
					b.WriteByte(' ')
				}
			}
		}
	}
	walk(n)
	return clean.Line(b.String())
}
