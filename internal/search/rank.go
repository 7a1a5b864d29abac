package search

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"

	"sheaf"
	"sheaf/internal/index"
	"sheaf/taskstore"
)

// Candidates of a word query are reranked by what BM25 does not see: whether the
// words occur together, in headings, or on one page. Features range from 0 to 1 and
// their weights sum to one, so that the contribution of each to a score can be
// shown.

// feature is a ranking feature. Words are weighted by rarity.
type feature int

const (
	byText     feature = iota // BM25 over all fields, relative to the best
	byPage                    // the same over all candidates of the page
	byCoverage                // share of the query's words in text, headings and name
	byPairs                   // share of the query's adjacent words that occur together
	byHeadings                // share of the query's words in the headings
	byName                    // share of the query's words in the document's name and title
	byFigures                 // how much of the page is figures, if the query asks for some
	features   int     = iota
)

// featureNames are the names used in explanations.
var featureNames = [features]string{"text", "page", "coverage", "pairs", "headings", "name", "figures"}

// candidate is a chunk found by either side.
type candidate struct {
	index.Fused
	name  string // of the document
	x     [features]float64
	words float64 // weighted sum of x
	parts []Part  // of the score, if requested
}

// Part is the contribution of one feature to the score of a hit; the parts add up
// to the score.
type Part struct {
	Feature string  `json:"feature"`
	Value   float64 `json:"value"` // 0–1
	Score   float64 `json:"score"`
}

// queryWords matches the words of a query in texts.
type queryWords struct {
	count   int            // at most 64
	figures float64        // how far the query asks for figures, 0–1
	idf     [64]float64    // by word
	all     float64        // their sum
	id      map[string]int // of every spelling of every word
	wanted  index.FirstBytes
	buf     []byte
	extra   []byte
}

func newQueryWords(w index.Words, idf map[string]float64) *queryWords {
	q := &queryWords{id: make(map[string]int)}
	spell := func(term string, n int) {
		if _, ok := q.id[term]; !ok {
			q.id[term] = n
		}
	}
	for _, g := range w.Groups[:min(len(w.Groups), 64)] {
		for _, t := range g.Terms {
			spell(t, q.count)
			q.idf[q.count] = max(q.idf[q.count], idf[t])
		}
		q.count++
	}
	for n := range q.count {
		g := &w.Groups[n]
		for _, t := range g.Others {
			spell(t, n)
			if v, ok := idf[t]; ok { // as common as its most common spelling
				q.idf[n] = min(q.idf[n], v)
			}
		}
		if len(idf) == 0 {
			q.idf[n] = 1
		}
		q.idf[n] *= g.Weight()
		q.all += q.idf[n]
	}
	for term := range q.id {
		if term != "" {
			q.wanted[term[0]] = true
		}
	}
	for c := '0'; c <= '9'; c++ {
		q.wanted[c] = true // for figures
	}
	return q
}

// in returns the words that a text contains, and those preceded within three words
// by their neighbor in the query.
func (q *queryWords) in(text string, initials bool, times *[64]float32) (found, pairs uint64) {
	q.buf, q.extra = index.AppendWanted(q.buf[:0], q.extra[:0], text, initials, &q.wanted)
	last := [64]int{}
	position := 0
	for _, terms := range [...][]byte{q.buf, q.extra} {
		for len(terms) > 0 {
			position++
			if terms[0] == ' ' {
				terms = terms[1:]
				continue
			}
			end := bytes.IndexByte(terms, ' ')
			if n, ok := q.id[string(terms[:end])]; ok {
				found |= 1 << n
				times[n]++
				if n > 0 && last[n-1] > 0 && position-last[n-1] <= 3 {
					pairs |= 1 << n
				}
				last[n] = position
			}
			terms = terms[end+1:]
		}
		position += index.ValueGap
	}
	return found, pairs
}

// share is the share of words among the query's, weighted by rarity.
func (q *queryWords) share(words uint64) float64 {
	if q.all == 0 {
		return 0
	}
	sum := 0.0
	for ; words != 0; words &= words - 1 {
		sum += q.idf[bits.TrailingZeros64(words)]
	}
	return sum / q.all
}

// rankWeights are the weights of the features, chosen by hand near what
// `bench/answers -train` fits to generated questions. On annual reports anything
// from .16 to .32 works for figures; more hides text that mentions a number.
var rankWeights = [features]float64{byText: .30, byPage: .10, byCoverage: .15, byPairs: .10, byHeadings: .06, byName: .05, byFigures: .24}

