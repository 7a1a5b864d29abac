package xlsx

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/zipfile"
	"sheaf/parser/rows"
)

// book makes a workbook by hand of its caller, with excelize as the writer.
func book(t testing.TB, fill func(f *excelize.File) error) []byte {
	t.Helper()
	f := excelize.NewFile()
	defer f.Close()
	if err := fill(f); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// grid reads the first sheet, with the library's looks or without.
func grid(t testing.TB, content []byte, looked bool) [][]string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "book")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := zipfile.Open(file, "xlsx")
	if err != nil {
		t.Fatal(err)
	}
	w, err := open(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.readStrings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if looked {
		w.looks = newLooks(w)
	}
	var out [][]string
	if err := w.rows(t.Context(), w.sheets[0], func(_ int, r []string) error { out = append(out, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if looked && (w.looks.failed || w.looks.book == nil) {
		t.Fatal("the library did not read the workbook")
	}
	if err := w.looks.close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Fatalf("temporary files are left: %v %v", left, err)
	}
	return out
}

// A large workbook is read without the library, a small one with it: the same
// cell must not read differently.
func TestACellReadsTheSameByBothReaders(t *testing.T) {
	numbers := []float64{0, 1, -1, 12.5, 0.1 + 0.2, 1.0 / 3, 1e-7, 1.5e-12, 123456789012345, 1234567890123456, 1e20, -2.5e21, 0.000123, 100, 1e15, 99999.99999999999}
	shares := []float64{0, 0.125, 0.145, 0.5, 1, 12.345, -0.25, 0.00049, 1.0 / 3}
	days := []float64{1, 45292, 45293.5, 45293.123456, 44561.999988426, 60, 61, 36526, 2958465, 45292.0000001}
	clocks := []float64{0, 0.1, 0.5, 0.75, 0.999, 1.25, 3.5, 0.0000116}
	content := book(t, func(f *excelize.File) error {
		row := 0
		put := func(values []float64, formats ...string) error {
			for _, code := range formats {
				row++
				style := 0
				if code != "" {
					var err error
					if style, err = f.NewStyle(&excelize.Style{CustomNumFmt: &code}); err != nil {
						return err
					}
				}
				for i, v := range values {
					cell, err := excelize.CoordinatesToCellName(i+1, row)
					if err == nil {
						err = errors.Join(f.SetCellFloat("Sheet1", cell, v, -1, 64), f.SetCellStyle("Sheet1", cell, cell, style))
					}
					if err != nil {
						return err
					}
				}
			}
			return nil
		}
		if err := errors.Join(
			put(numbers, "", "General", "@"),
			put(shares, "0%", "0.0%", "0.00%", "0.000%"),
			put(days, "yyyy-mm-dd", "d/m/yy", "[$-409]mmmm d, yyyy", "yyyy-mm-dd hh:mm", "m/d/yy h:mm AM/PM"),
			put(clocks, "h:mm:ss", "[h]:mm", "hh:mm"),
		); err != nil {
			return err
		}
		for id, values := range map[int][]float64{9: shares, 10: shares, 14: days, 22: days, 20: clocks, 46: clocks} {
			style, err := f.NewStyle(&excelize.Style{NumFmt: id})
			if err != nil {
				return err
			}
			row++
			for i, v := range values {
				cell, err := excelize.CoordinatesToCellName(i+1, row)
				if err := errors.Join(err, f.SetCellFloat("Sheet1", cell, v, -1, 64), f.SetCellStyle("Sheet1", cell, cell, style)); err != nil {
					return err
				}
			}
		}
		// One cell that the library is asked for, in the middle of the rest.
		code := "#,##0"
		style, err := f.NewStyle(&excelize.Style{CustomNumFmt: &code})
		if err != nil {
			return err
		}
		row++
		return errors.Join(
			f.SetCellInt("Sheet1", "Z1", 1234567), f.SetCellStyle("Sheet1", "Z1", "Z1", style),
			f.SetSheetRow("Sheet1", fmt.Sprintf("A%d", row), &[]any{"text", " spaces ", "line\nbreak", "ümläut 日本", "_x000D_", "00123", "1e5", true, false, time.Date(2024, 2, 29, 13, 5, 7, 0, time.UTC)}),
			f.SetCellRichText("Sheet1", fmt.Sprintf("A%d", row+2), []excelize.RichTextRun{{Text: "rich "}, {Text: "text"}}),
		)
	})
	streamed, looked := grid(t, content, false), grid(t, content, true)
	if len(streamed) != len(looked) || len(streamed) < 20 {
		t.Fatalf("%d rows streamed, %d looked at", len(streamed), len(looked))
	}
	if streamed[0][25] != "1234567" || looked[0][25] != "1,234,567" {
		t.Errorf("%q streamed, %q looked at", streamed[0][25], looked[0][25])
	}
	streamed[0], looked[0] = streamed[0][:25], looked[0][:25]
	for i := range streamed {
		if !slices.Equal(streamed[i], looked[i]) {
			t.Errorf("row %d\nstreamed %q\nlooked   %q", i+1, streamed[i], looked[i])
		}
	}
}

// The library is given numbers and formats without their workbook: what it
// shows must be what it shows of the workbook itself.
func TestTheLibraryShowsTheSameOfItsSheetAsOfTheWorkbook(t *testing.T) {
	values := []string{"0", "1", "-1", "12.5", "1234567.891", "-1234.5", "0.1", "1E-7", "1.0E+20", "0.30000000000000004", "12345678901234567", "45292.5", "abc", "1e400", " 7 ", "&lt;5"}
	codes := []string{`#,##0`, `#,##0.00;[Red]-#,##0.00`, `"$"#,##0.00`, `_-* #,##0.00 "€"_-;-* #,##0.00 "€"_-;_-* "-"?? "€"_-;_-@_-`, `0.00E+00`, `# ?/?`, `# ??/??`, `000-0000`,
		`0" kg"`, `0;"minus "0`, `[>100]"many";0`, `0.0,,"M"`, `"a&b" <0> 'x'`, `\(0\)`, `00000`, `0.###`, `[$-409]#,##0`, `#`, `;;;`, `"only text"`, `[$€-2] #,##0`}
	for _, years := range []string{"", `<workbookPr date1904="1"/>`} {
		var styles, xfs, sheet strings.Builder
		for i, code := range codes {
			fmt.Fprintf(&styles, `<numFmt numFmtId="%d" formatCode="%s"`, 164+i, escape(code))
			if i == 3 {
				styles.WriteString(` x16r2:formatCode16="0.0 &quot;sixteen&quot;"`)
			}
			styles.WriteString("/>")
			fmt.Fprintf(&xfs, `<xf numFmtId="%d" fontId="0"/>`, 164+i)
		}
		fmt.Fprintf(&styles, `<numFmt numFmtId="164" formatCode="%s"/>`, "0.0000") // twice: the first counts
		for id := 1; id <= 49; id++ {
			fmt.Fprintf(&xfs, `<xf numFmtId="%d"/>`, id)
		}
		for style := range len(codes) + 50 {
			fmt.Fprintf(&sheet, `<row r="%d">`, style+1)
			for i, v := range values {
				fmt.Fprintf(&sheet, `<c r="%c%d" s="%d"><v>%s</v></c>`, 'A'+i, style+1, style, v)
			}
			sheet.WriteString("</row>")
		}
		content := formattest.Zip(
			"[Content_Types].xml", lookTypes,
			"_rels/.rels", lookRoot,
			"xl/_rels/workbook.xml.rels", strings.Replace(lookRels, "</R", `<Relationship Id="rId2" Type="`+nsOffice+`/styles" Target="styles.xml"/></R`, 1),
			"xl/workbook.xml", `<workbook xmlns="`+nsSheets+`" xmlns:r="`+nsOffice+`">`+years+`<sheets><sheet name="One" sheetId="1" r:id="rId1"/></sheets></workbook>`,
			"xl/styles.xml", `<styleSheet xmlns="`+nsSheets+`" xmlns:x16r2="`+ns2015+`"><numFmts>`+styles.String()+`</numFmts><cellXfs><xf numFmtId="3"/>`+xfs.String()+`</cellXfs></styleSheet>`,
			"xl/worksheets/sheet1.xml", `<worksheet xmlns="`+nsSheets+`"><sheetData>`+sheet.String()+`</sheetData></worksheet>`,
		)
		got, streamed := grid(t, content, true), grid(t, content, false)
		f, err := excelize.OpenReader(bytes.NewReader(content), excelize.Options{ShortDatePattern: "yyyy-mm-dd", LongDatePattern: "yyyy-mm-dd", LongTimePattern: "hh:mm:ss"})
		if err != nil {
			t.Fatal(err)
		}
		want, err := f.GetRows("One")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		formatted := 0
		for style, row := range got {
			code := builtin(style - len(codes))
			if style > 0 && style <= len(codes) {
				code = formatOf(codes[style-1])
			} else if style == 0 {
				code = special
			}
			if code != special {
				continue
			}
			for i, text := range row {
				show := streamed[style][i]
				if i < len(want[style]) && strings.TrimSpace(want[style][i]) != "" {
					show = strings.TrimSpace(want[style][i])
				}
				if text != show {
					t.Errorf("style %d, %s: %q, and %q in the workbook", style, values[i], text, show)
				}
				if text != streamed[style][i] {
					formatted++
				}
			}
		}
		if formatted < 200 {
			t.Errorf("the library has shown %d cells", formatted)
		}
	}
}

// More numbers than a row of the library's sheet holds, over several sheets,
// two of one name: each cell gets its own.
func TestLooksFindTheirCells(t *testing.T) {
	const n = 3*lookCells + 7
	parts := []string{"xl/styles.xml", `<styleSheet><numFmts><numFmt numFmtId="170" formatCode="#,##0&quot; km&quot;"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="170"/></cellXfs></styleSheet>`}
	rels, sheets := `<Relationship Id="s" Type="x/styles" Target="styles.xml"/>`, ""
	for k := range 3 {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `<row r="%d"><c t="inlineStr"><is><t>n</t></is></c><c s="1"><v>%d</v></c><c s="1"><v></v></c><c s="1"><v>%d</v></c></row>`, 2*i+1, 1000+i*(k+1), 5000)
		}
		parts = append(parts, fmt.Sprintf("xl/worksheets/s%d.xml", k), `<worksheet><sheetData>`+b.String()+`</sheetData></worksheet>`)
		rels += fmt.Sprintf(`<Relationship Id="r%d" Type="x/worksheet" Target="worksheets/s%d.xml"/>`, k, k)
		sheets += fmt.Sprintf(`<sheet name="%s" r:id="r%d"/>`, []string{"A", "B", "a"}[k], k)
	}
	content := formattest.Zip(append(parts, "xl/_rels/workbook.xml.rels", `<Relationships>`+rels+`</Relationships>`, "xl/workbook.xml", `<workbook><sheets>`+sheets+`</sheets></workbook>`)...)
	_, units, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, u := range units {
		for _, r := range u.Blocks[0].Table.Rows {
			k, i := seen/n, seen%n
			v := 1000 + i*(k+1)
			if want := fmt.Sprintf("%d,%03d km", v/1000, v%1000); r[1] != want || r[2] != "" || r[3] != "5,000 km" {
				t.Fatalf("sheet %d, row %d: %q, want %q", k, i, r, want)
			}
			seen++
		}
	}
	if seen != 3*n {
		t.Errorf("%d rows", seen)
	}
}

