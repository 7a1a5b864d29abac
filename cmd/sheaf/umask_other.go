//go:build !unix

package main

// privateFiles does nothing where files have no modes.
func privateFiles() {}
