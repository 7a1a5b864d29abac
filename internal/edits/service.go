package edits

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/enrich"
	"sheaf/taskstore"
)

// Store holds documents and their edits.
type Store interface {
	Reserver
	Document(ctx context.Context, tenantID, id string) (*sheaf.Document, error)
	Tasks(ctx context.Context, tenantID, documentID string, generation int) ([]sheaf.Task, error)
	Edits(ctx context.Context, tenantID, documentID string) ([]taskstore.ChunkEdit, error)
	PublishBlank(ctx context.Context, tenantID, documentID string) error
	PutEdit(ctx context.Context, e taskstore.ChunkEdit, from int) (*taskstore.ChunkEdit, error)
	EditVersions(ctx context.Context, tenantID, documentID, id string) ([]taskstore.EditVersion, error)
}

// Service accepts edits of chunks. An edit is searchable once answered. It is safe
// for concurrent use.
type Service struct {
	Store  Store
	Writer *Writer
}

// ErrVersion means that another user has edited the chunk since the version the
// caller has read.
var ErrVersion = errors.New("the chunk was edited since; read it again and repeat what is still wanted")

// Who identifies the user making an edit, and the document.
type Who struct {
	TenantID   string
	DocumentID string
	Author     string // name of the key, "" without keys
	// IfVersion is the version the caller has read, 0 for an unedited chunk; nil
	// edits any version.
	IfVersion *int
}

// Change is a change to a chunk. Nil fields stay unchanged.
type Change struct {
	Text      *string
	Keywords  *[]string
	Questions *[]string
	Tags      *[]sheaf.Tag
	Disabled  *bool
	Deleted   *bool
}

// Edited is a chunk with its edit. Chunk is nil if there is none to show: it is
// deleted, or not in the live generation. Edit is nil if there is none.
type Edited struct {
	Chunk *sheaf.Chunk
	Edit  *taskstore.ChunkEdit
}

// Limits on user input.
const (
	MaxTextBytes  = 32 << 10
	maxTokens     = 8191 // per chunk, whatever the settings
	maxLabels     = 32
	maxLabelBytes = 512
	maxTries      = 5 // for an edit that conflicts with another change
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", sheaf.ErrInvalid, fmt.Sprintf(format, args...))
}

// check rejects what no chunk can be.
func (c Change) check() error {
	if c.Text != nil {
		switch n := len(*c.Text); {
		case n > MaxTextBytes:
			return invalid("text has %d bytes and at most %d are taken; add the rest as a chunk of its own", n, MaxTextBytes)
		case strings.TrimSpace(*c.Text) == "":
			return invalid("text is empty: delete the chunk, or switch it off")
		case !utf8.ValidString(*c.Text) || strings.ContainsFunc(*c.Text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
			return invalid("text must be UTF-8 without control characters other than newline and tab")
		case chunker.CountTokens(*c.Text) > maxTokens:
			return invalid("text has more than %d tokens; add the rest as a chunk of its own", maxTokens)
		}
	}
	for name, list := range map[string]*[]string{"keywords": c.Keywords, "questions": c.Questions} {
		if list == nil {
			continue
		}
		if len(*list) > maxLabels {
			return invalid("%s are %d and at most %d are taken", name, len(*list), maxLabels)
		}
		for _, s := range *list {
			if strings.TrimSpace(s) == "" || len(s) > maxLabelBytes || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
				return invalid("each of %s is 1 to %d bytes of UTF-8 without control characters", name, maxLabelBytes)
			}
		}
	}
	if c.Tags == nil {
		return nil
	}
	if len(*c.Tags) > maxLabels {
		return invalid("tags are %d and at most %d are taken", len(*c.Tags), maxLabels)
	}
	for i, t := range *c.Tags {
		switch {
		case strings.TrimSpace(t.Name) == "" || len(t.Name) > maxLabelBytes || !utf8.ValidString(t.Name) || strings.ContainsFunc(t.Name, unicode.IsControl):
			return invalid("the name of a tag is 1 to %d bytes of UTF-8 without control characters", maxLabelBytes)
		case !(t.Weight > 0 && t.Weight <= 1):
			return invalid("the weight of tag %q is %g: it is above 0 and at most 1", t.Name, t.Weight)
		case slices.ContainsFunc((*c.Tags)[:i], func(o sheaf.Tag) bool { return o.Name == t.Name }):
			return invalid("tag %q is given twice", t.Name)
		}
	}
	return nil
}

