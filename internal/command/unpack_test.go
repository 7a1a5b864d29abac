package command

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sheaf/parser"
	"sheaf/parser/child"
)

// An archive is opened once, however many steps its files are taken out in, and
// the files of a step stay until they are let go.
func TestArchiveIsOpenedOnceForAllSteps(t *testing.T) {
	a := built(t, nil)
	const n = 1207
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for i := range n {
		body := fmt.Sprintf("file %d", i+1)
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%04d.txt", i+1), Size: int64(len(body)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(body)) // into memory
	}
	_, _ = w.Close(), z.Close()
	dir := a.path("blobs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pack.tar.gz")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	src := child.Source{Path: path, Format: "archive", Options: parser.Options{Name: "pack.tar.gz", MediaType: "application/gzip"}}
	before := a.pool.Stats()
	steps, next := 0, 1
	var folders []string
	for next > 0 {
		from := next
		u, dir, cleanup, err := a.pool.Unpack(t.Context(), src, from)
		if err != nil {
			t.Fatalf("from the %d. file on: %v", from, err)
		}
		defer cleanup()
		folders = append(folders, dir)
		for i, m := range u.Members {
			if b, err := os.ReadFile(filepath.Join(dir, m.File)); err != nil || m.N != from+i || string(b) != fmt.Sprintf("file %d", m.N) {
				t.Fatalf("file %d of the step from %d: %q, %v", m.N, from, b, err)
			}
		}
		if next = u.Next; next == 0 && from+len(u.Members)-1 != n {
			t.Errorf("the last step ends at %d", from+len(u.Members)-1)
		}
		steps++
	}
	after := a.pool.Stats()
	if steps < 3 || after.Opens-before.Opens != 1 || after.Reuses-before.Reuses != int64(steps-1) {
		t.Errorf("%d steps: opened %d times, found open %d times", steps, after.Opens-before.Opens, after.Reuses-before.Reuses)
	}
	for _, dir := range folders {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the files of a step went before they were let go: %v", err)
		}
	}
}
