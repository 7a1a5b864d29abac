// Package zipfile opens the zip containers of office documents and books, with
// limits that stop a zip bomb before it harms the machine.
package zipfile

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/xmlscan"
)

// Limits. The largest legitimate files seen: a workbook of 1,000,000 rows has one
// part of 560 MB that is 25 times its compressed size, and a slide deck 4,000 entries.
const (
	MaxEntries    = 65_000
	MaxTotalBytes = 4 << 30   // inflated, total read from one archive
	MaxPartBytes  = 256 << 20 // inflated, of a part that a format reads whole
	maxRatio      = 400       // deflate reaches 1,032 on zeros; XML of real sheets stays below 100
	ratioAfter    = 16 << 20  // the ratio of small parts is not checked
	allRatioAfter = 64 << 20  // likewise for all parts together
	// wholeBytes is the size up to which a container is read at once: its parts are
	// read in pieces of 4 KB, and each piece is a system call.
	wholeBytes = 1 << 20
	// cachedRels is how many relationship lists are cached, the first ones read,
	// including those of the package and its main part: they are used often.
	cachedRels = 4
)

// Archive is an open container. Its budget of inflated bytes is shared by
// everything read from it. The sizes in its directory are not trusted: the actual
// bytes are counted. It is used by one goroutine at a time.
type Archive struct {
	*zip.Reader
	kind   string
	byName map[string]*zip.File
	total  int64              // inflated, counting repeated reads
	seen   map[*zip.File]size // how far each part was read
	all    size               // their sum
	raw    *Counter           // of the part being opened, nil if it is stored
	rels   map[string]map[string]Rel
}

// size counts bytes as stored in the file and inflated.
type size struct{ packed, inflated int64 }

// Counter counts the bytes a decompressor takes from the file.
type Counter struct {
	N int64
	r io.Reader
}

func (c *Counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.N += int64(n)
	return n, err
}

// Counted makes z set *last to a new Counter whenever a compressed member is
// opened. A stored member leaves it unchanged.
func Counted(z *zip.Reader, last **Counter) {
	z.RegisterDecompressor(zip.Deflate, func(r io.Reader) io.ReadCloser {
		*last = &Counter{r: r}
		return inflate(*last)
	})
}

// Open reads the directory of f. kind names the format in failures
// ("invalid_docx").
func Open(f *os.File, kind string) (*Archive, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	if st.Size() == 0 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The file has no bytes; upload it again from the original.")
	}
	head := make([]byte, 8)
	_, _ = f.ReadAt(head, 0) // a short file fails as a zip below
	if parser.IsCompound(head) {
		return nil, sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The file is protected by a password (or is an old binary Office file); send parser_config.password and leave parser_config.media_type out, or save a copy without the password in today's format (DOCX, XLSX, PPTX) and upload that.")
	}
	in := io.ReaderAt(f)
	if st.Size() <= wholeBytes {
		if b, err := io.ReadAll(io.NewSectionReader(f, 0, st.Size())); err == nil && int64(len(b)) == st.Size() {
			in = bytes.NewReader(b)
		}
	}
	z, err := zip.NewReader(in, st.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, Invalid(kind, "it is not a readable zip container: %v", err)
	}
	if len(z.File) > MaxEntries {
		return nil, sheaf.Fail(sheaf.CategoryCapacity, "zip_bomb", "The file holds %d entries and the limit is %d; this is not an ordinary %s file, so check where it comes from.", len(z.File), MaxEntries, strings.ToUpper(kind))
	}
	if err := Apart(z.File); err != nil {
		return nil, err
	}
	a := &Archive{Reader: z, kind: kind, byName: make(map[string]*zip.File, len(z.File)), seen: map[*zip.File]size{}}
	Counted(z, &a.raw)
	for _, e := range z.File {
		key := fold(e.Name)
		if _, dup := a.byName[key]; !dup {
			a.byName[key] = e
		}
	}
	return a, nil
}

