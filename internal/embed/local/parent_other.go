//go:build !linux

package local

import "syscall"

// withParent does nothing more than the child does, which ends with its input.
func withParent() *syscall.SysProcAttr { return nil }
