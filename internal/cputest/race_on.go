//go:build race

package cputest

// Slowdown is some eight times with the race detector; bounds on time grow with it.
const Slowdown = 8
