package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
)

// export leaves chunks as a file beside the document's results: Parquet as they
// are, or a line of JSON each. Behind embed they have their vectors.
var _ = register(Kind{Name: "export", Doc: "writes chunks to a file stored with the document; after embed, with their vectors", In: []Port{Chunks, Vectors}, Config: map[string]Field{
	"format": {Type: "string", Values: []string{"parquet", "jsonl"}, Doc: "format of the file; default: parquet"},
}, Write: writeExport})

// Media types of exports.
const (
	MediaParquet = "application/vnd.apache.parquet"
	MediaJSONL   = "application/x-ndjson"
)

// exported is a line of JSON. Ids of chunks belong to a version of the document
// and are left out: ordinal, pages and text stay the same.
type exported struct {
	DocumentID string `json:"document_id"`
	Document   string `json:"document"`
	sheaf.Chunk
	ID         any       `json:"id,omitempty"`         // in place of the chunk's
	RangeID    any       `json:"range_id,omitempty"`   // likewise
	Generation any       `json:"generation,omitempty"` // likewise
	Vector     []float32 `json:"vector,omitempty"`
}

func writeExport(ctx context.Context, in Input) (Object, error) {
	var b bytes.Buffer
	vector := func(i int) []float32 {
		if in.Vectors == nil {
			return nil
		}
		return in.Vectors[i]
	}
	if format, _ := in.Node.Config["format"].(string); format == "jsonl" {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		for i, c := range in.Chunks {
			if err := ctx.Err(); err != nil {
				return Object{}, err
			}
			if err := e.Encode(exported{DocumentID: in.Document.ID, Document: in.Document.Name, Chunk: c, Vector: vector(i)}); err != nil {
				return Object{}, fmt.Errorf("encoding a chunk: %w", err)
			}
		}
		return Object{MediaJSONL, b.Bytes()}, nil
	}
	h := artifact.Header{DocumentID: in.Document.ID, Range: in.Range, Name: in.Document.Name, Created: time.Unix(0, 0)} // equal work leaves equal bytes
	if in.Vectors != nil {
		h.ModelID, h.Dim = in.ModelID, in.Dim
	}
	w, err := artifact.NewWriter(&b, h)
	if err != nil {
		return Object{}, err
	}
	for i := range in.Chunks {
		if err := ctx.Err(); err != nil {
			return Object{}, err
		}
		if err := w.Write(&in.Chunks[i], vector(i)); err != nil {
			return Object{}, err
		}
	}
	if err := w.Close(); err != nil {
		return Object{}, err
	}
	return Object{MediaParquet, b.Bytes()}, nil
}
