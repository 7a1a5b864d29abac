//go:build !helper

package pdfium

// embedded is the helper that this program carries: none.
var embedded []byte
