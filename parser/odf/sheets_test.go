package odf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/rows"
)

func packSheets(styles, body string) []byte {
	return formattest.Zip("mimetype", parser.MediaODS,
		"content.xml", `<office:document-content `+namespaces+`><office:automatic-styles>`+styles+`</office:automatic-styles><office:body><office:spreadsheet>`+body+`</office:spreadsheet></office:body></office:document-content>`)
}

func sheet(name string, rows ...string) string {
	return fmt.Sprintf(`<table:table table:name="%s">%s</table:table>`, name, strings.Join(rows, ""))
}

func row(cells ...string) string {
	return "<table:table-row>" + strings.Join(cells, "") + "</table:table-row>"
}

func str(text string) string {
	return `<table:table-cell office:value-type="string"><text:p>` + text + `</text:p></table:table-cell>`
}

func typed(kind, value, text string) string {
	return fmt.Sprintf(`<table:table-cell office:value-type="%s" office:%s="%s"><text:p>%s</text:p></table:table-cell>`, kind, map[string]string{"float": "value", "percentage": "value", "currency": "value", "date": "date-value", "time": "time-value", "boolean": "boolean-value"}[kind], value, text)
}

func loadSheets(t *testing.T, content []byte, config sheaf.ParseConfig) (*parser.Plan, []string) {
	t.Helper()
	plan, units, err := formattest.Read(t, NewSheets(), content, parser.Options{Name: "book.ods", MediaType: parser.MediaODS, Config: config}, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, u := range units {
		for _, l := range lines(u.Blocks) {
			out = append(out, strings.TrimPrefix(l, "table: "))
		}
	}
	return plan, out
}

// A workbook that LibreOffice has written.
func TestGoldenWorkbook(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "sample.ods"))
	if err != nil {
		t.Fatal(err)
	}
	plan, units, err := formattest.Read(t, NewSheets(), content, parser.Options{Name: "sample.ods", MediaType: parser.MediaODS}, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "workbook", plan, units)
}

