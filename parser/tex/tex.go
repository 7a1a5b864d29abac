// Package tex is the format of LaTeX sources: sections, lists, tables and captions,
// with formulas as their source. Nothing is executed: macros stay unexpanded and
// included files are not followed. It runs in the parser's child process.
package tex

import (
	"context"
	"fmt"
	"os"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/astext"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/whole"
)

const (
	version = 2 // changes whenever the same file would yield other blocks
	// maxFileBytes is far above a book's source; larger files are read as
	// text, in parts.
	maxFileBytes = 8 << 20
	// maxDepth limits nested groups and environments; anything deeper is omitted.
	maxDepth = 100
)

// New returns the format. formats finds the reader of text; it is called while
// a file is read.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string     { return "tex" }
func (f *format) Version() int { return version + astext.Version(f.formats()) }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: "text/x-tex", Aliases: []string{"application/x-tex", "application/x-latex", "text/x-latex"}, Name: "LaTeX", Extensions: []string{".tex", ".latex"},
		Text: true, Families: []sheaf.FileFamily{sheaf.FamilyText}, Unit: sheaf.UnitFile, Ranges: "large files only, which are read as text",
	}}
}
func (*format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(file, parts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	if size > maxFileBytes {
		return astext.Open(ctx, f.formats(), file, o, sheaf.Warning{Code: "read_as_text", Message: fmt.Sprintf("The file has %d MB; above %d MB TeX is read as text, with its commands.", size>>20, maxFileBytes>>20)})
	}
	return whole.New(func(ctx context.Context) (*whole.Content, error) {
		b, guess, err := charset.ReadFile(file, maxFileBytes, "TeX file", o.Config.Encoding.V, "")
		if err != nil {
			return nil, err
		}
		r := newReader(clean.Text(string(b)), guess.Metadata(nil))
		if err := r.read(ctx); err != nil {
			return nil, err
		}
		return &whole.Content{Blocks: r.out, Metadata: r.metadata, Warnings: append(guess.Warnings(), r.warnings()...)}, nil
	}), nil
}
