// Package pdf is the PDF format: it turns pages into headings, paragraphs, lists,
// tables and figures with the position of every line. An engine (package engine)
// reads the file; words, lines, reading order and blocks are built here. It runs in
// the parser's child process.
package pdf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/embedded"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/picture"
	"sheaf/parser/internal/tempfile"
	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/pdfium"
)

// Config configures the format. The zero value is the default.
type Config struct {
	Engine engine.Engine // default: PDFium in WebAssembly; see package pdfium
	OCR    ocr.Config    // reads pages without a text layer; off by default
	// Formats read attached files; nil for none.
	Formats func() *parser.Registry
}

// New returns the format. Nothing is started before the first Open.
func New(cfg Config) parser.Format {
	if cfg.Engine == nil {
		cfg.Engine = pdfium.New(pdfium.Config{})
	}
	return &format{cfg}
}

type format struct{ cfg Config }

// version changes whenever the same file would yield other blocks.
const version = 13

// rangeSize is the number of pages per task. Of scans it is ocr.RangePages.
const rangeSize = 12

func (f *format) ID() string   { return "pdf" }
func (f *format) Version() int { return version + f.cfg.OCR.Digest() }
func (f *format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaPDF, Aliases: []string{"application/x-pdf"}, Name: "PDF", Extensions: []string{".pdf"}, Repairs: true,
		// ISO 32000-1 annex H: readers accept the header anywhere in the first 1,024 bytes.
		Magic:    []parser.Magic{{Bytes: "%PDF-", Within: 1024}},
		Families: []sheaf.FileFamily{sheaf.FamilyPDF}, Unit: sheaf.UnitPage, Ranges: "at most 12 pages, 4 of scans",
	}}
}

// Options leaves out the password, which decides whether the file can be read, never
// what is read.
func (f *format) Options() []string { return []string{"ocr_pictures"} }

// Sparse implements parser.Sparse: a page's text needs only the cross-reference
// table and the objects the page refers to.
func (f *format) Sparse() {}

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	d := &document{format: f, file: file, size: st.Size(), options: o}
	if err := d.open(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// document is an open PDF, or its repaired copy.
type document struct {
	format   *format
	options  parser.Options
	file     *os.File
	size     int64
	repaired *os.File // the copy read instead of file, nil if file itself opens
	doc      engine.Document
	pages    int
	asm      assembler
	page     engine.Page
	outline  *outline
	frames   map[int]frame // of pages that have something beside their content
	attached embedded.Reader
}

func (d *document) source() (io.ReaderAt, int64) {
	if d.repaired != nil {
		if st, err := d.repaired.Stat(); err == nil {
			return d.repaired, st.Size()
		}
	}
	return d.original(), d.size
}

// original returns the file, whose holes are filled as they are read.
func (d *document) original() io.ReaderAt {
	if d.options.Fill == nil {
		return d.file
	}
	return &filled{file: d.file, size: d.size, fill: d.options.Fill, present: make([]bool, (d.size+fillBytes-1)/fillBytes)}
}

// fillBytes is the unit in which a sparse file is filled, so that no part is
// requested twice.
const fillBytes = 64 << 10

type filled struct {
	file    *os.File
	size    int64
	fill    func(offset, length int64)
	present []bool // by index of fillBytes units
}

// ReadAt implements io.ReaderAt.
func (f *filled) ReadAt(p []byte, off int64) (int, error) {
	if end := min(off+int64(len(p)), f.size); off >= 0 && off < end {
		first, last := off/fillBytes, (end-1)/fillBytes
		for first <= last && f.present[first] {
			first++
		}
		for last > first && f.present[last] {
			last--
		}
		if first <= last {
			from := first * fillBytes
			f.fill(from, min((last+1)*fillBytes, f.size)-from)
			for i := first; i <= last; i++ {
				f.present[i] = true
			}
		}
	}
	return f.file.ReadAt(p, off)
}

func (d *document) open(ctx context.Context) error {
	if d.size == 0 {
		return sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The file is empty; upload it again.")
	}
	err := d.reopen(ctx)
	if errors.Is(err, engine.ErrFormat) || err == nil && d.pages < 1 {
		if repairErr := d.repair(); repairErr == nil {
			if again := d.reopen(ctx); again == nil || !errors.Is(again, engine.ErrFormat) {
				err = again
			}
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, engine.ErrPassword):
		if d.options.Config.Password.V == "" {
			return sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The document needs a password to open; give it in parser_config.password, or upload a copy without one.")
		}
		return sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The given password does not open the document; correct parser_config.password.")
	case errors.Is(err, engine.ErrSecurity):
		return sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The document is encrypted in a way that cannot be read; upload a copy without encryption.")
	case errors.Is(err, engine.ErrFormat):
		return sheaf.Fail(sheaf.CategoryBadInput, "invalid_pdf", "The file is not a PDF or is damaged beyond repair (%v); recreate it from its source.", err)
	default:
		return sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "The PDF engine failed on this file: %v. Save the file again with another program, or report it.", err)
	}
	if d.pages < 1 {
		return sheaf.Fail(sheaf.CategoryBadInput, "invalid_pdf", "The PDF has no pages; recreate it from its source.")
	}
	return nil
}

