package local

import "syscall"

// withParent has the kernel kill the child when the thread that started it ends.
func withParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
