// Package graph makes a graph of the entities that a dataset's chunks name and
// of how they stand together. It is pure: chunks go in as contributions, one a
// chunk, and a Graph comes out that says of each entity, relation and community
// which chunks support it. Package graphs feeds it with live chunks and answers
// searches from it.
package graph

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"sheaf"
)

// Options bound and prune a graph. What is 0 is as in Defaults.
type Options struct {
	MaxEntities  int     // the least supported beyond are dropped
	MaxRelations int     // so are these
	MinCount     int     // sentences that name an entity, at least
	WeakestShare float64 // of the relations, left out; negative for none
	Seed         uint64  // of the communities
}

// Defaults are those of a graph by co-occurrence.
var Defaults = Options{MaxEntities: 50_000, MaxRelations: 200_000, MinCount: 2, WeakestShare: 0.4}

// Source is a chunk that supports something. It is cited by its pages and boxes.
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

// Entity is something that chunks name.
type Entity struct {
	Key       string // normalised name: unique in a graph
	Name      string // as most sentences write it
	Type      string
	Count     int     // sentences that name it
	Degree    int     // relations it has
	Rank      float64 // PageRank: of all entities together 1
	Community int32   // the finest it belongs to, in Communities; -1 for a hub, which belongs to none
	Chunks    []int32 // that name it, in Sources
}

// Relation is two entities that stand in the same sentences.
type Relation struct {
	A, B   int32 // in Entities, A < B
	Count  int   // sentences that hold both
	Weight float64
	Chunks []int32 // with such a sentence, in Sources
}

// Community is a group of entities that stand closer to each other than to
// others. Those of level 0 are the finest; Parent holds it at the next level.
type Community struct {
	Level    int
	Parent   int32 // in Communities; -1 at the coarsest level
	Title    string
	Entities []int32 // members, best first
	Weight   float64 // of the relations inside
}

// Union is an entity that was taken as another.
type Union struct {
	Key    string // that is no entity any more
	Into   string // the key of the one that is
	Reason string // plural or acronym
}

// Graph is immutable. Its entities are ordered by rank, best first, its
// relations by weight.
type Graph struct {
	Sources     []Source
	Entities    []Entity
	Relations   []Relation
	Communities []Community // the finest first
	Unions      []Union
	// Entities and relations that were dropped since there are more than the
	// bounds allow. What pruning leaves out does not count.
	DroppedEntities, DroppedRelations int

	byKey map[string]int32
	words map[string][]int32 // entities whose key has the word
	near  [][]int32          // relations of each entity, heaviest first
}

// tally counts what the chunks say of one key.
type tally struct {
	count  int
	names  map[string]int
	types  map[string]int
	chunks []int32
}