// reopen starts with a fresh engine document, including after an engine failure.
func (d *document) reopen(ctx context.Context) error {
	if d.doc != nil {
		_ = d.doc.Close()
		d.doc = nil
	}
	d.asm, d.page = assembler{}, engine.Page{}
	f, size := d.source()
	doc, err := d.format.cfg.Engine.Open(ctx, f, size, d.options.Config.Password.V)
	if err != nil {
		return err
	}
	d.doc, d.pages = doc, doc.Pages()
	d.tellMoved()
	return nil
}

// tellMoved notes that another engine than the configured one reads the document.
func (d *document) tellMoved() {
	m, ok := d.doc.(engine.Moved)
	if !ok || d.options.Note == nil {
		return
	}
	if why := m.Moved(); why != "" {
		d.options.Note("a PDF is read by WebAssembly: " + why)
	}
}

// Close implements parser.Document.
func (d *document) Close() error {
	var err error
	if d.doc != nil {
		err = d.doc.Close()
		d.doc = nil
	}
	if d.repaired != nil {
		_ = d.repaired.Close()
		err = errors.Join(err, os.Remove(d.repaired.Name()))
		d.repaired = nil
	}
	return err
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	_, left := picture.Budget(r.Len(), nil)
	d.attached = embedded.Reader{Options: d.options} // its limits are those of a range
	if d.format.cfg.Formats != nil {
		d.attached.Formats = d.format.cfg.Formats()
	}
	return d.units(ctx, r, func(u *sheaf.UnitResult) error {
		from := time.Now()
		switch {
		case d.toRecognise(u):
			if err := d.recognise(ctx, u); err != nil {
				return err
			}
		case d.options.Config.OCRPictures.V:
			if err := d.readFigures(ctx, u, left); err != nil {
				return err
			}
		}
		left -= time.Since(from)
		if err := d.addBeside(ctx, u); err != nil {
			return err
		}
		return emit(*u)
	})
}

// units reads pages and emits the result without OCR.
func (d *document) units(ctx context.Context, r sheaf.Range, emit func(*sheaf.UnitResult) error) error {
	if r.From < 1 || r.To > d.pages || r.To < r.From {
		return sheaf.Fail(sheaf.CategoryBadInput, "no_such_page", "Pages %v were asked for; the document has %d.", r, d.pages)
	}
	agreed := map[int]decision{}
	_ = json.Unmarshal(d.options.Hint, &agreed) // by Agree; otherwise the pages of the range decide
	var sheets []*sheet                         // read but not laid out
	var pages []*sheet                          // nearby, laid out or not
	dropped, on := 0, 0
	for n := r.From; n <= r.To; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, err := d.read(ctx, n)
		if err != nil {
			return err
		}
		sheets, pages = append(sheets, s), append(pages, s)
		for len(sheets) > 0 && (n == r.To || sheets[0].number+nearby <= n) {
			s, sheets = sheets[0], sheets[1:]
			for pages[0].number < s.number-nearby {
				pages = pages[1:]
			}
			u := d.unit(s, pages, agreed, r)
			if len(s.running) > 0 {
				dropped, on = dropped+len(s.running), on+1
			}
			if s.number == r.To && on > 0 {
				u.Warnings = append(u.Warnings, sheaf.Warning{Code: "running_lines_removed", Page: r.From,
					Message: fmt.Sprintf("Running headers and footers (%d) on %d of pages %d to %d were left out.", dropped, on, r.From, r.To)})
			}
			if err := emit(&u); err != nil {
				return err
			}
			s.release()
		}
	}
	return nil
}