// over applies a change to the previous content of an edit. Personal data is
// redacted if the document's settings require it.
func (c Change) over(was taskstore.EditContent, doc *sheaf.Document) taskstore.EditContent {
	clean := func(s string) string { return s }
	if doc.ParseConfig.PII.V == "redact" {
		clean = func(s string) string { return enrich.Redact(s, map[string]int{}) }
	}
	list := func(l *[]string) *[]string {
		out := make([]string, len(*l))
		for i, s := range *l {
			out[i] = clean(s)
		}
		return &out
	}
	if c.Text != nil {
		was.Text = new(clean(*c.Text))
	}
	if c.Keywords != nil {
		was.Keywords = list(c.Keywords)
	}
	if c.Questions != nil {
		was.Questions = list(c.Questions)
	}
	if c.Tags != nil {
		tags := slices.Clone(*c.Tags)
		for i := range tags {
			tags[i].Name = clean(tags[i].Name)
		}
		slices.SortStableFunc(tags, func(a, b sheaf.Tag) int { return cmp.Compare(b.Weight, a.Weight) })
		was.Tags = &tags
	}
	if c.Disabled != nil {
		was.Disabled = *c.Disabled
	}
	if c.Deleted != nil {
		was.Deleted = *c.Deleted
	}
	return was
}

// target is the subject of an edit, in its current state.
type target struct {
	doc  *sheaf.Document
	edit *taskstore.ChunkEdit // nil for an unedited chunk
	base *sheaf.Chunk         // nil if the edit has no chunk in the live generation
	gen  *Generation          // nil if not needed
}

// edited returns the target with its edit applied.
func (t *target) edited() *Edited {
	out := &Edited{Edit: t.edit}
	switch {
	case t.base == nil:
	case t.edit == nil:
		out.Chunk = t.base
	case !t.edit.Content.Deleted:
		out.Chunk = new(Apply(t.edit, *t.base))
	}
	return out
}

// anchor anchors a new edit to the target's chunk.
func (t *target) anchor(ctx context.Context, e *taskstore.ChunkEdit) (err error) {
	e.Anchor, err = t.gen.anchor(ctx, t.base)
	e.Placement = taskstore.Placement{Generation: t.doc.LiveGeneration, ChunkID: t.base.ID, BaseRange: t.base.RangeID}
	return err
}

// live returns the published generation; its chunks are read on demand.
func (s *Service) live(ctx context.Context, doc *sheaf.Document) (*Generation, error) {
	tasks, err := s.Store.Tasks(ctx, doc.TenantID, doc.ID, doc.LiveGeneration)
	if err != nil {
		return nil, err
	}
	return generationOf(s.Writer.Blobs, tasks), nil
}

// published reads a document that has a live generation.
func (s *Service) published(ctx context.Context, w Who) (*sheaf.Document, error) {
	doc, err := s.Store.Document(ctx, w.TenantID, w.DocumentID)
	if err == nil && doc.LiveGeneration == 0 {
		err = fmt.Errorf("%w: the document has no published version yet; wait until it was parsed", sheaf.ErrConflict)
	}
	return doc, err
}

// begun is published for a caller that adds a chunk at the end of a document: one
// with nothing pending is published as it is, without any parsed content.
func (s *Service) begun(ctx context.Context, w Who) (*sheaf.Document, error) {
	doc, err := s.Store.Document(ctx, w.TenantID, w.DocumentID)
	if err != nil || doc.LiveGeneration > 0 {
		return doc, err
	}
	if err := s.Store.PublishBlank(ctx, w.TenantID, w.DocumentID); err != nil {
		return nil, err
	}
	return s.published(ctx, w)
}

// find looks up a chunk of the live generation by id, and its edit.
func (s *Service) find(ctx context.Context, w Who, chunkID string) (*target, error) {
	doc, err := s.published(ctx, w)
	if err != nil {
		return nil, err
	}
	edits, err := s.Store.Edits(ctx, w.TenantID, w.DocumentID)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(edits, func(e taskstore.ChunkEdit) bool {
		return e.Added && e.ID == chunkID || !e.Added && e.ChunkID == chunkID && e.Generation == doc.LiveGeneration
	})
	if i >= 0 {
		return s.targetOf(ctx, doc, &edits[i])
	}
	t := &target{doc: doc}
	if t.gen, err = s.live(ctx, doc); err != nil {
		return nil, err
	}
	if t.base, err = t.gen.chunk(ctx, chunkID); err == nil && t.base == nil {
		err = fmt.Errorf("%w: the published version has no chunk %s; the document may have been parsed again: read its chunks", sheaf.ErrNotFound, chunkID)
	}
	return t, err
}

