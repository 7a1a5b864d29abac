//go:build race

package enrich

// The race detector makes code some eight times as slow; bounds on time grow with it.
const slowdown = 8
