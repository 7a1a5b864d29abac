package enrich

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"unicode"
	_ "unsafe" // for go:linkname

	"github.com/abadojack/whatlanggo"

	"sheaf"
)

// languageRunes is how much of a text is used to detect its language: the detector
// works best on less than a thousand characters.
const languageRunes = 400

// Language returns the ISO 639-1 code of the text's language, "" if the detector is
// not sure.
func Language(text string) string {
	info := detect(beginning(text))
	if !info.IsReliable() {
		return ""
	}
	return info.Lang.Iso6391()
}

func beginning(text string) string {
	n := 0
	for i := range text {
		if n++; n > languageRunes {
			return text[:i]
		}
	}
	return text
}

// Languages sets the language of prose chunks. The error is ctx's.
func Languages(ctx context.Context, chunks []sheaf.Chunk) error {
	last := ""
	for i := range chunks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c := &chunks[i]
		if c.Kind != sheaf.ChunkText && c.Kind != sheaf.ChunkImage {
			continue
		}
		if c.Language = last; !goesOnIn(c.Text, last) {
			c.Language = Language(c.Text)
		}
		last = cmp.Or(c.Language, last)
	}
	return nil
}

// goesOnIn reports whether text is clearly in the given language: at least a fifth
// of its words are stop words of that language, and no other list has two thirds as
// many. A chunk is usually in the language of the previous one, and running the
// detector costs more.
func goesOnIn(text, language string) bool {
	lists := stopLists()
	own, ok := lists.number[language]
	if !ok {
		return false
	}
	words, hits := 0, make([]int, len(lists.number))
	var lower []byte // of one word
	for w := range strings.FieldsFuncSeq(beginning(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		words++
		lower = appendLower(lower[:0], w)
		for set := lists.of[string(lower)]; set != nil; set = set.next {
			hits[set.list]++
		}
	}
	for i, n := range hits {
		if i != own && n > 0 && 3*n >= 2*hits[own] {
			return false
		}
	}
	return words >= 12 && 5*hits[own] >= words
}

func appendLower(out []byte, w string) []byte {
	for _, r := range w {
		if r < 0x80 {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			out = append(out, byte(r))
			continue
		}
		return append(out[:0], strings.ToLower(w)...)
	}
	return out
}

// listed is a linked list of the stop word lists that contain a word.
type listed struct {
	list int
	next *listed
}

// stopLists inverts stopWords: from a word to the lists that contain it.
var stopLists = sync.OnceValue(func() (t struct {
	number map[string]int // of a language's list
	of     map[string]*listed
}) {
	t.number, t.of = map[string]int{}, map[string]*listed{}
	for l, words := range stopWords {
		n := len(t.number)
		t.number[l] = n
		for w := range words {
			t.of[w] = &listed{n, t.of[w]}
		}
	}
	return t
})

// detect is whatlanggo.Detect, which compares a text with the profiles of all
// languages of its script one by one. Here the profiles are inverted, from a
// trigram to the languages that have it, so that only the trigrams of the text are
// examined: the result is the same, many times faster. Measured, detection was a
// sixth of the cost of ingestion outside the parser.
func detect(text string) whatlanggo.Info {
	script := scriptOf(text)
	p := profilesOf(script)
	if p == nil {
		return whatlanggo.Detect(text)
	}
	info := whatlanggo.Info{Script: script}
	info.Lang, info.Confidence = p.closest(trigrams(text))
	return info
}

// scriptOf is whatlanggo.DetectScript, which tests each character against 23
// scripts. Below U+0370 and in the block of dashes and quotation marks the only one
// is Latin.
func scriptOf(text string) *unicode.RangeTable {
	var found *unicode.RangeTable
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z':
			found = unicode.Latin
		case r < 0x80 || 0x2000 <= r && r < 0x2070:
		case r >= 0x370:
			return whatlanggo.DetectScript(text)
		case unicode.Is(unicode.Latin, r) && !separates(r):
			found = unicode.Latin
		}
	}
	return found
}

// separates reports whether whatlanggo ends a word at r.
func separates(r rune) bool {
	return unicode.IsSymbol(r) || unicode.IsSpace(r) || unicode.IsPunct(r) || unicode.IsDigit(r)
}

