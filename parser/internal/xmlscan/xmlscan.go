// Package xmlscan is the XML reader under the office formats: one pass, no tree, no
// namespaces, no external entities, and a limit on everything a hostile file could
// make grow. It reads what office programs write; a malformed file yields its
// content up to the error.
//
// It exists because encoding/xml allocates for every token: measured on a worksheet
// of 1,000,000 rows, it takes about five times the CPU.
package xmlscan

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// Kind of an event.
type Kind uint8

// Events, in the order of the file. A self-closing element yields Start and End.
const (
	EOF Kind = iota
	Start
	End
	Text
)

// Limits. Real files stay far below: Word nests some 60 deep, and the longest tag
// in the test corpora is a drawing path of 30 KB.
const (
	MaxDepth    = 1024
	maxTagBytes = 1 << 20
	bufBytes    = 64 << 10
	// firstBytes is the initial size of the buffer: most parts of an office file
	// are smaller than bufBytes, and clearing that costs more than reading them.
	firstBytes = 4 << 10
)

// Errors for a hostile or broken file.
var (
	ErrDepth = errors.New("elements nested too deep")
	ErrTag   = errors.New("a tag is longer than 1 MB")
)

// Scanner reads one XML stream.
type Scanner struct {
	r        io.Reader
	buf      []byte // buf[pos:end] is unread
	pos, end int
	readErr  error
	full     bool // the last read filled the buffer: there is more

	depth   int
	name    []byte // of the last Start or End, without prefix
	prefix  []byte
	attrs   []byte // raw, of the last Start
	text    []byte // of the last Text, decoded
	scratch []byte
	pendEnd bool // the last Start was self-closing
	started bool
}

// New reads from r. Nothing is read before the first Next.
func New(r io.Reader) *Scanner {
	return &Scanner{r: r, buf: make([]byte, firstBytes)}
}

// Depth is the number of open elements, including that of a Start.
func (s *Scanner) Depth() int { return s.depth }

// Name is the element's name without prefix, valid until the next call of Next.
func (s *Scanner) Name() []byte { return s.name }

// Prefix is the element's namespace prefix, which may be empty.
func (s *Scanner) Prefix() []byte { return s.prefix }

// Text is the decoded text of a Text event, valid until the next call of Next. A
// long text is split into several events of at most 64 KB.
func (s *Scanner) Text() []byte { return s.text }

