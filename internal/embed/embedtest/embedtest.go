// Package embedtest is a test suite for the contract of embed.Embedder, which every
// embedder must pass.
package embedtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/internal/embed"
)

// Options describes the embedder under test.
type Options struct {
	// Tolerance is how far the cosine of two vectors of the same text may be from
	// 1; 0 means 1e-5. Quantized models depend on the batch.
	Tolerance float64
	// LatinOnly: texts of other scripts must give no vector.
	LatinOnly bool
}

// Run tests e against the contract.
func Run(t *testing.T, e embed.Embedder, o Options) {
	if o.Tolerance == 0 {
		o.Tolerance = 1e-5
	}
	ctx := t.Context()
	texts := []string{
		"How do I reset my password?",
		"I forgot my login credentials.",
		"Photosynthesis happens in green plants.",
		"The invoice must be paid within thirty days.",
		"Payment is due one month after the bill.",
	}

	t.Run("ModelIsDescribed", func(t *testing.T) {
		m := e.Model()
		if m.ID == "" || strings.ContainsAny(m.ID, " \n") || m.Dim < 1 {
			t.Errorf("model %+v needs an id without spaces and a width", m)
		}
		if m.Weight > 1 || m.Floor < -1 || m.Floor >= 1 {
			t.Errorf("weight %g or floor %g is out of range", m.Weight, m.Floor)
		}
		if e.Model() != m {
			t.Error("the description changes")
		}
	})
	t.Run("Ping", func(t *testing.T) {
		if err := e.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("WindowsAreReadTogetherOrRefused", func(t *testing.T) {
		vs, err := e.Embed(ctx, texts, embed.Window)
		if e.Model().Window == 0 {
			if !errors.Is(err, sheaf.ErrInvalid) {
				t.Errorf("got %d vectors, %v, want ErrInvalid", len(vs), err)
			}
			return
		}
		if err != nil || len(vs) != len(texts) {
			t.Fatalf("got %d vectors, %v", len(vs), err)
		}
		alone := mustEmbed(t, e, texts, embed.Passage)
		for i, v := range vs {
			if got := dot(v, v); math.Abs(got-1) > 1e-3 {
				t.Errorf("vector %d has length² %g", i, got)
			}
			if dot(v, alone[i]) > 1-1e-4 {
				t.Errorf("vector %d is that of its text alone", i)
			}
		}
	})
	t.Run("NoTextsGiveNoVectors", func(t *testing.T) {
		for _, none := range [][]string{nil, {}} {
			if vs, err := e.Embed(ctx, none, embed.Passage); err != nil || len(vs) != 0 {
				t.Errorf("got %d vectors, %v", len(vs), err)
			}
		}
	})
	t.Run("VectorsHaveTheWidthAndLengthOne", func(t *testing.T) {
		for _, purpose := range []embed.Purpose{embed.Passage, embed.Query} {
			for i, v := range mustEmbed(t, e, texts, purpose) {
				if len(v) != e.Model().Dim {
					t.Fatalf("text %d has a vector of %d values", i, len(v))
				}
				if n := math.Sqrt(dot(v, v)); math.Abs(n-1) > 1e-3 {
					t.Errorf("text %d has a vector of length %g", i, n)
				}
			}
		}
	})
	t.Run("OrderIsKeptAndBatchesDoNotMatter", func(t *testing.T) {
		var many []string
		for i := range 67 {
			many = append(many, fmt.Sprintf("%s Case %d.", texts[i%len(texts)], i))
		}
		together := mustEmbed(t, e, many, embed.Passage)
		for _, i := range []int{0, 1, 31, 32, 66} {
			alone := mustEmbed(t, e, many[i:i+1], embed.Passage)[0]
			if c := dot(alone, together[i]); c < 1-o.Tolerance {
				t.Errorf("text %d alone and in a batch: cosine %g", i, c)
			}
		}
	})
	t.Run("MeaningIsNearer", func(t *testing.T) {
		vs := mustEmbed(t, e, texts, embed.Passage)
		for _, c := range [][3]int{{0, 1, 2}, {3, 4, 2}} {
			if near, far := dot(vs[c[0]], vs[c[1]]), dot(vs[c[0]], vs[c[2]]); near <= far {
				t.Errorf("%q: %.3f to %q, %.3f to %q", texts[c[0]], near, texts[c[1]], far, texts[c[2]])
			}
		}
	})
	t.Run("OddTextsGiveFiniteVectorsOrZeros", func(t *testing.T) {
		odd := []string{" \t\n", "\u200b", "🙂", "x", strings.Repeat("a", 300), "1 + 1 = 2", "naïve café", "データベース", "Ξένος κόσμος"}
		for i, v := range mustEmbed(t, e, odd, embed.Passage) {
			n := dot(v, v)
			if n != 0 && math.Abs(n-1) > 2e-3 || math.IsNaN(n) {
				t.Errorf("%.20q has a vector of squared length %g", odd[i], n)
			}
			if o.LatinOnly && i >= 7 && n != 0 {
				t.Errorf("%.20q has a vector, want none", odd[i])
			}
		}
	})
	t.Run("VectorsBelongToTheCaller", func(t *testing.T) {
		a := mustEmbed(t, e, texts, embed.Passage)
		want := append([]float32(nil), a[1]...)
		clear(a[0])
		_ = append(a[0], 9) // must not reach into the next vector
		b := mustEmbed(t, e, texts, embed.Passage)
		if c := dot(a[1], want); c < 1-1e-3 {
			t.Error("appending to a vector changed its neighbour")
		}
		if n := dot(b[0], b[0]); math.Abs(n-1) > 1e-3 {
			t.Error("a vector that a caller overwrote came back")
		}
	})
	t.Run("ConcurrentCalls", func(t *testing.T) {
		want := mustEmbed(t, e, texts, embed.Passage)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for n := 1; n <= len(texts); n++ {
					from := (g + n) % len(texts)
					to := min(from+n, len(texts))
					vs, err := e.Embed(ctx, texts[from:to], embed.Passage)
					if err != nil || len(vs) != to-from {
						t.Errorf("%d vectors, %v", len(vs), err)
						return
					}
					for i, v := range vs {
						if c := dot(v, want[from+i]); c < 1-o.Tolerance {
							t.Errorf("text %d: cosine %g to the vector it had", from+i, c)
						}
					}
				}
			})
		}
		wg.Wait()
	})
	t.Run("EndedContext", func(t *testing.T) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := e.Embed(ended, texts, embed.Passage); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

func mustEmbed(t *testing.T, e embed.Embedder, texts []string, purpose embed.Purpose) [][]float32 {
	t.Helper()
	vs, err := e.Embed(t.Context(), texts, purpose)
	if err != nil {
		t.Fatal(err)
	}
	if len(vs) != len(texts) {
		t.Fatalf("%d vectors for %d texts", len(vs), len(texts))
	}
	return vs
}

func dot(a, b []float32) (s float64) {
	for i := range a {
		s += float64(a[i]) * float64(b[i])
	}
	return s
}
