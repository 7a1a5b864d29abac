package search_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf/internal/index"
	"sheaf/internal/queue"
	"sheaf/internal/search"
)

// slowIndex takes its time for each search.
type slowIndex struct {
	index.Index
	takes time.Duration
}

func (x slowIndex) Search(ctx context.Context, _ index.Query) (index.Candidates, error) {
	select {
	case <-time.After(x.takes):
		return index.Candidates{NoMore: true}, nil
	case <-ctx.Done():
		return index.Candidates{}, ctx.Err()
	}
}

// A question waits for one search of a tenant that asks hundreds at once, not for
// all of them.
func TestSearchesAreSharedByTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 100 * time.Millisecond
		s := &search.Searcher{Index: slowIndex{takes: takes}, Visibility: &ranges{}, Slots: queue.NewSlots(2, nil)}
		ask := func(ctx context.Context, tenant string) error {
			_, err := s.Search(ctx, tenant, search.Request{Query: "granite", Mode: search.Text})
			return err
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = ask(ctx, "flood")
				}
			})
		}
		time.Sleep(time.Minute)
		for n := range 20 {
			begun := time.Now()
			if err := ask(ctx, fmt.Sprint("tenant", n%2)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 2*takes {
				t.Errorf("beside a tenant that floods the index, a search took %v", took)
			}
		}
		stop()
		all.Wait()
		if free := s.Slots.Free(); free != 2 {
			t.Errorf("%d of 2 slots are free at the end", free)
		}
	})
}
