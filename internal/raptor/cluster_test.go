package raptor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// items are alike in groups of eight.
func items(n int) []Item {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]Item, n)
	for i := range out {
		v := make([]float32, 16)
		v[i/8%16] = 3
		for k := range v {
			v[k] += float32(r.NormFloat64()) / 4
		}
		out[i] = Item{Name: fmt.Sprintf("doc-%03d", i), Tokens: 400, Vector: v}
	}
	return out
}

func names(items []Item, groups [][]int) []string {
	var out []string
	for _, g := range groups {
		s := ""
		for _, i := range g {
			s += items[i].Name + " "
		}
		out = append(out, s)
	}
	return out
}

func TestClustersHoldTheirBoundsAndEveryItemOnce(t *testing.T) {
	c := Config{MaxTokens: 4000, MaxChildren: 9, Ratio: 0.5}
	for _, n := range []int{0, 1, 2, 3, 9, 10, 50, 200, 700} {
		all := items(n)
		seen := map[int]bool{}
		for _, g := range Clusters(all, 7, c) {
			if len(g) > 9 || 400*len(g) > 4000 {
				t.Errorf("%d items: a group of %d", n, len(g))
			}
			for _, i := range g {
				if seen[i] {
					t.Errorf("%d items: %d is in two groups", n, i)
				}
				seen[i] = true
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d items are in a group", len(seen), n)
		}
	}
	same := make([]Item, 100) // nothing tells them apart but their names
	for i := range same {
		same[i] = Item{Name: fmt.Sprint(i), Tokens: 1, Vector: []float32{1}}
	}
	if n := len(Clusters(same, 0, c)); n < 100/9 || n > 50 {
		t.Errorf("100 items that are all alike make %d groups", n)
	}
}

func TestClustersAreTheSameInAnyOrderAndOtherWithAnotherSeed(t *testing.T) {
	all := items(120)
	want := names(all, Clusters(all, 3, Config{}))
	shuffled := slices.Clone(all)
	rand.New(rand.NewPCG(5, 5)).Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
	if got := names(shuffled, Clusters(shuffled, 3, Config{})); !slices.Equal(got, want) {
		t.Errorf("another order makes\n%q, not\n%q", got, want)
	}
	if got := names(all, Clusters(all, 4, Config{})); slices.Equal(got, want) {
		t.Error("another seed makes the same groups")
	}
}

// What is alike is together more often than by chance.
func TestClustersAreOfWhatIsAlike(t *testing.T) {
	all := items(128)
	together, pairs := 0, 0
	for _, g := range Clusters(all, 1, Config{MaxTokens: 4000}) {
		for a := range g {
			for b := a + 1; b < len(g); b++ {
				pairs++
				if g[a]/8%16 == g[b]/8%16 {
					together++
				}
			}
		}
	}
	if pairs == 0 || float64(together)/float64(pairs) < 0.5 { // by chance 0.06
		t.Errorf("%d of %d pairs are alike", together, pairs)
	}
}

// One item of 200 that goes, comes or changes leaves most groups as they are.
func TestClustersAreStable(t *testing.T) {
	all := items(200)
	c := Config{MaxTokens: 4000}
	before := map[string]bool{}
	for _, s := range names(all, Clusters(all, 1, c)) {
		before[s] = true
	}
	worst, sum := 0, 0
	for i := range all {
		less := slices.Delete(slices.Clone(all), i, i+1)
		other := 0
		for _, s := range names(less, Clusters(less, 1, c)) {
			if !before[s] {
				other++
			}
		}
		worst, sum = max(worst, other), sum+other
	}
	if mean := float64(sum) / 200; worst > len(before)/3 || mean > 3 {
		t.Errorf("of %d groups at worst %d and on average %.2f are others without one item", len(before), worst, mean)
	}
}

func TestThresholdCutsOnlyWhereNeighboursDiffer(t *testing.T) {
	var all []Item
	for i := range 60 {
		v := []float32{1, 0.02 * float32(i%7), 0}
		if i/20 == 1 {
			v = []float32{0.02 * float32(i%5), 0, 1}
		}
		all = append(all, Item{Name: fmt.Sprint(i), Tokens: 10, Vector: v})
	}
	free, held := Segments(all, Config{}), Segments(all, Config{Threshold: 0.05})
	if len(held) >= len(free) {
		t.Errorf("%d segments with a threshold, %d without", len(held), len(free))
	}
	cutsAt := func(at int) bool { return slices.ContainsFunc(held, func(s Segment) bool { return s.From == at }) }
	if !cutsAt(20) || !cutsAt(40) {
		t.Errorf("the subject changes at 20 and 40; segments are %v", held)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	o, err := ReadOptions(nil)
	if err != nil || o != Defaults() {
		t.Fatalf("%+v, %v", o, err)
	}
	if o, err = ReadOptions([]byte(`{"max_token": 128, "scope": "dataset"}`)); err != nil || o.MaxToken != 128 || o.Scope != ScopeDataset || o.MaxCluster != 64 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{`{"max_tokens": 1}`, `{"max_token": 2}`, `{"prompt": "sum up"}`, `{"clustering_ratio": 0}`, `{"clustering_threshold": 2}`, `{"max_cluster": 1}`, `{"scope": "all"}`, `[]`, `{"max_token": "many"}`} {
		if _, err := ReadOptions([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
