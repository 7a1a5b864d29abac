package artifact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"sheaf"
)

// batchRows is how many rows are converted to columns or back at a time.
const batchRows = 128

// Reader reads one file. It must not be used concurrently.
type Reader struct {
	header Header
	file   *parquet.File
	source *readErrors
}

// Open verifies the checksum of the whole file and reads its header. A file that is
// damaged, truncated or not ours is sheaf.ErrInvalid: the range must be made again.
// An error of r is returned wrapped. r is used until the last read.
func Open(r io.ReaderAt, size int64) (*Reader, error) {
	tracked := &readErrors{r: r}
	if err := verify(tracked, size); err != nil {
		return nil, tracked.explain(err)
	}
	return open(tracked, size)
}

// open is Open without the checksum, so that the fuzzer gets past it.
func open(r *readErrors, size int64) (_ *Reader, err error) {
	defer func() {
		if err != nil {
			err = r.explain(err)
		}
	}()
	defer recovered(&err)
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(f.Lookup)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc([]parquet.Node{schema, schemaV2, schemaV1}, func(known parquet.Node) bool { return parquet.EqualNodes(f.Schema(), known) }) {
		return nil, errors.New("its columns are not those of an artifact")
	}
	if n := f.NumRows(); n < 0 || n > maxRows {
		return nil, fmt.Errorf("it says that it has %d rows", n)
	}
	return &Reader{header: h, file: f, source: r}, nil
}

// Header returns what the chunks belong to.
func (r *Reader) Header() Header { return r.header }

// Len returns the number of chunks.
func (r *Reader) Len() int { return int(r.file.NumRows()) }

// ForEach calls each for the chunks from index from, in the order in which they
// were written, until each returns an error, which it returns. vector is nil for a
// chunk without one. The callee owns chunk and vector. Numbers in Columns are int64
// if whole and in range, otherwise float64. It holds one batch of rows in memory.
func (r *Reader) ForEach(ctx context.Context, from int, each func(c *sheaf.Chunk, vector []float32) error) (err error) {
	if from < 0 || from > r.Len() {
		return fmt.Errorf("%w: chunk %d of %d", sheaf.ErrInvalid, from, r.Len())
	}
	var calleeErr error
	err = r.forEach(ctx, from, func(c *sheaf.Chunk, v []float32) error {
		calleeErr = each(c, v)
		return calleeErr
	})
	if err == nil || calleeErr != nil || ctx.Err() != nil {
		return err
	}
	return r.source.explain(err)
}

func (r *Reader) forEach(ctx context.Context, from int, each func(*sheaf.Chunk, []float32) error) error {
	in, err := newRows(r.file, from)
	if err != nil {
		return err
	}
	defer in.close()
	// Do not request more rows than there are: past the last one the reader looks
	// in every column for each requested row. Measured on a result of one chunk,
	// that was nine tenths of the time.
	left := r.Len() - from
	batch := make([]row, min(batchRows, left))
	for left > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch = batch[:min(len(batch), left)]
		clear(batch) // decoded slices must not share memory with the last batch
		n, done, err := in.next(batch)
		if err != nil {
			return err
		}
		if left -= n; n == 0 && !done {
			return io.ErrNoProgress
		}
		for i := range batch[:n] {
			c, err := r.chunk(&batch[i])
			if err != nil {
				return err
			}
			if err := each(c, batch[i].Vector); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
	}
	return nil
}

// rows wraps the Parquet reader: its panics on bad data become errors, while those
// of the callee pass through.
type rows struct{ in *parquet.GenericReader[row] }

func newRows(f *parquet.File, from int) (r rows, err error) {
	defer recovered(&err)
	r.in = parquet.NewGenericReader[row](f)
	if from > 0 {
		err = r.in.SeekToRow(int64(from))
	}
	return r, err
}

func (r rows) next(batch []row) (n int, done bool, err error) {
	defer recovered(&err)
	n, err = r.in.Read(batch)
	if err == io.EOF {
		return n, true, nil
	}
	if err == nil && n == 0 {
		err = io.ErrNoProgress
	}
	return n, false, err
}

