package pdf

const (
	leastFigureRows    = 3
	leastFigureColumns = 2
	mostSideWords      = 4
	rowGap             = 2.4
	widerRow           = 40
	mostLabelLines     = 4
	mostNameWords      = 8
	mostHeaderLines    = 6
	headerGap          = 1.3
	leastInColumn      = 2
	tightGap           = 0.5
	rowOverlap         = 0.35
	mostGroupNames     = 2
	mostSpread         = 2

	runningZone      = 0.13 // of the page's height at either edge
	runningLines     = 3    // looked at per edge
	numberDrift      = 24
	mostHeadingLines = 3
	crossedGap       = 0.6
	mostCrossed      = 4
	wideLine         = 0.6
	leastSegments    = 8
	proseWords       = 4
	proseChars       = 18
	proseRunes       = 24
	proseLines       = 3
	proseShare       = 0.6
	levelSlack       = 0.25
	levelShare       = 0.4
	stretchedGap     = 2.5
	stretchedSlack   = 0.12
	stretchedWords   = 4
)

// gutterSearch says what a gutter is: at most share of the mean height of text
// stands in it, of segments that are at most widest of the region's width.
type gutterSearch struct{ share, widest float32 }

// gutterSearches are tried in turn.
var gutterSearches = [...]gutterSearch{{0.35, 1}, {0.35, 0.6}, {0.65, 1}}
