package docling

import (
	"reflect"
	"testing"

	"sheaf"
)

// A task's id says all that its result needs; what is no id names no task.
func TestTaskIDs(t *testing.T) {
	const job = "01a20a15c96e70009778f913b1690c7a"
	for _, want := range []task{
		{job, plan{formats: []string{"md"}}},
		{job, plan{formats: []string{"html", "json"}, zip: true, ignored: []string{"do_magic", "force_ocr"}}},
		{job, plan{formats: []string{"text"}, chunker: "hybrid", includeDoc: true, raw: true}},
		{job, plan{formats: []string{"json"}, batch: true}},
	} {
		if got, err := taskOf(want.id()); err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v, want %+v", want.id(), got, err, want)
		}
	}
	for _, id := range []string{"", job, job + ".convert.md", job + ".convert.exe.", job + ".magic.md.", "x.convert.md.", job + ".convert.md..", "../" + job + ".convert.md."} {
		if got, err := taskOf(id); err == nil {
			t.Errorf("%q names %+v", id, got)
		}
	}
}

// The elements of a passage are read back from its text.
func TestElements(t *testing.T) {
	boxes := []sheaf.Box{{Page: 2, X0: 1, Y0: 2, X1: 30, Y1: 40}, {Page: 3, X0: 1, Y0: 2, X1: 50, Y1: 20}}
	got := itemsOf([]sheaf.Chunk{
		{HeadingPath: []string{"A", "B"}, Boxes: boxes, Text: "B\n\none\ntwo\n\n```go\nx := 1\n\n| no | table |\n```\n\n| a | b\\|c |\n| --- | :-: |\n| 1 |  |\n\n| last"},
		{Kind: sheaf.ChunkImage, Text: "a heron"},
		{Text: "```\nnever closed"},
	})
	want := []item{
		{label: "section_header", text: "B", level: 2, boxes: boxes[:1]},
		{label: "text", text: "one\ntwo", boxes: boxes},
		{label: "code", text: "x := 1\n\n| no | table |", lang: "go", boxes: boxes},
		{label: "table", rows: [][]string{{"a", "b|c"}, {"1", ""}}, boxes: boxes},
		{label: "text", text: "| last", boxes: boxes},
		{label: "picture", text: "a heron", chunk: 1},
		{label: "code", text: "never closed", chunk: 2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if text := got[3].markdown(); text != "| a | b\\|c |\n| --- | --- |\n| 1 |  |" {
		t.Errorf("a table is written %q", text)
	}
}
