package sheaf

import (
	"strings"
	"unicode"
)

// The output of parsers, and of chunkers.

// Box is a rectangle on a unit, in points (1/72 inch) with the origin at the
// top left of the page as it is displayed.
type Box struct {
	Page int     `json:"page"`
	X0   float64 `json:"x0"`
	Y0   float64 `json:"y0"`
	X1   float64 `json:"x1"`
	Y1   float64 `json:"y1"`
}

// BlockKind is the role of a block in the document.
type BlockKind string

const (
	BlockHeading   BlockKind = "heading"
	BlockParagraph BlockKind = "paragraph"
	BlockListItem  BlockKind = "list_item"
	BlockTable     BlockKind = "table"
	BlockCode      BlockKind = "code"
	BlockQuote     BlockKind = "quote"
	BlockImage     BlockKind = "image"
	BlockCaption   BlockKind = "caption"
	BlockFootnote  BlockKind = "footnote"
)

// Span places the bytes [Start, End) of a block's text: usually one line.
type Span struct {
	Start, End int
	Box        Box
}

// Block is a piece of a document that reads as one: a heading, a paragraph, a
// table. Text is UTF-8 without control characters other than newline and tab.
// A table block has Table set and its Text empty; every other block has Text.
type Block struct {
	Kind  BlockKind
	Text  string
	Level int    // of a heading, 1 (outermost) to 6; nesting of a list item from 1
	Page  int    // the unit it starts on
	Spans []Span // in order, within Text; empty where the format has no geometry
	Table *Table
	Lang  string // of a code block: its programming language, when known
	Links []Link `json:",omitempty"` // in order of their text; nil where the format has none
	// Picture names the picture of an image block within the file, as passed to
	// parser.Illustrated; "" when there is none to draw. Such a block may have no Text:
	// the picture then belongs to the neighbouring block.
	Picture string `json:",omitempty"`
}

// Link is the target of the bytes [Start, End) of a block's text: an address, or a
// unit of the same document. In a table Start and End are rows; the header, if any,
// is row 0.
type Link struct {
	Start, End int
	URI        string // empty for a link inside the document
	Page       int    // 0 for an address
}

// Table is a grid of cells. Rows excludes the header. Every row has len(Columns)
// cells or, when Columns is empty, as many as the widest row.
type Table struct {
	Name     string   // sheet or caption, when known
	Columns  []string // header, one per column; nil when the table has none
	Types    []string // "text", "integer", "number", "date", "boolean" per column; nil when unknown
	Rows     [][]string
	FirstRow int         // unit number of Rows[0] where the unit is the row, else 0
	RowBoxes []Box       // one per row, or nil
	Box      *Box        // of the whole table, or nil
	Spans    []TableSpan `json:",omitempty"` // cells that span several columns or rows
}

// TableSpan is a cell that spans Rows × Columns places. Its text is in the first of
// them; the others are empty. Row counts from the header if the table has one,
// otherwise from Rows[0].
type TableSpan struct{ Row, Column, Rows, Columns int }

// UnitStatus is the verdict on one unit in the page ledger.
type UnitStatus string

const (
	UnitOK      UnitStatus = "ok"
	UnitOCR     UnitStatus = "ocr"     // text came from optical recognition
	UnitBlank   UnitStatus = "blank"   // opened, and contains nothing to read
	UnitSkipped UnitStatus = "skipped" // deliberately not read; the code says why
	UnitFailed  UnitStatus = "failed"  // could not be read; the code says why
)

// UnitResult is the outcome of one unit. For formats whose unit is the row, one
// result may cover a run of rows: Unit..LastUnit.
type UnitResult struct {
	Unit     int
	LastUnit int // 0 means Unit
	Status   UnitStatus
	Code     string // stable reason for skipped and failed
	Message  string
	Label    string  // printed page number or slide title, when it differs from Unit
	Width    float64 // points, as displayed; 0 where the format has no geometry
	Height   float64
	Blocks   []Block
	Running  []string `json:",omitempty"` // running headers and footers, one line each; not in any block
	Warnings []Warning
	Layout   string `json:"-"` // for parser.Agreeing: bytes
	// Detail is the parser process's last output before it stopped on this unit: at
	// most 4 KB of UTF-8. Only the supervising process sets it; results sent by the
	// parser never have it. It may quote the document.
	Detail string `json:",omitempty"`
}

