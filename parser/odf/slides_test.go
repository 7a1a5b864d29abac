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

var deckOptions = parser.Options{Name: "deck.odp", MediaType: parser.MediaODP}

const deckStyles = `<office:document-styles ` + namespaces + `><office:automatic-styles><style:page-layout style:name="PM1"><style:page-layout-properties fo:page-width="28cm" fo:page-height="10in"/></style:page-layout></office:automatic-styles>
	<office:master-styles><style:master-page style:name="Default" style:page-layout-name="PM1"><draw:frame><draw:text-box><text:p>on every slide</text:p></draw:text-box></draw:frame></style:master-page></office:master-styles></office:document-styles>`

// packDeck makes a file of slides.
func packDeck(styles string, pages ...string) []byte {
	return formattest.Zip("mimetype", parser.MediaODP, "styles.xml", deckStyles,
		"content.xml", `<office:document-content `+namespaces+`><office:automatic-styles>`+styles+`</office:automatic-styles><office:body><office:presentation>`+strings.Join(pages, "")+`</office:presentation></office:body></office:document-content>`)
}

func page(inner string) string {
	return `<draw:page draw:name="page" draw:master-page-name="Default">` + inner + `</draw:page>`
}

// box is a frame with a text in it.
func box(class, attrs, inner string) string {
	return fmt.Sprintf(`<draw:frame presentation:class="%s" %s><draw:text-box>%s</draw:text-box></draw:frame>`, class, attrs, inner)
}

func loadDeck(t *testing.T, content []byte) (*parser.Plan, []sheaf.UnitResult) {
	t.Helper()
	plan, units, err := formattest.Read(t, NewSlides(ocr.Config{}, noFormats), content, deckOptions, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan, units
}

// A deck that LibreOffice has written.
func TestGoldenDeck(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "sample.odp"))
	if err != nil {
		t.Fatal(err)
	}
	plan, units := loadDeck(t, content)
	formattest.Golden(t, "deck", plan, units)
}

