package docx

import (
	"slices"
	"strings"
	"testing"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

func sample() []byte {
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="a" Type="x/styles" Target="styles.xml"/><Relationship Id="b" Type="x/footnotes" Target="footnotes.xml"/></Relationships>`,
		"word/styles.xml", `<w:styles><w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/></w:style><w:style w:type="paragraph" w:styleId="Own"><w:name w:val="Mine"/><w:basedOn w:val="H1"/></w:style></w:styles>`,
		"word/footnotes.xml", `<w:footnotes><w:footnote w:type="separator"><w:p><w:r><w:t>-</w:t></w:r></w:p></w:footnote><w:footnote w:id="1"><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>`,
		"word/document.xml", `<w:document><w:body><w:p><w:pPr><w:pStyle w:val="Own"/></w:pPr><w:r><w:t>Title &amp; more</w:t></w:r></w:p><w:p><w:r><w:t>Kept </w:t></w:r><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p><w:p><w:pPr><w:numPr><w:ilvl w:val="1"/><w:numId w:val="2"/></w:numPr></w:pPr><w:r><w:t>item</w:t></w:r></w:p><w:tbl><w:tr><w:trPr><w:tblHeader/></w:trPr><w:tc><w:p><w:r><w:t>A</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>B</w:t></w:r></w:p></w:tc></w:tr><w:tr><w:tc><w:tcPr><w:vMerge w:val="restart"/></w:tcPr><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc></w:tr><w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc><w:tc><w:p><w:r><w:t>3</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:p><w:r><w:drawing><wp:docPr descr="A chart of sales"/><a:blip/></w:drawing></w:r></w:p></w:body></w:document>`,
	)
}

var options = parser.Options{Name: "document", MediaType: parser.MediaDOCX}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestChartsAreReadByTheirFigures(t *testing.T) {
	document := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="c1" Type="x/chart" Target="charts/chart1.xml"/></Relationships>`,
		"word/document.xml", `<w:document><w:body><w:p><w:r><w:t>Before</w:t></w:r><w:r><w:drawing><c:chart r:id="c1"/></w:drawing></w:r></w:p><w:p><w:r><w:drawing><c:chart r:id="none"/></w:drawing></w:r></w:p></w:body></w:document>`,
		"word/charts/chart1.xml", `<c:chartSpace><c:ser><c:tx><c:v>Tons</c:v></c:tx><c:cat><c:pt idx="0"><c:v>Quince</c:v></c:pt></c:cat><c:val><c:pt idx="0"><c:v>12</c:v></c:pt></c:val></c:ser></c:chartSpace>`,
	)
	_, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), document, options, nil)
	if err != nil || len(units) != 1 || len(units[0].Blocks) != 2 {
		t.Fatalf("%+v %v", units, err)
	}
	for _, b := range units[0].Blocks {
		if b.Table != nil && (b.Table.Columns[1] != "Tons" || b.Table.Rows[0][0] != "Quince" || b.Table.Rows[0][1] != "12") || b.Table == nil && b.Text != "Before" {
			t.Errorf("%+v", b)
		}
	}
}

// The text of a diagram stands where the diagram does, once. Comments are named, not
// read.
func TestDiagramsAreReadAndCommentsNamed(t *testing.T) {
	document := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="d1" Type="x/diagramData" Target="diagrams/data1.xml"/><Relationship Id="c" Type="x/comments" Target="comments.xml"/></Relationships>`,
		"word/document.xml", `<w:document><w:body><w:p><w:r><w:t>Before</w:t></w:r></w:p><w:p><w:r><w:drawing><dgm:relIds r:dm="d1" r:lo="x"/></w:drawing></w:r></w:p><w:p><w:r><w:drawing><dgm:relIds r:dm="d1"/></w:drawing><w:drawing><dgm:relIds r:dm="none"/></w:drawing></w:r></w:p><w:p><w:r><w:t>After</w:t></w:r></w:p></w:body></w:document>`,
		"word/diagrams/data1.xml", `<dgm:dataModel><dgm:ptLst><dgm:pt modelId="1"/><dgm:pt modelId="2"><dgm:t><a:p><a:r><a:t>Sow in </a:t></a:r><a:r><a:t>March</a:t></a:r></a:p></dgm:t></dgm:pt><dgm:pt><dgm:t><a:p><a:r><a:t>Reap</a:t></a:r></a:p><a:p><a:r><a:t>in August</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>`,
		"word/comments.xml", `<w:comments><w:comment w:id="0" w:author="A"><w:p><w:r><w:t>Really?</w:t></w:r></w:p></w:comment></w:comments>`,
	)
	plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), document, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range units[0].Blocks {
		got = append(got, b.Text)
	}
	if want := []string{"Before", "Sow in March", "Reap\nin August", "After"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	warnings := append(slices.Clone(plan.Warnings), units[0].Warnings...)
	if len(warnings) != 2 || warnings[0].Code != "diagram_damaged" || warnings[1].Code != "comments_ignored" || !strings.Contains(warnings[1].Message, "(1)") {
		t.Errorf("warnings %+v", warnings)
	}
}

// What programs write into a file of its own inside the document is read where it
// stands, in each of the forms that they use; what cannot be read is counted.
func TestIncludedFilesAreRead(t *testing.T) {
	document := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="h" Type="x/aFChunk" Target="/word/a.html"/><Relationship Id="w" Type="x/aFChunk" Target="w.html"/><Relationship Id="m" Type="x/aFChunk" Target="b.mht"/><Relationship Id="r" Type="x/aFChunk" Target="c.rtf"/><Relationship Id="t" Type="x/aFChunk" Target="d.txt"/><Relationship Id="d" Type="x/aFChunk" Target="e.docx"/><Relationship Id="x" Type="x/aFChunk" TargetMode="External" Target="http://example.org/f.html"/></Relationships>`,
		"word/document.xml", `<w:document><w:body><w:p><w:r><w:t>Before</w:t></w:r></w:p><w:altChunk r:id="h"/><w:altChunk r:id="w"/><w:altChunk r:id="m"/><w:p><w:r><w:t>Between</w:t></w:r></w:p><w:altChunk r:id="r"/><w:altChunk r:id="t"/><w:altChunk r:id="d"/><w:altChunk r:id="x"/><w:altChunk r:id="none"/></w:body></w:document>`,
		"word/w.html", "\xff\xfe<\x00p\x00>\x00W\x00i\x00d\x00e\x00",
		"word/a.html", "<html><head><meta charset=iso-8859-1></head><body><h2>Harvest</h2><p>Caf\xe9 in the orchard</p></body></html>",
		"word/b.mht", "MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=x\r\n\r\n--x\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<p>Gr=C3=BC=C3=9Fe</p>\r\n--x--\r\n",
		"word/c.rtf", `{\rtf1\ansi Rich text}`,
		"word/d.txt", "First line\r\n\r\nSecond",
		"word/e.docx", "PK\x03\x04",
	)
	plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), document, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range units[0].Blocks {
		got = append(got, b.Text)
	}
	if want := []string{"Before", "Harvest", "Café in the orchard", "Wide", "Grüße", "Between", "Rich text", "First line", "Second"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if w := plan.Warnings; len(w) != 2 || w[0].Code != "embedded_ignored" || !strings.Contains(w[0].Message, "e.docx") || w[1].Code != "embedded_ignored" || !strings.Contains(w[1].Message, "includes (2)") {
		t.Errorf("warnings %+v", plan.Warnings)
	}
}