func TestWorkbook(t *testing.T) {
	content := packSheets(`<style:style style:name="ta2" style:family="table"><style:table-properties table:display="false"/></style:style>`,
		`<table:content-validations><table:content-validation><table:help-message><text:p>Type a number</text:p></table:help-message></table:content-validation></table:content-validations>`+
			sheet("Harvest", row(str("Fruit"), str("Tons"), str("Since")),
				`<table:shapes><draw:frame><draw:text-box><text:p>In a <text:span>box</text:span></text:p></draw:text-box></draw:frame><draw:frame><draw:image xlink:href="Pictures/1.png"/></draw:frame></table:shapes>`,
				row(str("Quince"), typed("float", "1234.5", "1.234,50"), typed("date", "2024-03-12", "12.03.24")),
				row(str(`Pear<office:annotation><dc:creator>Ada</dc:creator><dc:date>2024-01-01</dc:date><text:p>Which one?</text:p></office:annotation>`), typed("float", "7", "7"), typed("date", "2024-03-13T08:30:00.5", "x")),
				`<table:table-row table:number-rows-repeated="2">`+str("Fig")+typed("float", "3", "3")+`<table:table-cell table:number-columns-repeated="16382"/></table:table-row>`,
				`<table:table-row table:number-rows-repeated="1048570"><table:table-cell table:number-columns-repeated="16384"/></table:table-row>`)+
			strings.Replace(sheet("Secret", row(str("hidden"))), "<table:table ", `<table:table table:style-name="ta2" `, 1)+
			sheet("Links", row(str("Name"), str("Site")), row(str("A"), str(`<text:a xlink:href="https://example.org/a">page</text:a>`)), row(str("B"), `<table:table-cell table:formula="of:=HYPERLINK(&quot;https://example.org/b&quot;;&quot;b&quot;)" office:value-type="string"><text:p>b</text:p></table:table-cell>`)))
	plan, got := loadSheets(t, content, sheaf.ParseConfig{})
	want := []string{
		"HarvestFruit|Tons|Since / Quince|1,234.50|2024-03-12 / Pear|7|2024-03-13 08:30:00 / Fig|3| / Fig|3|",
		"Harvest: text boxesText / In a box", "Harvest: notesCell|Note / A3|Which one?",
		"LinksName|Site / A|page / B|b <https://example.org/a> <https://example.org/b>",
	}
	if !slices.Equal(got, want) {
		t.Errorf("read\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if plan.Units != 8 || plan.Unit != sheaf.UnitRow || plan.Metadata["sheets"] != "3" || plan.Metadata["rows"] != "8" || len(plan.Ranges) != 4 || plan.Ranges[0].Shard == "" {
		t.Errorf("%+v", plan)
	}
	var codes []string
	for _, w := range plan.Warnings {
		codes = append(codes, w.Code)
	}
	if !slices.Equal(codes, []string{"hidden_sheets", "images_ignored"}) {
		t.Errorf("warnings %v", codes)
	}
	// Several ranges are read from their shards, to the same rows.
	var of sheaf.ParseConfig
	of.TableRows = sheaf.Set(2)
	if plan, cut := loadSheets(t, content, of); len(plan.Ranges) != 5 || plan.Ranges[0].Shard == "" || !strings.HasPrefix(cut[1], "HarvestFruit|Tons|Since / Fig|3|") {
		t.Errorf("%+v, %q", plan.Ranges, cut)
	}
	// Rows that are questions have none beside them.
	of.ChunkMethod = sheaf.Set("qa")
	if _, cut := loadSheets(t, content, of); slices.ContainsFunc(cut, func(s string) bool { return strings.Contains(s, "notes") }) {
		t.Errorf("%q", cut)
	}
	// Where all sheets are hidden, they are read.
	if _, got := loadSheets(t, packSheets(`<style:style style:name="ta2" style:family="table"><style:table-properties table:display="false"/></style:style>`, `<table:table table:name="S" table:style-name="ta2">`+row(str("hidden"))+`</table:table>`), sheaf.ParseConfig{}); len(got) != 1 || !strings.Contains(got[0], "hidden") {
		t.Errorf("%q", got)
	}
}

func TestCells(t *testing.T) {
	for _, c := range []struct{ cell, want string }{
		{typed("float", "0.30000000000000004", ""), "0.3"},
		{typed("float", "0.333333333333333", "0,33"), "0.33"},
		{typed("float", "-1234567.891", "-1 234 567,9"), "-1,234,567.9"},
		{typed("float", "1.234", "1.234"), "1.234"},
		{typed("float", "1234", "1.234"), "1,234"},
		{typed("float", "1234567", "1’234’567"), "1,234,567"},
		{typed("float", "0.5", "½ km"), "½ km"},
		{typed("float", "12", "12 kg"), "12 kg"},
		{typed("float", "0", "-"), "-"},
		{typed("float", "7", "007"), "7"},
		{typed("percentage", "0.15", "15 %"), "15 %"},
		{typed("currency", "12.5", "12,50 €"), "12,50 €"},
		{typed("time", "PT13H05M29.7S", "01:05 PM"), "13:05:30"},
		{typed("time", "PT30H00M00S", "30:00"), "30:00:00"},
		{typed("time", "soon", "soon"), "soon"},
		{typed("boolean", "true", "WAHR"), "TRUE"},
		{typed("date", "2024", "in 2024"), "in 2024"},
		{`<table:table-cell office:value-type="string" office:string-value="of the value"/>`, "of the value"},
		{`<table:table-cell><text:p>two</text:p><text:p>lines<text:line-break/>and<text:s text:c="2"/>more</text:p></table:table-cell>`, "two\nlines\nand  more"},
		{str("a<text:note><text:p>b</text:p></text:note>"), "a\nb"},
	} {
		if _, got := loadSheets(t, packSheets("", sheet("", row(c.cell))), sheaf.ParseConfig{}); len(got) != 1 || got[0] != " / "+c.want {
			t.Errorf("%s: %q, want %q", c.cell, got, c.want)
		}
	}
}

// The text of a merged cell is that of its rows.
func TestMergedCells(t *testing.T) {
	merged := `<table:table-cell table:number-columns-spanned="2" table:number-rows-spanned="3"><text:p>tall</text:p></table:table-cell>`
	const covered = `<table:covered-table-cell table:number-columns-repeated="2"/>`
	_, got := loadSheets(t, packSheets("", sheet("S", row(merged, `<table:covered-table-cell/>`, str("1")), row(covered, str("2")), row(covered, str("3")), row(str("below"), str("x"), str("4")))), sheaf.ParseConfig{})
	if want := []string{"S / tall||1 / tall||2 / tall||3 / below|x|4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A few bytes cannot stand for more rows and cells than a workbook has.
func TestRepeatsAreBounded(t *testing.T) {
	plan, _ := loadSheets(t, packSheets("", sheet("S", `<table:table-row table:number-rows-repeated="1000000"><table:table-cell table:number-columns-repeated="100"><text:p>x</text:p></table:table-cell></table:table-row>`)), sheaf.ParseConfig{})
	if plan.Units < 1000 || plan.Units > maxRepeatedCells/100+1 || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "rows_repeated" {
		t.Errorf("%d rows, %+v", plan.Units, plan.Warnings)
	}
}

func TestCoveredCellsAreBounded(t *testing.T) {
	const covered = `<table:table-row><table:covered-table-cell table:number-columns-repeated="16384"/></table:table-row>`
	plan, _ := loadSheets(t, packSheets("", sheet("S", row(`<table:table-cell table:number-columns-repeated="16384" table:number-rows-spanned="60000"><text:p>x</text:p></table:table-cell>`), strings.Repeat(covered, 50_000))), sheaf.ParseConfig{})
	if plan.Units < 100 || plan.Units > maxRepeatedCells/16384+2 || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "rows_repeated" {
		t.Errorf("%d rows, %+v", plan.Units, plan.Warnings)
	}
}

func TestDamagedWorkbooks(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		code    string
	}{
		"without cells":   {packSheets("", sheet("S")), "empty_file"},
		"damaged":         {formattest.Zip("content.xml", "<office:spreadsheet><table:table"), "invalid_ods"},
		"with a password": {formattest.Zip("content.xml", "x", manifestPart, "<manifest:encryption-data/>"), "encrypted"},
		"of no end":       {packSheets("", strings.Repeat("<table:table-row-group>", 5000)), "too_deep"},
	} {
		_, _, err := formattest.Read(t, NewSheets(), c.content, parser.Options{Name: "book.ods", MediaType: parser.MediaODS}, rows.New())
		if f := sheaf.AsFailure(err, ""); err == nil || f.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	plan, got := loadSheets(t, formattest.Zip("content.xml", "<o><office:spreadsheet><table:table table:name='S'>"+row(str("before"))+"<table:table-row><table:table-cell><text:p>the en"), sheaf.ParseConfig{})
	if len(got) != 1 || got[0] != "S / before" || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "document_damaged" {
		t.Errorf("%q, %+v", got, plan.Warnings)
	}
}

func FuzzReadSheets(f *testing.F) {
	for _, body := range []string{
		sheet("S", row(str("x"), typed("float", "1.5", "1,5"))), sheet("S", `<table:table-row table:number-rows-repeated="3"><table:covered-table-cell table:number-columns-repeated="9"/>`+str("x")+"</table:table-row>"),
		sheet("S", row(`<table:table-cell table:number-rows-spanned="3"><office:annotation><text:p>n</text:p></office:annotation><text:p>x</text:p></table:table-cell>`)), "</table:table-row><draw:frame><text:p>x",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		_, _, _ = formattest.Read(t, NewSheets(), packSheets(body, body), parser.Options{Name: "book.ods", MediaType: parser.MediaODS}, rows.New()) // it checks what it reads
	})
}
