package child

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// blank stands for a space within a word of a document.
const blank = "␣"

// attempt is what a document does once it runs code in the parser's process:
// it tries what, which is a verb, a colon and what it is done to, and answers
// "done" or the error.
func attempt(what, temp string) string {
	verb, to, _ := strings.Cut(strings.ReplaceAll(what, blank, " "), ":")
	pid, _ := strconv.Atoi(to)
	err := errors.New("there is no such attempt")
	dial := func(network string) error {
		c, err := net.DialTimeout(network, to, 5*time.Second)
		if err == nil {
			_, err = c.Write([]byte("hello"))
			_ = c.Close()
		}
		return err
	}
	call := func(nr uintptr, args ...uintptr) error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
	switch verb {
	case "read":
		_, err = os.ReadFile(to)
	case "list":
		_, err = os.ReadDir(to)
	case "write":
		err = os.WriteFile(to, []byte("x"), 0o600)
	case "remove":
		err = os.Remove(to)
	case "rename":
		err = os.Rename(filepath.Join(temp, "scratch"), to)
	case "symlink": // out of the folder that it may read
		link := filepath.Join(temp, "link")
		if err = os.Symlink(to, link); err == nil {
			_, err = os.ReadFile(link)
		}
	case "own": // what it must be able to do
		path := filepath.Join(temp, "own")
		if err = os.WriteFile(path, []byte("x"), 0o600); err == nil {
			if err = os.Rename(path, path+"2"); err == nil {
				err = exec.Command("cat", path+"2").Run()
			}
		}
	case "tcp", "udp", "unix":
		err = dial(verb)
	case "kill":
		err = unix.Kill(pid, 0)
	case "trace":
		err = unix.PtraceAttach(pid)
	case "peek":
		var b [8]byte
		local, remote := unix.Iovec{Base: &b[0], Len: 8}, unix.RemoteIovec{Base: uintptr(unsafe.Pointer(&b[0])), Len: 8}
		_, err = unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	case "limit":
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{})
	case "mount":
		err = unix.Mount("none", temp, "tmpfs", 0, "")
	case "unshare":
		err = call(unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	case "clone": // as a program of C does it; the child, if there is one, ends at once
		err = call(unix.SYS_CLONE3, 0, 0)
	case "bpf":
		err = call(unix.SYS_BPF, 0, 0, 0)
	case "uring":
		err = call(unix.SYS_IO_URING_SETUP, 1, 0)
	case "keys":
		err = call(unix.SYS_KEYCTL, 0, ^uintptr(2), 0)
	case "device":
		err = unix.Mknod(filepath.Join(temp, "memory"), unix.S_IFCHR|0o600, 1<<8|1)
	case "program": // a program that it starts is no freer
		var out []byte
		if out, err = exec.Command("sh", "-c", to).CombinedOutput(); err != nil {
			err = errors.New(string(bytes.TrimSpace(out)))
		}
	case "threads": // what is in force on each of them
		var all []string
		tasks, _ := filepath.Glob("/proc/self/task/*/status")
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			var line []string
			for l := range strings.Lines(string(b)) {
				if key, v, _ := strings.Cut(l, ":"); key == "NoNewPrivs" || key == "Seccomp" || key == "CapEff" {
					line = append(line, key+strings.TrimSpace(v))
				}
			}
			all = append(all, strings.Join(line, ","))
		}
		return strings.Join(all, ";")
	}
	if err == nil {
		return "done"
	}
	return err.Error()
}

// confinedTo makes a pool whose children may read no more than a folder of
// documents.
func confinedTo(t *testing.T, cfg Config) (b *bundle, docs string) {
	t.Helper()
	docs = t.TempDir()
	cfg.Size, cfg.ReadDirs, cfg.CacheDir = 1, []string{docs}, t.TempDir()
	return setup(t, cfg), docs
}

