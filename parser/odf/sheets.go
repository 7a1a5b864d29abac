package odf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/coltype"
	"sheaf/parser/internal/links"
	"sheaf/parser/internal/rowio"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

const (
	sheetsVersion = 1 // changes whenever the same file would yield other blocks
	// maxContentBytes limits what is read of one file: a million rows of eight cells have
	// 700 MB.
	maxContentBytes = 4 << 30
	// maxRepeatedCells limits what a few bytes can stand for: rows and cells that repeat.
	maxRepeatedCells = 5_000_000
	// maxFilled is how long a text may be that is repeated down the rows of a merged cell.
	maxFilled = 1000
	maxNotes  = 100_000
)

// NewSheets returns the format of spreadsheets: each visible sheet is a table, followed by
// one of its notes, and rows are numbered continuously across all. A file of more than one
// range is read once, during planning, and split into shards.
func NewSheets() parser.Format { return sheets{} }

type sheets struct{}

func (sheets) ID() string   { return "ods" }
func (sheets) Version() int { return sheetsVersion }
func (sheets) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaODS, Aliases: []string{parser.MediaODS + "-template"},
		Name: "OpenDocument sheet", Extensions: []string{".ods", ".ots"}, Magic: []parser.Magic{{Entry: "mimetype"}},
		Families: []sheaf.FileFamily{sheaf.FamilySpreadsheet}, Unit: sheaf.UnitRow, Ranges: "3,000 rows",
	}}
}
func (sheets) Options() []string { return []string{"table_rows"} }

// Open implements parser.Format.
func (sheets) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	z, err := open(file, "ods")
	if err != nil {
		return nil, err
	}
	s := newStyles()
	s.read(z, contentPart)
	return &workbook{z: z, styles: s, options: o}, nil
}

type workbook struct {
	z       *zipfile.Archive
	styles  *styles
	options parser.Options
	types   []string // per table, packed; known after a pass
	sheets  int

	showHidden bool // there is nothing in the others
}

func (d *workbook) Close() error { return nil }

// Plan implements parser.Document.
func (d *workbook) Plan(ctx context.Context) (*parser.Plan, error) {
	s := &rowio.Sharder{Dir: d.options.TempDir, Rows: rowio.RowsPerRange(d.options.Config)}
	defer s.Abort()
	rows, warnings, err := d.pass(ctx, s.Table, s.Linked)
	if err != nil {
		return nil, err
	}
	if rows == 0 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The workbook's sheets contain no values; check that you uploaded the right file.")
	}
	if err := s.Close(d.types); err != nil {
		return nil, err
	}
	if s.Unlinked > 0 && len(s.Ranges) > 1 {
		warnings = append(warnings, sheaf.Warning{Code: "links_ignored", Message: fmt.Sprintf("Addresses behind cells (%d) were left out: up to %d KB of them are read for %d rows.", s.Unlinked, rowio.MaxLinkBytes>>10, s.Rows)})
	}
	return s.Plan(rows, d.sheets, properties(d.z), warnings), nil
}

// Parse implements parser.Document. In normal operation it is called only for files of
// one range; for others it reads from the beginning.
func (d *workbook) Parse(ctx context.Context, want sheaf.Range, emit func(sheaf.UnitResult) error) error {
	if len(d.types) == 0 {
		if _, _, err := d.pass(ctx, func(string, []string) error { return nil }, func(int, []string, []string) error { return nil }); err != nil {
			return err
		}
	}
	return rowio.Parse(slices.Clone(d.types), want, emit, func(table func(string, []string) error, row func(int, []string, []string) error) error {
		_, _, err := d.pass(ctx, table, row)
		return err
	})
}

