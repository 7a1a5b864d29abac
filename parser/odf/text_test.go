package odf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

func noFormats() *parser.Registry { return parser.NewRegistry() }

var options = parser.Options{Name: "document.odt", MediaType: parser.MediaODT}

const namespaces = `xmlns:office="o" xmlns:text="t" xmlns:table="tb" xmlns:style="s" xmlns:draw="d" xmlns:svg="v" xmlns:xlink="x"`

// pack makes a file of the styles and the body of its content, and of other parts.
func pack(styles, body string, parts ...string) []byte {
	return formattest.Zip(append([]string{
		"mimetype", parser.MediaODT,
		"content.xml", `<?xml version="1.0" encoding="UTF-8"?><office:document-content ` + namespaces + `><office:automatic-styles>` + styles +
			`</office:automatic-styles><office:body><office:text>` + body + `</office:text></office:body></office:document-content>`,
	}, parts...)...)
}

func load(t *testing.T, content []byte) (*parser.Plan, sheaf.UnitResult) {
	t.Helper()
	plan, units, err := formattest.Read(t, NewText(ocr.Config{}, noFormats), content, options, nil)
	if err != nil || len(units) != 1 {
		t.Fatal(units, err)
	}
	return plan, units[0]
}

// lines shows blocks, one a line, with their level.
func lines(blocks []sheaf.Block) (out []string) {
	for _, b := range blocks {
		s := string(b.Kind)
		if b.Level > 0 {
			s += fmt.Sprint(b.Level)
		}
		s += ": " + b.Text
		if t := b.Table; t != nil {
			s += t.Name + strings.Join(t.Columns, "|")
			for _, row := range t.Rows {
				s += " / " + strings.Join(row, "|")
			}
		}
		for _, l := range b.Links {
			s += " <" + l.URI + ">"
		}
		out = append(out, s)
	}
	return out
}

