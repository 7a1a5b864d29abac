// Package epub is the format of EPUB 2 and 3 books: a unit is a part of the
// spine, read as a web page. It runs in the parser's child process.
package epub

import (
	"bytes"
	"context"
	"errors"
	"html"
	"os"
	"regexp"
	"strings"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/picture"
	"sheaf/parser/internal/whole"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

const (
	version = 3 // changes whenever the same file would yield other blocks
	// rangeSize is the number of parts per task: about a chapter each.
	rangeSize = 8
	// maxPartBytes limits a chapter's page.
	maxPartBytes = 32 << 20
	maxSpine     = 20_000
	// maxRepeats limits repeats of a part in the spine: a book lists each once, and
	// otherwise a list of a few bytes each would produce any number of parts.
	maxRepeats    = 8
	maxManifest   = 65_000
	maxOutline    = 10_000
	maxIndexBytes = 32 << 20
)

// New returns the format. recognition reads the text in pictures if the setting
// ocr_pictures is on.
func New(recognition ocr.Config) parser.Format { return format{recognition} }

type format struct{ ocr ocr.Config }

func (format) ID() string     { return "epub" }
func (f format) Version() int { return version + f.ocr.Digest() }
func (format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaEPUB, Name: "EPUB", Extensions: []string{".epub"}, Magic: []parser.Magic{{Entry: "mimetype"}, {Entry: "META-INF/container.xml"}},
		Families: []sheaf.FileFamily{sheaf.FamilyEbook}, Unit: sheaf.UnitPart, Ranges: "8 parts",
	}}
}
func (format) Options() []string { return []string{"ocr_pictures"} }

type item struct {
	part, mediaType string
	nav             bool
}

type document struct {
	z        *zipfile.Archive
	ocr      ocr.Config
	options  parser.Options
	spine    []item
	toc      item // the navigation document or NCX, part "" for none
	metadata map[string]string
	skipped  int
}

// Open implements parser.Format.
func (f format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	z, err := zipfile.Open(file, "epub")
	if err != nil {
		return nil, err
	}
	d := &document{z: z, ocr: f.ocr, options: o, metadata: map[string]string{}}
	if err := d.drm(); err != nil {
		return nil, err
	}
	return d, d.open()
}

func (d *document) Close() error { return nil }

// Picture implements parser.Illustrated.
func (d *document) Picture(_ context.Context, name string, side int) ([]byte, error) {
	return picture.Draw(d.z, name, side)
}

// fontsOnly are the algorithms that obfuscate embedded fonts; the text is not
// affected.
var fontsOnly = map[string]bool{"http://www.idpf.org/2008/embedding": true, "http://ns.adobe.com/pdf/enc#RC": true}

func (d *document) drm() error {
	b, err := d.z.ReadAll("META-INF/encryption.xml", maxIndexBytes)
	if errors.Is(err, zipfile.ErrMissing) {
		return nil
	}
	if err != nil {
		return err
	}
	for s := xmlscan.New(bytes.NewReader(b)); ; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return nil
		}
		if k == xmlscan.Start && string(s.Name()) == "EncryptionMethod" && !fontsOnly[s.Attr("Algorithm")] {
			return sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The book is protected by DRM, so its text cannot be read; get it without protection and upload that.")
		}
	}
}

