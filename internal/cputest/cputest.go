//go:build unix

// Package cputest bounds the CPU of what a test runs: such a bound holds on a
// machine that does other things as well.
package cputest

import (
	"syscall"
	"testing"
	"time"
)

// Used is the CPU that this process has used.
func Used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
