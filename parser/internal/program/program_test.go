//go:build linux

package program

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sheaf"
)

func shell(t *testing.T, script string) Run {
	return Run{Path: "/bin/sh", Args: []string{"-c", script}, Dir: t.TempDir(), Timeout: time.Minute, MemoryBytes: 1 << 30, OutputBytes: 1 << 20}
}

func code(err error) string {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f.Code
	}
	return ""
}

func TestRunReturnsOutput(t *testing.T) {
	r := shell(t, "cat; echo $EXTRA")
	r.Stdin, r.Env = strings.NewReader("in "), []string{"EXTRA=more"}
	out, err := r.Do(context.Background())
	if string(out) != "in more\n" || err != nil {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestRunKeepsSecretsOut(t *testing.T) {
	t.Setenv("SHEAF_STORE_DSN", "secret")
	out, err := shell(t, "env").Do(context.Background())
	if err != nil || strings.Contains(string(out), "secret") || !strings.Contains(string(out), "PATH=") {
		t.Fatalf("%s, %v", out, err)
	}
}

func TestBadEndsAreFailures(t *testing.T) {
	for want, change := range map[string]func(*Run){
		"parser_crash":         func(r *Run) { r.Args[1] = "echo broken >&2; exit 3" },
		"parse_timeout":        func(r *Run) { r.Args[1], r.Timeout = "sleep 600 & sleep 600", 100*time.Millisecond },
		"too_large":            func(r *Run) { r.Args[1], r.OutputBytes = "while :; do echo yes; done", 1000 },
		"parser_out_of_memory": func(r *Run) { r.Args[1], r.MemoryBytes = "sleep 600", 1 },
	} {
		t.Run(want, func(t *testing.T) {
			r := shell(t, "")
			change(&r)
			_, err := r.Do(context.Background())
			if code(err) != want {
				t.Fatalf("%v, want %s", err, want)
			}
			if f, _ := errors.AsType[*sheaf.Failure](err); want == "parser_crash" && f.Detail != "broken\n" {
				t.Errorf("detail %q", f.Detail)
			}
		})
	}
}

func TestCancelKillsDescendants(t *testing.T) {
	r := shell(t, "sleep 600 & echo $! > pid.tmp; mv pid.tmp pid; wait")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := r.Do(ctx)
		done <- err
	}()
	pid := 0
	for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(r.Dir, "pid")); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		if time.Now().After(deadline) {
			t.Fatal("the program did not start")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); alive(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what the program started is still alive")
		}
	}
}

// alive is false for a zombie, whom nobody here can reap.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && syscall.Kill(pid, 0) == nil && !strings.Contains(string(b), ") Z ")
}

func TestMissingProgramNamesItsPackage(t *testing.T) {
	for _, command := range []string{"", "no-such-program-anywhere", "/no/such/file"} {
		_, err := Program{Name: "Frobnicator", Command: command, Packages: "frob-utils", Setting: "parser.frob"}.Find("Reading FROB files")
		f, ok := errors.AsType[*sheaf.Failure](err)
		if !ok || f.Code != "part_missing" || f.Category != sheaf.CategoryPolicy || !strings.Contains(f.Message, "frob-utils") || !strings.Contains(f.Message, "parser.frob") {
			t.Errorf("%q: %v", command, err)
		}
	}
	if path, err := (Program{Command: "sh"}).Find("x"); err != nil || !filepath.IsAbs(path) {
		t.Error(path, err)
	}
}
