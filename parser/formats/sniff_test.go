package formats

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"sheaf/parser"
)

var known = parser.NewRegistry(All(DefaultConfig)...)

const oleMagic = "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"

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
		{"nothing", "a.pdf", "", parser.MediaEmpty},
		{"pdf without extension", "a", "%PDF-1.4\n", parser.MediaPDF},
		{"pdf behind garbage", "a.bin", "\x00\x01junk\n%PDF-1.4\n", parser.MediaPDF},
		{"pdf whose header was lost", "a.pdf", "1 0 obj\n<<>>\nendobj\n", parser.MediaPDF},
		{"binary", "a.bin", "\x00\x01\x02\x03\x04\x00\x00", parser.MediaBinary},
		{"docx named xlsx", "a.xlsx", zipOf(t, "[Content_Types].xml", "word/document.xml"), parser.MediaDOCX},
		{"xlsx", "a", zipOf(t, "_rels/.rels", "xl/workbook.xml"), parser.MediaXLSX},
		{"pptx", "a", zipOf(t, "ppt/presentation.xml"), parser.MediaPPTX},
		{"epub", "a", zipOf(t, "mimetype=application/epub+zip", "META-INF/container.xml"), parser.MediaEPUB},
		{"odt", "a.zip", zipOf(t, "mimetype="+parser.MediaODT, "content.xml"), parser.MediaODT},
		{"a drawing is no archive", "a.odg", zipOf(t, "mimetype=application/vnd.oasis.opendocument.graphics", "content.xml=<x/>"), "application/vnd.oasis.opendocument.graphics"},
		{"nor a document of Pages", "a.pages", zipOf(t, "Index/Document.iwa=x", "preview.jpg"), "application/vnd.apple.iwork"},
		{"nor one of Visio", "a.zip", zipOf(t, "[Content_Types].xml", "visio/document.xml=<x/>"), "application/vnd.ms-visio.drawing.main+xml"},
		{"nor a printed page", "a.xps", zipOf(t, "big="+strings.Repeat("x", int(parser.SniffHeadBytes)), "FixedDocSeq.fdseq=<x/>"), "application/oxps"},
		{"an archive with a file of that name", "a.zip", zipOf(t, "mimetype=A text", "b.txt=x"), parser.MediaZIP},
		{"plain zip", "a.zip", zipOf(t, "readme.txt=hello"), parser.MediaZIP},
		{"office name found in the directory at the end", "a", zipOf(t, "big="+strings.Repeat("x", int(parser.SniffHeadBytes)), "word/document.xml"), parser.MediaDOCX},
		{"word", "a", oleOf("Root Entry", "WordDocument"), parser.MediaDOC},
		{"excel", "a", oleOf("Root Entry", "Workbook"), parser.MediaXLS},
		{"powerpoint with a sheet inside", "a", oleOf("Root Entry", "Workbook", "PowerPoint Document"), parser.MediaPPT},
		{"mail of Outlook", "a", oleOf("Root Entry", "__properties_version1.0"), parser.MediaMSG},
		{"password on a docx", "a.docx", oleOf("Root Entry", "EncryptionInfo", "EncryptedPackage"), parser.MediaOOXMLEncrypted},
		{"cut off compound file", "a.doc", oleMagic, parser.MediaDOC},
		{"rich text named doc", "a.doc", `{\rtf1\ansi hello}`, parser.MediaRTF},
		{"wav by content", "a", "RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00", "audio/wav"},
		{"mp3 whose frames come late", "a.mp3", "\x00\x00\x00\x01\x02", "audio/mpeg"},
		{"subtitles by content", "a", "WEBVTT\n\n00:01.000 --> 00:02.000\nhi", "text/vtt"},
		{"calendar by content", "a", "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n", "text/calendar"},
		{"markdown", "a.MD", "# Title\n", parser.MediaMarkdown},
		{"windows path", `C:\dir.x\a.csv`, "a,b\n1,2\n", parser.MediaCSV},
		{"go", "main.go", "package main\n", "text/x-go"},
		{"json by content", "a", `{"a": [1, 2, 3]}`, parser.MediaJSON},
		{"html by content", "a", "<!DOCTYPE html><html><body>x</body></html>", parser.MediaHTML},
		{"feed by content", "feed", `<?xml version="1.0"?><rss version="2.0"><channel/></rss>`, "application/xml"},
		{"drawing", "a.svg", `<svg xmlns="http://www.w3.org/2000/svg"><text>x</text></svg>`, "image/svg+xml"},
		{"latex", "a.latex", `\documentclass{article}`, "text/x-tex"},
		{"mail by content", "a", "From: a@example.org\r\nSubject: x\r\n\r\nbody\r\n", parser.MediaEML},
		{"mailbox by content", "a", "From a@example.org Thu Jan  1 00:00:00 2026\nFrom: a@example.org\nSubject: x\n\nbody\n\nFrom b@example.org Thu Jan  1 00:00:00 2026\nFrom: b\nSubject: y\n\nbody\n", parser.MediaMBOX},
		{"one message with its separator", "a", "From a@example.org Thu Jan  1 00:00:00 2026\nFrom: a@example.org\nSubject: x\n\nbody\n", parser.MediaEML},
		{"tar", "a", tarOf(t, "a.txt"), parser.MediaTAR},
		{"gzip", "a", "\x1f\x8b\x08\x00\x00\x00\x00\x00", "application/gzip"},
		{"prose with colons is not mail", "a", "Subject: x\nThe quick brown: fox\n", parser.MediaText},
		{"utf-16 without a mark", "a.txt", "h\x00e\x00l\x00l\x00o\x00 \x00w\x00o\x00r\x00l\x00d\x00 \x00!\x00", parser.MediaText},
		{"latin-1 with a stray control", "a.txt", strings.Repeat("caf\xe9 au lait, ", 20) + "\x01", parser.MediaText},
	} {
		t.Run(c.title, func(t *testing.T) {
			if got := known.Sniff(strings.NewReader(c.body), int64(len(c.body)), c.name); got != c.want {
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
		if known.Sniff(bytes.NewReader(b), int64(len(b)), name) == "" {
			t.Error("no type")
		}
	})
}
