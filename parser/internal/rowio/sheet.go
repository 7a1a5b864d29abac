package rowio

import (
	"io"
	"slices"
	"strconv"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/coltype"
)

const (
	// headRows is how far from a sheet's top its header row may be.
	headRows = 8
	// lookRows is the number of rows from which the header is guessed.
	lookRows = 40
)

// Sheet hands on the rows of a sheet once the row that names its columns is found.
type Sheet struct {
	Name string
	// Head is the number of the row that names the columns, 0 if none does, -1 to guess.
	Head      int
	TableFunc func(name string, columns []string) error   // is called first
	RowFunc   func(number int, row, links []string) error // is called for every other row; number is that in the sheet

	types   coltype.Inferrer
	first   [][]string // rows held back until the header is known
	numbers []int
	links   [][]string
	begun   bool
}

// Row adds a row with its number in the sheet, from 1, and the addresses behind its
// cells. The slices are retained.
func (s *Sheet) Row(number int, row, links []string) error {
	if s.begun {
		return s.put(number, row, links)
	}
	s.first, s.numbers, s.links = append(s.first, row), append(s.numbers, number), append(s.links, links)
	if len(s.first) >= lookRows {
		return s.begin()
	}
	return nil
}

func (s *Sheet) put(number int, row, links []string) error {
	s.types.Row(row)
	return s.RowFunc(number, row, links)
}

func (s *Sheet) begin() error {
	s.begun = true
	at := s.header()
	var columns []string
	if at >= 0 {
		columns = slices.Clone(s.first[at])
		for i := range columns {
			columns[i] = clean.Line(columns[i])
		}
	}
	if err := s.TableFunc(s.Name, columns); err != nil {
		return err
	}
	for i, row := range s.first {
		if i != at {
			if err := s.put(s.numbers[i], row, s.links[i]); err != nil {
				return err
			}
		}
	}
	s.first, s.numbers, s.links = nil, nil, nil
	return nil
}

// End hands on what is held back. It returns the types of the columns, packed, and
// whether the sheet has rows.
func (s *Sheet) End() (types string, any bool, err error) {
	if !s.begun && len(s.first) > 0 {
		err = s.begin()
	}
	return coltype.Pack(s.types.Types()), s.begun, err
}

// header finds the row that names the columns, -1 for none. Where it is not given, it is
// the first row about as wide as the table, since titles above it fill only a cell or two.
func (s *Sheet) header() int {
	if at := slices.Index(s.numbers, s.Head); s.Head > 0 && at >= 0 && at < headRows {
		return at
	} else if s.Head == 0 {
		return -1
	}
	width := 0
	for _, r := range s.first {
		width = max(width, filled(r))
	}
	for i, r := range s.first[:min(len(s.first), headRows)] {
		if n := filled(r); n*10 >= width*6 && (n > 1 || width == 1) {
			if coltype.Header(r, s.first[i+1:]) {
				return i
			}
			return -1
		}
	}
	return -1
}

func filled(row []string) int {
	n := 0
	for _, c := range row {
		if c != "" {
			n++
		}
	}
	return n
}

// Plan is that of a file of rows, which the sharder has cut.
func (s *Sharder) Plan(rows, sheets int, metadata map[string]string, warnings []sheaf.Warning) *parser.Plan {
	metadata["sheets"], metadata["rows"] = strconv.Itoa(sheets), strconv.Itoa(rows)
	if len(s.Ranges) == 1 {
		// One task: rereading the small original costs less than storing a shard.
		s.Ranges[0].Shard, s.Ranges[0].MediaType, s.Ranges[0].Hint = "", "", nil
	}
	return &parser.Plan{Unit: sheaf.UnitRow, Units: rows, Ranges: s.Ranges, Metadata: metadata, Warnings: warnings}
}

// Parse emits the rows of a range from a pass over all tables of a file. types are those
// of the tables' columns, packed. The pass calls table before the rows of each, and row
// with the number of each in the document.
func Parse(types []string, want sheaf.Range, emit func(sheaf.UnitResult) error,
	pass func(table func(name string, columns []string) error, row func(n int, r, links []string) error) error) error {
	table := 0
	e := Emitter{Emit: emit, Links: map[int][]string{}}
	err := pass(func(name string, columns []string) error {
		if err := e.Flush(); err != nil {
			return err
		}
		e.Name, e.Columns, e.Types = name, columns, nil
		if table < len(types) {
			e.Types = coltype.Unpack(types[table], len(types[table]))
		}
		table++
		return nil
	}, func(n int, r, links []string) error {
		if n > want.To {
			return io.EOF
		}
		if n < want.From {
			return nil
		}
		if len(links) > 0 {
			e.Links[n] = links
		}
		return e.Row(n, r)
	})
	if err != nil && err != io.EOF {
		return err
	}
	return e.Flush()
}
