package embedded

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
)

// Passages are stored by the standard library's encoder and read by another's decoder.
func TestPassagesAreReadAsStored(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\xff\x00\u2028<&>", "日本 \U0001F600 \\\"\n", "é\u0301"}))
	rapid.Check(t, func(t *rapid.T) {
		c := sheaf.Chunk{
			ID: text.Draw(t, "id"), RangeID: "r", DocumentID: "d", Generation: rapid.Int().Draw(t, "generation"), Ordinal: 3, Kind: sheaf.ChunkText,
			Text: text.Draw(t, "text"), Context: text.Draw(t, "context"), Tokens: rapid.IntRange(0, 1<<40).Draw(t, "tokens"),
			Pages: rapid.SliceOf(rapid.Int()).Draw(t, "pages"), HeadingPath: rapid.SliceOf(text).Draw(t, "headings"), Keywords: rapid.SliceOf(text).Draw(t, "keywords"),
			Metadata: rapid.MapOf(text, text).Draw(t, "metadata"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "boxes") {
			f := rapid.Float64Range(-1e9, 1e9)
			c.Boxes = append(c.Boxes, sheaf.Box{Page: 1, X0: f.Draw(t, "x0"), Y0: f.Draw(t, "y0"), X1: f.Draw(t, "x1"), Y1: f.Draw(t, "y1")})
		}
		stored, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var want, got sheaf.Chunk
		if err := json.Unmarshal(stored, &want); err != nil {
			t.Fatal(err)
		}
		if err := decodeChunk(stored, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis read as %+v, %v\nwant %+v", stored, got, err, want)
		}
		if cut := rapid.IntRange(0, len(stored)-1).Draw(t, "cut"); decodeChunk(stored[:cut], new(sheaf.Chunk)) == nil {
			t.Errorf("%s cut after %d bytes is read without an error", stored, cut)
		}
	})
}
