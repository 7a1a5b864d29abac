package eml

import (
	"testing"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/text"
)

func registry() *parser.Registry { return parser.NewRegistry(New(registry), text.New()) }

func sample() []byte {
	return []byte("From: Ann <a@example.org>\r\nTo: b@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nDate: Mon, 02 Jan 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nHello.\r\n\r\n> quoted\r\n--x\r\nContent-Type: text/plain; name=a.txt\r\nContent-Disposition: attachment; filename=a.txt\r\n\r\nInside the file.\r\n--x\r\nContent-Type: application/zip\r\nContent-Disposition: attachment; filename=b.bin\r\nContent-Transfer-Encoding: base64\r\n\r\nAAECAwQFBgc=\r\n--x--\r\n")
}

var options = parser.Options{Name: "document", MediaType: parser.MediaEML}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(registry), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte("From: a@b\nSubject: =?utf-8?q?x?=\n\nhi"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
