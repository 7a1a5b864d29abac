package pdfiumhelper

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes makes the kernel kill the program when the thread that started it
// ends, and so with this process at the latest. It stays in this process's group,
// which may be killed as a whole.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// widen lets a page's whole record fit in the pipe. The kernel may refuse.
func widen(f *os.File) { _, _ = unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, 256<<10) }

// cpuTime returns the processor time a process has used, 0 if unknown.
func cpuTime(pid int) time.Duration {
	var t unix.Timespec
	// The clock of a process by its id: clock_getcpuclockid(3).
	if unix.ClockGettime(int32(^pid)<<3|2, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// InMemory copies a program into memory and returns a file that this process, and
// those that inherit the descriptor, can execute.
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
		// Processes that inherit it cannot change it.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
