package docx

import (
	"fmt"
	"strings"
	"testing"

	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

// numbered is a document with the given definitions and styles, of paragraphs given by
// their properties and text.
func numbered(numbering, styles string, body ...string) []byte {
	var b strings.Builder
	for i := 0; i+1 < len(body); i += 2 {
		fmt.Fprintf(&b, `<w:p><w:pPr>%s</w:pPr><w:r><w:t>%s</w:t></w:r></w:p>`, body[i], body[i+1])
	}
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="s" Type="x/styles" Target="styles.xml"/><Relationship Id="n" Type="x/numbering" Target="numbering.xml"/></Relationships>`,
		"word/numbering.xml", "<w:numbering>"+numbering+"</w:numbering>",
		"word/styles.xml", "<w:styles>"+styles+"</w:styles>",
		"word/document.xml", "<w:document><w:body>"+b.String()+"</w:body></w:document>",
	)
}

func texts(t *testing.T, content []byte) string {
	t.Helper()
	_, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), content, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range units[0].Blocks {
		out = append(out, b.Text)
	}
	return strings.Join(out, "|")
}

func lvl(i int, format, text, more string) string {
	return fmt.Sprintf(`<w:lvl w:ilvl="%d"><w:start w:val="1"/><w:numFmt w:val="%s"/>%s<w:lvlText w:val="%s"/></w:lvl>`, i, format, more, text)
}

func in(list, level int) string {
	return fmt.Sprintf(`<w:numPr><w:ilvl w:val="%d"/><w:numId w:val="%d"/></w:numPr>`, level, list)
}

// Word stores "4.2" and "Article 5" as a rule, and people search for what they see.
func TestNumbersAreCounted(t *testing.T) {
	clauses := `<w:abstractNum w:abstractNumId="7">` + lvl(0, "decimal", "%1.", "") + lvl(1, "decimal", "%1.%2", "") + lvl(2, "lowerLetter", "(%3)", "") + lvl(3, "bullet", "·", "") + `</w:abstractNum>`
	list := `<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>`
	for _, c := range []struct {
		what, numbering, styles, want string
		body                          []string
	}{
		{"levels, which go on and start anew", clauses + list, "",
			"1. Scope|1.1 Fruit|(a) quinces|(b) medlars|1.2 Trees|(a) old|A plain line|2. Price|2.1 Due|not counted|3. Term",
			[]string{in(1, 0), "Scope", in(1, 1), "Fruit", in(1, 2), "quinces", in(1, 2), "medlars", in(1, 1), "Trees", in(1, 2), "old", "", "A plain line", in(1, 0), "Price", in(1, 1), "Due", in(1, 3), "not counted", in(1, 0), "Term"}},
		{"an empty paragraph counts, a deleted one and one without a number do not", clauses + list, "", "1. a|3. b|c|4. d",
			[]string{in(1, 0), "a", in(1, 0), "", in(1, 0) + `<w:rPr><w:del w:id="1"/></w:rPr>`, "", in(1, 0), "b", in(0, 0), "c", in(1, 0), "d"}},
		{"instances count together unless one starts anew", clauses + list + `<w:num w:numId="2"><w:abstractNumId w:val="7"/></w:num><w:num w:numId="3"><w:abstractNumId w:val="7"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride></w:num>`, "",
			"1. a|2. b|5. c|6. d|7. e", []string{in(1, 0), "a", in(2, 0), "b", in(3, 0), "c", in(3, 0), "d", in(1, 0), "e"}},
		{"a changed level", clauses + `<w:num w:numId="1"><w:abstractNumId w:val="7"/><w:lvlOverride w:ilvl="0">` + lvl(0, "upperRoman", "%1", "") + `</w:lvlOverride></w:num>`, "", "I a|I.1 b", []string{in(1, 0), "a", in(1, 1), "b"}},
		{"all decimal", `<w:abstractNum w:abstractNumId="7">` + lvl(0, "upperRoman", "Article %1.", "") + lvl(1, "decimal", "%1.%2", "<w:isLgl/>") + `</w:abstractNum>` + list, "", "Article I. a|Article II. b|2.1 c", []string{in(1, 0), "a", in(1, 0), "b", in(1, 1), "c"}},
		{"a level that does not start anew", `<w:abstractNum w:abstractNumId="7">` + lvl(0, "decimal", "Part %1", "") + lvl(1, "decimal", "§ %2", `<w:lvlRestart w:val="0"/>`) + `</w:abstractNum>` + list, "", "Part 1 a|§ 1 b|Part 2 c|§ 2 d", []string{in(1, 0), "a", in(1, 1), "b", in(1, 0), "c", in(1, 1), "d"}},
		{"a level above that has not begun", clauses + list, "", "1.1 a|1. b|1.1 c", []string{in(1, 1), "a", in(1, 0), "b", in(1, 1), "c"}},
		{"Chinese", `<w:abstractNum w:abstractNumId="7">` + lvl(0, "chineseCountingThousand", "第%1条", "") + `</w:abstractNum>` + list, "", "第一条 范围|第二条 价格", []string{in(1, 0), "范围", in(1, 0), "价格"}},
		{"styles, and styles based on them", `<w:abstractNum w:abstractNumId="7">` + lvl(0, "decimal", "%1", `<w:pStyle w:val="H1"/>`) + lvl(1, "decimal", "%1.%2", `<w:pStyle w:val="H2"/>`) + `</w:abstractNum>` + list,
			`<w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style><w:style w:type="paragraph" w:styleId="H2"><w:name w:val="heading 2"/><w:pPr><w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr></w:pPr></w:style><w:style w:type="paragraph" w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="H2"/></w:style>`,
			"1 Scope|1.1 Fruit|1.2 Trees|2 Price|Preamble|2.1 Due",
			[]string{`<w:pStyle w:val="H1"/>`, "Scope", `<w:pStyle w:val="H2"/>`, "Fruit", `<w:pStyle w:val="Own"/>`, "Trees", `<w:pStyle w:val="H1"/>`, "Price", `<w:pStyle w:val="H1"/>` + in(0, 0), "Preamble", `<w:pStyle w:val="H2"/>`, "Due"}},
		{"a list that a style defines", clauses + list + `<w:abstractNum w:abstractNumId="8"><w:numStyleLink w:val="Clauses"/></w:abstractNum><w:num w:numId="2"><w:abstractNumId w:val="8"/></w:num>`,
			`<w:style w:type="numbering" w:styleId="Clauses"><w:name w:val="Clauses"/><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>`, "1. a|1.1 b", []string{in(2, 0), "a", in(2, 1), "b"}},
		{"what is not defined", list, "", "a|b", []string{in(1, 0), "a", in(9, 0), "b"}},
	} {
		if got := texts(t, numbered(c.numbering, c.styles, c.body...)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
}

// A column of a table may consist of numbers that Word counts.
func TestRowsAreNumbered(t *testing.T) {
	p := func(properties, text string) string {
		return `<w:tc><w:p><w:pPr>` + properties + `</w:pPr><w:r><w:t>` + text + `</w:t></w:r></w:p></w:tc>`
	}
	content := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="n" Type="x/numbering" Target="numbering.xml"/></Relationships>`,
		"word/numbering.xml", `<w:numbering><w:abstractNum w:abstractNumId="7">`+lvl(0, "decimal", "%1", "")+`</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num></w:numbering>`,
		"word/document.xml", `<w:document><w:body><w:tbl><w:tr>`+p(in(1, 0), "")+p("", "quince")+`</w:tr><w:tr>`+p(in(1, 0), "")+p("", "medlar")+`</w:tr></w:tbl></w:body></w:document>`)
	_, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), content, options, nil)
	if err != nil || len(units[0].Blocks) != 1 || fmt.Sprint(units[0].Blocks[0].Table.Rows) != "[[1 quince] [2 medlar]]" {
		t.Errorf("%v %+v", err, units)
	}
}

