package odf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/embedded"
	"sheaf/parser/internal/grid"
	"sheaf/parser/internal/links"
	"sheaf/parser/internal/picture"
	"sheaf/parser/internal/shown"
	"sheaf/parser/internal/whole"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

// Limits that only hostile files reach.
const (
	maxAnchors    = 32 // links inside links
	maxSpans      = 64 // spans inside spans
	maxRepeated   = 100
	maxObjects    = 200
	maxObjectSize = 16 << 20 // inflated, of one object
	maxDrawn      = 4000     // bytes of a description
)

type paragraph struct {
	text    strings.Builder
	style   style
	level   int // of a heading, 0 for none
	list    int // nesting, 0 for none
	label   string
	note    bool
	toc     bool
	links   []links.Link
	open    []anchor // links that have begun
	spans   []style  // of open spans
	hidden  int
	spaced  bool // the text ends with white space of the markup
	dropped int  // spans beyond the limit
}

type anchor struct {
	from int
	uri  string
}

// list is an open list, from the outermost.
type list struct {
	style *listStyle
	count *counter
	item  bool // one has begun that no paragraph has taken yet: what only holds another list is not counted
	start int  // its own number, -1 for none
}

// frame is an open frame: a picture, an object or a box, with what describes it.
type frame struct {
	title, text strings.Builder
	images      []string // parts
	objects     []string
	ole         []string
	into        *strings.Builder // where text goes, nil for the paragraph
	isBox       bool             // it holds text or a table, beside which a picture says nothing new
	class       string           // of a slide's frame: title, outline, notes …
	box         *rect            // where a slide shows it, nil if unknown
	begin       int              // where its blocks begin in reader.out
	list        string           // style of the list that has ended last in it, and its counter
	count       *counter
}

// table is an open table; tables nest.
type table struct {
	grid         grid.Cells
	name         string
	rows         int
	column       int
	heads        int // open groups of header rows
	cell         int // where the cell's blocks begin in reader.out
	inCell       bool
	across, down int
	repeat       int
	first        bool // the table's style marks its first row
	text, other  bool // the cell has text, and some that is not styled as a heading of a table
}

type reader struct {
	kind     string // extension of the file, for errors
	ctx      context.Context
	z        *zipfile.Archive
	files    *embedded.Reader
	styles   *styles
	out      []sheaf.Block // finished blocks; those of open cells are at the end
	notes    []sheaf.Block // follow the text
	warnings []sheaf.Warning
	blocks   int
	bare     int // pictures without a description
	comments int
	objects  int
	inside   bool // an object of another document, whose objects are not read
	slide    *slide
	pageFunc func(s *slide, blocks []sheaf.Block) error // takes a slide that has ended, nil for texts

	paras               []*paragraph
	lists               []list
	tables              []*table
	frames              []*frame
	noteMark            []string // marks of open notes, "" once shown
	toc                 int
	endnote             bool // the note that has begun last is one
	footnotes, endnotes int
	checkbox            bool // one has begun,
	ticked              bool // which is ticked
	headings            counter
	counters            map[string]*counter // by id of a list, and by name of its style
}

func (r *reader) warn(code, message string) {
	r.warnings = append(r.warnings, sheaf.Warning{Code: code, Message: message})
}

func last[T any](of []T) (v T) {
	if n := len(of); n > 0 {
		return of[n-1]
	}
	return v
}

func (r *reader) add(blocks ...sheaf.Block) error { return r.addTo(&r.out, blocks...) }

func (r *reader) addTo(out *[]sheaf.Block, blocks ...sheaf.Block) error {
	if r.blocks += len(blocks); r.blocks > maxBlocks {
		return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The document has more than %d paragraphs; split it into smaller files.", maxBlocks)
	}
	*out = append(*out, blocks...)
	return nil
}

