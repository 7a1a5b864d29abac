package embedded

import "golang.org/x/sys/cpu"

var hasAVX2 = cpu.X86.HasAVX2

//go:noescape
func dotRowsAVX2(dst *int32, rows *int8, query *int16, n, dim int)

// dotRows sets dst[i] to the dot product of row i with the query. rows holds
// len(dst) rows of len(query) values; len(query) is a multiple of laneWidth.
func dotRows(dst []int32, rows []int8, query []int16) {
	if len(dst) == 0 || len(query) == 0 {
		return
	}
	_ = rows[len(dst)*len(query)-1]
	if hasAVX2 {
		dotRowsAVX2(&dst[0], &rows[0], &query[0], len(dst), len(query))
		return
	}
	dotRowsPlain(dst, rows, query)
}
