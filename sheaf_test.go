package sheaf

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestIDsSortInTheOrderTheyWereMade(t *testing.T) {
	ids := make([]string, 20_000)
	for i := range ids {
		ids[i] = NewID()
		if !ValidID(ids[i]) {
			t.Fatalf("%q is not an id", ids[i])
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != 20_000 {
		t.Fatal("ids repeat or do not sort")
	}
}

func TestRangesPartitionTheRequestedUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.IntRange(1, 300).Draw(t, "units")
		size := rapid.IntRange(0, 40).Draw(t, "size")
		asked := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Range {
			from := rapid.IntRange(1, 330).Draw(t, "from")
			return Range{from, from + rapid.IntRange(0, 60).Draw(t, "more")}
		}), 0, 6).Draw(t, "asked")

		want := map[int]bool{}
		for u := 1; u <= units; u++ {
			if len(asked) == 0 || slices.ContainsFunc(asked, func(r Range) bool { return r.Contains(u) }) {
				want[u] = true
			}
		}
		runs, err := SelectUnits(asked, units)
		if (err != nil) != (len(want) == 0) {
			t.Fatalf("SelectUnits: %v with %d units wanted", err, len(want))
		}
		got := map[int]int{}
		last := 0
		for _, r := range CutRanges(runs, size) {
			if r.From <= last || r.Len() < 1 || size > 0 && r.Len() > size {
				t.Fatalf("bad piece %v after %d", r, last)
			}
			for u := r.From; u <= r.To; u++ {
				got[u]++
			}
			last = r.To
		}
		if len(got) != len(want) {
			t.Fatalf("%d units covered, want %d", len(got), len(want))
		}
		for u, n := range got {
			if n != 1 || !want[u] {
				t.Fatalf("unit %d covered %d times, wanted %v", u, n, want[u])
			}
		}
	})
}

func TestUpsideDownRangeIsRefused(t *testing.T) {
	for _, r := range []Range{{0, 3}, {5, 4}, {-1, -1}} {
		if _, err := SelectUnits([]Range{r}, 10); err == nil {
			t.Errorf("%v was taken", r)
		}
	}
	if got, err := SelectUnits([]Range{{5, 5}}, 10); err != nil || len(got) != 1 || got[0].Len() != 1 {
		t.Errorf("[5, 5] is one page, got %v, %v", got, err)
	}
	if got, err := SelectUnits([]Range{{1, 10}}, 10); err != nil || got[0].To != 10 {
		t.Errorf("[1, 10] includes page 10, got %v, %v", got, err)
	}
}

func TestMergedLedgerKeepsTheBestVerdict(t *testing.T) {
	statuses := []UnitStatus{UnitOK, UnitOCR, UnitBlank, UnitSkipped, UnitFailed}
	rapid.Check(t, func(t *rapid.T) {
		best := map[int]UnitStatus{}
		var ledgers []Ledger
		for range rapid.IntRange(0, 6).Draw(t, "ledgers") {
			var l Ledger
			at := rapid.IntRange(1, 20).Draw(t, "at")
			for range rapid.IntRange(1, 4).Draw(t, "runs") {
				n := rapid.IntRange(1, 5).Draw(t, "n")
				s := rapid.SampledFrom(statuses).Draw(t, "s")
				l = l.Add(LedgerRun{From: at, To: at + n - 1, Status: s})
				for u := at; u < at+n; u++ {
					if rank[s] > rank[best[u]] {
						best[u] = s
					}
				}
				at += n
			}
			ledgers = append(ledgers, l)
		}
		merged := MergeLedgers(ledgers...)
		seen := 0
		last := 0
		for _, r := range merged {
			if r.From <= last {
				t.Fatalf("runs overlap: %v", merged)
			}
			last = r.To
			for u := r.From; u <= r.To; u++ {
				seen++
				if best[u] != r.Status {
					t.Fatalf("unit %d is %s, want %s", u, r.Status, best[u])
				}
			}
		}
		if seen != len(best) {
			t.Fatalf("%d units, want %d", seen, len(best))
		}
		missing := 0
		for _, r := range merged.Missing([]Range{{1, 60}}) {
			missing += r.Len()
		}
		inside := 0
		for u := range best {
			if u <= 60 {
				inside++
			}
		}
		if missing != 60-inside {
			t.Fatalf("%d missing, want %d", missing, 60-inside)
		}
	})
}

func TestRangeIsAPairInJSON(t *testing.T) {
	b, _ := json.Marshal([]Range{{1, 10}})
	if string(b) != "[[1,10]]" {
		t.Fatalf("got %s", b)
	}
	var rs []Range
	if err := json.Unmarshal([]byte("[[5,5]]"), &rs); err != nil || rs[0] != (Range{5, 5}) {
		t.Fatalf("got %v, %v", rs, err)
	}
}