// targetOf returns the target of an edit.
func (s *Service) targetOf(ctx context.Context, doc *sheaf.Document, e *taskstore.ChunkEdit) (*target, error) {
	t := &target{doc: doc, edit: e}
	if e.Generation == 0 {
		return t, nil
	}
	var err error
	if t.gen, err = s.live(ctx, doc); err != nil {
		return nil, err
	}
	if e.Added && e.ChunkID == "" {
		t.base, _, err = t.gen.base(ctx, e, e.Generation)
		return t, err
	}
	if t.base, err = t.gen.chunk(ctx, e.ChunkID); err == nil && t.base == nil { // published in the meantime
		err = fmt.Errorf("%w: chunk %s of edit %s", sheaf.ErrStale, e.ChunkID, e.ID)
	}
	return t, err
}

// Chunk reads a chunk of the live generation with its edit.
func (s *Service) Chunk(ctx context.Context, w Who, chunkID string) (*Edited, error) {
	var out *Edited
	err := again(func() error {
		t, err := s.find(ctx, w, chunkID)
		if err == nil {
			out = t.edited()
		}
		return err
	})
	if err == nil && out.Chunk == nil {
		err = fmt.Errorf("%w: chunk %s is deleted; undo edit %s to have it again", sheaf.ErrNotFound, chunkID, out.Edit.ID)
	}
	return out, err
}

// again retries after a conflict with another change.
func again(try func() error) (err error) {
	for range maxTries {
		if err = try(); !errors.Is(err, sheaf.ErrStale) {
			return err
		}
	}
	return err
}

// Change edits a chunk. If a re-parse replaces the chunk meanwhile, the edit is
// applied in the newly published version, provided its content is found there.
// Errors: ErrVersion; sheaf.ErrNotFound, ErrInvalid, ErrConflict, ErrLimit.
func (s *Service) Change(ctx context.Context, w Who, chunkID string, c Change) (out *Edited, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var first *target
	err = again(func() error {
		t, err := s.find(ctx, w, chunkID)
		if errors.Is(err, sheaf.ErrNotFound) && first != nil {
			t, err = s.moved(ctx, w, first)
		}
		if err != nil {
			return err
		}
		if first == nil {
			first = t
		}
		e := taskstore.ChunkEdit{ID: sheaf.NewID(), TenantID: w.TenantID, DocumentID: w.DocumentID}
		if t.edit != nil {
			e = *t.edit
		} else if err := t.anchor(ctx, &e); err != nil {
			return err
		}
		out, err = s.put(ctx, w, t, e, c.over(e.Content, t.doc))
		return err
	})
	return out, err
}

// moved finds a chunk that a new version has replaced, by content.
func (s *Service) moved(ctx context.Context, w Who, was *target) (*target, error) {
	if was.gen == nil || was.base == nil || was.edit != nil && was.edit.Added {
		return nil, fmt.Errorf("%w: the chunk was replaced by a new version; read the document's chunks", sheaf.ErrConflict)
	}
	doc, err := s.published(ctx, w)
	if err != nil {
		return nil, err
	}
	g, err := s.live(ctx, doc)
	if err != nil {
		return nil, err
	}
	e := was.edit
	if e == nil {
		e = &taskstore.ChunkEdit{}
		err = was.anchor(ctx, e)
	}
	if err == nil {
		err = g.survey(ctx)
	}
	if err != nil {
		return nil, err
	}
	n := g.find(e.Anchor)
	if n < 0 {
		return nil, fmt.Errorf("%w: the chunk was replaced by a new version, which has no such text; read the document's chunks", sheaf.ErrConflict)
	}
	return s.find(ctx, w, g.places[n].id)
}

