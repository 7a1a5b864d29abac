// Package grid converts cells that span rows and columns into a table of plain rows.
package grid

import (
	"strings"

	"sheaf"
)

// Limits of one table: spans in a hostile file multiply.
const (
	MaxColumns = 1_000
	MaxCells   = 1_000_000
)

// Builder takes cells in reading order.
type Builder struct {
	rows    [][]string
	header  []bool // per row: all its cells are headers
	carry   []span // per column: a cell of an earlier row that extends down
	cells   int
	row     []string
	used    int
	heads   int
	filled  int
	open    bool
	uris    []rowLink
	links   []sheaf.Link
	Clipped bool // cells were dropped at a limit
}

// rowLink is an address in a row, by its index among rows.
type rowLink struct {
	row int
	uri string
}

// maxLinks is per table; a chunk hands on a few.
const maxLinks = 20_000

// Link adds an address to the open row.
func (b *Builder) Link(uri string) {
	if uri != "" && len(b.uris) < maxLinks {
		b.uris = append(b.uris, rowLink{len(b.rows), uri})
	}
}

// Links returns the links of the table that Table returned.
func (b *Builder) Links() []sheaf.Link { return b.links }

type span struct {
	text string
	left int
}

// Row begins a row.
func (b *Builder) Row() {
	b.end()
	b.open, b.row, b.used, b.heads, b.filled = true, nil, 0, 0, 0
}

// Cell adds a cell to the row. A text spanning rows is repeated in each row, since
// a row is read alone; one spanning columns is repeated only in a header, where
// each column needs its name.
func (b *Builder) Cell(text string, across, down int, header bool) {
	if !b.open {
		b.Row()
	}
	b.fromAbove()
	across, down = max(across, 1), max(down, 1)
	b.filled++
	if header {
		b.heads++
	}
	for i := range across {
		if b.used >= MaxColumns || b.cells >= MaxCells {
			b.Clipped = true
			return
		}
		t := text
		if i > 0 && !header {
			t = ""
		}
		b.put(t)
		if down > 1 {
			for len(b.carry) < b.used {
				b.carry = append(b.carry, span{})
			}
			b.carry[b.used-1] = span{t, down - 1}
		}
	}
}

func (b *Builder) put(t string) {
	b.row = append(b.row, t)
	b.used++
	b.cells++
}

// fromAbove fills the columns that a cell of an earlier row covers.
func (b *Builder) fromAbove() {
	for b.used < len(b.carry) && b.carry[b.used].left > 0 && b.cells < MaxCells {
		b.carry[b.used].left--
		b.put(b.carry[b.used].text)
	}
}

func (b *Builder) end() {
	if !b.open {
		return
	}
	b.open = false
	b.fromAbove()
	if b.filled == 0 {
		return
	}
	// Cells from above further right.
	for last := len(b.carry) - 1; b.used <= last && b.cells < MaxCells; {
		if b.carry[b.used].left > 0 {
			b.fromAbove()
			continue
		}
		rest := false
		for _, c := range b.carry[b.used:] {
			rest = rest || c.left > 0
		}
		if !rest {
			break
		}
		b.put("")
	}
	b.rows = append(b.rows, b.row)
	b.header = append(b.header, b.heads == b.filled)
}

// HeadRow makes the open row a header regardless of its cells.
func (b *Builder) HeadRow() { b.heads = max(b.filled, 1); b.filled = b.heads }

// Table returns the result, nil if no cell has text. Leading header rows become the
// columns' names, joined if there are several.
func (b *Builder) Table() *sheaf.Table {
	b.end()
	width, text := 0, false
	for _, r := range b.rows {
		for i, c := range r {
			if strings.TrimSpace(c) != "" {
				text = true
				width = max(width, i+1)
			}
		}
	}
	if !text {
		return nil
	}
	heads := 0
	for heads < len(b.rows) && b.header[heads] {
		heads++
	}
	if heads == len(b.rows) {
		heads = min(1, heads-1) // only headers: the first is the header of the others
	}
	t := &sheaf.Table{}
	if heads > 0 {
		t.Columns = make([]string, width)
		for _, r := range b.rows[:heads] {
			for i := range min(width, len(r)) {
				c := strings.TrimSpace(r[i])
				switch {
				case c == "" || t.Columns[i] == c || strings.HasSuffix(t.Columns[i], " "+c):
				case t.Columns[i] == "":
					t.Columns[i] = c
				default:
					t.Columns[i] += " " + c
				}
			}
		}
	}
	shown := make([]int, len(b.rows)) // the row of the table that each became, -1 for none
	for i, r := range b.rows[heads:] {
		row := make([]string, width)
		copy(row, r)
		any := false
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
			any = any || row[i] != ""
		}
		if shown[heads+i] = -1; any {
			shown[heads+i] = len(t.Rows) + min(heads, 1)
			t.Rows = append(t.Rows, row)
		}
	}
	b.links = nil
	for _, l := range b.uris {
		if l.row < len(shown) && shown[l.row] >= 0 {
			b.links = append(b.links, sheaf.Link{Start: shown[l.row], End: shown[l.row] + 1, URI: l.uri})
		}
	}
	return t
}

// Column is the index of the row's next cell.
func (b *Builder) Column() int { return b.used }

// Plain renders a table inside a cell: one line per row.
func Plain(t *sheaf.Table) string {
	lines := make([]string, 0, len(t.Rows)+1)
	if t.Columns != nil {
		lines = append(lines, strings.Join(t.Columns, " | "))
	}
	for _, r := range t.Rows {
		lines = append(lines, strings.Join(r, " | "))
	}
	return strings.Join(lines, "\n")
}
