package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// nobody is the child's user inside its user namespace. Files keep their owner;
// capabilities are lost.
const nobody = 65534

// isolate puts the child into its own process group, so that whatever it starts
// dies with it, and has the kernel kill it when the thread that started it ends
// (see Pool.spawner). With namespaces it is also a user without capabilities, in a
// network without interfaces.
func isolate(namespaces, network bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if namespaces {
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWIPC
		if !network {
			attr.Cloneflags |= syscall.CLONE_NEWNET
		}
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// Limits of a child that are not configurable: far above what any format or program
// needs, far below what harms a machine.
const (
	maxOpenFiles = 1024
	maxProcesses = 512 // and threads, of the child and everything it starts; counted within its user namespace
)

// confine applies s to this process permanently and reports each protection.
func confine(s sandbox, fileBytes int64) []Protection {
	// Prepared first: afterwards /proc may be out of reach.
	limits := limitResources(s, fileBytes)
	if s.Mode == SandboxOff {
		off := func(name string) Protection { return Protection{name, false, "parser.sandbox is off"} }
		return []Protection{limits, off(ProtectPrivileges), off(ProtectSyscalls), off(ProtectFiles), off(ProtectNetwork), off(ProtectSignals), off(ProtectUser)}
	}
	files, signals, ports := restrictFiles(s)
	if err := dropCapabilities(s.Namespaces); err != nil {
		files.Detail += "; its capabilities stay: " + err.Error()
	}
	privileges, calls := restrictCalls(s)
	user := Protection{ProtectUser, s.Namespaces, "a user without capabilities, in user, network and IPC namespaces of its own"}
	if len(s.Ports) > 0 {
		user.Detail = "a user without capabilities, in user and IPC namespaces of its own"
	}
	if !s.Namespaces {
		user.Detail = "user namespaces are refused, or would cut the parser off from files of other users; it runs as the user of Sheaf, with no capability but those for files"
	}
	network := Protection{ProtectNetwork, calls.InForce || s.Namespaces && len(s.Ports) == 0, "none"}
	switch {
	case len(s.Ports) > 0 && ports:
		network.Detail = fmt.Sprintf("TCP to the ports %v alone, for parser.transcribe_url", s.Ports)
	case len(s.Ports) > 0:
		network.InForce, network.Detail = false, "open, for parser.transcribe_url; Linux 6.7 would narrow it to one port"
	case !network.InForce:
		network.Detail = "open: " + calls.Detail
	}
	return []Protection{limits, privileges, calls, files, network, signals, user}
}

// limitResources sets the kernel's per-process limits. Address space is not
// limited: the engine reserves much more than it uses. Private memory is, as a
// backstop for growth between the parent's samples.
func limitResources(s sandbox, fileBytes int64) Protection {
	limit := func(what int, n int64) error {
		return unix.Setrlimit(what, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
	}
	err := errors.Join(limit(unix.RLIMIT_CORE, 0), limit(unix.RLIMIT_NOFILE, maxOpenFiles))
	if fileBytes > 0 {
		err = errors.Join(err, limit(unix.RLIMIT_FSIZE, fileBytes))
	}
	if s.Namespaces {
		err = errors.Join(err, limit(unix.RLIMIT_NPROC, maxProcesses))
	}
	detail := fmt.Sprintf("no core dumps, %d open files, %d MB a file", maxOpenFiles, fileBytes>>20)
	if mapped := dataBytes(); s.DataBytes > 0 && mapped > 0 && !raceDetector {
		err = errors.Join(err, limit(unix.RLIMIT_DATA, mapped+s.DataBytes))
		detail += fmt.Sprintf(", %d MB of private memory", s.DataBytes>>20)
	}
	if err != nil {
		return Protection{ProtectLimits, false, err.Error()}
	}
	return Protection{ProtectLimits, true, detail}
}

// dataBytes returns the private memory mapped by this process, as RLIMIT_DATA
// counts it; 0 if unknown.
func dataBytes() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "VmData:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// systemFiles may be read: programs, their libraries and data, and the system
// settings they read, none of which is secret.
var systemFiles = []string{
	"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store", "/snap",
	"/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm",
	"/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
	"/etc/alternatives", "/etc/fonts", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/ld.so.preload", "/etc/libreoffice", "/etc/locale.alias", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release",
	"/etc/papersize", "/etc/passwd", "/etc/paperspecs", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates", "/etc/timezone",
	"/var/cache/fontconfig", "/var/lib/libreoffice", "/var/spool/libreoffice", "/var/lib/flatpak", "/sys/dev/block", "/run/systemd/resolve",
}

// socketDir is where LibreOffice creates the socket by which it finds another
// instance on the same profile, whatever TMPDIR says.
const socketDir = "/tmp"

// restrictFiles confines the process to the folders it was given, by Landlock
// (Linux 5.19 and later). If the kernel supports it, the same call confines its
// signals and its connections to the ports it may use.
func restrictFiles(s sandbox) (files, signals Protection, ports bool) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < 2 {
		why := "the kernel has no Landlock, or it is not among its security modules"
		if err == nil {
			why = "the kernel is older than Linux 5.19"
		}
		return Protection{ProtectFiles, false, why}, Protection{ProtectSignals, false, why}, false
	}
	config := landlock.V9.BestEffort()
	var rules []landlock.Rule
	dirs, single := split(append(append([]string{}, systemFiles...), s.Read...))
	rules = append(rules, landlock.RODirs(dirs...).IgnoreIfMissing(), landlock.ROFiles(single...).IgnoreIfMissing(), landlock.RWFiles("/dev/null").IgnoreIfMissing())
	if len(s.Write) > 0 {
		rules = append(rules, landlock.RWDirs(s.Write...).WithRefer().IgnoreIfMissing())
	}
	// LibreOffice starts twice on a new profile and recreates its socket.
	rules = append(rules, landlock.PathAccess(ll.AccessFSMakeSock|ll.AccessFSRemoveFile, socketDir).IgnoreIfMissing())
	for _, p := range s.Ports {
		rules = append(rules, landlock.ConnectTCP(uint16(p)))
	}
	if err := config.Restrict(rules...); err != nil {
		return Protection{ProtectFiles, false, err.Error()}, Protection{ProtectSignals, false, err.Error()}, false
	}
	files = Protection{ProtectFiles, true, fmt.Sprintf("reads programs, libraries and %s; writes %s; makes sockets and removes files in %s", strings.Join(s.Read, ", "), strings.Join(s.Write, ", "), socketDir)}
	signals = Protection{ProtectSignals, abi >= 6, "reach the parser's own processes alone"}
	if abi < 6 {
		signals.Detail = "the kernel is older than Linux 6.12"
	}
	return files, signals, abi >= 4
}

// split separates folders from files, since a rule for one does not fit the other.
// It adds PATH and the targets of links.
func split(paths []string) (dirs, files []string) {
	for _, p := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(p) {
			paths = append(paths, p)
		}
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err != nil:
		case info.IsDir():
			dirs = append(dirs, p)
		default:
			files = append(files, p)
		}
	}
	return dirs, files
}