// Heading is an entry of a document's outline.
type Heading struct {
	Level int    `json:"level"`
	Title string `json:"title"`
	Page  int    `json:"page"` // unit on which it starts
}

// LedgerRun gives the units From..To one verdict.
type LedgerRun struct {
	From    int        `json:"from"`
	To      int        `json:"to"`
	Status  UnitStatus `json:"status"`
	Code    string     `json:"code,omitempty"`
	Message string     `json:"message,omitempty"`
}

// Ledger holds the verdicts on a range's units: sorted, disjoint, without gaps.
type Ledger []LedgerRun

// Add appends a verdict on units from..to, merging it into the last run when the two
// are identical. Calls must come in order.
func (l Ledger) Add(run LedgerRun) Ledger {
	if n := len(l); n > 0 {
		last := &l[n-1]
		if last.To+1 == run.From && last.Status == run.Status && last.Code == run.Code && last.Message == run.Message {
			last.To = run.To
			return l
		}
	}
	return append(l, run)
}

// LedgerCounts is a ledger summed by status.
type LedgerCounts struct {
	OK      int `json:"ok"`
	OCR     int `json:"ocr"`
	Blank   int `json:"blank"`
	Skipped int `json:"skipped"`
	Failed  int `json:"failed"`
}

// Total is the number of units accounted for.
func (c LedgerCounts) Total() int { return c.OK + c.OCR + c.Blank + c.Skipped + c.Failed }

// Add counts n units under a status.
func (c *LedgerCounts) Add(s UnitStatus, n int) {
	switch s {
	case UnitOK:
		c.OK += n
	case UnitOCR:
		c.OCR += n
	case UnitBlank:
		c.Blank += n
	case UnitSkipped:
		c.Skipped += n
	case UnitFailed:
		c.Failed += n
	}
}

// Counts sums the ledger.
func (l Ledger) Counts() LedgerCounts {
	var c LedgerCounts
	for _, r := range l {
		c.Add(r.Status, r.To-r.From+1)
	}
	return c
}

// ChunkKind is the role of a chunk's text.
type ChunkKind string

const (
	ChunkText  ChunkKind = "text"
	ChunkTable ChunkKind = "table"
	ChunkCode  ChunkKind = "code"
	ChunkImage ChunkKind = "image"
	// ChunkSummary is a summary of other chunks, made by a run over the dataset.
	ChunkSummary ChunkKind = "summary"
)

// Chunk is the piece of a document that search returns. It is immutable: it belongs
// to one range result forever, and is visible exactly while a live generation lists
// that range.
type Chunk struct {
	ID          string            `json:"id"`
	DocumentID  string            `json:"document_id"`
	Generation  int               `json:"generation"`
	RangeID     string            `json:"range_id"`
	Ordinal     int               `json:"ordinal"` // position in the document: grows with reading order
	Kind        ChunkKind         `json:"kind"`
	Text        string            `json:"text"`
	Tokens      int               `json:"tokens"` // cl100k_base
	Pages       []int             `json:"pages"`
	Boxes       []Box             `json:"boxes"`
	HeadingPath []string          `json:"heading_path"`
	Floor       int               `json:"-"`                 // only while chunks are being made; see Floor
	Columns     map[string]any    `json:"columns,omitempty"` // of a table: each column's type; of a single row (method table): its values
	Metadata    map[string]string `json:"metadata,omitempty"`
	// Role is "" for an ordinary chunk; otherwise the chunk repeats text of others.
	Role ChunkRole `json:"role,omitempty"`
	// Parent is the text that a child was cut from; "" for all others.
	Parent string `json:"parent,omitempty"`
	// Context is text surrounding the chunk, or text that situates it. It is embedded
	// and indexed before Text but is not part of the citation.
	Context   string   `json:"context,omitempty"`
	Keywords  []string `json:"keywords,omitempty"`
	Questions []string `json:"questions,omitempty"` // that the chunk answers
	Language  string   `json:"language,omitempty"`  // of Text, ISO 639-1; "" when unknown
	Tags      []Tag    `json:"tags,omitempty"`      // best first
	// Summaries only. Layer is 1 for a summary of chunks, otherwise one more than the
	// layer it summarizes; Children are the ids of the chunks (or summaries) it
	// summarizes.
	Layer    int      `json:"layer,omitempty" doc:"for a summary: 1 if it summarizes chunks, otherwise one more than the layer it summarizes"`
	Children []string `json:"children,omitempty" doc:"for a summary: ids of the chunks and summaries it summarizes"`
}

