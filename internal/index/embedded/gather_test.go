package embedded

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A commit takes with it what comes soon, and nobody waits for what will not come.
func TestWritesWaitForEachOtherOnlyWhereMoreMayCome(t *testing.T) {
	for name, c := range map[string]struct {
		concurrent []int           // of the operations that come
		at         []time.Duration // after the first
		idle       time.Duration   // since the last commit
		want       int             // operations of the commit
		after      time.Duration   // of the first
	}{
		"a write after a quiet time goes at once":       {[]int{4, 4}, []time.Duration{0, 10 * time.Millisecond}, time.Second, 1, 0},
		"one soon after another waits for a third":      {[]int{4, 4}, []time.Duration{0, 10 * time.Millisecond}, 20 * time.Millisecond, 2, commitPause - 20*time.Millisecond},
		"and alone if none comes":                       {[]int{4}, []time.Duration{0}, 20 * time.Millisecond, 1, commitPause - 20*time.Millisecond},
		"it goes when all are there":                    {[]int{2, 2, 2}, []time.Duration{0, 10 * time.Millisecond, 11 * time.Millisecond}, 0, 2, 10 * time.Millisecond},
		"who writes alone does not wait":                {[]int{1}, []time.Duration{0}, 0, 1, 0},
		"nor does what waits when such a one comes":     {[]int{8, 1}, []time.Duration{0, 5 * time.Millisecond}, 0, 2, 5 * time.Millisecond},
		"a delete, which says nothing, does not either": {[]int{0}, []time.Duration{0}, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := &Index{operations: make(chan *operation, queuedWrites), closing: make(chan struct{})}
				last := time.Now()
				time.Sleep(c.idle)
				begun := time.Now()
				var others sync.WaitGroup
				defer others.Wait()
				for i := 1; i < len(c.concurrent); i++ {
					others.Go(func() {
						time.Sleep(c.at[i])
						x.operations <- &operation{concurrent: c.concurrent[i]}
					})
				}
				group := x.gather(&operation{concurrent: c.concurrent[0]}, last)
				if len(group) != c.want || time.Since(begun) != c.after {
					t.Errorf("%d operations after %v, want %d after %v", len(group), time.Since(begun), c.want, c.after)
				}
			})
		})
	}
}

func TestTheEndOfTheIndexIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &Index{operations: make(chan *operation, queuedWrites), closing: make(chan struct{})}
		close(x.closing)
		begun := time.Now()
		if group := x.gather(&operation{concurrent: 4}, begun); len(group) != 1 || time.Since(begun) != 0 {
			t.Errorf("%d operations after %v", len(group), time.Since(begun))
		}
	})
}