// begin handles the encoding: XML is UTF-8 unless declared otherwise.
func (s *Scanner) begin() {
	s.started = true
	for s.end < 256 && s.readErr == nil {
		s.fill()
	}
	head := s.buf[:s.end]
	label := ""
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		s.pos = 3
		return
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("<\x00")):
		label = "utf-16le"
	case bytes.HasPrefix(head, []byte("\xfe\xff")), bytes.HasPrefix(head, []byte("\x00<")):
		label = "utf-16be"
	case bytes.HasPrefix(head, []byte("<?xml")):
		decl, _, _ := bytes.Cut(head[:min(len(head), 256)], []byte("?>"))
		if v, ok := findAttr(decl, "encoding"); ok {
			label = string(bytes.ToLower(v))
		}
	}
	switch label {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return
	}
	enc, _ := charset.Lookup(label)
	if enc == nil {
		return
	}
	rest := io.Reader(s.r)
	if s.readErr != nil {
		rest = errReader{s.readErr}
	}
	raw := io.MultiReader(bytes.NewReader(bytes.Clone(head)), rest)
	s.r, s.pos, s.end, s.readErr = enc.NewDecoder().Reader(raw), 0, 0, nil
	for s.end < 4 && s.readErr == nil {
		s.fill()
	}
	if bytes.HasPrefix(s.buf[:s.end], []byte("\ufeff")) {
		s.pos = 3
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// fill reads more, keeping what is unread. The buffer grows up to a tag's limit.
func (s *Scanner) fill() {
	if s.pos > 0 {
		copy(s.buf, s.buf[s.pos:s.end])
		s.end -= s.pos
		s.pos = 0
	}
	if s.end == len(s.buf) {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	} else if s.full && len(s.buf) < bufBytes {
		grown := make([]byte, bufBytes)
		copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		s.full = s.end == len(s.buf)
		if err != nil {
			s.readErr = err
			return
		}
		if n > 0 {
			return
		}
	}
	s.readErr = io.ErrNoProgress
}

// index finds sep at or after offset from of the unread bytes, reading more while
// there are less than max.
func (s *Scanner) index(from int, sep string, max int) (int, error) {
	for {
		if b := s.buf[s.pos:s.end]; from <= len(b) {
			if i := bytes.Index(b[from:], []byte(sep)); i >= 0 {
				return from + i, nil
			}
			from = len(b) - len(sep) + 1
			from = maxInt(from, 0)
		}
		if err := s.more(max); err != nil {
			return 0, err
		}
	}
}

// more reads on if nothing was found in the unread bytes, up to max.
func (s *Scanner) more(max int) error {
	switch {
	case s.end-s.pos > max:
		return ErrTag
	case s.readErr == io.EOF:
		return io.ErrUnexpectedEOF
	case s.readErr != nil:
		return s.readErr
	}
	s.fill()
	return nil
}

func maxInt(a, b int) int {
	if a > b {
		return a
	}
	return b
}

// skipTo drops everything up to and including sep, in constant memory.
func (s *Scanner) skipTo(sep string) error {
	for {
		b := s.buf[s.pos:s.end]
		if i := bytes.Index(b, []byte(sep)); i >= 0 {
			s.pos += i + len(sep)
			return nil
		}
		if keep := len(sep) - 1; len(b) > keep {
			s.pos = s.end - keep
		}
		if s.readErr != nil {
			if s.readErr == io.EOF {
				return io.ErrUnexpectedEOF
			}
			return s.readErr
		}
		s.fill()
	}
}

// Next moves to the next event. At the end of the stream it returns EOF and a
// nil error; io.ErrUnexpectedEOF means that the stream ends inside a tag.
func (s *Scanner) Next() (Kind, error) {
	if !s.started {
		s.begin()
	}
	if s.pendEnd {
		s.pendEnd = false
		s.depth--
		return End, nil
	}
	for {
		if s.pos == s.end {
			if s.readErr == io.EOF {
				return EOF, nil
			} else if s.readErr != nil {
				return EOF, s.readErr
			}
			s.fill()
			continue
		}
		if s.buf[s.pos] != '<' {
			return s.chars()
		}
		for s.end-s.pos < 9 && s.readErr == nil {
			s.fill()
		}
		b := s.buf[s.pos:s.end]
		if len(b) > 1 && b[1] != '!' && b[1] != '?' {
			return s.tag()
		}
		var err error
		switch {
		case bytes.HasPrefix(b, []byte("<!--")):
			s.pos += 4
			err = s.skipTo("-->")
		case bytes.HasPrefix(b, []byte("<![CDATA[")):
			s.pos += 9
			return s.cdata()
		case bytes.HasPrefix(b, []byte("<?")):
			s.pos += 2
			err = s.skipTo("?>")
		case bytes.HasPrefix(b, []byte("<!")):
			// A document type: its entities are not read, so none can expand.
			err = s.doctype()
		default:
			return s.tag()
		}
		if err != nil {
			return EOF, err
		}
	}
}

func (s *Scanner) doctype() error {
	i, err := s.index(2, ">", maxTagBytes)
	if err != nil {
		return err
	}
	if j := bytes.IndexByte(s.buf[s.pos:s.pos+i], '['); j >= 0 {
		s.pos += j
		if err := s.skipTo("]"); err != nil {
			return err
		}
		return s.skipTo(">")
	}
	s.pos += i + 1
	return nil
}

func (s *Scanner) chars() (Kind, error) {
	b := s.buf[s.pos:s.end]
	i := bytes.IndexByte(b, '<')
	for i < 0 && len(b) < bufBytes && s.readErr == nil {
		s.fill()
		b = s.buf[s.pos:s.end]
		i = bytes.IndexByte(b, '<')
	}
	if i < 0 {
		i = len(b)
		if s.readErr == nil {
			// Not in the middle of an entity or a rune.
			if amp := bytes.LastIndexByte(b[i-16:], '&'); amp > 0 && len(b) > 16 {
				i = i - 16 + amp
			}
			for back := 0; back < 3 && i > 1 && !utf8.RuneStart(b[i-1]); back++ {
				i--
			}
			if b[i-1] >= utf8.RuneSelf && i > 1 {
				i--
			}
		}
	}
	s.text = s.decode(b[:i])
	s.pos += i
	return Text, nil
}

func (s *Scanner) cdata() (Kind, error) {
	i, err := s.index(0, "]]>", maxTagBytes)
	if err != nil {
		return EOF, err
	}
	s.text = s.buf[s.pos : s.pos+i]
	s.pos += i + 3
	return Text, nil
}

func (s *Scanner) tag() (Kind, error) {
	i, err := s.tagEnd()
	if err != nil {
		return EOF, err
	}
	body := s.buf[s.pos+1 : s.pos+i]
	s.pos += i + 1
	kind := Start
	if len(body) > 0 && body[0] == '/' {
		kind, body = End, body[1:]
	}
	self := kind == Start && len(body) > 0 && body[len(body)-1] == '/'
	if self {
		body = body[:len(body)-1]
	}
	n, colon := 0, -1
	for n < len(body) && !space(body[n]) {
		if body[n] == ':' && colon < 0 {
			colon = n
		}
		n++
	}
	s.name, s.prefix, s.attrs = body[:n], nil, body[n:]
	if colon >= 0 {
		s.prefix, s.name = s.name[:colon], s.name[colon+1:]
	}
	if kind == End {
		if s.depth > 0 {
			s.depth--
		}
		return End, nil
	}
	s.depth++
	if s.depth > MaxDepth {
		return EOF, ErrDepth
	}
	s.pendEnd = self
	return Start, nil
}

// tagEnd finds the '>' that ends the tag at pos; attribute values may contain others.
func (s *Scanner) tagEnd() (int, error) {
	quote := byte(0)
	for i := 1; ; {
		b := s.buf[s.pos:s.end]
		for i < len(b) {
			if quote != 0 {
				j := bytes.IndexByte(b[i:], quote)
				if j < 0 {
					i = len(b)
					break
				}
				i, quote = i+j+1, 0
				continue
			}
			switch c := b[i]; c {
			case '>':
				return i, nil
			case '"', '\'':
				quote = c
			}
			i++
		}
		if err := s.more(maxTagBytes); err != nil {
			return 0, err
		}
	}
}

func space(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// nextAttr cuts the first attribute off b. ok is false if there is none.
func nextAttr(b []byte) (name, value, rest []byte, ok bool) {
	b = trimLeft(b)
	eq := bytes.IndexByte(b, '=')
	if eq < 0 {
		return nil, nil, nil, false
	}
	name = b[:eq]
	for len(name) > 0 && space(name[len(name)-1]) {
		name = name[:len(name)-1]
	}
	b = trimLeft(b[eq+1:])
	if len(b) == 0 || b[0] != '"' && b[0] != '\'' {
		return nil, nil, nil, false
	}
	end := bytes.IndexByte(b[1:], b[0])
	if end < 0 {
		return nil, nil, nil, false
	}
	return name, b[1 : 1+end], b[end+2:], true
}

func trimLeft(b []byte) []byte {
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	return b
}

func findAttr(b []byte, want string) ([]byte, bool) {
	for {
		i := bytes.Index(b, []byte(want))
		if i < 0 {
			return nil, false
		}
		if _, v, _, ok := nextAttr(b[i:]); ok {
			return v, true
		}
		b = b[i+len(want):]
	}
}

// Attr is the value of the attribute with that local name, "" if there is none. A
// name with a prefix ("r:id") is compared in full.
func (s *Scanner) Attr(want string) string {
	return string(s.AttrBytes(want))
}

// AttrBytes is Attr without a copy, valid until the next call.
func (s *Scanner) AttrBytes(want string) []byte {
	for b := s.attrs; ; {
		name, value, rest, ok := nextAttr(b)
		if !ok {
			return nil
		}
		if string(name) == want {
			return s.decode(value)
		}
		if c := bytes.IndexByte(name, ':'); c >= 0 && string(name[c+1:]) == want {
			return s.decode(value)
		}
		b = rest
	}
}

// Attrs calls f for each attribute in order, with its value decoded; prefix may be
// empty. The arguments of f are valid until it returns.
func (s *Scanner) Attrs(f func(prefix, name, value []byte)) {
	for b := s.attrs; ; {
		name, value, rest, ok := nextAttr(b)
		if !ok {
			return
		}
		prefix, local, found := bytes.Cut(name, []byte(":"))
		if !found {
			prefix, local = nil, name
		}
		f(prefix, local, s.decode(value))
		b = rest
	}
}

// RelID is the value of the relationship attribute "id", whatever its prefix:
// elements that carry one often carry a plain id as well.
func (s *Scanner) RelID() string {
	for b := s.attrs; ; {
		name, value, rest, ok := nextAttr(b)
		if !ok {
			return ""
		}
		if c := bytes.IndexByte(name, ':'); c > 0 && (string(name[c+1:]) == "id" || string(name[c+1:]) == "embed") {
			return string(s.decode(value))
		}
		b = rest
	}
}

// decode resolves the five named entities and the numeric ones. Unknown entities
// stay as written.
func (s *Scanner) decode(b []byte) []byte {
	i := bytes.IndexByte(b, '&')
	if i < 0 {
		return b
	}
	out := append(s.scratch[:0], b[:i]...)
	b = b[i:]
	for len(b) > 0 {
		if b[0] != '&' {
			j := bytes.IndexByte(b, '&')
			if j < 0 {
				j = len(b)
			}
			out = append(out, b[:j]...)
			b = b[j:]
			continue
		}
		end := bytes.IndexByte(b[:min(len(b), 12)], ';')
		r := rune(-1)
		if end > 1 {
			switch e := string(b[1:end]); e {
			case "lt":
				r = '<'
			case "gt":
				r = '>'
			case "amp":
				r = '&'
			case "quot":
				r = '"'
			case "apos":
				r = '\''
			case "nbsp": // not XML, but written by web page exporters
				r = ' '
			default:
				if e[0] == '#' && len(e) > 1 {
					base, digits := 10, e[1:]
					if digits[0] == 'x' || digits[0] == 'X' {
						base, digits = 16, digits[1:]
					}
					if v, err := strconv.ParseUint(digits, base, 32); err == nil && v <= utf8.MaxRune {
						r = rune(v)
					}
				}
			}
		}
		if r < 0 {
			out = append(out, '&')
			b = b[1:]
			continue
		}
		out = utf8.AppendRune(out, r)
		b = b[end+1:]
	}
	s.scratch = out
	return out
}

// Skip moves past the end of the element whose Start was just returned.
func (s *Scanner) Skip() error {
	for want := s.depth - 1; ; {
		k, err := s.Next()
		if err != nil {
			return err
		}
		if k == EOF || k == End && s.depth <= want {
			return nil
		}
	}
}
