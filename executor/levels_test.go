package executor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/pdf"
	"sheaf/parser/pdf/enginetest"
	"sheaf/taskstore"
)

// mixedPrint draws a PDF of parts that are set in different sizes, under running
// headers that change, look like headings or stand on a few pages alone, so that
// a range of it often takes its letters for others than the whole file does.
func mixedPrint(t *rapid.T) enginetest.File {
	var f enginetest.File
	pages, word := rapid.IntRange(2, 40).Draw(t, "pages"), 0
	for len(f.Pages) < pages {
		size := rapid.SampledFrom([]float64{8, 9, 10, 10, 11}).Draw(t, "size")
		header := rapid.SampledFrom([]string{"", "Annual Report", "Annual Report", "Part of the Year", "Table of Birds"}).Draw(t, "header")
		font, large := rapid.SampledFrom([]string{"F1", "F2"}).Draw(t, "font"), rapid.SampledFrom([]float64{8, 10, 14}).Draw(t, "large")
		dense := rapid.IntRange(2, 12).Draw(t, "lines")
		for range rapid.IntRange(1, 14).Draw(t, "part") {
			n := len(f.Pages) + 1
			c := enginetest.Text("F1", 9, 300, 30, fmt.Sprint(n))
			if header != "" {
				c += enginetest.Text(font, large, 72, 760, header)
				if rapid.Bool().Draw(t, "beside") {
					c += enginetest.Text(font, large, 400, 760, fmt.Sprintf("Page %d", n))
				}
			}
			y := 640.0
			for range rapid.IntRange(0, dense).Draw(t, "blocks") {
				if rapid.IntRange(0, 3).Draw(t, "heading") == 0 {
					h := rapid.SampledFrom([]float64{10, 11, 12, 14, 16, 20}).Draw(t, "height")
					c += enginetest.Text(rapid.SampledFrom([]string{"F1", "F2"}).Draw(t, "weight"), h, 72, y, fmt.Sprintf("Section about bird %d", rapid.IntRange(1, 4).Draw(t, "title")))
				} else {
					c += enginetest.Text("F4", size, 72, y, fmt.Sprintf("Here stands word%d beside the herons, and the line goes on until it ends.", word))
					word++
				}
				y -= 40
			}
			f.Pages = append(f.Pages, enginetest.Page{Content: c})
		}
	}
	return f
}

// Wherever a PDF of mixed print is cut, and in whichever order its ranges end,
// all chunks have the heading paths that one task over the whole file gives them.
// A range is read again once at most.
func TestHeadingLevelsAreThoseOfOneTask(t *testing.T) {
	format := pdf.New(pdf.Config{})
	e := New(Config{Formats: parser.NewRegistry(format)})
	dir := t.TempDir()
	again, differed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "mixed.pdf")
		print := mixedPrint(t)
		if err := os.WriteFile(path, print.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		config := settings.WithDefaults(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64)})
		read := func(r sheaf.Range, hint json.RawMessage, o *sheaf.RangeOutline) (chunks []sheaf.Chunk, layout []byte) {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			d, err := format.Open(t.Context(), file, parser.Options{Name: "mixed.pdf", MediaType: parser.MediaPDF, TempDir: dir, Hint: hint})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			var units []sheaf.UnitResult
			if err = d.Parse(t.Context(), r, func(u sheaf.UnitResult) error { units = append(units, u); return nil }); err != nil {
				t.Fatal(err)
			}
			if chunks, err = chunker.Chunk(t.Context(), chunker.Input{RangeID: "r", Range: r, Units: units, Config: config, Outline: o}); err != nil {
				t.Fatal(err)
			}
			return chunks, layoutOf(units)
		}

		held := map[string][]sheaf.Chunk{} // by task
		var tasks []sheaf.Task
		run := func(task sheaf.Task) {
			var payload taskstore.ParsePayload
			if err := json.Unmarshal(task.Payload, &payload); err != nil {
				t.Fatal(err)
			}
			task.State = sheaf.TaskDone
			if payload.Reuse == nil {
				o := &sheaf.RangeOutline{}
				held[task.ID], task.Result.Layout = read(task.Range, payload.Hint, o)
				task.Result.Outline, task.Result.Chunks = o, len(held[task.ID])
			} else {
				o := *payload.Reuse.Outline
				held[task.ID], task.Result = slices.Clone(held[payload.Reuse.RangeID]), *payload.Reuse
				restack(held[task.ID], &o, under(&payload))
				o.Under = under(&payload)
				task.Result.Outline = &o
			}
			if task.Result.RangeID = ""; task.Result.Chunks > 0 {
				task.Result.RangeID = task.ID
			}
			tasks = append(tasks, task)
		}
		whole := sheaf.Range{From: 1, To: len(print.Pages)}
		var ranges []sheaf.Range
		for from := 1; from <= whole.To; {
			r := sheaf.Range{From: from, To: min(whole.To, from+rapid.IntRange(0, 24).Draw(t, "cut"))}
			ranges, from = append(ranges, r), r.To+1
		}
		for _, r := range rapid.Permutation(ranges).Draw(t, "order") {
			run(sheaf.Task{ID: "t" + r.String(), Kind: sheaf.KindParse, Range: r, Payload: json.RawMessage(`{"format":"pdf","continues":true}`)})
		}

		one, _ := read(whole, nil, nil)
		want := paths(one)
		same := func() (word string, ok bool) {
			got := map[string][]string{}
			for _, task := range tasks {
				if task.State == sheaf.TaskDone {
					for w, p := range paths(held[task.ID]) {
						got[w] = p
					}
				}
			}
			for w := range want {
				if !slices.Equal(got[w], want[w]) {
					return fmt.Sprintf("%s of %v is under %q; in one task it is under %q", w, ranges, got[w], want[w]), false
				}
			}
			return fmt.Sprintf("%d words, want %d", len(got), len(want)), len(got) == len(want)
		}
		finalize := &sheaf.Task{Kind: sheaf.KindFinalize, Node: "1"}
		replace := func(stitches []taskstore.Stitch, round int) {
			for k, s := range stitches {
				i := slices.IndexFunc(tasks, func(old sheaf.Task) bool { return old.ID == s.TaskID })
				tasks[i].State = sheaf.TaskSuperseded
				run(sheaf.Task{ID: fmt.Sprintf("s%d-%d", round, k), Kind: s.Task.Kind, Range: s.Task.Range, Payload: s.Task.Payload})
			}
		}
		without := slices.Clone(tasks)
		rereads := e.reread(finalize, tasks)
		again += len(rereads)
		replace(rereads, 0)
		if more := e.reread(finalize, tasks); len(more) > 0 {
			t.Fatalf("%s is to be read a second time", more[0].Task.Range)
		}
		replace(stitches(finalize, tasks, reportedBy(tasks)), 1)
		if more := stitches(finalize, tasks, reportedBy(tasks)); len(more) > 0 {
			t.Fatalf("%s is to be stitched a second time", more[0].Task.Range)
		}
		if why, ok := same(); !ok {
			t.Fatalf("paths differ: %s", why)
		}
		if len(rereads) > 0 { // what stitching alone would have published
			tasks = without
			replace(stitches(finalize, tasks, reportedBy(tasks)), 2)
			if _, ok := same(); !ok {
				differed++
			}
		}
	})
	if !t.Failed() && (again == 0 || differed == 0) {
		t.Errorf("%d ranges were read again, in %d documents for a reason: the files test nothing", again, differed)
	}
	t.Logf("%d ranges were read again; %d documents would have had other paths", again, differed)
}