func TestNumbersLookAsTheirFormatsSay(t *testing.T) {
	content := book(t, func(f *excelize.File) error {
		for i, code := range []string{`#,##0.00`, `"$"#,##0.00`, `0.00E+00`, `# ?/?`, `000-0000`, `0" kg"`, `0;"minus "0`} {
			style, err := f.NewStyle(&excelize.Style{CustomNumFmt: &code})
			cell := fmt.Sprintf("A%d", i+1)
			if err := errors.Join(err, f.SetCellFloat("Sheet1", cell, []float64{1234567.5, 1234.5, 12345, 2.25, 5551234, 12, -3}[i], -1, 64), f.SetCellStyle("Sheet1", cell, cell, style)); err != nil {
				return err
			}
		}
		return nil
	})
	plan, units, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil || plan.Units != 7 {
		t.Fatal(plan, err)
	}
	var got []string
	for _, u := range units {
		for _, r := range u.Blocks[0].Table.Rows {
			got = append(got, r[0])
		}
	}
	want := []string{"1,234,567.50", "$1,234.50", "1.23E+04", "2 1/4", "555-1234", "12 kg", "minus 3"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The library reads nothing of a sheet whose size in the zip is a lie, and
// says nothing of it.
func TestALyingSizeIsSaid(t *testing.T) {
	content := book(t, func(f *excelize.File) error {
		code := "#,##0"
		style, err := f.NewStyle(&excelize.Style{CustomNumFmt: &code})
		if err != nil {
			return err
		}
		for i := range 500 {
			if err := f.SetSheetRow("Sheet1", fmt.Sprintf("A%d", i+1), &[]any{i * 1000, "name"}); err != nil {
				return err
			}
		}
		return f.SetCellStyle("Sheet1", "A1", "A500", style)
	})
	// The directory's entry of the sheet claims 100 bytes.
	at := bytes.LastIndex(content, []byte("xl/worksheets/sheet1.xml"))
	copy(content[at-46+24:], []byte{100, 0, 0, 0})
	_, _, err := formattest.Read(t, New(), content, options, rows.New())
	if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "invalid_xlsx" {
		t.Fatal(err)
	}
}

func many(t testing.TB, n int) []byte {
	t.Helper()
	return book(t, func(f *excelize.File) error {
		w, err := f.NewStreamWriter("Sheet1")
		if err != nil {
			return err
		}
		if err := w.SetRow("A1", []any{"id", "name", "amount"}); err != nil {
			return err
		}
		for i := range n {
			if err := w.SetRow(fmt.Sprintf("A%d", i+2), []any{i, fmt.Sprintf("name %d", i), float64(i) / 4}); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}

func TestAWorkbookIsCutIntoShards(t *testing.T) {
	o := options
	o.Config.TableRows = sheaf.Set(400)
	for _, n := range []int{1000, 21_000} { // of moderate size, and streamed
		o.Config.TableRows = sheaf.Set(n * 2 / 5)
		plan, units, err := formattest.Read(t, New(), many(t, n), o, rows.New())
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Ranges) != 3 || plan.Units != n {
			t.Fatalf("%d ranges of %d rows", len(plan.Ranges), plan.Units)
		}
		for _, r := range plan.Ranges {
			if r.Shard == "" || r.Fingerprint == 0 || r.Cost < 1 {
				t.Fatalf("%+v", r)
			}
		}
		next := 0
		for _, u := range units {
			tb := u.Blocks[0].Table
			if !slices.Equal(tb.Columns, []string{"id", "name", "amount"}) || !slices.Equal(tb.Types, []string{"integer", "text", "number"}) || tb.FirstRow != next+1 {
				t.Fatalf("row %d: %q %q, first %d", next+1, tb.Columns, tb.Types, tb.FirstRow)
			}
			for _, r := range tb.Rows {
				if r[0] != fmt.Sprint(next) || r[1] != fmt.Sprintf("name %d", next) {
					t.Fatalf("row %d is %q", next+1, r)
				}
				next++
			}
		}
		if next != n {
			t.Fatalf("%d of %d rows", next, n)
		}
	}
}

func TestRowsBeforeDamageAreKept(t *testing.T) {
	var sheet strings.Builder
	sheet.WriteString(`<worksheet><sheetData>`)
	for i := range 300 {
		fmt.Fprintf(&sheet, `<row r="%d"><c><v>%d</v></c><c t="str"><v>text %d</v></c></row>`, i+1, i, i)
	}
	content := formattest.Zip(
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="b" Type="x/worksheet" Target="worksheets/sheet2.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="Broken" r:id="a"/><sheet name="Whole" r:id="b"/></sheets></workbook>`,
		"xl/worksheets/sheet1.xml", sheet.String()+`<row r="301"><c><v>3`,
		"xl/worksheets/sheet2.xml", `<worksheet><sheetData><row><c><v>1</v></c></row></sheetData></worksheet>`,
	)
	plan, units, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	if plan.Units != 301 {
		t.Fatalf("%d rows", plan.Units)
	}
	if !slices.ContainsFunc(plan.Warnings, func(w sheaf.Warning) bool {
		return w.Code == "sheet_damaged" && strings.Contains(w.Message, `"Broken"`)
	}) {
		t.Error(plan.Warnings)
	}
	if last := units[len(units)-1].Blocks[0].Table; last.Name != "Whole" {
		t.Error(last.Name)
	}
}

func TestADefinedTableNamesItsColumns(t *testing.T) {
	content := book(t, func(f *excelize.File) error {
		// Numbers as names and a title above as wide as the table: no guess finds them.
		return errors.Join(
			f.SetSheetRow("Sheet1", "A1", &[]any{"Report", "of", "all"}),
			f.SetSheetRow("Sheet1", "A3", &[]any{"2021", "2022", "2023"}),
			f.SetSheetRow("Sheet1", "A4", &[]any{"1", "2", "3"}),
			f.SetSheetRow("Sheet1", "A5", &[]any{"4", "5", "6"}),
			f.AddTable("Sheet1", &excelize.Table{Range: "A3:C5"}),
		)
	})
	_, units, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	if got := units[0].Blocks[0].Table.Columns; !slices.Equal(got, []string{"2021", "2022", "2023"}) {
		t.Error(got)
	}
}

// Programs that write workbooks leave the results of formulas to Excel.
func TestFormulasWithoutAResultAreNamed(t *testing.T) {
	content := formattest.Zip(
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="b" Type="x/worksheet" Target="worksheets/sheet2.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="One" r:id="a"/><sheet name="Two" r:id="b"/></sheets></workbook>`,
		"xl/worksheets/sheet1.xml", `<worksheet><sheetData><row><c r="A1"><v>1</v></c><c r="B1"><f>A1+1</f></c><c r="C1"><f>A1+2</f><v>3</v></c><c r="D1" t="str"><f>""</f><v></v></c><c r="E1"/></row></sheetData></worksheet>`,
		"xl/worksheets/sheet2.xml", `<worksheet><sheetData><row><c r="A1"><v>1</v></c><c r="B1"><f t="shared" si="0"/><v/></c></row></sheetData></worksheet>`,
	)
	plan, _, err := formattest.Read(t, New(), content, options, rows.New())
	if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "formulas_uncalculated" || !strings.Contains(plan.Warnings[0].Message, "(2)") {
		t.Errorf("%v %+v", err, plan)
	}
}

func TestALargeWorkbookIsStreamed(t *testing.T) {
	for last, want := range map[int]bool{lookRowsMost: true, lookRowsMost + 1: false} {
		content := formattest.Zip(
			"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
			"xl/workbook.xml", `<workbook><sheets><sheet name="One" r:id="a"/></sheets></workbook>`,
			"xl/worksheets/sheet1.xml", fmt.Sprintf(`<worksheet><dimension ref="A1:C%d"/><sheetData/></worksheet>`, last),
		)
		path := filepath.Join(t.TempDir(), "book")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New().Open(t.Context(), file, parser.Options{TempDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.(*document).w.moderate; got != want {
			t.Errorf("%d rows: moderate is %v", last, got)
		}
		if err := errors.Join(d.Close(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
