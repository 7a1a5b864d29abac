//go:build !linux

package program

import (
	"os"
	"syscall"
)

func withParent() *syscall.SysProcAttr { return nil }

// killFamily kills only the program itself.
func killFamily(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may be gone already
	}
}

// familyBytes is unknown: only the deadline limits a program here.
func familyBytes(int) int64 { return 0 }
