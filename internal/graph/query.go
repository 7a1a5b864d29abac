package graph

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Find returns the entity that a name refers to.
func (g *Graph) Find(name string) (int32, bool) {
	key := g.splits.Key(name)
	if i, ok := g.byKey[key]; ok {
		return i, true
	}
	for _, u := range g.Unions {
		if u.Key == key {
			i, ok := g.byKey[u.Into]
			return i, ok
		}
	}
	return 0, false
}

// Suggest names up to n entities that share a word or a prefix with an unknown
// name, best first.
func (g *Graph) Suggest(name string, n int) []string {
	scores := map[int32]float64{}
	words := Words(name)
	for _, w := range words {
		for _, e := range g.words[w] {
			scores[e]++
		}
	}
	if len(scores) == 0 {
		key := Key(name)
		begin := string([]rune(key)[:min(3, len([]rune(key)))])
		for i := range g.Entities {
			if begin != "" && strings.HasPrefix(g.Entities[i].Key, begin) {
				scores[int32(i)] = 1
			}
		}
	}
	var out []string
	for _, e := range byScore(scores) {
		if len(out) == n {
			break
		}
		out = append(out, g.Entities[e].Name)
	}
	return out
}

// Match lists up to n entities whose name contains a text: those that begin with it
// first, then by rank.
func (g *Graph) Match(text string, n int) (out []int32) {
	key := Key(text)
	if key == "" {
		return nil
	}
	var within []int32
	for i := range g.Entities {
		switch {
		case len(out) == n:
			return out
		case strings.HasPrefix(g.Entities[i].Key, key):
			out = append(out, int32(i))
		case len(within) < n && strings.Contains(g.Entities[i].Key, key):
			within = append(within, int32(i))
		}
	}
	return append(out, within[:min(len(within), n-len(out))]...)
}

// Part is some entities and the relations between them.
type Part struct {
	Entities  []int32
	Relations []int32
	More      bool // there are entities beyond the limit
}

// Around returns up to limit entities at most depth relations away from one,
// nearest and strongest first.
func (g *Graph) Around(entity int32, depth, limit int) Part {
	var p Part
	seen := map[int32]bool{entity: true}
	p.Entities = []int32{entity}
	front := []int32{entity}
	for ; depth > 0 && len(front) > 0; depth-- {
		strength := map[int32]float64{}
		for _, e := range front {
			for _, r := range g.near[e] {
				if to := g.other(r, e); !seen[to] {
					strength[to] += g.Relations[r].Weight
				}
			}
		}
		front = byScore(strength)
		if room := limit - len(p.Entities); len(front) > room {
			front, p.More = front[:max(room, 0)], true
		}
		for _, e := range front {
			seen[e] = true
		}
		p.Entities = append(p.Entities, front...)
	}
	p.Relations = g.among(seen)
	return p
}

// Top returns the limit highest-ranked entities.
func (g *Graph) Top(limit int) Part {
	p := Part{More: len(g.Entities) > limit}
	seen := map[int32]bool{}
	for i := range min(limit, len(g.Entities)) {
		p.Entities = append(p.Entities, int32(i))
		seen[int32(i)] = true
	}
	p.Relations = g.among(seen)
	return p
}

