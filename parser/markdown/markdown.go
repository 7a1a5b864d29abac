// Package markdown is the format of Markdown files with GitHub's extensions
// and front matter. It runs in the parser's child process.
package markdown

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	mdparser "github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/grid"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/links"
	"sheaf/parser/internal/whole"
)

const (
	maxFileBytes = 16 << 20 // measured: 17 MB/s, and the tree takes about 20 times the text
	// maxDepth bounds nested quotes and lists. Each level costs the Markdown
	// parser a pass over the line, and its own walk of the tree is recursive.
	maxDepth = 200
	version  = 3 // changes whenever the same file would yield other blocks
)

// New returns the format.
func New() parser.Format {
	return &format{md: goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote, extension.DefinitionList),
		goldmark.WithParserOptions(mdparser.WithASTTransformers(util.Prioritized(unreferenced{}, 0))))}
}

// unreferenced keeps footnotes that nothing refers to, which the extension would
// remove: they are numbered after the others.
type unreferenced struct{}

// Transform implements goldmark's parser.ASTTransformer.
func (unreferenced) Transform(doc *ast.Document, _ text.Reader, _ mdparser.Context) {
	var notes []*east.Footnote
	last := 0
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the visitor returns no error
		if f, ok := n.(*east.Footnote); ok && entering {
			notes, last = append(notes, f), max(last, f.Index)
		}
		return ast.WalkContinue, nil
	})
	for _, f := range notes {
		if f.Index < 0 {
			last++
			f.Index = last
		}
	}
	// The extension sorts them by inserting one after the other from the front, which
	// takes quadratic time unless the last comes first.
	slices.SortFunc(notes, func(a, b *east.Footnote) int { return b.Index - a.Index })
	for _, f := range notes {
		if list, ok := f.Parent().(*east.FootnoteList); ok {
			list.Count = last // without it, the list is removed
			list.AppendChild(list, f)
		}
	}
}

type format struct{ md goldmark.Markdown }

