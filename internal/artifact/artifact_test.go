package artifact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"sheaf"
)

func header(dim int) Header {
	return Header{
		DocumentID: "0198f0c0a1b2c3d4e5f60718293a4b5c", Generation: 3, RangeID: "aabbccddeeff00112233445566778899",
		Range: sheaf.Range{From: 13, To: 24}, ModelID: "minilm-static-256@673fbe01", Dim: dim, Digest: "0123456789abcdef", Name: "Räport.pdf",
		Created: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC),
	}
}

// sample makes n chunks as a range of a PDF gives them, with vectors.
func sample(n, dim int) ([]sheaf.Chunk, [][]float32) {
	h := header(dim)
	rnd := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("the database replicates every write to three nodes so that a failed disk loses nothing and readers never wait for a page")
	chunks, vectors := make([]sheaf.Chunk, n), make([][]float32, n)
	for i := range chunks {
		var text strings.Builder
		for text.Len() < 1500 {
			text.WriteString(words[rnd.IntN(len(words))])
			text.WriteByte(' ')
		}
		page := h.Range.From + i*h.Range.Len()/n
		chunks[i] = sheaf.Chunk{
			ID: sheaf.ChunkID(h.RangeID, i), DocumentID: h.DocumentID, Generation: h.Generation, RangeID: h.RangeID,
			Ordinal: sheaf.OrdinalBase(h.Range.From) + i, Kind: sheaf.ChunkText, Text: text.String(), Tokens: 300 + i,
			Pages: []int{page, page + 1}, HeadingPath: []string{"Handbook", "Réplication §2", ""},
		}
		for b := range 20 {
			y := 72 + 12*float64(b)
			chunks[i].Boxes = append(chunks[i].Boxes, sheaf.Box{Page: page, X0: 72.25, Y0: y, X1: 500.125, Y1: y + 11})
		}
		vectors[i] = make([]float32, dim)
		for j := range vectors[i] {
			vectors[i][j] = float32(rnd.NormFloat64() / 16)
		}
	}
	if n > 1 {
		chunks[1].Kind = sheaf.ChunkTable
		chunks[1].Columns = map[string]any{"city": "Köln", "count": int64(9007199254740993), "share": 0.5, "none": nil, "tags": []any{"a", int64(1)}}
		chunks[1].Role, chunks[1].Parent, chunks[1].Context, chunks[1].Language = sheaf.RoleChild, "the whole", "around it", "de"
		chunks[1].Tags = []sheaf.Tag{{Name: "billing", Weight: 1}, {Name: "köln", Weight: 0.25}}
		chunks[1].Keywords, chunks[1].Questions = []string{"köln", ""}, []string{"How many?"}
		chunks[1].Metadata = map[string]string{"sheet": "Q1", "": "empty key"}
		chunks[1].Pages, chunks[1].Boxes, chunks[1].HeadingPath = nil, nil, nil
		vectors[1] = nil
	}
	if n > 2 {
		chunks[2].Kind, chunks[2].Role, chunks[2].Layer, chunks[2].Children = sheaf.ChunkSummary, sheaf.RoleSummary, 2, []string{"r-0", "r-1"}
		chunks[2].Metadata = map[string]string{sheaf.MetadataLayer: "2"}
	}
	return chunks, vectors
}

func encode(t testing.TB, h Header, chunks []sheaf.Chunk, vectors [][]float32) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, h, chunks, vectors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEverythingComesBack(t *testing.T) {
	for _, n := range []int{0, 1, 2, 300, 5000} { // 5000 take several row groups
		h := header(256)
		chunks, vectors := sample(n, 256)
		data := encode(t, h, chunks, vectors)
		gotH, gotChunks, gotVectors, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if gotH != h {
			t.Errorf("header %+v", gotH)
		}
		if len(gotChunks) != n || len(gotVectors) != n {
			t.Fatalf("%d chunks and %d vectors of %d", len(gotChunks), len(gotVectors), n)
		}
		for i := range chunks {
			if !reflect.DeepEqual(gotChunks[i], chunks[i]) {
				t.Fatalf("chunk %d of %d: got %+v\nwant %+v", i, n, gotChunks[i], chunks[i])
			}
			if !reflect.DeepEqual(gotVectors[i], vectors[i]) {
				t.Fatalf("vector %d of %d", i, n)
			}
		}
	}
}

func TestAnyChunkComesBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dim := rapid.IntRange(0, 9).Draw(rt, "dim")
		h := header(dim)
		n := rapid.IntRange(0, 600).Draw(rt, "chunks")
		text := rapid.String()
		kinds := rapid.SampledFrom([]sheaf.ChunkKind{sheaf.ChunkText, sheaf.ChunkTable, sheaf.ChunkCode, ""})
		some := rapid.Custom(func(rt *rapid.T) sheaf.Chunk {
			c := sheaf.Chunk{
				Text: text.Draw(rt, "text"), Kind: kinds.Draw(rt, "kind"), Ordinal: rapid.IntRange(0, math.MaxInt).Draw(rt, "ordinal"),
				Tokens: rapid.IntRange(0, math.MaxInt32).Draw(rt, "tokens"),
			}
			for range rapid.IntRange(0, 3).Draw(rt, "n") {
				c.Pages = append(c.Pages, rapid.IntRange(0, math.MaxInt32).Draw(rt, "page"))
				c.HeadingPath = append(c.HeadingPath, text.Draw(rt, "heading"))
				c.Boxes = append(c.Boxes, sheaf.Box{Page: 1, X0: rapid.Float64().Draw(rt, "x"), Y1: rapid.Float64().Draw(rt, "y")})
			}
			if m := rapid.MapOfN(rapid.StringMatching(`[a-z]{0,4}`), text, 0, 3).Draw(rt, "meta"); len(m) > 0 {
				c.Metadata = m
			}
			return c
		})
		kinds0 := rapid.SliceOfN(some, 1, 8).Draw(rt, "distinct")
		var chunks []sheaf.Chunk
		var vectors [][]float32
		for i := range n {
			c := kinds0[i%len(kinds0)]
			c.ID, c.DocumentID, c.RangeID, c.Generation = sheaf.ChunkID(h.RangeID, i), h.DocumentID, h.RangeID, h.Generation
			chunks = append(chunks, c)
			var v []float32
			if dim > 0 && i%3 != 0 {
				v = make([]float32, dim)
				v[i%dim] = float32(i)
			}
			vectors = append(vectors, v)
		}
		var b bytes.Buffer
		if err := Encode(&b, h, chunks, vectors); err != nil {
			rt.Fatal(err)
		}
		r, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			rt.Fatal(err)
		}
		from := rapid.IntRange(0, n).Draw(rt, "from")
		i := from
		err = r.ForEach(t.Context(), from, func(c *sheaf.Chunk, v []float32) error {
			if !reflect.DeepEqual(*c, chunks[i]) || !reflect.DeepEqual(v, vectors[i]) {
				return fmt.Errorf("chunk %d is %+v %v, want %+v %v", i, *c, v, chunks[i], vectors[i])
			}
			i++
			return nil
		})
		if err != nil || i != n {
			rt.Fatalf("stopped at %d of %d: %v", i, n, err)
		}
	})
}

