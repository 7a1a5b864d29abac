package sheaf

import "fmt"

// Preview is what settings make of some units of a document.
type Preview struct {
	Unit   Unit
	Range  Range       // what was read, as one range
	Chunks []Chunk     // of all of it, in reading order
	Ledger Ledger      // of all of it
	Config ParseConfig // that it was read with: those of the document's flow, and the defaults, are in it
	Notes  []string    // sentences: what a parse would do besides
}

// ErrNotPlanned says that nobody has counted the units of a document yet.
var ErrNotPlanned = fmt.Errorf("%w: the document has not been parsed yet; its preview is there when its pages have been counted", ErrConflict)
