package artifact

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"sheaf"
)

// tableBytes is how much text a Table buffers per row group. Groups of a file of
// many documents are larger than those of a range, because the footer's entry for
// each stays in memory until the end.
const tableBytes = 8 << 20

// tableRow is a chunk with its document. Its columns are named like the JSON
// properties of a chunk.
type tableRow struct {
	DocumentID  string   `parquet:"document_id,dict"`
	Document    string   `parquet:"document,dict"`
	MediaType   string   `parquet:"media_type,dict"`
	Version     int32    `parquet:"version"`
	ID          string   `parquet:"id"`
	Ordinal     int64    `parquet:"ordinal"`
	Kind        string   `parquet:"kind,dict"`
	Text        string   `parquet:"text"`
	Tokens      int32    `parquet:"tokens"`
	Pages       []int32  `parquet:"pages,list"`
	Boxes       []box    `parquet:"boxes,list"`
	HeadingPath []string `parquet:"heading_path,list"`
	Columns     *string  `parquet:"columns,optional"`
	Metadata    *string  `parquet:"metadata,optional"`
	Role        string   `parquet:"role,dict"`
	Parent      string   `parquet:"parent"`
	Context     string   `parquet:"context"`
	Language    string   `parquet:"language,dict"`
	Keywords    []string `parquet:"keywords,list"`
	Questions   []string `parquet:"questions,list"`
	Tags        []tag    `parquet:"tags,list"`
	Layer       int32    `parquet:"layer"`
	Children    []string `parquet:"children,list"`
}

// Table writes chunks of many documents as one Parquet file for use elsewhere: it
// is not a range result and has no vectors. It must not be used concurrently. It
// holds one row group in memory.
type Table struct {
	parquet *parquet.GenericWriter[tableRow]
	rows    []tableRow
	pending int // bytes buffered
	err     error
}

// NewTable starts a file on w.
func NewTable(w io.Writer) *Table {
	return &Table{parquet: parquet.NewGenericWriter[tableRow](w, parquet.NewSchema("chunks", parquet.SchemaOf(tableRow{})), parquet.Compression(compression), parquet.CreatedBy("sheaf", "1", ""), parquet.DataPageStatistics(false),
		parquet.SkipPageBounds("text"), parquet.SkipPageBounds("parent"), parquet.SkipPageBounds("context"), parquet.SkipPageBounds("columns"), parquet.SkipPageBounds("metadata"))}
}

// Write adds a chunk of a version of d. It does not retain c.
func (t *Table) Write(d *sheaf.Document, version int, c *sheaf.Chunk) (err error) {
	if t.err != nil {
		return t.err
	}
	r := tableRow{
		DocumentID: d.ID, Document: d.Name, MediaType: d.MediaType, Version: int32(version),
		ID: c.ID, Ordinal: int64(c.Ordinal), Kind: string(c.Kind), Text: c.Text, Tokens: int32(c.Tokens), Pages: pagesOf(c), Boxes: boxesOf(c),
		HeadingPath: c.HeadingPath, Role: string(c.Role), Parent: c.Parent, Context: c.Context, Language: c.Language,
		Keywords: c.Keywords, Questions: c.Questions, Tags: tagsOf(c), Layer: int32(c.Layer), Children: c.Children,
	}
	if r.Columns, err = jsonOf(c, "columns", c.Columns); err != nil {
		return err
	}
	if r.Metadata, err = jsonOf(c, "metadata", c.Metadata); err != nil {
		return err
	}
	t.rows = append(t.rows, r)
	t.pending += 512 + len(r.Text) + len(r.Parent) + len(r.Context) + 40*len(r.Boxes)
	if len(t.rows) == batchRows || t.pending >= tableBytes {
		t.err = t.flush()
	}
	return t.err
}

// flush converts the buffered rows to columns, and those to a row group once there
// are enough.
func (t *Table) flush() (err error) {
	defer recovered(&err)
	if _, err := t.parquet.Write(t.rows); err != nil {
		return fmt.Errorf("writing a table of chunks: %w", err)
	}
	clear(t.rows)
	t.rows = t.rows[:0]
	if t.pending < tableBytes {
		return nil
	}
	t.pending = 0
	if err := t.parquet.Flush(); err != nil {
		return fmt.Errorf("writing a table of chunks: %w", err)
	}
	return nil
}

// Close writes the footer, without which the file cannot be read.
func (t *Table) Close() (err error) {
	defer recovered(&err)
	if t.err == nil {
		t.err = t.flush()
	}
	if t.err != nil {
		return t.err
	}
	t.err = fmt.Errorf("%w: the table of chunks is closed", sheaf.ErrInvalid)
	if err := t.parquet.Close(); err != nil {
		return fmt.Errorf("writing a table of chunks: %w", err)
	}
	return nil
}
