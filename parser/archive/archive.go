// Package archive is the format of ZIP and TAR archives, compressed or not. An
// uploaded archive is unpacked, and its members become documents; one attached to a
// mail is read member by member, each a unit named after the archive and the
// member. It runs in the parser's child process.
package archive

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/text/encoding/charmap"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/members"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/tempfile"
	"sheaf/parser/internal/zipfile"
)

// Media types in addition to parser.MediaZIP.
const (
	mediaGzip  = "application/gzip"
	mediaBzip2 = "application/x-bzip2"
	mediaZstd  = "application/zstd"
)

const (
	version = 1 // changes whenever the same file would yield other blocks
	// maxEntries limits the entries examined, including folders.
	maxEntries = 100_000
	// ratioAfter is the size up to which a member's ratio is not checked.
	ratioAfter = 16 << 20
	maxName    = 400 // bytes
	// rangeMembers and rangeBytes limit what one task reads.
	rangeMembers = 32
	rangeBytes   = 32 << 20
	// bytesPerPage converts members to pages, the unit of cost.
	bytesPerPage = 100 << 10
)

// Limits on what is read of one archive. Zero fields take their value from
// DefaultLimits.
type Limits struct {
	Files      int   // that become units; the rest is counted and not read
	FileBytes  int64 // unpacked, per file
	TotalBytes int64 // unpacked, in total; also packed
	Ratio      int   // maximum ratio of unpacked to packed size
}

// DefaultLimits are generous for ordinary archives: deflate reaches a ratio of
// 1,032 on zeros, and logs of one repeated line 300.
var DefaultLimits = Limits{Files: 5_000, FileBytes: 512 << 20, TotalBytes: 8 << 30, Ratio: 500}

func (l Limits) withDefaults() Limits {
	l.Files = cmp.Or(l.Files, DefaultLimits.Files)
	l.FileBytes = cmp.Or(l.FileBytes, DefaultLimits.FileBytes)
	l.TotalBytes = cmp.Or(l.TotalBytes, DefaultLimits.TotalBytes)
	l.Ratio = cmp.Or(l.Ratio, DefaultLimits.Ratio)
	return l
}

// New returns the format. formats finds the readers of members; it is called while
// an archive is read, so the registry may include this format.
func New(limits Limits, formats func() *parser.Registry) parser.Format {
	return &format{limits.withDefaults(), formats}
}

type format struct {
	limits  Limits
	formats func() *parser.Registry
}

func (*format) ID() string   { return "archive" }
func (*format) Version() int { return version }
func (*format) Types() []parser.FileType {
	like := parser.FileType{Nests: true, Unit: sheaf.UnitPart, Ranges: "each file becomes a document"}
	types := parser.Types(like, parser.MediaZIP, parser.MediaTAR, mediaGzip, mediaBzip2, mediaZstd)
	types[0].Name, types[0].Extensions, types[0].Aliases = "ZIP", []string{".zip"}, []string{"application/x-zip-compressed", "application/java-archive"}
	types[1].Name, types[1].Extensions, types[1].Magic = "TAR", []string{".tar"}, []parser.Magic{{Bytes: "ustar", Offset: 257}} // POSIX.1-2017, pax
	types[2].Name, types[2].Aliases = "gzip", []string{"application/x-gzip"}
	types[3].Name, types[4].Name = "bzip2", "Zstandard"
	return types
}
func (*format) Options() []string { return []string{"table_rows"} }

// HoldsFiles implements parser.Container.
func (*format) HoldsFiles() {}

// member is a future unit.
type member struct {
	name   string // cleaned
	size   int64  // unpacked
	sum    uint64 // of the content; 0 when it was not read
	code   string // why it is not read, with an explanation
	reason string
}

type document struct {
	file    *os.File
	size    int64
	options parser.Options
	limits  Limits
	formats *parser.Registry
	kind    string

	members  []member
	dropped  int
	warnings []sheaf.Warning
	standing *walk // of Unpack, between two steps; nil for none
}

