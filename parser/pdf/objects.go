package pdf

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zlib"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

// resolver returns the object behind a reference, and any other object unchanged.
type resolver interface {
	Dereference(o types.Object) (types.Object, error)
}

func dictOf(r resolver, o types.Object) types.Dict {
	o, _ = r.Dereference(o)
	d, _ := o.(types.Dict)
	return d
}

func arrayOf(r resolver, o types.Object) types.Array {
	o, _ = r.Dereference(o)
	a, _ := o.(types.Array)
	return a
}

// objects reads the objects of a PDF on demand. pdfcpu reads all of them, which
// takes five times as long as a plan needs. objects handles files that are sound
// and not encrypted: anything unexpected is errUnusual, and pdfcpu reads the file
// instead. It never guesses, since fingerprints of bytes other than those the
// engine reads would give a changed page the result of the old one.
type objects struct {
	file    []byte
	done    func()         // releases the file; nil if there is nothing to release
	places  []place        // by object number
	known   []known        // by object number
	packs   map[int][]byte // texts of the object streams (ISO 32000-1, 7.5.7); nil while one is being read
	names   map[string]seenName
	trailer types.Dict
	zlib    io.ReadCloser // reused through Reset
	scratch bytes.Buffer  // what was decompressed last
	bytes   int           // decompressed, and parsed from decompressed data
	err     error         // of an object that could not be read
}

// place is the location of an object: an offset in the file, or in the text of an
// object stream.
type place struct {
	offset int  // of an object in a stream: 0 until the stream is read
	stream int  // number of the object stream; 0 if it is in none
	listed bool // listed in the table, if only as unused
}

// known is an object that has been read or is being read.
type known struct {
	object types.Object
	begun  bool
}

var errUnusual = errors.New("the file's structure is unusual")

// Limits on what is followed.
const (
	maxSections   = 256       // of the cross-reference table: one per update
	maxReferences = 16        // in a chain
	maxObjects    = 1 << 20   // listed in the table
	maxUnpacked   = 128 << 20 // bytes of all structural streams, and of the objects read from them
)

// sparseNumbers is by how much object numbers may exceed the number of objects:
// some programs renumber all objects each time they write a file.
const sparseNumbers = 1 << 18

// bytesAnObject is the minimum size of an object in most files.
const bytesAnObject = 128

// mappedBytes is the size from which a file is mapped: smaller files are faster to
// read.
const mappedBytes = 256 << 10

// openObjects reads the cross-reference table. The caller must call close.
func openObjects(r io.ReaderAt, size int64) (*objects, error) {
	o := &objects{places: make([]place, 0, min(size/bytesAnObject, maxObjects/16)), packs: map[int][]byte{}, names: map[string]seenName{}}
	if f, is := r.(*os.File); is && size >= mappedBytes {
		o.file, o.done = mapped(f, size)
	}
	if o.file == nil {
		o.file = make([]byte, size)
		if n, err := r.ReadAt(o.file, 0); n < len(o.file) {
			return nil, err
		}
	}
	if err := o.sections(); err != nil {
		o.close()
		return nil, err
	}
	o.known = append(make([]known, 0, len(o.places)), o.known...)
	return o, nil
}

// close releases the file. Objects read from it stay valid; streams do not.
func (o *objects) close() {
	if o.done != nil {
		o.done()
		o.file, o.done = nil, nil
	}
}

// sections reads the cross-reference table, starting with its newest part.
func (o *objects) sections() error {
	end := max(0, len(o.file)-1024)
	i := bytes.LastIndex(o.file[end:], []byte("startxref"))
	if i < 0 {
		return errUnusual
	}
	p := scanner{text: o.file, at: end + i + len("startxref")}
	next, ok := p.number()
	for n := 0; ok; n++ {
		if n == maxSections || next <= 0 || next >= len(o.file) {
			return errUnusual
		}
		section, err := o.section(next)
		if err != nil {
			return err
		}
		if n == 0 {
			o.trailer = section
		}
		for _, key := range []string{"Encrypt", "XRefStm"} {
			if _, has := section.Find(key); has {
				return errUnusual
			}
		}
		prev, has := section.Find("Prev")
		if !has {
			return nil
		}
		at, isNumber := prev.(types.Integer)
		next, ok = int(at), isNumber
	}
	return errUnusual
}

