package batching

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLoneCallRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config[int]{Max: 8, Timeout: time.Minute}, func(_ context.Context, batch []int) []int { return batch })
		begun := time.Now()
		got, err := g.Do(t.Context(), 7)
		if err != nil || got != 7 || time.Since(begun) != 0 {
			t.Fatalf("got %d, %v after %v; want 7 at once", got, err, time.Since(begun))
		}
	})
}

func TestThoseWhoArriveDuringARunFormTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		g := New(Config[int]{Max: 3, Timeout: time.Minute}, func(_ context.Context, batch []int) []int {
			batches = append(batches, slices.Clone(batch))
			time.Sleep(time.Second)
			out := make([]int, len(batch))
			for i, v := range batch {
				out[i] = 10 * v
			}
			return out
		})
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if got, err := g.Do(t.Context(), i); err != nil || got != 10*i {
					t.Errorf("call %d answers %d, %v", i, got, err)
				}
			})
		}
		all.Wait()
		if !slices.EqualFunc(batches, [][]int{{0}, {1, 2, 3}, {4, 5}}, slices.Equal[[]int]) {
			t.Errorf("batches %v; want the first alone, then as many as one may take, then the rest", batches)
		}
	})
}

func TestBatchesOverlapFromTheirMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var batches [][]int
		under, most := 0, 0
		g := New(Config[int]{Max: 3, Timeout: time.Minute, Concurrency: 2, MinBatch: 2}, func(_ context.Context, batch []int) []int {
			mu.Lock()
			batches = append(batches, slices.Clone(batch))
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			under--
			mu.Unlock()
			return batch
		})
		var all sync.WaitGroup
		begun := time.Now()
		for i := range 7 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if got, err := g.Do(t.Context(), i); err != nil || got != i {
					t.Errorf("call %d answers %d, %v", i, got, err)
				}
			})
		}
		all.Wait()
		if !slices.EqualFunc(batches, [][]int{{0}, {1, 2}, {3, 4, 5}, {6}}, slices.Equal[[]int]) {
			t.Errorf("batches %v; want a second beside the first once two wait, then full ones, and no third at once for the last", batches)
		}
		if most != 2 || time.Since(begun) > 3*time.Second {
			t.Errorf("%d at once, all over after %v; want 2 at once", most, time.Since(begun))
		}
	})
}

func TestWhoGivesUpBeforeItsTurnIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []int
		g := New(Config[int]{Max: 8, Timeout: time.Minute}, func(ctx context.Context, batch []int) []int {
			ran = append(ran, batch...)
			time.Sleep(time.Second)
			if ctx.Err() != nil {
				t.Error("the batch ended with one of its callers")
			}
			return batch
		})
		var all sync.WaitGroup
		do := func(v int, wait, patience time.Duration, want error) {
			all.Go(func() {
				time.Sleep(wait)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if _, err := g.Do(ctx, v); !errors.Is(err, want) {
					t.Errorf("call %d: %v, want %v", v, err, want)
				}
			})
		}
		do(1, 0, 500*time.Millisecond, context.DeadlineExceeded) // gives up during its run
		do(2, 1*time.Millisecond, 500*time.Millisecond, context.DeadlineExceeded)
		do(3, 2*time.Millisecond, time.Minute, nil)
		all.Wait()
		if !slices.Equal(ran, []int{1, 3}) {
			t.Errorf("ran %v, want 1 and 3", ran)
		}
	})
}

func TestBatchHasATimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config[int]{Max: 8, Timeout: time.Second}, func(ctx context.Context, batch []int) []error {
			<-ctx.Done()
			return []error{ctx.Err()}
		})
		begun := time.Now()
		if got, err := g.Do(t.Context(), 1); err != nil || !errors.Is(got, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Fatalf("got %v, %v after %v; want the batch to end after its second", got, err, time.Since(begun))
		}
	})
}