// Build makes the graph of the contributions. It depends on what they are, not
// on their order: a graph after any additions and removals is the graph of what
// is left.
func Build(all []Contribution, o Options) *Graph {
	o = o.withDefaults()
	all = slices.SortedFunc(slices.Values(all), func(a, b Contribution) int {
		return cmp.Or(strings.Compare(a.Source.DocumentID, b.Source.DocumentID), strings.Compare(a.Source.RangeID, b.Source.RangeID), strings.Compare(a.Source.ChunkID, b.Source.ChunkID))
	})
	g := &Graph{byKey: map[string]int32{}, words: map[string][]int32{}}
	g.Sources = make([]Source, len(all))
	for i := range all {
		g.Sources[i] = all[i].Source
	}
	into := g.resolve(all)
	g.entities(all, into, o)
	g.relations(all, into, o)
	g.prune(o)
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

// entities counts what is named and keeps what is named often enough: the rest
// is seen once, or only at the beginning of sentences, where every word has a
// capital.
func (g *Graph) entities(all []Contribution, into map[string]string, o Options) {
	counts := map[string]int{}
	strong := map[string]bool{}
	for i := range all {
		for _, m := range all[i].Extraction.Mentions {
			k := resolved(into, m.Key.Value())
			counts[k] += m.Count
			strong[k] = strong[k] || !m.Weak
		}
	}
	keys := make([]string, 0, len(counts)/4)
	for k, n := range counts {
		if n >= o.MinCount && strong[k] {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	if len(keys) > o.MaxEntities {
		g.DroppedEntities = len(keys) - o.MaxEntities
		keys = keys[:o.MaxEntities]
	}
	tallies := make([]tally, len(keys))
	for i, k := range keys {
		g.byKey[k] = int32(i)
		tallies[i] = tally{names: map[string]int{}, types: map[string]int{}}
	}
	for i := range all {
		for _, m := range all[i].Extraction.Mentions {
			key := m.Key.Value()
			k := resolved(into, key)
			at, kept := g.byKey[k]
			if !kept {
				continue
			}
			t := &tallies[at]
			t.count += m.Count
			if k == key {
				t.names[m.Name.Value()] += m.Count
			}
			t.types[m.Type] += m.Count
			if n := len(t.chunks); n == 0 || t.chunks[n-1] != int32(i) {
				t.chunks = append(t.chunks, int32(i))
			}
		}
	}
	g.Entities = make([]Entity, len(keys))
	for i, k := range keys {
		t := &tallies[i]
		g.Entities[i] = Entity{Key: k, Name: cmp.Or(most(t.names), k), Type: most(t.types), Count: t.count, Community: -1, Chunks: slices.Clip(t.chunks)}
	}
}

// most is the key of the highest count; of equal ones the first by name.
func most(counts map[string]int) string {
	best, n := "", 0
	for k, c := range counts {
		if c > n || c == n && k < best {
			best, n = k, c
		}
	}
	return best
}

// relations weighs the pairs that stand together by their share of mutual
// information: how often they do, times how much more often than by chance.
func (g *Graph) relations(all []Contribution, into map[string]string, o Options) {
	type pair struct {
		a, b, chunk int32
		count       int32
	}
	var pairs []pair
	sentences := 0
	for i := range all {
		x := &all[i].Extraction
		sentences += x.Sentences
		for _, l := range x.Links {
			a, okA := g.byKey[resolved(into, x.Mentions[l.A].Key.Value())]
			b, okB := g.byKey[resolved(into, x.Mentions[l.B].Key.Value())]
			if okA && okB && a != b {
				pairs = append(pairs, pair{min(a, b), max(a, b), int32(i), int32(l.Count)})
			}
		}
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.chunk, y.chunk))
	})
	for i := 0; i < len(pairs); {
		r := Relation{A: pairs[i].a, B: pairs[i].b}
		for ; i < len(pairs) && pairs[i].a == r.A && pairs[i].b == r.B; i++ {
			r.Count += int(pairs[i].count)
			if n := len(r.Chunks); n == 0 || r.Chunks[n-1] != pairs[i].chunk {
				r.Chunks = append(r.Chunks, pairs[i].chunk)
			}
		}
		chance := float64(g.Entities[r.A].Count) * float64(g.Entities[r.B].Count) / float64(max(sentences, 1))
		if r.Weight = float64(r.Count) * math.Log2(1+float64(r.Count)/chance); r.Weight > 0 {
			g.Relations = append(g.Relations, r)
		}
	}
	slices.SortStableFunc(g.Relations, func(x, y Relation) int { return cmp.Compare(y.Weight, x.Weight) })
	if len(g.Relations) > o.MaxRelations {
		g.DroppedRelations = len(g.Relations) - o.MaxRelations
		g.Relations = slices.Clone(g.Relations[:o.MaxRelations])
	}
}

// hubShare of all entities, in a graph of at least hubLeast, is how many
// neighbours make an entity a hub: what everything stands beside, such as the
// company whose documents these are, tells no two subjects apart.
const (
	hubShare = 0.4
	hubLeast = 50
)

// pruneLeast relations are in a graph whose weakest are left out: of a few, each
// may matter.
const pruneLeast = 100

// prune leaves out the weakest relations, and then the entities without any.
func (g *Graph) prune(o Options) {
	if n := int(float64(len(g.Relations)) * o.WeakestShare); len(g.Relations) >= pruneLeast && n > 0 {
		// Those that weigh as much as the lightest that stays, stay too.
		least := g.Relations[len(g.Relations)-n-1].Weight
		keep := len(g.Relations) - n
		for keep < len(g.Relations) && g.Relations[keep].Weight == least {
			keep++
		}
		g.Relations = slices.Clone(g.Relations[:keep])
	}
	for _, r := range g.Relations {
		g.Entities[r.A].Degree++
		g.Entities[r.B].Degree++
	}
	g.keep(func(e *Entity) bool { return e.Degree > 0 })
}

// keep leaves out the entities that ok is false for. None of them may have a
// relation.
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

// rank computes the PageRank of the entities and orders them by it.
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
	// Relations of equal weight are in an order that follows from the entities.
	slices.SortFunc(g.Relations, func(x, y Relation) int {
		return cmp.Or(cmp.Compare(y.Weight, x.Weight), cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B))
	})
}

// hubs reports which entities stand beside so many that they tell no two
// subjects apart.
func (g *Graph) hubs() []bool {
	hubs := make([]bool, len(g.Entities))
	if len(g.Entities) >= hubLeast {
		for i := range g.Entities {
			hubs[i] = float64(g.Entities[i].Degree) >= hubShare*float64(len(g.Entities))
		}
	}
	return hubs
}

// index prepares what answers are made from.
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
	g.near = make([][]int32, len(g.Entities))
	for i, r := range g.Relations { // heaviest first
		g.near[r.A] = append(g.near[r.A], int32(i))
		g.near[r.B] = append(g.near[r.B], int32(i))
	}
}
