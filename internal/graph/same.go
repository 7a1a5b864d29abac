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

// Same says that an entity is another one under a different name, beyond what
// rules find.
type Same struct {
	Key    string `json:"key"`  // of the one that is no entity of its own any more
	Into   string `json:"into"` // of the other
	Reason string `json:"reason"`
}

// Reasons of Same.
const (
	SameModel    = "model"    // a language model said so
	SameSpelling = "spelling" // the same letters and digits
)

// Pair is two entities that may be one, A before B.
type Pair struct {
	A, B  int32   // in Entities
	Score float64 // 0–1: how alike their names are; 1 for the same letters and digits
}

const (
	alikeFrom   = 0.6    // the least share of letter pairs that two names have in common, of those that are asked about
	nearFrom    = 0.8    // the least cosine of their vectors
	abbreviated = 0.9    // the score of an acronym
	maxAlike    = 20_000 // entities that are compared by their letters: those of the highest rank
	maxCommon   = 100    // entities that three letters in a row are in: what is more common tells nothing
	// MaxNear are the entities, from the first, whose vectors Alike compares.
	MaxNear = 2000
)

// Alike finds entities whose names are alike, the most alike first: by their
// letters, as an acronym, or by vectors, which are those of the names of the first
// entities, of length 1; nil for none. Names that differ by a number, and those
// that splits keep apart, are not alike. At most so many are answered.
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

// squashed is a name in its letters and digits alone.
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

// parts are the strings of n letters in a row; what is shorter is one of its own.
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

// common is the share of two sets that both have.
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

// Merged is an entity and the one that it is taken as.
type Merged struct {
	Entity, Into int32   // in Entities; Into has the higher rank
	By           float64 // the score of the pair that brought them together
}

// Merge joins entities by verdicts on pairs, the most alike first. Two groups
// become one only where more than half of the pairs between them are the same (an
// average link), so that one wrong verdict draws in no others: a pair without a
// verdict counts as different. same is of each pair.
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

// PairText is what a model reads of two entities, and the chunks that it is of, as
// numbers in Sources.
func (g *Graph) PairText(a, b int32) (text string, chunks []int32) {
	if g.Entities[a].Key > g.Entities[b].Key { // whatever their ranks are, it is the same question
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

// ReadVerdict reads whether two entities are the same. Errors are sheaf.ErrInvalid.
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

// PackSame makes of a verdict what a run stores. Nothing of it is searched.
func PackSame(s Same) sheaf.Chunk {
	b, _ := json.Marshal(s) // strings always encode
	return sheaf.Chunk{Kind: sheaf.ChunkText, Text: string(b), Layer: LayerSame}
}

// UnpackSame reads what PackSame made; ok is false for what it did not make.
func UnpackSame(stored []sheaf.Chunk) (s Same, ok bool) {
	ok = len(stored) == 1 && json.Unmarshal([]byte(stored[0].Text), &s) == nil && s.Key != "" && s.Into != ""
	return s, ok
}

// Layers of what a run stores of a dataset.
const (
	LayerSaid   = 0 // what a model said of the chunks of a document
	LayerReport = 1 // of a community
	LayerSame   = 2 // of two entities
)

// same takes entities as others where a run found them the same, unless splits keep
// any of their names apart. It goes after resolve, and notes why.
func (f *fold) same(all []Same, splits *Splits, unions []Union) []Union {
	if len(all) == 0 {
		return unions
	}
	apart := f.apart(splits)
	of := map[int32][]int32{} // the keys that are taken as one, of those that are spoken of
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
