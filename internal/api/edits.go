package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/edits"
	"sheaf/taskstore"
)

// ChunkPath names a chunk of a document's published version.
type ChunkPath struct {
	DocumentPath
	Chunk string `path:"chunk" maxLength:"64" doc:"id of the chunk, as lists and searches return it"`
}

// EditPath names the edit of one chunk.
type EditPath struct {
	DocumentPath
	Edit string `path:"edit" maxLength:"64" doc:"id of the edit"`
}

// IfMatch makes a change conditional.
type IfMatch struct {
	IfMatch string `header:"If-Match" maxLength:"32" doc:"the version of the edit that was read, 0 for an unedited chunk: if it has changed since, nothing is changed and the answer is 412"`
}

// version returns the version the caller has read, or nil for any.
func (m IfMatch) version() (*int, error) {
	text := strings.Trim(strings.TrimPrefix(strings.TrimSpace(m.IfMatch), "W/"), `"`)
	if text == "" || text == "*" {
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return nil, newProblem(400, "", "If-Match cannot be "+quoted(m.IfMatch)+"; give the version of the chunk's edit, as the ETag of the chunk has it")
	}
	return &n, nil
}

// ChunkPatch is a partial change of a chunk. Absent fields are kept.
type ChunkPatch struct {
	Text      *string      `json:"text,omitempty" maxLength:"32768" doc:"the new text; it is embedded again"`
	Keywords  *[]string    `json:"keywords,omitempty" maxItems:"32" doc:"words that also find it; they replace the existing ones"`
	Questions *[]string    `json:"questions,omitempty" maxItems:"32" doc:"that it answers, likewise"`
	Tags      *[]sheaf.Tag `json:"tags,omitempty" maxItems:"32" doc:"replace the existing ones"`
	Enabled   *bool        `json:"enabled,omitempty" doc:"false: no search finds it"`
}

// NewChunk is a chunk that a user adds to a document.
type NewChunk struct {
	Text      string      `json:"text" minLength:"1" maxLength:"32768"`
	Keywords  []string    `json:"keywords,omitempty" maxItems:"32"`
	Questions []string    `json:"questions,omitempty" maxItems:"32"`
	Tags      []sheaf.Tag `json:"tags,omitempty" maxItems:"32"`
	After     string      `json:"after,omitempty" maxLength:"64" doc:"id of the chunk that it follows, whose pages and headings it takes; absent: at the end of the document"`
}

// UndoRequest names the version to restore.
type UndoRequest struct {
	To *int `json:"to,omitempty" minimum:"0" doc:"version of the edit to restore, 0 for the chunk as it was parsed; absent: the one before the newest"`
}

// AppliedEdit marks a chunk as edited.
type AppliedEdit struct {
	ID        string `json:"id"`
	Version   int    `json:"version"`
	Added     bool   `json:"added,omitempty" doc:"the chunk was added by a user"`
	Rewritten bool   `json:"rewritten,omitempty" doc:"its text, keywords, questions or tags were changed after parsing"`
	Enabled   bool   `json:"enabled" doc:"false: no search finds the chunk"`
}

// ListedChunk is a chunk with its edit applied.
type ListedChunk struct {
	sheaf.Chunk
	Edit *AppliedEdit `json:"edit,omitempty" doc:"absent if the chunk was not edited"`
}

