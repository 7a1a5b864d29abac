package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is being started has all open files until it runs. It must not keep
// the data folder of a process that has ended.
func TestDataFolderIsFreeWhileAProgramStarts(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); err == nil || !strings.Contains(err.Error(), "another sheaf process") {
		t.Fatalf("a second process: %v", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	copied := false
	for _, fd := range open {
		var n int
		if _, err := fmt.Sscan(fd.Name(), &n); err != nil {
			t.Fatal(err)
		}
		if file, _ := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); file == filepath.Join(dir, "lock") {
			held, err := unix.Dup(n)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(held) }()
			copied = true
			break
		}
	}
	if !copied {
		t.Fatal("the file of the lock is not open")
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
}
