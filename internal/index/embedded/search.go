package embedded

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"modernc.org/sqlite"

	"sheaf"
	"sheaf/internal/index"
)

// filter is a query's conditions as functions of what is held in memory.
type filter struct {
	directory  *directory
	tenant     string
	datasets   map[string]bool
	documents  map[string]bool
	mediaTypes map[string]bool
	languages  map[string]bool
	metadata   map[string]string
	from, to   int
	labels     []rowSet // a row must be in each
}

func newFilter(d *directory, q *index.Query) *filter {
	return &filter{
		directory: d, tenant: q.TenantID, datasets: set(q.DatasetIDs), documents: set(q.DocumentIDs), mediaTypes: set(q.MediaTypes),
		languages: set(index.Labels(q.Languages)), metadata: q.Metadata, from: q.PageFrom, to: q.PageTo,
	}
}

// rowSet has a bit a row.
type rowSet []uint64

func (s rowSet) has(row uint32) bool {
	return int(row/64) < len(s) && s[row/64]&(1<<(row%64)) != 0
}

// rowsLabeled finds the rows that have one of the labels of a kind.
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
		if missing := int(n/64) + 1 - len(s); missing > 0 {
			s = append(s, make(rowSet, missing)...)
		}
		s[n/64] |= 1 << (n % 64)
	}
	return s, rows.Err()
}

// Kinds of labels, the first byte of what is in table labels.
const (
	keywordLabel = "k"
	tagLabel     = "t"
)

// set is nil when there is nothing to choose by.
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

// keep is the SQL function keep(slot, rowid): it lets the full-text query
// leave out rows before it scores them.
func (x *Index) keep(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	slot, _ := args[0].(int64)
	row, _ := args[1].(int64)
	if x.filters[slot].keep(uint32(row)) {
		return int64(1), nil
	}
	return int64(0), nil
}

// Search runs both sides at the same time. At most maxSearches searches run;
// more wait for their turn or for ctx.
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
	var slot int
	select {
	case slot = <-x.slots:
	case <-ctx.Done():
		return index.Candidates{}, ctx.Err()
	case <-x.closing:
		return index.Candidates{}, errClosed
	}
	defer func() { x.slots <- slot }()
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
	x.filters[slot] = f

	words := index.ParseWords(q.Text)
	var byMeaning []scored
	var wait sync.WaitGroup
	if vector, inverse := quantiseQuery(q.Vector, x.dim); inverse != 0 {
		wait.Go(func() { byMeaning = x.searchVectors(&q, f, vector, inverse) })
	}
	byWords, err := x.searchWords(ctx, words, slot, q.K)
	wait.Wait()
	if err != nil {
		return index.Candidates{}, x.failure(err)
	}
	found, err := x.fetch(ctx, byWords, byMeaning)
	if err != nil {
		return index.Candidates{}, x.failure(err)
	}
	var c index.Candidates
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

// The cost of a full-text query grows with the rows it scores (about a
// microsecond each), and a question in plain words has common ones among its
// words. So all words are asked for first; only when too few rows have them
// all, any of them will do, rarest first, until budgetRows are to be scored.
const (
	enoughRows = 20
	budgetRows = 8000
)

