// Package graph builds a graph of the entities that a dataset's chunks name and of
// their co-occurrence. It is pure: its input is one contribution per chunk, and the
// resulting Graph lists for each entity, relation and community the chunks that
// support it. Package graphs feeds it with live chunks and answers searches from it.
package graph

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
	"unique"

	"sheaf"
)

// Options limit and prune a graph. Zero fields take their value from Defaults.
type Options struct {
	MaxEntities  int     // the least supported beyond that are dropped
	MaxRelations int     // likewise
	MinCount     int     // minimum number of sentences that name an entity
	WeakestShare float64 // share of the relations to omit; negative for none
	Seed         uint64  // of the communities
	Splits       *Splits // names kept apart, the same as when the contributions were read
	Same         []Same  // entities that a run found to be identical to others
}

// Defaults are those of a co-occurrence graph.
var Defaults = Options{MaxEntities: 50_000, MaxRelations: 200_000, MinCount: 2, WeakestShare: 0.4}

// Source is a chunk that supports an element of the graph. It is cited by its pages
// and boxes.
type Source struct {
	DocumentID string
	RangeID    string
	ChunkID    string
	Pages      []int
	Boxes      []sheaf.Box
}

// Contribution is what one chunk adds to a graph.
type Contribution struct {
	Source     Source
	Extraction Extraction
}

// Entity is something named by chunks.
type Entity struct {
	Key       string // normalised name: unique in a graph
	Name      string // its most frequent spelling
	Type      string
	Count     int     // sentences that name it
	Degree    int     // relations it has
	Rank      float64 // PageRank: the sum over all entities is 1
	Community int32   // the finest it belongs to, in Communities; -1 for a hub, which has none
	Chunks    []int32 // that name it, in Sources
	About     []About // in a model's words, in the order of the chunks
	Told      bool    // a model named it
	Names     []Named // if chunks name it in several ways, these, its own key's first
}

// Relation is two entities that occur in the same sentences.
type Relation struct {
	A, B   int32 // in Entities, A < B
	Count  int   // sentences that contain both
	Weight float64
	Chunks []int32 // with such a sentence, in Sources
	About  []About // in a model's words, in the order of the chunks
}

// Community is a group of entities more closely related to each other than to
// others. Those of level 0 are the finest; Parent contains it at the next level.
type Community struct {
	Level    int
	Parent   int32 // in Communities; -1 at the coarsest level
	Title    string
	Entities []int32 // members, best first
	Weight   float64 // of the relations inside it
}

// Union is an entity that was merged into another.
type Union struct {
	Key    string // of the entity that no longer exists
	Into   string // the key of the remaining entity
	Reason string // plural or acronym, or that of a Same
}

// Graph is immutable. Its entities are ordered by rank, best first, its relations
// by weight.
type Graph struct {
	Sources     []Source
	Entities    []Entity
	Relations   []Relation
	Communities []Community // finest first
	Unions      []Union
	// Entities and relations dropped because they exceed the limits. Pruned ones
	// are not counted.
	DroppedEntities, DroppedRelations int

	splits *Splits
	byKey  map[string]int32
	words  map[string][]int32 // entities whose key contains the word
	near   [][]int32          // relations of each entity, heaviest first
}

// Build builds the graph of the contributions. It depends on their content, not on
// their order: after any additions and removals the graph equals that of the
// remaining contributions.
func Build(all []Contribution, o Options) *Graph {
	o = o.withDefaults()
	all = slices.SortedFunc(slices.Values(all), func(a, b Contribution) int {
		return cmp.Or(strings.Compare(a.Source.DocumentID, b.Source.DocumentID), strings.Compare(a.Source.RangeID, b.Source.RangeID), strings.Compare(a.Source.ChunkID, b.Source.ChunkID))
	})
	g := &Graph{splits: o.Splits, byKey: map[string]int32{}, words: map[string][]int32{}}
	g.Sources = make([]Source, len(all))
	for i := range all {
		g.Sources[i] = all[i].Source
	}
	f := newFold(all)
	g.Unions = f.same(o.Same, o.Splits, f.resolve(o.Splits))
	entityOf := g.entities(f, o)
	g.relations(f, entityOf, o)
	g.tell(f, entityOf)
	g.prune()
	g.rank()
	g.communities(g.hubs(), o.Seed)
	g.index()
	return g
}