// among lists the relations between entities, heaviest first.
func (g *Graph) among(seen map[int32]bool) []int32 {
	var out []int32
	for e := range seen {
		for _, r := range g.near[e] {
			if to := g.other(r, e); seen[to] && e < to {
				out = append(out, r)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (g *Graph) other(relation, entity int32) int32 {
	r := &g.Relations[relation]
	if r.A == entity {
		return r.B
	}
	return r.A
}

// Limits of a search.
const (
	maxSeeds       = 10
	maxNeighbours  = 50  // per seed
	neighbourShare = 0.5 // the strongest neighbour gets at most this share of a seed's score
	maxAnswer      = 10  // entities, relations and communities per answer
	maxVotes       = 2000
)

// Scored is a number with its score.
type Scored struct {
	At    int32
	Score float64
}

// Answer is a graph's answer to a query, everything best first.
type Answer struct {
	Entities    []Scored // in Entities
	Relations   []int32  // in Relations
	Communities []int32  // in Communities
	Chunks      []Scored // in Sources
}

// seeds returns the entities that a query names: those with at least half of their
// words in it, weighted by the rarity of those words.
func (g *Graph) seeds(query string) map[int32]float64 {
	matched := map[int32]float64{}
	rarity := func(w string) float64 { return math.Log(1 + float64(len(g.Entities))/float64(1+len(g.words[w]))) }
	words := Words(query)
	slices.Sort(words)
	for _, w := range slices.Compact(words) {
		for _, form := range []string{w, singular(w), w + "s"} {
			if form == "" || len(g.words[form]) == 0 {
				continue
			}
			for _, e := range g.words[form] {
				matched[e] += rarity(form)
			}
			break
		}
	}
	if e, ok := g.Find(query); ok {
		matched[e] += 1
	}
	for e, got := range matched {
		whole := 0.0
		for _, w := range Words(g.Entities[e].Key) {
			whole += rarity(w)
		}
		share := min(1, got/max(whole, 1e-9))
		if share < 0.5 {
			delete(matched, e)
			continue
		}
		matched[e] = got * share
	}
	best := byScore(matched)
	for _, e := range best[min(len(best), maxSeeds):] {
		delete(matched, e)
	}
	return matched
}

// Local answers from the entities that a query names and their neighbours. The
// answer is empty if it names none.
func (g *Graph) Local(query string, limit int) Answer {
	var a Answer
	seeds := g.seeds(query)
	scores := map[int32]float64{}
	for _, e := range byScore(seeds) {
		scores[e] += seeds[e]
		near := g.near[e][:min(len(g.near[e]), maxNeighbours)]
		for _, r := range near {
			scores[g.other(r, e)] += seeds[e] * neighbourShare * g.Relations[r].Weight / g.Relations[near[0]].Weight
		}
	}
	votes := map[int32]float64{}
	seen := map[int32]bool{}
	for _, e := range byScore(scores)[:min(len(scores), 4*maxAnswer)] {
		seen[e] = true
		if len(a.Entities) < maxAnswer {
			a.Entities = append(a.Entities, Scored{e, scores[e]})
		}
		// An entity named by many chunks says little about each.
		vote := scores[e] / math.Log2(2+float64(len(g.Entities[e].Chunks)))
		for _, c := range g.Entities[e].Chunks[:min(len(g.Entities[e].Chunks), maxVotes)] {
			votes[c] += vote
		}
	}
	for _, r := range g.among(seen) {
		rel := &g.Relations[r]
		if seeds[rel.A] == 0 && seeds[rel.B] == 0 {
			continue
		}
		if len(a.Relations) < maxAnswer {
			a.Relations = append(a.Relations, r)
		}
		vote := (seeds[rel.A] + seeds[rel.B]) / 2 / math.Log2(2+float64(len(rel.Chunks)))
		for _, c := range rel.Chunks[:min(len(rel.Chunks), maxVotes)] {
			votes[c] += vote
		}
	}
	group := map[int32]float64{}
	for e, s := range seeds {
		if c := g.Entities[e].Community; c >= 0 {
			group[c] += s
		}
	}
	a.Communities = first(byScore(group), 3)
	a.Chunks = best(votes, limit)
	return a
}

// Global answers from communities: those whose members a query names, or if it
// names none, the highest-ranked ones, which show what a dataset is about. reported
// adds to the scores of communities the relevance of their reports, 0–1.
// Communities contribute chunks in turn.
func (g *Graph) Global(query string, reported map[int32]float64, limit int) Answer {
	var a Answer
	seeds := g.seeds(query)
	group := map[int32]float64{}
	for i := range g.Communities {
		c := &g.Communities[i]
		if c.Level > 0 || len(c.Entities) < 2 {
			continue
		}
		score := 0.0
		for _, e := range c.Entities {
			if len(seeds)+len(reported) == 0 {
				score += g.Entities[e].Rank
			} else {
				score += seeds[e] + 1e-6*g.Entities[e].Rank
			}
		}
		score += reported[int32(i)]
		if len(seeds)+len(reported) == 0 || score > 1e-6 {
			group[int32(i)] = score
		}
	}
	a.Communities = first(byScore(group), maxAnswer)
	var lists [][]Scored
	scores := map[int32]float64{}
	for _, i := range a.Communities {
		votes := map[int32]float64{}
		c := &g.Communities[i]
		for _, e := range c.Entities[:min(len(c.Entities), maxNeighbours)] {
			vote := g.Entities[e].Rank + seeds[e]
			scores[e] = vote
			for _, at := range g.Entities[e].Chunks[:min(len(g.Entities[e].Chunks), maxVotes)] {
				votes[at] += vote / math.Log2(2+float64(len(g.Entities[e].Chunks)))
			}
		}
		lists = append(lists, best(votes, limit))
	}
	a.Entities = best(scores, maxAnswer)
	taken := map[int32]bool{}
	for turn := 0; len(a.Chunks) < limit; turn++ {
		more := false
		for n, list := range lists {
			if turn >= len(list) {
				continue
			}
			more = true
			if c := list[turn]; !taken[c.At] && len(a.Chunks) < limit {
				taken[c.At] = true
				a.Chunks = append(a.Chunks, Scored{c.At, group[a.Communities[n]] / float64(1+turn)})
			}
		}
		if !more {
			break
		}
	}
	slices.SortStableFunc(a.Chunks, func(x, y Scored) int { return cmp.Compare(y.Score, x.Score) })
	return a
}

func first(all []int32, n int) []int32 { return all[:min(n, len(all))] }

// best returns the n highest scores.
func best(scores map[int32]float64, n int) []Scored {
	var out []Scored
	for _, at := range first(byScore(scores), n) {
		out = append(out, Scored{at, scores[at]})
	}
	return out
}