type pageKey struct {
	document string
	page     int
}

func pageOf(c *sheaf.Chunk) pageKey {
	k := pageKey{document: c.DocumentID}
	if len(c.Pages) > 0 {
		k.page = c.Pages[0]
	}
	return k
}

// score computes the features of the candidates and their sum.
func (q *queryWords) score(all []candidate) {
	if q.count == 0 {
		return
	}
	best, tokens := 0.0, 0
	for i := range all {
		best = max(best, all[i].Text)
		tokens += all[i].Chunk.Tokens
	}
	average := float64(max(1, tokens)) / float64(max(1, len(all)))
	type page struct {
		words      [64]float64 // best value over the candidates, per word
		figures    float64     // sum over the candidates
		candidates float64
	}
	pages := make(map[pageKey]*page)
	for i := range all {
		c := &all[i]
		var inText, inHeadings, inName [64]float32
		text, pairs := q.in(c.Chunk.Text, false, &inText)
		if q.figures > 0 {
			c.x[byFigures] = q.figures * figures(q.buf)
		}
		context, _ := q.in(c.Chunk.Context, false, &inText)
		name, namePairs := q.in(c.name, true, &inName)
		headings := uint64(0)
		place := c.Chunk.Place(c.name)
		titles := len(place) - len(c.Chunk.HeadingPath)
		for n, h := range place {
			if n < titles {
				found, more := q.in(h, true, &inName)
				name |= found
				namePairs |= more
			} else {
				found, more := q.in(h, true, &inHeadings)
				headings |= found
				pairs |= more
			}
		}
		found := text | context | name | headings
		if best > 0 {
			c.x[byText] = c.Text / best
		}
		c.x[byCoverage] = q.share(found)
		c.x[byPairs] = q.share(pairs | namePairs)
		c.x[byHeadings] = q.share(headings)
		c.x[byName] = q.share(name)
		p := pages[pageOf(&c.Chunk)]
		if p == nil {
			p = &page{}
			pages[pageOf(&c.Chunk)] = p
		}
		p.figures += c.x[byFigures]
		p.candidates++
		length := float32(index.K1 * (1 - index.B + index.B*float64(c.Chunk.Tokens)/average))
		for words := found; words != 0; words &= words - 1 {
			n := bits.TrailingZeros64(words)
			score := index.Weights[index.FieldText]*float64(inText[n]/(inText[n]+length)) +
				index.Weights[index.FieldHeadings]*float64(inHeadings[n]/(inHeadings[n]+index.K1)) +
				index.Weights[index.FieldName]*float64(inName[n]/(inName[n]+index.K1))
			p.words[n] = max(p.words[n], score*q.idf[n])
		}
	}
	sums, most := make(map[pageKey]float64, len(pages)), 0.0
	for k, p := range pages {
		for _, v := range p.words {
			sums[k] += v
		}
		most = max(most, sums[k])
	}
	for i := range all {
		c := &all[i]
		if most > 0 {
			c.x[byPage] = sums[pageOf(&c.Chunk)] / most
		}
		if k := pageOf(&c.Chunk); k.page > 0 {
			c.x[byFigures] = pages[k].figures / pages[k].candidates
		}
		c.words = 0
		for f, x := range c.x {
			c.words += rankWeights[f] * x
		}
	}
}

// fuse ranks candidates by words and meaning, best first. Scores are relative to
// the best one, whose score is its confidence.
func fuse(all []candidate, f index.Fusion, explain bool) {
	byWords := func(c *candidate) float64 { return c.words }
	byMeaning := func(c *candidate) float64 { return max(0, c.Vector-f.Floor) }
	var words, meaning []float64 // contribution of each side
	if f.Weight < 0 {
		words, meaning = byRank(all, byWords), byRank(all, byMeaning)
	} else {
		words, meaning = byShare(all, byWords, 1-f.Weight), byShare(all, byMeaning, f.Weight)
	}
	top, sure := 0.0, 0.0
	for i := range all {
		c := &all[i]
		c.Score = words[i] + meaning[i]
		if c.Score > top {
			near := min(1, byMeaning(c)/(sureShare*(1-f.Floor)))
			top, sure = c.Score, max(c.x[byCoverage], near*near)
			if c.Text > 0 {
				sure = max(sure, similarSure)
			}
		}
	}
	if top == 0 {
		return
	}
	for i := range all {
		c := &all[i]
		c.Score *= sure / top
		if !explain {
			continue
		}
		for n, x := range c.x {
			if x > 0 && words[i] > 0 {
				c.parts = append(c.parts, Part{featureNames[n], x, words[i] * sure / top * rankWeights[n] * x / c.words})
			}
		}
		if meaning[i] > 0 {
			c.parts = append(c.parts, Part{"vector", max(0, c.Vector), meaning[i] * sure / top})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.Vector, a.Vector), cmp.Compare(b.Text, a.Text),
			cmp.Compare(a.Chunk.DocumentID, b.Chunk.DocumentID), cmp.Compare(a.Chunk.Ordinal, b.Chunk.Ordinal), cmp.Compare(a.Chunk.ID, b.Chunk.ID))
	})
}