func expect(t *testing.T, content []byte, want ...string) (*parser.Plan, sheaf.UnitResult) {
	t.Helper()
	plan, u := load(t, content)
	if got := lines(u.Blocks); !slices.Equal(got, want) {
		t.Errorf("read\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return plan, u
}

// A file that LibreOffice has written.
func TestGolden(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "sample.odt"))
	if err != nil {
		t.Fatal(err)
	}
	plan, units, err := formattest.Read(t, NewText(ocr.Config{}, noFormats), content, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestTextIsReadAsItIsShown(t *testing.T) {
	plan, _ := expect(t, pack(
		`<style:style style:name="P1" style:family="paragraph" style:parent-style-name="Title"/>
		<style:style style:name="P2" style:family="paragraph" style:parent-style-name="Preformatted_20_Text"/>
		<style:style style:name="Preformatted_20_Text" style:display-name="Preformatted Text" style:family="paragraph"/>
		<style:style style:name="Q" style:family="paragraph" style:parent-style-name="Quotations"/><style:style style:name="Quotations" style:family="paragraph"/>
		<style:style style:name="Title" style:family="paragraph"/>
		<style:style style:name="Own" style:family="paragraph" style:default-outline-level="3"/>
		<style:style style:name="T1" style:family="text"><style:text-properties text:display="none"/></style:style>
		<style:style style:name="T2" style:family="text"><style:text-properties style:font-name="Wingdings"/></style:style>`,
		`<office:forms form:automatic-focus="false"><form:form><text:p>of a form</text:p></form:form></office:forms>
		<text:tracked-changes><text:changed-region><text:deletion><text:p>deleted</text:p></text:deletion></text:changed-region></text:tracked-changes>
		<text:p text:style-name="P1">A   title
of lines</text:p>
		<text:h text:outline-level="2">Part &amp; more</text:h>
		<text:p>Two<text:s text:c="2"/>spaces,<text:tab/>a tab<text:line-break/>and <text:span>a <text:span text:style-name="T1">hidden </text:span>word</text:span>,
			<text:change-start/>inserted<text:change-end/>.<office:annotation><text:p>Really?</text:p></office:annotation></text:p>
		<text:p text:style-name="P2">line 1</text:p><text:p text:style-name="P2"><text:s text:c="4"/>line 2</text:p>
		<text:p text:style-name="Q">Said somebody.</text:p>
		<text:p text:style-name="Own">By its style a heading</text:p>
		<text:p>See <text:a xlink:href="https://example.org/a">the page</text:a> and <text:a xlink:href="#here">here</text:a>.</text:p>
		<text:p><text:span text:style-name="T2">&#xF0FC;</text:span> done, <field:fieldmark field:type="vnd.oasis.opendocument.field.FORMCHECKBOX"><field:param field:name="Checkbox_Checked" field:value="true"/></field:fieldmark>ticked</text:p>
		<text:section text:display="none"><text:p>of a hidden section</text:p></text:section>
		<text:section><text:p>of a section</text:p></text:section>
		<text:table-of-content><text:table-of-content-source><text:index-title-template>Contents</text:index-title-template></text:table-of-content-source><text:index-body><text:p text:style-name="Own">Part 2</text:p></text:index-body></text:table-of-content>
		<text:p><text:ruby><text:ruby-base>漢字</text:ruby-base><text:ruby-text>kanji</text:ruby-text></text:ruby></text:p>`),
		"heading1: A title of lines",
		"heading2: Part & more",
		"paragraph: Two spaces, a tab\nand a word, inserted.",
		"code: line 1\n    line 2",
		"quote: Said somebody.",
		"heading3: By its style a heading",
		"paragraph: See the page and here. <https://example.org/a>",
		"paragraph: ✓ done, ☒ ticked",
		"paragraph: of a section",
		"paragraph: Part 2",
		"paragraph: 漢字",
	)
	if w := plan.Warnings; len(w) != 1 || w[0].Code != "comments_ignored" {
		t.Errorf("warnings %+v", w)
	}
}

func TestListsAreNumberedAsShown(t *testing.T) {
	const style = `<text:list-style style:name="L"><text:list-level-style-number text:level="1" style:num-suffix="." style:num-format="1"/><text:list-level-style-number text:level="2" style:num-prefix="(" style:num-suffix=")" style:num-format="a"/><text:list-level-style-number text:level="3" style:num-suffix="." style:num-format="1" text:display-levels="3"/></text:list-style>
		<text:list-style style:name="B"><text:list-level-style-bullet text:level="1" text:bullet-char="•"/></text:list-style>
		<text:list-style style:name="X"><text:list-level-style-number text:level="1" loext:num-list-format="Part %1%:" style:num-format="I" text:start-value="4"/></text:list-style>`
	item := func(inner string) string { return "<text:list-item>" + inner + "</text:list-item>" }
	p := func(text string) string { return "<text:p>" + text + "</text:p>" }
	expect(t, pack(style,
		`<text:list xml:id="one" text:style-name="L">`+item(p("first")+p("more of it"))+item(p("second")+`<text:list>`+item(p("a"))+item(p("b")+`<text:list>`+item(p("deep"))+`</text:list>`)+`</text:list>`)+item(p(""))+`</text:list>`+
			p("between")+
			`<text:list text:continue-numbering="true" text:style-name="L">`+item(`<text:list>`+item(p("goes on"))+`</text:list>`)+item(p("fourth"))+`</text:list>`+
			`<text:list text:style-name="L">`+item(p("anew"))+`<text:list-item text:start-value="7">`+p("seventh")+`</text:list-item></text:list>`+
			`<text:list text:continue-list="one" text:style-name="L">`+item(p("fifth"))+`<text:list-header>`+p("no number")+`</text:list-header></text:list>`+
			`<text:list text:style-name="B">`+item(p("bullet"))+`</text:list>`+
			`<text:list text:style-name="X">`+item(p("roman"))+`</text:list>`),
		"list_item1: 1. first", "list_item1: more of it", "list_item1: 2. second", "list_item2: (a) a", "list_item2: (b) b", "list_item3: 2.b.1. deep",
		"paragraph: between",
		"list_item2: (a) goes on", "list_item1: 4. fourth",
		"list_item1: 1. anew", "list_item1: 7. seventh",
		"list_item1: 5. fifth", "list_item1: no number",
		"list_item1: bullet",
		"list_item1: Part IV: roman",
	)
	outline := `<office:document-styles><office:styles><text:outline-style><text:outline-level-style text:level="1" style:num-format="1"/><text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/></text:outline-style></office:styles></office:document-styles>`
	h := func(level int, text, attr string) string {
		return fmt.Sprintf(`<text:h text:outline-level="%d" %s>%s</text:h>`, level, attr, text)
	}
	expect(t, pack("", h(1, "One", "")+h(2, "Sub", "")+h(2, "Sub", "")+h(1, "Two", "")+h(2, "Sub", "")+h(1, "Preface", `text:is-list-header="true"`)+h(3, "Deep", ""), "styles.xml", outline),
		"heading1: 1 One", "heading2: 1.1 Sub", "heading2: 1.2 Sub", "heading1: 2 Two", "heading2: 2.1 Sub", "heading1: Preface", "heading3: Deep")
}

func TestTables(t *testing.T) {
	cell := func(text string, attrs ...string) string {
		return "<table:table-cell " + strings.Join(attrs, " ") + "><text:p>" + text + "</text:p></table:table-cell>"
	}
	row := func(cells ...string) string {
		return "<table:table-row>" + strings.Join(cells, "") + "</table:table-row>"
	}
	const covered = "<table:covered-table-cell><text:p>was here</text:p></table:covered-table-cell>"
	expect(t, pack(`<style:style style:name="H" style:family="paragraph" style:parent-style-name="Table_20_Heading"/><style:style style:name="Table_20_Heading" style:display-name="Table Heading" style:family="paragraph"/>`,
		"<table:table><table:table-header-rows>"+row(cell("Group", `table:number-columns-spanned="2"`), covered, cell("C"))+row(cell("A"), cell("B"), cell(""))+"</table:table-header-rows>"+
			row(cell("tall", `table:number-rows-spanned="2"`), cell("1"), cell("2"))+row(covered, cell("3"), cell("<text:a xlink:href='https://example.org'>4</text:a>"))+row(cell("x", `table:number-columns-repeated="3"`))+"</table:table>"+
			"<table:table>"+row(strings.ReplaceAll(cell("Fruit")+cell("Tons"), "<text:p>", `<text:p text:style-name="H">`))+row(cell("Quince"), cell("12"))+"</table:table>"+
			`<table:table table:use-first-row-styles="true">`+row(cell("K"), cell("V"))+row(cell("k"), "<table:table-cell><table:table>"+row(cell("in"), cell("ner"))+row(cell("a"), cell("b"))+"</table:table></table:table-cell>")+"</table:table>"+
			"<table:table>"+row("<table:table-cell><text:h text:outline-level='1'>In a frame</text:h><text:p>Prose.</text:p></table:table-cell>")+"</table:table>"),
		"table: Group A|Group B|C / tall|1|2 / tall|3|4 / x|x|x <https://example.org>",
		"table: Fruit|Tons / Quince|12",
		"table: K|V / k|in | ner\na | b",
		"heading1: In a frame", "paragraph: Prose.",
	)
	// What sheets hold up to their last column and row is not built.
	_, u := load(t, pack("", "<table:table>"+row(cell("a"), cell("", `table:number-columns-repeated="16384"`))+`<table:table-row table:number-rows-repeated="1048576">`+cell("b")+"</table:table-row></table:table>"))
	if tb := u.Blocks[0].Table; tb == nil || len(tb.Columns) > 1 || len(tb.Rows) != 2 {
		t.Errorf("%+v", u.Blocks)
	}
}

func TestNotesPicturesAndObjects(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n and the rest"
	object := func(body string) string {
		return "<office:document-content " + namespaces + "><office:body>" + body + "</office:body></office:document-content>"
	}
	frame := func(inner string) string { return "<draw:frame>" + inner + "</draw:frame>" }
	plan, u := expect(t, pack("",
		`<text:p>Noted<text:note text:note-class="footnote"><text:note-citation>0</text:note-citation><text:note-body><text:p>At the foot.</text:p><text:p>And more.</text:p></text:note-body></text:note> twice<text:note text:note-class="endnote"><text:note-citation>0</text:note-citation><text:note-body><text:p>At the end.</text:p></text:note-body></text:note>, once<text:note><text:note-citation text:label="*">*</text:note-citation><text:note-body><text:p>Marked.</text:p></text:note-body></text:note>.</text:p>`+
			`<text:p>`+frame(`<draw:image xlink:href="Pictures/1.png"/><svg:title>Short</svg:title><svg:desc>A quince in a bowl</svg:desc>`)+`with a picture`+frame(`<draw:image xlink:href="Pictures/1.png"/>`)+`</text:p>`+
			`<text:p>around`+frame(`<draw:text-box><text:p>In a box</text:p></draw:text-box>`)+` it</text:p>`+
			`<text:p><draw:custom-shape><svg:desc>An arrow to the right</svg:desc><text:p>On a shape</text:p></draw:custom-shape></text:p>`+
			`<text:p>`+frame(`<draw:object xlink:href="./Object 1"/><draw:image xlink:href="./ObjectReplacements/Object 1"/>`)+`</text:p>`+
			`<text:p>where `+frame(`<draw:object xlink:href="./Object 2"/><draw:image xlink:href="./ObjectReplacements/Object 2"/>`)+` holds</text:p>`+
			`<text:p>`+frame(`<draw:object xlink:href="./Object 3"/><draw:image xlink:href="./ObjectReplacements/Object 3"/>`)+`</text:p>`+
			`<text:p>`+frame(`<draw:object xlink:href="../../content.xml"/><svg:desc>Of an object that is missing</svg:desc>`)+`</text:p>`,
		"Pictures/1.png", png,
		"Object 1/content.xml", object(`<office:chart><chart:chart><chart:title><text:p>Harvest</text:p></chart:title><table:table table:name="local-table"><table:table-header-rows><table:table-row><table:table-cell/><table:table-cell><text:p>Tons</text:p></table:table-cell></table:table-row></table:table-header-rows><table:table-row><table:table-cell><text:p>Quince</text:p></table:table-cell><table:table-cell><text:p>12</text:p></table:table-cell></table:table-row></table:table></chart:chart></office:chart>`),
		"Object 2/content.xml", `<math><semantics><mrow><mi>a</mi><mo>=</mo><mn>2</mn></mrow><annotation encoding="StarMath">a = 2</annotation></semantics></math>`,
		"Object 3/content.xml", object(`<office:text><text:h text:outline-level="1">Within</text:h><text:p>`+frame(`<draw:object xlink:href="./Object 1"/>`)+`a text</text:p></office:text>`),
		"meta.xml", `<office:document-meta><office:meta><meta:initial-creator>Ada</meta:initial-creator><dc:creator>Bob</dc:creator><dc:title>The title</dc:title><meta:keyword>quince</meta:keyword></office:meta></office:document-meta>`),
		"paragraph: Noted[1] twice[i], once[*].",
		"image: A quince in a bowl", "image: ", "paragraph: with a picture",
		"paragraph: In a box", "paragraph: around it",
		"paragraph: On a shape", "image: An arrow to the right",
		"table: Harvest|Tons / Quince|12",
		"paragraph: where a = 2 holds",
		"paragraph: Within", "paragraph: a text",
		"image: Of an object that is missing",
		"footnote: [1] At the foot.", "footnote: And more.", "footnote: [i] At the end.", "footnote: [*] Marked.",
	)
	if u.Blocks[1].Picture == "" || u.Blocks[1].Picture != u.Blocks[2].Picture {
		t.Errorf("pictures %q and %q", u.Blocks[1].Picture, u.Blocks[2].Picture)
	}
	if w := plan.Warnings; len(w) != 1 || w[0].Code != "images_ignored" || !strings.Contains(w[0].Message, "(1)") {
		t.Errorf("warnings %+v", w)
	}
}

func TestProperties(t *testing.T) {
	for meta, want := range map[string]map[string]string{
		`<m><initial-creator>Ada</initial-creator><creator>Bob</creator><title>The title</title><keyword>quince</keyword></m>`: {"author": "Ada", "title": "The title", "keywords": "quince"},
		`<m><creator>Bob</creator><creation-date>2026-01-02T03:04:05</creation-date></m>`:                                      {"author": "Bob", "created": "2026-01-02T03:04:05"},
	} {
		plan, _ := load(t, pack("", "<text:p>x</text:p>", "meta.xml", meta))
		for key, value := range want {
			if plan.Metadata[key] != value {
				t.Errorf("%s: %v", meta, plan.Metadata)
			}
		}
	}
}

// A letterhead has its text in the header; elsewhere it is on every page.
func TestHeadersAreReadWhereThereIsNoText(t *testing.T) {
	const styles = `<office:document-styles><office:automatic-styles/><office:master-styles><style:master-page><style:header><text:p>Quince &amp; Sons</text:p></style:header></style:master-page></office:master-styles></office:document-styles>`
	expect(t, pack("", "<text:p/>", "styles.xml", styles), "paragraph: Quince & Sons")
	expect(t, pack("", "<text:p>Dear Sir</text:p>", "styles.xml", styles), "paragraph: Dear Sir")
}

func TestDamagedFiles(t *testing.T) {
	whole := pack("", "<text:p>x</text:p>")
	for name, c := range map[string]struct {
		content []byte
		code    string
	}{
		"no archive":          {[]byte("PK\x03\x04 and so on"), "invalid_odt"},
		"without a text":      {formattest.Zip("mimetype", parser.MediaODT), "invalid_odt"},
		"with a password":     {formattest.Zip("mimetype", parser.MediaODT, "content.xml", "\x00\x01", "META-INF/manifest.xml", `<manifest:manifest><manifest:file-entry><manifest:encryption-data/></manifest:file-entry></manifest:manifest>`), "encrypted"},
		"damaged":             {formattest.Zip("mimetype", parser.MediaODT, "content.xml", "<office:body><text:p"), "invalid_odt"},
		"cut off":             {whole[:len(whole)/2], "invalid_odt"},
		"nested without end":  {pack("", strings.Repeat("<text:section>", 5000)), "too_deep"},
		"of empty paragraphs": {pack("", strings.Repeat("<text:p>x</text:p>", maxBlocks+1)), "too_large"},
	} {
		_, _, err := formattest.Read(t, NewText(ocr.Config{}, noFormats), c.content, options, nil)
		if f := sheaf.AsFailure(err, ""); err == nil || f.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	// What stands before the damage is read.
	plan, u := load(t, formattest.Zip("mimetype", parser.MediaODT, "content.xml", "<o><office:body><office:text><text:p>Before</text:p><table:table><table:table-row><table:table-cell><text:p>cell</text:p></table:table-cell><table:table-cell><text:p>the en"))
	if got := lines(u.Blocks); len(got) != 2 || got[0] != "paragraph: Before" || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "document_damaged" {
		t.Errorf("%q, %+v", got, plan.Warnings)
	}
}

func FuzzRead(f *testing.F) {
	for _, body := range []string{
		"<text:p>x</text:p>", "<text:list><text:list-item><text:p>x</text:p></text:list-item></text:list>",
		"<table:table><table:table-row><table:table-cell/></table:table-row></table:table>", `<draw:frame><draw:object xlink:href="."/><draw:text-box><text:p/></draw:text-box></draw:frame>`,
		"</text:p></text:span></text:list></table:table-cell></table:table></draw:frame></text:note>", `<text:h text:outline-level="9">x</text:h><text:note><text:note-citation/><text:note-body><text:p>x</text:p></text:note-body></text:note>`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		_, _, _ = formattest.Read(t, NewText(ocr.Config{}, noFormats), pack(body, body, "styles.xml", body, "meta.xml", body), options, nil) // it checks what it reads
	})
}
