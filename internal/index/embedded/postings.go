package embedded

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"

	"sheaf/internal/index"
)

// The word index is a list of parts, each the postings of a run of rows, like
// Lucene's segments. A commit writes its rows as one part; adjacent small parts are
// merged. Parts are immutable, so searches need no lock, and in memory except for
// positions, which only exact phrases read. A search scores every posting of its
// words: measured with 100,000 chunks, a few milliseconds for words in all of them,
// so skipping postings by bounds would not pay.
//
// Format of a part, numbers little-endian or uvarint:
//
//	header   first row, rows of the run, sizes of samples and terms; per field:
//	         rows that have it, terms in all of them
//	lengths  per field: the length code of each row
//	samples  per sampleEvery-th term: where it, its postings and its positions
//	         begin (3 × uint32)
//	terms    in order: size, field and bytes; rows, sizes of its postings and of
//	         its positions
//	postings per term: distance to the previous row ×2, +1 for a single
//	         occurrence, otherwise followed by their number
//
// Positions are stored separately: for each occurrence the distance to the previous
// one in that row and field.

const (
	maxPartRows    = 8192 // per part; deleting a row rewrites its part
	sampleEvery    = 32
	headerBytes    = 4*4 + index.Fields*(4+8)
	positionsBytes = 64 << 10 // per row of table positions
)

// fieldStats are the BM25 statistics of a field.
type fieldStats struct {
	rows  int // that have the field
	terms int // in all of them
}

// part holds the postings of a run of rows. Only dead ever changes.
type part struct {
	dead    int   // deleted rows; only the writer accesses it
	id      int64 // row of table parts
	first   uint32
	rows    uint32 // of the run, including dead ones
	stats   [index.Fields]fieldStats
	lengths [index.Fields][]byte // length code of each row

	samples, terms, postings []byte
	data                     []byte // all of it
}

func (p *part) end() uint32 { return p.first + p.rows } // one past its last row

// parsePart decodes a part. It fails with errDamaged.
func parsePart(id int64, data []byte) (*part, error) {
	if len(data) < headerBytes {
		return nil, errDamaged
	}
	p := &part{id: id, data: data, first: binary.LittleEndian.Uint32(data), rows: binary.LittleEndian.Uint32(data[4:])}
	samples, terms := int(binary.LittleEndian.Uint32(data[8:])), int(binary.LittleEndian.Uint32(data[12:]))
	rest := data[headerBytes:]
	if p.rows > maxPartRows || len(rest) < int(p.rows)*index.Fields+samples+terms || samples%12 != 0 {
		return nil, errDamaged
	}
	for f := range p.stats {
		at := data[16+f*12:]
		p.stats[f] = fieldStats{int(binary.LittleEndian.Uint32(at)), int(binary.LittleEndian.Uint64(at[4:]))}
		p.lengths[f], rest = rest[:p.rows], rest[p.rows:]
	}
	p.samples, rest = rest[:samples], rest[samples:]
	p.terms, p.postings = rest[:terms], rest[terms:]
	return p, nil
}

// termEntry is a term of a part and the location of its postings and positions.
type termEntry struct {
	key                 []byte // field, then the term
	rows                int
	postings, positions uint32 // where they begin
	postingsSize        uint32
	positionsSize       uint32
}

// cursor iterates over the terms of a part.
type cursor struct {
	termEntry
	rest []byte
}

// at returns a cursor before the n-th sample's term.
func (p *part) at(n int) cursor {
	if len(p.samples) == 0 {
		return cursor{}
	}
	s := p.samples[n*12:]
	return cursor{rest: p.terms[binary.LittleEndian.Uint32(s):],
		termEntry: termEntry{postings: binary.LittleEndian.Uint32(s[4:]), positions: binary.LittleEndian.Uint32(s[8:])}}
}

func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	c.postings += c.postingsSize
	c.positions += c.positionsSize
	size := c.number()
	c.key, c.rest = c.rest[:size], c.rest[size:]
	c.rows, c.postingsSize, c.positionsSize = int(c.number()), uint32(c.number()), uint32(c.number())
	return true
}