// section reads a part of the cross-reference table. Entries of newer parts take
// precedence.
func (o *objects) section(at int) (types.Dict, error) {
	p := scanner{text: o.file, at: at}
	if !p.word("xref") {
		return o.sectionStream(at)
	}
	for !p.word("trailer") {
		first, ok1 := p.number()
		count, ok2 := p.number()
		if !ok1 || !ok2 || count > maxObjects {
			return nil, errUnusual
		}
		for n := first; n < first+count; n++ {
			offset, ok1 := p.number()
			_, ok2 := p.number()
			used := p.word("n")
			if !ok1 || !ok2 || !used && !p.word("f") {
				return nil, errUnusual
			}
			if !o.put(n, used, place{offset: offset}) {
				return nil, errUnusual
			}
		}
	}
	v, err := p.value(0)
	d, ok := v.(types.Dict)
	if err != nil || !ok {
		return nil, errUnusual
	}
	return d, nil
}

// maxNumber is the highest object number the file may use.
func (o *objects) maxNumber() int {
	return min(maxObjects, sparseNumbers+len(o.file)/bytesAnObject)
}

// expect makes room for numbers below number, within the limits of a sound file.
func (o *objects) expect(number int) {
	if n := min(number, o.maxNumber()+1) - len(o.places); n > 0 {
		o.places = append(o.places, make([]place, n)...)
	}
}

// put records the location of an object, unless a newer part has. It returns false
// for a number that no sound file has.
func (o *objects) put(number int, used bool, at place) bool {
	if number < 0 || number > o.maxNumber() {
		return false
	}
	o.expect(number + 1)
	if o.places[number].listed {
		return true
	}
	if !used {
		at = place{}
	}
	at.listed = true
	o.places[number] = at
	return true
}

// place returns the location of an object, zero if it has none.
func (o *objects) place(number int) place {
	if number < 0 || number >= len(o.places) {
		return place{}
	}
	return o.places[number]
}

// sectionStream reads a part that is a stream (ISO 32000-1, 7.5.8).
func (o *objects) sectionStream(at int) (types.Dict, error) {
	v, err := o.indirect(at, -1)
	s, ok := v.(types.StreamDict)
	if err != nil || !ok {
		return nil, errUnusual
	}
	text, err := o.unpacked(s)
	if err != nil {
		return nil, err
	}
	var w [3]int
	width, ok := s.Dict["W"].(types.Array)
	if !ok || len(width) != len(w) {
		return nil, errUnusual
	}
	for i := range w {
		n, ok := width[i].(types.Integer)
		if !ok || n < 0 || n > 7 {
			return nil, errUnusual
		}
		w[i] = int(n)
	}
	size, _ := s.Dict["Size"].(types.Integer)
	index, has := s.Dict["Index"].(types.Array)
	if !has {
		index = types.Array{types.Integer(0), size}
	}
	field := func(i, missing int) (n int) {
		if w[i] == 0 {
			return missing
		}
		for _, b := range text[:w[i]] {
			n = n<<8 | int(b)
		}
		text = text[w[i]:]
		return n
	}
	o.expect(int(size))
	for ; len(index) >= 2; index = index[2:] {
		first, ok1 := index[0].(types.Integer)
		count, ok2 := index[1].(types.Integer)
		if !ok1 || !ok2 || count < 0 || w[0]+w[1]+w[2] == 0 || int(count) > len(text)/(w[0]+w[1]+w[2]) {
			return nil, errUnusual
		}
		for n := int(first); n < int(first)+int(count); n++ {
			kind, at, _ := field(0, 1), field(1, 0), field(2, 0)
			where := place{offset: at}
			if kind == 2 {
				where = place{stream: at}
			}
			if kind > 2 || !o.put(n, kind != 0, where) {
				return nil, errUnusual
			}
		}
	}
	return s.Dict, nil
}

// Dereference implements resolver.
func (o *objects) Dereference(v types.Object) (types.Object, error) {
	for range maxReferences {
		ref, is := v.(types.IndirectRef)
		if !is {
			return v, nil
		}
		n := ref.ObjectNumber.Value()
		if n < 0 || n >= len(o.places) {
			return nil, nil // not in the file
		}
		if n >= len(o.known) {
			o.known = append(o.known, make([]known, n+1-len(o.known))...)
		}
		if !o.known[n].begun {
			o.known[n].begun = true // nil for references back to it
			object, err := o.object(n)
			if err != nil {
				o.err = err
				return nil, err
			}
			o.known[n].object = object
		}
		v = o.known[n].object
	}
	return nil, errUnusual
}

