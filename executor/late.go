package executor

import (
	"context"
	"slices"
	"strings"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/artifact"
	"sheaf/internal/embed"
)

// Late chunking: the chunks of a section are embedded together, in windows that the
// model reads as one context, so that "it" in one chunk can refer to something named
// in another. A vector depends on its window and is reused only with it.

// window is the chunks [from, to) with the texts embedded for them.
type window struct {
	from, to int
	texts    []string
}

// key is equal for windows with equal vectors.
func (w window) key() string { return strings.Join(w.texts, "\x00") }

// windowsOf cuts the chunks of a range into windows of at most limit tokens:
// sections that fit are kept whole, longer ones are split into their subsections,
// and those without subsections are filled chunk by chunk. So a change affects only
// the windows of its own section. A chunk longer than limit is a window of its own.
func windowsOf(name string, chunks []sheaf.Chunk, limit int) []window {
	tokens := make([]int, len(chunks)) // of a chunk with its location line
	for i, c := range chunks {
		tokens[i] = chunker.CountTokens(EmbeddingText(name, c))
	}
	var out []window
	add := func(from, to int) {
		w := window{from: from, to: to}
		for i := from; i < to; i++ {
			// Neighbours read together state their common position only once.
			if i == from || !slices.Equal(chunks[i].HeadingPath, chunks[i-1].HeadingPath) {
				w.texts = append(w.texts, EmbeddingText(name, chunks[i]))
			} else {
				w.texts = append(w.texts, bodyText(chunks[i]))
			}
		}
		out = append(out, w)
	}
	heading := func(i, depth int) string {
		if depth < len(chunks[i].HeadingPath) {
			return chunks[i].HeadingPath[depth]
		}
		return ""
	}
	var cut func(from, to, depth int)
	cut = func(from, to, depth int) {
		sum, deeper := 0, false
		for i := from; i < to; i++ {
			sum += tokens[i]
			deeper = deeper || depth < len(chunks[i].HeadingPath)
		}
		switch {
		case sum <= limit || to-from == 1:
			add(from, to)
		case deeper:
			for begin := from; begin < to; {
				end := begin + 1
				for end < to && heading(end, depth) == heading(begin, depth) {
					end++
				}
				cut(begin, end, depth+1)
				begin = end
			}
		default:
			for begin := from; begin < to; {
				end, n := begin+1, tokens[begin]
				for end < to && n+tokens[end] <= limit {
					n += tokens[end]
					end++
				}
				add(begin, end)
				begin = end
			}
		}
	}
	if len(chunks) > 0 {
		cut(0, len(chunks), 0)
	}
	return out
}

// embedWindows returns one vector per chunk, and the number of tokens embedded. With
// again, complete windows of the live generation are reused.
func (e *Executor) embedWindows(ctx context.Context, run *run, doc *sheaf.Document, chunks []sheaf.Chunk, again bool) ([][]float32, int, error) {
	limit := e.cfg.Embedder.Model().Window
	if limit == 0 {
		return nil, 0, sheaf.Fail(sheaf.CategoryPolicy, "no_late_chunking", "The chunk method late needs an embedding model that reads many chunks in one context: set embed.late_window on every executor, or parse the document with another method.")
	}
	windows := windowsOf(doc.Name, chunks, limit)
	have := map[string][][]float32{}
	if again {
		have = e.windowsBefore(ctx, run.task, doc, windows)
	}
	vectors := make([][]float32, len(chunks))
	tokens, done := 0, 0
	for _, w := range windows {
		made := have[w.key()]
		if made == nil {
			var err error
			if made, err = e.vectors(ctx, w.texts, embed.Window); err != nil {
				return nil, 0, err
			}
			for i := w.from; i < w.to; i++ {
				tokens += chunks[i].Tokens
			}
		}
		copy(vectors[w.from:w.to], made)
		done += w.to - w.from
		run.progress(ctx, "embed", done, len(chunks))
	}
	return vectors, tokens, nil
}

// windowsBefore returns the vectors of the windows that the document's live
// generation holds in full, by key. An equal digest means it was cut into windows
// the same way, for the same model.
func (e *Executor) windowsBefore(ctx context.Context, t *sheaf.Task, doc *sheaf.Document, windows []window) map[string][][]float32 {
	missing := map[string]bool{}
	for _, w := range windows {
		missing[w.key()] = true
	}
	found := map[string][][]float32{}
	e.earlier(ctx, t, doc, func(stored *artifact.Result) (hits int, enough bool) {
		if stored.Header.Digest != t.Digest || stored.Header.ModelID != e.cfg.Embedder.Model().ID {
			return 0, false
		}
		for _, w := range windowsOf(doc.Name, stored.Chunks, e.cfg.Embedder.Model().Window) {
			if key := w.key(); missing[key] && !slices.ContainsFunc(stored.Vectors[w.from:w.to], func(v []float32) bool { return v == nil }) {
				found[key] = stored.Vectors[w.from:w.to]
				delete(missing, key)
				hits += w.to - w.from
			}
		}
		return hits, len(missing) == 0
	})
	return found
}
