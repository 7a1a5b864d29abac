//go:build !linux

package pdfiumhelper

import (
	"errors"
	"os"
	"syscall"
	"time"
)

func attributes() *syscall.SysProcAttr { return nil }

func widen(*os.File) {}

func cpuTime(int) time.Duration { return 0 }

func isBrokenPipe(error) bool { return false }

// InMemory copies a program into memory.
func InMemory([]byte) (*os.File, error) { return nil, errors.ErrUnsupported }