// part reads what is in an element of a part, in a single pass.
func (r *reader) part(name, within string) error {
	p, err := r.z.Part(name, zipfile.MaxPartBytes)
	if err != nil {
		return err
	}
	defer p.Close()
	r.paras, r.lists, r.tables, r.frames, r.noteMark, r.toc = nil, nil, nil, nil, nil, 0
	r.headings, r.counters = counter{}, map[string]*counter{}
	s := xmlscan.New(p)
	inside := 0
	for n := 0; ; n++ {
		if n&0xffff == 0 && r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		k, err := s.Next()
		if err != nil {
			_ = r.finish() // the first error counts
			if errors.Is(err, xmlscan.ErrDepth) {
				return sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The document's markup is nested more than %d levels deep; save it again and upload that.", xmlscan.MaxDepth)
			}
			if _, ok := errors.AsType[*sheaf.Failure](err); ok {
				return err
			}
			return zipfile.Invalid(r.kind, "its part %s is damaged: %v", name, err)
		}
		switch {
		case k == xmlscan.EOF:
			if err = r.finish(); err == nil && s.Depth() > 0 {
				err = zipfile.Invalid(r.kind, "its part %s breaks off", name)
			}
			return err
		case k == xmlscan.Start && string(s.Name()) == within:
			inside++
		case k == xmlscan.End && string(s.Name()) == within:
			inside--
		case inside == 0:
		case k == xmlscan.Text:
			r.write(s.Text())
		case k == xmlscan.Start:
			err = r.begin(s)
		case k == xmlscan.End:
			err = r.end(string(s.Name()), string(s.Prefix()))
		}
		if err != nil {
			return err
		}
	}
}

// finish closes what a damaged part left open.
func (r *reader) finish() error {
	for len(r.paras) > 0 {
		if err := r.endParagraph(); err != nil {
			return err
		}
	}
	for len(r.tables) > 0 {
		r.endCell()
		if err := r.endTable(); err != nil {
			return err
		}
	}
	return nil
}

// write adds text of the markup, in which white space is one space (part 3, 6.1.2).
func (r *reader) write(text []byte) {
	if f := last(r.frames); f != nil && f.into != nil {
		if f.into.Len() < maxDrawn {
			f.into.Write(text)
		}
		return
	}
	p := last(r.paras)
	if p == nil || p.hidden > 0 || p.text.Len() > whole.MaxTextBytes {
		return
	}
	font := p.style.symbols
	if n := len(p.spans); n > 0 {
		font = cmp.Or(p.spans[n-1].symbols, font)
	}
	if font != "" {
		text = []byte(shown.Text(font, string(text)))
	}
	p.spaced = collapse(&p.text, text, p.spaced)
}

// collapse writes text with its white space as one space, and reports whether it ends
// with one. spaced tells whether what was written before does.
func collapse(to *strings.Builder, text []byte, spaced bool) bool {
	for _, c := range text {
		blank := c == ' ' || c == '\t' || c == '\n' || c == '\r'
		if !blank {
			to.WriteByte(c)
		} else if !spaced {
			to.WriteByte(' ')
		}
		spaced = blank
	}
	return spaced
}

// put adds characters that elements stand for.
func (r *reader) put(text string) {
	if p := last(r.paras); p != nil && p.hidden == 0 && p.text.Len() <= whole.MaxTextBytes {
		p.text.WriteString(text)
		p.spaced = false
	}
}

// number reads an attribute that counts something.
func number(s *xmlscan.Scanner, attr string, least, most int) int {
	v, err := strconv.Atoi(s.Attr(attr))
	if err != nil {
		return least
	}
	return min(max(v, least), most)
}

// shapes are the elements of the drawing namespace that are read as frames.
var shapes = map[string]bool{"frame": true, "rect": true, "line": true, "polyline": true, "polygon": true, "regular-polygon": true, "path": true, "circle": true,
	"ellipse": true, "connector": true, "measure": true, "caption": true, "custom-shape": true, "g": true}

// indexes list what stands elsewhere.
var indexes = map[string]bool{"table-of-content": true, "illustration-index": true, "table-index": true, "object-index": true, "user-index": true, "alphabetical-index": true}

