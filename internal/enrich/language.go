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

// languageRunes is how much of a text tells its language: the detector is best
// on less than a thousand characters.
const languageRunes = 400

// Language is the ISO 639-1 code of the text's language, "" where the detector
// is not sure.
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

// Languages gives chunks of prose their language. The error is ctx's.
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

// goesOnIn reports whether text is plainly in the given language: a fifth of
// its words and more are the language's stop words, and no other list has two
// thirds as many. Chunks mostly go on in the language of the one before, and
// asking the detector costs more.
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

// listed is a chain of the lists of stop words that hold a word.
type listed struct {
	list int
	next *listed
}

// stopLists turns stopWords round: which lists hold a word.
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
// languages of its script one by one. Here the profiles are turned round, from
// a trigram to the languages that have it, so that only what the text holds is
// looked at: the result is the same and comes many times sooner. Measured, it
// was a sixth of what ingesting cost around the parser.
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

// scriptOf is whatlanggo.DetectScript, which asks of each character whether it
// belongs to one of 23 scripts. Below U+0370 and in the block of dashes and
// quotation marks there is only one of them, Latin.
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

// separates is what whatlanggo takes for the end of a word.
func separates(r rune) bool {
	return unicode.IsSymbol(r) || unicode.IsSpace(r) || unicode.IsPunct(r) || unicode.IsDigit(r)
}

// The profiles of whatlanggo, by language: its 300 most frequent trigrams, the
// most frequent first. They are not exported; a test holds that they are found.
var (
	//go:linkname latinLangs github.com/abadojack/whatlanggo.latinLangs
	latinLangs map[whatlanggo.Lang][]string
	//go:linkname cyrillicLangs github.com/abadojack/whatlanggo.cyrillicLangs
	cyrillicLangs map[whatlanggo.Lang][]string
)

// profiles are those of the languages of a script.
type profiles struct {
	languages []whatlanggo.Lang // in order
	places    map[trigram][]place
	far       []int // by language: its distance from a text that has none of its trigrams
}

// place is where in the profile of a language a trigram stands, from 0.
type place struct{ language, at uint16 }

// trigram is three characters of 21 bits each.
type trigram uint64

func trigramOf(a, b, c rune) trigram { return trigram(a)<<42 | trigram(b)<<21 | trigram(c) }

var (
	latin    = sync.OnceValue(func() *profiles { return turnRound(latinLangs) })
	cyrillic = sync.OnceValue(func() *profiles { return turnRound(cyrillicLangs) })
)

// profilesOf is nil for the scripts with few languages, which the detector
// knows as fast.
func profilesOf(script *unicode.RangeTable) *profiles {
	switch script {
	case unicode.Latin:
		return latin()
	case unicode.Cyrillic:
		return cyrillic()
	}
	return nil
}

// These are whatlanggo's constants.
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

// trigrams are those of a text, the most frequent first.
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
	// Equally frequent ones stand in falling order.
	slices.SortFunc(counts, func(a, b counted) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(b.t, a.t)) })
	out := all[:len(counts)]
	for i, c := range counts {
		out[i] = c.t
	}
	return out
}

// closest is the language whose profile is most like the text's, and how sure
// that is: whatlanggo's measure and its limits. Of languages that are equally
// close it takes the first, where whatlanggo takes any.
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
