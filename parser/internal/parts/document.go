package parts

import (
	"context"
	"os"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
)

// Document is a line-based file: one unit, or one per part if it is large.
type Document struct {
	File  *os.File
	Guess charset.Guess
	Cuts  []Slice
	Unit  func(b []byte, n int) sheaf.UnitResult // makes unit n from the bytes of its part
}

func (d *Document) Close() error { return nil }

func (d *Document) Plan(context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitFile, Units: 1, Metadata: d.Guess.Metadata(nil), Warnings: d.Guess.Warnings()}
	if len(d.Cuts) > 1 {
		p.Unit, p.Units, p.RangeSize = sheaf.UnitPart, len(d.Cuts), 1
	}
	var err error
	p.Fingerprints, err = Fingerprints(d.File, d.Cuts)
	return p, err
}

func (d *Document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(d.Cuts) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The file has %d parts, so part %d does not exist.", len(d.Cuts), n)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := Read(d.File, d.Cuts[n-1], d.Guess)
		if err != nil {
			return err
		}
		if err := emit(d.Unit(b, n)); err != nil {
			return err
		}
	}
	return nil
}
