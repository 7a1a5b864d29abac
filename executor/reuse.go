package executor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/taskstore"
)

// Limits on what one task reads in search of reusable results.
const (
	maxReuseArtifacts = 64
	// After fruitlessArtifacts in a row without a hit, the rest is taken to be new.
	fruitlessArtifacts = 6
)

// earlier passes each the stored results of the document's live generation, nearest
// range first, because ranges move when pages are inserted. each returns its number
// of hits and whether it has seen enough. Any failure here only costs repeating the
// work.
func (e *Executor) earlier(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, each func(*artifact.Result) (hits int, enough bool)) {
	fruitless := 0
	for n, o := range e.nearest(ctx, t, doc) {
		if n == maxReuseArtifacts || fruitless == fruitlessArtifacts || ctx.Err() != nil {
			return
		}
		stored, err := artifact.LoadFor(ctx, e.cfg.Blobs, o.ArtifactKey, e.cfg.Embedder.Model().ID)
		if err != nil || stored.Header.Name != doc.Name {
			continue
		}
		hits, enough := each(stored)
		if fruitless++; hits > 0 {
			fruitless = 0
		}
		if enough {
			return
		}
	}
}

// nearest lists the ranges of the document's live generation that have a stored
// result, nearest first; only the same range if there is one: then no pages were
// inserted, and what is not in the same place is new.
func (e *Executor) nearest(ctx context.Context, t *sheaf.Task, doc *sheaf.Document) []taskstore.FinishedRange {
	if doc.LiveGeneration < 1 || doc.LiveGeneration >= t.Generation {
		return nil
	}
	old, err := e.cfg.Store.FinishedRanges(ctx, doc.ID, doc.LiveGeneration)
	if err != nil {
		e.cfg.Log.DebugContext(ctx, "the live generation cannot be read; nothing of it is used again", "error", err)
		return nil
	}
	old = slices.DeleteFunc(old, func(o taskstore.FinishedRange) bool { return o.ArtifactKey == "" })
	slices.SortStableFunc(old, func(a, b taskstore.FinishedRange) int {
		return cmp.Compare(distance(a.Range, t.Range), distance(b.Range, t.Range))
	})
	if len(old) > 0 && old[0].Range == t.Range {
		old = old[:1]
	}
	return old
}

// embeddedBefore returns the vectors that the document's live generation holds for
// exactly these texts, from the same model; nil for the rest, and for all texts if
// the model is cheap.
func (e *Executor) embeddedBefore(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, texts []string) [][]float32 {
	vectors := make([][]float32, len(texts))
	if e.cfg.Embedder.Model().Cheap {
		return vectors
	}
	missing := map[string][]int{}
	for i, text := range texts {
		missing[text] = append(missing[text], i)
	}
	e.earlier(ctx, t, doc, func(stored *artifact.Result) (hits int, enough bool) {
		if stored.Header.ModelID != e.cfg.Embedder.Model().ID {
			return 0, false
		}
		for k, c := range stored.Chunks {
			text := EmbeddingText(doc.Name, c)
			if stored.Vectors[k] == nil {
				continue
			}
			for _, i := range missing[text] {
				vectors[i] = slices.Clone(stored.Vectors[k])
				hits++
			}
			delete(missing, text)
		}
		return hits, len(missing) == 0
	})
	return vectors
}

// enrichedBefore gives chunks the keywords, questions and context that the live
// generation holds for the same text under the same headings, from the same
// settings, model and prompts. It reports which chunks now have theirs.
func (e *Executor) enrichedBefore(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, chunks []sheaf.Chunk, config sheaf.ParseConfig) []bool {
	withContext := config.AutoContext.V
	have := make([]bool, len(chunks))
	missing := map[string][]int{}
	for i := range chunks {
		key := placeOf(&chunks[i])
		missing[key] = append(missing[key], i)
	}
	e.earlier(ctx, t, doc, func(stored *artifact.Result) (hits int, enough bool) {
		if stored.Header.Digest != t.Digest {
			return 0, false
		}
		for k := range stored.Chunks {
			old := &stored.Chunks[k]
			key := placeOf(old)
			missing[key] = slices.DeleteFunc(missing[key], func(i int) bool {
				c := &chunks[i]
				// The surrounding text is computed again; the model's part precedes it.
				said, same := strings.CutSuffix(old.Context, c.Context)
				if config.AutoKeywords.V > 0 && len(old.Keywords) == 0 || config.AutoQuestions.V > 0 && len(old.Questions) == 0 || withContext && (!same || said == "") {
					return false
				}
				if withContext {
					c.Context = old.Context
				}
				c.Keywords, c.Questions, have[i] = old.Keywords, old.Questions, true
				hits++
				return true
			})
			if len(missing[key]) == 0 {
				delete(missing, key)
			}
		}
		return hits, len(missing) == 0
	})
	return have
}

// placeOf identifies a chunk by its text and position.
func placeOf(c *sheaf.Chunk) string {
	return string(c.Role) + "\x00" + strings.Join(c.HeadingPath, "\x00") + "\x00\x00" + c.Text
}

func distance(a, b sheaf.Range) int { return max(a.From-b.From, b.From-a.From) }
