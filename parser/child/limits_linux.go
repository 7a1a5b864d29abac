package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate puts the child into a process group of its own, so that whatever it
// starts dies with it, and has the kernel kill it when the thread that started
// it ends (see Pool.spawner).
func isolate() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // ESRCH: it is gone already

// limitSelf is called once by the child. Address space is not limited: the
// engine reserves much more than it uses; the parent watches what is resident.
func limitSelf(fileBytes int64, nice int) error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if fileBytes > 0 {
		err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(fileBytes), Max: uint64(fileBytes)}))
	}
	if nice != 0 {
		// On Linux niceness belongs to the thread, and the runtime has several.
		tasks, readErr := os.ReadDir("/proc/self/task")
		err = errors.Join(err, readErr)
		for _, t := range tasks {
			if tid, convErr := strconv.Atoi(t.Name()); convErr == nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
			}
		}
	}
	return err
}

// openStatm opens the file that tells a process's memory, nil when it is gone.
func openStatm(pid int) *os.File {
	f, err := os.Open(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return nil
	}
	return f
}

// residentBytes of the process whose statm is open, 0 when it is gone.
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

// keepPipes stops programs that a format starts from inheriting the pipes.
func keepPipes(fds ...int) {
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
}

// awaitExit blocks until the process has ended and leaves it unreaped, so that
// its number, and that of its group, cannot be given to another meanwhile. It
// returns false where that is not possible.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// lockFolder holds a folder for the life of this process; held is false when
// another has it. A folder without a living owner can be locked by anybody.
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
