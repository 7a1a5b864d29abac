package xlsx

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/zipfile"
)

type place struct{ row, col int }

type cells map[string]map[place]string // by sheet

// readOurs reads all sheets, hidden ones too, as documents are read.
func readOurs(t *testing.T, path string) (cells, *workbook, error) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zipfile.Open(f, "xlsx")
	if err != nil {
		return nil, nil, err
	}
	w, err := open(z)
	if err != nil {
		return nil, nil, err
	}
	w.looks = newLooks(w)
	defer func() { _ = w.looks.close() }()
	if err := w.readStrings(t.Context()); err != nil {
		return nil, nil, err
	}
	all := cells{}
	for _, sh := range w.sheets {
		all[sh.own] = map[place]string{}
		if err := w.rows(t.Context(), sh, func(n int, row []string) error {
			for i, c := range row {
				if c != "" {
					all[sh.own][place{n, i}] = c
				}
			}
			return nil
		}); err != nil {
			return nil, nil, err
		}
	}
	return all, w, nil
}

// readTheirs reads the same with excelize; raw leaves numbers as stored.
func readTheirs(f *excelize.File, raw bool) (cells, error) {
	all := cells{}
	for _, name := range f.GetSheetList() {
		it, err := f.Rows(name)
		if err != nil {
			continue // a sheet of charts
		}
		all[name] = map[place]string{}
		for n := 1; it.Next(); n++ {
			row, err := it.Columns(excelize.Options{RawCellValue: raw})
			if err != nil {
				return nil, err
			}
			for i, c := range row {
				if c = strings.TrimSpace(clean.Text(c)); c != "" {
					all[name][place{n, i}] = c
				}
			}
		}
		if err := it.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// why explains that a cell reads otherwise with excelize, "" where nothing does.
func why(w *workbook, f *excelize.File, sheet string, at place, ours, theirs, raw string) string {
	if theirs == "" && ours != "" {
		merged, _ := f.GetMergeCells(sheet)
		for _, m := range merged {
			from, to := m.GetStartAxis(), m.GetEndAxis()
			if area, ok := area(from + ":" + to); ok && at.col == area.c0 && at.row > area.r0 && at.row <= area.r1 {
				return "ours repeats a merged cell down its rows"
			}
		}
		return ""
	}
	x, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return ""
	}
	ref, _ := excelize.CoordinatesToCellName(at.col+1, at.row)
	style, _ := f.GetCellStyle(sheet, ref)
	switch format := w.format(style); {
	case format == date || format == clock || format == dateTime:
		when, err := excelize.ExcelDateToTime(x, w.epoch.Year() == 1904)
		if when = when.Round(time.Second); err == nil && (x < 1 && ours == when.Format("15:04:05") || ours == when.Format("2006-01-02") || ours == when.Format("2006-01-02 15:04:05")) {
			return "ours writes dates and times as ISO 8601"
		}
		if secs := int(math.Round(x * 86400)); x >= 1 && format == clock && ours == fmt.Sprintf("%d:%02d:%02d", secs/3600, secs/60%60, secs%60) {
			return "ours writes dates and times as ISO 8601"
		}
	case format == plain:
		if code, _ := f.GetStyle(style); ours == general(x) && code != nil && code.NumFmt == 0 && (code.CustomNumFmt == nil || strings.EqualFold(*code.CustomNumFmt, "general")) {
			return "ours keeps the 15 digits that Excel stores, excelize the 10 that it shows"
		}
	case format == special && w.looks == nil:
		if ours == general(x) {
			return "ours shows numbers of a large workbook as stored"
		}
	}
	return ""
}

// twice names an entry that the zip holds more than once.
func twice(w *workbook) string {
	seen := map[string]bool{}
	for _, e := range w.z.File {
		if seen[e.Name] {
			return e.Name
		}
		seen[e.Name] = true
	}
	return ""
}

// compare reads a workbook with both and counts the cells by what explains that
// they differ, "" for those that do not.
func compare(t *testing.T, path string, counts map[string]int) {
	defer func() {
		if v := recover(); v != nil {
			t.Logf("excelize panics: %v", v)
			counts["excelize refuses the file, ours reads it"]++
		}
	}()
	ours, w, err := readOurs(t, path)
	content, readErr := os.ReadFile(path)
	if readErr != nil {
		t.Fatal(readErr)
	}
	f, theirErr := excelize.OpenReader(bytes.NewReader(content), excelize.Options{
		UnzipSizeLimit: 256 << 20, UnzipXMLSizeLimit: 256 << 20, ShortDatePattern: "yyyy-mm-dd", LongDatePattern: "yyyy-mm-dd", LongTimePattern: "hh:mm:ss",
	})
	var theirs, raw cells
	if theirErr == nil {
		defer f.Close()
		if theirs, theirErr = readTheirs(f, false); theirErr == nil {
			raw, theirErr = readTheirs(f, true)
		}
	}
	if err != nil {
		failure, ok := errors.AsType[*sheaf.Failure](err)
		switch {
		case ok && failure.Code == "zip_bomb":
			counts["ours refuses a bomb"]++
		case ok && theirErr != nil:
			counts["both refuse the file"]++
		default:
			t.Errorf("%v; excelize says %v", err, theirErr)
		}
		return
	}
	if theirErr != nil {
		counts["excelize refuses the file, ours reads it"]++
		return
	}
	if name := twice(w); name != "" {
		counts["the file holds a part twice: "+name]++
		return
	}
	for sheet := range theirs {
		if _, ok := ours[sheet]; !ok && len(theirs[sheet]) > 0 {
			t.Errorf("the sheet %q is read by excelize alone", sheet)
		}
	}
	for sheet := range ours {
		places := maps.Clone(ours[sheet])
		maps.Copy(places, theirs[sheet])
		for at := range places {
			o, e := ours[sheet][at], theirs[sheet][at]
			reason := ""
			if o != e {
				if reason = why(w, f, sheet, at, o, e, raw[sheet][at]); reason == "" {
					ref, _ := excelize.CoordinatesToCellName(at.col+1, at.row)
					t.Errorf("%s!%s is %q, with excelize %q, stored as %q", sheet, ref, clean.Clip(o, 100), clean.Clip(e, 100), clean.Clip(raw[sheet][at], 100))
				}
			}
			counts[reason]++
		}
	}
}

// indented is a workbook as some programs write it: with a line for each
// element, and with line ends that are stored twice.
func indented() []byte {
	return formattest.Zip(
		"[Content_Types].xml", `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>`,
		"_rels/.rels", `<Relationships xmlns="`+nsPackage+`relationships"><Relationship Id="r1" Type="`+nsOffice+`/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/_rels/workbook.xml.rels", `<Relationships xmlns="`+nsPackage+`relationships"><Relationship Id="r1" Type="`+nsOffice+`/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="r2" Type="`+nsOffice+`/styles" Target="styles.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook xmlns="`+nsSheets+`" xmlns:r="`+nsOffice+`"><sheets><sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>`,
		"xl/styles.xml", "<styleSheet xmlns=\""+nsSheets+"\">\n <numFmts>\n  <numFmt numFmtId=\"1000\" formatCode=\"#,##0.00;-#,##0.00\"/>\n </numFmts>\n <cellXfs>\n  <xf numFmtId=\"0\"/>\n  <xf numFmtId=\"1000\"/>\n  <xf numFmtId=\"14\"/>\n  <xf numFmtId=\"0\"/>\n </cellXfs>\n</styleSheet>",
		"xl/worksheets/sheet1.xml", "<worksheet xmlns=\""+nsSheets+"\">\n<sheetData>\n<row r=\"1\">\n<c r=\"A1\" s=\"1\"><v>2570.80976045745</v></c>\n<c r=\"B1\" s=\"2\"><v>41229</v></c><c r=\"C1\" s=\"3\"><v>2570.80976045745</v></c>\n"+
			"<c r=\"D1\" t=\"inlineStr\"><is><t>two_x000d_\r\nlines</t></is></c></row>\n<row r=\"2\"><c r=\"A2\"><v>7</v></c></row><row r=\"3\"><c r=\"B3\"><v>8</v></c></row></sheetData><mergeCells><mergeCell ref=\"A2:A3\"/></mergeCells></worksheet>",
	)
}

// Every workbook reads the same with excelize, cell by cell, or differs for a
// reason that stands in why. SHEAF_CORPUS names a folder of real files.
func TestDifferencesFromExcelizeAreExplained(t *testing.T) {
	made := filepath.Join(t.TempDir(), "indented.xlsx")
	if err := os.WriteFile(made, indented(), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := []string{made, filepath.Join("..", "..", "samples", "handbook.xlsx")}
	if dir := os.Getenv("SHEAF_CORPUS"); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "xlsx", "*"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no workbooks in %s/xlsx: %v", dir, err)
		}
		paths = append(paths, more...)
	}
	all := map[string]int{}
	for i, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			counts := map[string]int{}
			compare(t, path, counts)
			for reason, n := range counts {
				all[reason] += n
			}
			if i == 0 {
				// A3 repeats A2 and C1 keeps its digits; A1, B1, D1, A2 and B3 read alike.
				want := map[string]int{"": 5, "ours repeats a merged cell down its rows": 1, "ours keeps the 15 digits that Excel stores, excelize the 10 that it shows": 1}
				if !maps.Equal(counts, want) {
					t.Errorf("%v, want %v", counts, want)
				}
			} else if i == 1 && (counts[""] < 100 || len(counts) > 1) {
				t.Errorf("the sample differs: %v", counts)
			}
		})
	}
	for _, reason := range slices.Sorted(maps.Keys(all)) {
		t.Logf("%6d %s", all[reason], reason)
	}
}
