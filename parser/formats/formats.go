// Package formats lists the formats that Sheaf is built with. Programs hand
// the list to the parser's child processes and to the planner.
package formats

import (
	"sync"

	"sheaf/parser"
	"sheaf/parser/csv"
	"sheaf/parser/docx"
	"sheaf/parser/eml"
	"sheaf/parser/encrypted"
	"sheaf/parser/epub"
	"sheaf/parser/html"
	"sheaf/parser/jsonfmt"
	"sheaf/parser/markdown"
	"sheaf/parser/mbox"
	"sheaf/parser/notebook"
	"sheaf/parser/pdf"
	"sheaf/parser/pptx"
	"sheaf/parser/rows"
	"sheaf/parser/text"
	"sheaf/parser/xlsx"
)

// All returns every format, in the order in which a registry should ask them.
// Nothing is started before a file is opened. The result is the caller's; the
// formats in it are safe for use by many goroutines.
func All() []parser.Format {
	var all []parser.Format
	registry := sync.OnceValue(func() *parser.Registry { return parser.NewRegistry(all...) })
	all = []parser.Format{
		pdf.New(pdf.Config{}),
		docx.New(),
		pptx.New(),
		xlsx.New(),
		csv.New(),
		html.New(),
		markdown.New(),
		notebook.New(registry),
		jsonfmt.New(),
		encrypted.New(registry),
		epub.New(),
		eml.New(registry),
		mbox.New(registry),
		rows.New(),
		text.New(),
	}
	return append([]parser.Format(nil), all...)
}