func FuzzNumbering(f *testing.F) {
	f.Add(`<w:abstractNum w:abstractNumId="7">`+lvl(0, "decimal", "%1.", "")+lvl(1, "upperRoman", "%1.%2", "")+`</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>`, uint64(0x0123))
	f.Fuzz(func(t *testing.T, definitions string, levels uint64) {
		var body []string
		for range 12 {
			body = append(body, in(1, int(levels&0xf)), "text")
			levels >>= 4
		}
		_, _, _ = formattest.Read(t, New(ocr.Config{}, noFormats), numbered(definitions, "", body...), options, nil) // it checks what it reads
	})
}

// A note and the place it belongs to have the same mark.
func TestNotesHaveTheirMarks(t *testing.T) {
	p := func(inner string) string { return `<w:p><w:r>` + inner + `</w:r></w:p>` }
	content := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="f" Type="x/footnotes" Target="footnotes.xml"/><Relationship Id="e" Type="x/endnotes" Target="endnotes.xml"/></Relationships>`,
		"word/document.xml", `<w:document><w:body>`+p(`<w:t>Second first</w:t><w:footnoteReference w:id="7"/><w:t>, then the first</w:t><w:footnoteReference w:id="2"/><w:t>.</w:t>`)+
			p(`<w:t>At the end</w:t><w:endnoteReference w:id="2"/><w:t> and with a star</w:t><w:footnoteReference w:customMarkFollows="1" w:id="3"/><w:t>*</w:t>`)+`</w:body></w:document>`,
		"word/footnotes.xml", `<w:footnotes><w:footnote w:type="separator" w:id="0">`+p(`<w:t>no</w:t>`)+`</w:footnote><w:footnote w:id="2">`+p(`<w:footnoteRef/><w:t> Smith</w:t>`)+p(`<w:t>more of it</w:t>`)+`</w:footnote><w:footnote w:id="3">`+p(`<w:t>* star</w:t>`)+`</w:footnote><w:footnote w:id="7">`+p(`<w:t>Jones</w:t>`)+`</w:footnote></w:footnotes>`,
		"word/endnotes.xml", `<w:endnotes><w:endnote w:id="2">`+p(`<w:t>Endnote</w:t>`)+`</w:endnote></w:endnotes>`)
	if got, want := texts(t, content), "Second first[1], then the first[2].|At the end[i] and with a star*|[i] Endnote|[2] Smith|more of it|* star|[1] Jones"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
