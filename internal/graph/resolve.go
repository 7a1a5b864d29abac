package graph

import (
	"slices"
	"strings"
	"unicode"
)

// resolved follows the unions of a key.
func resolved(into map[string]string, key string) string {
	if k, ok := into[key]; ok {
		return k
	}
	return key
}

// resolve finds keys that mean the same and notes why: a plural beside its
// singular, and an acronym beside the one name that it abbreviates, where a
// chunk holds both. No union rests on another, so that a wrong one does not
// draw in others.
func (g *Graph) resolve(all []Contribution) map[string]string {
	acronyms := map[string][]int32{} // in capitals where they are written so, with their chunks
	count := map[string]int{}
	for i := range all {
		for _, m := range all[i].Extraction.Mentions {
			key := m.Key.Value()
			count[key] += m.Count
			if name := m.Name.Value(); isAcronym(name) {
				acronyms[key] = append(acronyms[key], int32(i))
			}
		}
	}
	into := map[string]string{}
	for key := range count {
		if single := singular(key); single != "" && count[single] > 0 {
			into[key] = single
		}
	}
	// Of an acronym, the names that it may stand for in the chunks that have it.
	for _, key := range sortedKeys(acronyms) {
		found := map[string]int{}
		for _, at := range acronyms[key] {
			for _, m := range all[at].Extraction.Mentions {
				if k := m.Key.Value(); initials(k) == key {
					found[resolved(into, k)]++
				}
			}
		}
		if len(found) == 1 && into[key] == "" {
			for k := range found {
				into[key] = k
			}
		}
	}
	// A plural that leads to an acronym leads to its name.
	for _, key := range sortedKeys(into) {
		k := into[key]
		reason := "plural"
		if _, ok := acronyms[key]; ok && initials(k) == key {
			reason = "acronym"
		}
		if further, ok := into[k]; ok {
			into[key], k = further, further
		}
		g.Unions = append(g.Unions, Union{key, k, reason})
	}
	return into
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func isAcronym(name string) bool {
	for _, r := range name {
		if !unicode.IsUpper(r) {
			return false
		}
	}
	return len(name) >= 2 && len(name) <= 8
}

// initials are the first letters of a name of several words, without those of
// connectors: "bank of japan" gives bj.
func initials(key string) string {
	words := strings.FieldsFunc(key, func(r rune) bool { return r == ' ' || r == '-' })
	if len(words) < 2 {
		return ""
	}
	var b strings.Builder
	for _, w := range words {
		if connectors[w] {
			continue
		}
		for _, r := range w {
			b.WriteRune(r)
			break
		}
	}
	return b.String()
}

// singular is the key without its plural ending; "" where it has none.
func singular(key string) string {
	switch {
	case len(key) < 5, strings.HasSuffix(key, "ss"), strings.HasSuffix(key, "us"), strings.HasSuffix(key, "is"):
		return ""
	case strings.HasSuffix(key, "ies"):
		return key[:len(key)-3] + "y"
	case strings.HasSuffix(key, "s"):
		return key[:len(key)-1]
	}
	return ""
}
