package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"sheaf"
	"sheaf/internal/index"
)

// termField is a query term in one field of one part.
type termField struct {
	rows     int      // that have it
	postings [][]byte // one list, or one per term with the prefix
}

// clause is a query term in one field: its weight and its postings by part.
type clause struct {
	field    index.Field
	term     index.QueryTerm
	weight   float32
	byPart   []termField
	constant bool // the weight is the score, regardless of frequency and length
}

// maxPrefixTerms bounds the terms of a part that a prefix matches.
const maxPrefixTerms = 256

var accumulators = sync.Pool{New: func() any { return new([maxPartRows]float32) }}

// searchWords finds the k rows with the highest sum of BM25 over terms and fields
// that pass the filter and contain all quoted phrases: the same ones that scoring
// every row would find.
func (x *Index) searchWords(ctx context.Context, w index.Words, f *filter, k int, similar bool) (best []scored, idf map[string]float64, err error) {
	for range 10 {
		idf = make(map[string]float64, len(w.Terms))
		if best, err = x.scoreWords(ctx, x.words.Load(), w, f, k, similar, idf); !errors.Is(err, errMerged) {
			return best, idf, err
		}
	}
	return nil, nil, fmt.Errorf("%w: the index is being rewritten", sheaf.ErrUnavailable)
}

// errMerged means that a part whose positions were to be read was replaced in the
// file by another.
var errMerged = errors.New("the part was merged")

