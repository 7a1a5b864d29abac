// Package image is the format of pictures of text: PNG, JPEG, TIFF, WebP, GIF and BMP
// files, read by OCR, an optional program. A page of a TIFF file is a unit. It runs in the
// parser's child process.
package image

import (
	"context"
	"encoding/binary"
	"image"
	_ "image/gif"  // registers GIF for image.DecodeConfig
	_ "image/jpeg" // JPEG
	_ "image/png"  // PNG
	"io"
	"os"
	"slices"
	"strconv"

	_ "golang.org/x/image/bmp" // and BMP

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/parts"
)

const (
	version = 1 // changes whenever the same file would yield other blocks; see Version
	// maxFileBytes and maxPixels limit what OCR must unpack: a page of A3 at 600
	// dpi has 70 million pixels.
	maxFileBytes = 256 << 20
	maxPixels    = 120 << 20
	maxPages     = 2_000 // of a TIFF file
	// inches is the assumed length of a picture's longer side, since declared
	// resolutions are mostly wrong.
	inches = 11
)

// Config configures the format.
type Config struct {
	OCR ocr.Config
	// Elsewhere means that the processes that parse documents have tesseract,
	// though this one does not.
	Elsewhere bool
}

// New returns the format.
func New(c Config) parser.Format { return format{c} }

type format struct{ cfg Config }

func (format) ID() string     { return "image" }
func (f format) Version() int { return version + f.cfg.OCR.Digest() }
func (format) Types() []parser.FileType {
	like := parser.FileType{Families: []sheaf.FileFamily{sheaf.FamilyImage}, Unit: sheaf.UnitPage, Ranges: "4 pages", Needs: "tesseract"}
	types := parser.Types(like, "image/png", "image/jpeg", "image/tiff", "image/webp", "image/gif", "image/bmp")
	for i, name := range []string{"PNG", "JPEG", "TIFF", "WebP", "GIF", "BMP"} {
		types[i].Name = name
	}
	types[5].Aliases = []string{"image/x-ms-bmp"}
	return types
}
func (format) Options() []string { return nil }

// Available implements parser.Optional.
func (f format) Available() error {
	if f.cfg.Elsewhere {
		return nil
	}
	return f.cfg.OCR.Find()
}

func invalid(why string) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryBadInput, "invalid_image", "The file cannot be read as a picture: %s. Save it again as PNG or JPEG and upload that.", why)
}

type size struct {
	width, height int
	head          []byte // of a TIFF file that begins with this page; nil for other files
}

type document struct {
	format  format
	file    *os.File
	options parser.Options
	pages   []size
	more    bool // the file has more pages than are read
}

// Open implements parser.Format. It reads the pictures' sizes.
func (f format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	n, err := parts.Size(file, maxFileBytes)
	if err != nil {
		return nil, err
	}
	if err := f.cfg.OCR.Find(); err != nil {
		return nil, err
	}
	d := &document{format: f, file: file, options: o}
	head := make([]byte, 32)
	got, _ := file.ReadAt(head, 0) // a short file fails below
	switch head = head[:got]; {
	case got >= 8 && (string(head[:4]) == "II*\x00" || string(head[:4]) == "MM\x00*"):
		d.pages, d.more, err = tiffPages(file, n)
	case got >= 30 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		d.pages, err = webpSize(head)
	default:
		c, _, decodeErr := image.DecodeConfig(io.NewSectionReader(file, 0, n))
		if decodeErr != nil {
			return nil, invalid("it is no PNG, JPEG, TIFF, WebP, GIF or BMP, or is damaged at its start")
		}
		d.pages = []size{{width: c.Width, height: c.Height}}
	}
	if err != nil {
		return nil, err
	}
	for i, p := range d.pages {
		if p.width < 1 || p.height < 1 {
			return nil, invalid("page " + strconv.Itoa(i+1) + " has no size")
		}
		if int64(p.width)*int64(p.height) > maxPixels {
			return nil, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The picture has %d × %d pixels and the limit is %d million; make it smaller.", p.width, p.height, maxPixels>>20)
		}
	}
	return d, nil
}

