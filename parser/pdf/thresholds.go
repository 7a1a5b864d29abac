package pdf

// The layout thresholds. Each is named here once, with its unit and source; em is
// the font height. What guards a group is a part of `go run ./bench/fidelity`,
// named by its -only flag: measure there before and after changing a threshold.

// Words. Source: PDFium's output for the corpus; guarded by -only pdf.
const (
	mostRedrawn = 4_000 // words that a word is compared with to find text drawn twice
	rowPoints   = 4     // points: height of the rows in which words drawn twice are searched
	mostRows    = 8     // rows spanned by the tolerance of large letters
)

// Segments, lines and columns. Source: two- and three-column pages of the
// corpus and the manuals; guarded by -only facts and, for order, -only pdf.
const (
	cellGap        = 0.9  // em: gap at which words on a baseline are separate texts: wider than in justified lines, narrower than a gutter
	stretchedGap   = 2.5  // em: widest gap in a line justified to the column's width
	stretchedSlack = 0.12 // em by which the gaps of a justified line differ: engines round
	stretchedWords = 4    // words of a justified line: two equal gaps are chance
	maxSplits      = 5    // nesting of columns
	leastSegments  = 8    // of a region that is divided
	wideLine       = 0.6  // of a region's width: such a line may divide it, while a line of one of two columns is shorter
	proseWords     = 4    // of a line of running text, with
	proseChars     = 18   // characters; or, in scripts without spaces,
	proseRunes     = 24   // bytes
	proseLines     = 3    // of running text make a column
	proseShare     = 0.6  // of the characters on one side are in such lines
	levelSlack     = 0.25 // em by which lines on one baseline differ
	levelShare     = 0.4  // of a sidebar's lines may share a baseline with the text beside it; in rows of cells more do
)

// gutterSearch defines a gutter: text covers at most share of its mean height
// there, counting segments at most widest of the region's width.
type gutterSearch struct{ share, widest float32 }

// gutterSearches are tried in turn: as is, without titles over both columns, and
// with many lines that cross it.
var gutterSearches = [...]gutterSearch{{0.35, 1}, {0.35, wideLine}, {0.65, 1}}

// Running lines. Source: reports and manuals; guarded by -only pdf, which counts
// running lines with the text, and by the package's tests.
const (
	runningZone  = 0.13 // of the page's height at either edge
	runningLines = 3    // examined per edge
	numberDrift  = 24   // pages by which a printed number differs from the page's position: covers and contents precede page 1
)

// Blocks. Source: headings of the corpus compared with its bookmarks; guarded by
// -only chunks (under a heading) and the package's golden files.
const (
	headingRatio     = 1.17 // of the body's font height
	sentenceRatio    = 1.45 // of the body's font height, of a heading that ends like a sentence
	boldRatio        = 0.88 // of the body's font height, of a bold heading
	headingChars     = 160  // bytes of a heading's line
	boldChars        = 100  // bytes of a bold heading's line that is no larger than the body
	mostHeadingLines = 3    // bold lines in a row; more are a paragraph
	leaderDots       = 4    // consecutive leader dots; three are an ellipsis
)

// Pages without text. Source: scans of the corpus; guarded by the package's tests.
const (
	fewChars   = 24 // fewer next to a large picture are a stamp on a scan
	fewObjects = 5  // fewer drawings are a frame on an empty page
	// Along the edges of a scan, up to:
	stampChars = 300  // of text are a stamp
	scanShare  = 0.75 // of the page covered by one picture
	stampZone  = 0.08 // of the height from the upper or lower edge
	stampSide  = 0.06 // of the width from the left or right edge
)

// minStreamRows is for tables drawn with white space. Source: the ICDAR 2013
// competition; guarded by -only tables.
const minStreamRows = 3 // with cells

// Tables with rules. Source: the ICDAR 2013 competition; guarded by -only tables.
const (
	minRules     = 3     // of a page with a grid
	maxGridRules = 1_200 // of a page, after joining; more are a drawing
	ruleSlack    = 2.5   // points by which crossing rules may miss each other
	mostSpanned  = 120   // words in one cell that is checked for white space
	crossedGap   = 0.6   // em between words on both sides of a rule: cells have a margin
	mostCrossed  = 4     // such pairs per row of a grid; more are prose
	minBandRules = 3     // of a table with only horizontal rules
	leastRule    = 80    // points: shorter rules underline a word or precede a footnote
	sameEnd      = 4     // points by which the ends of a table's rules may differ
	mostRowLines = 14    // per row; more is two columns of prose between rules
	mostBands    = 400   // per table
	minRowShare  = 0.5   // of the rows must have two cells
	besideRows   = 60    // points above and below the rules in which rows without a rule are searched
	minCutLines  = 2     // that continue beside a drawn block: one may be chance
)

// Tables of figures. Source: statements of annual and quarterly reports;
// guarded by -only rows.
const (
	leastFigureRows    = 3    // with figures
	leastFigureColumns = 2    // of figures
	leastInColumn      = 2    // figures per column
	mostSideWords      = 4    // of a text beside a row that counts as its cell; more is a neighbouring column
	mostNameWords      = 8    // of a name that spans the figures; more is prose
	mostLabelLines     = 4    // without figures between two rows
	mostHeaderLines    = 6    // above the first row
	mostGroupNames     = 2    // of rows, between the header and the first figures
	mostSpread         = 2    // columns to either side of a centred name
	rowGap             = 2.4  // em between rows: statements leave an empty line before totals
	headerGap          = 1.3  // em between the lines of a header
	tightGap           = 0.5  // em between the lines of one cell
	rowOverlap         = 0.35 // em by which a label and figures set higher or lower overlap
	widerRow           = 40   // points by which a row or a name may extend beyond its block
)