func (o Options) withDefaults() Options {
	o.MaxEntities = cmp.Or(o.MaxEntities, Defaults.MaxEntities)
	o.MaxRelations = cmp.Or(o.MaxRelations, Defaults.MaxRelations)
	o.MinCount = cmp.Or(o.MinCount, Defaults.MinCount)
	o.WeakestShare = max(0, cmp.Or(o.WeakestShare, Defaults.WeakestShare))
	return o
}

// fold is the contributions with numbered keys. Most keys need only the number,
// since most occur once.
type fold struct {
	all    []Contribution
	number map[unique.Handle[string]]int32
	keys   []unique.Handle[string] // by number
	count  []int32                 // sentences that name the key, by number
	into   []int32                 // the key it is merged into, by number; itself for most
	begin  []int                   // of each contribution, in of
	of     []int32                 // numbers of all mentions
}

func newFold(all []Contribution) *fold {
	mentions := 0
	for i := range all {
		mentions += len(all[i].Extraction.Mentions)
	}
	f := &fold{all: all, number: map[unique.Handle[string]]int32{}, begin: make([]int, len(all)), of: make([]int32, 0, mentions)}
	for i := range all {
		f.begin[i] = len(f.of)
		for _, m := range all[i].Extraction.Mentions {
			n, known := f.number[m.Key]
			if !known {
				n = int32(len(f.keys))
				f.number[m.Key] = n
				f.keys, f.count = append(f.keys, m.Key), append(f.count, 0)
			}
			f.count[n] += m.Count
			f.of = append(f.of, n)
		}
	}
	f.into = make([]int32, len(f.keys))
	for n := range f.into {
		f.into[n] = int32(n)
	}
	return f
}

// mentions returns the numbers of the keys that a contribution names.
func (f *fold) mentions(i int) []int32 {
	return f.of[f.begin[i] : f.begin[i]+len(f.all[i].Extraction.Mentions)]
}

// tally counts the chunks' statements about one entity.
type tally struct {
	names  []nameCount // usually one to three
	types  [types]int32
	told   []nameCount // types named by a model
	chunks int         // that name it
	last   int32       // the chunk counted last
}

type nameCount struct {
	name  unique.Handle[string]
	count int32
}

// entities counts mentions and keeps the entities named often enough: the rest
// occur once, or only at the beginning of sentences, where every word is
// capitalized. It returns the entity of each key, -1 for none.
func (g *Graph) entities(f *fold, o Options) []int32 {
	counts, strong, told := make([]int32, len(f.keys)), make([]bool, len(f.keys)), make([]bool, len(f.keys))
	for i := range f.all {
		for k, n := range f.mentions(i) {
			m := &f.all[i].Extraction.Mentions[k]
			counts[f.into[n]] += m.Count
			strong[f.into[n]] = strong[f.into[n]] || !m.Weak
			told[f.into[n]] = told[f.into[n]] || f.all[i].Extraction.Told != nil
		}
	}
	var kept []int32 // keys
	for n, c := range counts {
		// What was split is kept, even if each part is rare.
		if int(c) >= o.MinCount && strong[n] || told[n] || c > 0 && o.Splits.holds(f.keys[n].Value()) {
			kept = append(kept, int32(n))
		}
	}
	slices.SortFunc(kept, func(a, b int32) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(f.keys[a].Value(), f.keys[b].Value()))
	})
	if len(kept) > o.MaxEntities {
		g.DroppedEntities = len(kept) - o.MaxEntities
		kept = kept[:o.MaxEntities]
	}
	entityOf := make([]int32, len(f.keys))
	for n := range entityOf {
		entityOf[n] = -1
	}
	for e, n := range kept {
		entityOf[n] = int32(e)
	}
	several := make([]bool, len(kept))
	for n, k := range f.into {
		if entityOf[n] = entityOf[k]; entityOf[n] >= 0 && k != int32(n) {
			several[entityOf[n]] = true
		}
	}
	tallies := make([]tally, len(kept))
	for e := range tallies {
		tallies[e].last = -1
	}
	for i := range f.all {
		for k, n := range f.mentions(i) {
			e := entityOf[n]
			if e < 0 {
				continue
			}
			t, m := &tallies[e], &f.all[i].Extraction.Mentions[k]
			if f.into[n] == n {
				t.add(m.Name, m.Count)
			}
			if said := f.all[i].Extraction.Told; said == nil {
				t.types[m.Type] += m.Count
			} else if said.Types[k] != "" {
				t.told = tallied(t.told, unique.Make(said.Types[k]), m.Count)
			}
			if t.last != int32(i) {
				t.chunks, t.last = t.chunks+1, int32(i)
			}
		}
	}
	g.Entities = make([]Entity, len(kept))
	for e, n := range kept {
		t := &tallies[e]
		key := f.keys[n].Value()
		several[e] = several[e] || len(t.names) > 1
		g.Entities[e] = Entity{Key: key, Name: cmp.Or(t.name(), key), Type: t.kind(), Count: int(counts[n]), Community: -1, Chunks: make([]int32, 0, t.chunks)}
	}
	for i := range f.all {
		for _, n := range f.mentions(i) {
			if e := entityOf[n]; e >= 0 {
				to := &g.Entities[e].Chunks
				if c := len(*to); c == 0 || (*to)[c-1] != int32(i) {
					*to = append(*to, int32(i))
				}
			}
		}
	}
	g.named(f, entityOf, several)
	return entityOf
}

