package artifact

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"sheaf"
)

// groupBytes is how much text and vectors are buffered per row group: a Writer
// holds a few times as much in memory.
const groupBytes = 2 << 20

// Writer writes one file, chunk by chunk. It must not be used concurrently.
type Writer struct {
	header  Header
	sealer  *sealer
	parquet *parquet.GenericWriter[row]
	rows    []row
	pending int // bytes buffered
	written int // bytes buffered since the start
	err     error
}

var schema, schemaV2, schemaV1 = parquet.SchemaOf(row{}), parquet.SchemaOf(rowV2{}), parquet.SchemaOf(rowV1{})

// compression is shared by all files: it keeps its encoders, whose tables take a
// megabyte to build.
var compression = &zstd.Codec{Level: zstd.SpeedFastest}

// resting holds Parquet writers to be used again: making one takes longer than writing
// the few chunks of a small document, and allocates half a megabyte. All have the same
// keys, and none has written a large file, whose buffers it would keep.
var resting sync.Pool // of *parquet.GenericWriter[row]

// mostResting is the size up to which a file's writer is kept.
const mostResting = 512 << 10

// NewWriter starts a file on w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if h.Dim < 0 || h.Dim > maxDim {
		return nil, fmt.Errorf("%w: vectors of %d values, at most %d", sheaf.ErrInvalid, h.Dim, maxDim)
	}
	s := newSealer(w)
	p, rested := resting.Get().(*parquet.GenericWriter[row])
	if rested {
		p.Reset(s)
	} else {
		p = newParquet(s)
	}
	for _, kv := range h.metadata() {
		p.SetKeyValueMetadata(kv[0], kv[1])
	}
	return &Writer{header: h, sealer: s, parquet: p}, nil
}

func newParquet(w io.Writer) *parquet.GenericWriter[row] {
	return parquet.NewGenericWriter[row](w, schema,
		parquet.Compression(compression),
		parquet.CreatedBy("sheaf", "1", ""),
		parquet.DataPageStatistics(false),
		// Bounds of text and vector values are of no use to readers, and would be
		// copied into the footer.
		parquet.SkipPageBounds("text"), parquet.SkipPageBounds("parent"), parquet.SkipPageBounds("context"), parquet.SkipPageBounds("vector", "list", "element"),
		parquet.SkipPageBounds("columns"), parquet.SkipPageBounds("metadata"),
		parquet.WriteBufferSize(0))
}

// rest keeps the Parquet writer of a complete file for another one.
func rest(p *parquet.GenericWriter[row]) {
	// Reset clears the names of the columns that a file lists, and with them those of
	// the writer: https://github.com/parquet-go/parquet-go/issues/602
	for _, group := range p.File().Metadata().RowGroups {
		for i := range group.Columns {
			group.Columns[i].MetaData.PathInSchema = nil
		}
	}
	p.Reset(io.Discard)
	resting.Put(p)
}

// Write adds a chunk. vector is Header.Dim long, or nil for a chunk that is not to
// be found by meaning; an all-zero vector is stored as nil. Chunks are read back in
// the order in which they were written. Write retains neither c nor vector.
func (w *Writer) Write(c *sheaf.Chunk, vector []float32) error {
	if w.err != nil {
		return w.err
	}
	if len(vector) != 0 && len(vector) != w.header.Dim {
		return fmt.Errorf("%w: chunk %s has a vector of %d values in a file of %d", sheaf.ErrInvalid, c.ID, len(vector), w.header.Dim)
	}
	r := row{
		ChunkID: c.ID, Ordinal: int64(c.Ordinal), Kind: string(c.Kind), Text: c.Text, Tokens: int32(c.Tokens),
		HeadingPath: c.HeadingPath, Role: string(c.Role), Parent: c.Parent, Context: c.Context, Language: c.Language,
		Keywords: c.Keywords, Questions: c.Questions, Pages: pagesOf(c), Boxes: boxesOf(c), Tags: tagsOf(c),
	}
	if !zero(vector) {
		r.Vector = append([]float32(nil), vector...)
	}
	var err error
	if r.Columns, err = jsonOf(c, "columns", c.Columns); err != nil {
		return err
	}
	metadata := c.Metadata
	if len(c.Children) > 0 {
		// In the metadata, where earlier versions ignore it.
		metadata = maps.Clone(metadata)
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[keyChildren] = strings.Join(c.Children, "\n")
	}
	if r.Metadata, err = jsonOf(c, "metadata", metadata); err != nil {
		return err
	}
	size := 256 + len(r.Text) + len(r.Parent) + len(r.Context) + 4*len(r.Vector) + 40*len(r.Boxes)
	for _, text := range []*string{r.Columns, r.Metadata} {
		if text != nil {
			size += len(*text)
		}
	}
	w.rows = append(w.rows, r)
	w.pending, w.written = w.pending+size, w.written+size
	if len(w.rows) == batchRows || w.pending >= groupBytes {
		w.err = w.flush()
	}
	return w.err
}