// dropCapabilities gives up root's privileges, on all threads. Inside a user
// namespace there is nothing left to give up; outside, the rights to files remain,
// since the data may belong to another user: restrictFiles limits them.
func dropCapabilities(namespaces bool) error {
	if namespaces {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return err
	}
	keep := uint32(1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER)
	left := [2]unix.CapUserData{{Effective: held[0].Effective & keep, Permitted: held[0].Permitted & keep}}
	if left == held {
		return nil
	}
	if _, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&left[0])), 0); errno != 0 {
		return errno
	}
	return nil
}

// restrictCalls sets no_new_privs and the system call filter on all threads at once.
func restrictCalls(s sandbox) (privileges, calls Protection) {
	runtime.LockOSThread() // the bit must be on the thread that loads the filter
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return Protection{ProtectPrivileges, false, err.Error()}, Protection{ProtectSyscalls, false, err.Error()}
	}
	err := loadFilter(len(s.Ports) > 0)
	if err != nil {
		return Protection{ProtectPrivileges, false, "set on one thread alone"}, Protection{ProtectSyscalls, false, err.Error()}
	}
	return Protection{ProtectPrivileges, true, "programs it starts gain no rights"},
		Protection{ProtectSyscalls, true, "no tracing, mounting, namespaces, kernel modules, keys, BPF or io_uring"}
}
