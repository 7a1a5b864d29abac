//go:build !race

package cputest

// Slowdown is how much slower code runs than in a release.
const Slowdown = 1
