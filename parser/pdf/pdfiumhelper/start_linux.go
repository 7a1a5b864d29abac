package pdfiumhelper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes has the kernel end the program when the thread that started it ends,
// with this process at the latest. It stays in this process's group, which whoever
// watches over this process may kill as a whole.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// widen lets a page's record wait in the pipe as a whole. The kernel may refuse.
func widen(f *os.File) { _, _ = unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, 256<<10) }

// cpuTime is what a process has used of the processor, 0 where that is not told.
func cpuTime(pid int) time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The second field is the name in brackets, which may hold spaces; the times
	// are in hundredths of a second (proc(5)).
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * (time.Second / 100)
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// InMemory copies a program into memory, under a name that this process, and
// those which inherit the descriptor, can start.
func InMemory(program []byte) (*os.File, error) {
	// MFD_EXEC is unknown before Linux 6.3.
	fd, err := unix.MemfdCreate("sheaf-pdfium", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("sheaf-pdfium", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "sheaf-pdfium")
	if _, err = f.Write(program); err == nil {
		// Nobody who inherits it can change it.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
