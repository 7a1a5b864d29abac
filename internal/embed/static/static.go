// Package static is the built-in embedding model: the vector of a text is the sum
// of the scaled vectors of its tokens, normalized. It needs no service, no native
// library and no file besides the binary, and is fast enough that embedding is
// never the bottleneck of ingestion.
//
// The table minilm-static-256.sem is derived from all-MiniLM-L6-v2 (NOTICE.md,
// LICENSE.Apache-2.0). It knows English; other languages in Latin script benefit a
// little, and texts in other scripts get no vector, which leaves them to the word
// side of the search.
package static

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/wordpiece"
)

// packed is the table under zstd -19, which takes a megabyte off the binary.
//
//go:embed minilm-static-256.sem.zst
var packed []byte

// maxTable bounds the table: 29,523 tokens of 256 4-bit values take 4.1 MB.
const maxTable = 8 << 20

// unpack returns the bytes of the built-in model for Parse.
func unpack() ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxTable))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, nil)
}

// Default returns the built-in model. It is loaded once, on the first call
// (measured: 25 ms).
var Default = sync.OnceValue(func() *Embedder {
	table, err := unpack()
	if err != nil {
		panic(err) // the file is part of the binary
	}
	e, err := Parse("minilm-static-256", table)
	if err != nil {
		panic(err) // the file is part of the binary
	}
	return e
})

// Embedder is a static embedding model. It is safe for concurrent use.
type Embedder struct {
	model embed.Model
	tok   *wordpiece.Tokenizer
	dim   int
	rows  []int8    // dim values per token
	scale []float32 // one per token
	pool  sync.Pool // *scratch
}

var _ embed.Embedder = (*Embedder)(nil)

// scratch holds the buffers for embedding one text.
type scratch struct {
	ids  []int32
	word []byte
}

// maxPooledTokens keeps the buffer of one huge text from staying in the pool.
const maxPooledTokens = 1 << 16

const (
	maxDim   = 4096
	maxVocab = 1 << 20
)

// Parse reads a model file; name becomes part of the model's id.
//
// The file holds, in little-endian order: "SEM1"; as uint32 the tokenizer (1 is
// wordpiece), the bits per value (4 or 8), the number of tokens V, the width D and
// the length of the token text; the tokens, separated by newlines; V float32
// scales; V*D values. A 4-bit value is stored plus 8, the first of a pair in the
// low bits. Anything else fails with sheaf.ErrInvalid.
func Parse(name string, data []byte) (*Embedder, error) {
	refuse := func(format string, args ...any) (*Embedder, error) {
		return nil, fmt.Errorf("%w: %s is not a static embedding model: %s", sheaf.ErrInvalid, name, fmt.Sprintf(format, args...))
	}
	const header = 24
	if len(data) < header || string(data[:4]) != "SEM1" {
		return refuse("it does not start with SEM1 and a header")
	}
	field := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(data[4+4*i:])) }
	kind, bits, v, d, n := field(0), field(1), field(2), field(3), field(4)
	if kind != 1 {
		return refuse("tokenizer %d is unknown", kind)
	}
	if bits != 4 && bits != 8 {
		return refuse("%d bits a value instead of 4 or 8", bits)
	}
	if v == 0 || v > maxVocab || d == 0 || d > maxDim || d%2 != 0 {
		return refuse("%d tokens of width %d", v, d)
	}
	if want := header + n + 4*v + v*d*bits/8; want != uint64(len(data)) {
		return refuse("it has %d bytes where its header says %d", len(data), want)
	}

	text, rest := string(data[header:header+n]), data[header+n:]
	if got := uint64(strings.Count(text, "\n")) + 1; got != v {
		return refuse("it lists %d tokens where its header says %d", got, v)
	}
	sum := sha256.Sum256(data)
	e := &Embedder{
		// Weight and Floor measured on Cranfield: nDCG@10 0.520 with this fusion,
		// 0.509 by words alone, 0.490 by reciprocal ranks.
		model: embed.Model{ID: name + "@" + hex.EncodeToString(sum[:4]), Dim: int(d), Weight: 0.3, Floor: 0, Cheap: true},
		tok:   wordpiece.New(strings.Split(text, "\n"), -1),
		dim:   int(d),
		rows:  make([]int8, v*d),
		scale: make([]float32, v),
	}
	for i := range e.scale {
		s := math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:]))
		if s != s || s > 1e6 || s < -1e6 { // larger ones overflow the sum of a long text
			return refuse("token %d has the scale %g", i, s)
		}
		e.scale[i] = s
	}
	for i, b := range rest[4*v:] {
		if bits == 8 {
			e.rows[i] = int8(b)
		} else {
			e.rows[2*i], e.rows[2*i+1] = int8(b&15)-8, int8(b>>4)-8
		}
	}
	e.pool.New = func() any { return new(scratch) }
	return e, nil
}

// Model describes the vectors.
func (e *Embedder) Model() embed.Model { return e.model }

// Ping always succeeds.
func (e *Embedder) Ping(context.Context) error { return nil }

// parallelBytes is the minimum batch, in bytes of text, that is spread over the
// CPUs (measured: about 0.5 ms of work).
const parallelBytes = 32 << 10

// Embed returns one vector per text. purpose is ignored, since the model is
// symmetric. It fails only when ctx ends. A batch is spread over the CPUs.
func (e *Embedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, ctx.Err()
	}
	if purpose == embed.Window {
		return nil, fmt.Errorf("%w: the built-in model reads each text alone", sheaf.ErrInvalid)
	}
	// One array for all: a thousand small allocations cost more than the sums.
	values := make([]float32, len(texts)*e.dim)
	vectors := make([][]float32, len(texts))
	size := 0
	for i, text := range texts {
		vectors[i] = values[i*e.dim : (i+1)*e.dim : (i+1)*e.dim]
		size += len(text)
	}

	var next atomic.Int64
	work := func() {
		s := e.pool.Get().(*scratch)
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= len(texts) {
				break
			}
			if mostlyLatin(texts[i]) {
				e.vector(vectors[i], texts[i], s)
			}
		}
		if cap(s.ids) <= maxPooledTokens {
			e.pool.Put(s)
		}
	}
	workers := 1
	if size >= parallelBytes {
		workers = min(runtime.GOMAXPROCS(0), len(texts))
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return vectors, nil
}

// vector sums the tokens of text in v, which must be zero, and normalizes it. v
// stays zero if the model knows no token of text.
func (e *Embedder) vector(v []float32, text string, s *scratch) {
	s.ids, s.word = e.tok.Tokens(s.ids[:0], s.word, text)
	for _, id := range s.ids {
		addRow(v, e.rows[int(id)*e.dim:][:len(v)], e.scale[id])
	}
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	f := 1 / math.Sqrt(sum)
	for j := range v {
		v[j] = float32(float64(v[j]) * f)
	}
}

// addRowPlain is addRow in plain Go. The conversion keeps the compiler from fusing
// product and sum, which would round differently from the vector unit.
func addRowPlain(v []float32, row []int8, scale float32) {
	v = v[:len(row)]
	for j, q := range row {
		v[j] += float32(scale * float32(q))
	}
}
