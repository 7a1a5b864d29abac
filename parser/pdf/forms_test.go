package pdf

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/pdf/enginetest"
)

// filledForm is a form of two pages: one with content, and an empty one that is turned.
func filledForm(name string) enginetest.File {
	return enginetest.File{Pages: []enginetest.Page{
		{Content: enginetest.Text("F1", 11, 72, 740, "Application for a plot in the orchard, to be filled in by the applicant."), Annots: []string{
			"/Subtype /Widget /FT /Tx /T (f1_02) /TU (Plot) /V (North 7) /Rect [100 600 300 620]",
			"/Subtype /Widget /FT /Tx /T (name) /V (" + name + ") /Rect [100 700 300 720]",
			"/Subtype /Widget /FT /Tx /T (pin) /Ff 8192 /V (secret) /Rect [100 500 300 520]",
			"/Subtype /Widget /FT /Tx /T (internal) /F 2 /V (hidden) /Rect [100 400 300 420]",
			"/Subtype /Widget /FT /Tx /T (empty) /V () /Rect [100 300 300 320]",
			"/Subtype /Widget /FT /Btn /T (member) /AS /On /V /On /Rect [100 200 110 210]",
			"/Subtype /Widget /FT /Btn /T (guest) /AS /Off /Rect [100 180 110 190]",
			"/Subtype /Text /Contents (Is this so?) /Rect [10 10 20 20]",
		}},
		{Rotate: 90, Annots: []string{"/Subtype /FreeText /Contents (Typed onto the page) /Rect [100 700 300 720]"}},
	}}
}

// What is filled in, or typed onto a page, is read where it is displayed; a changed
// value changes its page and no other.
func TestFormsAreRead(t *testing.T) {
	read := func(name string) (*parser.Plan, []sheaf.UnitResult) {
		f := filledForm(name)
		d, err := openBytes(t, f.Bytes(), sheaf.ParseConfig{})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := d.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d.(*document).options.Beside = plan.Beside
		return plan, parseAllPages(t, d)
	}
	plan, units := read("Maud Quince")
	last := units[0].Blocks[len(units[0].Blocks)-1]
	if want := "name: Maud Quince\nPlot: North 7\nmember: yes"; last.Text != want || len(units[0].Blocks) != 2 {
		t.Errorf("%q, want %q", last.Text, want)
	}
	if len(last.Spans) != 3 || last.Spans[0] != (sheaf.Span{End: 17, Box: sheaf.Box{Page: 1, X0: 100, Y0: 72, X1: 300, Y1: 92}}) {
		t.Errorf("%+v", last.Spans)
	}
	if u := units[1]; u.Status != sheaf.UnitOK || len(u.Blocks) != 1 || u.Blocks[0].Text != "Typed onto the page" {
		t.Errorf("%+v", units[1])
	} else if b := u.Blocks[0].Spans[0].Box; b.X1-b.X0 != 20 || b.Y1-b.Y0 != 200 || b.X0 != 700 || b.Y0 != 100 {
		t.Errorf("turned: %+v of %g x %g", b, u.Width, u.Height)
	}
	if len(plan.Warnings) != 1 || plan.Warnings[0].Code != "comments_ignored" {
		t.Errorf("%+v", plan.Warnings)
	}
	other, _ := read("Ann Pear")
	if other.Fingerprints[0] == plan.Fingerprints[0] || other.Fingerprints[1] != plan.Fingerprints[1] {
		t.Errorf("%x and %x", plan.Fingerprints, other.Fingerprints)
	}
}

// Fields inherit from those above them, choices have names for readers, and radio
// buttons show which one is on.
func TestFieldsInherit(t *testing.T) {
	h := held{}
	page := h.add(types.Dict{})
	rect := types.Array{types.Integer(1), types.Integer(2), types.Integer(3), types.Float(4.5)}
	text := func(s string) types.StringLiteral { return types.StringLiteral(s) }
	fields := types.Array{
		h.add(types.Dict{"T": text("address"), "Kids": types.Array{
			h.add(types.Dict{"T": text("city"), "FT": types.Name("Tx"), "V": text("Oslo"), "Kids": types.Array{h.add(types.Dict{"Rect": rect, "P": page}), h.add(types.Dict{"Rect": rect, "P": page})}}),
		}}),
		h.add(types.Dict{"T": text("fruit"), "FT": types.Name("Ch"), "V": types.Array{text("q"), text("p")}, "Opt": types.Array{types.Array{text("q"), text("Quince")}, text("p")}, "Rect": rect, "P": page}),
		h.add(types.Dict{"T": text("size"), "FT": types.Name("Btn"), "Ff": types.Integer(1 << 15), "V": types.Name("large"), "Kids": types.Array{
			h.add(types.Dict{"AS": types.Name("Off"), "Rect": rect, "P": page}), h.add(types.Dict{"AS": types.Name("large"), "Rect": rect, "P": page}),
		}}),
		h.add(types.Dict{"T": text("send"), "FT": types.Name("Btn"), "Ff": types.Integer(1 << 16), "AS": types.Name("On"), "Rect": rect, "P": page}),
	}
	loop := *types.NewIndirectRef(99, 0)
	h[99] = types.Dict{"T": text("loop"), "Kids": types.Array{loop}}
	f := forms{objects: h, pageOf: map[int]int{page.ObjectNumber.Value(): 0}, numbers: []int{page.ObjectNumber.Value()}}
	f.read(types.Dict{"AcroForm": types.Dict{"Fields": append(fields, loop)}})
	var got []string
	for _, v := range f.out {
		got = append(got, v.text)
	}
	if want := "city: Oslo|city: Oslo|fruit: Quince, p|size: large"; strings.Join(got, "|") != want {
		t.Errorf("%q, want %s", got, want)
	}
}

