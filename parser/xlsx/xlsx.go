// Package xlsx is the format of Excel workbooks (ISO/IEC 29500): each visible sheet
// is a table, followed by one of its text boxes and one of its notes, and rows are
// numbered continuously across all. A workbook of more than one range is read once, during planning, and split into shards: reading
// cannot start in the middle of a worksheet. It runs in the parser's child process.
package xlsx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/coltype"
	"sheaf/parser/internal/rowio"
	"sheaf/parser/internal/zipfile"
)

const version = 4 // changes whenever the same file would yield other blocks

// New returns the format.
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "xlsx" }
func (format) Version() int { return version }
func (format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaXLSX, Aliases: []string{"application/vnd.openxmlformats-officedocument.spreadsheetml.template",
			"application/vnd.ms-excel.sheet.macroenabled.12", "application/vnd.ms-excel.template.macroenabled.12"},
		Name: "Excel", Extensions: []string{".xlsx", ".xlsm"}, Magic: []parser.Magic{{Entry: "xl/*"}},
		Families: []sheaf.FileFamily{sheaf.FamilySpreadsheet}, Unit: sheaf.UnitRow, Ranges: "3,000 rows",
	}}
}
func (format) Options() []string { return []string{"table_rows"} }

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	z, err := zipfile.Open(f, "xlsx")
	if err != nil {
		return nil, err
	}
	w, err := open(z)
	if err != nil {
		return nil, err
	}
	w.looks = newLooks(w)
	return &document{w: w, options: o}, nil
}

type document struct {
	w          *workbook
	options    parser.Options
	types      []string      // per table, packed; known after a pass
	cache      []cachedSheet // per sheet; empty for a large workbook
	cacheBytes int
}

var errLarge = errors.New("the workbook shows more text than is cached")

// cachedSheet is the content of a sheet in a workbook of moderate size. Its rows
// are not modified after the first pass.
type cachedSheet struct {
	rows    [][]string
	numbers []int
	err     error
}

func (d *document) Close() error { return d.w.looks.close() }