// Edit is a user's edit of one chunk.
type Edit struct {
	AppliedEdit
	// DocumentID also links stored idempotent responses to the document.
	DocumentID string       `json:"document_id"`
	State      EditState    `json:"state" enum:"applied,undone,unplaced" doc:"unplaced: the published version has no such chunk, or several with the same text; each later one is searched for it"`
	ChunkID    string       `json:"chunk_id,omitempty" doc:"of the chunk in the published version; absent if there is none"`
	Deleted    bool         `json:"deleted,omitempty" doc:"the chunk is neither listed nor found"`
	Text       *string      `json:"text,omitempty" doc:"absent: as it was parsed"`
	Keywords   *[]string    `json:"keywords,omitempty" doc:"absent: as they were found"`
	Questions  *[]string    `json:"questions,omitempty" doc:"absent: as they were found"`
	Tags       *[]sheaf.Tag `json:"tags,omitempty" doc:"absent: as they were found"`
	Excerpt    string       `json:"excerpt,omitempty" doc:"of the chunk when it was first edited, or of the one that an added chunk follows"`
	Headings   []string     `json:"headings,omitempty" doc:"above it then"`
	Pages      []int        `json:"pages,omitempty" doc:"that it was on then"`
	Author     string       `json:"author,omitempty" doc:"name of the key that made this version"`
	CreatedAt  time.Time    `json:"created_at"`
	UpdatedAt  time.Time    `json:"updated_at"`
}

// EditState reports whether an edit is applied.
type EditState string

// EditVersion is one version of an edit.
type EditVersion struct {
	Version   int          `json:"version"`
	Enabled   bool         `json:"enabled"`
	Deleted   bool         `json:"deleted,omitempty"`
	Text      *string      `json:"text,omitempty" doc:"absent: as it was parsed"`
	Keywords  *[]string    `json:"keywords,omitempty"`
	Questions *[]string    `json:"questions,omitempty"`
	Tags      *[]sheaf.Tag `json:"tags,omitempty"`
	Author    string       `json:"author,omitempty"`
	At        time.Time    `json:"at"`
}

// EditHistory is an edit with its versions.
type EditHistory struct {
	Edit
	Versions []EditVersion `json:"versions" nullable:"false" doc:"newest first"`
}

// EditedChunk is a chunk and its edit.
type EditedChunk struct {
	Chunk *sheaf.Chunk `json:"chunk,omitempty" doc:"as it is listed now; absent if it is deleted or not in the published version"`
	Edit  *Edit        `json:"edit,omitempty" doc:"absent if the chunk was not edited"`
}

// editedOut is an EditedChunk with its ETag, for use as If-Match.
type editedOut struct {
	ETag string `header:"ETag" doc:"version of the edit, for If-Match"`
	Body EditedChunk
}

func appliedEdit(e *taskstore.ChunkEdit) AppliedEdit {
	return AppliedEdit{ID: e.ID, Version: e.Version, Added: e.Added, Rewritten: e.Content.Rewritten(), Enabled: !e.Content.Disabled}
}

func editOf(e *taskstore.ChunkEdit) *Edit {
	out := &Edit{
		AppliedEdit: appliedEdit(e), DocumentID: e.DocumentID, State: "applied", ChunkID: e.ChunkID, Deleted: e.Content.Deleted, Text: e.Content.Text, Keywords: e.Content.Keywords, Questions: e.Content.Questions, Tags: e.Content.Tags,
		Excerpt: e.Anchor.Excerpt, Headings: e.Anchor.Headings, Pages: e.Anchor.Pages, Author: e.Author, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt,
	}
	switch {
	case !e.Content.Rewritten() && !e.Content.Disabled && !e.Content.Deleted || e.Added && e.Content.Deleted:
		out.State = "undone"
	case e.Generation == 0:
		out.State = "unplaced"
	}
	if e.Added && e.Generation > 0 {
		out.ChunkID = e.ID
	}
	return out
}

func editedChunk(e *edits.Edited, err error) (*editedOut, error) {
	switch {
	case errors.Is(err, edits.ErrVersion):
		return nil, newProblem(http.StatusPreconditionFailed, "", edits.ErrVersion.Error())
	case err != nil:
		return nil, err
	}
	out := &editedOut{ETag: `"0"`, Body: EditedChunk{Chunk: e.Chunk}}
	if e.Edit != nil {
		out.ETag, out.Body.Edit = strconv.Quote(strconv.Itoa(e.Edit.Version)), editOf(e.Edit)
	}
	return out, nil
}

