package embedserver

import "golang.org/x/sys/unix"

// limitMemory bounds what the process may write to (RLIMIT_DATA, getrlimit(2)):
// an allocation above it fails.
func limitMemory(bytes uint64) error {
	if bytes == 0 {
		return nil
	}
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes})
}
