//go:build !unix

package embedded

import "errors"

var errLocked = errors.New("another process holds the lock")

// lock is a no-op without flock: do not open an index twice there.
func lock(string) (release func(), err error) { return func() {}, nil }
