package embedserver

import "golang.org/x/sys/unix"

// limitMemory limits the process's writable memory (RLIMIT_DATA, getrlimit(2)): an
// allocation beyond it fails.
func limitMemory(bytes uint64) error {
	if bytes == 0 {
		return nil
	}
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes})
}
