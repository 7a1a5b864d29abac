//go:build unix

package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockDir makes this process the only user of a data folder: a second one would not
// see the first one's wake-ups and in-memory vectors. The kernel releases the lock
// with the process.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, dataDirError(dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another sheaf process uses the data folder %s; stop it, or choose another folder with --data-dir", dir)
		}
		return nil, fmt.Errorf("locking the data folder %s: %w", dir, err)
	}
	// A program that is just being started has the file, too, until it runs: closing it
	// here would leave the folder locked for that long.
	return func() error { return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close()) }, nil
}
