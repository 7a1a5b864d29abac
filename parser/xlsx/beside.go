package xlsx

import (
	"io"
	"maps"
	"slices"
	"strings"

	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/diagram"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

// besideTable is a table of what a sheet shows outside its cells.
type besideTable struct {
	name    string
	columns []string
	rows    [][]string
}

// Limits of what is read beside the cells of a workbook.
const (
	maxBesideRows  = 100_000
	maxBesideBytes = 16 << 20
)

// besides is what was read beside the cells of a workbook.
type besides struct {
	tables      map[string][]besideTable // by sheet's part
	parts       map[string]bool
	rows, bytes int
	clipped     bool
	embedded    int  // files that the sheets show
	damaged     bool // a part is missing, or was read only up to its damage
}

// threadedMark begins the note that Excel writes beside a threaded comment, for
// versions that know none.
const threadedMark = "[Threaded comment]"

// beside returns the text boxes and diagrams over a sheet, and its notes and comments.
// Parts that are damaged are read up to the damage: the cells are what counts.
func (w *workbook) beside(sh sheet) (tables []besideTable) {
	all := &w.besides
	if read, ok := all.tables[sh.part]; ok {
		return read
	}
	var shapes, notes [][]string
	add := func(to *[][]string, row ...string) {
		for _, c := range row {
			all.bytes += len(c)
		}
		if all.rows++; all.rows > maxBesideRows || all.bytes > maxBesideBytes {
			all.clipped = true
			return
		}
		*to = append(*to, row)
	}
	rels := w.z.Rels(sh.part)
	for _, id := range slices.Sorted(maps.Keys(rels)) { // the same order on every read
		switch rel := rels[id]; rel.Type {
		case "drawing":
			texts, diagrams := w.shapes(rel.Target)
			for _, t := range texts {
				add(&shapes, t)
			}
			for _, t := range w.diagrams(rel.Target, diagrams) {
				add(&shapes, t)
			}
		case "package", "oleObject":
			all.embedded++
		case "comments", "threadedComment":
			for _, n := range w.notes(rel.Target) {
				if rel.Type != "comments" || !strings.HasPrefix(n[1], threadedMark) {
					add(&notes, n[0], n[1])
				}
			}
		}
	}
	if len(shapes) > 0 {
		tables = append(tables, besideTable{sh.name + ": text boxes", []string{"Text"}, shapes})
	}
	if len(notes) > 0 {
		tables = append(tables, besideTable{sh.name + ": notes", []string{"Cell", "Note"}, notes})
	}
	if all.tables == nil {
		all.tables = map[string][]besideTable{}
	}
	all.tables[sh.part] = tables
	return tables
}

// once opens a part beside the cells, and returns nil for one that is missing or was
// opened before. Sheets have none in common: a file in which thousands share one
// would keep a parser busy with it.
func (w *workbook) once(part string) io.ReadCloser {
	all := &w.besides
	if all.clipped || all.parts[part] {
		return nil
	}
	if all.parts == nil {
		all.parts = map[string]bool{}
	}
	all.parts[part] = true
	p, err := w.z.Part(part, zipfile.MaxPartBytes)
	if err != nil {
		all.damaged = true
		return nil
	}
	return p
}

func (w *workbook) shapes(part string) (texts, diagrams []string) {
	p := w.once(part)
	if p == nil {
		return nil, nil
	}
	defer p.Close()
	texts, diagrams, err := diagram.Shapes(p)
	w.besides.damaged = w.besides.damaged || err != nil
	return texts, diagrams
}

// diagrams returns the text of each diagram of a drawing, its points on lines.
func (w *workbook) diagrams(drawing string, ids []string) (texts []string) {
	rels := w.z.Rels(drawing)
	for _, id := range ids {
		p := w.once(rels[id].Target)
		if p == nil {
			continue
		}
		points, err := diagram.Points(p)
		w.besides.damaged = w.besides.damaged || err != nil
		if len(points) > 0 {
			texts = append(texts, strings.Join(points, "\n"))
		}
		_ = p.Close()
	}
	return texts
}

// notes reads a part of notes or of threaded comments: the cell and the text of each.
func (w *workbook) notes(part string) (notes [][2]string) {
	p := w.once(part)
	if p == nil {
		return nil
	}
	defer p.Close()
	cell, in, threaded := "", 0, false
	var text strings.Builder
	for s := xmlscan.New(p); len(notes) <= maxBesideRows; { // one more is what says that they are clipped
		k, err := s.Next()
		w.besides.damaged = w.besides.damaged || err != nil
		if err != nil || k == xmlscan.EOF {
			break
		}
		switch name := string(s.Name()); k {
		case xmlscan.Start:
			switch name {
			case "comment", "threadedComment":
				cell, threaded = clean.Line(clean.Clip(s.Attr("ref"), 32)), name == "threadedComment"
				text.Reset()
			case "rPh":
				_ = s.Skip() // phonetic; Next reports an error again
			case "t", "text":
				if name == "t" || threaded {
					in++
				}
			}
		case xmlscan.Text:
			if in > 0 && text.Len() < maxCellBytes {
				text.Write(s.Text())
			}
		case xmlscan.End:
			switch name {
			case "t", "text":
				if name == "t" || threaded {
					in = max(0, in-1)
				}
			case "comment", "threadedComment":
				if t := clean.Lines(clean.Clip(text.String(), maxCellBytes)); t != "" {
					notes = append(notes, [2]string{cell, t})
				}
			}
		}
	}
	return notes
}
