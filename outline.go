package sheaf

import "slices"

// RangeOutline holds the headings of one range of a document without a table of
// contents. A range is read independently of those before it, so the headings it
// starts under are derived from the outlines of the others, whatever their order.
type RangeOutline struct {
	Under    []Heading `json:"under,omitempty"`    // in force at its start when its chunks were made, outermost first
	Headings []Heading `json:"headings,omitempty"` // within it, in order
	Floors   []Floor   `json:"floors,omitempty"`   // in order of From
}

// Floor says which headings from before the range are in the path of its chunks from
// index From on: those above Level, because from there the range has its own
// headings at Level and below. Level 0 means all of them.
type Floor struct {
	From  int `json:"from"` // index of a chunk in its range
	Level int `json:"level"`
}

// maxOutline bounds the headings of a range that are listed one by one.
const maxOutline = 500

// Add appends a heading. Beyond maxOutline, only headings that a later range may
// start under are kept.
func (o *RangeOutline) Add(h Heading) {
	if len(o.Headings) >= maxOutline {
		o.Headings = Under(nil, o.Headings)
	}
	o.Headings = append(o.Headings, h)
}

// Under returns the headings in force after more, starting from stack.
func Under(stack, more []Heading) []Heading {
	stack = slices.Clone(stack)
	for _, h := range more {
		for n := len(stack); n > 0 && stack[n-1].Level >= h.Level; n-- {
			stack = stack[:n-1]
		}
		stack = append(stack, h)
	}
	return stack
}

// Inherited returns the titles of stack that precede the range's own headings in a
// chunk's path; floor is Floor.Level.
func Inherited(stack []Heading, floor int) []string {
	var titles []string
	for _, h := range stack {
		if floor > 0 && h.Level >= floor {
			break
		}
		titles = append(titles, h.Title)
	}
	return titles
}

// FloorOf returns the floor of the n-th chunk.
func (o *RangeOutline) FloorOf(n int) int {
	level := 0
	for _, f := range o.Floors {
		if f.From > n {
			break
		}
		level = f.Level
	}
	return level
}

// Stands reports whether the paths of a range's chunks would be the same under
// stack. The range must have chunks.
func (o *RangeOutline) Stands(stack []Heading) bool {
	return !slices.ContainsFunc(o.Floors, func(f Floor) bool {
		return !slices.Equal(Inherited(o.Under, f.Level), Inherited(stack, f.Level))
	})
}
