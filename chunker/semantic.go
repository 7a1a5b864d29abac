package chunker

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"sheaf"
)

// Breakpoints of method semantic, after G. Kamradt, "5 Levels of Text Splitting"
// (2024): sentences are embedded with a neighbour on either side, and the text is
// cut where the distance between them is among the largest.
const (
	breakPercentile = 95
	// maxSemantic limits the sentences embedded per range.
	maxSemantic = 20_000
)

// breakpoints makes hard borders of the places where the meaning changes.
func breakpoints(in Input, segments []segment, limit int) error {
	if in.Embed == nil {
		return sheaf.Fail(sheaf.CategoryPolicy, "no_embedder", "The chunk method semantic needs an embedding model; configure one or use general.")
	}
	var texts []string
	var at []int // indexes of segments that may end a chunk
	for i := 0; i+1 < len(segments); i++ {
		if len(at) == maxSemantic {
			break
		}
		if b := segments[i].after; b == borderHard || b == borderGlue || segments[i].frame != nil || segments[i].block.Table != nil {
			continue
		}
		at = append(at, i)
		texts = append(texts, joined(segments, i-1, i), joined(segments, i+1, i+2))
	}
	if len(at) < 3 {
		return nil // no distribution to be an outlier of
	}
	vectors, err := in.Embed(texts)
	if err != nil {
		return err
	}
	distances := make([]float64, len(at))
	for k := range at {
		distances[k] = 1 - cosine(vectors[2*k], vectors[2*k+1])
	}
	sorted := slices.Clone(distances)
	slices.Sort(sorted)
	threshold := sorted[min(len(sorted)-1, len(sorted)*breakPercentile/100)]
	tokens, next := 0, 0
	for i := range segments {
		tokens += segments[i].tokens
		if next < len(at) && at[next] == i {
			// not before a chunk has reached some size: a cut there means little
			if distances[next] >= threshold && tokens >= limit/8 {
				segments[i].after = borderHard
			}
			next++
		}
		if segments[i].after == borderHard {
			tokens = 0
		}
	}
	return nil
}

// joined joins segments [from, to] as far as they exist.
func joined(segments []segment, from, to int) string {
	var parts []string
	for i := max(from, 0); i <= min(to, len(segments)-1); i++ {
		parts = append(parts, segments[i].text)
	}
	return strings.Join(parts, " ")
}

func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range min(len(a), len(b)) {
		dot += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 1 // one of them is zero: no reason to cut
	}
	return dot / math.Sqrt(aa*bb)
}

// parentFactor is how many chunks fit in a parent of method hierarchical.
const parentFactor = 4

// hierarchy packs a stretch into parents, cuts each into chunks that carry their
// parent, and adds a summary if the stretch has more than one chunk.
func hierarchy(stretch []segment, set options) []sheaf.Chunk {
	var out []sheaf.Chunk
	big := set
	big.limit = min(set.limit*parentFactor, maxTokens)
	for from := 0; from < len(stretch) && !set.watch.over(0); {
		to := cut(stretch, from, big.limit)
		parent := render(stretch[from:to])
		chunks := pack(stretch[from:to], set)
		if len(chunks) > 1 {
			for i := range chunks {
				chunks[i].Role, chunks[i].Parent = sheaf.RoleChild, parent
			}
		}
		out = append(out, chunks...)
		from = to
	}
	if len(out) > 1 {
		if s := summarise(stretch, set); s != nil {
			out = append(out, *s)
		}
	}
	return out
}

// summarise picks the sentences nearest to the centre of the stretch, by the words
// it repeats (SumBasic, Nenkova and Vanderwende 2005), in document order.
func summarise(stretch []segment, set options) *sheaf.Chunk {
	type sentence struct {
		segment int
		score   float64
		words   []string
	}
	frequency := map[string]float64{}
	total := 0.0
	var all []sentence
	for i := range stretch {
		p := &stretch[i]
		if set.watch.over(len(p.text)) {
			return nil
		}
		if p.frame != nil || p.block.Table != nil || p.block.Kind == sheaf.BlockHeading || p.bare > set.limit/3 {
			continue
		}
		words := significant(p.text)
		if len(words) < 3 {
			continue
		}
		for _, w := range words {
			frequency[w]++
			total++
		}
		all = append(all, sentence{segment: i, words: words})
	}
	if len(all) < 2 {
		return nil
	}
	var picked []segment
	var order []int
	tokens := 0
	for tokens < set.limit/2 {
		// What does not fit now never will. Otherwise a stretch of many sentences
		// would be scored once per sentence.
		if all = slices.DeleteFunc(all, func(s sentence) bool { return tokens+stretch[s.segment].tokens+1 > set.limit/2 }); len(all) == 0 {
			break
		}
		for k := range all {
			if set.watch.over(len(all[k].words)) {
				return nil
			}
			sum := 0.0
			for _, w := range all[k].words {
				sum += frequency[w] / total
			}
			all[k].score = sum / float64(len(all[k].words))
		}
		k := 0
		for i := range all {
			if all[i].score > all[k].score {
				k = i
			}
		}
		best := all[k]
		all = slices.Delete(all, k, k+1)
		tokens += stretch[best.segment].tokens + 1
		order = append(order, best.segment)
		for _, w := range best.words { // saying it once is enough
			frequency[w] *= frequency[w] / total
		}
	}
	slices.SortFunc(order, cmp.Compare)
	for _, i := range order {
		p := stretch[i]
		p.sep = "\n"
		picked = append(picked, p)
	}
	if len(picked) == 0 {
		return nil
	}
	c := describe(picked, picked, set)
	c.Text, c.Role = render(picked), sheaf.RoleSummary
	c.Tokens = CountTokens(c.Text)
	if c.Tokens > set.limit {
		return nil
	}
	return &c
}

// significant lists the words of more than three letters, in lower case, and each
// character of scripts written without spaces.
func significant(text string) []string {
	var out []string
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len([]rune(w)) > 3 || len(w) > 4 {
			out = append(out, w)
		}
	}
	return out
}
