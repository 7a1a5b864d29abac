//go:build !race

package enrich

const slowdown = 1
