// Package samples holds documents to try Sheaf with: a handbook in four
// formats. `go run ./samples/make` makes them from handbook.md, a copy of
// docs/handbook.md as it stood once. Tests, benches and the demo read them, so
// the copy stays as it is when the handbook changes.
package samples

import "embed"

// FS holds handbook.pdf, handbook.docx, handbook.xlsx and handbook.html.
//
//go:embed handbook.pdf handbook.docx handbook.xlsx handbook.html
var FS embed.FS
