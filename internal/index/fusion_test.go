package index_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sheaf"
	"sheaf/internal/index"
)

func side(scores ...any) []index.Hit {
	var hits []index.Hit
	for i := 0; i < len(scores); i += 2 {
		id, _ := scores[i].(string)
		score, _ := scores[i+1].(float64)
		hits = append(hits, index.Hit{Chunk: sheaf.Chunk{ID: id, DocumentID: "d", Text: id}, Score: score})
	}
	return hits
}

func order(fused []index.Fused) (out []string) {
	for _, f := range fused {
		out = append(out, fmt.Sprintf("%s %.3f", f.Chunk.ID, f.Score))
	}
	return out
}

func TestFuse(t *testing.T) {
	both := index.Candidates{
		Text:   side("a", 8.0, "b", 4.0),
		Vector: side("b", 0.9, "c", 0.7, "e", 0.4),
	}
	for _, test := range []struct {
		name   string
		c      index.Candidates
		fusion index.Fusion
		want   []string
	}{
		// 0.7*8/8; 0.7*4/8+0.3*1; 0.3*0.7/0.9; 0.3*0.4/0.9
		{"weighted", both, index.Fusion{Weight: 0.3}, []string{"a 0.700", "b 0.650", "c 0.233", "e 0.133"}},
		// Above a floor of 0.5, c is half as good as b, and e is nothing.
		{"floor", both, index.Fusion{Weight: 0.7, Floor: 0.5}, []string{"b 0.850", "c 0.350", "a 0.300", "e 0.000"}},
		{"words only", both, index.Fusion{Weight: 0}, []string{"a 1.000", "b 0.500", "c 0.000", "e 0.000"}},
		{"meaning only", both, index.Fusion{Weight: 1}, []string{"b 1.000", "c 0.778", "e 0.444", "a 0.000"}},
		// Ranks: b is second and first, a first, c second, e third.
		{"by rank", both, index.Fusion{Weight: -1}, []string{"b 0.992", "a 0.500", "c 0.492", "e 0.484"}},
		{"no vector side", index.Candidates{Text: both.Text}, index.Fusion{Weight: 0.7}, []string{"a 1.000", "b 0.500"}},
		{"no word side", index.Candidates{Vector: both.Vector}, index.Fusion{Weight: 0.3}, []string{"b 1.000", "c 0.778", "e 0.444"}},
		{"one side by rank", index.Candidates{Text: both.Text}, index.Fusion{Weight: -1}, []string{"a 1.000", "b 0.984"}},
		{"negative cosines", index.Candidates{Vector: side("a", -0.1, "b", -0.2)}, index.Fusion{Weight: 0.5}, []string{"a 0.000", "b 0.000"}},
		{"nothing", index.Candidates{}, index.Fusion{Weight: 0.5}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := order(index.Fuse(test.c, test.fusion)); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	for _, f := range index.Fuse(both, index.Fusion{Weight: 0.3}) {
		if f.Chunk.ID == "b" && (f.Text != 4 || f.Vector != 0.9) {
			t.Errorf("parts of b are %g and %g, want the engine's scores", f.Text, f.Vector)
		}
	}
}

func TestFuseTiesDoNotDependOnTheEngine(t *testing.T) {
	var c index.Candidates
	for i := range 40 {
		c.Text = append(c.Text, index.Hit{Score: 1, Chunk: sheaf.Chunk{ID: fmt.Sprintf("c%02d", i), DocumentID: fmt.Sprintf("d%d", i%3), Ordinal: i / 2}})
	}
	want := order(index.Fuse(c, index.Fusion{Weight: 0.3}))
	for seed := range uint64(10) {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(c.Text), func(i, j int) { c.Text[i], c.Text[j] = c.Text[j], c.Text[i] })
		if got := order(index.Fuse(c, index.Fusion{Weight: 0.3})); !slices.Equal(got, want) {
			t.Fatalf("order changed: %v, want %v", got, want)
		}
	}
}

func FuzzFuseStaysInBounds(f *testing.F) {
	f.Add(uint64(1), 0.3, 0.0)
	f.Add(uint64(2), -1.0, 0.5)
	f.Fuzz(func(t *testing.T, seed uint64, weight, floor float64) {
		if !(weight >= -1 && weight <= 1 && floor > -1 && floor < 1) {
			t.Skip()
		}
		r := rand.New(rand.NewPCG(seed, 0))
		var c index.Candidates
		for range r.IntN(20) {
			c.Text = append(c.Text, side(fmt.Sprint("c", r.IntN(20)), r.Float64()*30)...)
		}
		for range r.IntN(20) {
			c.Vector = append(c.Vector, side(fmt.Sprint("c", r.IntN(20)), r.Float64()*2-1)...)
		}
		byScore := func(a, b index.Hit) int {
			if a.Score > b.Score {
				return -1
			}
			return 1
		}
		slices.SortFunc(c.Text, byScore)
		slices.SortFunc(c.Vector, byScore)
		seen := make(map[string]bool)
		for _, h := range index.Fuse(c, index.Fusion{Weight: weight, Floor: floor}) {
			if seen[h.Chunk.ID] {
				t.Fatalf("%s is in the list twice", h.Chunk.ID)
			}
			seen[h.Chunk.ID] = true
			if math.IsNaN(h.Score) || h.Score < 0 || h.Score > 1+1e-9 {
				t.Fatalf("score %g", h.Score)
			}
		}
	})
}
