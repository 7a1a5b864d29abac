package executor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/pdf"
	"sheaf/taskstore"
)

func TestDigestDependsOnWhatMattersAndNothingElse(t *testing.T) {
	base := Fingerprint{Parser: "pdf", ParserVersion: 1, Chunker: "general", ChunkerVersion: 1, Options: []string{"chunk_token_num", "delimiter"}, Config: settings.Default, Model: "m@1"}
	change := func(f func(*Fingerprint)) string {
		s := base
		s.Options = slices.Clone(base.Options)
		f(&s)
		return s.Digest()
	}
	for name, same := range map[string]func(*Fingerprint){
		"order of the options":        func(s *Fingerprint) { slices.Reverse(s.Options) },
		"an option that is not set":   func(s *Fingerprint) { s.Options = append(s.Options, "children_delimiter") },
		"an option named twice":       func(s *Fingerprint) { s.Options = append(s.Options, "delimiter") },
		"a field nobody reads":        func(s *Fingerprint) { s.Config.TableRows = sheaf.Set(17) },
		"the password":                func(s *Fingerprint) { s.Config.Password = sheaf.Set("secret") },
		"the pages that are asked":    func(s *Fingerprint) { s.Config.Pages = sheaf.Set([]sheaf.Range{{From: 1, To: 2}}) },
		"how many pages a task reads": func(s *Fingerprint) { s.Config.TaskPageSize = sheaf.Set(3) },
	} {
		if change(same) != base.Digest() {
			t.Errorf("the digest depends on %s", name)
		}
	}
	seen := map[string]string{base.Digest(): "base"}
	for name, other := range map[string]func(*Fingerprint){
		"parser":          func(s *Fingerprint) { s.Parser = "pdf2" },
		"parser version":  func(s *Fingerprint) { s.ParserVersion = 2 },
		"chunker version": func(s *Fingerprint) { s.ChunkerVersion = 2 },
		"model":           func(s *Fingerprint) { s.Model = "m@2" },
		"chat model":      func(s *Fingerprint) { s.Chat = "tiny/1" },
		"its prompts":     func(s *Fingerprint) { s.Chat = "tiny/2" },
		"token number":    func(s *Fingerprint) { s.Config.ChunkTokenNum = sheaf.Set(256) },
		"delimiter":       func(s *Fingerprint) { s.Config.Delimiter = sheaf.Set("\n") },
		"moved border":    func(s *Fingerprint) { s.Parser, s.Model = "pd", "fm@1" },
		"one option more": func(s *Fingerprint) {
			s.Options = append(s.Options, "encoding")
			s.Config.Encoding = sheaf.Set("koi8-r")
		},
	} {
		d := change(other)
		if twin, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", name, twin)
		}
		seen[d] = name
	}
}

func TestReuseKeySeesContentRangeAndHeadings(t *testing.T) {
	r := sheaf.Range{From: 1, To: 12}
	base := reuseKey("d", r, 7, []string{"a", "b"}, nil, false, "")
	for name, k := range map[string]string{
		"content":          reuseKey("d", r, 8, []string{"a", "b"}, nil, false, ""),
		"range":            reuseKey("d", sheaf.Range{From: 1, To: 13}, 7, []string{"a", "b"}, nil, false, ""),
		"headings":         reuseKey("d", r, 7, []string{"a", "c"}, nil, false, ""),
		"headings' border": reuseKey("d", r, 7, []string{"ab"}, nil, false, ""),
		"headings' levels": reuseKey("d", r, 7, []string{"a", "b"}, []int{1, 3}, false, ""),
		"tags":             reuseKey("d", r, 7, []string{"a", "b"}, nil, false, "3\nkey"),
		"digest":           reuseKey("e", r, 7, []string{"a", "b"}, nil, false, ""),
	} {
		if k == base {
			t.Errorf("the reuse key does not see the %s", name)
		}
	}
}

func TestChangedPageChangesOnlyItsRange(t *testing.T) {
	prints := make([]uint64, 100)
	for i := range prints {
		prints[i] = uint64(i + 1)
	}
	changed := slices.Clone(prints)
	changed[40] = 999 // page 41
	for _, r := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: 100}}, 12) {
		same := contentOf(prints, r, "x") == contentOf(changed, r, "y")
		if same == r.Contains(41) {
			t.Errorf("range %v: same content is %v", r, same)
		}
	}
}

func TestCutPartitionsTheRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.IntRange(1, 400).Draw(t, "units")
		plan := &parser.Plan{Unit: sheaf.UnitPage, Units: units, RangeSize: rapid.SampledFrom([]int{0, 12}).Draw(t, "size")}
		if rapid.Bool().Draw(t, "prints") {
			plan.Fingerprints = rapid.SliceOfN(rapid.Uint64(), units, units).Draw(t, "fingerprints")
		}
		if rapid.Bool().Draw(t, "prepared") {
			plan.Unit = sheaf.UnitRow
			for from := 1; from <= units; {
				to := min(units, from+rapid.IntRange(0, 50).Draw(t, "len"))
				plan.Ranges = append(plan.Ranges, parser.PlannedRange{Range: sheaf.Range{From: from, To: to}, Cost: to - from + 1})
				from = to + 1
			}
		}
		config := sheaf.ParseConfig{TaskPageSize: sheaf.Set(rapid.IntRange(0, 30).Draw(t, "task_page_size"))}
		for range rapid.IntRange(0, 4).Draw(t, "asked") {
			from := rapid.IntRange(1, 400).Draw(t, "from")
			config.Pages = sheaf.Set(append(config.Pages.V, sheaf.Range{From: from, To: from + rapid.IntRange(0, 90).Draw(t, "more")}))
		}
		wanted, err := sheaf.SelectUnits(config.Pages.V, units)
		pieces, cutErr := cut(plan, config)
		if (err != nil) != (cutErr != nil) {
			t.Fatalf("SelectUnits says %v, cut says %v", err, cutErr)
		}
		var covered []int
		for _, p := range pieces {
			if costOf(p, plan.Unit) < 1 {
				t.Fatalf("piece %v costs nothing", p.Range)
			}
			for u := p.Range.From; u <= p.Range.To; u++ {
				covered = append(covered, u)
			}
		}
		var want []int
		for _, r := range wanted {
			for u := r.From; u <= r.To; u++ {
				want = append(want, u)
			}
		}
		if !slices.Equal(covered, want) {
			t.Fatalf("covered %v, want %v", covered, want)
		}
	})
}

func TestHeadingsInForceAtARange(t *testing.T) {
	outline := []sheaf.Heading{{Level: 1, Title: "A", Page: 1}, {Level: 2, Title: "A.1", Page: 3}, {Level: 3, Title: "A.1.x", Page: 4}, {Level: 2, Title: "A.2", Page: 8}, {Level: 1, Title: "B", Page: 13}}
	for unit, want := range map[int][]string{1: nil, 2: {"A"}, 5: {"A", "A.1", "A.1.x"}, 8: {"A", "A.1", "A.1.x"}, 9: {"A", "A.2"}, 13: {"A", "A.2"}, 14: {"B"}} {
		if got, levels := headingsAt(outline, unit); !slices.Equal(got, want) || levels != nil {
			t.Errorf("unit %d: %v, want %v", unit, got, want)
		}
	}
}

func TestHeadingsKeepTheirLevelsWhereSomeAreMissing(t *testing.T) {
	outline := []sheaf.Heading{{Level: 2, Title: "A", Page: 1}, {Level: 4, Title: "A.1", Page: 3}, {Level: 2, Title: "B", Page: 5}}
	for unit, want := range map[int]string{2: "[A] [2]", 4: "[A A.1] [2 4]", 6: "[B] [2]"} {
		titles, levels := headingsAt(outline, unit)
		if got := fmt.Sprint(titles, levels); got != want {
			t.Errorf("unit %d: %s, want %s", unit, got, want)
		}
	}
}

// A plan that was made at once is not stored, unless a program or a service made it.
func TestQuickPlansAreNotKept(t *testing.T) {
	own := struct{ parser.Format }{}
	calls := struct {
		parser.Format
		parser.Optional
	}{}
	for _, c := range []struct {
		format parser.Format
		took   time.Duration
		quick  bool
	}{
		{own, time.Millisecond, true},
		{own, quickPlan, true},
		{own, quickPlan + 1, false},
		{calls, time.Millisecond, false},
	} {
		if planQuick(c.format, c.took) != c.quick {
			t.Errorf("%+v is planned anew for each version: not %v", c, c.quick)
		}
	}
}