func (d *document) open() error {
	b, err := d.z.ReadAll("META-INF/container.xml", maxIndexBytes)
	if errors.Is(err, zipfile.ErrMissing) {
		return zipfile.Invalid("epub", "it has no META-INF/container.xml")
	}
	if err != nil {
		return err
	}
	opf := ""
	for s := xmlscan.New(bytes.NewReader(b)); opf == ""; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return zipfile.Invalid("epub", "its container names no package file")
		}
		if k == xmlscan.Start && string(s.Name()) == "rootfile" {
			opf = zipfile.Resolve("", s.Attr("full-path"))
		}
	}
	if b, err = d.z.ReadAll(opf, maxIndexBytes); err != nil {
		if errors.Is(err, zipfile.ErrMissing) {
			err = zipfile.Invalid("epub", "its package file %s is missing", opf)
		}
		return err
	}
	items, listed := map[string]item{}, map[string]int{}
	ncx := ""
	for s := xmlscan.New(bytes.NewReader(b)); ; {
		k, err := s.Next()
		if err != nil {
			return zipfile.Invalid("epub", "its package file is damaged: %v", err)
		}
		if k == xmlscan.EOF {
			break
		}
		if k != xmlscan.Start {
			continue
		}
		switch string(s.Name()) {
		case "item":
			if len(items) < maxManifest {
				it := item{part: zipfile.Resolve(opf, s.Attr("href")), mediaType: s.Attr("media-type"), nav: strings.Contains(" "+s.Attr("properties")+" ", " nav ")}
				items[s.Attr("id")] = it
				if it.nav {
					d.toc = it
				}
			}
		case "spine":
			ncx = s.Attr("toc")
		case "itemref":
			it, ok := items[s.Attr("idref")]
			switch {
			case !ok || len(d.spine) >= maxSpine:
				d.skipped++
			case it.mediaType != "" && !strings.Contains(it.mediaType, "html") && !strings.Contains(it.mediaType, "xml"):
				d.skipped++ // a picture or a fallback chain
			case listed[it.part] >= maxRepeats:
				d.skipped++
			default:
				listed[it.part]++
				d.spine = append(d.spine, it)
			}
		}
	}
	if it, ok := items[ncx]; ok && d.toc.part == "" {
		d.toc = it
	}
	zipfile.ReadFields(bytes.NewReader(b), map[string]string{"title": "title", "creator": "author", "subject": "subject", "description": "description",
		"publisher": "producer", "date": "created", "language": "language", "identifier": "identifier"}, d.metadata)
	if len(d.spine) == 0 {
		return sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The book lists no pages to read; check that you uploaded the right file.")
	}
	return nil
}

