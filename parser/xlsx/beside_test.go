package xlsx

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/rows"
)

// annotated is a workbook with text beside the cells of a sheet, of a sheet without
// cells and of a hidden one.
func annotated(cells string) []byte {
	shape := func(text, hidden string) string {
		return `<xdr:twoCellAnchor><xdr:sp><xdr:nvSpPr><xdr:cNvPr id="2" name="T"` + hidden + `/></xdr:nvSpPr><xdr:txBody><a:p><a:r><a:t>` + text + `</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:twoCellAnchor>`
	}
	sheet := func(id, target string) string {
		return `<Relationship Id="` + id + `" Type="x/worksheet" Target="worksheets/` + target + `"/>`
	}
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/_rels/workbook.xml.rels", `<Relationships>`+sheet("a", "sheet1.xml")+sheet("b", "sheet2.xml")+sheet("c", "sheet3.xml")+`</Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="Fields" sheetId="1" r:id="a"/><sheet name="Plan" sheetId="2" r:id="b"/><sheet name="Secret" state="hidden" sheetId="3" r:id="c"/></sheets></workbook>`,
		"xl/worksheets/sheet1.xml", cells,
		"xl/worksheets/_rels/sheet1.xml.rels", `<Relationships><Relationship Id="d" Type="x/drawing" Target="../drawings/drawing1.xml"/><Relationship Id="n" Type="x/comments" Target="../comments1.xml"/><Relationship Id="t" Type="x/threadedComment" Target="../threadedComments/threadedComment1.xml"/></Relationships>`,
		"xl/drawings/_rels/drawing1.xml.rels", `<Relationships><Relationship Id="g" Type="x/diagramData" Target="../diagrams/data1.xml"/></Relationships>`,
		"xl/drawings/drawing1.xml", `<xdr:wsDr>`+shape("Figures of &lt;2025&gt;", "")+shape("out of sight", ` hidden="1"`)+
			`<mc:AlternateContent><mc:Choice>`+shape("Chosen", "")+`</mc:Choice><mc:Fallback>`+shape("Repeated", "")+`</mc:Fallback></mc:AlternateContent>`+
			strings.Repeat(`<xdr:graphicFrame><a:graphicData><dgm:relIds r:dm="g"/></a:graphicData></xdr:graphicFrame><xdr:graphicFrame><a:graphicData><dgm:relIds r:dm="none"/></a:graphicData></xdr:graphicFrame>`, 3)+`</xdr:wsDr>`,
		"xl/diagrams/data1.xml", `<dgm:dataModel><dgm:pt><dgm:t><a:p><a:r><a:t>Sow</a:t></a:r></a:p></dgm:t></dgm:pt><dgm:pt/><dgm:pt><dgm:t><a:p><a:r><a:t>Reap</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:dataModel>`,
		"xl/comments1.xml", `<comments><authors><author>Ann</author></authors><commentList><comment ref="B2" authorId="0"><text><r><t>Measured </t></r><r><t>in June</t></r></text></comment><comment ref="C3"><text><t>[Threaded comment]&#10;Comment: Is this right?</t></text></comment></commentList></comments>`,
		"xl/threadedComments/threadedComment1.xml", `<ThreadedComments><threadedComment ref="C3" id="1"><text>Is this right?</text></threadedComment><threadedComment ref="C3" parentId="1"><text>Yes.</text></threadedComment></ThreadedComments>`,
		"xl/worksheets/sheet2.xml", `<worksheet><sheetData/></worksheet>`,
		"xl/worksheets/_rels/sheet2.xml.rels", `<Relationships><Relationship Id="d" Type="x/drawing" Target="../drawings/drawing2.xml"/></Relationships>`,
		"xl/drawings/drawing2.xml", `<xdr:wsDr>`+shape("A sheet of this alone", "")+`</xdr:wsDr>`,
		"xl/worksheets/sheet3.xml", `<worksheet><sheetData/></worksheet>`,
		"xl/worksheets/_rels/sheet3.xml.rels", `<Relationships><Relationship Id="d" Type="x/drawing" Target="../drawings/drawing3.xml"/></Relationships>`,
		"xl/drawings/drawing3.xml", `<xdr:wsDr>`+shape("secret", "")+`</xdr:wsDr>`,
	)
}

// tables lists each table as its name, columns and rows.
func tables(t *testing.T, content []byte) (got []string, warnings []sheaf.Warning) {
	t.Helper()
	plan, units, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		for _, b := range u.Blocks {
			got = append(got, fmt.Sprintf("%s %d %q %q", b.Table.Name, b.Table.FirstRow, b.Table.Columns, b.Table.Rows))
		}
	}
	return got, plan.Warnings
}

