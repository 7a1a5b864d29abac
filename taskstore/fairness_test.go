package taskstore_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"sheaf/taskstore"
)

// Jain's index is between 1/n and 1, does not depend on the unit, and is 1 for
// equal shares alone.
func TestJain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.Float64Range(0.01, 1e6), 1, 50).Draw(t, "shares")
		index, n := taskstore.Jain(shares), float64(len(shares))
		if index < 1/n-1e-9 || index > 1+1e-9 {
			t.Fatalf("the index of %d shares is %v", len(shares), index)
		}
		scaled, equal := make([]float64, len(shares)), make([]float64, len(shares))
		for i, x := range shares {
			scaled[i], equal[i] = 1000*x, shares[0]
		}
		if got := taskstore.Jain(scaled); math.Abs(got-index) > 1e-9 {
			t.Fatalf("in another unit it is %v, not %v", got, index)
		}
		if got := taskstore.Jain(equal); math.Abs(got-1) > 1e-9 {
			t.Fatalf("of equal shares it is %v", got)
		}
		alone := make([]float64, len(shares))
		alone[0] = shares[0]
		if got := taskstore.Jain(alone); math.Abs(got-1/n) > 1e-9 {
			t.Fatalf("when one of %v has all it is %v", n, got)
		}
	})
	if got := taskstore.Jain([]float64{1, 1, 4}); math.Abs(got-36.0/54) > 1e-12 {
		t.Errorf("of 1, 1 and 4 it is %v, want 2/3", got)
	}
}

// By weight: tenants that were served by their weights score 1, one that was
// starved takes its share away, and those without a backlog or paused do not count.
func TestFairnessIsByWeightAmongThoseThatWait(t *testing.T) {
	long := taskstore.FairnessWindow.Seconds() + 1
	tenants := []taskstore.TenantQueue{
		{TenantID: "small", Weight: 1, OldestPendingAge: long}, {TenantID: "double", Weight: 2, OldestPendingAge: long}, {TenantID: "large", Weight: 7, OldestPendingAge: long},
		{TenantID: "fresh", Weight: 1, OldestPendingAge: 1}, {TenantID: "paused", Weight: 1, OldestPendingAge: long, Paused: true},
	}
	for name, c := range map[string]struct {
		served map[string]int
		want   float64
	}{
		"fair":    {map[string]int{"small": 100, "double": 200, "large": 700, "fresh": 5000}, 1},
		"starved": {map[string]int{"small": 0, "double": 200, "large": 700}, 2.0 / 3},
		"one":     {map[string]int{"small": 0, "double": 0, "large": 700}, 1.0 / 3},
		"nobody":  {nil, 1},
	} {
		if f := taskstore.FairnessOf(tenants, c.served); f == nil || f.Tenants != 3 || math.Abs(f.Index-c.want) > 1e-9 {
			t.Errorf("%s: %+v, want %v of 3", name, f, c.want)
		}
	}
	if f := taskstore.FairnessOf(tenants[2:], nil); f != nil {
		t.Errorf("of one tenant: %+v", f)
	}
}
