package child

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"

	"sheaf"
)

// The encoding of a unit's result. This message is sent for every page, and is
// hand-written because reflection would cost more than laying out the page. A
// single walk over the fields writes or reads them, and counts their memory in the
// parent, so that both sides agree on both; TestCodecCarriesEveryField verifies
// that it is complete.

var errCodec = errors.New("the parser's result cannot be decoded")

// encodeUnit appends u to b. memory is what u takes of the range's budget once the
// parent has decoded it: see budget.go.
func encodeUnit(b []byte, u *sheaf.UnitResult) (out []byte, memory int64) {
	at := len(b)
	w := wire{b: b, left: math.MaxInt64}
	w.unit(u)
	return w.b, unitBytes + int64(len(w.b)-at) + math.MaxInt64 - w.left
}

// decodeUnit copies the text it keeps: body may be reused afterwards. left is the
// memory it may take; it returns what remains, or errBudget before allocating more
// than that.
func decodeUnit(body []byte, left int64) (sheaf.UnitResult, int64, error) {
	var u sheaf.UnitResult
	if left -= unitBytes + int64(len(body)); left < 0 {
		return u, 0, errBudget
	}
	w := wire{reads: true, b: body, s: string(body), left: left}
	w.unit(&u)
	switch {
	case w.left < 0:
		return sheaf.UnitResult{}, 0, errBudget
	case w.bad || w.at != len(w.b):
		return sheaf.UnitResult{}, 0, errCodec
	}
	return u, w.left, nil
}

// wire appends fields to b or reads them from it. Strings are substrings of s, the
// same bytes, so that a page's text is copied once. After corrupt input everything
// reads as zero and bad is set.
type wire struct {
	reads bool
	b     []byte
	s     string
	at    int
	bad   bool
	left  int64 // of the budget; negative once exceeded
}

func (w *wire) unit(u *sheaf.UnitResult) {
	w.int(&u.Unit)
	w.int(&u.LastUnit)
	w.string((*string)(&u.Status))
	w.string(&u.Code)
	w.string(&u.Message)
	w.string(&u.Label)
	w.float(&u.Width)
	w.float(&u.Height)
	slice(w, &u.Blocks, 8, (*wire).block)
	w.strings(&u.Running)
	slice(w, &u.Warnings, 3, func(w *wire, x *sheaf.Warning) {
		w.string(&x.Code)
		w.string(&x.Message)
		w.int(&x.Page)
	})
	w.string(&u.Layout)
}

func (w *wire) block(k *sheaf.Block) {
	w.string((*string)(&k.Kind))
	w.string(&k.Text)
	w.int(&k.Level)
	w.int(&k.Page)
	slice(w, &k.Spans, 35, func(w *wire, s *sheaf.Span) {
		w.int(&s.Start)
		w.int(&s.End)
		w.box(&s.Box)
	})
	if optional(w, &k.Table) {
		w.table(k.Table)
	}
	w.string(&k.Lang)
	slice(w, &k.Links, 4, func(w *wire, l *sheaf.Link) {
		w.int(&l.Start)
		w.int(&l.End)
		w.string(&l.URI)
		w.int(&l.Page)
	})
	w.string(&k.Picture)
}

func (w *wire) table(t *sheaf.Table) {
	w.string(&t.Name)
	w.strings(&t.Columns)
	w.strings(&t.Types)
	slice(w, &t.Rows, 1, (*wire).strings)
	cells := 0
	for _, row := range t.Rows {
		cells += len(row)
	}
	w.take(int64(len(t.Rows)*widest(t.Rows)-cells) * stringBytes) // every row is shown as wide as the widest
	w.int(&t.FirstRow)
	slice(w, &t.RowBoxes, 33, (*wire).box)
	if optional(w, &t.Box) {
		w.box(t.Box)
	}
	slice(w, &t.Spans, 4, func(w *wire, p *sheaf.TableSpan) {
		w.int(&p.Row)
		w.int(&p.Column)
		w.int(&p.Rows)
		w.int(&p.Columns)
	})
}