func TestSlides(t *testing.T) {
	const at = `svg:x="1in" svg:y="72pt" svg:width="25.4mm" svg:height="1in"`
	list := func(text string) string {
		return `<text:list text:style-name="L"><text:list-item><text:p>` + text + `</text:p></text:list-item></text:list>`
	}
	plan, units := loadDeck(t, packDeck(`<text:list-style style:name="L"><text:list-level-style-number text:level="1" style:num-suffix="." style:num-format="1"/></text:list-style>
		<style:style style:name="dp2" style:family="drawing-page"><style:drawing-page-properties presentation:visibility="hidden"/></style:style>`,
		page(box("outline", at, list("first")+list("second")+`<text:p>between</text:p>`+list("anew"))+
			box("title", "", `<text:p>The title</text:p>`)+
			box("footer", at, `<text:p>of the footer</text:p>`)+
			box("subtitle", at+` presentation:placeholder="true"`, `<text:p>Click to add text</text:p>`)+
			`<draw:g><draw:custom-shape svg:x="0in" svg:y="0in" svg:width="10pt" svg:height="20pt"><text:p>on a shape</text:p></draw:custom-shape></draw:g>`+
			`<draw:custom-shape svg:width="10pt" svg:height="20pt" draw:transform="rotate(1)"><text:p>turned</text:p></draw:custom-shape>`+
			`<draw:frame `+at+`><table:table table:use-first-row-styles="true"><table:table-row><table:table-cell><text:p>Fruit</text:p></table:table-cell><table:table-cell><text:p>Tons</text:p></table:table-cell></table:table-row><table:table-row><table:table-cell><text:p>Quince</text:p></table:table-cell><table:table-cell><text:p>12</text:p></table:table-cell></table:table-row></table:table><draw:image xlink:href="Pictures/table.svm"/></draw:frame>`+
			`<presentation:notes><draw:page-thumbnail/>`+box("notes", at, `<text:p>Said <text:a xlink:href="https://example.org">there</text:a></text:p><text:p>Page <text:page-number>&lt;number&gt;</text:page-number></text:p>`)+`</presentation:notes>`),
		strings.Replace(page(""), "<draw:page", `<draw:page draw:style-name="dp2"`, 1),
		page(box("title", at, "<text:p>The last</text:p>"))))
	if len(units) != 3 || plan.Units != 3 || plan.Unit != sheaf.UnitSlide || plan.RangeSize != slidesRange || len(plan.Fingerprints) != 3 {
		t.Fatalf("%+v, %d units", plan, len(units))
	}
	want := []string{"heading1: The title", "list_item1: 1. first", "list_item1: 2. second", "paragraph: between", "list_item1: 1. anew",
		"paragraph: on a shape", "paragraph: turned", "table: Fruit|Tons / Quince|12", "paragraph: Speaker notes: Said there <https://example.org>", "paragraph: Page"}
	u := units[0]
	if got := lines(u.Blocks); !slices.Equal(got, want) {
		t.Errorf("read\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if u.Label != "The title" || u.Width < 793 || u.Width > 794 || u.Height != 720 {
		t.Errorf("slide %q of %v × %v", u.Label, u.Width, u.Height)
	}
	if l := u.Blocks[8].Links; len(l) != 1 || u.Blocks[8].Text[l[0].Start:l[0].End] != "there" {
		t.Errorf("links %+v", l)
	}
	placed := map[int]sheaf.Box{1: {Page: 1, X0: 72, Y0: 72, X1: 144, Y1: 144}, 5: {Page: 1, X1: 10, Y1: 20}}
	for i, b := range u.Blocks {
		want, ok := placed[i]
		switch {
		case ok && (len(b.Spans) != 1 || b.Spans[0].Box != want || b.Spans[0].End != len(b.Text)):
			t.Errorf("%s lies at %+v", b.Text, b.Spans)
		case (i == 0 || i == 6 || i >= 8) && b.Spans != nil: // without a place, turned, or in the notes
			t.Errorf("%s lies at %+v", b.Text, b.Spans)
		case b.Table != nil && (b.Table.Box == nil || *b.Table.Box != placed[1]):
			t.Errorf("the table lies at %+v", b.Table.Box)
		}
	}
	if units[1].Status != sheaf.UnitBlank || units[2].Label != "The last" || units[2].Blocks[0].Page != 3 || units[2].Blocks[0].Spans[0].Box.Page != 3 {
		t.Errorf("%+v", units[1:])
	}
	if o := plan.Outline; len(o) != 2 || o[1].Title != "The last" || o[1].Page != 3 {
		t.Errorf("outline %+v", o)
	}
	if w := plan.Warnings; len(w) != 1 || w[0].Code != "hidden_slides" {
		t.Errorf("warnings %+v", w)
	}
}

func TestFingerprintsFollowTheSlides(t *testing.T) {
	of := func(texts ...string) []uint64 {
		var pages []string
		for _, s := range texts {
			pages = append(pages, page(box("title", "", "<text:p>"+s+"</text:p>")))
		}
		plan, _ := loadDeck(t, packDeck("", pages...))
		return plan.Fingerprints
	}
	a, b := of("one", "two"), of("one", "three")
	if a[0] != b[0] || a[1] == b[1] {
		t.Error(a, b)
	}
}

func TestDamagedDecks(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		code    string
	}{
		"without slides":  {packDeck(""), "empty_file"},
		"damaged":         {formattest.Zip("content.xml", "<office:body><draw:page"), "invalid_odp"},
		"with a password": {formattest.Zip("content.xml", "x", manifestPart, "<manifest:encryption-data/>"), "encrypted"},
		"of no end":       {packDeck("", strings.Repeat(page(""), maxSlides+1)), "too_large"},
	} {
		_, _, err := formattest.Read(t, NewSlides(ocr.Config{}, noFormats), c.content, deckOptions, nil)
		if f := sheaf.AsFailure(err, ""); err == nil || f.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	plan, units := loadDeck(t, formattest.Zip("content.xml", "<o><office:body>"+page(box("title", "", "<text:p>Before</text:p>"))+"<draw:page><draw:frame><draw:text-box><text:p>the en"))
	if len(units) != 1 || units[0].Label != "Before" || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "document_damaged" {
		t.Errorf("%+v, %+v", units, plan.Warnings)
	}
}

func FuzzReadSlides(f *testing.F) {
	for _, body := range []string{
		page(box("title", `svg:x="1in" svg:width="2cm" svg:height="3pt"`, "<text:p>x</text:p>")), page("<presentation:notes><text:p>x</text:p></presentation:notes>"),
		"<draw:page><draw:page></draw:page><draw:g><table:table><text:p>x", "</draw:page></draw:frame></table:table>",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		_, _, _ = formattest.Read(t, NewSlides(ocr.Config{}, noFormats), packDeck(body, body), deckOptions, nil) // it checks what it reads
	})
}
