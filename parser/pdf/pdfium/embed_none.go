//go:build !helper

package pdfium

// embedded is the helper embedded in this program: none.
var embedded []byte
