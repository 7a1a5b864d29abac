package graph

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unique"
)

// resolve finds synonymous keys and records why: a plural of a singular, and an
// acronym of the only name it abbreviates, if a chunk contains both. Unions do not
// build on each other, so that a wrong one does not spread. Keys that splits keep
// apart are never merged.
func (f *fold) resolve(splits *Splits) (unions []Union) {
	apart := f.apart(splits)
	for n, key := range f.keys {
		if single := singular(key.Value()); single != "" {
			if s, known := f.number[unique.Make(single)]; known && !slices.Contains(apart[int32(n)], s) {
				f.into[n] = s
			}
		}
	}
	acronyms := map[int32][]int32{} // acronyms, if written in capitals, with their chunks
	for i := range f.all {
		for k, n := range f.mentions(i) {
			if isAcronym(f.all[i].Extraction.Mentions[k].Name.Value()) {
				acronyms[n] = append(acronyms[n], int32(i))
			}
		}
	}
	byKey := func(a, b int32) int { return strings.Compare(f.keys[a].Value(), f.keys[b].Value()) }
	// For each acronym, the names it may abbreviate in the chunks that contain it.
	for _, n := range slices.SortedFunc(maps.Keys(acronyms), byKey) {
		found := map[int32]bool{}
		for _, at := range acronyms[n] {
			for _, k := range f.mentions(int(at)) {
				if f.abbreviates(n, k) && !slices.Contains(apart[n], k) && !slices.Contains(apart[n], f.into[k]) {
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
	joined := map[int32][]int32{} // keys kept apart from others, by what they are merged into
	for _, n := range moved {
		k, reason := f.into[n], "plural"
		if _, ok := acronyms[n]; ok && f.abbreviates(n, k) {
			reason = "acronym"
		}
		to := f.into[k] // a plural of an acronym leads to the acronym's name
		if slices.ContainsFunc(apart[n], func(other int32) bool { return other == to || slices.Contains(joined[to], other) }) {
			f.into[n] = n
			continue
		}
		if f.into[n] = to; len(apart[n]) > 0 {
			joined[to] = append(joined[to], n)
		}
		unions = append(unions, Union{f.keys[n].Value(), f.keys[to].Value(), reason})
	}
	return unions
}

// apart numbers the keys that splits keep apart.
func (f *fold) apart(splits *Splits) map[int32][]int32 {
	out := map[int32][]int32{}
	if splits == nil {
		return out
	}
	for key, others := range splits.apart {
		n, known := f.number[unique.Make(key)]
		if !known {
			continue
		}
		for _, other := range others {
			if o, known := f.number[unique.Make(other)]; known {
				out[n] = append(out[n], o)
			}
		}
	}
	return out
}

// abbreviates reports whether the first key consists of the initials of the second.
func (f *fold) abbreviates(n, k int32) bool {
	letters := initials(f.keys[k].Value())
	return letters != "" && strings.EqualFold(letters, f.keys[n].Value())
}

func isAcronym(name string) bool {
	for _, r := range name {
		if !unicode.IsUpper(r) {
			return false
		}
	}
	return len(name) >= 2 && len(name) <= 8
}

// initials returns the first letters of a name of several words, except connectors:
// "bank of japan" gives bj.
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

// singular returns the key without its plural ending; "" if it has none.
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
