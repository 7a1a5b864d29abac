package taskstore

import (
	"slices"
	"time"

	"sheaf"
)

// Bounds on edits of chunks.
const (
	MaxEdits        = 2000 // of one document, undone ones included
	MaxEditVersions = 200  // of one edit; older ones are forgotten
)

// EditContent is what people want a chunk to be. The zero value leaves it as it
// was parsed.
type EditContent struct {
	Text      *string   `json:"text,omitempty"`
	Keywords  *[]string `json:"keywords,omitempty"`
	Questions *[]string `json:"questions,omitempty"`
	// Tags are best first.
	Tags     *[]sheaf.Tag `json:"tags,omitempty"`
	Disabled bool         `json:"disabled,omitempty"` // listed, and not found
	Deleted  bool         `json:"deleted,omitempty"`  // neither listed nor found
}

// Rewritten reports whether the chunk reads or is found otherwise.
func (c EditContent) Rewritten() bool {
	return c.Text != nil || c.Keywords != nil || c.Questions != nil || c.Tags != nil
}

// Anchor says which chunk of a generation an edit is of, by content: a later
// generation has the chunk under another id.
type Anchor struct {
	Digest string `json:"digest,omitempty"` // of role, headings and text, hex; "" for an added chunk at the end of its document
	Nth    int    `json:"nth,omitempty"`    // among chunks with that digest, from 0
	Of     int    `json:"of,omitempty"`     // how many there were
	Prev   string `json:"prev,omitempty"`   // digest of the chunk before, "" for none
	Next   string `json:"next,omitempty"`   // of the chunk after
	// TextDigest is of role and text without its headings. TextOf is how many chunks had it.
	TextDigest string `json:"text_digest,omitempty"`
	TextOf     int    `json:"text_of,omitempty"`
	// What tells people which chunk it is when it is found no more.
	Excerpt  string   `json:"excerpt,omitempty"`
	Headings []string `json:"headings,omitempty"`
	Pages    []int    `json:"pages,omitempty"`
}

// Placement is where an edit applies. The zero value is an edit whose chunk the
// live generation does not have.
type Placement struct {
	Generation int
	ChunkID    string // that it changes, or that an added chunk follows; "" at the end of the document
	BaseRange  string // the range of ChunkID
	RangeID    string // holds the edited chunk alone; "" where nothing of it is to be found
}

// ChunkEdit is what people made of one chunk, or a chunk that they added.
type ChunkEdit struct {
	ID         string
	TenantID   string
	DocumentID string
	Version    int // grows by one with each change, from 1
	Added      bool
	Anchor     Anchor // never changes
	Content    EditContent
	Author     string // name of the key that made this version, "" without keys
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Placement
}

// Hides reports whether the chunk as it was parsed is not to be found.
func (e *ChunkEdit) Hides() bool {
	return !e.Added && e.Generation > 0 && (e.Content.Disabled || e.Content.Deleted || e.Content.Rewritten())
}

// Shows reports whether a chunk of the edit's own is to be found.
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

// EditsVersion grows with each change of any of a document's edits.
func EditsVersion(edits []ChunkEdit) (sum int64) {
	for i := range edits {
		sum += int64(edits[i].Version)
	}
	return sum
}

// PlacedEdit is where a generation that is being published has an edit.
type PlacedEdit struct {
	ID string
	Placement
	Hides bool
}

// EditedRanges are the ranges that placements hold edited chunks in.
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