func (*format) ID() string   { return "markdown" }
func (*format) Version() int { return version }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaMarkdown, Aliases: []string{"text/x-markdown"}, Name: "Markdown", Extensions: []string{".md", ".markdown", ".mdx"},
		Text: true, Families: []sheaf.FileFamily{sheaf.FamilyText}, Unit: sheaf.UnitFile,
	}}
}
func (*format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (f *format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	return whole.New(func(context.Context) (*whole.Content, error) {
		src, guess, err := charset.ReadFile(file, maxFileBytes, "Markdown file", o.Config.Encoding.V, "")
		if err != nil {
			return nil, err
		}
		c := f.read(src)
		c.Metadata = guess.Metadata(c.Metadata)
		c.Warnings = append(guess.Warnings(), c.Warnings...)
		return c, nil
	}), nil
}

func (f *format) read(src []byte) *whole.Content {
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	meta, src := frontMatter(src)
	c := &whole.Content{Metadata: meta}
	if hostile(src) || tangled(src) || annotated(src) {
		// Read it as plain text, with paragraphs separated by empty lines.
		for p := range strings.SplitSeq(string(src), "\n\n") {
			if p = clean.Lines(p); p != "" {
				c.Blocks = append(c.Blocks, sheaf.Block{Kind: sheaf.BlockParagraph, Text: p})
			}
		}
		c.Warnings = []sheaf.Warning{{Code: "markup_too_deep", Message: "The Markdown is nested too deep, opens thousands of links and emphases that it does not close, or has more footnotes than can be matched, so it was read as plain text."}}
		return c
	}
	w := &walker{src: src}
	w.blocks(f.md.Parser().Parse(text.NewReader(src)), state{})
	c.Blocks = w.out
	for _, b := range c.Blocks {
		if b.Kind == sheaf.BlockHeading {
			if c.Metadata["title"] == "" {
				c.Metadata["title"] = clean.Clip(b.Text, 1000)
			}
			break
		}
	}
	return c
}

// hostile detects nesting that only attacks have: a line that opens hundreds of
// quotes, lists or brackets.
func hostile(src []byte) bool {
	for line := range bytes.Lines(src) {
		depth, brackets := 0, 0
		leading := true
		for i, c := range line {
			switch c {
			case '>', '-', '*', '+':
				if leading {
					depth++
				}
			case ' ', '\t':
			case '[':
				brackets++
				leading = false
			case ']':
				brackets = max(0, brackets-1)
				leading = false
			default:
				leading = false
			}
			// A rule of dashes is one token, however long.
			if i > 0 && leading && c == line[i-1] && c != '>' {
				depth--
			}
			if depth > maxDepth || brackets > 20*maxDepth {
				return true
			}
		}
		if leading && len(line) > 0 && indent(line) > 10*maxDepth {
			return true
		}
	}
	return false
}

// Limits on the delimiters that the parser compares with each other: it scans the
// openers of emphasis and links for each possible closer, and a text that opens
// thousands and closes none takes quadratic time. These take 0.2 s.
const (
	maxMarks   = 10_000 // runs of * _ ~ in a block
	maxUnended = 5_000  // ](  without its ) in a block
)

// tangled detects blocks with more delimiters than the parser reads in time. Lists
// and tables, whose lines are separate blocks, may have any number.
func tangled(src []byte) bool {
	var marks, unended int
	var list byte // the kind of list that the block is, 0 for none
	begin, table := true, false
	for line := range bytes.Lines(src) {
		text := bytes.TrimSpace(line)
		switch {
		case len(text) == 0:
			begin, table = true, false
			continue
		case begin:
			list = marker(text)
			marks, unended = 0, 0
		case bytes.Trim(text, "|:- \t") == nil && bytes.ContainsRune(text, '-') && bytes.ContainsRune(text, '|'):
			table = true
		case table || text[0] == '#' || list != 0 && marker(text) == list:
			marks, unended = 0, 0
		}
		begin = false
		for i, c := range text {
			switch {
			case (c == '*' || c == '_' || c == '~') && (i == 0 || text[i-1] != c):
				marks++
			case c == '(' && i > 0 && text[i-1] == ']':
				unended++
			case c == ')':
				unended = max(0, unended-1)
			}
		}
		if marks > maxMarks || unended > maxUnended {
			return true
		}
	}
	return false
}

// maxNotes bounds the references to footnotes times the footnotes: the parser looks
// for each in the list of them. They take 0.3 s; books have 5,000 notes with a
// reference each at most.
const maxNotes = 25_000_000

// annotated detects texts with more footnotes than the parser matches in time.
func annotated(src []byte) bool {
	notes, refs := 0, bytes.Count(src, []byte("[^"))
	if refs*refs <= maxNotes {
		return false // the most that there can be
	}
	for line := range bytes.Lines(src) {
		if label, ok := bytes.CutPrefix(bytes.TrimLeft(line, " \t>"), []byte("[^")); ok && bytes.Contains(label, []byte("]:")) {
			notes++
		}
	}
	return notes*(refs-notes) > maxNotes
}

// marker returns how a line begins a list item: '-', '*', '+', '1' for a number; 0
// if it does not.
func marker(line []byte) byte {
	digits := 0
	for digits < len(line) && line[digits] >= '0' && line[digits] <= '9' {
		digits++
	}
	end := max(digits, 1)
	if digits > 0 && end < len(line) && (line[end] == '.' || line[end] == ')') {
		end++
	} else if digits > 0 || !bytes.ContainsAny(line[:1], "-*+") {
		return 0
	}
	if end < len(line) && line[end] != ' ' && line[end] != '\t' {
		return 0
	}
	if digits > 0 {
		return '1'
	}
	return line[0]
}

func indent(line []byte) int {
	n := 0
	for n < len(line) && line[n] == ' ' {
		n++
	}
	return n
}

// frontMatter cuts off the leading YAML block between two lines of dashes, as used
// by static site generators. Only plain "key: value" lines are understood.
func frontMatter(src []byte) (map[string]string, []byte) {
	meta := map[string]string{}
	body, ok := bytes.CutPrefix(src, []byte("---\n"))
	if !ok {
		return meta, src
	}
	end := 0 // of an empty block
	if !bytes.HasPrefix(body, []byte("---")) {
		if end = bytes.Index(body, []byte("\n---")) + 1; end == 0 || end > 64<<10 {
			return meta, src
		}
	}
	rest := body[end+3:]
	if i := bytes.IndexByte(rest, '\n'); i >= 0 && len(bytes.TrimSpace(rest[:i])) == 0 {
		rest = rest[i+1:]
	} else if len(bytes.TrimSpace(rest)) > 0 {
		return meta, src
	}
	for line := range bytes.Lines(body[:end]) {
		if !isYAML(line) {
			return meta, src // two rules with text between them
		}
	}
	names := map[string]string{"title": "title", "author": "author", "authors": "author", "description": "description", "date": "created", "lang": "language", "language": "language",
		"keywords": "keywords", "tags": "keywords", "updated": "modified", "lastmod": "modified", "category": "category", "subtitle": "subject"}
	for line := range bytes.Lines(body[:end]) {
		k, v, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(k) == 0 || k[0] == ' ' || k[0] == '#' || k[0] == '-' {
			continue
		}
		value := strings.Trim(clean.Line(string(v)), `"'[]`)
		if name := names[strings.ToLower(string(k))]; name != "" && value != "" && meta[name] == "" {
			meta[name] = clean.Clip(value, 1000)
		}
	}
	return meta, rest
}

// isYAML reports whether a line can be one of plain YAML: an entry with a key of a few
// words, a part of one, or a comment.
func isYAML(line []byte) bool {
	if s := bytes.TrimSpace(line); len(s) == 0 || bytes.IndexByte([]byte(" \t#-[]{}"), line[0]) >= 0 {
		return true
	}
	key, _, ok := bytes.Cut(line, []byte(":"))
	return ok && len(key) <= 64 && bytes.Count(key, []byte(" ")) < 3
}

type walker struct {
	src   []byte
	out   []sheaf.Block
	found []links.Link // in the text that inline returned last
}

// state is the context of a block.
type state struct {
	depth int
	list  int
	item  bool
	quote bool
	foot  bool
	label *string // what the source has before the item's next text, nil for no number
}

// number puts what the source has before a block's text, once.
func (s state) number(b *sheaf.Block) {
	if s.label != nil && *s.label != "" && b.Text != "" {
		b.Text = *s.label + " " + b.Text
		*s.label = ""
	}
}

func (w *walker) add(b sheaf.Block) {
	if strings.TrimSpace(b.Text) != "" || b.Table != nil {
		w.out = append(w.out, b)
	}
}

func (w *walker) blocks(parent ast.Node, s state) {
	if s.depth > maxDepth+50 {
		return
	}
	s.depth++
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		w.block(n, s)
	}
}

