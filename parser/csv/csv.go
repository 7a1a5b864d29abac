// Package csv is the format of delimited text: CSV, TSV and their dialects.
// Planning reads the file once and records where every range of rows begins and
// what its columns hold; a range can then be read independently. It runs in the
// parser's child process.
package csv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/coltype"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/rowio"
)

const (
	version = 1 // changes whenever the same file would yield other blocks
	// sampleBytes is how much is sampled to guess the dialect.
	sampleBytes = 64 << 10
	sampleRows  = 200
)

// New returns the format.
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "csv" }
func (format) Version() int { return version }
func (format) Types() []parser.FileType {
	comma := parser.FileType{
		MediaType: parser.MediaCSV, Aliases: []string{"application/csv", "text/x-csv"}, Name: "CSV", Extensions: []string{".csv"}, Text: true,
		Families: []sheaf.FileFamily{sheaf.FamilySpreadsheet}, Unit: sheaf.UnitRow, Ranges: "3,000 rows",
	}
	tab := comma
	tab.MediaType, tab.Aliases, tab.Name, tab.Extensions = parser.MediaTSV, nil, "TSV", []string{".tsv", ".tab"}
	return []parser.FileType{comma, tab}
}
func (format) Options() []string { return []string{"table_rows", "encoding"} }

// hint is what a range needs to be read independently. It refers to the header by
// offset, to be read again, since the header may be long and there are many hints.
type hint struct {
	dialect
	Encoding     string `json:"encoding"`
	HeaderOffset int64  `json:"header_offset,omitempty"`
	HeaderLength int64  `json:"header_length,omitempty"` // 0: the table has no header
	Offset       int64  `json:"offset"`
	Length       int64  `json:"length"`
	First        int    `json:"first"` // number of its first row
	Strikes      int    `json:"strikes,omitempty"`
	Types        string `json:"types"`
}

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(f, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	d := &document{f: f, size: size, options: o}
	if len(o.Hint) > 0 {
		var h hint
		if err := json.Unmarshal(o.Hint, &h); err != nil || h.Offset < 0 || h.Length < 0 || h.HeaderLength < 0 || h.HeaderLength > maxRecordBytes || h.First < 1 {
			return nil, sheaf.Fail(sheaf.CategoryInternal, "bad_hint", "The plan of this part of the file cannot be read; parse the document again.")
		}
		d.hint = &h
		return d, nil
	}
	if d.guess, _, err = charset.DetectFile(f, size, o.Config.Encoding.V, ""); err != nil {
		return nil, err
	}
	return d, d.detect()
}

type document struct {
	f       *os.File
	size    int64
	options parser.Options
	hint    *hint // nil when the file is planned or read as a whole

	guess   charset.Guess
	dialect dialect
	start   int64 // where the records begin in the decoded stream
	header  bool
}

func (d *document) Close() error { return nil }

// seekable reports whether reading may start at file offsets: every byte below 0x80
// is the character it looks like. Other encodings are decoded while planning, and
// split into shards.
func (d *document) seekable() bool {
	n := d.guess.Name
	return d.guess.Unicode() || strings.HasPrefix(n, "windows-") || strings.HasPrefix(n, "iso-8859-") || strings.HasPrefix(n, "koi8-") || n == "macintosh" || n == "ibm866" || n == "euc-jp" || n == "euc-kr"
}

// stream reads the records' bytes from offset at; decoded when not seekable.
func (d *document) stream(at int64) io.Reader {
	if d.seekable() {
		return io.NewSectionReader(d.f, at, d.size-at)
	}
	r := d.guess.Reader(io.NewSectionReader(d.f, int64(d.guess.BOM), d.size-int64(d.guess.BOM)))
	return &skipper{r, at - int64(d.guess.BOM)}
}

// skipper drops the first bytes of a decoded stream.
type skipper struct {
	r io.Reader
	n int64
}

func (s *skipper) Read(b []byte) (int, error) {
	if s.n > 0 {
		n, err := io.CopyN(io.Discard, s.r, s.n)
		if s.n -= n; err != nil {
			return 0, err
		}
	}
	return s.r.Read(b)
}

// decode turns a field into text.
func (d *document) decode(field []byte) string {
	if d.seekable() && !d.guess.Unicode() {
		g := d.guess
		g.BOM = 0
		return clean.Text(string(g.Decode(field)))
	}
	return clean.Text(string(field))
}

func (d *document) row(fields [][]byte) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = d.decode(bytes.TrimSpace(f))
	}
	return out
}

