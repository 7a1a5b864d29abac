package child

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // ESRCH: already gone

// lowerPriority makes the process, with all its threads, yield to others. On Linux
// niceness belongs to the thread; a process group covers the threads of all its
// processes, and a child has its own group.
func lowerPriority(nice int) error {
	if nice == 0 {
		return nil
	}
	return unix.Setpriority(unix.PRIO_PGRP, 0, nice)
}

// openStatm opens the file that reports a process's memory; nil when the process is
// gone.
func openStatm(pid int) *os.File {
	f, err := os.Open(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return nil
	}
	return f
}

// residentBytes returns the resident memory of the process whose statm is open, 0
// when it is gone.
func residentBytes(statm *os.File) int64 {
	var b [128]byte // seven numbers
	n, _ := statm.ReadAt(b[:], 0)
	_, rest, _ := bytes.Cut(b[:n], []byte(" "))
	field, _, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return 0
	}
	pages, err := strconv.ParseInt(string(field), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// keepPipes keeps programs started by a format from inheriting the pipes.
func keepPipes(fds ...int) {
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
}

// awaitExit blocks until the process has ended and leaves it unreaped, so that its
// pid and process group cannot be reused in the meantime. It returns false if that
// is not possible.
func awaitExit(pid int) bool {
	return again(func() error { return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) }) == nil
}

// lockFolder locks a folder for the lifetime of this process; held is false when
// another process holds it. A folder without a living owner can be locked by anyone.
func lockFolder(path string) (f *os.File, held bool) {
	f, err := os.OpenFile(path+"/.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, false
	}
	return f, true
}

// ownTime is the processor time that this process has used.
func ownTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
