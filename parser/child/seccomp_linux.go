//go:build amd64 || arm64

package child

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refusedCalls fail with EPERM whatever their arguments: no file parser needs them,
// and most kernel exploits begin with one.
var refusedCalls = append([]uintptr{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_PERSONALITY,
}, refusedCallsOfArch...)

// newNamespaces are the flags of clone(2) that create a namespace. clone3, whose
// flags a filter cannot see, is reported as unimplemented: libraries then use clone.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data, see seccomp(2). Both architectures are little endian.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

func refuse(errno unix.Errno) bpf.RetConstant {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// filter is the program that decides on each system call. network allows TCP and
// UDP sockets; without it the process has only streams between its own processes.
func filter(network bool) []bpf.Instruction {
	load := func(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }
	argument := func(n uint32) bpf.Instruction { return load(offsetArgs + 8*n) } // its lower half
	program := []bpf.Instruction{
		// Calls by another architecture's numbers, such as 32-bit ones, are not
		// accidental.
		load(offsetArch),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		load(offsetCall),
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 0x40000000, SkipTrue: 1}, // the x32 numbers of amd64 start there
		refuse(unix.ENOSYS),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		refuse(unix.ENOSYS),
	}
	for _, call := range refusedCalls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(call), SkipTrue: 1}, refuse(unix.EPERM))
	}
	// on decides on one call by its arguments; unless the steps return, it is allowed.
	on := func(call uintptr, steps ...bpf.Instruction) {
		program = append(program, load(offsetCall), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(call), SkipTrue: uint8(len(steps))})
		program = append(program, steps...)
	}
	on(unix.SYS_CLONE, argument(0), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: newNamespaces, SkipTrue: 1}, refuse(unix.EPERM))
	on(unix.SYS_PRLIMIT64, argument(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, refuse(unix.EPERM))
	on(unix.SYS_IOCTL, argument(1), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.TIOCSTI, SkipTrue: 1}, refuse(unix.EPERM))
	allowed := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	families := []bpf.Instruction{argument(0)}
	if network {
		families = append(families,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_INET, SkipTrue: 1}, allowed,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_INET6, SkipTrue: 1}, allowed)
	}
	families = append(families,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 1}, refuse(unix.EACCES),
		argument(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // ignoring SOCK_CLOEXEC and SOCK_NONBLOCK
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 1}, refuse(unix.EACCES))
	on(unix.SYS_SOCKET, families...)
	if !network {
		on(unix.SYS_CONNECT, refuse(unix.EACCES))
		// An address as the fifth argument reaches its target without a connection.
		address := uint32(offsetArgs + 8*4)
		on(unix.SYS_SENDTO, load(address), bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, refuse(unix.EACCES),
			load(address+4), bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, refuse(unix.EACCES))
	}
	return append(program, allowed)
}

// loadFilter installs the filter, and no_new_privs, on all threads of the process.
func loadFilter(network bool) error {
	raw, err := bpf.Assemble(filter(network))
	if err != nil {
		return fmt.Errorf("assemble the filter of system calls: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	n, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("the kernel takes no filter of system calls: %w", errno)
	}
	if n != 0 {
		return fmt.Errorf("thread %d takes no filter of system calls", n)
	}
	return nil
}
