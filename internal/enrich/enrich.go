// Package enrich adds to chunks what they are found by beside their text:
// language, keywords, questions, the context in the document; and finds personal
// data before anything is stored. It stands around chunking, before embedding.
package enrich

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/abadojack/whatlanggo"

	"sheaf"
)

// languageRunes is how much of a text tells its language: the detector is best
// on less than a thousand characters.
const languageRunes = 400

// Language is the ISO 639-1 code of the text's language, "" where the detector
// is not sure.
func Language(text string) string {
	info := whatlanggo.Detect(beginning(text))
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

// goesOnIn reports whether text is plainly in the given language: a fifth of
// its words and more are the language's stop words, and no other list has two
// thirds as many. Chunks mostly go on in the language of the one before, and
// comparing a text with the profiles of all languages costs thirty times this;
// measured: it was half of what ingesting cost around the parser.
func goesOnIn(text, language string) bool {
	if stopWords[language] == nil {
		return false
	}
	words, hits, others := 0, 0, map[string]int{}
	for w := range strings.FieldsFuncSeq(strings.ToLower(beginning(text)), func(r rune) bool { return !unicode.IsLetter(r) }) {
		words++
		for l, list := range stopWords {
			switch {
			case !list[w]:
			case l == language:
				hits++
			default:
				others[l]++
			}
		}
	}
	for _, n := range others {
		if 3*n >= 2*hits {
			return false
		}
	}
	return words >= 12 && 5*hits >= words
}

// Languages gives chunks of prose their language.
func Languages(chunks []sheaf.Chunk) {
	last := ""
	for i := range chunks {
		c := &chunks[i]
		if c.Kind != sheaf.ChunkText && c.Kind != sheaf.ChunkImage {
			continue
		}
		if c.Language = last; !goesOnIn(c.Text, last) {
			c.Language = Language(c.Text)
		}
		last = cmp.Or(c.Language, last)
	}
}

// CountedKeywords gives up to n keywords, found by counting, to each chunk that
// has none.
func CountedKeywords(chunks []sheaf.Chunk, n int) {
	if n < 1 || !slices.ContainsFunc(chunks, func(c sheaf.Chunk) bool { return len(c.Keywords) == 0 }) {
		return
	}
	texts, languages := make([]string, len(chunks)), make([]string, len(chunks))
	for i, c := range chunks {
		texts[i], languages[i] = c.Text, c.Language
	}
	for i, k := range Keywords(texts, languages, n) {
		if len(chunks[i].Keywords) == 0 {
			chunks[i].Keywords = k
		}
	}
}

// PersonalData finds, and with redact replaces, personal data in what was read
// of a range and in the headings in force where it starts, and says as a
// warning what there was.
func PersonalData(units []sheaf.UnitResult, headings []string, redact bool) []sheaf.Warning {
	counts := Units(units, redact)
	if redact {
		for i := range headings { // they are counted where they stand
			headings[i] = Redact(headings[i], map[string]int{})
		}
	}
	if len(counts) == 0 {
		return nil
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[kind], kind))
	}
	what := "found"
	if redact {
		what = "replaced"
	}
	return []sheaf.Warning{{Code: "personal_data", Message: "Personal data was " + what + ": " + strings.Join(parts, ", ") + "."}}
}
