package index

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Term is a word in the form used for comparison: lower case, without accents,
// English endings removed. Text[Start:End] of the source is what it was made from.
type Term struct {
	Text       string
	Start, End int // bytes
	Ideograph  bool
	// Tail marks the extra one-character term at the end of a run of Chinese,
	// Japanese or Korean. Runs are indexed as pairs of neighbors; with the tail,
	// every character also starts some term, so that a single-character query finds
	// all its occurrences by prefix.
	Tail bool
}

// maxTermBytes is where a term is cut: what is longer is data (base64, a hash), not
// a word.
const maxTermBytes = 64

// Terms splits text into terms, in order. Words are runs of letters, digits and
// marks; everything else separates. This is not left to the engine's tokenizer so
// that indexing, querying and highlighting agree exactly, and so that languages
// without spaces are split the same way in all three.
func Terms(text string) []Term {
	terms := make([]Term, 0, len(text)/6+4)
	scan(text, nil, func(t Term, word []byte) {
		if word != nil {
			t.Text = string(word)
		}
		terms = append(terms, t)
	})
	return terms
}

// AppendTerms appends the text of each term to b, each followed by a space.
func AppendTerms(b []byte, text string) []byte {
	b, _ = AppendSpellings(b, nil, text, false)
	return b
}

// AppendSpellings is AppendTerms, and appends other spellings of the words to extra
// in the same form; with initials, also the initials of capitalized words.
func AppendSpellings(b, extra []byte, text string, initials bool) (terms, others []byte) {
	return AppendWanted(b, extra, text, initials, nil)
}

// AppendWanted is AppendSpellings for finding a few terms, in less than half the time:
// a word that begins with none of the wanted bytes becomes an empty term, which keeps
// the distances between the others. Nil wants all.
func AppendWanted(b, extra []byte, text string, initials bool, wanted *FirstBytes) (terms, others []byte) {
	v := variants{text: text, initials: initials, wanted: wanted, found: func(term []byte) { extra = append(append(extra, term...), ' ') }}
	scan(text, wanted, func(t Term, word []byte) {
		if word == nil {
			b = append(b, t.Text...)
		} else {
			b = append(b, word...)
		}
		b = append(b, ' ')
		v.term(t)
	})
	v.end()
	return b, extra
}

// FirstBytes are bytes that terms may begin with.
type FirstBytes [256]bool

// lacks reports whether a folded word begins with none of the bytes. Its ending does
// not matter: stem leaves the first byte as it is.
func (f *FirstBytes) lacks(word []byte) bool { return f != nil && !f[word[0]] }

// scan finds the terms of text. A word is passed along with its term, in a buffer
// that is reused for the next, and empty if it is not wanted; an ideograph's term has
// its own text.
func scan(text string, wanted *FirstBytes, found func(t Term, word []byte)) {
	var buf []byte
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[i:])
		}
		switch {
		case isIdeographic(r):
			end := i + size
			for end < len(text) {
				r, size := utf8.DecodeRuneInString(text[end:])
				if !isIdeographic(r) {
					break
				}
				end += size
			}
			scanPairs(text, i, end, found)
			i = end
		case isWordRune(r):
			end := i
			buf = buf[:0]
			for end < len(text) {
				c := text[end]
				if c < utf8.RuneSelf {
					if !isASCIIWord(c) {
						break
					}
					if 'A' <= c && c <= 'Z' {
						c += 'a' - 'A'
					}
					buf = append(buf, c)
					end++
					continue
				}
				r, size := utf8.DecodeRuneInString(text[end:])
				if !isWordRune(r) || isIdeographic(r) {
					break
				}
				buf = appendFolded(buf, r, text[end:end+size])
				end += size
			}
			if isContraction(text, i, buf) || len(buf) == 0 {
				i = end
				continue
			}
			word := buf[:0]
			if !wanted.lacks(buf) {
				word = cutTerm(stem(buf))
			}
			found(Term{Start: i, End: end}, word)
			i = end
		default:
			i += size
		}
	}
}

// scanPairs finds the overlapping pairs of the run text[start:end], then its last
// character as the tail.
func scanPairs(text string, start, end int, found func(t Term, word []byte)) {
	prev := -1
	last := start
	for i := start; i < end; {
		_, size := utf8.DecodeRuneInString(text[i:])
		if prev >= 0 {
			found(Term{Text: text[prev : i+size], Start: prev, End: i + size, Ideograph: true}, nil)
		}
		prev, last = i, i
		i += size
	}
	found(Term{Text: text[last:end], Start: last, End: end, Ideograph: true, Tail: true}, nil)
}

func isASCIIWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return isASCIIWord(byte(r))
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// isIdeographic reports whether r belongs to a script that is written without
// spaces and indexed as pairs.
func isIdeographic(r rune) bool {
	if r < 0x1100 {
		return false
	}
	if r == 'ー' { // prolongs the preceding vowel; has no script of its own
		return true
	}
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) && (unicode.IsLetter(r) || unicode.IsNumber(r))
}

// appendFolded appends r in lower case, with compatibility forms expanded and
// accents dropped: the marks of U+0300–U+036F and the vowel signs that are optional
// in Arabic. The marks of other scripts carry vowels.
func appendFolded(buf []byte, r rune, source string) []byte {
	parts := source
	if d := norm.NFKD.PropertiesString(source).Decomposition(); d != nil {
		parts = string(d)
	}
	for _, p := range parts {
		if p >= 0x300 && p <= 0x36f || p >= 0x64b && p <= 0x65f || p == 0x670 || p == 0x640 {
			continue
		}
		if !isWordRune(p) {
			continue
		}
		p = unicode.ToLower(p)
		if s, ok := spelled[p]; ok {
			buf = append(buf, s...)
		} else {
			buf = utf8.AppendRune(buf, p)
		}
	}
	return buf
}

// spelled are letters without a decomposition that are also written with other
// letters.
var spelled = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ı': "i", 'ى': "ي", 'ة': "ه",
}

// isContraction reports whether the word that starts at i is an English contraction
// after an apostrophe: the s of "user's", the t of "don't".
func isContraction(text string, i int, word []byte) bool {
	if i == 0 || len(word) > 2 {
		return false
	}
	if before := text[:i]; !strings.HasSuffix(before, "'") && !strings.HasSuffix(before, "’") {
		return false
	}
	switch string(word) {
	case "s", "t", "d", "m", "ll", "re", "ve":
		return true
	}
	return false
}

// stem removes English endings from a word of the letters a to z: steps 1 and 5 of
// M. F. Porter, "An algorithm for suffix stripping", 1980 (plurals, -ed, -ing, y,
// final e). The steps between turn nouns into verbs ("organization" to "organ"),
// which loses more questions about product manuals than it wins, so they are
// omitted. It works in place.
func stem(w []byte) []byte {
	if len(w) < 4 {
		return w
	}
	for _, c := range w {
		if c < 'a' || c > 'z' {
			return w // numbers and part names are unchanged
		}
	}
	// Step 1a: plurals.
	switch {
	case hasSuffix(w, "sses"), hasSuffix(w, "ies"):
		w = w[:len(w)-2]
	case hasSuffix(w, "ss"), hasSuffix(w, "us"), hasSuffix(w, "is"):
	case hasSuffix(w, "s"):
		w = w[:len(w)-1]
	}
	// Step 1b: past and progressive.
	if hasSuffix(w, "eed") {
		if measure(w[:len(w)-3]) > 0 {
			w = w[:len(w)-1]
		}
	} else {
		root := w
		switch {
		case hasSuffix(w, "ed"):
			root = w[:len(w)-2]
		case hasSuffix(w, "ing"):
			root = w[:len(w)-3]
		}
		if len(root) < len(w) && hasVowel(root) {
			w = root
			switch {
			case hasSuffix(w, "at"), hasSuffix(w, "bl"), hasSuffix(w, "iz"):
				w = append(w, 'e')
			case endsDouble(w):
				if c := w[len(w)-1]; c != 'l' && c != 's' && c != 'z' {
					w = w[:len(w)-1]
				}
			case measure(w) == 1 && endsShort(w):
				w = append(w, 'e')
			}
		}
	}
	// Step 1c.
	if n := len(w); n > 2 && w[n-1] == 'y' && hasVowel(w[:n-1]) {
		w[n-1] = 'i'
	}
	// Step 5.
	if n := len(w); n > 2 && w[n-1] == 'e' {
		if m := measure(w[:n-1]); m > 1 || m == 1 && !endsShort(w[:n-1]) {
			w = w[:n-1]
		}
	}
	if hasSuffix(w, "ll") && measure(w) > 1 {
		w = w[:len(w)-1]
	}
	return w
}

func hasSuffix(w []byte, s string) bool {
	return len(w) >= len(s) && string(w[len(w)-len(s):]) == s
}

func isConsonant(w []byte, i int) bool {
	switch w[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !isConsonant(w, i-1)
	}
	return true
}

func hasVowel(w []byte) bool {
	for i := range w {
		if !isConsonant(w, i) {
			return true
		}
	}
	return false
}

// measure counts Porter's m: how often a run of vowels is followed by consonants.
func measure(w []byte) int {
	m, vowel := 0, false
	for i := range w {
		if isConsonant(w, i) {
			if vowel {
				m++
			}
			vowel = false
		} else {
			vowel = true
		}
	}
	return m
}

