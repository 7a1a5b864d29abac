// Package rowio carries the rows of spreadsheets: into results as tables of limited
// size, and into the shards of a large workbook.
package rowio

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/tempfile"
)

// MediaType is the media type of a shard.
const MediaType = "application/vnd.sheaf.rows+zstd"

const (
	// BlockRows is the maximum number of rows in one table block, so that a result
	// can be sent while the next is read.
	BlockRows = 500
	// blockBytes ends a block of long cells early.
	blockBytes = 4 << 20
	// blockCells ends a block early if its widest row would widen the others too much.
	blockCells = 1 << 19
	// MaxCellBytes truncates a cell. Excel's own limit is 32,767 characters.
	MaxCellBytes = 1 << 20
	// MaxColumns is Excel's limit.
	MaxColumns = 16_384
	// MaxRows limits the units of one document.
	MaxRows = 50_000_000
	// RowsPerPage converts rows to pages, the unit of cost.
	RowsPerPage = 250
)

// RowsPerRange returns the setting, or its default.
func RowsPerRange(c sheaf.ParseConfig) int {
	if c.TableRows.V > 0 {
		return c.TableRows.V
	}
	return settings.Default.TableRows.V
}

// Cost returns the cost of a range of rows in pages.
func Cost(rows int) int { return (rows + RowsPerPage - 1) / RowsPerPage }

// Emitter collects rows into results. Rows must come in order without gaps.
type Emitter struct {
	Emit    func(sheaf.UnitResult) error
	Name    string // of the table
	Columns []string
	Types   []string
	Links   map[int][]string // addresses behind the cells of rows, by number

	rows  [][]string
	first int
	bytes int
	width int
	text  bool
	cut   int // cells
}

// Row adds row number n. The slice is retained.
func (e *Emitter) Row(n int, row []string) error {
	if len(e.rows) == 0 {
		e.first = n
	}
	for i, c := range row {
		if len(c) > MaxCellBytes {
			c = clean.Clip(c, MaxCellBytes)
			e.cut++
		}
		row[i] = clean.Text(c)
	}
	if e.width = max(e.width, len(row)); len(e.rows) > 0 && e.width*(len(e.rows)+1) > blockCells {
		if err := e.Flush(); err != nil {
			return err
		}
		e.first, e.width = n, len(row)
	}
	for _, c := range row {
		e.bytes += len(c) + 8
		e.text = e.text || c != ""
	}
	e.rows = append(e.rows, row)
	if len(e.rows) >= BlockRows || e.bytes >= blockBytes {
		return e.Flush()
	}
	return nil
}

// Flush emits the collected rows.
func (e *Emitter) Flush() error {
	if len(e.rows) == 0 {
		return nil
	}
	width := len(e.Columns)
	for _, r := range e.rows {
		width = max(width, len(r))
	}
	t := &sheaf.Table{Name: e.Name, Columns: pad(e.Columns, width), FirstRow: e.first, Rows: e.rows}
	if len(e.Types) > 0 {
		t.Types = append([]string(nil), e.Types...)
		for len(t.Types) < width {
			t.Types = append(t.Types, "text")
		}
		t.Types = t.Types[:width]
	}
	for i, r := range t.Rows {
		for len(r) < width {
			r = append(r, "")
		}
		t.Rows[i] = r
	}
	u := sheaf.UnitResult{Unit: e.first, LastUnit: e.first + len(e.rows) - 1, Status: sheaf.UnitOK,
		Blocks: []sheaf.Block{{Kind: sheaf.BlockTable, Page: e.first, Table: t, Links: e.links()}}}
	if !e.text {
		u.Status, u.Code, u.Message, u.Blocks = sheaf.UnitBlank, "no_text", "The rows are empty.", nil
	}
	if e.cut > 0 {
		u.Warnings = append(u.Warnings, sheaf.Warning{Code: "cells_clipped", Page: e.first, Message: fmt.Sprintf("Of cells of more than %d MB (%d) the rest was not read.", MaxCellBytes>>20, e.cut)})
	}
	e.rows, e.bytes, e.width, e.text, e.cut = nil, 0, 0, false, 0
	return e.Emit(u)
}

