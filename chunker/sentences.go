package chunker

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/sentences"
)

// sentenceEnds yields the ends of the sentences of text, the last at len(text).
// They are those of Unicode (UAX #29), with three differences: a single newline
// does not end a sentence, since lines are wrapped anywhere; nor does a full stop
// after a common abbreviation or an initial; and each soft delimiter other than
// white space does.
func sentenceEnds(text string, soft []rune, w *watch) iter.Seq[int] {
	return func(yield func(int) bool) {
		start := 0
		for end := range boundaries(unwrap(text), w) {
			if end < len(text) && abbreviated(text[start:end]) {
				continue
			}
			for i, r := range text[start:end] {
				at := start + i + utf8.RuneLen(r)
				if at < end && !unicode.IsSpace(r) && slices.Contains(soft, r) && !yield(at) {
					return
				}
			}
			if !yield(end) {
				return
			}
			start = end
		}
		if start < len(text) {
			yield(len(text))
		}
	}
}

// Limits on how much is segmented at once. After a full stop, rule SB8 looks past
// every bracket and space for the next letter, which takes quadratic time if there
// is none: so a longer run is segmented in parts.
const (
	stretchBytes = 64 << 10
	maxTrailing  = 256 // bytes of brackets, quotes and spaces after a full stop
)

// boundaries yields the ends of the sentences of text by UAX #29, the last at
// len(text). Long text is processed in stretches cut inside a word, where no rule
// looks across the cut: the sentence around the cut stays whole.
func boundaries(text string, w *watch) iter.Seq[int] {
	return func(yield func(int) bool) {
		for from := 0; from < len(text) && !w.over(0); {
			to, whole := stretch(text[from:])
			w.over(to)
			to += from
			for it := sentences.FromString(text[from:to]); it.Next(); {
				if end := from + it.End(); (end < to || whole) && !yield(end) {
					return
				}
			}
			from = to
		}
	}
}

// stretch returns how much of text is segmented at once, and whether a sentence
// ends there: at the end of the text, or if more than maxTrailing bytes follow a
// full stop.
func stretch(text string) (to int, whole bool) {
	trailing := -1 // bytes since a full stop
	var before rune
	for i, r := range text {
		letter := unicode.IsLetter(r)
		switch {
		case i > stretchBytes && (letter && unicode.IsLetter(before) || i > 2*stretchBytes):
			return i, false
		case trailing > maxTrailing:
			return i, true
		case r == '.' || r == '\u2024' || r == '\ufe52' || r == '\uff0e': // ATerm
			trailing = 0
		case trailing >= 0 && (unicode.IsSpace(r) || unicode.In(r, unicode.Ps, unicode.Pe, unicode.Pi, unicode.Pf, unicode.M, unicode.Cf) || r == '"' || r == '\''):
			trailing += utf8.RuneLen(r)
		default:
			trailing = -1
		}
		before = r
	}
	return len(text), true
}

// unwrap turns single newlines into spaces; offsets are preserved.
func unwrap(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	b := []byte(text)
	for i, c := range b {
		if c == '\n' && (i == 0 || text[i-1] != '\n') && (i+1 == len(b) || text[i+1] != '\n') {
			b[i] = ' '
		}
	}
	return string(b)
}

// abbreviations are those often followed by a capital letter; UAX #29 itself
// handles those before a lower-case one.
var abbreviations = map[string]bool{}

func init() {
	for _, a := range strings.Fields(`mr mrs ms dr prof sr jr st gen col capt lt sen rep gov hon rev
		fig figs no nos vol vols p pp ch sec art eq eqs ref refs ed eds al vs cf viz approx ca
		inc ltd co corp bros dept univ est ave blvd rd mt ft
		jan feb mar apr jun jul aug sep sept oct nov dec e.g i.e u.s u.k u.n d.c a.m p.m ph.d
		bzw ca dr nr abs bd z.b d.h u.a z usw vgl hrsg mme mlle m`) {
		abbreviations[a] = true
	}
}

// abbreviated reports whether a sentence seems to end in an abbreviation.
func abbreviated(sentence string) bool {
	s, ok := strings.CutSuffix(strings.TrimRightFunc(sentence, unicode.IsSpace), ".")
	if !ok {
		return false
	}
	if i := strings.LastIndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '(' || r == '[' }); i >= 0 {
		_, n := utf8.DecodeRuneInString(s[i:])
		s = s[i+n:]
	}
	if len(s) == 1 && s[0] >= 'A' && s[0] <= 'Z' && s != "I" {
		return true // an initial
	}
	return len(s) <= 6 && abbreviations[strings.ToLower(s)]
}

// fitting returns how many bytes of s, at least one rune, fit into a segment of
// limit tokens once the white space around it is trimmed.
func fitting(s string, limit int, w *watch) int {
	limit = max(limit, 4) // a rune has at most four tokens
	for l := limit; ; l-- {
		// without its leading space a word may take one token more
		n := fittingWords(s, l)
		if w.over(4 * n) { // it was counted several times
			return n
		}
		if l == 1 || CountTokens(strings.TrimSpace(s[:n])) <= limit {
			return n
		}
	}
}

// fittingWords is fitting with white space counted: up to the last newline if that
// gives at least half of it, else up to the last space, else up to the last word
// boundary, else between runes.
func fittingWords(s string, limit int) int {
	s = s[:runeFloor(s, limit*windowBytes)]
	n, end, line, space := 0, 0, 0, 0
	for end < len(s) {
		w := nextWord(s[end:])
		if w > limit*wordBytes {
			break
		}
		t := wordTokens(s[end : end+w])
		if n+t > limit {
			break
		}
		n += t
		if n >= limit/2 {
			switch c := s[end+w-1]; {
			case c == '\n':
				line = end + w
			case end+w < len(s) && (s[end+w] == ' ' || s[end+w] == '\n'):
				space = end + w
			}
		}
		end += w
	}
	switch {
	case end == len(s):
		return end
	case line > 0:
		return line
	case space > 0:
		return space
	case end > 0:
		return end
	}
	// The first word alone is too long. As many bytes as tokens always fit, since
	// every token has at least one; double that, then bisect, so that no text much
	// longer than the answer is ever encoded.
	low, high := runeFloor(s, limit), min(len(s), limit*wordBytes)
	for {
		mid := runeFloor(s, 2*low)
		if mid <= low {
			break // a wide rune begins at low, so doubling gains nothing
		}
		if mid >= high || CountTokens(s[:mid]) > limit {
			high = min(high, mid)
			break
		}
		low = mid
	}
	for high-low > low/16 {
		mid := runeFloor(s, (low+high)/2)
		if mid <= low {
			break
		}
		if CountTokens(s[:mid]) <= limit {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// windowBytes and wordBytes are how far fittingWords looks ahead per token, in
// total and in a single word: far more than a token of any language spans on
// average, and few enough that a megabyte without a space does not take quadratic
// time.
const (
	windowBytes = 64
	wordBytes   = 16
)

// runeFloor returns the largest rune boundary at or below n, and at least the first
// rune.
func runeFloor(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	if n == 0 {
		_, n = utf8.DecodeRuneInString(s)
	}
	return n
}
