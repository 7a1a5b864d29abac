// Package enrich adds search aids to chunks besides their text: language, keywords,
// questions, the context in the document; and detects personal data before anything
// is stored. It runs around chunking, before embedding.
package enrich

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sheaf"
)

// CountedKeywords adds up to n keywords, found by counting, to each chunk that has
// none. The error is ctx's.
func CountedKeywords(ctx context.Context, chunks []sheaf.Chunk, n int) error {
	if n < 1 || !slices.ContainsFunc(chunks, func(c sheaf.Chunk) bool { return len(c.Keywords) == 0 }) {
		return nil
	}
	texts, languages := make([]string, len(chunks)), make([]string, len(chunks))
	for i, c := range chunks {
		texts[i], languages[i] = c.Text, c.Language
	}
	found, err := Keywords(ctx, texts, languages, n)
	if err != nil {
		return err
	}
	for i, k := range found {
		if len(chunks[i].Keywords) == 0 {
			chunks[i].Keywords = k
		}
	}
	return nil
}

// PersonalData finds, and with redact replaces, personal data in the units of a
// range and in the headings in force where it starts, and reports the findings as a
// warning. The error is ctx's: some data has then been replaced.
func PersonalData(ctx context.Context, units []sheaf.UnitResult, headings []string, redact bool) ([]sheaf.Warning, error) {
	counts, err := Units(ctx, units, redact)
	if err != nil {
		return nil, err
	}
	if redact {
		for i := range headings { // they are counted where they occur
			headings[i] = Redact(headings[i], map[string]int{})
		}
	}
	if len(counts) == 0 {
		return nil, nil
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[kind], kind))
	}
	what := "found"
	if redact {
		what = "replaced"
	}
	return []sheaf.Warning{{Code: "personal_data", Message: "Personal data was " + what + ": " + strings.Join(parts, ", ") + "."}}, nil
}
