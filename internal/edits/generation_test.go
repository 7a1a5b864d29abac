package edits

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
)

// opened counts the objects that are opened.
type opened struct {
	blob.Store
	n int
}

func (o *opened) Open(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	o.n++
	return o.Store.Open(ctx, key, from, n)
}

// A chunk is read without the rest of its document.
func TestChunkIsReadOfItsRangeAlone(t *testing.T) {
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	counted := &opened{Store: blobs}
	const ranges = 20
	var tasks []sheaf.Task
	for i := range ranges {
		id := fmt.Sprintf("range%d", i) // one is the beginning of another
		var b bytes.Buffer
		chunks := []sheaf.Chunk{{ID: sheaf.ChunkID(id, 0), RangeID: id, Kind: sheaf.ChunkText, Text: "the first of " + id}, {ID: sheaf.ChunkID(id, 1), RangeID: id, Kind: sheaf.ChunkText, Text: "the last of " + id, Ordinal: 1}}
		if err := artifact.Encode(&b, artifact.Header{RangeID: id, DocumentID: "d", ModelID: "m", Dim: 1}, chunks, [][]float32{{1}, {1}}); err != nil {
			t.Fatal(err)
		}
		key := sheaf.ArtifactKey("t", "d", id)
		if _, err := blobs.Put(t.Context(), key, &b, int64(b.Len())); err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, sheaf.Task{State: sheaf.TaskDone, Range: sheaf.Range{From: i + 1, To: i + 1}, Result: sheaf.TaskResult{RangeID: id, ArtifactKey: key, Chunks: 2}})
	}
	g := generationOf(counted, tasks)
	for _, id := range []string{"range1-1", "range19-0"} {
		before := counted.n
		c, err := g.chunk(t.Context(), id)
		if err != nil || c == nil || c.ID != id {
			t.Fatalf("%s is read as %v: %v", id, c, err)
		}
		if n := counted.n - before; n != 1 {
			t.Errorf("%d objects were opened for %s", n, id)
		}
	}
	before := counted.n
	if c, err := g.last(t.Context()); err != nil || c == nil || c.ID != "range19-1" || counted.n != before {
		t.Errorf("the last chunk is %v: %v", c, err)
	}
	for _, id := range []string{"range1", "range1-2", "range20-0", ""} {
		if c, err := g.chunk(t.Context(), id); c != nil || err != nil {
			t.Errorf("%q is read as %v: %v", id, c, err)
		}
	}
	a, err := g.anchor(t.Context(), &sheaf.Chunk{ID: "range7-0", Text: "the first of range7"})
	if n := g.find(a); err != nil || n < 0 || g.places[n].id != "range7-0" {
		t.Errorf("by its content the chunk is %d: %v", n, err)
	}
}
