package csv

import (
	"bytes"
	"io"
)

const (
	// maxRecordBytes truncates a record; the rest of it up to its newline is dropped.
	maxRecordBytes = 8 << 20
	// maxQuotedBytes is how far a quoted field may extend over newlines before its
	// opening quote is considered stray.
	maxQuotedBytes = 256 << 10
	// maxStrikes is how many stray quotes are tolerated before quotes no longer
	// span lines: looking ahead at each would take quadratic time.
	maxStrikes = 20
	maxFields  = 16_384
)

// dialect describes how a file writes its records.
type dialect struct {
	Delimiter byte `json:"delimiter"`
	Quote     byte `json:"quote"` // 0 for none
	EOL       byte `json:"eol"`
}

// scanner reads records and tracks where each begins. It is lenient: a quote counts
// only at the start of a field, a doubled quote inside is one quote, and text after
// a closing quote belongs to the field.
type scanner struct {
	dialect
	r       io.Reader
	buf     []byte
	pos     int
	end     int
	err     error
	offset  int64 // of buf[pos] in the stream
	strikes int
	clipped int

	raw    []byte   // bytes of the last record including its newline
	fields [][]byte // of the last record
	unq    []byte   // space for fields with doubled quotes
}

func newScanner(r io.Reader, d dialect, offset int64, strikes int) *scanner {
	return &scanner{dialect: d, r: r, offset: offset, strikes: strikes, buf: make([]byte, 128<<10)}
}

func (s *scanner) fill() {
	if s.pos > 0 {
		copy(s.buf, s.buf[s.pos:s.end])
		s.end -= s.pos
		s.pos = 0
	}
	if s.end == len(s.buf) {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		if s.err = err; n > 0 || err != nil {
			return
		}
	}
	s.err = io.ErrNoProgress
}

// line returns the length of the physical line that starts at offset from of the
// unread bytes, including its newline, up to max bytes.
func (s *scanner) line(from, max int) (n int, complete bool) {
	at := from
	for {
		b := s.buf[s.pos:s.end]
		if i := bytes.IndexByte(b[at:], s.EOL); i >= 0 {
			return at + i + 1 - from, true
		}
		at = len(b)
		if at-from >= max {
			return at - from, false
		}
		if s.err != nil {
			return at - from, true
		}
		s.fill()
	}
}

// next reads a non-empty record. At the end it returns io.EOF.
func (s *scanner) next() (start int64, err error) {
	for {
		if s.pos == s.end {
			if s.err == nil {
				s.fill()
			}
			if s.pos == s.end && s.err != nil {
				return 0, s.err
			}
			if s.pos == s.end {
				continue
			}
		}
		n, complete := s.line(0, maxRecordBytes)
		if complete && s.Quote != 0 && s.strikes < maxStrikes {
			n = s.extend(n)
		}
		start = s.offset
		s.raw = s.buf[s.pos : s.pos+n]
		s.pos += n
		s.offset += int64(n)
		if !complete {
			s.clipped++
			s.raw = bytes.Clone(s.raw) // the buffer will be overwritten
			s.dropLine()
		}
		if s.split() {
			return start, nil
		}
	}
}

func (s *scanner) dropLine() {
	for {
		b := s.buf[s.pos:s.end]
		if i := bytes.IndexByte(b, s.EOL); i >= 0 {
			s.pos += i + 1
			s.offset += int64(i + 1)
			return
		}
		s.offset += int64(len(b))
		s.pos = s.end
		if s.err != nil {
			return
		}
		s.fill()
	}
}

// extend adds the lines that a quoted field spans.
func (s *scanner) extend(n int) int {
	first := n
	if bytes.IndexByte(s.buf[s.pos:s.pos+n], s.Quote) < 0 {
		return n
	}
	for at := 0; ; {
		var open bool
		if at, open = s.openAt(at, n); !open {
			return n
		}
		// The next quote may be far; only lines that contain one are examined.
		more, complete := s.line(n, maxQuotedBytes)
		if more == 0 || !complete || n+more > maxQuotedBytes {
			s.strikes++
			return first
		}
		n += more
	}
}

// openAt reports whether the first n unread bytes end inside a quoted field. It
// starts at the field beginning at from, and returns where the open field begins,
// so that closed fields are not examined again.
func (s *scanner) openAt(from, n int) (int, bool) {
	b := s.buf[s.pos : s.pos+n]
	for i := from; i < n; {
		if b[i] != s.Quote {
			j := bytes.IndexByte(b[i:], s.Delimiter)
			if j < 0 {
				return i, false
			}
			i += j + 1
			continue
		}
		start := i
		i++
		for {
			j := bytes.IndexByte(b[i:], s.Quote)
			if j < 0 {
				return start, true
			}
			i += j + 1
			if i < n && b[i] == s.Quote {
				i++
				continue
			}
			if i >= n || b[i] == s.Delimiter || b[i] == '\r' || b[i] == '\n' {
				break
			}
			// An undoubled quote inside a quoted field.
		}
		j := bytes.IndexByte(b[i:], s.Delimiter)
		if j < 0 {
			return i, false
		}
		i += j + 1
	}
	return n, false
}

// split cuts raw into fields. It returns false for an empty line.
func (s *scanner) split() bool {
	b := s.raw
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	s.fields = s.fields[:0]
	if len(b) == 0 {
		return false
	}
	if s.Quote == 0 || bytes.IndexByte(b, s.Quote) < 0 {
		for len(s.fields) < maxFields {
			i := bytes.IndexByte(b, s.Delimiter)
			if i < 0 {
				s.fields = append(s.fields, b)
				return true
			}
			s.fields = append(s.fields, b[:i])
			b = b[i+1:]
		}
		s.clipped++
		return true
	}
	s.unq = s.unq[:0]
	if cap(s.unq) < len(b) { // it must not move while fields point into it
		s.unq = make([]byte, 0, 2*len(b))
	}
	for len(s.fields) < maxFields {
		field, rest, more := s.field(b)
		s.fields = append(s.fields, field)
		if !more {
			return true
		}
		b = rest
	}
	s.clipped++
	return true
}

func (s *scanner) field(b []byte) (field, rest []byte, more bool) {
	if len(b) == 0 || b[0] != s.Quote {
		if i := bytes.IndexByte(b, s.Delimiter); i >= 0 {
			return b[:i], b[i+1:], true
		}
		return b, nil, false
	}
	from := len(s.unq)
	for i := 1; ; {
		j := bytes.IndexByte(b[i:], s.Quote)
		if j < 0 { // never closed: the quote is an ordinary character
			s.unq = s.unq[:from]
			if k := bytes.IndexByte(b, s.Delimiter); k >= 0 {
				return b[:k], b[k+1:], true
			}
			return b, nil, false
		}
		s.unq = append(s.unq, b[i:i+j]...)
		i += j + 1
		switch {
		case i >= len(b):
			return s.unq[from:], nil, false
		case b[i] == s.Delimiter:
			return s.unq[from:], b[i+1:], true
		case b[i] == s.Quote:
			i++
		}
		s.unq = append(s.unq, s.Quote)
	}
}