// unit lays out a page, using what was agreed or the nearby pages of the range r.
func (d *document) unit(s *sheet, pages []*sheet, agreed map[int]decision, r sheaf.Range) sheaf.UnitResult {
	if s.failure != nil || s.page == nil {
		return s.result()
	}
	var around []*facts
	var texts []string
	for _, p := range pages {
		if p.number > s.number+nearby {
			break
		}
		if p.read {
			around = append(around, &p.facts)
		}
		if p.page != nil {
			texts = append(texts, p.page.text)
		}
	}
	by, ok := agreed[s.number]
	if !ok {
		by = s.facts.decide(around)
	}
	said := s.layOut(by, around, texts, d.headings())
	u := s.result()
	// Other ranges affect the pages at the ends of this one, and these and the next
	// ones inward affect others.
	fromEnd := min(s.number-r.From, r.To-s.number)
	if said.decided = fromEnd < nearby; s.read && fromEnd < 2*nearby {
		u.Layout = string(said.append(nil))
	}
	return u
}

func (d *document) toRecognise(u *sheaf.UnitResult) bool {
	return u.Code == needsOCR && d.format.cfg.OCR.On()
}

// recognise runs OCR on the page of u, which has no text layer. The error is ctx's;
// anything else is a verdict on the page.
func (d *document) recognise(ctx context.Context, u *sheaf.UnitResult) error {
	text, err := d.recognised(ctx, u)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		f := sheaf.AsFailure(err, "")
		u.Status, u.Code, u.Message, u.Blocks = sheaf.UnitFailed, f.Code, f.Message, nil
		return nil
	}
	text.Verdict(u)
	return nil
}

func (d *document) recognised(ctx context.Context, u *sheaf.UnitResult) (ocr.Text, error) {
	page, err := d.draw(ctx, u.Unit, ocr.DPI)
	if err != nil {
		return ocr.Text{}, err
	}
	return d.readDrawn(ctx, page, u, nil)
}

// readDrawn runs OCR on the drawn page of u, or on the part of it within clip, whose
// upper left corner is then the origin of the text.
func (d *document) readDrawn(ctx context.Context, page drawing, u *sheaf.UnitResult, clip *sheaf.Box) (text ocr.Text, err error) {
	// A very large page is drawn at a lower resolution than requested.
	dpi := ocr.DPI
	if u.Width > 0 {
		dpi = max(1, int(float64(page.Rect.Dx())*72/u.Width+.5))
	}
	f, err := os.CreateTemp(d.options.TempDir, "page-*.jpg")
	if err != nil {
		return text, tempfile.Full(err)
	}
	defer os.Remove(f.Name())
	err = page.encode(f, clip)
	if err = errors.Join(err, f.Close()); err != nil {
		return text, tempfile.Full(err)
	}
	return d.format.cfg.OCR.Read(ctx, d.options.TempDir, f.Name(), 1, u.Unit, dpi)
}

