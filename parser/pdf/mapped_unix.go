//go:build unix

package pdf

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapped returns the memory-mapped content of a file, valid until done is called;
// nil if it cannot be mapped.
func mapped(f *os.File, size int64) (content []byte, done func()) {
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil
	}
	return b, func() { _ = unix.Munmap(b) } // fails only for addresses that were never mapped
}
