//go:build !unix

package command

// privateFiles is a no-op where files have no modes.
func privateFiles() {}
