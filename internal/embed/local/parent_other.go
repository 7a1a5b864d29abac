//go:build !linux

package local

import "syscall"

// withParent is a no-op: the child exits when its input is closed.
func withParent() *syscall.SysProcAttr { return nil }
