package embedded

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func randomVector(r *rand.Rand, dim int) []float32 {
	v := make([]float32, dim)
	var sum float64
	for i := range v {
		v[i] = float32(r.NormFloat64())
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func TestDotRowsAgreesWithPlainGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, dim := range []int{32, 64, 96, 256, 1024, 4096} {
		for _, n := range []int{1, 2, 7, 64} {
			rows, query := make([]int8, n*dim), make([]int16, dim)
			for i := range rows {
				rows[i] = int8(r.IntN(255) - 127)
			}
			for i := range query {
				query[i] = int16(r.IntN(2*queryScale+1) - queryScale)
			}
			got, want := make([]int32, n), make([]int32, n)
			dotRows(got, rows, query)
			dotRowsPlain(want, rows, query)
			if !slices.Equal(got, want) {
				t.Fatalf("%d rows of %d: got %v, want %v", n, dim, got, want)
			}
		}
	}
	// The largest values there are do not overflow.
	rows, query, got := make([]int8, maxDim), make([]int16, maxDim), make([]int32, 1)
	for i := range rows {
		rows[i], query[i] = 127, queryScale
	}
	if dotRows(got, rows, query); got[0] != 127*queryScale*maxDim {
		t.Errorf("got %d", got[0])
	}
}

func TestScanFindsTheExactNeighbours(t *testing.T) {
	const n, dim, k = 10000, 256, 10
	r := rand.New(rand.NewPCG(2, 2))
	vectors := make([][]float32, n)
	var s segment
	for i := range vectors {
		vectors[i] = randomVector(r, dim)
		values := make([]int8, dim)
		s.add(uint32(i), values, quantise(values, vectors[i]))
	}
	hits, total := 0, 0
	for range 50 {
		q := randomVector(r, dim)
		exact := top{k: k}
		for i, v := range vectors {
			var dot float64
			for j := range v {
				dot += float64(v[j]) * float64(q[j])
			}
			exact.push(scored{uint32(i), float32(dot)})
		}
		want := make(map[uint32]float32)
		for _, e := range exact.sorted() {
			want[e.row] = e.score
		}
		query, inverse := quantiseQuery(q, dim)
		best := top{k: k}
		scan(&best, s.snapshot(), query, inverse, func(uint32) bool { return true })
		for _, b := range best.sorted() {
			total++
			if cos, ok := want[b.row]; ok {
				hits++
				if math.Abs(float64(cos-b.score)) > 0.01 {
					t.Errorf("cosine %g where %g is exact", b.score, cos)
				}
			}
		}
	}
	// Random vectors are the hardest case: all neighbours are nearly as near.
	if recall := float64(hits) / float64(total); recall < 0.95 {
		t.Errorf("recall@%d is %.3f", k, recall)
	}
}

func TestForgottenRowsAreReclaimed(t *testing.T) {
	var s segment
	dead := make(map[uint32]bool)
	for i := range uint32(10000) {
		s.add(i, []int8{1, 2, 3, 4}, 1)
	}
	alive := func(row uint32) bool { return !dead[row] }
	for i := range uint32(9000) {
		dead[i] = true
		s.forget(alive)
	}
	held := 0
	var rows []uint32
	for _, b := range s.snapshot() {
		held += cap(b.rows)
		for i, row := range b.rows {
			if alive(row) {
				rows = append(rows, row)
			}
			if b.values[i*4+2] != 3 {
				t.Fatal("a row was moved wrongly")
			}
		}
	}
	if len(rows) != 1000 || !slices.IsSorted(rows) || rows[0] != 9000 {
		t.Errorf("%d rows are left, from %v", len(rows), rows[:min(3, len(rows))])
	}
	if held > 4000 {
		t.Errorf("memory for %d rows is held for 1,000", held)
	}
}

func BenchmarkScan100k(b *testing.B) {
	const n, dim = 100000, 256
	r := rand.New(rand.NewPCG(3, 3))
	var s segment
	values := make([]int8, dim)
	for i := range n {
		for j := range values {
			values[j] = int8(r.IntN(255) - 127)
		}
		s.add(uint32(i), values, 1)
	}
	query, inverse := quantiseQuery(randomVector(r, dim), dim)
	for b.Loop() {
		best := top{k: 100}
		scan(&best, s.snapshot(), query, inverse, func(uint32) bool { return true })
	}
}