func endsDouble(w []byte) bool {
	n := len(w)
	return n >= 2 && w[n-1] == w[n-2] && isConsonant(w, n-1)
}

// endsShort is Porter's *o: consonant, vowel, consonant that is not w, x or y.
func endsShort(w []byte) bool {
	n := len(w)
	if n < 3 || !isConsonant(w, n-3) || isConsonant(w, n-2) || !isConsonant(w, n-1) {
		return false
	}
	c := w[n-1]
	return c != 'w' && c != 'x' && c != 'y'
}

// stopWords are English words that say nothing about a text's topic, as terms.
var stopWords = termSet(`a about after all also am an and any are as at be been before being but by can could did do
		does doing for from had has have having he her here him his how i if in into is it its just me more most my no nor
		not of on only or other our out over own same she should so some such than that the their them then there these
		they this those through to too under until up very was we were what when where which while who whom why will with
		would you your`)

// Group holds query terms that belong together: one word, or several that must be
// consecutive.
type Group struct {
	Terms  []string
	Source string   // the part of the query that the terms were made from
	Others []string // other spellings of it, alone or joined with a neighbor
	Prefix bool     // the single term is only the start of a word
	Quoted bool     // the user requested these words in this order
}

// Words is an analyzed word query: what to search for, without meaningless words.
// All characters other than double quotes around an exact phrase are plain text;
// there are no operators.
type Words struct {
	Groups []Group
	Terms  []QueryTerm // used for ranking, without duplicates
	marks  map[string]bool
	starts []string // prefixes
}

// QueryTerm is a term used for ranking.
type QueryTerm struct {
	Text   string
	Prefix bool // all terms with this prefix, as one that counts the same everywhere
	Name   bool // only in names
	Other  bool // another spelling of words that are also present
	Weight float64
}

// weakWeight is the weight of question words.
const weakWeight = 0.3

// weakWords are words of questions and instructions that usually do not occur near
// the answer, as terms.
var weakWords = termSet(`according answer ask assume base calculate clear compute decimal define describe detail determine document
	explain find follow give given help inform information know list look mention outline place please primarily provide question
	relevant rely report round say says show shown tell unit use useful utilize want`)

func termSet(words string) map[string]bool {
	m := make(map[string]bool)
	for _, t := range Terms(words) {
		m[t.Text] = true
	}
	return m
}

// maxQueryTerms bounds the terms of a query including other spellings.
const maxQueryTerms = 128

// maxGroups and maxGroupTerms bound the work a query can cause; the rest is
// ignored.
const (
	maxGroups     = 32
	maxGroupTerms = 32
)

// ParseWords analyzes a query. A query of stop words only keeps them; one without
// any word has no groups.
func ParseWords(query string) Words {
	var w Words
	rest := strings.NewReplacer("“", `"`, "”", `"`, "„", `"`).Replace(query)
	var stops []Group
	var others []QueryTerm
	for rest != "" && len(w.Groups) < maxGroups {
		open := strings.IndexByte(rest, '"')
		length := -1
		if open >= 0 {
			length = strings.IndexByte(rest[open+1:], '"')
		}
		plain := rest
		if length >= 0 {
			plain = rest[:open]
		}
		others = append(others, otherSpellings(plain)...)
		for _, g := range groups(plain, false) {
			if len(g.Terms) == 1 && stopWords[g.Terms[0]] {
				stops = append(stops, g)
				continue
			}
			w.Groups = append(w.Groups, g)
		}
		if length < 0 {
			break
		}
		w.Groups = append(w.Groups, groups(rest[open+1:open+1+length], true)...)
		rest = rest[open+1+length+1:]
	}
	if len(w.Groups) == 0 {
		w.Groups = stops
	}
	w.Groups = w.Groups[:min(len(w.Groups), maxGroups)]
	w.Groups = slices.CompactFunc(w.Groups, func(a, b Group) bool { return slices.Equal(a.Terms, b.Terms) })
	for i := range w.Groups {
		g := &w.Groups[i]
		_, extra := AppendSpellings(nil, nil, g.Source, false)
		g.Others = strings.Fields(string(extra))
		for _, pair := range [][2]int{{i - 1, i}, {i, i + 1}} {
			if pair[0] >= 0 && pair[1] < len(w.Groups) {
				b := foldWord(foldWord(nil, w.Groups[pair[0]].Source), w.Groups[pair[1]].Source)
				g.Others = append(g.Others, string(cutTerm(stem(b))))
			}
		}
	}
	w.marks = make(map[string]bool)
	for _, g := range w.Groups {
		if g.Prefix {
			w.starts = append(w.starts, g.Terms[0])
		}
		for _, t := range g.Terms {
			w.marks[t] = true
			w.addTerm(QueryTerm{Text: t, Prefix: g.Prefix, Weight: g.Weight()})
		}
	}
	for _, t := range others {
		w.addTerm(t)
		if !t.Name {
			w.marks[t.Text] = true
		}
	}
	return w
}

