package ocr

import (
	"strings"
	"testing"

	"sheaf"
)

const head = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n1\t1\t0\t0\t0\t0\t0\t0\t1700\t2200\t-1\t\n"

func TestWordsBecomeParagraphsOfPlacedLines(t *testing.T) {
	got := parse(head+
		"5\t1\t1\t1\t1\t1\t100\t50\t40\t20\t90\tA\n5\t1\t1\t1\t1\t2\t150\t48\t60\t24\t80\trun-\n5\t1\t1\t1\t2\t1\t100\t80\t70\t20\t70\tning\n"+
		"5\t1\t1\t1\t2\t2\t200\t80\t70\t20\t5\tdirt\n5\t1\t2\t1\t1\t1\t100\t200\t70\t20\t60\tEnd.\n5\t1\t3\t1\t1\t1\t0\t0\t1\t1\t90\t|\nbroken\tline\n5\t1\t1\t1\t1\t1\tx\t1\t1\t1\t90\tno\n", 3, 0.5)
	if len(got.Blocks) != 2 || got.Blocks[0].Text != "A running" || got.Blocks[1].Text != "End." || got.Confidence != 78 {
		t.Fatalf("%+v", got)
	}
	spans := got.Blocks[0].Spans
	if len(spans) != 2 || spans[0] != (sheaf.Span{Start: 0, End: 5, Box: sheaf.Box{Page: 3, X0: 50, Y0: 24, X1: 105, Y1: 36}}) || spans[1].Start != 5 || spans[1].End != 9 {
		t.Errorf("%+v", spans)
	}
}

func TestVerdicts(t *testing.T) {
	u := sheaf.UnitResult{Unit: 4, Status: sheaf.UnitSkipped, Code: "needs_ocr"}
	Text{Blocks: []sheaf.Block{{Text: "x"}}, Confidence: 41}.Verdict(&u)
	if u.Status != sheaf.UnitOCR || u.Code != "" || len(u.Warnings) != 1 || u.Warnings[0].Code != "ocr_uncertain" || !strings.Contains(u.Message, "41 %") {
		t.Errorf("%+v", u)
	}
	u = sheaf.UnitResult{Unit: 4, Status: sheaf.UnitSkipped}
	Text{}.Verdict(&u)
	if u.Status != sheaf.UnitBlank || u.Code != "no_text" {
		t.Errorf("%+v", u)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(head + "5\t1\t1\t1\t1\t1\t100\t50\t40\t20\t90\tword\n")
	f.Add(head + "5\t1\t1\t1\t\t1\t100\t50\t40\t20\t90\tof no line\n")
	f.Fuzz(func(t *testing.T, tsv string) {
		for _, b := range parse(tsv, 1, 0.36).Blocks {
			for _, s := range b.Spans {
				if s.Start < 0 || s.End < s.Start || s.End > len(b.Text) {
					t.Fatalf("span %+v of %d bytes", s, len(b.Text))
				}
			}
		}
	})
}
