package zipfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/zipfile"
)

func open(t *testing.T, content []byte) (*zipfile.Archive, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return zipfile.Open(f, "docx")
}

func TestHostileContainersEndWithACode(t *testing.T) {
	cases := []struct {
		name, code string
		content    []byte
	}{
		{"empty", "empty_file", nil},
		{"text", "invalid_docx", []byte("not a zip at all")},
		{"password", "encrypted", append([]byte{0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1}, make([]byte, 600)...)},
		{"bomb", "zip_bomb", formattest.Zip("a", strings.Repeat("\x00", 24<<20))},
		{"large part", "too_large", formattest.Zip("a", strings.Repeat("0123456789", 1<<18))},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			z, err := open(t, c.content)
			if err == nil {
				limit := int64(zipfile.MaxPartBytes)
				if c.code == "too_large" {
					limit = 1 << 20
				}
				_, err = z.ReadAll("A", limit)
			}
			if f := sheaf.AsFailure(err, ""); f == nil || f.Code != c.code {
				t.Fatalf("error %v, want %s", err, c.code)
			}
		})
	}
}

// Decompressors serve one part after the other: what an earlier part held, or
// how it broke, is not seen in a later one.
func TestPartsAreReadApart(t *testing.T) {
	long := strings.Repeat("a long part that repeats itself, ", 5_000)
	content := formattest.Zip("one", long, "two", strings.ToUpper(long), "broken", "the part that breaks, "+long, "small", "x")
	at := bytes.Index(content, []byte("broken")) + len("broken")
	copy(content[at+8:], bytes.Repeat([]byte{0xff}, 16))
	for _, content := range [][]byte{content, append(bytes.Repeat([]byte("before "), 200_000), content...)} { // in memory, and read from the file
		z, err := open(t, content)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			one, err := z.Part("one", 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			two, err := z.Part("two", 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var a, b strings.Builder
			for range 1000 { // in turns
				_, errA := io.CopyN(&a, one, 170)
				_, errB := io.CopyN(&b, two, 170)
				if errA != nil || errB != nil {
					break
				}
			}
			if a.String() != long || b.String() != strings.ToUpper(long) {
				t.Fatalf("%d and %d bytes, want %d", a.Len(), b.Len(), len(long))
			}
			if err := errors.Join(one.Close(), one.Close(), two.Close()); err != nil {
				t.Fatal(err)
			}
			if n, err := one.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Error("a closed part can be read")
			}
			if _, err := z.ReadAll("broken", 1<<20); err == nil {
				t.Error("the broken part was read")
			}
			if small, err := z.ReadAll("small", 10); err != nil || string(small) != "x" {
				t.Errorf("%q %v", small, err)
			}
		}
	}
}

// A directory may list one member under many names, and members inside others.
func TestMembersThatOverlapAreRefused(t *testing.T) {
	names := []string{"a0", "a1", "a2"}
	if _, err := open(t, formattest.ZipDirectory("a0", "content", nil, names[:1]...)); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, formattest.ZipDirectory("a0", "content", nil, names...))
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "zip_bomb" {
		t.Errorf("one member under three names: %v", err)
	}
}

// What the directory claims of a part's packed size lifts no bound.
func TestARatioIsOfTheBytesThatAreThere(t *testing.T) {
	zeros := strings.Repeat("\x00", 24<<20)
	claim := func(record []byte) { binary.LittleEndian.PutUint32(record[20:], 1<<31) }
	z, err := open(t, formattest.ZipDirectory("a", zeros, claim, "a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = z.ReadAll("a", zipfile.MaxPartBytes)
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "zip_bomb" {
		t.Errorf("a part that claims 2 GB: %v", err)
	}

	var parts []string
	for i := range 8 { // each as large as a part may be with any ratio
		parts = append(parts, fmt.Sprint(i), zeros[:15<<20])
	}
	if z, err = open(t, formattest.Zip(parts...)); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if _, err = z.ReadAll(fmt.Sprint(i), zipfile.MaxPartBytes); err != nil {
			break
		}
	}
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "zip_bomb" {
		t.Errorf("many small bombs: %v", err)
	}
	if n := z.Read(); n <= 0 || n > 1<<20 {
		t.Errorf("%d bytes read", n)
	}
}
