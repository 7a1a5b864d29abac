package pdfium

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/enginetest"
	"sheaf/parser/pdf/pdfiumhelper"
	"sheaf/parser/pdf/pdfiumwasm"
)

func TestMain(m *testing.M) {
	enginetest.MaybeImpostor()
	os.Exit(m.Run())
}

func start(t *testing.T, cfg Config) engine.Engine {
	e := New(cfg)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func TestContract(t *testing.T) {
	for name, cfg := range map[string]Config{"helper": {Helper: enginetest.Helper(t)}, "none": {Helper: "/nonexistent"}, "wasm": {}} {
		t.Run(name, func(t *testing.T) { enginetest.Run(t, start(t, cfg)) })
	}
}

// told keeps why documents of an engine changed hands.
type told struct {
	engine.Engine
	why []string
}

type toldDocument struct {
	engine.Document
	t *told
}

func (t *told) Open(ctx context.Context, f io.ReaderAt, size int64, password string) (engine.Document, error) {
	d, err := t.Engine.Open(ctx, f, size, password)
	if err != nil {
		return nil, err
	}
	return toldDocument{d, t}, nil
}

func (d toldDocument) Close() error {
	if why := d.Document.(engine.Moved).Moved(); why != "" {
		d.t.why = append(d.t.why, why)
	}
	return d.Document.Close()
}

// TestDocumentsSurviveTheirProgram has programs go wrong in the middle of a
// document: all of it is read, as by WebAssembly, and the reason is told.
func TestDocumentsSurviveTheirProgram(t *testing.T) {
	enginetest.Helper(t)
	wasm := start(t, Config{})
	file := enginetest.Fixtures()["everything"]
	f := enginetest.Write(t, file)
	for _, way := range enginetest.Deceivers {
		t.Run(way, func(t *testing.T) {
			patience := 20 * time.Second
			if way == "hangs" {
				patience = time.Second
			}
			e := &told{Engine: start(t, Config{Helper: enginetest.Impostor(t, way, pdfiumwasm.ModuleSHA256()), Patience: patience})}
			if n := enginetest.Same(t, e, wasm, f, int64(len(file)), 100); n != 7 {
				t.Errorf("%d pages of 7", n)
			}
			if len(e.why) != 1 || !strings.HasPrefix(e.why[0], "sheaf-pdfium") {
				t.Errorf("told: %q", e.why)
			}
		})
	}
}

// TestProgramThatWorksLongIsLeftToIt: a page that takes long takes longer by WebAssembly.
func TestProgramThatWorksLongIsLeftToIt(t *testing.T) {
	enginetest.Helper(t)
	file := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "slow")}}}.Bytes()
	e := &told{Engine: start(t, Config{Helper: enginetest.Impostor(t, enginetest.Slow, pdfiumwasm.ModuleSHA256()), Patience: 400 * time.Millisecond})}
	if n := enginetest.Same(t, e, start(t, Config{}), enginetest.Write(t, file), int64(len(file)), 100); n != 1 || len(e.why) > 0 {
		t.Errorf("%d pages, and told: %q", n, e.why)
	}
}

func TestProgramThatIsKilledIsFollowedByWebAssembly(t *testing.T) {
	e, wasm := start(t, Config{Helper: enginetest.Helper(t)}), start(t, Config{})
	file := enginetest.Fixtures()["everything"]
	f := enginetest.Write(t, file)
	open := func(e engine.Engine) engine.Document {
		d, err := e.Open(context.Background(), f, int64(len(file)), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	for name, ask := range map[string]func(engine.Document) any{
		"page":    func(d engine.Document) any { p := &engine.Page{}; err := d.Page(3, p); return fmt.Sprint(p.Chars, err) },
		"label":   func(d engine.Document) any { return d.Label(2) },
		"meta":    func(d engine.Document) any { return d.Meta("Title") },
		"outline": func(d engine.Document) any { m, err := d.Outline(10, true); return fmt.Sprint(m, err) },
		"size":    func(d engine.Document) any { w, h, err := d.Size(2); return fmt.Sprint(w, h, err) },
		"picture": func(d engine.Document) any { i, err := d.Render(0, 50, 50); return fmt.Sprint(i, err) },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(e)
			killChildren(t)
			if got, want := ask(d), ask(open(wasm)); got != want {
				t.Errorf("%v, and %v by WebAssembly", got, want)
			}
			if why := d.(engine.Moved).Moved(); !strings.Contains(why, "signal: killed") {
				t.Errorf("told: %q", why)
			}
		})
	}
}

// killChildren kills the programs that this process has started.
func killChildren(t *testing.T) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Skip("the kernel does not list the children of a process")
	}
	killed := 0
	for _, list := range lists {
		b, _ := os.ReadFile(list) // of a thread that ended: none
		for _, pid := range strings.Fields(string(b)) {
			var n int
			if _, err := fmt.Sscan(pid, &n); err == nil {
				if exe, _ := os.Readlink("/proc/" + pid + "/exe"); filepath.Base(exe) == Program {
					_ = syscall.Kill(n, syscall.SIGKILL)
					killed++
				}
			}
		}
	}
	if killed == 0 {
		t.Fatal("no program runs")
	}
}

