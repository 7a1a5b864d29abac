package office

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

// inner stands for the formats that read what LibreOffice makes: it gives back
// the bytes of one part of it. The real ones are tested in package formats.
type inner struct{ mediaType, part string }

func (i inner) ID() string { return i.part }
func (inner) Version() int { return 3 }
func (i inner) Types() []parser.FileType {
	folder := map[string]string{"docx": "word/*", "xlsx": "xl/*", "pptx": "ppt/*"}[i.part]
	return []parser.FileType{{MediaType: i.mediaType, Magic: []parser.Magic{{Entry: folder}}}}
}
func (inner) Options() []string { return []string{"table_rows"} }
func (i inner) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	if got := registry().Sniff(f, 1<<20, ""); got != i.mediaType {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "invalid", "this is %s", got)
	}
	return nil, sheaf.Fail(sheaf.CategoryBadInput, "arrived", "%s", filepath.Base(f.Name()))
}

func registry() *parser.Registry {
	return parser.NewRegistry(inner{parser.MediaDOCX, "docx"}, inner{parser.MediaXLSX, "xlsx"}, inner{parser.MediaPPTX, "pptx"})
}

func newFormat() parser.Format { return New(Config{Soffice: "soffice"}, registry) }

func need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs LibreOffice")
	}
	if _, err := exec.LookPath("soffice"); err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("LibreOffice is not installed and SHEAF_TEST_REQUIRE asks for it")
		}
		t.Skip("LibreOffice is not installed")
	}
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func code(err error) string {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f.Code
	}
	return ""
}

func options(mediaType string) parser.Options {
	return parser.Options{Name: "document", MediaType: mediaType}
}

func TestBadInput(t *testing.T) {
	need(t)
	locked := fixture(t, "sample.doc")
	at := strings.Index(string(locked), "\xec\xa5") // the start of the main stream
	if at < 0 {
		t.Fatal("the fixture has no main stream")
	}
	locked[at+11] |= 1
	for _, c := range []struct {
		title, mediaType, code string
		content                []byte
	}{
		{"no bytes", parser.MediaDOC, "empty_file", nil},
		{"garbage", parser.MediaDOC, "invalid_doc", []byte("this is no Word file")},
		{"cut off", parser.MediaXLS, "invalid_xls", fixture(t, "sample.xls")[:700]},
		{"another kind", parser.MediaPPT, "invalid_ppt", fixture(t, "sample.doc")},
		{"not rich text", parser.MediaRTF, "invalid_rtf", []byte("plain")},
		{"password on a DOC", parser.MediaDOC, "encrypted", locked},
	} {
		t.Run(c.title, func(t *testing.T) {
			if _, _, err := formattest.Read(t, newFormat(), c.content, options(c.mediaType), nil); code(err) != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
		})
	}
}

func TestConvertedFileIsReadByItsFormat(t *testing.T) {
	need(t)
	for name, want := range map[string]string{"sample.rtf": "in.docx", "sample.xls": "in.xlsx", "sample.ppt": "in.pptx"} {
		b := fixture(t, name)
		mediaType := parser.NewRegistry(newFormat()).Sniff(strings.NewReader(string(b)), int64(len(b)), "")
		_, _, err := formattest.Read(t, newFormat(), b, options(mediaType), nil)
		if f, _ := errors.AsType[*sheaf.Failure](err); f == nil || f.Code != "arrived" || f.Message != want {
			t.Errorf("%s (%s): %v", name, mediaType, err)
		}
	}
}

func TestMissingLibreOfficeIsSaidAtOnce(t *testing.T) {
	f := New(Config{Soffice: "/no/such/soffice"}, registry)
	if err := parser.Available(f); code(err) != "part_missing" || !strings.Contains(err.Error(), "libreoffice-writer-nogui") {
		t.Error(err)
	}
	if _, _, err := formattest.Read(t, f, fixture(t, "sample.doc"), options(parser.MediaDOC), nil); code(err) != "part_missing" {
		t.Error(err)
	}
	if err := parser.Available(New(Config{Elsewhere: true}, registry)); err != nil {
		t.Errorf("it is elsewhere: %v", err)
	}
}

func TestDigestFollowsTheFormatsBehind(t *testing.T) {
	f := newFormat()
	if f.Version() != version+9 || !slices.Contains(f.Options(), "table_rows") {
		t.Errorf("version %d, options %q", f.Version(), f.Options())
	}
}

// FuzzCheck holds that no file's outside makes the parser panic or hang: what
// LibreOffice itself does happens in a process of its own.
func FuzzCheck(f *testing.F) {
	for _, name := range []string{"sample.doc", "sample.xls", "sample.ppt", "sample.rtf"} {
		f.Add(fixture(f, name)[:4096:4096], strings.TrimPrefix(filepath.Ext(name), "."))
	}
	f.Fuzz(func(t *testing.T, b []byte, ext string) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := (kind{name: "X", ext: ext}).check(file, int64(len(b))); err != nil && code(err) == "" {
			t.Errorf("not a failure: %v", err)
		}
	})
}