// detect guesses delimiter, quote and header from the file's beginning.
func (d *document) detect() error {
	d.start = int64(d.guess.BOM)
	sample := make([]byte, sampleBytes)
	n, err := io.ReadFull(d.stream(d.start), sample)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	sample = sample[:n]
	if i := bytes.IndexByte(sample, 0); i >= 0 {
		return sheaf.Fail(sheaf.CategoryBadInput, "invalid_csv", "The file holds zero bytes (the first near byte %d), so it is not delimited text; export it again as CSV.", i)
	}
	if len(bytes.TrimSpace(sample)) == 0 && int64(n) >= d.size-d.start {
		return charset.Empty()
	}
	d.dialect = dialect{Quote: '"', EOL: '\n'}
	if bytes.IndexByte(sample, '\n') < 0 && bytes.IndexByte(sample, '\r') >= 0 {
		d.dialect.EOL = '\r'
	}
	// Excel's own way of declaring the delimiter.
	if rest, ok := bytes.CutPrefix(sample, []byte("sep=")); ok && len(rest) > 1 && (rest[1] == '\r' || rest[1] == '\n') {
		d.dialect.Delimiter = rest[0]
		skip := bytes.IndexByte(sample, d.dialect.EOL) + 1
		d.start += int64(skip)
		sample = sample[skip:]
	}
	complete := int64(n) >= d.size-int64(d.guess.BOM)
	if d.dialect.Delimiter == 0 {
		d.dialect.Delimiter = d.delimiter(sample, complete)
	}
	if q := d.dialect; bytes.IndexByte(sample, '"') < 0 && bytes.Count(sample, []byte{q.Delimiter, '\''}) > 3 && bytes.Count(sample, []byte{'\'', q.Delimiter}) > 3 {
		d.dialect.Quote = '\''
	}
	rows := d.sampleRows(sample, d.dialect, complete)
	if len(rows) > 0 {
		d.header = coltype.Header(rows[0], rows[1:])
	}
	return nil
}

func (d *document) sampleRows(sample []byte, dl dialect, complete bool) [][]string {
	s := newScanner(bytes.NewReader(sample), dl, 0, 0)
	var out [][]string
	for len(out) < sampleRows {
		if _, err := s.next(); err != nil {
			break
		}
		out = append(out, d.row(s.fields))
	}
	if !complete && len(out) > 1 && len(out) < sampleRows { // the last row is cut off
		out = out[:len(out)-1]
	}
	return out
}

// delimiter chooses the one for which most rows have the same number of fields.
func (d *document) delimiter(sample []byte, complete bool) byte {
	candidates := []byte{',', ';', '\t', '|'}
	if d.options.MediaType == parser.MediaTSV {
		candidates = []byte{'\t', ',', ';', '|'}
	}
	best, bestScore := candidates[0], 0.0
	for _, c := range candidates {
		rows := d.sampleRows(sample, dialect{Delimiter: c, Quote: '"', EOL: d.dialect.EOL}, complete)
		counts := map[int]int{}
		for _, r := range rows {
			counts[len(r)]++
		}
		mode, times := 0, 0
		for n, t := range counts {
			if t > times || t == times && n > mode {
				mode, times = n, t
			}
		}
		if mode < 2 {
			continue
		}
		score := float64(times) / float64(len(rows)) * (1 + math.Log(float64(mode))/4)
		if c == candidates[0] {
			score *= 1.1 // prefer what the type implies if it is close
		}
		if score > bestScore {
			best, bestScore = c, score
		}
	}
	return best
}

// scan reads every record once. on gets the row's number, its offset, the scanner
// (valid during the call) and the row.
func (d *document) scan(ctx context.Context, on func(n int, at int64, strikes int, s *scanner, row []string) error) (header []string, headerAt, headerLen int64, clipped int, err error) {
	s := newScanner(d.stream(d.start), d.dialect, d.start, 0)
	for n := 0; ; {
		strikes := s.strikes
		at, err := s.next()
		if err == io.EOF {
			return header, headerAt, headerLen, s.clipped, nil
		}
		if err != nil {
			return nil, 0, 0, 0, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
		}
		if d.header && header == nil {
			header, headerAt, headerLen = d.row(s.fields), at, int64(len(s.raw))
			for i := range header {
				header[i] = clean.Line(header[i])
			}
			continue
		}
		n++
		if n&0x3fff == 0 && ctx.Err() != nil {
			return nil, 0, 0, 0, ctx.Err()
		}
		if n > rowio.MaxRows {
			return nil, 0, 0, 0, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The file has more than %d rows; split it into smaller files.", rowio.MaxRows)
		}
		if err := on(n, at, strikes, s, d.row(s.fields)); err != nil {
			return nil, 0, 0, 0, err
		}
	}
}

