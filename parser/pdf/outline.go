package pdf

import (
	"maps"
	"strings"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"sheaf"
)

// bookmarks reads the outline from the objects held by pdfcpu. Measured on 1,426
// bookmarks in 2,415 pages: asking the engine for the page behind each takes 2 s,
// since it walks the page tree every time; this takes a few milliseconds.
type bookmarks struct {
	objects resolver
	pageOf  map[int]int             // object number of a page → its index from 0
	root    types.Dict              // the catalog
	named   map[string]types.Object // all names, once one was not found
	looked  int                     // nodes and names examined
	seen    map[int]bool
	out     []sheaf.Heading
}

// maxNames limits the named destinations that are read.
const maxNames = 200_000

func (b *bookmarks) read(root types.Dict) []sheaf.Heading {
	outlines := dictOf(b.objects, root["Outlines"])
	if outlines == nil {
		return nil
	}
	b.root, b.seen = root, map[int]bool{}
	b.walk(outlines["First"], 1)
	return b.out
}

// destination returns the target of a name. Manuals name thousands of places: a
// name is looked up where the tree says it is, and only if that fails are all names
// read.
func (b *bookmarks) destination(name string) types.Object {
	tree := dictOf(b.objects, b.root["Names"])["Dests"]
	if b.named == nil {
		if o := b.find(tree, name, 0); o != nil && b.looked < maxLooked {
			return o
		}
		b.named = map[string]types.Object{}
		maps.Copy(b.named, dictOf(b.objects, b.root["Dests"]))
		b.names(tree, 0)
	}
	return b.named[name]
}

// find looks up a name in a name tree (ISO 32000-1, 7.9.6), whose nodes give the
// limits of their names.
func (b *bookmarks) find(o types.Object, name string, depth int) types.Object {
	node := dictOf(b.objects, o)
	if b.looked++; node == nil || depth > maxTreeDepth || b.looked >= maxLooked {
		return nil
	}
	if limits := arrayOf(b.objects, node["Limits"]); len(limits) == 2 {
		least, ok1 := stringOf(limits[0])
		most, ok2 := stringOf(limits[1])
		if ok1 && ok2 && (name < least || name > most) {
			return nil
		}
	}
	pairs := arrayOf(b.objects, node["Names"])
	b.looked += len(pairs) / 2
	for i := 0; i+1 < len(pairs); i += 2 {
		if key, ok := stringOf(pairs[i]); ok && key == name {
			return pairs[i+1]
		}
	}
	for _, k := range arrayOf(b.objects, node["Kids"]) {
		if found := b.find(k, name, depth+1); found != nil {
			return found
		}
	}
	return nil
}

const (
	maxTreeDepth = 32     // maximum depth of a name tree
	maxLooked    = 20_000 // nodes and names examined before reading all, which is then cheaper
)

func stringOf(o types.Object) (string, bool) {
	s, err := types.StringOrHexLiteral(o)
	if err != nil || s == nil {
		return "", false
	}
	return *s, true
}

// names reads a name tree.
func (b *bookmarks) names(o types.Object, depth int) {
	node := dictOf(b.objects, o)
	if node == nil || depth > maxTreeDepth || len(b.named) > maxNames {
		return
	}
	pairs := arrayOf(b.objects, node["Names"])
	for i := 0; i+1 < len(pairs); i += 2 {
		if key, ok := stringOf(pairs[i]); ok {
			b.named[key] = pairs[i+1]
		}
	}
	for _, k := range arrayOf(b.objects, node["Kids"]) {
		b.names(k, depth+1)
	}
}

func (b *bookmarks) walk(o types.Object, level int) {
	for o != nil && len(b.out) < maxBookmarks && level <= 16 {
		ref, ok := o.(types.IndirectRef)
		if !ok || b.seen[ref.ObjectNumber.Value()] {
			return
		}
		b.seen[ref.ObjectNumber.Value()] = true
		node := dictOf(b.objects, ref)
		if node == nil {
			return
		}
		title := ""
		if t, err := b.objects.Dereference(node["Title"]); err == nil {
			if s, err := types.StringOrHexLiteral(t); err == nil && s != nil {
				title = strings.Join(strings.Fields(cleanMeta(*s)), " ")
			}
		}
		if page, ok := b.target(node); ok && title != "" {
			b.out = append(b.out, sheaf.Heading{Level: level, Title: title, Page: page + 1})
		}
		b.walk(node["First"], level+1)
		o = node["Next"]
	}
}

// target is the page a bookmark leads to: by an explicit destination, a name, or a
// GoTo action (ISO 32000-1, 12.3).
func (b *bookmarks) target(node types.Dict) (page int, ok bool) {
	dest, has := node.Find("Dest")
	if !has {
		dest = dictOf(b.objects, node["A"])["D"]
	}
	for range 3 { // a name leads to an array, or to a dictionary with one
		o, err := b.objects.Dereference(dest)
		if err != nil || o == nil {
			return 0, false
		}
		switch v := o.(type) {
		case types.Array:
			if len(v) == 0 {
				return 0, false
			}
			if ref, isRef := v[0].(types.IndirectRef); isRef {
				page, ok = b.pageOf[ref.ObjectNumber.Value()]
			}
			return page, ok
		case types.Dict:
			dest = v["D"]
		case types.Name:
			dest = b.destination(v.Value())
		default:
			s, err := types.StringOrHexLiteral(o)
			if err != nil || s == nil {
				return 0, false
			}
			dest = b.destination(*s)
		}
	}
	return 0, false
}
