// Package picture draws the pictures in office documents and books, and runs OCR on
// them if requested.
package picture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	stddraw "image/draw"
	_ "image/gif" // registers GIF
	"image/jpeg"
	"image/png"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "golang.org/x/image/bmp" // BMP
	xdraw "golang.org/x/image/draw"
	_ "golang.org/x/image/tiff" // TIFF
	_ "golang.org/x/image/webp" // and WebP

	"sheaf"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/tempfile"
	"sheaf/parser/internal/zipfile"
)

// Limits.
const (
	maxBytes  = 64 << 20 // per picture, compressed
	maxPixels = 50 << 20 // unpacked, at up to 8 bytes each
	maxSide   = 4096     // of the drawn picture
)

// drawn are the extensions that Draw reads. EMF, WMF and SVG are drawings, which
// need a separate program.
var drawn = map[string]bool{".png": true, ".jpg": true, ".jpeg": true, ".jpe": true, ".jfif": true, ".gif": true, ".bmp": true, ".dib": true, ".tif": true, ".tiff": true, ".webp": true}

// Name returns the name by which blocks refer to the picture in a part of the file:
// its checksum and size, so that a slide unchanged from another version of the file
// refers to the same picture. It is "" for a picture that is missing or cannot be
// drawn.
func Name(z *zipfile.Archive, part string) string {
	if !drawn[strings.ToLower(path.Ext(part))] || !z.Has(part) {
		return ""
	}
	return fmt.Sprintf("%08x-%d", z.CRC(part), z.Size(part))
}

// find returns the part whose Name is name.
func find(z *zipfile.Archive, name string) (string, bool) {
	sum, size, ok := strings.Cut(name, "-")
	crc, err := strconv.ParseUint(sum, 16, 32)
	n, err2 := strconv.ParseUint(size, 10, 63)
	if !ok || err != nil || err2 != nil {
		return "", false
	}
	for _, e := range z.File {
		if uint64(e.CRC32) == crc && e.UncompressedSize64 == n && Name(z, e.Name) == name {
			return e.Name, true
		}
	}
	return "", false
}

// Draw implements parser.Illustrated for the files in a zip container.
func Draw(z *zipfile.Archive, name string, side int) ([]byte, error) {
	part, ok := find(z, name)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "no_picture", "The file holds no picture of that name; take the name from the metadata of a chunk of this version.")
	}
	m, err := decode(z, part)
	if err != nil {
		return nil, err
	}
	from := m.Bounds()
	w, h := within(from, min(max(side, 16), maxSide))
	return JPEG(m, from, w, h)
}

// JPEG draws the area from as a JPEG of w × h pixels, on white.
func JPEG(m image.Image, from image.Rectangle, w, h int) ([]byte, error) {
	var b bytes.Buffer
	err := jpeg.Encode(&b, scaled(m, from, w, h), &jpeg.Options{Quality: 85})
	return b.Bytes(), err
}

func scaled(m image.Image, from image.Rectangle, w, h int) *image.RGBA {
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	stddraw.Draw(out, out.Bounds(), image.NewUniform(color.White), image.Point{}, stddraw.Src) // transparent areas become white
	xdraw.ApproxBiLinear.Scale(out, out.Bounds(), m, from, xdraw.Over, nil)
	return out
}

// within returns the size of a picture scaled to fit into side × side pixels.
func within(at image.Rectangle, side int) (w, h int) {
	w, h = at.Dx(), at.Dy()
	if longer := max(w, h); longer > side {
		w, h = max(1, w*side/longer), max(1, h*side/longer)
	}
	return w, h
}

func decode(z *zipfile.Archive, part string) (image.Image, error) {
	b, err := z.ReadAll(part, maxBytes)
	if err != nil {
		return nil, sheaf.AsFailure(err, "")
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err == nil && (c.Width < 1 || c.Height < 1 || int64(c.Width)*int64(c.Height) > maxPixels) {
		return nil, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The picture has %d × %d pixels and the limit is %d million; make it smaller.", c.Width, c.Height, maxPixels>>20)
	}
	var m image.Image
	if err == nil {
		m, _, err = image.Decode(bytes.NewReader(b))
	}
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "picture_unreadable", "The picture cannot be drawn: %v.", err)
	}
	return m, nil
}

