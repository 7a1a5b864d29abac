// Package engine is the contract between the PDF format and the program that reads
// PDF files. An engine opens a file by its descriptor and returns one record per
// page; package pdf makes words, lines and blocks from the record, so that every
// engine yields the same text and boxes.
package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"image"
	"io"
	"math"
	"strings"
	"unicode/utf16"
)

// Reasons why a document does not open, or a page does not load.
var (
	ErrPassword = errors.New("the document is encrypted and the password does not open it")
	ErrFormat   = errors.New("the file is not a PDF or is damaged")
	ErrSecurity = errors.New("the document uses an encryption scheme that is not supported")
	ErrPage     = errors.New("the page cannot be loaded")
	// ErrBroken means that the engine itself failed (a trap in its code, out of
	// memory): the document is unusable and must be reopened.
	ErrBroken = errors.New("the PDF engine failed")
)

// Engine opens documents. It is safe for concurrent use; each of its documents is
// used by one goroutine at a time.
type Engine interface {
	// Name distinguishes engines whose pages may differ, e.g. "pdfium-wasm".
	Name() string
	// Open reads the cross-reference table of the size bytes in f. f must stay
	// open until Close.
	Open(ctx context.Context, f io.ReaderAt, size int64, password string) (Document, error)
	Close() error
}

// Document is an open PDF. Pages are counted from 0.
type Document interface {
	Pages() int
	// Page fills p, reusing its slices. Fonts carry over from page to page.
	Page(n int, p *Page) error
	// Size returns the size of page n as displayed, in points, without reading its
	// content.
	Size(n int) (w, h float32, err error)
	// Label is the page's printed number, "" if the document declares none.
	Label(n int) string
	// Outline returns at most limit bookmarks in reading order. Their targets are
	// resolved only if pages is set: that costs a walk through the page tree.
	Outline(limit int, pages bool) ([]Bookmark, error)
	// Meta is an entry of the document information dictionary ("Title").
	Meta(key string) string
	// Render draws the page, as rotated for display, to fit w × h pixels.
	Render(n, w, h int) (*image.RGBA, error)
	Close() error
}

// Moved is a Document that another engine may have taken over because its original
// engine failed. Moved returns the reason, once; "" if nothing happened.
type Moved interface{ Moved() string }

// Placing is a Document that can find a page directly by its object instead of
// walking through all pages before it. Place takes the object number of each page;
// it does nothing if their count differs from the page count. A number without an
// object means no page.
type Placing interface{ Place(numbers []int) }

// Bookmark is an entry of the outline. Page is -1 if it has no target or it was not
// requested.
type Bookmark struct {
	Level int // from 1
	Title string
	Page  int
}

// Page is the content of a page. Coordinates are points in the page's own,
// unrotated space: x to the right, y up.
type Page struct {
	Width, Height float32 // as displayed, after rotation
	Box           Rect    // the visible part of the page, in its own space
	Rotation      int     // quarter turns clockwise, 0 to 3
	Chars         []Char
	Runs          []Run
	Fonts         []Font // of the document so far; Run.Font indexes it
	Rules         []Rect // straight strokes and thin boxes: candidates for table rules
	Images        []Rect
	Links         []Link
	Objects       int  // page objects examined
	Truncated     bool // the page holds more objects or characters than engines read
}

// Reset empties p but keeps its memory and fonts.
func (p *Page) Reset() {
	fonts := p.Fonts
	*p = Page{Chars: p.Chars[:0], Runs: p.Runs[:0], Fonts: fonts, Rules: p.Rules[:0], Images: p.Images[:0], Links: p.Links[:0]}
}

// Link is an area of the page that links to an address or, if URI is empty, to a
// page, counted from 0.
type Link struct {
	Box  Rect
	URI  string
	Page int
}

// Char is one UTF-16 code unit of the page's text in the engine's order.
type Char struct {
	Unit uint32
	Run  int32 // index into Page.Runs; -1 for spaces, breaks and generated characters
	Box  Rect  // from the font's ascent to its descent; zero if Run is -1
}

// RectOf orders the corners, which PDFium returns as left, top, right, bottom.
func RectOf(l, t, r, b float32) Rect {
	return Rect{L: min(l, r), B: min(b, t), R: max(l, r), T: max(b, t)}
}

// AngleOf converts an angle from PDFium into that of a Run: PDFium measures
// clockwise, as it uses the matrix's c for b.
func AngleOf(clockwise float32) float32 {
	angle := -clockwise
	if angle < 0 {
		angle += 2 * math.Pi
	}
	return angle
}

// FontOf describes a font from PDFium's values.
func FontOf(name []byte, weight, flags int32) Font {
	f := Font{Name: Text8(name), Weight: int(weight), Flags: int(max(flags, 0))}
	if i := strings.IndexByte(f.Name, '+'); i == 6 { // ABCDEF+Name: a subset tag
		f.Name = f.Name[7:]
	}
	if f.Weight < 0 || f.Weight > 1000 {
		f.Weight = 0
	}
	return f
}

// Text8 returns text from arbitrary bytes.
func Text8(b []byte) string { return strings.ToValidUTF8(string(b), "") }

// Text16 decodes UTF-16LE text.
func Text16(b []byte) string {
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(u))
}

// TitleOf returns the title of a bookmark, on one line; bookmarks without one are
// omitted.
func TitleOf(utf16le []byte) string { return strings.Join(strings.Fields(Text16(utf16le)), " ") }

// Space reports whether a code unit separates words. It is part of the contract
// because engines need not return a box for these.
func Space(unit uint32) bool {
	switch unit {
	case 0, ' ', '\t', '\r', '\n', 0xA0:
		return true
	}
	return false
}

// Run is a stretch of characters drawn by one text object.
type Run struct {
	Font  int32   // index into Page.Fonts, -1 when unknown
	Size  float32 // as given to the text operator, before the text matrix
	Angle float32 // radians, counter-clockwise in page space
}

// Font is described once per document.
type Font struct {
	Name   string // PostScript name without the subset tag, may be empty
	Weight int    // 400 is regular, 700 bold; 0 unknown
	Flags  int    // ISO 32000-1 table 123: 1 fixed pitch, 64 italic, 1<<18 force bold
}

// Rect has L ≤ R and B ≤ T.
type Rect struct{ L, B, R, T float32 }

// Limits on what is read of one page, the same for every engine: pages beyond them
// are machine-made (maps, plots, attacks) and marked Truncated.
const (
	MaxChars   = 400_000
	MaxObjects = 20_000
	MaxRules   = 4_000
	MaxImages  = 500
	MaxLinks   = 500
	// MaxLinkedPages is the page count up to which links between pages are
	// resolved: each costs a walk through the page tree.
	MaxLinkedPages = 500
	MaxSegments    = 400 // of one path
	MaxDepth       = 3   // of nested forms
)
