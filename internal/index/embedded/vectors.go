package embedded

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Vectors are searched by brute force: one pass over contiguous int8 rows. Measured
// on one core, 100,000 rows of 256 values: 3 ms with AVX2, 20 ms in plain Go, with
// exact results; graph indexes in Go lose recall or cost as much to build as the
// rest of ingestion together.

const (
	laneWidth  = 32   // the dot product processes this many values at a time
	blockRows  = 4096 // rows per allocation
	queryScale = 2047 // 12 bits: 127*2047*4096 values still fits an int32
)

// segment holds the vectors of one dataset of a tenant, so that a search reads only
// its own datasets. Rows are only appended; readers use a snapshot of the slice
// headers while writers append.
type segment struct {
	tenant, dataset string

	mu     sync.Mutex
	blocks []block
	rows   int
	dead   int // rows whose chunk was deleted but that are still stored
}

type block struct {
	values  []int8    // len(rows)*dim
	inverse []float32 // 1/length of each row
	rows    []uint32  // the chunk's row number, ascending
}

// quantise writes v as int8 into dst (longer than v by its padding) and returns
// 1/length of what was written, 0 for a zero vector.
func quantise(dst []int8, v []float32) float32 {
	var most float64
	for _, x := range v {
		most = max(most, math.Abs(float64(x)))
	}
	if most == 0 || math.IsInf(most, 0) || math.IsNaN(most) {
		return 0
	}
	scale := 127 / most
	for i, x := range v {
		dst[i] = int8(math.RoundToEven(float64(x) * scale))
	}
	return inverseLength(dst)
}

func inverseLength(v []int8) float32 {
	var sum int64
	for _, x := range v {
		sum += int64(x) * int64(x)
	}
	if sum == 0 {
		return 0
	}
	return float32(1 / math.Sqrt(float64(sum)))
}

// quantiseQuery is quantise with 12 bits, padded to the width of the rows: the
// query's rounding error is then negligible.
func quantiseQuery(v []float32, dim int) (q []int16, inverse float32) {
	var most float64
	for _, x := range v {
		most = max(most, math.Abs(float64(x)))
	}
	if most == 0 || math.IsInf(most, 0) || math.IsNaN(most) {
		return nil, 0
	}
	q = make([]int16, dim)
	var sum float64
	for i, x := range v {
		q[i] = int16(math.RoundToEven(float64(x) * queryScale / most))
		sum += float64(q[i]) * float64(q[i])
	}
	return q, float32(1 / math.Sqrt(sum))
}

// add appends a row. Only the writer and the loader call it.
func (s *segment) add(row uint32, values []int8, inverse float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.blocks); n == 0 || len(s.blocks[n-1].rows) == blockRows {
		s.blocks = append(s.blocks, block{})
	}
	b := &s.blocks[len(s.blocks)-1]
	if len(b.rows) == cap(b.rows) { // grow manually: never beyond a block
		capRows := min(max(64, 2*cap(b.rows)), blockRows)
		b.values = append(make([]int8, 0, capRows*len(values)), b.values...)
		b.inverse = append(make([]float32, 0, capRows), b.inverse...)
		b.rows = append(make([]uint32, 0, capRows), b.rows...)
	}
	b.values = append(b.values, values...)
	b.inverse = append(b.inverse, inverse)
	b.rows = append(b.rows, row)
	s.rows++
}

// snapshot returns blocks that never change below their lengths.
func (s *segment) snapshot() []block {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.blocks)
}

// forget counts a deleted row and, once a quarter of the rows are deleted, compacts
// the rest.
func (s *segment) forget(alive func(row uint32) bool) {
	s.mu.Lock()
	s.dead++
	compact := s.dead*4 > s.rows
	old := s.blocks
	s.mu.Unlock()
	if !compact {
		return
	}
	fresh := segment{}
	for _, b := range old {
		if len(b.rows) == 0 {
			continue
		}
		dim := len(b.values) / len(b.rows)
		for i, row := range b.rows {
			if alive(row) {
				fresh.add(row, b.values[i*dim:(i+1)*dim], b.inverse[i])
			}
		}
	}
	s.mu.Lock() // there is one writer, so nothing was added in the meantime
	s.blocks, s.rows, s.dead = fresh.blocks, fresh.rows, 0
	s.mu.Unlock()
}

// scored is a row with its score.
type scored struct {
	row   uint32
	score float32
}

// better orders by score, then by row, so that searches are deterministic.
func (a scored) better(b scored) bool {
	return a.score > b.score || a.score == b.score && a.row < b.row
}

