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
	found    func(term []byte)

	mixed bool // the word has digits
	last  Term
	chain []byte // of words joined by a sign, without it
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
		v.chain, v.links = v.chain[:0], 0
	}
	if len(v.chain) < maxTermBytes {
		v.chain = foldWord(v.chain, word)
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
	v.chain, v.links, v.last = v.chain[:0], 0, Term{}
}

func (v *variants) endChain() {
	if v.links > 0 {
		v.emit(v.chain)
	}
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

// emit passes a folded word to found, unless it is a single character.
func (v *variants) emit(folded []byte) {
	if len(folded) < 2 {
		return
	}
	v.buf = append(v.buf[:0], folded...)
	v.found(cutTerm(stem(v.buf)))
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
	v.mixed = strings.ContainsFunc(word, unicode.IsDigit)
	start := 0
	var before, previous rune // classes of the last two runes
	for i, r := range word + "0A" {
		c := class(r)
		cut := i >= len(word) || i > start && (c == 'd') != (previous == 'd') || c == 'U' && previous == 'l'
		if !cut && c == 'l' && previous == 'U' && before == 'U' { // HTTPServer
			_, size := utf8.DecodeLastRuneInString(word[:i])
			v.part(word[start : i-size])
			start = i - size
		} else if cut {
			v.part(word[start:i])
			start = i
			if i >= len(word) {
				return
			}
		}
		before, previous = previous, c
	}
}

func (v *variants) part(s string) {
	if utf8.RuneCountInString(s) >= 2 && (!v.query || !v.mixed || digits(s)) {
		v.emit(foldWord(nil, s))
	}
}

// class is d for digits, U for capitals and l for everything else.
func class(r rune) rune {
	switch {
	case unicode.IsDigit(r):
		return 'd'
	case unicode.IsUpper(r):
		return 'U'
	}
	return 'l'
}

// hasBoundary reports whether split finds anything.
func hasBoundary(word string) bool {
	previous := rune(0)
	for i, r := range word {
		c := class(r)
		if i > 0 && ((c == 'd') != (previous == 'd') || c == 'U' && previous == 'l' || c == 'l' && previous == 'U' && i > 1) {
			return true
		}
		previous = c
	}
	return false
}

// period parses a year or quarter in a report: FY18, FY2018, 2023Q2, Q22023.
func period(word string) (first, second string, ok bool) {
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
		case r < utf8.RuneSelf:
			b = append(b, byte(unicode.ToLower(r)))
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
