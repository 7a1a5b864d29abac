//go:build unix && !linux

package pdfiumwasm

import "errors"

func adviseHuge([]byte) {}

// forget fails: only Linux guarantees that reclaimed memory reads as zero.
func forget([]byte) error { return errors.ErrUnsupported }
