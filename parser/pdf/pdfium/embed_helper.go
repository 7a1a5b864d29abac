//go:build helper

package pdfium

import _ "embed"

// embedded is the helper that this program carries; `make embedded` puts it here.
//
//go:embed sheaf-pdfium
var embedded []byte
