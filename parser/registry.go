package parser

import (
	"maps"
	"mime"
	"slices"
	"strings"
)

// Registry finds the format for a file. It is immutable after NewRegistry and
// safe for use by many goroutines.
type Registry struct {
	formats []Format
	byID    map[string]Format
	byMedia map[string]Format
}

// NewRegistry lists the formats that the binary was built with. Where two take
// the same media type, the one that comes first is used, so that a special
// format can stand before a general one. Two formats with one id are a
// mistake of the build and panic.
func NewRegistry(formats ...Format) *Registry {
	r := &Registry{byID: map[string]Format{}, byMedia: map[string]Format{}}
	for _, f := range formats {
		if _, dup := r.byID[f.ID()]; dup {
			panic("parser: two formats with the id " + f.ID())
		}
		r.byID[f.ID()] = f
		r.formats = append(r.formats, f)
		for _, mt := range f.MediaTypes() {
			if _, taken := r.byMedia[mt]; !taken {
				r.byMedia[mt] = f
			}
		}
	}
	return r
}

// ByMediaType returns the format that reads mt. Parameters ("; charset=…") and
// letter case are ignored. A text type that no format names ("text/x-tex") is
// read by the one that takes text/plain, as RFC 2046 section 4.1.4 asks.
func (r *Registry) ByMediaType(mt string) (Format, bool) {
	mt = baseType(mt)
	if f, ok := r.byMedia[mt]; ok {
		return f, true
	}
	if strings.HasPrefix(mt, "text/") {
		f, ok := r.byMedia["text/plain"]
		return f, ok
	}
	return nil, false
}

// ByID returns the format with that id.
func (r *Registry) ByID(id string) (Format, bool) {
	f, ok := r.byID[id]
	return f, ok
}

// Formats lists the formats in the order they were given.
func (r *Registry) Formats() []Format { return slices.Clone(r.formats) }

// MediaTypes lists every media type that some format names, sorted.
func (r *Registry) MediaTypes() []string { return slices.Sorted(maps.Keys(r.byMedia)) }

func baseType(mt string) string {
	if base, _, err := mime.ParseMediaType(mt); err == nil {
		return base
	}
	base, _, _ := strings.Cut(mt, ";")
	return strings.ToLower(strings.TrimSpace(base))
}