func TestForEachStopsWithItsCallee(t *testing.T) {
	chunks, vectors := sample(700, 4)
	data := encode(t, header(4), chunks, vectors)
	r, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	n := 0
	if err := r.ForEach(t.Context(), 300, func(c *sheaf.Chunk, _ []float32) error {
		if n++; n == 5 {
			return enough
		}
		return nil
	}); err != enough || n != 5 {
		t.Errorf("%v after %d", err, n)
	}
	for _, from := range []int{-1, 701} {
		if err := r.ForEach(t.Context(), from, nil); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

func TestZeroVectorsAreNotStored(t *testing.T) {
	chunks, _ := sample(3, 4)
	_, _, vectors, err := Decode(encode(t, header(4), chunks, [][]float32{{0, 0, 0, 0}, {1, 0, 0, 0}, nil}))
	if err != nil || vectors[0] != nil || vectors[1] == nil || vectors[2] != nil {
		t.Errorf("%v, %v", vectors, err)
	}
}

func TestWriterRefusesWhatWouldNotComeBack(t *testing.T) {
	chunks, _ := sample(1, 4)
	for name, vectors := range map[string][][]float32{"other width": {{1, 2}}, "other count": {{1, 2, 3, 4}, nil}} {
		if err := Encode(&bytes.Buffer{}, header(4), chunks, vectors); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	chunks[0].Columns = map[string]any{"x": math.NaN()}
	if err := Encode(&bytes.Buffer{}, header(4), chunks, nil); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("NaN column: %v", err)
	}
}

// What a writer has written before leaves nothing in the next file.
func TestWritersAreUsedAgain(t *testing.T) {
	var files [][]byte
	for round := range 3 {
		for i, n := range []int{3, 1, 300, 0, 2, 5000, 1, 40, 3} {
			h := header(64 << (i % 3))
			h.RangeID, h.Name = sheaf.RangeID(strings.Repeat("0", 32), int64(i)), strings.Repeat("long ", i)+"name.pdf"
			if i%4 == 1 {
				h = h.WithReadings(Readings{"page 1": []byte("what was recognized")})
			}
			chunks, vectors := sample(n, h.Dim)
			if i%3 == 2 {
				vectors = nil
			}
			if round == 0 {
				for resting.Get() != nil { // the file is that of a new writer
				}
			}
			file := encode(t, h, chunks, vectors)
			if round == 0 {
				files = append(files, file)
			} else if !bytes.Equal(file, files[i]) {
				t.Errorf("round %d: file %d differs from that of a new writer", round, i)
			}
		}
	}
}

func TestFailingWriterIsReported(t *testing.T) {
	full := errors.New("disk full")
	chunks, vectors := sample(5000, 64)
	for _, space := range []int{0, 4, 1000, 500 << 10} {
		if err := Encode(&limited{left: space, err: full}, header(64), chunks, vectors); !errors.Is(err, full) {
			t.Errorf("with space for %d bytes: %v", space, err)
		}
	}
}

type limited struct {
	left int
	err  error
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, l.err
	}
	return len(p), nil
}

func TestDamageIsNoticed(t *testing.T) {
	chunks, vectors := sample(5, 8)
	data := encode(t, header(8), chunks, vectors)
	for i := range data {
		b := bytes.Clone(data)
		b[i] ^= 1 << (i % 8)
		if _, _, _, err := Decode(b); !errors.Is(err, sheaf.ErrInvalid) {
			t.Fatalf("byte %d of %d changed: %v", i, len(data), err)
		}
	}
	for i := range data {
		if _, _, _, err := Decode(data[:i]); !errors.Is(err, sheaf.ErrInvalid) {
			t.Fatalf("cut to %d of %d: %v", i, len(data), err)
		}
	}
	if _, _, _, err := Decode(append(bytes.Clone(data), data...)); !errors.Is(err, sheaf.ErrInvalid) {
		t.Error("two files in one were taken")
	}
}

func TestOutageIsNotDamage(t *testing.T) {
	outage := fmt.Errorf("%w: the store is away", sheaf.ErrUnavailable)
	_, err := Open(brokenReader{outage}, 1000)
	if !errors.Is(err, sheaf.ErrUnavailable) || errors.Is(err, sheaf.ErrInvalid) {
		t.Error(err)
	}
}

type brokenReader struct{ err error }

func (b brokenReader) ReadAt([]byte, int64) (int, error) { return 0, b.err }

func TestStreamsStayBounded(t *testing.T) {
	// 60 MB of chunks: Writer and Reader may hold a few row groups, not the whole.
	chunks, vectors := sample(500, 256)
	var out counting
	w, err := NewWriter(&out, header(256))
	if err != nil {
		t.Fatal(err)
	}
	var peak uint64
	base := heap()
	for i := range 24000 {
		if err := w.Write(&chunks[i%500], vectors[i%500]); err != nil {
			t.Fatal(err)
		}
		if i%2000 == 1999 {
			peak = max(peak, heap()-base)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if out.n < 10<<20 {
		t.Fatalf("only %d bytes written", out.n)
	}
	if peak > 32<<20 {
		t.Errorf("%d MB held while writing", peak>>20)
	}
}

type counting struct{ n int }

func (c *counting) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// reseal gives changed bytes a right checksum where they still have a place for one.
func reseal(b []byte) []byte {
	at := bytes.LastIndex(b, []byte(checksumStart))
	if at < 0 || at+len(checksumStart)+16 > len(b) {
		return b
	}
	b = bytes.Clone(b)
	digits := b[at+len(checksumStart):][:16]
	copy(digits, noChecksum)
	copy(digits, fmt.Sprintf("%016x", xxhash.Sum64(b)))
	return b
}

// FuzzDecode must meet neither a panic nor an allocation out of proportion.
func FuzzDecode(f *testing.F) {
	for _, data := range fuzzSeeds(f) {
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Add([]byte("PAR1"))
	f.Add(binary.LittleEndian.AppendUint32([]byte("PAR1xxxxxxxx"), math.MaxUint32))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, chunks, vectors, err := Decode(data)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20+uint64(100*len(data)) {
			t.Errorf("%d MB allocated for %d bytes", grown>>20, len(data))
		}
		if err == nil && len(chunks) != len(vectors) || err != nil && !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%d chunks, %d vectors, %v", len(chunks), len(vectors), err)
		}
	})
}

// FuzzFooter changes the footer of a real file and gives it a right checksum,
// so that the walk over the footer and the library behind it see the damage.
func FuzzFooter(f *testing.F) {
	seeds := fuzzSeeds(f)
	data := seeds[len(seeds)-1]
	n := int(binary.LittleEndian.Uint32(data[len(data)-tailBytes:]))
	f.Add(data[len(data)-tailBytes-n : len(data)-tailBytes])
	body := data[:len(data)-tailBytes-n]
	f.Fuzz(func(t *testing.T, footer []byte) {
		b := append(bytes.Clone(body), footer...)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), magic...)
		b = reseal(b)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Open(bytes.NewReader(b), int64(len(b)))
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20+uint64(1000*len(b)) {
			t.Errorf("%d MB allocated for %d bytes", grown>>20, len(b))
		}
		if err != nil && !errors.Is(err, sheaf.ErrInvalid) {
			t.Error(err)
		}
	})
}

