package epub

import (
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
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
	plan, units, err := formattest.Read(t, New(ocr.Config{}), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(ocr.Config{}), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add(illustrated("a picture"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(ocr.Config{}), b, options, nil) // it checks what it reads
	})
}

func illustrated(picture string) []byte {
	return formattest.Zip(
		"META-INF/container.xml", `<container><rootfiles><rootfile full-path="OEBPS/c.opf"/></rootfiles></container>`,
		"OEBPS/c.opf", `<package><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/><item id="b" href="b.xhtml" media-type="application/xhtml+xml"/><item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine></package>`,
		"OEBPS/a.xhtml", `<html><body><svg xmlns="http://www.w3.org/2000/svg"><image xlink:href="img/a%20b.png"/></svg></body></html>`,
		"OEBPS/b.xhtml", `<html><body><table><tr><th>Sign</th><th>Means</th></tr><tr><td><img src="img/a%20b.png" alt="A gate"/></td><td>Stop</td></tr></table><p>See <img alt="" src="http://elsewhere/x.png"/> there.</p></body></html>`,
		"OEBPS/c.xhtml", `<html><body><p>No picture.</p></body></html>`,
		"OEBPS/img/a b.png", picture,
	)
}

// The picture of a cover is one of an empty part; that of a cell follows its
// table. Where a picture changes, so do the parts that show it.
func TestPicturesBelongToTheirParts(t *testing.T) {
	plan, units, err := formattest.Read(t, New(ocr.Config{}), illustrated("one"), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	if u := units[0]; u.Status != sheaf.UnitBlank || len(u.Blocks) != 1 || u.Blocks[0].Picture == "" {
		t.Errorf("the cover: %+v", u)
	}
	b := units[1].Blocks
	if len(b) != 3 || b[0].Table == nil || b[0].Table.Rows[0][0] != "A gate" || b[1].Picture != units[0].Blocks[0].Picture || b[2].Picture != "" {
		t.Errorf("the table: %+v", b)
	}
	other, _, err := formattest.Read(t, New(ocr.Config{}), illustrated("two"), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, same := range []bool{false, false, true} {
		if (plan.Fingerprints[i] == other.Fingerprints[i]) != same {
			t.Errorf("part %d with another picture: same %v", i+1, !same)
		}
	}
}
