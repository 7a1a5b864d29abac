// Package pptx is the format of PowerPoint decks (ISO/IEC 29500): a unit is a
// slide, with the position of each shape's text, its tables and its notes. It runs
// in the parser's child process.
package pptx

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/chart"
	"sheaf/parser/internal/clean"
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
	// rangeSize is the number of slides per task: measured, a slide takes 0.3 ms.
	rangeSize = 24
	// maxSlideBytes limits a slide's XML; the largest seen has 3 MB.
	maxSlideBytes = 64 << 20
	maxSlides     = 20_000
	// maxRepeats limits repeats of a slide: no program lists one twice, and
	// otherwise a list of a few bytes each would produce any number of slides.
	maxRepeats  = 8
	maxBlocks   = 20_000 // per slide
	maxDiagrams = 1_000  // per slide, in display order
	maxObjects  = 100    // per slide: embedded files
	// emuPerPoint: 914,400 English metric units per inch.
	emuPerPoint = 12_700
)

// New returns the format. recognition reads the text in pictures if the setting
// ocr_pictures is on. formats finds the readers of embedded files; it is called while
// a deck is read, so the registry may include this format.
func New(recognition ocr.Config, formats func() *parser.Registry) parser.Format {
	return format{recognition, formats}
}

type format struct {
	ocr     ocr.Config
	formats func() *parser.Registry
}

func (format) ID() string     { return "pptx" }
func (f format) Version() int { return version + f.ocr.Digest() }
func (format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaPPTX, Aliases: []string{"application/vnd.openxmlformats-officedocument.presentationml.slideshow",
			"application/vnd.openxmlformats-officedocument.presentationml.template",
			"application/vnd.ms-powerpoint.presentation.macroenabled.12", "application/vnd.ms-powerpoint.slideshow.macroenabled.12"},
		Name: "PowerPoint", Extensions: []string{".pptx", ".pptm"}, Magic: []parser.Magic{{Entry: "ppt/*"}},
		Families: []sheaf.FileFamily{sheaf.FamilyPresentation}, Unit: sheaf.UnitSlide, Ranges: "24 slides",
	}}
}
func (format) Options() []string { return []string{"ocr_pictures", "table_rows"} } // the latter in embedded files

// Open implements parser.Format.
func (f format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	z, err := zipfile.Open(file, "pptx")
	if err != nil {
		return nil, err
	}
	d := &document{z: z, ocr: f.ocr, formats: f.formats(), options: o, layouts: map[string]map[string]rect{}, objects: map[int][]object{}}
	return d, d.slideList()
}

// rect is a rectangle in EMU.
type rect struct{ x, y, w, h float64 }

type document struct {
	z             *zipfile.Archive
	ocr           ocr.Config
	formats       *parser.Registry
	options       parser.Options
	slides        []string
	width, height float64 // EMU
	layouts       map[string]map[string]rect
	charts        int
	images        int
	hidden        int
	repeated      int                      // slides that are listed too often
	objects       map[int][]object         // by slide, of those read
	cached        map[int]sheaf.UnitResult // slides read by Plan and not yet parsed
}

// maxCachedBytes limits the text of cached slides: parsing mostly follows planning,
// on the same open file.
const maxCachedBytes = 8 << 20

func (d *document) Close() error { return nil }

// Picture implements parser.Illustrated.
func (d *document) Picture(_ context.Context, name string, side int) ([]byte, error) {
	return picture.Draw(d.z, name, side)
}

func damaged(part string, err error) error {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f
	}
	if errors.Is(err, xmlscan.ErrDepth) {
		return sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The deck's markup is nested more than %d levels deep; save it again in PowerPoint and upload that.", xmlscan.MaxDepth)
	}
	return zipfile.Invalid("pptx", "its part %s is damaged: %v", part, err)
}

func (d *document) slideList() error {
	main := d.z.Main("ppt/presentation.xml")
	b, err := d.z.ReadAll(main, maxSlideBytes)
	if errors.Is(err, zipfile.ErrMissing) {
		return zipfile.Invalid("pptx", "it has no presentation part")
	}
	if err != nil {
		return err
	}
	rels, listed := d.z.Rels(main), map[string]int{}
	for s := xmlscan.New(bytes.NewReader(b)); ; {
		k, err := s.Next()
		if err != nil {
			return damaged(main, err)
		}
		if k == xmlscan.EOF {
			break
		}
		if k != xmlscan.Start {
			continue
		}
		switch string(s.Name()) {
		case "sldId":
			if rel, ok := rels[s.RelID()]; ok && rel.Type == "slide" && len(d.slides) < maxSlides {
				if listed[rel.Target]++; listed[rel.Target] > maxRepeats {
					d.repeated++
					continue
				}
				d.slides = append(d.slides, rel.Target)
			}
		case "sldSz":
			d.width, d.height = emu(s.Attr("cx")), emu(s.Attr("cy"))
		}
	}
	if len(d.slides) == 0 {
		return sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The deck has no slides; check that you uploaded the right file.")
	}
	return nil
}