func (x *Index) searchWords(ctx context.Context, w index.Words, slot, k int) ([]scored, error) {
	if len(w.Groups) == 0 {
		return nil, nil
	}
	all, required := make([]string, 0, len(w.Groups)), make([]string, 0, len(w.Groups))
	for _, g := range w.Groups {
		all = append(all, expression(g))
		if g.Quoted {
			required = append(required, expression(g))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	best, err := x.match(ctx, strings.Join(all, " AND "), slot, k)
	if err != nil || len(all) == 1 || len(best) >= min(k, max(enoughRows, k/5)) {
		return best, err
	}
	var loose string
	if len(required) > 0 {
		if len(required) == len(w.Groups) {
			return best, nil // an exact phrase is not negotiable
		}
		loose = strings.Join(required, " AND ")
	} else if loose, err = x.anyOf(ctx, w); err != nil {
		return nil, err
	}
	more, err := x.match(ctx, loose, slot, k)
	if err != nil {
		return nil, err
	}
	// What has all the words scores at least as high as it did among any of
	// them, where the most common ones were left out.
	have := make(map[uint32]bool, len(best))
	for _, s := range best {
		have[s.row] = true
	}
	for _, s := range more {
		if !have[s.row] {
			best = append(best, s)
		}
	}
	t := top{heap: best}
	return t.sorted()[:min(k, len(best))], nil
}

// expression writes a group in FTS5's query syntax. Terms hold letters, marks
// and digits only, so that nothing in them can be syntax.
func expression(g index.Group) string {
	e := `"` + strings.Join(g.Terms, " ") + `"`
	if g.Prefix {
		e += " *"
	}
	return e
}

// anyOf asks for any of the words, rarest first, within the budget.
func (x *Index) anyOf(ctx context.Context, w index.Words) (string, error) {
	type choice struct {
		text string
		rows int
	}
	var choices []choice
	seen := make(map[string]bool)
	for _, g := range w.Groups {
		if g.Prefix {
			choices = append(choices, choice{expression(g), 0})
			continue
		}
		for _, t := range g.Terms {
			if seen[t] {
				continue
			}
			seen[t] = true
			n, err := x.rowsWith(ctx, t)
			if err != nil {
				return "", err
			}
			choices = append(choices, choice{`"` + t + `"`, n})
		}
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return cmp.Compare(a.rows, b.rows) })
	var parts []string
	sum := 0
	for _, c := range choices {
		if sum += c.rows; sum > budgetRows && len(parts) > 0 {
			break
		}
		parts = append(parts, c.text)
	}
	return strings.Join(parts, " OR "), nil
}

// match runs one full-text query. FTS5's bm25 is negative, smaller for better.
func (x *Index) match(ctx context.Context, expression string, slot, k int) ([]scored, error) {
	rows, err := x.read.QueryContext(ctx,
		`SELECT rowid, -bm25(words) AS score FROM words WHERE words MATCH ? AND keep(?, rowid) ORDER BY score DESC, rowid LIMIT ?`, expression, slot, k)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var best []scored
	for rows.Next() {
		var row int64
		var score float64
		if err := rows.Scan(&row, &score); err != nil {
			return nil, err
		}
		best = append(best, scored{uint32(row), float32(score)})
	}
	return best, rows.Err()
}

// fetch reads the chunks of both sides. What was deleted since it was found is
// not in the answer.
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
	slices.Sort(list) // in the order of the file
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
	// Decoding takes longer than reading, and a quarter of a search where one
	// core does it alone.
	chunks := make([]sheaf.Chunk, len(read))
	err = onAllCores(len(read), 16, func(i int) error {
		if err := json.Unmarshal(read[i].data, &chunks[i]); err != nil {
			return fmt.Errorf("%w: chunk %d: %w", errDamaged, read[i].n, err)
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

// frequencies remembers in how many rows a term occurs: FTS5 counts by walking
// the whole list of the term, which for common ones costs as much as a search.
type frequencies struct {
	mu   sync.Mutex
	rows map[string]int
	at   int64 // size of the index when counting began
}

// maxFrequencies bounds the memory; when it is reached the counts start over.
const maxFrequencies = 20000

// rowsWith is about the number of rows with the term: counts are kept until
// the index has grown or shrunk by a quarter.
func (x *Index) rowsWith(ctx context.Context, term string) (int, error) {
	f, size := &x.common, x.count.Load()
	f.mu.Lock()
	if d := size - f.at; f.rows == nil || len(f.rows) >= maxFrequencies || d > f.at/4 || -d > f.at/4 {
		f.rows, f.at = make(map[string]int), size
	}
	n, ok := f.rows[term]
	f.mu.Unlock()
	if ok {
		return n, nil
	}
	err := x.read.QueryRowContext(ctx, `SELECT doc FROM vocabulary WHERE term = ?`, term).Scan(&n)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	f.mu.Lock()
	f.rows[term] = n
	f.mu.Unlock()
	return n, nil
}
