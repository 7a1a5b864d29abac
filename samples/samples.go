// Package samples holds documents to try Sheaf with: its own handbook in four
// formats. They are made from docs/handbook.md by `go run ./samples/make`.
package samples

import "embed"

// FS holds handbook.pdf, handbook.docx, handbook.xlsx and handbook.html.
//
//go:embed handbook.pdf handbook.docx handbook.xlsx handbook.html
var FS embed.FS