// rows reads sheet number i, or replays its cached rows.
func (d *document) rows(ctx context.Context, i int, on func(number int, row []string) error) error {
	if len(d.cache) <= i {
		return d.w.rows(ctx, d.w.sheets[i], on)
	}
	k := &d.cache[i]
	if k.rows == nil && k.err == nil {
		k.err = d.w.rows(ctx, d.w.sheets[i], func(number int, row []string) error {
			for _, c := range row {
				d.cacheBytes += len(c) + 16
			}
			if d.cacheBytes > maxBufferedBytes {
				return errLarge
			}
			k.rows, k.numbers = append(k.rows, row), append(k.numbers, number)
			return nil
		})
		if errors.Is(k.err, errLarge) {
			d.cache = []cachedSheet{}
			return d.w.rows(ctx, d.w.sheets[i], on)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for n, row := range k.rows {
		if err := on(k.numbers[n], row); err != nil {
			return err
		}
	}
	return k.err
}

// pass reads all visible sheets. table is called at the first row of each, then row
// for each of its rows with its number in the document.
func (d *document) pass(ctx context.Context, table func(name string, columns []string) error, row func(n int, r, links []string) error) (rows int, warnings []sheaf.Warning, err error) {
	if err := d.w.readStrings(ctx); err != nil {
		return 0, nil, err
	}
	d.w.text = 0
	visible := false
	for _, sh := range d.w.sheets {
		visible = visible || !sh.hidden
	}
	d.types = d.types[:0]
	hidden := 0
	if d.cache == nil && d.w.moderate {
		d.cache = make([]cachedSheet, len(d.w.sheets))
	}
	for i, sh := range d.w.sheets {
		if sh.hidden && visible {
			hidden++
			continue
		}
		put := func(r, links []string) error {
			if rows++; rows > rowio.MaxRows {
				return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The workbook has more than %d rows; split it into smaller files.", rowio.MaxRows)
			}
			return row(rows, r, links)
		}
		cells := rowio.Sheet{Name: sh.name, Head: d.w.tableHead(sh), TableFunc: table, RowFunc: func(number int, r, _ []string) error {
			return put(r, d.w.links[sh.part].of(number)) // all are known only now
		}}
		err := d.rows(ctx, i, func(number int, r []string) error { return cells.Row(number, r, nil) })
		if err != nil {
			f, ok := errors.AsType[*sheaf.Failure](err)
			if !ok || f.Code != "invalid_xlsx" {
				return 0, nil, err
			}
			// The other sheets may be intact.
			warnings = append(warnings, sheaf.Warning{Code: "sheet_damaged", Message: fmt.Sprintf("The sheet %q could not be read to its end: %s", sh.name, f.Message)})
		}
		types, any, err := cells.End()
		if err != nil {
			return 0, nil, err
		}
		if any {
			d.types = append(d.types, types)
		}
		for _, t := range d.beside(sh) {
			var types coltype.Inferrer
			if err := table(t.name, slices.Clone(t.columns)); err != nil {
				return 0, nil, err
			}
			for _, r := range t.rows {
				types.Row(r)
				if err := put(slices.Clone(r), nil); err != nil {
					return 0, nil, err
				}
			}
			d.types = append(d.types, coltype.Pack(types.Types()))
		}
	}
	if rows == 0 && len(warnings) > 0 {
		return 0, nil, zipfile.Invalid("xlsx", "none of its sheets can be read")
	}
	if hidden > 0 {
		warnings = append(warnings, sheaf.Warning{Code: "hidden_sheets", Message: fmt.Sprintf("Hidden sheets (%d) were not read; unhide them in Excel to have them searched.", hidden)})
	}
	if d.w.besides.damaged {
		warnings = append(warnings, sheaf.Warning{Code: "notes_damaged", Message: "Some notes or text boxes are missing or could not be read to their end."})
	}
	if d.w.besides.clipped {
		warnings = append(warnings, sheaf.Warning{Code: "notes_clipped", Message: fmt.Sprintf("The workbook has more than %d notes and text boxes, or %d MB of them; the rest was not read.", maxBesideRows, maxBesideBytes>>20)})
	}
	unsolved := 0
	for _, n := range d.w.unsolved {
		unsolved += n
	}
	if unsolved > 0 {
		warnings = append(warnings, sheaf.Warning{Code: "formulas_uncalculated", Message: fmt.Sprintf("Formulas whose results the file does not hold (%d) were read as empty; open the workbook in Excel, save it, and upload that.", unsolved)})
	}
	if n := d.w.besides.embedded; n > 0 {
		warnings = append(warnings, sheaf.Warning{Code: "embedded_ignored", Message: fmt.Sprintf("The files that the workbook holds (%d) were not read; save and upload them.", n)})
	}
	if d.w.charts+d.w.images > 0 {
		warnings = append(warnings, sheaf.Warning{Code: "images_ignored", Message: clean.Counts(d.w.charts, "charts", d.w.images, "pictures") + " were not read."})
	}
	return rows, warnings, nil
}

// beside returns the tables that follow a sheet's. Methods for which a row is a
// question or a set of tags have no use for them.
func (d *document) beside(sh sheet) []besideTable {
	if m := d.options.Config.ChunkMethod.V; m == "qa" || m == "tag" {
		return nil
	}
	return d.w.beside(sh)
}

// Plan implements parser.Document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	// Most workbooks of moderate size are one range, which needs no shard; and
	// their rows are cached, so that a second pass costs little.
	s := &rowio.Sharder{Dir: d.options.TempDir, Rows: rowio.RowsPerRange(d.options.Config), Dry: d.w.moderate}
	rows, warnings, err := d.pass(ctx, s.Table, s.Linked)
	if err == nil && s.Dry && len(s.Ranges) > 1 {
		s = &rowio.Sharder{Dir: s.Dir, Rows: s.Rows}
		rows, warnings, err = d.pass(ctx, s.Table, s.Linked)
	}
	defer s.Abort()
	if err != nil {
		return nil, err
	}
	if rows == 0 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The workbook's sheets contain no values; check that you uploaded the right file.")
	}
	if err := s.Close(d.types); err != nil {
		return nil, err
	}
	lost := s.Unlinked
	if len(s.Ranges) == 1 {
		lost = 0 // it is read from the workbook
	}
	for _, l := range d.w.links {
		lost += l.lost
	}
	if lost > 0 {
		warnings = append(warnings, sheaf.Warning{Code: "links_ignored", Message: fmt.Sprintf("Addresses behind cells (%d) were left out: they are read in sheets of up to %d rows, and up to %d KB of them for %d rows.", lost, bufferedRows, rowio.MaxLinkBytes>>10, s.Rows)})
	}
	return s.Plan(rows, len(d.w.sheets), d.w.z.Properties(), warnings), nil
}

// Parse implements parser.Document. In normal operation it is called only for
// workbooks of one range; for others it reads from the beginning.
func (d *document) Parse(ctx context.Context, want sheaf.Range, emit func(sheaf.UnitResult) error) error {
	if len(d.types) == 0 {
		nop := func(string, []string) error { return nil }
		if _, _, err := d.pass(ctx, nop, func(int, []string, []string) error { return nil }); err != nil {
			return err
		}
	}
	return rowio.Parse(slices.Clone(d.types), want, emit, func(table func(string, []string) error, row func(int, []string, []string) error) error {
		_, _, err := d.pass(ctx, table, row)
		return err
	})
}