// pass reads all visible sheets. table is called at the first row of each, then row for
// each of its rows with its number in the document.
func (d *workbook) pass(ctx context.Context, table func(name string, columns []string) error, row func(n int, r, links []string) error) (rows int, warnings []sheaf.Warning, err error) {
	p, err := d.z.Part(contentPart, maxContentBytes)
	if err != nil {
		return 0, nil, err
	}
	defer p.Close()
	d.types, d.sheets = nil, 0
	r := &sheetReader{d: d, table: table, left: maxRepeatedCells, row: func(r, links []string) error {
		if rows++; rows > rowio.MaxRows {
			return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The workbook has more than %d rows; split it into smaller files.", rowio.MaxRows)
		}
		return row(rows, r, links)
	}}
	err = r.read(ctx, p)
	if rows == 0 && r.hidden > 0 && err == nil { // all with content are
		d.showHidden = true
		return d.pass(ctx, table, row)
	}
	if err != nil {
		f, ok := errors.AsType[*sheaf.Failure](err)
		if !ok || f.Code != "invalid_ods" || rows == 0 {
			return 0, nil, err
		}
		warnings = append(warnings, sheaf.Warning{Code: "document_damaged", Message: "The workbook breaks off inside; the rows before were read."})
	}
	for _, w := range []struct {
		n    int
		code string
		text string
	}{
		{r.hidden, "hidden_sheets", "Hidden sheets (%d) were not read; unhide them to have them searched."},
		{r.unrepeated, "rows_repeated", "Rows and cells that the file repeats (%d) were left out beyond the first " + strconv.Itoa(maxRepeatedCells/1_000_000) + " million cells."},
		{r.drawn, "images_ignored", "Charts and pictures (%d) were not read."},
	} {
		if w.n > 0 {
			warnings = append(warnings, sheaf.Warning{Code: w.code, Message: fmt.Sprintf(w.text, w.n)})
		}
	}
	return rows, warnings, nil
}

// carried is the text of a merged cell, for its rows.
type carried struct {
	text string
	last int // of these rows
}

type sheetReader struct {
	d     *workbook
	table func(name string, columns []string) error
	row   func(r, links []string) error

	sheet      *rowio.Sheet // nil outside a visible sheet
	number     int          // of the row in the sheet
	cells      []string     // of the open row, up to the last with a text,
	blank      int          // and the empty ones after it
	uris       []string
	repeatRow  int
	carry      map[int]carried // by column
	shapes     [][]string      // texts over the sheet
	notes      [][]string      // cells, and what is noted there
	left       int             // cells that may still be repeated
	hidden     int
	drawn      int
	unrepeated int

	// Of the open cell:
	text    strings.Builder
	inCell  bool
	inText  int // open paragraphs
	spaced  bool
	kind    string // its type, and value
	value   string
	repeat  int
	down    int
	note    *strings.Builder
	noted   []string
	covered bool
}

// read reads all sheets in a single pass.
func (r *sheetReader) read(ctx context.Context, p io.Reader) error {
	s := xmlscan.New(p)
	body := 0
	for n := 0; ; n++ {
		if n&0xffff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		k, err := s.Next()
		if err != nil {
			if errors.Is(err, xmlscan.ErrDepth) {
				return sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The workbook's markup is nested more than %d levels deep; save it again and upload that.", xmlscan.MaxDepth)
			}
			if f, ok := errors.AsType[*sheaf.Failure](err); ok {
				return f
			}
			return r.broken(err)
		}
		switch el := string(s.Name()); {
		case k == xmlscan.EOF:
			if s.Depth() > 0 {
				return r.broken(errors.New("it breaks off"))
			}
			return nil
		case k == xmlscan.Start && el == "spreadsheet":
			body++
		case k == xmlscan.End && el == "spreadsheet":
			body--
		case body == 0:
		case k == xmlscan.Text:
			r.write(s.Text())
		case k == xmlscan.Start:
			err = r.begin(s, el)
		case k == xmlscan.End:
			err = r.end(el, string(s.Prefix()))
		}
		if err != nil {
			return err
		}
	}
}

// broken ends the sheet before the damage.
func (r *sheetReader) broken(why error) error {
	if err := r.endSheet(); err != nil {
		return err
	}
	return zipfile.Invalid("ods", "its part %s is damaged: %v", contentPart, why)
}

func (r *sheetReader) write(text []byte) {
	to := &r.text
	switch {
	case r.note != nil:
		to = r.note
	case r.inText == 0 || !r.inCell:
		return
	}
	if to.Len() <= rowio.MaxCellBytes {
		r.spaced = collapse(to, text, r.spaced)
	}
}

