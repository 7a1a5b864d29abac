// Package jsonfmt is the format of JSON and JSON Lines: an array of flat
// objects becomes a table, everything else lines of "path: value". It runs in
// the parser's child process.
package jsonfmt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/whole"
)

const (
	version      = 3        // changes whenever the same file would yield other blocks
	maxFileBytes = 64 << 20 // of one JSON value; JSON Lines are read in parts
	maxDepth     = 512
	// maxBlockBytes is where the lines of one record are split into blocks.
	maxBlockBytes = 4 << 10
	// maxStringBytes is how much of a value's text one block has.
	maxStringBytes = 256 << 10
	maxColumns     = 200
	maxTableCells  = 1_000_000
)

// New returns the format.
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "json" }
func (format) Version() int { return version }
func (format) Types() []parser.FileType {
	like := parser.FileType{Text: true, Unit: sheaf.UnitFile, Ranges: "large files only"}
	types := parser.Types(like, parser.MediaJSON, parser.MediaJSONL, "application/geo+json", "application/ld+json")
	types[0].Name, types[0].Extensions, types[0].Families = "JSON", []string{".json", ".geojson"}, []sheaf.FileFamily{sheaf.FamilyCode}
	types[1].Name, types[1].Extensions, types[1].Aliases = "JSON Lines", []string{".jsonl", ".ndjson"}, []string{"application/jsonl", "application/x-jsonlines"}
	return types
}
func (format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(f, parts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	guess, _, err := charset.DetectFile(f, size, o.Config.Encoding.V, "")
	if err != nil {
		return nil, err
	}
	switch o.MediaType {
	case parser.MediaJSONL, "application/jsonl", "application/x-jsonlines":
		cuts, err := parts.Cut(f, int64(guess.BOM), size, guess)
		if err != nil {
			return nil, err
		}
		return &parts.Document{File: f, Guess: guess, Cuts: cuts, Unit: linesUnit}, nil
	}
	return whole.New(func(context.Context) (*whole.Content, error) {
		b, guess, err := charset.ReadFile(f, maxFileBytes, "JSON file", o.Config.Encoding.V, "")
		if err != nil {
			return nil, err
		}
		blocks, encoded, err := values(b)
		if err != nil {
			return nil, err
		}
		return &whole.Content{Blocks: blocks, Metadata: guess.Metadata(nil), Warnings: append(guess.Warnings(), leftOut(encoded, 0)...)}, nil
	}), nil
}

func invalid(err error, at int64) *sheaf.Failure {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return sheaf.Fail(sheaf.CategoryBadInput, "invalid_json", "The JSON ends in the middle of a value, after %d bytes; upload the whole file.", at)
	}
	return sheaf.Fail(sheaf.CategoryBadInput, "invalid_json", "The file is not valid JSON near byte %d: %s. Correct it there, or set parser_config.media_type to text/plain to read it as text.", at, clean.Clip(clean.Line(err.Error()), 200))
}

// values reads one JSON value, or several in sequence as in JSON Lines files.
// encoded counts the values that are left out.
func values(b []byte) (blocks []sheaf.Block, encoded int, err error) {
	dec := newDecoder(b)
	var out flattener
	for n := 0; ; n++ {
		v, err := dec.value(0)
		if err == io.EOF && n > 0 {
			break
		}
		if err != nil {
			return nil, 0, invalid(err, dec.InputOffset())
		}
		out.root(v)
	}
	out.flush()
	return out.blocks, dec.encoded, nil
}

// leftOut is the warning about n values of a page that are data, not text.
func leftOut(n, page int) []sheaf.Warning {
	if n == 0 {
		return nil
	}
	return []sheaf.Warning{{Code: "values_ignored", Page: page, Message: fmt.Sprintf("Long values that are not text (%d), such as files in base64, were left out.", n)}}
}

// object preserves the order of its fields, which a map would lose.
type object struct {
	keys   []string
	values []any
}

var errDeep = sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The JSON is nested more than %d levels deep; flatten it or upload it as text (parser_config.media_type text/plain).", maxDepth)

// decoder reads values, without the text of those that are data.
type decoder struct {
	*json.Decoder
	encoded int // values whose text was dropped
}

func newDecoder(b []byte) *decoder {
	d := &decoder{Decoder: json.NewDecoder(bytes.NewReader(b))}
	d.UseNumber()
	return d
}

// isEncoded reports whether a string is base64 or the like: long, and of ASCII
// without a space. Thai and Japanese are written without spaces, too.
func isEncoded(s string) bool {
	return len(s) > 2048 && !strings.ContainsFunc(s[:1024], func(r rune) bool { return r <= ' ' || r > '~' })
}

func (dec *decoder) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	inside := func(err error) error {
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	switch t {
	case json.Delim('{'):
		o := &object{}
		for dec.More() {
			k, err := dec.Token()
			if err != nil {
				return nil, inside(err)
			}
			v, err := dec.value(depth + 1)
			if err != nil {
				return nil, inside(err)
			}
			key, _ := k.(string)
			o.keys, o.values = append(o.keys, key), append(o.values, v)
		}
		_, err := dec.Token()
		return o, inside(err)
	case json.Delim('['):
		a := []any{}
		for dec.More() {
			v, err := dec.value(depth + 1)
			if err != nil {
				return nil, inside(err)
			}
			a = append(a, v)
		}
		_, err := dec.Token()
		return a, inside(err)
	}
	if s, ok := t.(string); ok && isEncoded(s) {
		dec.encoded++
		return "", nil
	}
	return t, nil
}

type flattener struct {
	blocks []sheaf.Block
	cur    strings.Builder
}

