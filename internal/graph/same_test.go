package graph

import (
	"fmt"
	"slices"
	"testing"
)

// toldGraph is a graph of entities that a model named, one a chunk.
func toldGraph(splits *Splits, names ...string) *Graph {
	var all []Contribution
	for i, name := range names {
		said := Said{Entities: []SaidEntity{{Name: name, Type: "person", Description: "about " + name}}}
		all = append(all, Contribution{Source: Source{DocumentID: "d", RangeID: "r", ChunkID: fmt.Sprintf("c%03d", i)}, Extraction: said.Extraction(splits)})
	}
	return Build(all, Options{Splits: splits})
}

func (g *Graph) pairNames(pairs []Pair) (out []string) {
	for _, p := range pairs {
		a, b := g.Entities[p.A].Key, g.Entities[p.B].Key
		out = append(out, min(a, b)+"/"+max(a, b))
	}
	slices.Sort(out)
	return out
}

// Names are alike by their letters, as an acronym of any chunk, or by vectors; not
// where a number differs or a split keeps them apart.
func TestNamesThatAreAlike(t *testing.T) {
	names := []string{"Jean-Luc Picard", "Jean Luc Picard", "Reykjavik", "Reykjavikur", "Section 12", "Section 13", "ECB", "European Central Bank", "UK", "U.K", "Oslo", "Christiania", "Lisbon"}
	g := toldGraph(nil, names...)
	want := []string{"ecb/european central bank", "jean luc picard/jean-luc picard", "reykjavik/reykjavikur", "u.k/uk"}
	if got := g.pairNames(g.Alike(nil, 100)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	vectors := make([][]float32, len(g.Entities))
	for i, e := range g.Entities {
		vectors[i] = make([]float32, len(g.Entities)+1)
		vectors[i][i] = 1
		if e.Key == "oslo" || e.Key == "christiania" {
			vectors[i][i], vectors[i][len(g.Entities)] = 0, 1
		}
	}
	if got := g.pairNames(g.Alike(vectors, 100)); len(got) != len(want)+1 || !slices.Contains(got, "christiania/oslo") {
		t.Errorf("with vectors %q", got)
	}
	if got := g.Alike(nil, 2); len(got) != 2 || got[0].Score != 1 {
		t.Errorf("the two most alike are %+v", got)
	}
	g = toldGraph(NewSplits([][]string{{"Reykjavik", "Reykjavikur"}}), names...)
	if got := g.pairNames(g.Alike(nil, 100)); slices.Contains(got, "reykjavik/reykjavikur") {
		t.Errorf("what a split keeps apart is alike: %q", got)
	}
}

// One wrong verdict between two groups joins nothing of them.
func TestOneWrongVerdictDoesNotChain(t *testing.T) {
	g := toldGraph(nil, "a1", "a2", "a3", "b1", "b2", "b3")
	at := func(a, b string) Pair {
		x, _ := g.Find(a)
		y, _ := g.Find(b)
		return Pair{min(x, y), max(x, y), 0.7}
	}
	pairs := []Pair{at("a1", "a2"), at("a2", "a3"), at("a1", "a3"), at("b1", "b2"), at("b2", "b3"), at("b1", "b3"), at("a3", "b1")}
	got := g.Merge(pairs, []bool{true, true, true, true, true, true, true})
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	for _, m := range got {
		if g.Entities[m.Entity].Key[0] != g.Entities[m.Into].Key[0] {
			t.Errorf("%s is taken as %s", g.Entities[m.Entity].Key, g.Entities[m.Into].Key)
		}
	}
	if got := g.Merge(pairs[6:], []bool{true}); len(got) != 1 {
		t.Errorf("a verdict about two entities: %+v", got)
	}
}
