package executor

import (
	"cmp"
	"context"
	"slices"

	"sheaf"
	"sheaf/internal/artifact"
)

// Bounds on what one task reads to find vectors that are there already.
const (
	maxReuseArtifacts = 64
	// fruitlessArtifacts without a single hit say that the document is another one.
	fruitlessArtifacts = 6
)

// embeddedBefore returns the vectors that the document's live generation holds
// for exactly these texts, by the same model; nil for the rest. Ranges move
// when pages are inserted, so it looks at the old ranges nearest to the task's
// first and stops when nothing is missing. Whatever fails here only costs an
// embedding.
func (e *Executor) embeddedBefore(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, texts []string) [][]float32 {
	vectors := make([][]float32, len(texts))
	if doc.LiveGeneration < 1 || doc.LiveGeneration >= t.Generation {
		return vectors
	}
	old, err := e.cfg.Store.GenerationTasks(ctx, doc.ID, doc.LiveGeneration)
	if err != nil {
		e.cfg.Log.DebugContext(ctx, "the live generation cannot be read; everything is embedded anew", "error", err)
		return vectors
	}
	old = slices.DeleteFunc(old, func(o sheaf.Task) bool { return o.State != sheaf.TaskDone || o.Result.ArtifactKey == "" })
	slices.SortStableFunc(old, func(a, b sheaf.Task) int {
		return cmp.Compare(distance(a.Range, t.Range), distance(b.Range, t.Range))
	})
	missing := map[string][]int{}
	for i, text := range texts {
		missing[text] = append(missing[text], i)
	}
	hits := 0
	for n, o := range old {
		if len(missing) == 0 || n == maxReuseArtifacts || n == fruitlessArtifacts && hits == 0 || ctx.Err() != nil {
			break
		}
		stored, err := artifact.Load(ctx, e.cfg.Blobs, o.Result.ArtifactKey)
		if err != nil || stored.Header.ModelID != e.cfg.Embedder.Model().ID || stored.Header.Name != doc.Name {
			continue
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
	}
	return vectors
}

func distance(a, b sheaf.Range) int { return max(a.From-b.From, b.From-a.From) }
