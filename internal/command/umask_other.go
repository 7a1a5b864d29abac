//go:build !unix

package command

// privateFiles does nothing where files have no modes.
func privateFiles() {}
