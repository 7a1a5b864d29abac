//go:build !race

package cputest

// Slowdown is how much slower code is than as released.
const Slowdown = 1
