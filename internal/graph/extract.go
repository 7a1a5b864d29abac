package graph

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
	"unique"

	"sheaf/internal/enrich"
)

// Version increases with each change to the results of Extract: results of
// different versions are not comparable.
const Version = 1

// Limits on what one chunk contributes.
const (
	maxNameBytes    = 200
	maxNameWords    = 8
	maxPerSentence  = 12   // entities of one sentence that form pairs
	maxPerChunk     = 200  // Link holds 256
	maxSentences    = 2000 // Link counts 65,535
	maxExtractBytes = 1 << 20
)

// Type is the kind of an entity, as far as rules can tell.
type Type uint8

// Types of entities.
const (
	TypeName         Type = iota // capitalized
	TypeOrganization             // ends like the name of a company or authority
	TypePerson                   // follows a title
	TypeTerm                     // a noun phrase
	types
)

func (t Type) String() string { return [...]string{"name", "organization", "person", "term"}[t] }

// Mention is an entity as named by one chunk. A dataset has millions of them, and
// tens of millions of links, so both are small.
type Mention struct {
	Key   unique.Handle[string] // normalised
	Name  unique.Handle[string] // its most frequent spelling there
	Count int32                 // sentences that name it
	Type  Type
	Weak  bool // only where every word is capitalized
}

// Link is two mentions that occur in the same sentences.
type Link struct {
	A, B  uint8  // in Mentions, A < B
	Count uint16 // sentences
}

// Extraction is the set of entities that a text names.
type Extraction struct {
	Mentions  []Mention
	Links     []Link
	Sentences int
	Told      *Told // by a model; nil for the results of rules
}

// Extract finds the names and noun phrases of a text by rules: adjacent capitalized
// words, and, except in German, where nouns are capitalized, pairs of words between
// stop words. language is ISO 639-1 or "". lines means that each line is a
// sentence, as in a table. Languages written without spaces yield only names in
// Latin letters and Katakana. Names that splits keep apart are separate mentions.
func Extract(text, language string, lines bool, splits *Splits) Extraction {
	if len(text) > maxExtractBytes {
		text = strings.ToValidUTF8(text[:maxExtractBytes], "")
	}
	var x Extraction
	at := map[string]int{}
	links := map[[2]int]int{}
	for sentence := range sentences(text, lines) {
		if x.Sentences++; x.Sentences > maxSentences {
			break
		}
		var here, runs []int
		for _, f := range find(sentence, language) {
			key := splits.Key(f.name)
			if key == "" || len(key) > maxNameBytes {
				continue
			}
			i, known := at[key]
			if !known {
				if len(x.Mentions) == maxPerChunk {
					continue
				}
				i = len(x.Mentions)
				at[key] = i
				x.Mentions = append(x.Mentions, Mention{Key: unique.Make(key), Name: unique.Make(Clean(f.name)), Type: f.kind, Weak: true})
			}
			m := &x.Mentions[i]
			m.Weak = m.Weak && f.weak
			if m.Type == TypeName {
				m.Type = f.kind
			}
			if !slices.Contains(here, i) {
				m.Count++
				here, runs = append(here, i), append(runs, f.run)
			}
		}
		here = here[:min(len(here), maxPerSentence)]
		for n, a := range here {
			for m := n + 1; m < len(here); m++ {
				if b := here[m]; runs[n] == 0 || runs[n] != runs[m] {
					links[[2]int{min(a, b), max(a, b)}]++
				}
			}
		}
	}
	x.Mentions = slices.Clone(x.Mentions) // without append's spare capacity
	x.Links = make([]Link, 0, len(links))
	for pair, n := range links {
		x.Links = append(x.Links, Link{uint8(pair[0]), uint8(pair[1]), uint16(n)})
	}
	slices.SortFunc(x.Links, func(a, b Link) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	return x
}

// Size returns the approximate memory of an extraction, in bytes. Texts shared with
// others are not counted.
func (x *Extraction) Size() int64 {
	n := 64 + 24*len(x.Mentions) + 4*len(x.Links)
	if x.Told != nil {
		for _, list := range [][]string{x.Told.Types, x.Told.Mentions, x.Told.Relations} {
			for _, s := range list {
				n += 16 + len(s)
			}
		}
	}
	return int64(n)
}

// Clean makes a name one line of valid UTF-8 without control and format characters,
// such as those that reverse the direction of writing.
func Clean(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError, unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
			return -1
		}
		return r
	}, name)
	return strings.Join(strings.Fields(name), " ")
}

// Key is the normalised form of a name, by which names are compared: in lower case,
// without a possessive and surrounding punctuation.
func Key(name string) string { return strings.ToLower(bare(name)) }

// bare is a name with its capitalization, without a possessive and surrounding
// punctuation.
func bare(name string) string {
	k := Clean(name)
	for _, s := range []string{"'s", "'S", "’s", "’S", "'", "’"} {
		k = strings.TrimSuffix(k, s)
	}
	return strings.Trim(k, " -.,;:'’\"/&")
}