func (t *tally) add(name unique.Handle[string], count int32) {
	t.names = tallied(t.names, name, count)
}

// tallied adds to a name's count.
func tallied(all []nameCount, name unique.Handle[string], count int32) []nameCount {
	for i := range all {
		if all[i].name == name {
			all[i].count += count
			return all
		}
	}
	if len(all) < maxNames {
		all = append(all, nameCount{name, count})
	}
	return all
}

// maxNames limits the spellings counted per entity: the first ones, in the order of
// the chunks.
const maxNames = 64

// name returns the most frequent spelling; the first by name if tied.
func (t *tally) name() string { return most(t.names) }

// most returns the name with the highest count; the first if tied.
func most(names []nameCount) string {
	best, count := "", int32(0)
	for _, n := range names {
		if v := n.name.Value(); n.count > count || n.count == count && v < best {
			best, count = v, n.count
		}
	}
	return best
}

// kind returns the type most chunks assign in a model's words, otherwise most
// sentences; the first by name if tied.
func (t *tally) kind() string {
	if said := most(t.told); said != "" {
		return said
	}
	best := TypeName
	for k := range types {
		if n := t.types[k]; n > t.types[best] || n == t.types[best] && n > 0 && k.String() < best.String() {
			best = k
		}
	}
	return best.String()
}

// pairs are the links between entities, grouped by entity. Each field is a separate
// slice, since there are tens of millions.
type pairs struct {
	to    []int32 // the other entity, with a higher number
	chunk []int32
	count []uint16
}

func (p *pairs) Len() int { return len(p.to) }
func (p *pairs) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(p.to[i], p.to[j]), cmp.Compare(p.chunk[i], p.chunk[j])) < 0
}
func (p *pairs) Swap(i, j int) {
	p.to[i], p.to[j] = p.to[j], p.to[i]
	p.chunk[i], p.chunk[j] = p.chunk[j], p.chunk[i]
	p.count[i], p.count[j] = p.count[j], p.count[i]
}

// part returns the pairs from i to j, in place.
func (p *pairs) part(i, j int) *pairs { return &pairs{p.to[i:j], p.chunk[i:j], p.count[i:j]} }

// candidate is a relation before its chunks are collected.
type candidate struct {
	weight   float64
	a, b     int32
	count    int32
	from, to int // in pairs
}

