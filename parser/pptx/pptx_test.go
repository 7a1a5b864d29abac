package pptx

import (
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

func sample() []byte {
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s1"/></p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/></p:presentation>`,
		"ppt/slides/slide1.xml", `<p:sld><p:grpSp><p:grpSpPr><a:xfrm><a:off x="1270000" y="0"/><a:ext cx="2540000" cy="2540000"/><a:chOff x="0" y="0"/><a:chExt cx="1270000" cy="1270000"/></a:xfrm></p:grpSpPr><p:sp><p:spPr><a:xfrm><a:off x="127000" y="127000"/><a:ext cx="254000" cy="127000"/></a:xfrm></p:spPr><p:txBody><a:p><a:r><a:t>Inside</a:t></a:r></a:p></p:txBody></p:sp></p:grpSp><p:sp><p:nvPr><p:ph type="title"/></p:nvPr><p:txBody><a:p><a:r><a:t>Hello</a:t></a:r></a:p></p:txBody></p:sp></p:sld>`,
	)
}

var options = parser.Options{Name: "document", MediaType: parser.MediaPPTX}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestChartsAreReadByTheirFigures(t *testing.T) {
	deck := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s1"/></p:sldIdLst></p:presentation>`,
		"ppt/slides/_rels/slide1.xml.rels", `<Relationships><Relationship Id="c1" Type="x/chart" Target="../charts/chart1.xml"/></Relationships>`,
		"ppt/slides/slide1.xml", `<p:sld><p:graphicFrame><a:graphic><c:chart r:id="c1"/></a:graphic></p:graphicFrame><p:graphicFrame><c:chart r:id="none"/></p:graphicFrame></p:sld>`,
		"ppt/charts/chart1.xml", `<c:chartSpace><c:ser><c:tx><c:v>Tons</c:v></c:tx><c:cat><c:pt idx="0"><c:v>Quince</c:v></c:pt></c:cat><c:val><c:pt idx="0"><c:v>12</c:v></c:pt></c:val></c:ser></c:chartSpace>`,
	)
	plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), deck, options, nil)
	if err != nil || len(units) != 1 || len(units[0].Blocks) != 1 || units[0].Blocks[0].Table == nil {
		t.Fatalf("%+v %v", units, err)
	}
	if got := units[0].Blocks[0].Table; got.Columns[1] != "Tons" || got.Rows[0][0] != "Quince" || got.Rows[0][1] != "12" {
		t.Errorf("%+v", got)
	}
	if len(plan.Warnings) != 1 || !strings.HasPrefix(plan.Warnings[0].Message, "Charts without figures (1) ") {
		t.Errorf("%+v", plan.Warnings)
	}
}

// The relationships of a slide have no order: its diagrams have that of the
// slide, at each reading, and so has its fingerprint.
func TestDiagramsStandInTheOrderOfTheSlide(t *testing.T) {
	rels, frames := "", ""
	var parts []string
	for _, n := range []int{3, 1, 4, 2, 6, 5} {
		rels += fmt.Sprintf(`<Relationship Id="rId%d" Type="x/diagramData" Target="../diagrams/data%d.xml"/>`, n, n)
		parts = append(parts, fmt.Sprintf("ppt/diagrams/data%d.xml", n), fmt.Sprintf(`<dgm:dataModel><dgm:pt><a:p><a:r><a:t>diagram %d</a:t></a:r></a:p></dgm:pt></dgm:dataModel>`, n))
		if n < 5 {
			frames += fmt.Sprintf(`<p:graphicFrame><a:graphicData><dgm:relIds r:dm="rId%d" r:lo="x"/></a:graphicData></p:graphicFrame>`, n)
		}
	}
	deck := formattest.Zip(append(parts,
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s1"/></p:sldIdLst></p:presentation>`,
		"ppt/slides/_rels/slide1.xml.rels", `<Relationships>`+rels+`</Relationships>`,
		"ppt/slides/slide1.xml", `<p:sld>`+frames+`</p:sld>`,
	)...)
	var fingerprint uint64
	for range 10 {
		plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), deck, options, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range units[0].Blocks {
			got = append(got, strings.TrimPrefix(b.Text, "diagram "))
		}
		if s := strings.Join(got, " "); s != "3 1 4 2 5 6" {
			t.Fatalf("diagrams %s", s)
		}
		if fingerprint != 0 && plan.Fingerprints[0] != fingerprint {
			t.Fatal("the fingerprint is another")
		}
		fingerprint = plan.Fingerprints[0]
	}
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(ocr.Config{}, noFormats), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add(illustrated("a picture"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(ocr.Config{}, noFormats), b, options, nil) // it checks what it reads
	})
}

func illustrated(picture string) []byte {
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="x/slide" Target="slides/slide1.xml"/><Relationship Id="s2" Type="x/slide" Target="slides/slide2.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s1"/><p:sldId id="257" r:id="s2"/></p:sldIdLst></p:presentation>`,
		"ppt/slides/_rels/slide1.xml.rels", `<Relationships><Relationship Id="p1" Type="x/image" Target="../media/i.png"/></Relationships>`,
		"ppt/slides/slide1.xml", `<p:sld><p:pic><p:cNvPr descr=""/><a:blip r:embed="p1"/><a:off x="0" y="0"/><a:ext cx="127000" cy="127000"/></p:pic></p:sld>`,
		"ppt/slides/slide2.xml", `<p:sld><p:sp><a:p><a:r><a:t>Hello</a:t></a:r></a:p></p:sp></p:sld>`,
		"ppt/media/i.png", picture,
	)
}

// A slide that shows another picture is another slide.
func TestPicturesBelongToTheirSlides(t *testing.T) {
	plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), illustrated("one"), options, nil)
	if err != nil || len(units) != 2 || len(units[0].Blocks) != 1 || units[0].Blocks[0].Picture == "" || units[0].Status != sheaf.UnitBlank {
		t.Fatalf("%+v %v", units, err)
	}
	other, _, err := formattest.Read(t, New(ocr.Config{}, noFormats), illustrated("two"), options, nil)
	if err != nil || plan.Fingerprints[0] == other.Fingerprints[0] || plan.Fingerprints[1] != other.Fingerprints[1] {
		t.Errorf("%x and %x, %v", plan.Fingerprints, other.Fingerprints, err)
	}
}

func TestSpeakerNotesAreMarked(t *testing.T) {
	deck := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s1"/></p:sldIdLst></p:presentation>`,
		"ppt/slides/_rels/slide1.xml.rels", `<Relationships><Relationship Id="n1" Type="x/notesSlide" Target="../notesSlides/notesSlide1.xml"/></Relationships>`,
		"ppt/slides/slide1.xml", `<p:sld><p:sp><p:txBody><a:p><a:r><a:t>Harvest</a:t></a:r></a:p></p:txBody></p:sp></p:sld>`,
		"ppt/notesSlides/notesSlide1.xml", `<p:notes><p:sp><p:txBody><a:p><a:r><a:t>Speak slowly.</a:t></a:r></a:p><a:p><a:r><a:t>Then stop.</a:t></a:r></a:p></p:txBody></p:sp></p:notes>`,
	)
	_, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), deck, options, nil)
	if err != nil || len(units) != 1 {
		t.Fatalf("%+v %v", units, err)
	}
	var got []string
	for _, b := range units[0].Blocks {
		got = append(got, b.Text)
	}
	if s := strings.Join(got, "|"); s != "Harvest|Speaker notes: Speak slowly.|Then stop." {
		t.Errorf("%q", s)
	}
}

// noFormats finds no reader of embedded files; package formats tests those.
func noFormats() *parser.Registry { return parser.NewRegistry() }