// TestProgramThatNeverStartsIsLeftAlone: each start costs time.
func TestProgramThatNeverStartsIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "counts")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho x >>"+dir+"/starts\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := start(t, Config{Helper: path})
	file := enginetest.Fixtures()["everything"]
	f := enginetest.Write(t, file)
	for range 2 * maxFailures {
		d, err := e.Open(context.Background(), f, int64(len(file)), "")
		if err != nil || d.Pages() != 7 {
			t.Fatal(d, err)
		}
		_ = d.Close()
	}
	if b, err := os.ReadFile(dir + "/starts"); err != nil || strings.Count(string(b), "x") != maxFailures {
		t.Errorf("started %d times, %v", strings.Count(string(b), "x"), err)
	}
}

func TestFind(t *testing.T) {
	helper := enginetest.Helper(t)
	program, err := os.ReadFile(helper)
	if err != nil {
		t.Fatal(err)
	}
	write := func(t *testing.T, name string, b []byte, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	find := func(t *testing.T, engine, path string) (Found, error) {
		f, err := Find(t.Context(), engine, path, "/proc/self/fd/5")
		t.Cleanup(func() { _ = f.Close() })
		return f, err
	}
	t.Run("there", func(t *testing.T) {
		f, err := find(t, Auto, helper)
		if err != nil || f.File == nil || f.Run != "/proc/self/fd/5" || !f.Filtered || f.Why != "" || f.Absent || !strings.Contains(f.String(), "from memory") {
			t.Errorf("%+v %v", f, err)
		}
	})
	t.Run("wasm is asked for", func(t *testing.T) {
		if f, err := find(t, Wasm, helper); err != nil || f.Run != "" || f.Why != "" || f.Absent {
			t.Errorf("%+v %v", f, err)
		}
	})
	t.Run("not executable", func(t *testing.T) { // as in a folder that is mounted noexec
		if f, err := find(t, Helper, write(t, Program, program, 0o600)); err != nil || f.File == nil {
			t.Errorf("%+v %v", f, err)
		}
	})
	t.Run("nothing runs from memory", func(t *testing.T) {
		old := inMemory
		defer func() { inMemory = old }()
		inMemory = func([]byte) (*os.File, error) { return nil, syscall.EACCES }
		f, err := find(t, Helper, helper)
		if err != nil || f.File != nil || f.Run != helper || !strings.Contains(f.String(), "as a file") {
			t.Errorf("%+v %v", f, err)
		}
		if f, err := find(t, Auto, write(t, Program, program, 0o600)); err != nil || f.Run != "" || !strings.Contains(f.Why, "permission denied") {
			t.Errorf("%+v %v", f, err)
		}
	})
	t.Run("checksum", func(t *testing.T) {
		path := write(t, Program, program, 0o700)
		if err := os.WriteFile(path+".sha256", fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(program), Program), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := find(t, Auto, path); err != nil || f.Run == "" {
			t.Errorf("%+v %v", f, err)
		}
		if err := os.WriteFile(path, append(program[:len(program):len(program)], 0), 0o700); err != nil {
			t.Fatal(err)
		}
		if f, err := find(t, Auto, path); err != nil || f.Run != "" || !strings.Contains(f.Why, "checksum") {
			t.Errorf("%+v %v", f, err)
		}
	})
	for title, c := range map[string]struct{ path, why string }{
		"named and not there":  {filepath.Join(t.TempDir(), "none"), "there is no"},
		"a folder":             {t.TempDir(), "is no program"},
		"another program":      {"/bin/true", "ended"},
		"of another module":    {enginetest.Impostor(t, "module", ""), "another build"},
		"another protocol":     {enginetest.Impostor(t, "protocol", pdfiumwasm.ModuleSHA256()), "protocol"},
		"a piece of a program": {write(t, Program, program[:len(program)/2], 0o700), "does not work"},
	} {
		t.Run(title, func(t *testing.T) {
			f, err := find(t, Auto, c.path)
			if err != nil || f.Run != "" || !strings.Contains(f.Why, c.why) || !strings.Contains(f.String(), "WebAssembly") {
				t.Errorf("%+v %v", f, err)
			}
			if _, err := find(t, Helper, c.path); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("where it is required: %v", err)
			}
		})
	}
	t.Run("nowhere", func(t *testing.T) { // beside the test's binary
		f, err := find(t, Auto, "")
		if err != nil || f.Run != "" || f.Why != "" || f.Absent != buildable {
			t.Errorf("%+v %v", f, err)
		}
	})
}

// TestProgramNeedsNoFiles runs it in an empty folder as its root.
func TestProgramNeedsNoFiles(t *testing.T) {
	helper := enginetest.Helper(t)
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	program, err := os.ReadFile(helper)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, Program), program, 0o755); err != nil {
		t.Fatal(err)
	}
	// chroot(8) takes what it starts from the new root.
	wrapper := filepath.Join(t.TempDir(), "wrapper")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec "+chroot(t)+" "+root+" /"+Program+" serve\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if filtered, err := pdfiumhelper.Check(t.Context(), pdfiumhelper.Config{Path: wrapper, Module: pdfiumwasm.ModuleSHA256()}); err != nil || !filtered {
		t.Errorf("filtered: %v, %v", filtered, err)
	}
}

func chroot(t *testing.T) string {
	path, err := exec.LookPath("chroot")
	if err != nil {
		t.Skip(err)
	}
	return path
}
