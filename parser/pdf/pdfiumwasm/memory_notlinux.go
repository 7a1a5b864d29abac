//go:build unix && !linux

package pdfiumwasm

import "errors"

func adviseHuge([]byte) {}

// forget fails: only Linux promises that memory it takes back reads as zero.
func forget([]byte) error { return errors.ErrUnsupported }
