package pdf

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sheaf/parser/internal/shown"
	"sheaf/parser/pdf/engine"
)

// word is a run of characters without a space, in the coordinates of the displayed
// page: points, y down.
type word struct {
	start, end     int // bytes of wordPage.text
	x0, y0, x1, y1 float32
	h              float32 // font height: the box perpendicular to the writing direction
	turn           uint8   // writing direction in quarter turns counter-clockwise; turnSkew for others
	bold, italic   bool
	mono           bool
	rtl            bool
	brk            bool // the engine saw a line break before it
	hyphen         bool // ends in a hyphen that the engine considers a line-break hyphen
}

const turnSkew = 4

// wordPage is a page as words, in the engine's order.
type wordPage struct {
	text   string
	words  []word
	width  float32
	height float32
	chars  int // excluding spaces
}

func (p *wordPage) str(w *word) string { return p.text[w.start:w.end] }

// fontStyle holds the font properties that layout needs.
type fontStyle struct{ bold, italic, mono bool }

func styleOf(f engine.Font) fontStyle {
	n := strings.ToLower(f.Name)
	has := func(parts ...string) bool {
		for _, s := range parts {
			if strings.Contains(n, s) {
				return true
			}
		}
		return false
	}
	return fontStyle{
		bold: f.Weight >= 600 || f.Flags&(1<<18) != 0 || has("bold", "black", "heavy", "semibold", "demi") ||
			strings.HasPrefix(n, "cmbx") || strings.HasPrefix(n, "sfbx") || has("-bd", ",bd"),
		italic: f.Flags&64 != 0 || has("italic", "oblique"),
		mono: f.Flags&1 != 0 || has("courier", "mono", "consol", "typewriter", "menlo", "inconsolata", "fixed") ||
			strings.HasPrefix(n, "cmtt") || strings.HasPrefix(n, "cmsltt") || strings.HasPrefix(n, "sftt") || strings.HasPrefix(n, "lmmono"),
	}
}

// assembler builds words from page records. Its buffers are reused from page to
// page; the words themselves are not.
type assembler struct {
	text   []byte
	styles []fontStyle
	starts starts
	drawn  drawn
}

// frame maps the engine's page space to the displayed page.
type frame struct {
	l, t, w, h float32
	rotation   int
}

func frameOf(p *engine.Page) frame {
	return frame{l: p.Box.L, t: p.Box.T, w: p.Box.R - p.Box.L, h: p.Box.T - p.Box.B, rotation: p.Rotation}
}

func (f frame) display(r engine.Rect) (x0, y0, x1, y1 float32) {
	x0, x1, y0, y1 = r.L-f.l, r.R-f.l, f.t-r.T, f.t-r.B
	switch f.rotation {
	case 1:
		x0, y0, x1, y1 = f.h-y1, x0, f.h-y0, x1
	case 2:
		x0, y0, x1, y1 = f.w-x1, f.h-y1, f.w-x0, f.h-y0
	case 3:
		x0, y0, x1, y1 = y0, f.w-x1, y1, f.w-x0
	}
	return
}

// turnOf rounds the displayed writing angle to a quarter turn.
func turnOf(angle float32, rotation int) uint8 {
	q := float64(angle)/(math.Pi/2) - float64(rotation)
	n := math.Round(q)
	if math.Abs(q-n) > 0.12 { // 11 degrees
		return turnSkew
	}
	return uint8(int(n) & 3)
}

