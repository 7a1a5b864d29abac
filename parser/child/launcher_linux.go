package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// launcher is a small process that forks children for the pool. A process in a user
// namespace of its own cannot be started by vfork, and a fork copies the page tables
// of the whole service, which then faults on each page that it writes: with a
// gigabyte that stalls it for half a second. The launcher has a few megabytes. What
// it starts are children of the service (CLONE_PARENT), so that nothing else
// depends on it.
//
// It belongs to the goroutine of Pool.spawner.
type launcher struct {
	process *os.Process
	socket  *os.File
	proven  bool // has started a child
}

// fdLauncher is the launcher's end of the socket.
const fdLauncher = 3

// maxLaunch bounds a message in bytes, and maxLaunchFiles the descriptors with it.
const (
	maxLaunch      = 64 << 10
	maxLaunchFiles = 8
)

// launch is the request for a child; its files come with it.
type launch struct {
	Args    []string
	Dir     string
	Env     []string
	Network bool
}

// launched is the answer: the child's pid, or why there is none.
type launched struct {
	Pid   int
	Errno syscall.Errno
}

// newLauncher starts one. It need not have begun when the first request is sent.
func newLauncher(command string, timeout time.Duration) (_ *launcher, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "launcher"), os.NewFile(uintptr(pair[1]), "launcher")
	defer theirs.Close()
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, option, &limit); err != nil {
			return nil, err
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	env := append(passedOn(), envChild+"="+roleLauncher, "GOMAXPROCS=1")
	p, err := os.StartProcess(command, []string{command, "parse-launcher"}, &os.ProcAttr{
		Env: env, Files: []*os.File{null, null, null, theirs}, Sys: isolate(false, false),
	})
	if err != nil {
		return nil, err
	}
	return &launcher{process: p, socket: ours}, nil
}

// end stops the launcher. The children stay.
func (l *launcher) end() {
	if l == nil {
		return
	}
	_ = l.socket.Close()
	_ = l.process.Kill()
	_, _ = l.process.Wait()
}

// errLauncher says that the launcher failed after it was asked: a child may exist
// that has the files.
var errLauncher = errors.New("the launcher of parsers failed")

// start has a child started.
func (l *launcher) start(c command, network bool) (*os.Process, error) {
	for _, text := range slices.Concat(c.args, c.env, []string{c.dir}) {
		if !utf8.ValidString(text) { // JSON would change it
			return nil, syscall.EILSEQ
		}
	}
	request, err := json.Marshal(launch{c.args, c.dir, c.env, network})
	if err != nil {
		return nil, err
	}
	if len(request) > maxLaunch || len(c.files) > maxLaunchFiles {
		return nil, syscall.EMSGSIZE
	}
	fds := make([]int, len(c.files))
	for i, f := range c.files {
		fds[i] = int(f.Fd())
	}
	socket := int(l.socket.Fd())
	err = again(func() error { return unix.Sendmsg(socket, request, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL) })
	if err != nil {
		return nil, err
	}
	var n int
	answer := make([]byte, 256)
	err = again(func() (err error) { n, err = unix.Read(socket, answer); return err })
	var said launched
	if err != nil || json.Unmarshal(answer[:n], &said) != nil {
		return nil, errLauncher
	}
	if said.Errno != 0 {
		return nil, said.Errno
	}
	l.proven = true
	return os.FindProcess(said.Pid)
}

// again repeats a call that a signal interrupts.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// startLaunched starts a child in its own namespaces by way of the launcher. On
// errLauncher the files must not be used again; on any other error nothing was
// started. It runs on the spawner's thread.
func (p *Pool) startLaunched(c command) (_ *os.Process, err error) {
	if p.unlaunched {
		return nil, syscall.ENOTSUP
	}
	for range 2 { // an idle one may have ended
		if p.launcher == nil {
			if p.launcher, err = newLauncher(p.cfg.Command[0], p.cfg.StartTimeout); err != nil {
				return nil, err
			}
		}
		var started *os.Process
		if started, err = p.launcher.start(c, len(p.cfg.Ports) > 0); err == nil {
			return started, nil
		}
		// What never worked will not: the command is another program, CLONE_PARENT
		// excludes a user namespace (Linux 3.8 to 3.11), or a path is not UTF-8.
		p.unlaunched = !p.launcher.proven && (errors.Is(err, errLauncher) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EILSEQ))
		p.endLauncher()
		if !errors.Is(err, syscall.EPIPE) {
			break
		}
	}
	if p.unlaunched || errors.Is(err, errLauncher) {
		p.note(fmt.Sprintf("parsers are started by the service itself, which slows it down if it holds much memory: %v", err))
	}
	return nil, err
}

// endLauncher runs on the spawner's thread.
func (p *Pool) endLauncher() {
	p.launcher.end()
	p.launcher = nil
}

// serveLauncher is the launcher's main function.
func serveLauncher() int {
	parent := os.Getppid()
	message, control := make([]byte, maxLaunch+1), make([]byte, unix.CmsgSpace(4*maxLaunchFiles))
	for {
		var n, rights int
		err := again(func() (err error) {
			n, rights, _, _, err = unix.Recvmsg(fdLauncher, message, control, unix.MSG_CMSG_CLOEXEC)
			return err
		})
		if err != nil || n == 0 { // the service is gone
			return exitOK
		}
		said := launched{Errno: syscall.EPROTO}
		var l launch
		files := received(control[:rights])
		if json.Unmarshal(message[:n], &l) == nil {
			said = l.start(files, parent)
		}
		for _, fd := range files {
			_ = unix.Close(int(fd))
		}
		answer, _ := json.Marshal(said) // numbers always encode
		if again(func() error { return unix.Send(fdLauncher, answer, unix.MSG_NOSIGNAL) }) != nil {
			return exitOK
		}
	}
}

// received returns the descriptors of a control message.
func received(control []byte) (files []uintptr) {
	messages, _ := unix.ParseSocketControlMessage(control)
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			files = append(files, uintptr(fd))
		}
	}
	return files
}

func (l launch) start(files []uintptr, parent int) launched {
	if len(l.Args) == 0 || !filepath.IsAbs(l.Args[0]) {
		return launched{Errno: syscall.EINVAL}
	}
	// Checked first: a child that fails between fork and exec stays a zombie until the
	// service ends, because nobody learns its pid.
	if err := errors.Join(unix.Access(l.Args[0], unix.X_OK), unix.Access(l.Dir, unix.X_OK)); err != nil {
		return failed(err)
	}
	attr := isolate(true, l.Network)
	attr.Cloneflags |= syscall.CLONE_PARENT
	// Go compares the parent with the process that forks. The child asks for the
	// signal itself, see dieWithParent.
	attr.Pdeathsig = 0
	pid, err := syscall.ForkExec(l.Args[0], l.Args, &syscall.ProcAttr{
		Dir: l.Dir, Env: append(slices.Clip(l.Env), envParent+"="+strconv.Itoa(parent)), Files: files, Sys: attr,
	})
	if err != nil {
		return failed(err)
	}
	return launched{Pid: pid}
}

func failed(err error) launched {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return launched{Errno: errno}
	}
	return launched{Errno: syscall.EIO}
}

// dieWithParent has the kernel end a child of the launcher with the thread of the
// service that started the launcher.
func dieWithParent() error {
	parent, err := strconv.Atoi(os.Getenv(envParent))
	if err != nil {
		return nil // not the launcher's
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if os.Getppid() != parent {
		return fmt.Errorf("process %d, which started it, is gone", parent)
	}
	return nil
}
