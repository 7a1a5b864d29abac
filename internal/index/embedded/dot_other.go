//go:build !amd64

package embedded

// dotRows sets dst[i] to the dot product of row i with the query. rows holds
// len(dst) rows of len(query) values; len(query) is a multiple of laneWidth.
func dotRows(dst []int32, rows []int8, query []int16) { dotRowsPlain(dst, rows, query) }