// links places the addresses of the collected rows on them.
func (e *Emitter) links() (out []sheaf.Link) {
	if len(e.Links) == 0 {
		return nil
	}
	at := 0
	if len(e.Columns) > 0 {
		at = 1 // the header is row 0
	}
	for i := range e.rows {
		for _, uri := range e.Links[e.first+i] {
			out = append(out, sheaf.Link{Start: at + i, End: at + i + 1, URI: uri})
		}
	}
	return out
}

// pad names columns missing from the header.
func pad(columns []string, width int) []string {
	if len(columns) == 0 {
		return nil
	}
	out := make([]string, width)
	for i := range out {
		if i < len(columns) {
			out[i] = columns[i]
		}
		if out[i] == "" {
			out[i] = "column_" + strconv.Itoa(i+1)
		}
	}
	return out
}

// head is the first line of a shard.
type head struct {
	Name    string   `json:"name,omitempty"`
	Columns []string `json:"columns,omitempty"`
	First   int      `json:"first"`
}

// Hint of a planned range of rows: what is known only after the last row.
type Hint struct {
	Types string           `json:"types,omitempty"` // see coltype.Pack
	Links map[int][]string `json:"links,omitempty"` // see Emitter.Links
}

// MaxLinkBytes limits the addresses in a hint, which is stored with its task.
const MaxLinkBytes = 32 << 10

// Sharder writes rows to files of a fixed number of rows. A shard is
// zstd-compressed lines of JSON: the head, then an array of strings per row.
type Sharder struct {
	Dir    string
	Rows   int
	Dry    bool // find the ranges and their fingerprints without writing
	Ranges []parser.PlannedRange
	tables []int              // per range: the number of its table
	links  []map[int][]string // per range
	linked int                // bytes of addresses in the open shard
	// Unlinked is the number of addresses that found no place.
	Unlinked int

	open    bool
	file    *os.File // nil when dry
	zip     *zstd.Encoder
	buf     *bufio.Writer
	hash    *xxhash.Digest
	head    head
	n       int // rows in the open shard
	table   int
	scratch []byte
}

// Table begins a table: the open shard ends, since no range spans two.
func (s *Sharder) Table(name string, columns []string) error {
	s.table++
	s.head.Name, s.head.Columns = name, columns
	return s.end()
}

// Row adds row number n, the next in order.
func (s *Sharder) Row(n int, row []string) error {
	if !s.open {
		if err := s.begin(n); err != nil {
			return err
		}
	}
	b := append(s.scratch[:0], '[')
	for i, c := range row {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, c)
	}
	b = append(b, ']', '\n')
	s.scratch = b
	_, _ = s.hash.Write(b) // a hash never fails
	if !s.Dry {
		if _, err := s.buf.Write(b); err != nil {
			return tempfile.Full(err)
		}
	}
	if s.n++; s.n >= s.Rows {
		return s.end()
	}
	return nil
}

// Linked adds a row with the addresses behind its cells.
func (s *Sharder) Linked(n int, row, uris []string) error {
	if err := s.Row(n, row); err != nil {
		return err
	}
	i := len(s.Ranges) - 1
	for _, uri := range uris {
		if s.linked += len(uri) + 16; s.linked > MaxLinkBytes {
			s.Unlinked++
			continue
		}
		if s.links[i] == nil {
			s.links[i] = map[int][]string{}
		}
		s.links[i][n] = append(s.links[i][n], uri)
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
			plain = false
			break
		}
	}
	if plain {
		return append(append(append(b, '"'), s...), '"')
	}
	q, err := json.Marshal(s)
	if err != nil { // a string always encodes
		return append(b, '"', '"')
	}
	return append(b, q...)
}

func (s *Sharder) begin(n int) error {
	name := fmt.Sprintf("rows-%09d.zst", n)
	s.head.First = n
	b, err := json.Marshal(s.head)
	if err != nil {
		return err
	}
	if s.hash == nil {
		s.hash = xxhash.New()
	}
	s.hash.Reset()
	_, _ = s.hash.Write(b) // a hash never fails
	if !s.Dry {
		if err := s.create(name, append(b, '\n')); err != nil {
			return err
		}
	}
	s.open, s.n = true, 0
	s.Ranges = append(s.Ranges, parser.PlannedRange{Range: sheaf.Range{From: n, To: n}, Shard: name, MediaType: MediaType})
	s.tables, s.links, s.linked = append(s.tables, s.table), append(s.links, nil), 0
	return nil
}