func (r *reader) begin(s *xmlscan.Scanner) error {
	el := string(s.Name())
	switch {
	case shapes[el] && string(s.Prefix()) == "draw":
		return r.beginFrame(s)
	case indexes[el]:
		r.toc++
		return nil
	}
	switch el {
	case "tracked-changes", "forms", "ruby-text", "annotation-end", "scripts", "event-listeners", "meta-field-info",
		"table-of-content-source", "illustration-index-source", "table-index-source", "object-index-source", "user-index-source", "alphabetical-index-source", "bibliography-source",
		"user-field-decls", "variable-decls", "sequence-decls", "dde-connection-decls", "covered-table-cell", "shapes":
		// Deleted text lies in tracked-changes. The cells that another covers are empty, or
		// hold what was there before they were joined.
		return skip(s)
	case "annotation":
		r.comments++
		return skip(s)
	case "section":
		if s.Attr("display") == "none" {
			return skip(s)
		}
	case "p", "h":
		r.beginParagraph(s, el == "h")
	case "span":
		if p := last(r.paras); p != nil {
			if len(p.spans) == maxSpans {
				p.dropped++
				break
			}
			of := r.styles.find("text", s.Attr("style-name"))
			if p.spans = append(p.spans, of); of.hidden {
				p.hidden++
			}
		}
	case "fieldmark":
		r.checkbox = strings.HasSuffix(s.Attr("type"), ".FORMCHECKBOX")
		r.ticked = false
	case "param":
		r.ticked = r.ticked || s.Attr("name") == "Checkbox_Checked" && s.Attr("value") == "true"
	case "s":
		r.put(strings.Repeat(" ", number(s, "c", 1, 1000)))
	case "tab":
		r.put("\t")
	case "line-break":
		r.put("\n")
	case "a":
		if p := last(r.paras); p != nil && len(p.open) < maxAnchors {
			p.open = append(p.open, anchor{p.text.Len(), links.Address(s.Attr("href"), nil)})
		}
	case "note":
		r.noteMark = append(r.noteMark, "")
		r.endnote = s.Attr("note-class") == "endnote"
	case "note-citation":
		// Its text is the number as of the last time that somebody looked at the page.
		mark := clean.Line(clean.Clip(s.Attr("label"), 40))
		switch {
		case mark != "":
		case r.endnote:
			r.endnotes++
			mark = shown.Number("lowerRoman", r.endnotes)
		default:
			r.footnotes++
			mark = shown.Number("decimal", r.footnotes)
		}
		if n := len(r.noteMark); n > 0 {
			r.noteMark[n-1] = "[" + mark + "]"
			r.put(r.noteMark[n-1])
		}
		return skip(s)
	case "list":
		r.beginList(s)
	case "list-item":
		if n := len(r.lists); n > 0 {
			l := &r.lists[n-1]
			l.item, l.start = true, -1
			if v, err := strconv.Atoi(s.Attr("start-value")); err == nil && v >= 0 && v < maxCount {
				l.start = v
			}
		}
	case "list-header":
		if n := len(r.lists); n > 0 {
			r.lists[n-1].item = false
		}
	case "page":
		if r.pageFunc != nil && string(s.Prefix()) == "draw" {
			r.slide = &slide{style: s.Attr("style-name"), master: s.Attr("master-page-name")}
		}
	case "notes":
		if r.slide != nil {
			r.slide.notes = len(r.out)
			r.slide.noted = true
		}
	case "page-thumbnail":
		return skip(s)
	case "page-number", "page-count":
		if r.slide != nil { // "<number>"
			return skip(s)
		}
	case "title", "desc":
		if f := last(r.frames); f != nil && string(s.Prefix()) == "svg" {
			if f.into = &f.text; el == "title" {
				f.into = &f.title
			}
		}
	case "text-box":
		if f := last(r.frames); f != nil {
			f.isBox = true
		}
	case "image":
		if f := last(r.frames); f != nil && len(f.images) < maxObjects {
			f.images = append(f.images, s.Attr("href"))
		}
	case "object":
		if f := last(r.frames); f != nil && len(f.objects) < maxObjects {
			f.objects = append(f.objects, s.Attr("href"))
		}
	case "object-ole":
		if f := last(r.frames); f != nil && len(f.ole) < maxObjects {
			f.ole = append(f.ole, s.Attr("href"))
		}
	case "table":
		if string(s.Prefix()) == "table" {
			if f := last(r.frames); f != nil {
				f.isBox = true // the picture beside it shows the same
			}
			r.tables = append(r.tables, &table{name: s.Attr("name"), first: s.Attr("use-first-row-styles") == "true"})
		}
	case "table-header-rows":
		if t := last(r.tables); t != nil {
			t.heads++
		}
	case "table-row":
		if t := last(r.tables); t != nil {
			t.rows = t.grid.Row()
			t.column = 0
		}
	case "table-cell":
		if t := last(r.tables); t != nil {
			t.across, t.down = number(s, "number-columns-spanned", 1, grid.MaxColumns), number(s, "number-rows-spanned", 1, 65_534)
			t.repeat = number(s, "number-columns-repeated", 1, maxRepeated)
			t.cell, t.inCell, t.text, t.other = len(r.out), true, false, false
		}
	}
	return nil
}

