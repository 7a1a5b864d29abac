package odf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/embedded"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/picture"
	"sheaf/parser/internal/whole"
	"sheaf/parser/internal/zipfile"
)

const (
	slidesVersion = 1 // changes whenever the same file would yield other blocks
	// slidesRange is the number of slides per task. Each reads the whole file, in which,
	// measured, a slide of nine lines takes 0.03 ms.
	slidesRange = 100
	maxSlides   = 20_000
)

// recurring are the frames that a slide shares with all others (part 3, 19.389).
var recurring = map[string]bool{"header": true, "footer": true, "date-time": true, "page-number": true, "page": true, "handout": true}

// NewSlides returns the format of slides; see NewText.
func NewSlides(recognition ocr.Config, formats func() *parser.Registry) parser.Format {
	return deck{parts{recognition, formats}}
}

type deck struct{ parts }

func (deck) ID() string     { return "odp" }
func (f deck) Version() int { return slidesVersion + f.ocr.Digest() }
func (deck) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaODP, Aliases: []string{parser.MediaODP + "-template"},
		Name: "OpenDocument slides", Extensions: []string{".odp", ".otp"}, Magic: []parser.Magic{{Entry: "mimetype"}},
		Families: []sheaf.FileFamily{sheaf.FamilyPresentation}, Unit: sheaf.UnitSlide, Ranges: "100 slides",
	}}
}

// Open implements parser.Format.
func (f deck) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	z, err := open(file, "odp")
	if err != nil {
		return nil, err
	}
	return &slideShow{z: z, ocr: f.ocr, formats: f.formats(), options: o}, nil
}

// rect is a rectangle in points.
type rect struct{ x, y, w, h float64 }

// slide is one that is being read.
type slide struct {
	style, master string
	noted         bool
	notes         int // where the notes begin in reader.out
}

type slideShow struct {
	z        *zipfile.Archive
	ocr      ocr.Config
	formats  *parser.Registry
	options  parser.Options
	slides   []sheaf.UnitResult // once read
	warnings []sheaf.Warning
}

func (d *slideShow) Close() error { d.slides = nil; return nil }

// Picture implements parser.Illustrated.
func (d *slideShow) Picture(_ context.Context, name string, side int) ([]byte, error) {
	return picture.Draw(d.z, name, side)
}

// load reads all slides, once.
func (d *slideShow) load(ctx context.Context) error {
	if d.slides != nil {
		return nil
	}
	files := &embedded.Reader{Archive: d.z, Formats: d.formats, Options: d.options}
	r := &reader{kind: "odp", ctx: ctx, z: d.z, files: files, styles: newStyles()}
	r.styles.read(d.z, stylesPart)
	r.styles.read(d.z, contentPart)
	hidden := 0
	var slides []sheaf.UnitResult
	r.pageFunc = func(s *slide, blocks []sheaf.Block) error {
		n := len(slides) + 1
		if n > maxSlides {
			return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The deck has more than %d slides; split it into smaller files.", maxSlides)
		}
		if r.styles.find("drawing-page", s.style).hidden {
			hidden++
		}
		for i := range blocks {
			b := &blocks[i]
			b.Page = n
			if b.Table != nil && b.Table.Box != nil {
				b.Table.Box.Page = n
			}
			for k := range b.Spans {
				b.Spans[k].Box.Page = n
			}
		}
		u := whole.Unit(n, blocks)
		page := r.styles.layouts[r.styles.masters[s.master]]
		u.Width, u.Height = page.width, page.height
		if i := slices.IndexFunc(blocks, func(b sheaf.Block) bool { return b.Kind == sheaf.BlockHeading }); i >= 0 {
			u.Label = clean.Clip(blocks[i].Text, 500)
		}
		slides = append(slides, u)
		return nil
	}
	if err := r.part(contentPart, "body"); err != nil {
		if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code != "invalid_odp" || !ok || len(slides) == 0 {
			return err
		}
		r.warn("document_damaged", "The deck breaks off inside; the slides before were read.")
	}
	if len(slides) == 0 {
		return sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The deck has no slides; check that you uploaded the right file.")
	}
	if r.bare > 0 {
		r.warn("images_ignored", fmt.Sprintf("Pictures without a description (%d) were not read; set ocr_pictures where they hold text.", r.bare))
	}
	if r.comments > 0 {
		r.warn("comments_ignored", fmt.Sprintf("Reviewer comments (%d) were not read; they are not part of the slides.", r.comments))
	}
	if hidden > 0 {
		r.warn("hidden_slides", fmt.Sprintf("Slides that are hidden in the show (%d) were read like the others.", hidden))
	}
	d.slides, d.warnings = slides, append(r.warnings, files.Warnings()...)
	return nil
}

// Plan implements parser.Document.
func (d *slideShow) Plan(ctx context.Context) (*parser.Plan, error) {
	if err := d.load(ctx); err != nil {
		return nil, err
	}
	p := &parser.Plan{Unit: sheaf.UnitSlide, Units: len(d.slides), RangeSize: slidesRange, Metadata: properties(d.z), Warnings: d.warnings}
	for _, u := range d.slides {
		b, err := json.Marshal(u.Blocks)
		if err != nil {
			return nil, err
		}
		p.Fingerprints = append(p.Fingerprints, xxhash.Sum64(b))
		if u.Label != "" {
			p.Outline = append(p.Outline, sheaf.Heading{Level: 1, Title: u.Label, Page: u.Unit})
		}
	}
	return p, nil
}

// Parse implements parser.Document.
func (d *slideShow) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	if err := d.load(ctx); err != nil {
		return err
	}
	pictures := picture.Reader{Archive: d.z, OCR: d.ocr, TempDir: d.options.TempDir}
	_, pictures.Left = picture.Budget(r.Len(), nil)
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(d.slides) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The deck has %d slides, so slide %d does not exist.", len(d.slides), n)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		u := d.slides[n-1]
		if d.options.Config.OCRPictures.V {
			u.Blocks = slices.Clone(u.Blocks)
			if err := pictures.Read(ctx, &u); err != nil {
				return err
			}
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

// titled reports whether the text is that of the slide's title.
func (r *reader) titled() bool {
	f := last(r.frames)
	return f != nil && f.class == "title" && !r.slide.noted
}

// placed tells the blocks of a frame that has ended where the slide shows them.
func (r *reader) placed(f *frame) {
	if r.slide == nil || r.slide.noted || f.box == nil || len(r.tables) > 0 {
		return
	}
	box := sheaf.Box{X0: f.box.x, Y0: f.box.y, X1: f.box.x + f.box.w, Y1: f.box.y + f.box.h}
	for i := min(f.begin, len(r.out)); i < len(r.out); i++ {
		switch b := &r.out[i]; {
		case b.Table != nil && b.Table.Box == nil:
			own := box
			b.Table.Box = &own
		case b.Table == nil && b.Spans == nil:
			b.Spans = []sheaf.Span{{End: len(b.Text), Box: box}}
		}
	}
}

// endPage hands on a slide: its title first, whatever the drawing order, and its notes
// last.
func (r *reader) endPage() error {
	s, blocks := r.slide, append(r.out, r.notes...)
	r.slide, r.out, r.notes = nil, nil, nil
	if s.noted {
		whole.MarkNotes(blocks[min(s.notes, len(blocks)):])
	}
	slices.SortStableFunc(blocks, func(a, b sheaf.Block) int {
		return after(a.Kind == sheaf.BlockHeading) - after(b.Kind == sheaf.BlockHeading)
	})
	return r.pageFunc(s, blocks)
}

func after(first bool) int {
	if first {
		return 0
	}
	return 1
}
