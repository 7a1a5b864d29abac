package pdf

import (
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/pdf/enginetest"
)

// order fails unless the page's text has the passages in this order.
func order(t *testing.T, content string, passages ...string) {
	t.Helper()
	u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: content}}})[0]
	var text strings.Builder
	for _, b := range u.Blocks {
		text.WriteString(b.Text + "\n")
	}
	at := 0
	for _, p := range passages {
		k := strings.Index(text.String()[at:], p)
		if k < 0 {
			t.Fatalf("%q is not in its place:\n%s", p, dump([]sheaf.UnitResult{u}))
		}
		at += k + len(p)
	}
}

func TestColumnsUnderManyWideLines(t *testing.T) {
	content := enginetest.Text("F2", 18, 70, 760, "A Long Title That Crosses Both of the Columns")
	for i := range 8 { // authors and addresses
		content += enginetest.Text("F1", 11, 110, 730-14*float64(i), "Ann Example, Bert Example, Cora Example and Dora Example")
	}
	content += lines("F1", 10, 60, 580, 12, leftColumn...) + lines("F1", 10, 300, 574, 12, rightColumn...)
	order(t, content, "Dora Example", "lines from edge to edge so that a reader, and a program", "makes a column, and ends here.", "reason why a naive reader", "very last line.")
}

func TestStretchedLinesAreProse(t *testing.T) {
	stretched := "9 Tw\n" // between words, as in narrow columns that are justified
	for i := range 12 {
		stretched += enginetest.Text("F1", 10, 60, 700-12*float64(i), "Governance of the common land")
	}
	stretched += "0 Tw\n"
	order(t, stretched+lines("F1", 10, 330, 700, 12, append(rightColumn, leftColumn...)...),
		"common land Governance of the common land", "the reason why a naive reader mixes")
}

func TestSidebarsAreNotInTheTextBesideThem(t *testing.T) {
	order(t, lines("F1", 9, 40, 697, 31, "Overview", "Our plan", "Results", "Outlook", "About us")+
		lines("F1", 10, 180, 700, 13, append(leftColumn, rightColumn...)...),
		"Overview", "Our plan", "About us", "lines from edge to edge so that a reader, and a program")
}
