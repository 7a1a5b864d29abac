// Package docx is the format of Word documents (ISO/IEC 29500): headings,
// lists, tables, notes, text boxes, diagrams and descriptions of pictures, as the
// text reads with all tracked changes accepted. It runs in the parser's child process.
package docx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/chart"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/diagram"
	"sheaf/parser/internal/embedded"
	"sheaf/parser/internal/grid"
	"sheaf/parser/internal/links"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/picture"
	"sheaf/parser/internal/shown"
	"sheaf/parser/internal/whole"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

const (
	version = 6 // changes whenever the same file would yield other blocks
	// maxBlocks limits what empty markup can produce: a 5,000-page book has some
	// 100,000 paragraphs.
	maxBlocks = 500_000
)

// New returns the format. recognition reads the text in pictures if the setting
// ocr_pictures is on. formats finds the readers of embedded files; it is called while
// a document is read, so the registry may include this format.
func New(recognition ocr.Config, formats func() *parser.Registry) parser.Format {
	return format{recognition, formats}
}

type format struct {
	ocr     ocr.Config
	formats func() *parser.Registry
}

func (format) ID() string     { return "docx" }
func (f format) Version() int { return version + f.ocr.Digest() }
func (format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaDOCX, Aliases: []string{"application/vnd.openxmlformats-officedocument.wordprocessingml.template",
			"application/vnd.ms-word.document.macroenabled.12", "application/vnd.ms-word.template.macroenabled.12"},
		Name: "Word", Extensions: []string{".docx", ".docm"}, Magic: []parser.Magic{{Entry: "word/*"}},
		Families: []sheaf.FileFamily{sheaf.FamilyDocument}, Unit: sheaf.UnitFile,
	}}
}
func (format) Options() []string { return []string{"ocr_pictures", "table_rows"} } // the latter in embedded files

// Open implements parser.Format.
func (f format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	z, err := zipfile.Open(file, "docx")
	if err != nil {
		return nil, err
	}
	main := z.Main("word/document.xml")
	if !z.Has(main) {
		return nil, zipfile.Invalid("docx", "it has no main document part")
	}
	return whole.WithPictures(func(ctx context.Context) (*whole.Content, error) {
		c, err := read(ctx, z, main, &embedded.Reader{Archive: z, Formats: f.formats(), Options: o})
		if err == nil && o.Config.OCRPictures.V {
			r := picture.Reader{Archive: z, OCR: f.ocr, TempDir: o.TempDir}
			c.Cost, r.Left = picture.Budget(1, c.Blocks)
			c.Finish = r.Read
		}
		return c, err
	}, func(name string, side int) ([]byte, error) { return picture.Draw(z, name, side) }), nil
}

func read(ctx context.Context, z *zipfile.Archive, main string, files *embedded.Reader) (*whole.Content, error) {
	rels := z.Rels(main)
	r := &reader{ctx: ctx, z: z, files: files, chart: func(id string) *sheaf.Table {
		p, err := z.Part(rels[id].Target, zipfile.MaxPartBytes)
		if err != nil {
			return nil
		}
		defer p.Close()
		return chart.Read(p)
	}, diagrams: map[string]bool{}}
	r.diagram = func(id string) (texts []string) {
		p, err := z.Part(rels[id].Target, zipfile.MaxPartBytes)
		if err == nil {
			defer p.Close()
			texts, err = diagram.Points(p)
		}
		if err != nil {
			r.warn("diagram_damaged", "A diagram is missing or could not be read to its end.")
		}
		return texts
	}
	var notes, headers []string
	lists := ""
	for _, rel := range rels {
		switch rel.Type {
		case "styles":
			r.styles = readStyles(z, rel.Target)
		case "numbering":
			lists = rel.Target
		case "footnotes", "endnotes":
			notes = append(notes, rel.Target)
		case "header", "footer":
			headers = append(headers, rel.Target)
		}
	}
	r.numbers = readNumbering(z, lists, r.styles)
	if err := r.part(z, main, false); err != nil {
		if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code != "invalid_docx" || r.body() == 0 {
			return nil, err
		}
		r.warn("document_damaged", "The document breaks off inside; what stands before was read.")
	}
	if whole.TextBytes(r.out) == 0 { // a letterhead; elsewhere they are on every page and say nothing of it
		sort.Sort(sort.Reverse(sort.StringSlice(headers))) // headers, footers
		for _, h := range headers {
			if err := r.part(z, h, false); err != nil && !errors.Is(err, zipfile.ErrMissing) {
				r.warn("document_damaged", "A header or footer could not be read to its end.")
			}
		}
	}
	sort.Strings(notes) // endnotes, footnotes: the same order on every read
	for _, n := range notes {
		if err := r.part(z, n, true); err != nil && !errors.Is(err, zipfile.ErrMissing) {
			r.warn("notes_damaged", "The footnotes or endnotes could not be read to their end.")
		}
	}
	if r.bare > 0 {
		r.warn("images_ignored", fmt.Sprintf("Pictures without a description (%d) are not found by what they show; describe them in Word (alternative text), or set ocr_pictures where they hold text.", r.bare))
	}
	for _, rel := range rels {
		if rel.Type != "comments" {
			continue
		}
		if n := countComments(z, rel.Target); n > 0 {
			r.warn("comments_ignored", fmt.Sprintf("Reviewer comments (%d) were not read; they are not part of the text.", n))
		}
	}
	r.warnings = append(r.warnings, files.Warnings()...)
	if r.included > 0 {
		r.warn(embedded.Ignored, fmt.Sprintf("Files that the document includes (%d) could not be read; upload them as well.", r.included))
	}
	return &whole.Content{Blocks: r.out, Metadata: z.Properties(), Warnings: r.warnings}, nil
}

