package xlsx

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/xuri/excelize/v2"

	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

// In a workbook of moderate size, excelize formats the numbers whose format does
// more than round: currencies, thousands, fractions, phone numbers. Plain numbers,
// dates, booleans and percentages are formatted by the streaming reader, so that
// they read the same in a workbook of any size. Beyond these sizes that reader
// works alone: measured, excelize takes 3 to 19 times its CPU. For the same reason
// the library does not get the workbook, but one sheet of the numbers to be
// formatted, each number and format once, with those formats as its only styles.
const (
	lookRowsMost  = 20_000    // over all sheets, as declared
	lookBytesMost = 20 << 20  // of the sheets' XML, and the same again for the shared strings
	lookZipMost   = 128 << 20 // of all parts, inflated
	// maxFormatBytes limits a number format's code; Excel's limit is 255
	// characters. A longer one would be parsed for each cell.
	maxFormatBytes = 2_000
	maxFormatsMost = 4 << 20 // total bytes of all codes
	// dimensionBytes is how far into a sheet its <dimension> is searched.
	dimensionBytes = 4 << 10
	// lookCells is the numbers per row of the sheet passed to the library.
	lookCells = 200
)

// looks formats cells by their number formats.
type looks struct {
	w      *workbook
	book   *excelize.File // created with the first sheet that needs it
	styles map[int]int    // in book, by number format id
	failed bool           // the library cannot render these formats
	left   int            // bytes that formatted cells may still take

	known map[look]int // index in asked
	asked []look
	shown []string // of the first entries of asked; "" if the library shows nothing
}

// look is a number with the id of its format.
type look struct {
	format int
	value  string
}

// formatCode is the code of a workbook's custom number format.
type formatCode struct{ code, code16 string }

// isModerate reports whether the workbook is of moderate size.
func (w *workbook) isModerate() bool {
	var sheets, all int64
	rows := 0
	for _, sh := range w.sheets {
		sheets += w.z.Size(sh.part)
		rows += w.claimedRows(sh)
	}
	for _, e := range w.z.File {
		all += int64(min(e.UncompressedSize64, 1<<40))
	}
	return rows <= lookRowsMost && sheets <= lookBytesMost && w.z.Size("xl/sharedStrings.xml") <= lookBytesMost && all <= lookZipMost
}

// newLooks returns nil if the workbook is too large for the library, or if none of
// its formats needs it.
func newLooks(w *workbook) *looks {
	if w.long || !slices.Contains(w.formats, special) || !w.moderate {
		return nil
	}
	return &looks{w: w, left: maxBufferedBytes, known: map[look]int{}}
}

// claimedRows returns the last row declared by the sheet's <dimension>, 0 if there
// is none: then only the bytes limit it.
func (w *workbook) claimedRows(sh sheet) int {
	p, err := w.z.Part(sh.part, maxSheetBytes)
	if err != nil {
		return 0
	}
	defer p.Close()
	for s := xmlscan.New(io.LimitReader(p, dimensionBytes)); ; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return 0
		}
		if k != xmlscan.Start {
			continue
		}
		switch string(s.Name()) {
		case "dimension":
			_, last, _ := strings.Cut(s.Attr("ref"), ":")
			return rowOf(last)
		case "sheetData":
			return 0
		}
	}
}

// mark is the position of a cell, as the index of its row among those read and its
// column, with the index of its look.
type mark struct{ row, column, look int }

// ask records that a cell with that style holds the number value, and returns the
// index of its look.
func (l *looks) ask(style int, value []byte) int {
	id := -1
	if style > 0 { // the first style is the workbook's default, which the library shows as if unformatted
		id = l.w.ids[style]
	}
	i, ok := l.known[look{id, string(value)}]
	if !ok {
		i = len(l.asked)
		l.asked = append(l.asked, look{id, string(value)})
		l.known[l.asked[i]] = i
	}
	return i
}

// apply gives the marked cells of rows the text rendered by the library. Cells it
// does not render stay as read.
func (l *looks) apply(ctx context.Context, rows [][]string, marks []mark) {
	if !l.failed {
		l.failed = l.show(ctx) != nil && ctx.Err() == nil
	}
	for _, m := range marks {
		if m.look >= len(l.shown) {
			return
		}
		if text := l.shown[m.look]; text != "" {
			if l.left -= len(text); l.left < 0 {
				return
			}
			rows[m.row][m.column] = text
		}
	}
}

// show has the library render what has been recorded since the last call.
func (l *looks) show(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil { // an unexpected format
			err = fmt.Errorf("excelize: %v", v)
		}
	}()
	if l.book == nil {
		if err := l.make(); err != nil {
			return err
		}
	}
	l.book.Pkg.Store(lookSheet, l.sheet(l.asked[len(l.shown):]))
	it, err := l.book.Rows("looks")
	if err != nil {
		return err
	}
	defer func() { _ = it.Close() }() // it was only read
	for len(l.shown) < len(l.asked) && it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		cells, err := it.Columns()
		if err != nil {
			return err
		}
		for i := range min(lookCells, len(l.asked)-len(l.shown)) {
			text := ""
			if i < len(cells) {
				text = strings.TrimSpace(clean.Text(clean.Clip(cells[i], maxCellBytes)))
			}
			l.shown = append(l.shown, text)
		}
	}
	return nil
}

