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
)
