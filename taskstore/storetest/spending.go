package storetest

import (
	"sync"
	"sync/atomic"

	"sheaf/taskstore"
)

// spendingStops: concurrent spending never exceeds a cap, spending rejected by one
// cap counts under no name, and refunds can be spent again.
func spendingStops(f *Fixture) {
	on := []taskstore.Spending{{Name: "run/a", Cap: 100}, {Name: "day/x", Cap: 1000}}
	spent := func(tenant, name string, tokens int) {
		f.T.Helper()
		n, err := f.Store.Spent(ctx, tenant, name)
		f.OK(err)
		want(f, tenant+": "+name, int(n), tokens)
	}
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			full, err := f.Store.Spend(ctx, "t", on, 9)
			if err == nil && full == "" {
				taken.Add(9)
			} else if err != nil || full != "run/a" {
				f.T.Errorf("%q, %v", full, err)
			}
		})
	}
	all.Wait()
	want(f, "spent at once", int(taken.Load()), 99)
	spent("t", "run/a", 99)
	spent("t", "day/x", 99)
	full, err := f.Store.Spend(ctx, "t", on, 2)
	f.OK(err)
	want(f, "full", full, "run/a")
	spent("t", "day/x", 99)
	_, err = f.Store.Spend(ctx, "t", on, -50)
	f.OK(err)
	full, err = f.Store.Spend(ctx, "t", on, 51)
	f.OK(err)
	want(f, "full", full, "")
	spent("t", "run/a", 100)
	full, err = f.Store.Spend(ctx, "t", []taskstore.Spending{{Name: "run/a", Cap: 200}, {Name: "free"}}, 100) // the cap is raised
	f.OK(err)
	want(f, "full", full, "")
	spent("t", "free", 100)
	full, err = f.Store.Spend(ctx, "other", on, 100)
	f.OK(err)
	want(f, "full", full, "")
	spent("other", "run/a", 100)

	// A raised cap applies if it is higher, for its own name.
	own := []taskstore.Spending{{Name: "run/b", Cap: 10, Raised: "cap/b"}}
	spend := func(tokens int64, is string) {
		f.T.Helper()
		full, err := f.Store.Spend(ctx, "t", own, tokens)
		f.OK(err)
		want(f, "full", full, is)
	}
	spend(11, "run/b")
	f.OK(f.Store.RaiseCap(ctx, "t", "cap/b", 5))
	spend(10, "")
	spend(1, "run/b")
	f.OK(f.Store.RaiseCap(ctx, "t", "cap/b", 30))
	f.OK(f.Store.RaiseCap(ctx, "other", "cap/b", 500))
	spend(20, "")
	spend(1, "run/b")
	f.OK(f.Store.RaiseCap(ctx, "t", "cap/b", taskstore.NoCap))
	spend(1_000_000, "")
	spent("t", "run/b", 1_000_030)
}