// put writes the next version of an edit, and the range of the resulting chunk.
func (s *Service) put(ctx context.Context, w Who, t *target, e taskstore.ChunkEdit, content taskstore.EditContent) (*Edited, error) {
	if w.IfVersion != nil && *w.IfVersion != e.Version {
		return nil, fmt.Errorf("%w: it has version %d, not %d: %w", sheaf.ErrConflict, e.Version, *w.IfVersion, ErrVersion)
	}
	if was, now := encoded(e.Content), encoded(content); was == now && !(e.Added && e.Version == 0) {
		return t.edited(), nil // already so
	}
	former := e.RangeID
	e.Content, e.Author, e.RangeID = content, w.Author, ""
	if e.Shows() && t.base != nil {
		chunks := []Written{{Chunk: Apply(&e, *t.base), Former: former}}
		if err := s.Writer.Write(ctx, t.doc, e.Generation, chunks); err != nil {
			return nil, err
		}
		e.RangeID = chunks[0].Range
	}
	put, err := s.Store.PutEdit(ctx, e, e.Version)
	if err != nil {
		return nil, err
	}
	t.edit = put
	return t.edited(), nil
}

func encoded(c taskstore.EditContent) string {
	b, _ := json.Marshal(c) // texts and flags always encode
	return string(b)
}

// Add adds a chunk after another, or at the end of the document. A document that
// has no published version, and none in progress, gets one with nothing else.
func (s *Service) Add(ctx context.Context, w Who, after string, c Change) (out *Edited, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Text == nil {
		return nil, invalid("text is missing: say what the chunk reads")
	}
	err = again(func() error {
		e := taskstore.ChunkEdit{ID: sheaf.NewID(), TenantID: w.TenantID, DocumentID: w.DocumentID, Added: true}
		var t *target
		if after == "" {
			doc, err := s.begun(ctx, w)
			if err != nil {
				return err
			}
			e.Generation = doc.LiveGeneration
			if t, err = s.targetOf(ctx, doc, &e); err != nil {
				return err
			}
		} else {
			if t, err = s.find(ctx, w, after); err != nil {
				return err
			}
			switch {
			case t.edit != nil && t.edit.Added:
				e.Anchor, e.Placement = t.edit.Anchor, t.edit.Placement
			default:
				if err := t.anchor(ctx, &e); err != nil {
					return err
				}
			}
			e.RangeID = ""
		}
		if t.base == nil {
			return fmt.Errorf("%w: the document has no chunks to add one to", sheaf.ErrConflict)
		}
		none := w
		none.IfVersion = nil
		out, err = s.put(ctx, none, t, e, c.over(taskstore.EditContent{}, t.doc))
		return err
	})
	return out, err
}

// Edits lists the edits of a document, oldest first.
func (s *Service) Edits(ctx context.Context, w Who) ([]taskstore.ChunkEdit, error) {
	return s.Store.Edits(ctx, w.TenantID, w.DocumentID)
}

// Edit reads an edit and its history, newest first.
func (s *Service) Edit(ctx context.Context, w Who, id string) (*taskstore.ChunkEdit, []taskstore.EditVersion, error) {
	e, err := s.edit(ctx, w, id)
	if err != nil {
		return nil, nil, err
	}
	history, err := s.Store.EditVersions(ctx, w.TenantID, w.DocumentID, id)
	return e, history, err
}

func (s *Service) edit(ctx context.Context, w Who, id string) (*taskstore.ChunkEdit, error) {
	edits, err := s.Store.Edits(ctx, w.TenantID, w.DocumentID)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(edits, func(e taskstore.ChunkEdit) bool { return e.ID == id }); i >= 0 {
		return &edits[i], nil
	}
	return nil, fmt.Errorf("%w: the document has no edit %s", sheaf.ErrNotFound, id)
}

// Undo restores an earlier version of an edit as its newest; 0 is the chunk as
// parsed, and nil the version before the newest.
func (s *Service) Undo(ctx context.Context, w Who, id string, to *int) (out *Edited, err error) {
	err = again(func() error {
		e, history, err := s.Edit(ctx, w, id)
		if err != nil {
			return err
		}
		version := e.Version - 1
		if to != nil {
			version = *to
		}
		content := taskstore.EditContent{Deleted: e.Added} // an added chunk is gone
		if version != 0 {
			i := slices.IndexFunc(history, func(v taskstore.EditVersion) bool { return v.Version == version })
			if i < 0 {
				return fmt.Errorf("%w: edit %s has no version %d; it has versions %d to %d, and 0 for the chunk as it was parsed", sheaf.ErrNotFound, id, version, history[len(history)-1].Version, e.Version)
			}
			content = history[i].Content
		}
		doc, err := s.published(ctx, w)
		if err != nil {
			return err
		}
		t, err := s.targetOf(ctx, doc, e)
		if err != nil {
			return err
		}
		out, err = s.put(ctx, w, t, *e, content)
		return err
	})
	return out, err
}
