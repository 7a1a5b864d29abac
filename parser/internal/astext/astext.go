// Package astext passes a file to the plain text format: used by the formats of
// markup and configuration for files that are too large or too broken to have a
// structure.
package astext

import (
	"context"
	"os"

	"sheaf"
	"sheaf/parser"
)

// Version is that of the plain text format: it is part of the version of a format
// that falls back to it.
func Version(formats *parser.Registry) int {
	if f, ok := formats.ByMediaType(parser.MediaText); ok {
		return f.Version()
	}
	return 0
}

// Open reads file as text. why becomes a warning in the plan.
func Open(ctx context.Context, formats *parser.Registry, file *os.File, o parser.Options, why sheaf.Warning) (parser.Document, error) {
	f, ok := formats.ByMediaType(parser.MediaText)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "unsupported_format", "This build reads no plain text.")
	}
	d, err := f.Open(ctx, file, o)
	if err != nil {
		return nil, err
	}
	return &document{d, why}, nil
}

type document struct {
	parser.Document
	why sheaf.Warning
}

func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	p, err := d.Document.Plan(ctx)
	if err == nil {
		p.Warnings = append(p.Warnings, d.why)
	}
	return p, err
}
