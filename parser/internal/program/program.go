// Package program runs the optional programs behind some formats: LibreOffice and
// tesseract. They are started by the parser's child process, stay in its process
// group and so die with it; this package adds a deadline, limits on memory and
// output, and a separate environment.
package program

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"sheaf"
)

// Program is a program that may or may not be installed.
type Program struct {
	Name     string // for display: "LibreOffice"
	Command  string // path, or a name looked up in PATH; "" to disable it
	Packages string // what to install: package names in Debian and Ubuntu
	Setting  string // that names Command: "parser.soffice"
}

// Find returns the program's path, or the failure part_missing. purpose
// completes the sentence "… needs LibreOffice" ("Reading DOC files").
func (p Program) Find(purpose string) (string, error) {
	if p.Command != "" {
		if path, err := exec.LookPath(p.Command); err == nil {
			return path, nil
		}
	}
	return "", Missing("%s needs %s, which is not installed; install the packages %s (names in Debian and Ubuntu), or name the program in %s.", purpose, p.Name, p.Packages, p.Setting)
}

// Missing is the failure of a format whose optional part is not installed.
func Missing(format string, args ...any) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryPolicy, "part_missing", format, args...)
}

// Run is one run of a program.
type Run struct {
	Path        string
	Args        []string
	Dir         string // working directory, HOME and TMPDIR; private to the run
	Env         []string
	Stdin       io.Reader     // nil for none
	Timeout     time.Duration // after which it is killed
	MemoryBytes int64         // resident, including its descendants, above which it is killed
	OutputBytes int           // of standard output, above which it is killed
}

// spent is what Spend has added up, in ns.
var spent atomic.Int64

// Spend adds the processor time of a program that this process runs. Do calls it.
func Spend(d time.Duration) { spent.Add(int64(d)) }

// Spent is the sum of what was spent since this process started.
func Spent() time.Duration { return time.Duration(spent.Load()) }

// Reasons to end a run early.
var (
	errTimeout = errors.New("it took too long")
	errMemory  = errors.New("it took too much memory")
	errOutput  = errors.New("it printed too much")
)

// sampleEvery is how often the memory of a run is sampled.
const sampleEvery = 200 * time.Millisecond

// Do runs the program to completion and returns its standard output. The error is
// ctx's, or a *sheaf.Failure: parse_timeout, parser_out_of_memory, or parser_crash
// for any other failure, with the program's last output as detail.
func (r Run) Do(ctx context.Context) ([]byte, error) {
	// The kernel kills the program when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	limited, stop := context.WithTimeoutCause(ctx, r.Timeout, errTimeout)
	defer stop()
	run, cancel := context.WithCancelCause(limited)
	defer cancel(nil)

	name := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
	cmd := exec.CommandContext(run, r.Path, r.Args...)
	cmd.Dir = r.Dir
	cmd.Env = append(r.environ(), r.Env...)
	cmd.Stdin = r.Stdin
	out := &bounded{max: r.OutputBytes, full: func() { cancel(errOutput) }}
	words := &bounded{max: 2 << 10}
	cmd.Stdout, cmd.Stderr = out, words
	cmd.SysProcAttr = withParent()
	cmd.Cancel = func() error { killFamily(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 2 * time.Second // a descendant may hold the pipes
	if err := cmd.Start(); err != nil {
		return nil, sheaf.FailRetryable(sheaf.CategoryInternal, "part_failed", "The program %s did not start: %v. Check memory and process limits.", name, err)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-run.Done():
				return
			case <-tick.C:
				if r.MemoryBytes > 0 && familyBytes(cmd.Process.Pid) > r.MemoryBytes {
					cancel(errMemory)
					return
				}
			}
		}
	}()
	err := cmd.Wait()
	if s := cmd.ProcessState; s != nil {
		Spend(s.UserTime() + s.SystemTime())
	}
	cause := context.Cause(run)
	cancel(nil)
	<-watched
	if err == nil {
		return out.buf.Bytes(), nil
	}
	var f *sheaf.Failure
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(cause, errTimeout):
		f = sheaf.Fail(sheaf.CategoryTimeout, "parse_timeout", "The program %s took longer than %v on this file. Split the file, or save it in another format.", name, r.Timeout)
	case errors.Is(cause, errMemory):
		f = sheaf.Fail(sheaf.CategoryCapacity, "parser_out_of_memory", "The program %s needs more than %d MB for this file. Split the file, or save it in another format.", name, r.MemoryBytes>>20)
	case errors.Is(cause, errOutput):
		f = sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The program %s made more than %d MB of this file. Split the file.", name, r.OutputBytes>>20)
	default:
		f = sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "The program %s failed on this file (%v). Save the file again with the program that created it, or in another format.", name, err)
	}
	f.Detail = strings.ToValidUTF8(words.buf.String(), "?")
	return nil, f
}

// environ is minimal: untrusted files may reach it, so it must not hold secrets.
func (r Run) environ() []string {
	env := []string{"HOME=" + r.Dir, "TMPDIR=" + r.Dir, "LANG=C.UTF-8", "LC_ALL=C.UTF-8"}
	for _, k := range []string{"PATH", "TZ", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// bounded keeps the first max bytes. At one more it calls full, if set.
type bounded struct {
	buf  bytes.Buffer // not embedded: io.Copy would use its ReadFrom and bypass Write
	max  int
	full func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if free := b.max - b.buf.Len(); len(p) > free {
		_, _ = b.buf.Write(p[:max(0, free)]) // a Buffer never fails
		if b.full != nil {
			b.full()
		}
		return len(p), nil
	}
	return b.buf.Write(p)
}