// relations weighs co-occurring pairs by their share of mutual information: how
// often they co-occur, times how much more often than by chance. The lightest
// beyond the limit, and the weakest share of the rest, are omitted.
func (g *Graph) relations(f *fold, entityOf []int32, o Options) {
	each := func(do func(a, b, chunk int32, count uint16)) {
		for i := range f.all {
			of := f.mentions(i)
			for _, l := range f.all[i].Extraction.Links {
				if a, b := entityOf[of[l.A]], entityOf[of[l.B]]; a >= 0 && b >= 0 && a != b {
					do(min(a, b), max(a, b), int32(i), l.Count)
				}
			}
		}
	}
	// Counted first, then filled: a growing slice temporarily holds twice as much.
	next := make([]int, len(g.Entities)+1)
	each(func(a, _, _ int32, _ uint16) { next[a+1]++ })
	for a := range g.Entities {
		next[a+1] += next[a]
	}
	n := next[len(g.Entities)]
	all := &pairs{make([]int32, n), make([]int32, n), make([]uint16, n)}
	each(func(a, b, chunk int32, count uint16) {
		at := next[a]
		all.to[at], all.chunk[at], all.count[at] = b, chunk, count
		next[a]++ // becomes the end: where the next one begins
	})
	sentences := 0
	for i := range f.all {
		sentences += f.all[i].Extraction.Sentences
	}
	heavier := func(x, y candidate) int {
		return cmp.Or(cmp.Compare(y.weight, x.weight), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
	}
	var best []candidate
	found, begin := 0, 0
	for a := range g.Entities {
		end := next[a]
		sort.Sort(all.part(begin, end))
		for i := begin; i < end; {
			c := candidate{a: int32(a), b: all.to[i], from: i}
			for ; i < end && all.to[i] == c.b; i++ {
				c.count += int32(all.count[i])
			}
			c.to = i
			chance := float64(g.Entities[c.a].Count) * float64(g.Entities[c.b].Count) / float64(max(sentences, 1))
			if c.weight = float64(c.count) * math.Log2(1+float64(c.count)/chance); c.weight <= 0 {
				continue
			}
			found++
			if best = append(best, c); len(best) >= 2*o.MaxRelations+1024 {
				slices.SortFunc(best, heavier)
				best = best[:o.MaxRelations]
			}
		}
		begin = end
	}
	slices.SortFunc(best, heavier)
	best = best[:min(len(best), o.MaxRelations)]
	g.DroppedRelations = found - len(best)
	keep := strongest(best, o.WeakestShare)
	for _, c := range best[keep:] { // what a model stated is not accidental
		if slices.ContainsFunc(all.chunk[c.from:c.to], func(chunk int32) bool { return f.all[chunk].Extraction.Told != nil }) {
			best[keep] = c
			keep++
		}
	}
	best = best[:keep]
	g.Relations = make([]Relation, len(best))
	for i, c := range best {
		chunks := make([]int32, 0, c.to-c.from)
		for _, chunk := range all.chunk[c.from:c.to] {
			if n := len(chunks); n == 0 || chunks[n-1] != chunk {
				chunks = append(chunks, chunk)
			}
		}
		g.Relations[i] = Relation{A: c.a, B: c.b, Count: int(c.count), Weight: c.weight, Chunks: chunks}
	}
}

// pruneLeast is the minimum number of relations in a graph that is pruned: of a
// few, each may matter.
const pruneLeast = 100

// strongest returns how many relations, heaviest first, remain without the weakest
// share. Those as heavy as the lightest remaining one also remain.
func strongest(best []candidate, share float64) int {
	n := int(float64(len(best)) * share)
	if len(best) < pruneLeast || n == 0 {
		return len(best)
	}
	keep := len(best) - n
	for keep < len(best) && best[keep].weight == best[len(best)-n-1].weight {
		keep++
	}
	return keep
}

// hubShare of all entities, in a graph of at least hubLeast, is how many neighbours
// make an entity a hub: something related to everything, such as the company that
// owns the documents, does not distinguish subjects.
const (
	hubShare = 0.4
	hubLeast = 50
)

// prune removes the entities without relations, unless a model named them or a user
// split them.
func (g *Graph) prune() {
	for _, r := range g.Relations {
		g.Entities[r.A].Degree++
		g.Entities[r.B].Degree++
	}
	g.keep(func(e *Entity) bool { return e.Degree > 0 || e.Told || g.splits.holds(e.Key) })
}

// keep removes the entities for which ok is false. None of them may have a relation.
func (g *Graph) keep(ok func(*Entity) bool) {
	to := make([]int32, len(g.Entities))
	var kept []Entity
	for i := range g.Entities {
		if ok(&g.Entities[i]) {
			to[i] = int32(len(kept))
			kept = append(kept, g.Entities[i])
		}
	}
	g.Entities = kept
	for i := range g.Relations {
		r := &g.Relations[i]
		r.A, r.B = to[r.A], to[r.B]
	}
}

// rank computes the PageRank of the entities and sorts them by it.
func (g *Graph) rank() {
	ranks := PageRank(len(g.Entities), g.Relations)
	order := make([]int32, len(ranks))
	for i := range order {
		order[i] = int32(i)
		g.Entities[i].Rank = ranks[i]
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(ranks[b], ranks[a]), strings.Compare(g.Entities[a].Key, g.Entities[b].Key))
	})
	to := make([]int32, len(order))
	sorted := make([]Entity, len(order))
	for i, at := range order {
		to[at], sorted[i] = int32(i), g.Entities[at]
	}
	g.Entities = sorted
	for i := range g.Relations {
		r := &g.Relations[i]
		r.A, r.B = min(to[r.A], to[r.B]), max(to[r.A], to[r.B])
	}
	// Relations of equal weight are ordered by their entities.
	slices.SortFunc(g.Relations, func(x, y Relation) int {
		return cmp.Or(cmp.Compare(y.Weight, x.Weight), cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B))
	})
}

