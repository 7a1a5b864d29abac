// Package edits applies users' edits of chunks on top of range results, which never
// change. A Service accepts edits for the API; a Writer writes the range of an
// edited chunk, also for the executor, which places the edits of a document in each
// generation that it publishes.
package edits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/taskstore"
)

// digestBytes of a SHA-256 distinguish the chunks of one document.
const digestBytes = 16

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:digestBytes])
}

func digestOf(c *sheaf.Chunk) string {
	return digest(string(c.Role), strings.Join(c.HeadingPath, "\x00"), "", c.Text)
}

// textDigestOf is the digest of the text without its leading headings, which may be
// renumbered or renamed.
func textDigestOf(c *sheaf.Chunk) string {
	text := c.Text
	for _, h := range c.HeadingPath {
		text = strings.TrimSpace(strings.TrimPrefix(text, h))
	}
	return digest(string(c.Role), text)
}

// place is a chunk of a generation, in reading order.
type place struct {
	id, rangeID, digest, text string
}

// Generation is the chunks of a generation: individually by id, and all by content
// once survey has read them.
type Generation struct {
	blobs  blob.Store
	done   []sheaf.Task     // those with chunks, in reading order
	places []place          // nil before survey
	byText map[string]int   // number of places per text digest
	by     map[string][]int // places by digest
	loaded *artifact.Result // the last one read
	key    string
}

// generationOf returns the results of a generation's tasks, given in any order.
func generationOf(blobs blob.Store, tasks []sheaf.Task) *Generation {
	g := &Generation{blobs: blobs}
	g.done = slices.DeleteFunc(slices.Clone(tasks), func(t sheaf.Task) bool {
		return t.State != sheaf.TaskDone || t.Result.ArtifactKey == "" || t.Result.Chunks == 0
	})
	slices.SortStableFunc(g.done, func(a, b sheaf.Task) int { return a.Range.From - b.Range.From })
	return g
}

// survey reads all chunks, on the first call.
func (g *Generation) survey(ctx context.Context) error {
	if g.places != nil {
		return nil
	}
	g.byText, g.by = map[string]int{}, map[string][]int{}
	for _, t := range g.done {
		stored, err := g.load(ctx, t.Result.ArtifactKey)
		if err != nil {
			g.places = nil
			return fmt.Errorf("reading the chunks of %s: %w", t.Range, err)
		}
		for i := range stored.Chunks {
			c := &stored.Chunks[i]
			p := place{id: c.ID, rangeID: c.RangeID, digest: digestOf(c), text: textDigestOf(c)}
			g.by[p.digest] = append(g.by[p.digest], len(g.places))
			g.byText[p.text]++
			g.places = append(g.places, p)
		}
	}
	return nil
}

func (g *Generation) load(ctx context.Context, key string) (*artifact.Result, error) {
	if g.loaded == nil || g.key != key {
		stored, err := artifact.Load(ctx, g.blobs, key)
		if err != nil {
			return nil, err
		}
		g.loaded, g.key = stored, key
	}
	return g.loaded, nil
}

// chunk reads the chunk with an id, nil if it does not exist. It reads only the
// chunk's range.
func (g *Generation) chunk(ctx context.Context, id string) (*sheaf.Chunk, error) {
	for _, t := range g.done {
		if !strings.HasPrefix(id, t.Result.RangeID+"-") {
			continue
		}
		stored, err := g.load(ctx, t.Result.ArtifactKey)
		if err != nil {
			return nil, err
		}
		for _, c := range stored.Chunks {
			if c.ID == id {
				return &c, nil
			}
		}
	}
	return nil, nil
}

// last reads the chunk at the end of the document, nil if there are none.
func (g *Generation) last(ctx context.Context) (*sheaf.Chunk, error) {
	if len(g.done) == 0 {
		return nil, nil
	}
	stored, err := g.load(ctx, g.done[len(g.done)-1].Result.ArtifactKey)
	if err != nil || len(stored.Chunks) == 0 {
		return nil, err
	}
	c := stored.Chunks[len(stored.Chunks)-1]
	return &c, nil
}

// Limits on what an anchor shows.
const (
	maxExcerpt  = 300 // runes
	maxHeadings = 8
)

