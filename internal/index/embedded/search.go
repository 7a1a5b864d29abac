package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"sheaf"
	"sheaf/internal/index"
)

// filter holds a query's conditions, evaluated in memory.
type filter struct {
	directory  *directory
	tenant     string
	datasets   map[string]bool
	documents  map[string]bool
	mediaTypes map[string]bool
	languages  map[string]bool
	metadata   map[string]string
	summaries  index.Summaries
	from, to   int
	labels     []rowSet // a row must be in each
}

func newFilter(d *directory, q *index.Query) *filter {
	return &filter{
		directory: d, tenant: q.TenantID, datasets: set(q.DatasetIDs), documents: set(q.DocumentIDs), mediaTypes: set(q.MediaTypes),
		languages: set(index.Labels(q.Languages)), metadata: q.Metadata, summaries: q.Summaries, from: q.PageFrom, to: q.PageTo,
	}
}

// rowSet has one bit per row.
type rowSet []uint64

// add reports whether the row is new to the set.
func (s *rowSet) add(row uint32) bool {
	if missing := int(row/64) + 1 - len(*s); missing > 0 {
		*s = append(*s, make(rowSet, missing)...)
	}
	word, bit := &(*s)[row/64], uint64(1)<<(row%64)
	had := *word&bit != 0
	*word |= bit
	return !had
}

func (s rowSet) has(row uint32) bool {
	return int(row/64) < len(s) && s[row/64]&(1<<(row%64)) != 0
}

// rowsLabeled finds the rows with any of the labels of a kind.
func (x *Index) rowsLabeled(ctx context.Context, kind string, labels []string) (rowSet, error) {
	wanted := make([]string, len(labels))
	for i, l := range labels {
		wanted[i] = kind + l
	}
	list, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	rows, err := x.read.QueryContext(ctx, `SELECT l.n FROM json_each(?) j JOIN labels l ON l.label = j.value`, string(list))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var s rowSet
	for rows.Next() {
		var n uint32
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		s.add(n)
	}
	return s, rows.Err()
}

// Kinds of labels: the first byte of an entry in table labels.
const (
	keywordLabel = "k"
	tagLabel     = "t"
)

// set returns values as a set, or nil if there are none.
func set(values []string) map[string]bool {
	if len(values) == 0 {
		return nil
	}
	m := make(map[string]bool, len(values))
	for _, v := range values {
		m[v] = true
	}
	return m
}

func (f *filter) keep(row uint32) bool {
	e := f.directory.at(row)
	if e == nil {
		return false
	}
	d := e.document.Load()
	if d == nil || d.segment.tenant != f.tenant ||
		f.datasets != nil && !f.datasets[d.segment.dataset] ||
		f.documents != nil && !f.documents[d.id] ||
		f.mediaTypes != nil && !f.mediaTypes[d.mediaType] ||
		f.languages != nil && !f.languages[d.language] {
		return false
	}
	for _, s := range f.labels {
		if !s.has(row) {
			return false
		}
	}
	if f.summaries != index.WithSummaries {
		if _, is := d.metadata[sheaf.MetadataLayer]; is != (f.summaries == index.OnlySummaries) {
			return false
		}
	}
	for k, v := range f.metadata {
		if have, ok := d.metadata[k]; !ok || have != v {
			return false
		}
	}
	if f.from <= 0 && f.to <= 0 {
		return true
	}
	first, last := int(e.from), int(e.to&^gapped)
	if last == 0 || f.from > 0 && last < f.from || f.to > 0 && first > f.to {
		return false
	}
	if e.to&gapped == 0 {
		return true
	}
	pages, _ := f.directory.gaps.Load(row)
	list, _ := pages.([]int)
	return slices.ContainsFunc(list, func(p int) bool { return p >= f.from && (f.to <= 0 || p <= f.to) })
}

