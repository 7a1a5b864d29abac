//go:build !linux

package pdfiumhelper

import (
	"errors"
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func widen(*os.File) {}

func isBrokenPipe(error) bool { return false }

// InMemory copies a program into memory.
func InMemory([]byte) (*os.File, error) { return nil, errors.ErrUnsupported }
