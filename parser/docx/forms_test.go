package docx

import (
	"testing"

	"sheaf/parser/internal/formattest"
)

// A unit that becomes another one, and a form without its ticks, say something else.
func TestSymbolsAndFormsAreRead(t *testing.T) {
	r := func(inner string) string { return `<w:r>` + inner + `</w:r>` }
	text := func(s string) string { return r(`<w:t xml:space="preserve">` + s + `</w:t>`) }
	field := func(definition string) string {
		return r(`<w:fldChar w:fldCharType="begin"><w:ffData>`+definition+`</w:ffData></w:fldChar>`) + r(`<w:instrText> FORMCHECKBOX </w:instrText>`) + r(`<w:fldChar w:fldCharType="end"/>`)
	}
	p := func(inner string) string { return `<w:p>` + inner + `</w:p>` }
	content := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/document.xml", `<w:document><w:body>`+
			p(text("50 ")+r(`<w:sym w:font="Symbol" w:char="F06D"/>`)+text("g, ")+r(`<w:rPr><w:rFonts w:ascii="Symbol" w:hAnsi="Symbol"/></w:rPr><w:t></w:t>`)+text(" 2 "))+
			p(r(`<w:sym w:font="Wingdings" w:char="F0FE"/>`)+text(" yes ")+r(`<w:sym w:font="MS Gothic" w:char="2610"/>`)+text(" no")+r(`<w:sym w:font="Webdings" w:char="F061"/>`)+r(`<w:sym w:font="Symbol" w:char="xyz"/>`))+
			p(field(`<w:checkBox><w:default w:val="0"/><w:checked/></w:checkBox>`)+text(" on ")+field(`<w:checkBox><w:default w:val="1"/><w:checked w:val="0"/></w:checkBox>`)+text(" off ")+field(`<w:checkBox><w:default w:val="1"/></w:checkBox>`)+text(" preset"))+
			p(text("Fruit: ")+field(`<w:ddList><w:result w:val="1"/><w:listEntry w:val="quince"/><w:listEntry w:val="medlar"/></w:ddList>`)+field(`<w:ddList><w:result w:val="9"/><w:listEntry w:val="x"/></w:ddList>`))+
			`</w:body></w:document>`)
	if got, want := texts(t, content), "50 μg, ≥ 2 |☑ yes ☐ no|☒ on ☐ off ☒ preset|Fruit: medlar"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