// try has a document attempt something and returns what came of it.
func (b *bundle) try(docs, what string) string {
	b.t.Helper()
	src := b.doc("try-" + strings.ReplaceAll(what, " ", blank))
	path := filepath.Join(docs, filepath.Base(src.Path))
	if err := os.Rename(src.Path, path); err != nil {
		b.t.Fatal(err)
	}
	src.Path = path
	got, err := b.parse(deadline(b.t, long), src, 1, 1)
	if err != nil || len(got) != 1 {
		b.t.Fatalf("%s: %d units, %v", what, len(got), err)
	}
	return got[0].Blocks[0].Text
}

func TestADocumentThatRunsCodeIsConfined(t *testing.T) {
	b, docs := confinedTo(t, Config{})
	protections, err := b.pool.Protections(deadline(t, long))
	if err != nil {
		t.Fatal(err)
	}
	inForce := map[string]bool{}
	for _, p := range protections {
		inForce[p.Name] = p.InForce
		t.Logf("%s: %v, %s", p.Name, p.InForce, p.Detail)
	}
	elsewhere := t.TempDir()
	secret := filepath.Join(elsewhere, "sheaf.db")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	socket := filepath.Join(docs, "socket")
	unixSocket, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer unixSocket.Close()
	self := strconv.Itoa(os.Getpid())
	removable := "/var/tmp/sheaf-test-" + self // not where LibreOffice's sockets are
	if err := os.WriteFile(removable, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(removable)

	if got := b.try(docs, "own"); got != "done" {
		t.Errorf("a parser cannot write, rename and start programs in its own folder: %s", got)
	}
	for _, c := range []struct{ what, by string }{
		{"read:" + secret, ProtectFiles},
		{"read:/etc/shadow", ProtectFiles},
		{"read:/proc/" + self + "/environ", ProtectFiles},
		{"list:" + elsewhere, ProtectFiles},
		{"write:" + secret, ProtectFiles},
		{"write:" + filepath.Join(docs, "new"), ProtectFiles},
		{"write:/proc/sys/kernel/core_pattern", ProtectFiles},
		{"remove:" + removable, ProtectFiles},
		{"rename:" + secret, ProtectFiles},
		{"symlink:" + secret, ProtectFiles},
		{"program:cat " + secret, ProtectFiles},
		{"program:echo x > " + secret, ProtectFiles},
		{"tcp:" + tcp.Addr().String(), ProtectNetwork},
		{"udp:" + udp.LocalAddr().String(), ProtectNetwork},
		{"unix:" + socket, ProtectSyscalls},
		{"kill:" + self, ProtectSignals},
		{"program:kill -0 " + self, ProtectSignals},
		{"trace:" + self, ProtectSyscalls},
		{"peek:" + self, ProtectSyscalls},
		{"limit:" + self, ProtectSyscalls},
		{"mount", ProtectSyscalls}, {"unshare", ProtectSyscalls}, {"clone", ProtectSyscalls}, {"bpf", ProtectSyscalls}, {"uring", ProtectSyscalls}, {"keys", ProtectSyscalls},
		{"device", ProtectUser},
	} {
		if !inForce[c.by] {
			t.Logf("%s: this system does not offer %s", c.what, c.by)
			continue
		}
		got := b.try(docs, c.what)
		if got == "done" {
			t.Errorf("%s was possible", c.what)
		}
		for _, word := range []string{"denied", "not permitted", "not implemented", "unavailable", "unreachable", "Permission", "permitted", "refused", "Cannot fork", "Resource temporarily"} {
			if strings.Contains(got, word) {
				got = ""
			}
		}
		if got != "" {
			t.Errorf("%s failed for another reason: %s", c.what, got)
		}
	}
	if left, err := os.ReadFile(secret); err != nil || string(left) != "secret" {
		t.Errorf("the file outside now holds %q, %v", left, err)
	}
	if inForce[ProtectSyscalls] {
		for _, thread := range strings.Split(b.try(docs, "threads"), ";") {
			if !strings.Contains(thread, "NoNewPrivs1") || !strings.Contains(thread, "Seccomp2") || inForce[ProtectUser] && !strings.Contains(thread, "CapEff0000000000000000") {
				t.Errorf("a thread of the parser has %s", thread)
			}
		}
	}
}

func TestMemoryIsBoundedBeforeItIsTouched(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory would count")
	}
	b, docs := confinedTo(t, Config{MaxRSSBytes: 256 << 20})
	src := b.doc("grow")
	path := filepath.Join(docs, "grow")
	if err := os.Rename(src.Path, path); err != nil {
		t.Fatal(err)
	}
	src.Path = path
	_, err := b.parse(deadline(t, long), src, 1, 1)
	failure(t, err, "parser_out_of_memory")
}

