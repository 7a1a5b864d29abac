package epub

import (
	"testing"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

func sample() []byte {
	return formattest.Zip(
		"mimetype", `application/epub+zip`,
		"META-INF/container.xml", `<container><rootfiles><rootfile full-path="OEBPS/content.opf"/></rootfiles></container>`,
		"OEBPS/content.opf", `<package><metadata><dc:title>Book</dc:title><dc:creator>Ann</dc:creator></metadata><manifest><item id="n" href="toc.ncx"/><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/><item id="b" href="b.xhtml" media-type="application/xhtml+xml"/></manifest><spine toc="n"><itemref idref="a"/><itemref idref="b"/></spine></package>`,
		"OEBPS/toc.ncx", `<ncx><navMap><navPoint><navLabel><text>One</text></navLabel><content src="a.xhtml"/></navPoint><navPoint><navLabel><text>Two</text></navLabel><content src="b.xhtml#x"/></navPoint></navMap></ncx>`,
		"OEBPS/a.xhtml", `<html><head><title/></head><body><h1>One</h1><p>First text.</p></body></html>`,
		"OEBPS/b.xhtml", `<html><body><p>Second text.</p></body></html>`,
	)
}

var options = parser.Options{Name: "document", MediaType: parser.MediaEPUB}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