// byShare scores candidates relative to the best of one side.
func byShare(all []candidate, of func(*candidate) float64, weight float64) []float64 {
	best, out := 0.0, make([]float64, len(all))
	for i := range all {
		out[i] = of(&all[i])
		best = max(best, out[i])
	}
	for i := range out {
		out[i] *= weight / max(best, 1e-9)
	}
	return out
}

// byRank scores the candidates that one side found by their rank.
func byRank(all []candidate, of func(*candidate) float64) []float64 {
	order, out := make([]int, len(all)), make([]float64, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of(&all[b]), of(&all[a])) })
	for place, i := range order {
		if of(&all[i]) > 0 {
			out[i] = index.ByRank(place) / 2
		}
	}
	return out
}

// similarSure is the minimum confidence of a hit with words similar to the query's.
const similarSure = 0.1

// sureShare is how far above the floor the cosine of a certain answer is, 1 being
// identical text. The confidence of any other passage is the square of how close it
// comes.
const sureShare = 0.6

// missing is the squared share of the query's words that no single candidate
// covers. A weak model finds paraphrases but hides exact matches: on reports, at
// full weight it puts fewer right pages among the first five than words alone (see
// bench/answers).
func missing(all []candidate) float64 {
	most := 0.0
	for _, c := range all {
		most = max(most, c.x[byCoverage])
	}
	return max(leastVector, (1-most)*(1-most))
}

// strongWeight is for models that beat words at finding answers: they count the
// same for all queries except those that ask for a quantity.
const strongWeight = 0.5

// figuresShare is the share of its weight that such a model loses if a query asks
// for a quantity: vectors encode topic, not figures. On the 22 annual reports of
// bench/answers, bge-small then has the right page in the first five for .65 of the
// questions instead of .57, and .76 instead of .70 within the document.
const figuresShare = 0.65

// leastVector keeps hits found by meaning alone in order.
const leastVector = 0.05

// rankDepth bounds the candidates to rerank: the best of both sides.
const rankDepth = 200

// rank fuses the visible candidates, best first.
func rank(c index.Candidates, visible map[string]taskstore.VisibleRange, fusion index.Fusion, r *Request) []candidate {
	words := index.ParseWords(r.Query)
	if slices.ContainsFunc(words.Groups, func(g index.Group) bool { return g.Quoted }) && r.Mode != Vector {
		// The query contains an exact phrase, which only the word side matches.
		found := make(map[string]bool, len(c.Text))
		for _, h := range c.Text {
			found[h.Chunk.ID] = true
		}
		c.Vector = slices.DeleteFunc(c.Vector, func(h index.Hit) bool { return !found[h.Chunk.ID] })
	}
	fused := index.Fuse(c, fusion)
	out := make([]candidate, len(fused))
	for i := range out {
		out[i] = candidate{Fused: fused[i], name: visible[fused[i].Chunk.RangeID].Name}
	}
	if r.Mode == Vector {
		return out
	}
	all := out[:min(len(out), rankDepth)]
	q := newQueryWords(words, c.IDF)
	q.figures = asksForFigures(r.Query)
	q.score(all)
	switch {
	case len(c.Vector) == 0:
		fusion.Weight = 0
	case len(c.Text) == 0:
		fusion.Weight = 1
	case r.VectorWeight == nil && fusion.Weight >= strongWeight:
		fusion.Weight *= 1 - figuresShare*q.figures
	case r.VectorWeight == nil && fusion.Weight > 0 && fusion.Weight < strongWeight:
		fusion.Weight *= missing(all)
	}
	fuse(all, fusion, r.Explain)
	for i := len(all); i < len(out); i++ {
		out[i].Score = min(out[i].Score, all[len(all)-1].Score)
		out[i].parts = []Part{{"candidate", 1, out[i].Score}}
	}
	return out
}
