package artifact

import (
	"encoding/binary"
	"errors"
)

var errThrift = errors.New("its footer is damaged")

// checkThrift walks a footer (Thrift compact protocol) and returns an error unless
// every length fits the available bytes: the Parquet library allocates what a list
// claims before reading it. Every list element takes at least one byte.
func checkThrift(b []byte) error {
	s := scanner{b: b}
	s.fields(0)
	if s.bad {
		return errThrift
	}
	return nil
}

type scanner struct {
	b   []byte
	bad bool
}

// maxDepth exceeds the nesting of Parquet's footer.
const maxDepth = 16

func (s *scanner) byte() byte {
	if len(s.b) == 0 {
		s.bad = true
		return 0
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c
}

func (s *scanner) varint() uint64 {
	v, n := binary.Uvarint(s.b)
	if n <= 0 {
		s.bad = true
		return 0
	}
	s.b = s.b[n:]
	return v
}

func (s *scanner) skip(n uint64) {
	if n > uint64(len(s.b)) {
		s.bad = true
		return
	}
	s.b = s.b[n:]
}

// fields walks a struct up to its stop byte.
func (s *scanner) fields(depth int) {
	if depth > maxDepth {
		s.bad = true
	}
	for !s.bad {
		head := s.byte()
		kind := head & 15
		if kind == 0 {
			return
		}
		if head>>4 == 0 { // the field's number follows in full
			s.varint()
		}
		if kind > 2 { // true and false are the kind itself
			s.value(kind, depth)
		}
	}
}

func (s *scanner) value(kind byte, depth int) {
	switch kind {
	case 1, 2, 3: // bool in a list, byte
		s.byte()
	case 4, 5, 6: // integers
		s.varint()
	case 7: // double
		s.skip(8)
	case 8: // binary, string
		s.skip(s.varint())
	case 9, 10: // list, set
		head := s.byte()
		n := uint64(head >> 4)
		if n == 15 {
			n = s.varint()
		}
		if n > uint64(len(s.b)) || depth > maxDepth {
			s.bad = true
		}
		for ; n > 0 && !s.bad; n-- {
			s.value(head&15, depth+1)
		}
	case 12: // struct
		s.fields(depth + 1)
	default: // maps, which Parquet's footer does not use
		s.bad = true
	}
}
