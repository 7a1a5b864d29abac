package chunker

import (
	"html"
	"strings"

	"sheaf"
)

// table adds a segment per row, framed by the header. Rows without text are omitted.
func (s *splitter) table(b *sheaf.Block) {
	t := b.Table
	width := len(t.Columns)
	for _, r := range t.Rows {
		width = max(width, len(r))
	}
	if width == 0 {
		return
	}
	budget := s.budget()
	f := &frame{open: s.tableHeader(t, width)}
	if s.set.html {
		f = htmlFrame(t, width)
	}
	n, fit := tokensWithin(f.open, budget/2)
	if f.tokens = n + CountTokens(f.close); !fit || f.tokens > budget/2 {
		// The header takes more tokens than rows: each row names its own columns
		// instead.
		f = nil
	}

	first := len(s.out)
	for i, row := range t.Rows {
		if s.set.watch.over(width) {
			break
		}
		begin := len(s.out)
		line := markdownRow(row, width)
		if line != "" && s.set.html {
			line = htmlRow(row, width, "td")
		}
		switch {
		case line == "":
			continue
		case f != nil && fits(line, budget-f.tokens-1):
			s.out = append(s.out, segment{text: line, sep: "\n", after: borderItem, frame: f})
		default:
			s.wideRow(t, row, budget)
		}
		for k := begin; k < len(s.out); k++ {
			s.out[k].page, s.out[k].boxes = rowPlace(b, i)
			s.out[k].row = i + 1
		}
	}
	if len(s.out) == first {
		s.headerOnly(b, budget)
	}
	for k := first; k < len(s.out); k++ {
		s.out[k].start, s.out[k].end = 0, 0
	}
	s.endBlock()
}

// htmlFrame is the markup around the rows of an HTML table.
func htmlFrame(t *sheaf.Table, width int) *frame {
	open := "<table>\n"
	if name := cell(t.Name); name != "" && len(name) <= titleMaxBytes {
		open += "<caption>" + html.EscapeString(name) + "</caption>\n"
	}
	if markdownRow(t.Columns, width) != "" {
		open += htmlRow(t.Columns, width, "th") + "\n"
	}
	return &frame{open: open, close: "\n</table>"}
}

func htmlRow(row []string, width int, tag string) string {
	var line strings.Builder
	line.WriteString("<tr>")
	for i := range width {
		c := ""
		if i < len(row) {
			c = html.EscapeString(cell(row[i]))
		}
		line.WriteString("<" + tag + ">" + c + "</" + tag + ">")
	}
	return line.String() + "</tr>"
}

// tableHeader returns the table's name, unless the heading or caption above says
// the same, its columns and the rule below them; empty when it has neither.
func (s *splitter) tableHeader(t *sheaf.Table, width int) string {
	var h strings.Builder
	said := ""
	if n := len(s.out); n > 0 {
		said = s.out[n-1].text
	}
	if name := cell(t.Name); name != "" && name != said && len(name) <= titleMaxBytes {
		h.WriteString(name + "\n\n")
	}
	if line := markdownRow(t.Columns, width); line != "" {
		h.WriteString(line + "\n|" + strings.Repeat(" --- |", width) + "\n")
	}
	return h.String()
}

func rowPlace(b *sheaf.Block, i int) (page int, boxes []sheaf.Box) {
	t := b.Table
	switch {
	case t.FirstRow > 0:
		page = t.FirstRow + i
	case i < len(t.RowBoxes):
		page = t.RowBoxes[i].Page
	}
	switch {
	case i < len(t.RowBoxes):
		boxes = t.RowBoxes[i : i+1]
	case t.Box != nil:
		boxes = []sheaf.Box{*t.Box}
	}
	return page, boxes
}

// wideRow adds a row that does not fit into a chunk: one "header: value" line per
// cell, cut between cells, and inside one only if it must be.
func (s *splitter) wideRow(t *sheaf.Table, row []string, budget int) {
	begin := len(s.out)
	for i, c := range row {
		line := cell(c)
		if line == "" {
			continue
		}
		if i < len(t.Columns) {
			if name := cell(t.Columns[i]); name != "" {
				line = name + ": " + line
			}
		}
		s.cellLine(line, budget)
	}
	if len(s.out) > begin {
		s.out[len(s.out)-1].after = borderItem
	}
}

// headerOnly adds the header of a table without any rows with text.
func (s *splitter) headerOnly(b *sheaf.Block, budget int) {
	begin := len(s.out)
	if line := markdownRow(b.Table.Columns, len(b.Table.Columns)); line != "" {
		if fits(line, budget) {
			s.out = append(s.out, segment{text: line})
		} else {
			for _, c := range b.Table.Columns {
				if c = cell(c); c != "" {
					s.cellLine(c, budget)
				}
			}
		}
	}
	for k := begin; k < len(s.out); k++ {
		_, s.out[k].boxes = rowPlace(b, len(b.Table.RowBoxes))
	}
}

func (s *splitter) cellLine(line string, budget int) {
	sep := "\n"
	for line != "" && !s.set.watch.over(0) {
		end := len(line)
		if !fits(strings.TrimSpace(line), budget) {
			end = fitting(line, budget, s.set.watch)
		}
		text := strings.TrimSpace(line[:end])
		if text != "" {
			s.out = append(s.out, segment{text: text, sep: sep, after: borderSentence})
		}
		sep = ""
		if end < len(line) && line[end] == ' ' {
			sep = " "
		}
		line = line[end:]
	}
}

// markdownRow returns a pipe table row with width cells, or "" when all are empty.
func markdownRow(row []string, width int) string {
	var line strings.Builder
	empty := true
	line.WriteString("|")
	for i := range width {
		c := ""
		if i < len(row) {
			c = strings.ReplaceAll(cell(row[i]), "|", `\|`)
		}
		if c != "" {
			empty = false
			line.WriteString(" " + c)
		}
		line.WriteString(" |")
	}
	if empty {
		return ""
	}
	return line.String()
}

// cell returns a cell's text on one line.
func cell(s string) string { return strings.Join(strings.Fields(valid(s)), " ") }

// columnTypes maps column names to types; nil when the types are unknown.
func columnTypes(t *sheaf.Table) map[string]any {
	if len(t.Types) == 0 || len(t.Types) != len(t.Columns) {
		return nil
	}
	m := make(map[string]any, len(t.Columns))
	for i, c := range t.Columns {
		if name := cell(c); name != "" && m[name] == nil && t.Types[i] != "" {
			m[name] = t.Types[i]
		}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