// Apart fails with zip_bomb if two members share bytes of the file: no program
// writes that, and it lets a few bytes unpack to any number of members.
func Apart(files []*zip.File) error {
	type body struct{ from, to int64 }
	bodies := make([]body, 0, len(files))
	for _, e := range files {
		from, err := e.DataOffset()
		if err != nil || e.CompressedSize64 == 0 { // it cannot be opened either, or has nothing to share
			continue
		}
		bodies = append(bodies, body{from, from + int64(min(e.CompressedSize64, 1<<62-1))})
	}
	slices.SortFunc(bodies, func(a, b body) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(bodies); i++ {
		if bodies[i].from < bodies[i-1].to {
			return sheaf.Fail(sheaf.CategoryBadInput, "zip_bomb", "Members of the archive overlap, so that it unpacks to far more than it holds. No program packs like that; check where the file comes from.")
		}
	}
	return nil
}

// Read returns how many bytes of the file all parts read so far take together, each
// as far as it was read.
func (a *Archive) Read() int64 { return a.all.packed }

// Invalid is the failure of a file that is not what it claims to be.
func Invalid(kind, format string, args ...any) *sheaf.Failure {
	f := sheaf.Fail(sheaf.CategoryBadInput, "invalid_"+kind, format, args...)
	f.Message = "The file cannot be read as " + strings.ToUpper(kind) + ": " + f.Message + ". Open it in the program that made it, save it anew and upload that."
	return f
}

// fold normalizes a part name: office programs ignore case, and some write
// backslashes.
func fold(name string) string {
	return strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(name, `\`, "/"), "/"))
}

// Has reports whether there is a part with that name.
func (a *Archive) Has(name string) bool { return a.byName[fold(name)] != nil }

// Size is the inflated size declared in the directory, 0 for a missing part.
func (a *Archive) Size(name string) int64 {
	if e := a.byName[fold(name)]; e != nil {
		return int64(min(e.UncompressedSize64, 1<<62))
	}
	return 0
}

// CRC is the checksum declared in the directory, 0 for a missing part.
func (a *Archive) CRC(name string) uint32 {
	if e := a.byName[fold(name)]; e != nil {
		return e.CRC32
	}
	return 0
}

// ErrMissing means that there is no such part.
var ErrMissing = errors.New("the part is missing")

// Part opens a part for reading at most limit inflated bytes; beyond that Read
// returns the failure zip_bomb or too_large.
func (a *Archive) Part(name string, limit int64) (io.ReadCloser, error) {
	e := a.byName[fold(name)]
	if e == nil {
		return nil, ErrMissing
	}
	if e.Flags&1 != 0 {
		return nil, sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The file's content is encrypted; save a copy without the password and upload that.")
	}
	a.raw = nil
	r, err := e.Open()
	if err != nil {
		return nil, Invalid(a.kind, "its part %s cannot be opened: %v", name, err)
	}
	return &part{r: r, raw: a.raw, a: a, e: e, name: name, limit: limit}, nil
}

type part struct {
	r     io.ReadCloser
	raw   *Counter
	a     *Archive
	e     *zip.File
	name  string
	n     int64
	limit int64
}

// packed returns how many bytes of the file have been read for it.
func (p *part) packed() int64 {
	if p.raw == nil {
		return p.n
	}
	return p.raw.N
}

// note records how far the part has been read.
func (p *part) note(n int) {
	p.n += int64(n)
	p.a.total += int64(n)
	if before, now := p.a.seen[p.e], (size{p.packed(), p.n}); now.inflated > before.inflated {
		p.a.seen[p.e] = now
		p.a.all.packed += now.packed - before.packed
		p.a.all.inflated += now.inflated - before.inflated
	}
}

func bomb(inflated, packed, after int64) bool {
	return inflated > after && inflated/max(1, packed) > maxRatio
}

func (p *part) Close() error { return p.r.Close() }

func (p *part) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.note(n)
	switch {
	case bomb(p.n, p.packed(), ratioAfter), bomb(p.a.all.inflated, p.a.all.packed, allRatioAfter), p.a.total > MaxTotalBytes:
		return n, sheaf.Fail(sheaf.CategoryBadInput, "zip_bomb", "Unpacking the file gives far more data than an honest one holds (part %s, more than %d MB); it was stopped. Check where the file comes from.", p.name, p.n>>20)
	case p.n > p.limit:
		return n, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The part %s unpacks to more than %d MB; split the document into smaller files.", p.name, p.limit>>20)
	case err != nil && err != io.EOF:
		return n, Invalid(p.a.kind, "its part %s is damaged: %v", p.name, err)
	}
	return n, err
}

// ReadAll reads a whole part of at most limit bytes.
func (a *Archive) ReadAll(name string, limit int64) ([]byte, error) {
	r, err := a.Part(name, limit)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// The declared size may be false; it only saves growing the buffer.
	b := bytes.NewBuffer(make([]byte, 0, min(a.Size(name), limit, 1<<20)+bytes.MinRead))
	_, err = b.ReadFrom(r)
	return b.Bytes(), err
}

// Rel is an OOXML relationship.
type Rel struct {
	Type     string // the last segment of its type's URI: "slide", "hyperlink"
	Target   string // part name, or the address when External
	External bool
}

// Rels reads the relationships of a part, or of the package for "". A missing or
// broken list is empty. The map must not be modified.
func (a *Archive) Rels(of string) map[string]Rel {
	if rels, ok := a.rels[of]; ok {
		return rels
	}
	rels := a.readRels(of)
	if len(a.rels) < cachedRels {
		if a.rels == nil {
			a.rels = map[string]map[string]Rel{}
		}
		a.rels[of] = rels
	}
	return rels
}

func (a *Archive) readRels(of string) map[string]Rel {
	out := map[string]Rel{}
	r, err := a.Part(path.Join(path.Dir(of), "_rels", path.Base(of)+".rels"), 16<<20)
	if of == "" {
		r, err = a.Part("_rels/.rels", 16<<20)
	}
	if err != nil {
		return out
	}
	defer r.Close()
	for s := xmlscan.New(r); len(out) < MaxEntries; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return out
		}
		if k != xmlscan.Start || string(s.Name()) != "Relationship" {
			continue
		}
		rel := Rel{Type: path.Base(s.Attr("Type")), Target: s.Attr("Target"), External: s.Attr("TargetMode") == "External"}
		if !rel.External {
			rel.Target = Resolve(of, rel.Target)
		}
		out[s.Attr("Id")] = rel
	}
	return out
}

// Resolve turns a reference inside part of into a part name.
func Resolve(of, ref string) string {
	ref, _, _ = strings.Cut(ref, "#")
	if u, err := url.PathUnescape(ref); err == nil {
		ref = u
	}
	ref = strings.ReplaceAll(ref, `\`, "/")
	if strings.HasPrefix(ref, "/") {
		return path.Clean(ref)[1:]
	}
	return path.Join(path.Dir(of), ref)
}

// Main returns the package's declared main document, or def if it declares none.
func (a *Archive) Main(def string) string {
	for _, r := range a.Rels("") {
		if r.Type == "officeDocument" && a.Has(r.Target) {
			return r.Target
		}
	}
	return def
}

// Properties reads title, author and the like from docProps/core.xml and the
// number of pages and the program from docProps/app.xml.
func (a *Archive) Properties() map[string]string {
	out := map[string]string{}
	core, app := "docProps/core.xml", "docProps/app.xml"
	for _, r := range a.Rels("") {
		switch r.Type {
		case "core-properties":
			core = r.Target
		case "extended-properties":
			app = r.Target
		}
	}
	keys := map[string]string{"title": "title", "creator": "author", "subject": "subject", "keywords": "keywords", "description": "description",
		"created": "created", "modified": "modified", "language": "language", "category": "category", "Application": "producer", "Company": "company"}
	for _, name := range []string{core, app} {
		r, err := a.Part(name, 4<<20)
		if err != nil {
			continue
		}
		ReadFields(r, keys, out)
		_ = r.Close() // it was only read
	}
	for _, key := range []string{"created", "modified"} {
		if strings.HasPrefix(out[key], "1601-") { // the start of Windows' calendar: not set
			delete(out, key)
		}
	}
	return out
}

// ReadFields collects the text of the elements in keys into out, under the values
// of keys. The first of several wins. Texts are limited to 1,000 bytes.
func ReadFields(r io.Reader, keys, out map[string]string) {
	key, text := "", ""
	for s := xmlscan.New(r); ; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return
		}
		switch k {
		case xmlscan.Start:
			key, text = keys[string(s.Name())], ""
		case xmlscan.Text:
			if key != "" && len(text) < 1000 {
				text += string(s.Text())
			}
		case xmlscan.End:
			if text = strings.TrimSpace(strings.ToValidUTF8(text, "")); key != "" && text != "" && out[key] == "" {
				out[key] = clean.Line(clean.Clip(text, 1000))
			}
			key = ""
		}
	}
}
