package executor

import (
	"cmp"
	"encoding/json"
	"slices"

	fastjson "github.com/segmentio/encoding/json"

	"sheaf"
	"sheaf/parser"
	"sheaf/taskstore"
)

// A document without a table of contents is cut without being read, so the headings
// a range starts under are unknown until the ranges before it are read. Each range
// reports its own headings. finalize, which sees all of them, compares the headings
// each range's chunks were made under with the actual ones, and has ranges that
// differ stitched: a task takes the stored chunks, puts them under the right
// headings, re-embeds those whose path changed and writes a new result. Since only
// complete generations are compared, the order in which ranges finish does not
// matter.

// maxStitches bounds how often a range's result is replaced: once to be stitched,
// once to be read again with the levels that all ranges agree on, and once more to be
// stitched after that.
const maxStitches = 3

// reported are the ranges of a generation that report their headings, in order, and
// these headings in document order. Ranges may lie inside others, when units were
// read again.
type reported struct {
	ranges   []*sheaf.Task
	headings []sheaf.Heading
}

// reportedBy collects what tasks report. It returns nothing unless all tasks with
// chunks report, because an outline with gaps would be wrong.
func reportedBy(tasks []sheaf.Task) (out reported) {
	for i := range tasks {
		switch t := &tasks[i]; {
		case !covers(*t) || t.State != sheaf.TaskDone:
		case t.Result.Outline != nil:
			out.ranges = append(out.ranges, t)
		case t.Result.Chunks > 0:
			return reported{}
		}
	}
	slices.SortStableFunc(out.ranges, func(a, b *sheaf.Task) int { return cmp.Compare(a.Range.From, b.Range.From) })
	for _, t := range out.ranges {
		out.headings = append(out.headings, t.Result.Outline.Headings...)
	}
	slices.SortStableFunc(out.headings, func(a, b sheaf.Heading) int { return cmp.Compare(a.Page, b.Page) })
	return out
}

// stitches returns replacements for the range results of a complete generation whose
// chunks are not under their actual headings.
func stitches(finalize *sheaf.Task, tasks []sheaf.Task, by reported) []taskstore.Stitch {
	times := replaced(tasks)
	var out []taskstore.Stitch
	var stack []sheaf.Heading
	all := by.headings
	for _, t := range by.ranges {
		n := 0
		for n < len(all) && all[n].Page < t.Range.From {
			n++
		}
		stack, all = sheaf.Under(stack, all[:n]), all[n:]
		if t.Result.RangeID == "" || t.Result.Outline.Stands(stack) || times[t.Range] >= maxStitches {
			continue
		}
		var payload taskstore.ParsePayload
		if fastjson.Unmarshal(t.Payload, &payload) != nil {
			continue // the range could not have been read either
		}
		stored := t.Result
		stored.Stages = nil
		payload.Reuse, payload.Embed, payload.Stitch = &stored, false, true
		payload.Headings, payload.HeadingLevels = nil, nil
		for _, h := range stack {
			payload.Headings, payload.HeadingLevels = append(payload.Headings, h.Title), append(payload.HeadingLevels, h.Level)
		}
		out = append(out, replacement(finalize, t, payload))
	}
	return out
}

// reread returns replacements for the range results of a complete generation that
// would get other headings in view of other ranges' pages: tasks that read them
// again using what all ranges agree on.
func (e *Executor) reread(finalize *sheaf.Task, tasks []sheaf.Task) []taskstore.Stitch {
	var ranges []*sheaf.Task
	for i := range tasks {
		if t := &tasks[i]; covers(*t) && t.State == sheaf.TaskDone && len(t.Result.Layout) > 0 {
			ranges = append(ranges, t)
		}
	}
	if len(ranges) < 2 || e.cfg.Formats == nil {
		return nil
	}
	var payload taskstore.ParsePayload
	if json.Unmarshal(ranges[0].Payload, &payload) != nil {
		return nil // the range could not have been read either
	}
	format, _ := e.cfg.Formats.ByID(payload.Format)
	agreeing, ok := format.(parser.Agreeing)
	if !ok {
		return nil
	}
	slices.SortStableFunc(ranges, func(a, b *sheaf.Task) int { return cmp.Compare(a.Range.From, b.Range.From) })
	layouts := make([][]byte, len(ranges))
	for i, t := range ranges {
		layouts[i] = t.Result.Layout
	}
	times := replaced(tasks)
	var out []taskstore.Stitch
	for i, hint := range agreeing.Agree(layouts) {
		t, payload := ranges[i], taskstore.ParsePayload{}
		if hint == nil || t.Result.RangeID == "" || times[t.Range] >= maxStitches || json.Unmarshal(t.Payload, &payload) != nil {
			continue
		}
		payload.Hint, payload.Reuse, payload.Embed, payload.Stitch = hint, nil, false, false
		payload.Replaces = t.Result.ArtifactKey
		out = append(out, replacement(finalize, t, payload))
	}
	return out
}

// replaced counts how often each range's result was replaced.
func replaced(tasks []sheaf.Task) map[sheaf.Range]int {
	times := map[sheaf.Range]int{}
	for i := range tasks {
		if t := &tasks[i]; covers(*t) && t.State == sheaf.TaskSuperseded {
			times[t.Range]++
		}
	}
	return times
}

// replacement is a task that replaces a done one.
func replacement(finalize, t *sheaf.Task, payload taskstore.ParsePayload) taskstore.Stitch {
	raw, _ := json.Marshal(payload) // it was JSON a moment ago
	return taskstore.Stitch{TaskID: t.ID, RangeID: t.Result.RangeID, Task: sheaf.NewTask{
		ID: sheaf.NewID(), Kind: sheaf.KindIndex, Node: "stitch-" + finalize.Node, Unit: t.Unit, Range: t.Range, Cost: t.Cost,
		ReuseKey: t.ReuseKey, Digest: t.Digest, Payload: raw,
	}}
}

// under returns the headings that, per its payload, a range starts under.
func under(p *taskstore.ParsePayload) []sheaf.Heading {
	stack := make([]sheaf.Heading, len(p.Headings))
	for i, title := range p.Headings {
		stack[i] = sheaf.Heading{Level: i + 1, Title: title}
		if i < len(p.HeadingLevels) {
			stack[i].Level = p.HeadingLevels[i]
		}
	}
	return stack
}

// restack moves a range's chunks from the headings they were made under, as outline
// records them, to those of stack. It lists the chunks whose path changed.
func restack(chunks []sheaf.Chunk, outline *sheaf.RangeOutline, stack []sheaf.Heading) (changed []int) {
	for i := range chunks {
		c := &chunks[i]
		floor := outline.FloorOf(i)
		was, is := sheaf.Inherited(outline.Under, floor), sheaf.Inherited(stack, floor)
		if slices.Equal(was, is) || len(c.HeadingPath) < len(was) || !slices.Equal(c.HeadingPath[:len(was)], was) {
			continue
		}
		c.HeadingPath = slices.Concat(is, c.HeadingPath[len(was):])
		changed = append(changed, i)
	}
	return changed
}
