// Package whole makes a parser.Document of a file that is read in one go and
// counted as one unit, as most small formats are.
package whole

import (
	"context"
	"slices"

	"sheaf"
	"sheaf/parser"
)

// MaxTextBytes is the maximum text of one unit: the answer to a task travels
// between processes in one piece.
const MaxTextBytes = 32 << 20

// Content is the content of a file.
type Content struct {
	Blocks   []sheaf.Block
	Metadata map[string]string
	Warnings []sheaf.Warning
	// Cost of the file in pages or other units, 0 for one.
	Cost int
	// Finish, if set, completes a unit before it is emitted: work too expensive for
	// planning. Its error ends the reading.
	Finish func(ctx context.Context, u *sheaf.UnitResult) error
}

// New makes the document. read is called on the first Plan or Parse, and again only
// if the content has already been parsed.
func New(read func(ctx context.Context) (*Content, error)) parser.Document {
	return &document{read: read}
}

// WithPictures is New for a file with pictures, which draw draws.
func WithPictures(read func(ctx context.Context) (*Content, error), draw func(name string, side int) ([]byte, error)) parser.Document {
	return &illustrated{document{read: read}, draw}
}

type illustrated struct {
	document
	draw func(name string, side int) ([]byte, error)
}

// Picture implements parser.Illustrated.
func (d *illustrated) Picture(_ context.Context, name string, side int) ([]byte, error) {
	return d.draw(name, side)
}

type document struct {
	read    func(ctx context.Context) (*Content, error)
	content *Content // read by Plan, cached for Parse
}

func (d *document) Close() error { d.content = nil; return nil }

func (d *document) load(ctx context.Context) (*Content, error) {
	if d.content != nil {
		return d.content, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := d.read(ctx)
	if err != nil {
		return nil, err
	}
	if n := TextBytes(c.Blocks); n > MaxTextBytes {
		return nil, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The file holds %d MB of text and the limit for one file of this kind is %d MB; split it into smaller files.", n>>20, MaxTextBytes>>20)
	}
	for i := range c.Blocks {
		c.Blocks[i].Page = 1
	}
	return c, nil
}

func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	c, err := d.load(ctx)
	if err != nil {
		return nil, err
	}
	d.content = c
	p := &parser.Plan{Unit: sheaf.UnitFile, Units: 1, Metadata: c.Metadata, Outline: Outline(c.Blocks), Warnings: c.Warnings}
	if c.Cost > 1 {
		p.Ranges = []parser.PlannedRange{{Range: sheaf.Range{From: 1, To: 1}, Cost: c.Cost}}
	}
	return p, nil
}

func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	if r.From != 1 || r.To != 1 {
		return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The file is one unit, so units %s do not exist; ask for all of it.", r)
	}
	c, err := d.load(ctx)
	if err != nil {
		return err
	}
	d.content = nil // it may be large, and is normally read once
	u := Unit(1, c.Blocks)
	if c.Finish != nil {
		if err := c.Finish(ctx, &u); err != nil {
			return err
		}
	}
	return emit(u)
}

// Unit returns the result for a unit that was read. One with nothing but pictures
// is blank.
func Unit(n int, blocks []sheaf.Block) sheaf.UnitResult {
	u := sheaf.UnitResult{Unit: n, Status: sheaf.UnitBlank, Code: "no_text", Message: "There is no text here.", Blocks: blocks}
	if slices.ContainsFunc(blocks, func(b sheaf.Block) bool { return b.Table != nil || b.Text != "" }) {
		u.Status, u.Code, u.Message = sheaf.UnitOK, "", ""
	}
	return u
}

// maxOutline limits the outline of a plan.
const maxOutline = 10_000

// Outline lists the headings among blocks.
func Outline(blocks []sheaf.Block) []sheaf.Heading {
	var out []sheaf.Heading
	for _, b := range blocks {
		if b.Kind == sheaf.BlockHeading && len(out) < maxOutline {
			out = append(out, sheaf.Heading{Level: b.Level, Title: b.Text, Page: b.Page})
		}
	}
	return out
}

// TextBytes counts the text in blocks.
func TextBytes(blocks []sheaf.Block) int {
	n := 0
	for _, b := range blocks {
		n += len(b.Text)
		if b.Table == nil {
			continue
		}
		for _, c := range b.Table.Columns {
			n += len(c) + 4
		}
		for _, r := range b.Table.Rows {
			for _, c := range r {
				n += len(c) + 4
			}
		}
	}
	return n
}

// notesMark precedes speaker notes, which the slide does not show.
const notesMark = "Speaker notes: "

// MarkNotes puts a mark before the first text of the notes of a slide.
func MarkNotes(blocks []sheaf.Block) {
	for i := range blocks {
		b := &blocks[i]
		if b.Table != nil || b.Text == "" {
			continue
		}
		b.Text = notesMark + b.Text
		for k := range b.Links {
			b.Links[k].Start += len(notesMark)
			b.Links[k].End += len(notesMark)
		}
		return
	}
}
