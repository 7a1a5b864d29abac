package pdf

import (
	"testing"

	"sheaf"
	"sheaf/parser/pdf/enginetest"
)

func TestHeadingsAreHeadings(t *testing.T) {
	body := lines("F4", 11, 72, 500, 14,
		"The opening paragraph is set in lines that reach the right margin of the page, so the next",
		"line continues it, and it is long enough to show in which letters most of the page is set,",
		"which is what a heading is told from: one of the same size must at least be bold to be one.")
	for text, want := range map[string]sheaf.BlockKind{
		"Liquidity and Capital Resources":  sheaf.BlockHeading,
		"3.1 Revenue in 2023":              sheaf.BlockHeading,
		"May the Force be with you":        sheaf.BlockHeading,
		"Years ended December 31, 2023":    sheaf.BlockParagraph,
		"(in millions, except per share)":  sheaf.BlockParagraph,
		"info@example.org":                 sheaf.BlockParagraph,
		"Visit https://example.org/report": sheaf.BlockParagraph,
	} {
		u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F2", 11, 72, 540, text) + body}}})[0]
		if len(u.Blocks) != 2 || u.Blocks[0].Kind != want {
			t.Errorf("%s: %s", text, dump([]sheaf.UnitResult{u}))
		}
	}
	bold := lines("F2", 11, 72, 640, 14, "This abstract is set in bold letters, as some journals do, and it is as long as paragraphs",
		"are, so that none of its lines is a heading, however bold it may be and however much the", "program that reads it would like to have one here for what follows below", "it on the page")
	u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: bold + body}}})[0]
	if len(u.Blocks) != 2 || u.Blocks[0].Kind != sheaf.BlockParagraph {
		t.Error(dump([]sheaf.UnitResult{u}))
	}
}
