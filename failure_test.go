package sheaf

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A failure is shown to tenants: it names a file, but not where the server keeps it.
func TestFailureShowsNoFolderOfTheServer(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("srv", "sheaf", "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a.bin")
	full := &fs.PathError{Op: "write", Path: file, Err: syscall.ENOSPC}
	for _, err := range []error{
		full, fmt.Errorf("%w: the cache folder %s: %w; free some space there", ErrReadOnly, dir, full),
		fmt.Errorf("saving: %w", &os.LinkError{Op: "rename", Old: file, New: filepath.Join(dir, "b.bin"), Err: syscall.EACCES}),
	} {
		f := AsFailure(err, "fetch")
		if strings.Contains(f.Message, filepath.Dir(dir)) || !strings.Contains(f.Message, "a.bin") {
			t.Errorf("%v is shown as %q", err, f.Message)
		}
	}
	if f := AsFailure(fmt.Errorf("page 3: %w", syscall.EIO), "parse"); !strings.HasPrefix(f.Message, "page 3: ") {
		t.Errorf("another error reads %q", f.Message)
	}
}