// Search runs both sides concurrently. At most MaxSearches searches run; more wait
// for a slot or for ctx.
func (x *Index) Search(ctx context.Context, q index.Query) (index.Candidates, error) {
	if x.closed() {
		return index.Candidates{}, errClosed
	}
	if err := q.Validate(); err != nil {
		return index.Candidates{}, err
	}
	if len(q.Vector) != 0 && len(q.Vector) != x.config.Dim {
		return index.Candidates{}, index.VectorMismatch(len(q.Vector), x.config.Dim)
	}
	select {
	case x.searches <- struct{}{}:
	case <-ctx.Done():
		return index.Candidates{}, ctx.Err()
	case <-x.closing:
		return index.Candidates{}, errClosed
	}
	defer func() { <-x.searches }()
	f := newFilter(&x.directory, &q)
	for _, l := range []struct {
		kind   string
		values []string
	}{{keywordLabel, q.Keywords}, {tagLabel, q.Tags}} {
		if len(l.values) > 0 {
			rows, err := x.rowsLabeled(ctx, l.kind, index.Labels(l.values))
			if err != nil {
				return index.Candidates{}, x.failure(err)
			}
			f.labels = append(f.labels, rows)
		}
	}

	words := index.ParseWords(q.Text)
	var byMeaning []scored
	var wait sync.WaitGroup
	if vector, inverse := quantiseQuery(q.Vector, x.dim); inverse != 0 {
		wait.Go(func() { byMeaning = x.searchVectors(&q, f, vector, inverse) })
	}
	byWords, idf, err := x.searchWords(ctx, words, f, q.K, q.Similar)
	wait.Wait()
	if err != nil {
		return index.Candidates{}, x.failure(err)
	}
	found, err := x.fetch(ctx, byWords, byMeaning)
	if err != nil {
		return index.Candidates{}, x.failure(err)
	}
	c := index.Candidates{NoMore: len(byWords) < q.K && len(byMeaning) < q.K, IDF: idf}
	for _, s := range byWords {
		if chunk := found[s.row]; chunk != nil {
			hit := index.Hit{Chunk: *chunk, Score: float64(s.score)}
			if q.Highlight {
				hit.Highlight = words.Highlight(chunk.Text)
			}
			c.Text = append(c.Text, hit)
		}
	}
	for _, s := range byMeaning {
		if chunk := found[s.row]; chunk != nil {
			c.Vector = append(c.Vector, index.Hit{Chunk: *chunk, Score: float64(s.score)})
		}
	}
	return c, nil
}

func (x *Index) searchVectors(q *index.Query, f *filter, vector []int16, inverse float32) []scored {
	x.mu.RLock()
	var segments []*segment
	for dataset, s := range x.segments[q.TenantID] {
		if f.datasets == nil || f.datasets[dataset] {
			segments = append(segments, s)
		}
	}
	x.mu.RUnlock()
	best := top{k: q.K}
	for _, s := range segments {
		scan(&best, s.snapshot(), vector, inverse, f.keep)
	}
	return best.sorted()
}

// fetch reads the chunks of both sides. Those deleted since they were found are
// omitted.
func (x *Index) fetch(ctx context.Context, sides ...[]scored) (map[uint32]*sheaf.Chunk, error) {
	found := make(map[uint32]*sheaf.Chunk)
	var list []uint32
	for _, side := range sides {
		for _, s := range side {
			if _, ok := found[s.row]; !ok {
				found[s.row] = nil
				list = append(list, s.row)
			}
		}
	}
	if len(list) == 0 {
		return found, nil
	}
	slices.Sort(list) // in file order
	numbers, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	rows, err := x.read.QueryContext(ctx, `SELECT c.n, c.json FROM json_each(?) j JOIN chunks c ON c.n = j.value`, string(numbers))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	type stored struct {
		n    uint32
		data []byte
	}
	read := make([]stored, 0, len(list))
	for rows.Next() {
		var r stored
		if err := rows.Scan(&r.n, &r.data); err != nil {
			return nil, err
		}
		read = append(read, r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	// Decoding takes longer than reading, and would take a quarter of a search on a
	// single core.
	chunks := make([]sheaf.Chunk, len(read))
	err = onAllCores(len(read), 16, func(i int) error {
		if err := decodeChunk(read[i].data, &chunks[i]); err != nil {
			return fmt.Errorf("chunk %d: %w", read[i].n, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range read {
		found[read[i].n] = &chunks[i]
	}
	return found, nil
}

func decodeChunk(data []byte, c *sheaf.Chunk) error {
	if err := index.DecodeChunk(data, c); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}
