package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// launched returns the pid of the pool's launcher, 0 for none, and whether none works.
func (b *bundle) launched() (pid int, unlaunched bool) {
	done := make(chan struct{})
	b.pool.spawn <- func() {
		if l := b.pool.launcher; l != nil {
			pid = l.process.Pid
		}
		unlaunched = b.pool.unlaunched
		close(done)
	}
	<-done
	return pid, unlaunched
}

// child has the pool start a child and returns its pid.
func (b *bundle) child() int {
	b.t.Helper()
	got, err := b.parse(deadline(b.t, long), b.doc("a"), 1, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	pid, err := strconv.Atoi(got[0].Blocks[0].Text)
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

// withLauncher returns a pool of one child and the pids of the two.
func withLauncher(t *testing.T, cfg Config) (b *bundle, launcher, child int) {
	t.Helper()
	cfg.Size = 1
	b = setup(t, cfg)
	child = b.child()
	if b.pool.noNamespaces {
		t.Skip("the system refuses user namespaces, so there is nothing to launch")
	}
	launcher, _ = b.launched()
	if launcher == 0 {
		t.Fatal("the child was not started by a launcher")
	}
	return b, launcher, child
}

func TestTheLaunchersChildrenAreThePools(t *testing.T) {
	b, launcher, child := withLauncher(t, Config{})
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	if parent := strings.Fields(fields)[1]; parent != strconv.Itoa(os.Getpid()) {
		t.Errorf("the child's parent is %s, want this process, %d; the launcher is %d", parent, os.Getpid(), launcher)
	}
	ours, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", child)); err != nil || its == ours {
		t.Errorf("the child's user namespace is %s, %v; ours is %s", its, err, ours)
	}
	if err := b.pool.Close(); err != nil {
		t.Fatal(err)
	}
	if alive(launcher) {
		t.Error("the launcher is still there after Close")
	}
}

func TestTheLauncherEndsWithTheLastIdleChild(t *testing.T) {
	b, launcher, _ := withLauncher(t, Config{IdleTimeout: 2 * time.Second})
	until(t, func() bool { return !alive(launcher) })
	if again := b.child(); again == 0 {
		t.Error("no child afterwards")
	}
}

func TestALauncherThatDiedIsReplaced(t *testing.T) {
	b, launcher, child := withLauncher(t, Config{})
	if err := errors.Join(syscall.Kill(launcher, syscall.SIGKILL), syscall.Kill(child, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	awaitExit(launcher) // of all its threads: until then, its socket is open
	until(t, func() bool { return !alive(child) })
	if again := b.child(); again == child {
		t.Error("the dead child has read the document")
	}
	if again, unlaunched := b.launched(); again == 0 || again == launcher || unlaunched {
		t.Errorf("the launcher is process %d after %d died (none works: %t)", again, launcher, unlaunched)
	}
}

func TestAChildThatCannotStartIsNoZombie(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	zombie := func() int {
		pid, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil) // 0 or an error for none
		return max(pid, 0)
	}
	for zombie() > 0 { // left by the test of a service that dies
	}
	program := filepath.Join(t.TempDir(), "sheaf")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	b, _, child := withLauncher(t, Config{Command: []string{program}})
	if err := errors.Join(syscall.Kill(child, syscall.SIGKILL), os.Remove(program)); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return !alive(child) })
	_, err = b.parse(deadline(t, long), b.doc("a"), 1, 1)
	failure(t, err, "parser_start_failed")
	if pid := zombie(); pid > 0 {
		t.Errorf("process %d has ended and nobody waits for it", pid)
	}
}

// Starting parsers must not depend on a process that may hang.
func TestALauncherThatHangsIsPassedBy(t *testing.T) {
	noted := make(chan string, 1)
	b, launcher, child := withLauncher(t, Config{Noted: func(text string) { noted <- text }})
	impatient := make(chan error, 1)
	b.pool.spawn <- func() {
		impatient <- unix.SetsockoptTimeval(int(b.pool.launcher.socket.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}
	if err := errors.Join(<-impatient, syscall.Kill(launcher, syscall.SIGSTOP)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return !running(child) })
	if again := b.child(); again == child {
		t.Error("the dead child has read the document")
	}
	if alive(launcher) {
		t.Error("the launcher that hangs is still there")
	}
	select {
	case text := <-noted:
		if !strings.Contains(text, errLauncher.Error()) {
			t.Errorf("noted: %s", text)
		}
	default:
		t.Error("the log does not say that the launcher failed")
	}
}

// A parser that cannot notice that its pipes are closed ends all the same.
func TestAStoppedChildDiesWithTheService(t *testing.T) {
	pool, err := New(Config{Size: 1, TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, pool: pool}
	child := b.child()
	launcher, _ := b.launched()
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if launcher != 0 {
		b.pool.spawn <- func() { b.pool.launcher = nil } // so that the kernel has to end it
	}
	close(pool.stop) // ends the spawner's thread, which to the kernel is their parent
	pool.done.Wait()
	until(t, func() bool { return !running(child) && (launcher == 0 || !running(launcher)) })
}

func TestAFolderWhoseNameIsNotUTF8IsNoObstacle(t *testing.T) {
	pool, err := New(Config{Size: 1, TempDir: filepath.Join(t.TempDir(), "\xff")})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b := &bundle{t: t, pool: pool}
	if _, err := pool.Protections(deadline(t, long)); err != nil { // starts a child
		t.Fatal(err)
	}
	if launcher, unlaunched := b.launched(); launcher != 0 || !unlaunched && !pool.noNamespaces {
		t.Errorf("there is a launcher, %d, or one is tried again", launcher)
	}
}
