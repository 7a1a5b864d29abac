package graph

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

const (
	damping    = 0.85
	rankRounds = 100
	rankLeast  = 1e-9 // sum of all changes below which the ranks have converged
)

// PageRank ranks n nodes by weighted relations in both directions (Page, Brin et
// al. 1999). The ranks add up to 1.
func PageRank(n int, relations []Relation) []float64 {
	if n == 0 {
		return nil
	}
	weight := make([]float64, n)
	for _, r := range relations {
		weight[r.A] += r.Weight
		weight[r.B] += r.Weight
	}
	ranks, next := make([]float64, n), make([]float64, n)
	for i := range ranks {
		ranks[i] = 1 / float64(n)
	}
	for range rankRounds {
		lost := 0.0 // from nodes without edges: shared by all
		for i := range ranks {
			if weight[i] == 0 {
				lost += ranks[i]
			}
		}
		base := (1-damping)/float64(n) + damping*lost/float64(n)
		for i := range next {
			next[i] = base
		}
		for _, r := range relations {
			next[r.B] += damping * ranks[r.A] * r.Weight / weight[r.A]
			next[r.A] += damping * ranks[r.B] * r.Weight / weight[r.B]
		}
		change := 0.0
		for i := range ranks {
			change += math.Abs(next[i] - ranks[i])
		}
		ranks, next = next, ranks
		if change < rankLeast {
			break
		}
	}
	return ranks
}

// edge is a weighted link to a neighbour.
type edge struct {
	to     int32
	weight float64
}

// maxRounds limits the passes of one level, maxLevels the levels.
const (
	maxRounds = 50
	maxLevels = 5
)

// Louvain groups n nodes to maximize modularity (Blondel et al. 2008). Each level
// lists the community of every node, the finest level first; communities are
// numbered from 0 in the order of their first node. No community spans two
// components.
//
// turns gives the order in which nodes are visited, lowest first, and has n
// elements: if derived from a node's identity rather than its index, adding or
// removing a node does not affect distant groups.
func Louvain(n int, relations []Relation, turns []uint64) [][]int32 {
	if n == 0 {
		return nil
	}
	adjacent := make([][]edge, n)
	self := make([]float64, n) // weight of self-loops, counted once
	total := 0.0
	for _, r := range relations {
		if r.A == r.B {
			self[r.A] += r.Weight
		} else {
			adjacent[r.A] = append(adjacent[r.A], edge{r.B, r.Weight})
			adjacent[r.B] = append(adjacent[r.B], edge{r.A, r.Weight})
		}
		total += r.Weight
	}
	var levels [][]int32
	group := make([]int32, n) // of each node, in the graph of this level
	for i := range group {
		group[i] = int32(i)
	}
	for range maxLevels {
		of := moveNodes(adjacent, self, total, turns)
		count := number(of)
		if count == len(adjacent) {
			break
		}
		level := make([]int32, n)
		for i := range level {
			level[i] = of[group[i]]
		}
		group = level
		levels = append(levels, level)
		adjacent, self = condense(adjacent, self, of, count)
		turns = turnsOf(turns, of, count)
	}
	if levels == nil {
		levels = [][]int32{group}
	}
	return levels
}

// turnsOf returns the turns of communities: the lowest of their nodes'.
func turnsOf(turns []uint64, of []int32, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = math.MaxUint64
	}
	for i, c := range of {
		out[c] = min(out[c], turns[i])
	}
	return out
}

// moveNodes moves each node to the neighbouring community with the highest gain,
// until no move gains.
func moveNodes(adjacent [][]edge, self []float64, total float64, turns []uint64) []int32 {
	n := len(adjacent)
	of := make([]int32, n)
	degree := make([]float64, n) // of each node
	sum := make([]float64, n)    // of degrees, of each community
	order := make([]int32, n)
	for i := range n {
		of[i], order[i] = int32(i), int32(i)
		degree[i] = 2 * self[i]
		for _, e := range adjacent[i] {
			degree[i] += e.weight
		}
		sum[i] = degree[i]
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(turns[a], turns[b]) })
	toward := make([]float64, n) // weight from the node to each community
	var beside []int32
	for range maxRounds {
		moved := false
		for _, i := range order {
			beside = beside[:0]
			for _, e := range adjacent[i] {
				c := of[e.to]
				if toward[c] == 0 {
					beside = append(beside, c)
				}
				toward[c] += e.weight
			}
			from := of[i]
			sum[from] -= degree[i]
			best, gain := from, toward[from]-sum[from]*degree[i]/(2*total)
			for _, c := range beside {
				if g := toward[c] - sum[c]*degree[i]/(2*total); g > gain+1e-12 {
					best, gain = c, g
				}
			}
			for _, c := range beside {
				toward[c] = 0
			}
			sum[best] += degree[i]
			if best != from {
				of[i], moved = best, true
			}
		}
		if !moved {
			break
		}
	}
	return of
}