func countComments(z *zipfile.Archive, part string) (n int) {
	p, err := z.Part(part, zipfile.MaxPartBytes)
	if err != nil {
		return 0
	}
	defer p.Close()
	for s := xmlscan.New(p); ; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return n
		}
		if k == xmlscan.Start && string(s.Name()) == "comment" {
			n++
		}
	}
}

// style holds the properties that a paragraph style gives its paragraphs.
type style struct {
	level  int // of a heading, 0 for none
	kind   sheaf.BlockKind
	list   int // nesting, 0 for none
	base   string
	toc    bool
	listed bool   // numbering is specified, if only to turn it off
	num    string // of the list that numbers it, see numbering
	place  int    // its level there, unless the list names the style
	by     string // the style that says so, which may be one below
}

// headingNames are the localized names that programs other than Word give their
// heading styles; Word itself stores the English name.
var headingNames = regexp.MustCompile(`^(?:heading|überschrift|titre|título|titulo|titolo|kop|rubrik|overskrift|otsikko|nagłówek|nadpis|заголовок|标题|標題|見出し|제목|başlık|címsor)\s*([1-9])$`)

func readStyles(z *zipfile.Archive, name string) map[string]style {
	out := map[string]style{}
	p, err := z.Part(name, zipfile.MaxPartBytes)
	if err != nil {
		return out
	}
	defer p.Close()
	id, cur, level := "", style{}, 0
	for s := xmlscan.New(p); len(out) < 20_000; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			break
		}
		if k == xmlscan.End && string(s.Name()) == "style" && id != "" {
			out[id] = cur
			id = ""
		}
		if k != xmlscan.Start {
			continue
		}
		switch string(s.Name()) {
		case "style":
			id, cur, level = s.Attr("styleId"), style{}, 0
			switch s.Attr("type") {
			case "paragraph", "numbering", "":
			default:
				id = ""
			}
		case "name":
			n := strings.ToLower(strings.TrimSpace(s.Attr("val")))
			switch {
			case n == "title":
				cur.level = 1
			case n == "caption":
				cur.kind = sheaf.BlockCaption
			case n == "quote" || n == "intense quote" || n == "block text":
				cur.kind = sheaf.BlockQuote
			case n == "html preformatted" || n == "source code" || n == "code" || n == "plain text":
				cur.kind = sheaf.BlockCode
			case strings.HasPrefix(n, "toc "):
				cur.toc = true
			default:
				if m := headingNames.FindStringSubmatch(n); m != nil {
					cur.level = int(m[1][0] - '0')
				}
			}
		case "basedOn":
			cur.base = s.Attr("val")
		case "outlineLvl":
			if v, err := strconv.Atoi(s.Attr("val")); err == nil && v >= 0 && v < 9 && cur.level == 0 {
				cur.level = v + 1
			}
		case "ilvl":
			level, _ = strconv.Atoi(s.Attr("val"))
		case "numId":
			cur.listed, cur.num, cur.place, cur.by = true, s.Attr("val"), level, id
			if s.Attr("val") != "0" {
				cur.list = min(max(level, 0), 8) + 1
			}
		}
	}
	for id, st := range out {
		base := st.base
		for range 12 { // Word allows a chain of 11; cycles end here
			b, ok := out[base]
			if !ok {
				break
			}
			if st.level == 0 {
				st.level = b.level
			}
			if st.kind == "" {
				st.kind = b.kind
			}
			if !st.listed && b.listed {
				st.list, st.listed, st.num, st.place, st.by = b.list, true, b.num, b.place, b.by
			}
			base = b.base
		}
		out[id] = st
	}
	return out
}

