//go:build unix

// Package cputest measures a test's CPU time, so that its limits also hold on a
// busy machine.
package cputest

import (
	"syscall"
	"testing"
	"time"
)

// Used returns the CPU time used by this process.
func Used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