func (r *sheetReader) begin(s *xmlscan.Scanner, el string) error {
	switch el {
	case "tracked-changes", "content-validations", "named-expressions", "database-ranges", "dde-links", "calculation-settings", "label-ranges", "data-pilot-tables", "consolidation", "forms", "scenario", "table-source":
		return skip(s)
	case "frame", "custom-shape", "g", "rect", "control":
		if string(s.Prefix()) == "draw" {
			r.shape(s)
		}
		return nil
	case "table":
		if string(s.Prefix()) != "table" {
			return nil
		}
		hidden := r.sheet == nil && !r.d.showHidden && r.d.styles.find("table", s.Attr("style-name")).hidden
		if r.sheet == nil {
			r.d.sheets++
		}
		if hidden || r.sheet != nil { // a table in a cell
			if hidden {
				r.hidden++
			}
			return skip(s)
		}
		r.sheet = &rowio.Sheet{Name: clean.Line(clean.Clip(s.Attr("name"), 500)), Head: -1, TableFunc: r.table, RowFunc: func(_ int, row, uris []string) error { return r.row(row, uris) }}
		r.number, r.carry, r.shapes, r.notes = 0, map[int]carried{}, nil, nil
	case "table-row":
		r.cells, r.blank, r.uris = nil, 0, nil
		r.repeatRow = number(s, "number-rows-repeated", 1, rowio.MaxRows)
	case "table-cell", "covered-table-cell":
		if r.sheet == nil {
			return nil
		}
		r.text.Reset()
		r.noted = nil
		r.inCell, r.covered, r.inText = true, el == "covered-table-cell", 0
		r.repeat, r.down = number(s, "number-columns-repeated", 1, rowio.MaxColumns), number(s, "number-rows-spanned", 1, rowio.MaxRows)
		r.kind = s.Attr("value-type")
		if uri := addressIn(s.Attr("formula")); uri != "" {
			r.uris = append(r.uris, uri)
		}
		switch r.kind {
		case "date":
			r.value = s.Attr("date-value")
		case "time":
			r.value = s.Attr("time-value")
		case "boolean":
			r.value = s.Attr("boolean-value")
		case "string":
			r.value = s.Attr("string-value")
		default:
			r.value = s.Attr("value")
		}
	case "annotation":
		if r.inCell {
			r.note = &strings.Builder{}
		}
	case "creator", "date", "sender-initials": // of an annotation
		if r.note != nil {
			return skip(s)
		}
	case "p":
		r.spaced = true
		switch {
		case r.note != nil:
			if r.note.Len() > 0 {
				r.note.WriteByte('\n')
			}
		case r.inCell:
			if r.inText++; r.text.Len() > 0 {
				r.text.WriteByte('\n')
			}
		}
	case "s":
		r.put(strings.Repeat(" ", number(s, "c", 1, 1000)))
	case "tab":
		r.put("\t")
	case "line-break":
		r.put("\n")
	case "a":
		if uri := links.Address(s.Attr("href"), nil); uri != "" && r.inCell && r.note == nil {
			r.uris = append(r.uris, uri)
		}
	}
	return nil
}

// shape reads the texts of an element that is drawn over the sheet, up to its end.
func (r *sheetReader) shape(s *xmlscan.Scanner) {
	var text strings.Builder
	found, in := false, 0
	for depth := 1; depth > 0; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return // Next reports an error again
		}
		paragraph := string(s.Name()) == "p"
		switch k {
		case xmlscan.Start:
			if depth++; paragraph {
				in++
			}
		case xmlscan.Text:
			if in > 0 && text.Len() < rowio.MaxCellBytes {
				text.Write(s.Text())
			}
		case xmlscan.End:
			if depth--; !paragraph {
				continue
			}
			in--
			if line := clean.Line(text.String()); line != "" {
				found = true
				if r.sheet != nil && len(r.shapes) < maxNotes {
					r.shapes = append(r.shapes, []string{line})
				}
			}
			text.Reset()
		}
	}
	if !found {
		r.drawn++
	}
}

func (r *sheetReader) put(text string) {
	to := &r.text
	if r.note != nil {
		to = r.note
	}
	if (r.note != nil || r.inText > 0) && to.Len() <= rowio.MaxCellBytes {
		to.WriteString(text)
	}
}