// hubs reports which entities have so many neighbours that they do not distinguish
// subjects.
func (g *Graph) hubs() []bool {
	hubs := make([]bool, len(g.Entities))
	if len(g.Entities) >= hubLeast {
		for i := range g.Entities {
			hubs[i] = float64(g.Entities[i].Degree) >= hubShare*float64(len(g.Entities))
		}
	}
	return hubs
}

// index prepares the lookups for answers.
func (g *Graph) index() {
	g.byKey = make(map[string]int32, len(g.Entities))
	for i := range g.Entities {
		g.byKey[g.Entities[i].Key] = int32(i)
		for _, w := range Words(g.Entities[i].Key) {
			if n := len(g.words[w]); n == 0 || g.words[w][n-1] != int32(i) {
				g.words[w] = append(g.words[w], int32(i))
			}
		}
	}
	for i := range g.Entities { // a name of which only split parts remain refers to the best of them
		key := g.Entities[i].Key
		if _, taken := g.byKey[strings.ToLower(key)]; !taken {
			g.byKey[strings.ToLower(key)] = int32(i)
		}
	}
	g.near = make([][]int32, len(g.Entities))
	for i := range g.Entities {
		g.near[i] = make([]int32, 0, g.Entities[i].Degree)
	}
	for i, r := range g.Relations { // heaviest first
		g.near[r.A] = append(g.near[r.A], int32(i))
		g.near[r.B] = append(g.near[r.B], int32(i))
	}
}

// Size returns the approximate memory of the graph, in bytes.
func (g *Graph) Size() int64 {
	n := 0
	for i := range g.Sources {
		s := &g.Sources[i]
		n += 96 + len(s.ChunkID) + 8*len(s.Pages) + 40*len(s.Boxes)
	}
	for i := range g.Entities {
		e := &g.Entities[i]
		n += 250 + 3*len(e.Key) + len(e.Name) + 4*len(e.Chunks) + aboutSize(e.About) // including its entries in the maps
		for k := range e.Names {
			n += 64 + 4*len(e.Names[k].Chunks) // the names are shared with the mentions
		}
	}
	for i := range g.Relations {
		n += 90 + 4*len(g.Relations[i].Chunks) + aboutSize(g.Relations[i].About)
	}
	for i := range g.Communities {
		n += 80 + len(g.Communities[i].Title) + 4*len(g.Communities[i].Entities)
	}
	return int64(n)
}

func aboutSize(all []About) (n int) {
	for _, a := range all {
		n += 24 + len(a.Text)
	}
	return n
}
