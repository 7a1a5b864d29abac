package child

import (
	"encoding/binary"
	"errors"
	"math"

	"sheaf"
)

// The encoding of a unit's result. It is the one message that is sent for
// every page, and written by hand because reflection costs more there than the
// page's layout; TestCodecCarriesEveryField holds it complete.

func appendUnit(b []byte, u *sheaf.UnitResult) []byte {
	b = appendInt(b, u.Unit)
	b = appendInt(b, u.LastUnit)
	b = appendString(b, string(u.Status))
	b = appendString(b, u.Code)
	b = appendString(b, u.Message)
	b = appendString(b, u.Label)
	b = appendFloat(b, u.Width)
	b = appendFloat(b, u.Height)
	b = appendLen(b, len(u.Blocks), u.Blocks == nil)
	for i := range u.Blocks {
		b = appendBlock(b, &u.Blocks[i])
	}
	b = appendStrings(b, u.Running)
	b = appendLen(b, len(u.Warnings), u.Warnings == nil)
	for _, w := range u.Warnings {
		b = appendString(b, w.Code)
		b = appendString(b, w.Message)
		b = appendInt(b, w.Page)
	}
	return b
}

func appendBlock(b []byte, k *sheaf.Block) []byte {
	b = appendString(b, string(k.Kind))
	b = appendString(b, k.Text)
	b = appendInt(b, k.Level)
	b = appendInt(b, k.Page)
	b = appendLen(b, len(k.Spans), k.Spans == nil)
	for i := range k.Spans {
		s := &k.Spans[i]
		b = appendInt(b, s.Start)
		b = appendInt(b, s.End)
		b = appendBox(b, &s.Box)
	}
	b = appendBool(b, k.Table != nil)
	if t := k.Table; t != nil {
		b = appendString(b, t.Name)
		b = appendStrings(b, t.Columns)
		b = appendStrings(b, t.Types)
		b = appendLen(b, len(t.Rows), t.Rows == nil)
		for _, row := range t.Rows {
			b = appendStrings(b, row)
		}
		b = appendInt(b, t.FirstRow)
		b = appendLen(b, len(t.RowBoxes), t.RowBoxes == nil)
		for i := range t.RowBoxes {
			b = appendBox(b, &t.RowBoxes[i])
		}
		b = appendBool(b, t.Box != nil)
		if t.Box != nil {
			b = appendBox(b, t.Box)
		}
		b = appendLen(b, len(t.Spans), t.Spans == nil)
		for _, p := range t.Spans {
			b = appendInt(b, p.Row)
			b = appendInt(b, p.Column)
			b = appendInt(b, p.Rows)
			b = appendInt(b, p.Columns)
		}
	}
	b = appendString(b, k.Lang)
	b = appendLen(b, len(k.Links), k.Links == nil)
	for _, l := range k.Links {
		b = appendInt(b, l.Start)
		b = appendInt(b, l.End)
		b = appendString(b, l.URI)
		b = appendInt(b, l.Page)
	}
	return appendString(b, k.Picture)
}

func appendInt(b []byte, v int) []byte { return binary.AppendVarint(b, int64(v)) }
func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}
func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendLen tells nil (0) from empty (1).
func appendLen(b []byte, n int, isNil bool) []byte {
	if isNil {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(n)+1)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendStrings(b []byte, ss []string) []byte {
	b = appendLen(b, len(ss), ss == nil)
	for _, s := range ss {
		b = appendString(b, s)
	}
	return b
}

func appendBox(b []byte, x *sheaf.Box) []byte {
	b = appendInt(b, x.Page)
	b = appendFloat(b, x.X0)
	b = appendFloat(b, x.Y0)
	b = appendFloat(b, x.X1)
	return appendFloat(b, x.Y1)
}

var errCodec = errors.New("the parser's result cannot be decoded")

// decodeUnit copies the text it keeps: body may be reused afterwards. left is
// what it may take (see held), and what is left then; with more it is errRoom,
// before the memory is taken.
func decodeUnit(body []byte, left int64) (sheaf.UnitResult, int64, error) {
	if left -= unitHeld + int64(len(body)); left < 0 {
		return sheaf.UnitResult{}, 0, errRoom
	}
	d := decoder{b: body, s: string(body), left: left}
	var u sheaf.UnitResult
	u.Unit = d.int()
	u.LastUnit = d.int()
	u.Status = sheaf.UnitStatus(d.string())
	u.Code = d.string()
	u.Message = d.string()
	u.Label = d.string()
	u.Width = d.float()
	u.Height = d.float()
	if n, ok := d.len(8, blockHeld); ok {
		u.Blocks = make([]sheaf.Block, n)
		for i := range u.Blocks {
			d.block(&u.Blocks[i])
		}
	}
	u.Running = d.strings()
	if n, ok := d.len(3, warningHeld); ok {
		u.Warnings = make([]sheaf.Warning, n)
		for i := range u.Warnings {
			u.Warnings[i] = sheaf.Warning{Code: d.string(), Message: d.string(), Page: d.int()}
		}
	}
	switch {
	case d.left < 0:
		return sheaf.UnitResult{}, 0, errRoom
	case d.bad || d.at != len(d.b):
		return sheaf.UnitResult{}, 0, errCodec
	}
	return u, d.left, nil
}

// decoder reads b; strings are cut out of s, the same bytes, so that a page's
// text is copied once. After damage everything reads as zero and bad is set.
type decoder struct {
	b   []byte
	s   string
	at  int
	bad bool

	left int64 // of the room; below 0 once there was too little
}

// hold takes up room.
func (d *decoder) hold(bytes int64) bool {
	if d.left -= bytes; d.left < 0 {
		d.bad, d.at = true, len(d.b)
		return false
	}
	return true
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b[d.at:])
	if n <= 0 {
		d.bad, d.at = true, len(d.b)
		return 0
	}
	d.at += n
	return v
}