// slowPlan is a parser that takes a time.
type slowPlan struct {
	PlanParser
	takes time.Duration
}

func (p slowPlan) Plan(context.Context, child.Source) (*parser.Plan, string, func(), error) {
	time.Sleep(p.takes)
	return &parser.Plan{Units: 1}, "", func() {}, nil
}

// In a backlog every plan waits for a slot. That is no reason to store them.
func TestWaitForASlotIsNotTimeOfThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := &sheaf.Task{TenantID: "a"}
		parse := queue.NewSlots(1, nil)
		leave, err := parse.Enter(t.Context(), task.TenantID, task.Lane)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, leave)
		p := &Planner{Files: here{}, Parser: slowPlan{takes: 3 * time.Millisecond}}
		ctx := context.WithValue(t.Context(), slotsKey{}, inSlots{slots: parse, task: task})
		begun := time.Now()
		_, _, took, cleanup, err := p.open(ctx, &sheaf.Document{}, pdf.New(pdf.Config{}), parser.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cleanup()
		if waited := time.Since(begun); waited < time.Minute || took != 3*time.Millisecond {
			t.Errorf("after %s, the plan took %s", waited, took)
		}
	})
}

// A new version with as many pages is cut as the live one is, so that pages that
// changed in place change the range that they are in and no other. One that is
// cut anew by other settings, or has other pages, is not.
func TestChangedPagesKeepTheCutsOfTheLiveVersion(t *testing.T) {
	before := []sheaf.Range{{From: 1, To: 9}, {From: 10, To: 21}, {From: 22, To: 30}}
	var live []taskstore.ReusableRange
	for _, r := range slices.Backward(before) {
		live = append(live, taskstore.ReusableRange{Kind: sheaf.KindParse, Unit: sheaf.UnitPage, Range: r})
	}
	live = append(live, taskstore.ReusableRange{Kind: sheaf.KindDataflow, Unit: sheaf.UnitPage, Range: before[0]})
	for name, c := range map[string]struct {
		live   []taskstore.ReusableRange
		units  int
		pieces []sheaf.Range
		kept   bool
		size   int // of ranges, as the format cuts
	}{
		"scans, which were cut as text": {live, 30, sheaf.CutRanges([]sheaf.Range{{From: 1, To: 30}}, 4), true, 4},
		"smaller tasks of a text":       {live, 30, sheaf.CutRanges([]sheaf.Range{{From: 1, To: 30}}, 4), false, 12},
		"changed in place":              {live, 30, []sheaf.Range{{From: 1, To: 12}, {From: 13, To: 22}, {From: 23, To: 30}}, true, 0},
		"first version":                 {nil, 30, []sheaf.Range{{From: 1, To: 12}, {From: 13, To: 30}}, false, 0},
		"more pages":                    {live, 31, []sheaf.Range{{From: 1, To: 12}, {From: 13, To: 22}, {From: 23, To: 31}}, false, 0},
		"some pages":                    {live, 30, []sheaf.Range{{From: 2, To: 12}, {From: 13, To: 30}}, false, 0},
		"smaller tasks":                 {live, 30, sheaf.CutRanges([]sheaf.Range{{From: 1, To: 30}}, 4), false, 0},
		"much larger tasks":             {live, 300, sheaf.CutRanges([]sheaf.Range{{From: 1, To: 300}}, 100), false, 0},
	} {
		var pieces []parser.PlannedRange
		for _, r := range c.pieces {
			pieces = append(pieces, parser.PlannedRange{Range: r})
		}
		got := earlierCut(c.live, &parser.Plan{Unit: sheaf.UnitPage, Units: c.units, Fingerprints: make([]uint64, c.units), RangeSize: c.size}, pieces)
		var ranges []sheaf.Range
		for _, g := range got {
			ranges = append(ranges, g.Range)
		}
		if c.kept != slices.Equal(ranges, before) {
			t.Errorf("%s: cut as %v", name, ranges)
		}
	}
}

// planned reads the task's document and plans it.
func planned(ctx context.Context, p *Planner, t *sheaf.Task) (taskstore.Completion, error) {
	doc, err := p.Store.DocumentByID(ctx, t.DocumentID)
	if err != nil {
		return taskstore.Completion{}, err
	}
	return p.Process(ctx, t, doc)
}
