package notebook

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/markdown"
)

func registry() *parser.Registry { return parser.NewRegistry(New(registry), markdown.New()) }

const sample = `{"nbformat": 4, "metadata": {"language_info": {"name": "python"}}, "cells": [
 {"cell_type": "markdown", "source": ["# Title\n", "Some *prose*.\n"]},
 {"cell_type": "code", "source": "print('` + "```" + `')", "outputs": [
  {"output_type": "stream", "text": ["one\n", "two"]},
  {"output_type": "execute_result", "data": {"text/plain": "42", "image/png": "AAAA"}},
  {"output_type": "error", "ename": "ValueError", "evalue": "\u001b[31mbad\u001b[0m", "traceback": ["long"]}]},
 {"cell_type": "raw", "source": "as it is"}]}`

var options = parser.Options{Name: "document.ipynb", MediaType: MediaType}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), []byte(sample), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestVersionThreeIsRead(t *testing.T) {
	_, units, err := formattest.Read(t, New(registry), []byte(`{"nbformat": 3, "worksheets": [{"cells": [
	 {"cell_type": "heading", "level": 2, "source": "Head"}, {"cell_type": "code", "language": "r", "input": ["x <- 1"]}]}]}`), options, nil)
	if err != nil || len(units) != 1 || len(units[0].Blocks) != 2 {
		t.Fatal(units, err)
	}
	if h, c := units[0].Blocks[0], units[0].Blocks[1]; h.Kind != sheaf.BlockHeading || h.Level != 2 || c.Kind != sheaf.BlockCode || c.Lang != "r" || c.Text != "x <- 1" {
		t.Errorf("%+v %+v", h, c)
	}
}

func TestWhatIsNoNotebookIsAFailure(t *testing.T) {
	for content, code := range map[string]string{
		"": "empty_file", "[1": "invalid_notebook", "[]": "invalid_notebook", "{}": "empty_file",
		`{"cells": [{"cell_type": "code", "source": " \n"}]}`:    "empty_file",
		`{"cells": [` + strings.Repeat(`{},`, maxCells) + `{}]}`: "too_large",
	} {
		_, _, err := formattest.Read(t, New(registry), []byte(content), options, nil)
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != code {
			t.Errorf("%.40q: %v", content, err)
		}
	}
}

func TestLongOutputIsClipped(t *testing.T) {
	_, units, err := formattest.Read(t, New(registry), []byte(`{"cells": [{"cell_type": "code", "outputs": [{"text": "`+strings.Repeat("x ", maxOutputBytes)+`"}]}]}`), options, nil)
	if err != nil || len(units[0].Blocks) != 1 || len(units[0].Blocks[0].Text) > maxOutputBytes {
		t.Fatal(len(units[0].Blocks), err)
	}
}

// What a cell shows is read in the form that says it, and what is left out is counted.
func TestRichOutputIsRead(t *testing.T) {
	display := func(data string) string {
		return `{"cell_type": "code", "source": "show()", "outputs": [{"output_type": "display_data", "data": {` + data + `}}]}`
	}
	plan, units, err := formattest.Read(t, New(registry), []byte(`{"cells": [`+strings.Join([]string{
		display(`"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": ["# Result\n", "\n", "The pump *turns*."]`),
		display(`"text/plain": "<IPython.core.display.HTML object>", "text/html": "<table><tr><th>a</th></tr>\n\n<tr><td>one</td></tr></table>"`),
		display(`"text/html": "<p>No plain form</p>"`),
		display(`"text/plain": "   a\n0  1", "text/html": "<table><tr><td>1</td></tr></table>"`),
		display(`"text/plain": "<Figure size 640x480>", "image/png": "AAAA", "image/svg+xml": "<svg/>"`),
		display(`"text/plain": "` + strings.Repeat("x ", maxOutputBytes) + `"`),
	}, ",")+`]}`), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range units[0].Blocks {
		switch {
		case b.Table != nil:
			got = append(got, fmt.Sprint("table ", b.Table.Columns, b.Table.Rows))
		case b.Text != "show()" && len(b.Text) < 100:
			got = append(got, string(b.Kind)+" "+b.Text)
		}
	}
	want := "heading Result|paragraph The pump turns.|table [a] [[one]]|paragraph No plain form|code    a\n0  1|code <Figure size 640x480>"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("got\n%s, want\n%s", s, want)
	}
	var codes []string
	for _, w := range plan.Warnings {
		codes = append(codes, w.Code+" "+w.Message)
	}
	if s := strings.Join(codes, "|"); s != "images_ignored Pictures in the output of cells (1) were not read.|output_clipped Outputs of cells (1) were read up to 16 KB each." {
		t.Errorf("%s", s)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "original")
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := options
	o.TempDir = dir
	d, err := New(registry).Open(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Fatalf("%v is left, %v", left, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
