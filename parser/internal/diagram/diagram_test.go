package diagram

import (
	"slices"
	"strings"
	"testing"
)

func TestShapes(t *testing.T) {
	shape := func(text string) string {
		return `<xdr:sp><xdr:nvSpPr><xdr:cNvPr id="1"/></xdr:nvSpPr><xdr:txBody>` + text + `</xdr:txBody></xdr:sp>`
	}
	texts, diagrams, err := Shapes(strings.NewReader(`<xdr:wsDr><xdr:cxnSp><a:t>no shape</a:t></xdr:cxnSp>` +
		shape(`<a:p><a:r><a:t>one</a:t></a:r><a:br/><a:r><a:t>line</a:t></a:r></a:p><a:p><a:r><a:t>more</a:t></a:r></a:p>`) +
		shape(`<a:p/>`) + `<xdr:grpSp><xdr:nvGrpSpPr><xdr:cNvPr id="9" hidden="1"/></xdr:nvGrpSpPr>` + shape(`<a:p><a:fld><a:t>in a group</a:t></a:fld></a:p>`) + `</xdr:grpSp>` +
		`<dgm:relIds r:dm="rId4"/><dgm:relIds/>` + shape(`<a:p><a:r><a:t>no end`)))
	if want := []string{"one\nline\nmore", "in a group", "no end"}; !slices.Equal(texts, want) {
		t.Errorf("texts %q, want %q", texts, want)
	}
	if !slices.Equal(diagrams, []string{"rId4"}) || err != nil {
		t.Errorf("diagrams %q, %v", diagrams, err)
	}
}

func TestTextsAreBounded(t *testing.T) {
	long := strings.Repeat("word ", maxText)
	got, err := Points(strings.NewReader(`<dgm:pt><a:t>` + long + `</a:t></dgm:pt>` + strings.Repeat(`<dgm:pt><a:t>x</a:t></dgm:pt>`, 2*maxTexts)))
	if err != nil || len(got) != maxTexts || len(got[0]) > maxText {
		t.Errorf("%d texts, the first of %d bytes, %v", len(got), len(got[0]), err)
	}
}
