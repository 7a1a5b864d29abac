//go:build unix

package pdf

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapped is the content of a file where it lies, until done is called; nil
// where it cannot be had so.
func mapped(f *os.File, size int64) (content []byte, done func()) {
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil
	}
	return b, func() { _ = unix.Munmap(b) } // fails only for addresses that were never mapped
}
