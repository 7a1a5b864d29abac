// Package links places the addresses that a format's markup gives on the text that was
// made of it. The chunker hands them on, so that an answer can name the address.
package links

import (
	"net/url"
	"strings"

	"sheaf"
	"sheaf/parser/internal/clean"
)

// Limits per block; a chunk hands on fewer.
const (
	maxLinks = 500
	maxBytes = 2 << 10 // of one address, as in package chunker
)

// Link is a text that leads to an address.
type Link struct{ Text, URI string }

// Address returns the address behind a reference in a document, "" for one that leads
// nowhere outside of it: base, which may be nil, is what a relative one refers to.
func Address(ref string, base *url.URL) string {
	ref = strings.TrimSpace(ref)
	if ref == "" || ref[0] == '#' || len(ref) > maxBytes {
		return ""
	}
	u, err := url.Parse(ref)
	if err != nil {
		return ""
	}
	if base != nil {
		u = base.ResolveReference(u)
	}
	switch u.Scheme {
	case "http", "https", "ftp":
		if u.Host == "" {
			return ""
		}
	case "mailto":
	default:
		return ""
	}
	if s := u.String(); len(s) <= maxBytes {
		return s
	}
	return ""
}

// Place returns the links of a block's text: each where its own text comes next, or
// on all of it if markup made that unrecognisable.
func Place(text string, found []Link) []sheaf.Link {
	var out []sheaf.Link
	at := 0
	for _, l := range found[:min(len(found), maxLinks)] {
		to := sheaf.Link{End: len(text), URI: l.URI}
		if t := clean.Lines(l.Text); t != "" {
			if i := strings.Index(text[at:], t); i >= 0 {
				to.Start, to.End = at+i, at+i+len(t)
				at = to.End
			}
		}
		if to.End > to.Start {
			out = append(out, to)
		}
	}
	return out
}
