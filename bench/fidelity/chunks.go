package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
)

// boundaries counts where the chunks of a set end.
type boundaries struct {
	files, chunks, headed      int
	tokens                     []int
	section, sentence, between int // changes of heading or kind, ends of sentences, ends of lines and items
	inside                     int // the next chunk continues in lower case
}

// count adds the chunks of one document, in order.
func (b *boundaries) count(chunks []sheaf.Chunk) {
	b.files++
	b.chunks += len(chunks)
	for i, c := range chunks {
		b.tokens = append(b.tokens, c.Tokens)
		if len(c.HeadingPath) > 0 {
			b.headed++
		}
		if i+1 == len(chunks) {
			continue
		}
		next := chunks[i+1]
		first, _ := utf8.DecodeRuneInString(next.Text)
		end := strings.TrimRight(c.Text, "\"'”’»)]*_ ")
		last, _ := utf8.DecodeLastRuneInString(end)
		switch {
		case !slices.Equal(c.HeadingPath, next.HeadingPath) || c.Kind != next.Kind:
			b.section++
		case strings.ContainsRune(".!?…:;。！？：；", last):
			b.sentence++
		case c.Kind == sheaf.ChunkText && unicode.IsLower(first):
			b.inside++
		default:
			b.between++
		}
	}
}

// chunksSection is the section of the page on where chunks end, with the default
// settings.
func chunksSection(ctx context.Context, pool *child.Pool, known *parser.Registry, corpus string) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "## Chunks\n\n| files | number | chunks | tokens, median | 90 %% | below 50 | under a heading | end with a section or table | with a sentence | with a line or item | inside a sentence |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range sets {
		paths, err := s.paths(corpus)
		if err != nil {
			return "", err
		}
		var b boundaries
		for _, path := range paths {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			all, _, err := units(ctx, pool, known, path)
			if err != nil || len(all) == 0 {
				continue // counted with the text
			}
			chunks, err := chunker.Chunk(ctx, chunker.Input{
				DocumentID: filepath.Base(path), Generation: 1, RangeID: "r", Range: sheaf.Range{From: 1, To: len(all)}, Units: all, Config: settings.Default,
			})
			if err != nil {
				return "", err
			}
			b.count(chunks)
		}
		slices.Sort(b.tokens)
		short, _ := slices.BinarySearch(b.tokens, 50)
		ends := b.section + b.sentence + b.between + b.inside
		if b.chunks == 0 {
			continue
		}
		percent := func(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(of, 1))) }
		fmt.Fprintf(&out, "| %s | %d | %d | %d | %d | %s | %s | %s | %s | %s | %s |\n", s.name, b.files, b.chunks, b.tokens[len(b.tokens)/2], b.tokens[len(b.tokens)*9/10],
			percent(short, b.chunks), percent(b.headed, b.chunks), percent(b.section, ends), percent(b.sentence, ends), percent(b.between, ends), percent(b.inside, ends))
	}
	fmt.Fprintf(&out, "\nDocuments are cut as they are by default: method general, %d tokens. A chunk **ends inside a sentence** when its text has no sentence mark at the end, the next one is under the same heading and of the same kind, and goes on with a small letter; lists of words in small letters count, too.\n", settings.Default.ChunkTokenNum.V)
	return out.String(), nil
}