func (r rows) close() {
	var err error
	defer recovered(&err)
	_ = r.in.Close()
}

func (r *Reader) chunk(in *row) (*sheaf.Chunk, error) {
	if n := len(in.Vector); n != 0 && n != r.header.Dim {
		return nil, fmt.Errorf("chunk %s has a vector of %d values in a file of %d", in.ChunkID, n, r.header.Dim)
	}
	if len(in.Vector) == 0 {
		in.Vector = nil
	}
	c := &sheaf.Chunk{
		ID: in.ChunkID, DocumentID: r.header.DocumentID, Generation: r.header.Generation, RangeID: r.header.RangeID,
		Ordinal: int(in.Ordinal), Kind: sheaf.ChunkKind(in.Kind), Text: in.Text, Tokens: int(in.Tokens),
		Role: sheaf.ChunkRole(in.Role), Parent: in.Parent, Context: in.Context, Language: in.Language,
	}
	if len(in.Keywords) > 0 {
		c.Keywords = in.Keywords
	}
	if len(in.Questions) > 0 {
		c.Questions = in.Questions
	}
	for _, t := range in.Tags {
		c.Tags = append(c.Tags, sheaf.Tag(t))
	}
	if len(in.HeadingPath) > 0 {
		c.HeadingPath = in.HeadingPath
	}
	if len(in.Pages) > 0 {
		c.Pages = make([]int, len(in.Pages))
		for i, p := range in.Pages {
			c.Pages[i] = int(p)
		}
	}
	if len(in.Boxes) > 0 {
		c.Boxes = make([]sheaf.Box, len(in.Boxes))
		for i, b := range in.Boxes {
			c.Boxes[i] = sheaf.Box{Page: int(b.Page), X0: b.X0, Y0: b.Y0, X1: b.X1, Y1: b.Y1}
		}
	}
	if in.Columns != nil {
		d := json.NewDecoder(bytes.NewReader([]byte(*in.Columns)))
		d.UseNumber()
		if err := d.Decode(&c.Columns); err != nil {
			return nil, fmt.Errorf("the columns of chunk %s: %w", in.ChunkID, err)
		}
		for k, v := range c.Columns {
			c.Columns[k] = plainNumbers(v)
		}
	}
	if in.Metadata != nil {
		if err := json.Unmarshal([]byte(*in.Metadata), &c.Metadata); err != nil {
			return nil, fmt.Errorf("the metadata of chunk %s: %w", in.ChunkID, err)
		}
		c.Layer, _ = strconv.Atoi(c.Metadata[sheaf.MetadataLayer])
		if children, ok := c.Metadata[keyChildren]; ok && c.Layer > 0 {
			c.Children = strings.Split(children, "\n")
			delete(c.Metadata, keyChildren)
		} else {
			c.Layer = 0
		}
	}
	return c, nil
}

// plainNumbers replaces json.Number by int64 or float64 throughout v.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}

// Decode reads an entire file from memory. vectors has one entry per chunk, nil for
// a chunk without a vector.
func Decode(data []byte) (h Header, chunks []sheaf.Chunk, vectors [][]float32, err error) {
	r, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return h, nil, nil, err
	}
	err = r.ForEach(context.Background(), 0, func(c *sheaf.Chunk, v []float32) error {
		chunks, vectors = append(chunks, *c), append(vectors, v)
		return nil
	})
	return r.header, slices.Clip(chunks), slices.Clip(vectors), err
}

// readErrors remembers that the medium failed, so that an outage is not mistaken
// for a damaged file.
type readErrors struct {
	r   io.ReaderAt
	err error
}

func (e *readErrors) ReadAt(p []byte, off int64) (int, error) {
	n, err := e.r.ReadAt(p, off)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}

func (e *readErrors) explain(err error) error {
	if e.err != nil {
		return fmt.Errorf("reading an artifact: %w", e.err)
	}
	return fmt.Errorf("%w: this is not a whole artifact: %w", sheaf.ErrInvalid, err)
}