// box makes up most of a page of text, so its four corners are encoded in one step.
func (w *wire) box(x *sheaf.Box) {
	w.int(&x.Page)
	if !w.reads {
		b := binary.LittleEndian.AppendUint64(w.b, math.Float64bits(x.X0))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x.Y0))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x.X1))
		w.b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x.Y1))
	} else if at := w.next(32); at >= 0 {
		b := w.b[at : at+32]
		x.X0, x.Y0 = math.Float64frombits(binary.LittleEndian.Uint64(b)), math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))
		x.X1, x.Y1 = math.Float64frombits(binary.LittleEndian.Uint64(b[16:])), math.Float64frombits(binary.LittleEndian.Uint64(b[24:]))
	}
}

func (w *wire) strings(ss *[]string) { slice(w, ss, 1, (*wire).string) }

// slice encodes s, whose elements take at least elemBytes on the wire, so that
// neither a forged length nor empty elements can make the reader allocate. Nil and
// empty are distinct.
func slice[T any](w *wire, s *[]T, elemBytes int, each func(*wire, *T)) {
	n := uint64(0) // nil; otherwise the length plus one
	if !w.reads && *s != nil {
		n = uint64(len(*s)) + 1
	}
	if w.uvarint(&n); n == 0 {
		return
	}
	if w.reads && n-1 > uint64((len(w.b)-w.at)/elemBytes) {
		w.fail()
		return
	}
	if !w.take(int64(n-1) * int64(unsafe.Sizeof(*new(T)))) {
		return
	}
	if w.reads {
		*s = make([]T, n-1)
	}
	for i := range *s {
		each(w, &(*s)[i])
	}
}

// optional encodes whether *p is set, allocates it when reading, and reports it.
func optional[T any](w *wire, p **T) bool {
	if !w.reads {
		if *p == nil {
			w.b = append(w.b, 0)
			return false
		}
		w.b = append(w.b, 1)
		return w.take(int64(unsafe.Sizeof(**p)))
	}
	if at := w.next(1); at < 0 || w.b[at] != 1 || !w.take(int64(unsafe.Sizeof(**p))) {
		return false
	}
	*p = new(T)
	return true
}

func (w *wire) fail() { w.bad, w.at = true, len(w.b) }

// take charges memory to the budget.
func (w *wire) take(bytes int64) bool {
	if w.left -= bytes; w.left < 0 {
		w.fail()
		return false
	}
	return true
}

// next returns the offset of the next n bytes, or a negative number if fewer remain.
func (w *wire) next(n int) int {
	if n < 0 || n > len(w.b)-w.at {
		w.fail()
		return -1
	}
	w.at += n
	return w.at - n
}

func (w *wire) uvarint(v *uint64) {
	if !w.reads {
		w.b = binary.AppendUvarint(w.b, *v)
		return
	}
	x, n := binary.Uvarint(w.b[w.at:])
	if n <= 0 {
		w.fail()
		return
	}
	*v = x
	w.at += n
}

func (w *wire) int(v *int) {
	if !w.reads {
		w.b = binary.AppendVarint(w.b, int64(*v))
		return
	}
	x, n := binary.Varint(w.b[w.at:])
	if n <= 0 {
		w.fail()
		return
	}
	*v = int(x)
	w.at += n
}

func (w *wire) float(v *float64) {
	if !w.reads {
		w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(*v))
	} else if at := w.next(8); at >= 0 {
		*v = math.Float64frombits(binary.LittleEndian.Uint64(w.b[at:]))
	}
}

func (w *wire) string(v *string) {
	n := uint64(len(*v)) // zero when reading
	w.uvarint(&n)
	if !w.reads {
		w.b = append(w.b, *v...)
	} else if n > uint64(len(w.b)) {
		w.fail()
	} else if at := w.next(int(n)); at >= 0 {
		*v = w.s[at:w.at]
	}
}
