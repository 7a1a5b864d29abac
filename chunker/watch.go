package chunker

import "context"

// watchBytes is how much work is done between two context checks. At worst,
// counting the tokens of text without spaces, that takes about 50 ms.
const watchBytes = 16 << 10

// A watch stops the chunking of a range when its context ends. Loops exit when over
// returns true; what they have produced by then is discarded.
type watch struct {
	ctx  context.Context
	work int
	err  error // the cancellation cause, once seen
}

// over records work on about that many bytes and reports whether the context has
// ended. 0 is any small step.
func (w *watch) over(bytes int) bool {
	w.work += bytes + 64 // every step has a fixed cost
	if w.work >= watchBytes && w.err == nil {
		w.work, w.err = 0, context.Cause(w.ctx)
	}
	return w.err != nil
}