// object reads an object; nil if the file does not have it.
func (o *objects) object(number int) (types.Object, error) {
	at := o.place(number)
	switch {
	case at.stream > 0:
		text, err := o.pack(at.stream)
		if err != nil {
			return nil, err
		}
		if at = o.place(number); at.offset == 0 {
			return nil, errUnusual
		}
		s := scanner{text: text, at: at.offset, names: o.names}
		v, err := s.value(0)
		if o.bytes += s.at - at.offset; o.bytes > maxUnpacked { // objects may overlap
			return nil, errUnusual
		}
		return v, err
	case at.offset > 0:
		return o.indirect(at.offset, number)
	}
	return nil, nil
}

// indirect reads "12 0 obj …" at an offset; a number of -1 accepts any.
func (o *objects) indirect(offset, number int) (types.Object, error) {
	if offset > len(o.file) { // cut off, or the table is damaged
		return nil, errUnusual
	}
	p := scanner{text: o.file, at: offset, names: o.names}
	n, ok1 := p.number()
	_, ok2 := p.number()
	if !ok1 || !ok2 || !p.word("obj") || number >= 0 && n != number {
		return nil, errUnusual
	}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if d, ok := v.(types.Dict); ok && p.word("stream") {
		return o.stream(d, p.at)
	}
	if p.word("endobj") {
		return v, nil
	}
	// Some programs leave it out; where the next object begins this one has ended.
	_, ok1 = p.number()
	_, ok2 = p.number()
	if !ok1 || !ok2 || !p.word("obj") {
		return nil, errUnusual
	}
	return v, nil
}

// stream returns the stream whose data begins after a newline. Its length must be
// accurate: readers that do not find its end there search for another.
func (o *objects) stream(d types.Dict, at int) (types.Object, error) {
	if bytes.HasPrefix(o.file[at:], []byte("\r\n")) {
		at++
	}
	if at >= len(o.file) || o.file[at] != '\n' {
		return nil, errUnusual
	}
	at++
	v, err := o.Dereference(d["Length"])
	n, ok := v.(types.Integer)
	if err != nil || !ok || n < 0 || int(n) > len(o.file)-at {
		return nil, errUnusual
	}
	end := scanner{text: o.file, at: at + int(n)}
	if !end.word("endstream") {
		return nil, errUnusual
	}
	return types.StreamDict{Dict: d, Raw: o.file[at : at+int(n)]}, nil
}

// pack returns the text of an object stream, and locates the objects in it.
func (o *objects) pack(number int) ([]byte, error) {
	if text, begun := o.packs[number]; begun {
		return text, nil
	}
	at := o.place(number)
	if at.offset == 0 || at.stream > 0 { // an object stream cannot be inside another
		return nil, errUnusual
	}
	o.packs[number] = nil // for references back to it
	v, err := o.indirect(at.offset, number)
	s, ok := v.(types.StreamDict)
	if err != nil || !ok {
		return nil, errUnusual
	}
	count, ok1 := s.Dict["N"].(types.Integer)
	first, ok2 := s.Dict["First"].(types.Integer)
	text, err := o.unpacked(s)
	if err != nil || !ok1 || !ok2 {
		return nil, errUnusual
	}
	head := scanner{text: text}
	for range int(count) {
		n, ok1 := head.number()
		offset, ok2 := head.number()
		if offset += int(first); !ok1 || !ok2 || offset <= 0 || offset >= len(text) {
			return nil, errUnusual
		}
		if o.place(n).stream != number {
			continue // replaced by a newer version of the object
		}
		if o.places[n].offset > 0 {
			return nil, errUnusual // readers differ in which one they use
		}
		o.places[n].offset = offset
	}
	o.packs[number] = text
	return text, nil
}

// inflated decompresses b with zlib.
func (o *objects) inflated(b []byte) ([]byte, error) {
	var err error
	if o.zlib == nil {
		o.zlib, err = zlib.NewReader(bytes.NewReader(b))
	} else {
		err = o.zlib.(zlib.Resetter).Reset(bytes.NewReader(b), nil)
	}
	if err != nil {
		return nil, errUnusual
	}
	o.scratch.Reset()
	_, err = o.scratch.ReadFrom(io.LimitReader(o.zlib, int64(maxUnpacked-o.bytes+1)))
	if o.bytes += o.scratch.Len(); err != nil || o.bytes > maxUnpacked {
		return nil, errUnusual
	}
	return bytes.Clone(o.scratch.Bytes()), nil
}

