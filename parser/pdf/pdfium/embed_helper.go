//go:build helper

package pdfium

import _ "embed"

// embedded is the helper embedded in this program; `make embedded` puts it here.
//
//go:embed sheaf-pdfium
var embedded []byte
