package chunker

import "context"

// watchBytes is how much work is done between two looks at the context. The
// slowest work, counting the tokens of text without spaces, takes about 50 ms
// for so much.
const watchBytes = 16 << 10

// A watch ends the chunking of a range whose context has ended. Loops leave when
// over is true; what they have made by then is thrown away.
type watch struct {
	ctx  context.Context
	work int
	err  error // the cause of the context's end, once it was seen
}

// over notes work on about so many bytes and reports whether the context has
// ended. 0 is any small step.
func (w *watch) over(bytes int) bool {
	w.work += bytes + 64 // a step has a cost by itself
	if w.work >= watchBytes && w.err == nil {
		w.work, w.err = 0, context.Cause(w.ctx)
	}
	return w.err != nil
}
