package formats

import (
	"encoding/binary"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/internal/formattest"
)

const relations = `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="%s"/></Relationships>`

// wordFile is a document of which each paragraph is a line of body, or XML.
func wordFile(rels string, parts []string, body ...string) []byte {
	var b strings.Builder
	b.WriteString("<w:document><w:body>")
	for _, line := range body {
		switch {
		case strings.HasPrefix(line, "<"):
			b.WriteString(line)
		case strings.HasPrefix(line, "# "):
			b.WriteString(`<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr><w:r><w:t>` + line[2:] + `</w:t></w:r></w:p>`)
		default:
			b.WriteString("<w:p><w:r><w:t>" + line + "</w:t></w:r></w:p>")
		}
	}
	b.WriteString("</w:body></w:document>")
	return formattest.Zip(append([]string{
		"[Content_Types].xml", "<Types/>",
		"_rels/.rels", strings.Replace(relations, "%s", "word/document.xml", 1),
		"word/_rels/document.xml.rels", "<Relationships>" + rels + "</Relationships>",
		"word/document.xml", b.String()}, parts...)...)
}

// deckOf is a deck of one slide, with its relationships and more parts.
func deckOf(rels, slide string, parts ...string) []byte {
	return formattest.Zip(append([]string{
		"[Content_Types].xml", "<Types/>",
		"_rels/.rels", strings.Replace(relations, "%s", "ppt/presentation.xml", 1),
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId r:id="s1"/></p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/></p:presentation>`,
		"ppt/slides/_rels/slide1.xml.rels", "<Relationships>" + rels + "</Relationships>",
		"ppt/slides/slide1.xml", "<p:sld><p:cSld><p:spTree>" + slide + "</p:spTree></p:cSld></p:sld>"}, parts...)...)
}

// blocksOf is what is read of the first unit of a file.
func blocksOf(t *testing.T, content, name string) []sheaf.Block {
	t.Helper()
	_, units, err := readAny(t, []byte(content), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return units[0].Blocks
}

// packed is a file as the packager of Windows embeds it ([MS-OLEDS] 2.3.6).
func packed(label, content string) []byte {
	b := make([]byte, 4, 100)
	b = append(b, 2, 0)
	b = append(b, label+"\x00C:\\Users\\q\\"+label+"\x00"...)
	b = append(b, 0, 0, 3, 0)
	b = binary.LittleEndian.AppendUint32(b, 5)
	b = append(b, "temp\x00"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
	b = append(b, content...)
	return formattest.Compound(formattest.Folder("Root Entry", formattest.Stream("\x01Ole10Native", b)))
}

func object(id string) string {
	return `<w:p><w:r><w:object><v:shape/><o:OLEObject Type="Embed" ProgID="Visio.Drawing.15" r:id="` + id + `"/></w:object></w:r></w:p>`
}

func TestEmbeddedFilesAreRead(t *testing.T) {
	inner := wordFile("", nil, "# Terms", "Payment within 41 days of delivery")
	rel := func(id, kind, target string) string {
		return `<Relationship Id="` + id + `" Type="x/` + kind + `" Target="` + target + `"/>`
	}
	rels := rel("a", "package", "embeddings/Terms.docx") + rel("b", "oleObject", "embeddings/oleObject1.bin") + rel("c", "oleObject", "embeddings/oleObject2.bin") +
		rel("d", "oleObject", "embeddings/oleObject3.bin") + rel("e", "oleObject", "embeddings/oleObject4.bin") + rel("f", "aFChunk", "afchunk.docx") + rel("g", "oleObject", "embeddings/gone.bin")
	parts := []string{
		"word/embeddings/Terms.docx", string(inner),
		"word/embeddings/oleObject1.bin", string(packed("prices.csv", "fruit,price\nquince,4.10\nmedlar,5.20\n")),
		"word/embeddings/oleObject2.bin", string(formattest.Compound(formattest.Folder("Root Entry", formattest.Stream("Package", wordFile("", nil, "Held by a package"))))),
		"word/embeddings/oleObject3.bin", string(formattest.Compound(formattest.Folder("Root Entry", formattest.Stream("Equation Native", []byte("x=y"))))),
		"word/embeddings/oleObject4.bin", string(formattest.Compound(formattest.Folder("Root Entry", formattest.Stream("VisioDocument", []byte("drawing"))))),
		"word/afchunk.docx", string(wordFile("", nil, "# Merged chapter", "Its text")),
	}
	content := wordFile(rels, parts, "# Contract", "Before", object("a"), object("b"), object("c"), object("d"), object("e"), object("g"), `<w:altChunk r:id="f"/>`, "After")
	plan, units, err := readAny(t, content, "contract.docx")
	if err != nil {
		t.Fatal(err)
	}
	got := show(units)
	at := 0
	for _, want := range []string{"Contract", "Before", "Terms", "Payment within 41 days of delivery", "quince", "Held by a package", "Merged chapter", "Its text", "After"} {
		n := strings.Index(got[at:], want)
		if n < 0 {
			t.Fatalf("%q is missing after %q:\n%s", want, got[:at], got)
		}
		at += n
	}
	var headings []string
	for _, h := range plan.Outline {
		headings = append(headings, h.Title)
	}
	if s := strings.Join(headings, "|"); s != "Contract|Merged chapter" {
		t.Errorf("headings %s", s) // of what is shown, none; of what is merged, all
	}
	if w := plan.Warnings; len(w) != 1 || w[0].Code != "embedded_ignored" || !strings.Contains(w[0].Message, "oleObject4.bin is of a program whose files cannot be read (Visio.Drawing.15)") {
		t.Errorf("%+v", w)
	}
}

func TestFilesOnSlidesAreRead(t *testing.T) {
	deck := func(days string) []byte {
		return deckOf(`<Relationship Id="o1" Type="x/package" Target="../embeddings/Terms.docx"/>`, `<p:sp><p:txBody><a:p><a:r><a:t>Terms of sale</a:t></a:r></a:p></p:txBody></p:sp>
<p:graphicFrame><p:xfrm><a:off x="127000" y="254000"/><a:ext cx="1270000" cy="635000"/></p:xfrm><a:graphic><a:graphicData><mc:AlternateContent><mc:Choice><p:oleObj progId="Word.Document.12" r:id="o1"><p:embed/></p:oleObj></mc:Choice><mc:Fallback><p:oleObj r:id="o1"><p:embed/></p:oleObj></mc:Fallback></mc:AlternateContent></a:graphicData></a:graphic></p:graphicFrame>`,
			"ppt/embeddings/Terms.docx", string(wordFile("", nil, "# Terms", "Payment within "+days+" days")))
	}
	plan, units, err := readAny(t, deck("41"), "sale.pptx")
	if err != nil {
		t.Fatal(err)
	}
	last := units[0].Blocks[len(units[0].Blocks)-1]
	want := sheaf.Span{End: len(last.Text), Box: sheaf.Box{Page: 1, X0: 10, Y0: 20, X1: 110, Y1: 70}}
	if last.Text != "Payment within 41 days" || len(units[0].Blocks) != 3 || len(last.Spans) != 1 || last.Spans[0] != want {
		t.Errorf("%+v", units[0].Blocks)
	}
	other, _, err := readAny(t, deck("14"), "sale.pptx")
	if err != nil || other.Fingerprints[0] == plan.Fingerprints[0] {
		t.Errorf("a changed file does not change its slide: %v", err)
	}
}

// A file that holds itself, or many, ends.
func TestEmbeddedFilesAreBounded(t *testing.T) {
	inner := wordFile("", nil, "innermost")
	rels := `<Relationship Id="a" Type="x/package" Target="embeddings/a.docx"/>`
	for range 6 {
		inner = wordFile(rels, []string{"word/embeddings/a.docx", string(inner)}, "around it", object("a"))
	}
	plan, units, err := readAny(t, inner, "deep.docx")
	if err != nil || strings.Contains(show(units), "innermost") || strings.Count(show(units), "around it") != 4 || len(plan.Warnings) != 1 {
		t.Errorf("%v %s %+v", err, show(units), plan)
	}
	var body []string
	for range 80 {
		body = append(body, object("a"))
	}
	plan, units, err = readAny(t, wordFile(rels, []string{"word/embeddings/a.docx", string(wordFile("", nil, "again"))}, body...), "many.docx")
	if err != nil || strings.Count(show(units), "again") != 50 || len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0].Message, "30") {
		t.Errorf("%v %d %+v", err, strings.Count(show(units), "again"), plan.Warnings)
	}
	long := strings.Repeat("0123456789 ", 30_000)
	plan, units, err = readAny(t, wordFile(rels, []string{"word/embeddings/a.docx", string(wordFile("", nil, long, "the end"))}, "Before", object("a"), "After"), "long.docx")
	if err != nil || strings.Contains(show(units), "the end") || !strings.Contains(show(units), "After") || len(plan.Warnings) != 1 {
		t.Errorf("%v %+v", err, plan.Warnings)
	}
}