// top keeps the best k rows: a heap whose root is the worst of them.
type top struct {
	k    int
	heap []scored
}

// floor is the minimum score to get in.
func (t *top) floor() float32 {
	if len(t.heap) < t.k {
		return float32(math.Inf(-1))
	}
	return t.heap[0].score
}

func (t *top) push(s scored) {
	h := t.heap
	if len(h) < t.k {
		h = append(h, s)
		for i := len(h) - 1; i > 0; {
			parent := (i - 1) / 2
			if !h[parent].better(h[i]) {
				break
			}
			h[parent], h[i] = h[i], h[parent]
			i = parent
		}
		t.heap = h
		return
	}
	if !s.better(h[0]) {
		return
	}
	h[0] = s
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child].better(h[child+1]) {
			child++
		}
		if !h[i].better(h[child]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// sorted empties the heap, best first.
func (t *top) sorted() []scored {
	slices.SortFunc(t.heap, func(a, b scored) int {
		if a.better(b) {
			return -1
		}
		return 1
	})
	return t.heap
}

// scan pushes the rows of a snapshot that keep accepts.
func scan(t *top, blocks []block, query []int16, queryInverse float32, keep func(row uint32) bool) {
	var dots [blockRows]int32
	for _, b := range blocks {
		dst := dots[:len(b.rows)]
		dotRows(dst, b.values, query)
		floor := t.floor()
		for i, d := range dst {
			score := float32(d) * queryInverse * b.inverse[i]
			if score < floor || !keep(b.rows[i]) {
				continue
			}
			t.push(scored{b.rows[i], score})
			floor = t.floor()
		}
	}
}

// dotRowsPlain is dotRows for machines without AVX2.
func dotRowsPlain(dst []int32, rows []int8, query []int16) {
	dim := len(query)
	for i := range dst {
		row := rows[i*dim : (i+1)*dim]
		q := query[:len(row)]
		var a, b, c, d int32
		for j := 0; j+3 < len(row) && j+3 < len(q); j += 4 {
			a += int32(row[j]) * int32(q[j])
			b += int32(row[j+1]) * int32(q[j+1])
			c += int32(row[j+2]) * int32(q[j+2])
			d += int32(row[j+3]) * int32(q[j+3])
		}
		dst[i] = a + b + c + d
	}
}

// document is what filters read, shared by a document's chunks with the same name,
// metadata and language. Kept small: there may be one per chunk.
type document struct {
	key       documentKey
	n         int64 // in table documents
	segment   *segment
	id        string
	mediaType string
	language  string
	metadata  map[string]string
	chunks    int // only the writer accesses it
}

// documentKey is a digest of a row of documents.
type documentKey [16]byte

// origin is a row of documents.
type origin struct{ tenant, dataset, id, name, mediaType, metadata, language string }

func (o *origin) key() (k documentKey) {
	h := sha256.New()
	for _, field := range [...]string{o.tenant, o.dataset, o.id, o.name, o.mediaType, o.metadata, o.language} {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(field)))
		h.Write(size[:])
		h.Write([]byte(field))
	}
	copy(k[:], h.Sum(nil))
	return k
}

// entry is what is held in memory for each chunk besides its vector: 16 bytes,
// indexed by row number. A nil document means that there is no such chunk.
type entry struct {
	document atomic.Pointer[document]
	from, to uint32 // first and last page, set before document
}

// gapped in entry.to means that the pages from..to are not all the chunk's: the
// list is in directory.gaps.
const gapped = 1 << 31

type page [blockRows]entry

// directory maps row numbers to entries. There is one writer; readers need no lock.
type directory struct {
	pages atomic.Pointer[[]*page]
	gaps  sync.Map // uint32 row → []int
}

func (d *directory) at(row uint32) *entry {
	pages := d.pages.Load()
	if pages == nil || int(row/blockRows) >= len(*pages) {
		return nil
	}
	p := (*pages)[row/blockRows]
	if p == nil {
		return nil
	}
	return &p[row%blockRows]
}

// put makes room for row and returns its entry. Only the writer calls it.
func (d *directory) put(row uint32) *entry {
	if e := d.at(row); e != nil {
		return e
	}
	var pages []*page
	if old := d.pages.Load(); old != nil {
		pages = slices.Clone(*old)
	}
	for len(pages) <= int(row/blockRows) {
		pages = append(pages, nil)
	}
	pages[row/blockRows] = new(page)
	d.pages.Store(&pages)
	return d.at(row)
}

func (d *directory) alive(row uint32) bool {
	e := d.at(row)
	return e != nil && e.document.Load() != nil
}