// Weight is the weight of the group relative to others.
func (g *Group) Weight() float64 {
	if len(g.Terms) == 1 && !g.Quoted && weakWords[g.Terms[0]] {
		return weakWeight
	}
	return 1
}

func (w *Words) addTerm(t QueryTerm) {
	same := func(have QueryTerm) bool {
		return have.Text == t.Text && have.Prefix == t.Prefix && (have.Name == t.Name || !have.Name)
	}
	if len(w.Terms) < maxQueryTerms && !slices.ContainsFunc(w.Terms, same) {
		w.Terms = append(w.Terms, t)
	}
}

// otherSpellings returns other spellings of a query's words: as in a text, and
// joined with their neighbors, as names are ("General Mills", "GENERALMILLS").
func otherSpellings(text string) []QueryTerm {
	var out []QueryTerm
	add := func(term []byte) { out = append(out, QueryTerm{Text: string(term), Other: true, Weight: 1}) }
	v := variants{text: text, query: true, found: add}
	names := variants{text: text, query: true, initials: true, found: func(term []byte) {
		out = append(out, QueryTerm{Text: string(term), Name: true, Other: true, Weight: 1})
	}}
	var last Term
	lastStop := true
	for _, t := range Terms(text) {
		v.term(t)
		names.term(t)
		word, stop := text[t.Start:t.End], t.Ideograph || stopWords[t.Text]
		if !stop && !lastStop && text[last.End:t.Start] == " " {
			if v.buf = foldWord(foldWord(v.buf[:0], text[last.Start:last.End]), word); !digits(string(v.buf)) {
				v.emit()
			}
		}
		if n := len(word); !t.Ideograph && n >= 3 && n <= maxInitials && word == strings.ToUpper(word) && word != strings.ToLower(word) && !hasBoundary(word) {
			out = append(out, QueryTerm{Text: string(foldWord(nil, word)), Prefix: true, Name: true, Other: true, Weight: 1}) // JPM, JPMORGAN
		}
		last, lastStop = t, stop
	}
	v.end()
	names.end()
	return out
}

// groups joins terms that are adjacent without a space ("X-200", "user@host", a run
// of ideographs) or, if quoted, all of them. Ideographs and other words are never
// joined: the tail of a run is between them in the index.
func groups(text string, quoted bool) []Group {
	var out []Group
	var last Term
	start := 0
	terms := Terms(text)
	for i, t := range terms {
		alone := t.Tail && (i == 0 || terms[i-1].End != t.End)
		if t.Tail && !alone {
			continue
		}
		between := text[min(last.End, t.Start):t.Start]
		joined := len(out) > 0 && t.Ideograph == last.Ideograph && !out[len(out)-1].Prefix && !alone
		if t.Ideograph {
			joined = joined && t.Start < last.End
		} else {
			joined = joined && (quoted || !strings.ContainsFunc(between, unicode.IsSpace))
		}
		if !joined {
			if len(out) == maxGroups {
				break
			}
			start = t.Start
			out = append(out, Group{Prefix: alone, Quoted: quoted})
		}
		if g := &out[len(out)-1]; len(g.Terms) < maxGroupTerms {
			g.Terms = append(g.Terms, t.Text)
			g.Source = text[start:t.End]
		}
		last = t
	}
	return out
}

// Highlight returns text HTML-escaped, with the query's words between <mark> and
// </mark>.
func (w Words) Highlight(text string) string {
	var b strings.Builder
	b.Grow(len(text) + len(text)/8)
	done := 0 // bytes of text written
	open := -1
	markEnd := 0
	flush := func() {
		if open >= 0 {
			b.WriteString("<mark>")
			writeEscaped(&b, text[open:markEnd])
			b.WriteString("</mark>")
			done, open = markEnd, -1
		}
	}
	for _, t := range Terms(text) {
		end := w.matches(t)
		if end <= done {
			continue
		}
		if open >= 0 && t.Start <= markEnd {
			markEnd = max(markEnd, end)
			continue
		}
		flush()
		writeEscaped(&b, text[done:t.Start])
		open, markEnd = t.Start, end
	}
	flush()
	writeEscaped(&b, text[done:])
	return b.String()
}

// matches returns the byte up to which t is to be marked, 0 for not at all.
func (w Words) matches(t Term) int {
	if w.marks[t.Text] {
		return t.End
	}
	if t.Ideograph {
		for _, p := range w.starts {
			if strings.HasPrefix(t.Text, p) {
				return t.Start + len(p)
			}
		}
	}
	return 0
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

func writeEscaped(b *strings.Builder, s string) { _, _ = escaper.WriteString(b, s) }
