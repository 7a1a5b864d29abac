package eval

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/taskstore"
)

// Limits on generated questions.
const (
	// MaxGenerated is how many questions are generated at once.
	MaxGenerated = 200
	// MaxDocuments is how many documents questions are generated from.
	MaxDocuments = 200

	sectionPages   = 5   // a section on more pages is too broad to be an answer
	headingLetters = 8   // a shorter heading is not specific
	headingRunes   = 200 // a longer one is a paragraph
	chunkTokens    = 60  // minimum size of a chunk to ask about
	questionRunes  = 300
	questionTokens = 80 // of the model's answer
	asks           = 4  // concurrently
)

// Source is a document with the chunks to generate questions from.
type Source struct {
	Document sheaf.Document
	Chunks   []sheaf.Chunk
}

// Asker asks a language model.
type Asker interface {
	Ask(ctx context.Context, instruction, text string, maxTokens int) (string, error)
}

// Sample selects the documents to generate questions from: deterministic for a
// dataset, and mostly stable when others come and go.
func Sample(docs []sheaf.Document) []sheaf.Document {
	slices.SortFunc(docs, func(a, b sheaf.Document) int {
		return cmp.Or(cmp.Compare(xxhash.Sum64String(a.ID), xxhash.Sum64String(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return docs[:min(len(docs), MaxDocuments)]
}

// Keep drops what is not used for questions of that source, so that many documents
// fit in memory: texts if questions are made from headings, and chunks beyond a
// document's share if made from passages.
func Keep(chunks []sheaf.Chunk, from taskstore.QuerySource, limit, documents int) []sheaf.Chunk {
	if from != taskstore.SourceChunks {
		for i := range chunks {
			chunks[i] = sheaf.Chunk{HeadingPath: chunks[i].HeadingPath, Pages: chunks[i].Pages}
		}
		return chunks
	}
	chunks = slices.DeleteFunc(chunks, func(c sheaf.Chunk) bool {
		return c.Tokens < chunkTokens || c.Role != "" || c.Kind == sheaf.ChunkImage
	})
	scatter(chunks, func(c sheaf.Chunk) string { return c.ID })
	const spare = 5 // for documents with fewer
	return slices.Clone(chunks[:min(len(chunks), 2*limit/max(1, documents)+spare)])
}

// FromHeadings generates up to limit questions from headings, each answered by the
// pages of its section. A heading shared by several documents includes the name of
// its document; headings that occur twice in a document, that are in taken, or that
// span many pages are skipped.
func FromHeadings(sources []Source, taken map[string]bool, limit int) []taskstore.SavedQuery {
	type section struct {
		heading  string
		from, to int
		twice    bool
	}
	owners := map[string]int{} // number of documents with a heading
	sections := make([][]*section, len(sources))
	for i, src := range sources {
		byPath := map[string]*section{}
		seen := map[string]*section{} // by heading
		for _, c := range src.Chunks {
			for n := range c.HeadingPath {
				heading := strings.Join(strings.Fields(c.HeadingPath[n]), " ")
				if !asksSomething(heading) {
					continue
				}
				at := strings.Join(c.HeadingPath[:n+1], "\x00")
				s := byPath[at]
				if s == nil {
					s = &section{heading: heading}
					byPath[at] = s
					if other := seen[strings.ToLower(heading)]; other != nil {
						other.twice, s.twice = true, true
					} else {
						seen[strings.ToLower(heading)] = s
						owners[strings.ToLower(heading)]++
					}
					sections[i] = append(sections[i], s)
				}
				for _, p := range c.Pages {
					if s.from == 0 || p < s.from {
						s.from = p
					}
					s.to = max(s.to, p)
				}
			}
		}
	}
	var out []taskstore.SavedQuery
	candidates := make([][]taskstore.SavedQuery, len(sources))
	for i, src := range sources {
		for _, s := range sections[i] {
			if s.twice || s.to-s.from >= sectionPages {
				continue
			}
			question := s.heading
			if owners[strings.ToLower(s.heading)] > 1 {
				question += ", " + title(&src.Document)
			}
			e := taskstore.ExpectedAnswer{DocumentID: src.Document.ID, From: s.from}
			if s.to > s.from {
				e.To = s.to
			}
			candidates[i] = append(candidates[i], taskstore.SavedQuery{Question: question, Source: taskstore.SourceHeadings, Expected: []taskstore.ExpectedAnswer{e}})
		}
		scatter(candidates[i], func(q taskstore.SavedQuery) string { return q.Question })
	}
	dealt(candidates, limit, func(q taskstore.SavedQuery) bool {
		if taken[q.Question] || utf8.RuneCountInString(q.Question) > taskstore.MaxQuestion {
			return false
		}
		taken[q.Question] = true
		out = append(out, q)
		return true
	})
	return out
}

// Passage is a chunk to ask a question about.
type Passage struct {
	Document sheaf.Document
	Chunk    sheaf.Chunk
}

// Passages takes up to limit of the chunks left by Keep, evenly from all documents.
func Passages(sources []Source, limit int) (out []Passage) {
	candidates := make([][]Passage, len(sources))
	for i, src := range sources {
		for _, c := range src.Chunks {
			candidates[i] = append(candidates[i], Passage{src.Document, c})
		}
	}
	dealt(candidates, limit, func(p Passage) bool {
		out = append(out, p)
		return true
	})
	return out
}

// Instruction is the model's instruction for a passage.
const Instruction = "Write one question that the text answers, as somebody would ask who looks for it and has not seen it. Name what it is about, so that it can be understood without the text. Use the language of the text. Answer with the question alone."

// FromPassages asks a model for a question about each passage, answered by the
// pages of the passage. failed counts the passages without one, err is the reason
// for the first of them. If ctx ends, it returns what it has so far.
func FromPassages(ctx context.Context, model Asker, passages []Passage, taken map[string]bool) (made []taskstore.SavedQuery, failed int, err error) {
	questions := make([]string, len(passages))
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(asks)
	for i, p := range passages {
		g.Go(func() error {
			said, askErr := model.Ask(ctx, Instruction, p.Chunk.Text, questionTokens)
			if askErr == nil {
				questions[i], askErr = question(said)
			}
			if askErr != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed++; err == nil {
					err = askErr
				}
			}
			return nil
		})
	}
	_ = g.Wait() // each keeps its own error
	for i, q := range questions {
		if q == "" || taken[q] {
			continue
		}
		taken[q] = true
		e := taskstore.ExpectedAnswer{DocumentID: passages[i].Document.ID}
		if pages := passages[i].Chunk.Pages; len(pages) > 0 {
			if e.From = slices.Min(pages); slices.Max(pages) > e.From {
				e.To = slices.Max(pages)
			}
		}
		made = append(made, taskstore.SavedQuery{Question: q, Source: taskstore.SourceChunks, Expected: []taskstore.ExpectedAnswer{e}})
	}
	return made, failed, err
}

// question extracts the question from a model's answer.
func question(said string) (string, error) {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	line = strings.Trim(strings.Join(strings.Fields(line), " "), `"'“”„«»*`)
	switch n := utf8.RuneCountInString(line); {
	case n == 0:
		return "", sheaf.Fail(sheaf.CategoryInternal, "no_question", "The model said nothing where a question was asked for.")
	case n > questionRunes:
		return "", sheaf.Fail(sheaf.CategoryInternal, "no_question", "The model said %d characters where a question was asked for.", n)
	}
	return line, nil
}

// asksSomething reports whether a heading has searchable words.
func asksSomething(heading string) bool {
	letters, wide := 0, 0
	for _, r := range heading {
		if unicode.IsLetter(r) {
			letters++
			if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai) {
				wide++
			}
		}
	}
	return utf8.RuneCountInString(heading) <= headingRunes && letters+2*wide >= headingLetters && (wide > 0 || strings.Contains(heading, " "))
}

// title returns a document's title, or its name without extension.
func title(d *sheaf.Document) string {
	if t := strings.TrimSpace(d.Metadata[sheaf.MetadataTitle]); t != "" {
		return t
	}
	base := path.Base(d.Name)
	return strings.TrimSuffix(base, path.Ext(base))
}

// scatter sorts a list into a pseudo-random but deterministic order.
func scatter[T any](list []T, key func(T) string) {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(xxhash.Sum64String(key(a)), xxhash.Sum64String(key(b))) })
}

// dealt takes items from the lists in turn until it has limit.
func dealt[T any](lists [][]T, limit int, take func(T) bool) {
	for n, more := 0, true; more; n++ {
		more = false
		for _, list := range lists {
			if n >= len(list) {
				continue
			}
			if more = true; limit <= 0 {
				return
			}
			if take(list[n]) {
				limit--
			}
		}
	}
}
