package pdf

import (
	"cmp"
	"slices"

	"sheaf"
)

// Tables are found in four ways, each in its own file, and in this order: by grids
// of rules (tables_grid.go), by rules above and below rows (tables_bands.go),
// unless such a drawing cuts a larger table (tables_cut.go), by rows of figures
// (tables_figures.go), and, within a column, by vertical white space between short
// texts (tables_space.go). tables_header.go decides which rows name the columns.

type table struct {
	box      box
	rows     [][]string
	rowBoxes []box
	spans    []sheaf.TableSpan
	header   bool     // the first row names the columns
	columns  []string // column names, if known from elsewhere
}

// tableBlock turns a table into a block.
func (s *sheet) tableBlock(t *table) sheaf.Block {
	out := &sheaf.Table{}
	rows, boxes := t.rows, t.rowBoxes
	out.Spans = t.spans
	heads := 0
	switch {
	case t.columns != nil:
		out.Columns = t.columns
	case t.grouped():
		heads = 2
		out.Columns, out.Spans = t.groupedColumns(), nil
		for _, p := range t.spans { // the header is now one row
			if p.Row > 1 {
				p.Row--
				out.Spans = append(out.Spans, p)
			}
		}
	case t.header:
		heads = 1
		out.Columns = rows[0]
	}
	rows, boxes = rows[heads:], boxes[heads:]
	out.Rows = rows
	out.RowBoxes = make([]sheaf.Box, len(boxes))
	for i, b := range boxes {
		out.RowBoxes[i] = s.place(b)
	}
	b := s.place(t.box)
	out.Box = &b
	return sheaf.Block{Kind: sheaf.BlockTable, Page: s.number, Table: out, Links: s.tableLinks(t, max(heads-1, 0))}
}

// tableLinks returns the links on a table's rows, of which the first merged+1 have
// become one.
func (s *sheet) tableLinks(t *table, merged int) []sheaf.Link {
	var out []sheaf.Link
	for _, l := range s.links {
		x, y := (l.x0+l.x1)/2, (l.y0+l.y1)/2
		for i, row := range t.rowBoxes {
			if !row.holds(x, y) {
				continue
			}
			i = max(i-merged, 0)
			to := sheaf.Link{Start: i, End: i + 1, URI: l.uri}
			if l.uri == "" {
				to.Page = l.page
			}
			out = append(out, to)
			break
		}
	}
	slices.SortStableFunc(out, func(a, b sheaf.Link) int { return cmp.Compare(a.Start, b.Start) })
	return out
}
