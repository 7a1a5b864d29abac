package api

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sheaf"
)

func chunksOf(texts ...string) []sheaf.Chunk {
	out := make([]sheaf.Chunk, len(texts))
	for i, s := range texts {
		out[i] = sheaf.Chunk{Kind: "text", Text: s, Ordinal: i, Pages: []int{i + 1}}
	}
	return out
}

// told is a comparison in one line: =a same, a>b changed, +b added, -a removed.
func told(changes []ChunkChange) string {
	var out []string
	for _, c := range changes {
		switch c.Change {
		case "same":
			out = append(out, "="+c.To.Text)
		case "changed":
			out = append(out, c.From.Text+">"+c.To.Text)
		case "added":
			out = append(out, "+"+c.To.Text)
		case "removed":
			out = append(out, "-"+c.From.Text)
		}
	}
	return strings.Join(out, ", ")
}

func TestComparisonPairsWhatReadsAlike(t *testing.T) {
	for _, c := range []struct {
		older, newer []string
		want         string
	}{
		{[]string{"a", "b"}, []string{"a", "b"}, "=a, =b"},
		{nil, []string{"a"}, "+a"},
		{[]string{"a"}, nil, "-a"},
		{[]string{"a", "b", "c"}, []string{"a", "new one", "b", "c"}, "=a, +new one, =b, =c"},
		{[]string{"a", "b", "c"}, []string{"a", "c"}, "=a, -b, =c"},
		{[]string{"a", "one two three", "c"}, []string{"a", "one two four", "c"}, "=a, one two three>one two four, =c"},
		// A text that stands in one list twice is matched beside its neighbours.
		{[]string{"x", "a", "x"}, []string{"x", "a", "b", "x"}, "=x, =a, +b, =x"},
		{[]string{"x", "x", "x"}, []string{"x", "x"}, "=x, =x, -x"},
		// What changed places is neither: it went here and came there.
		{[]string{"a", "b", "c", "d"}, []string{"b", "c", "d", "a"}, "-a, =b, =c, =d, +a"},
		{[]string{"a b c d", "e f g h"}, []string{"new", "a b c x", "e f g y"}, "+new, a b c d>a b c x, e f g h>e f g y"},
	} {
		if got := told(compareChunks(chunksOf(c.older...), chunksOf(c.newer...))); got != c.want {
			t.Errorf("%q to %q:\n got %s\nwant %s", c.older, c.newer, got, c.want)
		}
	}
	// The same words under another heading are another chunk; on another page they are not.
	older, newer := chunksOf("a b c", "d"), chunksOf("a b c", "d")
	newer[0].HeadingPath, newer[1].Pages = []string{"Moved"}, []int{9}
	if got := told(compareChunks(older, newer)); got != "a b c>a b c, =d" {
		t.Error(got)
	}
}

// Whatever the lists: both are told whole and in order, and what is called the
// same is the same.
func TestComparisonTellsBothListsWhole(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		list := func() []sheaf.Chunk {
			texts := make([]string, r.IntN(30))
			for i := range texts {
				texts[i] = fmt.Sprintf("word%d word%d tail", r.IntN(4), r.IntN(6))
			}
			return chunksOf(texts...)
		}
		older, newer := list(), list()
		i, j := 0, 0
		for _, c := range compareChunks(older, newer) {
			if c.From != nil {
				if c.From.Ordinal != i {
					t.Fatalf("seed %d: chunk %d of the older list stands where %d belongs", seed, c.From.Ordinal, i)
				}
				i++
			}
			if c.To != nil {
				if c.To.Ordinal != j {
					t.Fatalf("seed %d: chunk %d of the newer list stands where %d belongs", seed, c.To.Ordinal, j)
				}
				j++
			}
			if c.Change == "same" && c.From.Text != c.To.Text {
				t.Fatalf("seed %d: %q is called the same as %q", seed, c.From.Text, c.To.Text)
			}
		}
		if i != len(older) || j != len(newer) {
			t.Fatalf("seed %d: %d of %d and %d of %d chunks are told", seed, i, len(older), j, len(newer))
		}
	}
}