func (w *walker) block(n ast.Node, s state) {
	switch n := n.(type) {
	case *ast.Heading:
		b := sheaf.Block{Kind: sheaf.BlockHeading, Level: n.Level, Text: clean.Line(w.inline(n))}
		b.Links = links.Place(b.Text, w.found)
		w.add(b)
	case *ast.Paragraph, *ast.TextBlock, *east.DefinitionTerm:
		if img := onlyImage(n); img != nil {
			w.add(sheaf.Block{Kind: sheaf.BlockImage, Text: clean.Line(w.inline(img))})
			return
		}
		b := sheaf.Block{Kind: sheaf.BlockParagraph, Text: clean.Lines(w.inline(n))}
		found := w.found
		switch {
		case s.foot:
			b.Kind = sheaf.BlockFootnote
			s.number(&b)
		case s.item:
			b.Kind, b.Level = sheaf.BlockListItem, max(s.list, 1)
			s.number(&b)
		case s.quote:
			b.Kind = sheaf.BlockQuote
		}
		b.Links = links.Place(b.Text, found)
		w.add(b)
	case *ast.List:
		s.list = min(s.list+1, 9)
		number := n.Start
		for item := n.FirstChild(); item != nil; item = item.NextSibling() {
			if s.label = nil; n.IsOrdered() {
				label := strconv.Itoa(number) + string(rune(n.Marker))
				s.label = &label
				number++
			}
			w.block(item, s)
		}
	case *ast.ListItem:
		s.item = true
		w.blocks(n, s)
	case *east.DefinitionDescription:
		s.item = true
		s.list = min(s.list+1, 9)
		w.blocks(n, s)
	case *ast.Blockquote:
		s.quote = true
		w.blocks(n, s)
	case *east.Footnote:
		s.foot = true
		label := "[" + strconv.Itoa(n.Index) + "]"
		s.label = &label
		w.blocks(n, s)
	case *ast.FencedCodeBlock:
		w.add(sheaf.Block{Kind: sheaf.BlockCode, Text: w.lines(n), Lang: clean.Line(clean.Clip(string(n.Language(w.src)), 40))})
	case *ast.CodeBlock:
		w.add(sheaf.Block{Kind: sheaf.BlockCode, Text: w.lines(n)})
	case *ast.HTMLBlock:
		raw := w.lines(n)
		if n.HasClosure() {
			raw += string(n.ClosureLine.Value(w.src))
		}
		for _, b := range htmlblocks.Read([]byte(raw)).Blocks {
			w.add(b)
		}
	case *east.Table:
		var g grid.Builder
		for row := n.FirstChild(); row != nil; row = row.NextSibling() {
			_, head := row.(*east.TableHeader)
			g.Row()
			for c := row.FirstChild(); c != nil; c = c.NextSibling() {
				g.Cell(clean.Lines(w.inline(c)), 1, 1, head)
				for _, l := range w.found {
					g.Link(l.URI)
				}
			}
		}
		if t := g.Table(); t != nil {
			w.add(sheaf.Block{Kind: sheaf.BlockTable, Table: t, Links: g.Links()})
		}
	case *ast.ThematicBreak:
	default:
		w.blocks(n, s)
	}
}

