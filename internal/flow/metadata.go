package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"sheaf"
)

// Limits on the metadata that nodes add to a chunk.
const (
	maxAdded      = 32  // names
	maxAddedBytes = 256 // per value: what search can filter by
)

// reserved are the names of chunks' built-in metadata.
var reserved = []string{sheaf.MetadataTitle, sheaf.MetadataLinks, sheaf.MetadataLabels, sheaf.MetadataFigures, sheaf.MetadataPictures, sheaf.MetadataPersonal, sheaf.MetadataAdded}

// checkName reports what is wrong with a name of metadata, "" for nothing.
func checkName(name string) string {
	if !nameRule.MatchString(name) {
		return fmt.Sprintf("%q is no name of metadata: use lower-case letters, digits, - and _, up to 63", name)
	}
	if slices.Contains(reserved, name) {
		return fmt.Sprintf("%q is a name that chunks have of their own; choose another", name)
	}
	return ""
}

// add gives a chunk metadata, and records that it is the chunk's own: it is copied
// with the chunk to other documents with the same bytes.
func add(c *sheaf.Chunk, values map[string]string) {
	if len(values) == 0 {
		return
	}
	own := map[string]bool{}
	for _, name := range strings.Fields(c.Metadata[sheaf.MetadataAdded]) {
		own[name] = true
	}
	m := maps.Clone(c.Metadata) // the map is shared
	if m == nil {
		m = map[string]string{}
	}
	for name, v := range values {
		m[name], own[name] = v, true
	}
	m[sheaf.MetadataAdded] = strings.Join(slices.Sorted(maps.Keys(own)), " ")
	c.Metadata = m
}

// value normalizes text for metadata: one line, without control and direction
// characters, cut to what search can filter by.
func value(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)), " ")
	if len(s) > maxAddedBytes {
		s = strings.TrimSpace(strings.ToValidUTF8(s[:maxAddedBytes], ""))
	}
	return s
}

// Union joins metadata values of several ranges: each once, as long as there is
// room.
func Union(all ...string) string {
	var parts []string
	n := 0
	for _, v := range all {
		for part := range strings.SplitSeq(v, listSeparator) {
			if part == "" || slices.Contains(parts, part) || n+len(part)+len(listSeparator) > maxAddedBytes {
				continue
			}
			parts, n = append(parts, part), n+len(part)+len(listSeparator)
		}
	}
	return strings.Join(parts, listSeparator)
}

// listSeparator separates the values of a list in metadata, which is text.
const listSeparator = "; "
