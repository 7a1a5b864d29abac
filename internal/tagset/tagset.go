// Package tagset assigns to chunks and queries the tags of the nearest chunks of a
// tag set: after embedding, before anything is stored, and again at search. A tag
// set is a dataset chunked with method tag.
package tagset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/taskstore"
)

// Limits of a tag set: every chunk is compared with all its rows, and every task of
// a tagged document lists its results.
const (
	maxArtifacts = 64
	// maxCached is how many vector values are cached in memory besides the set in
	// use: 128 MB.
	maxCached = 32 << 20
)

// Limits determine which tags count and how large tag sets may be. Zero fields take
// their value from DefaultLimits.
type Limits struct {
	// MinWeight is the minimum weight of a tag, up to 1; negative: every tag counts
	// that is nearer than unrelated texts.
	MinWeight float64
	Rows      int // total of a document's tag sets
}

// DefaultLimits ignore tags whose rows are hardly nearer than unrelated ones.
var DefaultLimits = Limits{MinWeight: 0.2, Rows: 10_000}

// Weight returns MinWeight or its default.
func (l Limits) Weight() float64 { return max(0, cmp.Or(l.MinWeight, DefaultLimits.MinWeight)) }

func (l Limits) rows() int { return cmp.Or(l.Rows, DefaultLimits.Rows) }

// Store is the storage needed to find a tag set.
type Store interface {
	Documents(ctx context.Context, tenantID string, f taskstore.DocumentFilter, p taskstore.Page) ([]sheaf.Document, string, error)
	GenerationTasks(ctx context.Context, documentID string, generation int) ([]sheaf.Task, error)
}

// Artifacts lists the results in the live generations of the datasets' documents:
// they are immutable, so that their keys identify a tag set in its current state.
// If there is nothing to read yet, it returns a retryable *sheaf.Failure.
func Artifacts(ctx context.Context, store Store, limits Limits, tenantID string, datasetIDs []string) ([]string, error) {
	var keys []string
	rows, maxRows := 0, limits.rows()
	for _, id := range datasetIDs {
		docs, next, err := store.Documents(ctx, tenantID, taskstore.DocumentFilter{DatasetID: id}, taskstore.Page{Limit: 1000, Ascending: true})
		if err != nil {
			return nil, fmt.Errorf("listing the documents of tag set %s: %w", id, err)
		}
		before := len(keys)
		for _, d := range docs {
			if d.LiveGeneration < 1 {
				continue
			}
			tasks, err := store.GenerationTasks(ctx, d.ID, d.LiveGeneration)
			if err != nil {
				return nil, fmt.Errorf("reading %s of tag set %s: %w", d.ID, id, err)
			}
			for _, t := range tasks {
				if t.State == sheaf.TaskDone && t.Result.ArtifactKey != "" && t.Result.Chunks > 0 {
					keys = append(keys, t.Result.ArtifactKey)
					rows += t.Result.Chunks
				}
			}
			if len(keys) > maxArtifacts || rows > maxRows {
				break
			}
		}
		if next != "" || len(keys) > maxArtifacts || rows > maxRows {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "tag_set_too_large", "The tag sets of a document hold at most %d rows in %d ranges together, and dataset %s goes beyond that: put its rows into fewer files, or name fewer tag sets in tag_kb_ids.", maxRows, maxArtifacts, id)
		}
		if len(keys) == before {
			return nil, sheaf.FailRetryable(sheaf.CategoryPolicy, "tag_set_empty", "The dataset %s, which tag_kb_ids names, holds no row yet: upload its table, wait until it is searchable, and parse this document again.", id)
		}
	}
	return keys, nil
}

// Set is a tag set in memory. It is safe for concurrent use.
type Set struct {
	floor float64
	least float64 // minimum weight of a tag
	names []string
	rows  []row
}

type row struct {
	tags   []int // indexes into names
	vector []float32
}

// Near returns at most n tags, best first: a tag has the weight of its nearest row,
// from 0 for the cosine of unrelated texts to 1 for the same text. Equal weights
// are ordered by name. nil if nothing is near.
func (s *Set) Near(vector []float32, n int) []sheaf.Tag {
	best := make([]float64, len(s.names))
	for i := range s.rows {
		r := &s.rows[i]
		if len(r.vector) != len(vector) {
			continue
		}
		var cosine float64
		for k, x := range r.vector {
			cosine += float64(x) * float64(vector[k])
		}
		for _, t := range r.tags {
			best[t] = max(best[t], cosine)
		}
	}
	var out []sheaf.Tag
	for t, cosine := range best {
		// Rounded, so that machines that sum in another order agree.
		if w := math.Round(1000*(cosine-s.floor)/(1-s.floor)) / 1000; w > 0 && w >= s.least {
			out = append(out, sheaf.Tag{Name: s.names[t], Weight: min(w, 1)})
		}
	}
	slices.SortFunc(out, func(a, b sheaf.Tag) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Name, b.Name))
	})
	return slices.Clip(out[:min(n, len(out))])
}

