// Package samples holds documents to try Sheaf with: a handbook in four formats.
// `go run ./samples/make` generates them from handbook.md, a frozen copy of
// docs/handbook.md. Tests, benchmarks and the demo read them, so the copy does not
// follow changes to the handbook.
package samples

import "embed"

// FS holds handbook.pdf, handbook.docx, handbook.xlsx and handbook.html.
//
//go:embed handbook.pdf handbook.docx handbook.xlsx handbook.html
var FS embed.FS
