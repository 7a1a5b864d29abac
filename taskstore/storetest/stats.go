package storetest

import (
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

func testStats(t *testing.T, b *bench) {
	_, ids := b.create("a")
	b.plan(ids[0], sheaf.Range{From: 1, To: 2}, sheaf.Range{From: 3, To: 4}, sheaf.Range{From: 5, To: 6}, sheaf.Range{From: 7, To: 8})
	cost := 0
	for i, x := range b.tasks(ids[0], 0) {
		if x.Kind != sheaf.KindParse {
			cost += x.Cost // the plan
			continue
		}
		c := b.claim(x.ID)
		if i == 4 {
			_, err := b.FailTask(b.ctx, c.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryCrash, "crash", "no")})
			b.ok(err)
			continue
		}
		r := b.result(c)
		r.Stages = []sheaf.StageTime{{Name: "parse", StartMS: 1, MS: int64(10 * i)}, {Name: "embed", StartMS: 40, MS: 5}}
		b.ok(b.Complete(b.ctx, c.Held(), taskstore.Completion{Result: r}))
		cost += x.Cost
	}
	statsAre(t, b, 4, 1, cost)
	// The same after the roll-up, by concurrent keepers.
	var keepers sync.WaitGroup
	for range 4 {
		keepers.Go(func() {
			for n := 1; n > 0; {
				var err error
				if n, err = b.RollUp(b.ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	keepers.Wait()
	statsAre(t, b, 4, 1, cost)
	// And what follows, summed and not.
	_, more := b.create("b")
	b.plan(more[0], sheaf.Range{From: 1, To: 2})
	for _, x := range b.tasks(more[0], 0) {
		if x.Kind == sheaf.KindParse {
			_, err := b.FailTask(b.ctx, b.claim(x.ID).Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryCrash, "crash", "no")})
			b.ok(err)
		} else {
			cost += x.Cost
		}
	}
	statsAre(t, b, 5, 2, cost)
	for n := 1; n > 0; {
		var err error
		n, err = b.RollUp(b.ctx)
		b.ok(err)
	}
	statsAre(t, b, 5, 2, cost)
	// A month in buckets of six hours has the same counts, and another tenant's are
	// separate.
	month, err := b.Stats(b.ctx, b.tenant, 30*24*60, 6*60)
	b.ok(err)
	tasks, failed, sum := 0, 0, 0
	for i, k := range month.Buckets {
		if k.At.Minute() != 0 || k.At.Hour()%6 != 0 || i > 0 && k.At.Sub(month.Buckets[i-1].At) != 6*time.Hour {
			t.Errorf("bucket %d of the month is at %v", i, k.At)
		}
		tasks, failed, sum = tasks+k.Tasks, failed+k.Failed, sum+k.Cost
	}
	b.same("a month: buckets, their minutes, done, failed, cost", []int{len(month.Buckets), month.BucketMinutes, tasks, failed, sum}, []int{120, 360, 5, 2, cost})
	// Counts no longer need the log.
	b.AdvanceClock(time.Second)
	for n := 1; n > 0; {
		report, err := b.Cleanup(b.ctx, time.Millisecond, 1000, false)
		b.ok(err)
		n = report.Events
	}
	b.same("failed without the log", failedOf(b), 2)
}

func failedOf(b *bench) (n int) {
	st, err := b.Stats(b.ctx, b.tenant, 5, 1)
	b.ok(err)
	for _, k := range st.Buckets {
		n += k.Failed
	}
	return n
}

// statsAre compares the statistics of testStats with the given numbers.
func statsAre(t *testing.T, b *bench, tasks, failed, cost int) {
	t.Helper()
	st, err := b.Stats(b.ctx, b.tenant, 5, 1)
	b.ok(err)
	var sum taskstore.StatsBucket
	sum.StageMS = map[string]int64{}
	for i, k := range st.Buckets {
		if i > 0 && k.At.Sub(st.Buckets[i-1].At).Minutes() != 1 {
			t.Errorf("bucket %d is at %v, the one before at %v", i, k.At, st.Buckets[i-1].At)
		}
		sum.Tasks, sum.Failed, sum.Cost = sum.Tasks+k.Tasks, sum.Failed+k.Failed, sum.Cost+k.Cost
		for name, ms := range k.StageMS {
			sum.StageMS[name] += ms
		}
	}
	b.same("buckets, done, failed, cost", []int{len(st.Buckets), sum.Tasks, sum.Failed, sum.Cost}, []int{5, tasks, failed, cost})
	b.same("stage times", sum.StageMS, map[string]int64{"parse": 60, "embed": 15})
	b.same("stages, slowest first", st.Stages, []taskstore.StageStats{{Name: "parse", Tasks: 3, P50MS: 20, P95MS: 30}, {Name: "embed", Tasks: 3, P50MS: 5, P95MS: 5}})
	if st.CostPerSecond <= 0 || st.CostPerSecond > float64(cost) {
		t.Errorf("%v cost a second of %d", st.CostPerSecond, cost)
	}
	if none, err := b.Stats(b.ctx, "nobody", 1, 1); err != nil || none.Buckets[0].Tasks != 0 || none.CostPerSecond != 0 {
		t.Errorf("another tenant sees %+v: %v", none, err)
	}
}
