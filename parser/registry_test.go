package parser

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf16"
)

type fakeFormat struct {
	id    string
	types []string
}

func (f fakeFormat) ID() string           { return f.id }
func (f fakeFormat) Version() int         { return 1 }
func (f fakeFormat) MediaTypes() []string { return f.types }
func (f fakeFormat) Options() []string    { return nil }
func (f fakeFormat) Open(context.Context, *os.File, Options) (Document, error) {
	return nil, os.ErrInvalid
}

func TestRegistryLooksUpByBareMediaType(t *testing.T) {
	r := NewRegistry(
		fakeFormat{"special", []string{"application/special", "text/csv"}},
		fakeFormat{"text", []string{"text/plain", "text/csv"}},
	)
	for mt, want := range map[string]string{
		"application/special":               "special",
		"Text/CSV; charset=utf-8":           "special", // the first to claim it
		"text/plain":                        "text",
		"text/x-cobol":                      "text",
		"application/vnd.nobody.reads.this": "",
		"":                                  "",
	} {
		got := ""
		if f, ok := r.ByMediaType(mt); ok {
			got = f.ID()
		}
		if got != want {
			t.Errorf("ByMediaType(%q) = %q, want %q", mt, got, want)
		}
	}
	if f, ok := r.ByID("text"); !ok || f.ID() != "text" {
		t.Errorf("ByID(text) = %v, %v", f, ok)
	}
	if _, ok := r.ByID("none"); ok {
		t.Error("ByID found a format that was never registered")
	}
}

func TestRegistryRefusesTwoFormatsWithOneID(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	NewRegistry(fakeFormat{id: "a"}, fakeFormat{id: "a"})
}

