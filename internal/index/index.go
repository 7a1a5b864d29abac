// Package index makes chunks searchable by words and by meaning. It is disposable:
// everything in it can be rebuilt from the artifacts. embedded (SQLite, words and
// vectors in memory) and elastic implement it; indextest holds both to the same
// contract.
package index

import (
	"context"
	"errors"
	"slices"
	"strings"

	"sheaf"
)

// Entry is a chunk to index.
type Entry struct {
	Chunk     sheaf.Chunk
	TenantID  string
	DatasetID string
	Name      string // of the document: indexed before the text, like the heading path
	MediaType string
	Vector    []float32 // of the index's model, unit length; nil or all zeros means not found by meaning
}

// Preamble is what is indexed by words before the text, in order: the title of the
// document unless its name contains it, the headings, the chunk's context, its
// keywords and the questions it answers.
func (e *Entry) Preamble() []string {
	preamble := slices.Clone(e.Chunk.Place(e.Name))
	if e.Chunk.Context != "" {
		preamble = append(preamble, e.Chunk.Context)
	}
	return append(append(preamble, e.Chunk.Keywords...), e.Chunk.Questions...)
}

// WithConcurrency tells Write that the caller makes up to n concurrent writes,
// including this one: an index that groups commits may briefly wait for the others.
func WithConcurrency(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, concurrencyKey{}, n)
}

// Concurrency returns the n of WithConcurrency, 1 by default.
func Concurrency(ctx context.Context) int {
	n, _ := ctx.Value(concurrencyKey{}).(int)
	return max(n, 1)
}

type concurrencyKey struct{}

// WithWaiting gives Write and Refresh a function to call before they wait for
// others, for up to a second: the caller may yield its slot in the meantime. It may
// be called more than once.
func WithWaiting(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, waitingKey{}, f)
}

// Waiting calls the f of WithWaiting.
func Waiting(ctx context.Context) {
	if f, ok := ctx.Value(waitingKey{}).(func()); ok {
		f()
	}
}

type waitingKey struct{}

// Label normalizes a keyword, tag or language for comparison: lower case, single
// spaces, at most maxLabelBytes.
func Label(s string) string {
	s = strings.Join(strings.Fields(strings.ToLower(strings.ToValidUTF8(s, ""))), " ")
	if len(s) > maxLabelBytes {
		s = strings.ToValidUTF8(s[:maxLabelBytes], "")
	}
	return s
}

// maxLabelBytes is far below the longest term that Lucene accepts, 32,766 bytes.
const maxLabelBytes = 512

