package chart

import (
	"reflect"
	"strings"
	"testing"

	"sheaf"
)

const sample = `<c:chartSpace xmlns:c="c" xmlns:a="a"><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Yield</a:t></a:r></a:p><a:p><a:r><a:t>in tons</a:t></a:r></a:p></c:rich></c:tx></c:title>
<c:plotArea><c:barChart>
<c:ser><c:tx><c:strRef><c:strCache><c:pt idx="0"><c:v>wet</c:v></c:pt></c:strCache></c:strRef></c:tx>
<c:cat><c:strRef><c:strCache><c:ptCount val="3"/><c:pt idx="0"><c:v>A</c:v></c:pt><c:pt idx="2"><c:v>C</c:v></c:pt></c:strCache></c:strRef></c:cat>
<c:val><c:numRef><c:numCache><c:formatCode>General</c:formatCode><c:pt idx="0"><c:v>4.3</c:v></c:pt><c:pt idx="2"><c:v>2</c:v></c:pt></c:numCache></c:numRef></c:val></c:ser>
<c:ser><c:tx><c:v>dry</c:v></c:tx><c:val><c:numLit><c:pt idx="0"><c:v>1</c:v></c:pt></c:numLit></c:val></c:ser>
</c:barChart><c:valAx><c:title><c:tx><c:rich><a:p><a:r><a:t>axis</a:t></a:r></a:p></c:rich></c:tx></c:title></c:valAx></c:plotArea></c:chart></c:chartSpace>`

func TestFiguresBecomeATable(t *testing.T) {
	want := &sheaf.Table{Name: "Yield in tons", Columns: []string{"", "wet", "dry"}, Rows: [][]string{{"A", "4.3", "1"}, {"C", "2", ""}}}
	if got := Read(strings.NewReader(sample)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestChartsWithoutFiguresAreNone(t *testing.T) {
	for _, s := range []string{"", "<c:chart/>", `<ser><cat><pt idx="1"><v>a</v></pt></cat></ser>`, "no markup", strings.Repeat("<ser><val>", 600)} {
		if got := Read(strings.NewReader(s)); got != nil {
			t.Errorf("%.40q: %+v", s, got)
		}
	}
}

func TestHostileChartsStaySmall(t *testing.T) {
	got := Read(strings.NewReader(`<ser><val><pt idx="999999999"><v>` + strings.Repeat("1", 1<<20) + `</v></pt><pt idx="-5"><v>2</v></pt></val></ser>` + strings.Repeat("<ser></ser>", 100_000)))
	if len(got.Rows) != 2 || len(got.Columns) != maxSeries+1 || len(got.Rows[1][1]) > maxText {
		t.Errorf("%d rows of %d columns", len(got.Rows), len(got.Columns))
	}
}