// Words returns the significant words of a name or query, in lower case.
func Words(s string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(Clean(s)), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		if !enrich.IsStopWord(w, "") {
			out = append(out, w)
		}
	}
	return out
}

// sentences splits a text. A line break ends a sentence if a blank line or a list
// item follows, or the line is complete.
func sentences(text string, lines bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start := 0
		emit := func(end int) bool {
			s := strings.TrimSpace(text[start:end])
			start = end
			return s == "" || yield(s)
		}
		for i := 0; i < len(text); {
			r, size := utf8.DecodeRuneInString(text[i:])
			next := i + size
			end := false
			switch r {
			case '。', '！', '？', '!', '?':
				end = true
			case '\n':
				rest := strings.TrimLeft(text[next:], " \t")
				end = lines || rest == "" || rest[0] == '\n' || strings.IndexByte("-*|#", rest[0]) >= 0 || strings.HasPrefix(rest, "•") || strings.HasSuffix(strings.TrimRight(text[start:i], " "), ":")
			case '|', '\t':
				end = false
			case '.':
				end = stops(text[start:i], text[next:])
			}
			if end && !emit(next) {
				return
			}
			i = next
		}
		emit(len(text))
	}
}

// abbreviations do not end a sentence with their full stop.
var abbreviations = map[string]bool{"dr": true, "mr": true, "mrs": true, "ms": true, "prof": true, "st": true, "nr": true, "no": true, "bzw": true, "ca": true,
	"vgl": true, "art": true, "abs": true, "fig": true, "vs": true, "inc": true, "ltd": true, "co": true, "corp": true, "sr": true, "jr": true, "str": true, "usw": true, "e.g": true, "i.e": true, "z.b": true, "d.h": true, "u.a": true}

// stops reports whether the full stop between before and after ends a sentence.
func stops(before, after string) bool {
	if after == "" {
		return true
	}
	if after[0] != ' ' && after[0] != '\n' {
		return false
	}
	word := before[strings.LastIndexAny(before, " \n(")+1:]
	if abbreviations[strings.ToLower(word)] || utf8.RuneCountInString(word) == 1 && unicode.IsLetter([]rune(word)[0]) {
		return false
	}
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(after, " \n\"“„(»«'"))
	if unicode.IsDigit(r) && strings.Trim(word, "0123456789") == "" {
		return false
	}
	return !unicode.IsLower(r)
}

type word struct {
	text   string // of the sentence
	lower  string
	joined bool // separated from the previous word only by spaces
	cap    bool
	acr    bool // all letters are capitals, at least two
	digits bool // contains a digit
	stop   bool
}

// found is a name as spelled in a sentence.
type found struct {
	name string
	kind Type
	weak bool
	run  int // identifies a run of overlapping word pairs; otherwise 0
}

// connectors occur inside names.
var connectors = map[string]bool{"of": true, "de": true, "du": true, "des": true, "del": true, "della": true, "di": true, "da": true, "von": true, "van": true, "der": true, "den": true, "für": true, "for": true, "zu": true, "la": true}

var organizations = map[string]bool{"inc": true, "ltd": true, "llc": true, "gmbh": true, "ag": true, "se": true, "kg": true, "plc": true, "corp": true, "corporation": true, "company": true, "university": true, "universität": true, "hochschule": true,
	"bank": true, "institute": true, "institut": true, "ministry": true, "ministerium": true, "bundesamt": true, "agency": true, "committee": true, "council": true, "commission": true, "kommission": true, "association": true, "verband": true, "verein": true, "sa": true, "bv": true, "foundation": true, "stiftung": true}

var titles = map[string]bool{"mr": true, "mrs": true, "ms": true, "dr": true, "prof": true, "herr": true, "frau": true, "herrn": true, "sir": true, "madame": true, "monsieur": true, "señor": true, "señora": true}

// find lists the names of a sentence in order.
func find(sentence, language string) []found {
	words := split(sentence, language)
	if shouted(words) {
		return nil
	}
	var out []found
	for i := 0; i < len(words); {
		w := &words[i]
		switch {
		case w.cap && !w.stop && !isNumber(w):
			j := nameEnd(words, i)
			n := words[i:j]
			kind, from := TypeName, 0
			if last := n[len(n)-1]; organizations[strings.Trim(last.lower, ".")] {
				kind = TypeOrganization
			} else if titles[strings.Trim(n[0].lower, ".")] {
				if len(n) == 1 {
					i = j
					continue
				}
				kind, from = TypePerson, 1
			}
			if len(n) <= maxNameWords && (len(n)-from > 1 || utf8.RuneCountInString(n[from].text) > 1) {
				// A single word at the beginning of a sentence may be any word.
				weak := i == 0 && len(n) == 1 && !w.acr && !w.digits && !inner(w.text)
				out = append(out, found{join(n[from:]), kind, weak, 0})
			}
			i = j
		case katakana(w.text):
			out = append(out, found{w.text, TypeName, false, 0})
			i++
		case language != "de" && plain(w):
			j := i + 1
			for j < len(words) && words[j].joined && plain(&words[j]) {
				j++
			}
			// If a verb is next to the noun phrase, the pairs that recur reveal it.
			if n := j - i; n >= 2 && n <= 4 {
				for k := i; k+1 < j; k++ {
					out = append(out, found{join(words[k : k+2]), TypeTerm, false, i + 1})
				}
			}
			i = j
		default:
			i++
		}
	}
	return out
}

