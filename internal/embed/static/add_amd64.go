package static

import "golang.org/x/sys/cpu"

// rowLanes is the number of values that addRowAVX2 processes per step.
const rowLanes = 16

var hasAVX2 = cpu.X86.HasAVX2

//go:noescape
func addRowAVX2(v *float32, row *int8, scale float32, dim int)

// addRow adds scale times row to v; both have the same length. The result is
// bit-identical on every machine.
func addRow(v []float32, row []int8, scale float32) {
	if whole := len(row) &^ (rowLanes - 1); hasAVX2 && whole > 0 {
		_ = v[whole-1]
		addRowAVX2(&v[0], &row[0], scale, whole)
		v, row = v[whole:], row[whole:]
	}
	addRowPlain(v, row, scale)
}