// An annotation that cannot be read is no reason to doubt the pages.
func TestDamagedAnnotationCostsNothingElse(t *testing.T) {
	file := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 11, 72, 740, "Text"), Annots: []string{
		"/Subtype /FreeText /Contents (kept) /Rect [1 1 2 2]", "/Subtype /FreeText /Contents (@) /Rect [1 1 2 2]",
	}}}}
	b := bytes.Replace(file.Bytes(), []byte("(@)"), []byte("}@{"), 1)
	in, err := inspectSound(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(in.fingerprints) != 1 || len(in.beside) != 1 || in.beside[1][0].Text != "kept" {
		t.Errorf("%v %+v", err, in)
	}
}

// An object ends where the next one begins, also if it does not say so.
func TestAnObjectMayLackItsEnd(t *testing.T) {
	file := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 11, 72, 740, "Text"), Annots: []string{
		"/Subtype /FreeText /Contents (typed) /Rect [1 1 2 2]", "/Subtype /FreeText /Contents (too) /Rect [1 1 2 2]",
	}}}}
	b := file.Bytes()
	at := bytes.Index(b, []byte("(typed)"))
	copy(b[at+bytes.Index(b[at:], []byte("endobj")):], "      ")
	in, err := inspectSound(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(in.beside) != 1 || in.beside[1][0].Text != "typed\ntoo" {
		t.Errorf("%v %+v", err, in.beside)
	}
}

// Attached files that cannot be read are named, each once; what only repeats the
// pages is not.
func TestAttachedFilesAreNamed(t *testing.T) {
	file := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 11, 72, 740, "See the attached plan."), Annots: []string{
		"/Subtype /FileAttachment /FS << /Type /Filespec /F (plan of the orchard.xlsx) /EF << /F 1 0 R >> >> /Rect [1 1 2 2]",
		"/Subtype /FileAttachment /FS << /Type /Filespec /F (a link.pdf) >> /Rect [1 1 2 2]",
	}}}}
	d, err := openBytes(t, file.Bytes(), sheaf.ParseConfig{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := d.Plan(t.Context())
	if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "attachments_ignored" || !strings.Contains(plan.Warnings[0].Message, "(1) were not read; save and upload them: plan of the orchard.xlsx.") {
		t.Errorf("%v %+v", err, plan)
	}
	h := held{}
	var pairs types.Array
	spec := func(name, relation string) types.IndirectRef {
		d := types.Dict{"UF": types.StringLiteral(name), "EF": types.Dict{}}
		if relation != "" {
			d["AFRelationship"] = types.Name(relation)
		}
		return h.add(d)
	}
	for i := range 9 {
		pairs = append(pairs, types.StringLiteral("k"), spec(fmt.Sprintf("%d.txt", i), "Supplement"))
	}
	pairs = append(pairs, types.StringLiteral("k"), spec("factur-x.xml", "Alternative"), types.StringLiteral("k"), pairs[1])
	loop := *types.NewIndirectRef(99, 0)
	h[99] = types.Dict{"Names": pairs, "Kids": types.Array{loop}}
	f := forms{objects: h}
	f.read(types.Dict{"Names": types.Dict{"EmbeddedFiles": loop}})
	if want := "0.txt, 1.txt, 2.txt, 3.txt, 4.txt, 5.txt, 6.txt, 7.txt and 1 more"; f.files.String() != want {
		t.Errorf("%s, want %s", f.files, want)
	}
}

// A form of more than is read says so, and one without pages of its own, too.
func TestFormsAreBounded(t *testing.T) {
	h := held{}
	page := h.add(types.Dict{})
	var fields types.Array
	for i := range 40 {
		fields = append(fields, h.add(types.Dict{"T": types.StringLiteral(fmt.Sprint(i)), "FT": types.Name("Tx"), "V": types.StringLiteral(strings.Repeat("x", 3000)), "Rect": types.Array{}, "P": page}))
	}
	f := forms{objects: h, pageOf: map[int]int{page.ObjectNumber.Value(): 0}, numbers: []int{page.ObjectNumber.Value()}}
	f.read(types.Dict{"AcroForm": types.Dict{"Fields": fields}})
	if b := f.beside()[1]; len(b) != 1 || len(b[0].Text) > maxBesideBytes+40 || len(b[0].Spans) != 0 || f.clipped != 40-7 || f.cut != 40 {
		t.Errorf("%d clipped, %d cut, %d blocks", f.clipped, f.cut, len(b))
	}
	var x forms
	x.objects = h
	if x.read(types.Dict{"AcroForm": types.Dict{"XFA": types.Array{}, "Fields": types.Array{}}}); !x.xfa {
		t.Error("a form without fields was taken for an ordinary one")
	}
}
