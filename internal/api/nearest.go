package api

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the known name that given most likely misspells, or "" if none is
// close: a typo changes, adds, drops or swaps a few letters, or truncates the word.
func Nearest(given string, known []string) string {
	given = strings.ToLower(strings.ReplaceAll(given, "-", "_"))
	if len(given) > 64 {
		return ""
	}
	best, bound := "", 0
	for _, name := range known {
		plain := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
		d := editDistance(given, plain)
		if strings.ReplaceAll(given, "_", "") == strings.ReplaceAll(plain, "_", "") || len(given) > 2 && (strings.HasPrefix(plain, given) || strings.HasPrefix(given, plain)) {
			d = min(d, 1)
		}
		if d <= max(1, len(plain)/3) && (best == "" || d < bound) {
			best, bound = name, d
		}
	}
	return best
}

// editDistance counts the letters to change, add, drop or swap with their neighbor
// to turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// didYouMean ends a sentence about an unknown name: with the closest one, and with
// all known names if they fit on a line.
func didYouMean(given string, known []string) string {
	const mostListed = 25
	near := Nearest(given, known)
	switch {
	case len(known) == 0:
		return "there are none here"
	case near != "" && (len(known) == 1 || len(known) > mostListed):
		return fmt.Sprintf("did you mean %s?", near)
	case near != "":
		return fmt.Sprintf("did you mean %s? There %s", near, listed(known))
	case len(known) > mostListed:
		return "/docs lists what there is"
	}
	return "there " + listed(known)
}

// listed returns "is a" or "are a, b and c".
func listed(names []string) string {
	if len(names) == 1 {
		return "is " + names[0]
	}
	return "are " + anyOf(names, "and")
}

// anyOf joins names as in a sentence: a, b or c.
func anyOf(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	n := len(names) - 1
	return strings.Join(names[:n], ", ") + " " + last + " " + names[n]
}

// quoted quotes a caller's input, truncated to fit a sentence.
func quoted(value string) string {
	if r := []rune(value); len(r) > 60 {
		value = string(r[:60]) + "…"
	}
	return fmt.Sprintf("%q", value)
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return out
}
