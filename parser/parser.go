// Package parser turns bytes into blocks: the first stage after a task is
// claimed. Each format declares what it can do; the code runs in a child
// process (parser/child), which is killed when it takes too long or too much.
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
	// Options lists the fields of sheaf.ParseConfig (by JSON name) that this
	// format reads, besides pages. Only those go into its digest.
	Options() []string
	// Open reads as little of the file as it must. The error is a
	// *sheaf.Failure that says what is wrong with the file.
	Open(ctx context.Context, f *os.File, o Options) (Document, error)
}

// Optional is implemented by formats that need a program or a service that is
// no part of this binary.
type Optional interface {
	// Available is nil when the part is there, else the *sheaf.Failure
	// part_missing, whose sentence names what to install or to set. It is
	// asked at every upload and so must be quick.
	Available() error
}

// Available says whether f can read files here: see Optional.
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

// Options are the request's settings and the place for temporary files.
type Options struct {
	Name      string // of the document, for messages and by extension
	MediaType string
	Config    sheaf.ParseConfig
	TempDir   string // exists, private to this document, removed by the caller
	// Hint is that of the range about to be parsed (see PlannedRange, Agreeing),
	// nil when planning: also after a trip through JSON, where nil is "null".
	Hint json.RawMessage `json:",omitempty"`
	// Fill makes bytes of the file present, which else are holes, before they
	// are read; nil when all of it is there. Only Sparse formats get one.
	// Where it fails the process ends: what would be read is not the file.
	Fill func(offset, length int64) `json:"-"`
	// Note tells who runs the service that something was done another way than
	// it should be, which changes nothing of what is read. May be nil.
	Note func(text string) `json:"-"`
}

// Sparse is implemented by formats that look at a few places of a file to read
// a range of it, and honor Options.Fill.
type Sparse interface{ Sparse() }

// Agreeing is implemented by formats that read a unit by what stands on those
// nearby, which may be in other ranges.
type Agreeing interface {
	// Agree takes what the ranges of a document have reported, in order: of each
	// the UnitResult.Layout of its units, one after another. It returns for each
	// the Hint by which it has to be read again, nil where it stands. A range that
	// was read by its Hint stands. What is damaged is taken for what it still says.
	Agree(layouts [][]byte) []json.RawMessage
}

// Document is an open file. It is used by one goroutine at a time.
type Document interface {
	// Plan counts units and says how the file may be cut.
	Plan(ctx context.Context) (*Plan, error)
	// Parse reads the units of r in order and calls emit for each exactly once,
	// or once for a run of units (UnitResult.LastUnit). A unit that cannot be
	// read is emitted as failed, not returned as an error; an error means that
	// the rest of the range was not read. emit's error stops and is returned.
	Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error
	io.Closer
}

// Renderer is implemented by documents whose units can be drawn.
type Renderer interface {
	// Render draws unit n, or of it what lies in clip (its Page is not read),
	// at dpi as a PNG or JPEG. A clip that is nil or reaches out of the page is
	// the page.
	Render(ctx context.Context, n, dpi int, clip *sheaf.Box) (image []byte, mediaType string, err error)
}

// Illustrated is implemented by documents that hold pictures without being
// drawn by the page.
type Illustrated interface {
	// Picture draws the picture of that name (sheaf.Block.Picture) as a JPEG of
	// at most side pixels to a side. The error is a *sheaf.Failure: no_picture
	// where the file holds none of that name.
	Picture(ctx context.Context, name string, side int) (jpeg []byte, err error)
}

// PictureOf is the picture of that name in d, which may be no Illustrated.
func PictureOf(ctx context.Context, d Document, name string, side int) (jpeg []byte, err error) {
	if i, ok := d.(Illustrated); ok {
		return i.Picture(ctx, name, side)
	}
	return nil, sheaf.Fail(sheaf.CategoryBadInput, "no_picture", "This kind of file contains no images.")
}

// Container is implemented by formats whose files hold other files, which
// become documents of their own: their documents are Unpackers. Where such a
// file lies inside another, it is parsed like any file.
type Container interface {
	Format
	HoldsFiles()
}

// Unpacker is implemented by documents of a Container.
type Unpacker interface {
	// Unpack writes files into Options.TempDir, from the from-th (1-based) on,
	// and ends after a bounded number of bytes.
	Unpack(ctx context.Context, from int) (*Unpacked, error)
}

// Unpacked is a run of the files that a container holds.
type Unpacked struct {
	Members  []Member // in order; the first is the one that was asked for
	Next     int      // the member to go on with; 0 when these were the last
	Warnings []sheaf.Warning
}

// Member is a file in a container.
type Member struct {
	N      int    // 1-based
	Path   string // cleaned: relative, and fit to be shown
	File   string // path under Options.TempDir; "" for one that was not unpacked
	Size   int64  // bytes
	SHA256 string // hex
	// Why it was not unpacked; Status is empty where it was.
	Status  sheaf.UnitStatus
	Code    string
	Message string
}

// Plan is what a document is made of.
type Plan struct {
	Unit      sheaf.Unit
	Units     int
	RangeSize int // units per task; 0 means the format cannot split: one task for all
	// Fingerprints holds one content hash per unit (index 0 is unit 1), or is
	// nil when the format has none and the whole file's hash must serve.
	Fingerprints []uint64
	// Ranges, when not nil, are the only cuts the format allows, with what
	// Parse needs to reach each; together they cover 1..Units.
	Ranges   []PlannedRange
	Metadata map[string]string // title, author, subject, keywords, producer, created, modified, language, …
	Outline  []sheaf.Heading   // in document order; nil when there is none
	Warnings []sheaf.Warning
}

// PlannedRange is a cut that the format prepared.
type PlannedRange struct {
	Range       sheaf.Range
	Cost        int             // in pages or their equivalent
	Hint        json.RawMessage // given back in Options.Hint when the range is parsed
	Shard       string          // path under Options.TempDir of a file to parse in place of the original; "" for the original
	MediaType   string          // of the shard
	Fingerprint uint64
}