// Plan implements parser.Document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitPart, Units: len(d.spine), RangeSize: rangeSize, Metadata: d.metadata, Fingerprints: make([]uint64, len(d.spine)), Outline: d.outline()}
	for i, it := range d.spine {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := d.z.ReadAll(it.part, maxPartBytes)
		if err != nil {
			// Its unit fails when read; only a zip bomb ends the whole document.
			if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code == "zip_bomb" {
				return nil, err
			}
		}
		p.Fingerprints[i] = d.fingerprint(it.part, b)
	}
	if d.skipped > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "parts_skipped", Message: "Some parts of the book are pictures, are missing or are listed again and again, and were left out."})
	}
	return p, nil
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	pictures := picture.Reader{Archive: d.z, OCR: d.ocr, TempDir: d.options.TempDir}
	_, pictures.Left = picture.Budget(r.Len(), nil)
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(d.spine) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The book has %d parts, so part %d does not exist.", len(d.spine), n)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		u := d.part(n)
		if d.options.Config.OCRPictures.V {
			if err := pictures.Read(ctx, &u); err != nil {
				return err
			}
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

// sources matches the addresses of pictures in a page, and some others.
var sources = regexp.MustCompile(`(?i)(?:src|href)\s*=\s*["']([^"']+)["']`)

// fingerprint is the hash of a part and of the pictures it shows.
func (d *document) fingerprint(part string, b []byte) uint64 {
	h := xxhash.New()
	_, _ = h.Write(b) // a hash never fails
	if bytes.Contains(b, []byte("<im")) {
		for _, m := range sources.FindAllSubmatch(b, maxManifest) {
			_, _ = h.WriteString(d.picture(part, string(m[1])))
		}
	}
	return h.Sum64()
}

// picture returns the name of a picture that a part shows, "" for none.
func (d *document) picture(part, src string) string {
	if src == "" || strings.Contains(src, ":") { // external, or inline in the page
		return ""
	}
	return picture.Name(d.z, zipfile.Resolve(part, html.UnescapeString(src)))
}

func (d *document) part(n int) sheaf.UnitResult {
	it := d.spine[n-1]
	b, err := d.z.ReadAll(it.part, maxPartBytes)
	if err != nil {
		if errors.Is(err, zipfile.ErrMissing) {
			err = zipfile.Invalid("epub", "its part %s is missing", it.part)
		}
		f := sheaf.AsFailure(err, "")
		return sheaf.UnitResult{Unit: n, Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message}
	}
	g, err := charset.Detect(b, "", htmlblocks.Declared(b), true)
	if err != nil { // only a requested encoding can be wrong
		g = charset.Guess{Name: "utf-8"}
	}
	res := htmlblocks.ReadIllustrated(selfClosed(g.Decode(b)), func(src string) string { return d.picture(it.part, src) })
	for i := range res.Blocks {
		res.Blocks[i].Page = n
	}
	u := whole.Unit(n, res.Blocks)
	if size := whole.TextBytes(res.Blocks); size > whole.MaxTextBytes {
		return sheaf.UnitResult{Unit: n, Status: sheaf.UnitFailed, Code: "too_large", Message: "This part of the book holds too much text; split it."}
	}
	u.Label, u.Warnings = res.Metadata["title"], res.Warnings
	return u
}

// selfClosed expands the empty XHTML elements that an HTML parser would take for
// unclosed ones, swallowing the page: <title/> and <script …/>.
func selfClosed(b []byte) []byte {
	for _, name := range []string{"title", "script", "style", "iframe", "textarea", "noscript"} {
		open := []byte("<" + name)
		var out []byte
		for from := 0; ; {
			i := bytes.Index(b[from:], open)
			if i < 0 {
				if out != nil {
					b = append(out, b[from:]...)
				}
				break
			}
			i += from
			end := bytes.IndexByte(b[i:], '>')
			if end < 0 {
				if out != nil {
					b = append(out, b[from:]...)
				}
				break
			}
			end += i
			if b[end-1] == '/' {
				out = append(out, b[from:end-1]...)
				out = append(append(append(out, "></"...), name...), '>')
			} else {
				out = append(out, b[from:end+1]...)
			}
			from = end + 1
		}
	}
	return b
}

// outline reads the table of contents: an EPUB 3 navigation document or an EPUB 2
// NCX. A damaged one ends at the damage.
func (d *document) outline() []sheaf.Heading {
	if d.toc.part == "" {
		return nil
	}
	b, err := d.z.ReadAll(d.toc.part, maxIndexBytes)
	if err != nil {
		return nil
	}
	page := map[string]int{}
	for i, it := range d.spine {
		if page[it.part] == 0 {
			page[it.part] = i + 1
		}
	}
	var out []sheaf.Heading
	var title strings.Builder
	level, inToc, href, inLabel := 0, !d.toc.nav, "", false
	add := func() {
		t := clean.Line(clean.Clip(title.String(), 500))
		if n := page[zipfile.Resolve(d.toc.part, href)]; n > 0 && t != "" && len(out) < maxOutline {
			out = append(out, sheaf.Heading{Level: min(max(level, 1), 6), Title: t, Page: n})
		}
		href, inLabel = "", false
		title.Reset()
	}
	for s := xmlscan.New(bytes.NewReader(b)); ; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			break
		}
		name := string(s.Name())
		switch {
		case k == xmlscan.Text && inLabel && title.Len() < 1000:
			title.Write(s.Text())
		case d.toc.nav && name == "nav":
			inToc = k == xmlscan.Start && s.Attr("type") == "toc"
		case d.toc.nav && name == "ol" && k == xmlscan.Start:
			level++
		case d.toc.nav && name == "ol" && k == xmlscan.End:
			level--
		case d.toc.nav && name == "a" && inToc && k == xmlscan.Start:
			href, inLabel = s.Attr("href"), true
		case d.toc.nav && name == "a" && inToc && k == xmlscan.End:
			add()
		case !d.toc.nav && name == "navPoint" && k == xmlscan.Start:
			level++
		case !d.toc.nav && name == "navPoint" && k == xmlscan.End:
			level--
		case !d.toc.nav && name == "navLabel" && level > 0:
			if inLabel = k == xmlscan.Start; inLabel {
				title.Reset()
			}
		case !d.toc.nav && name == "content" && k == xmlscan.Start && level > 0:
			href = s.Attr("src")
			add()
		}
	}
	// Headings must be in document order.
	for i := 1; i < len(out); i++ {
		if out[i].Page < out[i-1].Page {
			return nil
		}
	}
	return out
}