// A document whose only text is in its headers and footers has that.
func TestHeadersAreReadWhereThereIsNothingElse(t *testing.T) {
	for body, want := range map[string]string{"": "The letterhead|Page foot", "Dear Ann": "Dear Ann"} {
		_, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), formattest.Zip(
			"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
			"word/_rels/document.xml.rels", `<Relationships><Relationship Id="f" Type="x/footer" Target="footer1.xml"/><Relationship Id="h" Type="x/header" Target="header1.xml"/></Relationships>`,
			"word/document.xml", `<w:document><w:body><w:p><w:r><w:t>`+body+`</w:t></w:r></w:p></w:body></w:document>`,
			"word/footer1.xml", `<w:ftr><w:p><w:r><w:t>Page foot</w:t></w:r></w:p></w:ftr>`,
			"word/header1.xml", `<w:hdr><w:p><w:r><w:t>The letterhead</w:t></w:r></w:p></w:hdr>`,
		), options, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range units[0].Blocks {
			got = append(got, b.Text)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: %q, want %s", body, got, want)
		}
	}
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(ocr.Config{}, noFormats), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add(illustrated())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(ocr.Config{}, noFormats), b, options, nil) // it checks what it reads
	})
}

// illustrated has pictures with and without a description, in a table, of a
// kind that is not drawn, and one whose part is missing.
func illustrated() []byte {
	blip := func(id, descr string) string {
		return `<w:p><w:r><w:drawing><wp:docPr descr="` + descr + `"/><a:blip r:embed="` + id + `"/></w:drawing></w:r></w:p>`
	}
	cell := func(content string) string { return `<w:tc>` + content + `</w:tc>` }
	p := func(text string) string { return `<w:p><w:r><w:t>` + text + `</w:t></w:r></w:p>` }
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="a" Type="x/image" Target="media/a.png"/><Relationship Id="b" Type="x/image" Target="media/b.jpeg"/><Relationship Id="m" Type="x/image" Target="media/m.emf"/><Relationship Id="gone" Type="x/image" Target="media/gone.png"/></Relationships>`,
		"word/document.xml", `<w:document><w:body>`+p("Before")+blip("a", "")+blip("b", "A barn in June")+blip("m", "")+blip("gone", "")+
			`<w:p><w:r><w:pict><v:imagedata r:id="b" title="An old barn"/></w:pict></w:r></w:p>`+
			`<w:tbl><w:tr>`+cell(p("Sign")+blip("a", ""))+cell(p("Meaning"))+`</w:tr><w:tr>`+cell(blip("b", "A gate"))+cell(p("Stop"))+`</w:tr></w:tbl></w:body></w:document>`,
		"word/media/a.png", "one picture", "word/media/b.jpeg", "another", "word/media/m.emf", "a drawing",
	)
}

func TestPicturesAreNamedWhereTheyStand(t *testing.T) {
	_, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), illustrated(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	names := map[string]string{}
	for _, k := range units[0].Blocks {
		if k.Picture != "" && names[k.Picture] == "" {
			names[k.Picture] = string(rune('a' + len(names)))
		}
		text := k.Text
		if k.Table != nil {
			text = strings.Join(append(slices.Clone(k.Table.Columns), slices.Concat(k.Table.Rows...)...), "|")
		}
		got = append(got, string(k.Kind)+":"+text+":"+names[k.Picture])
	}
	want := []string{"paragraph:Before:", "image::a", "image:A barn in June:b", "image:An old barn:b", "table:Sign|Meaning|A gate|Stop:", "image::a", "image::b"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if w := units[0].Warnings; len(w) != 0 {
		t.Errorf("%+v", w)
	}
}

// noFormats finds no reader of embedded files; package formats tests those.
func noFormats() *parser.Registry { return parser.NewRegistry() }
