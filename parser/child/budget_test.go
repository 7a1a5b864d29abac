package child

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// Cells without a word take one byte where they are sent and sixteen here: what
// does not fit is refused before the memory is taken.
func TestEmptyCellsCannotFillTheParent(t *testing.T) {
	const rows = 2_000
	wide := sheaf.UnitResult{Unit: 1, LastUnit: rows, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Kind: sheaf.BlockTable, Table: &sheaf.Table{}}}}
	for range rows {
		wide.Blocks[0].Table.Rows = append(wide.Blocks[0].Table.Rows, make([]string, 10_000))
	}
	ragged := sheaf.UnitResult{Unit: 1, LastUnit: rows, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Kind: sheaf.BlockTable, Table: &sheaf.Table{
		Rows: append(make([][]string, 1_000_000), make([]string, 1_000)),
	}}}}
	blocks := sheaf.UnitResult{Unit: 1, Status: sheaf.UnitOK, Blocks: make([]sheaf.Block, 2_000_000)}
	for name, u := range map[string]*sheaf.UnitResult{"wide": &wide, "ragged": &ragged, "blocks": &blocks} {
		sent, _ := encodeUnit(nil, u)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := decodeUnit(sent, 64<<20)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errBudget) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 140<<20 {
			t.Errorf("%s: %d MB were allocated for a budget of 64", name, took>>20)
		}
		// The child, asked to emit this, says what is wrong in its place.
		body, left, err := fits(nil, u, 64<<20, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := decodeUnit(body, 64<<20)
		if err != nil || got.Status != sheaf.UnitFailed || got.Code != "range_too_large" || got.LastUnit != max(1, u.LastUnit) || !strings.Contains(got.Message, "parser.range_bytes") || left > 64<<20 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	small := sheaf.UnitResult{Unit: 2, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Text: "a"}}}
	if _, _, err := fits(nil, &small, 10, 64<<20); err == nil {
		t.Error("the budget is spent, and the range goes on")
	}
}

func TestARangeKeepsToItsBudget(t *testing.T) {
	b := setup(t, Config{Size: 1, RangeBytes: 1 << 20})
	got, err := b.parse(deadline(t, long), b.doc("ok large large ok"), 1, 4)
	if err != nil || len(got) != 4 {
		t.Fatalf("%d units, %v", len(got), err)
	}
	for i, code := range []string{"", "", "range_too_large", ""} {
		if got[i].Code != code {
			t.Errorf("unit %d: %q %s, want %q", i+1, got[i].Code, got[i].Message, code)
		}
	}

	// The parent counts, too.
	_, err = b.parse(deadline(t, long), b.doc("ok lie"), 1, 2)
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "range_too_large" || f.Retryable {
		t.Errorf("a child that lies: %v", err)
	}
	if got, err := b.parse(deadline(t, long), b.doc("ok"), 1, 1); err != nil || len(got) != 1 {
		t.Errorf("the next document: %v", err)
	}
}

// Planning has a bound of its own, far below that of a task.
func TestPlanningThatHangsIsEnded(t *testing.T) {
	b := setup(t, Config{Size: 1})
	src := b.doc("plan-hangs")
	src.PlanLimit = 50 * time.Millisecond
	_, _, cleanup, err := b.pool.Plan(deadline(t, long), src)
	defer cleanup()
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "parse_timeout" {
		t.Errorf("a plan that hangs: %v", err)
	}
}
