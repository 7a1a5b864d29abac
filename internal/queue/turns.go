package queue

import "sheaf"

// Within a lane the hint nearest to publishing a document goes first. Two turns are
// reserved for hints that would otherwise starve: a large document progresses beside
// small ones, and what has waited long is served regardless of what has started
// since. The script that takes from Redis has the same turns.
const (
	BulkEvery = 4  // one in this many hints of a lane is bulk, if there is any
	AgedEvery = 16 // one in this many hints of a lane is the longest-waiting, if aged
)

// Turns counts what a tenant's lanes have handed out. The zero value is ready to
// use. It is not safe for concurrent use.
type Turns struct{ taken [len(sheaf.Lanes) + 1]int }

// Next removes the hint whose turn it is from hints, which is not empty and in the
// order of taskstore.Feed.Runnable.
func (t *Turns) Next(hints []sheaf.Hint) (next sheaf.Hint, rest []sheaf.Hint) {
	lane := hints[0].ServedIn()
	turn := t.taken[lane] + 1
	t.taken[lane] = turn % AgedEvery // which BulkEvery divides
	at := -1
	switch {
	// guard: turns: what is aged is served whatever begins
	case turn%AgedEvery == 0:
		for i, h := range hints {
			if h.ServedIn() == lane && h.Aged && (at < 0 || h.Place.Before(hints[at].Place)) {
				at = i
			}
		}
	// guard: turns: the bulk has its share
	case turn%BulkEvery == 0:
		for i, h := range hints {
			if h.ServedIn() == lane && h.Phase == sheaf.PhaseBulk {
				at = i
				break
			}
		}
	}
	if at <= 0 {
		return hints[0], hints[1:]
	}
	next = hints[at]
	copy(hints[1:at+1], hints[:at]) // the gap moves to the front
	return next, hints[1:]
}