func fuzzSeeds(f *testing.F) (files [][]byte) {
	for _, n := range []int{0, 1, 3} {
		chunks, vectors := sample(n, 4)
		for i := range chunks {
			chunks[i].Text, chunks[i].Boxes = "short", chunks[i].Boxes[:min(1, len(chunks[i].Boxes))]
		}
		files = append(files, encode(f, header(4), chunks, vectors))
	}
	return files
}

func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{30, 3000} {
		b.Run(fmt.Sprintf("chunks=%d", n), func(b *testing.B) {
			chunks, vectors := sample(n, 256)
			size := len(encode(b, header(256), chunks, vectors))
			b.ReportAllocs()
			for b.Loop() {
				if err := Encode(&counting{}, header(256), chunks, vectors); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)/float64(n), "bytes/chunk")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/chunk")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{30, 3000} {
		b.Run(fmt.Sprintf("chunks=%d", n), func(b *testing.B) {
			chunks, vectors := sample(n, 256)
			data := encode(b, header(256), chunks, vectors)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := Decode(data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/chunk")
		})
	}
}

// What earlier versions wrote is still read.
func TestFilesOfEarlierVersionsAreRead(t *testing.T) {
	first := rowV1{ChunkID: "c", Ordinal: 5, Kind: "text", Text: "old", Tokens: 1, Pages: []int32{4}, HeadingPath: []string{"H"}, Vector: []float32{1, 0, 0}}
	for version, data := range map[string][]byte{
		"1": encodeAs(t, "1", schemaV1, first),
		"2": encodeAs(t, "2", schemaV2, rowV2{ChunkID: "c", Ordinal: 5, Kind: "text", Text: "old", Tokens: 1, Pages: []int32{4}, HeadingPath: []string{"H"}, Vector: []float32{1, 0, 0}, Language: "de", Keywords: []string{"köln"}}),
	} {
		_, chunks, vectors, err := Decode(data)
		if err != nil {
			t.Fatalf("version %s: %v", version, err)
		}
		if len(chunks) != 1 || chunks[0].Text != "old" || chunks[0].Pages[0] != 4 || chunks[0].HeadingPath[0] != "H" || vectors[0][0] != 1 || chunks[0].Tags != nil {
			t.Errorf("version %s: %+v %v", version, chunks, vectors)
		}
		if later := version == "2"; later != (chunks[0].Language == "de") || later != slices.Equal(chunks[0].Keywords, []string{"köln"}) {
			t.Errorf("version %s: %+v", version, chunks[0])
		}
	}
}

// encodeAs writes a file of one row as a version before did.
func encodeAs[T any](t *testing.T, version string, schema *parquet.Schema, row T) []byte {
	t.Helper()
	var b bytes.Buffer
	s := newSealer(&b)
	w := parquet.NewGenericWriter[T](s, schema)
	for _, kv := range header(3).metadata() {
		if kv[0] == keyVersion {
			kv[1] = version
		}
		w.SetKeyValueMetadata(kv[0], kv[1])
	}
	if _, err := w.Write([]T{row}); err != nil {
		t.Fatal(err)
	}
	s.hold = true
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