// unpacked returns the data of a structural stream, which all producers compress
// the same way.
func (o *objects) unpacked(s types.StreamDict) ([]byte, error) {
	filter, has := s.Dict["Filter"]
	if a, is := filter.(types.Array); is && len(a) == 1 {
		filter = a[0]
	}
	if !has {
		return s.Raw, nil
	}
	if filter != types.Name("FlateDecode") {
		return nil, errUnusual
	}
	text, err := o.inflated(s.Raw)
	if err != nil {
		return nil, err
	}
	parms, has := s.Dict["DecodeParms"]
	if a, is := parms.(types.Array); is && len(a) == 1 {
		parms = a[0]
	}
	if !has || parms == nil {
		return text, nil
	}
	d, ok := parms.(types.Dict)
	if !ok {
		return nil, errUnusual
	}
	number := func(key string, missing int) int {
		if n, ok := d[key].(types.Integer); ok {
			return int(n)
		}
		return missing
	}
	switch predictor, columns := number("Predictor", 1), number("Columns", 1); {
	case predictor == 1:
		return text, nil
	case predictor < 10 || columns < 1 || columns > 1<<16 || number("Colors", 1) != 1 || number("BitsPerComponent", 8) != 8:
		return nil, errUnusual
	default:
		return unpredicted(text, columns)
	}
}

// unpredicted undoes PNG's "none" and "up" (RFC 2083, 6).
func unpredicted(text []byte, columns int) ([]byte, error) {
	if len(text)%(columns+1) != 0 {
		return nil, errUnusual
	}
	out := make([]byte, 0, len(text))
	above := make([]byte, columns)
	for ; len(text) > 0; text = text[columns+1:] {
		row := text[1 : columns+1]
		switch text[0] {
		case 0:
		case 2:
			for i := range row {
				row[i] += above[i]
			}
		default:
			return nil, errUnusual
		}
		out = append(out, row...)
		above = row
	}
	return out, nil
}

// scanner reads objects (ISO 32000-1, 7.3).
type scanner struct {
	text  []byte
	at    int
	names map[string]seenName // as written; nil to keep none
}

// seenName is a name that was read before: a file has few, each used thousands of
// times.
type seenName struct {
	text   string
	object types.Object
}

// maxSeenNames limits the names kept per file.
const maxSeenNames = 1024

const (
	spaces     = "\x00\t\n\f\r "
	delimiters = "()<>[]{}/%"
)

// regular characters are all but spaces and delimiters.
var regular = func() (r [256]bool) {
	for c := range r {
		r[c] = strings.IndexByte(spaces+delimiters, byte(c)) < 0
	}
	return r
}()

// space skips spaces and comments.
func (s *scanner) space() {
	for s.at < len(s.text) && !regular[s.text[s.at]] {
		switch s.text[s.at] {
		case 0, '\t', '\n', '\f', '\r', ' ':
		case '%':
			for s.at+1 < len(s.text) && s.text[s.at+1] != '\n' && s.text[s.at+1] != '\r' {
				s.at++
			}
		default:
			return
		}
		s.at++
	}
}

// token returns the next run of regular characters.
func (s *scanner) token() []byte {
	s.space()
	from := s.at
	for s.at < len(s.text) && regular[s.text[s.at]] {
		s.at++
	}
	return s.text[from:s.at]
}

// word reads a keyword, or consumes nothing if another comes next.
func (s *scanner) word(w string) bool {
	before := s.at
	if string(s.token()) == w {
		return true
	}
	s.at = before
	return false
}

// number reads an unsigned number, or consumes nothing.
func (s *scanner) number() (n int, ok bool) {
	before := s.at
	if n, ok = natural(s.token()); !ok {
		s.at = before
	}
	return n, ok
}

