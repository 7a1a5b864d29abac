//go:build !unix

package command

// lockDir is a no-op where the system has no advisory locks.
func lockDir(string) (unlock func() error, err error) { return func() error { return nil }, nil }