// editor identifies the caller as an editor of a document that it may see.
func (s *Server) editor(ctx context.Context, p DocumentPath, m IfMatch) (w edits.Who, err error) {
	d, err := s.document(ctx, p)
	if err != nil {
		return w, err
	}
	w = edits.Who{TenantID: tenantOf(ctx), DocumentID: d.ID, Author: s.origin(ctx, "").Requester}
	w.IfVersion, err = m.version()
	return w, err
}

func (s *Server) editRoutes() {
	const doc = "/v1/datasets/{ds}/documents/{doc}"
	add := post(doc+"/chunks", "Add a chunk to a document")
	add.DefaultStatus = http.StatusCreated
	add.Description = "The chunk is searchable when the answer arrives. A document not parsed yet, or that failed, gets a version with nothing else. Later versions of the document have it after the same chunk, if that is found by its content."
	handle(s, add, func(ctx context.Context, in *struct {
		DocumentPath
		Body NewChunk
	}) (*editedOut, error) {
		w, err := s.editor(ctx, in.DocumentPath, IfMatch{})
		if err != nil {
			return nil, err
		}
		c := edits.Change{Text: &in.Body.Text}
		if len(in.Body.Keywords) > 0 {
			c.Keywords = &in.Body.Keywords
		}
		if len(in.Body.Questions) > 0 {
			c.Questions = &in.Body.Questions
		}
		if len(in.Body.Tags) > 0 {
			c.Tags = &in.Body.Tags
		}
		return editedChunk(s.cfg.Edits.Add(ctx, w, in.Body.After, c))
	})
	handle(s, get(doc+"/chunks/{chunk}", "Read a chunk of the published version"), func(ctx context.Context, in *ChunkPath) (*editedOut, error) {
		w, err := s.editor(ctx, in.DocumentPath, IfMatch{})
		if err != nil {
			return nil, err
		}
		return editedChunk(s.cfg.Edits.Chunk(ctx, w, in.Chunk))
	})
	alter := change(http.MethodPatch, doc+"/chunks/{chunk}", "Change a chunk, or switch it off")
	alter.Description = "Search finds the change when the answer arrives. The change is an edit kept beside the parsed chunk: it has a history, it can be undone, and later versions of the document have it if they have a chunk of the same content."
	handle(s, alter, func(ctx context.Context, in *struct {
		ChunkPath
		IfMatch
		Body ChunkPatch
	}) (*editedOut, error) {
		w, err := s.editor(ctx, in.DocumentPath, in.IfMatch)
		if err != nil {
			return nil, err
		}
		c := edits.Change{Text: in.Body.Text, Keywords: in.Body.Keywords, Questions: in.Body.Questions, Tags: in.Body.Tags}
		if in.Body.Enabled != nil {
			c.Disabled = new(!*in.Body.Enabled)
		}
		return editedChunk(s.cfg.Edits.Change(ctx, w, in.Chunk, c))
	})
	remove := change(http.MethodDelete, doc+"/chunks/{chunk}", "Delete a chunk")
	remove.Description = "Searches and lists no longer return it. The returned edit can be undone."
	handle(s, remove, func(ctx context.Context, in *struct {
		ChunkPath
		IfMatch
	}) (*editedOut, error) {
		w, err := s.editor(ctx, in.DocumentPath, in.IfMatch)
		if err != nil {
			return nil, err
		}
		return editedChunk(s.cfg.Edits.Change(ctx, w, in.Chunk, edits.Change{Deleted: new(true)}))
	})
	handle(s, get(doc+"/edits", "List the edits of a document's chunks, oldest first"), func(ctx context.Context, in *struct {
		DocumentPath
		State EditState `query:"state" enum:"applied,undone,unplaced" doc:"only those"`
		FieldsInput
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
		Cursor string `query:"cursor" format:"count-cursor"`
	}) (*output[List[Edit]], error) {
		w, err := s.editor(ctx, in.DocumentPath, IfMatch{})
		if err != nil {
			return nil, err
		}
		all, err := s.cfg.Edits.Edits(ctx, w)
		if err != nil {
			return nil, err
		}
		items, next, n := []Edit{}, "", 0
		for i := range all {
			e := editOf(&all[i])
			if in.State != "" && e.State != in.State {
				continue
			}
			if n++; n <= atoi(in.Cursor) {
				continue
			}
			if len(items) == in.Limit {
				next = strconv.Itoa(n - 1)
				break
			}
			items = append(items, *e)
		}
		return listOf(items, next), nil
	})
	handle(s, get(doc+"/edits/{edit}", "Read an edit with its history"), func(ctx context.Context, in *EditPath) (*output[EditHistory], error) {
		w, err := s.editor(ctx, in.DocumentPath, IfMatch{})
		if err != nil {
			return nil, err
		}
		e, history, err := s.cfg.Edits.Edit(ctx, w, in.Edit)
		if err != nil {
			return nil, err
		}
		out := EditHistory{Edit: *editOf(e), Versions: make([]EditVersion, len(history))}
		for i, v := range history {
			out.Versions[i] = EditVersion{Version: v.Version, Enabled: !v.Content.Disabled, Deleted: v.Content.Deleted, Text: v.Content.Text, Keywords: v.Content.Keywords, Questions: v.Content.Questions, Tags: v.Content.Tags, Author: v.Author, At: v.At}
		}
		return &output[EditHistory]{out}, nil
	})
	undo := post(doc+"/edits/{edit}:undo", "Restore an earlier version of an edit")
	undo.Description = "The earlier content becomes the edit's newest version, so an undo can be undone."
	handle(s, undo, func(ctx context.Context, in *struct {
		EditPath
		IfMatch
		Body UndoRequest
	}) (*editedOut, error) {
		w, err := s.editor(ctx, in.DocumentPath, in.IfMatch)
		if err != nil {
			return nil, err
		}
		return editedChunk(s.cfg.Edits.Undo(ctx, w, in.Edit, in.Body.To))
	})
}