func emu(s string) float64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v > 1<<40 || v < -1<<40 {
		return 0
	}
	return float64(v)
}

// Plan implements parser.Document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitSlide, Units: len(d.slides), RangeSize: rangeSize, Metadata: d.z.Properties(), Fingerprints: make([]uint64, len(d.slides))}
	d.charts, d.images, d.hidden, d.cached = 0, 0, 0, map[int]sheaf.UnitResult{}
	size := 0
	for i := range d.slides {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		u, sum := d.slide(i + 1)
		if size += whole.TextBytes(u.Blocks); size <= maxCachedBytes {
			d.cached[i+1] = u
		}
		p.Fingerprints[i] = sum
		if u.Label != "" {
			p.Outline = append(p.Outline, sheaf.Heading{Level: 1, Title: u.Label, Page: i + 1})
		}
	}
	if d.charts+d.images > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "images_ignored", Message: clean.Counts(d.charts, "charts without figures", d.images, "pictures without a description") + " were not read; set ocr_pictures where they hold text."})
	}
	if d.repeated > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "slides_repeated", Message: fmt.Sprintf("The deck lists slides again and again; each was read %d times at most, and the rest (%d) was left out.", maxRepeats, d.repeated)})
	}
	if d.hidden > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "hidden_slides", Message: fmt.Sprintf("Slides that are hidden in the show (%d) were read like the others.", d.hidden)})
	}
	return p, nil
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	pictures := picture.Reader{Archive: d.z, OCR: d.ocr, TempDir: d.options.TempDir}
	_, pictures.Left = picture.Budget(r.Len(), nil)
	files := embedded.Reader{Archive: d.z, Formats: d.formats, Options: d.options}
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(d.slides) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The deck has %d slides, so slide %d does not exist.", len(d.slides), n)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		u, ok := d.cached[n]
		if !ok {
			u, _ = d.slide(n)
		}
		delete(d.cached, n)
		if d.options.Config.OCRPictures.V {
			if err := pictures.Read(ctx, &u); err != nil {
				return err
			}
		}
		if err := d.addObjects(ctx, &files, n, &u); err != nil {
			return err
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

// slide reads slide n and hashes its parts. An unreadable slide is a failed unit.
func (d *document) slide(n int) (sheaf.UnitResult, uint64) {
	part := d.slides[n-1]
	sum := xxhash.New()
	failed := func(err error) (sheaf.UnitResult, uint64) {
		f := sheaf.AsFailure(err, "")
		return sheaf.UnitResult{Unit: n, Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message}, sum.Sum64()
	}
	b, err := d.z.ReadAll(part, maxSlideBytes)
	if err != nil {
		if errors.Is(err, zipfile.ErrMissing) {
			err = zipfile.Invalid("pptx", "the slide's part %s is missing", part)
		}
		return failed(err)
	}
	_, _ = sum.Write(b) // a hash never fails
	rels := d.z.Rels(part)
	w := &walker{d: d, page: n, diagrams: map[string]int{}}
	w.picture = func(id string) string {
		name := picture.Name(d.z, rels[id].Target)
		_, _ = sum.WriteString(name) // a hash never fails
		return name
	}
	d.objects[n] = nil
	w.object = func(id, program string, box *sheaf.Box) {
		if o := (object{rels[id].Target, program, box}); d.z.Has(o.part) && len(d.objects[n]) < maxObjects {
			d.objects[n] = append(d.objects[n], o)
			_, _ = fmt.Fprintf(sum, "\x00%08x-%d", d.z.CRC(o.part), d.z.Size(o.part)) // a hash never fails
		}
	}
	w.href = func(id string) string {
		if rel := rels[id]; rel.External {
			_, _ = sum.WriteString(rel.Target) // a hash never fails
			return links.Address(rel.Target, nil)
		}
		return ""
	}
	w.chart = func(id string) *sheaf.Table {
		b, err := d.z.ReadAll(rels[id].Target, maxSlideBytes)
		if err != nil {
			return nil // counted with those without figures
		}
		_, _ = sum.Write(b) // a hash never fails
		return chart.Read(bytes.NewReader(b))
	}
	var notes, diagrams []string
	for _, id := range slices.Sorted(maps.Keys(rels)) { // the same order on every read
		switch rel := rels[id]; rel.Type {
		case "slideLayout":
			w.places = d.placeholders(rel.Target, true)
		case "notesSlide":
			notes = append(notes, rel.Target)
		case "diagramData":
			diagrams = append(diagrams, id)
		case "comments":
			w.warnings = append(w.warnings, sheaf.Warning{Code: "comments_ignored", Page: n, Message: "The slide's reviewer comments were not read; they are not part of it."})
		}
	}
	if err := w.read(b); err != nil {
		return failed(damaged(part, err))
	}
	more := func(parts []string, notes bool) {
		for _, p := range parts {
			b, err := d.z.ReadAll(p, maxSlideBytes)
			if err == nil {
				_, _ = sum.Write(b) // a hash never fails
				w.notes, w.diagram, w.group, w.shape = notes, !notes, nil, shape{}
				from := len(w.body)
				err = w.read(b)
				if notes {
					whole.MarkNotes(w.body[from:])
				}
			}
			if err != nil {
				w.warnings = append(w.warnings, sheaf.Warning{Code: "part_damaged", Page: n, Message: "A part of the slide (" + p + ") could not be read."})
			}
		}
	}
	// In the slide's order; those it does not reference come last.
	slices.SortStableFunc(diagrams, func(a, b string) int { return cmp.Compare(w.shown(a), w.shown(b)) })
	for i, id := range diagrams {
		diagrams[i] = rels[id].Target
	}
	more(diagrams, false)
	more(notes, true)
	u := whole.Unit(n, w.blocks())
	u.Label, u.Width, u.Height, u.Warnings = w.title, d.width/emuPerPoint, d.height/emuPerPoint, w.warnings
	return u, sum.Sum64()
}

// placeholders reads where a layout, and the master behind it, positions the shapes
// that a slide fills: such a slide gives no position of its own.
func (d *document) placeholders(part string, master bool) map[string]rect {
	if known, ok := d.layouts[part]; ok {
		return known
	}
	out := map[string]rect{}
	d.layouts[part] = out
	if master {
		for _, rel := range d.z.Rels(part) {
			if rel.Type == "slideMaster" {
				for k, v := range d.placeholders(rel.Target, false) {
					out[k] = v
				}
			}
		}
	}
	b, err := d.z.ReadAll(part, maxSlideBytes)
	if err != nil {
		return out
	}
	w := &walker{d: d, onPlace: func(s shape) {
		for _, k := range s.keys() {
			out[k] = s.rect
		}
	}}
	_ = w.read(b) // a damaged layout leaves shapes without a position
	return out
}

type shape struct {
	rect    rect
	placed  bool
	ph      bool
	phType  string
	phIdx   string
	text    []sheaf.Block
	descr   string
	picture bool
	name    string // name of its picture, as used in blocks
	open    bool
}

// keys identify a placeholder, most general first.
func (s *shape) keys() []string {
	t := s.phType
	switch t {
	case "":
		t = "body" // ISO/IEC 29500-1: the default is obj, which takes the body's position
	case "ctrTitle":
		t = "title"
	}
	keys := []string{"type:" + t}
	if s.phIdx != "" {
		keys = append(keys, "idx:"+s.phIdx)
	}
	return keys
}

// frame maps a group's children into the group's own rectangle.
type frame struct{ off, child rect }

type walker struct {
	d        *document
	page     int
	places   map[string]rect
	onPlace  func(shape) // set when a layout is read
	chart    func(id string) *sheaf.Table
	picture  func(id string) string // returns the name of a picture of the slide itself
	href     func(id string) string // returns the address of a link
	object   func(id, program string, box *sheaf.Box)
	diagrams map[string]int // order of the diagrams shown by the slide, by id
	notes    bool
	diagram  bool
	group    []frame
	shape    shape
	title    string
	heads    []sheaf.Block
	body     []sheaf.Block
	warnings []sheaf.Warning

	text   strings.Builder
	level  int
	uri    string       // of the run
	links  []links.Link // of the paragraph
	auto   string       // how the paragraph is numbered, "" for not
	start  int          // of the list, if it begins here
	counts [9]count     // by level
	grid   *grid.Builder
	cell   strings.Builder
	inTC   bool
}

// shown returns a diagram's position in the slide's order.
func (w *walker) shown(id string) int {
	if i, ok := w.diagrams[id]; ok {
		return i
	}
	return maxDiagrams
}

func (w *walker) blocks() []sheaf.Block { return append(w.heads, w.body...) }

func (w *walker) read(b []byte) error {
	s := xmlscan.New(bytes.NewReader(b))
	inText, inGroupProps := 0, false
	span, down, merged := 1, 1, false
	row := 0
	head, inRun, begin, font := false, false, 0, ""
	w.grid = nil
	for {
		k, err := s.Next()
		if err != nil {
			return err
		}
		switch k {
		case xmlscan.EOF:
			return nil
		case xmlscan.Text:
			if inText > 0 && w.text.Len() < 4<<20 {
				if font == "" {
					w.text.Write(s.Text())
				} else {
					w.text.WriteString(shown.Text(font, string(s.Text())))
				}
			}
		case xmlscan.Start:
			switch string(s.Name()) {
			case "sld":
				if s.Attr("show") == "0" && w.onPlace == nil {
					w.d.hidden++
				}
			case "Fallback": // repeats the content of Choice
				if err := s.Skip(); err != nil {
					return err
				}
			case "grpSp":
				w.group = append(w.group, frame{})
			case "grpSpPr":
				inGroupProps = true
			case "sp", "graphicFrame", "pic", "cxnSp", "pt":
				w.shape = shape{open: true, picture: string(s.Name()) == "pic"}
			case "cNvPr":
				w.shape.descr = s.Attr("descr")
			case "blip":
				if w.shape.picture && w.picture != nil && !w.notes && !w.diagram {
					w.shape.name = w.picture(s.RelID())
				}
			case "ph":
				w.shape.ph, w.shape.phType, w.shape.phIdx = true, s.Attr("type"), s.Attr("idx")
			case "off", "chOff":
				w.place(inGroupProps, string(s.Name()), emu(s.Attr("x")), emu(s.Attr("y")))
			case "ext", "chExt":
				if s.Attr("cx") != "" {
					w.place(inGroupProps, string(s.Name()), emu(s.Attr("cx")), emu(s.Attr("cy")))
				}
			case "relIds":
				if id := s.Attr("dm"); w.diagrams != nil && !w.notes && !w.diagram && len(w.diagrams) < maxDiagrams {
					if _, twice := w.diagrams[id]; !twice {
						w.diagrams[id] = len(w.diagrams)
					}
				}
			case "chart":
				if id := s.RelID(); id != "" && w.onPlace == nil {
					if t := w.chart(id); t != nil {
						w.shape.text = append(w.shape.text, sheaf.Block{Kind: sheaf.BlockTable, Table: t})
					} else {
						w.d.charts++
					}
				}
			case "oleObj":
				if w.object != nil && !w.notes && !w.diagram {
					w.object(s.RelID(), s.Attr("progId"), w.box(w.shape))
				}
			case "tbl":
				w.grid, row = &grid.Builder{}, 0
			case "tblPr":
				head = s.Attr("firstRow") == "1"
			case "tr":
				row++
				if w.grid != nil {
					w.grid.Row()
				}
			case "tc":
				w.inTC = true
				w.cell.Reset()
				span, _ = strconv.Atoi(s.Attr("gridSpan"))
				down, _ = strconv.Atoi(s.Attr("rowSpan"))
				merged = s.Attr("hMerge") == "1" || s.Attr("vMerge") == "1"
			case "p":
				w.text.Reset()
				w.level = 0
				w.auto, w.links = "", nil
			case "pPr":
				v, _ := strconv.Atoi(s.Attr("lvl"))
				w.level = min(max(v, 0), 8)
			case "buAutoNum":
				w.auto, w.start = s.Attr("type"), 1
				if v, err := strconv.Atoi(s.Attr("startAt")); err == nil && v > 0 && v <= maxStart {
					w.start = v
				}
			case "txBody":
				w.counts = [9]count{}
			case "r":
				w.uri, font = "", ""
				inRun = true
			case "sym", "latin":
				if f := s.Attr("typeface"); inRun && shown.HasSymbols(f) {
					font = f
				}
			case "hlinkClick":
				if inRun && w.href != nil && !w.notes && !w.diagram {
					w.uri = w.href(s.RelID())
				}
			case "t":
				inText++
				begin = w.text.Len()
			case "br":
				w.text.WriteByte('\n')
			case "tab":
				if inText > 0 {
					w.text.WriteByte('\t')
				}
			}
		case xmlscan.End:
			switch string(s.Name()) {
			case "grpSp":
				if n := len(w.group); n > 0 {
					w.group = w.group[:n-1]
				}
			case "grpSpPr":
				inGroupProps = false
			case "r":
				inRun, font = false, ""
			case "t":
				inText = max(0, inText-1)
				if w.uri != "" && w.text.Len() > begin {
					w.links = append(w.links, links.Link{Text: w.text.String()[begin:], URI: w.uri})
				}
				if w.diagram {
					w.text.WriteByte(' ')
				}
			case "p":
				w.paragraph()
			case "tc":
				if w.grid != nil && w.inTC && !merged {
					// Cells covered by a span follow as merged ones; the grid adds
					// its own.
					w.grid.Cell(w.cell.String(), span, down, head && row == 1)
				}
				w.inTC = false
			case "tbl":
				if w.grid != nil {
					if t := w.grid.Table(); t != nil {
						w.shape.text = append(w.shape.text, sheaf.Block{Kind: sheaf.BlockTable, Table: t, Links: w.grid.Links()})
					}
					w.grid = nil
				}
			case "sp", "graphicFrame", "pic", "cxnSp", "pt":
				if w.shape.open {
					w.endShape()
				}
			}
		}
	}
}

func (w *walker) place(group bool, what string, a, b float64) {
	if group {
		n := len(w.group)
		if n == 0 { // the transform of the slide's own tree is ignored
			return
		}
		g := &w.group[n-1]
		switch what {
		case "off":
			g.off.x, g.off.y = a, b
		case "ext":
			g.off.w, g.off.h = a, b
		case "chOff":
			g.child.x, g.child.y = a, b
		case "chExt":
			g.child.w, g.child.h = a, b
		}
		return
	}
	if !w.shape.open {
		return
	}
	switch what {
	case "off":
		w.shape.rect.x, w.shape.rect.y, w.shape.placed = a, b, true
	case "ext":
		w.shape.rect.w, w.shape.rect.h = a, b
	}
}

func (w *walker) paragraph() {
	text := clean.Lines(w.text.String())
	w.text.Reset()
	if text == "" {
		return
	}
	if label := w.number(); label != "" {
		text = label + " " + text
	}
	if w.inTC {
		if w.cell.Len() > 0 {
			w.cell.WriteByte('\n')
		}
		w.cell.WriteString(text)
		if w.grid != nil {
			for _, l := range w.links {
				w.grid.Link(l.URI)
			}
		}
		return
	}
	b := sheaf.Block{Kind: sheaf.BlockParagraph, Text: text}
	s := &w.shape
	switch {
	case w.notes || !s.ph:
	case s.phType == "title" || s.phType == "ctrTitle":
		b.Kind, b.Level, b.Text = sheaf.BlockHeading, 1, clean.Line(text)
	case s.phType == "subTitle":
	case s.phType == "body" || s.phType == "obj" || s.phType == "":
		b.Kind, b.Level = sheaf.BlockListItem, w.level+1
	}
	b.Links = links.Place(b.Text, w.links)
	s.text = append(s.text, b)
}

// count is the number of the last paragraph on a level, in a list that is numbered the
// same way from the same start.
type count struct {
	auto     string
	start, n int
}

// maxStart is the largest number at which a list begins (ISO/IEC 29500-1, 20.1.10.79).
const maxStart = 32_767

// number counts a paragraph, and returns what the slide shows before it: lists go on
// after deeper ones, and end with any other paragraph.
func (w *walker) number() string {
	clear(w.counts[w.level+1:])
	c := &w.counts[w.level]
	if w.auto == "" {
		*c = count{}
		return ""
	}
	if c.auto != w.auto || c.start != w.start {
		*c = count{w.auto, w.start, w.start - 1}
	}
	c.n++
	format := "decimal"
	for _, f := range []struct{ prefix, format string }{
		{"alphaLc", "lowerLetter"}, {"alphaUc", "upperLetter"}, {"romanLc", "lowerRoman"}, {"romanUc", "upperRoman"},
		{"circle", "decimalEnclosedCircle"}, {"arabicDb", "decimalFullWidth"}, {"ea1Chs", "chineseCounting"}, {"ea1Cht", "chineseCounting"}, {"ea1Jpn", "chineseCounting"},
	} {
		if strings.HasPrefix(w.auto, f.prefix) {
			format = f.format
		}
	}
	text := shown.Number(format, c.n)
	switch {
	case strings.HasSuffix(w.auto, "Period"):
		return text + "."
	case strings.HasSuffix(w.auto, "ParenBoth"):
		return "(" + text + ")"
	case strings.HasSuffix(w.auto, "ParenR"):
		return text + ")"
	case strings.HasSuffix(w.auto, "Minus"):
		return text + "-"
	}
	return text
}

func (w *walker) endShape() {
	s := w.shape
	w.shape = shape{}
	if w.onPlace != nil {
		if s.ph && s.placed {
			w.onPlace(s)
		}
		return
	}
	switch s.phType {
	case "sldNum", "dt", "ftr", "hdr", "sldImg":
		return
	}
	if s.picture {
		alt := clean.Line(clean.Clip(s.descr, 4000))
		if !clean.Readable(alt) {
			w.d.images++
			alt = ""
		}
		if alt != "" || s.name != "" {
			s.text = append(s.text, sheaf.Block{Kind: sheaf.BlockImage, Text: alt, Picture: s.name})
		}
	}
	if !s.placed && s.ph {
		keys := s.keys()
		for i := len(keys) - 1; i >= 0; i-- {
			if r, ok := w.places[keys[i]]; ok {
				s.rect, s.placed = r, true
				break
			}
		}
	}
	box := w.box(s)
	for _, b := range s.text {
		if len(w.heads)+len(w.body) >= maxBlocks {
			return
		}
		b.Page = w.page
		put(&b, box)
		if b.Kind == sheaf.BlockHeading {
			if w.title == "" {
				w.title = clean.Clip(b.Text, 500)
			}
			// The title comes first, whatever the drawing order.
			w.heads = append(w.heads, b)
			continue
		}
		w.body = append(w.body, b)
	}
}

// box returns where the slide shows a shape, nil if that is unknown.
func (w *walker) box(s shape) *sheaf.Box {
	if !s.placed || w.notes || w.diagram || s.rect.w <= 0 || s.rect.h <= 0 {
		return nil
	}
	r := s.rect
	for i := len(w.group) - 1; i >= 0; i-- {
		r = w.group[i].apply(r)
	}
	return &sheaf.Box{Page: w.page, X0: r.x / emuPerPoint, Y0: r.y / emuPerPoint, X1: (r.x + r.w) / emuPerPoint, Y1: (r.y + r.h) / emuPerPoint}
}

// put places a block in a box, which may be nil.
func put(b *sheaf.Block, box *sheaf.Box) {
	if box == nil {
		return
	}
	if b.Table != nil {
		own := *box
		b.Table.Box = &own
		return
	}
	b.Spans = []sheaf.Span{{End: len(b.Text), Box: *box}}
}

// object is a file shown on a slide.
type object struct {
	part, program string
	box           *sheaf.Box // nil if unknown
}

// addObjects adds the text of the files shown on slide n, after everything else: they
// are read with the range, since some take as long as a document.
func (d *document) addObjects(ctx context.Context, files *embedded.Reader, n int, u *sheaf.UnitResult) error {
	for _, o := range d.objects[n] {
		blocks, err := files.Shown(ctx, o.part, o.program)
		if err != nil {
			return err
		}
		for i := range blocks {
			blocks[i].Page = n
			put(&blocks[i], o.box)
		}
		u.Blocks = append(u.Blocks, blocks[:min(len(blocks), max(0, maxBlocks-len(u.Blocks)))]...)
		if u.Status == sheaf.UnitBlank && whole.TextBytes(blocks) > 0 {
			u.Status, u.Code, u.Message = sheaf.UnitOK, "", ""
		}
	}
	for _, w := range files.Warnings() {
		w.Page = n
		u.Warnings = append(u.Warnings, w)
	}
	return nil
}

// apply scales and moves a child's rectangle according to its group.
func (f frame) apply(r rect) rect {
	sx, sy := 1.0, 1.0
	if f.child.w > 0 && f.off.w > 0 {
		sx = f.off.w / f.child.w
	}
	if f.child.h > 0 && f.off.h > 0 {
		sy = f.off.h / f.child.h
	}
	return rect{f.off.x + (r.x-f.child.x)*sx, f.off.y + (r.y-f.child.y)*sy, r.w * sx, r.h * sy}
}
