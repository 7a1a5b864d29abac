package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/eml"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/members"
	"sheaf/parser/text"
)

func registry() *parser.Registry {
	return parser.NewRegistry(New(Limits{}, registry), eml.New(registry), text.New())
}

func options(name string) parser.Options {
	return parser.Options{Name: name, MediaType: parser.MediaZIP}
}

// tarOf packs files, given as name and content in turn.
func tarOf(t testing.TB, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i+1 < len(parts); i += 2 {
		h := &tar.Header{Name: parts[i], Mode: 0o600, Size: int64(len(parts[i+1])), Typeflag: tar.TypeReg}
		if target, link := strings.CutPrefix(parts[i+1], "-> "); link {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(parts[i+1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// verdicts is a line a unit: label, status, code and the text that was read.
func verdicts(units []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range units {
		fmt.Fprintf(&b, "%s %s %s", u.Label, u.Status, u.Code)
		for _, k := range u.Blocks {
			fmt.Fprintf(&b, " [%s]", k.Text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestMembersAreUnitsUnderTheArchivesName(t *testing.T) {
	files := []string{"a.txt", "Alpha.", "__MACOSX/a.txt", "x", "dir/../../b.txt", "Beta.", `C:\c\d.txt`, "Delta.", "bin", "\x00\x01\x02\x03", "empty.txt", ""}
	const want = `pack/a.txt ok  [pack/a.txt] [Alpha.]
pack/dir/b.txt ok  [pack/dir/b.txt] [Beta.]
pack/c/d.txt ok  [pack/c/d.txt] [Delta.]
pack/bin skipped unsupported_format
pack/empty.txt blank empty_file
`
	for name, content := range map[string][]byte{"zip": formattest.Zip(files...), "tar": tarOf(t, files...), "tar.gz": gzipped(t, tarOf(t, files...))} {
		t.Run(name, func(t *testing.T) {
			plan, units, err := formattest.Read(t, New(Limits{}, registry), content, options("pack"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := verdicts(units); got != want {
				t.Errorf("got\n%s", got)
			}
			if len(plan.Outline) != 5 || plan.Outline[1] != (sheaf.Heading{Level: 1, Title: "pack/dir/b.txt", Page: 2}) {
				t.Errorf("%+v", plan.Outline)
			}
		})
	}
}

func TestWhatIsNotReadIsListed(t *testing.T) {
	content := tarOf(t, "link", "-> /etc/passwd", "a.txt", "One.", "a.txt", "Two.")
	_, units, err := formattest.Read(t, New(Limits{}, registry), content, options("x.tar"), nil)
	if got := verdicts(units); err != nil || got != "x.tar/link skipped not_a_file\nx.tar/a.txt ok  [x.tar/a.txt] [One.]\nx.tar/a.txt skipped duplicate_name\n" {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestOneChangedMemberChangesOneFingerprint(t *testing.T) {
	for name, pack := range map[string]func(...string) []byte{"zip": formattest.Zip, "tar": func(p ...string) []byte { return tarOf(t, p...) }} {
		before, _, err := formattest.Read(t, New(Limits{}, registry), pack("a.txt", "One.", "b.txt", "Two."), options("x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		after, _, err := formattest.Read(t, New(Limits{}, registry), pack("a.txt", "One.", "b.txt", "Six."), options("x"), nil)
		if err != nil || before.Fingerprints[0] != after.Fingerprints[0] || before.Fingerprints[1] == after.Fingerprints[1] {
			t.Errorf("%s: %x, %x, %v", name, before.Fingerprints, after.Fingerprints, err)
		}
	}
}

func TestPackedFileIsOneMember(t *testing.T) {
	_, units, err := formattest.Read(t, New(Limits{}, registry), gzipped(t, []byte("A packed note.")), options("note.txt.gz"), nil)
	if got := verdicts(units); err != nil || got != "note.txt.gz/note.txt ok  [note.txt.gz/note.txt] [A packed note.]\n" {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestArchivesInArchivesEnd(t *testing.T) {
	inner := formattest.Zip("deep9.txt", "Text 9.")
	for depth := 8; depth >= 0; depth-- {
		inner = formattest.Zip(fmt.Sprintf("deep%d.txt", depth), fmt.Sprintf("Text %d.", depth), "next.zip", string(inner))
	}
	_, units, err := formattest.Read(t, New(Limits{}, registry), inner, options("x.zip"), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := verdicts(units)
	for depth := range 10 {
		if got, want := strings.Contains(all, fmt.Sprintf("[Text %d.]", depth)), depth <= members.MaxDepth; got != want {
			t.Errorf("text %d deep was read: %v", depth, got)
		}
	}
}

func TestBombsAreStopped(t *testing.T) {
	zeros := string(make([]byte, 64<<20))
	_, units, err := formattest.Read(t, New(Limits{}, registry), formattest.Zip("zeros.txt", zeros, "a.txt", "One."), options("x.zip"), nil)
	if got := verdicts(units); err != nil || got != "x.zip/zeros.txt failed zip_bomb\nx.zip/a.txt ok  [x.zip/a.txt] [One.]\n" {
		t.Errorf("%v\n%s", err, got)
	}
	plan, units, err := formattest.Read(t, New(Limits{}, registry), gzipped(t, tarOf(t, "zeros.txt", zeros)), options("x.tar.gz"), nil)
	if got := verdicts(units); err != nil || got != "x.tar.gz/zeros.txt failed zip_bomb\n" || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "archive_damaged" {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestBadInput(t *testing.T) {
	locked := formattest.Zip("a.txt", "secret")
	locked[6] |= 1                                                    // the flag in the local header
	locked[bytes.Index(locked, []byte("PK\x01\x02"))+8] |= 1          // and in the directory
	damaged := formattest.Zip("a.txt", strings.Repeat("text ", 1000)) // its content, not its directory
	damaged[60] ^= 0xff
	for _, c := range []struct {
		title, code, want string
		content           []byte
	}{
		{"no bytes", "empty_file", "", nil},
		{"garbage", "invalid_archive", "", []byte(strings.Repeat("garbage ", 200))},
		{"no directory", "invalid_archive", "", []byte("PK\x03\x04 cut off")},
		{"no files", "empty_document", "", formattest.Zip()},
		{"only folders", "empty_document", "", formattest.Zip("dir/", "")},
		{"password", "", "x/a.txt skipped encrypted\n", locked},
		{"damaged member", "", "x/a.txt failed member_damaged\n", damaged},
	} {
		t.Run(c.title, func(t *testing.T) {
			_, units, err := formattest.Read(t, New(Limits{}, registry), c.content, options("x"), nil)
			code := ""
			if f, ok := errors.AsType[*sheaf.Failure](err); ok {
				code = f.Code
			}
			if code != c.code || verdicts(units) != c.want {
				t.Errorf("%v\n%s", err, verdicts(units))
			}
		})
	}
}

func TestNamesAreCleaned(t *testing.T) {
	for in, want := range map[string]string{
		"../../etc/passwd": "etc/passwd", "/abs": "abs", "a//b/./c": "a/b/c", `D:\x`: "x", "": "unnamed", "..": "unnamed",
		"line\nbreak\x00": "line break", "caf\x82": "café",
	} {
		if got := cleanName(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(formattest.Zip("a.txt", "One.", "b/c.eml", "From: a\nTo: b\n\nBody"))
	f.Add(tarOf(f, "a.txt", "One."))
	f.Add(gzipped(f, tarOf(f, "a.txt", "One.")))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(Limits{}, registry), b, options("x.zip"), nil) // it checks what it reads
	})
}