func zipOf(t *testing.T, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, n := range names {
		name, body, _ := strings.Cut(n, "=")
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// oleOf makes a compound file of one allocation table and one directory sector.
func oleOf(names ...string) string {
	b := make([]byte, 512*3)
	copy(b, oleMagic)
	b[30] = 9
	copy(b[48:], []byte{1, 0, 0, 0}) // directory starts at sector 1
	copy(b[76:], []byte{0, 0, 0, 0}) // allocation table is sector 0
	copy(b[512+4:], []byte{0xFE, 0xFF, 0xFF, 0xFF})
	for i, n := range names {
		e := b[1024+128*i:]
		for k, u := range utf16.Encode([]rune(n)) {
			e[2*k], e[2*k+1] = byte(u), byte(u>>8)
		}
		e[64] = byte(2*len(n) + 2)
	}
	return string(b)
}

func tarOf(t *testing.T, name string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o600}), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSniff(t *testing.T) {
	for _, c := range []struct{ title, name, body, want string }{
		{"nothing", "a.pdf", "", MediaEmpty},
		{"pdf without extension", "a", "%PDF-1.4\n", MediaPDF},
		{"pdf behind garbage", "a.bin", "\x00\x01junk\n%PDF-1.4\n", MediaPDF},
		{"pdf whose header was lost", "a.pdf", "1 0 obj\n<<>>\nendobj\n", MediaPDF},
		{"binary", "a.bin", "\x00\x01\x02\x03\x04\x00\x00", MediaBinary},
		{"docx named xlsx", "a.xlsx", zipOf(t, "[Content_Types].xml", "word/document.xml"), MediaDOCX},
		{"xlsx", "a", zipOf(t, "_rels/.rels", "xl/workbook.xml"), MediaXLSX},
		{"pptx", "a", zipOf(t, "ppt/presentation.xml"), MediaPPTX},
		{"epub", "a", zipOf(t, "mimetype=application/epub+zip", "META-INF/container.xml"), MediaEPUB},
		{"odt", "a.zip", zipOf(t, "mimetype="+MediaODT, "content.xml"), MediaODT},
		{"plain zip", "a.zip", zipOf(t, "readme.txt=hello"), MediaZIP},
		{"office name found in the directory at the end", "a", zipOf(t, "big="+strings.Repeat("x", int(SniffHeadBytes)), "word/document.xml"), MediaDOCX},
		{"word", "a", oleOf("Root Entry", "WordDocument"), MediaDOC},
		{"excel", "a", oleOf("Root Entry", "Workbook"), MediaXLS},
		{"powerpoint with a sheet inside", "a", oleOf("Root Entry", "Workbook", "PowerPoint Document"), MediaPPT},
		{"mail of Outlook", "a", oleOf("Root Entry", "__properties_version1.0"), MediaMSG},
		{"password on a docx", "a.docx", oleOf("Root Entry", "EncryptionInfo", "EncryptedPackage"), MediaOOXMLEncrypted},
		{"cut off compound file", "a.doc", string(oleMagic), MediaDOC},
		{"rich text named doc", "a.doc", `{\rtf1\ansi hello}`, MediaRTF},
		{"wav by content", "a", "RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00", "audio/wav"},
		{"mp3 whose frames come late", "a.mp3", "\x00\x00\x00\x01\x02", "audio/mpeg"},
		{"subtitles by content", "a", "WEBVTT\n\n00:01.000 --> 00:02.000\nhi", "text/vtt"},
		{"markdown", "a.MD", "# Title\n", MediaMarkdown},
		{"windows path", `C:\dir.x\a.csv`, "a,b\n1,2\n", MediaCSV},
		{"go", "main.go", "package main\n", "text/x-go"},
		{"json by content", "a", `{"a": [1, 2, 3]}`, MediaJSON},
		{"html by content", "a", "<!DOCTYPE html><html><body>x</body></html>", MediaHTML},
		{"feed by content", "feed", `<?xml version="1.0"?><rss version="2.0"><channel/></rss>`, "application/xml"},
		{"drawing", "a.svg", `<svg xmlns="http://www.w3.org/2000/svg"><text>x</text></svg>`, "image/svg+xml"},
		{"latex", "a.latex", `\documentclass{article}`, "text/x-tex"},
		{"mail by content", "a", "From: a@example.org\r\nSubject: x\r\n\r\nbody\r\n", MediaEML},
		{"mailbox by content", "a", "From a@example.org Thu Jan  1 00:00:00 2026\nFrom: a@example.org\nSubject: x\n\nbody\n\nFrom b@example.org Thu Jan  1 00:00:00 2026\nFrom: b\nSubject: y\n\nbody\n", MediaMBOX},
		{"one message with its separator", "a", "From a@example.org Thu Jan  1 00:00:00 2026\nFrom: a@example.org\nSubject: x\n\nbody\n", MediaEML},
		{"tar", "a", tarOf(t, "a.txt"), MediaTAR},
		{"gzip", "a", "\x1f\x8b\x08\x00\x00\x00\x00\x00", "application/gzip"},
		{"prose with colons is not mail", "a", "Subject: x\nThe quick brown: fox\n", MediaText},
		{"utf-16 without a mark", "a.txt", "h\x00e\x00l\x00l\x00o\x00 \x00w\x00o\x00r\x00l\x00d\x00 \x00!\x00", MediaText},
		{"latin-1 with a stray control", "a.txt", strings.Repeat("caf\xe9 au lait, ", 20) + "\x01", MediaText},
	} {
		t.Run(c.title, func(t *testing.T) {
			if got := Sniff(strings.NewReader(c.body), int64(len(c.body)), c.name); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// FuzzSniff holds that sniffing never panics and always names a type.
func FuzzSniff(f *testing.F) {
	f.Add([]byte("PK\x03\x04"), "a.docx")
	f.Add([]byte(oleOf("Root Entry", "WordDocument")), "a.doc")
	f.Add([]byte("%PDF-1.7"), "")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		if Sniff(bytes.NewReader(b), int64(len(b)), name) == "" {
			t.Error("no type")
		}
	})
}
