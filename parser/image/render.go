package image

import (
	"context"
	"image"
	"io"
	"math"

	_ "golang.org/x/image/tiff" // registers TIFF
	_ "golang.org/x/image/webp" // and WebP

	"sheaf"
	"sheaf/parser/internal/picture"
)

// Limits of Render. The whole picture is decoded, at up to 8 bytes per pixel.
const (
	maxDPI         = 300
	maxDrawnPixels = 24 << 20 // of the answer
	maxReadPixels  = 50 << 20 // of the file
)

// dpi is the assumed resolution of a page: boxes are in points at that resolution.
func (p size) dpi() int { return min(max(max(p.width, p.height)/inches, 70), 600) }

// Render implements parser.Renderer.
func (d *document) Render(_ context.Context, n, dpi int, clip *sheaf.Box) ([]byte, string, error) {
	if n < 1 || n > len(d.pages) {
		return nil, "", sheaf.Fail(sheaf.CategoryBadInput, "no_such_page", "Page %d was asked for; the picture has %d.", n, len(d.pages))
	}
	unreadable := func(why string) error {
		return sheaf.Fail(sheaf.CategoryBadInput, "page_unreadable", "Page %d cannot be drawn: %s.", n, why)
	}
	p := d.pages[n-1]
	if int64(p.width)*int64(p.height) > maxReadPixels {
		return nil, "", unreadable("the picture is too large to be unpacked for it")
	}
	info, err := d.file.Stat()
	if err != nil {
		return nil, "", err
	}
	m, _, err := image.Decode(io.NewSectionReader(&firstPage{d.file, p.head}, 0, info.Size()))
	if err != nil {
		return nil, "", unreadable(err.Error())
	}
	scale := float64(min(max(dpi, 10), maxDPI)) / float64(p.dpi()) // pixels of the answer per pixel of the file
	if px := float64(p.width) * float64(p.height) * scale * scale; px > maxDrawnPixels {
		scale *= math.Sqrt(maxDrawnPixels / px)
	}
	from := m.Bounds()
	if clip != nil {
		at := func(points float64) int {
			return int(math.Round(min(max(points, 0), 1<<14) * float64(p.dpi()) / 72))
		}
		if part := image.Rect(at(clip.X0), at(clip.Y0), at(clip.X1), at(clip.Y1)).Add(from.Min).Intersect(from); !part.Empty() {
			from = part
		}
	}
	side := func(pixels int) int { return min(max(1, int(float64(pixels)*scale+.5)), 1<<14) }
	b, err := picture.JPEG(m, from, side(from.Dx()), side(from.Dy()))
	return b, "image/jpeg", err
}

// firstPage is a TIFF file with another page as its first: its header points to
// that page's directory. The decoder reads only first pages.
type firstPage struct {
	file io.ReaderAt
	head []byte // 8 bytes; nil for the file unchanged
}

// ReadAt implements io.ReaderAt.
func (f *firstPage) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.file.ReadAt(p, off)
	if off >= 0 && off < int64(len(f.head)) {
		copy(p[:n], f.head[off:])
	}
	return n, err
}