// Tag sets up to n tags on each chunk. vectors has one entry per chunk.
func (s *Set) Tag(ctx context.Context, chunks []sheaf.Chunk, vectors [][]float32, n int) error {
	for i := range chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunks[i].Tags = s.Near(vectors[i], n)
	}
	return nil
}

// Loader loads tag sets and keeps those in use. It is safe for concurrent use.
type Loader struct {
	Blobs  blob.Store
	Model  embed.Model
	Limits Limits
	Now    func() embed.Model // takes precedence over Model, if that changes; may be nil

	mu     sync.Mutex
	cached []cachedSet // most recently used first
}

type cachedSet struct {
	key string
	set *Set
}

// Load reads the set in the artifacts. If results are gone or were embedded by
// another model, it returns a *sheaf.Failure that says what to do.
func (l *Loader) Load(ctx context.Context, artifacts []string) (*Set, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	model := l.Model
	if l.Now != nil {
		model = l.Now()
	}
	key := strings.Join(append(slices.Clone(artifacts), model.ID), "\n")
	if i := slices.IndexFunc(l.cached, func(k cachedSet) bool { return k.key == key }); i >= 0 {
		found := l.cached[i]
		l.cached = slices.Insert(slices.Delete(l.cached, i, i+1), 0, found)
		return found.set, nil
	}
	s := &Set{floor: model.Floor, least: l.Limits.Weight()}
	place := map[string]int{}
	for _, a := range artifacts {
		stored, err := artifact.LoadFor(ctx, l.Blobs, a, model.ID)
		if errors.Is(err, sheaf.ErrNotFound) {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "tag_set_changed", "The tag set was changed or deleted after this document was planned, and what it held is gone: parse the document again.")
		}
		if err != nil {
			return nil, fmt.Errorf("reading a tag set: %w", err)
		}
		if stored.Header.ModelID != model.ID {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "tag_set_model", "The tag set was embedded by %s and the configured model is %s: parse the tag set again, then this document.", stored.Header.ModelID, model.ID)
		}
		for i, c := range stored.Chunks {
			if len(c.Tags) == 0 || stored.Vectors[i] == nil {
				continue
			}
			if len(s.rows) == l.Limits.rows() {
				return nil, sheaf.Fail(sheaf.CategoryPolicy, "tag_set_too_large", "A tag set holds at most %d rows.", l.Limits.rows())
			}
			r := row{vector: stored.Vectors[i]}
			for _, t := range c.Tags {
				n, known := place[t.Name]
				if !known {
					n = len(s.names)
					place[t.Name], s.names = n, append(s.names, t.Name)
				}
				r.tags = append(r.tags, n)
			}
			s.rows = append(s.rows, r)
		}
	}
	l.cached = slices.Insert(l.cached, 0, cachedSet{key, s})
	values := 0
	for i, k := range l.cached {
		if values += len(k.set.rows) * model.Dim; i > 0 && values > maxCached {
			l.cached = slices.Clip(l.cached[:i])
			break
		}
	}
	return s, nil
}

// Queries tags queries like the chunks of the datasets they search.
type Queries struct {
	Store  Store
	Loader *Loader
}

// Tags returns the tags of a query's vector, from the current tag sets.
func (q *Queries) Tags(ctx context.Context, tenantID string, datasetIDs []string, vector []float32, n int) ([]sheaf.Tag, error) {
	keys, err := Artifacts(ctx, q.Store, q.Loader.Limits, tenantID, datasetIDs)
	if err != nil {
		return nil, err
	}
	set, err := q.Loader.Load(ctx, keys)
	if err != nil {
		return nil, err
	}
	return set.Near(vector, n), nil
}

// Alike returns the cosine of two lists of tags, 0 to 1.
func Alike(a, b []sheaf.Tag) float64 {
	var dot, lenA, lenB float64
	for _, x := range a {
		lenA += x.Weight * x.Weight
		for _, y := range b {
			if x.Name == y.Name {
				dot += x.Weight * y.Weight
			}
		}
	}
	for _, y := range b {
		lenB += y.Weight * y.Weight
	}
	if dot == 0 {
		return 0
	}
	return min(1, dot/math.Sqrt(lenA*lenB))
}