// tiffPages walks the directories of a TIFF file (TIFF 6.0, section 2). more is set if
// there are more than maxPages.
func tiffPages(r io.ReaderAt, n int64) (pages []size, more bool, err error) {
	head := make([]byte, 8)
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, false, invalid("it is cut off")
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[0] == 'M' {
		order = binary.BigEndian
	}
	seen := map[int64]bool{}
	for at := int64(order.Uint32(head[4:])); at != 0; {
		if len(pages) == maxPages {
			return pages, true, nil
		}
		if seen[at] || at+2 > n {
			return nil, false, invalid("its list of pages is damaged")
		}
		seen[at] = true
		count := make([]byte, 2)
		if _, err := r.ReadAt(count, at); err != nil {
			return nil, false, invalid("its list of pages is damaged")
		}
		dir := make([]byte, 12*int(order.Uint16(count))+4)
		if _, err := r.ReadAt(dir, at+2); err != nil {
			return nil, false, invalid("its list of pages is damaged")
		}
		p := size{head: slices.Clone(head)}
		order.PutUint32(p.head[4:], uint32(at))
		for e := dir; len(e) > 4; e = e[12:] {
			v := int(order.Uint32(e[8:]))
			if order.Uint16(e[2:]) == 3 { // a short is at the left of its field
				v = int(order.Uint16(e[8:]))
			}
			switch order.Uint16(e) {
			case 256:
				p.width = v
			case 257:
				p.height = v
			}
		}
		pages = append(pages, p)
		at = int64(order.Uint32(dir[len(dir)-4:]))
	}
	if len(pages) == 0 {
		return nil, false, invalid("it has no pages")
	}
	return pages, false, nil
}

// webpSize reads the first chunk of a WebP file (RFC 9649).
func webpSize(b []byte) ([]size, error) {
	le24 := func(at int) int { return int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16 }
	switch string(b[12:16]) {
	case "VP8X":
		return []size{{width: le24(24) + 1, height: le24(27) + 1}}, nil
	case "VP8L":
		v := binary.LittleEndian.Uint32(b[21:])
		return []size{{width: int(v&0x3fff) + 1, height: int(v>>14&0x3fff) + 1}}, nil
	case "VP8 ":
		return []size{{width: int(binary.LittleEndian.Uint16(b[26:]) & 0x3fff), height: int(binary.LittleEndian.Uint16(b[28:]) & 0x3fff)}}, nil
	}
	return nil, invalid("it is no WebP picture")
}

// Close implements parser.Document.
func (*document) Close() error { return nil }

// Plan implements parser.Document.
func (d *document) Plan(context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitPage, Units: len(d.pages), RangeSize: ocr.RangePages, Metadata: map[string]string{
		"width": strconv.Itoa(d.pages[0].width), "height": strconv.Itoa(d.pages[0].height),
	}}
	if d.more {
		p.Warnings = []sheaf.Warning{{Code: "pages_dropped", Message: "Only the first " + strconv.Itoa(maxPages) + " pages were read; split the file."}}
	}
	return p, nil
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(d.pages) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The picture has %d pages, so page %d does not exist.", len(d.pages), n)
		}
		p := d.pages[n-1]
		dpi := p.dpi()
		u := sheaf.UnitResult{Unit: n, Width: float64(p.width) * 72 / float64(dpi), Height: float64(p.height) * 72 / float64(dpi)}
		text, err := d.format.cfg.OCR.Read(ctx, d.options.TempDir, d.file.Name(), n, n, dpi)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			f := sheaf.AsFailure(err, "")
			u.Status, u.Code, u.Message = sheaf.UnitFailed, f.Code, f.Message
		} else {
			text.Verdict(&u)
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}