func (r *sheetReader) end(el, prefix string) error {
	switch el {
	case "p":
		if r.note == nil {
			r.inText = max(r.inText-1, 0)
		}
	case "annotation":
		if r.note != nil {
			if text := clean.Lines(r.note.String()); text != "" {
				r.noted = append(r.noted, text)
			}
			r.note = nil
		}
	case "table-cell", "covered-table-cell":
		if r.inCell {
			r.endCell()
		}
	case "table-row":
		return r.endRow()
	case "table":
		if prefix == "table" {
			return r.endSheet()
		}
	}
	return nil
}

// shown is the text of the open cell. Numbers, dates and times have one form whatever the
// language.
func (r *sheetReader) shown() string {
	text := strings.TrimSpace(clean.Text(r.text.String()))
	switch r.kind {
	case "float":
		if x, err := strconv.ParseFloat(r.value, 64); err == nil {
			if n, ok := numberOf(x, text); ok {
				return n
			}
		}
	case "date":
		if day, clock, _ := strings.Cut(r.value, "T"); len(day) >= 10 {
			clock, _, _ = strings.Cut(clock, ".")
			return strings.TrimSpace(clean.Line(clean.Clip(day, 20) + " " + clean.Clip(clock, 20)))
		}
	case "time":
		if t, ok := clockOf(r.value); ok {
			return t
		}
	case "boolean":
		return strings.ToUpper(clean.Clip(r.value, 10))
	}
	if text == "" {
		text = strings.TrimSpace(clean.Text(r.value))
	}
	return text
}

// numberOf writes a number with the decimals and the thousands that the text shows, in
// whatever language, as "1,234.50". It is not ok if the text is another: a format may say
// more than the number.
func numberOf(x float64, text string) (string, bool) {
	if text == "" {
		s := strconv.FormatFloat(x, 'f', -1, 64)
		if len(s)-strings.Count(s, ".") > 15 { // what programs keep
			s = strconv.FormatFloat(x, 'G', 15, 64)
		}
		return s, true
	}
	if len(text) > 40 {
		return "", false
	}
	for _, in := range []struct{ point, thousands string }{{".", ","}, {",", "."}, {",", "\u00a0\u202f "}, {".", "'\u2019"}} {
		plain := strings.Map(func(c rune) rune {
			if strings.ContainsRune(in.thousands, c) {
				return -1
			}
			return c
		}, text)
		grouped := plain != text
		whole, decimals, _ := strings.Cut(plain, in.point)
		digits := strings.TrimPrefix(whole, "-")
		if digits == "" || strings.Trim(digits+decimals, "0123456789") != "" {
			continue
		}
		s := strconv.FormatFloat(x, 'f', len(decimals), 64)
		if strings.TrimLeft(strings.TrimPrefix(s, "-"), "0") != strings.TrimLeft(digits+point(decimals), "0") {
			continue
		}
		if grouped {
			sign := s[:len(s)-len(strings.TrimPrefix(s, "-"))]
			whole, rest, _ := strings.Cut(s[len(sign):], ".")
			for i := len(whole) - 3; i > 0; i -= 3 {
				whole = whole[:i] + "," + whole[i:]
			}
			s = sign + whole + point(rest)
		}
		return s, true
	}
	return "", false
}

func point(decimals string) string {
	if decimals == "" {
		return ""
	}
	return "." + decimals
}

// addressIn is the address in a formula that shows a link to it, "" for none.
func addressIn(formula string) string {
	_, rest, ok := strings.Cut(formula, `HYPERLINK("`)
	if !ok {
		return ""
	}
	uri, _, _ := strings.Cut(rest, `"`)
	return links.Address(uri, nil)
}

// clockOf reads a duration such as PT13H05M30S.
func clockOf(s string) (string, bool) {
	rest, ok := strings.CutPrefix(s, "PT")
	if !ok || len(s) > 40 {
		return "", false
	}
	seconds := 0.0
	for _, unit := range []struct {
		name string
		s    float64
	}{{"H", 3600}, {"M", 60}, {"S", 1}} {
		digits, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", "."), 64)
		if err != nil || n < 0 || n > 1e6 {
			return "", false
		}
		seconds, rest = seconds+n*unit.s, after
	}
	n := int(math.Round(seconds))
	return fmt.Sprintf("%02d:%02d:%02d", n/3600, n/60%60, n%60), rest == ""
}

