package taskstore

import (
	"slices"
	"time"

	"sheaf"
)

// Limits on edits of chunks.
const (
	MaxEdits        = 2000 // per document, including undone ones
	MaxEditVersions = 200  // per edit; older ones are deleted
)

// EditContent is what users want a chunk to be. The zero value leaves it as parsed.
type EditContent struct {
	Text      *string   `json:"text,omitempty"`
	Keywords  *[]string `json:"keywords,omitempty"`
	Questions *[]string `json:"questions,omitempty"`
	// Tags are best first.
	Tags     *[]sheaf.Tag `json:"tags,omitempty"`
	Disabled bool         `json:"disabled,omitempty"` // listed but not searchable
	Deleted  bool         `json:"deleted,omitempty"`  // neither listed nor searchable
}

// Rewritten reports whether the chunk's text or search terms change.
func (c EditContent) Rewritten() bool {
	return c.Text != nil || c.Keywords != nil || c.Questions != nil || c.Tags != nil
}

// Anchor identifies the chunk that an edit belongs to by its content, because later
// generations have the chunk under another id.
type Anchor struct {
	Digest string `json:"digest,omitempty"` // of role, headings and text, hex; "" for an added chunk at the end of its document
	Nth    int    `json:"nth,omitempty"`    // among chunks with that digest, from 0
	Of     int    `json:"of,omitempty"`     // how many there were
	Prev   string `json:"prev,omitempty"`   // digest of the previous chunk, "" for none
	Next   string `json:"next,omitempty"`   // of the next chunk
	// TextDigest is the digest of role and text without headings. TextOf is how many
	// chunks had it.
	TextDigest string `json:"text_digest,omitempty"`
	TextOf     int    `json:"text_of,omitempty"`
	// For users to recognize the chunk when it is no longer found.
	Excerpt  string   `json:"excerpt,omitempty"`
	Headings []string `json:"headings,omitempty"`
	Pages    []int    `json:"pages,omitempty"`
}

// Placement is where an edit applies. The zero value means the live generation does
// not have its chunk.
type Placement struct {
	Generation int
	ChunkID    string // the chunk it changes, or that an added chunk follows; "" at the end of the document
	BaseRange  string // the range of ChunkID
	RangeID    string // holds only the edited chunk; "" if none is searchable
}

// ChunkEdit is users' edit of one chunk, or a chunk they added.
type ChunkEdit struct {
	ID         string
	TenantID   string
	DocumentID string
	Version    int // grows by one with each change, from 1
	Added      bool
	Anchor     Anchor // never changes
	Content    EditContent
	Author     string // name of the API key that made this version, "" without keys
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Placement
}

// Hides reports whether the parsed chunk is hidden.
func (e *ChunkEdit) Hides() bool {
	return !e.Added && e.Generation > 0 && (e.Content.Disabled || e.Content.Deleted || e.Content.Rewritten())
}

// Shows reports whether the edit has a searchable chunk of its own.
func (e *ChunkEdit) Shows() bool {
	return !e.Content.Disabled && !e.Content.Deleted && e.Content.Rewritten()
}

// EditVersion is one entry of an edit's history.
type EditVersion struct {
	Version int
	Content EditContent
	Author  string
	At      time.Time
}

// EditsVersion increases with every change to any of a document's edits.
func EditsVersion(edits []ChunkEdit) (sum int64) {
	for i := range edits {
		sum += int64(edits[i].Version)
	}
	return sum
}

// PlacedEdit is an edit's placement in a generation being published.
type PlacedEdit struct {
	ID string
	Placement
	Hides bool
}

// EditedRanges returns the ranges that hold the placed edits' chunks.
func EditedRanges(placed []PlacedEdit) []string {
	var ids []string
	for _, p := range placed {
		if p.RangeID != "" {
			ids = append(ids, p.RangeID)
		}
	}
	slices.Sort(ids)
	return ids
}
