package zipfile_test

import (
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