// readFigures adds the text in the page's pictures to their blocks, as long as there
// is time left, and warns of what was not read. The error is ctx's.
func (d *document) readFigures(ctx context.Context, u *sheaf.UnitResult, left time.Duration) error {
	until, missed := time.Now().Add(left), 0
	var page drawing // of all of them, once there is one
	for i := range u.Blocks {
		b := &u.Blocks[i]
		if b.Kind != sheaf.BlockImage || len(b.Spans) == 0 {
			continue
		}
		if !time.Now().Before(until) {
			missed++
			continue
		}
		box, text, err := b.Spans[0].Box, ocr.Text{}, error(nil)
		if page.RGBA == nil {
			page, err = d.draw(ctx, u.Unit, ocr.DPI)
		}
		if err == nil {
			limited, cancel := context.WithDeadline(ctx, until)
			text, err = d.readDrawn(limited, page, u, &box)
			cancel()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code == "part_missing" {
			u.Warnings = append(u.Warnings, picture.Missing(u.Unit, f))
			return nil
		}
		if err != nil {
			missed++
			continue
		}
		if b.Text = text.Lines(); b.Text != "" {
			b.Spans = []sheaf.Span{{End: len(b.Text), Box: box}}
		}
	}
	if missed > 0 {
		u.Warnings = append(u.Warnings, picture.Unread(u.Unit, missed))
	}
	return nil
}

// read loads one page. An unreadable page is a sheet with a failure; an error means
// that the document is lost.
func (d *document) read(ctx context.Context, n int) (*sheet, error) {
	if d.doc == nil {
		if err := d.reopen(ctx); err != nil {
			return nil, sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "The PDF engine failed and the document does not open again: %v.", err)
		}
	}
	err := d.doc.Page(n-1, &d.page)
	d.tellMoved()
	s := &sheet{number: n, width: float64(d.page.Width), height: float64(d.page.Height)}
	switch {
	case errors.Is(err, engine.ErrBroken):
		_ = d.doc.Close()
		d.doc = nil
		s.failure = sheaf.Fail(sheaf.CategoryCrash, "page_crashed", "The PDF engine failed on page %d: %v. Save the file again with another program.", n, err)
	case err != nil:
		s.failure = sheaf.Fail(sheaf.CategoryBadInput, "page_unreadable", "Page %d is damaged and cannot be read; recreate the file from its source.", n)
	default:
		if label := strings.TrimSpace(d.doc.Label(n - 1)); label != "" && label != fmt.Sprint(n) {
			s.label = label
		}
		if d.options.Beside[n] != nil {
			if d.frames == nil {
				d.frames = map[int]frame{}
			}
			d.frames[n] = frameOf(&d.page)
		}
		s.take(&d.asm, &d.page)
		s.gather()
	}
	return s, nil
}

// Limits of Render: thumbnails or a zoomed page, not a poster.
const (
	maxDPI    = 300
	maxPixels = 24 << 20
)

// Render implements parser.Renderer.
func (d *document) Render(ctx context.Context, n, dpi int, clip *sheaf.Box) ([]byte, string, error) {
	page, err := d.draw(ctx, n, dpi)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	if err := page.encode(&b, clip); err != nil {
		return nil, "", err
	}
	return b.Bytes(), "image/jpeg", nil
}

// drawing is a drawn page.
type drawing struct {
	*image.RGBA
	scale float64 // pixels per point
}

func (p drawing) encode(w io.Writer, clip *sheaf.Box) error {
	return jpeg.Encode(w, clipped(p.RGBA, clip, p.scale), &jpeg.Options{Quality: 85})
}

func (d *document) draw(ctx context.Context, n, dpi int) (drawing, error) {
	if n < 1 || n > d.pages {
		return drawing{}, sheaf.Fail(sheaf.CategoryBadInput, "no_such_page", "Page %d was asked for; the document has %d.", n, d.pages)
	}
	if d.doc == nil {
		if err := d.reopen(ctx); err != nil {
			return drawing{}, sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "The PDF engine failed and the document does not open again: %v.", err)
		}
	}
	dpi = min(max(dpi, 10), maxDPI)
	width, height, err := d.doc.Size(n - 1)
	if err == nil {
		w, h := float64(width), float64(height)
		scale := float64(dpi) / 72
		if px := w * h * scale * scale; px > maxPixels {
			scale *= math.Sqrt(maxPixels / px)
		}
		// A page may be a thousand times as long as wide; both sides are capped.
		pixels := func(points float64) int { return min(max(1, int(points*scale+.5)), 1<<14) }
		var img *image.RGBA
		if img, err = d.doc.Render(n-1, pixels(w), pixels(h)); err == nil {
			return drawing{img, scale}, nil
		}
	}
	if errors.Is(err, engine.ErrBroken) {
		_ = d.doc.Close()
		d.doc = nil
	}
	return drawing{}, sheaf.Fail(sheaf.CategoryBadInput, "page_unreadable", "Page %d cannot be drawn: %v.", n, err)
}

// clipped returns the part of a drawn page within a box, or the page if that is empty.
func clipped(img *image.RGBA, clip *sheaf.Box, scale float64) image.Image {
	if clip == nil {
		return img
	}
	at := func(points float64) int { return int(math.Round(min(max(points, 0), 1<<14) * scale)) }
	part := image.Rect(at(clip.X0), at(clip.Y0), at(clip.X1), at(clip.Y1)).Intersect(img.Bounds())
	if part.Empty() {
		return img
	}
	return img.SubImage(part)
}