// anchor describes one of the chunks by content.
func (g *Generation) anchor(ctx context.Context, c *sheaf.Chunk) (a taskstore.Anchor, err error) {
	if err := g.survey(ctx); err != nil {
		return a, err
	}
	n := slices.IndexFunc(g.places, func(p place) bool { return p.id == c.ID })
	if n < 0 {
		return a, fmt.Errorf("%w: chunk %s", sheaf.ErrNotFound, c.ID)
	}
	p := g.places[n]
	a = taskstore.Anchor{
		Digest: p.digest, Nth: slices.Index(g.by[p.digest], n), Of: len(g.by[p.digest]), TextDigest: p.text, TextOf: g.byText[p.text],
		Excerpt: c.Text, Headings: c.HeadingPath[:min(len(c.HeadingPath), maxHeadings)], Pages: c.Pages,
	}
	a.Prev, a.Next = g.beside(n)
	if r := []rune(c.Text); len(r) > maxExcerpt {
		a.Excerpt = string(r[:maxExcerpt-1]) + "…"
	}
	return a, nil
}

func (g *Generation) beside(n int) (prev, next string) {
	if n > 0 {
		prev = g.places[n-1].digest
	}
	if n+1 < len(g.places) {
		next = g.places[n+1].digest
	}
	return prev, next
}

// find looks for the chunk of an anchor among those surveyed; -1 if it is missing,
// or cannot be distinguished from others with the same content. An edit is applied
// to no chunk rather than to the wrong one.
func (g *Generation) find(a taskstore.Anchor) int {
	same := g.by[a.Digest]
	if len(same) == 0 { // possibly under another heading
		if a.TextOf == 1 && g.byText[a.TextDigest] == 1 {
			return slices.IndexFunc(g.places, func(p place) bool { return p.text == a.TextDigest })
		}
		return -1
	}
	if len(same) == 1 && a.Of == 1 {
		return same[0]
	}
	found := -1
	for _, n := range same { // by the neighbouring chunks
		prev, next := g.beside(n)
		if prev != a.Prev || next != a.Next {
			continue
		}
		if found >= 0 { // runs of identical chunks
			found = -1
			break
		}
		found = n
	}
	if found >= 0 || len(same) != a.Of {
		return found
	}
	n := same[a.Nth] // their number is unchanged: the one at the same position, unless all around it changed
	if prev, next := g.beside(n); prev == a.Prev || next == a.Next {
		return n
	}
	return -1
}

// base returns the chunk that an edit is applied to: that of its anchor, or for one
// added at the end of the document the last chunk. place has its ids.
func (g *Generation) base(ctx context.Context, e *taskstore.ChunkEdit, generation int) (c *sheaf.Chunk, place taskstore.Placement, err error) {
	if e.Added && e.Anchor.Digest == "" {
		last, err := g.last(ctx)
		if err != nil {
			return nil, place, err
		}
		if last == nil { // nothing was parsed: only added chunks exist
			last = &sheaf.Chunk{DocumentID: e.DocumentID, Generation: generation, Ordinal: -1}
		}
		last.Pages, last.HeadingPath, last.Ordinal = nil, nil, last.Ordinal+1
		return last, taskstore.Placement{Generation: generation}, nil
	}
	if err := g.survey(ctx); err != nil {
		return nil, place, err
	}
	n := g.find(e.Anchor)
	if n < 0 {
		return nil, place, nil
	}
	c, err = g.chunk(ctx, g.places[n].id)
	return c, taskstore.Placement{Generation: generation, ChunkID: g.places[n].id, BaseRange: g.places[n].rangeID}, err
}

// ofText are the keys of a chunk's metadata that depend on its own text.
var ofText = []string{sheaf.MetadataLinks, sheaf.MetadataLabels, sheaf.MetadataFigures, sheaf.MetadataPictures, sheaf.MetadataPersonal}

// Apply returns the chunk that results from applying an edit to base; for an added
// chunk, base is the one before it.
func Apply(e *taskstore.ChunkEdit, base sheaf.Chunk) sheaf.Chunk {
	c := base
	if e.Added {
		c = sheaf.Chunk{ID: e.ID, DocumentID: base.DocumentID, Generation: base.Generation, RangeID: base.RangeID, Ordinal: base.Ordinal,
			Kind: sheaf.ChunkText, Pages: base.Pages, HeadingPath: base.HeadingPath, Metadata: map[string]string{}}
		for k, v := range base.Metadata {
			if !slices.Contains(ofText, k) {
				c.Metadata[k] = v
			}
		}
	}
	if e.Content.Text != nil {
		c.Text = *e.Content.Text
		c.Tokens = chunker.CountTokens(c.Text)
	}
	if e.Content.Keywords != nil {
		c.Keywords = *e.Content.Keywords
	}
	if e.Content.Questions != nil {
		c.Questions = *e.Content.Questions
	}
	if e.Content.Tags != nil {
		c.Tags = *e.Content.Tags
	}
	return c
}
