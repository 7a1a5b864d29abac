package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"sheaf"
)

// What a Table writes is read by anything that reads Parquet, in several row
// groups when it is much, and not at all before it is closed.
func TestTable(t *testing.T) {
	var file bytes.Buffer
	w := NewTable(&file)
	const documents, chunks = 30, 20
	text := strings.Repeat("The harvest was dry. ", 1000)
	for d := range documents {
		doc := &sheaf.Document{ID: fmt.Sprintf("d%d", d), Name: fmt.Sprintf("note %d.md", d), MediaType: "text/markdown"}
		for n := range chunks {
			c := sheaf.Chunk{ID: fmt.Sprintf("%d/%d", d, n), Ordinal: n, Kind: sheaf.ChunkText, Text: text + fmt.Sprint(n), Tokens: 5}
			if n == 1 {
				c.Pages, c.Boxes, c.HeadingPath = []int{1, 2}, []sheaf.Box{{Page: 2, X0: 1, Y0: 2, X1: 3, Y1: 4}}, []string{"Fields", "North"}
				c.Columns, c.Metadata = map[string]any{"harvest": "text"}, map[string]string{"title": "Note"}
				c.Tags, c.Layer, c.Children = []sheaf.Tag{{Name: "corn", Weight: .5}}, 1, []string{"a", "b"}
			}
			if err := w.Write(doc, 3, &c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len())); err == nil {
		t.Error("what is not closed can be read")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&sheaf.Document{}, 1, &sheaf.Chunk{}); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("after the end: %v", err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if name := f.Schema().Name(); name != "chunks" {
		t.Errorf("the schema is called %q", name)
	}
	if n := len(f.RowGroups()); n < 2 {
		t.Errorf("%d bytes of text are in %d row groups", documents*chunks*len(text), n)
	}
	rows, err := parquet.Read[tableRow](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil || len(rows) != documents*chunks {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, r := range rows {
		if want := fmt.Sprintf("d%d", i/chunks); r.DocumentID != want || r.Ordinal != int64(i%chunks) || r.Text != text+fmt.Sprint(i%chunks) || r.Version != 3 || r.MediaType != "text/markdown" {
			t.Fatalf("row %d is %+v", i, r)
		}
	}
	r := rows[chunks+1]
	got := fmt.Sprintf("%s %v %v %v %s %s %v %d %v", r.Document, r.Pages, r.Boxes, r.HeadingPath, *r.Columns, *r.Metadata, r.Tags, r.Layer, r.Children)
	if want := `note 1.md [1 2] [{2 1 2 3 4}] [Fields North] {"harvest":"text"} {"title":"Note"} [{corn 0.5}] 1 [a b]`; got != want {
		t.Errorf("a chunk with all is %s, want %s", got, want)
	}
	if rows[0].Columns != nil || rows[0].Metadata != nil {
		t.Errorf("what has none has %v, %v", rows[0].Columns, rows[0].Metadata)
	}
}
