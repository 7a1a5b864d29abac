package raptor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawn(t *rapid.T, least int) []Item {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Item {
		it := Item{Name: rapid.StringN(0, 3, -1).Draw(t, "name"), Tokens: rapid.IntRange(0, 800).Draw(t, "tokens"), Heading: rapid.IntRange(0, 5).Draw(t, "h") == 0}
		if rapid.IntRange(0, 4).Draw(t, "v") > 0 {
			it.Vector = []float32{float32(rapid.IntRange(-3, 3).Draw(t, "x")), float32(rapid.IntRange(-3, 3).Draw(t, "y"))}
		}
		return it
	}), least, 120).Draw(t, "items")
}

// Segments cover all items once and in order, and hold their bounds.
func TestSegmentsCoverAndHoldBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawn(t, 0)
		c := Config{MaxTokens: rapid.IntRange(1, 3000).Draw(t, "most"), MaxChildren: rapid.IntRange(2, 20).Draw(t, "children"), Ratio: rapid.Float64Range(0.1, 0.5).Draw(t, "ratio")}
		at := 0
		for _, s := range Segments(items, c) {
			tokens := 0
			for _, it := range items[s.From:s.To] {
				tokens += it.Tokens
			}
			if s.From != at || s.Len() < 1 || s.Len() > c.MaxChildren || s.Len() > 1 && tokens > c.MaxTokens {
				t.Fatalf("segment %v at %d with %d tokens", s, at, tokens)
			}
			at = s.To
		}
		if at != len(items) {
			t.Fatalf("%d of %d items are covered", at, len(items))
		}
		// A layer without large items has no more than its share of nodes.
		for i := range items {
			items[i].Tokens = 0
		}
		c.MaxChildren = 64
		if n := len(Segments(items, c)); len(items) > 1 && float64(n) > max(c.Ratio*float64(len(items)), 1) {
			t.Fatalf("%d segments of %d items with ratio %f", n, len(items), c.Ratio)
		}
	})
}

// tree names all nodes above items.
func tree(items []Item, c Config) map[string]bool {
	names := map[string]bool{}
	for layer := 1; layer <= MaxLayers && len(items) > 1; layer++ {
		nodes, alone := Layer(items, layer, c)
		if len(nodes) == 0 {
			break
		}
		type placed struct {
			at int
			it Item
		}
		var next []placed
		for _, n := range nodes {
			names[n.Name] = true
			var vs [][]float32
			for _, k := range n.Children {
				vs = append(vs, items[k].Vector)
			}
			next = append(next, placed{n.Children[0], Item{Name: n.Name, Tokens: 100, Vector: Mean(vs...), Heading: items[n.Children[0]].Heading}})
		}
		for _, i := range alone {
			next = append(next, placed{i, items[i]})
		}
		slices.SortFunc(next, func(a, b placed) int { return a.at - b.at })
		items = items[:0:0]
		for _, p := range next {
			items = append(items, p.it)
		}
	}
	return names
}

// One chunk of a thousand that changes, comes or goes makes few nodes anew.
func TestOneChangeRenamesFewNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	chunk := func(i int) Item {
		v := make([]float32, 8)
		for k := range v {
			v[k] = float32(r.NormFloat64())
		}
		return Item{Name: fmt.Sprint("chunk ", i), Tokens: 300, Vector: v, Heading: r.IntN(12) == 0}
	}
	var items []Item
	for i := range 1000 {
		items = append(items, chunk(i))
	}
	c := Config{Ratio: 0.25, Salt: "model"}
	before := tree(items, c)
	if len(before) < 100 || len(before) > 334 {
		t.Fatalf("%d nodes over 1,000 chunks", len(before))
	}
	for what, change := range map[string]func(at int) []Item{
		"changed": func(at int) []Item { out := slices.Clone(items); out[at] = chunk(5000 + at); return out },
		"new":     func(at int) []Item { return slices.Insert(slices.Clone(items), at, chunk(5000+at)) },
		"gone":    func(at int) []Item { return slices.Delete(slices.Clone(items), at, at+1) },
	} {
		sum := 0
		for at := 5; at < 1000; at += 99 {
			fresh := 0
			for name := range tree(change(at), c) {
				if !before[name] {
					fresh++
				}
			}
			if fresh == 0 || fresh*10 > len(before) {
				t.Errorf("%s at %d: %d of %d nodes are new", what, at, fresh, len(before))
			}
			sum += fresh
		}
		t.Logf("%s: %.1f of %d nodes are new", what, float64(sum)/11, len(before))
	}
	c.Salt = "another model"
	for name := range tree(items, c) {
		if before[name] {
			t.Fatal("another model has nodes of the same name")
		}
	}
}

// words embeds a text by which of a few words it has.
func words(texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = make([]float32, 6)
		for k, w := range []string{"heron", "water", "fish", "tax", "law", "snow"} {
			out[i][k] = float32(strings.Count(text, w))
		}
	}
	return out, nil
}

func TestExtractTakesCentralSentencesInOrder(t *testing.T) {
	count := func(s string) int { return len(strings.Fields(s)) }
	texts := []string{"A heron stands in water. The tax is due.", "It catches fish like any heron. A heron stands in water.", "Some law. In snow the heron finds no fish in the water."}
	got, err := Extract(texts, 16, count, words)
	if err != nil {
		t.Fatal(err)
	}
	want := []Sentence{{"A heron stands in water.", 0}, {"In snow the heron finds no fish in the water.", 2}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if none, err := Extract([]string{"", "12 34\n--"}, 9, count, words); err != nil || none != nil {
		t.Errorf("of nothing: %+v, %v", none, err)
	}
}

// A summary quotes its texts word for word, once, in their order and within its bound.
func TestExtractQuotesWithinItsBound(t *testing.T) {
	count := func(s string) int { return len(strings.Fields(s)) }
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringOf(rapid.SampledFrom([]rune("aA .!?。\nheron\xff"))), 0, 6).Draw(t, "texts")
		most := rapid.IntRange(0, 30).Draw(t, "most")
		got, err := Extract(texts, most, count, words)
		if err != nil {
			t.Fatal(err)
		}
		total, last, seen := 0, 0, map[string]bool{}
		for _, s := range got {
			total += count(s.Text)
			if s.Source < last || seen[s.Text] || !slices.Contains(Sentences(texts[s.Source]), s.Text) {
				t.Fatalf("%+v of %q", got, texts)
			}
			last, seen[s.Text] = s.Source, true
		}
		if total > most {
			t.Fatalf("%d tokens, at most %d", total, most)
		}
	})
}

func TestSentences(t *testing.T) {
	got := Sentences("See Fig. 3 for e.g. details. Then go!\nIt costs 3.5 euros?  Yes.\n--\n雨が降る。傘を持つ")
	want := []string{"See Fig.", "3 for e.g. details.", "Then go!", "It costs 3.5 euros?", "Yes.", "雨が降る。", "傘を持つ"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
