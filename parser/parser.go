// Package parser turns bytes into blocks: the first stage after a task is claimed.
// Each format declares what it can do; the code runs in a child process
// (parser/child), which is killed when it exceeds its time or memory.
package parser

import (
	"context"
	"encoding/json"
	"io"
	"os"

	"sheaf"
)

// Format reads one family of files.
type Format interface {
	// ID names the format ("pdf"); Version changes whenever the same bytes
	// would yield other blocks. Both go into the config digest.
	ID() string
	Version() int
	// Types lists what the format reads, most specific first.
	Types() []FileType
	// Options lists the fields of sheaf.ParseConfig (by JSON name) that this format
	// reads, besides pages. Only those go into its digest.
	Options() []string
	// Open reads no more of the file than necessary. The error is a *sheaf.Failure
	// that explains what is wrong with the file.
	Open(ctx context.Context, f *os.File, o Options) (Document, error)
}

// Optional is implemented by formats that need an external program or service.
type Optional interface {
	// Available returns nil if it is present, otherwise the *sheaf.Failure
	// part_missing, whose message names what to install or set. It is called on
	// every upload and so must be fast.
	Available() error
}

// Caller is implemented by formats that have another service read the file, such as
// recordings: their Plan waits for minutes and takes no processor time here.
type Caller interface {
	// Calls reports whether it is so as configured.
	Calls() bool
}

// Available reports whether f can read files here: see Optional.
func Available(f Format) error {
	if o, ok := f.(Optional); ok {
		return o.Available()
	}
	return nil
}

// Unsupported is the failure of a file that no format reads.
func Unsupported(name, mediaType string) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "%s is %s, which Sheaf cannot read yet; convert it to PDF, DOCX, XLSX, HTML or text, or set parser_config.media_type if the type was guessed wrong", name, mediaType)
}

// Options are the request's settings and the temporary folder.
type Options struct {
	Name      string // of the document, for messages and by extension
	MediaType string
	Config    sheaf.ParseConfig
	TempDir   string // exists, private to this document, removed by the caller
	// Hint belongs to the range about to be parsed (see PlannedRange, Agreeing),
	// nil when planning: including after a round trip through JSON, where nil is
	// "null".
	Hint json.RawMessage `json:",omitempty"`
	// Beside are the blocks of units of the range that the plan found (see Plan.Beside).
	Beside map[int][]sheaf.Block `json:",omitempty"`
	// Fill fetches bytes of a sparse file before they are read; nil for a complete
	// file. Only Sparse formats get one. If it fails the process exits, since the
	// bytes read would not be those of the file.
	Fill func(offset, length int64) `json:"-"`
	// Note tells the operator that something was done in another way than
	// configured, without affecting the result. May be nil.
	Note func(text string) `json:"-"`
}

// Sparse is implemented by formats that read a range from a few places of a file,
// and honor Options.Fill.
type Sparse interface{ Sparse() }

// Agreeing is implemented by formats in which the reading of a unit depends on
// nearby units, which may be in other ranges.
type Agreeing interface {
	// Agree takes what the ranges of a document have reported, in order: for each,
	// the UnitResult.Layout of its units, concatenated. For each range it returns
	// the Hint to read it again with, or nil if its result is final. A range that
	// was read with its Hint is final. A damaged report is used as far as it is
	// readable.
	Agree(layouts [][]byte) []json.RawMessage
}

// Document is an open file. It is used by one goroutine at a time.
type Document interface {
	// Plan counts units and determines how the file may be split.
	Plan(ctx context.Context) (*Plan, error)
	// Parse reads the units of r in order and calls emit for each exactly once, or
	// once for a run of units (UnitResult.LastUnit). A unit that cannot be read is
	// emitted as failed, not returned as an error; an error means that the rest of
	// the range was not read. An error from emit stops parsing and is returned.
	Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error
	io.Closer
}

// Renderer is implemented by documents whose units can be drawn.
type Renderer interface {
	// Render draws unit n, or the part of it within clip (its Page is ignored), at
	// dpi as a PNG or JPEG. A clip that is nil or extends beyond the page means the
	// page.
	Render(ctx context.Context, n, dpi int, clip *sheaf.Box) (image []byte, mediaType string, err error)
}

// Illustrated is implemented by documents that hold pictures but are not rendered
// page by page.
type Illustrated interface {
	// Picture draws the named picture (sheaf.Block.Picture) as a JPEG of at most
	// side pixels per side. The error is a *sheaf.Failure: no_picture if the file
	// has no picture of that name.
	Picture(ctx context.Context, name string, side int) (jpeg []byte, err error)
}

// PictureOf returns the named picture of d, which need not be Illustrated.
func PictureOf(ctx context.Context, d Document, name string, side int) (jpeg []byte, err error) {
	if i, ok := d.(Illustrated); ok {
		return i.Picture(ctx, name, side)
	}
	return nil, sheaf.Fail(sheaf.CategoryBadInput, "no_picture", "This kind of file contains no images.")
}

// Container is implemented by formats whose files hold other files, which become
// their own documents: their documents are Unpackers. If such a file is inside
// another, it is parsed like any file.
type Container interface {
	Format
	HoldsFiles()
}

// Unpacker is implemented by documents of a Container.
type Unpacker interface {
	// Unpack writes files into Options.TempDir, starting with the from-th
	// (1-based), and stops after a bounded number of bytes.
	Unpack(ctx context.Context, from int) (*Unpacked, error)
}

// Unpacked is a run of the files that a container holds.
type Unpacked struct {
	Members  []Member // in order; the first is the one requested
	Next     int      // the member to continue with; 0 when these were the last
	Warnings []sheaf.Warning
}

// Member is a file in a container.
type Member struct {
	N      int    // 1-based
	Path   string // cleaned: relative, and safe to display
	File   string // path under Options.TempDir; "" if it was not unpacked
	Size   int64  // bytes
	SHA256 string // hex
	// Why it was not unpacked; Status is empty if it was.
	Status  sheaf.UnitStatus
	Code    string
	Message string
}

// Plan is what a document is made of.
type Plan struct {
	Unit      sheaf.Unit
	Units     int
	RangeSize int // units per task; 0 means the format cannot split: one task for all
	// Fingerprints holds one content hash per unit (index 0 is unit 1), or is nil
	// if the format has none and the hash of the whole file must do.
	Fingerprints []uint64
	// Ranges, if not nil, are the only cuts the format allows, with what Parse
	// needs to reach each; together they cover 1..Units.
	Ranges   []PlannedRange
	Metadata map[string]string // title, author, subject, keywords, producer, created, modified, language, …
	Outline  []sheaf.Heading   // in document order; nil if there is none
	Warnings []sheaf.Warning
	// Beside are blocks of a unit that are kept outside of its content, such as the
	// values of a form. Parse gets them back in Options.Beside and adds them.
	Beside map[int][]sheaf.Block `json:",omitempty"`
	// Slow says that a unit may take seconds to read, such as a page that is a picture.
	Slow bool `json:",omitempty"`
}

// PlannedRange is a cut prepared by the format.
type PlannedRange struct {
	Range       sheaf.Range
	Cost        int             // in pages or their equivalent
	Hint        json.RawMessage // passed back in Options.Hint when the range is parsed
	Shard       string          // path under Options.TempDir of a file to parse instead of the original; "" for the original
	MediaType   string          // of the shard
	Fingerprint uint64
}
