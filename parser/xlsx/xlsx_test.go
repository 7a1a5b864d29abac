package xlsx

import (
	"testing"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/rows"
)

func sample() []byte {
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="b" Type="x/worksheet" Target="worksheets/sheet2.xml"/><Relationship Id="c" Type="x/worksheet" Target="worksheets/sheet2.xml"/><Relationship Id="d" Type="x/styles" Target="styles.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="Sales" sheetId="1" r:id="a"/><sheet name="Other" sheetId="2" r:id="b"/><sheet name="Secret" state="hidden" sheetId="3" r:id="c"/></sheets></workbook>`,
		"xl/styles.xml", `<styleSheet><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="9"/></cellXfs></styleSheet>`,
		"xl/sharedStrings.xml", `<sst><si><t>Name</t></si><si><t>Day</t></si><si><t>Share</t></si></sst>`,
		"xl/worksheets/sheet1.xml", `<worksheet><sheetData><row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="s"><v>2</v></c></row><row r="2"><c r="A2" t="inlineStr"><is><t>Ann</t></is></c><c r="B2" s="1"><v>45292</v></c><c r="C2" s="2"><v>0.125</v></c></row><row r="3"><c r="B3" s="1"><v>45293.5</v></c><c r="C3"><f>1+1</f><v>2</v></c></row></sheetData><mergeCells><mergeCell ref="A2:A3"/></mergeCells></worksheet>`,
		"xl/worksheets/sheet2.xml", `<worksheet><sheetData><row><c t="b"><v>1</v></c><c><v>0.30000000000000004</v></c></row></sheetData></worksheet>`,
	)
}

var options = parser.Options{Name: "document", MediaType: parser.MediaXLSX}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(), sample(), options, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(), nil, options, rows.New()); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add(annotated(`<worksheet><sheetData/></worksheet>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, rows.New()) // it checks what it reads
	})
}