func TestOnlyTheNamedPortIsReached(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	named, other := listen(), listen()
	b, docs := confinedTo(t, Config{Ports: []int{named.Addr().(*net.TCPAddr).Port}})
	if got := b.try(docs, "tcp:"+named.Addr().String()); got != "done" {
		t.Errorf("the port that a format needs is not reached: %s", got)
	}
	all, err := b.pool.Protections(deadline(t, long))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Name == ProtectNetwork && p.InForce {
			if got := b.try(docs, "tcp:"+other.Addr().String()); got == "done" {
				t.Error("another port is reached")
			}
		}
	}
}

func TestSandboxModes(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b, docs := confinedTo(t, Config{Sandbox: SandboxOff})
	if got := b.try(docs, "read:"+elsewhere); got != "done" {
		t.Errorf("a parser that shall not be confined cannot read: %s", got)
	}
	all, err := b.pool.Protections(deadline(t, long))
	if err != nil || len(missing(all)) != len(required)-1 { // limits stay
		t.Errorf("protections of a parser that is not confined: %+v, %v", all, err)
	}

	b, _ = confinedTo(t, Config{})
	if all, err = b.pool.Protections(deadline(t, long)); err != nil {
		t.Fatal(err)
	}
	lacks := missing(all)
	b, docs = confinedTo(t, Config{Sandbox: SandboxRequire})
	_, err = b.pool.Protections(deadline(t, long))
	if len(lacks) == 0 && err != nil || len(lacks) > 0 && (err == nil || !strings.Contains(err.Error(), lacks[0])) {
		t.Errorf("required on a system that lacks %v: %v", lacks, err)
	}
	_ = docs

	if _, err := New(Config{TempDir: t.TempDir(), Sandbox: "strict"}); err == nil || !strings.Contains(err.Error(), SandboxRequire) {
		t.Errorf("an unknown mode: %v", err)
	}
}

// Root has no right to the files of others inside a user namespace: a folder
// that belongs to somebody else is read all the same.
func TestFoldersOfOtherUsersAreRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	b, docs := confinedTo(t, Config{})
	if err := errors.Join(os.Chown(docs, nobody-1, nobody-1), os.Chmod(docs, 0o700)); err != nil {
		t.Fatal(err)
	}
	if got := b.try(docs, "own"); got != "done" {
		t.Error(got)
	}
	if b.pool.Stats().Started != 1 {
		t.Errorf("%d children were started, and one should be counted", b.pool.Stats().Started)
	}
}

// Where the system refuses namespaces, everything else still holds.
func TestWithoutNamespacesTheRestIsInForce(t *testing.T) {
	b, docs := confinedTo(t, Config{})
	b.pool.noNamespaces = true
	if got := b.try(docs, "read:"+fmt.Sprintf("/proc/%d/environ", os.Getpid())); got == "done" {
		t.Error("the environment of Sheaf was read")
	}
	const files = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER
	for _, thread := range strings.Split(b.try(docs, "threads"), ";") {
		_, hex, _ := strings.Cut(thread, "CapEff")
		hex, _, _ = strings.Cut(hex, ",")
		if caps, err := strconv.ParseUint(hex, 16, 64); err != nil || caps&^files != 0 {
			t.Errorf("a thread of the parser has the capabilities %q, %v", hex, err)
		}
	}
	all, err := b.pool.Protections(deadline(t, long))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Name == ProtectUser && (p.InForce || p.Detail == "") {
			t.Errorf("%+v", p)
		}
	}
}
