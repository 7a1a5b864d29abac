// Package wordpiece is the tokenizer of uncased BERT models, shared by the built-in
// model and the embedding server.
package wordpiece

import (
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/text/unicode/norm"
)

// maxWordRunes is the length above which a word is unknown, as in BERT.
const maxWordRunes = 100

// Tokenizer cleans and lower-cases text, strips accents, splits it at spaces,
// punctuation and CJK ideographs, and splits each word into the longest known
// pieces from the left. It is safe for concurrent use.
type Tokenizer struct {
	first, rest pieceTable // pieces that start a word, pieces that continue one
	unknown     int32      // for a word with an unknown part; negative: no token
}

// pieceTable finds pieces by hash. A slot, 0 if empty, holds the upper bits of a
// piece's hash and below them its number plus one, so that a lookup costs one CPU
// cache miss; a map has three. The hash is the same everywhere, so a text has the
// same vector on every machine; a word that is not a piece is taken for one in one
// of 2^43 lookups.
type pieceTable []uint64

const pieceBits = 21 // of a slot for the number plus one: maxVocab fits

func newPieceTable(n int) pieceTable {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return make(pieceTable, size)
}

// add assigns a piece its number; the last one assigned wins.
func (t pieceTable) add(piece string, id int32) {
	hash := xxhash.Sum64String(piece)
	at := hash & uint64(len(t)-1)
	for t[at] != 0 && t[at]>>pieceBits != hash>>pieceBits {
		at = (at + 1) & uint64(len(t)-1)
	}
	t[at] = hash>>pieceBits<<pieceBits | uint64(id+1)
}

func (t pieceTable) find(piece []byte) (id int32, ok bool) {
	hash := xxhash.Sum64(piece)
	for at := hash & uint64(len(t)-1); t[at] != 0; at = (at + 1) & uint64(len(t)-1) {
		if t[at]>>pieceBits == hash>>pieceBits {
			return int32(t[at]&(1<<pieceBits-1)) - 1, true
		}
	}
	return 0, false
}

// New returns a tokenizer whose token ids are the indexes of vocab. A word with an
// unknown part yields the id unknown, or no token if that is negative. Special
// tokens such as "[CLS]" cannot come from text: brackets are punctuation and split
// them.
func New(vocab []string, unknown int32) *Tokenizer {
	t := &Tokenizer{first: newPieceTable(len(vocab)), rest: newPieceTable(len(vocab)), unknown: unknown}
	for i, piece := range vocab {
		if len(piece) > 2 && piece[:2] == "##" {
			t.rest.add(piece[2:], int32(i))
		} else {
			t.first.add(piece, int32(i))
		}
	}
	return t
}

// Tokens appends the ids of text's tokens to ids. word is scratch space, returned
// for the next call.
func (t *Tokenizer) Tokens(ids []int32, word []byte, text string) ([]int32, []byte) {
	word = word[:0]
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf { // fast path for most text, without Unicode tables
			i++
			switch asciiClass[c] {
			case classWord:
				word = appendWord(word, rune(asciiLower(c)))
			case classSpace:
				ids, word = t.cut(ids, word), word[:0]
			case classSign:
				ids = t.cut(ids, word)
				word = append(word[:0], c)
				ids, word = t.cut(ids, word), word[:0]
			case classDrop:
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		i += n
		switch {
		case r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
		case unicode.IsSpace(r):
			ids, word = t.cut(ids, word), word[:0]
		case isIdeograph(r):
			ids = t.cut(ids, word)
			word = utf8.AppendRune(word[:0], r)
			ids, word = t.cut(ids, word), word[:0]
		default:
			var from [utf8.UTFMax]byte
			var to [64]byte
			decomposed := norm.NFD.Append(to[:0], from[:utf8.EncodeRune(from[:], r)]...)
			for len(decomposed) > 0 {
				d, n := utf8.DecodeRune(decomposed)
				decomposed = decomposed[n:]
				switch d = unicode.ToLower(d); {
				case unicode.Is(unicode.Mn, d):
				case unicode.IsPunct(d):
					ids = t.cut(ids, word)
					word = utf8.AppendRune(word[:0], d)
					ids, word = t.cut(ids, word), word[:0]
				default:
					word = appendWord(word, d)
				}
			}
		}
	}
	return t.cut(ids, word), word
}

// appendWord adds r unless the word is already too long to be known, which bounds
// the buffer whatever the text.
func appendWord(word []byte, r rune) []byte {
	if len(word) > maxWordRunes*utf8.UTFMax {
		return word
	}
	return utf8.AppendRune(word, r)
}

// cut appends the ids of the pieces of one word, or the unknown id.
func (t *Tokenizer) cut(ids []int32, word []byte) []int32 {
	if len(word) == 0 {
		return ids
	}
	if id, ok := t.first.find(word); ok {
		return append(ids, id)
	}
	if len(word) > maxWordRunes && utf8.RuneCount(word) > maxWordRunes {
		return t.miss(ids)
	}
	known, pieces := len(ids), t.first
	for start := 0; start < len(word); {
		end := len(word)
		id, ok := pieces.find(word[start:end])
		for !ok && end > start+1 {
			end--
			id, ok = pieces.find(word[start:end])
		}
		if !ok {
			return t.miss(ids[:known])
		}
		ids = append(ids, id)
		start, pieces = end, t.rest
	}
	return ids
}

func (t *Tokenizer) miss(ids []int32) []int32 {
	if t.unknown < 0 {
		return ids
	}
	return append(ids, t.unknown)
}

const (
	classDrop  = iota // control characters are dropped
	classSpace        // splits words
	classWord         // letters and digits
	classSign         // a token of its own
)

var asciiClass = func() (class [utf8.RuneSelf]uint8) {
	for c := range class {
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			class[c] = classSpace
		case c < ' ' || c == 0x7f:
			class[c] = classDrop
		case c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z':
			class[c] = classWord
		default:
			class[c] = classSign
		}
	}
	return class
}()

func asciiLower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// isIdeograph reports whether r is in one of the blocks that BERT splits into
// single characters, which exclude kana and hangul.
func isIdeograph(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF ||
		r >= 0x20000 && r <= 0x2A6DF || r >= 0x2A700 && r <= 0x2CEAF ||
		r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}
