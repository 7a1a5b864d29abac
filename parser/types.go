package parser

import (
	"bytes"
	"strings"

	"sheaf"
)

// FileType is a type of file that a format reads. Sniffing, the applicable chunk
// methods, and the tables of the handbook and the web page all derive from it.
type FileType struct {
	MediaType  string   // lower case, without parameters
	Aliases    []string // other media types that mean the same
	Name       string   // for display: "Word"; "" if the extension serves as the name
	Extensions []string // lower case, with the dot
	// Text marks text files, whose bytes rarely reveal the type: the extension is
	// checked before Magic. Otherwise Magic is checked first.
	Text  bool
	Magic []Magic // any match determines the type
	// Repairs means that text with one of the extensions is of this type
	// regardless: the format reads files whose beginning was lost.
	Repairs bool
	// Families are those of sheaf.ChunkMethod.Takes. A file without any is cut by
	// methods that accept every format.
	Families []sheaf.FileFamily
	Nests    bool // may hold files that are read with it

	Unit   sheaf.Unit // of its plans; "" is that of the contained file
	Ranges string     // how many units a task covers, for display; "" for files that are not split
	Needs  string     // the optional part it needs, for display
}

// Magic identifies a type by the bytes of a file. One of Bytes, Entry, Stream and
// Looks is set.
type Magic struct {
	Bytes  string // expected at Offset
	Offset int
	Within int    // if not 0: Bytes may be anywhere in the first Within bytes
	Entry  string // an entry of a ZIP file; "mimetype" is the first one, which holds the media type itself
	Stream string // a stream of a compound file [MS-CFB]. A trailing * in Entry or Stream matches any suffix
	// Looks tests the first SniffHeadBytes of a file.
	Looks func(head []byte) bool
}

// Types returns one type per media type, otherwise equal to like.
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

// named reports whether an entry or stream name matches a pattern.
func named(pattern, name string) bool {
	begin, open := strings.CutSuffix(pattern, "*")
	return pattern != "" && (name == pattern || open && strings.HasPrefix(name, begin))
}