// nameEnd returns where the name that begins at words[i] ends.
func nameEnd(words []word, i int) int {
	j := i + 1
	for j < len(words) && words[j].joined {
		w := &words[j]
		if w.cap && !w.stop || w.digits && len(w.text) <= 6 && j == i+1 && (words[i].acr || isNumber(w)) {
			j++
			continue
		}
		// A connector belongs to the name if a capital follows.
		if connectors[w.lower] && !w.cap && j+1 < len(words) && words[j+1].joined && words[j+1].cap && !words[j+1].stop {
			j += 2
			continue
		}
		break
	}
	return j
}

// join returns the text of adjacent words.
func join(words []word) string {
	parts := make([]string, len(words))
	for i := range words {
		parts[i] = words[i].text
	}
	return strings.Join(parts, " ")
}

// plain reports whether a word may be part of a lower-case noun phrase.
func plain(w *word) bool {
	return !w.stop && !w.cap && !w.digits && len(w.lower) > 2 && !strings.HasSuffix(w.lower, "ly") && w.text[0] < utf8.RuneSelf
}

func isNumber(w *word) bool {
	return strings.Trim(w.text, "0123456789.,-/") == ""
}

// inner reports whether a word has a capital inside, as in PostgreSQL.
func inner(s string) bool {
	for i, r := range s {
		if i > 0 && unicode.IsUpper(r) {
			return true
		}
	}
	return false
}

func katakana(s string) bool {
	n := 0
	for _, r := range s {
		if !unicode.Is(unicode.Katakana, r) && r != 'ー' {
			return false
		}
		n++
	}
	return n > 1
}

// shouted reports whether a sentence is written in capitals, which then mean nothing.
func shouted(words []word) bool {
	n := 0
	for i := range words {
		if words[i].acr {
			n++
		}
	}
	return len(words) >= 4 && 2*n > len(words)
}

// split finds the words of a sentence.
func split(sentence, language string) []word {
	var out []word
	start, space := -1, false
	class := 0
	end := func(i int) {
		if start < 0 {
			return
		}
		text := strings.TrimRight(sentence[start:i], ".-'’&/")
		if text != "" {
			w := word{text: text, lower: strings.ToLower(text), joined: space && len(out) > 0}
			w.lower = strings.TrimSuffix(strings.TrimSuffix(w.lower, "'s"), "’s")
			letters, upper := 0, 0
			for _, r := range text {
				switch {
				case unicode.IsDigit(r):
					w.digits = true
				case unicode.IsLetter(r):
					letters++
					if unicode.IsUpper(r) {
						upper++
					}
				}
			}
			first, _ := utf8.DecodeRuneInString(text)
			w.cap = unicode.IsUpper(first) || inner(text)
			w.acr = upper == letters && letters >= 2
			// IT and US are names, it and us are not. A sentence may begin with a
			// stop word of a language other than the detected one.
			w.stop = (enrich.IsStopWord(w.lower, language) || len(out) == 0 && enrich.IsStopWord(w.lower, "")) && !(w.acr && letters <= 4)
			out = append(out, w)
		}
		start, space = -1, true
	}
	for i, r := range sentence {
		c := 0
		switch {
		case unicode.Is(unicode.Katakana, r), r == 'ー':
			c = 2
		case unicode.In(r, unicode.Han, unicode.Hiragana):
			c = 0
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r):
			c = 1
		case start >= 0 && class == 1 && (r == '-' || r == '\'' || r == '’' || r == '&' || r == '.' || r == '/'):
			// part of a word if a letter follows
			next, _ := utf8.DecodeRuneInString(sentence[i+utf8.RuneLen(r):])
			if unicode.IsLetter(next) || unicode.IsDigit(next) {
				c = 1
			}
		case unicode.Is(unicode.Cf, r):
			continue // ignored inside and between words
		}
		if c == 0 || start >= 0 && c != class {
			end(i)
		}
		if c != 0 && start < 0 {
			start, class = i, c
		}
		if c == 0 && !unicode.IsSpace(r) && !(r == '.' && len(out) > 0 && abbreviations[out[len(out)-1].lower]) {
			space = false
		}
	}
	end(len(sentence))
	return out
}