// Open implements parser.Format.
func (f *format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(file, f.limits.TotalBytes)
	if err != nil {
		return nil, err
	}
	d := &document{file: file, size: size, options: o, limits: f.limits, formats: f.formats(), kind: "tar"}
	head := make([]byte, 4)
	_, _ = file.ReadAt(head, 0) // a short file fails as a TAR archive
	if bytes.HasPrefix(head, []byte("PK")) {
		d.kind = "zip"
	}
	return d, nil
}

// list finds the members. hash requests their checksums, for which a TAR archive
// must be unpacked; a ZIP archive stores them.
func (d *document) list(ctx context.Context, hash bool) error {
	d.members, d.warnings, d.dropped = nil, nil, 0
	seen := map[string]bool{}
	err := d.walk(ctx, func(m member, content func(io.Writer) (int64, error)) error {
		if m.code == "" && seen[m.name] {
			m.code, m.reason = duplicate, duplicateReason
		}
		seen[m.name] = true
		if len(d.members) >= d.limits.Files {
			d.dropped++
			return nil
		}
		if hash && m.code == "" && m.sum == 0 {
			h := xxhash.New()
			n, err := content(h)
			if ctx.Err() != nil {
				return err
			}
			if err == nil { // a member that cannot be unpacked gets its verdict when it is read
				m.size, m.sum = n, h.Sum64()
			}
		}
		d.members = append(d.members, m)
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && len(d.members) == 0:
		return asFailure(ctx, err)
	case err != nil:
		d.warnings = append(d.warnings, damaged(ctx, len(d.members), err))
	case len(d.members) == 0:
		return noFiles()
	}
	if d.dropped > 0 {
		d.warnings = append(d.warnings, d.tooMany(d.dropped))
	}
	return nil
}

// A second file with the same name.
const (
	duplicate       = "duplicate_name"
	duplicateReason = "the archive holds two files of this name, and the first was read"
)

func damaged(ctx context.Context, read int, err error) sheaf.Warning {
	return sheaf.Warning{Code: "archive_damaged", Message: fmt.Sprintf("The archive could not be read to its end; what comes after file %d is missing. %s", read, sheaf.AsFailure(asFailure(ctx, err), "").Message)}
}

func (d *document) tooMany(dropped int) sheaf.Warning {
	return sheaf.Warning{Code: "members_dropped", Message: fmt.Sprintf("Files after the first %d (%d of them) were left out. Split the archive.", d.limits.Files, dropped)}
}

func noFiles() error {
	return sheaf.Fail(sheaf.CategoryBadInput, "empty_document", "The archive contains no files; check that you uploaded the right one.")
}

func asFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f
	}
	return sheaf.Fail(sheaf.CategoryBadInput, "invalid_archive", "The file cannot be read as an archive: %s. Create the archive again and upload that.", clean.Clip(clean.Line(err.Error()), 200))
}

// Close implements parser.Document.
func (d *document) Close() error {
	if d.standing != nil {
		d.standing.stop()
		d.standing = nil
	}
	return nil
}

// Plan implements parser.Document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	if err := d.list(ctx, true); err != nil {
		return nil, err
	}
	p := &parser.Plan{Unit: sheaf.UnitPart, Units: len(d.members), Warnings: d.warnings, Metadata: map[string]string{"members": strconv.Itoa(len(d.members))}}
	from, size := 1, int64(0)
	for i, m := range d.members {
		p.Outline = append(p.Outline, sheaf.Heading{Level: 1, Title: d.prefix() + m.name, Page: i + 1})
		p.Fingerprints = append(p.Fingerprints, xxhash.Sum64String(fmt.Sprintf("%s\x00%s\x00%d\x00%x", m.name, m.code, m.size, m.sum)))
		size += m.size
		if n := i + 1; n == len(d.members) || n-from+1 >= rangeMembers || size+d.members[n].size > rangeBytes {
			p.Ranges = append(p.Ranges, parser.PlannedRange{Range: sheaf.Range{From: from, To: n}, Cost: n - from + 1 + int(size/bytesPerPage)})
			from, size = n+1, 0
		}
	}
	return p, nil
}