// number renames communities from 0 in the order of their first node and
// returns how many there are.
func number(of []int32) int {
	to := make([]int32, len(of))
	n := int32(0)
	for i, c := range of {
		if to[c] == 0 {
			n++
			to[c] = n
		}
		of[i] = to[c] - 1
	}
	return int(n)
}

// condense turns each community into a node.
func condense(adjacent [][]edge, self []float64, of []int32, n int) ([][]edge, []float64) {
	members := make([][]int32, n)
	for i, c := range of {
		members[c] = append(members[c], int32(i))
	}
	out, inside := make([][]edge, n), make([]float64, n)
	weight := make([]float64, n)
	for c := range members {
		var beside []int32
		for _, i := range members[c] {
			inside[c] += self[i]
			for _, e := range adjacent[i] {
				to := of[e.to]
				if int(to) == c {
					inside[c] += e.weight / 2
					continue
				}
				if weight[to] == 0 {
					beside = append(beside, to)
				}
				weight[to] += e.weight
			}
		}
		slices.Sort(beside)
		for _, to := range beside {
			out[c] = append(out[c], edge{to, weight[to]})
			weight[to] = 0
		}
	}
	return out, inside
}

const titleNames = 3 // number of a community's best members in its title

// communities groups the entities that are not hubs.
func (g *Graph) communities(hubs []bool, seed uint64) {
	at := make([]int32, len(g.Entities))
	var members []int32
	for i, hub := range hubs {
		if at[i] = -1; !hub {
			at[i] = int32(len(members))
			members = append(members, int32(i))
		}
	}
	var relations []Relation
	for _, r := range g.Relations {
		if a, b := at[r.A], at[r.B]; a >= 0 && b >= 0 {
			relations = append(relations, Relation{A: a, B: b, Weight: r.Weight})
		}
	}
	first := 0 // of the previous level
	turns := make([]uint64, len(members))
	for i, e := range members {
		turns[i] = xxhash.Sum64String(strconv.FormatUint(seed, 10) + " " + g.Entities[e].Key)
	}
	for level, of := range Louvain(len(members), relations, turns) {
		begin := len(g.Communities)
		for i, c := range of {
			for int(c) >= len(g.Communities)-begin {
				g.Communities = append(g.Communities, Community{Level: level, Parent: -1})
			}
			e := members[i]
			here := int32(begin) + c
			g.Communities[here].Entities = append(g.Communities[here].Entities, e)
			if level == 0 {
				g.Entities[e].Community = here
			}
		}
		if level > 0 {
			for i := first; i < begin; i++ {
				e := g.Communities[i].Entities[0]
				g.Communities[i].Parent = int32(begin) + of[at[e]]
			}
		}
		for _, r := range relations {
			if of[r.A] == of[r.B] {
				g.Communities[begin+int(of[r.A])].Weight += r.Weight
			}
		}
		first = begin
	}
	for i := range g.Communities {
		c := &g.Communities[i]
		slices.Sort(c.Entities) // entities are ordered by rank
		var names []string
		for _, e := range c.Entities[:min(titleNames, len(c.Entities))] {
			names = append(names, g.Entities[e].Name)
		}
		c.Title = strings.Join(names, ", ")
	}
}

// Modularity returns the modularity of groups: how much more of the weight is
// inside them than by chance, -0.5 to 1.
func Modularity(n int, relations []Relation, of []int32) float64 {
	inside, sum, total := 0.0, make([]float64, n), 0.0
	for _, r := range relations {
		total += r.Weight
		sum[of[r.A]] += r.Weight
		sum[of[r.B]] += r.Weight
		if of[r.A] == of[r.B] {
			inside += r.Weight
		}
	}
	if total == 0 {
		return 0
	}
	q := inside / total
	for _, s := range sum {
		q -= (s / (2 * total)) * (s / (2 * total))
	}
	return q
}

// byScore sorts numbers by score, best first, ties by number.
func byScore(scores map[int32]float64) []int32 {
	out := make([]int32, 0, len(scores))
	for i := range scores {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b int32) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	return out
}
