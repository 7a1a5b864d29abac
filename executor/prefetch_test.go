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