func (d *decoder) int() int {
	v, n := binary.Varint(d.b[d.at:])
	if n <= 0 {
		d.bad, d.at = true, len(d.b)
		return 0
	}
	d.at += n
	return int(v)
}

func (d *decoder) take(n int) int {
	if n < 0 || n > len(d.b)-d.at {
		d.bad, d.at = true, len(d.b)
		return -1
	}
	d.at += n
	return d.at - n
}

func (d *decoder) float() float64 {
	at := d.take(8)
	if at < 0 {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(d.b[at:]))
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.at = true, len(d.b)
		return ""
	}
	at := d.take(int(n))
	if at < 0 {
		return ""
	}
	return d.s[at:d.at]
}

// len reads the length of a slice whose elements take at least elemBytes as they
// were sent and heldBytes in memory, so that neither a lying length nor elements
// that say nothing can make the reader allocate; ok is false for nil.
func (d *decoder) len(elemBytes int, heldBytes int64) (n int, ok bool) {
	v := d.uvarint()
	if v == 0 {
		return 0, false
	}
	if v-1 > uint64((len(d.b)-d.at)/elemBytes) {
		d.bad, d.at = true, len(d.b)
		return 0, false
	}
	return int(v - 1), d.hold(int64(v-1) * heldBytes)
}

func (d *decoder) bool() bool {
	at := d.take(1)
	return at >= 0 && d.b[at] == 1
}

func (d *decoder) strings() []string {
	n, ok := d.len(1, stringHeld)
	if !ok {
		return nil
	}
	ss := make([]string, n)
	for i := range ss {
		ss[i] = d.string()
	}
	return ss
}

func (d *decoder) box() sheaf.Box {
	return sheaf.Box{Page: d.int(), X0: d.float(), Y0: d.float(), X1: d.float(), Y1: d.float()}
}

func (d *decoder) block(k *sheaf.Block) {
	k.Kind = sheaf.BlockKind(d.string())
	k.Text = d.string()
	k.Level = d.int()
	k.Page = d.int()
	if n, ok := d.len(35, spanHeld); ok {
		k.Spans = make([]sheaf.Span, n)
		for i := range k.Spans {
			k.Spans[i] = sheaf.Span{Start: d.int(), End: d.int(), Box: d.box()}
		}
	}
	if d.bool() {
		if !d.hold(tableHeld) {
			return
		}
		t := &sheaf.Table{Name: d.string(), Columns: d.strings(), Types: d.strings()}
		if n, ok := d.len(1, rowHeld); ok {
			t.Rows = make([][]string, n)
			cells := 0
			for i := range t.Rows {
				t.Rows[i] = d.strings()
				cells += len(t.Rows[i])
			}
			d.hold(int64(n*widest(t.Rows)-cells) * stringHeld) // shown as wide as the widest
		}
		t.FirstRow = d.int()
		if n, ok := d.len(33, boxHeld); ok {
			t.RowBoxes = make([]sheaf.Box, n)
			for i := range t.RowBoxes {
				t.RowBoxes[i] = d.box()
			}
		}
		if d.bool() && d.hold(boxHeld) {
			b := d.box()
			t.Box = &b
		}
		if n, ok := d.len(4, mergeHeld); ok {
			t.Spans = make([]sheaf.TableSpan, n)
			for i := range t.Spans {
				t.Spans[i] = sheaf.TableSpan{Row: d.int(), Column: d.int(), Rows: d.int(), Columns: d.int()}
			}
		}
		k.Table = t
	}
	k.Lang = d.string()
	if n, ok := d.len(4, linkHeld); ok {
		k.Links = make([]sheaf.Link, n)
		for i := range k.Links {
			k.Links[i] = sheaf.Link{Start: d.int(), End: d.int(), URI: d.string(), Page: d.int()}
		}
	}
	k.Picture = d.string()
}