func TestTextBesideTheCellsIsRead(t *testing.T) {
	got, _ := tables(t, annotated(`<worksheet><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>Field</t></is></c><c r="B1" t="inlineStr"><is><t>Tons</t></is></c></row><row r="2"><c r="A2" t="inlineStr"><is><t>North</t></is></c><c r="B2"><v>12</v></c></row></sheetData></worksheet>`))
	want := []string{
		`Fields 1 ["Field" "Tons"] [["North" "12"]]`,
		`Fields: text boxes 2 ["Text"] [["Figures of <2025>"] ["Chosen"] ["Sow\nReap"]]`,
		`Fields: notes 5 ["Cell" "Note"] [["B2" "Measured in June"] ["C3" "Is this right?"] ["C3" "Yes."]]`,
		`Plan: text boxes 8 ["Text"] [["A sheet of this alone"]]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A row that is a question with its answer, or tags, is a row of cells.
func TestQuestionsAndTagsAreCells(t *testing.T) {
	content := annotated(`<worksheet><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>When?</t></is></c><c r="B1" t="inlineStr"><is><t>In June</t></is></c></row></sheetData></worksheet>`)
	for _, method := range []string{"qa", "tag", "table"} {
		o := options
		o.Config.ChunkMethod = sheaf.Set(method)
		plan, _, err := formattest.Read(t, New(), content, o, rows.New())
		if err != nil || (plan.Units == 1) != (method != "table") {
			t.Errorf("%s: %+v %v", method, plan, err)
		}
	}
}

// A workbook of several ranges is split into shards: what stands beside the cells
// comes in them too, once.
func TestTextBesideManyRowsIsRead(t *testing.T) {
	var cells strings.Builder
	for n := range 7000 {
		fmt.Fprintf(&cells, `<row r="%d"><c r="A%[1]d"><v>%[1]d</v></c></row>`, n+1)
	}
	content := annotated(`<worksheet><sheetData>` + cells.String() + `</sheetData></worksheet>`)
	plan, units, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil || len(plan.Ranges) < 3 || plan.Units != 7007 {
		t.Fatalf("%+v %v", plan, err)
	}
	seen := map[string]int{}
	for _, u := range units {
		for _, b := range u.Blocks {
			for _, r := range b.Table.Rows {
				seen[r[len(r)-1]]++
			}
		}
	}
	for _, text := range []string{"1", "7000", "Chosen", "Yes.", "A sheet of this alone"} {
		if seen[text] != 1 {
			t.Errorf("%q is read %d times", text, seen[text])
		}
	}
}

func TestNotesAreBounded(t *testing.T) {
	var notes strings.Builder
	for n := range maxBesideRows + 10 {
		fmt.Fprintf(&notes, `<comment ref="A%d"><text><t>%[1]d</t></text></comment>`, n+1)
	}
	content := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="S" sheetId="1" r:id="a"/></sheets></workbook>`,
		"xl/worksheets/sheet1.xml", `<worksheet><sheetData/></worksheet>`,
		"xl/worksheets/_rels/sheet1.xml.rels", `<Relationships><Relationship Id="n" Type="x/comments" Target="../comments1.xml"/><Relationship Id="o" Type="x/comments" Target="../comments1.xml"/></Relationships>`,
		"xl/comments1.xml", `<comments>`+notes.String()+`</comments>`,
	)
	plan, _, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil || plan.Units != maxBesideRows {
		t.Fatalf("%+v %v", plan, err)
	}
	if !slices.ContainsFunc(plan.Warnings, func(w sheaf.Warning) bool { return w.Code == "notes_clipped" }) {
		t.Errorf("warnings %+v", plan.Warnings)
	}
}

// A damaged part is read up to the damage, which is said, and costs no cell.
func TestDamagedNotesAreNamed(t *testing.T) {
	content := formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="S" sheetId="1" r:id="a"/></sheets></workbook>`,
		"xl/worksheets/sheet1.xml", `<worksheet><sheetData><row r="1"><c r="A1"><v>7</v></c></row></sheetData></worksheet>`,
		"xl/worksheets/_rels/sheet1.xml.rels", `<Relationships><Relationship Id="n" Type="x/comments" Target="../comments1.xml"/></Relationships>`,
		"xl/comments1.xml", `<comments><comment ref="A1"><text><t>kept</t></text></comment><comment ref="A2`,
	)
	got, warnings := tables(t, content)
	if want := []string{`S 1 ["Column A"] [["7"]]`, `S: notes 2 ["Cell" "Note"] [["A1" "kept"]]`}; len(got) != 2 || got[1] != want[1] || !strings.Contains(got[0], `[["7"]]`) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(warnings) != 1 || warnings[0].Code != "notes_damaged" {
		t.Errorf("warnings %+v", warnings)
	}
}

// The notes and text boxes of real workbooks, of the corpus.
func TestTextBesideTheCellsOfRealWorkbooks(t *testing.T) {
	dir := os.Getenv("SHEAF_CORPUS")
	if dir == "" {
		t.Skip("SHEAF_CORPUS is not set")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "xlsx", "*.xlsx"))
	with := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, units, err := formattest.Read(t, New(), b, options, rows.New())
		if err != nil {
			continue
		}
		for _, u := range units {
			for _, k := range u.Blocks {
				if strings.HasSuffix(k.Table.Name, ": notes") || strings.HasSuffix(k.Table.Name, ": text boxes") {
					with++
					t.Logf("%s %s %.200q", filepath.Base(f), k.Table.Name, k.Table.Rows)
				}
			}
		}
	}
	if len(files) > 100 && with < 10 {
		t.Errorf("%d of %d files", with, len(files))
	}
}
