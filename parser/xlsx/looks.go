package xlsx

import (
	"context"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/xuri/excelize/v2"

	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

// In a workbook of moderate size, excelize shows the numbers whose format does
// more than round: currencies, thousands, fractions, phone numbers. Plain
// numbers, dates, booleans and percentages are shown by the streaming reader,
// so that they read the same in a workbook of any size. Beyond these sizes it
// works alone: measured, excelize takes 3 to 19 times its CPU.
const (
	lookRowsMost  = 20_000    // over all sheets, as they claim
	lookBytesMost = 20 << 20  // of the sheets' XML, and again of the shared strings'
	lookZipMost   = 128 << 20 // of all parts, inflated
	// maxFormatBytes of a number format's code; Excel's limit is 255
	// characters. A longer one would be parsed for each cell.
	maxFormatBytes = 2_000
	// dimensionBytes is how far into a sheet its <dimension> is looked for.
	dimensionBytes = 4 << 10
)

// looks shows cells as their number formats say.
type looks struct {
	file   *os.File
	w      *workbook
	dir    string
	book   *excelize.File // opened with the first sheet
	failed bool           // the library cannot read this workbook
	left   int            // bytes that formatted cells may still take
}

// moderate reports whether the workbook is of moderate size.
func (w *workbook) moderate() bool {
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

// newLooks is nil when the workbook is too large for the library, or when all
// its formats look the same without.
func newLooks(file *os.File, w *workbook, dir string) *looks {
	names := map[string]bool{}
	for _, sh := range w.sheets {
		names[strings.ToLower(sh.own)] = true
	}
	switch {
	case len(names) < len(w.sheets): // the library finds a sheet by its name alone
	case w.long, !slices.Contains(w.formats, special), !w.moderate():
	default:
		return &looks{file: file, w: w, dir: dir, left: maxBufferedBytes}
	}
	return nil
}

// claimedRows is the last row that the sheet's <dimension> names, 0 when there
// is none: then only the bytes bound it.
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

// mark is the place of a cell: the index of its row among those read, and its
// column.
type mark struct{ row, column int }

// apply gives the marked cells of rows, whose numbers in the sheet are
// numbers, the look that the library finds. What it does not see stays as it
// was read: it ends a sheet silently where the file is damaged, and reads none
// of it behind a false size.
func (l *looks) apply(ctx context.Context, sh sheet, numbers []int, rows [][]string, marks []mark) {
	defer func() {
		if recover() != nil { // a part that it did not expect
			l.failed = true
		}
	}()
	if l.failed {
		return
	}
	if l.book == nil {
		var err error
		l.book, err = excelize.OpenReader(io.NewSectionReader(l.file, 0, math.MaxInt64), excelize.Options{
			UnzipSizeLimit: lookZipMost, UnzipXMLSizeLimit: lookZipMost, TmpDir: l.dir,
			ShortDatePattern: "yyyy-mm-dd", LongDatePattern: "yyyy-mm-dd", LongTimePattern: "hh:mm:ss",
		})
		if err != nil {
			l.failed = true
			return
		}
	}
	it, err := l.book.Rows(sh.own)
	if err != nil {
		return
	}
	defer func() { _ = it.Close() }() // it was only read
	for n := 1; len(marks) > 0 && it.Next(); n++ {
		if n&0x3ff == 0 && ctx.Err() != nil {
			return
		}
		i := marks[0].row
		if n < numbers[i] {
			continue
		}
		cells, err := it.Columns()
		if err != nil {
			return
		}
		for len(marks) > 0 && marks[0].row == i {
			c := marks[0].column
			marks = marks[1:]
			if c >= len(cells) {
				continue
			}
			if text := strings.TrimSpace(clean.Text(clean.Clip(cells[c], maxCellBytes))); text != "" {
				if l.left -= len(text); l.left < 0 {
					return
				}
				rows[i][c] = text
			}
		}
	}
}

func (l *looks) close() error {
	if l == nil || l.book == nil {
		return nil
	}
	return l.book.Close()
}

// tableHead is where the header of a sheet's defined table stands: the row's
// number in the sheet, 0 when the table has no header, -1 when the sheet has
// no table or several.
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
