package index

import (
	"encoding/json"
	"reflect"
	"runtime"
	"testing"

	"sheaf"
)

func TestDecodingAChunkAllocatesLittle(t *testing.T) {
	for name, c := range map[string]sheaf.Chunk{
		"bare":   {ID: "a", Kind: sheaf.ChunkText, Text: "Herons stand beside the water.", Pages: []int{1}},
		"filled": {ID: "a", Kind: sheaf.ChunkTable, Text: "Herons", Columns: map[string]any{"bird": "text", "count": "int"}, Metadata: map[string]string{"title": "Birds"}},
	} {
		stored, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		const times, most = 500, 2000 // bytes
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			var got sheaf.Chunk
			if err := DecodeChunk(stored, &got); err != nil || !reflect.DeepEqual(got.Metadata, c.Metadata) || len(got.Columns) != len(c.Columns) {
				t.Fatalf("%s: %v, %+v", name, err, got)
			}
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > most {
			t.Errorf("%s: %d bytes for a chunk, at most %d", name, each, most)
		}
	}
}
