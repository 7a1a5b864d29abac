package index

import "unicode/utf8"

// If nothing matches the words of a query, similar words are searched: with a typo
// (Levenshtein distance, the first letter being right), as the start of a longer
// word, and as the beginning or end of a compound.

// Slips is how many edits a term may differ from the intended one.
func Slips(term string) int {
	switch n := utf8.RuneCountInString(term); {
	case n >= 8:
		return 2
	case n >= 4:
		return 1
	}
	return 0
}

// leastPiece is the shortest part of a compound, in characters.
const leastPiece = 5

// Pieces returns the beginnings and ends of a term that may themselves be words.
func Pieces(term string) []string {
	runes := []rune(term)
	var out []string
	for n := leastPiece; n <= len(runes)-3; n++ {
		out = append(out, string(runes[:n]), string(runes[len(runes)-n:]))
	}
	return out
}

// Within reports whether a becomes b by at most most insertions, deletions and
// replacements of a character.
func Within(a, b string, most int) bool {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) > most || len(y)-len(x) > most {
		return false
	}
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j := range y {
			cost := diagonal
			if x[i] != y[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
			least = min(least, cost)
		}
		if least > most {
			return false
		}
	}
	return row[len(y)] <= most
}
