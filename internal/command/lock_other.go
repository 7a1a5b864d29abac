//go:build !unix

package command

// lockDir does nothing where the system has no advisory locks.
func lockDir(string) (unlock func() error, err error) { return func() error { return nil }, nil }
