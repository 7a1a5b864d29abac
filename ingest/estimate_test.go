package ingest

import (
	"testing"

	"sheaf/taskstore"
)

// What is left of many tasks that differ much is known better than what is left of few.
func TestEstimate(t *testing.T) {
	differing := taskstore.Pace{PerSecond: 10, Variation: 3, Tasks: 400}
	of := func(left taskstore.Remaining) (p50, p90 float64) {
		t.Helper()
		e := estimate(left)
		if e.P50 == nil || e.P90 == nil || *e.P90 < 1.2**e.P50 {
			t.Fatalf("%+v gives %+v", left, e)
		}
		return *e.P50, *e.P90
	}
	many50, many90 := of(taskstore.Remaining{Own: 1000, Tasks: 500, Like: differing})
	few50, few90 := of(taskstore.Remaining{Own: 1000, Tasks: 5, Like: differing})
	if many50 != 100 || few50 != 100 || many90 > 150 || few90 < 250 {
		t.Errorf("many tasks take %.0f–%.0f s, few of them %.0f–%.0f s", many50, many90, few50, few90)
	}
	differing.Tasks = 4
	if _, p90 := of(taskstore.Remaining{Own: 1000, Tasks: 500, Like: differing}); p90 < 2*many90 {
		t.Errorf("judged by four tasks, it is at most %.0f s; by 400, %.0f s", p90, many90)
	}
	alike := taskstore.Pace{PerSecond: 10, Tasks: 400}
	if p50, p90 := of(taskstore.Remaining{Own: 100, Tasks: 10, UnplannedCost: 100, Unplanned: 10, Like: alike}); p50 != 20 || p90 < 30 {
		t.Errorf("with documents that may be twice as long: %.0f–%.0f s", p50, p90)
	}
	if p50, _ := of(taskstore.Remaining{Own: 100, Tasks: 10, AheadCost: 100, Like: alike, All: taskstore.Pace{PerSecond: 1, Tasks: 400}}); p50 != 110 {
		t.Errorf("with slow tasks ahead: %.0f s", p50)
	}
	for _, left := range []taskstore.Remaining{
		{Own: 1, Tasks: 1, All: alike},
		{Own: 1, Tasks: 1, Like: alike, Stalled: true},
		{Own: 1, Tasks: 2, Like: alike, Unplanned: 1},
	} {
		if e := estimate(left); e.P50 != nil || e.P90 != nil {
			t.Errorf("%+v: invented %v", left, *e.P50)
		}
	}
}