// words splits a page's characters at spaces, breaks and jumps. The box of a word
// is the union of its characters' boxes, so that engines that return the same
// characters yield the same words.
func (a *assembler) words(p *engine.Page) *wordPage {
	for len(a.styles) < len(p.Fonts) {
		a.styles = append(a.styles, styleOf(p.Fonts[len(a.styles)]))
	}
	out := &wordPage{width: p.Width, height: p.Height, words: make([]word, 0, len(p.Chars)/6+8)}
	f := frameOf(p)
	text := a.text[:0]
	var w word
	open, brk := false, true
	lastRun := int32(-1)
	var style fontStyle
	var turn uint8
	var height float32 // of the character before
	a.starts = starts{}
	a.drawn.reset()
	flush := func() {
		if open {
			w.end = len(text)
			if w.turn&1 == 0 {
				w.h = w.y1 - w.y0
			} else {
				w.h = w.x1 - w.x0
			}
			hash := textHash(text[w.start:w.end])
			if a.starts.add(w.x0, w.y0) && a.drawn.before(out.words, text, &w, hash) {
				out.chars -= utf8.RuneCount(text[w.start:w.end])
				text = text[:w.start]
				brk = brk || w.brk
				open = false
				return
			}
			out.words = append(out.words, w)
			a.drawn.add(hash, w.y0)
			text = append(text, ' ') // so that a text search cannot match across words
			open = false
		}
	}
	var high rune
	for k := range p.Chars {
		c := &p.Chars[k]
		r := rune(c.Unit)
		if r >= 0xD800 && r < 0xDC00 {
			high = r
			continue
		}
		if r >= 0xDC00 && r < 0xE000 {
			r = utf16.DecodeRune(high, r)
		}
		hyphen := false
		switch {
		case r == '\n':
			flush()
			brk = true
			continue
		case r == ' ' || r == 0xA0 || r == '\t':
			flush()
			continue
		case r == 0x02 || r == 0xFFFE: // PDFium's mark for a line-break hyphen
			r, hyphen = '-', true
		case r < 32 || r >= 0x7F && r < 0xA0 || r == 0xFEFF || r == utf8.RuneError || r >= 0x200B && r <= 0x200F || r >= 0x202A && r <= 0x202E:
			continue
		case r == 0xAD:
			r = '-'
			if k+1 >= len(p.Chars) || p.Chars[k+1].Unit == '\r' || p.Chars[k+1].Unit == '\n' {
				hyphen = true
			} else {
				continue // an invisible break opportunity
			}
		case r >= 0x2000 && r <= 0x200A || r == 0x202F || r == 0x205F || r == 0x3000:
			flush()
			continue
		}
		x0, y0, x1, y1 := f.display(c.Box)
		if c.Run != lastRun && c.Run >= 0 {
			lastRun = c.Run
			run := &p.Runs[c.Run]
			style = fontStyle{}
			if run.Font >= 0 && int(run.Font) < len(a.styles) {
				style = a.styles[run.Font]
			}
			turn = turnOf(run.Angle, p.Rotation)
		}
		if h := y1 - y0; open && (h < 0.85*height || height < 0.85*h) && raisedNumber(&w, text[w.start:], r, y0, y1) {
			flush()
		}
		height = y1 - y0
		if open && jumps(&w, turn, x0, y0, x1, y1) {
			flush()
		}
		if !open {
			open = true
			w = word{start: len(text), x0: x0, y0: y0, x1: x1, y1: y1, turn: turn, brk: brk,
				bold: style.bold, italic: style.italic, mono: style.mono, rtl: isRTL(r)}
			brk = false
		} else {
			w.x0, w.y0, w.x1, w.y1 = min(w.x0, x0), min(w.y0, y0), max(w.x1, x1), max(w.y1, y1)
		}
		out.chars++
		if r >= 0xFB00 && r <= 0xFB06 {
			text = append(text, ligatures[r-0xFB00]...)
		} else if r == 0xF0B7 {
			text = append(text, "•"...) // the bullet of the Symbol font
		} else if r >= 0xF700 && r <= 0xF8FF {
			text = utf8.AppendRune(text, shown.Adobe(r))
		} else {
			text = utf8.AppendRune(text, r)
		}
		if hyphen {
			w.hyphen = true
			flush()
			brk = true
		}
	}
	flush()
	a.text = text
	out.text = string(text)
	return out
}

var ligatures = [...]string{"ff", "fi", "fl", "ffi", "ffl", "st", "st"}

