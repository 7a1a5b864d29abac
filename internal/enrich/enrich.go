// Package enrich adds to chunks what they are found by beside their text:
// language, keywords, questions, the context in the document; and finds personal
// data before anything is stored. It stands around chunking, before embedding.
package enrich

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sheaf"
)

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
