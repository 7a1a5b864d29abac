// Package rows is the format of the shards into which a workbook is split during
// planning: one table of some thousand rows. It runs in the parser's child process.
package rows

import (
	"context"
	"encoding/json"
	"io"
	"os"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/coltype"
	"sheaf/parser/internal/rowio"
)

const version = 1 // changes whenever the same shard would yield other blocks

// New returns the format.
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "rows" }
func (format) Version() int { return version }
func (format) Types() []parser.FileType {
	return []parser.FileType{{MediaType: rowio.MediaType, Families: []sheaf.FileFamily{sheaf.FamilySpreadsheet}, Unit: sheaf.UnitRow}}
}
func (format) Options() []string { return nil }

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	d := &document{f: f}
	if len(o.Hint) > 0 {
		if err := json.Unmarshal(o.Hint, &d.hint); err != nil {
			return nil, sheaf.Fail(sheaf.CategoryInternal, "bad_hint", "The plan of these rows cannot be read (%v); parse the document again.", err)
		}
	}
	return d, nil
}

type document struct {
	f    *os.File
	hint rowio.Hint
}

func (d *document) Close() error { return nil }

func (d *document) open() (*rowio.Reader, error) {
	st, err := d.f.Stat()
	if err != nil {
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored rows cannot be read: %v.", err)
	}
	return rowio.NewReader(io.NewSectionReader(d.f, 0, st.Size()))
}

// Plan counts the rows. It is unused in normal operation, where ranges are planned
// with the workbook.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	r, err := d.open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.First != 1 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "piece", "The file is a piece of a workbook that begins at row %d; upload the workbook.", r.First)
	}
	last := 0
	for {
		n, _, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if last = n; n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if last == 0 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "There are no rows; parse the document again.")
	}
	return &parser.Plan{Unit: sheaf.UnitRow, Units: last, Ranges: []parser.PlannedRange{{Range: sheaf.Range{From: 1, To: last}, Cost: rowio.Cost(last)}}}, nil
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, want sheaf.Range, emit func(sheaf.UnitResult) error) error {
	r, err := d.open()
	if err != nil {
		return err
	}
	defer r.Close()
	width := len(r.Columns)
	if width == 0 {
		width = len(d.hint.Types)
	}
	e := rowio.Emitter{Emit: emit, Name: r.Name, Columns: r.Columns, Types: coltype.Unpack(d.hint.Types, max(width, len(d.hint.Types))), Links: d.hint.Links}
	for {
		n, row, err := r.Next()
		if err == io.EOF {
			return e.Flush()
		}
		if err != nil {
			return err
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if n > want.To {
			return e.Flush()
		}
		if n >= want.From {
			if err := e.Row(n, row); err != nil {
				return err
			}
		}
	}
}
