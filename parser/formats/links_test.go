package formats

import (
	"fmt"
	"strings"
	"testing"
)

// An answer that names a form should name its address, too: each format hands on what
// its text leads to.
func TestLinksAreKept(t *testing.T) {
	rel := func(id, target string) string {
		return `<Relationship Id="` + id + `" Type="x/hyperlink" TargetMode="External" Target="` + target + `"/>`
	}
	run := func(s string) string { return `<w:r><w:t xml:space="preserve">` + s + `</w:t></w:r>` }
	field := func(instruction, text string) string {
		return `<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>` + instruction + `</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r>` + run(text) + `<w:r><w:fldChar w:fldCharType="end"/></w:r>`
	}
	cell := func(s string) string { return `<w:tc><w:p>` + s + `</w:p></w:tc>` }
	word := wordFile(rel("a", "https://example.org/form.pdf")+rel("b", "mailto:q@example.org")+`<Relationship Id="c" Type="x/image" Target="media/a.png"/>`, nil,
		`<w:p>`+run("Fill in ")+`<w:hyperlink r:id="a">`+run("the form")+`</w:hyperlink>`+run(" or ")+`<w:hyperlink w:anchor="x">`+run("see below")+`</w:hyperlink>`+run(", or ")+field(` HYPERLINK "https://exam</w:instrText></w:r><w:r><w:instrText>ple.org/new" \o "tip" `, "apply")+field(` PAGEREF x `, "3")+`</w:p>`,
		`<w:tbl><w:tblPr><w:tblLook w:firstRow="1"/></w:tblPr><w:tr>`+cell(run("who"))+cell(run("where"))+`</w:tr><w:tr>`+cell(run("Ann"))+cell(`<w:hyperlink r:id="b">`+run("mail")+`</w:hyperlink>`)+`</w:tr></w:tbl>`)
	link := func(text string) string {
		return `<a:p><a:r><a:rPr><a:hlinkClick r:id="l"/></a:rPr><a:t>` + text + `</a:t></a:r><a:r><a:t> here</a:t></a:r></a:p>`
	}
	deck := deckOf(rel("l", "https://example.org/deck"), `<p:sp><p:txBody>`+link("Look")+`</p:txBody></p:sp><p:graphicFrame><a:tbl><a:tr><a:tc><a:txBody>`+link("Row")+`</a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame>`)
	for name, c := range map[string]struct{ content, want string }{
		"a.docx": {string(word), "the form=https://example.org/form.pdf apply=https://example.org/new row 1=mailto:q@example.org"},
		"a.pptx": {string(deck), "Look=https://example.org/deck row 0=https://example.org/deck"},
		"a.md": {"# [T](https://example.org/t)\n\nSee *[the `guide`](https://example.org/guide \"x\")*, [below](#x), [near](near.md) or <https://example.org>.\n\n| a | b |\n|---|---|\n| 1 | [two](https://example.org/2) |\n",
			"T=https://example.org/t the guide=https://example.org/guide https://example.org=https://example.org row 1=https://example.org/2"},
		"a.html": {`<!doctype html><head><base href="https://example.org/m/"></head><ol><li><a href=form.pdf>the <b>form</b></a></ol><a href="https://example.org/card"><h2>Card</h2><p>of two blocks</p></a><p><a href="javascript:x">no</a> <a href="#t">no</a></p><table><tr><th>a<th>b<tr><td>1<td><a href=two>two</a></table>`,
			"the form=https://example.org/m/form.pdf Card=https://example.org/card of two blocks=https://example.org/card row 1=https://example.org/m/two"},
		// A web page that a browser saved.
		"a.mhtml": {"From: <Saved by Blink>\nSnapshot-Content-Location: https://example.org/m/\nSubject: Page\nMIME-Version: 1.0\nContent-Type: multipart/related; type=\"text/html\"; boundary=b\n\n--b\nContent-Type: text/html\nContent-Location: https://example.org/m/index\n\n<!doctype html><p>See <a href=\"form.pdf\">the form</a>\n\n--b\nContent-Type: text/css\nContent-Location: https://example.org/a.css\n\nbody{}\n--b--\n",
			"the form=https://example.org/m/form.pdf"},
		// What the page itself says holds.
		"b.mhtml": {"From: <Saved by Blink>\nSubject: Page\nMIME-Version: 1.0\nContent-Type: multipart/related; type=\"text/html\"; boundary=b\n\n--b\nContent-Type: text/html\nContent-Location: https://example.org/m/index\n\n<!doctype html><base href=\"https://example.org/own/\"><p>See <a href=\"form.pdf\">the form</a>\n\n--b--\n",
			"the form=https://example.org/own/form.pdf"},
	} {
		var got []string
		for _, b := range blocksOf(t, c.content, name) {
			for _, l := range b.Links {
				text := fmt.Sprintf("row %d", l.Start)
				if b.Table == nil {
					text = b.Text[l.Start:l.End]
				}
				got = append(got, text+"="+l.URI)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, s, c.want)
		}
	}
}
