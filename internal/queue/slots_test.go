package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sheaf"
)

// users keeps n tasks of a tenant, each of that length, at the slots until ctx ends,
// and returns the time the tenant had and how many tasks ended.
func users(ctx context.Context, all *sync.WaitGroup, s *Slots, tenant string, n int, length time.Duration) (had *time.Duration, ended *int) {
	var mu sync.Mutex
	had, ended = new(time.Duration), new(int)
	for range n {
		all.Go(func() {
			for {
				leave, err := s.Enter(ctx, tenant, sheaf.LaneNormal)
				if err != nil {
					return
				}
				time.Sleep(length)
				leave()
				mu.Lock()
				*had += length
				*ended++
				mu.Unlock()
			}
		})
	}
	return had, ended
}

// A tenant with pages that take seconds each, and many of them here, leaves the
// others their share by weight.
func TestSlotsAreSharedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 30 * time.Minute
		weights := map[string]int{"weighty": 2}
		s := NewSlots(4, func(_ context.Context, id string) int { return weights[id] })
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		scans, _ := users(ctx, &all, s, "scans", 40, 12*time.Second)
		texts, n := users(ctx, &all, s, "texts", 5, 80*time.Millisecond)
		weighty, _ := users(ctx, &all, s, "weighty", 6, time.Second)
		time.Sleep(window)
		stop()
		all.Wait()
		for name, c := range map[string]struct {
			had  time.Duration
			want float64
		}{"scans": {*scans, .25}, "texts": {*texts, .25}, "weighty": {*weighty, .5}} {
			if share := c.had.Seconds() / (4 * window.Seconds()); share < c.want-.02 || share > c.want+.02 {
				t.Errorf("%s had %.3f of the time, want %.2f", name, share, c.want)
			}
		}
		if *n < 20_000 {
			t.Errorf("%d short tasks ended", *n)
		}
	})
}

// Nobody waits behind a crowd, and nobody saves up while idle.
func TestSlotsServeWhoComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(2, nil)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		users(ctx, &all, s, "crowd", 100, 10*time.Second)
		time.Sleep(time.Hour)
		began := time.Now()
		leave, err := s.Enter(ctx, "late", sheaf.LaneNormal)
		if err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("a tenant with one task waited %v: %v", time.Since(began), err)
		}
		leave()
		leave() // may be called again
		had, _ := users(ctx, &all, s, "late", 20, 10*time.Second)
		time.Sleep(10 * time.Minute)
		stop()
		all.Wait()
		if share := had.Seconds() / (2 * 600); share < .45 || share > .55 {
			t.Errorf("a tenant that had been away had %.2f of the time", share)
		}
		if s.free != 2 || len(s.tenants) > 2 {
			t.Errorf("%d slots are free, %d tenants are kept", s.free, len(s.tenants))
		}
	})
}

// Within a tenant, what somebody waits for goes first, and nothing starves.
func TestSlotsServeLanesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(1, nil)
		var order []sheaf.Lane
		var all sync.WaitGroup
		for _, lane := range []sheaf.Lane{3, 3, 3, 2, 3, 2, 1, 1, 1} {
			all.Go(func() {
				leave, err := s.Enter(t.Context(), "a", lane)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, lane)
				time.Sleep(time.Second)
				leave()
			})
			synctest.Wait()
		}
		all.Wait()
		if want := []sheaf.Lane{3, 1, 1, 3, 1, 2, 2, 3, 3}; !slices.Equal(order, want) {
			t.Errorf("served in the order %v, want %v", order, want)
		}
	})
}

// Whatever comes, leaves and is canceled, no slot is lost or given twice.
func TestSlotsAreNeitherLostNorGivenTwice(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(r, "slots")
		tasks := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) [4]int {
			return [4]int{rapid.IntRange(0, 3).Draw(r, "tenant"), rapid.IntRange(0, 50).Draw(r, "comes"), rapid.IntRange(0, 20).Draw(r, "takes"), rapid.IntRange(0, 60).Draw(r, "patience")}
		}), 1, 40).Draw(r, "tasks")
		synctest.Test(t, func(t *testing.T) {
			s := NewSlots(n, nil)
			away := errors.New("canceled")
			var mu sync.Mutex
			inside := 0
			var all sync.WaitGroup
			for _, x := range tasks {
				all.Go(func() {
					time.Sleep(time.Duration(x[1]))
					ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(x[3]), away)
					defer cancel()
					leave, err := s.Enter(ctx, fmt.Sprint(x[0]), sheaf.Lane(1+x[2]%3))
					if err != nil {
						if !errors.Is(err, away) {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					if inside++; inside > n {
						t.Errorf("%d tasks are in %d slots", inside, n)
					}
					mu.Unlock()
					time.Sleep(time.Duration(x[2]))
					mu.Lock()
					inside--
					mu.Unlock()
					leave()
				})
			}
			all.Wait()
			if s.free != n {
				t.Errorf("%d of %d slots are free at the end", s.free, n)
			}
			for id, x := range s.tenants {
				if x.inside != 0 || len(x.waiting) != 0 {
					t.Errorf("%s is kept with tasks: %+v", id, x)
				}
			}
		})
	})
}
