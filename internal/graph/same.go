package graph

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unique"

	"sheaf"
)

// Same states that an entity is identical to another under a different name, beyond
// what rules find.
type Same struct {
	Key    string `json:"key"`  // of the entity that is merged
	Into   string `json:"into"` // of the entity it is merged into
	Reason string `json:"reason"`
}

// Reasons of Same.
const (
	SameModel    = "model"    // a language model said so
	SameSpelling = "spelling" // the same letters and digits
)

// Pair is two entities that may be identical, A before B.
type Pair struct {
	A, B  int32   // in Entities
	Score float64 // 0–1: how similar their names are; 1 for the same letters and digits
}

const (
	alikeFrom   = 0.6    // minimum share of common letter pairs for two names to be considered
	nearFrom    = 0.8    // minimum cosine of their vectors
	abbreviated = 0.9    // the score of an acronym
	maxAlike    = 20_000 // entities compared by letters: those of the highest rank
	maxCommon   = 100    // maximum entities sharing a trigram: more common ones are not significant
	// MaxNear is how many entities, from the first, Alike compares by vector.
	MaxNear = 2000
)

// Alike finds similarly named entities, most similar first: by letters, as an
// acronym, or by vectors, which are the unit vectors of the first entities' names;
// nil for none. Names that differ by a number, and those that splits keep apart,
// are not similar. It returns at most most pairs.
func (g *Graph) Alike(vectors [][]float32, most int) []Pair {
	n := min(len(g.Entities), maxAlike)
	letters, runs := make([]string, n), map[string][]int32{}
	grams := make([]map[string]bool, n)
	for e := range n {
		letters[e] = squashed(g.Entities[e].Key)
		grams[e] = parts(letters[e], 2)
		for run := range parts(letters[e], 3) {
			runs[run] = append(runs[run], int32(e))
		}
	}
	found := map[[2]int32]float64{}
	add := func(a, b int32, score float64) {
		if score > found[[2]int32{a, b}] && digits(letters[a]) == digits(letters[b]) && !slices.Contains(g.splits.others(g.Entities[a].Key), g.Entities[b].Key) {
			found[[2]int32{a, b}] = score
		}
	}
	for e := range int32(n) {
		near := map[int32]bool{}
		for run := range parts(letters[e], 3) {
			if len(runs[run]) <= maxCommon {
				for _, o := range runs[run] {
					near[o] = near[o] || o > e
				}
			}
		}
		for o, later := range near {
			if score := common(grams[e], grams[o]); later && letters[e] == letters[o] {
				add(e, o, 1)
			} else if later && score >= alikeFrom {
				add(e, o, min(score, 0.99))
			}
		}
	}
	of := map[string][]int32{} // entities by the initials of their names
	for e := range int32(n) {
		if s := initials(g.Entities[e].Key); s != "" {
			of[s] = append(of[s], e)
		}
	}
	for e := range int32(n) {
		if isAcronym(g.Entities[e].Name) {
			for _, o := range of[letters[e]] {
				add(min(e, o), max(e, o), abbreviated)
			}
		}
	}
	vectors = vectors[:min(len(vectors), n)]
	for a := range vectors {
		for b := a + 1; b < len(vectors); b++ {
			if score := dot(vectors[a], vectors[b]); score >= nearFrom {
				add(int32(a), int32(b), min(score, 0.99))
			}
		}
	}
	out := make([]Pair, 0, len(found))
	for _, at := range slices.SortedFunc(maps.Keys(found), func(x, y [2]int32) int { return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1])) }) {
		out = append(out, Pair{at[0], at[1], found[at]})
	}
	slices.SortStableFunc(out, func(x, y Pair) int { return cmp.Compare(y.Score, x.Score) })
	return out[:min(len(out), most)]
}

// squashed reduces a name to its letters and digits.
func squashed(key string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, key)
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return r
		}
		return -1
	}, s)
}

// parts returns the n-grams of letters; a shorter string is its own.
func parts(s string, n int) map[string]bool {
	r, out := []rune(s), map[string]bool{}
	if len(r) > 0 && len(r) < n {
		out[s] = true
	}
	for i := 0; i+n <= len(r); i++ {
		out[string(r[i:i+n])] = true
	}
	return out
}

// common returns the share of elements that two sets have in common.
func common(a, b map[string]bool) float64 {
	n := 0
	for s := range a {
		if b[s] {
			n++
		}
	}
	return 2 * float64(n) / float64(max(len(a)+len(b), 1))
}

