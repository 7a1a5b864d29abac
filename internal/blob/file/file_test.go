package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/blob/blobtest"
)

func open(t *testing.T) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a folder with späces")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// TestMain lets the test binary be the process that crashes in the middle of a Put.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SHEAF_TEST_CRASH_DIR"); dir != "" {
		s, err := Open(dir)
		if err != nil {
			panic(err)
		}
		_, _ = s.Put(context.Background(), "half", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), stopAndWait{}), -1)
		return
	}
	os.Exit(m.Run())
}

// stopAndWait tells the parent that the temporary file exists, then hangs.
type stopAndWait struct{}

func (stopAndWait) Read([]byte) (int, error) {
	fmt.Println("writing")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent kills us
	return 0, io.EOF
}

func TestContract(t *testing.T) {
	s, dir := open(t)
	blobtest.Run(t, s)
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) != 0 {
		t.Errorf("%d temporary files are left", len(left))
	}
}

func TestPathIsTheObject(t *testing.T) {
	s, _ := open(t)
	if _, err := s.Put(t.Context(), "a/b", strings.NewReader("hello"), -1); err != nil {
		t.Fatal(err)
	}
	path, err := s.Path("a/b")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	for _, key := range []string{"a", "a/c", "a/b/c"} {
		if _, err := s.Path(key); !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("Path(%q): %v", key, err)
		}
	}
	if _, err := s.Path("../x"); !errors.Is(err, sheaf.ErrInvalid) {
		t.Error(err)
	}
}

func TestDeleteRemovesEmptyFolders(t *testing.T) {
	s, dir := open(t)
	for _, key := range []string{"t/d1/original", "t/d1/artifacts/1", "t/d1/artifacts/2", "u/x"} {
		if _, err := s.Put(t.Context(), key, strings.NewReader("x"), -1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.DeletePrefix(t.Context(), "t/d1/"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "u/x"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "objects")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestObjectAndFolderOfOneNameIsInvalid(t *testing.T) {
	s, _ := open(t)
	if _, err := s.Put(t.Context(), "a/b", strings.NewReader("x"), -1); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "a/b/c", "a/b/c/d"} {
		if _, err := s.Put(t.Context(), key, strings.NewReader("x"), -1); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("Put(%q): %v", key, err)
		}
	}
}

func TestCrashedPutIsSweptAndRunningPutIsNot(t *testing.T) {
	_, dir := open(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "SHEAF_TEST_CRASH_DIR="+dir)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	if _, err := io.ReadFull(stdout, make([]byte, len("writing"))); err != nil {
		t.Fatal(err)
	}

	temps := func() []string {
		names, err := filepath.Glob(filepath.Join(strings.ReplaceAll(dir, "[", "\\["), "tmp", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	age := func() { // as if it had been written long ago
		for _, name := range temps() {
			if err := os.Chtimes(name, time.Time{}, time.Now().Add(-48*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	age()
	if _, err := Open(dir); err != nil {
		t.Fatal(err)
	}
	if len(temps()) != 1 {
		t.Fatalf("the file of a running Put is gone: %v", temps())
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	age()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(temps()) != 0 {
		t.Errorf("left: %v", temps())
	}
	if _, err := s.Stat(t.Context(), "half"); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("half an object is there: %v", err)
	}
}

func TestFullDiskIsReadOnlyAndLeavesNothing(t *testing.T) {
	// /dev/full answers ENOSPC to every write, as a full disk does.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full:", err)
	}
	defer full.Close()
	s, _ := open(t)
	_, err = s.copy(t.Context(), full, strings.NewReader("x"), "key")
	if !errors.Is(err, sheaf.ErrReadOnly) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v", err)
	}
}

func TestFolderWithoutPermissionIsReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root may write everywhere; a file system that nobody may write to remains.
		if _, err := Open("/proc/sheaf"); err == nil {
			t.Error("opened a store in /proc")
		}
		t.Skip("root has every permission")
	}
	s, dir := open(t)
	for _, d := range []string{"objects", "tmp"} {
		if err := os.Chmod(filepath.Join(dir, d), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(t.Context(), "x", strings.NewReader("x"), -1); !errors.Is(err, sheaf.ErrReadOnly) {
		t.Errorf("Put: %v", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, sheaf.ErrReadOnly) {
		t.Errorf("Ping: %v", err)
	}
}

func TestFileInTheWayIsInvalid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func BenchmarkPut(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{64 << 10, 16 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			data := blobtest.Bytes(1, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := s.Put(b.Context(), "bench/x", bytes.NewReader(data), int64(size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An object of one part shares its bytes, and is as new as what is copied: what is
// old and in no list is removed as left behind.
func TestObjectOfOnePartIsNotCopied(t *testing.T) {
	s, dir := open(t)
	if _, err := s.Put(t.Context(), "parts/1", strings.NewReader("part"), 4); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(dir, "objects", "parts", "1")
	long := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(part, long, long); err != nil {
		t.Fatal(err)
	}
	if err := s.Compose(t.Context(), "whole", []string{"parts/1"}); err != nil {
		t.Fatal(err)
	}
	a, errA := os.Stat(part)
	b, errB := os.Stat(filepath.Join(dir, "objects", "whole"))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("the part was copied: %v, %v", errA, errB)
	}
	if info, err := s.Stat(t.Context(), "whole"); err != nil || info.Modified.Before(long.Add(24*time.Hour)) {
		t.Errorf("it is of %v: %v", info.Modified, err)
	}
}