// onlyImage returns the image that a paragraph consists of, or nil.
func onlyImage(n ast.Node) *ast.Image {
	if n.ChildCount() != 1 {
		return nil
	}
	img, _ := n.FirstChild().(*ast.Image)
	return img
}

func (w *walker) lines(n ast.Node) string {
	var b strings.Builder
	for i := range n.Lines().Len() {
		l := n.Lines().At(i)
		b.Write(l.Value(w.src))
	}
	return strings.TrimRight(clean.Text(b.String()), "\n ")
}

// inline returns the text of a node's inline children without their markup, and sets
// found to the links in it.
func (w *walker) inline(parent ast.Node) string {
	var b strings.Builder
	w.found = nil
	// The walk stops at a depth that no writer reaches.
	var walk func(n ast.Node, depth int)
	walk = func(n ast.Node, depth int) {
		for c := n.FirstChild(); c != nil && depth < 2*maxDepth; c = c.NextSibling() {
			switch c := c.(type) {
			case *ast.Text:
				v := c.Segment.Value(w.src)
				if !c.IsRaw() {
					v = util.UnescapePunctuations(v)
					v = util.ResolveEntityNames(util.ResolveNumericReferences(v))
				}
				b.Write(v)
				if c.HardLineBreak() {
					b.WriteByte('\n')
				} else if c.SoftLineBreak() {
					b.WriteByte(' ')
				}
			case *ast.String:
				b.Write(c.Value)
			case *ast.AutoLink:
				b.Write(c.Label(w.src))
				if uri := links.Address(string(c.URL(w.src)), nil); uri != "" {
					w.found = append(w.found, links.Link{Text: string(c.Label(w.src)), URI: uri})
				}
			case *ast.Link:
				from := b.Len()
				walk(c, depth+1)
				if uri := links.Address(string(c.Destination), nil); uri != "" {
					w.found = append(w.found, links.Link{Text: b.String()[from:], URI: uri})
				}
			case *ast.RawHTML:
				var raw []byte
				for i := range c.Segments.Len() {
					s := c.Segments.At(i)
					raw = append(raw, s.Value(w.src)...)
				}
				if bytes.HasPrefix(bytes.ToLower(raw), []byte("<br")) {
					b.WriteByte('\n')
				}
			case *east.TaskCheckBox:
				if c.IsChecked {
					b.WriteString("[x] ")
				} else {
					b.WriteString("[ ] ")
				}
			case *east.FootnoteLink:
				b.WriteString("[" + strconv.Itoa(c.Index) + "]")
			case *east.FootnoteBacklink:
			default:
				walk(c, depth+1)
			}
		}
	}
	walk(parent, 0)
	return b.String()
}
