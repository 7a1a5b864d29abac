// Package html is the format of web pages: headings, paragraphs, lists, tables
// and code of what a reader would see. It runs in the parser's child process.
package html

import (
	"context"
	"os"
	"sheaf"

	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/whole"
)

// maxFileBytes limits a page: its tree takes up to ten times as much memory. The
// HTML standard itself, on one page, is 13 MB.
const maxFileBytes = 32 << 20

// version changes whenever the same file would yield other blocks.
const version = 2

// New returns the format.
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string        { return "html" }
func (format) Version() int      { return version }
func (format) Options() []string { return []string{"encoding"} }
func (format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaHTML, Aliases: []string{"application/xhtml+xml"}, Name: "HTML", Extensions: []string{".html", ".htm", ".xhtml"},
		Text: true, Families: []sheaf.FileFamily{sheaf.FamilyWeb}, Unit: sheaf.UnitFile,
	}}
}

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	return whole.New(func(context.Context) (*whole.Content, error) {
		head := make([]byte, 4096)
		n, _ := f.ReadAt(head, 0) // a file that cannot be read fails below
		page, guess, err := charset.ReadFile(f, maxFileBytes, "web page", o.Config.Encoding.V, htmlblocks.Declared(head[:n]))
		if err != nil {
			return nil, err
		}
		r := htmlblocks.Read(page)
		return &whole.Content{Blocks: r.Blocks, Metadata: guess.Metadata(r.Metadata), Warnings: append(guess.Warnings(), r.Warnings...)}, nil
	}), nil
}