type paragraph struct {
	text strings.Builder
	style
	own   bool // numbering is set on the paragraph itself
	at    int  // the level set on the paragraph itself, from 1; 0 for none
	gone  bool // a tracked deletion joins it with the next
	links []links.Link
	open  []anchor // links that have begun
}

// anchor is the start of a link in a paragraph's text: an element, or a field, whose
// address and text follow.
type anchor struct {
	field       bool
	from        int // -1 while the field's text has not begun
	uri         string
	instruction string // of the field, which Word cuts anywhere
}

// Limits that only hostile files reach: links inside links, and bytes of an instruction.
const (
	maxAnchors     = 32
	maxInstruction = 8 << 10
)

func (p *paragraph) begin(a anchor) {
	if len(p.open) < maxAnchors {
		p.open = append(p.open, a)
	}
}

// last returns the link that began last, as an element or a field; nil for none.
func (p *paragraph) last(field bool) *anchor {
	if n := len(p.open); n > 0 && p.open[n-1].field == field {
		return &p.open[n-1]
	}
	return nil
}

func (p *paragraph) end(field bool) {
	a := p.last(field)
	if a == nil {
		return
	}
	if a.uri != "" && a.from >= 0 {
		p.links = append(p.links, links.Link{Text: p.text.String()[a.from:], URI: a.uri})
	}
	p.open = p.open[:len(p.open)-1]
}

// target returns the address in the instruction of a field (ISO/IEC 29500-1,
// 17.16.5.25), "" if it is no link to one.
func target(instruction string) string {
	rest, ok := strings.CutPrefix(strings.TrimSpace(instruction), "HYPERLINK")
	if !ok {
		return ""
	}
	rest = strings.TrimSpace(rest)
	if uri, ok := strings.CutPrefix(rest, `"`); ok {
		uri, _, _ = strings.Cut(uri, `"`)
		return links.Address(uri, nil)
	}
	uri, _, _ := strings.Cut(rest, " ")
	return links.Address(uri, nil)
}

// tableState holds a table while it is read; tables nest.
type tableState struct {
	grid    grid.Cells
	rows    int
	head    bool // the table's style marks its first row
	rowHead bool
	column  int
	above   []string // text of the vertically merged cell that extends down, per column
	span    int
	merge   string
	cell    int // where the cell's blocks begin in reader.out
	inCell  bool
}

type reader struct {
	ctx      context.Context
	styles   map[string]style
	out      []sheaf.Block // finished blocks; those of open cells are at the end
	warnings []sheaf.Warning
	bare     int // pictures without a description
	included int // included files that could not be read
	blocks   int
	notes    bool
	chart    func(id string) *sheaf.Table
	diagram  func(id string) []string
	diagrams map[string]bool // ids of those already read
	z        *zipfile.Archive
	files    *embedded.Reader
	numbers  *numbering
	marks    noteMarks
	mark     string                 // of the note whose text is next
	rels     map[string]zipfile.Rel // of the part being read

	paras  []*paragraph
	tables []*tableState
	alt    string
}

func (r *reader) body() int { return len(r.out) }

func (r *reader) warn(code, message string) {
	r.warnings = append(r.warnings, sheaf.Warning{Code: code, Message: message})
}

func (r *reader) para() *paragraph {
	if n := len(r.paras); n > 0 {
		return r.paras[n-1]
	}
	return nil
}

func (r *reader) table() *tableState {
	if n := len(r.tables); n > 0 {
		return r.tables[n-1]
	}
	return nil
}