func TestWhoCanWaitRunsWithTheNextThatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		begun := time.Now()
		var ats []time.Duration
		g := New(Config[int]{Max: 8, Timeout: time.Minute}, func(_ context.Context, batch []int) []int {
			batches, ats = append(batches, slices.Clone(batch)), append(ats, time.Since(begun))
			time.Sleep(10 * time.Millisecond)
			return batch
		})
		const wait = 5 * time.Millisecond
		var all sync.WaitGroup
		do := func(at time.Duration, v int, wait, patience time.Duration, want error) {
			all.Go(func() {
				time.Sleep(at)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if got, err := g.DoWithin(ctx, v, wait); err == nil && got != v || !errors.Is(err, want) {
					t.Errorf("call %d answers %d, %v; want %v", v, got, err, want)
				}
			})
		}
		ms := time.Millisecond
		do(0, 1, wait, time.Second, nil) // nobody comes
		do(100*ms, 2, wait, time.Second, nil)
		do(101*ms, 3, 0, time.Second, nil) // who cannot wait takes it along
		do(200*ms, 4, wait, time.Second, nil)
		do(203*ms, 5, wait, time.Second, nil) // so does another that could
		do(300*ms, 6, 0, time.Second, nil)
		do(301*ms, 7, wait, time.Second, nil) // has waited for a run, and then for company
		do(400*ms, 8, wait, 2*ms, context.DeadlineExceeded)
		do(404*ms, 9, wait, time.Second, nil) // waits its own time, not that of who left
		all.Wait()
		if want := [][]int{{1}, {2, 3}, {4, 5}, {6}, {7}, {9}}; !slices.EqualFunc(batches, want, slices.Equal[[]int]) {
			t.Errorf("batches %v, want %v", batches, want)
		}
		if want := []time.Duration{5 * ms, 101 * ms, 203 * ms, 300 * ms, 315 * ms, 409 * ms}; !slices.Equal(ats, want) {
			t.Errorf("they ran at %v, want %v", ats, want)
		}
	})
}

func TestFilledBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var batches [][]int
		var ats []time.Duration
		begun := time.Now()
		g := New(Config[int]{Max: 4, MaxWeight: 10, WeightFunc: func(v int) int { return v }, Concurrency: 2, Fill: true}, func(ctx context.Context, batch []int) []int {
			if _, limited := ctx.Deadline(); limited {
				t.Error("a batch without a timeout has a deadline")
			}
			mu.Lock()
			batches, ats = append(batches, slices.Clone(batch)), append(ats, time.Since(begun))
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return batch
		})
		const ms = time.Millisecond
		var all sync.WaitGroup
		do := func(at time.Duration, asks ...int) {
			all.Go(func() {
				time.Sleep(at)
				if got, err := g.DoAll(t.Context(), asks, 5*ms); err != nil || !slices.Equal(got, asks) {
					t.Errorf("%v answers %v, %v", asks, got, err)
				}
			})
		}
		do(0, 1, 1)          // waits for others, and ends with its timeout
		do(20*ms, 1, 1, 1)   // beside the first
		do(21*ms, 1, 1)      // one fills the batch, the other waits for a batch to end
		do(200*ms, 6, 3)     // too heavy with the next
		do(201*ms, 2)        //
		do(400*ms, 50, 1, 2) // more than a batch may weigh goes alone
		all.Wait()
		if want := [][]int{{1, 1}, {1, 1, 1, 1}, {1}, {6, 3}, {2}, {50}, {1, 2}}; !slices.EqualFunc(batches, want, slices.Equal[[]int]) {
			t.Errorf("batches %v, want %v", batches, want)
		}
		if want := []time.Duration{5 * ms, 21 * ms, 105 * ms, 201 * ms, 206 * ms, 400 * ms, 405 * ms}; !slices.Equal(ats, want) {
			t.Errorf("they ran at %v, want %v", ats, want)
		}
	})
}
