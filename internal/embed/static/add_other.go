//go:build !amd64

package static

// addRow adds scale times row to v; both have the same length.
func addRow(v []float32, row []int8, scale float32) { addRowPlain(v, row, scale) }
