//go:build !linux

package embedserver

// limitMemory does nothing: models run only on Linux.
func limitMemory(uint64) error { return nil }
