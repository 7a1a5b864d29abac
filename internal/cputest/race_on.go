//go:build race

package cputest

// Slowdown is about eight with the race detector; time limits scale with it.
const Slowdown = 8