// overlay holds a document's edits, keyed by chunk.
type overlay struct {
	of    map[string]*taskstore.ChunkEdit
	after map[string][]*taskstore.ChunkEdit // added chunks; "" is the end of the document
}

// overlay reads the edits of a generation; only the live one has any.
func (s *Server) overlay(ctx context.Context, d *sheaf.Document, generation int) (o overlay, err error) {
	if generation != d.LiveGeneration || s.cfg.Edits == nil {
		return o, nil
	}
	all, err := s.cfg.Edits.Edits(ctx, edits.Who{TenantID: tenantOf(ctx), DocumentID: d.ID})
	if err != nil {
		return o, err
	}
	o = overlay{map[string]*taskstore.ChunkEdit{}, map[string][]*taskstore.ChunkEdit{}}
	for i := range all {
		e := &all[i]
		switch {
		case e.Generation != generation:
		case e.Added:
			o.after[e.ChunkID] = append(o.after[e.ChunkID], e)
		default:
			o.of[e.ChunkID] = e
		}
	}
	return o, nil
}

// listed returns a chunk with its edit applied, then the chunks added after it.
func (o overlay) listed(c sheaf.Chunk) (out []ListedChunk) {
	if e := o.of[c.ID]; e == nil {
		out = append(out, ListedChunk{Chunk: c})
	} else if !e.Content.Deleted {
		out = append(out, ListedChunk{edits.Apply(e, c), new(appliedEdit(e))})
	}
	return append(out, o.added(c.ID, c)...)
}

// added returns the chunks that users added after a chunk, or for "" at the end.
func (o overlay) added(id string, behind sheaf.Chunk) (out []ListedChunk) {
	for _, e := range o.after[id] {
		if !e.Content.Deleted {
			out = append(out, ListedChunk{edits.Apply(e, behind), new(appliedEdit(e))})
		}
	}
	return slices.Clip(out)
}