// Plan implements parser.Document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	if d.hint != nil {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "bad_hint", "A part of a file was asked for a plan; plan the whole file.")
	}
	p := &parser.Plan{Unit: sheaf.UnitRow, Metadata: d.guess.Metadata(nil), Warnings: d.guess.Warnings()}
	size := rowio.RowsPerRange(d.options.Config)
	var types coltype.Inferrer
	var hints []hint
	var sums []*xxhash.Digest
	var shards *rowio.Sharder
	if !d.seekable() {
		shards = &rowio.Sharder{Dir: d.options.TempDir, Rows: size}
		defer shards.Abort()
	}
	ragged, width := 0, -1
	var end int64
	header, headerAt, headerLen, clipped, err := d.scan(ctx, func(n int, at int64, strikes int, s *scanner, row []string) error {
		p.Units = n
		types.Row(row)
		if width < 0 {
			width = len(row)
		}
		if len(row) != width {
			ragged++
		}
		if shards != nil {
			if n == 1 {
				if err := shards.Table("", d.columns()); err != nil {
					return err
				}
			}
			return shards.Row(n, row)
		}
		if (n-1)%size == 0 {
			hints = append(hints, hint{Offset: at, First: n, Strikes: strikes})
			sums = append(sums, xxhash.New())
		}
		_, _ = sums[len(sums)-1].Write(s.raw) // a hash never fails
		end = s.offset
		hints[len(hints)-1].Length = end - hints[len(hints)-1].Offset
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p.Units == 0 {
		if !d.header {
			return nil, charset.Empty()
		}
		d.header = false // a header and nothing below: it is all there is to read
		return d.Plan(ctx)
	}
	columns := types.Types()
	for len(columns) < len(header) {
		columns = append(columns, coltype.Text)
	}
	packed := coltype.Pack(columns)
	p.Metadata["rows"], p.Metadata["columns"] = fmt.Sprint(p.Units), fmt.Sprint(len(columns))
	p.Metadata["delimiter"] = string(d.dialect.Delimiter)
	if d.header {
		width = len(header)
	}
	if ragged > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "ragged_rows", Message: fmt.Sprintf("Rows with another number of fields than the first (%d): missing fields were read as empty.", ragged)})
	}
	if clipped > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "rows_clipped", Message: fmt.Sprintf("Rows of more than %d MB or %d fields (%d) were cut there.", maxRecordBytes>>20, maxFields, clipped)})
	}
	if shards != nil {
		if err := shards.Close([]string{packed}); err != nil {
			return nil, err
		}
		p.Ranges = shards.Ranges
		return p, nil
	}
	// The header and types decide what every range yields, so they belong to its fingerprint.
	common := xxhash.New()
	fmt.Fprintf(common, "%v\x00%s\x00%s\x00%q", d.dialect, d.guess.Name, packed, header)
	for i, h := range hints {
		h.dialect, h.Encoding, h.Types = d.dialect, d.guess.Name, packed
		h.HeaderOffset, h.HeaderLength = headerAt, headerLen
		b, err := json.Marshal(h)
		if err != nil {
			return nil, err
		}
		last := min(h.First+size-1, p.Units)
		p.Ranges = append(p.Ranges, parser.PlannedRange{
			Range: sheaf.Range{From: h.First, To: last}, Cost: rowio.Cost(last - h.First + 1), Hint: b, Fingerprint: sums[i].Sum64() ^ common.Sum64(),
		})
	}
	return p, nil
}

// columns reads only the header.
func (d *document) columns() []string {
	if !d.header {
		return nil
	}
	s := newScanner(d.stream(d.start), d.dialect, d.start, 0)
	if _, err := s.next(); err != nil {
		return nil
	}
	return d.headerOf(s)
}

func (d *document) headerOf(s *scanner) []string {
	out := d.row(s.fields)
	for i := range out {
		out[i] = clean.Line(out[i])
	}
	return out
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, want sheaf.Range, emit func(sheaf.UnitResult) error) error {
	e := rowio.Emitter{Emit: emit}
	if d.hint == nil {
		// Without a plan, read the file from the beginning.
		var types coltype.Inferrer
		rows := 0
		header, _, _, _, err := d.scan(ctx, func(n int, _ int64, _ int, _ *scanner, row []string) error { types.Row(row); rows = n; return nil })
		if err != nil {
			return err
		}
		if rows == 0 && d.header {
			d.header = false
			return d.Parse(ctx, want, emit)
		}
		e.Columns = header
		e.Types = types.Types()
		_, _, _, _, err = d.scan(ctx, func(n int, _ int64, _ int, _ *scanner, row []string) error {
			if n > want.To {
				return io.EOF
			}
			if n < want.From {
				return nil
			}
			return e.Row(n, row)
		})
		if err != nil && err != io.EOF {
			return err
		}
		return e.Flush()
	}

	h := *d.hint
	d.guess, d.dialect = charset.Guess{Name: h.Encoding}, h.dialect
	e.Types = coltype.Unpack(h.Types, len(h.Types))
	if h.HeaderLength > 0 {
		s := newScanner(io.NewSectionReader(d.f, h.HeaderOffset, h.HeaderLength), h.dialect, h.HeaderOffset, 0)
		if _, err := s.next(); err == nil {
			e.Columns = d.headerOf(s)
		}
	}
	s := newScanner(io.NewSectionReader(d.f, h.Offset, h.Length), h.dialect, h.Offset, h.Strikes)
	for n := h.First; n <= want.To; n++ {
		if n&0x3ff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := s.next(); err == io.EOF {
			break
		} else if err != nil {
			return sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
		}
		if n >= want.From {
			if err := e.Row(n, d.row(s.fields)); err != nil {
				return err
			}
		}
	}
	return e.Flush()
}