// jumps reports whether a character cannot belong to the preceding word: it is on
// another line, or far away along the line.
func jumps(w *word, turn uint8, x0, y0, x1, y1 float32) bool {
	if turn != w.turn {
		return true
	}
	if turn == turnSkew {
		return false
	}
	if turn&1 == 1 {
		x0, y0, x1, y1 = y0, x0, y1, x1
		w = &word{x0: w.y0, y0: w.x0, x1: w.y1, y1: w.x1}
	}
	h := w.y1 - w.y0
	if h <= 0 || y1 <= y0 {
		return false
	}
	if min(w.y1, y1)-max(w.y0, y0) <= 0 {
		return true
	}
	return x0-w.x1 > 2*h || w.x0-x1 > 2*h
}

// raisedNumber reports whether r, a character of another height than the preceding
// word, separates a raised number from the word: a note mark or a power is not part
// of it. Short words keep it: m², x².
func raisedNumber(w *word, text []byte, r rune, y0, y1 float32) bool {
	if w.turn != 0 {
		return false
	}
	h, wh := y1-y0, w.y1-w.y0
	digits, letters := 0, 0
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
			letters++
		}
	}
	if r >= '0' && r <= '9' {
		return h < 0.85*wh && y1 < w.y1-0.15*wh && (letters == 0 && digits > 0 || letters > 2)
	}
	return unicode.IsLetter(r) && digits == len(text) && wh < 0.85*h && w.y1 < y1-0.15*h
}

// starts is a coarse map of where words of a page begin, one bit per square of 4
// points; positions beyond it share squares.
type starts [256][2]uint64

// add marks a position and reports whether a word began near it before.
func (s *starts) add(x, y float32) bool {
	cell := func(v float32) uint { return uint(int(v * 0.25)) }
	bit := func(x, y uint) (*uint64, uint64) { return &s[y%256][x/64%2], 1 << (x % 64) }
	cx, cy := cell(x), cell(y)
	seen := false
	for _, at := range [...][2]uint{{cx, cy}, {cell(x + 1.5), cy}, {cell(x - 1.5), cy}, {cx, cell(y + 1.5)}, {cx, cell(y - 1.5)}} {
		word, mask := bit(at[0], at[1])
		seen = seen || *word&mask != 0
	}
	word, mask := bit(cx, cy)
	*word |= mask
	return seen
}

// drawn finds words with the same text at about the same height: they are chained
// by a hash of both, since a page has thousands of words, and a table of contents
// as many equal dots.
type drawn struct {
	last [1 << 10]int32 // per bucket: the newest word, counted from 1
	prev []int32        // per word: the one before it in its bucket, counted from 1
}

func (d *drawn) reset() {
	d.last = [len(d.last)]int32{}
	d.prev = d.prev[:0]
}

func row(y float32) int { return int(y / rowPoints) }

// textHash is FNV-1a.
func textHash(text []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range text {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

func (d *drawn) bucket(hash uint32, row int) *int32 {
	h := (hash ^ uint32(row)) * 0x9E3779B1
	return &d.last[h>>22]
}

// add records the next word of the page.
func (d *drawn) add(hash uint32, y float32) {
	last := d.bucket(hash, row(y))
	d.prev = append(d.prev, *last)
	*last = int32(len(d.prev))
}

// before reports whether the same word was already drawn in the same place: that is
// how bold letters and shadows are faked.
func (d *drawn) before(words []word, text []byte, w *word, hash uint32) bool {
	slack := 0.12 * w.h
	near := func(a, b float32) bool { return a-b < slack && b-a < slack }
	first := row(w.y0 - slack)
	for r := range min(row(w.y0+slack)-first+1, mostRows) {
		for i := int(*d.bucket(hash, first+r)) - 1; i >= max(0, len(words)-mostRedrawn); i = int(d.prev[i]) - 1 {
			o := &words[i]
			if near(o.x0, w.x0) && near(o.y0, w.y0) && near(o.x1, w.x1) && near(o.y1, w.y1) &&
				string(text[o.start:o.end]) == string(text[w.start:w.end]) {
				return true
			}
		}
	}
	return false
}

func isRTL(r rune) bool {
	return r >= 0x590 && r <= 0x8FF || r >= 0xFB1D && r <= 0xFDFF || r >= 0xFE70 && r <= 0xFEFF
}
