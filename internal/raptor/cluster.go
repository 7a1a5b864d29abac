package raptor

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Clusters groups unordered items by similarity. Item.Name identifies an item, even
// when its text changes. Some items are centres, chosen by name and seed; the
// others go to their nearest centre. A group that is too large is split the same
// way, a group of one item is merged into another. So adding, removing or changing
// an item moves few others, and the same items form the same groups in any order.
// Groups respect MaxTokens and MaxChildren; each lists its items by name, and
// groups are ordered by the name of their first item.
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
	// A power of two, so that it changes when a dataset doubles and not every day.
	size := max(1<<(bits.Len(uint(max(fit/2, 2)))-1), int(math.Ceil(1/c.Ratio)))
	g := grouping{items: items, seed: seed, c: c}
	return g.merge(g.split(all, size, 0))
}

type grouping struct {
	items []Item
	seed  int64
	c     Config
}

// fits reports whether a group is within the limits. A single item always is.
func (g *grouping) fits(group []int) bool {
	tokens := 0
	for _, i := range group {
		tokens += g.items[i].Tokens
	}
	return len(group) < 2 || len(group) <= g.c.MaxChildren && tokens <= g.c.MaxTokens
}

// hash orders items independently of their text.
func (g *grouping) hash(i, depth int) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, uint64(g.seed))
	b = binary.LittleEndian.AppendUint64(b, uint64(depth))
	return xxhash.Sum64(append(b, g.items[i].Name...))
}

// maxDepth limits how often an oversized group is split by similarity.
const maxDepth = 8

// split divides items into groups that fit, of about size items each.
func (g *grouping) split(items []int, size, depth int) [][]int {
	if g.fits(items) && (depth > 0 || len(items) <= size) {
		return [][]int{items}
	}
	if depth == maxDepth { // they are all similar
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

// nearest returns the index of the centre most similar to a vector, the first by
// name if tied.
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

// merge adds single items to the most similar group with room. Otherwise they stay
// alone.
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
	if len(left) > 0 { // no group has room for them
		whole = append(whole, g.pack(left)...)
	}
	for _, group := range whole {
		slices.SortFunc(group, func(a, b int) int { return cmp.Compare(g.items[a].Name, g.items[b].Name) })
	}
	slices.SortFunc(whole, func(a, b []int) int { return cmp.Compare(g.items[a[0]].Name, g.items[b[0]].Name) })
	return whole
}
