package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"

	"sheaf"
	"sheaf/internal/api"
)

// fleetSpread has two executors of a fleet read one manual of 1,000 pages, and
// counts the pages read by each, and those read more than once.
func (b *bench) fleetSpread(ctx context.Context) error {
	if b.corpus == "" {
		leftOut("fleet.spread", "no corpus")
		return nil
	}
	path, err := b.manual("spread.pdf", false, "1-1000")
	if err != nil {
		return err
	}
	return b.servedByExecutors(ctx, "spread", 2, func(s *server, _ map[string]int) error {
		if err := s.warm(ctx, b.corpus); err != nil {
			return err
		}
		id := sheaf.NewID()
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var answer api.SubmitAnswer
		if err := s.send(ctx, http.MethodPut, "/v1/datasets/default/documents/"+id+"?name=manual.pdf", "application/pdf", f, &answer); err != nil {
			return err
		}
		job, err := s.ended(ctx, answer.Job.ID)
		if err != nil {
			return err
		}
		if job.State != sheaf.DocSucceeded {
			return fmt.Errorf("the manual ended %s: %s", job.State, s.why(ctx, job.ID))
		}
		var list api.List[api.Task]
		if err := s.call(ctx, http.MethodGet, "/v1/datasets/default/documents/"+id+"/tasks", nil, &list); err != nil {
			return err
		}
		pages, again := map[string]int{}, 0
		for _, t := range list.Items {
			if t.Kind == sheaf.KindParse {
				pages[t.Worker] += t.Range.Len()
				again += (t.Attempts - 1) * t.Range.Len()
			}
		}
		shares := slices.SortedFunc(maps.Values(pages), func(a, b int) int { return cmp.Compare(b, a) })
		if len(shares) == 0 {
			return errors.New("no range was read")
		}
		b.atMost("fleet.spread", float64(shares[0])/10, "% of the pages", 60, fmt.Sprintf("read by the busier of two executors; pages by executor: %d; load %s", shares, load()))
		b.atMost("fleet.spread.twice", float64(again), "pages", 0, "read more than once")
		return nil
	})
}
