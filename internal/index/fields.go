package index

import (
	"math"
	"math/bits"
	"strings"
)

// Field is a part of an entry that is ranked separately, so that a word in a
// document's name is as rare as it is in names.
type Field int

// The fields of an entry, in the order in which their scores are added.
const (
	FieldText     Field = iota // the text, its context, keywords and questions
	FieldHeadings              // the headings above the text
	FieldName                  // the document's name and title
	Fields        int   = iota
)

// K1 and B are the constants of BM25, with Elasticsearch's defaults; an index keeps
// those that it was created with. A term scores
//
//	IDF · (K1+1) · times / (times + K1·(1−B+B·length/average))
//
// with the length as LengthCode rounds it.
const (
	K1 = 1.2
	B  = 0.75
)

// Weights are the weights of the fields' scores, measured by bench/answers.
var Weights = [Fields]float64{FieldText: 1, FieldHeadings: 1, FieldName: 4}

// IDF weights a term in rows of all rows that have the field, as Lucene does.
func IDF(rows, all int) float64 {
	return math.Log(1 + (float64(all-rows)+0.5)/(float64(rows)+0.5))
}

// Analyzed holds the values of each field as terms, each followed by a space.
// Values are separate: no phrase spans two of them.
type Analyzed [Fields][]string

// Analyze splits an entry into the terms to index. All engines index these and
// nothing else, so that they rank alike.
func (e *Entry) Analyze() Analyzed {
	var a Analyzed
	var extra [Fields][]byte
	add := func(f Field, initials bool, values ...string) {
		for _, v := range values {
			var terms []byte
			if terms, extra[f] = AppendSpellings(nil, extra[f], v, initials); len(terms) > 0 {
				a[f] = append(a[f], string(terms))
			}
		}
	}
	name := strings.TrimSpace(e.Name)
	add(FieldName, true, name)
	place := e.Chunk.Place(e.Name)
	if titles := len(place) - len(e.Chunk.HeadingPath); titles > 0 {
		add(FieldName, true, place[:titles]...)
		place = place[titles:]
	}
	add(FieldHeadings, true, place...)
	add(FieldText, false, e.Chunk.Text, e.Chunk.Context)
	add(FieldText, false, e.Chunk.Keywords...)
	add(FieldText, false, e.Chunk.Questions...)
	for f, terms := range extra {
		if len(terms) > 0 {
			a[f] = append(a[f], string(terms))
		}
	}
	return a
}

// ValueGap is the position gap between two values of a field, as in Elasticsearch.
const ValueGap = 100

// LengthCode encodes the length of a field, in terms, as one byte: exact up to 40,
// then four significant bits, like Lucene's SmallFloat.intToByte4.
func LengthCode(terms int) byte {
	if terms < freeLengths {
		return byte(max(terms, 0))
	}
	v := uint64(terms - freeLengths)
	n := bits.Len64(v)
	if n < 4 {
		return byte(freeLengths + int(v))
	}
	shift := n - 4
	return byte(freeLengths + int(v>>shift&0x07|uint64(shift+1)<<3))
}

// Length decodes a length code.
func Length(code byte) int {
	if code < freeLengths {
		return int(code)
	}
	v := uint64(code - freeLengths)
	mantissa, shift := v&0x07, int(v>>3)-1
	if shift < 0 {
		return freeLengths + int(mantissa)
	}
	return freeLengths + int((mantissa|0x08)<<shift)
}

// freeLengths are the codes that Lucene's four-bit format leaves free: 255 minus
// the code of the largest int32.
const freeLengths = 24
