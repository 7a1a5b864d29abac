package executor

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/settings"
	"sheaf/taskstore"
)

// pages draws a document: paragraphs that each hold a word of their own, under
// headings whose titles repeat.
func pages(t *rapid.T) []sheaf.UnitResult {
	n := 0
	units := make([]sheaf.UnitResult, rapid.IntRange(2, 14).Draw(t, "pages"))
	for i := range units {
		u := &units[i]
		u.Unit, u.Status = i+1, sheaf.UnitOK
		for range rapid.IntRange(0, 5).Draw(t, "blocks") {
			b := sheaf.Block{Kind: sheaf.BlockParagraph, Page: i + 1, Text: fmt.Sprintf("Here stands word%d. It is read.", n)}
			if rapid.IntRange(0, 2).Draw(t, "heading") == 0 {
				b = sheaf.Block{Kind: sheaf.BlockHeading, Page: i + 1, Level: rapid.IntRange(1, 4).Draw(t, "level"), Text: fmt.Sprintf("Part %d", rapid.IntRange(1, 3).Draw(t, "title"))}
			}
			u.Blocks = append(u.Blocks, b)
			n++
		}
	}
	return units
}

var ownWord = regexp.MustCompile(`word\d+`)

// paths tells the heading path of each paragraph by its word.
func paths(chunks []sheaf.Chunk) map[string][]string {
	out := map[string][]string{}
	for _, c := range chunks {
		for _, w := range ownWord.FindAllString(c.Text, -1) {
			out[w] = c.HeadingPath
		}
	}
	return out
}

// Wherever a document is cut, whatever each range took for the headings before
// it when it was read, and whichever of them fail or are read again, all chunks
// end up under the headings that one task over the whole document gives them.
func TestStitchedPathsAreThoseOfOneTask(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := pages(t)
		config := settings.WithDefaults(sheaf.ParseConfig{ChunkMethod: sheaf.Set(rapid.SampledFrom([]string{"general", "paper", "hierarchical", "qa"}).Draw(t, "method")), ChunkTokenNum: sheaf.Set(32)})
		read := func(units []sheaf.UnitResult, r sheaf.Range, o *sheaf.RangeOutline) []sheaf.Chunk {
			chunks, err := chunker.Chunk(t.Context(), chunker.Input{RangeID: "r", Range: r, Units: units, Config: config, Outline: o})
			if err != nil {
				t.Fatal(err)
			}
			return chunks
		}
		guess := func() (stack []sheaf.Heading) {
			for level := range 3 {
				if rapid.Bool().Draw(t, "guessed") {
					stack = append(stack, sheaf.Heading{Level: level + 1, Title: fmt.Sprintf("Part %d", rapid.IntRange(1, 3).Draw(t, "title"))})
				}
			}
			return stack
		}

		var tasks []sheaf.Task
		held := map[string][]sheaf.Chunk{} // by range id
		var all []sheaf.UnitResult         // that could be read
		for from := 1; from <= len(units); {
			r := sheaf.Range{From: from, To: min(len(units), from+rapid.IntRange(0, 5).Draw(t, "cut"))}
			from = r.To + 1
			task := sheaf.Task{ID: "t" + r.String(), Kind: sheaf.KindParse, Range: r, Payload: json.RawMessage(`{"continues":true}`)}
			if rapid.IntRange(0, 6).Draw(t, "dead") == 0 {
				task.State = sheaf.TaskDead
				tasks = append(tasks, task)
				continue
			}
			o := &sheaf.RangeOutline{}
			own := units[r.From-1 : r.To]
			all = append(all, own...)
			chunks := read(own, r, o)
			stack := guess()
			restack(chunks, o, stack)
			o.Under = stack
			task.State = sheaf.TaskDone
			task.Result = sheaf.TaskResult{Chunks: len(chunks), Outline: o}
			if len(chunks) > 0 {
				task.Result.RangeID = "first" + r.String()
			}
			held[task.Result.RangeID] = chunks
			tasks = append(tasks, task)
		}
		tasks = rapid.Permutation(tasks).Draw(t, "order")

		// What finalize asks for is done as processIndex does it.
		finalize := &sheaf.Task{Kind: sheaf.KindFinalize, Node: "1"}
		for _, s := range stitches(finalize, tasks, reportedBy(tasks)) {
			i := slices.IndexFunc(tasks, func(old sheaf.Task) bool { return old.ID == s.TaskID })
			var payload taskstore.ParsePayload
			if err := json.Unmarshal(s.Task.Payload, &payload); err != nil {
				t.Fatal(err)
			}
			chunks := held[s.RangeID]
			o := *payload.Reuse.Outline
			if len(restack(chunks, &o, under(&payload))) == 0 {
				t.Fatalf("units %s are stitched and nothing changes", s.Task.Range)
			}
			o.Under = under(&payload)
			tasks[i].State = sheaf.TaskSuperseded
			again := sheaf.Task{ID: s.Task.ID, Kind: s.Task.Kind, Node: s.Task.Node, Range: s.Task.Range, State: sheaf.TaskDone, Payload: s.Task.Payload, Result: *payload.Reuse}
			again.Result.RangeID, again.Result.Outline = "again"+s.Task.Range.String(), &o
			held[again.Result.RangeID] = chunks
			tasks = append(tasks, again)
		}
		if more := stitches(finalize, tasks, reportedBy(tasks)); len(more) > 0 {
			t.Fatalf("%d ranges are to be stitched a second time", len(more))
		}

		want := paths(read(all, sheaf.Range{From: 1, To: len(units)}, nil))
		for _, task := range tasks {
			if task.State != sheaf.TaskDone {
				continue
			}
			for word, got := range paths(held[task.Result.RangeID]) {
				if !slices.Equal(got, want[word]) {
					t.Fatalf("%s of units %s is under %q; in one task it is under %q", word, task.Range, got, want[word])
				}
			}
		}
	})
}

// An outline that is not told heading by heading any more says the same of the
// ranges behind it.
func TestLongOutlineKeepsWhatRangesBeginUnder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o sheaf.RangeOutline
		var all []sheaf.Heading
		for i := range rapid.IntRange(400, 1500).Draw(t, "headings") {
			h := sheaf.Heading{Level: 1 + (i*7+i/3)%5, Title: fmt.Sprint(i), Page: 1 + i/100}
			o.Add(h)
			all = append(all, h)
		}
		before := []sheaf.Heading{{Level: rapid.IntRange(1, 6).Draw(t, "level"), Title: "before"}}
		if got, want := sheaf.Under(before, o.Headings), sheaf.Under(before, all); !slices.Equal(got, want) {
			t.Fatalf("under %v, want %v", got, want)
		}
	})
}