// skip passes over the element that has begun.
func skip(s *xmlscan.Scanner) error {
	_ = s.Skip() // Next reports an error again
	return nil
}

func (r *reader) end(el, prefix string) error {
	switch {
	case shapes[el] && prefix == "draw":
		return r.endFrame()
	case indexes[el]:
		r.toc = max(r.toc-1, 0)
		return nil
	}
	switch el {
	case "p", "h":
		return r.endParagraph()
	case "span":
		p := last(r.paras)
		switch {
		case p == nil:
		case p.dropped > 0:
			p.dropped--
		case len(p.spans) > 0:
			if last(p.spans).hidden {
				p.hidden--
			}
			p.spans = p.spans[:len(p.spans)-1]
		}
	case "fieldmark":
		if r.checkbox {
			r.put(map[bool]string{false: "☐ ", true: "☒ "}[r.ticked])
		}
		r.checkbox = false
	case "a":
		if p := last(r.paras); p != nil && len(p.open) > 0 {
			a := last(p.open)
			p.open = p.open[:len(p.open)-1]
			if a.uri != "" {
				p.links = append(p.links, links.Link{Text: p.text.String()[a.from:], URI: a.uri})
			}
		}
	case "note":
		if n := len(r.noteMark); n > 0 {
			r.noteMark = r.noteMark[:n-1]
		}
	case "list":
		if n := len(r.lists); n > 0 {
			r.lists = r.lists[:n-1]
		}
	case "title", "desc":
		if f := last(r.frames); f != nil && prefix == "svg" {
			f.into = nil
		}
	case "page":
		if r.slide != nil && prefix == "draw" {
			return r.endPage()
		}
	case "table-header-rows":
		if t := last(r.tables); t != nil {
			t.heads = max(t.heads-1, 0)
		}
	case "table-cell":
		r.endCell()
	case "table":
		return r.endTable()
	}
	return nil
}

func (r *reader) beginParagraph(s *xmlscan.Scanner, heading bool) {
	p := &paragraph{style: r.styles.find("paragraph", s.Attr("style-name")), note: len(r.noteMark) > 0, toc: r.toc > 0}
	p.level = p.style.level
	if heading {
		p.level = number(s, "outline-level", 1, maxLevels)
	}
	if p.style.hidden {
		p.hidden++
	}
	switch n := len(r.lists); {
	case n > 0:
		p.list = min(n, maxLevels-1)
		if l := &r.lists[n-1]; l.item {
			l.item = false
			l.count.next(l.style, min(n, maxLevels)-1, l.start)
			p.label = l.count.label(l.style, min(n, maxLevels)-1)
		}
	case heading && !p.toc && s.Attr("is-list-header") != "true" && r.styles.outline != nil:
		start := -1
		if s.Attr("restart-numbering") == "true" {
			start = number(s, "start-value", r.styles.outline.start(p.level-1), maxCount)
		}
		r.headings.next(r.styles.outline, p.level-1, start)
		p.label = r.headings.label(r.styles.outline, p.level-1)
	}
	r.paras = append(r.paras, p)
}