func (r *sheetReader) endCell() {
	r.inCell = false
	text := ""
	if !r.covered {
		text = r.shown()
	}
	for _, note := range r.noted {
		if len(r.notes) < maxNotes {
			r.notes = append(r.notes, []string{columnName(len(r.cells)+r.blank) + strconv.Itoa(r.number+1), note})
		}
	}
	switch at := len(r.cells) + r.blank; {
	case r.covered:
		r.cover(at)
	case text == "":
		r.blank = min(r.blank+r.repeat, rowio.MaxColumns-len(r.cells)) // mostly to the end of the sheet
	default:
		for i := range min(r.repeat, rowio.MaxColumns-at) {
			if i > 0 && !r.repeated() {
				return
			}
			r.add(at+i, text)
			if r.down > 1 && len(text) <= maxFilled {
				r.carry[at+i] = carried{text, r.number + r.down}
			}
		}
	}
}

// add puts a text in a column of the open row.
func (r *sheetReader) add(column int, text string) {
	r.cells = append(append(r.cells, make([]string, column-len(r.cells))...), text)
	r.blank = 0
}

// repeated takes one more cell for which the file has no text of its own.
func (r *sheetReader) repeated() bool {
	if r.left--; r.left < 0 {
		r.unrepeated++
		return false
	}
	return true
}

// cover fills cells that merged ones cover, from a column on.
func (r *sheetReader) cover(at int) {
	end := min(at+r.repeat, rowio.MaxColumns)
	var columns []int
	for column, c := range r.carry {
		switch {
		case c.last <= r.number:
			delete(r.carry, column)
		case column >= at && column < end:
			columns = append(columns, column)
		}
	}
	slices.Sort(columns)
	for _, column := range columns {
		if !r.repeated() {
			clear(r.carry)
			break
		}
		r.add(column, r.carry[column].text)
	}
	r.blank = max(end-len(r.cells), 0)
}

func (r *sheetReader) endRow() error {
	if r.sheet == nil {
		return nil
	}
	row, width := r.cells, len(r.cells)
	r.cells, r.blank = nil, 0
	for i := range r.repeatRow {
		r.number++
		if width == 0 {
			r.number += r.repeatRow - 1 - i
			return nil
		}
		if i > 0 {
			if r.left -= width; r.left < 0 {
				r.unrepeated += r.repeatRow - i
				r.number += r.repeatRow - 1 - i
				return nil
			}
			row = slices.Clone(row)
		}
		if err := r.sheet.Row(r.number, row, r.uris); err != nil {
			return err
		}
	}
	return nil
}

// endSheet ends the open sheet, and adds the tables of what is shown beside its cells.
// Methods for which a row is a question or a set of tags have no use for these.
func (r *sheetReader) endSheet() error {
	s := r.sheet
	if s == nil {
		return nil
	}
	r.sheet = nil
	types, any, err := s.End()
	if err != nil {
		return err
	}
	if any {
		r.d.types = append(r.d.types, types)
	}
	if m := r.d.options.Config.ChunkMethod.V; m == "qa" || m == "tag" {
		return nil
	}
	if err := r.beside(s.Name+": text boxes", []string{"Text"}, r.shapes); err != nil {
		return err
	}
	return r.beside(s.Name+": notes", []string{"Cell", "Note"}, r.notes)
}

func (r *sheetReader) beside(name string, columns []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if err := r.table(name, columns); err != nil {
		return err
	}
	var types coltype.Inferrer
	for _, row := range rows {
		types.Row(row)
		if err := r.row(row, nil); err != nil {
			return err
		}
	}
	r.d.types = append(r.d.types, coltype.Pack(types.Types()))
	return nil
}

// columnName is what programs call a column, from 0: A, B … Z, AA.
func columnName(n int) string {
	name := ""
	for n++; n > 0; n = (n - 1) / 26 {
		name = string(rune('A'+(n-1)%26)) + name
	}
	return name
}
