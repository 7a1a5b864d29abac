package edits

import (
	"bytes"
	"context"
	"errors"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/index"
	"sheaf/taskstore"
)

// Reserver records ranges before they are written, so that those never placed are
// collected.
type Reserver interface {
	ReserveRanges(ctx context.Context, tenantID, documentID string, rangeIDs []string) error
}

// Writer writes edited chunks, each as a separate range.
type Writer struct {
	Store    Reserver
	Blobs    blob.Store
	Index    index.Index
	Embedder embed.Embedder
	// PinFunc returns the index and embedder for one write, instead of Index and
	// Embedder, if those may change. May be nil.
	PinFunc func() (index.Index, embed.Embedder)
	// TextFunc returns the text to embed for a chunk of a document with that name.
	TextFunc func(name string, c sheaf.Chunk) string
}

// Written is a chunk to write, or written by Write.
type Written struct {
	Chunk  sheaf.Chunk
	Former string // range whose vector is reused if its text is the same; "" for none
	Range  string // the range it was written as
}

// embedAtOnce limits one call of the embedder.
const embedAtOnce = 64

// Write embeds the chunks and writes each as a range: artifact, then index. Chunks
// that already have a vector are not embedded.
func (w *Writer) Write(ctx context.Context, doc *sheaf.Document, generation int, chunks []Written) error {
	if len(chunks) == 0 {
		return nil
	}
	if w.PinFunc != nil {
		pinned := *w
		pinned.Index, pinned.Embedder = w.PinFunc()
		w = &pinned
	}
	ids := make([]string, len(chunks))
	for i := range chunks {
		ids[i] = sheaf.EditedRangePrefix + sheaf.NewID()
	}
	if err := w.Store.ReserveRanges(ctx, doc.TenantID, doc.ID, ids); err != nil {
		return err
	}
	for i := 0; i < len(chunks); i += embedAtOnce {
		to := min(i+embedAtOnce, len(chunks))
		if err := w.write(ctx, doc, generation, chunks[i:to], ids[i:to]); err != nil {
			return err
		}
	}
	return w.Index.Refresh(ctx)
}

func (w *Writer) write(ctx context.Context, doc *sheaf.Document, generation int, chunks []Written, ids []string) error {
	vectors, err := w.vectors(ctx, doc, chunks)
	if err != nil {
		return err
	}
	model := w.Embedder.Model()
	entries := make([]index.Entry, len(chunks))
	for i := range chunks {
		c := chunks[i].Chunk
		c.ID, c.RangeID, c.DocumentID, c.Generation = sheaf.ChunkID(ids[i], 0), ids[i], doc.ID, generation
		var buf bytes.Buffer
		header := artifact.Header{DocumentID: doc.ID, Generation: generation, RangeID: ids[i], ModelID: model.ID, Dim: model.Dim, Created: time.Now().UTC(), Name: doc.Name}
		if err := artifact.Encode(&buf, header, []sheaf.Chunk{c}, vectors[i:i+1]); err != nil {
			return err
		}
		size := int64(buf.Len())
		if _, err := w.Blobs.Put(ctx, sheaf.ArtifactKey(doc.TenantID, doc.ID, ids[i]), &buf, size); err != nil {
			return err
		}
		entries[i] = index.Entry{Chunk: c, TenantID: doc.TenantID, DatasetID: doc.DatasetID, Name: doc.Name, MediaType: doc.MediaType, Vector: vectors[i]}
		chunks[i].Range = ids[i]
	}
	return w.Index.Write(ctx, entries)
}

// vectors returns one vector per chunk.
func (w *Writer) vectors(ctx context.Context, doc *sheaf.Document, chunks []Written) ([][]float32, error) {
	vectors := make([][]float32, len(chunks))
	var texts []string
	var at []int
	for i := range chunks {
		text := w.TextFunc(doc.Name, chunks[i].Chunk)
		v, err := w.former(ctx, doc, chunks[i].Former, text)
		if err != nil {
			return nil, err
		}
		if vectors[i] = v; v == nil {
			texts, at = append(texts, text), append(at, i)
		}
	}
	if len(texts) == 0 {
		return vectors, nil
	}
	made, err := embed.Each(ctx, w.Embedder, texts, embed.Passage)
	if err != nil {
		return nil, err
	}
	for k, i := range at {
		vectors[i] = made[k]
	}
	return vectors, nil
}

// former returns the vector of an earlier range of the edit; nil if its text or
// model differs.
func (w *Writer) former(ctx context.Context, doc *sheaf.Document, rangeID, text string) ([]float32, error) {
	if rangeID == "" {
		return nil, nil
	}
	stored, err := artifact.Load(ctx, w.Blobs, sheaf.ArtifactKey(doc.TenantID, doc.ID, rangeID))
	switch {
	case errors.Is(err, sheaf.ErrNotFound) || errors.Is(err, sheaf.ErrInvalid):
		return nil, nil
	case err != nil:
		return nil, err
	case len(stored.Chunks) == 1 && stored.Header.ModelID == w.Embedder.Model().ID && w.TextFunc(stored.Header.Name, stored.Chunks[0]) == text:
		return stored.Vectors[0], nil
	}
	return nil, nil
}

// Place finds the chunk of each edit in a generation whose tasks are done, and
// writes the edited chunks. Edits without a chunk are omitted.
func (w *Writer) Place(ctx context.Context, doc *sheaf.Document, generation int, tasks []sheaf.Task, edits []taskstore.ChunkEdit) ([]taskstore.PlacedEdit, error) {
	if len(edits) == 0 {
		return nil, nil
	}
	g := generationOf(w.Blobs, tasks)
	var placed []taskstore.PlacedEdit
	var chunks []Written
	var of []int // index in placed of each of chunks
	taken := map[string]bool{}
	for i := range edits {
		e := edits[i]
		base, at, err := g.base(ctx, &e, generation)
		if err != nil {
			return nil, err
		}
		if base == nil || !e.Added && taken[at.ChunkID] {
			continue
		}
		if !e.Added {
			taken[at.ChunkID] = true
		}
		former := e.RangeID
		e.Placement = at
		placed = append(placed, taskstore.PlacedEdit{ID: e.ID, Placement: at, Hides: e.Hides()})
		if e.Shows() {
			chunks, of = append(chunks, Written{Chunk: Apply(&e, *base), Former: former}), append(of, len(placed)-1)
		}
	}
	if err := w.Write(ctx, doc, generation, chunks); err != nil {
		return nil, err
	}
	for k, n := range of {
		placed[n].RangeID = chunks[k].Range
	}
	return placed, nil
}