func (r *reader) endParagraph() error {
	p := last(r.paras)
	if p == nil {
		return nil
	}
	r.paras = r.paras[:len(r.paras)-1]
	raw := p.text.String()
	switch empty := strings.TrimSpace(raw) == ""; {
	case p.label == "" || p.hidden > 0:
	case !empty:
		raw = p.label + " " + strings.TrimLeft(raw, " \t")
	case len(r.tables) > 0: // a column of numbers
		raw = p.label
	}
	b := sheaf.Block{Kind: sheaf.BlockParagraph, Text: clean.Lines(raw)}
	if b.Text == "" {
		return nil
	}
	if t := last(r.tables); t != nil {
		t.text, t.other = true, t.other || !p.style.head
	}
	if f := last(r.frames); f != nil && p.list == 0 {
		f.count, f.list = nil, ""
	}
	switch {
	case p.note:
		b.Kind = sheaf.BlockFootnote
		if n := len(r.noteMark) - 1; n >= 0 && r.noteMark[n] != "" {
			b.Text = r.noteMark[n] + " " + b.Text
			r.noteMark[n] = ""
		}
		b.Links = links.Place(b.Text, p.links)
		return r.addTo(&r.notes, b)
	case r.slide != nil && len(r.tables) == 0 && r.titled():
		b.Kind, b.Level, b.Text = sheaf.BlockHeading, 1, clean.Line(raw)
	case p.level > 0 && !p.toc:
		b.Kind, b.Level, b.Text = sheaf.BlockHeading, min(p.level, 6), clean.Line(raw)
	case p.style.kind == sheaf.BlockCode:
		b.Kind, b.Text = sheaf.BlockCode, strings.TrimRight(clean.Text(raw), " \t\n")
		// Each line of a listing is a paragraph.
		if n := len(r.out) - 1; n >= 0 && r.out[n].Kind == sheaf.BlockCode && len(r.out[n].Text) < 64<<10 && (len(r.tables) == 0 || n >= last(r.tables).cell) {
			r.out[n].Text += "\n" + b.Text
			return nil
		}
	case p.style.kind != "":
		b.Kind = p.style.kind
	case p.list > 0:
		b.Kind, b.Level = sheaf.BlockListItem, p.list
	}
	b.Links = links.Place(b.Text, p.links)
	return r.add(b)
}

func (r *reader) beginList(s *xmlscan.Scanner) {
	if len(r.lists) > 0 {
		outer := r.lists[len(r.lists)-1]
		l := list{style: outer.style, count: outer.count}
		if own := r.styles.lists[s.Attr("style-name")]; own != nil {
			l.style = own
		}
		r.lists = append(r.lists, l)
		return
	}
	name, id := s.Attr("style-name"), s.Attr("id")
	l := list{style: r.styles.lists[name]}
	switch of := s.Attr("continue-list"); {
	case of != "":
		l.count = r.counters["#"+of]
	case s.Attr("continue-numbering") == "true":
		l.count = r.counters[name]
	}
	if f := last(r.frames); l.count == nil && r.slide != nil && f != nil && f.list == name {
		l.count = f.count // each paragraph of a slide's list is a list of its own
	}
	if l.count == nil {
		l.count = &counter{}
	}
	if f := last(r.frames); f != nil {
		f.list, f.count = name, l.count
	}
	if len(r.counters) < maxStyles {
		r.counters[name] = l.count
		if id != "" {
			r.counters["#"+id] = l.count
		}
	}
	r.lists = append(r.lists, l)
}

func (r *reader) beginFrame(s *xmlscan.Scanner) error {
	f := &frame{class: s.Attr("class"), begin: len(r.out)}
	if outer := last(r.frames); outer != nil && f.class == "" {
		f.class = outer.class // of a group
	}
	if r.slide != nil && (recurring[f.class] || s.Attr("placeholder") == "true") {
		return skip(s)
	}
	if b := (rect{length(s.Attr("x")), length(s.Attr("y")), length(s.Attr("width")), length(s.Attr("height"))}); r.slide != nil && b.w > 0 && b.h > 0 && s.Attr("transform") == "" {
		f.box = &b
	}
	r.frames = append(r.frames, f)
	return nil
}

// endFrame adds what a frame shows: an object, or the picture that stands for it.
func (r *reader) endFrame() error {
	f := last(r.frames)
	if f == nil {
		return nil
	}
	r.frames = r.frames[:len(r.frames)-1]
	defer func() { r.placed(f) }()
	full := f.isBox
	for _, href := range f.objects {
		ok, err := r.object(href)
		if err != nil {
			return err
		}
		full = full || ok
	}
	for _, href := range f.ole {
		blocks, err := r.files.Shown(r.ctx, partOf(href), "")
		if err := errors.Join(err, r.add(blocks...)); err != nil {
			return err
		}
		full = full || len(blocks) > 0
	}
	if full {
		return nil
	}
	alt := f.text.String()
	if strings.TrimSpace(alt) == "" {
		alt = f.title.String()
	}
	if alt = clean.Line(clean.Clip(alt, maxDrawn)); !clean.Readable(alt) {
		alt = ""
	}
	name := ""
	for _, href := range f.images { // the same picture in several formats
		if name = picture.Name(r.z, partOf(href)); name != "" {
			break
		}
	}
	if alt == "" && len(f.images) > 0 {
		r.bare++
	}
	if alt == "" && name == "" {
		return nil
	}
	return r.add(sheaf.Block{Kind: sheaf.BlockImage, Text: alt, Picture: name})
}

