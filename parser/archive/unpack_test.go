package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

// unpackAll unpacks an archive step by step, and lists what came out: path and
// content, or why there is none.
func unpackAll(t testing.TB, content []byte) (lines []string, steps int, warnings []sheaf.Warning) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for from := 1; from > 0; steps++ {
		o := options("pack")
		o.TempDir = t.TempDir()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(Limits{}, registry).Open(t.Context(), f, o)
		if err != nil {
			t.Fatal(err)
		}
		u, err := d.(parser.Unpacker).Unpack(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range u.Members {
			if m.N != from+i {
				t.Fatalf("member %d where %d was due", m.N, from+i)
			}
			if m.File == "" {
				lines = append(lines, fmt.Sprintf("%s %s %s", m.Path, m.Status, m.Code))
				continue
			}
			b, err := os.ReadFile(filepath.Join(o.TempDir, m.File))
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(b); int64(len(b)) != m.Size || hex.EncodeToString(sum[:]) != m.SHA256 {
				t.Fatalf("%s: size and sum are not those of its bytes", m.Path)
			}
			lines = append(lines, m.Path+"="+string(b[:min(len(b), 20)]))
		}
		from, warnings = u.Next, u.Warnings
		_ = f.Close()
	}
	return lines, steps, warnings
}

func TestUnpackGivesEachFileOrAReason(t *testing.T) {
	files := []string{"a.txt", "Alpha.", "dir/", "", "dir/../b.txt", "Beta.", "a.txt", "Again.", "empty", "", "link", "-> a.txt"}
	for name, c := range map[string]struct {
		content []byte
		want    []string
	}{
		"zip":    {formattest.Zip(files[:10]...), []string{"a.txt=Alpha.", "dir/b.txt=Beta.", "a.txt skipped duplicate_name", "empty blank empty_file"}},
		"tar.gz": {gzipped(t, tarOf(t, append([]string{"one", "1"}, files[4:]...)...)), []string{"one=1", "dir/b.txt=Beta.", "a.txt=Again.", "empty blank empty_file", "link skipped not_a_file"}},
	} {
		if got, _, warnings := unpackAll(t, c.content); strings.Join(got, "\n") != strings.Join(c.want, "\n") || len(warnings) > 0 {
			t.Errorf("%s: %q, %v", name, got, warnings)
		}
	}
}

func TestUnpackGoesOnWhereItStopped(t *testing.T) {
	const n = 2*stepMembers + 7
	var files []string
	for i := range n {
		files = append(files, fmt.Sprintf("f%d", i), fmt.Sprint("content ", i))
	}
	for name, content := range map[string][]byte{"zip": formattest.Zip(files...), "tar": tarOf(t, files...)} {
		got, steps, _ := unpackAll(t, content)
		if len(got) != n || steps != 3 || got[n-1] != fmt.Sprintf("f%d=content %d", n-1, n-1) {
			t.Errorf("%s: %d files in %d steps", name, len(got), steps)
		}
	}
}

func TestUnpackSaysWhatADamagedArchiveLost(t *testing.T) {
	whole := tarOf(t, "a.txt", "Alpha.", "b.txt", strings.Repeat("Beta. ", 500), "c.txt", "Gamma.")
	got, _, warnings := unpackAll(t, whole[:bytes.Index(whole, []byte("Beta."))+600])
	if strings.Join(got, "\n") != "a.txt=Alpha.\nb.txt failed member_damaged" || len(warnings) != 1 || warnings[0].Code != "archive_damaged" {
		t.Errorf("%q, %v", got, warnings)
	}
	zeros := string(make([]byte, 32<<20))
	if got, _, _ := unpackAll(t, formattest.Zip("zeros", zeros, "a.txt", "One.")); strings.Join(got, "\n") != "zeros failed zip_bomb\na.txt=One." {
		t.Errorf("%q", got)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(formattest.Zip("a.txt", "One.", "b/c.eml", "From: a\nTo: b\n\nBody"))
	f.Add(tarOf(f, "a.txt", "One.", "b", "Two."))
	f.Add(gzipped(f, tarOf(f, "a.txt", "One.")))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := os.Create(filepath.Join(t.TempDir(), "archive"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Write(b); err != nil {
			t.Fatal(err)
		}
		o := options("x.zip")
		if o.TempDir, err = os.MkdirTemp(dir, "out"); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(o.TempDir)
		d, err := New(Limits{}, registry).Open(t.Context(), file, o)
		if err != nil {
			return
		}
		for from, steps := 1, 0; from > 0; steps++ {
			u, err := d.(parser.Unpacker).Unpack(t.Context(), from)
			if err != nil {
				return
			}
			if len(u.Members) == 0 || u.Members[0].N != from || u.Next != 0 && u.Next != from+len(u.Members) || steps > 20 {
				t.Fatalf("step %d from %d: %d members, next %d", steps, from, len(u.Members), u.Next)
			}
			for _, m := range u.Members {
				if m.Path == "" || strings.HasPrefix(m.Path, "/") || strings.Contains("/"+m.Path+"/", "/../") || (m.File == "") != (m.Status != "") {
					t.Fatalf("%+v", m)
				}
			}
			from = u.Next
		}
	})
}

// A packed stream is unpacked once: what a step has passed is not read again
// for the next, as long as the document is open.
func TestUnpackReadsAPackedStreamOnce(t *testing.T) {
	const n = 3*stepMembers + 7
	var files []string
	for i := range n {
		files = append(files, fmt.Sprintf("%04d.txt", i), strings.Repeat(fmt.Sprintf("%08x", i*2654435761), 200))
	}
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, gzipped(t, tarOf(t, files...)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := options("pack.tar.gz")
	o.TempDir = t.TempDir()
	d, err := New(Limits{}, registry).Open(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	found := 0
	for from := 1; from > 0; {
		u, err := d.(parser.Unpacker).Unpack(t.Context(), from)
		if err != nil {
			t.Fatalf("from the %d. file on: %v", from, err)
		}
		if len(u.Members) == 0 || u.Members[0].N != from || len(u.Warnings) > 0 {
			t.Fatalf("from the %d. file on: %+v", from, u)
		}
		for _, m := range u.Members {
			b, err := os.ReadFile(filepath.Join(o.TempDir, m.File))
			if err != nil || m.Path != files[2*(m.N-1)] || string(b) != files[2*m.N-1] {
				t.Fatalf("file %d is %s, %v", m.N, m.Path, err)
			}
		}
		found += len(u.Members)
		from = u.Next
		// What lies before cannot be read again.
		if _, err := f.WriteAt(make([]byte, 1024), 0); err != nil {
			t.Fatal(err)
		}
	}
	if found != n {
		t.Errorf("%d of %d files", found, n)
	}
}