// Namespaces of the generated workbook, and its parts.
const (
	nsPackage = "http://schemas.openxmlformats.org/package/2006/"
	nsOffice  = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
	nsSheets  = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
	ns2015    = "http://schemas.microsoft.com/office/spreadsheetml/2015/02/main"

	lookSheet = "xl/worksheets/sheet1.xml"
	lookTypes = `<Types xmlns="` + nsPackage + `content-types">` +
		`<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>`
	lookRoot = `<Relationships xmlns="` + nsPackage + `relationships">` +
		`<Relationship Id="rId1" Type="` + nsOffice + `/officeDocument" Target="xl/workbook.xml"/></Relationships>`
	lookRels = `<Relationships xmlns="` + nsPackage + `relationships">` +
		`<Relationship Id="rId1" Type="` + nsOffice + `/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`
	lookBook = `<workbook xmlns="` + nsSheets + `" xmlns:r="` + nsOffice + `">` +
		`<workbookPr date1904="%t"/><sheets><sheet name="looks" sheetId="1" r:id="rId1"/></sheets></workbook>`
)

// make opens a workbook that contains only the special formats.
func (l *looks) make() error {
	var styles, xfs bytes.Buffer
	styles.WriteString(`<styleSheet xmlns="` + nsSheets + `" xmlns:x="` + ns2015 + `"><numFmts>`)
	l.styles = map[int]int{-1: 0}
	for i, f := range l.w.formats {
		id := l.w.ids[i]
		if _, ok := l.styles[id]; ok || f != special {
			continue
		}
		l.styles[id] = len(l.styles)
		fmt.Fprintf(&xfs, `<xf numFmtId="%d"/>`, id)
		if c, ok := l.w.codes[id]; ok {
			fmt.Fprintf(&styles, `<numFmt numFmtId="%d" formatCode="%s"`, id, escape(c.code))
			if c.code16 != "" {
				fmt.Fprintf(&styles, ` x:formatCode16="%s"`, escape(c.code16))
			}
			styles.WriteString(`/>`)
		}
	}
	fmt.Fprintf(&styles, `</numFmts><cellXfs><xf numFmtId="0"/>%s</cellXfs></styleSheet>`, xfs.Bytes())

	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, part := range []struct {
		name string
		text []byte
	}{
		{"[Content_Types].xml", []byte(lookTypes)},
		{"_rels/.rels", []byte(lookRoot)},
		{"xl/_rels/workbook.xml.rels", []byte(lookRels)},
		{"xl/workbook.xml", fmt.Appendf(nil, lookBook, l.w.epoch.Year() == 1904)},
		{"xl/styles.xml", styles.Bytes()},
		{lookSheet, []byte(`<worksheet/>`)},
	} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: part.name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(part.text)
		}
		if err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	var err error
	l.book, err = excelize.OpenReader(&b, excelize.Options{
		UnzipSizeLimit: lookZipMost, UnzipXMLSizeLimit: lookZipMost,
		ShortDatePattern: "yyyy-mm-dd", LongDatePattern: "yyyy-mm-dd", LongTimePattern: "hh:mm:ss",
	})
	return err
}

// sheet returns a worksheet of those numbers.
func (l *looks) sheet(asked []look) []byte {
	var b bytes.Buffer
	b.WriteString(`<worksheet xmlns="` + nsSheets + `"><sheetData>`)
	for i, a := range asked {
		if i%lookCells == 0 {
			if i > 0 {
				b.WriteString(`</row>`)
			}
			b.WriteString(`<row>`)
		}
		fmt.Fprintf(&b, `<c s="%d"><v>%s</v></c>`, l.styles[a.format], escape(a.value))
	}
	b.WriteString(`</row></sheetData></worksheet>`)
	return b.Bytes()
}

// escape escapes s as the content of an element or attribute.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

func (l *looks) close() error {
	if l == nil || l.book == nil {
		return nil
	}
	return l.book.Close()
}

// tableHead locates the header of a sheet's defined table: the row's number in the
// sheet, 0 if the table has no header, -1 if the sheet has no table or several.
func (w *workbook) tableHead(sh sheet) int {
	head, tables := -1, 0
	for _, rel := range w.z.Rels(sh.part) {
		if rel.Type != "table" {
			continue
		}
		if tables++; tables > 1 {
			return -1
		}
		p, err := w.z.Part(rel.Target, zipfile.MaxPartBytes)
		if err != nil {
			return -1
		}
		for s := xmlscan.New(p); ; {
			k, err := s.Next()
			if err != nil || k == xmlscan.EOF {
				break
			}
			if k == xmlscan.Start && string(s.Name()) == "table" {
				if m, ok := area(s.Attr("ref")); ok {
					head = m.r0
				}
				if s.Attr("headerRowCount") == "0" {
					head = 0
				}
				break
			}
		}
		_ = p.Close() // it was only read
	}
	return head
}
