// Package raptor builds a tree of summaries over the chunks of a document, as
// RAPTOR does (Sarthi et al., 2024), from contiguous segments of the reading order.
// It decides what belongs together and how nodes are named; the caller provides the
// summaries, by a language model or Extract. It is pure: the same chunks make the
// same tree, and a change to one chunk renames the nodes above it and few others.
package raptor

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// MaxLayers limits a tree's height, not counting the chunks.
const MaxLayers = 10

// Config limits segments. See each field for the meaning of zero.
type Config struct {
	MaxTokens   int     // total of a node's children, which a model must be able to read; 0 for 6,000
	MaxChildren int     // per node; 0 for 64
	Ratio       float64 // maximum of nodes of a layer ÷ nodes below it, as far as MaxTokens allows; 0 for 0.5
	// Threshold is a percentile of the similarities of neighbours, 0–1: away from
	// headings only less similar neighbours are separated, unless a limit requires
	// it. 0 for no such rule. The corresponding distance is rounded down to a half
	// power of two, so that it rarely changes.
	Threshold float64
	Salt      string // of names: what affects summaries besides their children, such as model and prompt
}

// Item is a chunk, or a node of the layer below.
type Item struct {
	Name    string    // identifies its content
	Tokens  int       // of its text, or of its summary
	Vector  []float32 // nil if there is none: it is similar to nothing
	Heading bool      // preceded by a heading: preferred place for a cut
}

// Segment is a contiguous part of a layer, [From, To).
type Segment struct{ From, To int }

// Len is the number of items.
func (s Segment) Len() int { return s.To - s.From }

// Segments cuts a layer where neighbours differ most and at headings. Segments
// cover all items in order. The position of a cut depends only on nearby items, so
// that a distant change does not move it. A segment respects MaxTokens and
// MaxChildren, unless a single item exceeds MaxTokens.
func Segments(items []Item, c Config) []Segment {
	c = c.withDefaults()
	if len(items) == 0 {
		return nil
	}
	cuts := priorities(items)
	least := int(math.Ceil(1 / c.Ratio)) // minimum items of a segment
	floor := scoreFloor(items, c.Threshold)
	var out []Segment
	from := 0
	for i := range cuts { // the cut after item i
		if i+1-from >= least && len(items)-i-1 >= least && cuts[i].score >= floor && highest(cuts, i, least-1) {
			out = append(out, within(items, cuts, Segment{from, i + 1}, least, c)...)
			from = i + 1
		}
	}
	return append(out, within(items, cuts, Segment{from, len(items)}, least, c)...)
}

// scoreFloor is the minimum score of a cut not required by a limit.
func scoreFloor(items []Item, threshold float64) float64 {
	if threshold <= 0 || threshold >= 1 || len(items) < 2 {
		return 0
	}
	alike := make([]float64, len(items)-1)
	for i := range alike {
		alike[i] = cosine(items[i].Vector, items[i+1].Vector)
	}
	slices.Sort(alike)
	apart := 1 - alike[int(threshold*float64(len(alike)-1))]
	if apart <= 0 {
		return 0
	}
	return math.Exp2(math.Floor(2*math.Log2(apart)) / 2)
}

func (c Config) withDefaults() Config {
	if c.MaxTokens <= 0 {
		c.MaxTokens = 6000
	}
	if c.MaxChildren < 2 {
		c.MaxChildren = 64
	}
	if c.Ratio <= 0 || c.Ratio > 0.5 {
		c.Ratio = 0.5
	}
	return c
}

// cut is how much favours a cut between two neighbours.
type cut struct {
	score float64
	tie   uint64 // by the identity of the neighbours, not their position
}

func (a cut) above(b cut) bool { return a.score > b.score || a.score == b.score && a.tie > b.tie }

// headingScore ranks a cut at a heading above one at any difference, which is at
// most 2.
const headingScore = 2

func priorities(items []Item) []cut {
	cuts := make([]cut, len(items)-1)
	for i := range cuts {
		a, b := items[i], items[i+1]
		cuts[i] = cut{1 - cosine(a.Vector, b.Vector), xxhash.Sum64String(a.Name + "\x00" + b.Name)}
		if b.Heading {
			cuts[i].score += headingScore
		}
	}
	return cuts
}

// highest reports whether cut i is above those up to w away on either side.
func highest(cuts []cut, i, w int) bool {
	for k := max(i-w, 0); k <= min(i+w, len(cuts)-1); k++ {
		if k != i && !cuts[i].above(cuts[k]) {
			return false
		}
	}
	return true
}

// within splits an oversized segment at its best places until all parts fit.
func within(items []Item, cuts []cut, s Segment, least int, c Config) []Segment {
	var out []Segment
	open := []Segment{s}
	for len(open) > 0 {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		tokens := 0
		for _, it := range items[s.From:s.To] {
			tokens += it.Tokens
		}
		if s.Len() < 2 || tokens <= c.MaxTokens && s.Len() <= c.MaxChildren {
			out = append(out, s)
			continue
		}
		margin := least
		if s.Len() < 2*least {
			margin = 1
		}
		best := s.From + margin - 1
		for i := best + 1; i <= s.To-margin-1; i++ {
			if cuts[i].above(cuts[best]) {
				best = i
			}
		}
		open = append(open, Segment{best + 1, s.To}, Segment{s.From, best + 1}) // the left one is next
	}
	return out
}

// Node is a summary to be created.
type Node struct {
	Name     string // of its children and Config.Salt, 32 hex: an existing one is not recreated
	Layer    int    // 1 is above the chunks
	Children []int  // in the layer below: of items for layer 1, otherwise of Tree[Layer-2]
}

// Layer makes the nodes above a layer of items. An item alone in its segment gets
// no node, since a summary would add nothing, and is returned in alone. Both are in
// the order of the items.
func Layer(items []Item, layer int, c Config) (nodes []Node, alone []int) {
	for _, s := range Segments(items, c) {
		if s.Len() == 1 {
			alone = append(alone, s.From)
			continue
		}
		n := Node{Layer: layer}
		h := xxhash.New()
		sized(h, c.Salt)
		for i := s.From; i < s.To; i++ {
			n.Children = append(n.Children, i)
			sized(h, items[i].Name)
		}
		first := h.Sum64()
		sized(h, "again")
		n.Name = fmt.Sprintf("%016x%016x", first, h.Sum64())
		nodes = append(nodes, n)
	}
	return nodes, alone
}

// sized writes a string with its length, so that two different lists never hash the
// same bytes.
func sized(h *xxhash.Digest, s string) {
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s)))) // a Digest never fails
	_, _ = h.WriteString(s)
}

// Mean is the common direction of vectors, nil if none has one. All have one length.
func Mean(vectors ...[]float32) []float32 {
	var sum []float64
	for _, v := range vectors {
		if sum == nil && len(v) > 0 {
			sum = make([]float64, len(v))
		}
		for i := range v {
			sum[i] += float64(v[i])
		}
	}
	norm := 0.0
	for _, x := range sum {
		norm += x * x
	}
	if norm == 0 {
		return nil
	}
	out := make([]float32, len(sum))
	for i, x := range sum {
		out[i] = float32(x / math.Sqrt(norm))
	}
	return out
}

// cosine is 0 if either has no vector.
func cosine(a, b []float32) float64 {
	if len(a) == 0 || len(a) != len(b) {
		return 0
	}
	var dot, na, nb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		dot, na, nb = dot+x*y, na+x*x, nb+y*y
	}
	if na == 0 || nb == 0 {
		return 0
	}
	return dot / math.Sqrt(na*nb)
}
