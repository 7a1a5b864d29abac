package sheaf

import "slices"

// RangeOutline is what a range of a document without a table of contents knows
// of its headings. A range is read without those before it: what it begins under
// follows from the outlines of the others, in whichever order they come.
type RangeOutline struct {
	Under    []Heading `json:"under,omitempty"`    // in force at its start when its chunks were made, outermost first
	Headings []Heading `json:"headings,omitempty"` // that stand in it, in order
	Floors   []Floor   `json:"floors,omitempty"`   // in order of From
}

// Floor says that of the headings from before the range, those at Level or below
// are not in the path of the chunks from the From-th on: the range has headings
// of its own there. Level 0 means that all of them are.
type Floor struct {
	From  int `json:"from"` // index of a chunk in its range
	Level int `json:"level"`
}

// maxOutline bounds the headings of a range that are listed one by one.
const maxOutline = 500

// Add appends a heading. Beyond maxOutline only those are kept that a later
// range may begin under.
func (o *RangeOutline) Add(h Heading) {
	if len(o.Headings) >= maxOutline {
		o.Headings = Under(nil, o.Headings)
	}
	o.Headings = append(o.Headings, h)
}

// Under is the headings in force after those of more, where stack was before.
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

// Inherited is the titles of stack that a chunk has in its path above the
// headings of its own range; floor is Floor.Level.
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

// FloorOf is the floor of the n-th chunk.
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

// Stands reports whether the paths of a range's chunks, of which there are some,
// are the same under stack.
func (o *RangeOutline) Stands(stack []Heading) bool {
	return !slices.ContainsFunc(o.Floors, func(f Floor) bool {
		return !slices.Equal(Inherited(o.Under, f.Level), Inherited(stack, f.Level))
	})
}
