package parser

import (
	"mime"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/settings"
)

// Registry finds the format for a file. It is immutable after NewRegistry and
// safe for use by many goroutines.
type Registry struct {
	formats     []Format
	types       []FileType // in the order of the formats
	byID        map[string]Format
	byMedia     map[string]entry // by media type and alias
	byExtension map[string]FileType
}

type entry struct {
	format Format
	kind   FileType
}

// NewRegistry registers the formats that the binary was built with. If two accept
// the same media type, the first wins, so that a specific format can precede a
// general one. Two formats with one id are a build error and panic.
func NewRegistry(formats ...Format) *Registry {
	r := &Registry{byID: map[string]Format{}, byMedia: map[string]entry{}, byExtension: map[string]FileType{}}
	for _, f := range formats {
		if _, dup := r.byID[f.ID()]; dup {
			panic("parser: two formats with the id " + f.ID())
		}
		r.byID[f.ID()] = f
		r.formats = append(r.formats, f)
		for _, t := range f.Types() {
			r.types = append(r.types, t)
			for _, mt := range append([]string{t.MediaType}, t.Aliases...) {
				if _, taken := r.byMedia[mt]; !taken {
					r.byMedia[mt] = entry{f, t}
				}
			}
			for _, ext := range t.Extensions {
				if _, taken := r.byExtension[ext]; !taken {
					r.byExtension[ext] = t
				}
			}
		}
	}
	return r
}

// ByMediaType returns the format that reads mt. Parameters ("; charset=…") and
// letter case are ignored. A text type that no format names ("text/x-tex") is read
// by the one that accepts text/plain, as RFC 2046 section 4.1.4 requires.
func (r *Registry) ByMediaType(mt string) (Format, bool) {
	mt = baseType(mt)
	e, ok := r.byMedia[mt]
	if !ok && strings.HasPrefix(mt, "text/") {
		e, ok = r.byMedia[MediaText]
	}
	return e.format, ok
}

// TypeOf returns the type for a media type or an alias. A text type that no format
// names is treated as source code.
func (r *Registry) TypeOf(mt string) (FileType, bool) {
	mt = baseType(mt)
	e, ok := r.byMedia[mt]
	if !ok && strings.HasPrefix(mt, "text/") {
		if e, ok = r.byMedia[MediaText]; ok {
			e.kind.MediaType, e.kind.Aliases, e.kind.Name, e.kind.Families = mt, nil, "", []sheaf.FileFamily{sheaf.FamilyCode}
		}
	}
	return e.kind, ok
}

// Check rejects a chunk method that does not accept files of a media type.
func (r *Registry) Check(c sheaf.ParseConfig, mediaType string) error {
	t, _ := r.TypeOf(mediaType)
	return settings.CheckType(c, mediaType, t.Families)
}

// ByID returns the format with that id.
func (r *Registry) ByID(id string) (Format, bool) {
	f, ok := r.byID[id]
	return f, ok
}

// Formats lists the formats in registration order.
func (r *Registry) Formats() []Format { return slices.Clone(r.formats) }

func baseType(mt string) string {
	if base, _, err := mime.ParseMediaType(mt); err == nil {
		return base
	}
	base, _, _ := strings.Cut(mt, ";")
	return strings.ToLower(strings.TrimSpace(base))
}