// partOf is the part that a reference of the text names.
func partOf(href string) string { return strings.TrimPrefix(path.Clean("/"+href), "/") }

// object adds what an embedded document shows: the table behind a chart, the tables of a
// sheet, a text, or a formula, which is part of the paragraph.
func (r *reader) object(href string) (any bool, err error) {
	name := partOf(href) + "/" + contentPart
	if r.inside || r.objects >= maxObjects || !r.z.Has(name) || r.z.Size(name) > maxObjectSize {
		return false, nil
	}
	r.objects++
	if formula, ok := r.formula(name); ok {
		r.put(formula)
		return formula != "", nil
	}
	in := &reader{kind: r.kind, ctx: r.ctx, z: r.z, files: r.files, styles: newStyles(), inside: true, blocks: r.blocks}
	in.styles.read(r.z, name)
	if err := in.part(name, "body"); err != nil {
		if r.ctx.Err() != nil || in.blocks > maxBlocks {
			return false, err
		}
		r.warn("document_damaged", "An embedded object could not be read to its end.")
	}
	tables, title := false, ""
	for _, b := range in.out {
		if b.Table != nil {
			tables = true
		} else if title == "" {
			title = clean.Line(b.Text)
		}
	}
	for _, b := range append(in.out, in.notes...) {
		if tables {
			if b.Table == nil {
				continue // titles of axes, and notes on the sheet
			}
			if b.Table.Name == "local-table" {
				b.Table.Name = title
			}
		}
		if b.Kind == sheaf.BlockHeading {
			b.Kind, b.Level = sheaf.BlockParagraph, 0
		}
		if err := r.add(b); err != nil {
			return true, err
		}
		any = true
	}
	return any, nil
}

// formula reads MathML, if that is what the part holds.
func (r *reader) formula(name string) (text string, ok bool) {
	p, err := r.z.Part(name, maxObjectSize)
	if err != nil {
		return "", false
	}
	defer p.Close()
	var words []string
	for s := xmlscan.New(p); len(words) < 10_000; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			break
		}
		switch el := string(s.Name()); {
		case k == xmlscan.Start && !ok:
			if el != "math" {
				return "", false
			}
			ok = true
		case k == xmlscan.Start && strings.HasPrefix(el, "annotation"):
			_ = s.Skip() // Next reports an error again
		case k == xmlscan.Text:
			if w := clean.Line(string(s.Text())); w != "" {
				words = append(words, w)
			}
		}
	}
	return strings.Join(words, " "), ok
}

func (r *reader) endCell() {
	t := last(r.tables)
	if t == nil || !t.inCell {
		return
	}
	t.inCell = false
	blocks := r.out[min(t.cell, len(r.out)):]
	text := t.grid.Text(blocks)
	r.out = r.out[:len(r.out)-len(blocks)]
	head := t.heads > 0 || t.first && t.rows == 1 || t.text && !t.other
	for range t.repeat {
		t.grid.Cell(text, t.across, t.down, head)
		t.column += t.across
		if t.column > grid.MaxColumns {
			break
		}
	}
	t.grid.Wide(t.column)
}

func (r *reader) endTable() error {
	t := last(r.tables)
	if t == nil {
		return nil
	}
	r.tables = r.tables[:len(r.tables)-1]
	if blocks, ok := t.grid.Frame(); ok {
		r.out = append(r.out, blocks...)
		return nil
	}
	if t.grid.Clipped {
		r.warn("table_clipped", fmt.Sprintf("A table is larger than %d columns or %d cells and was cut there.", grid.MaxColumns, grid.MaxCells))
	}
	blocks := t.grid.Blocks() // pictures after the table to which they belong
	if r.inside && len(blocks) > 0 && blocks[0].Table != nil {
		blocks[0].Table.Name = t.name
	}
	return r.add(blocks...)
}