func dot(a, b []float32) (sum float64) {
	for i := range min(len(a), len(b)) {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// Merged is an entity and the one it is merged into.
type Merged struct {
	Entity, Into int32   // in Entities; Into has the higher rank
	By           float64 // the score of the pair that joined them
}

// Merge merges entities by verdicts on pairs, most similar first. Two groups merge
// only if more than half of the pairs between them are the same (average linkage),
// so that a wrong verdict does not spread: a pair without a verdict counts as
// different. same is parallel to pairs.
func (g *Graph) Merge(pairs []Pair, same []bool) (out []Merged) {
	yes := map[[2]int32]bool{}
	group, members := map[int32]int32{}, map[int32][]int32{}
	for i, p := range pairs {
		if same[i] {
			yes[[2]int32{p.A, p.B}] = true
			for _, e := range []int32{p.A, p.B} {
				group[e], members[e] = e, []int32{e}
			}
		}
	}
	by := map[int32]float64{}
	for i, p := range pairs {
		if !same[i] || group[p.A] == group[p.B] {
			continue
		}
		a, b := min(group[p.A], group[p.B]), max(group[p.A], group[p.B])
		agree, apart := 0, false
		for _, x := range members[a] {
			for _, y := range members[b] {
				if yes[[2]int32{min(x, y), max(x, y)}] {
					agree++
				}
				apart = apart || slices.Contains(g.splits.others(g.Entities[x].Key), g.Entities[y].Key)
			}
		}
		if apart || 2*agree <= len(members[a])*len(members[b]) {
			continue
		}
		for _, y := range members[b] {
			group[y] = a
			if by[y] == 0 {
				by[y] = p.Score
			}
		}
		members[a] = append(members[a], members[b]...)
		delete(members, b)
	}
	for _, e := range slices.Sorted(maps.Keys(group)) {
		if group[e] != e {
			out = append(out, Merged{e, group[e], by[e]})
		}
	}
	return out
}

// PairText returns the model's input for two entities, and the chunks it is based
// on, as numbers in Sources.
func (g *Graph) PairText(a, b int32) (text string, chunks []int32) {
	if g.Entities[a].Key > g.Entities[b].Key { // the question does not depend on their ranks
		a, b = b, a
	}
	var s strings.Builder
	for _, e := range []int32{a, b} {
		n := &g.Entities[e]
		said, at := cite(n.About, n.Chunks)
		chunks = append(chunks, at)
		fmt.Fprintf(&s, "- %s (%s)%s\n", n.Name, n.Type, said)
	}
	slices.Sort(chunks)
	return s.String(), slices.Compact(chunks)
}

// ReadVerdict parses whether two entities are the same. Errors are
// sheaf.ErrInvalid.
func ReadVerdict(answer string) (bool, error) {
	var v struct{ Same *bool }
	if err := DecodeAnswer(answer, &v); err != nil {
		return false, err
	}
	if v.Same == nil {
		return false, fmt.Errorf("%w: the answer does not say whether they are the same", sheaf.ErrInvalid)
	}
	return *v.Same, nil
}

// PackSame converts a verdict to the form that a run stores. It is not searched.
func PackSame(s Same) sheaf.Chunk {
	b, _ := json.Marshal(s) // strings always encode
	return sheaf.Chunk{Kind: sheaf.ChunkText, Text: string(b), Layer: LayerSame}
}

// UnpackSame reads the result of PackSame; ok is false for anything else.
func UnpackSame(stored []sheaf.Chunk) (s Same, ok bool) {
	ok = len(stored) == 1 && json.Unmarshal([]byte(stored[0].Text), &s) == nil && s.Key != "" && s.Into != ""
	return s, ok
}

// Layers of a run's stored results for a dataset.
const (
	LayerSaid   = 0 // a model's statements about the chunks of a document
	LayerReport = 1 // on a community
	LayerSame   = 2 // on two entities
)

// same merges entities that a run found identical, unless splits keep any of their
// names apart. It runs after resolve, and records why.
func (f *fold) same(all []Same, splits *Splits, unions []Union) []Union {
	if len(all) == 0 {
		return unions
	}
	apart := f.apart(splits)
	of := map[int32][]int32{} // keys merged into one, for those concerned
	for _, s := range all {
		for _, key := range []string{s.Key, s.Into} {
			if n, known := f.number[unique.Make(key)]; known {
				of[f.into[n]] = nil
			}
		}
	}
	for n, k := range f.into {
		if _, spoken := of[k]; spoken {
			of[k] = append(of[k], int32(n))
		}
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b Same) int { return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Into, b.Into)) })
	for _, s := range all {
		n, known := f.number[unique.Make(s.Key)]
		k, other := f.number[unique.Make(s.Into)]
		if !known || !other || f.into[n] == f.into[k] {
			continue
		}
		from, to := f.into[n], f.into[k]
		if slices.ContainsFunc(of[from], func(x int32) bool {
			return slices.ContainsFunc(apart[x], func(y int32) bool { return f.into[y] == to })
		}) {
			continue
		}
		for _, x := range of[from] {
			f.into[x] = to
		}
		of[to], of[from] = append(of[to], of[from]...), nil
		for i := range unions {
			if unions[i].Into == f.keys[from].Value() {
				unions[i].Into = f.keys[to].Value()
			}
		}
		unions = append(unions, Union{f.keys[from].Value(), f.keys[to].Value(), s.Reason})
	}
	return unions
}
