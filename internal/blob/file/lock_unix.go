//go:build unix

package file

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lock marks f as in use until it is closed. It returns false if another open file
// holds the mark.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// abandoned reports whether the process that wrote the temporary file at path is
// gone: the kernel has then released its lock. A file younger than a minute is left
// alone, because its creator may not have locked it yet.
func abandoned(path string, modified time.Time) bool {
	if time.Since(modified) < time.Minute {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return lock(f)
}

// writable returns why this process may not write to a folder, or nil.
func writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "access", Path: dir, Err: err}
	}
	return full(dir)
}
