package sheaf

import "fmt"

// Preview is the result of applying settings to some units of a document.
type Preview struct {
	Unit   Unit
	Range  Range       // what was read, as one range
	Chunks []Chunk     // of all of it, in reading order
	Ledger Ledger      // of all of it
	Config ParseConfig // as used, including the flow's settings and the defaults
	Notes  []string    // sentences: what a parse would do in addition
}

// ErrNotPlanned says that the units of a document have not been counted yet.
var ErrNotPlanned = fmt.Errorf("%w: the document has not been parsed yet; its preview is there when its pages have been counted", ErrConflict)
