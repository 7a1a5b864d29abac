//go:build !linux

package embedserver

// limitMemory does nothing: models run on Linux alone.
func limitMemory(uint64) error { return nil }