func (c *cursor) number() uint64 {
	v, n := binary.Uvarint(c.rest)
	c.rest = c.rest[n:]
	return v
}

// seek finds the first term not below key.
func (p *part) seek(key []byte) (cursor, bool) {
	lo, hi := 0, len(p.samples)/12
	for lo < hi { // the first sample above key
		mid := (lo + hi) / 2
		c := p.at(mid)
		c.next()
		if bytes.Compare(c.key, key) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	c := p.at(max(lo-1, 0))
	for c.next() {
		if bytes.Compare(c.key, key) >= 0 {
			return c, true
		}
	}
	return c, false
}

// find looks up one term.
func (p *part) find(key []byte) (termEntry, bool) {
	c, ok := p.seek(key)
	return c.termEntry, ok && bytes.Equal(c.key, key)
}

func (p *part) list(e termEntry) []byte { return p.postings[e.postings : e.postings+e.postingsSize] }

// nextPosting reads one posting: the distance to the previous row, and the number
// of occurrences.
func nextPosting(list []byte) (distance, times uint32, rest []byte) {
	v, n := binary.Uvarint(list)
	list = list[n:]
	if v&1 != 0 {
		return uint32(v >> 1), 1, list
	}
	t, n := binary.Uvarint(list)
	return uint32(v >> 1), uint32(t), list[n:]
}

// termKey is the sort and storage key of a term in a field.
func termKey(f index.Field, term string) []byte {
	return append([]byte{byte(f)}, term...)
}

// partBuilder builds a part from rows in order.
type partBuilder struct {
	first   uint32
	rows    uint32
	stats   [index.Fields]fieldStats
	lengths [index.Fields][]byte
	lists   map[string]*list
}

// list is a term being built.
type list struct {
	rows                int
	last                uint32 // row
	postings, positions []byte
	times               int // in the row being added
	position            int // the last one there
	pending             []byte
}

func newPartBuilder(first uint32) *partBuilder {
	return &partBuilder{first: first, lists: make(map[string]*list)}
}

// extend adds rows without terms up to row.
func (b *partBuilder) extend(row uint32) {
	for b.first+b.rows < row {
		for f := range b.lengths {
			b.lengths[f] = append(b.lengths[f], 0)
		}
		b.rows++
	}
}

// add adds a row, which must be above all previous ones.
func (b *partBuilder) add(row uint32, a *index.Analyzed) {
	b.extend(row)
	var key []byte
	for f, values := range a {
		position, terms := 0, 0
		var touched []*list
		for i, value := range values {
			if i > 0 {
				position += index.ValueGap
			}
			for value != "" {
				term, rest, _ := strings.Cut(value, " ")
				value = rest
				key = append(append(key[:0], byte(f)), term...)
				l := b.lists[string(key)]
				if l == nil {
					l = &list{last: b.first}
					b.lists[string(key)] = l
				}
				if l.times == 0 {
					touched = append(touched, l)
				}
				l.times++
				l.pending = binary.AppendUvarint(l.pending, uint64(position-l.position))
				l.position = position
				position++
				terms++
			}
		}
		for _, l := range touched {
			l.append(row, uint32(l.times), l.pending)
			l.times, l.position, l.pending = 0, 0, l.pending[:0]
		}
		b.lengths[f] = append(b.lengths[f], index.LengthCode(terms))
		if terms > 0 {
			b.stats[f].rows++
			b.stats[f].terms += terms
		}
	}
	b.rows++
}

// append adds a posting with already encoded positions.
func (l *list) append(row, times uint32, positions []byte) {
	v := uint64(row-l.last) << 1
	if times == 1 {
		l.postings = binary.AppendUvarint(l.postings, v|1)
	} else {
		l.postings = binary.AppendUvarint(binary.AppendUvarint(l.postings, v), uint64(times))
	}
	l.positions = append(l.positions, positions...)
	l.last = row
	l.rows++
}

// encode returns the part and its positions.
func (b *partBuilder) encode() (data, positions []byte) {
	keys := slices.Sorted(maps.Keys(b.lists))
	var samples, terms []byte
	sizePostings, sizePositions := 0, 0
	for i, k := range keys {
		l := b.lists[k]
		if i%sampleEvery == 0 {
			samples = binary.LittleEndian.AppendUint32(samples, uint32(len(terms)))
			samples = binary.LittleEndian.AppendUint32(samples, uint32(sizePostings))
			samples = binary.LittleEndian.AppendUint32(samples, uint32(sizePositions))
		}
		terms = append(binary.AppendUvarint(terms, uint64(len(k))), k...)
		terms = binary.AppendUvarint(terms, uint64(l.rows))
		terms = binary.AppendUvarint(terms, uint64(len(l.postings)))
		terms = binary.AppendUvarint(terms, uint64(len(l.positions)))
		sizePostings += len(l.postings)
		sizePositions += len(l.positions)
	}
	data = make([]byte, 0, headerBytes+int(b.rows)*index.Fields+len(samples)+len(terms)+sizePostings)
	for _, n := range []uint32{b.first, b.rows, uint32(len(samples)), uint32(len(terms))} {
		data = binary.LittleEndian.AppendUint32(data, n)
	}
	for _, s := range b.stats {
		data = binary.LittleEndian.AppendUint32(data, uint32(s.rows))
		data = binary.LittleEndian.AppendUint64(data, uint64(s.terms))
	}
	for _, codes := range b.lengths {
		data = append(data, codes...)
	}
	data = append(append(data, samples...), terms...)
	positions = make([]byte, 0, sizePositions)
	for _, k := range keys {
		data = append(data, b.lists[k].postings...)
		positions = append(positions, b.lists[k].positions...)
	}
	return data, positions
}

// merge adds all live rows of a part, which must be above those already added. The
// length codes of rows above 39 terms have only four bits, so a field's total is
// counted from the postings.
func (b *partBuilder) merge(p *part, positions []byte, alive func(row uint32) bool) {
	b.extend(p.first)
	living := make([]bool, p.rows)
	for i := range living {
		living[i] = alive(p.first + uint32(i))
		for f := range b.lengths {
			code := byte(0)
			if living[i] {
				code = p.lengths[f][i]
			}
			if code != 0 {
				b.stats[f].rows++
			}
			b.lengths[f] = append(b.lengths[f], code)
		}
	}
	b.rows += p.rows
	if len(p.samples) == 0 {
		return
	}
	for c := p.at(0); c.next(); {
		postings, at := p.list(c.termEntry), positions[c.positions:]
		l := b.lists[string(c.key)]
		for row := p.first; len(postings) > 0; {
			var distance, times uint32
			distance, times, postings = nextPosting(postings)
			row += distance
			size := 0
			for range times {
				_, n := binary.Uvarint(at[size:])
				size += n
			}
			if living[row-p.first] {
				if l == nil {
					l = &list{last: b.first}
					b.lists[string(c.key)] = l
				}
				l.append(row, times, at[:size])
				b.stats[c.key[0]].terms += int(times)
			}
			at = at[size:]
		}
	}
}

// wordIndex is a snapshot of the list of parts, by row.
type wordIndex struct {
	parts []*part
	stats [index.Fields]fieldStats
}

func newWordIndex(parts []*part) *wordIndex {
	w := &wordIndex{parts: parts}
	for _, p := range parts {
		for f, s := range p.stats {
			w.stats[f].rows += s.rows
			w.stats[f].terms += s.terms
		}
	}
	return w
}

// saturation is k1·(1−b+b·length/average) of BM25 for each length code.
func (w *wordIndex) saturation(f index.Field) (s [256]float32) {
	stats := w.stats[f]
	average := float64(stats.terms) / math.Max(1, float64(stats.rows))
	for code := range s {
		s[code] = float32(index.K1 * (1 - index.B + index.B*float64(index.Length(byte(code)))/average))
	}
	return s
}
