package executor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf"
)

func TestOutlinesAreBoundedAndForgotten(t *testing.T) {
	o := newOutlines(nil)
	read := func(document string, from, bytes int) {
		end := o.begin(&sheaf.Task{DocumentID: document, Generation: 1, Range: sheaf.Range{From: from, To: from}})
		end([]sheaf.Heading{{Level: 1, Title: strings.Repeat("x", bytes), Page: from}}, true)
	}
	for i := range 5 {
		read(fmt.Sprint("d", i), 1, maxOutline/4)
	}
	if got := o.documents(); !slices.Equal(got, []string{"d2", "d3", "d4"}) || o.bytes > maxOutline {
		t.Errorf("held are %v with %d bytes, want what fits into %d", got, o.bytes, maxOutline)
	}
	read("d4", 2, maxOutline) // more than may be held
	if got := o.documents(); len(got) > 0 || o.bytes != 0 {
		t.Errorf("held are %v with %d bytes", got, o.bytes)
	}
	read("a", 1, 10)
	read("b", 1, 10)
	o.forget([]string{"a", "z"})
	if got := o.documents(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("held are %v, want b", got)
	}
	o.forget([]string{"b"})
	if o.bytes != 0 {
		t.Errorf("%d bytes of nothing", o.bytes)
	}
	for i := range 2 * maxOutlined {
		read(fmt.Sprint("n", i), 1, 10)
	}
	if n := len(o.documents()); n != maxOutlined || len(o.docs) != n {
		t.Errorf("%d documents are held, want %d", n, maxOutlined)
	}
}

// The headings of what a plan reuses are known where it was planned, without the
// store, unless nothing is read that could ask for them.
func TestPlannedRangesAreKnown(t *testing.T) {
	o := newOutlines(nil) // asking it would panic
	task := &sheaf.Task{DocumentID: "d", Generation: 2, Range: sheaf.Range{From: 25, To: 36}}
	reused := func(from, to int, headings ...sheaf.Heading) sheaf.NewTask {
		return sheaf.NewTask{Range: sheaf.Range{From: from, To: to}, Done: &sheaf.TaskResult{Outline: &sheaf.RangeOutline{Headings: headings}}}
	}
	tasks := []sheaf.NewTask{reused(1, 12, sheaf.Heading{Level: 1, Title: "Part", Page: 3}), reused(13, 24, sheaf.Heading{Level: 2, Title: "Section", Page: 20})}
	if o.planned(task, tasks); len(o.documents()) != 0 {
		t.Errorf("%v is held, though nothing is read", o.documents())
	}
	o.planned(task, append(tasks, sheaf.NewTask{Range: task.Range}))
	if got := fmt.Sprint(o.before(t.Context(), task)); got != "[{1 Part 3} {2 Section 20}]" {
		t.Errorf("the range begins under %s", got)
	}
}