// Tag is a label of a chunk: in a tag set, its own; otherwise one taken from the
// nearest chunks of a tag set.
type Tag struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"` // above 0, at most 1
}

// MetadataTitle is the metadata key of a document's title, which its chunks carry:
// the one in the file, or the one given at upload.
const MetadataTitle = "title"

// Place returns the chunk's position in words: its document's title and the headings
// above the chunk, outermost first. The title is omitted when it is empty or when
// the file's name or the first heading already says it.
func (c *Chunk) Place(name string) []string {
	title := strings.Join(strings.Fields(c.Metadata[MetadataTitle]), " ")
	said := lettersOf(title)
	switch {
	case said == "" || said == "untitled" || strings.HasPrefix(lettersOf(name), said):
		return c.HeadingPath
	case len(c.HeadingPath) > 0 && lettersOf(c.HeadingPath[0]) == said:
		return c.HeadingPath
	}
	return append([]string{title}, c.HeadingPath...)
}

// lettersOf keeps letters and digits, in lower case.
func lettersOf(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}

// MetadataLinks is the key of a chunk's metadata that holds the addresses its text
// links to, one per line.
const MetadataLinks = "links"

// MetadataLabels is the key of a chunk's metadata that holds the document's own
// names for the chunk's pages or parts, one per line: printed page numbers, times in
// a recording, names of attachments. It is absent when these are plain unit numbers.
const MetadataLabels = "labels"

// MetadataFigures is the key of a chunk's metadata that locates figures: those whose
// captions the chunk holds, and those without a caption that follow its text. One
// line each, "page:x0,y0,x1,y1", in points as in Box, including the caption.
const MetadataFigures = "figures"

// MetadataPictures is the key of a chunk's metadata that names the pictures in the
// file, one per line, that the chunk describes, captions, or is followed by. The
// names are valid only for this version of the file.
const MetadataPictures = "pictures"

// MetadataAdded is the key of a chunk's metadata that lists, space-separated, the
// names that flow nodes added to it.
const MetadataAdded = "added"

// MetadataPersonal is the key of a chunk's metadata that lists the kinds of personal
// data its text contains, or contained before redaction: EMAIL, PHONE, CARD, IBAN,
// IP, NATIONAL_ID, one per line. It is present when the setting pii asks for it.
const MetadataPersonal = "personal_data"

// MetadataLayer is the key of a summary's metadata that holds its Layer; only
// summaries have it.
const MetadataLayer = "summary_layer"

// ChunkRole distinguishes chunks that repeat text of others from ordinary ones.
type ChunkRole string

const (
	RoleChild    ChunkRole = "child"    // part of Parent
	RoleContents ChunkRole = "contents" // a list of headings
	RoleSummary  ChunkRole = "summary"  // sentences of a section
)

// OrdinalBase is the ordinal of the first chunk of a range that starts at unit from.
// Ranges are chunked independently, but ordinals must increase across the document.
// A range may hold up to 1<<16 chunks per unit.
func OrdinalBase(from int) int { return from << 16 }