func pagesOf(c *sheaf.Chunk) []int32 { return each(c.Pages, func(p int) int32 { return int32(p) }) }

func boxesOf(c *sheaf.Chunk) []box {
	return each(c.Boxes, func(b sheaf.Box) box { return box{int32(b.Page), b.X0, b.Y0, b.X1, b.Y1} })
}

func tagsOf(c *sheaf.Chunk) []tag { return each(c.Tags, func(t sheaf.Tag) tag { return tag(t) }) }

func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

// jsonOf encodes a map as JSON; nil if it is empty.
func jsonOf[V any](c *sheaf.Chunk, what string, m map[string]V) (*string, error) {
	if len(m) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: the %s of chunk %s: %v", sheaf.ErrInvalid, what, c.ID, err)
	}
	return new(string(b)), nil
}

// flush converts the buffered rows to columns, and those to a row group once there
// are enough.
func (w *Writer) flush() (err error) {
	defer recovered(&err)
	if len(w.rows) == 0 {
		return nil
	}
	if _, err := w.parquet.Write(w.rows); err != nil {
		return fmt.Errorf("writing the artifact of range %s: %w", w.header.RangeID, err)
	}
	clear(w.rows)
	w.rows = w.rows[:0]
	if w.pending < groupBytes {
		return nil
	}
	w.pending = 0
	if err := w.parquet.Flush(); err != nil {
		return fmt.Errorf("writing the artifact of range %s: %w", w.header.RangeID, err)
	}
	return nil
}

// Close writes the footer, without which the file cannot be read.
func (w *Writer) Close() (err error) {
	defer recovered(&err)
	if w.err == nil {
		w.err = w.flush()
	}
	if w.err != nil {
		return w.err
	}
	w.err = fmt.Errorf("%w: the artifact of range %s is closed", sheaf.ErrInvalid, w.header.RangeID)
	w.sealer.hold = true
	if err := w.parquet.Close(); err != nil {
		return fmt.Errorf("writing the artifact of range %s: %w", w.header.RangeID, err)
	}
	if err := w.sealer.finish(); err != nil {
		return fmt.Errorf("writing the artifact of range %s: %w", w.header.RangeID, err)
	}
	if w.written <= mostResting && w.header.readings == "" {
		rest(w.parquet)
	}
	w.parquet = nil
	return nil
}

// Encode writes an entire file. vectors is nil, or has one entry per chunk.
func Encode(w io.Writer, h Header, chunks []sheaf.Chunk, vectors [][]float32) error {
	if vectors != nil && len(vectors) != len(chunks) {
		return fmt.Errorf("%w: %d vectors for %d chunks", sheaf.ErrInvalid, len(vectors), len(chunks))
	}
	out, err := NewWriter(w, h)
	if err != nil {
		return err
	}
	for i := range chunks {
		var vector []float32
		if vectors != nil {
			vector = vectors[i]
		}
		if err := out.Write(&chunks[i], vector); err != nil {
			return err
		}
	}
	return out.Close()
}

func zero(v []float32) bool {
	for _, x := range v {
		if x != 0 {
			return false
		}
	}
	return true
}

// recovered turns a panic of the Parquet library into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Parquet library failed: %v\n%.2000s", p, debug.Stack())
	}
}
