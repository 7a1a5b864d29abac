//go:build !race

package chunker

const slowdown = 1