// Labels applies Label to all, and drops empty and duplicate ones.
func Labels(all []string) []string {
	var out []string
	for _, s := range all {
		if s = Label(s); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Keywords are the labels of the chunk's keywords.
func (e *Entry) Keywords() []string { return Labels(e.Chunk.Keywords) }

// Tags are the labels of the chunk's tags.
func (e *Entry) Tags() []string {
	names := make([]string, len(e.Chunk.Tags))
	for i, t := range e.Chunk.Tags {
		names[i] = t.Name
	}
	return Labels(names)
}

// Entries makes the entries of one range result. of holds what they have in common:
// tenant, dataset, name and media type. vectors has one entry per chunk, or fewer
// if the rest have none.
func Entries(of Entry, chunks []sheaf.Chunk, vectors [][]float32) []Entry {
	entries := make([]Entry, len(chunks))
	for i := range chunks {
		entries[i] = of
		entries[i].Chunk = chunks[i]
		if i < len(vectors) {
			entries[i].Vector = vectors[i]
		}
	}
	return entries
}

// Index is safe for concurrent use. Errors: *sheaf.Failure, sheaf.ErrUnavailable
// (retry may help; a write may or may not have happened), sheaf.ErrInvalid.
type Index interface {
	// Write adds entries of one range result, or of edited chunks of one document.
	// An existing entry (same chunk id) is success. It returns nil only if every
	// entry is in.
	Write(ctx context.Context, entries []Entry) error
	// Refresh makes all writes before the call visible to Search and Count.
	Refresh(ctx context.Context) error
	// Count returns how many entries each range has.
	Count(ctx context.Context, tenantID string, rangeIDs []string) (map[string]int, error)
	// DeleteRanges and DeleteDocument remove entries; missing ones are no error.
	DeleteRanges(ctx context.Context, tenantID string, rangeIDs []string) error
	DeleteDocument(ctx context.Context, tenantID, documentID string) error
	// CountDocument returns how many entries of any generation a document has, and
	// how many of them have a vector.
	CountDocument(ctx context.Context, tenantID, documentID string) (chunks, vectors int, err error)
	// Search returns candidates from the word side and the vector side, best
	// first, at most q.K each. Scores are the engine's own: BM25 and cosine.
	Search(ctx context.Context, q Query) (Candidates, error)
	// Scan calls each with the ids of every entry of the tenant ("" for all
	// tenants) until it returns false. For reconciliation.
	Scan(ctx context.Context, tenantID string, each func(chunkID, rangeID, documentID string) bool) error
	Ping(ctx context.Context) error
	Close() error
}

// Compacter is an Index whose files keep the words of deleted entries until its
// engine happens to rewrite them. An Index that is not a Compacter removes them
// automatically, within minutes.
type Compacter interface {
	// Compact has the engine rewrite what holds deleted entries, which may continue
	// after the call. It does not affect search results, is safe during writes, and
	// is a no-op if nothing was deleted.
	Compact(ctx context.Context) error
}

// Owned is an Index that knows which store's chunks it was created for.
type Owned interface {
	// Verify checks that the index is the one that was opened: not deleted, and not
	// replaced by another. Otherwise the failure has the code index_missing,
	// index_foreign or index_model_mismatch.
	Verify(ctx context.Context) error
	// Drop deletes the index with its content and closes it.
	Drop(ctx context.Context) error
}

// IsLost reports whether an error of an Index means that its content is gone, so
// that only refilling it helps.
func IsLost(err error) bool {
	f, ok := errors.AsType[*sheaf.Failure](err)
	return ok && slices.Contains([]string{"index_missing", "index_foreign", "index_model_mismatch", "index_format", "index_damaged", "index_full"}, f.Code)
}

// Summaries selects whether summaries are searched.
type Summaries int

// Summaries are searched with everything else, alone, or not at all.
const (
	WithSummaries Summaries = iota
	OnlySummaries
	NoSummaries
)

// Query selects candidates. TenantID is required; an empty filter selects all.
type Query struct {
	TenantID    string
	DatasetIDs  []string
	DocumentIDs []string
	MediaTypes  []string
	PageFrom    int // 1-based, 0 means no bound
	PageTo      int
	Metadata    map[string]string // every pair must match the chunk's metadata
	Languages   []string          // any of them is the chunk's
	Keywords    []string          // any of them is among the chunk's, compared by Label
	Tags        []string          // any of them is among the chunk's, compared by Label
	Summaries   Summaries
	Text        string    // "" for no word side
	Vector      []float32 // nil for no vector side
	K           int       // per side, 1–1,000
	Similar     bool      // also match words with similar spelling, and parts of compounds
	Highlight   bool
}

// Candidates are the two sides of a hybrid search.
type Candidates struct {
	Text   []Hit
	Vector []Hit
	NoMore bool // a larger K would find the same
	// IDF holds the IDF in texts of each query term, by its text; a term without
	// occurrences has the highest.
	IDF map[string]float64
}

// Hit is a chunk with a score. Highlight marks the matched words with <mark> in
// otherwise HTML-escaped text; "" if not requested or on the vector side.
type Hit struct {
	Chunk     sheaf.Chunk
	Score     float64
	Highlight string
}
