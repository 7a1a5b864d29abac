package executor

import (
	"math"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
)

// What a file says of itself makes no more tasks than its bytes carry.
func TestTasksAreBoundedByTheBytesTheyStandOn(t *testing.T) {
	config := settings.Default
	few := config
	few.Pages = sheaf.Set([]sheaf.Range{{From: 1, To: 24}})
	for name, c := range map[string]struct {
		plan   parser.Plan
		config sheaf.ParseConfig
		bytes  int64
		refuse bool
	}{
		"a lie":             {parser.Plan{Unit: sheaf.UnitPage, Units: 1_000_000, RangeSize: 12}, config, 571, true},
		"the largest lie":   {parser.Plan{Unit: sheaf.UnitPage, Units: math.MaxInt, RangeSize: 1}, config, 571, true},
		"a few pages of it": {parser.Plan{Unit: sheaf.UnitPage, Units: 1_000_000, RangeSize: 12}, few, 571, false},
		"a book":            {parser.Plan{Unit: sheaf.UnitPage, Units: 2_415, RangeSize: 12}, config, 6 << 20, false},
		"blank pages":       {parser.Plan{Unit: sheaf.UnitPage, Units: 12_000, RangeSize: 12}, config, 100_000, false},
		"one task":          {parser.Plan{Unit: sheaf.UnitRow, Units: math.MaxInt}, config, 10, false},
		"planned ranges":    {parser.Plan{Unit: sheaf.UnitRow, Units: 3_000_000, Ranges: make([]parser.PlannedRange, 1_000)}, config, 10_000, true},
		"lines":             {parser.Plan{Unit: sheaf.UnitRow, Units: 10 << 20, Ranges: make([]parser.PlannedRange, 3_500)}, config, 10 << 20, false},
	} {
		err := boundTasks(&c.plan, c.config, c.bytes)
		if f := sheaf.AsFailure(err, ""); (f != nil) != c.refuse || f != nil && f.Code != "too_many_tasks" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
