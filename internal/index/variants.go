package index

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Other spellings of words: "FY2018" is also 2018, "deviceId" also device and id,
// "Coca-Cola" also cocacola, and "Days Payable Outstanding" in a heading also dpo.
// They are indexed after the terms of a field, separated from them, so that exact
// phrases do not match them.

// variants collects the other spellings in a text, term by term.
type variants struct {
	text     string
	initials bool // also of runs of capitalized words
	query    bool // skip the letters of a word with digits: few occurrences of them are meant
	wanted   *FirstBytes
	found    func(term []byte)

	mixed bool // the word has digits
	last  Term
	chain []Term // words joined by signs, as far as they matter
	links int
	heads []byte // initials of the run
	run   int    // words in it
	buf   []byte
}

// term processes the next term of the text.
func (v *variants) term(t Term) {
	if t.Ideograph {
		v.end()
		return
	}
	word := v.text[t.Start:t.End]
	v.split(word)
	between := v.text[min(v.last.End, t.Start):t.Start]
	if v.last.End > 0 && joins(between, v.text[v.last.Start:v.last.End], word) {
		v.links++
	} else {
		v.endChain()
	}
	if len(v.chain) < maxTermBytes {
		v.chain = append(v.chain, t)
	}
	if v.initials {
		v.initial(word)
	}
	v.last = t
}

// end flushes what the last term left open.
func (v *variants) end() {
	v.endChain()
	v.endRun()
	v.last = Term{}
}

// endChain passes on the words of the chain as one, without the signs. Few words are
// joined, so that they are folded only here.
func (v *variants) endChain() {
	if v.links > 0 {
		v.buf = v.buf[:0]
		for _, t := range v.chain {
			if len(v.buf) < maxTermBytes {
				v.buf = foldWord(v.buf, v.text[t.Start:t.End])
			}
		}
		v.emit()
	}
	v.chain, v.links = v.chain[:0], 0
}

func (v *variants) endRun() {
	if v.run >= 2 && v.run <= maxInitials {
		v.found(v.heads)
	}
	v.heads, v.run = v.heads[:0], 0
}

// maxInitials is the longest acronym: a longer run of capitalized words is a title.
const maxInitials = 6

func (v *variants) initial(word string) {
	r, size := utf8.DecodeRuneInString(word)
	switch {
	case unicode.IsUpper(r) && size < len(word):
		v.heads = foldWord(v.heads, word[:size])
		v.run++
	case word == "of" || word == "and" || word == "the" || word == "for":
	default:
		v.endRun()
	}
}

// emit passes the folded word in buf to found, unless it is a single byte.
func (v *variants) emit() {
	switch {
	case len(v.buf) < 2:
	case v.wanted.lacks(v.buf):
		v.found(nil)
	default:
		v.found(cutTerm(stem(v.buf)))
	}
}

// joins reports whether two words with this separator are also one word.
func joins(between, a, b string) bool {
	switch between {
	case "-", "‐", "‑", "&", "'", "’":
		return strings.ContainsFunc(a, unicode.IsLetter) && strings.ContainsFunc(b, unicode.IsLetter)
	case ".": // U.S.
		return len(a) == 1 && len(b) == 1 && !isDigit(a[0]) && !isDigit(b[0])
	}
	return false
}

// split finds the parts of a word: letters and digits, and the words of camelCase,
// of at least two characters each.
func (v *variants) split(word string) {
	if !hasBoundary(word) {
		return
	}
	if first, second, ok := period(word); ok {
		v.found([]byte(first))
		if second != "" {
			v.found([]byte(second))
		}
		return
	}
	v.mixed = v.query && strings.ContainsFunc(word, unicode.IsDigit)
	start := 0
	var before, previous byte // classes of the last two runes
	for i, r := range word {
		c := class(r)
		switch {
		case i > start && (c == 'd') != (previous == 'd') || c == 'U' && previous == 'l':
			v.part(word[start:i])
			start = i
		case c == 'l' && previous == 'U' && before == 'U': // HTTPServer
			_, size := utf8.DecodeLastRuneInString(word[:i])
			v.part(word[start : i-size])
			start = i - size
		}
		before, previous = previous, c
	}
	v.part(word[start:])
}

func (v *variants) part(s string) {
	if utf8.RuneCountInString(s) >= 2 && (!v.query || !v.mixed || digits(s)) {
		v.buf = foldWord(v.buf[:0], s)
		v.emit()
	}
}

// class is d for digits, U for capitals and l for everything else.
func class(r rune) byte {
	switch {
	case r < utf8.RuneSelf:
		return classes[r]
	case unicode.IsDigit(r):
		return 'd'
	case unicode.IsUpper(r):
		return 'U'
	}
	return 'l'
}

// classes are the classes of ASCII.
var classes = func() (of [utf8.RuneSelf]byte) {
	for c := range of {
		switch {
		case '0' <= c && c <= '9':
			of[c] = 'd'
		case 'A' <= c && c <= 'Z':
			of[c] = 'U'
		default:
			of[c] = 'l'
		}
	}
	return of
}()

// hasBoundary reports whether split finds anything.
func hasBoundary(word string) bool {
	plain := 0 // length of the lower case that most words are
	for plain < len(word) && 'a' <= word[plain] && word[plain] <= 'z' {
		plain++
	}
	if plain == len(word) {
		return false
	}
	previous := byte(0)
	for i, r := range word {
		c := class(r)
		if c != previous && i > 0 && (c == 'd' || previous == 'd' || c == 'U' || i > 1) {
			return true
		}
		previous = c
	}
	return false
}

// period parses a year or quarter in a report: FY18, FY2018, 2023Q2, Q22023.
func period(word string) (first, second string, ok bool) {
	if len(word) != len("FY18") && len(word) != len("FY2018") {
		return "", "", false
	}
	w := strings.ToLower(word)
	switch {
	case (strings.HasPrefix(w, "fy") || strings.HasPrefix(w, "cy")) && digits(w[2:]):
		switch len(w) {
		case 4:
			return "20" + w[2:], "", true
		case 6:
			return w[2:], "", true
		}
	case len(w) == 6 && w[4] == 'q' && isYear(w[:4]) && isQuarter(w[5]):
		return w[:4], w[4:], true
	case len(w) == 6 && w[0] == 'q' && isQuarter(w[1]) && isYear(w[2:]):
		return w[2:], w[:2], true
	}
	return "", "", false
}

func isQuarter(c byte) bool { return '1' <= c && c <= '4' }

func isYear(s string) bool {
	return digits(s) && (strings.HasPrefix(s, "19") || strings.HasPrefix(s, "20"))
}

func digits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// foldWord appends the word folded for comparison, with its ending. Invalid UTF-8
// is dropped, as it is between terms.
func foldWord(b []byte, word string) []byte {
	for len(word) > 0 {
		r, size := utf8.DecodeRuneInString(word)
		switch {
		case 'A' <= r && r <= 'Z':
			b = append(b, byte(r)+'a'-'A')
		case r < utf8.RuneSelf:
			b = append(b, byte(r))
		case r != utf8.RuneError || size > 1:
			b = appendFolded(b, r, word[:size])
		}
		word = word[size:]
	}
	return b
}

// cutTerm keeps the first maxTermBytes of a term, in whole characters.
func cutTerm(word []byte) []byte {
	if len(word) <= maxTermBytes {
		return word
	}
	cut := maxTermBytes
	for cut > 0 && !utf8.RuneStart(word[cut]) {
		cut--
	}
	return word[:cut]
}
