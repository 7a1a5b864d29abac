package parser

import (
	"bytes"
	"strings"

	"sheaf"
)

// FileType is a type of file that a format reads. Sniffing, the chunk methods
// that a file may have, and the tables of the handbook and the page follow from
// it alone.
type FileType struct {
	MediaType  string   // lower case, without parameters
	Aliases    []string // other media types that mean the same
	Name       string   // for people: "Word"; "" for what is called by its extension
	Extensions []string // lower case, with the dot
	// Text says that the file is text, whose bytes rarely say what kind: the
	// extension is asked before Magic. Otherwise Magic is asked first.
	Text  bool
	Magic []Magic // any of them tells the type
	// Repairs says that text under one of the extensions is this type all the
	// same: the format reads files whose beginning was lost.
	Repairs bool
	// Families are those of sheaf.ChunkMethod.Takes. A file of none is cut by
	// methods for every format.
	Families []sheaf.FileFamily
	Nests    bool // may hold files that are read with it

	Unit   sheaf.Unit // of its plans; "" is that of what the file holds
	Ranges string     // how many units a task covers, for people; "" for files that are not split
	Needs  string     // the optional part it needs, for people
}

// Magic knows a type by the bytes of a file. One of Bytes, Entry, Stream and
// Looks is set.
type Magic struct {
	Bytes  string // that stand at Offset
	Offset int
	Within int    // not 0: Bytes stand anywhere in so many first bytes
	Entry  string // an entry of a ZIP file; "mimetype" is the first, which holds the media type as it is
	Stream string // a stream of a compound file [MS-CFB]. A trailing * of Entry or Stream stands for any rest
	// Looks is asked of the first SniffHeadBytes of a file.
	Looks func(head []byte) bool
}

// Types makes a type of each media type, alike in all else.
func Types(like FileType, mediaTypes ...string) []FileType {
	all := make([]FileType, len(mediaTypes))
	for i, mt := range mediaTypes {
		all[i] = like
		all[i].MediaType = mt
	}
	return all
}

// MediaTypes lists what f reads, the types themselves before their aliases.
func MediaTypes(f Format) []string {
	var names, aliases []string
	for _, t := range f.Types() {
		names, aliases = append(names, t.MediaType), append(aliases, t.Aliases...)
	}
	return append(names, aliases...)
}

func (m Magic) inHead(head []byte) bool {
	switch {
	case m.Looks != nil:
		return m.Looks(head)
	case m.Bytes == "" || m.Offset > len(head):
		return false
	case m.Within > 0:
		return bytes.Contains(head[:min(len(head), m.Within)], []byte(m.Bytes))
	}
	return bytes.HasPrefix(head[m.Offset:], []byte(m.Bytes))
}

// named reports whether the name of an entry or a stream fits a pattern.
func named(pattern, name string) bool {
	begin, open := strings.CutSuffix(pattern, "*")
	return pattern != "" && (name == pattern || open && strings.HasPrefix(name, begin))
}