func (r *reader) add(blocks ...sheaf.Block) error {
	if r.blocks += len(blocks); r.blocks > maxBlocks {
		return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The document has more than %d paragraphs; split it into smaller files.", maxBlocks)
	}
	r.out = append(r.out, blocks...)
	return nil
}

// part reads one part in a single pass.
func (r *reader) part(z *zipfile.Archive, name string, notes bool) error {
	p, err := z.Part(name, zipfile.MaxPartBytes)
	if err != nil {
		return err
	}
	defer p.Close()
	r.notes, r.paras, r.tables, r.rels = notes, nil, nil, z.Rels(name)
	s := xmlscan.New(p)
	inText, deleted, props, run := 0, 0, 0, 0
	vanish, instruction, font := false, false, ""
	var form choice
	for n := 0; ; n++ {
		if n&0xffff == 0 && r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		k, err := s.Next()
		if err != nil {
			_ = r.finish()
			if errors.Is(err, xmlscan.ErrDepth) {
				return sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The document's markup is nested more than %d levels deep; save it again in Word and upload that.", xmlscan.MaxDepth)
			}
			if _, ok := errors.AsType[*sheaf.Failure](err); ok {
				return err
			}
			return zipfile.Invalid("docx", "its part %s is damaged: %v", name, err)
		}
		switch k {
		case xmlscan.EOF:
			return r.finish()
		case xmlscan.Text:
			if instruction {
				if p := r.para(); p != nil {
					if a := p.last(true); a != nil && a.from < 0 && len(a.instruction) < maxInstruction {
						a.instruction += string(s.Text())
					}
				}
			} else if inText > 0 && deleted == 0 && !vanish {
				if p := r.para(); p != nil && p.text.Len() < whole.MaxTextBytes {
					if font == "" {
						p.text.Write(s.Text())
					} else {
						p.text.WriteString(shown.Text(font, string(s.Text())))
					}
				}
			}
		case xmlscan.Start:
			el := string(s.Name())
			switch el {
			case "Fallback", "pPrChange", "rPrChange", "tblPrChange", "tcPrChange", "trPrChange", "sectPr", "tblGrid", "delText", "rt", "annotation":
				// Fallback repeats the content of Choice; the Change elements hold
				// the previous version.
				if err := s.Skip(); err != nil {
					continue // Next reports the error again
				}
			case "hyperlink":
				if p := r.para(); p != nil {
					uri := ""
					if rel := r.rels[s.RelID()]; rel.External {
						uri = links.Address(rel.Target, nil)
					}
					p.begin(anchor{from: p.text.Len(), uri: uri})
				}
			case "fldChar":
				if p := r.para(); p != nil {
					switch s.Attr("fldCharType") {
					case "begin":
						p.begin(anchor{field: true, from: -1})
					case "separate":
						if a := p.last(true); a != nil {
							a.from, a.uri = p.text.Len(), target(a.instruction)
						}
					case "end":
						p.end(true)
					}
				}
			case "instrText":
				instruction = true
			case "footnote", "endnote":
				if t := s.Attr("type"); notes && (t == "separator" || t == "continuationSeparator" || t == "continuationNotice") {
					_ = s.Skip() // Next reports an error again
				} else if notes {
					r.mark = r.marks.of[el+s.Attr("id")]
				}
			case "footnoteReference", "endnoteReference":
				if p := r.para(); p != nil && deleted == 0 && !vanish && !notes {
					p.text.WriteString(r.marks.add(strings.TrimSuffix(el, "Reference"), s.Attr("id"), s.Attr("customMarkFollows")))
				}
			case "p":
				if string(s.Prefix()) != "a" {
					r.paras = append(r.paras, &paragraph{})
				}
			case "pPr", "tblPr", "tcPr", "trPr", "rPr":
				props++
				if t := r.table(); el == "tcPr" && t != nil {
					t.span, t.merge = 1, ""
				}
			case "pStyle":
				if p := r.para(); p != nil {
					own, list, num := p.own, p.list, p.num
					p.style = r.styles[s.Attr("val")]
					if own {
						p.own, p.list, p.num = own, list, num
					}
				}
			case "outlineLvl":
				if p := r.para(); p != nil {
					if v, err := strconv.Atoi(s.Attr("val")); err == nil && v >= 0 && v < 9 {
						p.level = v + 1
					}
				}
			case "ilvl":
				if p := r.para(); p != nil {
					if v, err := strconv.Atoi(s.Attr("val")); err == nil {
						p.list, p.own = min(max(v, 0), 8)+1, true
						p.at = p.list
					}
				}
			case "numId":
				if p := r.para(); p != nil {
					p.own, p.num, p.place = true, s.Attr("val"), 0
					if p.num == "0" {
						p.list = 0
					} else {
						p.list = max(p.list, 1)
					}
				}
			case "vanish":
				if props > 0 && run > 0 {
					v := s.Attr("val")
					vanish = v != "0" && v != "false"
				}
			case "r":
				run++
				vanish, font = false, ""
			case "rFonts":
				if run > 0 && props > 0 {
					if f := cmp.Or(s.Attr("ascii"), s.Attr("hAnsi")); shown.HasSymbols(f) {
						font = f
					}
				}
			case "sym":
				if p := r.para(); p != nil && deleted == 0 && !vanish {
					p.text.WriteString(symbol(s.Attr("font"), s.Attr("char")))
				}
			case "checkBox", "ddList":
				form = choice{}
			case "default", "checked", "result", "listEntry":
				form.set(el, s.Attr("val"))
			case "t":
				inText++
			case "del", "moveFrom":
				deleted++
				if p := r.para(); p != nil && props > 0 {
					p.gone = true
				}
			case "tab", "ptab", "br", "cr", "noBreakHyphen":
				if p := r.para(); p != nil && props == 0 && deleted == 0 && !vanish {
					switch el {
					case "tab", "ptab":
						p.text.WriteByte('\t')
					case "noBreakHyphen":
						p.text.WriteByte('-')
					default:
						p.text.WriteByte('\n')
					}
				}
			case "docPr":
				r.alt = s.Attr("descr")
				if r.alt == "" {
					r.alt = s.Attr("title")
				}
			case "chart":
				if id := s.RelID(); id != "" {
					if t := r.chart(id); t != nil {
						if err := r.add(sheaf.Block{Kind: sheaf.BlockTable, Table: t}); err != nil {
							return err
						}
					}
				}
			case "relIds":
				if id := s.Attr("dm"); id != "" && !r.diagrams[id] {
					r.diagrams[id] = true
					for _, text := range r.diagram(id) {
						if err := r.add(sheaf.Block{Kind: sheaf.BlockParagraph, Text: text}); err != nil {
							return err
						}
					}
				}
			case "blip", "imagedata":
				if err := r.image(s.Attr("title"), picture.Name(z, r.rels[s.RelID()].Target)); err != nil {
					return err
				}
			case "altChunk":
				if err := r.include(s.RelID()); err != nil {
					return err
				}
			case "OLEObject":
				if deleted > 0 {
					continue
				}
				blocks, err := r.files.Shown(r.ctx, r.rels[s.RelID()].Target, s.Attr("ProgID"))
				if err := errors.Join(err, r.add(blocks...)); err != nil {
					return err
				}
			case "tbl":
				r.tables = append(r.tables, &tableState{})
			case "tblLook":
				if t := r.table(); t != nil {
					v, _ := strconv.ParseInt(s.Attr("val"), 16, 32)
					t.head = s.Attr("firstRow") == "1" || s.Attr("firstRow") == "" && v&0x20 != 0
				}
			case "tblHeader":
				if t := r.table(); t != nil {
					v := s.Attr("val")
					t.rowHead = v != "0" && v != "false"
				}
			case "tr":
				if t := r.table(); t != nil {
					t.rows = t.grid.Row()
					t.column, t.rowHead = 0, false
				}
			case "gridBefore":
				if t := r.table(); t != nil {
					v, _ := strconv.Atoi(s.Attr("val"))
					for range min(max(v, 0), 63) { // Word has at most 63 columns
						t.grid.Cell("", 1, 1, false)
						t.column++
					}
				}
			case "tc":
				if t := r.table(); t != nil {
					t.span, t.merge, t.cell, t.inCell = 1, "", len(r.out), true
				}
			case "gridSpan":
				if t := r.table(); t != nil {
					v, _ := strconv.Atoi(s.Attr("val"))
					t.span = min(max(v, 1), grid.MaxColumns)
				}
			case "vMerge":
				if t := r.table(); t != nil {
					if t.merge = s.Attr("val"); t.merge == "" {
						t.merge = "continue"
					}
				}
			}
		case xmlscan.End:
			switch string(s.Name()) {
			case "hyperlink":
				if p := r.para(); p != nil {
					p.end(false)
				}
			case "instrText":
				instruction = false
			case "checkBox", "ddList":
				if p := r.para(); p != nil && deleted == 0 {
					p.text.WriteString(form.shown(string(s.Name())))
				}
			case "p":
				if string(s.Prefix()) != "a" {
					if err := r.endParagraph(); err != nil {
						return err
					}
				}
			case "pPr", "tblPr", "tcPr", "trPr", "rPr":
				props = max(0, props-1)
			case "r":
				run = max(0, run-1)
				vanish = false
			case "t":
				inText = max(0, inText-1)
			case "del", "moveFrom":
				deleted = max(0, deleted-1)
			case "tc":
				r.endCell()
			case "tr":
				if t := r.table(); t != nil && t.rowHead {
					t.grid.HeadRow()
				}
			case "tbl":
				if err := r.endTable(); err != nil {
					return err
				}
			}
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

// image adds a picture: name is "" for one that cannot be drawn.
func (r *reader) image(title, name string) error {
	alt := r.alt
	if alt == "" {
		alt = title
	}
	r.alt = ""
	alt = clean.Line(clean.Clip(alt, 4000))
	if !clean.Readable(alt) {
		r.bare++
		if alt = ""; name == "" {
			return nil
		}
	}
	return r.add(sheaf.Block{Kind: sheaf.BlockImage, Text: alt, Picture: name})
}

func (r *reader) endParagraph() error {
	n := len(r.paras)
	if n == 0 {
		return nil
	}
	p := r.paras[n-1]
	r.paras = r.paras[:n-1]
	raw := p.text.String()
	label := ""
	if !p.gone && !p.toc { // an empty paragraph is counted, too
		label = r.numbers.label(p.num, p.at-1, p.by, p.place)
	}
	switch empty := strings.TrimSpace(raw) == ""; {
	case label == "":
	case !empty:
		raw = label + " " + strings.TrimLeft(raw, " \t")
	case r.table() != nil: // a column of numbers
		raw = label
	}
	b := sheaf.Block{Kind: sheaf.BlockParagraph, Text: clean.Lines(raw)}
	if b.Text == "" {
		return nil
	}
	switch {
	case r.notes:
		b.Kind = sheaf.BlockFootnote
		if r.mark != "" {
			b.Text = r.mark + " " + b.Text
			r.mark = ""
		}
	case p.level > 0 && !p.toc:
		b.Kind, b.Level, b.Text = sheaf.BlockHeading, min(p.level, 6), clean.Line(raw)
	case p.kind == sheaf.BlockCode:
		b.Kind, b.Text = p.kind, strings.TrimRight(clean.Text(raw), " \t\n")
		// In Word each line of a listing is a paragraph.
		if last := len(r.out) - 1; last >= 0 && r.out[last].Kind == sheaf.BlockCode && len(r.out[last].Text) < 64<<10 && (r.table() == nil || last >= r.table().cell) {
			r.out[last].Text += "\n" + b.Text
			return nil
		}
	case p.kind != "":
		b.Kind = p.kind
	case p.list > 0:
		b.Kind, b.Level = sheaf.BlockListItem, p.list
	}
	b.Links = links.Place(b.Text, p.links)
	return r.add(b)
}

func (r *reader) endCell() {
	t := r.table()
	if t == nil || !t.inCell {
		return
	}
	t.inCell = false
	blocks := r.out[min(t.cell, len(r.out)):]
	text := t.grid.Text(blocks)
	r.out = r.out[:len(r.out)-len(blocks)]

	for len(t.above) < min(t.column+t.span, grid.MaxColumns) {
		t.above = append(t.above, "")
	}
	if t.column < len(t.above) {
		switch t.merge {
		case "restart":
			t.above[t.column] = text
		case "continue":
			if text == "" {
				text = t.above[t.column]
			}
		default:
			t.above[t.column] = ""
		}
	}
	t.grid.Cell(text, t.span, 1, t.rows == 1 && t.head)
	t.column += t.span
	t.grid.Wide(t.column)
}

func (r *reader) endTable() error {
	t := r.table()
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
	return r.add(t.grid.Blocks()...)
}
