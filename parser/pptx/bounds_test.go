package pptx

import (
	"strings"
	"testing"

	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

// A list of slides is no more than what it lists.
func TestASlideListedAgainAndAgainIsReadAFewTimes(t *testing.T) {
	content := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="a" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst>`+strings.Repeat(`<p:sldId id="256" r:id="a"/>`, 60_000)+`</p:sldIdLst></p:presentation>`,
		"ppt/slides/slide1.xml", `<p:sld><p:cSld><p:spTree><p:sp><p:txBody><a:p><a:r><a:t>One slide.</a:t></a:r></a:p></p:txBody></p:sp></p:spTree></p:cSld></p:sld>`,
	)
	plan, units, err := formattest.Read(t, New(ocr.Config{}, noFormats), content, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Units != maxRepeats || len(units) != maxRepeats || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "slides_repeated" {
		t.Errorf("%d slides, %d read, %v", plan.Units, len(units), plan.Warnings)
	}
}
