package file

import (
	"os"
	"syscall"
)

// full returns ENOSPC for a folder on a file system without free space.
func full(dir string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err == nil && s.Bavail == 0 {
		return &os.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC}
	}
	return nil
}
