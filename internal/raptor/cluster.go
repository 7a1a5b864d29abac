package raptor

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Clusters puts items that have no order into groups of what is alike. Item.Name
// says who an item is, whatever it says today. Some items are centres, chosen by
// their names and the seed; the others go to the centre that they are nearest to.
// A group that is too large is cut the same way, one of a single item joins
// another. So an item that comes, goes or changes moves few others, and the same
// items make the same groups in whatever order they are given. Groups hold
// MaxTokens and MaxChildren; each lists its items by name, and the groups come by
// the name of their first.
func Clusters(items []Item, seed int64, c Config) [][]int {
	c = c.withDefaults()
	if len(items) == 0 {
		return nil
	}
	all := make([]int, len(items))
	tokens := 0
	for i := range items {
		all[i] = i
		tokens += items[i].Tokens
	}
	slices.SortFunc(all, func(a, b int) int { return cmp.Compare(items[a].Name, items[b].Name) })
	fit := min(c.MaxChildren, c.MaxTokens*len(items)/max(tokens, 1))
	// A power of two, so that it changes when a dataset doubles and not each day.
	size := max(1<<(bits.Len(uint(max(fit/2, 2)))-1), int(math.Ceil(1/c.Ratio)))
	g := grouping{items: items, seed: seed, c: c}
	return g.merge(g.split(all, size, 0))
}

type grouping struct {
	items []Item
	seed  int64
	c     Config
}

// fits reports whether a group holds the bounds. One item always does.
func (g *grouping) fits(group []int) bool {
	tokens := 0
	for _, i := range group {
		tokens += g.items[i].Tokens
	}
	return len(group) < 2 || len(group) <= g.c.MaxChildren && tokens <= g.c.MaxTokens
}

// hash orders items by nothing that they say.
func (g *grouping) hash(i, depth int) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, uint64(g.seed))
	b = binary.LittleEndian.AppendUint64(b, uint64(depth))
	return xxhash.Sum64(append(b, g.items[i].Name...))
}

// maxDepth bounds how often what is too large is cut by likeness.
const maxDepth = 8

// split cuts items into groups that fit, about size items each.
func (g *grouping) split(items []int, size, depth int) [][]int {
	if g.fits(items) && (depth > 0 || len(items) <= size) {
		return [][]int{items}
	}
	if depth == maxDepth { // they are all alike
		return g.pack(items)
	}
	var centres []int
	for _, i := range items {
		if g.hash(i, depth) < math.MaxUint64/uint64(size) {
			centres = append(centres, i)
		}
	}
	if len(centres) < 2 {
		centres = slices.Clone(items)
		slices.SortFunc(centres, func(a, b int) int { return cmp.Compare(g.hash(a, depth), g.hash(b, depth)) })
		centres = centres[:2]
	}
	groups := make([][]int, len(centres))
	for _, i := range items {
		k := slices.Index(centres, i)
		if k < 0 {
			k = g.nearest(g.items[i].Vector, centres)
		}
		groups[k] = append(groups[k], i)
	}
	var out [][]int
	for _, group := range groups {
		if len(group) == len(items) {
			return g.pack(items)
		}
		out = append(out, g.split(group, max(size/2, 2), depth+1)...)
	}
	return out
}

// nearest is the index of the centre that is most like a vector, of several the
// first by name.
func (g *grouping) nearest(v []float32, centres []int) int {
	best, most := 0, math.Inf(-1)
	for k, c := range centres {
		if s := cosine(v, g.items[c].Vector); s > most || s == most && g.items[c].Name < g.items[centres[best]].Name {
			best, most = k, s
		}
	}
	return best
}

// pack fills groups in the order of names.
func (g *grouping) pack(items []int) (out [][]int) {
	from := 0
	for to := 2; to <= len(items); to++ {
		if !g.fits(items[from:to]) {
			out = append(out, items[from:to-1])
			from = to - 1
		}
	}
	return append(out, items[from:])
}

// merge puts items that are alone to the group that they are most like, where
// they fit. Else they stay alone.
func (g *grouping) merge(groups [][]int) [][]int {
	var whole [][]int
	var alone []int
	for _, group := range groups {
		if len(group) == 1 {
			alone = append(alone, group[0])
		} else {
			whole = append(whole, slices.Clone(group))
		}
	}
	slices.SortFunc(alone, func(a, b int) int { return cmp.Compare(g.items[a].Name, g.items[b].Name) })
	centres := make([][]float32, len(whole))
	for k, group := range whole {
		vectors := make([][]float32, len(group))
		for n, i := range group {
			vectors[n] = g.items[i].Vector
		}
		centres[k] = Mean(vectors...)
	}
	var left []int
	for _, i := range alone {
		best, most := -1, math.Inf(-1)
		for k := range whole {
			if s := cosine(g.items[i].Vector, centres[k]); s > most && g.fits(append(slices.Clone(whole[k]), i)) {
				best, most = k, s
			}
		}
		if best < 0 {
			left = append(left, i)
		} else {
			whole[best] = append(whole[best], i)
		}
	}
	if len(left) > 0 { // none of the groups has room for them
		whole = append(whole, g.pack(left)...)
	}
	for _, group := range whole {
		slices.SortFunc(group, func(a, b int) int { return cmp.Compare(g.items[a].Name, g.items[b].Name) })
	}
	slices.SortFunc(whole, func(a, b []int) int { return cmp.Compare(g.items[a[0]].Name, g.items[b[0]].Name) })
	return whole
}