// The profiles of whatlanggo, by language: its 300 most frequent trigrams, most
// frequent first. They are not exported; a test checks that they are found.
var (
	//go:linkname latinLangs github.com/abadojack/whatlanggo.latinLangs
	latinLangs map[whatlanggo.Lang][]string
	//go:linkname cyrillicLangs github.com/abadojack/whatlanggo.cyrillicLangs
	cyrillicLangs map[whatlanggo.Lang][]string
)

// profiles holds the profiles of the languages of a script.
type profiles struct {
	languages []whatlanggo.Lang // in order
	places    map[trigram][]place
	far       []int // by language: its distance from a text with none of its trigrams
}

// place is the position of a trigram in the profile of a language, from 0.
type place struct{ language, at uint16 }

// trigram is three characters of 21 bits each.
type trigram uint64

func trigramOf(a, b, c rune) trigram { return trigram(a)<<42 | trigram(b)<<21 | trigram(c) }

var (
	latin    = sync.OnceValue(func() *profiles { return turnRound(latinLangs) })
	cyrillic = sync.OnceValue(func() *profiles { return turnRound(cyrillicLangs) })
)

// profilesOf returns nil for scripts with few languages, for which the detector is
// equally fast.
func profilesOf(script *unicode.RangeTable) *profiles {
	switch script {
	case unicode.Latin:
		return latin()
	case unicode.Cyrillic:
		return cyrillic()
	}
	return nil
}

// whatlanggo's constants.
const (
	maxTrigramDistance = 300
	maxTotalDistance   = 90_000
)

func turnRound(langs map[whatlanggo.Lang][]string) *profiles {
	if len(langs) < 2 {
		return nil
	}
	p := &profiles{places: map[trigram][]place{}}
	for l := range langs {
		p.languages = append(p.languages, l)
	}
	slices.Sort(p.languages)
	for n, l := range p.languages {
		for at, s := range langs[l] {
			if r := []rune(s); len(r) == 3 {
				t := trigramOf(r[0], r[1], r[2])
				p.places[t] = append(p.places[t], place{uint16(n), uint16(at)})
			}
		}
		p.far = append(p.far, maxTrigramDistance*len(langs[l]))
	}
	return p
}

// trigrams returns the trigrams of a text, most frequent first.
func trigrams(text string) []trigram {
	chars := make([]rune, 0, languageRunes+2)
	for _, r := range text {
		if separates(r) {
			r = ' '
		}
		chars = append(chars, unicode.ToLower(r))
	}
	chars = append(chars, ' ')
	all := make([]trigram, 0, len(chars))
	before, at := ' ', chars[0]
	for _, next := range chars[1:] {
		if at != ' ' || before != ' ' && next != ' ' {
			all = append(all, trigramOf(before, at, next))
		}
		before, at = at, next
	}
	slices.Sort(all)
	type counted struct {
		t trigram
		n int
	}
	counts := make([]counted, 0, len(all))
	for i, t := range all {
		if i > 0 && t == all[i-1] {
			counts[len(counts)-1].n++
		} else {
			counts = append(counts, counted{t, 1})
		}
	}
	// Ties are in descending order.
	slices.SortFunc(counts, func(a, b counted) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(b.t, a.t)) })
	out := all[:len(counts)]
	for i, c := range counts {
		out[i] = c.t
	}
	return out
}

// closest returns the language whose profile is most similar to the text's, and the
// confidence: whatlanggo's measure and limits. Of equally close languages it takes
// the first, whereas whatlanggo takes any.
func (p *profiles) closest(text []trigram) (whatlanggo.Lang, float64) {
	distance := slices.Clone(p.far)
	for n, t := range text {
		for _, at := range p.places[t] {
			distance[at.language] += max(n-int(at.at), int(at.at)-n) - maxTrigramDistance
		}
	}
	first, second := -1, -1
	for l := range distance {
		switch {
		case first < 0 || distance[l] < distance[first]:
			first, second = l, first
		case second < 0 || distance[l] < distance[second]:
			second = l
		}
	}
	score1, score2 := maxTotalDistance-distance[first], maxTotalDistance-distance[second]
	switch {
	case score1 == 0:
		return -1, 0
	case score2 == 0:
		return p.languages[first], float64(min(score1/500, 1))
	}
	rate := float64(score1-score2) / float64(score2)
	enough := 12/float64(len(text)) + 0.05
	return p.languages[first], min(rate/enough, 1)
}
