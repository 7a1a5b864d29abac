package graph

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unique"
)

// resolve finds keys that mean the same and notes why: a plural beside its
// singular, and an acronym beside the one name that it abbreviates, where a
// chunk holds both. No union rests on another, so that a wrong one does not
// draw in others.
func (f *fold) resolve() (unions []Union) {
	for n, key := range f.keys {
		if single := singular(key.Value()); single != "" {
			if s, known := f.number[unique.Make(single)]; known {
				f.into[n] = s
			}
		}
	}
	acronyms := map[int32][]int32{} // in capitals where they are written so, with their chunks
	for i := range f.all {
		for k, n := range f.mentions(i) {
			if isAcronym(f.all[i].Extraction.Mentions[k].Name.Value()) {
				acronyms[n] = append(acronyms[n], int32(i))
			}
		}
	}
	byKey := func(a, b int32) int { return strings.Compare(f.keys[a].Value(), f.keys[b].Value()) }
	// Of an acronym, the names that it may stand for in the chunks that have it.
	for _, n := range slices.SortedFunc(maps.Keys(acronyms), byKey) {
		found := map[int32]bool{}
		for _, at := range acronyms[n] {
			for _, k := range f.mentions(int(at)) {
				if initials(f.keys[k].Value()) == f.keys[n].Value() {
					found[f.into[k]] = true
				}
			}
		}
		if len(found) == 1 && f.into[n] == n {
			for k := range found {
				f.into[n] = k
			}
		}
	}
	var moved []int32
	for n, k := range f.into {
		if k != int32(n) {
			moved = append(moved, int32(n))
		}
	}
	slices.SortFunc(moved, byKey)
	// A plural that leads to an acronym leads to its name.
	for _, n := range moved {
		k, reason := f.into[n], "plural"
		if _, ok := acronyms[n]; ok && initials(f.keys[k].Value()) == f.keys[n].Value() {
			reason = "acronym"
		}
		f.into[n] = f.into[k]
		unions = append(unions, Union{f.keys[n].Value(), f.keys[f.into[n]].Value(), reason})
	}
	return unions
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
