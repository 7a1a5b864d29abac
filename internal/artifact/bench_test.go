package artifact

import (
	"bytes"
	"strings"
	"testing"

	"sheaf"
)

// BenchmarkDecodeOne reads a result of one chunk, as a letter leaves it.
func BenchmarkDecodeOne(b *testing.B) {
	data := oneChunk(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

func oneChunk(t testing.TB) []byte {
	t.Helper()
	vector := make([]float32, 256)
	for i := range vector {
		vector[i] = float32(i) / 256
	}
	c := sheaf.Chunk{ID: sheaf.ChunkID("r", 0), DocumentID: "d", Generation: 1, RangeID: "r", Kind: sheaf.ChunkText, Language: "en",
		Text: strings.Repeat("some words of a text ", 50), Pages: []int{1}, Boxes: []sheaf.Box{{Page: 1, X1: 500, Y1: 700}}}
	var file bytes.Buffer
	if err := Encode(&file, Header{DocumentID: "d", Generation: 1, RangeID: "r", Range: sheaf.Range{From: 1, To: 1}, ModelID: "m", Dim: len(vector)}, []sheaf.Chunk{c}, [][]float32{vector}); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// A small result costs little: no more is asked of its columns than they hold.
func TestDecodingOneChunkAllocatesLittle(t *testing.T) {
	data := oneChunk(t)
	n := testing.AllocsPerRun(20, func() {
		if _, chunks, _, err := Decode(data); err != nil || len(chunks) != 1 {
			t.Fatal(len(chunks), err)
		}
	})
	if n > 1500 { // 3,400 where 128 rows were asked for
		t.Errorf("decoding one chunk made %.0f allocations", n)
	}
}

// BenchmarkEncodeOne writes such a result.
func BenchmarkEncodeOne(b *testing.B) {
	h, chunks, vectors, err := Decode(oneChunk(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var file bytes.Buffer
		if err := Encode(&file, h, chunks, vectors); err != nil {
			b.Fatal(err)
		}
	}
}