// create begins a shard's file with its first line.
func (s *Sharder) create(name string, line []byte) error {
	f, err := os.Create(filepath.Join(s.Dir, name))
	if err != nil {
		return tempfile.Full(err)
	}
	s.file = f
	if s.zip == nil {
		// One goroutine and the fastest level: measured 1.4 s for 1,000,000
		// rows of 90 bytes, at a quarter of their size.
		s.zip, err = zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(256<<10))
		if err != nil {
			return err
		}
		s.buf = bufio.NewWriterSize(s.zip, 64<<10)
	} else {
		s.zip.Reset(f)
		s.buf.Reset(s.zip)
	}
	if _, err := s.buf.Write(line); err != nil {
		return tempfile.Full(err)
	}
	return nil
}

func (s *Sharder) end() error {
	if !s.open {
		return nil
	}
	s.open = false
	r := &s.Ranges[len(s.Ranges)-1]
	r.Range.To = r.Range.From + s.n - 1
	r.Cost = Cost(s.n)
	r.Fingerprint = s.hash.Sum64()
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.buf.Flush(), s.zip.Close(), s.file.Close())
	s.file = nil
	if err != nil {
		return tempfile.Full(err)
	}
	return nil
}

// Close ends the last shard and gives each range its table's types, in the order of
// the calls to Table.
func (s *Sharder) Close(types []string) error {
	if err := s.end(); err != nil {
		return err
	}
	for i := range s.Ranges {
		r := &s.Ranges[i]
		t := ""
		if k := s.tables[i] - 1; k >= 0 && k < len(types) {
			t = types[k]
		}
		r.Hint, _ = json.Marshal(Hint{Types: t, Links: s.links[i]}) // strings always encode
		r.Fingerprint ^= xxhash.Sum64String(t)
		if s.links[i] != nil {
			r.Fingerprint ^= xxhash.Sum64(r.Hint)
		}
	}
	return nil
}

// Abort closes the files after an error; the caller removes their folder.
func (s *Sharder) Abort() {
	if s.file != nil {
		_ = s.file.Close() // the shard is not used
		s.file = nil
	}
}

// Reader reads a shard.
type Reader struct {
	Name    string
	Columns []string
	First   int

	zip   *zstd.Decoder
	lines *bufio.Reader
	next  int
	read  int64
	line  []byte
}

const (
	maxLineBytes  = 64 << 20 // a row of 64 cells at their limit
	maxShardBytes = 2 << 30
)

// NewReader reads the head of a shard.
func NewReader(r io.Reader) (*Reader, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, damaged(err)
	}
	s := &Reader{zip: z, lines: bufio.NewReaderSize(z, 64<<10)}
	line, err := s.scan()
	var h head
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err == nil && (h.First < 1 || h.First > MaxRows || len(h.Columns) > MaxColumns) {
		err = errors.New("its head is not that of a shard")
	}
	if err != nil {
		z.Close()
		return nil, damaged(err)
	}
	s.Name, s.Columns, s.First, s.next = h.Name, h.Columns, h.First, h.First
	return s, nil
}

func (s *Reader) scan() ([]byte, error) {
	s.line = s.line[:0]
	for {
		b, err := s.lines.ReadSlice('\n')
		s.line = append(s.line, b...)
		s.read += int64(len(b))
		if len(s.line) > maxLineBytes || s.read > maxShardBytes {
			return nil, errors.New("it is larger than any shard")
		}
		if err == nil {
			return bytes.TrimSuffix(s.line, []byte("\n")), nil
		}
		if err == io.EOF && len(s.line) > 0 {
			return nil, io.ErrUnexpectedEOF
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}

// Next returns the next row and its number, io.EOF after the last.
func (s *Reader) Next() (int, []string, error) {
	line, err := s.scan()
	if err == io.EOF {
		return 0, nil, io.EOF
	}
	var row []string
	if err == nil {
		err = json.Unmarshal(line, &row)
	}
	if err == nil && (len(row) > MaxColumns || s.next > MaxRows) {
		err = errors.New("it is larger than any shard")
	}
	if err != nil {
		return 0, nil, damaged(err)
	}
	s.next++
	return s.next - 1, row, nil
}

// Close frees the decoder.
func (s *Reader) Close() { s.zip.Close() }

func damaged(err error) error {
	return sheaf.Fail(sheaf.CategoryBadInput, "invalid_rows", "The prepared rows cannot be read (%v); parse the document again.", err)
}
