package pdf

import (
	"reflect"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/pdf/enginetest"
)

// statement sets a statement as reports print it: shading behind the newest
// year, rules under the subtotals of single columns, currency signs that stand
// apart, a header of three lines.
func statement() string {
	const newest, before = 440.0, 530.0 // right edges of the figures
	var b strings.Builder
	b.WriteString(enginetest.Text("F1", 10, 72, 706, "(In millions)") + enginetest.Text("F1", 10, 418, 720, "Years ended June 30,"))
	for x, year := range map[float64]string{newest: "2023", before: "2022"} {
		b.WriteString(enginetest.Text("F1", 10, x-20, 706, year))
	}
	for i, r := range [][3]string{{"Revenue", "", ""}, {"Net sales", "14,694", "14,544"}, {"Membership and", "", ""}, {"other income", "1,302", "(7)"}, {"Total revenue", "15,996", "14,537"},
		{"Cost of sales", "11,969", "11,724"}, {"Operating income", "4,027", "2,813"}} {
		y := 690 - 14*float64(i)
		b.WriteString(enginetest.Text("F1", 10, 72, y, r[0]))
		for c, x := range []float64{newest, before} {
			f := r[c+1]
			if f == "" {
				continue
			}
			if i == 1 || i == 6 {
				b.WriteString(enginetest.Text("F1", 10, x-60, y, "$"))
			}
			b.WriteString(enginetest.Text("F1", 10, x-5.56*float64(len(f)), y, f))
		}
		b.WriteString(enginetest.Line(newest-64, y-3, newest+4, y-3)) // what shading looks like to an engine
		if i == 3 || i == 4 {
			b.WriteString(enginetest.Line(before-64, y-3, before+4, y-3))
		}
	}
	b.WriteString(enginetest.Line(newest-64, 603, newest-64, 700) + enginetest.Line(newest+4, 603, newest+4, 700))
	return b.String()
}

func TestStatementsStayWhole(t *testing.T) {
	u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F4", 10, 72, 750, "The table shows what the company sold in the last two years and what it cost to make and to ship it.") +
		statement() + enginetest.Text("F4", 10, 72, 560, "Operating income grew since the price of raw material fell in the second half of the year, which is why")}}})[0]
	if len(u.Blocks) != 3 || u.Blocks[1].Table == nil {
		t.Fatal(dump([]sheaf.UnitResult{u}))
	}
	got := append([][]string{u.Blocks[1].Table.Columns}, u.Blocks[1].Table.Rows...)
	want := [][]string{
		{"(In millions)", "Years ended June 30, / 2023", "Years ended June 30, / 2022"},
		{"Revenue", "", ""},
		{"Net sales", "$ 14,694", "$ 14,544"},
		{"Membership and other income", "1,302", "(7)"},
		{"Total revenue", "15,996", "14,537"},
		{"Cost of sales", "11,969", "11,724"},
		{"Operating income", "$ 4,027", "$ 2,813"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestFigureTablesLeaveProseBesideThemAlone(t *testing.T) {
	u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: lines("F1", 10, 60, 690, 14, append(leftColumn, rightColumn...)...) +
		rows("F1", 690, []float64{330, 440, 500}, []string{"Apples", "1,200", "40"}, []string{"Pears", "900", "30"}, []string{"Cherries", "800", "20"}, []string{"Plums", "700", "10"})}}})[0]
	var text, table bool
	for _, b := range u.Blocks {
		text = text || strings.Contains(b.Text, "tell that it is prose and not a row of cells. It goes on for some lines more")
		table = table || b.Table != nil && len(b.Table.Rows) == 4 && reflect.DeepEqual(b.Table.Rows[2], []string{"Cherries", "800", "20"})
	}
	if !text || !table {
		t.Error(dump([]sheaf.UnitResult{u}))
	}
}

func TestContentsAndListsOfNumbersAreNoTablesOfFigures(t *testing.T) {
	var b strings.Builder
	for i, name := range []string{"Introduction", "Methods of the work", "Results", "Discussion", "References"} {
		b.WriteString(enginetest.Text("F4", 10, 72, 700-14*float64(i), name) + enginetest.Text("F4", 10, 500, 700-14*float64(i), []string{"1", "4", "9", "15", "22"}[i]))
	}
	for _, k := range parse(t, enginetest.File{Pages: []enginetest.Page{{Content: b.String()}}})[0].Blocks {
		if k.Table != nil && len(k.Table.Columns) > 0 {
			t.Errorf("%q", k.Table.Rows)
		}
	}
}