// prefix precedes the names of members: "report.zip/".
func (d *document) prefix() string {
	if name := clean.Line(clean.Clip(path.Base(strings.ReplaceAll(d.options.Name, `\`, "/")), 200)); name != "" && name != "." && name != "/" {
		return name + "/"
	}
	return ""
}

var errEnough = errors.New("the rest of the archive is not of interest")

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	if d.members == nil {
		if err := d.list(ctx, false); err != nil {
			return err
		}
	}
	if r.From < 1 || r.To > len(d.members) || r.To < r.From {
		return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The archive has %d members, so members %s do not exist.", len(d.members), r)
	}
	reader := members.Reader{Formats: d.formats, Options: d.options, Noun: "member", Path: d.prefix()}
	n := 0
	var emitErr error
	err := d.walk(ctx, func(_ member, content func(io.Writer) (int64, error)) error {
		if n++; n > r.To {
			return errEnough
		}
		if n < r.From {
			return nil
		}
		u, err := d.unit(ctx, reader, n, content)
		if err != nil {
			return err
		}
		emitErr = emit(u)
		return emitErr
	})
	switch {
	case emitErr != nil:
		return emitErr
	case n >= r.To: // errors after the range do not matter
		return ctx.Err()
	}
	return asFailure(ctx, err)
}

func (d *document) unit(ctx context.Context, reader members.Reader, n int, content func(io.Writer) (int64, error)) (sheaf.UnitResult, error) {
	m := d.members[n-1]
	if m.code != "" {
		return sheaf.UnitResult{Unit: n, Status: sheaf.UnitSkipped, Code: m.code, Label: d.prefix() + m.name,
			Message: fmt.Sprintf("%s was not read: %s.", m.name, strings.TrimSuffix(m.reason, "."))}, nil
	}
	f, err := os.CreateTemp(d.options.TempDir, "member-")
	if err != nil {
		return sheaf.UnitResult{}, tempfile.Full(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	size, err := content(f)
	if err != nil {
		fail := sheaf.AsFailure(asFailure(ctx, err), "")
		return sheaf.UnitResult{Unit: n, Status: sheaf.UnitFailed, Code: fail.Code, Label: d.prefix() + m.name, Message: m.name + ": " + fail.Message}, ctx.Err()
	}
	if size == 0 {
		return sheaf.UnitResult{Unit: n, Status: sheaf.UnitBlank, Code: "empty_file", Label: d.prefix() + m.name, Message: m.name + " has no bytes."}, nil
	}
	return reader.Read(ctx, n, m.name, "", f, size), nil
}

// cleanName makes a member's name safe to display: a relative path of readable
// steps. Nothing is ever written under it.
func cleanName(s string) string {
	if !utf8.ValidString(s) {
		// APPNOTE.TXT 4.4.4: names that are not UTF-8 are in code page 437.
		s, _ = charmap.CodePage437.NewDecoder().String(s) // every byte has a character there
	}
	s = strings.ReplaceAll(clean.Line(s), `\`, "/")
	var steps []string
	for step := range strings.SplitSeq(s, "/") {
		if step = strings.TrimSpace(step); step == "" || step == "." || step == ".." || len(steps) == 0 && len(step) == 2 && step[1] == ':' {
			continue
		}
		steps = append(steps, step)
	}
	return cmp.Or(clean.Clip(strings.Join(steps, "/"), maxName), "unnamed")
}

// clutter reports whether a file was added by the operating system.
func clutter(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(name, "__MACOSX/") || strings.HasPrefix(base, "._") || base == ".DS_Store" || base == "Thumbs.db" || base == "desktop.ini"
}

// walk calls on for each file of the archive. content writes the file's content
// within the limits; it may be called once.
func (d *document) walk(ctx context.Context, on func(m member, content func(io.Writer) (int64, error)) error) error {
	if d.kind == "zip" {
		return d.walkZip(ctx, on)
	}
	return d.walkTar(ctx, on)
}

func (d *document) walkZip(ctx context.Context, on func(m member, content func(io.Writer) (int64, error)) error) error {
	z, err := zip.NewReader(d.file, d.size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are cleaned, and nothing is written under them
		return err
	}
	if len(z.File) > maxEntries {
		return sheaf.Fail(sheaf.CategoryCapacity, "zip_bomb", "The archive holds %d entries and the limit is %d; split it.", len(z.File), maxEntries)
	}
	if err := zipfile.Apart(z.File); err != nil {
		return err
	}
	var raw *zipfile.Counter
	zipfile.Counted(z, &raw)
	spent := budget{}
	for _, e := range z.File {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.FileInfo().IsDir() || clutter(e.Name) {
			continue
		}
		m := member{name: cleanName(e.Name), size: int64(min(e.UncompressedSize64, 1<<62)), sum: uint64(e.CRC32) | 1<<32}
		switch {
		case e.Flags&1 != 0:
			m.code, m.reason = "encrypted", "it is protected by a password; unpack the archive and upload the file"
		case !e.Mode().IsRegular():
			m.code, m.reason = "not_a_file", "it is a link or a device, not a file"
		case m.size > d.limits.FileBytes:
			m.code, m.reason = "too_large", fmt.Sprintf("it has more than %d MB; upload it by itself", d.limits.FileBytes>>20)
		}
		opened := false
		err := on(m, func(w io.Writer) (int64, error) {
			opened, raw = true, nil
			r, err := e.Open()
			if err != nil {
				return 0, sheaf.Fail(sheaf.CategoryBadInput, "member_damaged", "it cannot be unpacked (%s)", clean.Clip(clean.Line(err.Error()), 200))
			}
			defer r.Close()
			return d.limits.copy(w, r, func(n int64) int64 {
				if raw != nil {
					return raw.N
				}
				return n
			}, &spent)
		})
		if err != nil {
			return err
		}
		if !opened && m.code == "" { // by an earlier step; nothing unpacks to more than it claims
			spent.bytes += m.size
		}
		if spent.bombs >= maxBombs {
			return sheaf.Fail(sheaf.CategoryBadInput, "zip_bomb", "%d of its files unpack to more than %d times their size, as no honest file does; the rest was not tried. Check where the archive comes from.", spent.bombs, d.limits.Ratio)
		}
	}
	return nil
}

// maxBombs is how many bombs identify a hostile archive.
const maxBombs = 3

// budget is what has been unpacked of one archive.
type budget struct {
	bytes int64 // inflated
	bombs int   // members that exceeded their ratio
}

// copy unpacks one member. packed returns how many bytes of the archive its first n
// bytes took; nil if unknown.
func (l Limits) copy(w io.Writer, r io.Reader, packed func(n int64) int64, spent *budget) (int64, error) {
	buf := make([]byte, 64<<10)
	n := int64(0)
	for {
		k, err := r.Read(buf)
		n += int64(k)
		spent.bytes += int64(k)
		switch {
		case spent.bytes > l.TotalBytes:
			return n, sheaf.Fail(sheaf.CategoryBadInput, "zip_bomb", "The archive unpacks to more than %d MB; split it.", l.TotalBytes>>20)
		case packed != nil && n > ratioAfter && n/max(1, packed(n)) > int64(l.Ratio):
			spent.bombs++
			return n, sheaf.Fail(sheaf.CategoryBadInput, "zip_bomb", "it unpacks to more than %d times its size, as no honest file does", l.Ratio)
		case n > l.FileBytes:
			return n, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "it unpacks to more than %d MB; upload it by itself", l.FileBytes>>20)
		}
		if k > 0 {
			if _, err := w.Write(buf[:k]); err != nil {
				return n, tempfile.Full(err)
			}
		}
		if err == io.EOF {
			return n, nil
		}
		if _, known := errors.AsType[*sheaf.Failure](err); known {
			return n, err
		}
		if err != nil {
			return n, sheaf.Fail(sheaf.CategoryBadInput, "member_damaged", "it cannot be unpacked (%s)", clean.Clip(clean.Line(err.Error()), 200))
		}
	}
}