// Time budget, from the deadline set by the executor (20 s, plus 5 s per page or
// equivalent).
const (
	fixed   = 10 * time.Second
	perCost = 4 * time.Second
	maxCost = 200
)

// Reader runs OCR on pictures within a time limit shared by all pictures of one
// answer: pictures beyond it are not read.
type Reader struct {
	Archive *zipfile.Archive
	OCR     ocr.Config
	TempDir string
	Left    time.Duration // for everything still to be read
	found   map[string]string
}

// Budget returns the cost of units plus that of reading the pictures in blocks, in
// pages, and the total time the reading may take.
func Budget(units int, blocks []sheaf.Block) (cost int, left time.Duration) {
	cost = units
	for i := range blocks {
		if blocks[i].Picture != "" && cost < maxCost {
			cost++
		}
	}
	return cost, fixed + time.Duration(cost)*perCost
}

// least is the side, in pixels, below which a picture is considered an ornament and
// not read.
const least = 64

// Read adds the text of a unit's pictures to their blocks, and warns of what was
// not read.
func (r *Reader) Read(ctx context.Context, u *sheaf.UnitResult) error {
	if r.found == nil {
		r.found = map[string]string{}
	}
	missed, words := 0, false
	for i := range u.Blocks {
		b := &u.Blocks[i]
		if b.Picture == "" {
			continue
		}
		text, known := r.found[b.Picture]
		if !known {
			if r.Left <= 0 {
				missed++
				continue
			}
			from := time.Now()
			var err error
			text, err = r.read(ctx, b.Picture)
			r.Left -= time.Since(from)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code == "part_missing" {
				u.Warnings = append(u.Warnings, Missing(u.Unit, f))
				return nil
			}
			if err != nil {
				missed++
				continue
			}
			r.found[b.Picture] = text
		}
		if text == "" {
			continue
		}
		words = true
		if b.Text = strings.TrimSpace(b.Text + "\n" + text); len(b.Spans) > 0 {
			b.Spans = []sheaf.Span{{End: len(b.Text), Box: b.Spans[0].Box}}
		}
	}
	if missed > 0 {
		u.Warnings = append(u.Warnings, Unread(u.Unit, missed))
	}
	if words && u.Status == sheaf.UnitBlank {
		u.Status, u.Code, u.Message = sheaf.UnitOCR, "", "Recognised in its pictures."
	}
	return nil
}

// Missing is the warning of a unit whose pictures were not read for lack of the
// program, which f names.
func Missing(unit int, f *sheaf.Failure) sheaf.Warning {
	return sheaf.Warning{Code: "pictures_unread", Page: unit, Message: "The text in pictures was not read: " + f.Message}
}

// Unread is the warning of a unit of which n pictures were not read.
func Unread(unit, n int) sheaf.Warning {
	return sheaf.Warning{Code: "pictures_unread", Page: unit, Message: fmt.Sprintf("Pictures whose text was not read (%d) are damaged, or reading all of them takes too long.", n)}
}

// read returns the text in one picture, "" for none.
func (r *Reader) read(ctx context.Context, name string) (string, error) {
	part, ok := find(r.Archive, name)
	if !ok {
		return "", nil
	}
	m, err := decode(r.Archive, part)
	if err != nil {
		return "", err
	}
	at := m.Bounds()
	if min(at.Dx(), at.Dy()) < least {
		return "", nil
	}
	w, h := within(at, maxSide)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, scaled(m, at, w, h)); err != nil {
		return "", err
	}
	file := filepath.Join(r.TempDir, "picture.png")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		return "", tempfile.Full(err)
	}
	defer os.Remove(file)
	ctx, cancel := context.WithTimeout(ctx, r.Left)
	defer cancel()
	text, err := r.OCR.Read(ctx, r.TempDir, file, 1, 1, ocr.DPI)
	if err != nil {
		return "", err
	}
	return text.Lines(), nil
}
