package graph

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Splits are names of a dataset that its graph keeps apart although it would merge
// them. nil keeps none apart. Splits are immutable.
type Splits struct {
	spelled map[string]bool     // names whose spelling is their key
	apart   map[string][]string // by key, the keys it is never merged with
}

// NewSplits makes splits of lists of names: no two names of a list are ever one
// entity. Of names that differ only in capitalization, those with capitals become
// separate entities; all other spellings stay one.
func NewSplits(lists [][]string) *Splits {
	if len(lists) == 0 {
		return nil
	}
	s := &Splits{spelled: map[string]bool{}, apart: map[string][]string{}}
	for _, names := range lists {
		for _, name := range names {
			alike := func(other string) bool { return bare(other) != bare(name) && Key(other) == Key(name) }
			if bare(name) != Key(name) && slices.ContainsFunc(names, alike) {
				s.spelled[bare(name)] = true
			}
		}
	}
	for _, names := range lists {
		for _, a := range names {
			for _, b := range names {
				if a, b := s.Key(a), s.Key(b); a != b && !slices.Contains(s.apart[a], b) {
					s.apart[a] = append(s.apart[a], b)
				}
			}
		}
	}
	return s
}

// Key returns the key of a name's entity, before any merging.
func (s *Splits) Key(name string) string {
	if s != nil && len(s.spelled) > 0 {
		if b := bare(name); s.spelled[b] {
			return b
		}
	}
	return Key(name)
}

// Spelled lists the names whose spelling is their key: if it changes, texts must be
// read again.
func (s *Splits) Spelled() string {
	if s == nil {
		return ""
	}
	return strings.Join(slices.Sorted(maps.Keys(s.spelled)), "\n")
}

// others returns the keys that a key is kept apart from.
func (s *Splits) others(key string) []string {
	if s == nil {
		return nil
	}
	return s.apart[key]
}

// holds reports whether a key is kept apart from another.
func (s *Splits) holds(key string) bool { return s != nil && len(s.apart[key]) > 0 }

// Named is a way in which chunks name an entity.
type Named struct {
	Name   string
	Reason string  // of the union that made it a name of the entity; "" if only the spelling differs
	Count  int     // sentences
	Chunks []int32 // some of those that spell it this way, in Sources
}

// maxNamed limits the chunks listed per name.
const maxNamed = 20

// named lists the spellings of those entities that have several.
func (g *Graph) named(f *fold, entityOf []int32, several []bool) {
	reasons := map[string]string{}
	for _, u := range g.Unions {
		reasons[u.Key] = u.Reason
	}
	for i := range f.all {
		for k, n := range f.mentions(i) {
			e := entityOf[n]
			if e < 0 || !several[e] {
				continue
			}
			m, names := &f.all[i].Extraction.Mentions[k], &g.Entities[e].Names
			reason := ""
			if f.into[n] != n {
				reason = reasons[f.keys[n].Value()]
			}
			at := slices.IndexFunc(*names, func(w Named) bool { return w.Name == m.Name.Value() && w.Reason == reason })
			if at < 0 {
				if len(*names) == maxNames {
					continue
				}
				at = len(*names)
				*names = append(*names, Named{Name: m.Name.Value(), Reason: reason})
			}
			w := &(*names)[at]
			if w.Count += int(m.Count); len(w.Chunks) < maxNamed && !slices.Contains(w.Chunks, int32(i)) {
				w.Chunks = append(w.Chunks, int32(i))
			}
		}
	}
	for e := range g.Entities {
		slices.SortFunc(g.Entities[e].Names, func(a, b Named) int {
			return cmp.Or(strings.Compare(a.Reason, b.Reason), cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
		})
	}
}

// Writes reports whether a chunk spells an entity this way, ignoring possessives
// and surrounding punctuation.
func (g *Graph) Writes(entity int32, name string) bool {
	e := &g.Entities[entity]
	return bare(e.Name) == bare(name) || slices.ContainsFunc(e.Names, func(w Named) bool { return bare(w.Name) == bare(name) })
}