func natural(t []byte) (n int, ok bool) {
	if len(t) == 0 || len(t) > 15 {
		return 0, false
	}
	for _, c := range t {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

func (s *scanner) value(depth int) (types.Object, error) {
	s.space()
	if s.at >= len(s.text) || depth > maxHashDepth {
		return nil, errUnusual
	}
	switch c := s.text[s.at]; {
	case c == '/':
		_, v, err := s.name()
		return v, err
	case c == '(':
		return s.literal()
	case c == '[':
		s.at++
		a := make(types.Array, 0, 4) // usually a box
		for {
			if s.space(); s.at < len(s.text) && s.text[s.at] == ']' {
				s.at++
				return a, nil
			}
			v, err := s.value(depth + 1)
			if err != nil {
				return nil, err
			}
			a = append(a, v)
		}
	case bytes.HasPrefix(s.text[s.at:], []byte("<<")):
		s.at += 2
		return s.dict(depth)
	case c == '<':
		return s.hex()
	}
	t := s.token()
	if n, ok := natural(t); ok {
		before := s.at
		if generation, ok := s.number(); ok && s.word("R") {
			return types.IndirectRef{ObjectNumber: types.Integer(n), GenerationNumber: types.Integer(generation)}, nil
		}
		s.at = before
		return types.Integer(n), nil
	}
	switch string(t) {
	case "true":
		return types.Boolean(true), nil
	case "false":
		return types.Boolean(false), nil
	case "null":
		return nil, nil
	}
	for _, c := range t {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' {
			return nil, errUnusual
		}
	}
	if bytes.IndexByte(t, '.') < 0 { // errors are expensive, and most other numbers are fractions
		if n, err := strconv.Atoi(string(t)); err == nil {
			return types.Integer(n), nil
		}
	}
	f, err := strconv.ParseFloat(string(t), 64)
	if err != nil {
		return nil, errUnusual
	}
	return types.Float(f), nil
}

func (s *scanner) dict(depth int) (types.Object, error) {
	d := types.Dict{}
	for {
		s.space()
		if bytes.HasPrefix(s.text[s.at:], []byte(">>")) {
			s.at += 2
			return d, nil
		}
		if s.at >= len(s.text) || s.text[s.at] != '/' {
			return nil, errUnusual
		}
		key, _, err := s.name()
		if err != nil {
			return nil, err
		}
		v, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if _, twice := d[key]; twice {
			return nil, errUnusual // readers differ in which one they use
		}
		if v != nil {
			d[key] = v
		}
	}
}

// name reads a name, as a string and as an object.
func (s *scanner) name() (string, types.Object, error) {
	from := s.at + 1
	for s.at++; s.at < len(s.text) && regular[s.text[s.at]]; s.at++ {
	}
	t := s.text[from:s.at]
	if n, known := s.names[string(t)]; known {
		return n.text, n.object, nil
	}
	name, err := unescaped(t)
	if err != nil {
		return "", nil, err
	}
	n := seenName{name, types.Name(name)}
	if s.names != nil && len(s.names) < maxSeenNames {
		s.names[string(t)] = n
	}
	return n.text, n.object, nil
}

// unescaped decodes #20-style escapes in a name.
func unescaped(t []byte) (string, error) {
	if bytes.IndexByte(t, '#') < 0 {
		return string(t), nil
	}
	out := make([]byte, 0, len(t))
	for i := 0; i < len(t); i++ {
		if t[i] != '#' {
			out = append(out, t[i])
			continue
		}
		if i+2 >= len(t) {
			return "", errUnusual
		}
		c, err := strconv.ParseUint(string(t[i+1:i+3]), 16, 8)
		if err != nil {
			return "", errUnusual
		}
		out, i = append(out, byte(c)), i+2
	}
	return string(out), nil
}

// literal reads (text), kept as written.
func (s *scanner) literal() (types.Object, error) {
	from, open := s.at+1, 0
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				s.at++
				return types.StringLiteral(s.text[from : s.at-1]), nil
			}
		}
	}
	return nil, errUnusual
}

func (s *scanner) hex() (types.Object, error) {
	n := bytes.IndexByte(s.text[s.at:], '>')
	if n < 0 {
		return nil, errUnusual
	}
	t := strings.ToUpper(strings.Join(strings.FieldsFunc(string(s.text[s.at+1:s.at+n]), func(r rune) bool { return strings.ContainsRune(spaces, r) }), ""))
	if strings.Trim(t, "0123456789ABCDEF") != "" {
		return nil, errUnusual
	}
	s.at += n + 1
	return types.HexLiteral(t), nil
}

// version returns that of the catalog, otherwise that of the header.
func (o *objects) version(root types.Dict) string {
	v := ""
	if i := bytes.Index(o.file[:min(len(o.file), 1024)], []byte("%PDF-")); i >= 0 {
		s := scanner{text: o.file, at: i + len("%PDF-")}
		v = string(s.token())
	}
	if name, ok := root["Version"].(types.Name); ok {
		v = string(name)
	}
	if len(v) > 8 || strings.Trim(v, "0123456789.") != "" {
		return ""
	}
	return v
}