func (x *Index) scoreWords(ctx context.Context, all *wordIndex, w index.Words, f *filter, k int, similar bool, idf map[string]float64) ([]scored, error) {
	var clauses []clause
	for _, t := range w.Terms {
		for field := range index.Field(index.Fields) {
			if !t.Name || field == index.FieldName {
				clauses = append(clauses, clause{field: field, term: t, constant: t.Prefix || similar, byPart: make([]termField, len(all.parts))})
			}
		}
	}
	if err := onAllCores(len(all.parts), 4, func(i int) error {
		for c := range clauses {
			if similar {
				clauses[c].byPart[i] = all.parts[i].lookupSimilar(clauses[c].field, clauses[c].term.Text)
			} else {
				clauses[c].byPart[i] = all.parts[i].lookup(clauses[c].field, clauses[c].term)
			}
		}
		return ctx.Err()
	}); err != nil {
		return nil, err
	}
	var saturation [index.Fields][256]float32
	for field := range saturation {
		saturation[field] = all.saturation(index.Field(field))
	}
	for i := range clauses {
		c, rows := &clauses[i], 0
		for _, p := range c.byPart {
			rows += p.rows
		}
		of := index.IDF(rows, all.stats[c.field].rows)
		c.weight = float32(index.Weights[c.field] * c.term.Weight)
		if !c.constant {
			c.weight *= float32(of * (index.K1 + 1))
		}
		if c.field == index.FieldText {
			idf[c.term.Text] = of
		}
	}
	best := make([]top, len(all.parts))
	err := onAllCores(len(all.parts), 1, func(i int) error {
		p := all.parts[i]
		required, err := x.required(ctx, p, w)
		if err != nil {
			return err
		}
		scores := accumulators.Get().(*[maxPartRows]float32)
		defer accumulators.Put(scores)
		sum := scores[:p.rows]
		clear(sum)
		for c := range clauses {
			clauses[c].score(p, i, sum, &saturation[clauses[c].field])
		}
		best[i].k = k
		floor := best[i].floor()
		for n, s := range sum {
			row := p.first + uint32(n)
			if s <= 0 || s < floor || required != nil && !required.has(uint32(n)) || !f.keep(row) {
				continue
			}
			best[i].push(scored{row, s})
			floor = best[i].floor()
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	whole := top{k: k}
	for _, t := range best {
		for _, s := range t.heap {
			whole.push(s)
		}
	}
	return whole.sorted(), nil
}

// lookup finds the postings of a term.
func (p *part) lookup(field index.Field, t index.QueryTerm) (found termField) {
	key := termKey(field, t.Text)
	c, ok := p.seek(key)
	if !t.Prefix {
		if ok && bytes.Equal(c.key, key) {
			return termField{c.rows, [][]byte{p.list(c.termEntry)}}
		}
		return found
	}
	for ; ok && bytes.HasPrefix(c.key, key) && len(found.postings) < maxPrefixTerms; ok = c.next() {
		found.rows += c.rows
		found.postings = append(found.postings, p.list(c.termEntry))
	}
	return found
}

// lookupSimilar finds the postings of similar terms.
func (p *part) lookupSimilar(field index.Field, term string) (found termField) {
	add := func(e termEntry) {
		if len(found.postings) < maxPrefixTerms {
			found.rows += e.rows
			found.postings = append(found.postings, p.list(e))
		}
	}
	for _, piece := range index.Pieces(term) {
		if e, ok := p.find(termKey(field, piece)); ok {
			add(e)
		}
	}
	slips := index.Slips(term)
	if slips == 0 {
		return found
	}
	_, size := utf8.DecodeRuneInString(term)
	start := termKey(field, term[:size])
	for c, ok := p.seek(start); ok && bytes.HasPrefix(c.key, start); ok = c.next() {
		if have := c.key[1:]; bytes.HasPrefix(have, []byte(term)) || index.Within(string(have), term, slips) {
			add(c.termEntry)
		}
	}
	return found
}

// score adds the clause's contribution to each row of a part.
func (c *clause) score(p *part, n int, sum []float32, saturation *[256]float32) {
	lists := c.byPart[n].postings
	if c.constant {
		var seen rowSet
		for _, list := range lists {
			for row := uint32(0); len(list) > 0; {
				var distance uint32
				distance, _, list = nextPosting(list)
				row += distance
				if seen.add(row) {
					sum[row] += c.weight
				}
			}
		}
		return
	}
	lengths := p.lengths[c.field]
	for _, list := range lists {
		row := uint32(0)
		for len(list) > 0 {
			v, times := uint64(list[0]), float32(1)
			if v < 0x80 { // the common case: this loop runs once per posting
				list = list[1:]
			} else {
				var n int
				v, n = binary.Uvarint(list)
				list = list[n:]
			}
			if v&1 == 0 {
				t, n := binary.Uvarint(list)
				list = list[n:]
				times = float32(t)
			}
			row += uint32(v >> 1)
			sum[row] += c.weight * times / (times + saturation[lengths[row]])
		}
	}
}

// required returns the rows of a part, counted from its first, that contain all
// quoted phrases of a query; nil if it has none.
func (x *Index) required(ctx context.Context, p *part, w index.Words) (rowSet, error) {
	var all rowSet
	for _, g := range w.Groups {
		if !g.Quoted {
			continue
		}
		rows := make(rowSet, (p.rows+63)/64)
		for field := range index.Field(index.Fields) {
			if g.Prefix || len(g.Terms) == 1 {
				for _, list := range p.lookup(field, index.QueryTerm{Text: g.Terms[0], Prefix: g.Prefix}).postings {
					for row := uint32(0); len(list) > 0; {
						var distance uint32
						distance, _, list = nextPosting(list)
						row += distance
						rows.add(row)
					}
				}
			} else if err := x.phrase(ctx, p, field, g.Terms, rows); err != nil {
				return nil, err
			}
		}
		if all == nil {
			all = rows
			continue
		}
		for i := range all {
			all[i] &= rows[i]
		}
	}
	return all, nil
}

// phrase adds the rows of a part in which the terms are consecutive.
func (x *Index) phrase(ctx context.Context, p *part, field index.Field, terms []string, found rowSet) error {
	entries := make([]termEntry, len(terms))
	for i, t := range terms {
		var ok bool
		if entries[i], ok = p.find(termKey(field, t)); !ok {
			return nil
		}
	}
	var starts []uint64 // row, then position, of each possible start of the phrase
	for i, e := range entries {
		positions, err := x.positions(ctx, p.id, e)
		if err != nil {
			return err
		}
		var here []uint64
		for list, row := p.list(e), uint32(0); len(list) > 0; {
			var distance, times uint32
			distance, times, list = nextPosting(list)
			row += distance
			position := 0
			for range times {
				v, n := binary.Uvarint(positions)
				if n <= 0 {
					return errDamaged
				}
				positions = positions[n:]
				if position += int(v); position >= i {
					here = append(here, uint64(row)<<32|uint64(position-i))
				}
			}
		}
		if i == 0 {
			starts = here
		} else {
			starts = intersection(starts, here)
		}
		if len(starts) == 0 {
			return nil
		}
	}
	for _, s := range starts {
		found.add(uint32(s >> 32))
	}
	return nil
}

// intersection returns the values in both of two ascending lists.
func intersection(a, b []uint64) []uint64 {
	out := a[:0]
	for _, v := range a {
		i, ok := slices.BinarySearch(b, v)
		if ok {
			out = append(out, v)
		}
		b = b[i:]
	}
	return out
}

// positions reads the positions of a term in a part.
func (x *Index) positions(ctx context.Context, part int64, e termEntry) ([]byte, error) {
	first, last := int64(e.positions/positionsBytes), int64((e.positions+e.positionsSize)/positionsBytes)
	data, err := readPositions(ctx, x.read, part, first, last)
	if err != nil {
		return nil, err
	}
	from := int(e.positions % positionsBytes)
	if len(data) < from+int(e.positionsSize) {
		return nil, errMerged
	}
	return data[from : from+int(e.positionsSize)], nil
}