func (f *flattener) flush() {
	if t := strings.TrimSpace(f.cur.String()); t != "" {
		f.blocks = append(f.blocks, sheaf.Block{Kind: sheaf.BlockParagraph, Text: t})
	}
	f.cur.Reset()
}

// root gives each field of a top-level object, or element of a top-level array, its
// own blocks.
func (f *flattener) root(v any) {
	switch v := v.(type) {
	case []any:
		if t := table(v); t != nil {
			f.flush()
			f.blocks = append(f.blocks, sheaf.Block{Kind: sheaf.BlockTable, Table: t})
			return
		}
		for i, e := range v {
			f.value("["+strconv.Itoa(i)+"]", e)
			f.flush()
		}
	case *object:
		for i, k := range v.keys {
			switch v.values[i].(type) {
			case *object, []any:
				f.flush()
				f.value(k, v.values[i])
				f.flush()
			default:
				f.value(k, v.values[i])
			}
		}
		f.flush()
	default:
		f.value("", v)
		f.flush()
	}
}

func (f *flattener) value(path string, v any) {
	switch v := v.(type) {
	case *object:
		for i, k := range v.keys {
			f.value(clip(path)+"."+k, v.values[i])
		}
	case []any:
		if t := table(v); t != nil {
			t.Name = clean.Line(path)
			f.flush()
			f.blocks = append(f.blocks, sheaf.Block{Kind: sheaf.BlockTable, Table: t})
			return
		}
		if s, ok := scalars(v); ok {
			f.line(path, s)
			return
		}
		for i, e := range v {
			f.value(clip(path)+"["+strconv.Itoa(i)+"]", e)
		}
	default:
		f.line(path, scalar(v))
	}
}

// clip shortens the path of a deep value: with the full path at every leaf, the
// text would grow with the square of the depth.
func clip(path string) string {
	if len(path) > 200 {
		return "…" + clean.Line(strings.ToValidUTF8(path[len(path)-150:], ""))
	}
	return path
}

func (f *flattener) line(path, s string) {
	if s == "" {
		return
	}
	if f.cur.Len() > 0 && f.cur.Len()+len(s) > maxBlockBytes {
		f.flush()
	}
	if path != "" {
		f.cur.WriteString(clean.Line(path))
		f.cur.WriteString(": ")
	}
	for len(s) > maxStringBytes { // a book in one value
		piece := clean.Clip(s, maxStringBytes)
		if i := strings.LastIndexAny(piece, " \n"); i > maxStringBytes/2 {
			piece = piece[:i]
		}
		f.cur.WriteString(piece)
		f.flush()
		s = s[len(piece):]
	}
	f.cur.WriteString(s)
	f.cur.WriteByte('\n')
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(clean.Text(v))
	case json.Number:
		return clean.Clip(v.String(), 100)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// scalars joins a short list of plain values on one line.
func scalars(a []any) (string, bool) {
	parts := make([]string, 0, len(a))
	n := 0
	for _, e := range a {
		switch e.(type) {
		case *object, []any:
			return "", false
		}
		s := scalar(e)
		if n += len(s); n > maxBlockBytes {
			return "", false
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", "), true
}

// table makes a table of records whose fields are plain values, or returns
// nil. The columns are the fields in the order they first appear.
func table(a []any) *sheaf.Table {
	if len(a) < 2 {
		return nil
	}
	index := map[string]int{}
	t := &sheaf.Table{}
	for _, e := range a {
		o, ok := e.(*object)
		if !ok || len(o.keys) == 0 {
			return nil
		}
		for i, k := range o.keys {
			switch v := o.values[i].(type) {
			case *object:
				return nil
			case []any:
				if _, ok := scalars(v); !ok {
					return nil
				}
			case string:
				if len(v) > maxBlockBytes { // prose reads better as text
					return nil
				}
			}
			if _, ok := index[k]; !ok {
				index[k] = len(t.Columns)
				t.Columns = append(t.Columns, clean.Line(clean.Clip(k, 200)))
			}
		}
		if len(t.Columns) > maxColumns || len(t.Columns)*len(a) > maxTableCells {
			return nil
		}
	}
	for _, e := range a {
		o := e.(*object)
		row := make([]string, len(t.Columns))
		for i, k := range o.keys {
			if list, ok := o.values[i].([]any); ok {
				row[index[k]], _ = scalars(list)
			} else {
				row[index[k]] = scalar(o.values[i])
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// linesUnit reads the records of one part of a JSON Lines file. Lines that are not
// JSON are counted, and a part without any JSON has failed.
func linesUnit(b []byte, n int) sheaf.UnitResult {
	var records []any
	bad, encoded := 0, 0
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		dec := newDecoder(line)
		v, err := dec.value(0)
		if err != nil {
			bad++
			continue
		}
		encoded += dec.encoded
		records = append(records, v)
	}
	var f flattener
	if t := table(records); t != nil {
		f.blocks = []sheaf.Block{{Kind: sheaf.BlockTable, Table: t}}
	} else {
		for _, v := range records {
			f.root(v)
		}
	}
	f.flush()
	for i := range f.blocks {
		f.blocks[i].Page = n
	}
	u := whole.Unit(n, f.blocks)
	u.Warnings = append(u.Warnings, leftOut(encoded, n)...)
	if bad > 0 {
		message := strconv.Itoa(bad) + " lines are not valid JSON and were left out; correct them and upload the file again."
		if len(records) == 0 {
			u.Status, u.Code, u.Message = sheaf.UnitFailed, "invalid_json", message
		} else {
			u.Warnings = append(u.Warnings, sheaf.Warning{Code: "invalid_lines", Message: message, Page: n})
		}
	}
	return u
}
