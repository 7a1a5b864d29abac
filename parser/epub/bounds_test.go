package epub

import (
	"strings"
	"testing"

	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

// A spine is no more than what it lists.
func TestAPartListedAgainAndAgainIsReadAFewTimes(t *testing.T) {
	content := formattest.Zip(
		"mimetype", "application/epub+zip",
		"META-INF/container.xml", `<container><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>`,
		"c.opf", `<package><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine>`+strings.Repeat(`<itemref idref="a"/>`, 15_000)+`</spine></package>`,
		"a.xhtml", `<html><body><p>One part.</p></body></html>`,
	)
	plan, units, err := formattest.Read(t, New(ocr.Config{}), content, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Units != maxRepeats || len(units) != maxRepeats || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "parts_skipped" {
		t.Errorf("%d parts, %d read, %v", plan.Units, len(units), plan.Warnings)
	}
}
